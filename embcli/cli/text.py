"""The input: a text or token IDs from an argument, a file or standard input."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from embcli import memory
from embcli.cli.console import is_terminal, say
from embcli.cli.paths import is_file
from embcli.errors import InputError
from embcli.text import Sequences, decoded, lines_of, lines_of_ids, parse_ids
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    import numpy as np

_PIECE, _MOST_OF_A_DEVICE = 1 << 20, 10**7  # bytes
_COPIES = 8  # its pieces, its bytes, and its characters, which may take four bytes each


def read(
    text: str | None = None,
    file: Path | None = None,
    ids: str | None = None,
    lines: bool = False,
    example: str = 'embcli lookup "Every effort moves you"',
) -> Sequences:
    """Read a text or IDs; without text, file and IDs from standard input, unless that is a terminal.

    `lines` makes each line a sequence, without its line end; the example begins with the verb. A text that looks like
    IDs or is the name of a file is read as text, and a note says how to read the other; a note also tells of CRLF
    and CR. Raises InputError if nothing (with the example) or too much is given, and for invalid UTF-8.
    """
    named = {"TEXT": text, "--file": file, "--ids": ids}
    used = [name for name, value in named.items() if value is not None]
    if len(used) > 1:
        both = re.fullmatch(r"([0-9]{1,19}),? ([0-9]{1,19}),?", f"{ids} {text}", re.ASCII)
        hint = f"Write the IDs as one word, with commas between: --ids {both[1]},{both[2]}" if both else ""
        raise InputError(f"{' and '.join(used)} stand for the same input; give one of them", hint)
    if ids is not None:
        source = _standard_input("--ids -", f"echo 2,3,5,1 | {_verb(example)} --ids -") if ids == "-" else ids
        return Sequences(ids=lines_of_ids(source) if lines else (parse_ids(source),), many=lines)
    if file is not None and str(file) != "-":
        texts = [decoded(_file(file), str(file))]
    elif text is None or text == "-":
        texts = [_standard_input("TEXT", example)]
    else:
        texts = [argument(text)]
    if text is not None:
        _note_other_readings(text, _verb(example))
    if lines:
        texts = lines_of(texts[0])
    if text in (None, "-"):
        _note_line_ends(texts)
    return Sequences(texts=tuple(texts), many=lines)


def read_ids(ids: str | None = None) -> np.ndarray:
    """Read IDs, (T,) int64; without any (or for -) from standard input, unless that is a terminal.

    Raises InputError for invalid IDs, and, with an example, if nothing is given.
    """
    example = "embcli decode 6109 3626 6100 345"
    option = re.search(r"(?:^| )(--[a-z][-a-z]*)", ids or "")
    if option:
        raise InputError(f"there is no option {option[1]}; write IDs only, as in: {example}")
    return parse_ids(_standard_input("IDS", example) if ids is None or ids == "-" else ids)


def _verb(example: str) -> str:
    """Return the verb of an example: `embcli lookup`."""
    return " ".join(example[example.index("embcli") :].split()[:2])


def _note_other_readings(text: str, verb: str) -> None:
    """Say how to read what looks like IDs, or the name of a file that exists."""
    if re.fullmatch(r"[0-9]+(?:[, ]+[0-9]+)*", text, re.ASCII):
        say(f"{text[:60]!r} is read as a text; for token IDs: {verb} --ids {','.join(re.findall('[0-9]+', text))[:60]}")
    if is_file(text):
        say(f"{text!r} is read as a text; for the file: {verb} --file {shlex.quote(text)}")


def _note_line_ends(texts: Sequence[str]) -> None:
    """Say if texts of a file have line ends that Python's `open` would read as LF."""
    count = sum(text.count("\r") for text in texts)
    if count:
        both = sum(text.count("\r\n") for text in texts)
        kinds = "CRLF" if both == count else "CRLF or CR" if both else "CR"
        say(f"the text keeps {counted(count, f'{kinds} line end')}; Python's open() reads them as LF")


def argument(text: str, name: str = "TEXT") -> str:
    """Return a text of the command line; raises InputError for invalid UTF-8."""
    if text.isascii():
        return text
    try:
        # Python passes invalid UTF-8 of a command line as lone surrogates; this restores the bytes.
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return decoded(data, name)


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return _all_of(file, repr(str(path)))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', error)}") from None


def _all_of(file: BinaryIO, name: str) -> bytes:
    """Return the content of a file, read in pieces between which signals are handled.

    Raises InputError for a device with more than anybody types, and for more than fits into memory: a device and a pipe
    may have no end, as /dev/zero and what `yes` prints.
    """
    pieces, size, most = [], 0, _MOST_OF_A_DEVICE
    while piece := file.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            if _is_device(file):
                raise InputError(f"cannot read {name}: it is a device that gives more than {in_bytes(most)}")
            most = max(most, memory.total() // _COPIES)
        if size > most:
            raise InputError(
                f"cannot read {name}: it holds more than {in_bytes(most)}, too much for this machine's memory"
            )
    return b"".join(pieces)


def _is_device(file: BinaryIO) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:  # not a file of the system
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _standard_input(name: str, example: str) -> str:
    if sys.stdin is None or is_terminal(sys.stdin):
        raise InputError(
            f"no {name} given and nothing is piped in, as in: {example}", f"Try '{_verb(example)} --help' for help."
        )
    try:
        data = _all_of(sys.stdin.buffer, "standard input")
    except OSError as error:
        raise InputError(f"cannot read standard input: {os.strerror(error.errno or 0)}") from None
    return decoded(data, "standard input")

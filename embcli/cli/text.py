"""The input: a text or token IDs from an argument, a file or standard input."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from embcli.cli.console import is_terminal, say
from embcli.errors import InputError
from embcli.text import Sequences, decoded, lines_of, lines_of_ids, parse_ids
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    import numpy as np

_PIECE = 1 << 20  # bytes
_MOST, _MOST_OF_A_DEVICE = 2 * 10**9, 10**7  # bytes; a device and a pipe may have no end, as /dev/zero has none


def read(
    text: str | None = None,
    file: Path | None = None,
    ids: str | None = None,
    lines: bool = False,
    example: str = 'embcli lookup "Every effort moves you"',
) -> Sequences:
    """Read a text or IDs; without text, file and IDs from standard input, unless that is a terminal.

    `lines` makes each line a sequence, without its line end; the example begins with the verb. A text that looks like
    IDs or is the name of a file is read as text, and a note says how to read the other. Raises InputError if nothing
    (with the example) or too much is given, and for invalid UTF-8.
    """
    verb = " ".join(example.split()[:2])
    used = [name for name, value in {"TEXT": text, "--file": file, "--ids": ids}.items() if value is not None]
    if len(used) > 1:
        hint = "Write the IDs as one word, with commas between: --ids 2,3,5,1" if "--ids" in used else ""
        raise InputError(f"{' and '.join(used)} stand for the same input; give one of them", hint)
    if ids is not None:
        source = _standard_input("--ids -", f"echo 2,3,5,1 | {verb} --ids -", verb) if ids == "-" else ids
        return Sequences(ids=lines_of_ids(source) if lines else (parse_ids(source),), many=lines)
    if text is not None and text != "-":
        content = argument(text)
        if re.fullmatch(r"[0-9]+(?:[, ]+[0-9]+)*", text, re.ASCII):
            joined = ",".join(re.findall("[0-9]+", text))[:60]
            say(f"{text[:60]!r} is read as a text; for token IDs: {verb} --ids {joined}")
        if len(text) < 256 and "\0" not in text and Path(text).is_file():
            say(f"{text!r} is read as a text; for the file: {verb} --file {shlex.quote(text)}")
    else:
        is_file = file is not None and str(file) != "-"
        content = _content(file) if file is not None and is_file else _standard_input("TEXT", example, verb)
    texts = lines_of(content) if lines else [content]
    if (text is None or text == "-") and (returns := sum(each.count("\r") for each in texts)):
        both = sum(each.count("\r\n") for each in texts)
        kinds = "CRLF" if both == returns else "CRLF or CR" if both else "CR"
        say(f"the text keeps {counted(returns, f'{kinds} line end')}; Python's open() reads them as LF")
    return Sequences(texts=tuple(texts), many=lines)


def read_ids(ids: str | None = None) -> np.ndarray:
    """Read IDs, (T,) int64; without any (or for -) from standard input. Raises InputError for anything else."""
    option = re.search(r"(?:^| )(--[a-z][-a-z]*)", ids or "")
    if option is not None:
        raise InputError(f"there is no option {option[1]}", "Try 'embcli decode --help' for help.")
    example = "embcli decode 6109 3626 6100 345"
    return parse_ids(_standard_input("IDS", example, "embcli decode") if ids in (None, "-") else ids)


def argument(text: str, name: str = "TEXT") -> str:
    """Return a text of the command line; raises InputError for invalid UTF-8."""
    try:
        # Python passes invalid UTF-8 of a command line as lone surrogates; this restores the bytes.
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return decoded(data, name)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return decoded(_bounded(file, repr(str(path))), str(path))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', error)}") from None


def _standard_input(name: str, example: str, verb: str) -> str:
    if sys.stdin is None or is_terminal(sys.stdin):
        hint = f"Try '{verb} --help' for help."
        raise InputError(f"no {name} given and nothing is piped in, as in: {example}", hint)
    try:
        return decoded(_bounded(sys.stdin.buffer, "standard input"), "standard input")
    except OSError as error:
        raise InputError(f"cannot read standard input: {os.strerror(error.errno or 0)}") from None


def _bounded(file: BinaryIO, name: str) -> bytes:
    """Return the content of a file, read in pieces; raises InputError for too much."""
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:  # not a file of the system
        mode = 0
    is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    pieces, size, most = [], 0, _MOST_OF_A_DEVICE if is_device else _MOST
    while piece := file.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise InputError(
                f"cannot read {name}: {'the device' if is_device else 'it'} gives more than {in_bytes(most)}"
            )
    return b"".join(pieces)

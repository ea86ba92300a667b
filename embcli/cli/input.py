"""The input of a command: a text or token IDs from an argument, a file or standard input."""

from __future__ import annotations

import re
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.cli.console import is_terminal, say
from embcli.errors import InputError
from embcli.wording import counted, in_bytes

if TYPE_CHECKING:
    import numpy as np

    from embcli.text import Sequences

_MOST = 10**9  # bytes; a device and a pipe may have no end, as /dev/zero has none


def read(
    text: str | None = None,
    file: Path | None = None,
    ids: str | None = None,
    lines: bool = False,
    example: str = 'embcli lookup "Every effort moves you"',
) -> Sequences:
    """Read a text or IDs; without text, file and IDs from standard input, unless that is a terminal.

    `lines` makes each line a sequence, without its line end. The example, which begins with the verb, says what could
    be given. A text that looks like IDs or is the name of a file is read as text, with a note.
    """
    from embcli.text import Sequences, decoded, lines_of, lines_of_ids, parse_ids

    verb = " ".join(example.split()[:2])
    used = [
        name
        for name, value in {"TEXT": text, "--file": file, "--ids": ids}.items()
        if value is not None
    ]
    if len(used) > 1:
        hint = (
            "Write the IDs as one word, with commas between: --ids 2,3,5,1"
            if "--ids" in used
            else ""
        )
        raise InputError(f"{' and '.join(used)} stand for the same input; give one of them", hint)
    if ids is not None:
        source = (
            _content(None, "--ids -", f"echo 2,3,5,1 | {verb} --ids -", verb) if ids == "-" else ids
        )
        return Sequences(ids=lines_of_ids(source) if lines else (parse_ids(source),), many=lines)
    if text is not None and text != "-":
        content = decoded(text, "TEXT")
        if re.fullmatch(r"[0-9]+(?:[, ]+[0-9]+)*", text, re.ASCII):
            joined = ",".join(re.findall("[0-9]+", text))[:60]
            say(f"{text[:60]!r} is read as a text; for token IDs: {verb} --ids {joined}")
        if len(text) < 256 and "\0" not in text and Path(text).is_file():
            say(f"{text!r} is read as a text; for the file: {verb} --file {shlex.quote(text)}")
    else:
        content = _content(None if str(file) == "-" else file, "TEXT", example, verb)
    texts = lines_of(content) if lines else [content]
    returns = sum(each.count("\r") for each in texts)
    if returns and text in (None, "-"):
        say(
            f"the text keeps {counted(returns, 'carriage return')}; Python's open() reads them as LF"
        )
    return Sequences(texts=tuple(texts), many=lines)


def read_ids(ids: str | None = None) -> np.ndarray:
    """Read IDs, (T,) int64; without any (or for -) from standard input. Raises InputError for anything else."""
    from embcli.text import parse_ids

    example = "embcli decode 6109 3626 6100 345"
    return parse_ids(_content(None, "IDS", example, "embcli decode") if ids in (None, "-") else ids)


def read_vectors(path: Path, dim: int) -> np.ndarray:
    """Read vectors, (n, D) or (D,) float32, from a .npy file, or from lines of a file or (for -) standard input."""
    from embcli.verbs.neighbors import vectors_in_array, vectors_in_lines

    if path.suffix == ".npy":
        return vectors_in_array(path)
    (typed,) = read(file=path, example="embcli neighbors --vector -").texts or ("",)
    return vectors_in_lines(typed, dim)


def _content(file: Path | None, name: str, example: str, verb: str) -> str:
    """Return the text of a file, or of standard input; `name` is what else could be given, as in the example."""
    from embcli.text import decoded

    if file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        hint = f"Try '{verb} --help' for help."
        raise InputError(f"no {name} given and nothing is piped in, as in: {example}", hint)
    place = "standard input" if file is None else repr(str(file))
    try:
        with nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as source:
            data = source.read(_MOST + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {place}: {getattr(error, 'strerror', error)}") from None
    if len(data) > _MOST:
        raise InputError(f"cannot read {place}: it gives more than {in_bytes(_MOST)}")
    return decoded(data, str(file or place))

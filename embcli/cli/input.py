"""The input of a command: a text or token IDs from an argument, a file or standard input.

The groups of options and the commands call it. What it returns has been decoded and split, but not
tokenized; token IDs have been parsed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli.atomic import opened_files
from embcli.cli.console import is_terminal, say
from embcli.cli.hints import cure_of_words, note_on_word
from embcli.errors import InputError
from embcli.names import LONGEST_TEXT, PROGRAM
from embcli.wording import in_bytes

if TYPE_CHECKING:
    import numpy as np

    from embcli.text import Sequences
    from embcli.verbs.count import CountInput

_IDS = r"\[?[0-9]+(?:[,\s]+[0-9]+)*\]?\s*"


def read(given: Any, example: str, lines: bool = False) -> Sequences:
    """Read the text or the IDs that options give; by default from standard input, if it is piped.

    `lines` makes each line a sequence, without its line end. The example, which begins with the
    verb, says what could be given. A text that looks like IDs or is the name of a file is read as
    text, with a note.
    """
    from embcli.text import Sequences, lines_of_ids, parse_ids, sequences_of

    text = given.text
    file = given.file
    ids = given.ids
    _refuse_several({"TEXT": text, "--file": file, "--ids": ids})
    if ids == "-":
        ids = read_text(None, "--ids -", f"echo 2,3,5,1 | {_verb(example)} --ids -")
    if ids is not None:
        sequences = lines_of_ids(ids) if lines else (parse_ids(ids),)
        return Sequences(ids=sequences, many=lines)

    if text is not None and text != "-":
        content = _typed_text(text, example)
    else:
        path = None if str(file) == "-" else file
        content = read_text(path, "TEXT", example)
        if path is None and re.fullmatch(_IDS, content, re.ASCII):
            say(f"the piped IDs are read as a text; for token IDs: {_verb(example)} --ids -")
        elif path is None and not lines and re.fullmatch(".+\n", content):
            say("the line end of the piped line is read as text; echo -n writes none")
    return sequences_of(content, lines)


def _refuse_several(inputs: dict[str, object]) -> None:
    """Raise InputError if more than one of these inputs is given; they are named by their flags."""
    names = [name for name, value in inputs.items() if value is not None]
    if len(names) > 1:
        several = " and ".join(names)
        hint = cure_of_words(several, [str(inputs[names[0]])])
        raise InputError(f"{several} stand for the same input; give one of them", hint)


def _typed_text(text: str, example: str) -> str:
    """Return a text from the command line; a note says what else its writer may have meant."""
    from embcli.text import decoded

    content = decoded(text, "TEXT")
    if os.path.isfile(text):  # noqa: PTH113 - Path.is_file raises errors for some names
        verb = _verb(example)
        say(f"{text!r} is read as a text; for the file: {verb} --file {shlex.quote(text)}")
    else:
        note_on_word(text, "text")
    return content


def sources(files: Sequence[str] | None, text: str | None) -> list[CountInput]:
    """Return what is counted: a text, or files; by default, and for -, standard input."""
    from embcli.verbs.count import CountInput

    _refuse_several({"FILE": files, "--text": text})
    if text is not None:
        return [CountInput.of_text(text)]
    found = []
    for name in files or ["-"]:
        if name == "-":
            _refuse_terminal("FILE", "embcli count book.txt")
            found.append(CountInput(name, lambda: nullcontext(sys.stdin.buffer)))
        else:
            note_on_word(name, "file")
            found.append(CountInput.of_file(name))
    return found


def read_ids(ids: str | None) -> np.ndarray:
    """Read IDs, (T,) int64; without any, or for -, from standard input.

    Raises InputError for anything else.
    """
    from embcli.text import parse_ids

    if ids is None or ids == "-":
        ids = read_text(None, "IDS", "embcli decode 6109 3626 6100 345")
    array = parse_ids(ids)
    if not len(array):
        say("the input is empty")
    return array


def read_vectors(path: Path) -> np.ndarray:
    """Read vectors, (n, D) or (D,) float32, from a .npy file or, for -, from standard input."""
    from embcli.verbs.neighbors.queries import vectors_in_array

    file = None if str(path) == "-" else path
    data = _bytes(file, "vectors", "embcli neighbors --vector rows.npy")
    return vectors_in_array(data, _place(file))


def read_text(file: Path | None, name: str, example: str) -> str:
    """Return the text of a file, or of standard input; see `_bytes`."""
    from embcli.text import decoded

    return decoded(_bytes(file, name, example), str(file or _place(file)))


def _bytes(file: Path | None, name: str, example: str) -> bytes:
    """Return what is in a file, or in standard input.

    `name` is what else could be given, as in the example.
    """
    if file is None:
        _refuse_terminal(name, example)
    else:
        opened_files.add(file.absolute())
    place = _place(file)
    try:
        with nullcontext(sys.stdin.buffer) if file is None else file.open("rb") as source:
            data = source.read(LONGEST_TEXT + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        hint = cure_of_words("missing files", [place])
        raise InputError(f"cannot read {place}: {reason}", hint) from None
    if len(data) > LONGEST_TEXT:
        raise InputError(f"cannot read {place}: it gives more than {in_bytes(LONGEST_TEXT)}")
    return data


def _place(file: Path | None) -> str:
    return "standard input" if file is None else repr(str(file))


def _refuse_terminal(name: str, example: str) -> None:
    """Raise InputError if standard input is a terminal, or closed; see `read_text`."""
    if sys.stdin is None or is_terminal(sys.stdin):
        hint = f"Try '{_verb(example)} --help' for help."
        raise InputError(f"no {name} given and nothing is piped in, as in: {example}", hint)


def _verb(example: str) -> str:
    """Return the command in an example, such as `embcli lookup`."""
    words = example[example.index(PROGRAM) :].split()
    return " ".join(words[:2])

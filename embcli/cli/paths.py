"""The files that a command reads: which of them a tour may name, and that no output replaces one."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from embcli import names
from embcli.errors import InputError, OutputError
from embcli.names import ENCODINGS

_READ = ("file", "path", "base", "tuned", "vector", "encoding")  # parameters that name files


def is_file(name: str) -> bool:
    """Return whether there is a file of this name; most texts could not be one."""
    with suppress(OSError, ValueError):
        return Path(name).is_file()
    return False


def refuse_own_input(given: dict[str, Any]) -> None:
    """Raise OutputError if the output of a command would replace a file, or one of a folder, that the command reads."""
    output = given.get("output")
    if output is None:
        return
    for _, path in _named(given):
        with suppress(OSError, ValueError):  # one of them does not exist
            place = Path(path)
            if output.is_file() and (output.samefile(place) or (place.is_dir() and place.samefile(output.parent))):
                raise OutputError(f"{str(output)!r} is read by this command; name another file with --output")


def refuse_outside(given: dict[str, Any], folder: Path, text: str) -> None:
    """Raise InputError if a command of a tour names a file outside a folder; the text of the user may name one."""
    for name, path in _named(given):
        try:
            is_own = Path(path).resolve(strict=True).is_relative_to(folder)
        except (OSError, ValueError):  # a name of the local Hugging Face cache or of an encoding, or nothing
            is_own = name == "encoding" and "/" not in path
        is_own = is_own or (name == "encoding" and path in names.ENCODINGS)  # whatever is in the working folder
        if not is_own and path != text:
            raise InputError(f"a tour reads only files of its own folder, and {path[:60]!r} is not one")


def _named(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parameters that name files, and the files; - is standard input, and gpt2 is no file."""
    for name in _READ:
        value = given.get(name)
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None and str(each) != "-" and not (name == "encoding" and each in ENCODINGS):
                yield name, str(each)

"""The format that a result is saved in, and checks of format and file before any work."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from embcli.atomic import refuse_others, refuse_read_only
from embcli.errors import OutputError, lacks
from embcli.formats import ALIASES, FORMATS, SUFFIXES, FormatName, Kind, able
from embcli.memory import refuse_shortage
from embcli.words import naming

if TYPE_CHECKING:
    from pathlib import Path


_ARROW = 130 * 10**6, 40 * 10**6  # bytes of addresses and of data that pyarrow takes; it aborts without them


def chosen_format(kind: Kind, format: str | None, file: Path | None, default: str = "") -> FormatName:
    """Return the format to write: as named, else by the suffix of the file, else the default if it can hold the result.

    Raises OutputError for a format that cannot hold this kind of result or whose package is missing, for an unknown
    suffix without a default, and for a file that obviously cannot be written.
    """
    chosen = _named_format(kind, format, file, default)
    _refuse_without_package(chosen)
    if file is not None:
        _refuse_unwritable(file, chosen)
    return chosen


def _named_format(kind: Kind, format: str | None, file: Path | None, default: str) -> FormatName:
    known = able(kind)
    suffix = file.suffix.lower() if file else ""
    chosen = ALIASES.get(format, format) if format else SUFFIXES.get(suffix)
    if chosen is None:
        if suffix and not default:
            reason = "{output} {given!r} has no known extension; name a format with {format}"
            raise OutputError(naming(reason, given=str(file)))
        named = FORMATS.get(ALIASES.get(default, default), FORMATS["table"]).name
        return named if named in known else "table"
    if chosen not in known:
        raise OutputError(f"this result cannot be written as {chosen[:40]}; it can be written as {', '.join(known)}")
    return FORMATS[chosen].name


def refuse_many(shown: tuple[str, ...] | None, format: FormatName) -> None:
    """Raise OutputError for several matrices in a format that holds one."""
    if shown is not None and len(shown) > 1 and FORMATS[format].one_matrix:
        raise OutputError(
            naming("this format holds one matrix, not {names}; choose one with {show}", names=", ".join(shown))
        )


def _refuse_without_package(format: FormatName) -> None:
    """Raise OutputError for a format whose package is missing or cannot be loaded."""
    required = FORMATS[format].extra
    if required is None:
        return
    if format == "parquet":
        refuse_shortage(required[0], *_ARROW)
    try:
        import_module(required[0])
    except Exception as error:  # matplotlib raises ValueError for an unknown MPLBACKEND
        raise OutputError(lacks(format, required[1], error)) from None


def _refuse_unwritable(path: Path, format: FormatName) -> None:
    """Raise OutputError for a place that obviously cannot be written."""
    with explaining_failure(path):
        if not path.parent.is_dir():
            raise _failed(errno.ENOTDIR if path.parent.exists() else errno.ENOENT)
        if not path.exists():
            return
        if FORMATS[format].folder:
            refuse_others(path, FORMATS[format].folder)
        elif stat.S_ISDIR(path.stat().st_mode):
            raise _failed(errno.EISDIR)
        refuse_read_only(path)


@contextmanager
def explaining_failure(path: Path | None) -> Iterator[None]:
    """Raise OutputError if the system cannot write to a destination; None is standard output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "standard output" if path is None else repr(str(path))
        raise OutputError(f"cannot write to {place}: {error.strerror or error}") from None


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))

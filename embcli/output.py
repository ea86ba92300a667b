"""Where a result goes and in what form: standard output or a file, and the one place that writes it there."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol

from embcli.errors import OutputError
from embcli.safe import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from embcli.records import Records
    from embcli.page.terminal import Page

FORMATS = ("table", "json", "ndjson", "csv", "tsv", "npy", "safetensors", "ids")
LARGEST_PRECISION = 16  # decimals; a float32 has at most 9 significant digits to tell
_BINARY = ("npy", "safetensors")
_SUFFIXES = {".txt": "table", ".jsonl": "ndjson"} | {f".{name}": name for name in FORMATS}


class Result(Protocol):
    """Something that can be written as data."""

    def records(self) -> Records:
        """Return the result as data."""


@dataclass(frozen=True)
class Output:
    """What the user said of the output."""

    format: str | None = None
    path: Path | None = None
    precision: int = 4
    color: str = "auto"

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= LARGEST_PRECISION:
            raise OutputError(f"--precision {self.precision} is out of range; it goes from 1 to {LARGEST_PRECISION}")

    @property
    def _file(self) -> Path | None:
        """The file that the result goes to; None for standard output."""
        return None if self.path is None or str(self.path) == "-" else self.path

    def resolve(self, able: tuple[str, ...]) -> str:
        """Return the format to write: as said, or by the suffix of the path, or by EMBCLI_FORMAT, or the table.

        Raises OutputError for a format that this result does not have; EMBCLI_FORMAT then gives way to the table.
        """
        default = os.environ.get("EMBCLI_FORMAT") or "table"
        if default not in FORMATS:
            raise OutputError(f"EMBCLI_FORMAT {default[:40]!r} is no format; there are {', '.join(FORMATS)}")
        suffix = self._file.suffix.lower() if self._file else ""
        chosen = self.format or _SUFFIXES.get(suffix)
        if chosen is None:
            if suffix and "EMBCLI_FORMAT" not in os.environ:
                raise OutputError(f"--output {str(self.path)!r} tells no form; name one with --format")
            return default if default in able else "table"
        if chosen not in able:
            raise OutputError(f"this result has no form as {chosen}; it can be written as {', '.join(able)}")
        return chosen

    def write(
        self,
        result: Result,
        view: Callable[[Any, Page], None],
        show: tuple[str, ...] | None = None,
        needs: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Write a result: as the table that `view` puts on a page, or as the data of the matrices in `show`.

        `needs` tells of options that were given, and which forms can show what they ask for.
        """
        records = result.records()
        form = self.resolve(records.forms)
        for option, forms in (needs or {}).items():
            if form not in forms:
                raise OutputError(f"{option} has no place in {form}; it is shown by --format {' or '.join(forms)}")
        if form == "table":
            from embcli.page.terminal import Page

            page = Page.of(self._file is None, self.color, self.precision)
            view(result, page)
            with self.open("view") as file:
                file.write(page.content())
            return
        from embcli.writers import write

        with self.open("binary" if form in _BINARY else "text") as file:
            write(records, form, show, file)

    @contextmanager
    def open(self, kind: Literal["view", "text", "binary"]) -> Iterator[BinaryIO]:
        """Open the destination. A file is written beside and renamed, so that a failure leaves the old one whole.

        A view is made for a terminal; text is made safe for it on the way; binary data never goes there.
        """
        path = self._file
        try:
            with _standard_output() if path is None else _replacing(path) as file:
                if kind == "binary" and file.isatty():
                    raise OutputError("binary data is not for a terminal; pipe it on, or name a file with --output")
                yield _Terminal(file) if kind == "text" and file.isatty() else file  # type: ignore[misc]
        except BrokenPipeError:
            raise
        except OSError as error:
            place = "standard output" if path is None else repr(str(path))
            raise OutputError(f"cannot write to {place}: {error.strerror}") from None


class _Terminal:
    """A terminal: text on its way to it has no control character or bidi control but what embcli itself put there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def isatty(self) -> bool:
        return True

    def write(self, data: bytes) -> None:
        text = bytes(data).decode(errors="backslashreplace").replace("\r\n", "\n")  # csv ends its lines with both
        self._file.write(printable(text).encode())


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    if sys.stdout is None:
        raise OutputError("standard output is closed; open it, or name a file with --output")
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    try:
        status = path.stat()
    except FileNotFoundError:
        status = None
    if status is not None and not stat.S_ISREG(status.st_mode):
        with path.open("wb") as file:  # a device or a pipe cannot be replaced
            yield file
        return
    path = path.resolve()  # a link stays a link, and what it points to is replaced
    half = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")  # 40 characters are 160 bytes at most
    try:
        with half.open("xb") as file:
            if status is not None:
                half.chmod(stat.S_IMODE(status.st_mode))  # before there is anything in it to read
            yield file
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise

"""Where a result goes and in what form: standard output, a file or a folder, and the one place that writes it there.

All that can be refused is refused when the output is made, before a result is worked out.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, TypeVar, cast

from embcli.errors import OutputError, lacks
from embcli.names import (
    ALIASES,
    BINARY,
    DEFAULT_PRECISION,
    EXTRAS,
    FOLDERS,
    FORMATS,
    ONE_MATRIX,
    PAGES,
    PICTURES,
    SUFFIXES,
    Color,
    Format,
    Theme,
)
from embcli.safe import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from embcli.page import Page
    from embcli.page.canvas import Canvas
    from embcli.records import Records

LARGEST_PRECISION = 16  # decimals; a float32 has at most 9 significant digits to tell
_MOST_ON_A_TERMINAL = 100_000  # numbers of a data format
_PIPE_WIDTH, _PICTURE_WIDTH = 120, 100
_WIDTHS = 40, 1000  # that a page can be made
_WIDTH_UNKNOWN, _LINES_UNKNOWN = 80, 24  # of a terminal that does not say


class Result(Protocol):
    """Something that can be written as data."""

    def records(self) -> Records:
        """Return the result as data."""


AnyResult = TypeVar("AnyResult", bound=Result)
AnyDrawing = TypeVar("AnyDrawing")


@dataclass(frozen=True, eq=False)
class Output:
    """A place for a result, and the format it is written in there."""

    format: Format
    path: Path | None  # None for standard output
    color: Color = "auto"
    precision: int = DEFAULT_PRECISION
    show: tuple[str, ...] | None = None  # the matrices that the user named
    heat: bool = False  # whether matrices are strips of colours on a page
    scale: float | None = None  # the largest number of a strip; None for that of its matrix
    width: int | None = None  # cells of a page
    theme: Theme | None = None  # of a picture

    def write(self, result: AnyResult, view: Callable[[AnyResult, Page], None]) -> None:
        """Write a result: as `view` puts it on a page, or as data."""
        if self.format in PAGES:
            self.put(lambda page: view(result, page))
            return
        from embcli import writers

        if self.path is not None and self.format in FOLDERS:  # which `to` refuses without a path
            with self._told(), _replacing_folder(self.path) as folder:
                writers.write_folder(result.records(), self.format, self.show, folder)
            return
        if self.format == "json" and self._on_a_terminal:
            from embcli.page.document import pretty

            document = BytesIO()
            writers.write(result.records(), self.format, self.show, document)
            text = pretty(document.getvalue(), _colored(self.color, True))
            with self.open("page") as file:
                file.write(text.encode())
            return
        with self.open("binary" if self.format in BINARY else "text") as file:
            writers.write(result.records(), self.format, self.show, file)

    def put(self, put: Callable[[Page], None]) -> None:
        """Write what is put on a page, and nothing else: for what has no data behind it."""
        page = self._page()
        put(page)
        with self.open("page") as file:
            file.write(page.content())

    def draw(self, result: AnyDrawing, view: Callable[[AnyDrawing, Canvas], None]) -> None:
        """Write a result as `view` draws it on a canvas."""
        canvas = self._page().canvas()
        view(result, canvas)
        with self.open("page") as file:
            file.write(canvas.content())

    @property
    def _on_a_terminal(self) -> bool:
        return self.path is None and sys.stdout is not None and sys.stdout.isatty()

    def _page(self) -> Page:
        from embcli.page import Paper, page_kind

        terminal = self.format == "table" and self._on_a_terminal
        width, lines = (_PICTURE_WIDTH, 0) if self.format in PICTURES else _size(terminal)
        color = self.color != "never" if self.format in PICTURES else _colored(self.color, terminal)
        paper = Paper(
            width=self.width or width,
            screen=lines if terminal else None,
            color=color,
            precision=self.precision,
            heat=self.heat,
            scale=self.scale,
            theme=self.theme or "light",
            encoding=(sys.stdout.encoding if terminal else None) or "utf-8",
        )
        return page_kind(_KINDS[self.format])(paper)

    def room(self, matrices: int) -> int | None:
        """Return how many numbers a matrix may have, where so many are written; None for any number."""
        if self.format in PAGES or not self._on_a_terminal:
            return None
        return _MOST_ON_A_TERMINAL // (1 if self.format in ONE_MATRIX else matrices)

    def write_text(self, text: bytes) -> None:
        """Write a text as it is; on a terminal its last line is ended."""
        with self.open("text") as file:
            file.write(text)
            if file.isatty() and not text.endswith(b"\n"):
                file.write(b"\n")

    @contextmanager
    def open(self, kind: Literal["page", "text", "binary"]) -> Iterator[BinaryIO]:
        """Open the destination. A file is written beside and renamed, so that a failure leaves the old one whole.

        A page is made for a terminal; text is made safe for it on the way; binary data never goes there.
        """
        with self._told(), _standard_output() if self.path is None else _replacing(self.path) as file:
            if kind == "binary" and file.isatty():
                raise OutputError(_NOT_FOR_A_TERMINAL)
            yield cast("BinaryIO", _Safe(file)) if kind == "text" and file.isatty() else file

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell of a destination that cannot be written."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(self.path, error.strerror or str(error)) from None


_KINDS: dict[Format, str] = {
    "table": "terminal:Terminal",
    "svg": "svg:Svg",
    "html": "html:Html",
    "png": "png:Png",
    "markdown": "markdown:Markdown",
    "latex": "latex:Latex",
}


def to(
    able: tuple[Format, ...],
    format: Format | None = None,
    path: Path | None = None,
    color: Color = "auto",
    precision: int = DEFAULT_PRECISION,
    show: tuple[str, ...] | None = None,
    needs: Mapping[str, tuple[Format, ...]] | None = None,
    width: int | None = None,
    theme: Theme | None = None,
) -> Output:
    """Return the output that the user asked for; nothing is opened yet.

    `able` are the formats that the result has, and `needs` tells of options that were given, and which formats have a
    place for what they ask for. Raises OutputError for what cannot be done.
    """
    if not 1 <= precision <= LARGEST_PRECISION:
        raise OutputError(f"--precision {precision} is out of range; it goes from 1 to {LARGEST_PRECISION}")
    if width is not None and not _WIDTHS[0] <= width <= _WIDTHS[1]:
        raise OutputError(f"--width {width} is out of range; it goes from {_WIDTHS[0]} to {_WIDTHS[1]}")
    file = named(path)
    chosen = _chosen(able, format, file)
    given = {"--width": (width, PAGES), "--theme": (theme, PICTURES)}
    needs = {option: formats for option, (value, formats) in given.items() if value is not None} | dict(needs or {})
    for option, formats in needs.items():
        if chosen not in formats:
            raise OutputError(f"{option} has no place in {chosen}; it is shown by --format {_either(formats)}")
    if show is not None and len(show) > 1 and chosen in ONE_MATRIX:
        raise OutputError(f"this format holds one matrix, not {', '.join(show)}; choose one with --show")
    if chosen in EXTRAS:
        _refuse_without_package(chosen)
    if file is None and chosen in FOLDERS:
        raise OutputError(f"{chosen} is a folder of files; name it with --output")
    if file is None and chosen in BINARY and sys.stdout is not None and sys.stdout.isatty():
        raise OutputError(_NOT_FOR_A_TERMINAL)
    if file is not None:
        _refuse_unwritable(file, chosen)
    return Output(chosen, file, color, precision, show, width=width, theme=theme)


_OPEN_ALREADY = re.compile("/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})")


def named(path: Path | None) -> Path | None:
    """Return the path that --output names; None, as where it is not given, for -, which is standard output."""
    return None if path is None or str(path) == "-" else path


_NOT_FOR_A_TERMINAL = "binary data is not for a terminal; pipe it on, or name a file with --output"


def _chosen(able: tuple[Format, ...], format: Format | None, file: Path | None) -> Format:
    """Return the format to write: as said, or by the suffix of the file, or by EMBCLI_FORMAT, or the table.

    Raises OutputError for a format that this result does not have; EMBCLI_FORMAT then gives way to the table.
    """
    named = os.environ.get("EMBCLI_FORMAT") or "table"
    default = ALIASES.get(named, named)
    if default not in FORMATS:
        raise OutputError(f"EMBCLI_FORMAT {default[:40]!r} is no format; there are {', '.join(FORMATS)}")
    suffix = file.suffix.lower() if file else ""
    chosen = format or SUFFIXES.get(suffix)
    if chosen is None:
        if suffix and not os.environ.get("EMBCLI_FORMAT"):
            raise OutputError(f"--output {str(file)!r} tells no format; name one with --format")
        return default if default in able else "table"
    if chosen not in able:
        raise OutputError(f"this result has no form as {chosen}; it can be written as {', '.join(able)}")
    return chosen


def _either(formats: tuple[Format, ...]) -> str:
    """Return formats to choose from, in words."""
    return " or ".join([", ".join(formats[:-1]), formats[-1]]) if len(formats) > 1 else formats[0]


def _refuse_without_package(format: Format) -> None:
    """Raise OutputError for a format whose package is missing, or cannot be loaded."""
    from importlib import import_module

    package, extra = EXTRAS[format]
    try:
        import_module(package)
    except ImportError:
        raise OutputError(lacks(format, extra)) from None


def _refuse_unwritable(path: Path, format: Format) -> None:
    """Raise OutputError for a place that cannot be written, as far as that shows beforehand."""
    try:
        if not path.parent.is_dir():
            raise _failed(errno.ENOTDIR if path.parent.exists() else errno.ENOENT)
        status = _status(path)
        if status is not None and format in FOLDERS:
            _refuse_others(path, FOLDERS[format])
        elif status is not None and stat.S_ISDIR(status.st_mode):
            raise _failed(errno.EISDIR)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _refuse_others(folder: Path, own: Iterable[str]) -> None:
    """Raise OutputError for a folder that holds files which are not embcli's own."""
    others = sorted({each.name for each in folder.iterdir()} - {*own})
    if others:
        raise OutputError(f"{str(folder)!r} holds {others[0]!r}, which is not embcli's; name another folder")


def _unwritable(path: Path | None, reason: str) -> OutputError:
    return OutputError(f"cannot write to {'standard output' if path is None else repr(str(path))}: {reason}")


def _size(terminal: bool) -> tuple[int, int]:
    """Return columns and lines: COLUMNS and LINES, or the terminal's own, or 120 columns for a pipe or a file."""
    width, lines = (_WIDTH_UNKNOWN, _LINES_UNKNOWN) if terminal else (_PIPE_WIDTH, 0)
    if terminal:
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
            width, lines = size.columns or width, size.lines or lines
        except (OSError, ValueError):
            pass  # a terminal that does not say
    return _number("COLUMNS") or width, _number("LINES") or lines


def _number(variable: str) -> int:
    value = os.environ.get(variable, "")
    return int(value[:6]) if value.isascii() and value.isdigit() else 0


def _colored(choice: Color, terminal: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


class _Safe:
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
    if descriptor := _OPEN_ALREADY.fullmatch(str(path)):
        number = {"stdout": 1, "stderr": 2}.get(descriptor[1]) or int(descriptor[2])
        with os.fdopen(os.dup(number), "wb") as file:  # to go on where it stands: >> appends
            yield file
        return
    status = _status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with path.open("wb") as file:  # a device or a pipe cannot be replaced
            yield file
        return
    path = path.resolve()  # a link stays a link, and what it points to is replaced
    half = _beside(path)
    try:
        with half.open("xb") as file:
            if status is not None:
                half.chmod(stat.S_IMODE(status.st_mode))  # before there is anything in it to read
            yield file
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


@contextmanager
def _replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder that takes this one's place in the end; one that holds other files is not replaced."""
    path = path.resolve()
    half = _beside(path)
    half.mkdir()
    try:
        yield half
        if path.exists():
            _refuse_others(path, [each.name for each in half.iterdir()])  # which may have come meanwhile
            for each in half.iterdir():
                each.replace(path / each.name)
            half.rmdir()
        else:
            half.replace(path)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


def _beside(path: Path) -> Path:
    """Return a name in the same folder for what is not finished."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")  # 40 characters are 160 bytes at most

"""The destination and the format of a result, chosen before any work: standard output or a path."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from embcli.atomic import destination, explaining_failure
from embcli.cli.console import is_terminal, say, watched
from embcli.cli.options import flag_of
from embcli.errors import OutputError
from embcli.formats import ALIASES, FORMATS, PICTURES, SUFFIXES, VIEWS, Data, FormatName, Kind, able, either
from embcli.names import STEPS, Color
from embcli.passes import unwatched
from embcli.result import Result, Style, chosen_format, new_page, number_in, paper_of, refuse_many
from embcli.safe import printable

if TYPE_CHECKING:
    from embcli.oldpage import Page, Paper

# Options that only some formats support, and these formats.
_SHOWN_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("width", "heat", "trace", "draw", "map"), VIEWS),
    "theme": PICTURES,
    **dict.fromkeys(("gradient", "learning_rate"), (*VIEWS, "json")),
}
_MOST_ON_A_TERMINAL = 100_000  # numbers of a data format
_UNKNOWN_SIZE = 80, 24  # columns and lines of a terminal of unknown size
_NOT_FOR_A_TERMINAL = "binary data is not for a terminal; pipe it to another program, or name a file with --output"


@dataclass(frozen=True, eq=False)
class Output:
    """A destination, and the format that results are written in."""

    format: FormatName
    path: Path | None  # None for standard output
    color: Color = "auto"
    style: Style = field(default_factory=Style)

    def write(self, result: Result) -> int:
        """Write a result, as a page or as data; return the exit status, 1 if its answer is no.

        If the page is not on the screen, standard error says what the status means.
        """
        result = replace(result, style=self.style)
        if self.format in VIEWS:
            self._write_page(result.page(self.format, self._paper()))
        elif self.path is not None and FORMATS[self.format].folder:
            result.write(self.format, self.path, watched)
        else:
            self._write_data(result)
        result.notes.finish()
        if result.why_no and self.path is not None:
            say(f"status 1: {result.why_no}")
        return int(bool(result.why_no))

    def _write_page(self, content: bytes) -> None:
        with self._open() as file:
            file.write(content)

    def _write_data(self, result: Result) -> None:
        from embcli import writers

        records = result.records()
        names = records.one if FORMATS[self.format].one_matrix else records.several
        numbers = sum(math.prod(records.matrices[name].shape) for name in names)
        self.refuse_many_numbers(numbers or records.rows * len(records.fields))
        format = cast("Data", self.format)
        if self.format == "json" and self._on_a_terminal:
            from embcli.oldpage.document import pretty

            document = BytesIO()
            writers.write(records, format, document, result.notes)
            self._write_page(pretty(document.getvalue(), _colored(self.color, True)).encode())
            return
        with self._open("binary" if FORMATS[self.format].binary else "text") as file:
            watch = unwatched if file.isatty() else watched  # no bar runs through data on a terminal
            writers.write(records, format, file, result.notes, watch)

    def refuse_many_numbers(self, numbers: int, matrices: int = 1, more: int = 0) -> None:
        """Raise OutputError for more numbers than anybody reads on a terminal.

        The count is `numbers` for each matrix that the format can contain, and `more`.
        """
        numbers = numbers * (1 if FORMATS[self.format].one_matrix else matrices) + more
        if self._on_a_terminal and self.format not in VIEWS and numbers > _MOST_ON_A_TERMINAL:
            raise OutputError(f"{numbers:,} numbers are too many for a terminal; name a file with -o, or use a pipe")

    @property
    def _on_a_terminal(self) -> bool:
        return self.path is None and is_terminal(sys.stdout)

    def _paper(self) -> Paper:
        """Return the size and the colours of a page, which may be those of a terminal."""
        paper = paper_of(self.style, self.format)
        if self.format in PICTURES:
            return replace(paper, color=self.color != "never")
        terminal = self.format == "table" and self._on_a_terminal
        width, lines = _terminal_size() if terminal else (paper.width, 0)
        return replace(
            paper,
            width=self.style.width or width,
            screen=lines if terminal else None,
            encoding=(sys.stdout.encoding if terminal else None) or "utf-8",
            color=_colored(self.color, terminal),
        )

    def put(self, put: Callable[[Page], None]) -> None:
        """Write a page without a result."""
        self._write_page(self.drawn(put))

    def drawn(self, put: Callable[[Page], None]) -> bytes:
        """Return a page without a result."""
        page = new_page(self.format, self._paper())
        put(page)
        return page.content()

    def write_text(self, text: bytes) -> None:
        """Write a text as it is; on a terminal, end its last line."""
        with self._open("text") as file:
            file.write(text)
            if file.isatty() and not text.endswith(b"\n"):
                file.write(b"\n")

    @contextmanager
    def _open(self, content: Literal["page", "text", "binary"] = "page") -> Iterator[BinaryIO]:
        """Open the destination.

        A terminal gets pages as they are and text with control characters escaped; it refuses binary data.
        """
        place = _standard_output() if self.path is None else destination(self.path)
        with explaining_failure(self.path), place as file:
            if content == "binary" and file.isatty():
                raise OutputError(_NOT_FOR_A_TERMINAL)
            yield cast("BinaryIO", _EscapingTerminal(file)) if content == "text" and file.isatty() else file


def output_for(kind: Kind, options: Mapping[str, Any], show: tuple[str, ...] | None = None) -> Output:
    """Return the output that a verb's options, by their names, choose; nothing is opened yet.

    `show` are the matrices that the user named. Raises OutputError for a format or a file that cannot hold the result.
    """
    heat = bool(options.get("heat") or options.get("map"))  # a map is coloured, too
    others = {name: options[name] for name in ("precision", "width") if name in options}
    style = Style(heat=heat, theme=options["theme"] or "light", **others)
    format, file = options["format"], named(options["output"])
    default = os.environ.get("EMBCLI_FORMAT") or ""
    if default and ALIASES.get(default, default) not in FORMATS:
        raise OutputError(f"EMBCLI_FORMAT {default[:40]!r} is not a format; choose from {', '.join(FORMATS)}")
    chosen = chosen_format(kind, format, file, default)
    for flag, formats in _limits(options).items():
        if chosen not in formats:
            example = "" if file or chosen != "table" else f", as in: -o picture.{formats[0]}"
            raise OutputError(f"{flag} cannot be shown in {chosen}; it needs --format {either(formats)}{example}")
    refuse_many(show, chosen)
    if file is not None and format and SUFFIXES.get(file.suffix.lower(), chosen) != chosen:
        say(f"{str(file)!r} is written as {chosen}, as --format says, not as {SUFFIXES[file.suffix.lower()]}")
    if file is None and FORMATS[chosen].folder:
        raise OutputError(f"{chosen} is a folder of files; name it with --output")
    if file is None and FORMATS[chosen].binary and is_terminal(sys.stdout):
        raise OutputError(_NOT_FOR_A_TERMINAL)
    return Output(chosen, file, options["color"], style)


def _limits(options: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the given flags that only some formats can show, with these formats."""
    limits = {
        flag_of(name): shown
        for name, shown in _SHOWN_IN.items()
        if options.get(name) is not None and options[name] is not False
    }
    steps = [step for step in options.get("show") or () if step in STEPS and step != "outputs"]
    limits |= {f"--show {step}": (*VIEWS, "json") for step in steps}
    if options.get("kind") == "relative" and not options["similarity"]:
        limits["--kind relative"] = able("batches")
    return limits


def named(path: Path | None) -> Path | None:
    """Return the path that --output names; None for standard output, which - names too."""
    return None if path is None or str(path) == "-" else path


def _terminal_size() -> tuple[int, int]:
    """Return columns and lines: COLUMNS and LINES, or those of the terminal."""
    width, lines = _UNKNOWN_SIZE
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
        width, lines = size.columns or width, size.lines or lines
    except (OSError, ValueError):
        pass  # the size is unknown
    return number_in("COLUMNS") or width, number_in("LINES") or lines


def _colored(choice: Color, terminal: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


class _EscapingTerminal:
    """A terminal that gets any text with control characters and bidi controls escaped."""

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

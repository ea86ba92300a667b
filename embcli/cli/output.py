"""The destination and the format of a result, chosen before any work: standard output or a path."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from embcli.atomic import destination, explaining_failure
from embcli.cli.console import SUGGESTING, is_terminal, say, suggestions, terminal_size, watched
from embcli.errors import OutputError
from embcli.formats import ALIASES, FORMATS, PICTURES, SUFFIXES, VIEWS, Data, FormatName, Kind, either
from embcli.names import Color, Theme
from embcli.result import Result, Style, chosen_format, refuse_many, width_of
from embcli.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.formats import View

Content = Literal["page", "text", "binary"]
_MOST_ON_A_TERMINAL = 100_000  # numbers of a data format
_NOT_FOR_A_TERMINAL = "binary data is not for a terminal; pipe it to another program, or name a file with --output"


@dataclass(frozen=True, eq=False)
class Output:
    """A destination, and the format that results are written in."""

    format: FormatName = "table"
    path: Path | None = None  # None for standard output
    color: Color = "auto"
    style: Style = field(default_factory=Style)

    def write(self, result: Result) -> int:
        """Write a result, as a page or as data; return the exit status, 1 if its answer is no."""
        result = replace(result, style=self.style)
        if self.format in VIEWS:
            content = self._drawn(result.view())
            if self.format == "table" and self.path is None and SUGGESTING.get() and not self.style.bare:
                from rich.text import Text

                line = suggestions(result.verb, content.decode(errors="replace"))
                content += self._drawn(Text(line, "dim")) if line else b""
            self.write_bytes(content, "page")
        elif self.path is not None and FORMATS[self.format].folder:
            result.save(self.path, self.format, watch=watched)
        else:
            self._write_data(result)
        result.notes.finish()
        if result.why_no and self.path is not None:
            say(f"status 1: {result.why_no}")
        return int(bool(result.why_no))

    def show(self, page: RenderableType) -> None:
        self.write_bytes(self._drawn(page), "page")

    def write_bytes(self, content: bytes, kind: Content) -> None:
        """Write a page or a text as it is; on a terminal, a text is escaped and its last line ended."""
        with self._open(kind) as file:
            file.write(content)

    def refuse_many_numbers(self, numbers: int, matrices: int = 1) -> None:
        """Raise OutputError for more numbers, in each matrix that the format can contain, than a terminal is for."""
        numbers *= 1 if FORMATS[self.format].one_matrix else matrices
        if self._on_a_terminal and self.format not in VIEWS and numbers > _MOST_ON_A_TERMINAL:
            raise OutputError(f"{numbers:,} numbers are too many for a terminal; name a file with -o, or use a pipe")

    def _drawn(self, page: RenderableType) -> bytes:
        from embcli.page import export

        width, color = width_of(self.style.width, self.format), self._colored
        if self.format != "table":
            return export.exported(page, cast("View", self.format), width, self.style.theme, color)
        if not self._on_a_terminal:
            return export.text(page, width, None, color).encode("utf-8", "backslashreplace")
        columns, lines = terminal_size()
        text = export.text(page, self.style.width or columns, lines - SUGGESTING.get(), color)
        return text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")

    def _write_data(self, result: Result) -> None:
        from embcli import writers

        records, format = result.records(), cast("Data", self.format)
        names = records.one if FORMATS[format].one_matrix else records.several
        if names == ("input",) and "hidden" in records.matrices and records.shown is None:
            say("the matrix is input, not hidden, which the first block reads; --show hidden chooses it")
        numbers = sum(math.prod(records.matrices[name].shape) for name in names)
        self.refuse_many_numbers(numbers or records.rows * len(records.fields))
        if format == "json" and self._on_a_terminal:
            from rich.highlighter import JSONHighlighter

            from embcli.page import export

            document = io.BytesIO()
            writers.write(records, format, document, result.notes)
            text = JSONHighlighter()(printable(document.getvalue().decode()))
            self.write_bytes(export.text(text, 2**31, color=self._colored).encode(), "page")
            return
        with self._open("binary" if FORMATS[format].binary else "text") as file:
            writers.write(records, format, file, result.notes, watched)

    @property
    def _on_a_terminal(self) -> bool:
        return self.path is None and is_terminal(sys.stdout)

    @property
    def _colored(self) -> bool:
        if self.color != "auto":
            return self.color == "always"
        if self.format in PICTURES or os.environ.get("NO_COLOR"):
            return self.format in PICTURES
        return bool(os.environ.get("FORCE_COLOR")) or (self._on_a_terminal and os.environ.get("TERM") != "dumb")

    @contextmanager
    def _open(self, kind: Content) -> Iterator[BinaryIO]:
        """Open the destination. A terminal gets text at once, with control characters escaped, and no binary data."""
        with _opened(self.path) as file:
            if kind == "page" or not file.isatty():
                yield file
            elif kind == "binary":
                raise OutputError(_NOT_FOR_A_TERMINAL)
            else:
                yield (written := io.BytesIO())
                text = written.getvalue().decode(errors="backslashreplace").replace("\r\n", "\n")  # of csv
                file.write((printable(text).removesuffix("\n") + "\n").encode())


def output(
    kind: Kind,
    format: str | None = None,
    path: str | None = None,
    color: Color = "auto",
    width: int | None = None,
    theme: Theme | None = None,
    precision: int = 4,
    heat: bool = False,
    bare: bool = False,
    *,
    reads: Iterable[str | Path | None] = (),
    show: tuple[str, ...] | None = None,
    pages: dict[str, bool] | None = None,
    limits: Mapping[str, tuple[str, ...]] | None = None,
) -> Output:
    """Return the output for a kind of result; raises OutputError for a format or a file that cannot hold it.

    `reads` are the files that the command reads, `show` the matrices that the user named, `pages` flags that only a
    page can show and whether they are given, `limits` given flags and the formats that can show them.
    """
    style = Style(precision=precision, heat=heat, bare=bare, width=width, theme=theme or "light")
    file = None if path is None or path == "-" else Path(path)
    default = os.environ.get("EMBCLI_FORMAT") or ""
    if default and ALIASES.get(default, default) not in FORMATS:
        raise OutputError(f"EMBCLI_FORMAT {default[:40]!r} is not a format; choose from {', '.join(FORMATS)}")
    chosen = chosen_format(kind, format, None if file is None else path, default)
    given = {"--heat": heat, "--bare": bare, **(pages or {})}
    given |= {"--width": width is not None, "--theme": theme is not None}
    needed = {flag: PICTURES if flag == "--theme" else VIEWS for flag, is_given in given.items() if is_given}
    for flag, formats in {**needed, **(limits or {})}.items():
        if chosen not in formats:
            example = "" if file or chosen != "table" else f", as in: -o picture.{formats[0]}"
            raise OutputError(f"{flag} cannot be shown in {chosen}; it needs --format {either(formats)}{example}")
    refuse_many(show, chosen)
    if file is None and FORMATS[chosen].folder:
        raise OutputError(f"{chosen} is a folder of files; name it with --output")
    if file is None and FORMATS[chosen].binary and is_terminal(sys.stdout):
        raise OutputError(_NOT_FOR_A_TERMINAL)
    if file is not None:
        if format and SUFFIXES.get(file.suffix.lower(), chosen) != chosen:
            say(f"{str(file)!r} is written as {chosen}, as --format says, not as {SUFFIXES[file.suffix.lower()]}")
        for place in [Path(each) for each in reads if each is not None]:
            with suppress(OSError, ValueError):  # one of them does not exist
                if file.is_file() and (file.samefile(place) or (place.is_dir() and place.samefile(file.parent))):
                    raise OutputError(f"{str(file)!r} is read by this command; name another file with --output")
    return Output(chosen, file, color, style)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is not None:
        with explaining_failure(path), destination(path) as file:
            yield file
    elif sys.stdout is None:
        raise OutputError("standard output is closed; open it, or name a file with --output")
    else:
        with explaining_failure(None):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()

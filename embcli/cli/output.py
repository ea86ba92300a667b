"""Where a result is written, and in which format: standard output or a file."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from embcli.atomic import destination, explaining_failure
from embcli.cli.console import is_terminal, say, suggestions, terminal_size, watched
from embcli.errors import OutputError
from embcli.formats import FORMATS, PICTURES, VIEWS, Data, FormatName
from embcli.names import Color
from embcli.result import Result, Style, width_of
from embcli.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.formats import View

Content = Literal["page", "text", "binary"]
SUGGESTING = ContextVar("SUGGESTING", default=True)  # whether a line of suggestions is below a page
_MOST_ON_A_TERMINAL = 100_000  # numbers of a data format
_NOT_FOR_A_TERMINAL = "binary data is not for a terminal; pipe it to another program, or name a file with --output"


@dataclass(frozen=True, eq=False)
class Output:
    """A destination, and the format that results are written in."""

    format: FormatName = "table"
    path: Path | None = None  # None for standard output
    color: Color = "auto"
    style: Style = field(default_factory=Style)

    def __post_init__(self) -> None:
        if self.path is None and FORMATS[self.format].folder:
            raise OutputError(f"{self.format} is a folder of files; name it with --output")
        if self._on_a_terminal and FORMATS[self.format].binary:
            raise OutputError(_NOT_FOR_A_TERMINAL)

    def write(self, result: Result) -> int:
        """Write a result, as a page or as data; return the exit status, 1 if its answer is no."""
        result = replace(result, style=self.style)
        with suppress(BrokenPipeError):  # a reader that leaves early changes no answer
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
        if self.path is None and sys.stdout is None:
            raise OutputError("standard output is closed; open it, or name a file with --output")
        place = nullcontext(sys.stdout.buffer) if self.path is None else destination(self.path)
        with explaining_failure(self.path), place as file:
            if kind == "page" or not file.isatty():
                yield file
            elif kind == "binary":
                raise OutputError(_NOT_FOR_A_TERMINAL)
            else:
                yield (written := io.BytesIO())
                text = written.getvalue().decode(errors="backslashreplace").replace("\r\n", "\n")  # of csv
                file.write((printable(text).removesuffix("\n") + "\n").encode())
            file.flush()

"""The writer of results: to standard output or a file, in one of the formats.

`command` makes one for the options of a command. What it writes to a terminal is made safe. A line
below a page suggests options that show what the page leaves out, or other numbers.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from embcli.atomic import destination, explaining_failure, opened_files, refuse_replacing
from embcli.cli.console import is_terminal, say
from embcli.errors import OutputError
from embcli.formats import FORMATS, VIEWS, FormatName
from embcli.names import Color, Status
from embcli.result import PageStyle, Result
from embcli.wording import in_bytes, load_facts, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.page import Hint, Note


@dataclass(frozen=True, eq=False)
class ResultWriter:
    """A destination, and the format that results are written in."""

    format: FormatName = "table"
    path: Path | None = None  # None for standard output
    color: Color = "auto"
    style: PageStyle = field(default_factory=PageStyle)
    options: Collection[str] = ()  # the command's; a line below a page suggests some of them

    def __post_init__(self) -> None:
        if self._on_a_terminal and FORMATS[self.format].binary:
            raise OutputError(
                "binary data is not for a terminal; pipe it to another program, "
                "or name a file with --output"
            )

    def write(self, result: Result | bytes) -> Status:
        """Write a result, as a page or as data, or bytes of a text; return the exit status."""
        if isinstance(result, bytes):
            with self._open(is_data=True) as file:
                file.write(result)
            return 0
        result = replace(result, style=self.style)
        with suppress(BrokenPipeError):  # a reader that leaves early changes no answer
            path = self.path
            is_file = path is not None and (path.is_file() or not path.exists())
            if self.format == "table" and not is_file:
                self.show(self._page_of(result))
            else:
                write = result._writer(self.format)
                with self._open(is_data=self.format not in VIEWS) as file:
                    write(file)
        for remark in result.notes.counted:
            say(remark)
        if result._why_no and self.path is not None:
            say(f"status 1: {result._why_no}")
        return result.status

    def _page_of(self, result: Result) -> RenderableType:
        """Return the page of a result; a line of suggestions is below it on standard output."""
        page = result._view()
        if self.path is not None or not self.options or self.style.bare:
            return page
        from embcli.page.parts import SuggestingPage

        return SuggestingPage(page, partial(_suggestions, result._verb, self.options))

    @property
    def is_colored(self) -> bool:
        """Whether a table has colours; pictures always have them."""
        match self.color:
            case "always":
                return True
            case "never":
                return False
            case "auto":
                is_fit = self._on_a_terminal and os.environ.get("TERM") != "dumb"
                is_forced = bool(os.environ.get("FORCE_COLOR"))
                return not os.environ.get("NO_COLOR") and (is_forced or is_fit)

    def show(self, page: RenderableType) -> None:
        """Write a page as a table, as wide as the style or the terminal says."""
        from embcli.page import export

        width = self.style.width or 0
        lines = None
        encoding = "utf-8"
        if self._on_a_terminal:
            columns, lines = shutil.get_terminal_size()
            width = width or columns
            encoding = sys.stdout.encoding or encoding
        text = export.text(page, width, lines, self.is_colored, self.style.theme)
        with self._open() as file:
            file.write(text.encode(encoding, "backslashreplace"))

    @property
    def _on_a_terminal(self) -> bool:
        return self.path is None and is_terminal(sys.stdout)

    @contextmanager
    def _open(self, is_data: bool = False) -> Iterator[BinaryIO]:
        """Open the destination; a file that the command has read keeps its content.

        A terminal gets data at once, with control characters escaped.
        """
        path = self.path
        if path is None and sys.stdout is None:
            raise OutputError("standard output is closed; open it, or name a file with --output")
        opened = nullcontext(sys.stdout.buffer) if path is None else destination(path)
        with explaining_failure(path), opened as file:
            if not (is_data and file.isatty()):
                yield file
            else:
                written = io.BytesIO()
                yield written
                text = written.getvalue().decode(errors="backslashreplace")
                text = text.replace("\r\n", "\n")  # lines of csv end so
                text = printable(text).removesuffix("\n")
                file.write(f"{text}\n".encode())
            file.flush()
            if path is not None:
                refuse_replacing(path, opened_files)
        if path and path.is_file() and is_terminal(sys.stderr):
            say(f"wrote {path}: {in_bytes(path.stat().st_size)}")


def _suggestions(verb: str, known: Collection[str], notes: Sequence[Note | Hint]) -> str:
    """Return a sentence about options that a page makes useful; empty if there are none.

    It goes by the parameters that the notes of the page name, never by what is printed. `known` are
    the options of the command; the sentences are in `data/suggestions.json`.

    >>> from embcli.page import Hint, Note
    >>> _suggestions("weights", ("columns",), [Hint(["columns"], leaves_out=True)])
    '--columns picks columns; -f npy has all.'
    >>> _suggestions("weights", ("sort",), [Note("Only these rows were read.", "sort")])
    '--sort norm reads all rows.'
    """
    facts = load_facts("suggestions.json")
    parameters = chain.from_iterable(note.parameters for note in notes)
    found = [facts["options"].get(name) for name in parameters if name in known]
    if any(note.leaves_out for note in notes):
        found.append(facts["formats"].get(verb))
    found.append(facts["words"].get(verb))
    words = "; ".join(dict.fromkeys(filter(None, found)))
    return words and f"{words}."

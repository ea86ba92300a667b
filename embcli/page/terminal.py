"""What a view is put on: so wide, with or without colour, for a terminal or for a pipe."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

NARROWEST = 40
PIPE_WIDTH = 120


@dataclass
class Page:
    """A page that views print on; its content is written when all of it is there."""

    width: int
    color: bool = False
    terminal: bool = False
    precision: int = 4
    _parts: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, to_stdout: bool, color: str, precision: int) -> Page:
        """Return the page for an output: COLUMNS, the terminal's own width, or 120 for a pipe or a file."""
        terminal = to_stdout and sys.stdout is not None and sys.stdout.isatty()
        return cls(_width(terminal), _color(color, terminal), terminal, precision)

    def print(self, renderable: RenderableType = "", width: int | None = None) -> None:
        """Put something on the page; `width` is given for what must not be cut where the page is narrower."""
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if isinstance(renderable, Text) and not self.terminal:
            renderable.no_wrap = True  # one line a row: programs read it
            width = renderable.cell_len
        self._parts.append(self._rendered(renderable, max(width or 0, self.width)))

    def content(self) -> bytes:
        """Return the page as bytes, in the encoding of the terminal, or else in UTF-8."""
        encoding = (sys.stdout.encoding if self.terminal else None) or "utf-8"
        lines = "".join(self._parts).split("\n")
        return "\n".join(line.rstrip(" ") for line in lines).encode(encoding, "backslashreplace")

    def _rendered(self, renderable: RenderableType, width: int) -> str:
        console = Console(
            file=io.StringIO(),
            width=width,
            force_terminal=self.color,
            color_system=("standard" if os.environ.get("TERM") == "dumb" else "auto") if self.color else None,
            no_color=not self.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
        with console.capture() as capture:
            console.print(renderable, soft_wrap=False)
        return capture.get()


def _width(terminal: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns[:6]) > 0:
        width = int(columns[:6])
    elif terminal:
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
        except (OSError, ValueError):
            width = 80
    else:
        width = PIPE_WIDTH
    return max(width, NARROWEST)


def _color(choice: str, terminal: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def plain_table(*columns: tuple[str, JustifyMethod]) -> Table:
    """Return an empty table in the house's style, with these columns and their justification.

    Its cells are never cut: what has to fit is made to fit before it gets here.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), border_style="dim")
    for header, justify in columns:
        table.add_column(header, justify=justify, no_wrap=True, overflow="crop")
    return table

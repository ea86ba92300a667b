"""How lines of a screen become strips of textual: each is one text, written with the colours that the terminal has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.strip import Strip

from embcli.oldpage.terminal import codes

if TYPE_CHECKING:
    from rich.console import Console

    from embcli.explore.drawing import Line
    from embcli.oldpage.lines import Look


_MOST = 1 << 15  # looks whose codes are kept: two colours of a cell are one of some ten thousand


class _Written(Strip):
    """A line as a terminal takes it: with segments, one for each cell of a heat map, it would take three times as long.

    If textual cuts it, while the size of the screen changes, the colours are missing.
    """

    def __init__(self, text: str, width: int, written: str) -> None:
        super().__init__([Segment(text)], width)
        self._written = written

    def render(self, console: Console) -> str:
        """Return the line with its escape sequences."""
        return self._written


class Paint:
    """Makes strips of lines in the colours of a terminal; without a depth there are none."""

    def __init__(self, depth: int | None) -> None:
        self.depth = depth
        self._starts: dict[int, tuple[Look, str]] = {}  # by the identity of a look, which is faster than its value

    def strip(self, line: Line, width: int) -> Strip:
        """Return a line of so many cells as a strip."""
        starts, parts = self._starts, []
        for piece in line:
            known = starts.get(id(piece.look)) or self._made(piece.look)
            parts.append(f"{known[1]}{piece.text}")
        return _Written("".join([piece.text for piece in line]), width, f"{''.join(parts)}\x1b[0m")

    def _made(self, look: Look) -> tuple[Look, str]:
        """Return a look with the escape sequence that begins it, and ends the one before."""
        if len(self._starts) >= _MOST:
            self._starts.clear()
        parameters = codes(look, self.depth)
        made = self._starts[id(look)] = look, f"\x1b[0;{parameters}m" if parameters else "\x1b[0m"
        return made

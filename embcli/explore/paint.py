"""How lines of a page become strips of textual, in the colours that the terminal has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from embcli.page.terminal import shade

if TYPE_CHECKING:
    from embcli.explore.drawing import Line
    from embcli.page import lines
    from embcli.page.lines import Look


_MOST = 1 << 15  # looks whose styles are kept: two colours of a cell are one of some ten thousand


class Paint:
    """Makes strips of lines in the colours of a terminal; without a depth there are none."""

    def __init__(self, depth: int | None) -> None:
        self.depth = depth
        self._styles: dict[int, tuple[Look, Style]] = {}  # by the identity of a look, which is faster than its value

    def strip(self, line: Line) -> Strip:
        """Return a line as a strip."""
        styles, segments = self._styles, []
        for piece in line:
            known = styles.get(id(piece.look))
            if known is None:
                known = self._made(piece.look)
            segments.append(Segment(piece.text, known[1]))
        return Strip(segments)

    def _made(self, look: Look) -> tuple[Look, Style]:
        if len(self._styles) >= _MOST:
            self._styles.clear()
        color, ground = (_color(each, self.depth) for each in (look.color, look.ground))
        style = Style(color=color, bgcolor=ground, bold=look.bold, dim=look.dim, reverse=look.reverse)
        self._styles[id(look)] = look, style
        return look, style


def _color(color: lines.Color | None, depth: int | None) -> Color | None:
    if color is None or depth is None:
        return None
    found = shade(color, depth)
    return Color.from_ansi(found) if isinstance(found, int) else Color.from_rgb(*found)

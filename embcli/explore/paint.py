"""How lines of a page become strips of textual, in the colours that the terminal has."""

from __future__ import annotations

from functools import lru_cache
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


def strip(line: Line, depth: int | None) -> Strip:
    """Return a line as a strip; without a depth it has no colours."""
    return Strip([Segment(piece.text, _style(piece.look, depth)) for piece in line if piece.text])


@lru_cache(4096)
def _style(look: Look, depth: int | None) -> Style:
    color, ground = (_color(each, depth) for each in (look.color, look.ground))
    return Style(color=color, bgcolor=ground, bold=look.bold, dim=look.dim, reverse=look.reverse)


def _color(color: lines.Color | None, depth: int | None) -> Color | None:
    if color is None or depth is None:
        return None
    found = shade(color, depth)
    return Color.from_ansi(found) if isinstance(found, int) else Color.from_rgb(*found)

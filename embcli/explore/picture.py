"""The screen as a picture, drawn as embcli draws its pages."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.atomic import destination, explaining_failure
from embcli.explore.drawing import Line, new_sheet
from embcli.oldpage import Paper
from embcli.oldpage.heat import TRUECOLOR
from embcli.oldpage.svg import Svg

if TYPE_CHECKING:
    from embcli.names import Theme
    from embcli.oldpage.lines import Color, Look


class _Screen(Svg):
    """A picture of lines that are drawn already."""

    def __init__(self, lines: list[Line], theme: Theme) -> None:
        super().__init__(Paper(width=1, color=True, theme=theme))
        steps = max(new_sheet(1, color=True).colors - 1, 1)  # of the terminal's colours
        self._finer = (len(TRUECOLOR) - 1) / steps
        self._rows = [[replace(piece, look=self._in_truecolor(piece.look)) for piece in line] for line in lines]

    def rows(self) -> list[Line]:
        """Return the lines."""
        return self._rows

    def _in_truecolor(self, look: Look) -> Look:
        return replace(look, color=self._step(look.color), ground=self._step(look.ground))

    def _step(self, color: Color | None) -> Color | None:
        return round(color * self._finer) if isinstance(color, int) else color


def drawn(lines: list[Line], theme: Theme = "light") -> bytes:
    """Return lines of a screen as SVG."""
    return _Screen(lines, theme).content()


def saved(lines: list[Line]) -> str:
    """Save lines of a screen in the working folder, and return the name of the file, which is a new one.

    Raises OutputError for a folder that cannot be written.
    """
    names = (f"explore{f'-{number}' if number > 1 else ''}.svg" for number in count(1))
    path = next(path for name in names if not (path := Path(name)).exists())
    with explaining_failure(path), destination(path) as file:
        file.write(drawn(lines))
    return path.name

"""What pictures are drawn on: rectangles and lines of text, in two themes.

Lengths are in SVG's user units, y down; a cell of text takes 8.5 x 18 units.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from embcli.names import Theme
from embcli.safe import in_line

CELL, LINE = 8.5, 18  # width and height of a cell: sums of powers of two, so that edges of neighbours are equal
SIZE, BASELINE = 14, 13.5  # of the font, whose cells are about 0.6 as wide; below the top of a line
MARGIN = 12


@dataclass(frozen=True)
class Palette:
    """The colours of a theme; the contrast of text is at least 4.5:1."""

    ground: str
    ink: str
    dim: str
    tones: dict[str, str]  # the other colours of text


_COLORS = {  # in the light theme and in the dark one
    "ground": ("#ffffff", "#11151c"),
    "ink": ("#24292f", "#e2e6ea"),
    "dim": ("#656d76", "#929aa5"),
    "cold": ("#0066b8", "#55b0ff"),
    "warm": ("#b34700", "#ff9040"),
    "good": ("#007000", "#4cc05a"),
    "bad": ("#d00000", "#ff7a70"),
    "token 2": ("#4a6b00", "#a6c34c"),
    "token 3": ("#9040b8", "#cf8fec"),
}


def _palette(theme: int) -> Palette:
    colors = {name: pair[theme] for name, pair in _COLORS.items()}
    ground, ink, dim = (colors.pop(name) for name in ("ground", "ink", "dim"))
    return Palette(ground, ink, dim, tones=colors)


PALETTES: dict[Theme, Palette] = {"light": _palette(0), "dark": _palette(1)}


@dataclass(frozen=True)
class Span:
    """A part of a line of text that begins at x and is `width` wide."""

    x: float
    width: float
    text: str
    color: str | None  # None for invisible text over rectangles, which can be selected
    bold: bool = False


class Canvas(ABC):
    """A picture of a fixed size, drawn from back to front."""

    def __init__(self, width: int, height: int, palette: Palette) -> None:
        self.width, self.height, self.palette = width, height, palette

    @staticmethod
    def safe(text: str) -> str:
        """Return a text as it can stand in a line."""
        return in_line(text)

    @abstractmethod
    def rectangle(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Fill a rectangle, with sharp edges."""

    @abstractmethod
    def line(self, y: float, spans: Sequence[Span]) -> None:
        """Write a line of text whose top is at y."""

    @abstractmethod
    def content(self) -> bytes:
        """Return the picture as bytes."""

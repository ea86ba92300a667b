"""A page for a terminal; for a pipe it is the same without colour, and with one line per row."""

import os
import sys
from functools import cache

from embcli.oldpage import Paper, heat
from embcli.oldpage.lines import Color, Look, Sheet

# The shades of a colour in truecolor, among the 256 colours and among the 16. Each of the first two can be read on
# black, on white and on both grounds of Solarized: its contrast is at least 3:1 (no colour reaches 4.5:1 on all four).
# The terminal chooses the shades of the 16; these are nearest in meaning.
_COLORS: dict[Color, tuple[heat.RGB | int, ...]] = {
    "cold": ((0, 135, 215), 32, 12),
    "warm": ((215, 95, 0), 166, 1),
    "good": ((0, 135, 0), 28, 2),
    "bad": ((255, 0, 0), 196, 1),
    "token 2": ((95, 135, 0), 64, 2),
    "token 3": ((175, 95, 215), 134, 5),
    "mark": ((255, 215, 0), 220, 11),
    "black": ((0, 0, 0), 16, 0),
}
_SCALES: tuple[tuple[heat.RGB | int, ...], ...] = (heat.TRUECOLOR, heat.COLORS_256, heat.COLORS_16)
_TRUECOLOR, _256, _16 = range(3)


class Terminal(Sheet):
    """A page as wide as the paper; only a screen wraps lines."""

    def __init__(self, paper: Paper) -> None:
        super().__init__(paper)
        self.wraps = paper.screen is not None  # programs read a pipe line by line
        self._depth = depth() if paper.color else None
        self.colors = 0 if self._depth is None else len(_SCALES[self._depth])

    def content(self) -> bytes:
        """Return the page in the encoding of the terminal."""
        lines = ("".join(self._written(piece.text, piece.look) for piece in row) for row in self.rows())
        text = "".join(f"{line.rstrip(' ')}\n" for line in lines)
        return text.encode(self.paper.encoding, "backslashreplace")

    def _written(self, text: str, look: Look) -> str:
        parameters = "" if self._depth is None else codes(look, self._depth)
        return f"\x1b[{parameters}m{text}\x1b[0m" if parameters and text else text


def depth() -> int | None:
    """Return which colours the terminal has, by its variables: truecolor, 256 or 16."""
    term = os.environ.get("TERM", "").strip().lower()
    if term in ("dumb", "unknown"):
        return _16 if term == "dumb" else None
    if os.environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit") or sys.platform == "win32":
        return _TRUECOLOR
    return _256 if term.rpartition("-")[2] in ("256color", "kitty") else _16


def shade(color: Color, depth: int) -> heat.RGB | int:
    """Return the shade of a colour on a terminal of this depth: in truecolor, or the number of one of 256 or 16."""
    return _SCALES[depth][color] if isinstance(color, int) else _COLORS[color][depth]


@cache
def codes(look: Look, depth: int | None) -> str:
    """Return the parameters of the escape sequence for a look; without a depth it has no colours."""
    parameters = [code for code, has in (("1", look.bold), ("2", look.dim), ("7", look.reverse)) if has]
    for color, base in ((look.color, 30), (look.ground, 40)):
        if color is not None and depth is not None:
            parameters.append(_code(shade(color, depth), base))
    return ";".join(parameters)


def _code(shade: heat.RGB | int, base: int) -> str:
    """Return the parameter for a shade of the characters (base 30) or of the ground (base 40)."""
    if not isinstance(shade, int):
        return f"{base + 8};2;{';'.join(map(str, shade))}"
    if shade >= 16:
        return f"{base + 8};5;{shade}"
    return str(base + shade if shade < 8 else base + 60 + shade - 8)

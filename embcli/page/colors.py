"""Colours of text and of numbers, which can be read on black, on white, and as 16 colours.

The scale of signed numbers is symmetric about 0: blue below, orange to red above, which no common
colour blindness confuses. 0 is close to the background: colours get darker with the distance from
it, or lighter on a dark background. Numbers without a sign use the upper half of the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from rich.color import Color
from rich.console import Console
from rich.style import Style

from embcli.names import Background
from embcli.page.medium import medium_of

# Levels of numbers that are not finite.
NAN = -1
INFINITE = -2
MARKS = {NAN: "?", INFINITE: "!"}
RAMP = ".:-=+*#%@"  # levels without colour: denser means larger

# Styles by what they are for. On a terminal with fewer colours rich takes the nearest ones.
_STYLES = {
    "strong": "bold",
    "dim": "dim",
    "good": "bold #008700",
    "bad": "bold #ff0000",
    "negative": "#0087d7",
    "positive": "#d75f00",
    "negative_term": "#5888b0",  # in a sum whose result stands out
    "positive_term": "#b0784c",
    "embedding": "#008700",
    "linear": "#af5fd7",
    "accent": "#0087d7",  # commands, bars
}
STYLES = {name: Style.parse(style) for name, style in _STYLES.items()}
# Colours that replace others, and dim, if the background is known, as in a picture or on a light
# terminal: they can have more contrast than colours for any background. Results have more than the
# terms of a sum; the nearest of 16 colours to the one for positive numbers is red, not yellow.
INKS = {
    "light": {
        "dim": "#6a7077",
        "#0087d7": "#005fb8",
        "#d75f00": "#c02800",
        "#5888b0": "#4a7ba6",
        "#b0784c": "#a0685a",
        "#af5fd7": "#8f3fbf",
        "#ff0087": "#d0006a",
    },
    "dark": {
        "dim": "#959da6",
        "#0087d7": "#3da9f5",
        "#d75f00": "#f58b3c",
        "#5888b0": "#6ea0c8",
        "#b0784c": "#c88c64",
        "#008700": "#4fc34f",
        "#008787": "#17a5a5",
        "#5f5fff": "#8468ff",
    },
}
# Blue and orange mean signs, so that tokens have other colours. These three differ also among 16
# colours, and no red-green blindness confuses them with each other, or with those of signs.
TOKEN_COLORS = ("#008787", "#5f5fff", "#ff0087")


def token_style(place: int, background: Background) -> Style:
    """Return the style of the token at a place in running text: three colours take turns."""
    color = TOKEN_COLORS[place % len(TOKEN_COLORS)]
    letters = "#ffffff" if background == "light" else "#000000"
    return Style.parse(f"{letters} on {INKS[background].get(color, color)}")


def sign_style(value: float, is_term: bool = False) -> Style:
    """Return the style of a number: blue below zero, orange above; bold red if it is not finite.

    A term of a sum has calmer colours.
    """
    if not np.isfinite(value):
        return STYLES["bad"]
    if value == 0:
        return Style.null()
    sign = "positive" if value > 0 else "negative"
    return STYLES[f"{sign}_term" if is_term else sign]


def colors_of(console: Console) -> Sequence[Color]:
    """Return the colours of a scale on a console, the least number first; none without colour."""
    if console.color_system is None or console.no_color:
        return ()
    return _scale(medium_of(console).background)


_SEVEN_COLORS = {
    "light": "#00286e #0087d7 #a5d4f2 #e4e4e4 #fac496 #d75f00 #6e1e00",
    "dark": "#5cc4ff #1f96ec #245579 #303030 #7a451e #e07318 #ffab4a",
}


@lru_cache
def _scale(background: Background) -> list[Color]:
    """Return 97 colours that lead through the seven for a background."""
    seven = [Color.parse(name).get_truecolor() for name in _SEVEN_COLORS[background].split()]
    places = np.linspace(0, 6, 97)
    parts = []
    for part in np.transpose(seven):  # red, green, blue: (7,) each
        parts.append(np.interp(places, range(7), part).round())
    return [Color.from_rgb(*color) for color in np.transpose(parts).tolist()]


def _finite(values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the finite numbers of matrices, (n,)."""
    return np.concatenate([matrix[np.isfinite(matrix)] for matrix in values])


class ColorScale(NamedTuple):
    """A scale of numbers, from -limit to limit or, if none is negative, from 0 or the least."""

    limit: float
    least: float

    @classmethod
    def of(cls, values: Sequence[np.ndarray]) -> ColorScale:
        """Return the scale of matrices, from 0 up if they have no negative numbers."""
        finite = _finite(values)
        limit = float(np.abs(finite).max(initial=0))
        is_signed = (finite < 0).any()
        return cls(limit, -limit if is_signed else 0.0)

    def without_outliers(self, values: Sequence[np.ndarray]) -> ColorScale:
        """Return the scale up to the 99.5th percentile of sizes if only a few set its limit."""
        sizes = np.abs(_finite(values))
        if not sizes.size:
            return self
        percentile = float(np.percentile(sizes, 99.5))
        if 0 < 2 * percentile < self.limit:
            return ColorScale(percentile, max(self.least, -percentile))
        return self

    def from_least(self, values: np.ndarray) -> ColorScale:
        """Return the scale from the least number, unless some are negative or all are equal."""
        least = float(values.min())
        return self._replace(least=least) if 0 < least < self.limit else self

    def levels(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return the level of each value, int64 in the shape of the values.

        Levels are from 0 to count - 1, or NAN or INFINITE; numbers beyond the scale have those of
        its ends. `count` is odd for signed numbers, so that 0 has a level of its own.

        >>> ColorScale(2.0, -2.0).levels(np.array([-2, 0, 0.9, np.nan]), 5).tolist()
        [0, 2, 3, -1]
        """
        shares = np.where(np.isfinite(values), values, 0).astype(np.float64)
        if self.limit:
            shares = np.clip((shares - self.least) / (self.limit - self.least), 0, 1)
        levels = np.rint(shares * (count - 1)).astype(np.int64)
        levels[np.isnan(values)] = NAN
        levels[np.isinf(values)] = INFINITE
        return levels

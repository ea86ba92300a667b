"""Colours of text and of numbers: each can be read on black, on white, and among a terminal's 16 colours.

The scale of signed numbers is symmetric about 0: blue below, orange to red above, which no common colour blindness
confuses. Colours get darker with the distance from 0, or lighter in a picture on a dark background. Numbers
without a sign use the upper half of the scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.color import Color
from rich.style import Style

if TYPE_CHECKING:
    from rich.console import Console

NAN, INFINITE = -1, -2  # in place of a step
MARKS = {NAN: "?", INFINITE: "!"}
RAMP = ".:-=+*#%@"  # without colour: denser means larger

# What a style is for; rich finds the nearest colours of a terminal that has fewer.
STYLES = {
    name: Style.parse(definition)
    for name, definition in {
        "strong": "bold",
        "dim": "dim",
        "good": "bold #008700",
        "bad": "bold #ff0000",
        "negative": "#0087d7",
        "positive": "#d75f00",
        "embedding": "#0087d7",
        "linear": "#d75f00",
        "accent": "#0087d7",  # commands, bars
    }.items()
}
INKS = {  # of pictures, whose background is known: more contrast than colours for any background have, and dim
    "light": {"dim": "#6a7077"},
    "dark": {"dim": "#959da6", "#0087d7": "#3da9f5", "#d75f00": "#f58b3c", "#008700": "#4fc34f"},
}
_TOKENS = [Style.parse(each) for each in ("#0087d7", "#d75f00", "#008700", "#af5fd7")]
_SCALE_OF_16 = [Color.parse(name) for name in ("blue", "cyan", "white", "yellow", "red")]


def _scale(anchors: str) -> list[Color]:
    """Return 97 colours through seven."""
    parts = np.transpose([Color.parse(each).get_truecolor() for each in anchors.split()])  # (3, 7)
    places = np.linspace(0, 6, 97)
    shades = np.transpose([np.interp(places, range(7), part).round() for part in parts])  # (97, 3)
    return [Color.from_rgb(*shade) for shade in shades.tolist()]


_SCALE = _scale("#00286e #0087d7 #a5d4f2 #e4e4e4 #fac496 #d75f00 #6e1e00")
_DARK_SCALE = _scale("#5cc4ff #1f96ec #2b628f #505050 #8a4f22 #e07318 #ffab4a")
DARK = "dark_ground"  # a style of a console whose background is known to be dark


def token_style(place: int) -> Style:
    """Return the style of a token, which differs from those of its neighbours."""
    return _TOKENS[place % len(_TOKENS)]


def sign_style(value: float) -> Style:
    """Return the style of a number: blue below zero, orange above; bold red if it is not finite."""
    if not np.isfinite(value):
        return STYLES["bad"]
    return STYLES["positive"] if value > 0 else STYLES["negative"] if value < 0 else Style.null()


def colors_of(console: Console) -> Sequence[Color]:
    """Return the colours of a scale on a console, from the least to the largest number; none without colour."""
    if console.color_system is None or console.no_color:
        return ()
    if console.color_system in ("standard", "windows"):
        return _SCALE_OF_16
    return _DARK_SCALE if console.get_style(DARK, default="none") else _SCALE


class ColorScale(NamedTuple):
    limit: float
    signed: bool = True

    @classmethod
    def of(cls, values: Sequence[np.ndarray]) -> ColorScale:
        """Return the scale of matrices, from 0 up if they have no negative numbers."""
        limit = max((np.abs(each[np.isfinite(each)]).max(initial=0) for each in values), default=0)
        return cls(float(limit), any((each < 0).any() for each in values))

    def levels(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return the level of each value, from 0 to count - 1, or NAN or INFINITE; int64 in the shape of the values.

        `count` is odd for signed numbers, so that 0 has a level of its own.

        >>> ColorScale(2.0).levels(np.array([-2, 0, 0.9, np.nan]), 5).tolist()
        [0, 2, 3, -1]
        """
        zero = (count - 1) // 2 if self.signed else 0
        finite = np.where(np.isfinite(values), values, 0).astype(np.float64)
        shares = finite / self.limit if self.limit else finite
        steps = zero + np.rint(shares * (count - 1 - zero)).astype(np.int64)
        steps[np.isnan(values)] = NAN
        steps[np.isinf(values)] = INFINITE
        return steps


def means(values: np.ndarray, per: int, column_period: int = 1) -> np.ndarray:
    """Return the means of every `per` columns, the last of fewer: (n, columns) -> (n, bins) float64.

    If `apart` kinds of columns alternate, such as sines and cosines, each mean is of one kind.
    The mean of a bin with a NaN is NaN; of one with infinity and no NaN, infinity.
    """
    if per == 1 or not values.size:
        return values.astype(np.float64)
    columns = np.arange(values.shape[1])
    bins = columns // (per * column_period) * column_period + columns % column_period
    _, starts, counts = np.unique(np.sort(bins), return_index=True, return_counts=True)
    ordered = values[:, np.argsort(bins, kind="stable")].astype(np.float64)
    with np.errstate(invalid="ignore"):
        averages: np.ndarray = np.add.reduceat(ordered, starts, axis=1) / counts
    for are, number in ((np.isinf, np.inf), (np.isnan, np.nan)):
        averages[np.logical_or.reduceat(are(ordered), starts, axis=1)] = number
    return averages

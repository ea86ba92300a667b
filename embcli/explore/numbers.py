"""How numbers look on a screen: written alike, coloured by their sign, or as colours only."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import numpy as np
from rich.segment import Segment
from rich.style import Style

_FIXED_LIMIT, _LEAST = 1e6, 5e-5  # where four decimals say too much, or nothing
_STYLES = {
    True: (Style(color="#ffaa60"), Style(color="#6db8ff"), Style(color="#ff6b6b", bold=True)),  # on a dark background
    False: (Style(color="#9c4000"), Style(color="#00529c"), Style(color="#b00020", bold=True)),
}
_STEPS = 16  # colours on either side of 0
# From the smallest number to the largest: symmetric about 0, blue below and orange above, which no common colour
# blindness confuses; darker means farther from 0.
_ANCHORS = ((0, 40, 110), (0, 135, 215), (165, 212, 242), (228, 228, 228), (250, 196, 150), (215, 95, 0), (110, 30, 0))
_RAMP = " .:-=+*#%@"  # without colour: denser means larger


def number_format(values: np.ndarray) -> tuple[str, int]:
    """Return how values are written, all alike: a format with four decimals, and the cells of the longest."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max(initial=0))
    spec = ".4e" if largest >= _FIXED_LIMIT or 0 < largest < _LEAST else ".4f"
    ends = [*values[~np.isfinite(values)].tolist(), *([finite.min(), finite.max(), -0.0] if finite.size else [])]
    return spec, max((len(format(end, spec)) for end in ends), default=1)


def sign_style(value: float, dark: bool) -> Style:
    """Return the style of a number: warm above 0, cold below, marked if it is not finite."""
    warm, cold, bad = _STYLES[dark]
    return bad if not np.isfinite(value) else warm if value > 0 else cold if value < 0 else Style.null()


def number_segments(values: np.ndarray, spec: str, width: int, dark: bool) -> list[Segment]:
    """Return numbers of a row in cells of a width, two blanks before each."""
    written = ((sign_style(value, dark), f"  {value:>{width}{spec}}") for value in values.tolist())
    return [
        Segment("".join(text for _, text in same), style) for style, same in groupby(written, key=lambda each: each[0])
    ]


@lru_cache(4 * _STEPS)
def _color(step: int, is_marked: bool) -> Style:
    at = (step + _STEPS) / (2 * _STEPS) * (len(_ANCHORS) - 1)
    red, green, blue = (round(np.interp(at, range(len(_ANCHORS)), part)) for part in zip(*_ANCHORS, strict=True))
    return Style(color="black" if is_marked else None, bgcolor=f"#{red:02x}{green:02x}{blue:02x}")


def heat_segments(values: np.ndarray, limit: float, width: int, colored: bool) -> list[Segment]:
    """Return a row, (D,), as colours from -limit to limit in at most `width` cells, of several columns each if needed.

    A cell of several columns has the colour of their mean; NaN is `?`, infinity `!`.
    """
    per, cells = -(-len(values) // width), max(min(width // len(values), 4), 1)
    starts = np.arange(0, len(values), per)
    with np.errstate(invalid="ignore"):
        means = np.add.reduceat(values.astype(np.float64), starts) / np.diff(np.append(starts, len(values)))
        shares = np.nan_to_num(np.clip(means / (limit or 1.0), -1, 1), nan=0.0)
    marks = np.where(np.isnan(means), "?", np.where(np.isinf(means), "!", " ")).tolist()
    steps = np.rint(shares * _STEPS).astype(int).tolist()
    if not colored:
        places = np.rint((shares + 1) / 2 * (len(_RAMP) - 1)).astype(int).tolist()
        marks = [_RAMP[place] if mark == " " else mark for mark, place in zip(marks, places, strict=True)]
        return [Segment("".join(mark * cells for mark in marks))]
    return [
        Segment(mark * cells * len([*same]), _color(step, mark != " "))
        for (mark, step), same in groupby(zip(marks, steps, strict=True))
    ]

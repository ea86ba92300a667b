"""A map: rows as points in a drawing, by their first two principal components, with labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from embcli.errors import InputError
from embcli.numerics.principal import principal_map
from embcli.page.colors import STYLES
from embcli.page.medium import medium_of
from embcli.page.parts import Composite, Drawing, LeftOut, rows_that_fit, safe_text
from embcli.page.svg import CELL, LINE, letters
from embcli.wording import Sentence, counted


class _Label(NamedTuple):
    """The text of a point, with the cells and lines, (2,) each, of what is drawn."""

    text: Text
    place: np.ndarray  # of the point
    edge: np.ndarray  # of the label, where a line from its point ends
    start: np.ndarray


# Directions from a point, across and down: in its line, in its column, then around it.
_TURNS = np.pi / 32 * np.array([0, 32, 16, 48, *range(0, 64, 4), *range(64)])
_SIDES = np.stack([np.cos(_TURNS), np.sin(_TURNS)], axis=1)
# A label that has no room beside its point is some times as far from it. In a crowd, its line may
# meet points and other lines at more places, or even labels.
_DISTANCES = (1.1, 4, 6, 8, 12, 16, 24, 32)
_PLACES = np.vstack([distance * _SIDES[:20] for distance in _DISTANCES])
_MORE_PLACES = np.vstack([distance * _SIDES for distance in _DISTANCES])
_CHOICES = (_PLACES, _MORE_PLACES, _MORE_PLACES)
_ALONG = 3  # places of each part of a line, as long as a gap, at which it may not meet anything
_PIXELS = np.array([CELL, LINE])  # of a cell
_CELL = np.array([1, -1 / 2.03])  # a cell across and up, in cells and lines
# A picture has its axes left of the points and below them, where no label is.
_AXES_AT = np.array([7, 1])  # cells from the left, lines from below: the room of numbers
_STEP = 8  # cells between two ticks at least
_AREA = (
    '<svg viewBox="-84 0 {0:g} {1:g}" width="{0:g}" height="{1:g}">'
    '<g fill="currentColor" font-size="21">'
)
_AXES = '<path d="M1 0V{1:g}H{0:g}" fill="none" stroke="#808080" stroke-width="2"/>'
_TICK_ACROSS = (
    '<path d="M{0:.1f} {1:.1f}v-8" stroke="#808080"/>'
    '<text x="{0:.1f}" y="{1:.1f}" dy="20" text-anchor="middle">{2:g}</text>'
)
_TICK_UP = (
    '<path d="M0 {0:.1f}h8" stroke="#808080"/>'
    '<text x="-6" y="{0:.1f}" dy="7" text-anchor="end">{1:g}</text>'
)
_LINE = '<path d="M{:.1f} {:.1f}L{:.1f} {:.1f}" stroke="#808080"/>'
_POINT = '<circle cx="{:.1f}" cy="{:.1f}" r="6"{} fill-opacity=".8"/>'


@dataclass(frozen=True, eq=False)
class Map(Composite):
    """Rows as points, at equal scales across and up, and what the two components are.

    A label is beside its point or, in a picture, at the end of a line from it. It is left out if
    others are there. Points are in the middle of the width, with room for labels on both sides.
    """

    rows: np.ndarray  # (n, D)
    labels: Sequence[Text]  # of the rows, (n,); a point has the style of its label
    other_lines: int = 10  # on the page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not np.isfinite(self.rows).all():
            raise InputError(Sentence("{map} needs rows without NaN and infinity"))
        points, (first, second) = principal_map(self.rows)
        medium = medium_of(console)
        width = options.max_width
        height = rows_that_fit(options, 30, self.other_lines)
        area = np.array([width, height])
        if medium.shows_svg:
            area -= _AXES_AT
        # A point of a picture is a line away from the texts of the page.
        margin = 4 if medium.shows_svg else 1
        scale = _Scale.of(points, area, margin)
        places = scale.places(points)
        if medium.shows_svg:
            texts = self._texts(places, area, (0.6, 0.35), _CHOICES)
            size = area + _AXES_AT
            elements = [_AREA.format(*size * _PIXELS - 5), *scale.axes(area)]
            elements += [*self._elements(places, texts.values()), "</g></svg>"]
            line = Text(" " * size[0], Style.from_meta({"svg": "".join(elements)}))
            lines_below = height - 1 if medium.has_fine_cells else 0
            yield Text.assemble(line, "\n" * lines_below, no_wrap=True)
        else:
            places = np.floor(places) + 0.5
            texts = self._texts(places, area, (1, 0.5), [_SIDES[:2]])
            yield Drawing(self._lines(places, texts.values()))
        yield ""

        yield safe_text(
            "Across and up: principal components 1 and 2, "
            f"{first:.1%} and {second:.1%} of these rows' variance"
        )
        if not first:
            yield safe_text("All rows are at one point: they do not differ.")
        without_room = len(self.labels) - len(texts)
        if without_room:
            yield LeftOut(f"Left out: {counted(without_room, 'label')} without room.")

    def _texts(
        self,
        places: np.ndarray,
        area: np.ndarray,
        gap: tuple[float, float],
        choices: Sequence[np.ndarray],
    ) -> dict[int, _Label]:
        """Return each label that has room, at a side of its point, a cell apart from others.

        Queries have more room, as they are first. A line to a label meets no points, labels and
        lines if there is such a side in the first choice; in the second one, it meets no labels.
        """
        order = sorted(range(len(places)), key=lambda number: not self.labels[number].style)
        room = np.multiply(gap, 0.6)  # as large as a point, nearly
        taken = np.stack([places - room, places + room], axis=1)  # (n, 2, 2)
        boxes = np.empty((0, 2, 2))  # of labels
        found = {}
        for (choice, sides), number in product(enumerate(choices), order):
            if number in found:
                continue
            obstacles = (taken, boxes, boxes[:0])[choice]
            place = places[number]
            label = self.labels[number]
            size = np.array([label.cell_len + 1, 0.8])
            for side in sides:
                reach = np.abs(side).max()
                edge = place + side * gap
                start = edge + (np.round(side / reach) - 1) / 2 * size
                end = start + size
                is_within = start.min() >= 0 and (end <= area).all()
                if not is_within or _is_taken(taken, start, end):
                    continue
                along = np.linspace(0.7 / reach, 1, int(_ALONG * reach))
                line = place + along[:, None] * side * gap
                if not _is_taken(obstacles, line[:, None], line[:, None]):
                    found[number] = _Label(label, place, edge, start + np.array([0.5, 0]))
                    boxes = np.concatenate([boxes, [[start, end]]])
                    line_boxes = np.stack([line - room / 2, line + room / 2], axis=1)
                    taken = np.concatenate([taken, [[start, end]], line_boxes])
                    break
        return found

    def _lines(self, places: np.ndarray, labels: Iterable[_Label]) -> list[Text]:
        """Return the lines of a drawing, from the first to the last that is not blank."""
        entries = [(label.start, label.text) for label in labels]
        for place, label in zip(places, self.labels, strict=True):
            entries.append((place, safe_text("●", label.style or "accent")))
        lines: defaultdict[int, Text] = defaultdict(Text)
        for place, text in sorted(entries, key=lambda entry: entry[0][0]):
            cell, number = place.astype(int)
            line = lines[number]
            if line.cell_len <= cell:  # or it is a point at the place of another
                line.append(" " * (cell - line.cell_len)).append_text(text)
        return [lines[number] for number in range(min(lines), max(lines) + 1)]

    def _elements(self, places: np.ndarray, labels: Iterable[_Label]) -> Iterator[str]:
        """Yield the points of a picture, and the labels."""
        for (x, y), label in zip(places * _PIXELS, self.labels, strict=True):
            fill = "" if label.style else ' fill="#0087d7"'
            yield _POINT.format(x, y, fill)
        for text, place, edge, start in labels:
            if np.abs(edge - place).max() > 1:  # It is not beside its point.
                yield _LINE.format(*place * _PIXELS, *edge * _PIXELS)
            x, y = start * _PIXELS
            style = STYLES["strong"] if text.style else None
            yield from letters(Segment(text.plain, style), x, y + 16)


def _is_taken(taken: np.ndarray, start: np.ndarray, end: np.ndarray) -> bool:
    """Return whether a box, or one of several, (n, 1, 2), meets one that is there."""
    meets = (taken[:, 0] < end) & (taken[:, 1] > start)
    return bool((meets[..., 0] & meets[..., 1]).any())


class _Scale(NamedTuple):
    """Where points are in an area: equal scales across and up, and their middle in its middle."""

    middle: np.ndarray  # of the points, (2,)
    place: np.ndarray  # of this middle: a cell and a line
    unit: np.ndarray  # cells across, and lines down, of a 1

    @classmethod
    def of(cls, points: np.ndarray, area: np.ndarray, margin: int) -> _Scale:
        """Return the scale at which points fill an area; half of the margin is at each edge."""
        least = points.min(axis=0)
        spans = np.maximum(points.max(axis=0) - least, 1e-300)  # 0 if all are at one place
        cells = ((area / np.abs(_CELL) - margin) / spans).min()  # of a 1
        return cls(least + spans / 2, area / 2, cells * _CELL)

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the cell and the line of each point, (n, 2)."""
        return np.asarray(self.place + (points - self.middle) * self.unit)

    def axes(self, area: np.ndarray) -> Iterator[str]:
        """Yield the axes of an area, with ticks at multiples of 1, 2 or 5 times a power of ten."""
        steps = np.outer(10.0 ** np.arange(-45, 39), [1, 2, 5]).ravel()
        step = steps[steps * self.unit[0] > _STEP][0]
        numbers = step * np.arange(-40, 41)
        places = self.places(np.stack([numbers, numbers], axis=1))
        right, bottom = area * _PIXELS - 5
        yield _AXES.format(right, bottom)
        is_within = (places > 0.5) & (places < area - [3, 1])  # with room for a number
        for number, (x, y), (across, up) in zip(numbers, places * _PIXELS, is_within, strict=True):
            if across:
                yield _TICK_ACROSS.format(x, bottom, number)
            if up:
                yield _TICK_UP.format(y, number)

"""A map: rows as points in a drawing, by their first two principal components, with labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

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

_Texts = list[tuple[np.ndarray, Text]]  # each with its cell and its line, (2,)
# The sides of a point, across and down: in its line, in its column, and the others.
_SIDES = np.array(sorted(product((1, -1, 0), repeat=2), key=lambda side: sum(map(abs, side)))[1:])
_PIXELS = np.array([CELL, LINE])  # of a cell
_CELL = np.array([1, -1 / 2.03])  # a cell across and up, in cells and lines
# A picture has its axes at the edges, where no label is.
_AREA = (
    '<svg viewBox="0 0 {0:g} {1:g}" width="{0:g}" height="{1:g}">'
    '<path d="M1 0V{1:g}H{0:g}" fill="none" stroke="#808080" stroke-width="2"/>'
    '<g fill="currentColor" font-size="21">'
)
_POINT = '<circle cx="{:.1f}" cy="{:.1f}" r="6"{} fill-opacity=".8"/>'


@dataclass(frozen=True, eq=False)
class Map(Composite):
    """Rows as points, at equal scales across and up, and what the two components are.

    A label is beside its point, or it is left out, if others are there.
    """

    rows: np.ndarray  # (n, D)
    labels: Sequence[Text]  # of the rows, (n,); a point has the style of its label
    bare: bool = False  # whether few other lines are on the page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not np.isfinite(self.rows).all():
            raise InputError(Sentence("{map} needs rows without NaN and infinity"))
        points, (first, second) = principal_map(self.rows)
        medium = medium_of(console)
        width = options.max_width
        height = rows_that_fit(options, 30, other_lines=4 if self.bare else 10)
        area = np.array([width, height])
        # A point of a picture is a line away from the texts of the page.
        margin = 4 if medium.shows_svg else 1
        places = _places(points, area, margin)
        if medium.shows_svg:
            texts = self._texts(places, area, (0.6, 0.35), _SIDES)
            picture = "".join(self._elements(places, texts, area))
            line = Text(" " * width, Style.from_meta({"svg": picture}))
            lines_below = height - 1 if medium.has_fine_cells else 0
            yield Text.assemble(line, "\n" * lines_below, no_wrap=True)
        else:
            places = np.floor(places) + 0.5
            texts = self._texts(places, area, (1, 0.5), _SIDES[:2])
            yield Drawing(self._lines(places, texts))
        yield ""

        yield safe_text(
            "Across and up: the first two principal components, "
            f"{first:.1%} and {second:.1%} of the variance"
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
        sides: np.ndarray,
    ) -> _Texts:
        """Return the cell and the line of each label that has room, and its text.

        It is at a side of its point, so far from it, and a cell apart from other labels.
        """
        starts = places - gap
        ends = places + gap
        texts = []
        for place, label in zip(places, self.labels, strict=True):
            size = np.array([label.cell_len + 1, 0.8])
            for side in sides:
                start = place + side * gap + (side - 1) / 2 * size
                end = start + size
                meets = (starts < end) & (ends > start)
                is_within = start.min() >= 0 and (end <= area).all()
                if is_within and not meets.all(axis=1).any():
                    texts.append((start + np.array([0.5, 0]), label))
                    starts = np.vstack([starts, start])
                    ends = np.vstack([ends, end])
                    break
        return texts

    def _lines(self, places: np.ndarray, texts: _Texts) -> list[Text]:
        """Return the lines of a drawing, from the first to the last that is not blank."""
        entries = list(texts)
        for place, label in zip(places, self.labels, strict=True):
            entries.append((place, safe_text("●", label.style or "accent")))
        lines: defaultdict[int, Text] = defaultdict(Text)
        for place, text in sorted(entries, key=lambda entry: float(entry[0][0])):
            cell, number = place.astype(int)
            line = lines[number]
            if line.cell_len <= cell:  # or it is a point at the place of another
                line.append(" " * (cell - line.cell_len)).append_text(text)
        return [lines[number] for number in range(min(lines), max(lines) + 1)]

    def _elements(self, places: np.ndarray, texts: _Texts, area: np.ndarray) -> Iterator[str]:
        """Yield the axes of a picture, its points, and the labels."""
        yield _AREA.format(*area * _PIXELS - 5)
        for (x, y), label in zip(places * _PIXELS, self.labels, strict=True):
            fill = "" if label.style else ' fill="#0087d7"'
            yield _POINT.format(x, y, fill)
        for place, label in texts:
            x, y = place * _PIXELS
            style = STYLES["strong"] if label.style else None
            yield from letters(Segment(label.plain, style), x, y + 16)
        yield "</g></svg>"


def _places(points: np.ndarray, area: np.ndarray, margin: int) -> np.ndarray:
    """Return the cell and the line of each point, (n, 2), at equal scales, within the edges.

    Half of the margin, in cells, is at each edge.
    """
    least = points.min(axis=0)
    spans = np.maximum(points.max(axis=0) - least, 1e-300)  # 0 if all are at one place
    scale = ((area / np.abs(_CELL) - margin) / spans).min()  # cells of a unit
    places: np.ndarray = area / 2 + (points - least - spans / 2) * scale * _CELL
    return places

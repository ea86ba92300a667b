"""How a scatter plot looks: dots on a plane, some with a label."""

import math
import textwrap

import numpy as np

from embcli.hints import hint
from embcli.oldpage.canvas import CELL, LINE, MARGIN, Canvas, Span
from embcli.oldpage.layout import cell_len, shorten
from embcli.tokens import shown
from embcli.verbs.scatter import Scatter
from embcli.views.parts import matrix_in_words
from embcli.words import counted

Box = tuple[float, float, float, float]  # left, top, right, bottom


_MOST_LABELS = 40  # if the user chose no rows
_MOST_TRIED = 1000
_MOST_CELLS = 16  # of a label
_MOST_TICKS = 8
_MARK, _AWAY = 3.0, 6.0  # radius of a dot with a label, and how far the label is from its middle
_TICK = 5


def view(result: Scatter, canvas: Canvas) -> None:
    """Draw the rows as dots, with axes and the labels that do not overlap."""
    cells = int((canvas.width - 2 * MARGIN) / CELL)
    title, *more = (textwrap.wrap(text, cells) for text in _head(result))
    details = [line for lines in more for line in lines]
    for number, line in enumerate([*title, *details]):
        _write(canvas, MARGIN, MARGIN + number * LINE, line, bold=number < len(title))
    frame = _Frame(result.points, canvas, MARGIN + (len(title) + len(details) + 2) * LINE)
    _put_axes(result, canvas, frame)
    points = frame.places(result.points)  # (rows, 2)
    finite = points[np.isfinite(points).all(axis=1)]
    radius = 1 if len(finite) > 5000 else 1.5 if len(finite) > 500 else 2.5
    canvas.dots(np.round(2 * finite) / 2, radius, canvas.palette.faint)
    rows, places = _candidates(result, points)
    tokens = [result.encoding.entry(row) if result.encoding else None for row in rows.tolist()]
    labels = [
        canvas.safe(str(row) if token is None else shorten(shown(token), _MOST_CELLS))
        for row, token in zip(rows.tolist(), tokens, strict=True)
    ]
    boxes = _boxes(places, [cell_len(label) * CELL for label in labels], frame, result.chosen is not None)
    is_marked = [box is not None or result.chosen is not None for box in boxes]
    canvas.dots(places[is_marked], _MARK, canvas.palette.tones["warm"])
    for box, label in zip(boxes, labels, strict=True):
        if box is not None:
            _write(canvas, box[0], box[1], label, halo=True)


def _head(result: Scatter) -> tuple[str, str, str]:
    """Return the title, the details below it, and the warning that seeded rows are random."""
    size, dim = result.shape
    letter, what = ("V", "token") if result.name == "token" else ("C", "position")
    title = f"The rows of {matrix_in_words(result.origin, result.name)} by the first two principal components"
    details = [f"{letter} = {counted(size, what)}, D = {counted(dim, 'column')}"]
    if result.columns < dim:
        details.append(f"of {result.columns:,} chosen columns")
    details.append("labels: the outermost rows" if result.chosen is None else "labels: the chosen rows")
    details[-1] += ", if they fit"
    missing = int(np.isnan(result.points[:, 0]).sum())
    if missing:
        details.append(f"left out: {counted(missing, 'row')} with NaN or infinity")
    untrained = hint("untrained", seed=result.origin.seed) if result.origin.is_seeded else ""
    return title, "; ".join(details), untrained


class _Frame:
    """A rectangle on the canvas below `top` that shows all points of a plane, with the same scale on both axes."""

    def __init__(self, points: np.ndarray, canvas: Canvas, top: float) -> None:
        self.left, self.right = MARGIN + 9 * CELL, canvas.width - MARGIN
        self.top, self.bottom = top, canvas.height - MARGIN - 2.5 * LINE
        self._centre = np.array([(self.left + self.right) / 2, (self.top + self.bottom) / 2])
        low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
        available = np.array([self.right - self.left - 4 * CELL, self.bottom - self.top - 2 * LINE])
        extent = np.maximum(high - low, 1e-9 * (high - low).max())
        self._middle = (low + high) / 2  # of the plane
        self._scale = float((available / extent).min())  # units of the canvas per unit of the plane

    def places(self, points: np.ndarray) -> np.ndarray:
        """Return the places of points on the canvas, (n, 2)."""
        places: np.ndarray = self._centre + (points - self._middle) * (self._scale, -self._scale)
        return places

    def contains(self, box: Box) -> bool:
        """Return whether a box is inside the frame."""
        return self.left < box[0] and self.top < box[1] and box[2] < self.right and box[3] < self.bottom

    def ticks(self, axis: int) -> list[tuple[float, float]]:
        """Return round numbers along an axis and their places on the canvas; the step is the same on both axes."""
        ends = np.array([[self.left, self.bottom], [self.right, self.top]])
        low, high = ((ends - self._centre) * (1, -1) / self._scale + self._middle)[:, axis].tolist()
        rough = (self.right - self.left) / self._scale / _MOST_TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        values = [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return [(value, float(self.places(np.array([[value, value]]))[0, axis])) for value in values]


def _put_axes(result: Scatter, canvas: Canvas, frame: _Frame) -> None:
    """Draw the frame, its ticks and the labels of the axes."""
    color = canvas.palette.dim
    for x in (frame.left, frame.right):
        canvas.rectangle(x, frame.top, 1, frame.bottom - frame.top, color)
    for y in (frame.top, frame.bottom):
        canvas.rectangle(frame.left, y, frame.right - frame.left + 1, 1, color)
    end = 0.0
    for value, x in frame.ticks(0):
        text = f"{value:.4g}"
        left = x - len(text) * CELL / 2
        canvas.rectangle(x, frame.bottom, 1, _TICK, color)
        if left > end + CELL and left + len(text) * CELL < canvas.width:
            _write(canvas, left, frame.bottom + _TICK, text)
            end = left + len(text) * CELL
    for value, y in frame.ticks(1):
        text = f"{value:.4g}"
        canvas.rectangle(frame.left - _TICK, y, _TICK, 1, color)
        _write(canvas, frame.left - _TICK - (len(text) + 0.5) * CELL, y - LINE / 2, text)
    first, second = (
        f"component {number}: {share:.1%} of the variance" for number, share in enumerate(result.explained, 1)
    )
    left = min(frame.left, canvas.width - MARGIN - (len(second) + 2) * CELL)
    _write(canvas, left, frame.top - LINE - 2, f"↑ {second}")
    _write(canvas, frame.right - (len(first) + 2) * CELL, frame.bottom + _TICK + LINE, f"{first} →")


def _candidates(result: Scatter, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to label, the most important first, and their places on the canvas."""
    if result.chosen is not None:
        rows = result.chosen[np.isfinite(points[result.chosen, 0])]
    else:
        distance = np.nan_to_num(np.hypot(*(result.points - np.nanmean(result.points, axis=0)).T), nan=-1)
        rows = np.argsort(-distance, kind="stable")[: np.isfinite(points[:, 0]).sum()]
    return rows[:_MOST_TRIED], points[rows[:_MOST_TRIED]]


def _boxes(places: np.ndarray, widths: list[float], frame: _Frame, every: bool) -> list[Box | None]:
    """Return the boxes of labels beside their dots, if possible on the outer side.

    None stands for a label that would overlap others or the frame. `every` says whether dots without a label are drawn,
    too; if not, the number of labels is limited.
    """
    dots = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in places.tolist()]
    taken = [*dots] if every else []
    boxes: list[Box | None] = []
    for (x, y), dot, width in zip(places.tolist(), dots, widths, strict=True):
        beside = [(x + _AWAY, y - LINE / 2), (x - _AWAY - width, y - LINE / 2)]
        lefts_and_tops = (
            *(beside if x > (frame.left + frame.right) / 2 else reversed(beside)),
            (x - width / 2, y - _AWAY - LINE + 3),
            (x - width / 2, y + _AWAY - 3),
        )
        tried = [(left, top, left + width, top + LINE) for left, top in lefts_and_tops]
        free = [box for box in tried if frame.contains(box) and not any(_meet(box, other) for other in taken)]
        if not every and (len(taken) == 2 * _MOST_LABELS or any(_meet(dot, other) for other in taken)):
            free = []
        box = free[0] if free else None
        if box is not None:
            taken += [(box[0] - CELL, box[1], box[2] + CELL, box[3]), dot]  # a gap between labels
        boxes.append(box)
    return boxes


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _write(canvas: Canvas, x: float, y: float, text: str, bold: bool = False, halo: bool = False) -> None:
    canvas.line(y, [Span(x, cell_len(text) * CELL, text, canvas.palette.ink, bold, halo)])

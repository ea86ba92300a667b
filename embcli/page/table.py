"""Labels and tables: what stands beside numbers, and the look that all tables have."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.box import Box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from embcli.page.colors import STYLES
from embcli.page.parts import safe_text

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

GAP = 2  # cells between columns
SHORTEST = 6  # cells of a shortened token
_TOKEN = 24  # cells of the longest token beside numbers
_UNIT = re.compile(
    r"\\x..|\\u.{4}|\\U.{8}|\\.|[0-9a-f]{2} |.", re.DOTALL
)  # as shown() writes it; bytes
_RULED = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_DIM = STYLES["dim"]


class Label(NamedTuple):
    """A column of words; with `short`, its cells may be shortened in the middle, and left out beside numbers."""

    header: str
    cells: Sequence[object] | np.ndarray  # text, which is made safe, or rich's Text
    justify: Literal["left", "right"] = "right"
    short: bool = False
    minimum: int = 0  # cells

    @property
    def texts(self) -> list[Text]:
        return [cell if isinstance(cell, Text) else safe_text(cell) for cell in self.cells]

    @property
    def width(self) -> int:
        return max(self.minimum, cell_len(self.header), *(text.cell_len for text in self.texts), 0)

    def shortened(self, most: int) -> Label:
        if not self.short:
            return self
        return self._replace(
            cells=[Text(shorten(text.plain, most), text.style) for text in self.texts]
        )


def label_versions(labels: Sequence[Label]) -> tuple[list[Label], list[Label], list[Label]]:
    long, short = ([label.shortened(most) for label in labels] for most in (_TOKEN, SHORTEST))
    return long, short, [label for label in labels if not label.short]


class Line(Text):
    """The cells of one row in one text, which rich draws much faster than a column for each."""

    def __init__(
        self, cells: Sequence[Text], widths: Sequence[int], style: str = "", title: str = ""
    ) -> None:
        super().__init__(f"{title}\n" if title else "", STYLES.get(style, ""), no_wrap=True)
        self.cells = cells
        self.title = title
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            self.append(" " * (GAP * bool(place) + width - cell.cell_len))
            self.append_text(cell)


class Bar(Text):
    """The line between labels and numbers, in each cell of a column of its own."""


def ruled(
    labels: Sequence[Label],
    blocks: Sequence[tuple[Text, Sequence[RenderableType]]] = (),
    trailing: Sequence[Label] = (),
    gaps: Sequence[int] = (),
    tones: Sequence[str] = (),
    has_rule: bool = True,
) -> Table:
    """Return a table of labels, of blocks (header, rows) with a bar before each, and of labels after them.

    A row of dots stands before each row in `gaps`; `tones` are the names of the rows' styles. Without a rule below the
    head, columns are one cell apart.
    """
    box = _RULED if has_rule else None
    table = Table(box=box, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, border_style=_DIM)
    table.header_style = STYLES["strong"]
    columns: list[list[RenderableType]] = []

    def add(label: Label) -> None:
        cells: list[RenderableType] = (
            [Shortened(text) for text in label.texts] if label.short else [*label.texts]
        )
        for gap in reversed(gaps):
            cells.insert(gap, Text("⋮", _DIM))
        no_wrap = not label.short
        table.add_column(
            Text(label.header),
            justify=label.justify,
            no_wrap=no_wrap,
            min_width=label.minimum or None,
        )
        columns.append(cells)

    for label in labels:
        add(label)
    for header, rows in blocks:
        table.add_column(Bar("│\n│" if "\n" in header.plain else "│", _DIM), no_wrap=True)
        table.add_column(header, no_wrap=True)
        columns += [[Bar("│", _DIM)] * len(rows), [*rows]]
    for label in trailing:
        add(label)
    places = (
        place
        for place in range(len(columns[0]))
        if place not in {gap + k for k, gap in enumerate(gaps)}
    )
    styles = dict(zip(places, tones, strict=False))
    for place, row in enumerate(zip(*columns, strict=True)):
        table.add_row(*row, style=STYLES.get(styles.get(place, "")))
    return table


@dataclass(frozen=True, eq=False)
class Shortened:
    """A cell that is shortened in its middle where its column is too narrow."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(shorten(self.text.plain, options.max_width), self.text.style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(SHORTEST, self.text.cell_len), self.text.cell_len)


@dataclass(frozen=True, eq=False)
class Drawing:
    """Lines whose characters are aligned with those below them."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            line.no_wrap, line.overflow = (
                True,
                "ignore" if console.record else "crop",
            )  # a file has room
            yield line


def shorten(text: str, most: int) -> str:
    r"""Return a text in at most `most` cells, with … in place of its middle; escapes such as `\xf0` are never split."""
    if cell_len(text) <= most:
        return text
    units = deque(_UNIT.findall(text))
    head, tail = "", ""
    while True:
        at_head = cell_len(head) <= cell_len(tail)
        nearest = units.popleft() if at_head else units.pop()
        if cell_len(head) + cell_len(tail) + cell_len(nearest) >= most:
            return f"{head}…{tail}"
        head, tail = (head + nearest, tail) if at_head else (head, nearest + tail)

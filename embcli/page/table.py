"""Labels and tables: what is shown beside numbers, and the look that all tables have."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from embcli.page.colors import STYLES
from embcli.page.parts import safe_text

GAP = 2  # cells between columns
SHORTEST = 6  # cells of a shortened token
_LONGEST = 24  # cells of the longest token beside numbers
# A character of a token: an escape as shown() writes it, a byte in hexadecimal, or any other.
_CHARACTER = re.compile(r"\\x..|\\u.{4}|\\U.{8}|\\.|[0-9a-f]{2} |.", re.DOTALL)
_RULED = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_DIM = STYLES["dim"]


class Label(NamedTuple):
    """A column of words, such as tokens or IDs.

    With `short`, its cells may be shortened in the middle, and left out beside numbers.
    """

    header: str
    cells: Sequence[object] | np.ndarray  # rich's Text, or anything else, which is made safe
    justify: Literal["left", "right"] = "right"
    short: bool = False

    @property
    def texts(self) -> list[Text]:
        return [cell if isinstance(cell, Text) else safe_text(cell) for cell in self.cells]

    @property
    def width(self) -> int:
        widths = [text.cell_len for text in self.texts]
        return max([cell_len(self.header), *widths])

    def spread(self, lines: int, line: int = 0) -> Label:
        """Return the label of rows of several lines, of which one shows the cell."""
        cells: list[object] = [""] * (lines * len(self.cells))
        cells[line::lines] = self.cells
        return self._replace(cells=cells)

    def shortened(self, cells: int) -> Label:
        """Return the label with its cells shortened to a width for good, if they may be."""
        if not self.short:
            return self
        shortened = [Text(shorten(text.plain, cells), text.style) for text in self.texts]
        return self._replace(cells=shortened, short=False)


def least_width(labels: Sequence[Label], shortened: int) -> int:
    """Return the cells that a table of labels needs, if those that may be are shortened so far."""
    width = -GAP
    for label in labels:
        width += GAP
        width += min(label.width, shortened) if label.short else label.width
    return width


def label_versions(labels: Sequence[Label]) -> tuple[list[Label], list[Label], list[Label]]:
    """Return labels with long tokens, with short ones, and without tokens."""
    long = [label.shortened(_LONGEST) for label in labels]
    short = [label.shortened(SHORTEST) for label in labels]
    without_tokens = [label for label in labels if not label.short]
    return long, short, without_tokens


class Line(Text):
    """The cells of one row in one text, which rich draws much faster than a column for each."""

    def __init__(
        self, cells: Sequence[Text], widths: Sequence[int], style: str = "", title: str = ""
    ) -> None:
        first_line = f"{title}\n" if title else ""
        super().__init__(first_line, STYLES.get(style, ""), no_wrap=True)
        self.cells = cells
        self.title = title
        margin = 0
        for cell, width in zip(cells, widths, strict=True):
            self.append(" " * (margin + width - cell.cell_len))
            self.append_text(cell)
            margin = GAP


class Bar(Text):
    """The line between labels and numbers, in each cell of a column of its own."""


def ruled(
    labels: Sequence[Label],
    blocks: Sequence[tuple[Text, Sequence[RenderableType]]] = (),
    trailing: Sequence[Label] = (),
    gaps: Sequence[int] = (),
    row_styles: Sequence[str] = (),
    has_rule: bool = True,
    sections: Sequence[int] = (),
) -> Table:
    """Return a table of labels, blocks and trailing labels, with a bar before each block.

    A block is a header and its cells. A row of dots is inserted before each row in `gaps`;
    `row_styles` are names in STYLES, one for each row. Without a rule below the header, columns are
    one cell apart; with one, there is a blank line before each row in `sections`, which count rows
    of dots, too.
    """
    table = Table(
        box=_RULED if has_rule else None,
        padding=(0, 1, 0, 0),
        show_edge=False,
        pad_edge=False,
        border_style=_DIM,
    )
    table.header_style = STYLES["strong"]

    columns = []
    for label in labels:
        columns.append(_add_label(table, label, gaps))
    for header, rows in blocks:
        bar = "│\n│" if "\n" in header.plain else "│"
        table.add_column(Bar(bar, _DIM), no_wrap=True)
        columns.append([Bar("│", _DIM)] * len(rows))
        table.add_column(header, no_wrap=True)
        columns.append(list(rows))
    for label in trailing:
        columns.append(_add_label(table, label, gaps))

    rows_of_dots = {gap + dots_above for dots_above, gap in enumerate(gaps)}
    remaining_styles = iter(row_styles)
    for place, cells in enumerate(zip(*columns, strict=True)):
        style = "" if place in rows_of_dots else next(remaining_styles, "")
        table.add_row(*cells, style=STYLES.get(style), end_section=place + 1 in sections)
    return table


def _add_label(table: Table, label: Label, gaps: Sequence[int]) -> list[RenderableType]:
    """Add a column for a label, and return its cells, with dots in the gaps."""
    table.add_column(
        Text(label.header),
        justify=label.justify,
        no_wrap=not label.short,
    )
    cells: list[RenderableType] = [*label.texts]
    if label.short:
        cells = [*map(Shortened, label.texts)]
    for gap in reversed(gaps):
        cells.insert(gap, Text("⋮", _DIM))
    return cells


@dataclass(frozen=True, eq=False)
class Shortened:
    """A cell that is shortened in its middle if its column is too narrow."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(shorten(self.text.plain, options.max_width), self.text.style, no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(SHORTEST, self.text.cell_len), self.text.cell_len)


def shorten(text: str, cells: int) -> str:
    r"""Return a text in at most as many cells, with … in place of its middle if it is longer.

    Escapes such as `\xf0` are never split.
    """
    if cell_len(text) <= cells:
        return text
    characters = deque(_CHARACTER.findall(text))
    head = ""
    tail = ""
    while True:
        is_for_head = cell_len(head) <= cell_len(tail)
        character = characters.popleft() if is_for_head else characters.pop()
        if cell_len(head) + cell_len(tail) + cell_len(character) >= cells:
            return f"{head}…{tail}"
        if is_for_head:
            head += character
        else:
            tail = character + tail

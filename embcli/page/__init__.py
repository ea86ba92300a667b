"""What a page can hold, whatever it is put on: titles, lines, tables and grids of numbers.

Views speak only this. A kind of page (`terminal`, `markup`) says how a title, a line and a table look on it; what is
the same on all of them stands here and in `layout`: which columns fit, how numbers are written, and that no text gets
on a page that is not safe to print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from embcli.page import layout
from embcli.page.layout import (
    BYTE_IN_HEX,
    LEAST_TOKEN,
    TOKEN_TONES,
    Bar,
    Block,
    Column,
    Columns,
    Excerpt,
    Numbers,
    Tone,
    Word,
)
from embcli.safe import in_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from embcli.names import Theme

__all__ = [
    "BYTE_IN_HEX",
    "LEAST_TOKEN",
    "TOKEN_TONES",
    "Bar",
    "Block",
    "Column",
    "Columns",
    "Excerpt",
    "Numbers",
    "Page",
    "Paper",
    "Tone",
    "Word",
]

NARROWEST = 40


@dataclass(frozen=True)
class Paper:
    """What a page is put on: so many cells wide; on a screen so many lines high (a pipe has no screen)."""

    width: int
    screen: int | None = None  # lines
    color: bool = False
    precision: int = 4  # decimals
    theme: Theme = "light"  # of a picture


class Page(ABC):
    """A page that a view writes from top to bottom; its content is there when all of it is written."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.width = max(paper.width, NARROWEST)
        self._parts: list[str] = []

    def title(self, text: str) -> None:
        """Put a heading on the page."""
        self._parts.append(self._title(self._safe(text)))

    def line(self, *words: str | Word) -> None:
        """Put a line on the page, made of words with a tone each; without words it is blank."""
        self._parts.append(self._line([self._safe_word(word) for word in words]))

    def table(self, columns: Columns, gaps: Sequence[int] = (), ruled: bool = True) -> None:
        """Put a table on the page. Columns that may be shortened are, where it is too wide.

        `gaps` are the rows in front of which others are left out, which a row of dots tells. Without a rule a table
        stands close, as terms of a sum do.
        """
        safe = [self._safe_column(each) for each in columns]
        self._parts.append(self._table(layout.fitted(safe, self.width), gaps, ruled))

    def grid(
        self,
        labels: Sequence[Column],
        blocks: Sequence[Block],
        numbers: np.ndarray,
        gaps: Sequence[int] = (),
        after: Sequence[Column] = (),
        tones: Sequence[Tone] = (),
        every: bool = False,
    ) -> Excerpt:
        """Put matrices side by side in one table, with labels before and after; return which of their columns it shows.

        All blocks show the same columns, whose numbers are `numbers`, (columns,) int64. No number is cut: columns in
        the middle are left out where the page is too narrow; where every column is wanted they go on in further tables.
        `tones` are those of the rows, where they are not coloured by their numbers.
        """
        written = self.numbers(blocks)
        around = [*labels, *after]
        if not every or layout.fits(self.width, written, around, len(blocks), numbers):
            return self._put_grid(written, labels, blocks, numbers, gaps, after, tones)
        for place, places in enumerate(layout.parts(self.width, written, around, len(blocks), numbers)):
            if place:
                self.line()
            part = [replace(block, values=block.values[:, places]) for block in blocks]
            self._put_grid(written, labels, part, numbers[places], gaps, after, tones)
        return Excerpt(len(numbers), 0, len(numbers))

    def _put_grid(
        self,
        written: Numbers,
        labels: Sequence[Column],
        blocks: Sequence[Block],
        numbers: np.ndarray,
        gaps: Sequence[int],
        after: Sequence[Column],
        tones: Sequence[Tone],
    ) -> Excerpt:
        columns, shown = layout.grid(self.width, written, labels, blocks, numbers, after, tones)
        self._parts.append(self._table([self._safe_column(each) for each in columns], gaps, True))
        return shown

    def holds(self, columns: Columns) -> bool:
        """Return whether a table of these columns fits on the page, shortened as far as they may be."""
        least = [column.shortest if isinstance(column, Column) else column for column in columns]
        return layout.width(least) <= self.width

    def holds_grid(self, labels: Sequence[Column], blocks: Sequence[Block], numbers: np.ndarray) -> bool:
        """Return whether a grid fits with all columns of its blocks, which have these numbers."""
        return layout.fits(self.width, self.numbers(blocks), labels, len(blocks), numbers)

    def numbers(self, blocks: Sequence[Block]) -> Numbers:
        """Return how the numbers of some matrices are written on this page, all alike."""
        return Numbers(blocks, self.paper.precision)

    def part(self) -> Page:
        """Return an empty page like this one, for a part that may be added."""
        return type(self)(self.paper)

    def add(self, part: Page) -> None:
        """Put all of another page on this one."""
        self._parts += part._parts

    def _safe(self, text: str) -> str:
        """Return a text as it can stand on this page, in a line of it."""
        return in_line(text)

    def _safe_word(self, word: str | Word) -> Word:
        return Word(self._safe(word)) if isinstance(word, str) else replace(word, text=self._safe(word.text))

    def _safe_column(self, column: Column | Bar) -> Column | Bar:
        if isinstance(column, Bar):
            return replace(column, title=self._safe(column.title))
        return replace(column, header=self._safe(column.header), cells=[*map(self._safe_word, column.cells)])

    @property
    def lines(self) -> int:
        """How many lines are on the page."""
        return sum(part.count("\n") for part in self._parts)

    def content(self) -> bytes:
        """Return the page as bytes."""
        return "".join(self._parts).encode("utf-8", "backslashreplace")

    @abstractmethod
    def _title(self, text: str) -> str: ...

    @abstractmethod
    def _line(self, words: list[Word]) -> str: ...

    @abstractmethod
    def _table(self, columns: Columns, gaps: Sequence[int], ruled: bool) -> str: ...

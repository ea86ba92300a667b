"""A page as blocks of markup, for a document: what Markdown and LaTeX have in common.

Both show what a page in a pipe shows, with the same width. Text is escaped, so that it reads as itself. A tone is bold
or nothing.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from embcli.oldpage import Line, Page, Table
from embcli.oldpage.heat import Strip
from embcli.oldpage.layout import Cell, Column, Word

_BOLD = ("strong", "good", "bad")


@dataclass(frozen=True, eq=False)
class _Drawing(Line):
    """Lines whose characters are aligned: a word for each of them."""


class Markup(Page):
    """A page of blocks, with a blank line between them."""

    bold: ClassVar[str]  # with a place for the text

    def drawing(self, lines: Sequence[Sequence[Word]]) -> None:
        """Put lines on the page as one block."""
        texts = ("".join(self.safe(word.text) for word in words).rstrip() for words in lines)
        self.items.append(_Drawing([*map(Word, texts)]))

    def content(self) -> bytes:
        """Return the page in UTF-8."""
        return ("\n\n".join(filter(None, map(self._block, self.items))) + "\n").encode()

    def _block(self, item: Line | Table) -> str:
        if isinstance(item, _Drawing):
            return self._aligned([cell.text for cell in item.cells if isinstance(cell, Word)])
        return self._line(item.cells) if isinstance(item, Line) else self._table(item)

    def _line(self, cells: Sequence[Cell]) -> str:
        """Return a line or a cell, bold if all its words stand out; a colour bar stands between two words."""
        if any(isinstance(cell, Strip) for cell in cells):
            return " ".join(self._strip(cell) if isinstance(cell, Strip) else self._line([cell]) for cell in cells)
        words = [cell for cell in cells if isinstance(cell, Word)]
        text = self._escaped("".join(word.text for word in words).strip(" "))
        return self.bold.format(text) if text and all(word.tone in _BOLD for word in words) else text

    def _rows(self, table: Table) -> Iterator[list[str]]:
        """Yield the rows below the header, with dots where others are omitted."""
        columns = [column.cells for column in table.columns if isinstance(column, Column)]
        for place, row in enumerate(zip(*columns, strict=True)):
            if place in table.gaps:
                yield [self._escaped("⋮")] * len(row)
            yield [self._line([cell]) for cell in row]

    @abstractmethod
    def _table(self, table: Table) -> str: ...

    @abstractmethod
    def _aligned(self, lines: Sequence[str]) -> str:
        """Return lines in characters of one width."""

    @abstractmethod
    def _strip(self, strip: Strip) -> str:
        """Return the characters of a strip in cells of one width."""

    @abstractmethod
    def _escaped(self, text: str) -> str: ...

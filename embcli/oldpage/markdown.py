"""A page in GitHub's Markdown: what a page in a pipe shows, with the same width. A tone is bold or nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from embcli.oldpage import Line, Page, Table
from embcli.oldpage.heat import Strip
from embcli.oldpage.layout import Bar, Cell, Column, Columns, Word, cell_len

_BOLD = ("strong", "good", "bad")
_MARKS = re.compile(r"[\\`*_\[<|~$&@]|:(?=//)|(?<=www)\.")  # GitHub also makes links of bare addresses, and math of $
_BLANKS = re.compile(r"[^\S ]")  # all but the common one; a parser may strip them
_MARKS_IN_FRONT = re.compile(r"^(\d+(?=[.)](?: |$))|(?=-(?!\d)|[+>#]))")  # of lists, quotes, headings


@dataclass(frozen=True, eq=False)
class _Drawing(Line):
    """Lines whose characters are aligned: a word for each of them."""


class Markdown(Page):
    """A page in GitHub's Markdown; its tables have no bars, and the title of a bar is part of the headers after it."""

    def drawing(self, lines: Sequence[Sequence[Word]]) -> None:
        """Put lines on the page as one block."""
        texts = ("".join(self.safe(word.text) for word in words).rstrip() for words in lines)
        self.items.append(_Drawing([*map(Word, texts)]))

    def content(self) -> bytes:
        """Return the page in UTF-8."""
        return ("\n\n".join(filter(None, map(self._block, self.items))) + "\n").encode()

    def _block(self, item: Line | Table) -> str:
        if isinstance(item, _Drawing):  # a block of code, whatever is in it
            return "\n".join(f"    {cell.text}" for cell in item.cells if isinstance(cell, Word))
        if isinstance(item, Line):
            return _MARKS_IN_FRONT.sub(r"\1\\", self._line(item.cells))
        return self._table(item)

    def _line(self, cells: Sequence[Cell]) -> str:
        """Return a line or a cell, bold if all its words stand out; a colour bar stands between two words."""
        if any(isinstance(cell, Strip) for cell in cells):
            parts = (f"`{cell.characters()}`" if isinstance(cell, Strip) else self._line([cell]) for cell in cells)
            return " ".join(parts)
        words = [cell for cell in cells if isinstance(cell, Word)]
        text = _escaped("".join(word.text for word in words).strip(" "))
        return f"**{text}**" if text and all(word.tone in _BOLD for word in words) else text

    def _rows(self, table: Table) -> Iterator[list[str]]:
        """Yield the rows below the header, with dots where others are omitted."""
        columns = [column.cells for column in table.columns if isinstance(column, Column)]
        for place, row in enumerate(zip(*columns, strict=True)):
            if place in table.gaps:
                yield ["⋮"] * len(row)
            yield [self._line([cell]) for cell in row]

    def _table(self, table: Table) -> str:
        aligns = [column.align for column in table.columns if isinstance(column, Column)]
        rows = [[*self._headers(table.columns)], *self._rows(table)]
        widths = [max(3, *map(cell_len, column)) for column in zip(*rows, strict=True)]
        dashes = [("-" * (width - 1), align) for width, align in zip(widths, aligns, strict=True)]
        rows.insert(1, [f"{rule}:" if align == "right" else f":{rule}" for rule, align in dashes])
        padded = [map(_padded, row, widths, aligns) for row in rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in padded)

    def _headers(self, columns: Columns) -> Iterator[str]:
        """Yield the header of each column, after the title of its bar."""
        title, left = "", 0
        for column in columns:
            if isinstance(column, Bar):
                title, left = column.title, column.columns
            else:
                yield self._line([Word(f"{title} {column.header}" if left else column.header)])
                left -= 1 if left else 0


def _escaped(text: str) -> str:
    return _BLANKS.sub(lambda match: f"&#x{ord(match[0]):x};", _MARKS.sub(r"\\\g<0>", text))


def _padded(text: str, width: int, align: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if align == "right" else text + blanks

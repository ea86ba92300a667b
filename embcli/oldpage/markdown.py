"""A page in GitHub's Markdown."""

import re
from collections.abc import Iterator, Sequence

from embcli.oldpage import Line, Table
from embcli.oldpage.heat import Strip
from embcli.oldpage.layout import Bar, Column, Columns, Word, cell_len
from embcli.oldpage.markup import Markup

_MARKS = re.compile(r"[\\`*_\[<|~$&@]|:(?=//)|(?<=www)\.")  # GitHub also makes links of bare addresses, and math of $
_BLANKS = re.compile(r"[^\S ]")  # all but the common one; a parser may strip them
_MARKS_IN_FRONT = re.compile(r"^(\d+(?=[.)](?: |$))|(?=-(?!\d)|[+>#]))")  # of lists, quotes, headings


class Markdown(Markup):
    """A page in GitHub's Markdown; its tables have no bars, and the title of a bar is part of the headers after it."""

    bold = "**{}**"

    def _block(self, item: Line | Table) -> str:
        return _MARKS_IN_FRONT.sub(r"\1\\", super()._block(item)) if isinstance(item, Line) else super()._block(item)

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

    def _escaped(self, text: str) -> str:
        return _BLANKS.sub(lambda match: f"&#x{ord(match[0]):x};", _MARKS.sub(r"\\\g<0>", text))

    def _aligned(self, lines: Sequence[str]) -> str:
        return "\n".join(f"    {line}" for line in lines)  # a block of code, whatever is in it

    def _strip(self, strip: Strip) -> str:
        return f"`{strip.characters()}`"


def _padded(text: str, width: int, align: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if align == "right" else text + blanks

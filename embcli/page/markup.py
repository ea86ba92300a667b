"""Pages for a document: GitHub's Markdown for a README, LaTeX for a paper or a slide.

Both show what a page in a pipe shows, as wide. Text is escaped so that it reads as itself, whatever stands in it; a
tone is bold, or nothing.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

from embcli.page import Page
from embcli.page.heat import Strip, drawn
from embcli.page.layout import Bar, Column, Word, cell_len

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embcli.page.layout import Cell, Columns

_BOLD = ("strong", "good", "bad")


class _Markup(Page):
    """A page of blocks, with a blank line between them."""

    def content(self) -> bytes:
        """Return the page in UTF-8."""
        return ("\n\n".join(filter(None, self._parts)) + "\n").encode()

    @property
    def lines(self) -> int:
        """How many lines take up room that there is only so much of: none, for a document goes on."""
        return 0

    def _title(self, text: str) -> str:
        return self._line([Word(text, "strong")])

    def _line(self, words: list[Word]) -> str:
        return self._text(*words)

    def _text(self, *words: Word) -> str:
        """Return words as one text, bold where all of them are to stand out."""
        text = self._escaped("".join(word.text for word in words).strip(" "))
        return self._bold(text) if text and all(word.tone in _BOLD for word in words) else text

    def _rows(self, columns: Columns, gaps: Sequence[int]) -> Iterator[list[str]]:
        """Yield the rows below the header, and one of dots where others are left out."""
        cells = [map(self._cell, each.cells) for each in columns if isinstance(each, Column)]
        for place, row in enumerate(zip(*cells, strict=True)):
            if place in gaps:
                yield [self._escaped("⋮")] * len(row)
            yield [*row]

    def _cell(self, cell: Cell) -> str:
        if isinstance(cell, Strip):
            return self._typed(drawn(cell))
        return self._text(Word(cell) if isinstance(cell, str) else cell)

    @property
    def _halves(self) -> bool:
        return False

    def _scale(self, low: str, bar: Strip, high: str) -> str:
        return f"{self._escaped(low)} {self._typed(drawn(bar))} {self._escaped(high)}"

    @abstractmethod
    def _typed(self, characters: str) -> str:
        """Return the characters of a strip, all of one width."""

    @abstractmethod
    def _escaped(self, text: str) -> str: ...

    @abstractmethod
    def _bold(self, text: str) -> str: ...


_MARKS = re.compile(r"[\\`*_\[<|~$&@]|:(?=//)|(?<=www)\.")  # GitHub also makes links of bare addresses, math of $
_BLANKS = re.compile(r"[^\S ]")  # all but the common one, which a parser may strip
_MARKS_IN_FRONT = re.compile(r"^(\d+(?=[.)](?: |$))|(?=[-+>#]))")  # of lists, quotes, headings


class Markdown(_Markup):
    """A page in GitHub's Markdown; a bar in a table gives way, and its title goes into the headers behind it."""

    def _line(self, words: list[Word]) -> str:
        return _MARKS_IN_FRONT.sub(r"\1\\", super()._line(words))

    def _table(self, columns: Columns, gaps: Sequence[int], ruled: bool) -> str:
        aligns = [each.align for each in columns if isinstance(each, Column)]
        rows = [[*self._headers(columns)], *self._rows(columns, gaps)]
        widths = [max(3, *map(cell_len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, [_rule(width, align) for width, align in zip(widths, aligns, strict=True)])
        padded = [map(_padded, row, widths, aligns) for row in rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in padded)

    def _headers(self, columns: Columns) -> Iterator[str]:
        """Yield the header of each column, with the title of its bar in front."""
        title, left = "", 0
        for each in columns:
            if isinstance(each, Bar):
                title, left = each.title, each.columns
            else:
                yield self._cell(f"{title} {each.header}" if left else each.header)
                left = max(left - 1, 0)

    def _escaped(self, text: str) -> str:
        return _BLANKS.sub(lambda match: f"&#x{ord(match[0]):x};", _MARKS.sub(r"\\\g<0>", text))

    def _bold(self, text: str) -> str:
        return f"**{text}**"

    def _typed(self, characters: str) -> str:
        return f"`{characters}`"


def _rule(width: int, align: str) -> str:
    """Return what tells how a column is aligned."""
    return f"{'-' * (width - 1)}:" if align == "right" else f":{'-' * (width - 1)}"


def _padded(text: str, width: int, align: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if align == "right" else text + blanks


_COMMANDS = str.maketrans(
    {
        **{character: f"\\{character}" for character in "{}$&#%_"},
        **{character: f"{{{character}}}" for character in "[*"},  # behind the end of a row they would belong to it
        "\\": r"\textbackslash{}",
        "|": r"\textbar{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        '"': r"\texttt{\char34}",
        "'": r"\textquotesingle{}",
        "`": r"\textasciigrave{}",
        "␣": r"\textvisiblespace{}",
        "…": r"\ldots{}",
        "·": r"\textperiodcentered{}",
        "µ": r"\textmu{}",
        "±": r"$\pm$",
        "×": r"$\times$",  # noqa: RUF001
        "√": r"$\surd$",
        "→": r"$\to$",
        "⋮": r"$\vdots$",
        "╭": r"$\lceil$",
        "│": r"$\vert$",
        "╰": r"$\lfloor$",
        **{chr(0x2590 - eighths): rf"\rule{{{eighths / 8:g}ex}}{{1.5ex}}" for eighths in range(1, 9)},  # ▏ to █
        **{chr(0x2580 + eighths): rf"\rule{{1ex}}{{{1.5 * eighths / 8:g}ex}}" for eighths in range(1, 8)},  # ▁ to ▇
    }
)
_LIGATURES = re.compile("-(?=-)|,(?=,)")  # the others begin with what is a command here; LuaTeX sees through {}


class Latex(_Markup):
    """A page of LaTeX fragments for a document of any class; characters that LaTeX has no command for stay."""

    def _table(self, columns: Columns, gaps: Sequence[int], ruled: bool) -> str:
        layout = "".join("|" if isinstance(each, Bar) else each.align[0] for each in columns)
        header = [self._cell(each.header) for each in columns if isinstance(each, Column)]
        lines = [rf"\begin{{tabular}}{{{layout}}}", *self._titles(columns, layout), _row(header)]
        if ruled:
            lines.append(r"\hline")
        return "\n".join([*lines, *map(_row, self._rows(columns, gaps)), r"\end{tabular}"])

    def _titles(self, columns: Columns, layout: str) -> Iterator[str]:
        """Yield the row over the header that has the titles of bars, if any do."""
        cells, left = [], 0
        for place, each in enumerate(columns):
            if isinstance(each, Bar) and each.title:
                left = each.columns
                bar_behind = layout[place + 1 : place + left + 2].lstrip("lr")
                cells.append(rf"\multicolumn{{{left}}}{{c{bar_behind}}}{{{self._cell(each.title)}}}")
            elif isinstance(each, Column) and left:
                left -= 1
            elif isinstance(each, Column):
                cells.append("")
        if any(cells):
            yield _row(cells)

    def _escaped(self, text: str) -> str:
        return _LIGATURES.sub(r"\g<0>\\mbox{}", text.translate(_COMMANDS))

    def _bold(self, text: str) -> str:
        return rf"\textbf{{{text}}}"

    def _typed(self, characters: str) -> str:
        return rf"\texttt{{{self._escaped(characters)}}}"


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"

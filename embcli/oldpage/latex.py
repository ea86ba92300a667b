"""A page of LaTeX fragments, for a paper or a slide."""

import re
from collections.abc import Iterator, Sequence

from embcli.oldpage import Table
from embcli.oldpage.heat import Strip
from embcli.oldpage.layout import Bar, Column, Columns, Word
from embcli.oldpage.markup import Markup

_COMMANDS = str.maketrans(
    {
        **{character: f"\\{character}" for character in "{}$&#%_"},
        **{character: f"{{{character}}}" for character in "[*"},  # after the end of a row they would be its arguments
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
        "╯": r"$\rfloor$",
        "┬": r"$\top$",
        "┴": r"$\bot$",
        "┼": r"$\dagger$",
        "─": r"\rule[0.6ex]{0.5em}{0.4pt}",
        **{chr(0x2590 - eighths): rf"\rule{{{eighths / 8:g}ex}}{{1.5ex}}" for eighths in range(1, 9)},  # ▏ to █
        **{chr(0x2580 + eighths): rf"\rule{{1ex}}{{{1.5 * eighths / 8:g}ex}}" for eighths in range(1, 8)},  # ▁ to ▇
    }
)
_LIGATURES = re.compile("-(?=-)|,(?=,)")  # the others begin with a command here; {} does not part them in LuaTeX


class Latex(Markup):
    """A page of LaTeX fragments for a document of any class; characters without a command stay as they are."""

    bold = r"\textbf{{{}}}"

    def _table(self, table: Table) -> str:
        layout = "".join("|" if isinstance(column, Bar) else column.align[0] for column in table.columns)
        header = [self._line([Word(column.header)]) for column in table.columns if isinstance(column, Column)]
        lines = [rf"\begin{{tabular}}{{{layout}}}", *self._titles(table.columns, layout), _row(header)]
        if table.ruled:
            lines.append(r"\hline")
        return "\n".join([*lines, *map(_row, self._rows(table)), r"\end{tabular}"])

    def _titles(self, columns: Columns, layout: str) -> Iterator[str]:
        """Yield the row above the header with the titles of bars, if there are any."""
        cells, left = [], 0
        for place, column in enumerate(columns):
            if isinstance(column, Bar) and column.title:
                left = column.columns
                next_bar = layout[place + 1 : place + left + 2].lstrip("lr")
                cells.append(rf"\multicolumn{{{left}}}{{c{next_bar}}}{{{self._line([Word(column.title)])}}}")
            elif isinstance(column, Column) and left:
                left -= 1
            elif isinstance(column, Column):
                cells.append("")
        if any(cells):
            yield _row(cells)

    def _escaped(self, text: str) -> str:
        return _LIGATURES.sub(r"\g<0>\\mbox{}", text.translate(_COMMANDS))

    def _aligned(self, lines: Sequence[str]) -> str:
        written = ("".join(map(self._cell, line)) for line in lines)
        return "\\\\\n".join(rf"\texttt{{{line}}}" for line in written)

    def _cell(self, character: str) -> str:
        """Return a character in a line of characters of one width."""
        if character in "╰╯┬┴┼─│":
            return rf"\makebox[0.525em]{{{self._escaped(character)}}}"
        return "~" if character == " " else self._escaped(character)

    def _strip(self, strip: Strip) -> str:
        return rf"\texttt{{{self._escaped(strip.characters())}}}"


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"

"""How `tokenize` looks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from embcli.page.grid import BYTE_IN_HEX, Shown, left_out, shorten
from embcli.page.terminal import plain_table
from embcli.safe import printable
from embcli.tokens import Stretch, Tokenization, escaped, shown
from embcli.weights import counted

if TYPE_CHECKING:
    from rich.console import JustifyMethod as Justify
    from rich.table import Table

    from embcli.page.terminal import Page

_MOST_ROWS = 200
_MOST_TEXT = 2000  # characters of the text that are shown with its token borders
_MOST_SHARED = 5  # characters in several tokens that are named below the table
_COLORS = ("white on rgb(30,64,120)", "white on rgb(120,60,16)")


@dataclass(frozen=True)
class _Row:
    place: int
    token: bytes
    start: int
    end: int
    joined: bool


def view(result: Tokenization, page: Page) -> None:
    """Put the text with its token borders (on a terminal), a row a token, and the totals on a page."""
    tokens = result.tokens
    which = Shown.most(_MOST_ROWS, len(tokens))
    rows: list[_Row] = []
    shared: list[str] = []
    characters = size = 0
    for stretch in result.stretches():
        characters += stretch.characters
        size += sum(map(len, stretch.tokens))
        rows += _rows(stretch, which)
        if len(shared) <= _MOST_SHARED:
            shared += _shared(stretch)
    if page.terminal and len(tokens):
        page.print(_bordered(rows[: which.head], page.color, cut=which.left_out > 0))
        page.print()
    page.print(_table(result, page, rows, which))
    page.print()
    ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
    counts = (counted(characters, "character"), counted(size, "byte"), counted(len(tokens), "token"))
    page.print(f"{', '.join(counts)}{ratio} ({_encoding(result)})")
    if which.left_out:
        page.print(f"Left out: {left_out(which, np.arange(len(tokens)), 'row')}; -f tsv gives all of them.")
    for line in shared[:_MOST_SHARED]:
        page.print(line)
    if len(shared) > _MOST_SHARED:
        page.print("More characters stand in several tokens; the brackets show which tokens belong together.")


def _encoding(result: Tokenization) -> str:
    return result.tokens.encoding.name if result.tokens.encoding else "no encoding"


def _rows(stretch: Stretch, which: Shown) -> list[_Row]:
    index = stretch.index
    wanted = np.flatnonzero((index < which.head) | (index >= which.total - which.tail)).tolist()
    return [
        _Row(
            int(index[place]),
            stretch.tokens[place],
            int(stretch.start[place]),
            int(stretch.end[place]),
            bool(stretch.joined[place]),
        )
        for place in wanted
    ]


def _shared(stretch: Stretch) -> list[str]:
    """Return a line for each character that stands in several tokens."""
    lines: list[str] = []
    joined = [*stretch.joined.tolist(), False]
    for place in np.flatnonzero(stretch.joined & ~np.roll(stretch.joined, 1)).tolist():
        if len(lines) > _MOST_SHARED or place == 0:
            continue
        last = place
        while joined[last + 1]:
            last += 1
        group = stretch.tokens[place - 1 : last + 1]
        parts = " + ".join(shown(token) for token in group)
        whole = b"".join(group)[len(group[0].decode(errors="ignore").encode()) :]  # without the characters before it
        first = int(stretch.index[place - 1])
        lines.append(f"{shown(whole)} is in tokens {first} to {first + last - place + 1}: {parts}")
    return lines


def _table(result: Tokenization, page: Page, rows: list[_Row], which: Shown) -> Table:
    tokens = result.tokens
    sequence, position = tokens.places(which.places)
    ids = [str(token_id) for token_id in tokens.ids[which.places].tolist()]
    spans = [f"{row.start}:{row.end}" for row in rows]
    columns: list[tuple[str, list[str], Justify]] = [("seq", list(map(str, sequence.tolist())), "right")] * tokens.many
    columns += [("pos", list(map(str, position.tolist())), "right")]
    brackets = _brackets(rows)
    columns += [("", brackets, "left")] if any(map(str.strip, brackets)) else []
    names, codes = [shown(row.token) for row in rows], [row.token.hex(" ") for row in rows]
    taken = sum(2 + max(map(cell_len, [header, *cells])) for header, cells, _ in columns)
    taken += sum(2 + max(map(len, [header, *cells])) for header, cells in (("ID", ids), ("span", spans)))
    names, codes = _two_fit(names, codes, page.width - taken - 2)
    columns += [("token", names, "left"), ("ID", ids, "right"), ("bytes", codes, "left"), ("span", spans, "left")]
    table = plain_table(*((header, justify) for header, _, justify in columns))
    for place, cells in enumerate(zip(*(cells for _, cells, _ in columns), strict=True)):
        if which.left_out and place == which.head:
            table.add_row(*["⋮"] * len(columns), style="dim")
        table.add_row(*map(Text, cells))
    return table


def _two_fit(names: list[str], codes: list[str], room: int) -> tuple[list[str], list[str]]:
    """Shorten tokens and their bytes in the middle so that both columns fit."""
    widest_name = max(map(cell_len, ["token", *names]))
    widest_code = max(map(len, ["bytes", *codes]))
    if widest_name + widest_code <= room:
        return names, codes
    name_room = max(min(widest_name, max(room // 2, room - widest_code)), 6)
    code_room = max(room - name_room, 8)
    return [shorten(name, name_room) for name in names], [shorten(code, code_room, BYTE_IN_HEX) for code in codes]


def _brackets(rows: list[_Row]) -> list[str]:
    """Return a sign for each row that binds the tokens of one character together."""
    signs = []
    for row, after in zip_longest(rows, rows[1:]):
        more = after is not None and after.joined and after.place == row.place + 1
        signs.append({(False, False): " ", (False, True): "╭", (True, True): "│", (True, False): "╰"}[row.joined, more])
    return signs


def _bordered(rows: list[_Row], color: bool, cut: bool) -> Text:
    """Return the text itself with the borders between its tokens; tokens that share a character stand as one."""
    text = Text(no_wrap=False, overflow="fold")
    group = b""
    number = 0
    for row, after in zip_longest(rows, rows[1:]):
        group += row.token
        if after is not None and after.joined:
            continue
        if text.cell_len > _MOST_TEXT:
            text.append(" …", "dim")
            break
        written = printable(group.decode(errors="backslashreplace").replace("\r", "\\r"), escaped)
        if number and row.start == 0:  # another sequence
            text.append("\n")
        elif number and not color:
            text.append("│")
        text.append(written.replace("\t", "\\t").replace("\n", "\\n\n"), _COLORS[number % 2] if color else "")
        number, group = number + 1, b""
    else:
        text.append(" …" if cut else "", "dim")
    return text

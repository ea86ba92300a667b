"""How `tokenize` looks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from embcli.page import BYTE_IN_HEX, LEAST_TOKEN, Column, Columns, Excerpt, Word
from embcli.safe import printable
from embcli.tokens import escaped, shown
from embcli.views.parts import left_out
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.tokenize import Spans, Tokenization

_MOST_ROWS = 200
_MOST_TEXT = 2000  # cells of the text that are shown with its token borders
_MOST_SHARED = 5  # characters in several tokens that are named below the table
_LEAST_BYTES = 8  # cells that the bytes of a token are shortened to at most


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
    which = Excerpt.most(_MOST_ROWS, len(tokens))
    rows: list[_Row] = []
    shared: list[str] = []
    characters = size = 0
    for spans in result.spans():
        characters += spans.characters
        size += sum(map(len, spans.tokens))
        rows += _rows(spans, which)
        if len(shared) <= _MOST_SHARED:
            shared += _shared(spans)
    if page.paper.screen and len(tokens):
        _put_bordered(rows[: which.head], page, cut=which.left_out > 0)
        page.line()
    page.table(_columns(result, rows, which), which.gaps)
    page.line()
    ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
    counts = (counted(characters, "character"), counted(size, "byte"), counted(len(tokens), "token"))
    page.line(f"{', '.join(counts)}{ratio} ({tokens.encoding.name if tokens.encoding else 'no encoding'})")
    if which.left_out:
        page.line(f"{left_out(which.missing(np.arange(len(tokens)), 'row'))[:-1]}; -f tsv gives all of them.")
    for line in shared[:_MOST_SHARED]:
        page.line(line)
    if len(shared) > _MOST_SHARED:
        page.line("More characters stand in several tokens; the brackets show which tokens belong together.")


def _rows(spans: Spans, which: Excerpt) -> list[_Row]:
    index = spans.index
    wanted = np.flatnonzero((index < which.head) | (index >= which.total - which.tail)).tolist()
    return [
        _Row(
            int(index[place]),
            spans.tokens[place],
            int(spans.start[place]),
            int(spans.end[place]),
            bool(spans.joined[place]),
        )
        for place in wanted
    ]


def _shared(spans: Spans) -> list[str]:
    """Return a line for each character that stands in several tokens."""
    lines: list[str] = []
    joined = [*spans.joined.tolist(), False]
    for place in np.flatnonzero(spans.joined & ~np.roll(spans.joined, 1)).tolist():
        if len(lines) > _MOST_SHARED or place == 0:
            continue
        last = place
        while joined[last + 1]:
            last += 1
        group = spans.tokens[place - 1 : last + 1]
        parts = " + ".join(shown(token) for token in group)
        whole = b"".join(group)[len(group[0].decode(errors="ignore").encode()) :]  # without the characters before it
        first = int(spans.index[place - 1])
        lines.append(f"{shown(whole)} is in tokens {first} to {first + last - place + 1}: {parts}")
    return lines


def _columns(result: Tokenization, rows: list[_Row], which: Excerpt) -> Columns:
    """Return a row a token: sequence (where there are many), position, token, ID, bytes, span."""
    tokens = result.tokens
    sequence, position = tokens.places(which.places)
    columns: Columns = [Column("seq", [str(each) for each in sequence])] if tokens.many else []
    columns.append(Column("pos", [str(each) for each in position]))
    brackets = _brackets(rows)
    if any(map(str.strip, brackets)):
        columns.append(Column("", brackets, "left"))
    return [
        *columns,
        Column("token", [shown(row.token) for row in rows], "left", least=LEAST_TOKEN),
        Column("ID", [str(token_id) for token_id in tokens.ids[which.places].tolist()]),
        Column("bytes", [row.token.hex(" ") for row in rows], "left", least=_LEAST_BYTES, unit=BYTE_IN_HEX),
        Column("span", [f"{row.start}:{row.end}" for row in rows], "left"),
    ]


def _brackets(rows: list[_Row]) -> list[str]:
    """Return a sign for each row that binds the tokens of one character together."""
    signs = []
    for row, after in zip_longest(rows, rows[1:]):
        more = after is not None and after.joined and after.place == row.place + 1
        signs.append({(False, False): " ", (False, True): "╭", (True, True): "│", (True, False): "╰"}[row.joined, more])
    return signs


def _put_bordered(rows: list[_Row], page: Page, cut: bool) -> None:
    """Put the text itself on the page, with borders between tokens; tokens that share a character stand as one."""
    line: list[str | Word] = []
    group = b""
    number = cells = 0
    for row, after in zip_longest(rows, rows[1:]):
        group += row.token
        if after is not None and after.joined:
            continue
        if cells > _MOST_TEXT:
            cut = True
            break
        written = printable(group.decode(errors="backslashreplace").replace("\r", "\\r"), escaped)
        if number and row.start == 0:  # another sequence
            page.line(*line)
            line = []
        elif number and not page.paper.color:
            line.append("│")
        parts = written.replace("\t", "\\t").replace("\n", "\\n\n").split("\n")
        for place, part in enumerate(parts):
            if place:
                page.line(*line)
                line = []
            word = Word(part, "odd token" if number % 2 else "even token")
            line.append(word)
            cells += word.width
        number, group = number + 1, b""
    page.line(*line, *[Word(" …", "dim")] * cut)

"""How `tokenize` looks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from embcli.page import BYTE_IN_HEX, LEAST_TOKEN, TOKEN_TONES, Column, Columns, Excerpt, Word
from embcli.tokens import shown
from embcli.views.parts import left_out
from embcli.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.page import Page
    from embcli.verbs.tokenize import Spans, Tokenization

_MOST_ROWS = 200
_MOST_TEXT = 2000  # cells of the text that are shown with its IDs
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
    """Put a row a token, the totals, and (on a screen) the text itself with the IDs under it on a page."""
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
    page.table(_columns(result, rows, which), which.gaps)
    page.line()
    ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
    counts = (counted(characters, "character"), counted(size, "byte"), counted(len(tokens), "token"))
    page.line(f"{', '.join(counts)}{ratio} ({tokens.encoding.name if tokens.encoding else 'no encoding'})")
    if which.left_out:
        page.line(f"{left_out(which.missing(np.arange(len(tokens)), 'row'))}; -f tsv gives all of them.")
    for line in shared[:_MOST_SHARED]:
        page.line(line)
    if len(shared) > _MOST_SHARED:
        page.line("More characters stand in several tokens; the brackets show which tokens belong together.")
    if page.paper.screen and len(tokens):
        page.line()
        _put_text(result, rows, page)


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
        Column("token", [_toned(row, shown(row.token)) for row in rows], "left", least=LEAST_TOKEN),
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


def _toned(row: _Row, text: str) -> Word:
    return Word(text, TOKEN_TONES[row.place % len(TOKEN_TONES)])


def _put_text(result: Tokenization, rows: list[_Row], page: Page) -> None:
    """Put the text on the page as it would be read, each token in its colour, with its ID under it.

    Tokens that share a character stand as one.
    """
    above: list[str | Word] = []
    under: list[str | Word] = []
    cells = taken = 0
    after = 0  # the place behind the tokens that are there
    for group in _groups(rows):
        if group[0].place > after:
            above, under = [*above, Word("…", "dim"), " "], [*under, "  "]
            cells += 2
        after = group[-1].place + 1
        ids = result.tokens.ids[[row.place for row in group]].tolist()
        word = _toned(group[0], shown(b"".join(row.token for row in group)))
        number = _toned(group[0], " ".join(map(str, ids)))
        width = max(word.width, number.width) + 1
        if above and (cells + width > page.width + 1 or group[0].start == 0):
            _put_lines(page, above, under)
            cells, above, under = 0, [], []
        taken += width
        if taken > _MOST_TEXT:
            above.append(Word("…", "dim"))
            break
        above += [word, " " * (width - word.width)]
        under += [number, " " * (width - number.width)]
        cells += width
    _put_lines(page, above, under)


def _groups(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Yield rows, those of one character together."""
    group: list[_Row] = []
    for row in rows:
        if group and not (row.joined and row.place == group[-1].place + 1):
            yield group
            group = []
        group.append(row)
    yield group


def _put_lines(page: Page, *lines: list[str | Word]) -> None:
    for line in lines:
        page.line(*line)

"""The page of `tokenize`."""

from dataclasses import dataclass

import numpy as np

from embcli.hints import hint
from embcli.oldpage import BYTE_IN_HEX, LEAST_TOKEN, Column, Columns, Excerpt, Page, Word
from embcli.oldpage.layout import token_tone
from embcli.tokens import shown
from embcli.verbs.tokenize import Spans, Tokenization
from embcli.views.parts import put_left_out
from embcli.words import counted

_MOST_ROWS = 200
_MOST_TEXT = 2000  # cells of the text that are shown with its IDs
_MOST_SHARED = 5  # characters in several tokens that are named below the table
_LEAST_BYTES = 8  # cells to which the bytes of a token may be shortened
# By whether a token begins in the middle of a character, and whether that goes on in the next token.
_BRACKETS = {(False, False): " ", (False, True): "╭", (True, True): "│", (True, False): "╰"}


@dataclass(frozen=True)
class _Row:
    place: int
    token: bytes
    start: int
    end: int
    joined: bool  # begins in the middle of a character


def view(result: Tokenization, page: Page) -> None:
    """Put one row per token on a page, the totals, and (on a screen) the text itself with the IDs below it."""
    tokens = result.tokens
    excerpt = Excerpt.ends(_MOST_ROWS, len(tokens))
    rows: list[_Row] = []
    characters = size = 0
    for spans in result.spans():
        characters += spans.characters
        size += sum(map(len, spans.tokens))
        rows += _rows(spans, excerpt)
    groups = _groups(rows)
    if result.texts:
        characters, size = sum(map(len, result.texts)), sum(len(text.encode()) for text in result.texts)
    page.table(_columns(result, groups, excerpt), excerpt.gaps)
    page.line()
    ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
    counts = (counted(characters, "character"), counted(size, "byte"), counted(len(tokens), "token"))
    name = tokens.encoding.name if tokens.encoding else "no encoding"
    change = "" if result.comes_back else "; they decode to another text"
    page.line(f"{', '.join(counts)}{ratio} ({name}){change}")
    put_left_out(page, excerpt.missing("row"), how=hint("tsv"))
    shared = [_shared(group) for group in groups if len(group) > 1 and not group[0].joined]
    for line in shared[:_MOST_SHARED]:
        page.line(line)
    if len(shared) > _MOST_SHARED:
        page.line("More characters are in several tokens; the brackets show which tokens belong together.")
    if page.paper.screen and len(tokens):
        page.line()
        _put_text(result, groups, page)


def _rows(spans: Spans, excerpt: Excerpt) -> list[_Row]:
    """Return the rows of those tokens that the page shows."""
    chosen = np.flatnonzero((spans.index < excerpt.head) | (spans.index >= excerpt.total - excerpt.tail))
    arrays = (each[chosen].tolist() for each in (spans.index, spans.start, spans.end, spans.joined))
    rows = zip(chosen.tolist(), *arrays, strict=True)
    return [_Row(place, spans.tokens[k], start, end, joined) for k, place, start, end, joined in rows]


def _groups(rows: list[_Row]) -> list[list[_Row]]:
    """Group the rows that share a character; other rows are groups of one."""
    groups: list[list[_Row]] = []
    for row in rows:
        if groups and row.joined and row.place == groups[-1][-1].place + 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _columns(result: Tokenization, groups: list[list[_Row]], excerpt: Excerpt) -> Columns:
    """Return the table: sequence (if there are several), position, token, ID, bytes, span."""
    tokens, rows = result.tokens, [row for group in groups for row in group]
    sequence, position = tokens.places(excerpt.places)
    columns: Columns = [Column("seq", sequence)] if tokens.many else []
    columns.append(Column("pos", position))
    brackets = [_BRACKETS[row.joined, row is not group[-1]] for group in groups for row in group]
    if {*brackets} - {" "}:
        columns.append(Column("", brackets, "left"))
    return [
        *columns,
        Column("token", [_toned(row, shown(row.token)) for row in rows], "left", least=LEAST_TOKEN),
        Column("ID", tokens.ids[excerpt.places]),
        Column("bytes", [row.token.hex(" ") for row in rows], "left", least=_LEAST_BYTES, unit=BYTE_IN_HEX),
        Column("span", [f"{row.start}:{row.end}" for row in rows], "left"),
    ]


def _toned(row: _Row, text: str) -> Word:
    return Word(text, token_tone(row.place))


def _shared(group: list[_Row]) -> str:
    """Return a line about a character in several tokens."""
    tokens = [row.token for row in group]
    before = tokens[0].decode(errors="ignore").encode()  # the characters before the shared one
    character = shown(b"".join(tokens)[len(before) :])
    return f"{character} is in tokens {group[0].place} to {group[-1].place}: {' + '.join(map(shown, tokens))}"


def _put_text(result: Tokenization, groups: list[list[_Row]], page: Page) -> None:
    """Put the text on the page as one reads it, each token in its colour, with its ID below.

    Tokens that share a character are one word.
    """
    above: list[str | Word] = []
    below: list[str | Word] = []
    cells = total = next_place = 0
    for group in groups:
        if group[0].place > next_place:
            above, below = [*above, Word("…", "dim"), " "], [*below, "  "]
            cells += 2
        next_place = group[-1].place + 1
        word = _toned(group[0], shown(b"".join(row.token for row in group)))
        ids = result.tokens.ids[[row.place for row in group]].tolist()
        number = _toned(group[0], " ".join(map(str, ids)))
        width = max(word.width, number.width) + 1
        if above and (cells + width > page.width + 1 or group[0].start == 0):
            page.line(*above)
            page.line(*below)
            cells, above, below = 0, [], []
        total += width
        if total > _MOST_TEXT:
            above.append(Word("…", "dim"))
            break
        above += [word, " " * (width - word.width)]
        below += [number, " " * (width - number.width)]
        cells += width
    page.line(*above)
    page.line(*below)

"""Tokenizing: text as tokens, each with its ID, its bytes, and its span in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from embcli import tokens as core
from embcli.records import Names, Piece, Records, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import Tokens, shown
from embcli.words import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Drawing

_MOST_ROWS = 200
_MOST_TEXT = 2000  # cells of the text that are shown with its IDs
_MOST_SHARED = 5  # characters in several tokens that are named below the table
# By whether a token begins in the middle of a character, and whether the next token continues it.
_BRACKETS = {(False, False): " ", (False, True): "╭", (True, True): "│", (True, False): "╰"}
_NEED_SPANS = {"bytes", "start", "end"}


@dataclass(frozen=True, eq=False)
class Spans:
    """Consecutive tokens with their spans.

    `start` and `end`, each (n,) int64, count characters from the start of the sequence. All tokens that share a
    character have the whole character in their spans; `joined` marks those that begin in the middle of one.
    `characters` is the number of characters that begin in these tokens.
    """

    index: np.ndarray  # (n,) int64, places among all tokens
    tokens: list[bytes]
    start: np.ndarray
    end: np.ndarray
    joined: np.ndarray  # (n,) bool
    characters: int


@dataclass(frozen=True, eq=False)
class Tokenization(Result, verb="tokenize", content="tokens"):
    """The result of `tokenize`: tokens, each with its bytes and its span.

    Raises InputError for an ID that the encoding does not have.
    """

    tokens: Tokens
    texts: tuple[str, ...] = ()  # none for IDs
    special: bool = False

    def __post_init__(self) -> None:
        if self.tokens.encoding is not None:
            core.check_known(self.tokens.ids, self.tokens.encoding)

    @property
    def ids(self) -> np.ndarray:
        """The token IDs, (T,) uint32 or int64."""
        return self.tokens.ids

    @cached_property
    def comes_back(self) -> bool:
        """Whether the tokens decode to the texts, byte for byte; IDs have no text to differ from."""
        encoding, starts = self.tokens.encoding, self.tokens.starts.tolist()
        if encoding is None:
            return True
        before, after = map(len, encoding.around) if self.special else (0, 0)
        return all(
            encoding.decode(self.ids[start + before : stop - after]) == text.encode()
            for text, (start, stop) in zip(self.texts, pairwise(starts), strict=False)
        )

    def spans(self) -> Iterator[Spans]:
        """Yield all tokens in consecutive pieces, with their spans."""
        before = first = 0  # characters before this piece, and before the sequence in which it begins
        for index in self._indices():
            tokens = [token or b"" for token in self.tokens.bytes_of(self.ids[index])]
            begun, joined = _characters(tokens)
            opens = self.tokens.places(index)[1] == 0  # a sequence
            if self.tokens.spans is not None:  # the encoding knows them
                start, end = self.tokens.spans[index].T
                previous = np.where(opens, 0, self.tokens.spans[index - 1, 1])  # the end of the previous token
                characters = int(np.maximum(end - np.maximum(start, previous), 0).sum())
                yield Spans(index, tokens, start, end, joined, characters)
                continue
            end = before + np.cumsum(begun)
            base = np.maximum.accumulate(np.where(opens, end - begun, first))
            start = np.maximum(end - begun - joined, base)
            yield Spans(index, tokens, start - base, end - base, joined, int(begun.sum()))
            before, first = int(end[-1]), int(base[-1])

    def records(self) -> Records:
        """Return the tokens as data: position, ID, token, bytes (hex) and span of each."""
        sequences = self.tokens.sequences
        return Records(
            run=run_of(self.tokens.encoding, sequences=sequences),
            unit="tokens",
            rows=len(self.tokens),
            fields={**self.tokens.field_types, "bytes": str, "start": int, "end": int},
            pieces=self._pieces,
            sequences=sequences,
        )

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        if _NEED_SPANS.isdisjoint(fields):
            for index in self._indices():
                yield Piece(len(index), self.tokens.fields(index, fields))
            return
        for spans in self.spans():
            values = {"start": spans.start, "end": spans.end, **self.tokens.fields(spans.index, fields)}
            if "bytes" in fields:
                values["bytes"] = [token.hex() for token in spans.tokens]
            yield Piece(len(spans.index), {name: values[name] for name in fields})

    def _indices(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.tokens), core.PIECE):
            yield np.arange(start, min(start + core.PIECE, len(self.tokens)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from embcli.page import Label, left_out, ruled, token_style, words

        tokens = self.tokens
        excerpt = Excerpt.ends(_MOST_ROWS, len(tokens))
        rows: list[_Row] = []
        characters = size = 0
        for spans in self.spans():
            characters += spans.characters
            size += sum(map(len, spans.tokens))
            shown_here = (spans.index < excerpt.head) | (spans.index >= excerpt.total - excerpt.tail)
            chosen = np.flatnonzero(shown_here)
            arrays = [each[chosen].tolist() for each in (spans.index, spans.start, spans.end, spans.joined)]
            named = [spans.tokens[k] for k in chosen.tolist()]
            rows += [
                _Row(place, token, *row) for token, (place, *row) in zip(named, zip(*arrays, strict=True), strict=True)
            ]
        if self.texts:
            characters, size = sum(map(len, self.texts)), sum(len(text.encode()) for text in self.texts)
        counts = [counted(characters, "character"), counted(size, "byte"), counted(len(tokens), "token")]
        ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
        name = tokens.encoding.name if tokens.encoding else "no encoding"
        change = "" if self.comes_back else "; they decode to another text"
        groups = _groups(rows)
        sequence, position = tokens.places(excerpt.places)
        brackets = [_BRACKETS[row.joined, row is not group[-1]] for group in groups for row in group]
        labels = [Label("seq", sequence)] if tokens.many else []
        labels.append(Label("pos", position))
        if {*brackets} - {" "}:
            labels.append(Label("", brackets, "left"))
        labels += [
            Label("token", [words(shown(row.token), token_style(row.place)) for row in rows], "left", short=True),
            Label("ID", tokens.ids[excerpt.places]),
            Label("bytes", [row.token.hex(" ") for row in rows], "left", short=True),
            Label("span", [f"{row.start}:{row.end}" for row in rows], "left"),
        ]
        yield ruled(labels, gaps=excerpt.gaps)
        if missing := left_out(excerpt.missing("row")):
            yield Text(missing)
        yield ""
        yield words(f"{', '.join(counts)}{ratio} ({name}){change}")
        shared = [_shared(group) for group in groups if len(group) > 1 and not group[0].joined]
        yield from map(words, shared[:_MOST_SHARED])
        if len(shared) > _MOST_SHARED:
            yield words("More characters are in several tokens; the brackets show which tokens belong together.")
        if console.is_terminal and rows:
            yield ""
            yield _text_with_ids(tokens, groups, options.max_width)


@dataclass(frozen=True)
class _Row:
    place: int
    token: bytes
    start: int
    end: int
    joined: bool  # begins in the middle of a character


def _groups(rows: list[_Row]) -> list[list[_Row]]:
    """Group the rows that share a character; other rows are groups of one."""
    groups: list[list[_Row]] = []
    for row in rows:
        if groups and row.joined and row.place == groups[-1][-1].place + 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _shared(group: list[_Row]) -> str:
    """Return a line about a character in several tokens."""
    tokens = [row.token for row in group]
    before = tokens[0].decode(errors="ignore").encode()  # the characters before the shared one
    character = shown(b"".join(tokens)[len(before) :])
    return f"{character} is in tokens {group[0].place} to {group[-1].place}: {' + '.join(map(shown, tokens))}"


def _text_with_ids(tokens: Tokens, groups: list[list[_Row]], width: int) -> Drawing:
    """Return the text as one reads it, each token in its colour, with its ID below.

    Tokens that share a character are one word.
    """
    from rich.text import Text

    from embcli.page import Drawing, token_style, words

    lines = [Text(), Text()]
    total = next_place = 0
    for group in groups:
        if group[0].place > next_place:
            lines[-2].append("… ", "dim")
            lines[-1].append("  ")
        next_place = group[-1].place + 1
        style = token_style(group[0].place)
        word = words(shown(b"".join(row.token for row in group)), style)
        number = Text(" ".join(map(str, tokens.ids[[row.place for row in group]].tolist())), style)
        cells = max(word.cell_len, number.cell_len) + 1
        if lines[-1] and (lines[-1].cell_len + cells > width + 1 or group[0].start == 0):
            lines += [Text(), Text()]
        total += cells
        if total > _MOST_TEXT:
            lines[-2].append("…", "dim")
            break
        for line, part in zip(lines[-2:], (word, number), strict=True):
            line.append_text(part)
            line.append(" " * (cells - part.cell_len))
    return Drawing(lines)


def _characters(tokens: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many characters begin in each token, and whether it begins in the middle of one, both (n,)."""
    data = np.frombuffer(b"".join(tokens), np.uint8)
    begins = np.append(data & 0xC0 != 0x80, True)  # in UTF-8
    before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before each byte
    ends = np.cumsum(list(map(len, tokens)))
    starts = np.concatenate([[0], ends[:-1]])
    return before[ends] - before[starts], ~begins[starts] & (starts < ends)

"""Tokenizing: text as tokens, each with its ID, its bytes, and its span in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from embcli import tokens as core
from embcli.records import Names, Piece, Records, run_of
from embcli.result import Result
from embcli.tokens import Tokens

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
            tokens = [token or b"" for token in self.tokens.bytes_at(index)]
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


def _characters(tokens: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many characters begin in each token, and whether it begins in the middle of one, both (n,)."""
    data = np.frombuffer(b"".join(tokens), np.uint8)
    begins = np.append(data & 0xC0 != 0x80, True)  # in UTF-8
    before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before each byte
    ends = np.cumsum(list(map(len, tokens)))
    starts = np.concatenate([[0], ends[:-1]])
    return before[ends] - before[starts], ~begins[starts] & (starts < ends)

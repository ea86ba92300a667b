"""Tokenizing: text as tokens, each with its ID, its bytes, and where it stands in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import embcli
from embcli import tokens as core
from embcli.records import Names, Piece, Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.tokens import Tokens

_OF_SPANS = ("bytes", "start", "end")


@dataclass(frozen=True)
class Spans:
    """Consecutive tokens, with where they stand in their text.

    `start` to `end`, each (n,) int64, count characters from the start of the sequence. A token that holds only a part
    of a character has that whole character in its span, and so have the other tokens that share it: `joined` says
    that a token begins in the middle of a character. `characters` is how many characters begin in these tokens.
    """

    index: np.ndarray  # (n,) int64, places among all tokens
    tokens: list[bytes]
    start: np.ndarray
    end: np.ndarray
    joined: np.ndarray  # (n,) bool
    characters: int


@dataclass(frozen=True)
class Tokenization:
    """The result of `tokenize`: tokens, each with its bytes and its span.

    Raises InputError for an ID that the encoding does not have.
    """

    tokens: Tokens

    def __post_init__(self) -> None:
        core.check_known(self.tokens)

    def spans(self) -> Iterator[Spans]:
        """Yield all tokens in consecutive pieces, with their spans."""
        if self.tokens.spans is not None:
            yield from self._told(self.tokens.spans)
            return
        before = first = 0  # characters before this piece, and before the sequence that it begins in
        for index in self._indices():
            tokens = [token or b"" for token in self.tokens.bytes_at(index)]
            begun, joined = _characters(tokens)
            end = before + np.cumsum(begun)
            opening = np.where(self.tokens.places(index)[1] == 0, end - begun, first)
            base = np.maximum.accumulate(opening)
            begin = np.maximum(end - begun - joined, base)
            characters = int(begun.sum())
            yield Spans(index, tokens, begin - base, end - base, joined, characters)
            before, first = before + characters, int(base[-1])

    def _told(self, spans: np.ndarray) -> Iterator[Spans]:
        """Yield all tokens with the spans that the encoding tells, (T, 2)."""
        for index in self._indices():
            tokens = [token or b"" for token in self.tokens.bytes_at(index)]
            start, end = spans[index].T
            behind = np.where(self.tokens.places(index)[1] == 0, 0, spans[index - 1, 1])  # where the one before ends
            characters = int(np.maximum(end - np.maximum(start, behind), 0).sum())
            yield Spans(index, tokens, start, end, _characters(tokens)[1], characters)

    def pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named fields."""
        if {*fields}.isdisjoint(_OF_SPANS):
            for index in self._indices():
                yield Piece(len(index), self.tokens.fields(index, fields))
            return
        for spans in self.spans():
            values: dict[str, Any] = {"start": spans.start, "end": spans.end}
            if "bytes" in fields:
                values["bytes"] = [token.hex() for token in spans.tokens]
            if "token" in fields:
                values["token"] = self.tokens.texts(spans.tokens)
            rest = tuple(name for name in fields if name not in values)
            yield Piece(len(spans.index), values | self.tokens.fields(spans.index, rest))

    def _indices(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.tokens), core.PIECE):
            yield np.arange(start, min(start + core.PIECE, len(self.tokens)))

    def records(self) -> Records:
        """Return the tokens as data: position, ID, token, bytes (hex) and span of each."""
        encoding, sequences = self.tokens.encoding, self.tokens.sequences
        return Records(
            run={
                "embcli": embcli.__version__,
                "encoding": encoding.name if encoding else None,
                "sequences": sequences,
            },
            unit="tokens",
            rows=len(self.tokens),
            fields={**self.tokens.field_types, "bytes": str, "start": int, "end": int},
            pieces=self.pieces,
            sequences=sequences,
        )


def _characters(tokens: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many characters begin in each token, and whether it begins in the middle of one, both (n,)."""
    data = np.frombuffer(b"".join(tokens), np.uint8)
    begins = np.append(data & 0xC0 != 0x80, True)  # as UTF-8 has it
    before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before each byte
    ends = np.cumsum(list(map(len, tokens)))
    starts = np.concatenate([[0], ends[:-1]])
    return before[ends] - before[starts], ~begins[starts] & (starts < ends)

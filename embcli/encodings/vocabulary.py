"""A vocabulary that a file describes as an encoding: the bytes of its tokens, and an algorithm that splits a text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from embcli.binary import Binary
from embcli.encodings.algorithm import Algorithm, Derivation
from embcli.encodings.encoding import Encoding
from embcli.encodings.spelling import characters_of
from embcli.errors import InputError
from embcli.safe import in_data

Read = Callable[[Binary, str | None], "FileVocabulary"]  # of a file, and the name of a pre-tokenizer

LONGEST = 1 << 27  # bytes of a file that lists tokens
MOST_IDS = 1 << 22  # no vocabulary has more
Fragment = tuple[int | None, int, int]  # the ID of a named token or None, its first and its end character
_BLANKS = " \t\n\v\f\r"
_START = 4  # characters of a name that many share: a text without them has none of these names


@dataclass(frozen=True)
class NamedToken:
    """A token that a text can contain by its name."""

    name: str
    token_id: int
    is_special: bool  # whether it is found only if special tokens are asked for
    strips_left: bool = False  # whether the blanks before it belong to no token
    strips_right: bool = False


class VocabularyEncoding(Encoding):
    """The tokens of a file; they are read when the first token or text is needed."""

    adds_space = False  # whether a text gets a space before it

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, in_data(name)

    @property
    @abstractmethod
    def named(self) -> list[NamedToken]:
        """The tokens that a text can contain by their names, in the order in which they are found."""

    @property
    @abstractmethod
    def algorithm(self) -> Algorithm:
        """What splits a text between named tokens; raises InputError if this is not known."""

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`."""
        algorithm = self.algorithm
        try:
            parts = [
                algorithm.ids(text[start:end]) if token_id is None else np.array([token_id], np.uint32)
                for token_id, start, end in self._fragments(text, special)
            ]
        except UnicodeEncodeError as error:  # a lone surrogate
            raise InputError(f"{self.name} cannot split this text of {len(text):,} characters: {error}") from None
        return np.concatenate([np.empty(0, np.uint32), *parts])

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens; a named token is a piece."""
        for token_id, start, end in self._fragments(text, special):
            if token_id is None:
                yield from self.algorithm.derivations(text[start:end])
            else:
                yield Derivation((text[start:end].encode(),), (), (token_id,))

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        """Return the first and the end character of each token of a text, (T, 2) int64."""
        parts = [
            self._spans(text[start:end]) + start if token_id is None else np.array([[start, end]])
            for token_id, start, end in self._fragments(text, special)
        ]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes of known IDs, (T,), together, without the spaces that texts get before them."""
        if not self.adds_space:
            return super().decode(ids)
        names, begins, pieces = {each.token_id for each in self.named}, True, []
        for token_id in ids.tolist():
            token = self.token_bytes(token_id) or b""
            pieces.append(token.removeprefix(b" ") if begins else token)
            begins = token_id in names
        return b"".join(pieces)

    def _spans(self, text: str) -> np.ndarray:
        """Return the spans of the tokens of a text without named tokens, (T, 2) int64."""
        places = _pairs(self.algorithm.places(text))
        spans = characters_of("".join(self.algorithm.pieces(text)).encode(), places[:, 0], places[:, 1])
        origins = self.algorithm.origins(text)
        if origins is None:
            return spans
        known = _pairs(chain(origins, [(len(text), len(text))]))
        starts, ends = known[spans[:, 0], 0], known[np.maximum(spans[:, 1] - 1, 0), 1]
        return np.stack([starts, np.where(spans[:, 1] > spans[:, 0], ends, starts)], axis=1).astype(np.int64)

    def _fragments(self, text: str, special: bool) -> list[Fragment]:
        """Return the named tokens of a text and the texts between them: ID or None, first and end character."""
        fragments: list[Fragment] = [(None, 0, len(text))] if text else []
        begun = {start: start in text for start in {named.name[:_START] for named in self.named}}
        for named in self.named:
            if named.name and (special or not named.is_special) and begun[named.name[:_START]] and named.name in text:
                fragments = [part for each in fragments for part in _split(text, each, named)]
        return fragments


@dataclass(frozen=True)
class FileVocabulary:
    """The content of a file."""

    tokens: dict[int, bytes]  # by ID
    algorithm: Algorithm
    named: list[NamedToken] = field(default_factory=list)
    merges: list[int] = field(default_factory=list)
    adds_space: bool = False


class FileEncoding(VocabularyEncoding):
    """The encoding of a file, which is read when the first token or text is needed."""

    def __init__(self, path: Path, name: str, read: Read, pre: str | None) -> None:
        super().__init__(path, name)
        self._read, self._pre = read, pre

    @cached_property
    def _content(self) -> FileVocabulary:
        return self._read(Binary(self.path), self._pre)

    @cached_property
    def vocabulary_size(self) -> int:
        """V: one more than the highest ID of a token."""
        return max(self._content.tokens, default=-1) + 1

    @property
    def named(self) -> list[NamedToken]:
        """The tokens that a text can contain by their names."""
        return self._content.named

    @property
    def algorithm(self) -> Algorithm:
        """What splits a text between named tokens."""
        return self._content.algorithm

    @property
    def adds_space(self) -> bool:  # type: ignore[override]
        """Whether a text gets a space before it."""
        return self._content.adds_space

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the file has no such token."""
        return self._content.tokens.get(token_id)

    def merges(self) -> list[int]:
        """Return the IDs of the merged tokens, in the order of the merges."""
        return self._content.merges


def _pairs(pairs: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return pairs of numbers below 2^31 as an array, (n, 2) int32, without a list of them."""
    return np.fromiter(chain.from_iterable(pairs), np.int32).reshape(-1, 2)


def _split(text: str, fragment: Fragment, named: NamedToken) -> Iterator[Fragment]:
    token_id, place, end = fragment
    start = text.find(named.name, place, end) if token_id is None else -1
    if start < 0:
        yield fragment
        return
    while start >= 0:
        left = place + len(text[place:start].rstrip(_BLANKS)) if named.strips_left else start
        if left > place:
            yield None, place, left
        place = start + len(named.name)
        yield named.token_id, start, place
        if named.strips_right:
            place = end - len(text[place:end].lstrip(_BLANKS))
        start = text.find(named.name, place, end)
    if place < end:
        yield None, place, end

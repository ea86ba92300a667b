"""Words by ID, and the encoding of a file of word vectors: its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.words import in_data

_MOST_LISTED = 8  # words in a message
_LONGEST_LISTED = 30  # characters of one of them


class Vocabulary:
    """Words by ID, as a file stores them: one string of bytes, and the start and end of each word in it."""

    def __init__(self, text: bytes, starts: np.ndarray, ends: np.ndarray) -> None:
        self._text, self._starts, self._ends = text, starts, ends  # offsets: (V,) int64

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, token_id: int) -> bytes:
        return self._text[int(self._starts[token_id]) : int(self._ends[token_id])]

    def find_all(self, words: set[bytes]) -> dict[bytes, int]:
        """Return the first IDs of stored words; unknown words and the empty word are left out."""
        letters = np.frombuffer(self._text, np.uint8)
        ids = np.flatnonzero(np.isin(self._ends - self._starts, [len(word) for word in words if word]))
        starts, ends = self._starts[ids], self._ends[ids]
        # Few words share their length and their first and last letters with a given one; only these are compared.
        wanted = [len(word) << 16 | word[0] << 8 | word[-1] for word in words if word]
        keys = (ends - starts) << 16 | letters[starts].astype(np.int64) << 8 | letters[ends - 1]
        first_ids: dict[bytes, int] = {}
        for token_id in ids[np.isin(keys, wanted)].tolist():
            if self[token_id] in words:
                first_ids.setdefault(self[token_id], token_id)
        return first_ids


class OwnWords(Encoding):
    """The words that a file has for its rows; a text is split at spaces."""

    def __init__(self, path: Path, read: Callable[[], Vocabulary]) -> None:
        self._path, self._read_words = path, read
        self.name = in_data(str(path))

    @cached_property
    def words(self) -> Vocabulary:
        return self._read_words()

    @property
    def vocabulary_size(self) -> int:
        return len(self.words)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        words = text.split()
        ids = self.words.find_all({word.encode() for word in words})
        unknown = [word for word in dict.fromkeys(words) if word.encode() not in ids]
        if not unknown:
            return np.array([ids[word.encode()] for word in words], np.uint32)
        named = ", ".join(repr(word[:_LONGEST_LISTED]) for word in unknown[:_MOST_LISTED])
        more = f" and {len(unknown) - _MOST_LISTED:,} more" if len(unknown) > _MOST_LISTED else ""
        lower = dict.fromkeys(word.lower() for word in unknown[:_MOST_LISTED])
        known = self.words.find_all({word.encode() for word in lower})
        listed = ", ".join(repr(word[:_LONGEST_LISTED]) for word in lower if word.encode() in known)
        hint = f"in lower case it has {listed}" if known else ""
        raise InputError(f"{str(self._path)!r} has no row for {named}{more}", hint)

    def token_bytes(self, token_id: int) -> bytes | None:
        return self.words[token_id] if 0 <= token_id < len(self.words) else None

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        return np.array([word.span() for word in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)

    def decode(self, ids: np.ndarray) -> bytes:
        return b" ".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())

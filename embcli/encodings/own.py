"""The encoding of a file of word vectors: its words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.words import in_data

_MOST_LISTED = 8  # words in a message
_LONGEST_LISTED = 30  # characters of one of them


class OwnWords(Encoding):
    """The words that a file has for its rows: one string of bytes, and their lengths; a text is split at spaces."""

    def __init__(self, path: Path, words: bytes, lengths: np.ndarray) -> None:
        self.name = in_data(str(path))
        self._path, self._words = path, words
        self._lengths, self._ends = lengths, np.cumsum(lengths)  # (V,) int64

    @property
    def vocabulary_size(self) -> int:
        return len(self._ends)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        words = text.split()
        ids = self._first_ids(words)
        unknown = [word for word in dict.fromkeys(words) if word.encode() not in ids]
        if not unknown:
            return np.array([ids[word.encode()] for word in words], np.uint32)
        more = f" and {len(unknown) - _MOST_LISTED:,} more" if len(unknown) > _MOST_LISTED else ""
        lower = dict.fromkeys(word.lower() for word in unknown[:_MOST_LISTED])
        known = self._first_ids(lower)
        listed = _listed(word for word in lower if word.encode() in known)
        hint = f"in lower case it has {listed}" if known else ""
        raise InputError(f"{str(self._path)!r} has no row for {_listed(unknown[:_MOST_LISTED])}{more}", hint)

    def _first_ids(self, words: Iterable[str]) -> dict[bytes, int]:
        """Return the first IDs of stored words; unknown words are left out."""
        wanted, letters = {word.encode() for word in words}, np.frombuffer(self._words + b"\0", np.uint8)
        # Few words share their length and their first and last letters with a given one; only these are compared.
        keys = self._lengths << 16 | letters[self._ends - self._lengths].astype(np.int64) << 8 | letters[self._ends - 1]
        chosen = np.isin(keys, [len(word) << 16 | word[0] << 8 | word[-1] for word in wanted])
        ids: dict[bytes, int] = {}
        for token_id in np.flatnonzero(chosen).tolist():
            if (word := self.token_bytes(token_id)) in wanted:
                ids.setdefault(word, token_id)
        return ids

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < len(self._ends):
            return None
        end = int(self._ends[token_id])
        return self._words[end - int(self._lengths[token_id]) : end]

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        return np.array([word.span() for word in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)

    def decode(self, ids: np.ndarray) -> bytes:
        return b" ".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())


def _listed(words: Iterable[str]) -> str:
    return ", ".join(repr(word[:_LONGEST_LISTED]) for word in words)

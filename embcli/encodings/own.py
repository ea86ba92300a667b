"""Words by ID, and the encoding of a file of word vectors: its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.safe import in_data

_MOST_LISTED = 8  # words in a message
_LONGEST_LISTED = 30  # characters of one of them
_MOST_SIMILAR = 2000  # words that a misspelled one is compared with; common ones come first


class Vocabulary:
    """Words by ID, as a file stores them: one string of bytes, and the start and end of each word in it."""

    def __init__(
        self,
        text: bytes,
        starts: np.ndarray,
        ends: np.ndarray,
        spelled: Callable[[bytes], bytes] = bytes,
        plain: np.ndarray | None = None,
    ) -> None:
        """Take (V,) int64 offsets into the text; `spelled` converts a stored word to its bytes.

        `plain`, (V,) bool, marks words that are stored as their bytes nevertheless.
        """
        self._text, self._starts, self._ends, self._spelled, self._plain = text, starts, ends, spelled, plain

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, token_id: int) -> bytes:
        word = self._text[int(self._starts[token_id]) : int(self._ends[token_id])]
        return word if self._plain is not None and self._plain[token_id] else self._spelled(word)

    def find_all(self, words: set[bytes]) -> dict[bytes, int]:
        """Return the first IDs of stored words; unknown words and the empty word are left out.

        >>> text = b"catdogcat"
        >>> Vocabulary(text, np.array([0, 3, 6]), np.array([3, 6, 9])).find_all({b"cat", b"cow"})
        {b'cat': 0}
        """
        letters = np.frombuffer(self._text, np.uint8)
        ids = np.flatnonzero(np.isin(self._ends - self._starts, [len(word) for word in words if word]))
        starts, ends = self._starts[ids], self._ends[ids]
        # Few words share their length and their first and last letters with a given one; only these are compared.
        wanted = [len(word) << 16 | word[0] << 8 | word[-1] for word in words if word]
        keys = (ends - starts) << 16 | letters[starts].astype(np.int64) << 8 | letters[ends - 1]
        first_ids: dict[bytes, int] = {}
        for token_id in ids[np.isin(keys, wanted)].tolist():
            word = self._text[int(self._starts[token_id]) : int(self._ends[token_id])]
            if word in words:
                first_ids.setdefault(word, token_id)
        return first_ids

    def similar(self, word: bytes, most: int) -> list[bytes]:
        """Return up to `most` words with the same first letter and a length that differs by at most 1.

        >>> Vocabulary(b"catdogcats", np.array([0, 3, 6]), np.array([3, 6, 10])).similar(b"cut", 9)
        [b'cat', b'cats']
        """
        letters = np.frombuffer(self._text, np.uint8)
        ids = np.flatnonzero(np.abs(self._ends - self._starts - len(word)) <= 1)
        ids = ids[self._ends[ids] > self._starts[ids]]
        return [self[token_id] for token_id in ids[letters[self._starts[ids]] == word[0]][:most].tolist()]


class OwnWords(Encoding):
    """The words that a file has for its rows; a text is split at spaces."""

    def __init__(self, path: Path, read: Callable[[], Vocabulary]) -> None:
        """Take the file's path, and a function that reads its words; it is called when the first one is needed."""
        self._path, self._read_words = path, read
        self.name = in_data(str(path))

    @cached_property
    def words(self) -> Vocabulary:
        return self._read_words()

    @property
    def vocabulary_size(self) -> int:
        return len(self.words)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the rows of the space-separated words of a text, (T,) uint32.

        Raises InputError for words that the file does not have.
        """
        words = text.split()
        ids = self.words.find_all({word.encode() for word in words})
        unknown = [word for word in dict.fromkeys(words) if word.encode() not in ids]
        if unknown:
            raise self._without_rows(unknown)
        return np.array([ids[word.encode()] for word in words], np.uint32)

    def _without_rows(self, unknown: list[str]) -> InputError:
        """Return the error that names unknown words, and those of them that are known in lower case.

        If there are none of these, it names known words that are spelled like the first one.
        """
        named = [repr(word[:_LONGEST_LISTED]) for word in unknown[:_MOST_LISTED]]
        more = f" and {len(unknown) - _MOST_LISTED:,} more" if len(unknown) > _MOST_LISTED else ""
        lower = dict.fromkeys(word.lower() for word in unknown[:_MOST_LISTED])
        ids = self.words.find_all({word.encode() for word in lower})
        known = [repr(word[:_LONGEST_LISTED]) for word in lower if word.encode() in ids]
        hint = f"in lower case it has {', '.join(known)}" if known else self._spelled_like(unknown[0])
        return InputError(f"{str(self._path)!r} has no row for {', '.join(named)}{more}", hint)

    def _spelled_like(self, word: str) -> str:
        """Return a question about the words most similar to this one; empty if none is similar."""
        from difflib import get_close_matches

        similar = [each.decode(errors="replace") for each in self.words.similar(word.encode(), _MOST_SIMILAR)]
        near = get_close_matches(word, similar, n=3, cutoff=0.7) if len(word) <= _LONGEST_LISTED else []
        return f"did you mean {' or '.join(map(repr, near))}?" if near else ""

    def token_bytes(self, token_id: int) -> bytes | None:
        return self.words[token_id] if 0 <= token_id < len(self.words) else None

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        return np.array([word.span() for word in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)

    def decode(self, ids: np.ndarray) -> bytes:
        return b" ".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())

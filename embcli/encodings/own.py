"""A file's own words as an encoding: what the rows of a GGUF or of word vectors stand for, without a tokenizer."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from embcli.errors import InputError
from embcli.safe import in_data

if TYPE_CHECKING:
    from embcli.files.tensors import Tensors, Vocabulary

_MOST_NAMED = 8  # words in a message
_LONGEST_NAMED = 30  # characters of one of them
_MOST_ALIKE = 2000  # words that a misspelled one is compared with; common ones come first


class OwnWords:
    """The words that a file has for its rows; word vectors split a text at blanks, other files tell no way to split.

    The words are read when the first of them is asked for.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self.name = in_data(str(tensors.path))

    @cached_property
    def _words(self) -> Vocabulary:
        words = self._tensors.vocabulary()
        if words is None:
            raise self._tensors.refused("it has no words of its own")
        return words

    @property
    def vocabulary_size(self) -> int:
        """V: how many words there are."""
        return len(self._words)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the rows of the words of a text, (T,) uint32; a word stands between blanks and is spelled as there.

        Raises InputError for words that the file does not have, and for a file that tells no way to split a text.
        """
        if not self._tensors.words_are_whole:
            reason = "has the tokens of its rows, but not how a text is split into them"
            raise InputError(f"{str(self._tensors.path)!r} {reason}: give --ids, or --encoding")
        words = text.split()
        found = self._words.find_all({word.encode() for word in words})
        unknown = [word for word in dict.fromkeys(words) if word.encode() not in found]
        if unknown:
            raise self._without_a_row(unknown)
        return np.array([found[word.encode()] for word in words], np.uint32)

    def _without_a_row(self, unknown: list[str]) -> InputError:
        """Return the error that names words without a row, and those of them that have one in small letters.

        Where there are none of these, it names words that are spelled like the first one.
        """
        named = [repr(word[:_LONGEST_NAMED]) for word in unknown[:_MOST_NAMED]]
        more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
        small = dict.fromkeys(word.lower() for word in unknown[:_MOST_NAMED])
        found = self._words.find_all({word.encode() for word in small})
        there = [repr(word[:_LONGEST_NAMED]) for word in small if word.encode() in found]
        hint = f"in small letters there {'is' if len(there) == 1 else 'are'} {', '.join(there)}" if there else ""
        hint = hint or self._spelled_like(unknown[0])
        return InputError(f"{str(self._tensors.path)!r} has no row for {', '.join(named)}{more}", hint)

    def _spelled_like(self, word: str) -> str:
        """Return the question whether one of the nearest words was meant; empty where none is near."""
        from difflib import get_close_matches

        alike = [each.decode(errors="replace") for each in self._words.alike(word.encode(), _MOST_ALIKE)]
        near = get_close_matches(word, alike, n=3, cutoff=0.7) if len(word) <= _LONGEST_NAMED else []
        return f"did you mean {' or '.join(map(repr, near))}?" if near else ""

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one word, or None for a row behind the last one."""
        return self._words[token_id] if 0 <= token_id < len(self._words) else None

    def entry(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, which are all that it is."""
        return self.token_bytes(token_id)

    def spelled(self, text: str, ids: np.ndarray) -> dict[int, bytes]:
        """Return nothing: a word has one spelling."""
        return {}

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        """Return from and to which character each word of a text stands, (T, 2) int64."""
        return np.array([word.span() for word in re.finditer(r"\S+", text)], np.int64).reshape(-1, 2)

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes that IDs, (T,), stand for together, all of them known: words with spaces between them."""
        between = b" " if self._tensors.words_are_whole else b""
        return between.join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())

    def merges(self) -> list[int]:
        """Return nothing: a file tells its words, and not how they came about."""
        return []

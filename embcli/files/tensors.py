"""What a checkpoint's file gives, of any format: tensors by name, matrices as layers, and perhaps words of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from embcli.layer import Layer

_FEW = 32  # words that are sooner looked for one by one than in a pass over all
_PIECE = 1 << 16  # words of a pass that are looked at, at a time


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; no number of it has been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    file: Path
    start: int  # where its bytes begin: equal for two names of one tensor

    def __str__(self) -> str:
        return f"{shortened(self.name)} ({', '.join(f'{size:,}' for size in self.shape)}) {self.dtype}"


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name; a new format hands over what it found and writes `matrix`."""

    format: str  # in words
    has_words = False  # of its own, which the rows of the token matrix stand for
    words_are_whole = False  # and not pieces of them: a text is split at blanks
    metadata: Mapping[str, Any]  # what else the file says of itself, as it says it

    def __init__(self, path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.metadata = metadata or {}
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the tensors lie in."""
        return (self.path,)

    def layer(self, name: str, transposed: bool = False) -> Layer:
        """Return a matrix as a layer of rows; `transposed` where the file holds (D, V).

        Raises InputError for a tensor that is no matrix, or whose numbers cannot be read.
        """
        tensor = self[name]
        if len(tensor.shape) != 2 or not all(tensor.shape):
            raise self.refused(f"{tensor} is no matrix; it takes two dimensions, (V, D), of at least 1")
        return self.matrix(tensor, transposed)

    @abstractmethod
    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of rows, or of its columns where it is to be transposed."""

    def vocabulary(self) -> Vocabulary | None:
        """Return the words that the file itself has for the rows, or None where it has none."""
        return None

    def refused(self, reason: str, hint: str = "") -> InputError:
        """Return the error that says why this file is of no use."""
        return refused(self.path, reason, hint)


class Vocabulary:
    """Words by ID, as they lie in a file: one run of bytes, and where each begins and ends."""

    def __init__(
        self,
        text: bytes,
        starts: np.ndarray,
        ends: np.ndarray,
        spelled: Callable[[bytes], bytes] = bytes,
        plain: np.ndarray | None = None,
    ) -> None:
        """Take (V,) int64 offsets into the text; `spelled` turns a word as it is stored into its bytes.

        `plain`, (V,) bool, says which words stand for themselves all the same.
        """
        self._text, self._starts, self._ends, self._spelled, self._plain = text, starts, ends, spelled, plain

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, token_id: int) -> bytes:
        """Return the bytes of a word."""
        word = self._text[int(self._starts[token_id]) : int(self._ends[token_id])]
        return word if self._plain is not None and self._plain[token_id] else self._spelled(word)

    def find(self, word: bytes) -> int | None:
        """Return the ID of a word as it is stored, the first where it stands twice; None where there is none.

        >>> text = b"catdogcat"
        >>> Vocabulary(text, np.array([0, 3, 6]), np.array([3, 6, 9])).find(b"cat")
        0
        """
        letters = np.frombuffer(self._text, np.uint8)
        found = np.flatnonzero(self._ends - self._starts == len(word))
        for place, letter in enumerate(word):
            found = found[letters[self._starts[found] + place] == letter]
        return int(found[0]) if len(found) else None

    def find_all(self, words: set[bytes]) -> dict[bytes, int]:
        """Return the IDs of words as they are stored; those that there are not are left out."""
        if len(words) <= _FEW:
            each = ((word, self.find(word)) for word in words)
            return {word: token_id for word, token_id in each if token_id is not None}
        found: dict[bytes, int] = {}
        for first in range(0, len(self), _PIECE):
            starts, ends = (part[first : first + _PIECE].tolist() for part in (self._starts, self._ends))
            for token_id, (start, end) in enumerate(zip(starts, ends, strict=True), first):
                word = self._text[start:end]
                if word in words:
                    found.setdefault(word, token_id)
        return found

    def alike(self, word: bytes, most: int) -> list[bytes]:
        """Return the first words that begin as this one does and are about as long, so many at most.

        >>> Vocabulary(b"catdogcats", np.array([0, 3, 6]), np.array([3, 6, 10])).alike(b"cut", 9)
        [b'cat', b'cats']
        """
        letters = np.frombuffer(self._text, np.uint8)
        long = np.flatnonzero(np.abs(self._ends - self._starts - len(word)) <= 1)
        long = long[self._ends[long] > self._starts[long]]
        return [self[row] for row in long[letters[self._starts[long]] == word[0]][:most].tolist()]


def refused(path: Path, reason: str, hint: str = "") -> InputError:
    """Return the error that names a file and says what is wrong with it."""
    return InputError(f"cannot read {str(path)!r}: {reason}", hint)


def shortened(name: str, longest: int = 80) -> str:
    r"""Return a name out of a file as it can stand in a message.

    >>> shortened("a\x1b[2J"), shortened("abc" * 9, 6)
    ("'a\\x1b[2J'", "'abcabc...'")
    """
    return repr(name if len(name) <= longest else f"{name[:longest]}...")

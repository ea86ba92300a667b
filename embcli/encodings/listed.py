"""Encodings of files that list their tokens: what a dialect reads from its file, and the encoding that this makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from embcli.binary import Binary
from embcli.encodings.vocabulary import Named, VocabularyEncoding
from embcli.safe import in_data

if TYPE_CHECKING:
    from pathlib import Path

    from embcli.encodings.algorithm import Algorithm

    Read = Callable[[Binary, str | None], "Listed"]  # of a file, and the name of a pre-tokenizer

LONGEST = 1 << 27  # bytes of such a file
MOST_IDS = 1 << 22  # no vocabulary has more


@dataclass(frozen=True)
class Listed:
    """The content of a file."""

    tokens: dict[int, bytes]  # by ID
    algorithm: Algorithm
    named: list[Named] = field(default_factory=list)
    merges: list[int] = field(default_factory=list)
    leads_with_space: bool = False


class ListedEncoding(VocabularyEncoding):
    """The encoding of a file, which is read when the first token or text is needed."""

    def __init__(self, path: Path, name: str, read: Read, pre: str | None) -> None:
        super().__init__(path)
        self.name = in_data(name)
        self._read, self._pre = read, pre

    @cached_property
    def _listed(self) -> Listed:
        return self._read(Binary(self.path), self._pre)

    @cached_property
    def vocabulary_size(self) -> int:
        """V: one more than the highest ID of a token."""
        return max(self._listed.tokens, default=-1) + 1

    @property
    def named(self) -> list[Named]:
        """The tokens that a text can contain by their names."""
        return self._listed.named

    @property
    def algorithm(self) -> Algorithm:
        """What splits a text between named tokens."""
        return self._listed.algorithm

    @property
    def leads_with_space(self) -> bool:  # type: ignore[override]
        """Whether a text gets a space before it."""
        return self._listed.leads_with_space

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the file has no such token."""
        return self._listed.tokens.get(token_id)

    def merges(self) -> list[int]:
        """Return the IDs of the merged tokens, in the order of the merges."""
        return self._listed.merges

"""How a piece becomes tokens: its steps, the merges of byte-pair encoding, and how vocabularies spell bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

Priority = Callable[
    [bytes, bytes], float
]  # of two neighbours, a rank or a score: the least is merged first, NEVER is not
FindId = Callable[[bytes], int | None]  # the ID of a token
ToBytes = Callable[[bytes], bytes]  # from a token of the vocabulary to its bytes
NEVER = float("inf")
SPACE = "\u2581"  # SentencePiece's spelling of a space
# GPT-2's encoder: printable characters of Latin-1 are their own bytes; the others are U+0100 and on, in order.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {byte: byte for byte in _PRINTABLE} | {
    0x100 + place: byte for place, byte in enumerate(_OTHERS)
}
_BYTES |= dict.fromkeys(_OTHERS, 0x100)  # in Latin-1 such a character stands for no byte


class DerivationStep(NamedTuple):
    """A token that comes of a piece: of two merged neighbours, or of the piece itself."""

    token: bytes
    token_id: int | None  # None if the vocabulary has no such token
    left: bytes | None = None  # the two neighbours that were merged
    right: bytes | None = None
    rank: int | None = None  # of the merge
    score: float | None = None  # of the token


@dataclass(frozen=True)
class Derivation:
    """The steps of a piece: its symbols, what each step makes of them, and the tokens at the end."""

    symbols: tuple[bytes, ...]  # bytes or characters, in order
    steps: tuple[DerivationStep, ...]
    ids: tuple[int, ...]
    merges: bool = (
        True  # whether steps are merges; otherwise they are the tokens from left to right
    )

    @classmethod
    def in_order(cls, steps: list[DerivationStep]) -> Derivation:
        """Return the tokens of a piece from left to right, which no merge made."""
        ids = tuple(step.token_id for step in steps if step.token_id is not None)
        return cls((b"".join(step.token for step in steps),), tuple(steps), ids, merges=False)

    @cached_property
    def rows(self) -> list[tuple[int, DerivationStep]]:
        """The steps with their numbers from 1; before them, as step 0, the tokens that no merge made."""
        made = {step.token_id for step in self.steps}
        untouched = [
            (0, DerivationStep(b"", token_id)) for token_id in self.ids if token_id not in made
        ]
        return [*untouched, *enumerate(self.steps, 1)]


def merge(parts: list[bytes], order: Priority) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """Return the parts of a piece, merged, and the merges: the left and the right part of each."""
    before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    trace = []
    heap = [
        (least, place, len(left) + len(right))
        for place, (left, right) in enumerate(pairwise(parts))
        if (least := order(left, right)) != NEVER
    ]
    heapify(heap)
    while heap:
        _, place, length = heappop(heap)
        other = after[place]
        if (
            not parts[place]
            or other == len(parts)
            or len(parts[place]) + len(parts[other]) != length
        ):
            continue  # one of the two was merged since
        trace.append((parts[place], parts[other]))
        parts[place] += parts[other]
        parts[other] = b""
        after[place] = after[other]
        if after[place] < len(parts):
            before[after[place]] = place
        for left, right in ((before[place], place), (place, after[place])):
            if (
                left >= 0
                and right < len(parts)
                and (least := order(parts[left], parts[right])) != NEVER
            ):
                heappush(heap, (least, left, len(parts[left]) + len(parts[right])))
    return [part for part in parts if part], trace


def derive(
    symbols: list[bytes],
    order: Priority,
    find: FindId,
    ids: Sequence[int] | None = None,
    spelled: ToBytes = bytes,
) -> Derivation:
    """Return the merges of a piece, whose `symbols` are as in the vocabulary; its `ids` are those of its last parts."""
    parts, trace = merge([*symbols], order)
    if ids is None:
        ids = [token_id for token_id in map(find, parts) if token_id is not None]
    steps = []
    for left, right in trace:
        key, token = order(left, right), left + right
        rank, score = (None, -key) if isinstance(key, float) else (key, None)
        steps.append(
            DerivationStep(spelled(token), find(token), spelled(left), spelled(right), rank, score)
        )
    return Derivation(tuple(map(spelled, symbols)), tuple(steps), tuple(ids))


def bytes_of(word: bytes) -> bytes | None:
    """Return the bytes of a word of a byte-level vocabulary; None if it has other characters."""
    try:
        return word.decode().translate(_BYTES).encode("latin-1")
    except UnicodeError:
        return None


def byte_level_to_bytes(word: bytes) -> bytes:
    return bytes_of(word) or word


def piece_to_bytes(word: bytes) -> bytes:
    """Return the bytes of a piece of SentencePiece: `▁` is a space, `<0x0A>` a byte."""
    byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", word)
    return bytes([int(byte[1], 16)]) if byte else word.replace(SPACE.encode(), b" ")


def words_between(tokens: Iterable[bytes]) -> re.Pattern[str]:
    """Return a pattern of words, each with the spaces before it, such that no token reaches over their edges.

    A space within a token is ignored: a merge is its two tokens with a space between them.
    """
    end = "\udcff"  # what a byte that UTF-8 never has is decoded to
    text = b"\xff".join(tokens).decode(errors="surrogateescape")
    inside = {match[1] for match in re.finditer(f"([^ {SPACE}{end}]) ?(?={SPACE})", text)}
    before = "".join(
        map(re.escape, sorted(inside))
    )  # characters that a space can follow within a token
    return re.compile(f".[^{SPACE}]*(?:(?<=[{SPACE}{before}]){SPACE}+[^{SPACE}]*)*", re.DOTALL)


def spans_of(text: bytes, lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the characters, (n, 2) int64, of tokens that spell a text; part of a character counts as all of it."""
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.array(lengths, np.int64)
    is_first = np.frombuffer(text, np.uint8) & 0xC0 != 0x80
    begun = np.cumsum(
        np.concatenate(([False], is_first, [True])), dtype=np.int32
    )  # characters before each byte
    return np.stack([begun[starts + 1] - 1, begun[ends]], axis=1).astype(np.int64)

"""How a piece of a text becomes tokens, step by step, and how vocabularies spell bytes.

Every dialect uses this module, and the merges page shows its derivations. A piece is a part of a
text that becomes tokens by itself; its symbols are the bytes or characters that are merged first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from embcli.wording import ByteToken

Pair = tuple[bytes, bytes]  # two neighbours
Ids = dict[bytes, int]  # token of the vocabulary -> ID
Span = tuple[int, int]  # the first character, and the one after the last
# The rank, an int, or the negative score, a float, of two neighbours. The lowest is merged first.
Priority = Callable[[bytes, bytes], float]
FindId = Callable[[bytes], int | None]  # token of the vocabulary -> ID
ToBytes = Callable[[bytes], bytes]  # token of the vocabulary -> the bytes that it stands for

NEVER = float("inf")  # the priority of neighbours that are not merged
SPACE = "\u2581"  # SentencePiece spells a space like this.


class DerivationStep(NamedTuple):
    """A token that two merged neighbours make, or one that no merge made."""

    token: bytes
    token_id: int | None  # None if the vocabulary has no such token
    left: bytes | None = None  # None if nothing was merged
    right: bytes | None = None
    rank: int | None = None
    score: float | None = None  # None for a merge by rank


@dataclass(frozen=True)
class Derivation:
    """How a piece becomes tokens: its symbols, the merges, and the tokens at the end."""

    symbols: tuple[bytes, ...]
    steps: tuple[DerivationStep, ...]
    ids: tuple[int, ...]


def derive(
    symbols: list[bytes],
    priority: Priority,
    find_id: FindId,
    ids: Sequence[int] | None = None,
    to_bytes: ToBytes = bytes,
) -> Derivation:
    """Return the merges of a piece.

    The symbols are spelled as in the vocabulary. The IDs at the end are those of the merged parts,
    unless `ids` gives others.
    """
    parts, merges = merge(symbols, priority)
    if ids is None:
        found = [find_id(part) for part in parts]
        ids = [token_id for token_id in found if token_id is not None]

    steps = []
    for left, right in merges:
        token = left + right
        value = priority(left, right)
        rank = None
        score = None
        if isinstance(value, float):
            score = -value
        else:
            rank = value
        step = DerivationStep(
            to_bytes(token), find_id(token), to_bytes(left), to_bytes(right), rank, score
        )
        steps.append(step)
    return Derivation(tuple(map(to_bytes, symbols)), tuple(steps), tuple(ids))


def merge(symbols: list[bytes], priority: Priority) -> tuple[list[bytes], list[Pair]]:
    """Return the parts that symbols are merged to, and the merges: the left and right part of each.

    Of equal priorities the leftmost is merged first. The time is O(n log n) for n symbols.
    """
    # A part stays at the place of its first symbol; the places of the others become empty.
    parts = [*symbols]
    count = len(parts)
    previous = list(range(-1, count - 1))
    following = list(range(1, count + 1))
    merges = []
    candidates: list[tuple[float, int, int]] = []  # priority, left place, length of the merged part

    def add_candidate(left: int, right: int) -> None:
        value = priority(parts[left], parts[right])
        if value != NEVER:
            length = len(parts[left]) + len(parts[right])
            heappush(candidates, (value, left, length))

    for right in range(1, count):
        add_candidate(right - 1, right)

    while candidates:
        _, left, length = heappop(candidates)
        right = following[left]
        if not parts[left] or right == count:
            continue
        if len(parts[left]) + len(parts[right]) != length:
            continue  # One of the two parts was merged since.

        merges.append((parts[left], parts[right]))
        parts[left] += parts[right]
        parts[right] = b""
        if previous[left] >= 0:
            add_candidate(previous[left], left)
        after = following[right]
        following[left] = after
        if after < count:
            previous[after] = left
            add_candidate(left, after)
    return [part for part in parts if part], merges


def unmade(words: Iterable[str], merges: Iterable[Sequence[str]]) -> list[str]:
    """Return the words that no merge makes of single characters and of earlier words."""
    made = set()
    for merge in merges:
        if all(len(part) < 2 or part in made for part in merge):
            made.add("".join(merge))
    return [word for word in words if len(word) > 1 and word not in made]


# GPT-2 spells each byte as a character: the printable ones of Latin-1 as they are, these others as
# U+0100 and on, in order.
_OTHERS = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
_BYTE_OF_CHARACTER = dict(enumerate(_OTHERS, 0x100))
# The other characters of Latin-1 spell no byte: they become one that Latin-1 cannot encode.
_BYTE_OF_CHARACTER |= dict.fromkeys(_OTHERS, 0x100)


def bytes_of(word: bytes) -> bytes | None:
    """Return the bytes of a word of a byte-level vocabulary; None if it has other characters."""
    try:
        return word.decode().translate(_BYTE_OF_CHARACTER).encode("latin-1")
    except UnicodeError:
        return None


def byte_level_to_bytes(word: bytes) -> bytes:
    return bytes_of(word) or word


def piece_to_bytes(word: bytes) -> bytes:
    """Return the bytes of a token of SentencePiece: `▁` is a space, `<0x0A>` a byte."""
    byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", word)
    if byte:
        return ByteToken([int(byte[1], 16)])
    return piece_to_text(word)


def piece_to_text(word: bytes) -> bytes:
    """Return the text of a token of SentencePiece whose vocabulary has no tokens of bytes."""
    return word.replace(SPACE.encode(), b" ")


def piece_to_word_piece(word: bytes) -> bytes:
    """Return a token of WordPiece, from llama.cpp's spelling: `▁x` is `x`, and `x` is `##x`.

    Its older converters left names in brackets as they are, such as `[unused0]`.
    """
    space = SPACE.encode()
    if word.startswith(space) or re.fullmatch(rb"\[.*\]", word):
        return word.removeprefix(space)
    return b"##" + word


def words_between(tokens: Iterable[bytes]) -> re.Pattern[str]:
    """Return a pattern that cuts a text into words, each with its leading spaces.

    No token crosses the edge of a word. A space within a token is ignored, so that a merge can be
    given as its two tokens with a space between them.
    """
    separator = "\udcff"  # the byte FF, invalid in UTF-8, is decoded to this
    joined = b"\xff".join(tokens).decode(errors="surrogateescape")
    before_space = re.findall(f"([^ {SPACE}{separator}]) ?(?={SPACE})", joined)
    characters = "".join(map(re.escape, sorted(set(before_space))))
    # A word goes on after a character that a token has before a space.
    return re.compile(f".[^{SPACE}]*(?:(?<=[{SPACE}{characters}]){SPACE}+[^{SPACE}]*)*", re.DOTALL)


def spans_of_spelling(tokens: Sequence[bytes], text: str) -> np.ndarray | None:
    """Return the spans of tokens that spell a text, (n, 2) int64; None if they do not."""
    data = text.encode()
    if b"".join(tokens) != data:
        return None
    return spans_of(data, [*map(len, tokens)])


def spans_of(text: bytes, lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the first and the end character of each token of a text, (n, 2) int64.

    The tokens spell the text, and `lengths` has the bytes of each. A token with a part of a
    character spans all of it.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.array(lengths, np.int64)
    begins_character = np.frombuffer(text, np.uint8) & 0xC0 != 0x80
    padded = np.concatenate(([False], begins_character, [True]))
    characters_before = np.cumsum(padded, dtype=np.int32)  # at each byte, and at the end
    spans = np.stack([characters_before[starts + 1] - 1, characters_before[ends]], axis=1)
    return spans.astype(np.int64)

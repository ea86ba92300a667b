"""Byte-pair encoding, merge by merge: neighbours of the least order first, until none has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from embcli.encodings.encoding import Derivation, Step

Order = Callable[[bytes, bytes], float]  # of two neighbours: the least is merged first, NEVER is not merged
NEVER = float("inf")


def merged(parts: list[bytes], order: Order, trace: list[tuple[bytes, bytes]] | None = None) -> list[bytes]:
    """Return the parts of a piece, merged; each merge, of a left and a right part, is added to `trace`.

    >>> merged([b"a", b"b", b"c"], lambda left, right: {b"bc": 0, b"ab": 1}.get(left + right, float("inf")))
    [b'a', b'bc']
    """
    before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    heap = [
        (least, place, len(left) + len(right))
        for place, (left, right) in enumerate(pairwise(parts))
        if (least := order(left, right)) != NEVER
    ]
    heapify(heap)
    while heap:
        _, place, length = heappop(heap)
        other = after[place]
        if not parts[place] or other == len(parts) or len(parts[place]) + len(parts[other]) != length:
            continue  # one of the two was merged since
        if trace is not None:
            trace.append((parts[place], parts[other]))
        parts[place] += parts[other]
        parts[other] = b""
        after[place] = after[other]
        if after[place] < len(parts):
            before[after[place]] = place
        for left, right in ((before[place], place), (place, after[place])):
            if left >= 0 and right < len(parts) and (least := order(parts[left], parts[right])) != NEVER:
                heappush(heap, (least, left, len(parts[left]) + len(parts[right])))
    return [part for part in parts if part]


def derived(
    symbols: Sequence[bytes],
    order: Order,
    find: Callable[[bytes], int | None],
    ids: Sequence[int] | None = None,
    spelled: Callable[[bytes], bytes] = bytes,
    has_scores: bool = False,
) -> Derivation:
    """Return the merges of a piece.

    `symbols` are spelled as in the vocabulary, `spelled` returns their bytes; `find` returns the ID of a token, and
    `ids` are those of the piece, by default those of its parts at the end.
    """
    trace: list[tuple[bytes, bytes]] = []
    parts = merged([*symbols], order, trace)
    if ids is None:
        ids = [token_id for token_id in map(find, parts) if token_id is not None]
    made: dict[tuple[bytes, bytes], Step] = {}  # a long run has few different ones
    for left, right in dict.fromkeys(trace):
        key = order(left, right)
        rank, score = (None, -key) if has_scores else (int(key), None)
        made[left, right] = Step(spelled(left + right), find(left + right), spelled(left), spelled(right), rank, score)
    return Derivation(tuple(map(spelled, symbols)), tuple(map(made.__getitem__, trace)), tuple(ids))

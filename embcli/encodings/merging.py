"""Merging of neighbours: byte-pair encoding by the ranks of merges, and SentencePiece's by the scores of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise

from embcli.encodings.algorithm import NO_TOKEN, Derivation, Parts, PieceByPiece, Step
from embcli.encodings.normalizing import Normalization, NormalizedWords, words_between
from embcli.encodings.spelling import SPACE, byte_of, from_characters, from_piece
from embcli.encodings.splitting import Splitting

Order = Callable[[bytes, bytes], float]  # of two neighbours: the least is merged first, NEVER is not merged

NEVER = float("inf")
_SHORT = 100  # parts up to which a search through all of them is faster than a heap


def merged(parts: list[bytes], order: Order, trace: list[tuple[bytes, bytes]] | None = None) -> list[bytes]:
    """Return the parts of a piece, merged as long as two neighbours can be, the first of the least order first.

    Each merge, of a left and a right part, is added to `trace`.

    >>> merged([b"a", b"b", b"c"], lambda left, right: {b"bc": 0, b"ab": 1}.get(left + right, float("inf")))
    [b'a', b'bc']
    """
    if len(parts) > _SHORT:
        return _merged_by_heap(parts, order, trace)
    orders = [order(left, right) for left, right in pairwise(parts)]
    while orders:
        least = min(orders)
        if least == NEVER:
            break
        place = orders.index(least)
        if trace is not None:
            trace.append((parts[place], parts[place + 1]))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        del orders[place]
        if place:
            orders[place - 1] = order(parts[place - 1], parts[place])
        if place < len(orders):
            orders[place] = order(parts[place], parts[place + 1])
    return parts


def _merged_by_heap(parts: list[bytes], order: Order, trace: list[tuple[bytes, bytes]] | None) -> list[bytes]:
    """Return the same for long pieces: in n log n steps."""
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


def ranks_of(merges: Sequence[bytes]) -> dict[bytes, int]:
    """Return the rank of each merge; the first of equal ones counts."""
    return dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))


def merged_ids(merges: Iterable[bytes], ids: Mapping[bytes, int]) -> list[int]:
    """Return the IDs of the tokens that merges, each `left right`, make, in their order."""
    known = (ids.get(merge.replace(b" ", b"", 1)) for merge in merges)
    return list(dict.fromkeys(token_id for token_id in known if token_id is not None))


def merges_by_score(words: Sequence[bytes], scores: Sequence[float], ids: Iterable[int]) -> list[int]:
    """Return those of these IDs whose tokens have several characters, the best score first."""
    long = [token_id for token_id in ids if len(words[token_id].decode(errors="replace")) > 1]
    return sorted(long, key=lambda token_id: -scores[token_id])


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
    steps = map(made.__getitem__, trace)
    return Derivation(tuple(map(spelled, symbols)), tuple(steps), tuple(ids))


class BytePairs(PieceByPiece):
    """Byte-pair encoding: the pieces of a pre-tokenizer, merged by rank."""

    def __init__(self, ids: Mapping[bytes, int], ranks: Mapping[bytes, int], splitting: Splitting) -> None:
        """Take the IDs of tokens and the ranks of merges, each `left right`, as the vocabulary spells them."""
        super().__init__()
        self._tokens, self._ranks, self._splitting = ids, ranks, splitting
        self._symbols = {byte: character.encode() for character, byte in byte_of().items()}

    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order, as the vocabulary spells them."""
        if not self._splitting.escapes_spaces:
            return self._splitting.pieces(text)
        lines = self._splitting.pieces(text.replace(" ", SPACE))
        return (piece for line in lines for piece in self._words.findall(line))

    def parts(self, piece: str) -> Parts:
        """Return the tokens of a piece in order."""
        of_bytes, symbols = self._splitting.is_of_bytes, self._symbols_of(piece)
        whole = self._whole(piece, symbols)
        if whole is not None:
            return [(whole, len(piece.encode()))]
        parts: Parts = []
        for symbol in merged(symbols, self._order):
            token_id = self._tokens.get(symbol)
            if token_id is not None:
                parts.append((token_id, len(symbol.decode()) if of_bytes else len(symbol)))
            elif of_bytes:
                parts += [(self._tokens.get(character.encode(), NO_TOKEN), 1) for character in symbol.decode()]
            else:
                parts += [(self._tokens.get(b"<0x%02X>" % byte, NO_TOKEN), 1) for byte in symbol]
        return parts

    def derivation(self, piece: str) -> Derivation:
        """Return the merges of a piece; a piece that is looked up as a whole has none."""
        symbols, ids = self._symbols_of(piece), self.ids_of(piece)
        spelled = from_characters if self._splitting.is_of_bytes else from_piece
        if self._whole(piece, symbols) is not None:
            return Derivation(tuple(map(spelled, symbols)), (), ids)
        return derived(symbols, self._order, self._tokens.get, ids, spelled)

    def _symbols_of(self, piece: str) -> list[bytes]:
        if self._splitting.is_of_bytes:
            return [self._symbols[byte] for byte in piece.encode()]
        return [each.encode() for each in piece]

    def _whole(self, piece: str, symbols: list[bytes]) -> int | None:
        """Return the ID of a piece that is looked up before anything is merged."""
        is_whole = self._splitting.ignores_merges or (self._splitting.keeps_lines and not piece.strip("\n"))
        return self._tokens.get(b"".join(symbols)) if is_whole else None

    def _order(self, left: bytes, right: bytes) -> float:
        if not self._splitting.is_of_bytes and left.find(b" ", 1) >= 0:
            return NEVER  # the vocabulary's own separator
        return self._ranks.get(b"%b %b" % (left, right), NEVER)

    @cached_property
    def _words(self) -> re.Pattern[str]:
        return words_between(self._ranks)


class Ranks(PieceByPiece):
    """Merges of bytes into tokens, the token of the least rank first."""

    def __init__(self, ranks: Mapping[bytes, int], splitting: Splitting, first: int = 0) -> None:
        """Take the rank of each token; its ID is `first` more."""
        super().__init__()
        self._ranks, self._splitting = ranks, splitting
        self._tokens = {token: rank + first for token, rank in ranks.items()} if first else ranks

    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order."""
        return self._splitting.pieces(text)

    def parts(self, piece: str) -> Parts:
        """Return the tokens of a piece in order."""
        data = piece.encode()
        tokens = [data] if data in self._ranks else merged([bytes([byte]) for byte in data], self._order)
        return [(self._tokens.get(token, NO_TOKEN), len(token)) for token in tokens]

    def derivation(self, piece: str) -> Derivation:
        """Return the merges of a piece; a piece that is a token is looked up, and has none if they lead elsewhere."""
        symbols = [bytes([byte]) for byte in piece.encode()]
        ids = self.ids_of(piece)
        derivation = derived(symbols, self._order, self._tokens.get, ids)
        leads_elsewhere = bool(derivation.steps) and len(ids) == 1 and derivation.steps[-1].token != piece.encode()
        return Derivation(derivation.symbols, (), derivation.ids) if leads_elsewhere else derivation

    def _order(self, left: bytes, right: bytes) -> float:
        return self._ranks.get(left + right, NEVER)


class Scores(NormalizedWords, PieceByPiece):
    """SentencePiece's byte-pair encoding: neighbours whose token has the best score are merged."""

    def __init__(
        self,
        ids: Mapping[bytes, int],
        scores: Mapping[bytes, float],
        unknown: int,
        normalization: Normalization,
        whole: Iterable[bytes] = (),
    ) -> None:
        """Take the IDs and scores of tokens, the unknown token, and tokens that stay `whole`, the longest first."""
        NormalizedWords.__init__(self, normalization, ids)
        PieceByPiece.__init__(self)
        self._tokens, self._unknown = ids, unknown
        self._orders = {token: -score for token, score in scores.items()}
        names = [name for token in whole if (name := token.decode(errors="replace"))]
        self._fixed = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None

    def parts(self, piece: str) -> Parts:
        """Return the tokens of a piece in order."""
        parts: Parts = []
        for place, run in enumerate(self._runs(piece)):
            symbols = [run.encode()] if place % 2 else merged([each.encode() for each in run], self._order)
            for symbol in symbols:
                token_id = self._tokens.get(symbol)
                if token_id is not None:
                    parts.append((token_id, len(symbol)))
                else:
                    self._spell(symbol, parts)
        return parts

    def derivation(self, piece: str) -> Derivation:
        """Return the merges of a piece, by the scores of their tokens."""
        symbols: list[bytes] = []
        steps: list[Step] = []
        for place, run in enumerate(self._runs(piece)):
            if place % 2:
                symbols.append(from_piece(run.encode()))
                continue
            derivation = derived([each.encode() for each in run], self._order, self._tokens.get, (), from_piece, True)
            symbols += derivation.symbols
            steps += derivation.steps
        return Derivation(tuple(symbols), tuple(steps), self.ids_of(piece))

    def _runs(self, piece: str) -> Sequence[str]:
        """Return the parts of a piece; every other one is a token that is never merged."""
        return self._fixed.split(piece) if self._fixed else (piece,)

    def _spell(self, symbol: bytes, parts: Parts) -> None:
        """Add the bytes of a symbol, or else the unknown token; several of these in a row are one."""
        of_bytes = [self._tokens.get(b"<0x%02X>" % byte, self._tokens.get(bytes([byte]))) for byte in symbol]
        known = [token_id for token_id in of_bytes if token_id is not None]
        if len(known) == len(symbol):
            parts += [(token_id, 1) for token_id in known]
        elif parts and parts[-1][0] == self._unknown:
            parts[-1] = self._unknown, parts[-1][1] + len(symbol)
        else:
            parts.append((self._unknown, len(symbol)))

    def _order(self, left: bytes, right: bytes) -> float:
        return self._orders.get(left + right, NEVER)

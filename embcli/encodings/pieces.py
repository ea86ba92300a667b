"""The rules by which llama.cpp splits a text: cut into pieces, each of which becomes tokens by itself.

BPE and SentencePiece's merges are our own, because they also tell their steps; the best tokens of a word are found by
`tokenizers`, and characters are replaced by `sentencepiece`. The pre-tokenizers that a GGUF file can name are in
data/splittings.json.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from embcli.encodings.encoding import load_facts
from embcli.encodings.merging import (
    NEVER,
    SPACE,
    Derivation,
    DerivationStep,
    derive,
    merge,
    piece_to_bytes,
    spans_of,
    words_between,
)

Ids = Mapping[bytes, int]  # by the spelling of a token
ScoredTokens = Mapping[str, tuple[int, float]]  # IDs and scores by the spelling of a token
Parts = list[tuple[int, int]]  # IDs, and how many bytes of the piece each of them spells
_NO_TOKEN = -1  # in place of an ID, for a part of a piece that the vocabulary cannot spell
_CACHED = 1 << 18  # pieces whose tokens are kept: most pieces of a text occur often


class Splitting(NamedTuple):
    """A pre-tokenizer: rules that split a text in turn, and what else its name says about an encoding.

    What a rule does not match is a piece, too. Merges of byte-pair encoding never cross the edges of pieces.
    """

    rules: list[str]
    flags: list[str]

    def pieces(self, text: str) -> Iterable[str]:
        pieces: Iterable[str] = _split(self.rules[0], text)
        for rule in self.rules[1:]:
            pieces = chain.from_iterable(map(_splitter(rule), pieces))
        return pieces


@cache
def _splitter(rule: str) -> Callable[[str], tuple[str, ...]]:
    return lru_cache(_CACHED)(lambda piece: tuple(_split(rule, piece)))


def _split(rule: str, text: str) -> Iterator[str]:
    place = 0
    for start, end in _edges(rule, text):
        if start > place:
            yield text[place:start]
        if end > start:
            yield text[start:end]
        place = end
    if place < len(text):
        yield text[place:]


def _edges(rule: str, text: str) -> Iterable[tuple[int, int]]:
    """Return the spans that a rule matches; for thousands, the places between groups of digits."""
    import regex

    if rule == "in thousands":
        ends = [match.end() for match in regex.finditer(r"(?r)\p{N}{1,3}", text)]
        return [(end, end) for end in reversed(ends)]
    if rule == "before thousands":
        starts = [match.start() for match in regex.finditer("(?r)[0-9]{3}", text)]
        return [(start, start) for start in reversed(starts)]
    return (match.span() for match in regex.finditer(rule, text, regex.VERSION1))


@cache
def splittings() -> dict[str, Splitting]:
    known: dict[str, Splitting] = {}
    for each in load_facts("splittings.json"):
        known |= dict.fromkeys(each["names"], Splitting(each["rules"], each["flags"]))
    return known


class PieceTokenizer(ABC):
    """What splits a text between named tokens; the tokens of a piece depend on nothing around it."""

    scores: Mapping[int, float] = {}  # by ID, if a model has them
    spelled: Callable[[bytes], bytes] = staticmethod(piece_to_bytes)

    def __init__(self) -> None:
        self._parts = lru_cache(_CACHED)(self.parts)

    @abstractmethod
    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text, as the vocabulary spells them."""

    @abstractmethod
    def parts(self, piece: str) -> Parts: ...

    def derivation(self, piece: str) -> Derivation:
        """Return how a piece becomes tokens: one after the other, unless merges make them."""
        data, place, steps = piece.encode(), 0, []
        for token_id, length in self.parts(piece):
            token = self.spelled(data[place : place + length])
            steps.append(DerivationStep(token, token_id, score=self.scores.get(token_id)))
            place += length
        return Derivation.in_order(steps)

    def origins(self, text: str) -> list[tuple[int, int]] | None:
        """Return the span in the text of each character of the pieces, joined; None if they are the text's own."""
        return None

    def ids(self, text: str) -> np.ndarray:
        ids = self._all_parts(self.pieces(text))[:, 0]
        return np.array(ids[ids != _NO_TOKEN], np.uint32)

    def derivations(self, text: str) -> Iterator[Derivation]:
        return map(self.derivation, self.pieces(text))

    def spans(self, text: str) -> np.ndarray:
        pieces = list(self.pieces(text))
        ids, lengths = self._all_parts(pieces).T
        spans: np.ndarray = spans_of("".join(pieces).encode(), lengths)[ids != _NO_TOKEN]
        origins = self.origins(text)
        if origins is None:
            return spans
        known = np.array([*origins, (len(text), len(text))], np.int64)
        first, end = known[spans[:, 0], 0], known[np.maximum(spans[:, 1] - 1, 0), 1]
        return np.stack([first, np.where(spans[:, 1] > spans[:, 0], end, first)], axis=1)

    def _all_parts(self, pieces: Iterable[str]) -> np.ndarray:
        parts = chain.from_iterable(map(self._parts, pieces))
        return np.fromiter(chain.from_iterable(parts), np.int64).reshape(-1, 2)


class BytePairs(PieceTokenizer):
    """Byte-pair encoding: the pieces of a pre-tokenizer, merged by rank.

    Unlike `tokenizers`, llama.cpp merges what has no token, too, and spells the result by its bytes in the end.
    """

    def __init__(
        self, ids: Ids, ranks: Mapping[tuple[bytes, bytes], int], splitting: Splitting
    ) -> None:
        super().__init__()
        self._tokens, self._splitting = ids, splitting
        self._order = lambda left, right: ranks.get((left, right), NEVER)
        self._of_bytes = "of_characters" not in splitting.flags
        self.spelled = bytes if self._of_bytes else piece_to_bytes
        self._words = (
            words_between(map(b" ".join, ranks)) if "escapes_spaces" in splitting.flags else None
        )

    def pieces(self, text: str) -> Iterable[str]:
        if self._words is None:
            return self._splitting.pieces(text)
        return chain.from_iterable(
            map(self._words.findall, self._splitting.pieces(text.replace(" ", SPACE)))
        )

    def parts(self, piece: str) -> Parts:
        symbols = (
            [piece.encode()]
            if self._is_whole(piece)
            else merge(self._symbols(piece), self._order)[0]
        )
        byte = b"%c" if self._of_bytes else b"<0x%02X>"
        parts: Parts = []
        for symbol in symbols:
            token_id = self._tokens.get(symbol)
            if token_id is not None:
                parts.append((token_id, len(symbol)))
            else:
                parts += [(self._tokens.get(byte % each, _NO_TOKEN), 1) for each in symbol]
        return parts

    def derivation(self, piece: str) -> Derivation:
        ids = [token_id for token_id, _ in self._parts(piece) if token_id != _NO_TOKEN]
        order = (lambda *_: NEVER) if self._is_whole(piece) else self._order
        return derive(self._symbols(piece), order, self._tokens.get, ids, self.spelled)

    def _symbols(self, piece: str) -> list[bytes]:
        return (
            [b"%c" % byte for byte in piece.encode()]
            if self._of_bytes
            else [each.encode() for each in piece]
        )

    def _is_whole(self, piece: str) -> bool:
        """Return whether a piece is looked up before anything is merged, and is a token."""
        flags = self._splitting.flags
        is_kept = "ignores_merges" in flags or ("keeps_lines" in flags and not piece.strip("\n"))
        return is_kept and piece.encode() in self._tokens


class ScoredPairs(PieceTokenizer):
    """SentencePiece's byte-pair encoding: neighbours whose token has the best score are merged."""

    def __init__(
        self,
        ids: Ids,
        scores: Mapping[bytes, float],
        unknown: int,
        adds_space: bool,
        whole: Iterable[bytes] = (),
    ) -> None:
        super().__init__()
        self._tokens, self._unknown, self._lead = ids, unknown, SPACE * adds_space
        self.words = words_between(ids)  # of a text that is spelled as the vocabulary does
        self._orders = {token: -score for token, score in scores.items()}
        self._fixed = {*whole} - {b""}  # a piece is also cut at each of these
        names = [
            re.escape(token.decode(errors="replace"))
            for token in sorted(self._fixed, key=len, reverse=True)
        ]
        self._symbol = re.compile("|".join([*names, "."]), re.DOTALL)

    def pieces(self, text: str) -> Iterable[str]:
        return self.words.findall(self._lead + text.replace(" ", SPACE)) if text else ()

    def origins(self, text: str) -> list[tuple[int, int]]:
        return [(0, 0)] * len(self._lead) + [(place, place + 1) for place in range(len(text))]

    def parts(self, piece: str) -> Parts:
        parts: Parts = []
        for symbol in merge(self._symbols(piece), self._order)[0]:
            token_id = self._tokens.get(symbol)
            of_bytes = [
                self._tokens.get(b"<0x%02X>" % byte, self._tokens.get(bytes([byte])))
                for byte in symbol
            ]
            if token_id is not None:
                parts.append((token_id, len(symbol)))
            elif None not in of_bytes:
                parts += [(byte, 1) for byte in of_bytes if byte is not None]
            elif parts and parts[-1][0] == self._unknown:
                parts[-1] = self._unknown, parts[-1][1] + len(symbol)
            else:
                parts.append((self._unknown, len(symbol)))
        return parts

    def derivation(self, piece: str) -> Derivation:
        ids = [token_id for token_id, _ in self._parts(piece)]
        return derive(self._symbols(piece), self._order, self._tokens.get, ids, piece_to_bytes)

    def _symbols(self, piece: str) -> list[bytes]:
        return list(map(str.encode, self._symbol.findall(piece)))

    def _order(self, left: bytes, right: bytes) -> float:
        is_fixed = left in self._fixed or right in self._fixed
        return NEVER if is_fixed else self._orders.get(left + right, NEVER)


# Ideographs, each of which is a word; as in BERT's own tokenizer, except for the first of the last but two ranges.
_IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff"
    "\U0002f800-\U0002fa1f]"
)


class WordPieces(PieceTokenizer):
    """WordPiece: words in lower case, without accents; each is the longest tokens that spell it.

    The vocabulary spells the first token of a word with U+2581 before it. What becomes of a character is llama.cpp's
    own: it keeps the first one of a decomposition, so that a Korean syllable is its first letter.
    """

    spelled = staticmethod(bytes)

    def __init__(self, ids: Ids, unknown: int, lowers: bool, strips_accents: bool) -> None:
        super().__init__()
        self._tokens = {word.decode(errors="ignore"): token_id for word, token_id in ids.items()}
        self._longest, self._unknown = max(map(len, self._tokens), default=0), unknown
        self._lowers, self._strips_accents = lowers, strips_accents
        self._spelled = cache(self._character)

    def pieces(self, text: str) -> Iterable[str]:
        return "".join(map(self._spelled, text)).split()

    def parts(self, piece: str) -> Parts:
        parts, place, word = [], 0, SPACE + piece
        while place < len(word):
            ends = range(min(place + self._longest, len(word)), place, -1)
            end = next((end for end in ends if word[place:end] in self._tokens), None)
            if end is None:
                return [(self._unknown, len(piece.encode()))]
            parts.append((self._tokens[word[place:end]], len(word[max(place, 1) : end].encode())))
            place = end
        return parts

    def origins(self, text: str) -> list[tuple[int, int]]:
        lengths = (len(self._spelled(character).replace(" ", "")) for character in text)
        return [(place, place + 1) for place, length in enumerate(lengths) for _ in range(length)]

    def _character(self, character: str) -> str:
        if self._strips_accents:
            character = unicodedata.normalize("NFD", character)[0]
        kind = unicodedata.category(character)
        if character.isspace() and not "\x1c" <= character <= "\x1f":
            return " "
        if (
            kind in ("Cc", "Cf", "Co", "Cs")
            or character in "\0\ufffd"
            or (self._strips_accents and kind[0] == "M")
        ):
            return ""
        is_word = (
            kind[0] == "P"
            or (character.isascii() and kind[0] == "S")
            or _IDEOGRAPH.match(character)
        )
        lower = character.lower()[0] if self._lowers else character
        return f" {lower} " if is_word else lower


class Unigrams(PieceTokenizer):
    """SentencePiece's unigram model with sums in float64: the tokens of a word that have the best sum of scores."""

    def __init__(
        self,
        tokens: ScoredTokens,
        unknown: int,
        worst: float,
        charsmap: bytes,
        joins: bool,
        leads: bool,
    ) -> None:
        """Either spaces are joined, and each word gets one; or the first word of a text that `leads` gets one more."""
        from sentencepiece import SentencePieceNormalizer
        from tokenizers import models

        super().__init__()
        scored = [(word, score) for word, (_, score) in tokens.items()]
        self._ids_of_tokens = [*(token_id for token_id, _ in tokens.values()), unknown]
        self._model = models.Unigram(
            [*scored, (" ", worst)], unk_id=len(scored), byte_fallback=False
        )
        self.scores = {unknown: float(np.float32(worst) - np.float32(10)), **dict(tokens.values())}
        # A model in protocol buffers that replaces characters, and neither adds, joins nor spells spaces.
        self._normalizer = SentencePieceNormalizer(
            model_proto=_field(3, _field(2, charsmap) + b"\x18\0\x20\0\x28\0")
        )
        self._joins, self._leads = joins, joins or leads
        # An unknown space joins the unknown characters on both of its sides.
        self._words = (
            words_between(map(str.encode, tokens))
            if SPACE in tokens
            else re.compile(".+", re.DOTALL)
        )

    def pieces(self, text: str) -> Iterable[str]:
        text.encode()  # the package's own error for a lone surrogate says nothing
        normal: str = self._normalizer.normalize(text)
        if self._joins:
            return self._words.findall("".join(SPACE + word for word in normal.split(" ") if word))
        begun = normal.lstrip(" ")
        lead = SPACE * (len(normal) - len(begun) + (self._leads and begun != ""))
        return self._words.findall(lead + begun.replace(" ", SPACE))

    def origins(self, text: str) -> list[tuple[int, int]]:
        normal, places = self._normalizer.normalize(text, with_offsets=True)
        before = (
            " " if self._leads else ""
        )  # what stands before a character, and gives it a space of its own
        origins = []
        starts = np.array(places[: len(normal)], np.int64)
        ends = np.append(starts, len(text))[np.searchsorted(starts, starts, "right")].tolist()
        for character, start, end in zip(normal, places, ends, strict=False):
            if character != " " and before == " ":
                origins.append((start, start))
            before = character if self._joins or character == before else ""
            if character != " " or not self._joins:
                origins.append((start, end))
        return origins

    def parts(self, piece: str) -> Parts:
        tokens = self._model.tokenize(piece)
        return [
            (self._ids_of_tokens[token.id], token.offsets[1] - token.offsets[0]) for token in tokens
        ]


def _field(number: int, value: bytes) -> bytes:
    length = bytes(len(value) >> 7 * at & 0x7F | (at < 4) << 7 for at in range(5))
    return bytes([number << 3 | 2]) + length + value

"""How llama.cpp makes tokens of a piece of a text: by merges, by the longest or by the best tokens.

The GGUF dialect uses all four, and SentencePiece's own files use ScoredPairs to show their merges.
Merges are our own code, because it also returns its steps; the package `tokenizers` finds the best
tokens of a word, and `sentencepiece` replaces characters.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from itertools import chain

import numpy as np

from embcli.encodings.merging import (
    NEVER,
    SPACE,
    Derivation,
    Ids,
    Pair,
    Span,
    ToBytes,
    derive,
    merge,
    piece_to_bytes,
    spans_of,
    words_between,
)
from embcli.encodings.splitting import CACHED_PIECES, Splitting

TokenLengths = list[tuple[int, int]]  # IDs, and how many bytes of the piece each of them spells

_NO_TOKEN = -1  # the ID of a part of a piece that the vocabulary cannot spell


class PieceTokenizer(ABC):
    """What makes tokens of a text between named tokens, piece by piece.

    The tokens of a piece depend on nothing around it, so they are kept for the next time.
    """

    @cached_property
    def _cached_tokens(self) -> Callable[[str], TokenLengths]:
        return lru_cache(CACHED_PIECES)(self.tokens)

    @abstractmethod
    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text, spelled as in the vocabulary."""

    @abstractmethod
    def tokens(self, piece: str) -> TokenLengths: ...

    def origins(self, text: str) -> list[Span] | None:
        """Return the span in the text of each character of the joined pieces.

        None means that the joined pieces are the text.
        """
        return None

    def ids(self, text: str) -> np.ndarray:
        ids = self._tokens_of(self.pieces(text))[:, 0]
        return np.array(ids[ids != _NO_TOKEN], np.uint32)

    def spans(self, text: str) -> np.ndarray:
        pieces = list(self.pieces(text))
        ids, lengths = self._tokens_of(pieces).T
        spans: np.ndarray = spans_of("".join(pieces).encode(), lengths)[ids != _NO_TOKEN]
        origins = self.origins(text)
        if origins is None:
            return spans

        # These spans are within the joined pieces. An empty token can begin after the last
        # character, so the end of the text is one more origin.
        origins_and_end = np.array([*origins, (len(text), len(text))], np.int64)
        first_characters = spans[:, 0]
        last_characters = np.maximum(spans[:, 1] - 1, 0)
        starts = origins_and_end[first_characters, 0]
        ends = origins_and_end[last_characters, 1]
        has_characters = spans[:, 1] > spans[:, 0]
        return np.stack([starts, np.where(has_characters, ends, starts)], axis=1)

    def _tokens_of(self, pieces: Iterable[str]) -> np.ndarray:
        """Return the IDs and lengths of the tokens of pieces, (n, 2) int64."""
        tokens = chain.from_iterable(map(self._cached_tokens, pieces))
        return np.fromiter(chain.from_iterable(tokens), np.int64).reshape(-1, 2)


class Pairs(PieceTokenizer):
    """A tokenizer that merges the parts of a piece, pair by pair.

    A part that is no token is spelled by the tokens of its bytes.
    """

    _ids: Ids
    _to_bytes: ToBytes
    _unknown: int | None = None  # for a part with bytes that are no tokens; None leaves these out

    @abstractmethod
    def _symbols(self, piece: str) -> list[bytes]: ...

    @abstractmethod
    def _priority(self, left: bytes, right: bytes) -> float: ...

    @abstractmethod
    def _byte_id(self, byte: int) -> int: ...

    def _parts(self, piece: str) -> list[bytes]:
        parts, _ = merge(self._symbols(piece), self._priority)
        return parts

    def tokens(self, piece: str) -> TokenLengths:
        tokens = []
        for part in self._parts(piece):
            token_id = self._ids.get(part)
            if token_id is not None:
                tokens.append((token_id, len(part)))
                continue
            byte_ids = [self._byte_id(byte) for byte in part]
            if self._unknown is None or _NO_TOKEN not in byte_ids:
                tokens += [(byte_id, 1) for byte_id in byte_ids]
            elif tokens and tokens[-1][0] == self._unknown:
                _, length = tokens[-1]
                tokens[-1] = (self._unknown, length + len(part))
            else:
                tokens.append((self._unknown, len(part)))
        return tokens

    def derivation(self, piece: str) -> Derivation:
        """Return the merges of a piece."""
        tokens = self._cached_tokens(piece)
        ids = [token_id for token_id, _ in tokens if token_id != _NO_TOKEN]
        return derive(self._symbols(piece), self._priority, self._ids.get, ids, self._to_bytes)

    def derivations(self, text: str) -> Iterator[Derivation]:
        return map(self.derivation, self.pieces(text))


class BytePairs(Pairs):
    """Byte-pair encoding: the pieces of a pre-tokenizer, merged by rank.

    Unlike `tokenizers`, llama.cpp also merges to parts that are no tokens.
    """

    def __init__(self, ids: Ids, ranks: Mapping[Pair, int], splitting: Splitting) -> None:
        self._ids = ids
        self._ranks = ranks
        self._splitting = splitting
        self._symbols_are_bytes = "of_characters" not in splitting.flags
        self._to_bytes = bytes if self._symbols_are_bytes else piece_to_bytes
        self._words = None
        if "escapes_spaces" in splitting.flags:
            self._words = words_between(map(b" ".join, ranks))

    def pieces(self, text: str) -> Iterable[str]:
        if self._words is None:
            return self._splitting.pieces(text)
        pieces = self._splitting.pieces(text.replace(" ", SPACE))
        return chain.from_iterable(map(self._words.findall, pieces))

    def _parts(self, piece: str) -> list[bytes]:
        return [piece.encode()] if self._is_whole(piece) else super()._parts(piece)

    def derivation(self, piece: str) -> Derivation:
        derivation = super().derivation(piece)
        return replace(derivation, steps=()) if self._is_whole(piece) else derivation

    def _is_whole(self, piece: str) -> bool:
        """Return whether a piece is looked up before anything is merged, and is a token."""
        flags = self._splitting.flags
        has_only_newlines = piece.strip("\n") == ""
        is_looked_up = "ignores_merges" in flags or ("keeps_lines" in flags and has_only_newlines)
        return is_looked_up and piece.encode() in self._ids

    def _symbols(self, piece: str) -> list[bytes]:
        if self._symbols_are_bytes:
            return [b"%c" % byte for byte in piece.encode()]
        return [character.encode() for character in piece]

    def _priority(self, left: bytes, right: bytes) -> float:
        return self._ranks.get((left, right), NEVER)

    def _byte_id(self, byte: int) -> int:
        name = b"%c" if self._symbols_are_bytes else b"<0x%02X>"
        return self._ids.get(name % byte, _NO_TOKEN)


class ScoredPairs(Pairs):
    """SentencePiece's byte-pair encoding: neighbours whose token has the best score are merged.

    A token of `whole` is a symbol from the beginning, and is merged with nothing.
    """

    def __init__(
        self,
        ids: Ids,
        scores: Mapping[bytes, float],
        unknown: int,
        adds_space: bool,
        whole: Iterable[bytes] = (),
    ) -> None:
        self._ids = ids
        self._to_bytes = piece_to_bytes
        self._unknown = unknown
        self._lead = SPACE if adds_space else ""
        self.words = words_between(ids)  # They cut a text that is spelled as in the vocabulary.
        self._priorities = {token: -score for token, score in scores.items()}
        self._whole = {*whole} - {b""}
        longest_first = sorted(self._whole, key=len, reverse=True)
        symbols = [re.escape(token.decode(errors="replace")) for token in longest_first]
        self._symbol = re.compile("|".join([*symbols, "."]), re.DOTALL)

    def pieces(self, text: str) -> Iterable[str]:
        if not text:
            return ()
        return self.words.findall(self._lead + text.replace(" ", SPACE))

    def origins(self, text: str) -> list[Span]:
        lead = [(0, 0)] * len(self._lead)
        return lead + [(place, place + 1) for place in range(len(text))]

    def _symbols(self, piece: str) -> list[bytes]:
        return [symbol.encode() for symbol in self._symbol.findall(piece)]

    def _priority(self, left: bytes, right: bytes) -> float:
        if left in self._whole or right in self._whole:
            return NEVER
        return self._priorities.get(left + right, NEVER)

    def _byte_id(self, byte: int) -> int:
        """Return the ID of the token of a byte, which is spelled as `<0x0A>` or as the byte."""
        byte_id = self._ids.get(b"<0x%02X>" % byte)
        if byte_id is None:
            byte_id = self._ids.get(b"%c" % byte, _NO_TOKEN)
        return byte_id


# Each ideograph is a word. The ranges are those of BERT's own tokenizer, except that the fifth one
# begins later.
_IDEOGRAPH = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf"
    "\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


class WordPieces(PieceTokenizer):
    """WordPiece: words in lower case, without accents; each is the longest tokens that spell it.

    The vocabulary spells the first token of a word with U+2581 before it. What becomes of a
    character is llama.cpp's own: it keeps the first one of a decomposition, so that a Korean
    syllable is its first letter.
    """

    def __init__(self, ids: Ids, unknown: int, lowers: bool, strips_accents: bool) -> None:
        self._ids = {word.decode(errors="ignore"): token_id for word, token_id in ids.items()}
        self._longest = max(map(len, self._ids), default=0)
        self._unknown = unknown
        self._lowers = lowers
        self._strips_accents = strips_accents
        self._cached_normal = cache(self._normal)

    def pieces(self, text: str) -> Iterable[str]:
        return "".join(map(self._cached_normal, text)).split()

    def tokens(self, piece: str) -> TokenLengths:
        word = SPACE + piece
        tokens = []
        start = 0
        while start < len(word):
            end = self._end_of_longest(word, start)
            if end is None:
                return [(self._unknown, len(piece.encode()))]
            part = word[max(start, 1) : end]  # The space is not a part of the piece.
            tokens.append((self._ids[word[start:end]], len(part.encode())))
            start = end
        return tokens

    def _end_of_longest(self, word: str, start: int) -> int | None:
        """Return where the longest token ends that a word has at a place; None if it has none."""
        last = min(start + self._longest, len(word))
        for end in range(last, start, -1):
            if word[start:end] in self._ids:
                return end
        return None

    def origins(self, text: str) -> list[Span]:
        origins = []
        for place, character in enumerate(text):
            letters = self._cached_normal(character).replace(" ", "")
            origins += [(place, place + 1)] * len(letters)
        return origins

    def _normal(self, character: str) -> str:
        """Return what a character becomes: it, a letter, nothing, a space, or a word of its own."""
        if self._strips_accents:
            character = unicodedata.normalize("NFD", character)[0]
        category = unicodedata.category(character)
        if character.isspace() and not "\x1c" <= character <= "\x1f":
            return " "
        if category in ("Cc", "Cf", "Co", "Cs") or character in "\0\ufffd":
            return ""
        if self._strips_accents and category.startswith("M"):
            return ""

        lower = character.lower()[0] if self._lowers else character
        is_ascii_symbol = category.startswith("S") and character.isascii()
        if category.startswith("P") or is_ascii_symbol or _IDEOGRAPH.match(character):
            return f" {lower} "
        return lower

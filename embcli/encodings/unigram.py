"""SentencePiece's unigram model: of all ways to spell a text with tokens, the one with the best sum of scores."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from embcli.encodings.algorithm import LONGEST_CACHED, MOST_CACHED, Derivation, Step
from embcli.encodings.normalizing import Normalization, NormalizedWords
from embcli.encodings.spelling import from_piece

_Path = list[tuple[int, int, float]]  # tokens, how many bytes each of them spells, and their scores

_PENALTY = np.float32(10)  # of an unknown character, below the worst token
_CLOSE = 1e-4  # the order of sums that differ by less can depend on the text before them


class Unigrams(NormalizedWords):
    """A text is normalised first."""

    def __init__(
        self,
        tokens: Mapping[str, tuple[int, float]],
        unknown: int,
        worst: float,
        normalization: Normalization,
        ids_of_bytes: Sequence[int] = (),
        sums: Literal["f", "d"] = "d",
    ) -> None:
        """Take the IDs and scores of tokens, the unknown token, and the worst score of a normal one.

        `ids_of_bytes` are the tokens of the 256 bytes, if unknown characters are spelled by them. `sums` of scores are
        float32 in SentencePiece and float64 in llama.cpp, which decides between paths that are nearly as good.
        """
        super().__init__(normalization, map(str.encode, tokens))
        self._sums = sums
        self._tokens, self._unknown = tokens, unknown
        self._ids_of_bytes = ids_of_bytes
        self._unknown_score = float(np.float32(worst) - _PENALTY)
        self._longest = max(map(len, tokens), default=0)
        self._cache: dict[str, _Path] = {}

    def derivations(self, text: str) -> Iterator[Derivation]:
        """Yield the best path through each word; words are one piece if an unknown token spans them."""
        tokens: _Path = []
        joined = b""
        for word, path in self._paths(text):
            if tokens and not tokens[-1][0] == path[0][0] == self._unknown:
                yield self._derivation(joined, tokens)
                tokens, joined = [], b""
            tokens += path
            joined += word.encode()
        if tokens:
            yield self._derivation(joined, tokens)

    def _derivation(self, text: bytes, tokens: _Path) -> Derivation:
        """Return the tokens of a piece; unknown characters that follow each other are one token."""
        steps: list[Step] = []
        place = 0
        for token_id, length, score in tokens:
            spelled = text[place : place + length]
            place += length
            if steps and steps[-1].token_id == token_id == self._unknown:
                steps[-1] = replace(steps[-1], token=steps[-1].token + from_piece(spelled))
            else:
                steps.append(Step(from_piece(spelled), token_id, score=score))
        return Derivation.in_order(from_piece(text), steps)

    def parts_of(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the tokens of a text and their bytes; unknown characters that follow each other are one token."""
        unknown = 0  # bytes of unknown characters before
        for _, path in self._paths(text):
            for token_id, length, _ in path:
                if token_id == self._unknown:
                    unknown += length
                    continue
                if unknown:
                    yield self._unknown, unknown
                    unknown = 0
                yield token_id, length
        if unknown:
            yield self._unknown, unknown

    def _paths(self, text: str) -> Iterator[tuple[str, _Path]]:
        """Yield the words of a text, and the best path through each."""
        total = array(self._sums, [0.0])  # of the scores before
        for word in self.pieces(text):
            path = self._cache.get(word) or self._best(word, total[0])
            yield word, path
            for _, _, score in path:
                total[0] += score

    def _best(self, word: str, total: float) -> _Path:
        """Return the best path through a word after scores of this sum; it is cached unless the sum matters."""
        sums, candidate = (array(self._sums, values) for values in ([total, *[-np.inf] * len(word)], [0.0]))
        steps = [(0, 0, 0.0)] * (len(word) + 1)
        is_clear = True
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + self._longest) + 1):
                token = self._tokens.get(word[start:end])
                if token is None and end > start + 1:
                    continue
                token_id, score = token or (self._unknown, self._unknown_score)
                candidate[0] = sums[start] + score
                gain = candidate[0] - sums[end]
                is_clear &= abs(gain) > _CLOSE
                if gain > 0:
                    sums[end], steps[end] = candidate[0], (start, token_id, score)
        path = self._followed(word, steps)
        if is_clear and len(word) <= LONGEST_CACHED and len(self._cache) < MOST_CACHED:
            self._cache[word] = path
        return path

    def _followed(self, word: str, steps: list[tuple[int, int, float]]) -> _Path:
        """Return the path that the steps back from the end of a word go, by the bytes of unknown characters."""
        path: _Path = []
        end = len(word)
        while end:
            start, token_id, score = steps[end]
            spelled = word[start:end].encode()
            if token_id == self._unknown and self._ids_of_bytes:
                path += [(self._ids_of_bytes[byte], 1, 0.0) for byte in spelled[:0:-1]]
                path.append((self._ids_of_bytes[spelled[0]], 1, score))
            else:
                path.append((token_id, len(spelled), score))
            end = start
        return path[::-1]

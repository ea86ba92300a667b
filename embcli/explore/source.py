"""What the screens read of a model: rows in blocks, tokens, norms, scores, and words of the vocabulary."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import numpy as np
from rich.text import Text
from textual.cache import LRUCache

from embcli.errors import InputError, Watch
from embcli.model import Model
from embcli.names import Metric
from embcli.selection import select
from embcli.tokens import shown, tokens_of
from embcli.verbs.statistics import NormOrder

TOP = 50  # neighbours, and words
_BLOCK_VALUES, _BLOCK_ROWS, _BLOCKS = 1 << 18, 64, 16
_SPACE = shown(b" ")
Spell = Callable[..., str]  # writes the command line of a verb, of more words, and perhaps of a `text`


class Source:
    """The token matrix of a model, its rows by ID or by norm, and the marked row."""

    def __init__(self, model: Model, spell: Spell) -> None:
        layers = model.source.open({"token": None})
        self.model, self.spell = model, spell
        self.layer, self.origin, self.encoding = layers["token"], layers.origin, model.source.encoding
        self.size, self.dim = self.layer.shape
        self.order: NormOrder | None = None
        self.marked: int | None = None
        self._blocks: LRUCache[tuple[int, bool], np.ndarray] = LRUCache(_BLOCKS)

    @property
    def name(self) -> str:
        return f"untrained, {self.origin.name}" if self.origin.is_seeded else self.origin.name

    def ids(self, start: int, stop: int, by_norm: bool) -> np.ndarray:
        return self.order.ids[start:stop] if by_norm and self.order else np.arange(start, min(stop, self.size))

    def rows(self, start: int, stop: int, by_norm: bool) -> np.ndarray:
        """Return the rows at these places, (n, D) float32, from blocks that are kept for a while."""
        step = min(max(_BLOCK_VALUES // self.dim, 1), _BLOCK_ROWS)
        blocks = []
        for number in range(start // step, -(-min(stop, self.size) // step)):
            block = self._blocks.get((number, by_norm))
            if block is None:
                ids = self.ids(number * step, (number + 1) * step, by_norm)
                block = self._blocks[number, by_norm] = np.array(self.layer.rows(ids))
            blocks.append(block[max(start - number * step, 0) : stop - number * step])
        return np.concatenate(blocks)

    def row(self, row: int) -> np.ndarray:
        return np.asarray(self.layer.rows(np.array([row]))[0])

    def token(self, row: int, cells: int | None = None) -> str:
        text = Text(self.tokens(np.array([row]))[0])
        text.truncate(text.cell_len if cells is None else cells, overflow="ellipsis")
        return text.plain

    def tokens(self, ids: np.ndarray) -> list[str]:
        return [shown(token) for token in tokens_of(ids, self.encoding)]

    def nearest(self, row: int, metric: Metric, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        model = Model(self.model.source, self.model.encoding, watch)
        found = model.neighbors(np.array([row]), metric=metric, top=TOP)
        return found.ids, found.scores

    def row_of(self, text: str) -> int:
        """Return the ID of a row that is named by its ID or its token; raises InputError if there is none."""
        if re.fullmatch("[0-9]+", text.strip()):
            return int(select(text.strip(), self.size, "row")[0])
        if self.model.encoding is None:
            raise InputError(f"{text[:40]!r} is not a row; give its ID")
        for token in (text, f" {text}"):
            ids = self.model.encoding.encode(token)
            if len(ids) == 1 and int(ids[0]) < self.size:
                return int(ids[0])
        raise InputError(f"{text[:40]!r} is not a row; give its ID or its token (/ finds rows)")


class Words:
    """The words of a vocabulary as pages show them, shortest first, as they are and in lower case, for fuzzy search."""

    def __init__(self, words: list[str]) -> None:
        bare = [word.lstrip(_SPACE) or word for word in words]
        self._ids = sorted((each for each, word in enumerate(bare) if word), key=lambda each: len(bare[each]))
        exact = [bare[each] for each in self._ids]
        self._spelled = {True: _Spelled(exact), False: _Spelled([word.lower() for word in exact])}

    def find(self, typed: str) -> np.ndarray:
        """Return the IDs of the words that match best, (n,) int64: case counts only if a capital is typed.

        First those that begin with it, then those that contain it, then those that have its letters in this order.
        """
        query = typed.encode(errors="replace").decode().replace("\n", " ").strip(f" {_SPACE}").replace(" ", _SPACE)
        if not query or not self._ids:
            return np.empty(0, np.int64)
        spelled, found = self._spelled[query != query.lower()], dict[int, None]()
        for part in (f"\n{query}", query):
            at = spelled.text.find(part)
            while at >= 0 and len(found) < TOP:
                place = bisect_right(spelled.starts, at) - 1
                found[place] = None
                at = spelled.text.find(part, spelled.starts[place + 1])
        letters = re.compile("".join(f"[^{letter}]*{letter}" for letter in map(re.escape, query)))
        sought = np.bitwise_or.reduce(_bits(query))
        for place in np.flatnonzero(spelled.letters & sought == sought).tolist():
            if len(found) == TOP:
                break
            if letters.match(spelled.words[place]):
                found[place] = None
        return np.array([self._ids[place] for place in found], np.int64)


class _Spelled:
    """Words in one text, each after a line feed."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.text = words, "".join(f"\n{word}" for word in words)
        self.starts = [*accumulate((len(word) + 1 for word in words), initial=0)]
        self.letters = np.bitwise_or.reduceat(_bits(self.text), self.starts[:-1]) if words else _bits("")


def _bits(text: str) -> np.ndarray:
    """Return a bit for each character, the same for equal ones: a word lacks a letter if it lacks its bit."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    return np.uint64(1) << (codes & 63).astype(np.uint64)

"""What the screens read of a model: rows in blocks, tokens, norms, scores, and words of the vocabulary."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import comb

import numpy as np
from rich.text import Text
from textual.cache import LRUCache
from textual.fuzzy import FuzzySearch

from embcli.errors import InputError
from embcli.model import Model
from embcli.names import Metric
from embcli.notes import Watch
from embcli.selection import select
from embcli.tokens import shown, tokens_of
from embcli.verbs.statistics import norm_order

TOP = 50  # neighbours, and words
_BLOCK_VALUES, _BLOCK_ROWS, _BLOCKS = 1 << 18, 64, 16
_CANDIDATES = 500  # words that a score is computed for
_MOST_ALIGNMENTS = 20_000  # of a query with a word: textual's matcher tries them all
_SPACE = shown(b" ")


Spell = Callable[..., str]  # writes the command line of a verb, of more words, and perhaps of a `text`


@dataclass(frozen=True, eq=False)
class Order:
    """All rows by norm, the largest first."""

    ids: np.ndarray  # (V,) int64
    norms: np.ndarray  # (V,) float64, by ID


class Source:
    """The token matrix of a model, its rows by ID or by norm, and the marked row."""

    def __init__(self, model: Model, spell: Spell) -> None:
        layers = model.source.open({"token": None})
        self.model, self.spell = model, spell
        self.layer, self.origin, self.encoding = layers["token"], layers.origin, model.source.encoding
        self.size, self.dim = self.layer.shape
        self.order: Order | None = None
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

    def by_norm(self, watch: Watch) -> Order:
        found = norm_order(self.layer, watch)
        return Order(found.ids, found.norms)

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

    def column_of(self, text: str) -> int:
        return int(select(text.strip(), self.dim, "column")[0])


class Words:
    """The words of a vocabulary as pages show them, for fuzzy search; takes a second for 262,144 of them.

    They are in one text, shortest first: a regular expression finds candidates in it, and textual's matcher ranks them.
    """

    def __init__(self, words: list[str]) -> None:
        bare = [word.lstrip(_SPACE) or word for word in words]
        self._ids = sorted((each for each, word in enumerate(bare) if word), key=lambda each: len(bare[each]))
        self._words = [bare[each] for each in self._ids]
        self._text = "".join(f"\n{word}" for word in self._words)
        self._starts = [*accumulate((len(word) + 1 for word in self._words), initial=0)]

    def find(self, typed: str) -> np.ndarray:
        """Return the IDs of the words that match best, (n,) int64: case counts only if a capital is typed."""
        query = typed.encode(errors="replace").decode().replace("\n", " ").strip(f" {_SPACE}").replace(" ", _SPACE)
        if not query:
            return np.empty(0, np.int64)
        has_capital = query != query.lower()
        letters = "\n" + "".join(f"[^{letter}\n]*{letter}" for letter in map(re.escape, query))
        found: dict[int, None] = {}
        for pattern in (f"\n{re.escape(query)}", re.escape(query), letters):
            for match in re.finditer(pattern, self._text, 0 if has_capital else re.IGNORECASE):
                found[bisect_right(self._starts, match.start()) - 1] = None
                if len(found) == _CANDIDATES:
                    break
        search = FuzzySearch(has_capital)

        def score(place: int) -> float:
            word = self._words[place]
            is_part = query.lower() in word.lower()
            cheap = is_part or comb(len(word), len(query)) <= _MOST_ALIGNMENTS
            return search.match(query, word)[0] if cheap else 0.0

        ranked = sorted(found, key=lambda place: (-score(place), place))
        return np.array([self._ids[place] for place in ranked[:TOP]], np.int64)

"""Whether the rows of added tokens were trained since they were added.

`resize_token_embeddings` of transformers makes new rows that are nearly the mean of all others, or
draws them; other programs copy a row, or take the mean of the pieces of a token's name. Training
moves each row in a direction of its own, so rows that still have such a trace were not trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.layer import Layer
from embcli.numerics.statistics import norms_of, squares
from embcli.verbs.audit.distribution import look_drawn
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.measure import Scan

Trace = Literal["mean", "noise", "near", "copy", "drawn", "length", "pieces", "ordinary", "unused"]
# Distances in units of the spread of the other rows. Training moves rows apart by more than the
# first, and the mean of the others by less than the second, unless all of them are trained long.
_APART = 1e-3
_FROM_MEAN = 1e-2
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-10}  # of a value, relative to it
_NOISE = 0.1  # the largest distance from the mean, in the same units, that noise can make
_LEAST_WITH_NOISE = 3  # rows
_LEAST_NOISE = 128  # values, below which all rows look drawn
_LEAST_DRAWN = 450  # values of rows as long as drawn ones, below which that can be chance
_LEAST_OTHERS = 20  # rows, whose mean says something
_DEVIATION = 0.02  # with which most models of transformers draw rows
_MOST_ALIKE = 0.05  # of the older tokens, which can be like rows without a token
_MOST_READ = 4000  # ordinary rows that are as long as the mean of all
_MOST_ADDED = 2000  # tokens whose rows are compared with one another


class AddedRows:
    """The rows of added tokens, from which those with a trace are taken away."""

    def __init__(self, layer: Layer, ids: np.ndarray, spread: float) -> None:
        self.ids = ids
        self.rows = layer.rows(ids).astype(np.float64)
        self._layer = layer
        self._spread = spread

    def taken(self, is_taken: np.ndarray) -> np.ndarray:
        """Return the IDs of some of the rows, which are then no longer among them."""
        ids: np.ndarray = self.ids[is_taken]
        self.ids = self.ids[~is_taken]
        self.rows = self.rows[~is_taken]
        return ids

    def _within(self, distances: np.ndarray, share: float) -> np.ndarray:
        """Return which distances are at most a share of the spread, or come from rounding."""
        rounding = _ROUNDING.get(self._layer.dtype, 0.0) * norms_of(self.rows)
        return distances <= share * self._spread + rounding

    def at(self, mean: np.ndarray) -> np.ndarray:
        """Return which rows are this mean, (D,)."""
        return self._within(np.sqrt(squares(self.rows - mean)), _FROM_MEAN)

    def around(self, mean: np.ndarray) -> np.ndarray:
        """Return which rows are this mean, (D,), plus numbers that look drawn with one deviation.

        Training moves rows by different lengths, and several in similar directions.
        """
        differences = self.rows - mean
        lengths = norms_of(differences)
        longest = lengths.min(initial=np.inf) * (1 + 2 * _error_of_length(len(mean)))
        is_near: np.ndarray = self._within(lengths, _NOISE) & (lengths <= longest)
        noise = differences[is_near]
        is_enough = len(noise) >= _LEAST_WITH_NOISE and noise.size >= _LEAST_NOISE
        if not is_enough or not look_drawn(noise[None])[0]:
            is_near[:] = False
        return is_near

    def near_another(self) -> np.ndarray:
        squared = squares(self.rows)
        between = squared[:, None] + squared - 2 * self.rows @ self.rows.T
        np.fill_diagonal(between, np.inf)
        nearest = np.sqrt(between.min(axis=1, initial=np.inf).clip(0))
        return self._within(nearest, _APART)

    def mean_of_pieces(self, names: Mapping[int, str], encoding: Encoding) -> np.ndarray:
        """Return which rows are the mean of the rows of the pieces of the token's name.

        There are none if the encoding cannot split a name.
        """
        distances = np.full(len(self.ids), np.inf)
        with suppress(InputError):
            for place, token_id in enumerate(self.ids.tolist()):
                pieces = encoding.encode(names[token_id])
                if len(pieces) > 1 and token_id not in pieces:
                    mean = self._layer.rows(pieces).mean(axis=0, dtype=np.float64)
                    distances[place] = np.linalg.norm(self.rows[place] - mean)
        return self._within(distances, _FROM_MEAN)


def untrained(
    layer: Layer,
    files: ModelFiles,
    names: Mapping[int, str],
    old: np.ndarray,
    scan: Scan,
    alike: np.ndarray,
) -> dict[Trace, np.ndarray]:
    """Return the IDs of tokens that look untrained, (n,) int64 each, by the trace of their rows.

    `names` has the added tokens by ID, `old` the IDs of the others, (n,) int64. Tokens of the trace
    "length" cannot be told from trained ones, and those of "pieces" are as some programs add them.
    "ordinary" tokens were not added, and have the mean. Tokens that are `alike` unused rows, (n,)
    int64, look untrained if all of them were added.
    """
    if files.encoding is None or len(old) < _LEAST_OTHERS:
        return {}
    others = scan.others.moments
    old_rows = np.count_nonzero(np.isfinite(np.delete(scan.norms, [*names])))
    mean = (others.mean * others.rows + scan.unused_sum) / max(old_rows, 1)
    norms = scan.norms[old]
    spread = min(others.spread, float(np.median(norms)))  # An outlier makes only the first large.

    ids = np.array(sorted(names), np.int64)
    added = AddedRows(layer, ids[scan.norms[ids] > 0][:_MOST_ADDED], spread)
    found: dict[Trace, np.ndarray] = {}
    copies = [row for group in scan.equal if not {*group} <= names.keys() for row in group]
    found["copy"] = added.taken(np.isin(added.ids, copies))
    found["mean"] = added.taken(added.at(mean))
    found["near"] = added.taken(added.near_another())
    found["noise"] = added.taken(added.around(mean))
    found["pieces"] = added.taken(added.mean_of_pieces(names, files.encoding))
    is_as_long = np.abs(norms - np.linalg.norm(mean)) < 0.02 * spread
    rows = AddedRows(layer, old[is_as_long][:_MOST_READ], spread)
    found["ordinary"] = np.setdiff1d(rows.ids[rows.at(mean)], files.rows_of("pad"))

    dim = layer.shape[1]
    length = (files.deviation or _DEVIATION) * math.sqrt(dim)
    # A token of one byte need not be in any text that a model was trained on.
    older = np.setdiff1d(old, files.byte_tokens)
    is_ordinary = np.count_nonzero(_have_length(scan.norms[older], length, dim)) > len(older) / 100
    has_length = _have_length(norms_of(added.rows), length, dim)
    drawn = added.rows[has_length]
    if not is_ordinary and drawn.size >= _LEAST_DRAWN and look_drawn(drawn[None])[0]:
        found["drawn"] = added.taken(has_length)
    # Rare words resemble them, too, in a tied matrix; of most tokens that would say nothing.
    if np.count_nonzero(np.isin(alike, older)) <= _MOST_ALIKE * len(older):
        found["unused"] = added.taken(np.isin(added.ids, alike))
    found["length"] = added.taken(_have_length(norms_of(added.rows), length, dim))
    return {trace: ids for trace, ids in found.items() if len(ids)}


def _have_length(norms: np.ndarray, length: float, dim: int) -> np.ndarray:
    """Return which norms, (n,), rows can have that are drawn with this length."""
    return np.abs(norms / length - 1) <= _error_of_length(dim)


def _error_of_length(dim: int) -> float:
    """Return three standard deviations of the length of a drawn row, relative to the length."""
    return 3 / math.sqrt(2 * dim)

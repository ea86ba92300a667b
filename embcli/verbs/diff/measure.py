"""The numbers of a diff: which rows stand for the same token, and how far apart these are.

Rows are compared in blocks, so that the matrices can be larger than memory.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import Watch
from embcli.layer import Layer
from embcli.numerics.statistics import squares
from embcli.tokens import matching_rows, tokens_of


class Matching(NamedTuple):
    """Which rows of BASE and TUNED stand for the same token."""

    pairs: tuple[np.ndarray, np.ndarray]  # (pairs,) int64 each: the rows of BASE, and of TUNED
    alone: tuple[np.ndarray, np.ndarray]  # (n,) int64 each: the rows without a partner
    by: Literal["id", "token"]


def match_rows(
    base_size: int,
    base_encoding: Encoding | None,
    tuned_size: int,
    tuned_encoding: Encoding | None,
) -> Matching:
    """Match rows by their IDs, or by the bytes of their tokens if the vocabularies differ.

    Matched by bytes, a row without a token has no partner.
    """
    base = np.arange(base_size)
    tuned = np.arange(tuned_size)
    common = min(base_size, tuned_size)
    by: Literal["id", "token"] = "id"
    base_rows = base[:common]
    tuned_rows = tuned[:common]
    if base_encoding and tuned_encoding and base_encoding.name != tuned_encoding.name:
        base_tokens = tokens_of(base, base_encoding)
        tuned_tokens = tokens_of(tuned, tuned_encoding)
        if base_tokens[:common] != tuned_tokens[:common]:
            by = "token"
            base_rows, tuned_rows = _rows_of_equal_tokens(base_tokens, tuned_tokens)
    base_alone = np.setdiff1d(base, base_rows)
    tuned_alone = np.setdiff1d(tuned, tuned_rows)
    return Matching((base_rows, tuned_rows), (base_alone, tuned_alone), by)


def _rows_of_equal_tokens(
    base_tokens: Sequence[bytes | None], tuned_tokens: Sequence[bytes | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of both whose tokens are equal, (pairs,) int64 each.

    A token that occurs several times is matched in order.
    """
    tuned_rows_by_token: dict[bytes | None, deque[int]] = defaultdict(deque)
    for row, token in enumerate(tuned_tokens):
        tuned_rows_by_token[token].append(row)
    base_rows = []
    tuned_rows = []
    for row, token in enumerate(base_tokens):
        if token and tuned_rows_by_token[token]:
            base_rows.append(row)
            tuned_rows.append(tuned_rows_by_token[token].popleft())
    return np.array(base_rows, np.int64), np.array(tuned_rows, np.int64)


def chosen_among(
    matching: Matching,
    sizes: tuple[int, int],
    encodings: tuple[Encoding | None, Encoding | None],
    ids: np.ndarray | None,
    match: str | None,
) -> Matching:
    """Return a matching without the rows that were not chosen, by their IDs or their tokens.

    A pair is chosen by its row of BASE, or by its token in TUNED if only TUNED has tokens. None
    chooses all rows.
    """
    known = 0 if encodings[0] is not None else 1
    base_rows, tuned_rows = matching.pairs
    base_alone, tuned_alone = matching.alone
    if ids is not None:
        has_id = np.isin(base_rows, ids)
        base_rows = base_rows[has_id]
        tuned_rows = tuned_rows[has_id]
        base_alone = np.intersect1d(base_alone, ids)
        tuned_alone = np.intersect1d(tuned_alone, ids)
    if match is not None:
        matches = matching_rows(np.arange(sizes[known]), match, encodings[known])
        has_match = np.isin((base_rows, tuned_rows)[known], matches)
        base_rows = base_rows[has_match]
        tuned_rows = tuned_rows[has_match]
        base_alone = np.intersect1d(base_alone, _matching_or_none(match, sizes[0], encodings[0]))
        tuned_alone = np.intersect1d(tuned_alone, _matching_or_none(match, sizes[1], encodings[1]))
    return Matching((base_rows, tuned_rows), (base_alone, tuned_alone), matching.by)


def _matching_or_none(match: str, size: int, encoding: Encoding | None) -> np.ndarray:
    """Return the rows whose tokens match, (n,) int64; none without tokens."""
    if encoding is None:
        return np.arange(0)
    return matching_rows(np.arange(size), match, encoding)


class Comparison(NamedTuple):
    """Which pairs of rows are equal, and how far apart the others are, as a Diff has it."""

    equal: np.ndarray  # (pairs,) bool
    cosine_distances: np.ndarray  # (pairs,) float64
    distances: np.ndarray  # (pairs,) float64


def compare_rows(
    base: Layer, tuned: Layer, matching: Matching, atol: float, watch: Watch
) -> Comparison:
    """Compare pairs of rows; those whose values all differ by at most `atol` count as equal."""
    all_base_rows, all_tuned_rows = matching.pairs
    base.load()
    tuned.load()
    count = len(all_base_rows)
    equal = np.ones(count, bool)
    cosine_distances = np.zeros(count)
    distances = np.zeros(count)
    values_per_block = 1 << 20
    step = max(values_per_block // base.shape[1], 1)
    blocks = np.split(np.arange(count), range(step, count, step))

    for pairs in watch(blocks, count, len):
        base_stored = base.stored(all_base_rows[pairs])
        tuned_stored = tuned.stored(all_tuned_rows[pairs])
        if base.dtype == tuned.dtype:
            # Most rows have equal bytes, and need not become numbers.
            differs = (base_stored.view(np.uint8) != tuned_stored.view(np.uint8)).any(axis=1)
            pairs = pairs[differs]
            base_stored = base_stored[differs]
            tuned_stored = tuned_stored[differs]

        base_rows = _in_float64(base, base_stored)
        tuned_rows = _in_float64(tuned, tuned_stored)
        if _has_wide_integers(base) and _has_wide_integers(tuned):
            is_changed = (base_stored != tuned_stored).any(axis=1)
        else:
            are_nan = np.isnan(base_rows) & np.isnan(tuned_rows)
            is_changed = ((base_rows != tuned_rows) & ~are_nan).any(axis=1)

        changed = pairs[is_changed]
        if atol == 0:
            equal[changed] = False
        else:
            equal[changed] = _are_within(atol, base_rows[is_changed], tuned_rows[is_changed])
        base_changed = base_rows[is_changed]
        tuned_changed = tuned_rows[is_changed]
        cosine_distances[changed] = _cosine_distances(base_changed, tuned_changed)
        distances[changed] = _l2_distances(base_changed, tuned_changed)
    return Comparison(equal, cosine_distances, distances)


@np.errstate(invalid="ignore")  # the difference of two infinities is NaN
def _are_within(atol: float, base: np.ndarray, tuned: np.ndarray) -> np.ndarray:
    """Return whether no value of a pair of rows differs by more, (n, D) float64 each -> (n,)."""
    are_nan = np.isnan(base) & np.isnan(tuned)
    are_near = (np.abs(tuned - base) <= atol) | (base == tuned) | are_nan
    are_within: np.ndarray = are_near.all(axis=1)
    return are_within


def _in_float64(layer: Layer, stored: np.ndarray) -> np.ndarray:
    """Return rows as they are stored, (n, width), in float64, (n, D)."""
    from embcli.files.numbers import held_by_float32

    rows = layer.widened(stored) if held_by_float32(layer.dtype) else stored
    return rows.astype(np.float64)


def _has_wide_integers(layer: Layer) -> bool:
    """Return whether rows are integers that are compared as stored: float64 does not hold all."""
    return layer.dtype in ("int64", "uint64", "int32", "uint32")


@np.errstate(all="ignore")  # rows that are not finite and zero rows have no cosine
def _cosine_distances(base: np.ndarray, tuned: np.ndarray) -> np.ndarray:
    """Return 1 - cos of pairs of rows, (n, D) float64 each -> (n,) float64.

    It is half of the squared distance between the rows scaled to length 1, which does not cancel.
    """
    base_units = base / np.sqrt(squares(base))[:, None]
    tuned_units = tuned / np.sqrt(squares(tuned))[:, None]
    cosine_distances = squares(tuned_units - base_units) / 2
    return np.where(np.isfinite(cosine_distances), cosine_distances, np.nan)


@np.errstate(all="ignore")  # rows that are not finite have no distance
def _l2_distances(base: np.ndarray, tuned: np.ndarray) -> np.ndarray:
    """Return the L2 distances of pairs of rows, (n, D) float64 each -> (n,) float64."""
    distances = np.sqrt(squares(tuned - base))
    return np.where(np.isfinite(distances), distances, np.nan)

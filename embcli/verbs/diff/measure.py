"""The numbers of a diff: which rows stand for the same token, and how far apart these are.

Rows are compared in blocks, so that the matrices can be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, Watch
from embcli.files.gguf import block_steps
from embcli.files.numbers import held_by_float32, rounded_to
from embcli.layer import Layer
from embcli.numerics.statistics import squares
from embcli.tokens import tokens_of

Tokens = Iterable[bytes | None]
Row = int | None
Encodings = tuple[Encoding | None, Encoding | None]  # of BASE, and of TUNED; None if unknown


class Matching(NamedTuple):
    """Which rows of BASE and TUNED stand for the same token."""

    pairs: tuple[np.ndarray, np.ndarray]  # (pairs,) int64 each: the rows of BASE, and of TUNED
    alone: tuple[np.ndarray, np.ndarray]  # (n,) int64 each: the rows without a partner
    by: Literal["id", "token"]


def match_rows(sizes: tuple[int, int], encodings: Encodings) -> Matching:
    """Match rows by their IDs, or by the bytes of their tokens if the vocabularies differ.

    Matched by bytes, a row without a token has no partner.
    """
    base, tuned = map(np.arange, sizes)
    base_encoding, tuned_encoding = encodings
    common = min(sizes)
    by: Literal["id", "token"] = "id"
    base_rows = base[:common]
    tuned_rows = tuned[:common]
    if base_encoding and tuned_encoding and base_encoding.name != tuned_encoding.name:
        base_tokens = tokens_of(base, base_encoding)
        tuned_tokens = tokens_of(tuned, tuned_encoding)
        if base_tokens[:common] != tuned_tokens[:common]:
            by = "token"
            triples = paired_by_token(base_tokens, tuned_tokens)
            pairs = [pair for _, *pair in triples if None not in pair]
            base_rows, tuned_rows = np.array(sorted(pairs), np.int64).reshape(-1, 2).T
    base_alone = np.setdiff1d(base, base_rows)
    tuned_alone = np.setdiff1d(tuned, tuned_rows)
    return Matching((base_rows, tuned_rows), (base_alone, tuned_alone), by)


def paired_by_token(base: Tokens, tuned: Tokens) -> Iterator[tuple[bytes, Row, Row]]:
    """Yield each token with its row in both, or None; those of a token are paired in order.

    A few tokens have several rows, such as a byte and a letter.
    """
    rows: dict[bytes, tuple[list[int], list[int]]] = {}
    for side, tokens in enumerate((base, tuned)):
        for row, token in enumerate(tokens):
            if token is not None:
                rows.setdefault(bytes(token), ([], []))[side].append(row)
    for token, both in rows.items():
        for base_row, tuned_row in zip_longest(*both):
            yield token, base_row, tuned_row


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """Which pairs of rows are equal, and how far apart the others are."""

    equal: np.ndarray  # (pairs,) bool
    cosine_distances: np.ndarray  # (pairs,) float64
    distances: np.ndarray  # (pairs,) float64, L2
    largest_differences: np.ndarray  # (pairs,) float64: the largest |difference| of two values
    only_rounded: bool  # whether rounding to the dtypes of both makes all pairs equal


@np.errstate(all="ignore")  # rows that are not finite have no distance, zero rows no cosine
def compare_rows(
    base: Layer,
    tuned: Layer,
    matching: Matching,
    atol: float,
    rounding: Layer | None,
    watch: Watch,
) -> ComparedRows:
    """Compare pairs of rows; those whose values all differ by at most `atol` count as equal.

    `rounding` is one of the layers, whose numbers were made by rounding those of the other: rows
    count as equal if they may have been.
    """
    all_base_rows, all_tuned_rows = matching.pairs
    base.load()
    tuned.load()
    count = len(all_base_rows)
    equal = np.ones(count, bool)
    measures = np.zeros((3, count))
    cosine_distances, distances, largest_differences = measures
    only_rounded = base.dtype != tuned.dtype
    values_per_block = 1 << 20
    step = max(values_per_block // base.shape[1], 1)
    blocks = np.split(np.arange(count), range(step, count, step))

    for pairs in watch(blocks, count, len):
        base_stored = base.stored(all_base_rows[pairs])
        tuned_stored = tuned.stored(all_tuned_rows[pairs])
        if base.dtype == tuned.dtype != "decimal":
            # Most rows have equal bytes, and need not become numbers. Decimals lose digits there.
            differs = (base_stored.view(np.uint8) != tuned_stored.view(np.uint8)).any(axis=1)
            pairs = pairs[differs]
            base_stored = base_stored[differs]
            tuned_stored = tuned_stored[differs]

        base_rows = _in_float64(base, base_stored, tuned, rounding)
        tuned_rows = _in_float64(tuned, tuned_stored, base, rounding)
        are_equal = (base_rows == tuned_rows) | (np.isnan(base_rows) & np.isnan(tuned_rows))
        if only_rounded:
            base_rounded = rounded_to(tuned.dtype, base_rows.astype(np.float32))
            tuned_rounded = rounded_to(base.dtype, tuned_rows.astype(np.float32))
            only_rounded = np.array_equal(base_rounded, tuned_rounded, equal_nan=True)
        is_changed = ~are_equal.all(axis=1)
        differences = np.where(are_equal, 0.0, np.abs(tuned_rows - base_rows))
        are_equal |= differences <= atol
        if rounding is not None:
            rows = base_rows if rounding is base else tuned_rows
            are_equal |= differences <= block_steps(rounding.dtype, rows)
        equal[pairs] = are_equal.all(axis=1)

        changed = pairs[is_changed]
        both = np.stack([base_rows[is_changed], tuned_rows[is_changed]])
        # Squares of very large and very small values are not numbers of float64: these are scaled.
        _, exponents = np.frexp(np.abs(both).max(axis=(0, 2), initial=0))
        base_scaled, tuned_scaled = np.ldexp(both, -exponents[:, None])
        cosine_distances[changed] = _cosine_distances(base_scaled, tuned_scaled)
        distances[changed] = np.ldexp(np.sqrt(squares(tuned_scaled - base_scaled)), exponents)
        largest_differences[pairs] = differences.max(axis=1)

    measures[~np.isfinite(measures)] = np.nan
    return ComparedRows(equal, cosine_distances, distances, largest_differences, only_rounded)


_INEXACT = ("int64", "uint64", "decimal")  # float64 does not hold all of their numbers


def _in_float64(
    layer: Layer, stored: np.ndarray, other: Layer, rounding: Layer | None
) -> np.ndarray:
    """Return rows as they are stored, (n, width), in float64, (n, D).

    Decimals are rounded to float32, unless the other layer has numbers that float32 does not hold,
    and all numbers are rounded to the dtype of `rounding`, if that is the other layer. Raises
    InputError for integers that float64 may not hold.
    """
    compared = other.dtype if layer.dtype == "decimal" else layer.dtype
    rows = layer.widened(stored) if held_by_float32(compared) else stored
    if rounding is other:
        rows = rounded_to(other.dtype, rows.astype(np.float32))
    rows = rows.astype(np.float64)
    if compared in _INEXACT and (np.abs(rows) >= 2.0**53).any():
        raise InputError("integers from 2**53 on are not compared: float64 does not hold them all")
    return rows


def _cosine_distances(base: np.ndarray, tuned: np.ndarray) -> np.ndarray:
    """Return 1 - cos of pairs of rows, (n, D) float64 each -> (n,) float64.

    It is half of the squared distance between the rows scaled to length 1, which does not cancel.
    """
    base_units = base / np.sqrt(squares(base))[:, None]
    tuned_units = tuned / np.sqrt(squares(tuned))[:, None]
    return squares(tuned_units - base_units) / 2

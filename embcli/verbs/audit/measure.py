"""The numbers of an audit: which rows are unused, and what two passes over the matrix find.

The first pass finds norms, equal rows and the covariance, the second how similar each row is to the
unused ones. Both read the layer in blocks, so that it can be larger than memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli import errors
from embcli.encodings import Encoding
from embcli.errors import InputError, Watch
from embcli.layer import Layer
from embcli.names import Unused
from embcli.numerics.statistics import Covariance, dots, norms_of, numbered_blocks, squares
from embcli.wording import counted

# RFC 3629, section 3, lists the bytes that are invalid in UTF-8.
_INVALID_BYTE = re.compile(rb"[\xc0\xc1\xf5-\xff]")
# Llama 3, o200k_harmony, BERT, Gemma, Qwen, Mistral, Phi-3, DeepSeek and fairseq have these names.
_RESERVED_NAME = re.compile(
    r"[<\[]\W?"
    r"(?:reserved(?:[_▁ ]special[_▁ ]token)?|unused|extra|dummy|SPECIAL"
    r"|place(?:[_▁ ]?holder)?(?:[_▁ ]no)?)"
    r"[_▁ ]?[0-9]+\W?[>\]]|madeupword[0-9]+"
)


def unused(encoding: Encoding, size: int) -> dict[int, Unused]:
    """Return the IDs below `size` that no text can produce, in order, and why.

    `padding` follows the last token, a `gap` is an ID without a token before it, a `byte` token has
    a byte that is invalid in UTF-8, and a `reserved` token has a name that says so.
    """
    known = min(encoding.vocabulary_size, size)
    reasons: dict[int, Unused] = {}
    for token_id in range(known):
        token = encoding.token_bytes(token_id)
        if token is None:
            reasons[token_id] = "gap"
        elif _INVALID_BYTE.search(token):
            reasons[token_id] = "byte"
        elif _RESERVED_NAME.fullmatch(token.decode("utf-8", "replace")):
            reasons[token_id] = "reserved"
    return reasons | dict.fromkeys(range(known, size), "padding")


@dataclass(frozen=True, eq=False)
class RowKinds:
    """Which of the rows of a matrix are unused, and which stand for a token."""

    size: int
    reasons: dict[int, Unused]  # ID -> why no text can produce it

    @cached_property
    def unused(self) -> np.ndarray:  # (V,) bool
        return self._mask(list(self.reasons))

    @cached_property
    def token(self) -> np.ndarray:  # (V,) bool
        rows = [row for row, reason in self.reasons.items() if reason in ("padding", "gap")]
        return ~self._mask(rows)

    def _mask(self, rows: list[int]) -> np.ndarray:
        return np.isin(np.arange(self.size), rows)


def check_covariance_fits(dim: int) -> None:
    matrices = 5  # (D, D) float64 in memory at a time
    if matrices * 8 * dim**2 > errors.memory_of_machine():
        raise InputError(
            f"the covariance of {dim:,} columns does not fit into memory; is it stored as (D, V)?"
        )


@dataclass(frozen=True, eq=False)
class Scan:
    """What the first pass over a matrix finds."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    unused_sum: np.ndarray  # (D,) float64: the sum of the finite unused rows
    covariance: Covariance | None  # that of the finite token rows; None if no row is unused


def scan_rows(layer: Layer, kinds: RowKinds, watch: Watch) -> Scan:
    from hashlib import sha256

    size, dim = layer.shape
    norms = np.empty(size)
    rows_by_digest = defaultdict(list)
    unused_sum = np.zeros(dim)
    covariance = Covariance(dim) if kinds.reasons else None
    for ids, block in numbered_blocks(layer, watch):
        for row, values in zip(ids.tolist(), block, strict=True):
            rows_by_digest[sha256(values.data).digest()].append(row)
        exact = block.astype(np.float64)
        norms[ids] = norms_of(exact)
        if covariance is not None:
            is_finite = np.isfinite(norms[ids])
            unused_sum += exact[is_finite & kinds.unused[ids]].sum(axis=0)
            covariance.add(exact[is_finite & kinds.token[ids]])

    equal = []
    for rows in rows_by_digest.values():
        if len(rows) > 1 and norms[rows[0]] > 0:
            equal.append(tuple(rows))
    return Scan(norms, tuple(equal), unused_sum, covariance)


def indicators_of(
    layer: Layer, kinds: RowKinds, scan: Scan, covariance: Covariance, watch: Watch
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the indicators, (V,) float64 each, and how far each unused row is from the others.

    The latter is 1 - cos to the mean of the other unused rows, (V,) float64; NaN for used rows.
    """
    mean = covariance.mean()
    _, components = np.linalg.eigh(covariance.matrix())
    first = components[:, -1]
    unused_sum = scan.unused_sum
    sum_length = np.sqrt(squares(unused_sum[None]))
    unused_mean = unused_sum / np.count_nonzero(np.isfinite(scan.norms[kinds.unused]))
    mean_length = np.sqrt(squares(unused_mean[None]))
    mean_without_first = unused_mean - (unused_mean @ first) * first

    cosine_distance = np.full(kinds.size, np.nan)
    centred = np.full(kinds.size, np.nan)
    without_first = np.full(kinds.size, np.nan)
    to_others = np.full(kinds.size, np.nan)
    for all_ids, block in numbered_blocks(layer, watch):
        is_finite = np.isfinite(scan.norms[all_ids])
        ids = all_ids[is_finite]
        rows = block[is_finite].astype(np.float64)
        lengths = scan.norms[ids]

        cosine_distance[ids] = _distances(rows, lengths, unused_mean[None], mean_length)
        centred[ids] = _distances(rows - mean, lengths, (unused_mean - mean)[None], mean_length)
        rows_without_first = rows - np.outer(rows @ first, first)
        without_first[ids] = _distances(
            rows_without_first, lengths, mean_without_first[None], mean_length
        )

        is_unused = kinds.unused[ids]
        unused_rows = rows[is_unused]
        to_others[ids[is_unused]] = _distances(
            unused_rows, lengths[is_unused], unused_sum - unused_rows, sum_length
        )

    indicators = {
        "cosine_distance": cosine_distance,
        "centred": centred,
        "without_first": without_first,
    }
    return indicators, to_others


def _distances(
    rows: np.ndarray, lengths: np.ndarray, others: np.ndarray, other_lengths: np.ndarray
) -> np.ndarray:
    """Return 1 - cos of rows, (n, D), to one row, (1, D), or to one each; NaN without a direction.

    The lengths are those before something was subtracted from the rows.
    """
    other_units = np.broadcast_to(_units(others, other_lengths), rows.shape)
    cosines = dots(_units(rows, lengths), other_units)
    distances: np.ndarray = 1 - cosines.clip(-1, 1)
    return distances


def _units(rows: np.ndarray, former_lengths: np.ndarray) -> np.ndarray:
    """Return rows, (n, D), divided by their lengths; NaN if only rounding is left of a row."""
    last_bits = 2.0**-52  # the rounding of a length of 1, for each value of a row
    lengths = np.sqrt(squares(rows))
    has_direction = lengths > rows.shape[1] * last_bits * former_lengths
    units: np.ndarray = rows / np.where(has_direction, lengths, np.nan)[:, None]
    return units


def threshold_of(unused_values: np.ndarray, used_values: np.ndarray) -> tuple[float | None, str]:
    """Return the largest value of a candidate, or None and the reason why there is none.

    Both arrays hold the indicator of rows, (n,); NaN for a row that cannot be compared.
    """
    least_unused = 2  # rows, without which there is nothing to compare others with
    scale = 1.4826  # turns a median absolute deviation of normal numbers into a standard deviation
    spread = 3  # standard deviations from the median of the unused rows that a candidate may be
    cosine_rounding = 1e-12

    known = unused_values[~np.isnan(unused_values)]
    if len(known) < least_unused:
        rows = counted(len(known), "row")
        return None, f"too few unused rows for comparison: {rows} known and not zero"
    median = np.median(known)
    deviation = scale * np.median(np.abs(known - median))
    threshold = float(median + spread * deviation + cosine_rounding)
    if not len(used_values) or np.median(used_values) <= threshold:
        return None, "the unused rows resemble all others, as in an untrained matrix"
    return threshold, ""

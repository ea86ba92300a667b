"""The numbers of an audit: which rows are unused, and what two passes over the matrix find.

The first pass finds norms, equal rows and means, the second how similar each row is to the
unused ones. Both read the layer in blocks, so that it can be larger than memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Literal, NamedTuple

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import Watch
from embcli.layer import Layer
from embcli.names import Unused
from embcli.numerics.statistics import dots, norms_of, numbered_blocks, squares
from embcli.verbs.audit.distribution import UsedRows
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


Indicator = Literal["cosine_distance", "centred", "norm"]


class Scan(NamedTuple):
    """What the first pass over a matrix finds."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    largest: np.ndarray  # (V,) float64: the largest absolute value of each row
    zeros: np.ndarray  # (V,) int64: how many values of each row are 0
    others: UsedRows  # those that were not added
    constant: np.ndarray  # (n,) int64: columns with one value in all used rows, except zero rows
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    digest: bytes  # that of all rows
    unused_sum: np.ndarray  # (D,) float64: the sum of the finite unused rows


@np.errstate(all="ignore")  # Damaged values have no sums.
def scan_rows(layer: Layer, is_unused: np.ndarray, is_added: np.ndarray, watch: Watch) -> Scan:
    """Return what the rows of a layer are, of which some are unused, or were added, (V,) bool."""
    from hashlib import sha256

    size, dim = layer.shape
    norms = np.empty(size)
    largest = np.empty(size)
    zeros = np.empty(size, np.int64)
    others = UsedRows()
    is_constant = np.ones(dim, bool)
    first_row = norms[:0]
    rows_by_digest = defaultdict(list)
    whole = sha256()
    unused_sum = np.zeros(dim)
    for ids, block in numbered_blocks(layer, watch):
        block = block + 0.0  # 0.0 and -0.0 are equal
        whole.update(block.data)
        for row, values in zip(ids.tolist(), block, strict=True):
            rows_by_digest[sha256(values.data).digest()].append(row)
        exact = block.astype(np.float64)
        block_norms = norms_of(exact)
        norms[ids] = block_norms
        largest[ids] = np.abs(exact).max(axis=1)
        zeros[ids] = (exact == 0).sum(axis=1)
        is_used = ~is_unused[ids] & (block_norms > 0)
        used_rows = exact[is_used]
        is_other = is_used & ~is_added[ids]
        others.add(ids[is_other], exact[is_other])
        if not len(first_row):
            first_row = used_rows[:1]
        is_constant &= (used_rows == first_row).all(axis=0)
        unused_sum += exact[np.isfinite(block_norms) & is_unused[ids]].sum(axis=0)

    groups = rows_by_digest.values()
    equal = [tuple(rows) for rows in groups if len(rows) > 1 and norms[rows[0]] > 0]
    return Scan(
        norms=norms,
        largest=largest,
        zeros=zeros,
        others=others,
        constant=np.flatnonzero(is_constant),
        equal=tuple(equal),
        digest=whole.digest(),
        unused_sum=unused_sum,
    )


Distances = dict[Indicator, np.ndarray]  # (V,) or (n,) float64 each


def indicators_of(layer: Layer, reference: np.ndarray, scan: Scan, watch: Watch) -> Distances:
    """Return the indicators of all rows, which compare them with the mean of some unused ones.

    The reference is their IDs, (n,) int64. A row that was held against a mean that contains it
    would seem nearer than it is: each of them is held against the mean of the others.
    """
    known = reference[np.isfinite(scan.norms[reference])]
    indicators: Distances = {"norm": scan.norms}
    if not scan.unused_sum.any() or not scan.norms[known].any():
        return indicators

    mean = scan.others.moments.mean
    centers: dict[Indicator, np.ndarray] = {"cosine_distance": 0 * mean, "centred": mean}
    indicators |= {name: np.full(len(scan.norms), np.nan) for name in centers}
    total = layer.rows(known).sum(axis=0, dtype=np.float64)
    for all_ids, block in numbered_blocks(layer, watch):
        ids = all_ids[np.isfinite(scan.norms[all_ids])]
        rows = block[ids - all_ids[0]].astype(np.float64)
        is_known = np.isin(ids, known)
        mean_of_others = (total - rows[is_known]) / max(len(known) - 1, 1)
        for name, center in centers.items():
            distances = _distances(rows, total[None] / len(known), center)
            distances[is_known] = _distances(rows[is_known], mean_of_others, center)
            indicators[name][ids] = distances
    return indicators


def _distances(rows: np.ndarray, others: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return 1 - cos of rows, (n, D), to one other, (1, D), or to one each, seen from a center.

    It is NaN for a row without a direction.
    """
    cosines = dots(_units(rows, center), _units(others, center))
    return 1 - cosines.clip(-1, 1)


def _units(rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return rows less a center, (n, D), with a length of 1; NaN if only rounding is left."""
    last_bits = 2.0**-52  # the rounding of a length of 1, for each value of a row
    centred = rows - center
    lengths = np.sqrt(squares(centred))
    has_direction = lengths > rows.shape[1] * last_bits * np.sqrt(squares(rows))
    units: np.ndarray = centred / np.where(has_direction, lengths, np.nan)[:, None]
    return units


class Separation(NamedTuple):
    """How well unused rows are told from others, by the indicator that does it best.

    `area` is the share of pairs of an unused and another row in which the unused one is lower.
    Other rows up to the `threshold` are candidates; without one, `reason` says why there is none.
    """

    values: Distances  # of all rows
    unused: np.ndarray  # (n,) int64: the IDs of the unused rows, except zero rows
    indicator: Indicator = "norm"
    area: float | None = None
    threshold: float | None = None
    reason: str = ""

    def candidates(self, rows: np.ndarray) -> np.ndarray:
        """Return those of some rows that are candidates, (n,) int64, the lowest first."""
        if self.threshold is None:
            return rows[:0]
        chosen = self.values[self.indicator][rows]
        count = np.count_nonzero(chosen <= self.threshold)
        return rows[np.argsort(chosen, kind="stable")[:count]]


_LEAST_UNUSED = 8  # rows, below which an area says little
_LEAST_AREA = 0.9  # below it the unused rows do not stand out from others
# Of equal areas, the first of these counts.
_ORDER = ("centred", "cosine_distance", "norm")


def separation_of(indicators: Distances, unused: np.ndarray, used: np.ndarray) -> Separation:
    """Find the indicator that separates unused from used rows best, by their IDs, (n,) int64 each.

    NaN stands for a row that cannot be compared.
    """
    known = {}
    areas = {}
    for name in _ORDER:
        if name in indicators:
            values = indicators[name][unused]
            known[name] = values[~np.isnan(values)]
            areas[name] = area_under_curve(known[name], indicators[name][used])
    largest = max(len(values) for values in known.values())
    if largest < _LEAST_UNUSED:
        rows = counted(largest, "row")
        reason = f"too few unused rows for comparison: {rows}, {_LEAST_UNUSED} are needed"
        return Separation(indicators, unused, reason=reason)

    best = max(areas, key=lambda name: areas[name])
    area = areas[best]
    if area < _LEAST_AREA:
        reason = f"unused rows do not stand out: at best in {area:.2f} of pairs, by {best}"
        return Separation(indicators, unused, best, area, None, reason)
    threshold = _threshold(known[best])
    if np.nanmedian(indicators[best][used]) <= threshold:
        reason = "half of the tokens are like unused rows"
        return Separation(indicators, unused, best, area, None, reason)
    return Separation(indicators, unused, best, area, threshold)


def area_under_curve(lower: np.ndarray, higher: np.ndarray) -> float:
    """Return the share of pairs whose first value is the lower one; ties count half.

    >>> area_under_curve(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    0.875
    """
    known = np.sort(higher[~np.isnan(higher)])
    if not len(known) or not len(lower):
        return 0.0
    # Those below, twice, and those that are equal.
    places = np.searchsorted(known, lower, "left") + np.searchsorted(known, lower, "right")
    return float(1 - places.mean() / (2 * len(known)))


def _threshold(unused_values: np.ndarray) -> float:
    """Return the largest value of a candidate: three deviations above the median, (n,)."""
    scale = 1.4826  # turns a median absolute deviation of normal numbers into a standard deviation
    spread = 3  # standard deviations from the median of the unused rows that a candidate may be
    rounding = 1e-12
    median = np.median(unused_values)
    deviation = scale * np.median(np.abs(unused_values - median))
    return float(median + spread * deviation + rounding)

"""The search for the nearest rows is float64's over whole matrices, also where float32 fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from embcli.layer import Layer
from embcli.names import Metric
from embcli.numerics.search import nearest
from tests.oracles import Stub, normal

NONE = np.empty(0, np.int64)
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2")


class Blocks(Stub):
    """A layer in blocks of a few rows."""

    def blocks(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.values), 7):
            yield self.values[start : start + 7]


# --- oracles --------------------------------------------------------------------------------------


def reference(matrix: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    """Return the score of each row, (V,), by the obvious float64; NaN for rows that have none."""
    rows = matrix.astype(np.float64)
    with np.errstate(all="ignore"):
        products = (rows * query).sum(axis=1)
        if metric == "dot":
            scores = products
        elif metric == "l2":
            scores = np.sqrt(((rows - query) ** 2).sum(axis=1))
        else:
            norms = np.sqrt((rows * rows).sum(axis=1) * (query * query).sum())
            cosines = np.where(norms > 0, products / norms, np.nan)
            scores = np.clip(cosines, -1, 1)
    return np.where(np.isfinite(rows).all(axis=1), scores, np.nan)


def first(scores: np.ndarray, metric: str, k: int, without: tuple[int, ...] = ()) -> list[int]:
    """Return the first k IDs by score, then ID; those without a score are left out."""
    sign = 1 if metric == "l2" else -1
    rows = np.flatnonzero(~np.isnan(scores)).tolist()
    ranked = [row for row in rows if row not in without]
    ranked.sort(key=lambda row: sign * scores[row])
    return ranked[:k]


def check(
    layer: Layer, matrix: np.ndarray, query: np.ndarray, metric: Metric, *counts: int
) -> None:
    """Search the first rows of these counts, and hold them against those of float64."""
    scores = reference(matrix, query, metric)
    is_finite = np.isfinite(matrix).all(axis=1)
    for k in counts:
        found = nearest(layer, [query], k, metric, None, [NONE])
        (answer,) = found.rankings
        assert answer.ids.tolist() == first(scores, metric, k)
        assert np.array_equal(answer.scores, scores[answer.ids])
        assert np.array_equal(found.not_finite, np.flatnonzero(~is_finite))
        assert np.isnan(scores).sum() == len(found.not_finite) + len(found.zero)


# --- matrices -------------------------------------------------------------------------------------


def equal_rows_far_apart() -> np.ndarray:
    """Return 45 rows of 777 columns, among which 31 are equal; others lie between."""
    repeated = normal(1, 777)
    parts = [normal(40, 777, 3), *[repeated] * 30, normal(3, 777, 4), repeated]
    return np.concatenate(parts)


def multiples() -> np.ndarray:
    """Return odd multiples of a row with so few bits that they are exact."""
    row = normal(200, 33)[:1]
    coarse = (row.view(np.uint32) & np.uint32(0xFFFFFFF0)).view(np.float32)
    return coarse * np.arange(-15, 16, 2, np.float32)[:, None]


def some_zero_rows() -> np.ndarray:
    values = normal(200, 33)
    values[5::7] = 0
    values[6::7] = -0.0
    return values


def some_non_finite_rows() -> np.ndarray:
    values = normal(200, 33)
    values[3, 4] = np.nan
    values[10, 0] = np.inf
    values[11, 32] = -np.inf
    values[20] = np.nan
    return values


BASE = normal(200, 33)
LARGEST = np.finfo(np.float32).max

# Matrices (V, D) float32 that a search only in float32 gets wrong.
ADVERSARIAL = {
    "random": BASE,
    "one column": normal(50, 1),
    "one row": normal(1, 7),
    "equal rows far apart": equal_rows_far_apart(),
    "all equal": np.ones((70, 5), np.float32),
    "multiples, some cosines of which round to more than 1": multiples(),
    "huge": BASE * np.float32(1e37),
    "denormal": BASE * np.float32(1e-42),
    "small, squares of which are zero": BASE * np.float32(1e-25),
    "zero rows": some_zero_rows(),
    "NaN and infinity": some_non_finite_rows(),
    "signs": np.sign(BASE),
    "the largest float32": np.full((9, 3), LARGEST, np.float32),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_first_k_are_those_of_float64_to_the_last_bit(name, metric):
    matrix = ADVERSARIAL[name]
    size = len(matrix)
    usable = np.flatnonzero(np.isfinite(matrix).all(axis=1) & matrix.any(axis=1))
    step = max(len(usable) // 4, 1)
    counts = (1, 2, 10, max(size - 1, 1), size)

    for query in matrix[usable[::step]].astype(np.float64):
        check(Blocks(matrix), matrix, query, metric, *counts)


def drawn(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw a matrix and a query of any shape and scale; a few values are not finite."""
    rows = random.integers(1, 60)
    dim = random.integers(1, 70)
    matrix = random.standard_normal((rows, dim), np.float32)
    if random.random() < 0.5:
        exponents = random.uniform(-45, 38, (rows, 1)).astype(np.float32)
        matrix *= np.float32(10) ** exponents
    if random.random() < 0.3:
        matrix = np.round(matrix)
    matrix[random.random(matrix.shape) < 0.002] = random.choice([np.nan, np.inf, -np.inf])

    return matrix, random.standard_normal(dim) * 10.0 ** random.uniform(-40, 38)


@pytest.mark.parametrize("metric", METRICS)
def test_random_matrices_of_any_shape_and_scale(metric):
    random = np.random.default_rng(5)
    for _ in range(150):
        matrix, query = drawn(random)
        count = int(random.integers(1, len(matrix) + 1))
        check(Blocks(matrix), matrix, query, metric, count)


# --- several queries, chosen rows -----------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_queries_that_share_a_pass_have_their_own_exclusions(metric):
    matrix = normal(90, 8)
    matrix[11] = np.nan
    excluded = {4: [4], 7: [7, 1, 1], 9: [], 30: [30], 2: [2, 4]}
    queries = [matrix[row].astype(np.float64) for row in excluded]
    without = [np.array(rows, np.int64) for rows in excluded.values()]

    found = nearest(Blocks(matrix), queries, 5, metric, None, without)

    expected = []
    left_out = []
    for query, rows in zip(queries, without, strict=True):
        scores = reference(matrix, query, metric)
        expected.append(first(scores, metric, 5, tuple(rows.tolist())))
        ranked = first(scores, metric, 90)
        left_out.append([(row, scores[row]) for row in ranked if row in rows])
    assert [answer.ids.tolist() for answer in found.rankings] == expected
    scored = [[*zip(own.ids, own.scores, strict=True)] for own in found.left_out]
    assert scored == left_out
    assert found.searched == 90


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_are_chosen_are_the_only_answers(metric):
    """They are in several blocks."""
    matrix = normal(900, 2000)
    matrix[11] = np.nan
    among = np.sort([*range(0, 600, 3), 11, 40, 890])
    query = matrix[5].astype(np.float64)

    found = nearest(Stub(matrix), [query], 4, metric, among, [np.array([7, 11])])

    scores = np.full(900, np.nan)
    scores[among] = reference(matrix[among], query, metric)
    assert found.rankings[0].ids.tolist() == first(scores, metric, 4)
    assert found.searched == 203
    assert found.not_finite.tolist() == [11]
    assert not len(found.left_out[0].ids), "row 7 is not searched, and row 11 has no score"

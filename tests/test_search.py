"""The search for the nearest rows, against float64 over whole matrices: where float32 fails, and in all dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from embcli.files import open_tensors
from embcli.layer import Layer
from embcli.names import Metric
from embcli.numerics.search import nearest
from tests.files.made import safetensors_bytes
from tests.oracles import Stub, normal

NONE = np.empty(0, np.int64)
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2")
DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


class Blocks(Stub):
    """A layer in blocks of a few rows."""

    def blocks(self) -> Iterator[np.ndarray]:
        for start in range(0, len(self.values), 7):
            yield self.values[start : start + 7]


def adversarial() -> Iterator[tuple[str, np.ndarray]]:
    """Yield matrices (V, D) float32 that a search only in float32 gets wrong."""
    base = normal(200, 33)
    yield "random", base
    yield "one column", normal(50, 1)
    yield "one row", normal(1, 7)
    yield "equal rows", np.repeat(normal(20, 9), 11, axis=0)
    yield (
        "equal rows far apart",
        np.concatenate(
            [normal(40, 777, 3), *[normal(1, 777)] * 30, normal(3, 777, 4), normal(1, 777)]
        ),
    )
    yield "all equal", np.ones((70, 5), np.float32)
    near = np.tile(normal(1, 64), (300, 1))
    near.view(np.uint32)[...] += np.random.default_rng(1).integers(0, 3, near.shape, np.uint32)
    yield "a few last bits apart", near
    coarse = (base[:1].view(np.uint32) & np.uint32(0xFFFFFFF0)).view(
        np.float32
    )  # whose multiples are exact
    yield (
        "multiples, some cosines of which round to more than 1",
        coarse * np.arange(-15, 16, 2, np.float32)[:, None],
    )
    yield "huge", base * np.float32(1e37)
    yield "huge and small", base * np.logspace(-37, 37, 200, dtype=np.float32)[:, None]
    yield "denormal", base * np.float32(1e-42)
    yield "small, squares of which are zero", base * np.float32(1e-25)
    yield "large offset", base + np.float32(1e4)
    zeros = base.copy()
    zeros[5::7] = 0
    zeros[6::7] = -0.0
    yield "zero rows", zeros
    odd = base.copy()
    odd[3, 4], odd[10, 0], odd[11, 32], odd[20] = np.nan, np.inf, -np.inf, np.nan
    yield "NaN and infinity", odd
    yield "the identity", np.eye(40, dtype=np.float32)
    yield "signs", np.sign(base)
    yield "the largest float32", np.full((9, 3), np.finfo(np.float32).max, np.float32)
    yield "5,000 columns", normal(60, 5000, 3)
    yield "nearly one direction", normal(1, 64, 8) + normal(500, 64, 9) * np.float32(1e-3)


def reference(matrix: np.ndarray, query: np.ndarray, metric: str) -> np.ndarray:
    """Return the score of each row, (V,), by the obvious float64; NaN for rows that have none."""
    rows = matrix.astype(np.float64)
    with np.errstate(all="ignore"):
        norms = np.sqrt((rows * rows).sum(axis=1) * (query * query).sum())
        products = (rows * query).sum(axis=1)
        scores = {
            "l2": np.sqrt(((rows - query) ** 2).sum(axis=1)),
            "dot": products,
            "cosine": np.clip(np.where(norms > 0, products / norms, np.nan), -1, 1),
        }[metric]
    return np.where(np.isfinite(rows).all(axis=1), scores, np.nan)


def first(scores: np.ndarray, metric: str, k: int, without: tuple[int, ...] = ()) -> list[int]:
    """Return the first k IDs by score, then ID; those without a score left out."""
    sign = 1 if metric == "l2" else -1
    order = sorted(
        (sign * score, row)
        for row, score in enumerate(scores)
        if score == score and row not in without
    )
    return [row for _, row in order[:k]]


def check(
    layer: Layer, matrix: np.ndarray, query: np.ndarray, metric: Metric, *counts: int
) -> None:
    scores = reference(matrix, query, metric)
    for k in counts:
        found = nearest(layer, [query], k, metric, None, [NONE])
        (answer,) = found.rankings
        assert answer.ids.tolist() == first(scores, metric, k)
        assert np.array_equal(answer.scores, scores[answer.ids])
        assert (
            found.not_finite.tolist() == np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
        )
        assert np.isnan(scores).sum() == len(found.not_finite) + len(found.zero)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("name", "matrix"), [*adversarial()], ids=lambda each: each if isinstance(each, str) else ""
)
def test_the_first_k_are_those_of_float64_to_the_last_bit(
    name: str, matrix: np.ndarray, metric: Metric
) -> None:
    usable = np.flatnonzero(np.isfinite(matrix).all(axis=1) & matrix.any(axis=1))
    for row in usable[:: max(len(usable) // 4, 1)]:
        counts = 1, 2, 10, max(len(matrix) - 1, 1), len(matrix)
        check(Blocks(matrix), matrix, matrix[row].astype(np.float64), metric, *counts)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", DTYPES)
def test_files_of_all_dtypes_are_searched(tmp_path: Path, name: str, metric: Metric) -> None:
    stored = (normal(700, 24) * 2).astype(DTYPES[name])
    stored[7], stored[300] = stored[5], 0
    if name != "F8_E4M3":
        stored[100, 3] = np.inf
    stored[101, 3] = np.nan
    file, matrix = tmp_path / "made.safetensors", stored.astype(np.float32)
    file.write_bytes(safetensors_bytes({"wte": (name, stored.shape, stored.tobytes())}))
    for query in (matrix[5].astype(np.float64), matrix[[1, 2, 3]].astype(np.float64).mean(axis=0)):
        check(open_tensors(file).layer("wte"), matrix, query, metric, 1, 10, 700)


@pytest.mark.parametrize("metric", METRICS)
def test_random_matrices_of_any_shape_and_scale(metric: Metric) -> None:
    random = np.random.default_rng(5)
    for _ in range(150):
        rows, dim = int(random.integers(1, 60)), int(random.integers(1, 70))
        matrix = normal(rows, dim, int(random.integers(1 << 30)))
        matrix *= (
            np.float32(10) ** random.uniform(-45, 38, (rows, 1)).astype(np.float32)
            if random.random() < 0.5
            else 1
        )
        matrix = np.round(matrix) if random.random() < 0.3 else matrix
        matrix[random.random(matrix.shape) < 0.002] = random.choice([np.nan, np.inf, -np.inf])
        query = normal(1, dim, int(random.integers(1 << 30)))[0].astype(
            np.float64
        ) * 10.0 ** random.uniform(-40, 38)
        check(Blocks(matrix), matrix, query, metric, int(random.integers(1, rows + 1)))


@pytest.mark.parametrize("metric", METRICS)
def test_queries_have_their_own_exclusions_however_many_share_a_pass(metric: Metric) -> None:
    matrix = normal(90, 8)
    matrix[11] = np.nan
    rows = (4, 7, 9, 30, 2) * 206  # more than a pass takes
    excluded = [
        np.array([4]),
        np.array([7, 1, 1]),
        np.empty(0, np.int64),
        np.array([30]),
        np.array([2, 4]),
    ] * 206
    found = nearest(
        Blocks(matrix), [*matrix[[*rows]].astype(np.float64)], 5, metric, None, excluded
    )
    wanted = [
        first(
            reference(matrix, matrix[row].astype(np.float64), metric),
            metric,
            5,
            tuple(without.tolist()),
        )
        for row, without in zip(rows[:5], excluded[:5], strict=True)
    ]
    assert [answer.ids.tolist() for answer in found.rankings] == wanted * 206
    assert (found.searched, found.not_finite.tolist()) == (90, [11])


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_are_chosen_are_the_only_answers(metric: Metric) -> None:
    """In several blocks."""
    matrix, among = normal(900, 2000), np.append(np.arange(0, 600, 3), [11, 40, 890])
    among.sort()
    matrix[11] = np.nan
    query = matrix[5].astype(np.float64)
    found = nearest(Stub(matrix), [query], 4, metric, among, [NONE])
    others = tuple({*range(900)} - {*among.tolist()})
    assert found.rankings[0].ids.tolist() == first(
        reference(matrix, query, metric), metric, 4, others
    )
    assert (found.searched, found.not_finite.tolist()) == (203, [11])

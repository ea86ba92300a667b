"""The search for the nearest rows, held against float64 over whole matrices: in all dtypes, where float32 fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from embcli import passes, search
from embcli.binary import Binary
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.stored import StoredLayer
from embcli.layer import Layer
from embcli.names import Metric
from embcli.search import kernel, mean_row, nearest
from embcli.search.bounds import Bounds
from embcli.search.kernel import Kernel
from embcli.search.space import Space
from tests.files.made import safetensors_bytes
from tests.oracles import Stub, normal

ALLOWED = search._allowed
METRICS: tuple[Metric, ...] = ("cosine", "dot", "l2")
DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F64": np.float64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
}


@pytest.fixture(params=["simsimd", "numpy"], autouse=True)
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test by both kernels, with small windows and several threads; no bound may turn out to be wrong."""
    monkeypatch.setattr(search, "_allowed", lambda *_: pytest.fail("a bound was wrong"))
    if request.param == "numpy":
        for module in (search, kernel):
            monkeypatch.setattr(module, "simsimd", lambda: None)
    else:
        pytest.importorskip("simsimd")
    monkeypatch.setattr(passes, "_FOR_THREADS", 64)
    monkeypatch.setattr(passes, "cores", lambda: 3)
    monkeypatch.setattr(search, "_PIECE", 1 << 11)
    monkeypatch.setattr("embcli.files.stored._READ", 1 << 12)


def of_file(folder: Path, name: str, stored: np.ndarray) -> Layer:
    file = folder / "made.safetensors"
    file.write_bytes(safetensors_bytes({"wte": (name, stored.shape, stored.tobytes())}))
    return open_tensors(file).layer("wte")


def adversarial() -> Iterator[tuple[str, np.ndarray]]:
    """Yield matrices (V, D) float32 that a search only in float32 gets wrong."""
    base = normal(200, 33)
    yield "random", base
    yield "one column", normal(50, 1)
    yield "one row", normal(1, 7)
    yield "equal rows", np.repeat(normal(20, 9), 11, axis=0)
    yield "all equal", np.ones((70, 5), np.float32)
    near = np.tile(normal(1, 64), (300, 1))
    near.view(np.uint32)[...] += np.random.default_rng(1).integers(0, 3, near.shape, np.uint32)
    yield "a few last bits apart", near
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


def reference(matrix: np.ndarray, query: np.ndarray, metric: str, mean: np.ndarray | None = None) -> np.ndarray:
    """Return the score of each row, (V,), by the obvious float64; NaN for rows that have none."""
    rows = matrix.astype(np.float64) - (0 if mean is None else mean)
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
    order = sorted((sign * score, row) for row, score in enumerate(scores) if score == score and row not in without)
    return [row for _, row in order[:k]]


def check(
    layer: Layer, matrix: np.ndarray, query: np.ndarray, metric: Metric, *counts: int, centered: bool = False
) -> None:
    mean = matrix[np.isfinite(matrix).all(axis=1)].astype(np.float64).mean(axis=0) if centered else None
    query = query if mean is None else query - mean
    scores = reference(matrix, query, metric, mean)
    for k in counts:
        found = nearest(layer, [query], Space(metric, mean), k)
        (answer,) = found.rankings
        assert answer.ids.tolist() == first(scores, metric, k)
        assert answer.scores == pytest.approx(scores[answer.ids], rel=1e-12, abs=1e-300)
        assert found.not_finite.tolist() == np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist()
        assert np.isnan(scores).sum() == len(found.not_finite) + len(found.zero)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("name", "matrix"), [*adversarial()], ids=lambda each: each if isinstance(each, str) else "")
def test_the_first_k_are_those_of_float64_in_matrices_that_float32_gets_wrong(
    name: str, matrix: np.ndarray, metric: Metric
) -> None:
    usable = np.flatnonzero(np.isfinite(matrix).all(axis=1) & matrix.any(axis=1))
    for row in usable[:: max(len(usable) // 4, 1)]:
        counts = 1, 2, 10, max(len(matrix) - 1, 1), len(matrix)
        check(Stub(matrix), matrix, matrix[row].astype(np.float64), metric, *counts)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("centered", [False, True])
def test_all_dtypes_of_a_file_are_searched_as_they_are_stored(
    tmp_path: Path, name: str, metric: Metric, centered: bool
) -> None:
    stored = (normal(700, 24) * 2).astype(DTYPES[name])
    stored[7], stored[300] = stored[5], 0
    if name != "F8_E4M3":
        stored[100, 3] = np.inf
    stored[101, 3] = np.nan
    layer, matrix = of_file(tmp_path, name, stored), stored.astype(np.float32)
    for query in (matrix[5].astype(np.float64), matrix[[1, 2, 3]].astype(np.float64).mean(axis=0)):
        check(layer, matrix, query, metric, 1, 10, 700, centered=centered)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_a_mean_row_that_is_longer_than_what_it_leaves(tmp_path: Path, name: str, metric: Metric) -> None:
    stored = (normal(700, 24) + np.random.default_rng(2).uniform(5, 50, 24)).astype(DTYPES[name])
    for row in (5, 300):
        matrix = stored.astype(np.float32)
        check(of_file(tmp_path, name, stored), matrix, matrix[row].astype(np.float64), metric, 10, centered=True)


@pytest.mark.parametrize("metric", METRICS)
def test_random_matrices_of_any_shape_and_scale(metric: Metric) -> None:
    random = np.random.default_rng(5)
    for _ in range(150):
        rows, dim = int(random.integers(1, 60)), int(random.integers(1, 70))
        matrix = normal(rows, dim, int(random.integers(1 << 30)))
        matrix *= (
            np.float32(10) ** random.uniform(-45, 38, (rows, 1)).astype(np.float32) if random.random() < 0.5 else 1
        )
        matrix = np.round(matrix) if random.random() < 0.3 else matrix
        matrix[random.random(matrix.shape) < 0.002] = random.choice([np.nan, np.inf, -np.inf])
        query = normal(1, dim, int(random.integers(1 << 30)))[0].astype(np.float64) * 10.0 ** random.uniform(-40, 38)
        k = int(random.integers(1, rows + 1))
        check(Stub(matrix), matrix, query, metric, k, centered=bool(random.random() < 0.3))


def test_several_queries_are_searched_in_one_pass_with_their_own_exclusions() -> None:
    matrix = normal(90, 8)
    passes = []

    class Counted(Stub):
        def blocks(self) -> Iterator[np.ndarray]:
            passes.append(1)
            return super().blocks()

    queries = [matrix[row].astype(np.float64) for row in (4, 7, 9)]
    without = [np.array([4]), np.array([7, 1, 1]), np.empty(0, np.int64)]
    found = nearest(Counted(matrix), queries, Space("cosine"), 5, excluded=without)
    for query, answer, none in zip(queries, found.rankings, without, strict=True):
        wanted = first(reference(matrix, query, "cosine"), "cosine", 5, tuple(none.tolist()))
        assert answer.ids.tolist() == wanted
    assert len(passes) == 1


def test_many_answers_are_looked_for_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, sizes = normal(90, 8), []

    def watch(items: Iterable[Any], total: int, size: Callable[[Any], int]) -> Iterator[Any]:
        sizes.append(total)
        return iter(items)

    monkeypatch.setattr(search, "_ANSWERS", 80)
    without = [np.array([row]) for row in range(50)]
    found = nearest(Stub(matrix), [*matrix[:50].astype(np.float64)], Space("l2"), 20, excluded=without, watch=watch)
    assert sizes.count(90) == 13  # the others are of candidates
    for row, answer in enumerate(found.rankings):
        assert answer.ids.tolist() == first(reference(matrix, matrix[row].astype(float), "l2"), "l2", 20, (row,))
    assert len(found.rankings) == 50


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_are_chosen_are_the_only_answers(metric: Metric) -> None:
    matrix, among = normal(90, 8), np.array([3, 10, 11, 40, 89])
    matrix[11] = np.nan
    query = matrix[5].astype(np.float64)
    found = nearest(Stub(matrix), [query], Space(metric), 4, among)
    others = tuple({*range(90)} - {*among.tolist()})
    assert found.rankings[0].ids.tolist() == first(reference(matrix, query, metric), metric, 4, others)
    assert (found.searched, found.not_finite.tolist()) == (5, [11])


@pytest.mark.parametrize("metric", METRICS)
def test_within_is_a_border_that_belongs_to_it(metric: Metric) -> None:
    matrix = normal(90, 8)
    query = matrix[5].astype(np.float64)
    scores = reference(matrix, query, metric)
    ranked = first(scores, metric, 90)
    for place in (0, 1, 20, 89):
        border = nearest(Stub(matrix), [query], Space(metric), 90).rankings[0].scores[place]
        found = nearest(Stub(matrix), [query], Space(metric), 90, within=border)
        assert found.rankings[0].ids.tolist() == ranked[: place + 1]
        assert (
            nearest(Stub(matrix), [query], Space(metric), 3, within=border).rankings[0].ids.tolist()
            == ranked[: min(place + 1, 3)]
        )


@pytest.mark.parametrize("metric", METRICS)
def test_few_rows_are_scored_in_float64_where_few_are_in_doubt(metric: Metric) -> None:
    matrix = normal(5000, 64)
    found = nearest(Stub(matrix), [matrix[7].astype(np.float64)], Space(metric), 10)
    assert 10 <= found.rankings[0].rescored < 15


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", ["F16", "BF16"])
@pytest.mark.parametrize("size", [1e-30, 1, 1e30])
def test_queries_that_16_bits_cannot_hold(tmp_path: Path, name: str, metric: Metric, size: float) -> None:
    stored = normal(3000, 24).astype(DTYPES[name])
    layer, matrix = of_file(tmp_path, name, stored), stored.astype(np.float32)
    query = normal(1, 24, 8)[0].astype(np.float64) * size
    if metric != "l2" or size == 1:  # a distance to what is far away is the same for all rows
        check(layer, matrix, query, metric, 10)
        assert nearest(layer, [query], Space(metric), 10).rankings[0].rescored < 300


def test_a_kernel_that_does_not_keep_its_bounds_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_allowed", ALLOWED)
    matrix = normal(300, 16)
    query = matrix[7].astype(np.float64)
    honest = Kernel.products
    monkeypatch.setattr(Kernel, "products", lambda *given: np.sign(found := honest(*given)) * np.abs(found) ** 0.9)
    found = nearest(Stub(matrix), [query], Space("dot"), 10).rankings[0]
    assert found.ids.tolist() == first(reference(matrix, query, "dot"), "dot", 10)
    assert found.rescored == 300


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_products_keep_the_bound_that_is_claimed_for_them(tmp_path: Path, name: str) -> None:
    """Sums of equal signs round the same way again and again, and are as far off as sums get."""
    stored = np.abs(normal(64, 8192)).astype(DTYPES[name])
    stored[1::2] = 1
    stored[2::4] *= np.float32(-1)
    layer, wide = of_file(tmp_path, name, stored), stored.astype(np.float64)
    for row in range(0, 64, 7):
        found = nearest(layer, [wide[row]], Space("dot"), 5).rankings[0]
        assert found.rescored < 64
        assert found.ids.tolist() == first(reference(wide, wide[row], "dot"), "dot", 5)


def test_scores_do_not_depend_on_where_a_row_stands() -> None:
    row = normal(1, 777)
    matrix = np.concatenate([normal(100, 777, 3), np.repeat(row, 30, axis=0), normal(3, 777, 4), row])
    query = normal(1, 777, 9)[0].astype(np.float64)
    for metric in METRICS:
        scores = [Space(metric).scores(matrix[start:stop], query) for start, stop in ((0, 134), (99, 134), (133, 134))]
        assert len({*scores[0][100:130], scores[0][133], *scores[1][1:31], *scores[2]}) == 1


def test_the_mean_row_is_that_of_the_finite_rows_in_float64() -> None:
    matrix = normal(500, 6) + np.float32(1e6)
    matrix[7, 1], matrix[8, 2], matrix[9, 2] = np.nan, np.inf, -np.inf
    kept = np.delete(matrix, [7, 8, 9], axis=0).astype(np.float64)
    assert mean_row(Stub(matrix)) == pytest.approx(kept.mean(axis=0), rel=1e-14)
    assert np.isnan(mean_row(Stub(np.full((2, 3), np.nan)))).all()


def windows_of(layer: Layer) -> Iterator[np.ndarray]:
    ((first, windows),) = layer.segments(1, layer.shape[0])
    assert first == 0
    return windows


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("before", [b"", b"x"])
def test_windows_of_a_file_are_its_rows_as_they_are_stored(tmp_path: Path, name: str, before: bytes) -> None:
    stored = normal(700, 24).astype(DTYPES[name])
    file = tmp_path / "made"
    file.write_bytes(before + stored.tobytes())
    layer = StoredLayer(Binary(file), len(before), (700, 24), open_tensors_numbers(name), (24, 1))
    windows = [window.tobytes() for window in windows_of(layer)]
    assert len(windows) > 1
    assert b"".join(windows) == stored.tobytes()
    for count in (2, 3, 701):
        for first, rows in layer.segments(count, 700):
            read = b"".join(window.tobytes() for window in rows)
            assert read == stored.tobytes()[first * len(stored[0].tobytes()) :][: len(read)]
        assert sum(len(window) for _, rows in layer.segments(count, 700) for window in rows) == 700


@pytest.mark.parametrize("kind", ["deflated", "without preadv"])
def test_files_that_one_thread_can_read_at_a_time_are_read_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    matrix = normal(3000, 24)
    if kind == "deflated":
        monkeypatch.setattr("embcli.files.npy._SMALL", 1000)
        np.savez_compressed(tmp_path / "m.npz", wte=matrix)
        layer = open_tensors(tmp_path / "m.npz").layer("wte")
    else:
        monkeypatch.delattr(os, "preadv")
        layer = of_file(tmp_path, "F32", matrix)
    for row in (5, 1500, 2999):
        check(layer, matrix, matrix[row].astype(np.float64), "cosine", 10)


SIZES = (1e-23, 3e-19, 1e-18, 1e-17, 1e-12, 3e18, 1e19)


def paths() -> Iterator[None]:
    """Take each of simsimd's paths that this x86 machine has, or numpy's only one."""
    package = kernel.simsimd()
    yield
    best_first = [each for each in ("genoa", "ice", "skylake") if package and package.get_capabilities().get(each)]
    for each in best_first:
        package.disable_capability(each)  # type: ignore[union-attr]  # there is none without a package
        yield
    for each in best_first:
        package.enable_capability(each)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "matrix"),
    [
        *adversarial(),
        *((f"squares of {size}", normal(400, 33) * np.float32(size)) for size in SIZES),
        *((f"{dim} columns", normal(500, dim, 3)) for dim in (1, 2, 3, 16, 17, 5000)),
        ("nearly one direction", normal(1, 64, 8) + normal(500, 64, 9) * np.float32(1e-3)),
        ("one large column", np.where(np.arange(30) == 29, np.float32(1e30), normal(300, 30))),
        ("small first columns", normal(300, 64) * np.where(np.arange(64) < 4, np.float32(1e-25), np.float32(1))),
        ("a large query", np.concatenate([normal(200, 3) * np.float32(1e5), normal(300, 3) * np.float32(1e-12)])),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_bounds_contain_every_score(kind: str, matrix: np.ndarray) -> None:
    """Rows that reach a threshold are those whose upper bound does, and the bounds of random rows are close."""
    for name, metric in product(("F32", "F16", "BF16"), METRICS):
        assert_bounds_contain(name, kind, matrix, metric)


def assert_bounds_contain(name: str, kind: str, matrix: np.ndarray, metric: Metric) -> None:
    with np.errstate(over="ignore"):
        stored = matrix.astype(DTYPES[name])
    wide = stored.astype(np.float64)
    usable = np.flatnonzero(np.isfinite(wide).all(axis=1) & wide.any(axis=1))
    if not len(usable):
        return
    if kernel.simsimd() is None:
        rows = stored.astype(np.float32)
    else:
        rows = stored if name == "F32" else stored.view(np.uint16)
    query = wide[usable[len(usable) // 2]] + (normal(1, matrix.shape[1], 4)[0] * 0.01 if kind == "random" else 0)
    space = Space(metric)
    closeness = space.closeness(reference(wide, query, metric))
    multiplied = Kernel([query], rows, {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[name])
    scored = ~np.isnan(closeness)
    unscored = ~scored if metric == "cosine" else ~np.isfinite(wide).all(axis=1)
    for _ in paths():
        with np.errstate(all="ignore"):
            products = multiplied.products(rows)
            bounds = Bounds(space, matrix.shape[1], products[-1])
            given = products[0], multiplied.vectors[0], query
            places, intervals = bounds.reaching(-np.inf, *given)
            assert places.tolist() == [*range(len(matrix))]
            assert (intervals.low <= closeness)[scored].all()
            assert (closeness <= intervals.high)[scored].all()
            assert {*np.flatnonzero(unscored).tolist()} <= {*bounds.possibly_unscored().tolist()}
            for threshold in intervals.high[:: max(len(matrix) // 8, 1)]:
                places, among = bounds.reaching(threshold, *given)
                assert places.tolist() == np.flatnonzero(intervals.high >= threshold).tolist()
                assert np.array_equal(among.low, intervals.low[places])
    if kind == "random":
        size = 1 if metric == "cosine" else float(np.abs(closeness).max())
        assert (intervals.high - intervals.low).max() < 0.01 * size


def open_tensors_numbers(name: str):  # type: ignore[no-untyped-def]
    from embcli.files import numbers

    return {"F32": numbers.FLOAT32, "F16": numbers.FLOAT16, "BF16": numbers.BFLOAT16}[name]


def of_rows(file: Path, matrix: np.ndarray) -> StoredLayer:
    file.write_bytes(matrix.tobytes())
    return StoredLayer(Binary(file), 0, matrix.shape, open_tensors_numbers("F32"), (matrix.shape[1], 1))


def test_a_file_that_was_cut_is_refused_at_its_next_window(tmp_path: Path) -> None:
    windows = windows_of(of_rows(tmp_path / "made", normal(700, 24)))
    next(windows)
    os.truncate(tmp_path / "made", 5000)
    with pytest.raises(InputError, match="cut off"):
        list(windows)


@pytest.mark.parametrize("length", [0, 5000, 600_000])
def test_a_file_that_was_cut_before_it_is_read_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "made"
    parts = of_rows(file, normal(7000, 24)).segments(3, 7000)
    os.truncate(file, length)
    for _, windows in parts[0 if length < 5000 else -1 :]:
        with pytest.raises(InputError, match="cut off while it was read"):
            list(windows)


@pytest.mark.parametrize("within", [1.0, 1.5, 1e300, np.inf, -1.5, -1e300])
def test_a_border_that_no_cosine_reaches_leaves_out_no_row_that_has_none(within: float) -> None:
    matrix = normal(300, 64)
    matrix[[50, 52, 250], [40, 0, 63]], matrix[[51, 53, 251], [40, 0, 63]], matrix[260] = np.nan, np.inf, 0
    query = matrix[5].astype(np.float64)
    for layer in (Stub(matrix), Stub(np.ascontiguousarray(matrix[::-1]))):
        found = nearest(layer, [query], Space("cosine"), 3, within=within)
        assert len(found.not_finite) == 6
        assert len(found.zero) == 1
        assert len(found.rankings[0].ids) == (within <= 1) + 2 * (within <= -1)

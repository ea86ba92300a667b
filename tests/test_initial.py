"""Which rows are as they were initialised, and which are outliers, held against torch and numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from embcli.verbs.audit.distribution import Initial, UsedRows
from embcli.verbs.audit.outliers import outliers
from tests.cases import cases

SIZE = 2000
DIM = 64
INITIALISERS = {
    "normal": torch.nn.init.normal_,
    "uniform": torch.nn.init.uniform_,
    "xavier_normal": torch.nn.init.xavier_normal_,
    "kaiming_uniform": torch.nn.init.kaiming_uniform_,
}


def initial_of(matrix: np.ndarray, deviation: float | None = None) -> list[Initial]:
    used = UsedRows()
    for start in range(0, len(matrix), 777):
        rows = matrix[start : start + 777].astype(np.float64)
        used.add(np.arange(start, start + len(rows)), rows)
    return [*used.initial(len(matrix), matrix.__getitem__, deviation=deviation)]


def drawn(seed: int, name: str, dtype: torch.dtype = torch.float32) -> np.ndarray:
    torch.manual_seed(seed)
    values = torch.empty(SIZE, DIM)
    low_and_high = (-0.1, 0.1) if name == "uniform" else ()
    INITIALISERS[name](values, *low_and_high)
    return values.to(dtype).float().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", INITIALISERS)
def test_what_torch_initialises_is_initial(name: str, dtype: torch.dtype) -> None:
    for seed in range(5):
        matrix = drawn(seed, name, dtype)
        (found,) = initial_of(matrix)

        assert (found.first, found.stop) == (0, SIZE)
        assert found.distribution in name


@cases
@pytest.mark.parametrize("name", ["normal", "uniform"])
def test_a_run_of_initial_rows_is_found_but_for_a_part_of_a_window(size, first, stop, name):
    matrix = np.random.default_rng(0).laplace(0.01, 0.02, (size, DIM)).astype(np.float32)
    assert not initial_of(matrix)
    matrix[first:stop] = 0.02 * drawn(1, name)[first:stop]

    (found,) = initial_of(matrix)

    assert abs(found.first - first) <= 32
    assert abs(found.stop - stop) <= 32


def test_rows_of_the_models_deviation_are_initial_beside_others_that_look_drawn() -> None:
    matrix = 0.08 * drawn(1, "normal") + 0.01
    assert not initial_of(matrix, 0.02)
    matrix[800:1000] = 0.02 * drawn(2, "normal")[800:1000]
    assert not initial_of(matrix)
    (found,) = initial_of(matrix, 0.02)
    assert abs(found.first - 800) <= 32
    assert abs(found.stop - 1000) <= 32


@pytest.mark.parametrize(
    "change",
    [
        lambda matrix: matrix + 0.2 * matrix.std(),  # the mean of each column
        lambda matrix: np.sign(matrix) * np.abs(matrix) ** 1.5,  # the distribution
        lambda matrix: matrix - matrix.mean(axis=0),  # means that are 0, as after a PCA
        lambda matrix: matrix / np.linalg.norm(matrix, axis=1, keepdims=True),  # equal lengths
        lambda matrix: np.where(np.arange(DIM) == 3, 0.5, matrix),  # a constant column
    ],
)
def test_what_was_changed_is_not_initial(change) -> None:  # type: ignore[no-untyped-def]
    assert not initial_of(change(drawn(0, "normal").astype(np.float64)))


def test_a_small_matrix_is_too_small_to_be_told() -> None:
    assert not initial_of(drawn(0, "normal")[:90])


@pytest.mark.parametrize("size", [50, 3000])
def test_outliers_are_those_far_beyond_all_others(size: int) -> None:
    norms = np.random.default_rng(0).uniform(0.5, 2, size)
    norms[[7, 43, 45]] = [1000, 1e-4, 1e-4]

    assert outliers(norms, np.ones(size)).tolist() == [7, 43, 45]
    assert outliers(np.ones(size), norms).tolist() == [7, 43, 45]
    assert not len(outliers(np.ones(100), np.full(100, 2.0)))


def test_groups_of_outliers_do_not_hide_one_another():
    norms = np.random.default_rng(0).uniform(0.5, 2, 800)
    norms[[3, 70, 300, 555]] *= 1000
    assert outliers(norms, np.ones(800)).tolist() == [3, 70, 300, 555]

    short = np.ones(800)
    short[500:520] = 1e-3
    assert outliers(short, np.ones(800)).tolist() == [*range(500, 520)]
    short[[300, 310]] = 1e-3  # Tokens that no text has are short, too.
    assert not len(outliers(short, np.ones(800)))

"""Kinds of positions: each against a formula of another form, and the facts that the papers state of them."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli.errors import InputError, LayerError
from embcli.layer import Layer
from embcli.names import Pairing
from embcli.positions import JOINED_KINDS, KINDS, check_options, joined_kind, shown_kind
from embcli.positions.learned import Learned
from embcli.positions.none import NoPositions
from embcli.positions.relative import Relative
from embcli.positions.rotary import Rotary, model_rotary
from embcli.positions.sinusoidal import Sinusoidal
from embcli.recipe import Rotation
from tests.oracles import normal

untimed = settings(deadline=None)
dims = st.integers(1, 40)
even_dims = st.integers(1, 20).map(lambda half: 2 * half)
places = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)
pairings = st.sampled_from(["interleaved", "halves"])


@dataclass
class Plain(Layer):
    values: np.ndarray
    dtype = "float32"

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.values[ids]


@untimed
@given(dims, places)
def test_sinusoidal_rows_are_those_of_the_papers_formula(dim: int, positions: list[int]) -> None:
    found = Sinusoidal(dim).rows(np.array(positions))
    assert found.dtype == np.float32
    for row, position in zip(found.tolist(), positions, strict=True):
        for column, value in enumerate(row):
            angle = position / 10000 ** (2 * (column // 2) / dim)
            assert abs(value - (math.cos(angle) if column % 2 else math.sin(angle))) < 1e-6


@untimed
@given(even_dims, st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_sinusoidal_dot_products_of_an_even_d_depend_on_the_distance_alone(d: int, i: int, j: int, shift: int) -> None:
    rows = Sinusoidal(d).exact(np.array([i, j, i + shift, j + shift]))
    assert rows[0] @ rows[1] == pytest.approx(rows[2] @ rows[3], abs=1e-9)


def turned(row: list[float], position: int, theta: float, pairs: list[tuple[int, int]]) -> list[float]:
    """Return a row as complex multiplication turns it."""
    found = [0.0] * len(row)
    for i, (first, second) in enumerate(pairs):
        angle = position / theta ** (2 * i / len(row))
        product = complex(row[first], row[second]) * cmath.exp(1j * angle)
        found[first], found[second] = product.real, product.imag
    return found


@untimed
@given(even_dims, places, st.floats(1, 1e6))
def test_rotary_positions_multiply_pairs_as_complex_numbers(dim: int, positions: list[int], theta: float) -> None:
    rows = normal(len(positions), dim)
    ways = {
        "interleaved": [(column, column + 1) for column in range(0, dim, 2)],
        "halves": [(column, column + dim // 2) for column in range(dim // 2)],
    }
    for pairing, pairs in ways.items():
        kind = Rotary(dim, pairing=pairing, theta=theta)
        assert kind.pairs.tolist() == [list(pair) for pair in pairs]
        expected = [turned(row, at, theta, pairs) for row, at in zip(rows.tolist(), positions, strict=True)]
        found = kind.joined(rows, np.array(positions))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
        angles = [[at / theta ** (2 * i / dim) for i in range(dim // 2)] for at in positions]
        np.testing.assert_allclose(kind.rows(np.array(positions)), angles, rtol=1e-6)


@untimed
@given(even_dims, pairings, st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 99))
def test_rotary_dot_products_are_equal_under_a_shift_of_both_positions(
    dim: int, pairing: str, i: int, j: int, shift: int, seed: int
) -> None:
    query, key = normal(2, dim, seed)[:, None]
    kind = Rotary(dim, pairing=pairing)

    def dot(left: int, right: int) -> float:
        (one,), (other,) = kind.exact(query, np.array([left])), kind.exact(key, np.array([right]))
        return float(one @ other)

    assert dot(i, j) == pytest.approx(dot(i + shift, j + shift), abs=1e-9 * dim)


def test_rotary_positions_leave_position_0_and_lengths_as_they_are() -> None:
    rows = normal(3, 8)
    found = Rotary(8, pairing="halves").joined(rows, np.array([0, 5, 900]))
    assert found[0].tobytes() == rows[0].tobytes()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.linalg.norm(rows, axis=1), rtol=1e-6)


def test_rotary_positions_turn_an_infinite_weight_without_a_warning() -> None:
    assert not np.isfinite(Rotary(2).joined(np.array([[np.inf, 1]], np.float32), np.array([1]))).any()


@pytest.mark.parametrize(("dim", "theta"), [(3, 1e4), (1, 1e4), (4, 0.5), (4, math.inf), (4, math.nan), (4, -1.0)])
def test_what_rotary_cannot_turn_is_refused(dim: int, theta: float) -> None:
    with pytest.raises(
        LayerError, match=f"dim must be even, not {dim}" if dim % 2 else "theta must be a finite number from 1"
    ):
        Rotary(dim, theta=theta)


@untimed
@given(st.integers(0, 6), dims, st.integers(1, 12))
def test_relative_positions_pick_the_row_of_the_clipped_distance(clip: int, dim: int, length: int) -> None:
    values = normal(2 * clip + 1, dim)
    kind = Relative(dim, Plain(values), clip=clip)
    every = np.arange(length)
    distances, rows = kind.distances(every, every), kind.rows(every, every)
    assert rows.shape == (length, length, dim)
    for i in range(length):
        for j in range(length):
            distance = max(-clip, min(clip, j - i))
            assert distances[i, j] == distance
            assert rows[i, j].tobytes() == values[distance + clip].tobytes()


def test_learned_positions_are_added_and_none_change_nothing() -> None:
    tokens, values, at = normal(2, 4), normal(9, 4, seed=1), np.array([7, 0])
    learned = Learned(4, Plain(values))
    assert learned.rows(at).tobytes() == values[[7, 0]].tobytes()
    assert learned.joined(tokens, at).tobytes() == (tokens + values[[7, 0]]).tobytes()
    assert NoPositions(4).joined(tokens, at).tobytes() == tokens.tobytes()
    assert (learned.columns, Sinusoidal(4).columns, Rotary(4).columns) == (4, 4, 2)


def test_a_layer_that_is_not_open_is_an_error() -> None:
    with pytest.raises(LayerError, match="there is no position layer"):
        Learned(4).rows(np.array([0]))


@pytest.mark.parametrize("name", [*KINDS, *JOINED_KINDS])
def test_each_kind_takes_its_own_options_and_refuses_those_of_others(name: Any) -> None:
    kind = shown_kind(name) if name in KINDS else joined_kind(name)
    values = {"clip": 3, "heads": 3, "pairing": "halves", "theta": 5.0, "ids": "1"}
    for option, value in values.items():
        if option in kind.options:
            check_options(name, **{option: value})
            assert option == "ids" or kind.of(4, values).document()[option] == value
        else:
            with pytest.raises(InputError, match=f"^{option} is an option of .* positions, not of {name}"):
                check_options(name, **{option: value})
    check_options(name, **dict.fromkeys(values))


@pytest.mark.parametrize(("pairing", "pairs"), [("interleaved", ((0, 1), (2, 3))), ("halves", ((0, 2), (1, 3)))])
def test_a_models_own_rotation_turns_the_first_columns_of_each_head_alike(pairing: Pairing, pairs: Any) -> None:
    """Two heads of six columns, of which four are rotated, and three columns that are no head."""
    rotation = Rotation(pairing, 500.0, head=6, rates=(1.0, 0.1))
    rows, at = np.random.default_rng(1).standard_normal((3, 15), np.float32), np.array([0, 2, 7])
    wanted = rows.astype(np.float64)
    for row, position in zip(wanted, at.tolist(), strict=True):
        for head in (0, 6):
            for (first, second), rate in zip(pairs, rotation.rates, strict=True):
                turned = complex(row[head + first], row[head + second]) * cmath.exp(1j * rate * position)
                row[head + first], row[head + second] = turned.real, turned.imag
    np.testing.assert_allclose(model_rotary(rotation, 15, None).joined(rows, at), wanted, rtol=1e-6)

"""Positions: each kind against torch or a formula of another form, its pages, what is refused."""

from __future__ import annotations

import math
import re
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, strategies as st

import embcli
from embcli.files.families import FAMILIES
from embcli.model import Model
from embcli.positions import KINDS
from embcli.positions.rotary import rotated_rows
from embcli.positions.sinusoidal import waves
from embcli.recipe import SinusoidFormula
from embcli.seeded_layers.seeded import Seeded
from embcli.verbs.positions import PositionTable
from tests.cases import cases
from tests.oracles import Stub, StubSource, assert_same_bits, gathered, gathered_field, live, normal

V = 50
T = 40
D = 6
dims = st.integers(1, 40)
even_dims = st.integers(1, 20).map(lambda half: 2 * half)
places = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)
pairings = st.sampled_from(["interleaved", "halves"])


@given(dims, places)
def test_sinusoidal_rows_are_those_of_the_papers_formula(dim, positions):
    found = waves(dim, np.array(positions)).astype(np.float32)

    assert found.dtype == np.float32
    for row, position in zip(found.tolist(), positions, strict=True):
        for column, value in enumerate(row):
            pair, is_cosine = divmod(column, 2)
            angle = position / 10000 ** (2 * pair / dim)
            expected = math.cos(angle) if is_cosine else math.sin(angle)
            assert abs(value - expected) < 1e-6


def test_the_formulas_of_families_are_known():
    assert {family.sinusoid_formula for family in FAMILIES} <= {*get_args(SinusoidFormula)}


@given(even_dims, pairings, places, st.floats(1, 1e6))
def test_rotary_positions_multiply_pairs_as_complex_numbers(dim, pairing, at, theta):
    pairs = np.arange(dim // 2)
    firsts = pairs
    seconds = pairs + dim // 2
    if pairing == "interleaved":
        firsts = 2 * pairs
        seconds = 2 * pairs + 1
    row = normal(1, dim)
    values = row[0].astype(np.float64)

    found = rotated_rows(row, pairing, theta, np.array(at))

    frequencies = theta ** (-2 * pairs / dim)
    angles = np.outer(at, frequencies)
    numbers = values[firsts] + 1j * values[seconds]
    turned = numbers * np.exp(1j * angles)
    np.testing.assert_allclose(found[:, firsts], turned.real, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[:, seconds], turned.imag, rtol=0, atol=1e-9)


def test_rotary_positions_turn_an_infinite_weight_without_a_warning():
    row = np.array([[np.inf, 1]], np.float32)

    turned = rotated_rows(row, "halves", 1e4, np.array([1]))

    assert not np.isfinite(turned).any()


# --- the matrices of the verb ---------------------------------------------------------------------


TOKEN_ROWS = live(Seeded(V, D))["token"]


def table(kind: Any, dim: int = D, length: int = T, **more: Any) -> PositionTable:
    """Return positions of a kind, of a small model."""
    model = embcli.seeded(vocab=V, dim=dim)
    return model.positions(kind, context_length=length, **more)


def matrices_of(result: PositionTable) -> dict[str, np.ndarray]:
    """Return the matrices of a result, which are also those of its records."""
    records = result._records()
    found = gathered(records)
    assert gathered_field(records, "position") == result.chosen.tolist()
    for name, values in found.items():
        assert np.array_equal(getattr(result, name), values)
    return found


def test_learned_positions_are_rows_of_the_layer():
    layers = live(Seeded(V, D, T))

    found = matrices_of(table("learned"))

    assert_same_bits(found["position"], layers["position"])


def test_sinusoidal_positions_are_rows_of_the_formula():
    result = table("sinusoidal", dim=7)

    found = matrices_of(result)
    expected = waves(7, np.arange(T)).astype(np.float32)
    assert_same_bits(found["position"], expected)
    assert "seed" not in result._records().run
    with pytest.raises(AttributeError, match="its matrices: position"):
        _ = result.similarity


def test_relative_positions_are_rows_of_a_seeded_layer_by_clipped_distance():
    positions = np.arange(T)
    distances = np.subtract.outer(positions, positions)
    clipped = np.clip(-distances, -16, 16)
    layers = live(Seeded(V, D, 33))

    found = matrices_of(table("relative"))

    assert found["distance"].tolist() == clipped.tolist()
    assert_same_bits(found["position"], layers["position"][clipped + 16])


def test_similarity_of_relative_positions_is_the_product_with_a_token_row():
    token_row = TOKEN_ROWS[9].astype(np.float64)
    rows = table("relative").position.astype(np.float64)

    found = matrices_of(table("relative", ids="9", similarity=True))

    np.testing.assert_allclose(found["similarity"], rows @ token_row, rtol=1e-6)
    lengths = np.linalg.norm(rows, axis=2) * np.linalg.norm(token_row)
    cosines = table("relative", ids="9", similarity=True, metric="cosine").similarity
    np.testing.assert_allclose(cosines, rows @ token_row / lengths, rtol=1e-6)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@cases
def test_rotary_positions_are_angles_and_the_turned_row_of_a_token(pairing, token_id, row):
    token_row = TOKEN_ROWS[[row]]
    turned = rotated_rows(token_row, pairing, 50.0, np.arange(T))
    exponents = -2 * np.arange(D // 2) / D
    frequencies = 50.0**exponents
    angles = np.outer(np.arange(T), frequencies)

    result = table("rotary", pairing=pairing, theta=50.0, ids=token_id)

    found = matrices_of(result)
    np.testing.assert_allclose(found["position"], angles, rtol=1e-6)
    assert_same_bits(found["input"], turned.astype(np.float32))
    assert_same_bits(found["input"][:1], token_row)
    assert result._records().default == "position"


@cases
def test_a_column_of_rotary_positions_is_a_pair_of_the_turned_row(pairing, columns):
    whole = table("rotary", pairing=pairing, ids=7)

    result = table("rotary", pairing=pairing, ids=7, rows="3,1", columns="2,0")

    chosen = matrices_of(result)
    angles = whole.position[[3, 1]]
    turned = whole.input[[3, 1]]
    assert_same_bits(chosen["position"], angles[:, [2, 0]])
    assert_same_bits(chosen["input"], turned[:, columns])


@cases
def test_similarity_is_the_dot_product_of_what_two_positions_become(kind, name):
    matrix = getattr(table(kind), name)
    vectors = matrix.astype(np.float64)

    found = matrices_of(table(kind, similarity=True))

    products = vectors @ vectors.T
    np.testing.assert_allclose(found["similarity"], products, atol=2e-5)
    lengths = np.sqrt((vectors * vectors).sum(axis=1))
    cosines = table(kind, similarity=True, metric="cosine").similarity
    np.testing.assert_allclose(cosines, products / np.outer(lengths, lengths), atol=2e-6)


def test_a_row_of_zeros_has_no_cosine():
    rows = Stub([[3, 4], [0, 0], [4, 3]])
    layers = Model(StubSource({"token": rows, "position": rows}))

    found = layers.positions(similarity=True, metric="cosine").similarity

    expected = np.float32([[1, np.nan, 0.96], [np.nan] * 3, [0.96, np.nan, 1]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@cases
def test_chosen_similarities_are_those_of_the_whole(kind):
    whole = table(kind, similarity=True).similarity

    result = table(kind, similarity=True, rows="5,2", columns="0,39,7")

    chosen = matrices_of(result)
    rows = whole[[5, 2]]
    expected = rows[:, [0, 39, 7]]
    np.testing.assert_allclose(chosen["similarity"], expected, atol=1e-6)


@pytest.mark.parametrize("similarity", [False, True])
@cases
def test_all_positions_are_there_unless_a_length_is_given(kind, count, similarity):
    model = embcli.seeded(vocab=V, dim=64)

    result = model.positions(kind, similarity=similarity)

    for spec in result._records().matrices.values():
        assert spec.shape[0] == count


@cases
def test_similarities_lose_decimals_before_columns(in_process, columns, options, diagonal):
    command = ("positions", "sinusoidal", "--similarity", "--metric", "cosine", *options)

    page = in_process.ok(*command, COLUMNS=str(columns)).text

    assert re.findall(r"^ *0  │ +(\S+)", page, re.MULTILINE) == [diagonal]
    assert ("Left out: columns" in page) == (columns == 80 or bool(options))


# --- on a page ------------------------------------------------------------------------------------


@cases
def test_a_page_says_what_a_kind_is(snapshot, name, kind, more):
    page = str(table(kind, **more))

    snapshot(f"positions/{name}", page)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_shows_16_positions_unless_a_length_is_given(snapshot, kind):
    model = embcli.seeded(vocab=V, dim=4, context_length=T)

    result = model.positions(kind)

    snapshot(f"positions/{kind}-without-length.txt", str(result))


@pytest.mark.parametrize("kind", ["relative", "rotary"])
def test_a_screen_has_both_matrices_side_by_side(in_process, snapshot, kind):
    screen = {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "terminal": True}

    printed = in_process.ok("positions", kind, suggestions=True, **screen).text

    assert printed.count("\n") == 22, "below the command, above the next prompt"
    snapshot(f"positions/{kind}-screen.txt", printed)


CHOSEN = ("positions", "sinusoidal", "--dim", "4", "--rows")


def test_chosen_rows_are_shown_where_they_are(in_process, snapshot):
    snapshot("positions/chosen-rows.txt", in_process.ok(*CHOSEN, "1000,1023").text)


def test_the_name_of_a_kind_is_that_kind_also_beside_a_file_of_this_name(
    in_process, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    page = in_process.ok("positions", "rotary", "--dim", "4").text
    (tmp_path / "rotary").touch()

    assert in_process.ok("positions", "rotary", "--dim", "4").text == page


@cases
def test_capitals_in_the_name_of_a_kind_do_not_count(in_process, named, kind):
    expected = in_process.ok("positions", kind, "--dim", "4", "--rows", "0:2").text
    assert in_process.ok("positions", named, "--dim", "4", "--rows", "0:2").text == expected

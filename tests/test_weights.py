"""The weight matrix: its rows are those of torch's layer, also in the order of their norms."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import embcli
from embcli import encodings
from embcli.model import Model
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from tests.oracles import assert_same_bits, gathered, gathered_field, live
from tests.runners import InProcess
from tests.snapshots import Snapshot

SMALL = ("weights", "--vocab", "1000", "--dim", "4")
POSITION_ROWS = ("weights", "--layer", "position", "--dim", "2", "--rows", "0:3")


def numbers_below(count: int) -> st.SearchStrategy[list[int]]:
    """Return lists of some row or column numbers, in any order and also twice."""
    return st.lists(st.integers(0, count - 1), min_size=1, max_size=6)


@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.sampled_from(["token", "position"]))
def test_rows_are_those_of_torchs_layer(
    data: st.DataObject, size: int, dim: int, name: str
) -> None:
    seeded = Seeded(size, dim, 7)
    row_count, _ = seeded.shape(name)
    rows = data.draw(numbers_below(row_count))
    columns = data.draw(numbers_below(dim))
    rows_in_words = ",".join(map(str, rows))
    columns_in_words = ",".join(map(str, columns))

    model = Model(SeededSource(seeded))
    matrix = model.weights(layer=name, rows=rows_in_words, columns=columns_in_words)

    chosen_rows = live(seeded)[name][rows]
    expected = chosen_rows[:, columns]
    records = matrix.records()
    assert_same_bits(matrix.rows(matrix.ids), expected)
    assert_same_bits(gathered(records)[name], expected)
    assert gathered_field(records, "id") == rows


def test_200_chosen_rows_are_all_on_the_page() -> None:
    model = embcli.seeded(vocab=1000, dim=4)

    page = str(model.weights(rows="300:500"))

    header = 1
    assert page.count("│") == header + 200
    assert "Left out" not in page


def test_of_201_chosen_rows_the_one_in_the_middle_is_left_out() -> None:
    model = embcli.seeded(vocab=1000, dim=4)

    page = str(model.weights(rows="300:501"))

    header = 1
    dots = 1
    assert page.count("│") == header + 200 + dots
    assert "row 400 (1 of 201)" in page


@pytest.mark.parametrize("length", [1024, 50257])
def test_a_position_row_stands_for_no_token(in_process: InProcess, length: int) -> None:
    words = (*POSITION_ROWS, "--context-length", str(length))

    document = json.loads(in_process.ok(*words, "-f", "json").out)

    assert document["run"]["encoding"] is None
    assert [*document["rows"][0]] == ["id"]


@pytest.mark.parametrize("length", [1024, 50257])
def test_only_the_token_layer_has_an_encoding(length: int) -> None:
    seeded = Seeded(50257, 2, length)
    model = Model(SeededSource(seeded, None, encodings.get("gpt2")))

    assert model.weights(layer="position").encoding is None
    assert model.weights().encoding is not None


def test_a_page_of_positions_counts_them(in_process: InProcess, snapshot: Snapshot) -> None:
    snapshot("weights/position-rows.txt", in_process.ok(*POSITION_ROWS).text)


def test_the_summary_is_that_of_torch() -> None:
    seeded = Seeded(100, 7, seed=9)
    layer = torch.from_numpy(live(seeded)["token"]).double()

    summary = Model(SeededSource(seeded)).weights().summary

    assert summary.mean == pytest.approx(float(layer.mean()), rel=1e-9)
    assert summary.std == pytest.approx(float(layer.std()), rel=1e-9)
    assert summary.minimum == float(layer.min())
    assert summary.maximum == float(layer.max())


# --- in the order of norms ------------------------------------------------------------------------

NAN_ROW = 7
INFINITE_ROW = 14_000


@pytest.fixture(params=[1, 40])
def repeated_rows(request: pytest.FixtureRequest) -> np.ndarray:
    """Return a matrix whose rows are in several blocks of a pass; two of them have no norm."""
    random = np.random.default_rng(request.param)
    rows = random.standard_normal((17, request.param), np.float32)
    matrix = rows[random.integers(0, 17, 14_001)]
    matrix[NAN_ROW, -1] = np.nan
    matrix[INFINITE_ROW, -1] = -np.inf
    return matrix


def norms_of(matrix: np.ndarray) -> list[float]:
    """Return the norm of each row, as exactly as Python can add."""
    norms = []
    for row in matrix.tolist():
        squares = [value**2 for value in row]
        norms.append(math.sqrt(math.fsum(squares)))
    return norms


def order_of(norms: list[float]) -> list[int]:
    """Return the rows by norm, the largest first, with those that have none at the end."""

    def sort_key(row: int) -> tuple[bool, float, int]:
        return not math.isfinite(norms[row]), -norms[row], row

    return sorted(range(len(norms)), key=sort_key)


def test_rows_are_sorted_by_norm(
    in_process: InProcess, tmp_path: Path, repeated_rows: np.ndarray
) -> None:
    file = tmp_path / "own.npy"
    np.save(file, repeated_rows)
    norms = norms_of(repeated_rows)
    order = order_of(norms)

    ran = in_process("weights", str(file), "--sort", "norm", "-f", "ndjson")

    assert "no NaN" in ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["id"] for row in rows] == order
    assert [row["rank"] for row in rows] == [*range(1, len(norms) + 1)]
    found = [row["norm"] for row in rows]
    expected = [norms[row] for row in order[:-2]]
    assert found[:-2] == pytest.approx(expected, rel=1e-15)
    assert found[-2:] == [None, None]


def test_chosen_rows_are_sorted_by_norm_and_keep_their_ranks(
    tmp_path: Path, repeated_rows: np.ndarray
) -> None:
    file = tmp_path / "own.npy"
    np.save(file, repeated_rows)
    order = order_of(norms_of(repeated_rows))

    found = embcli.open(file).weights(sort="norm", rows="5,7,2,5")

    ids = found.ids.tolist()
    assert ids == sorted([5, 7, 2, 5], key=order.index)
    assert found.order.ranks[ids].tolist() == [order.index(row) + 1 for row in ids]


def test_the_norms_are_those_of_an_audit(tmp_path: Path, repeated_rows: np.ndarray) -> None:
    np.save(tmp_path / "own.npy", repeated_rows)
    model = embcli.open(tmp_path / "own.npy")

    norms = model.weights(sort="norm").order.norms

    assert np.array_equal(norms, model.audit().norms, equal_nan=True)


def test_a_page_in_the_order_of_norms_shows_both_ends(
    in_process: InProcess, snapshot: Snapshot
) -> None:
    snapshot("weights/sorted-by-norm.txt", in_process.ok(*SMALL, "--sort", "norm").text)


def test_a_summary_is_the_same_in_any_order() -> None:
    model = embcli.seeded(vocab=1000, dim=4)

    by_id = model.weights().summary
    by_norm = model.weights(sort="norm").summary

    assert by_id.mean == by_norm.mean
    assert by_id.std == by_norm.std
    assert by_id.minimum == by_norm.minimum
    assert by_id.maximum == by_norm.maximum

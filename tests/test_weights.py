"""The weight matrix: its rows are those of torch's layer, also in the order of their norms."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import embcli
from embcli import encodings
from embcli.model import Model
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from tests.cases import cases
from tests.oracles import assert_same_bits, gathered, gathered_field, live
from tests.readers import from_ndjson


def numbers_below(count: int) -> st.SearchStrategy[list[int]]:
    """Return lists of some row or column numbers, in any order and also twice."""
    return st.lists(st.integers(0, count - 1), min_size=1, max_size=6)


@cases
def test_numbers_have_fewer_decimals_if_all_columns_fit_then(
    in_process, command, decimals, columns
):
    page = in_process.ok(*command.split(), COLUMNS="80").text
    numbers = re.findall(r"│ +-?\d+\.(\d+)", page)
    assert {len(number) for number in numbers} == {decimals}
    assert re.search(r"│ +" + " +".join(columns.split()) + "\n", page)
    missing = 4 - decimals
    assert (f"{missing} of 4 decimals." in page) == (missing > 0)


@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.sampled_from(["token", "position"]))
def test_rows_are_those_of_torchs_layer(data, size, dim, name):
    seeded = Seeded(size, dim, 7)
    row_count, _ = seeded.shapes[name]
    rows = data.draw(numbers_below(row_count))
    columns = data.draw(numbers_below(dim))
    rows_in_words = ",".join(map(str, rows))
    columns_in_words = ",".join(map(str, columns))

    model = Model(SeededSource(seeded))
    matrix = model.weights(layer=name, rows=rows_in_words, columns=columns_in_words)

    chosen_rows = live(seeded)[name][rows]
    expected = chosen_rows[:, columns]
    records = matrix._records()
    assert_same_bits(matrix.rows(matrix.ids), expected)
    assert_same_bits(gathered(records)[name], expected)
    assert gathered_field(records, "id") == rows


@cases
def test_of_more_than_200_chosen_rows_those_in_the_middle_are_left_out(rows, lines, count):
    model = embcli.seeded(vocab=1000, dim=4)

    page = str(model.weights(rows=rows))

    header = 1
    assert page.count("│") == header + lines
    assert page.count("row 400 (1 of 201)") == count


@cases
def test_only_the_token_layer_has_an_encoding(length):
    seeded = Seeded(50257, 2, length)
    model = Model(SeededSource(seeded, None, encodings.get("gpt2")))

    assert model.weights(layer="position").encoding is None
    assert model.weights().encoding is not None


def test_a_page_of_positions_counts_them(in_process, snapshot):
    ran = in_process.ok("weights", "--layer", "position", "--dim", "2", "--rows", "0:3")

    snapshot("weights/position-rows.txt", ran.text)


# --- in the order of norms ------------------------------------------------------------------------

NAN_ROW = 7
INFINITE_ROW = 14_000


@pytest.fixture(params=[1, 40])
def own_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a file whose rows are in several blocks of a pass; two of them have no norm."""
    random = np.random.default_rng(request.param)
    rows = random.standard_normal((17, request.param), np.float32)
    matrix = rows[random.integers(0, 17, 14_001)]
    matrix[NAN_ROW, -1] = np.nan
    matrix[INFINITE_ROW, -1] = -np.inf
    np.save(tmp_path / "own.npy", matrix)
    return tmp_path / "own.npy"


def norms_of(file: Path) -> list[float]:
    """Return the norm of each row of a file, as exactly as Python can add."""
    norms = []
    for row in np.load(file).tolist():
        squares = [value**2 for value in row]
        norms.append(math.sqrt(math.fsum(squares)))
    return norms


def order_of(norms: list[float]) -> list[int]:
    """Return the rows by norm, the largest first, with those that have none at the end."""

    def sort_key(row: int) -> tuple[bool, float, int]:
        return not math.isfinite(norms[row]), -norms[row], row

    return sorted(range(len(norms)), key=sort_key)


def test_rows_are_sorted_by_norm(in_process, own_file):
    norms = norms_of(own_file)
    order = order_of(norms)

    ran = in_process("weights", str(own_file), "--sort", "norm", "--columns", "0", "-f", "ndjson")

    assert "no NaN" in ran.err
    rows = from_ndjson(ran.out)
    assert [row["id"] for row in rows] == order
    for rank, row in enumerate(rows, 1):
        assert row["rank"] == rank
    found = [row["norm"] for row in rows]
    expected = [norms[row] for row in order[:-2]]
    assert found[:-2] == pytest.approx(expected, rel=1e-15)
    assert found[-2:] == [None, None]


def test_chosen_rows_are_sorted_by_norm_and_keep_their_ranks(own_file):
    order = order_of(norms_of(own_file))

    found = embcli.open(own_file).weights(sort="norm", rows="5,7,2,5")

    ids = found.ids.tolist()
    assert ids == sorted([5, 7, 2, 5], key=order.index)
    for row in ids:
        assert found.order.ranks[row] == order.index(row) + 1


def test_a_page_in_the_order_of_norms_shows_both_ends(in_process, snapshot):
    ran = in_process.ok("weights", "--vocab", "1000", "--dim", "4", "--sort", "norm")

    snapshot("weights/sorted-by-norm.txt", ran.text)


@pytest.mark.parametrize("heat", [False, True])
@pytest.mark.parametrize("format", ["svg", "html"])
def test_a_file_shows_all_rows_that_fit_a_slide(heat, format):
    def shown(vocabulary_size: int) -> str:
        result = embcli.seeded(vocabulary_size, 3).weights().styled(heat=heat)
        return result.page(format).decode().replace("&#160;", " ")

    assert "Left out" not in shown(40)
    assert "Left out: row 20 (1 of 41)" in shown(41)

"""The weight matrix: its rows are those of torch's layer, a page shows those that were chosen, and a row's token.

Sorted, the rows are in the order of their norms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
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
from tests.oracles import assert_same_bits, live
from tests.runners import InProcess


@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.sampled_from(["token", "position"]))
def test_rows_are_those_of_torchs_layer(
    data: st.DataObject, size: int, dim: int, name: str
) -> None:
    spec = Seeded(size, dim, 7)
    rows = data.draw(st.lists(st.integers(0, spec.shape(name)[0] - 1), min_size=1, max_size=6))
    columns = data.draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=6))
    chosen = {"rows": ",".join(map(str, rows)), "columns": ",".join(map(str, columns))}
    found = Model(SeededSource(spec)).weights(layer=name, **chosen)
    expected = live(spec)[name][rows][:, columns]
    assert_same_bits(found.rows(found.ids), expected)
    pieces = list(found.records().pieces(("id",), (name,)))
    assert_same_bits(np.concatenate([piece.matrices[name] for piece in pieces]), expected)
    assert np.concatenate([piece.fields["id"] for piece in pieces]).tolist() == rows


def shown(page: str) -> tuple[list[str], list[list[str]]]:
    """Return the labels before the bar and the numbers after it, line by line, without dots."""
    lines = [line.split("│") for line in page.splitlines() if re.search(r"│.*\d\.\d", line)]
    return [" ".join(labels.split()) for labels, _ in lines], [
        numbers.split() for _, numbers in lines
    ]


@pytest.mark.parametrize(
    ("count", "places"),
    [(150, range(150)), (200, range(200)), (201, [*range(100), *range(101, 201)])],
)
def test_chosen_rows_are_on_the_page_up_to_200(
    in_process: InProcess, count: int, places: Sequence[int]
) -> None:
    layer = live(Seeded(1000, 4))["token"]
    printed = in_process.ok(
        "weights", "--vocab", "1000", "--dim", "4", "--rows", f"300:{300 + count}"
    ).text
    assert "standard deviation" not in printed  # of the whole matrix, which takes a pass
    rows = [300 + place for place in places]
    assert shown(printed) == (
        [*map(str, rows)],
        [[f"{value:.4f}" for value in row] for row in layer[rows]],
    )
    assert ("Left out: row 400 (1 of 201)." in printed) == (count > 200)


def test_a_whole_matrix_is_shown_in_short(in_process: InProcess) -> None:
    printed = in_process.ok("weights").text
    assert len(shown(printed)[0]) == 10
    assert printed.startswith(
        "Token weight matrix: V = 50,257 tokens, one row each, D = 256 columns\n"
    )
    assert "rows 5 to 50251 (50,247 of 50,257)" in printed
    assert "seed 123, 12,865,792 parameters (float32), 51.5 MB" in printed


@pytest.mark.parametrize("length", ["1024", "50257"])
def test_a_position_row_stands_for_no_token(in_process: InProcess, length: str) -> None:
    arguments = (
        "weights",
        "--layer",
        "position",
        "--context-length",
        length,
        "--dim",
        "2",
        "--rows",
        "0:3",
    )
    document = json.loads(in_process.ok(*arguments, "-f", "json").out)
    assert document["run"]["encoding"] is None
    assert [*document["rows"][0]] == ["id"]
    assert shown(in_process.ok(*arguments).text)[0] == ["0", "1", "2"]
    source = SeededSource(Seeded(50257, 2, int(length)), None, encodings.get("gpt2"))
    assert Model(source).weights(layer="position").encoding is None
    assert Model(source).weights().encoding is not None


def test_the_summary_is_torch_s(in_process: InProcess) -> None:
    layer = torch.from_numpy(live(Seeded(100, 7, 5, 9))["token"]).double()
    printed = in_process.ok(
        "weights", "--vocab", "100", "--dim", "7", "--seed", "9", "--precision", "6"
    ).text
    mean, std, low, high = (
        f"{float(each):.6f}" for each in (layer.mean(), layer.std(), layer.min(), layer.max())
    )
    assert f"mean {mean}, standard deviation {std}, minimum {low}, maximum {high}\n" in printed


@pytest.mark.parametrize("dim", [1, 40])
def test_rows_are_sorted_by_norm(in_process: InProcess, tmp_path: Path, dim: int) -> None:
    """Equal rows are in several blocks of the pass; a row of NaN and one of infinity have no norm."""
    random = np.random.default_rng(dim)
    matrix = random.standard_normal((17, dim), np.float32)[random.integers(0, 17, 14_001)]
    matrix[[7, 14_000], -1] = np.nan, -np.inf
    np.save(tmp_path / "own.npy", matrix)
    norms = [math.sqrt(math.fsum(value**2 for value in row)) for row in matrix.tolist()]
    expected = sorted(range(len(norms)), key=lambda row: (row in (7, 14_000), -norms[row], row))
    ran = in_process("weights", str(tmp_path / "own.npy"), "--sort", "norm", "-f", "ndjson")
    assert "no NaN" in ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert [row["id"] for row in rows] == expected
    assert [row["rank"] for row in rows] == [*range(1, len(norms) + 1)]
    assert [row["norm"] for row in rows[-2:]] == [None, None]
    assert [row["norm"] for row in rows[:-2]] == pytest.approx(
        [norms[row] for row in expected[:-2]], rel=1e-15
    )
    found = embcli.open(tmp_path / "own.npy").weights(sort="norm", rows="5,7,2,5")
    assert found.ids.tolist() == sorted([5, 7, 2, 5], key=expected.index)
    assert found.order.ranks[found.ids].tolist() == [expected.index(row) + 1 for row in found.ids]
    assert np.array_equal(
        found.order.norms, embcli.open(tmp_path / "own.npy").audit().norms, equal_nan=True
    )


def test_a_page_in_the_order_of_norms_shows_both_ends(in_process: InProcess) -> None:
    layer = live(Seeded(1000, 4))["token"]
    norms = np.linalg.norm(layer.astype(np.float64), axis=1)
    order = np.argsort(-norms)
    printed = in_process.ok("weights", "--vocab", "1000", "--dim", "4", "--sort", "norm").text
    places = [*range(5), *range(995, 1000)]
    labels = [f"{order[place]} {norms[order[place]]:.4f} {place + 1}" for place in places]
    assert shown(printed) == (
        labels,
        [[f"{value:.4f}" for value in row] for row in layer[order[places]]],
    )
    assert "Left out: ranks 6 to 995 (990 of 1,000)." in printed
    plain = in_process.ok("weights", "--vocab", "1000", "--dim", "4").text
    (summary,) = (line for line in plain.splitlines() if line.startswith("mean "))
    assert summary in printed

"""The weight matrix: its rows are those of torch's layer, a page shows those that were chosen, and a row's token."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli import encodings
from embcli.verbs.weights import weights
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.conftest import Embcli
from tests.oracles import assert_same_bits, live, stub
from tests.screen import check_left_out, grids


@settings(deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.sampled_from(["token", "position"]))
def test_rows_are_those_of_torchs_layer(data: st.DataObject, size: int, dim: int, name: str) -> None:
    spec = Seeded(size, dim, 7)
    rows = data.draw(st.lists(st.integers(0, spec.shape(name)[0] - 1), min_size=1, max_size=6))
    columns = data.draw(st.lists(st.integers(0, dim - 1), min_size=1, max_size=6))
    found = weights(SeededSource(spec), name, ",".join(map(str, rows)), ",".join(map(str, columns)))
    expected = live(spec)[name][rows][:, columns]
    assert_same_bits(found.rows(found.ids), expected)
    pieces = list(found.records().pieces(("id",), (name,)))
    assert_same_bits(np.concatenate([piece.matrices[name] for piece in pieces]), expected)
    assert np.concatenate([piece.fields["id"] for piece in pieces]).tolist() == rows


@pytest.mark.parametrize("rows", [11, 40, 150, 200])
def test_all_chosen_rows_are_on_the_page(inside: Embcli, rows: int) -> None:
    layer = live(Seeded(1000, 4))["token"]
    sizes = ("--vocab", "1000", "--dim", "4")
    printed = inside.ok("weights", *sizes, "--rows", f"300:{300 + rows}").text
    (table,) = grids(printed, 120)
    assert [int(label[0]) for label in table.labels] == [*range(300, 300 + rows)]
    table.check(layer[300 : 300 + rows])
    assert "Left out" not in printed


def test_more_rows_than_a_page_holds_are_left_out_in_the_middle(inside: Embcli) -> None:
    printed = inside.ok("weights", "--vocab", "1000", "--dim", "4", "--rows", "0:201").text
    (table,) = grids(printed, 120)
    rows = [int(label[0]) for label in table.labels]
    assert rows == [*range(100), *range(101, 201)]
    check_left_out(printed, "row", rows, 201)
    assert "--rows picks, -f npy gives all." in printed


def test_a_whole_matrix_is_shown_in_short(inside: Embcli) -> None:
    printed = inside.ok("weights").text
    (table,) = grids(printed, 120)
    assert len(table.values) == 10
    assert printed.startswith("Token weight matrix: V = 50,257 tokens, one row each, D = 256 columns\n")
    assert "rows 5 to 50251 (50,247 of 50,257)" in printed
    assert "--rows and --columns pick, -f npy gives all." in printed
    assert "seed 123, 12,865,792 parameters (float32), 51.5 MB" in printed


def test_a_token_row_has_the_token_of_its_encoding(inside: Embcli) -> None:
    gpt2 = encodings.get("gpt2").tiktoken
    document = json.loads(inside.ok("weights", "--dim", "2", "--rows", "0,345,50256", "-f", "json").out)
    assert [row["token"] for row in document["rows"]] == [gpt2.decode([each]) for each in (0, 345, 50256)]
    assert document["run"]["encoding"] == "gpt2"


@pytest.mark.parametrize("length", ["1024", "50257"])
def test_a_position_row_stands_for_no_token(inside: Embcli, length: str) -> None:
    arguments = ("weights", "--layer", "position", "--context-length", length, "--dim", "2", "--rows", "0:3")
    document = json.loads(inside.ok(*arguments, "-f", "json").out)
    assert document["run"]["encoding"] is None
    assert [*document["rows"][0]] == ["id"]
    (table,) = grids(inside.ok(*arguments).text, 120)
    assert table.labels == [["0"], ["1"], ["2"]]
    source = SeededSource(Seeded(50257, 2, int(length)), None, encodings.get("gpt2"))
    assert weights(source, "position").encoding is None
    assert weights(source, "token").encoding is not None


def test_the_summary_is_torch_s(inside: Embcli) -> None:
    layer = torch.from_numpy(live(Seeded(100, 7, 5, 9))["token"]).double()
    printed = inside.ok("weights", "--vocab", "100", "--dim", "7", "--seed", "9", "--precision", "6").text
    mean, std, low, high = (f"{float(each):.6f}" for each in (layer.mean(), layer.std(), layer.min(), layer.max()))
    assert f"mean {mean}, standard deviation {std}, minimum {low}, maximum {high}\n" in printed


def test_a_source_is_asked_for_any_row() -> None:
    source = stub(np.eye(3), np.eye(3))
    found = weights(source, "token", "2,0")
    assert source.asked == {"token": None}
    assert found.rows(found.ids).tolist() == np.eye(3)[[2, 0]].tolist()
    assert found.summary.maximum == 1

"""The lookup: its rows are those of torch's own layers, and input = token + position, bit for bit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli import encodings
from embcli.errors import InputError, LayerError
from embcli.oldpage import Paper
from embcli.oldpage.terminal import Terminal
from embcli.options import LookupOptions
from embcli.positions.learned import Learned
from embcli.text import Sequences
from embcli.tokens import tokenize
from embcli.verbs.lookup import Lookup, look_up
from embcli.verbs.weights import weights
from embcli.views.lookup import view
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.oracles import Stub, StubSource, assert_same_bits, live, of_ids, stub

if TYPE_CHECKING:
    from tests.conftest import Embcli

untimed = settings(deadline=None)
TRACED = re.compile(r"^ *(\d+) +(-?[\d.]+) \+ +(-?[\d.]+) = +(-?[\d.]+)$", re.MULTILINE)


def everything(result: Lookup) -> dict[str, np.ndarray]:
    return result.rows(np.arange(len(result.tokens)))


def layers_of(spec: Seeded) -> tuple[np.ndarray, np.ndarray]:
    layers = live(spec)
    return layers["token"], layers["position"]


def page_of(result: Lookup, precision: int = 4) -> str:
    page = Terminal(Paper(100, precision=precision))
    view(result, page)
    return page.content().decode()


@untimed
@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2**64 - 1))
def test_rows_are_those_of_torchs_layers(data: st.DataObject, size: int, dim: int, length: int, seed: int) -> None:
    spec = Seeded(size, dim, length, seed)
    sequences = data.draw(st.lists(st.lists(st.integers(0, size - 1), max_size=length), max_size=4))
    columns = data.draw(st.lists(st.integers(0, dim - 1), max_size=4))
    token, position = layers_of(spec)
    chosen = columns or [*range(dim)]
    ids = [token_id for each in sequences for token_id in each]
    places = [place for each in sequences for place in range(len(each))]
    expected = {"token": token[ids][:, chosen], "position": position[places][:, chosen]}
    expected["input"] = (torch.tensor(token[ids]) + torch.tensor(position[places])).numpy()[:, chosen]

    result = look_up(of_ids(*sequences), SeededSource(spec), LookupOptions(columns=",".join(map(str, columns)) or None))
    found = everything(result)
    for name in ("token", "position", "input"):
        assert_same_bits(found[name], expected[name])
        pieces = [piece.matrices[name].copy() for piece in result.records().pieces((), (name,))]
        assert_same_bits(np.concatenate([np.empty((0, len(chosen)), np.float32), *pieces]), expected[name])


@untimed
@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_rows_are_rows_of_the_weight_matrix(data: st.DataObject, size: int, dim: int, seed: int) -> None:
    source = SeededSource(Seeded(size, dim, 8, seed))
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=8))
    found = everything(look_up(of_ids(ids), source))
    for name, rows in (("token", np.array(ids, np.int64)), ("position", np.arange(len(ids)))):
        shown = weights(source, name, None)
        assert found[name].tobytes() == shown.rows(shown.ids)[rows].tobytes()


def test_text_picks_the_rows_of_its_ids() -> None:
    gpt2 = encodings.get("gpt2")
    spec = Seeded(gpt2.vocabulary_size, 3)
    result = look_up(tokenize(Sequences(texts=("Every effort moves you",)), gpt2), SeededSource(spec))
    token, position = layers_of(spec)
    assert everything(result)["input"].tobytes() == (token[[6109, 3626, 6100, 345]] + position[:4]).tobytes()


def test_the_books_sum() -> None:
    result = look_up(of_ids([0]), stub([[0.5, -0.2, 0.1]], [[0.1, 0.3, -0.1]]), LookupOptions(trace=0))
    assert everything(result)["input"] == pytest.approx(np.array([[0.6, 0.1, 0.0]]), abs=1e-7)
    assert TRACED.findall(page_of(result, precision=1)) == [
        ("0", "0.5", "0.1", "0.6"),
        ("1", "-0.2", "0.3", "0.1"),
        ("2", "0.1", "-0.1", "0.0"),
    ]


def test_three_matrices_stand_token_by_token_and_two_matrix_by_matrix() -> None:
    labels = []
    for show in (("token", "position", "input"), ("token", "input")):
        result = look_up(of_ids([7, 8], [9]), stub(np.eye(10), np.eye(10)), LookupOptions(show=show))
        lines = [line.partition("│")[0].split() for line in page_of(result).splitlines() if "│" in line]
        labels.append([" ".join(line) for line in lines[1:]])
    sums = ["0 token 7", "+ position 0", "= input 0", "0 token 8", "+ position 1", "= input 1"]
    assert labels[0] == [*sums, "1 token 9", "+ position 0", "= input 0"]
    assert labels[1] == ["token 0 7", "0 8", "1 9", "input 0 0", "0 1", "1 0"]


@pytest.mark.parametrize("dim", [1, 40, 41, 300])
def test_traced_lines_add_up(dim: int) -> None:
    spec = Seeded(50, dim)
    token, position = layers_of(spec)
    shown = page_of(look_up(of_ids([7, 7], [9, 49]), SeededSource(spec), LookupOptions(trace=3)))
    assert "Trace of token 3: token row 49 + position row 1 = input row 3" in shown
    lines = TRACED.findall(shown)
    columns = [int(column) for column, *_ in lines]
    left_out = re.findall(
        rf"Left out: columns? (\d+)(?: to (\d+))? \((\d+) of {dim}\); --columns picks", shown.partition("Trace")[2]
    )
    hidden = [*range(int(left_out[0][0]), int(left_out[0][1] or left_out[0][0]) + 1)] if left_out else []
    assert sorted(columns + hidden) == [*range(dim)]
    assert len(hidden) == (int(left_out[0][2]) if left_out else 0)
    assert sum("⋮" in line for line in shown.splitlines()) == bool(hidden)
    for column, *terms in lines:
        values = token[49, int(column)], position[1, int(column)], token[49, int(column)] + position[1, int(column)]
        assert terms == [f"{value:.4f}" for value in values]
        assert float(terms[0]) + float(terms[1]) == pytest.approx(float(terms[2]), abs=1.6e-4)  # each is rounded


@untimed
@given(st.lists(st.lists(st.integers(0, 8), max_size=20), max_size=3), st.integers(1, 6))
def test_windows_begin_at_position_zero_again(ids: list[list[int]], length: int) -> None:
    spec = Seeded(9, 2, length)
    token, position = layers_of(spec)
    found = everything(look_up(of_ids(*ids).window(length), SeededSource(spec)))
    flat = [(token_id, place % length) for each in ids for place, token_id in enumerate(each)]
    expected = [token[token_id] + position[place] for token_id, place in flat]
    assert found["input"].tobytes() == b"".join(row.tobytes() for row in expected)


def test_longer_than_the_context_is_refused_but_several_as_long_are_not() -> None:
    source = SeededSource(Seeded(9, 2, 3))
    assert len(look_up(of_ids([1, 2, 3], [4, 5, 6]), source).tokens) == 6
    with pytest.raises(InputError, match=r"^4 tokens .* length of 3: pass context_length 4 for one sequence"):
        look_up(of_ids([1, 2], [1, 2, 3, 4]), source)


@pytest.mark.parametrize(("ids", "wrong", "place", "needed"), [([8, 9, 1], 9, 1, 10), ([0, 1, 11, 9, 12], 11, 2, 13)])
def test_ids_without_a_row_are_refused(ids: list[int], wrong: int, place: int, needed: int) -> None:
    match = rf"^ID {wrong} at position {place} has no row: .* V = 9 rows, for IDs from 0 to 8; pass vocab {needed} "
    with pytest.raises(InputError, match=match):
        look_up(of_ids(ids), SeededSource(Seeded(9, 2, 3)))


def test_a_refused_lookup_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeededSource, "open", lambda *_: pytest.fail("drawn before the input was looked at"))
    for ids, columns in (([9], None), ([1] * 4, None), ([1], "2"), ([1], "x")):
        with pytest.raises(InputError):
            look_up(of_ids(ids), SeededSource(Seeded(9, 2, 3)), LookupOptions(columns=columns))


def test_a_matrix_that_no_lookup_has_cannot_be_shown() -> None:
    with pytest.raises(InputError, match=r"^show 'sum' is not known; choose from token, position, input, hidden$"):
        LookupOptions(show=("token", "sum"))
    assert LookupOptions(show=("input", "token")).shown == ("token", "input")


# --- what a source is asked for ---------------------------------------------------------------------------------------


def test_a_source_is_told_which_rows_will_be_asked_for() -> None:
    source = stub(np.eye(9), np.eye(9))
    look_up(of_ids([5, 1], [4, 4, 2]), source)
    assert source.asked["token"].tolist() == [5, 1, 4, 4, 2]
    assert source.asked["position"].tolist() == [0, 1, 2]


def test_the_sum_is_that_of_anybody_s_layers() -> None:
    token, position = np.arange(12).reshape(4, 3), 100 * np.arange(6).reshape(2, 3)
    found = everything(look_up(of_ids([3, 0]), stub(token, position)))
    assert found["input"].tolist() == (token[[3, 0]] + position).tolist()


def test_rows_are_only_worked_out_for_the_matrices_that_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    result = look_up(of_ids([1, 0]), stub(np.eye(4), np.eye(4)))
    monkeypatch.setattr(Learned, "rows", lambda *_: pytest.fail("nobody asked for positions"))
    assert result.rows(np.arange(2), ("token",))["token"].tolist() == np.eye(4)[[1, 0]].tolist()


def test_a_source_without_a_layer_says_so() -> None:
    with pytest.raises(LayerError, match="there is no token layer here"):
        look_up(of_ids([0]), StubSource({"position": Stub(np.eye(2))}))


def test_without_learned_positions_the_input_rows_are_the_token_rows() -> None:
    result = look_up(of_ids([1, 0]), StubSource({"token": Stub(np.eye(2))}))
    assert result.input.tolist() == [[0, 1], [1, 0]]
    (note,) = result.notes
    assert note.startswith("no file says what the model adds to the token rows: the input rows are the token rows")


def test_matrices_are_arrays_by_their_names() -> None:
    token, position = np.arange(12).reshape(4, 3), 100 * np.arange(6).reshape(2, 3)
    result = look_up(of_ids([3, 0]), stub(token, position), LookupOptions(columns="2,0"))
    for name, values in everything(result).items():
        assert_same_bits(getattr(result, name), values)
    assert_same_bits(np.asarray(result), result.input)
    assert np.asarray(result, np.float64).dtype == np.float64
    with pytest.raises(AttributeError, match="no matrix 'position'; there are: token, input"):
        _ = look_up(of_ids([3, 0]), stub(token, position), LookupOptions(position="none")).position


@pytest.mark.parametrize("trace", [-1, 2, 10**30])
def test_a_token_that_is_not_there_cannot_be_traced(trace: int) -> None:
    with pytest.raises(InputError, match=rf"^trace {trace} is not a token: there are 2 tokens, counted from 0"):
        look_up(of_ids([0, 1]), stub(np.eye(2), np.eye(2)), LookupOptions(trace=trace))


@pytest.mark.parametrize("precision", [1, 2, 7])
def test_a_trace_says_how_many_decimals_it_shows(inside: Embcli, precision: int) -> None:
    arguments = ("--ids", "1", "--vocab", "6", "--dim", "3", "--trace", "0", "--precision", str(precision))
    printed = inside.ok("lookup", *arguments).text
    assert f"The sum is computed in float32; it is shown to {precision} decimals.\n" in printed
    assert all(len(number.split(".")[1]) == precision for row in TRACED.findall(printed) for number in row[1:])

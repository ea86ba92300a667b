"""The lookup: its rows are those of torch's layers, and input = token + position, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import embcli
from embcli.errors import InputError, LayerError
from embcli.layer import Origin
from embcli.model import Model
from embcli.positions.sinusoidal import waves
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from tests.cases import cases
from tests.oracles import Stub, StubSource, assert_same_bits, gathered, live, of_ids
from tests.readers import float32
from tests.runners import InProcess
from tests.transcripts import assert_height

V = 50257
D = 6
CAT = "the cat saw the dog"
IDS = [1169, 3797, 2497, 262, 3290]  # of CAT
CAT_BY_SIX = ("lookup", CAT, "--dim", "6")


def looked_up(in_process: InProcess, *options: str) -> dict[str, Any]:
    """Return what the command finds for the cat and the dog, as JSON has it."""
    ran = in_process.ok(*CAT_BY_SIX, *options, "-f", "json")
    return json.loads(ran.out)


# --- rows -----------------------------------------------------------------------------------------


@given(
    st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2**64 - 1)
)
def test_rows_are_those_of_torchs_layers(data, size, dim, length, seed):
    sequence = st.lists(st.integers(0, size - 1), max_size=length)
    sequences = data.draw(st.lists(sequence, max_size=4))
    some_columns = st.lists(st.integers(0, dim - 1), max_size=4)
    columns = data.draw(some_columns)
    columns_in_words = ",".join(map(str, columns))
    seeded = Seeded(size, dim, length, seed)

    model = Model(SeededSource(seeded))
    result = model.lookup(of_ids(*sequences), columns=columns_in_words or None)

    ids = []
    places = []
    for sequence_ids in sequences:
        ids += sequence_ids
        places += range(len(sequence_ids))
    expected = input_of_torch(seeded, ids, places)
    chosen = columns or [*range(dim)]
    records = result._records()
    matrices = gathered(records)
    assert [*records.columns] == chosen
    for name, values in expected.items():
        assert_same_bits(matrices[name], values[:, chosen])


def input_of_torch(seeded: Seeded, ids: list[int], places: list[int]) -> dict[str, np.ndarray]:
    """Return the rows of IDs and of positions, and their sums, as torch computes them."""
    token = torch.from_numpy(live(seeded)["token"])[ids]
    position = torch.from_numpy(live(seeded)["position"])[places]
    total = token + position
    return {"token": token.numpy(), "position": position.numpy(), "input": total.numpy()}


@cases
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "none"])
def test_each_kind_joins_the_token_rows_as_its_formula_says(in_process, kind, only, places):
    layers = live(Seeded(V, D))
    token_rows = layers["token"][IDS]
    expected: dict[str, Any] = {"token": token_rows[places]}
    if kind == "learned":
        expected["position"] = layers["position"][places]
    if kind == "sinusoidal":
        expected["position"] = waves(D, np.array(places)).astype(np.float32)
    expected["input"] = sum(expected.values())

    found = looked_up(in_process, "--position", kind, *only)

    assert [token["position"] for token in found["tokens"]] == places
    matrices = found["matrices"]
    assert [*matrices] == [*expected]
    for name, values in expected.items():
        assert_same_bits(float32(matrices[name]), values)


def test_a_source_without_a_layer_says_so():
    positions_only = Model(StubSource({"position": Stub(np.eye(2))}))

    with pytest.raises(LayerError, match="no token layer"):
        positions_only.lookup(of_ids([0]))


def test_without_learned_positions_the_input_rows_are_the_token_rows():
    source = StubSource({"token": Stub(np.eye(2))}, origin=Origin(path="tokens.npy"))
    tokens_only = Model(source)

    result = tokens_only.lookup(of_ids([1, 0]))

    assert result.input.tolist() == [[0, 1], [1, 0]]
    (note,) = result.notes
    assert "the input rows are the token rows" in note


@cases
def test_only_learned_positions_have_a_context_length(in_process, kind):
    found = looked_up(in_process, "--context-length", "2", "--position", kind)

    assert len(found["tokens"]) == 5


@cases
def test_windows_begin_anew_at_the_context_length(in_process, kind):
    found = looked_up(in_process, "--context-length", "2", "--position", kind, "--window")

    tokens = found["tokens"]
    assert [token["sequence"] for token in tokens] == [0, 0, 1, 1, 2]
    assert [token["position"] for token in tokens] == [0, 1, 0, 1, 0]


def test_ids_of_no_encoding_are_chosen_by_ids():
    model = Model(SeededSource(Seeded(4, 2)))

    result = model.lookup(of_ids([1, 2, 1], [2]), only="2")

    assert result.chosen.tolist() == [1, 3]
    with pytest.raises(InputError, match="without an encoding"):
        model.lookup(of_ids([1, 2]), only="the")


# --- on a page ------------------------------------------------------------------------------------


@cases
def test_a_page_fits_a_screen(in_process, show, height, length):
    screen = on_screen(in_process, height, " the" * length, *show)

    assert_height(screen, max(height, 18) - 1)


def on_screen(in_process: InProcess, height: int, *words: str) -> str:
    """Return what a terminal of this height shows of a lookup, without colours."""
    size = {"COLUMNS": "80", "LINES": str(height)}
    ran = in_process.ok("lookup", *words, "--dim", "40", NO_COLOR="1", terminal=True, **size)
    return ran.text


@cases
def test_a_screen_has_as_many_tokens_as_leave_room_for_the_page(
    in_process, snapshot, name, height, show
):
    screen = on_screen(in_process, height, " the cat" * 30, *show)

    snapshot(f"lookup/{name}", screen)


@cases
def test_a_trace_shows_the_sums_of_torchs_numbers(dim):
    """Above 40 columns it leaves out those in the middle."""
    seeded = Seeded(50, dim)
    token_row = torch.from_numpy(live(seeded)["token"])[49]
    position_row = torch.from_numpy(live(seeded)["position"])[1]
    sums = token_row + position_row

    model = Model(SeededSource(seeded))
    tokens = of_ids([7, 7], [9, 49])
    result = model.lookup(tokens, trace=3)

    _, trace = str(result.styled(width=100)).split("Trace")
    columns = [*range(dim)]
    shown = columns
    if dim > 40:
        shown = columns[:20] + columns[-20:]
    lines = [" ".join(line.split()) for line in trace.splitlines()]
    for column in shown:
        terms = f"{token_row[column]:.4f} + {position_row[column]:.4f}"
        assert f"{column} {terms} = {sums[column]:.4f}" in lines
    assert trace.count(" = ") == 1 + len(shown)


def test_a_trace_names_the_columns_that_it_leaves_out(snapshot):
    tokens = of_ids([7, 7], [9, 49])
    model = Model(SeededSource(Seeded(50, 41)))

    result = model.lookup(tokens, trace=3, show=("input",))

    snapshot("lookup/long-trace.txt", str(result.styled(width=100)))


def test_a_trace_fits_a_narrow_page(snapshot):
    model = embcli.seeded(4000, 300)

    result = model.lookup(IDS, trace=3, columns="0:2,297:300", show=("input",))

    snapshot("lookup/narrow-trace.txt", str(result.styled(width=40)))


@cases
def test_a_page_of_one_token_at_two_positions(in_process, snapshot, kind):
    words = ("lookup", " the cat saw on the dog", "--only", " the", "--dim", "2")

    ran = in_process.ok(*words, "--position", kind)

    snapshot(f"lookup/one-token-{kind}.txt", ran.text)


@cases
def test_a_token_that_differs_by_spaces_or_case_is_asked_for(in_process, words, hint):
    _, *second_line = in_process.refused(*words).splitlines()
    assert "".join(second_line) == hint


@cases
def test_a_page_of_sequences_says_how_many_they_are(in_process, snapshot, name, text, position):
    words = ("lookup", "--lines", "--dim", "2", "--position", position)

    snapshot(f"lookup/{name}", in_process.ok(*words, stdin=text).text)


@cases
def test_all_matrices_are_those_that_are_shown_by_default(in_process, words):
    lookup = ("lookup", "--ids", "2,3", "--vocab", "6", "--dim", "3", *words)
    assert in_process.ok(*lookup, "--show", "all").out == in_process.ok(*lookup).out


@cases
def test_without_tokens_the_page_is_a_sentence(in_process, view):
    page = in_process("lookup", "", "--dim", "3", *view)
    assert page.text == "Nothing to look up: there are no tokens.\n"

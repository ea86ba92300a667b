"""The lookup: its rows are those of torch's own layers, and input = token + position, bit for bit."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group
from safetensors.numpy import save_file

import embcli
from embcli.errors import InputError, LayerError
from embcli.model import Model
from embcli.page import export
from embcli.positions import JoinedKind
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.lookup import Lookup
from tests.oracles import Stub, StubSource, assert_same_bits, live, normal, of_ids, stub
from tests.runners import InProcess

V, D = 50257, 6
CAT, DOG = "the cat saw the dog", "the dog saw the cat"
IDS = [1169, 3797, 2497, 262, 3290]  # of CAT
KINDS = ("learned", "sinusoidal", "none")
run = InProcess()
TRACED = re.compile(r"^ *(\d+) +(-?[\d.]+) \+ +(-?[\d.]+) = +(-?[\d.]+)$", re.MULTILINE)


def everything(result: Lookup) -> dict[str, np.ndarray]:
    return result.rows(np.arange(len(result.tokens)))


def layers_of(spec: Seeded) -> tuple[np.ndarray, np.ndarray]:
    layers = live(spec)
    return layers["token"], layers["position"]


def page_of(result: Lookup, precision: int = 4) -> str:
    return str(result.styled(width=100, precision=precision))


@pytest.mark.parametrize(
    ("more", "lines"), [("", 3), ("--heat", 3), ("--show input", 1), ("--show token,input", 2)]
)
@pytest.mark.parametrize(("length", "height"), [(3, 24), (7, 12), (7, 24), (60, 24), (60, 50)])
def test_a_screen_has_as_many_tokens_as_leave_room_for_the_page(
    more: str, lines: int, height: int, length: int
) -> None:
    words = (
        "lookup",
        " the cat" * (length // 2) + " the" * (length % 2),
        "--dim",
        "40",
        *more.split(),
    )
    screen = (
        InProcess().ok(*words, COLUMNS="80", LINES=str(height), NO_COLOR="1", terminal=True).text
    )
    shown = max(max(height - 12, 6) // lines, 2)
    found = re.search(r"Left out: tokens? [\d to]*\((\d+) of (\d+)\)", screen)
    assert (length - int(found[1]) if found else length) == min(shown, length)
    assert screen.count("\n") < max(height, 18)


@given(
    st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2**64 - 1)
)
def test_rows_are_those_of_torchs_layers(
    data: st.DataObject, size: int, dim: int, length: int, seed: int
) -> None:
    spec = Seeded(size, dim, length, seed)
    sequences = data.draw(st.lists(st.lists(st.integers(0, size - 1), max_size=length), max_size=4))
    columns = data.draw(st.lists(st.integers(0, dim - 1), max_size=4))
    token, position = layers_of(spec)
    chosen = columns or [*range(dim)]
    ids = [token_id for each in sequences for token_id in each]
    places = [place for each in sequences for place in range(len(each))]
    expected = {"token": token[ids][:, chosen], "position": position[places][:, chosen]}
    expected["input"] = (torch.tensor(token[ids]) + torch.tensor(position[places])).numpy()[
        :, chosen
    ]

    result = Model(SeededSource(spec)).lookup(
        of_ids(*sequences), columns=",".join(map(str, columns)) or None
    )
    found = everything(result)
    assert [*result.records().columns] == chosen
    for name in ("token", "position", "input"):
        assert_same_bits(found[name], expected[name])
        pieces = [piece.matrices[name].copy() for piece in result.records().pieces((), (name,))]
        assert_same_bits(
            np.concatenate([np.empty((0, len(chosen)), np.float32), *pieces]), expected[name]
        )


@pytest.mark.parametrize("dim", [1, 40, 41, 300])
def test_traced_lines_add_up(dim: int) -> None:
    spec = Seeded(50, dim)
    token, position = layers_of(spec)
    shown = page_of(Model(SeededSource(spec)).lookup(of_ids([7, 7], [9, 49]), trace=3))
    assert "Trace of token 3: token row 49 + position row 1 = input row 3" in shown
    lines = TRACED.findall(shown)
    columns = [int(column) for column, *_ in lines]
    left_out = re.findall(
        rf"Left out: columns? (\d+)(?: to (\d+))? \((\d+) of {dim}\)", shown.partition("Trace")[2]
    )
    hidden = (
        [*range(int(left_out[0][0]), int(left_out[0][1] or left_out[0][0]) + 1)] if left_out else []
    )
    assert sorted(columns + hidden) == [*range(dim)]
    assert len(hidden) == (int(left_out[0][2]) if left_out else 0)
    assert sum("⋮" in line for line in shown.splitlines()) == bool(hidden)
    for column, *terms in lines:
        values = (
            token[49, int(column)],
            position[1, int(column)],
            token[49, int(column)] + position[1, int(column)],
        )
        assert terms == [f"{value:.4f}" for value in values]
        assert float(terms[0]) + float(terms[1]) == pytest.approx(
            float(terms[2]), abs=1.6e-4
        )  # each is rounded


# --- what a source is asked for ---------------------------------------------------------------------------------------


def test_a_source_without_a_layer_says_so() -> None:
    with pytest.raises(LayerError, match="there is no token layer here"):
        Model(StubSource({"position": Stub(np.eye(2))})).lookup(of_ids([0]))


def test_without_learned_positions_the_input_rows_are_the_token_rows() -> None:
    result = Model(StubSource({"token": Stub(np.eye(2))})).lookup(of_ids([1, 0]))
    assert result.input.tolist() == [[0, 1], [1, 0]]
    (note,) = result.notes
    assert note.startswith(
        "no file says what the model adds to the token rows: the input rows are the token rows"
    )


@pytest.mark.parametrize("trace", [-1, 2, 10**30])
def test_a_token_that_is_not_there_cannot_be_traced(trace: int) -> None:
    with pytest.raises(
        InputError, match=rf"^trace {trace} is not a token: there are 2 tokens, counted from 0"
    ):
        Model(stub(np.eye(2), np.eye(2))).lookup(of_ids([0, 1]), trace=trace)


# --- kinds of positions, and some of the tokens -----------------------------------------------------------------------


def looked_up(*arguments: str) -> dict[str, Any]:
    return json.loads(run.ok("lookup", CAT, "--dim", str(D), *arguments, "-f", "json").out)


@pytest.mark.parametrize(
    ("only", "places"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["--only", " the the"], [3]),
        (["--only", "262,1169"], [0, 3]),
        (["--only", "262"], [3]),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_joins_the_token_rows_as_its_formula_says(
    kind: str, only: list[str], places: list[int]
) -> None:
    found = looked_up("--position", kind, *only)
    layers = live(Seeded(V, D))
    assert [(row["position"], row["id"]) for row in found["tokens"]] == [
        (place, IDS[place]) for place in places
    ]
    matrices = {name: np.array(values, np.float32) for name, values in found["matrices"].items()}
    token = layers["token"][IDS][places]
    assert_same_bits(matrices["token"], token)
    if kind == "learned":
        assert_same_bits(matrices["position"], layers["position"][places])
    elif kind == "sinusoidal":
        rows = [
            [(math.cos if c % 2 else math.sin)(p / 10000 ** (c // 2 * 2 / D)) for c in range(D)]
            for p in places
        ]
        np.testing.assert_allclose(matrices["position"], rows, rtol=0, atol=1e-6)
    else:
        assert "position" not in matrices
    assert_same_bits(matrices["input"], token + matrices.get("position", np.float32(0)))
    names = ["token", "position"] if kind == "learned" else ["token"]
    assert [*found["run"]["shapes"]] == names  # what is not needed is not drawn
    source = StubSource({name: Stub(np.eye(4)) for name in names})
    Model(source).lookup(of_ids([1, 2]), position=kind)
    assert [each.tolist() for each in source.asked.values()] == [[1, 2], [0, 1]][: len(names)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_length_limits_learned_positions_alone(kind: str) -> None:
    arguments = ("lookup", CAT, "--dim", "6", "--context-length", "2", "--position", kind)
    if kind == "learned":
        assert (
            "5 tokens are more than the context length of 2: pass --context-length 5 for one sequence"
            in run.refused(*arguments)
        )
    else:
        assert len(json.loads(run.ok(*arguments, "-f", "json").out)["tokens"]) == 5
    windows = json.loads(run.ok(*arguments, "--window", "-f", "json").out)["tokens"]
    assert [(row["sequence"], row["position"]) for row in windows] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
    ]


def test_ids_of_no_encoding_are_chosen_by_ids() -> None:
    with pytest.raises(InputError, match="IDs without an encoding take an ID"):
        Model(SeededSource(Seeded(4, 2))).lookup(of_ids([1, 2]), only="the")
    result = Model(SeededSource(Seeded(4, 2))).lookup(of_ids([1, 2, 1], [2]), only="2")
    assert result.index(np.arange(2)).tolist() == [1, 3]


ONLY = """\
Input embeddings = token + position embeddings: 2 of 6 tokens, D = 2 columns
token              row  │        0        1
───────────────────────────────────────────
␣the   token       262  │  {t}
       + position    0  │  {p0}
       = input       0  │  {i0}
␣the   token       262  │  {t}
       + position    4  │  {p4}
       = input       4  │  {i4}
token: row ID of V = 50,257 tokens; {position}
Untrained: random rows of seed 123.
"""
LEARNED = "position: row p of C = 1,024 positions"
SINES = "position: columns 2i and 2i + 1 are the sine and cosine of p / 10000^(2i/D)"
NONE = """\
Input embeddings, input = token: 2 of 6 tokens, D = 2 columns
pos  token   ID  │        0        1
────────────────────────────────────
  0  ␣the   262  │  {t}
  4  ␣the   262  │  {t}
token: row ID of V = 50,257 tokens; input: the token row, the same at every position
Untrained: random rows of seed 123.
"""


@pytest.mark.parametrize(("kind", "page"), [*zip(KINDS, (ONLY, ONLY, NONE), strict=True)])
def test_the_whole_page_of_one_token_at_two_positions(kind: str, page: str) -> None:
    layers = live(Seeded(V, 2))
    token = layers["token"][262]
    rows = {
        "learned": layers["position"][[0, 4]],
        "sinusoidal": np.array([[0, 1], [math.sin(4), math.cos(4)]]),
    }.get(kind, np.zeros((2, 2)))
    values = {
        "t": token,
        "p0": rows[0],
        "p4": rows[1],
        "i0": token + rows[0],
        "i4": token + rows[1],
    }
    written = {name: "  ".join(f"{value:7.4f}" for value in row) for name, row in values.items()}
    found = run.ok(
        "lookup", " the cat saw on the dog", "--only", " the", "--dim", "2", "--position", kind
    ).text
    assert found == page.format(**written, position=LEARNED if kind == "learned" else SINES)


def test_a_trace_that_is_too_wide_continues_in_further_tables() -> None:
    result = embcli.seeded(4000, 300).lookup(IDS, trace=3, columns="0:9,250:300")
    narrow, wide = (str(result.styled(width=width)).partition("Trace")[2] for width in (40, 200))
    assert sorted(re.findall(r"-?\d+\.\d{4}", narrow)) == sorted(re.findall(r"-?\d+\.\d{4}", wide))
    assert max(map(len, narrow.splitlines())) <= 40


@pytest.mark.parametrize(
    ("kind", "columns", "model", "said"),
    [
        ("sinusoidal", None, None, "even or odd columns"),
        ("sinusoidal", ",".join(map(str, range(0, 160, 2))), None, "columns"),
        ("learned", None, None, "columns"),
        (
            None,
            None,
            "xglm",
            "columns",
        ),  # its own sinusoids: sines in one half, cosines in the other
    ],
)
def test_a_strip_takes_no_mean_of_sines_and_cosines(
    tmp_path: Path, kind: JoinedKind | None, columns: str | None, model: str | None, said: str
) -> None:
    save_file({"model.embed_tokens.weight": normal(9, 80)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model}))
    opened = embcli.open(tmp_path) if model else embcli.seeded(vocab=9, dim=160 if columns else 80)
    page = str(opened.lookup([1, 2], position=kind, columns=columns).styled(heat=True, width=60))
    assert re.search(rf"each character: the mean of \d {said}", page)


@pytest.mark.parametrize("verb", ["lookup", "weights"])
def test_no_row_is_read_after_a_page_is_begun(verb: str) -> None:
    source, console = stub(np.eye(3), np.eye(3)), Console(width=80)
    looked_up = Model(source).lookup(of_ids([1, 0, 2]), draw=True, show=("token", "input"), trace=1)
    result = looked_up if verb == "lookup" else Model(source).weights()
    wanted, page = export.text(result, 80), iter(result.__rich_console__(console, console.options))
    first = next(page)
    source.layers["token"].values[:] = 9  # whatever is read now is another number
    assert export.text(Group(first, *page), 80) == wanted


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        ((CAT, DOG), True),
        ((CAT, CAT), False),
        ((CAT, f"{DOG}."), False),
        ((CAT, DOG, DOG), False),
        ((CAT,), False),
    ],
)
def test_two_orders_of_one_bag_of_tokens_are_called_so(lines: tuple[str, ...], same: bool) -> None:
    said = "\nBoth sequences are the same bag of tokens in different orders:\n"
    words = ("lookup", "--lines", "--dim", "2")
    printed = run.ok(*words, stdin="\n".join(lines)).text
    assert (f"{said}equal token rows, different input embeddings.\n" in printed) == same
    unordered = run.ok(*words, "--position", "none", stdin="\n".join(lines)).text
    assert (f"{said}equal input embeddings: the order is lost.\n" in unordered) == same
    assert (": B = 2 sequences, T = 5 tokens, D = 2 columns\n" in printed) == (
        lines in ((CAT, DOG), (CAT, CAT))
    )

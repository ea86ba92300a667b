"""What joins the token rows of a lookup, which of its tokens are shown, and what is said of two orders of one bag."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from embcli.errors import InputError
from embcli.options import LookupOptions
from embcli.verbs.lookup import look_up
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.inside import Inside
from tests.oracles import Stub, StubSource, assert_same_bits, live, of_ids
from tests.screen import grids

V, D = 50257, 6
CAT, DOG = "the cat saw the dog", "the dog saw the cat"
IDS = [1169, 3797, 2497, 262, 3290]  # of CAT
KINDS = ("learned", "sinusoidal", "rotary", "none")
run = Inside()


def looked_up(*arguments: str, text: str = CAT) -> dict[str, Any]:
    return json.loads(run.ok("lookup", text, "--dim", str(D), *arguments, "-f", "json").out)


def turned(row: np.ndarray, position: int, pairs: list[tuple[int, int]], theta: float) -> list[float]:
    """Return a row multiplied by the rotation matrix of its position, which is written out whole."""
    matrix = np.eye(len(row))
    for i, (first, second) in enumerate(pairs):
        angle = position / theta ** (2 * i / len(row))
        matrix[[first, first, second, second], [first, second, first, second]] = [
            math.cos(angle),
            -math.sin(angle),
            math.sin(angle),
            math.cos(angle),
        ]
    return (matrix @ row.astype(np.float64)).tolist()


@pytest.mark.parametrize("only", [[], ["--only", " the the"], ["--only-ids", "262,1169"]])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_joins_the_token_rows_as_its_formula_says(kind: str, only: list[str]) -> None:
    places = [0, 3] if only == ["--only-ids", "262,1169"] else [3] if only else range(5)
    found = looked_up("--position", kind, *only)
    layers = live(Seeded(V, D))
    token = layers["token"][IDS][list(places)]
    assert [(row["position"], row["id"]) for row in found["tokens"]] == [(place, IDS[place]) for place in places]
    matrices = {name: np.array(values, np.float32) for name, values in found["matrices"].items()}
    assert_same_bits(matrices["token"], token)
    if kind == "none":
        assert [*matrices] == ["token", "input"]
        assert_same_bits(matrices["input"], token)
    elif kind == "learned":
        assert_same_bits(matrices["position"], layers["position"][list(places)])
        assert_same_bits(matrices["input"], token + layers["position"][list(places)])
    elif kind == "sinusoidal":
        rows = [[(math.cos if c % 2 else math.sin)(p / 10000 ** (c // 2 * 2 / D)) for c in range(D)] for p in places]
        np.testing.assert_allclose(matrices["position"], rows, rtol=0, atol=1e-6)
        assert_same_bits(matrices["input"], token + matrices["position"])
    else:
        angles = [[place / 10000 ** (2 * i / D) for i in range(D // 2)] for place in places]
        np.testing.assert_allclose(matrices["position"], angles, rtol=1e-6)
        pairs = [(0, 1), (2, 3), (4, 5)]
        rows = [turned(row, place, pairs, 1e4) for row, place in zip(token, places, strict=True)]
        np.testing.assert_allclose(matrices["input"], rows, rtol=0, atol=1e-6)


def test_pairing_and_theta_are_those_of_rotary_positions() -> None:
    found = looked_up("--position", "rotary", "--pairing", "halves", "--theta", "500")
    assert (found["run"]["pairing"], found["run"]["theta"], found["run"]["kind"]) == ("halves", 500.0, "rotary")
    rows = live(Seeded(V, D))["token"][IDS]
    expected = [turned(row, place, [(0, 3), (1, 4), (2, 5)], 500) for place, row in enumerate(rows)]
    np.testing.assert_allclose(found["matrices"]["input"], expected, rtol=0, atol=1e-6)


def test_columns_are_those_of_the_token_layer_and_angles_are_whole() -> None:
    whole, part = looked_up("--position", "rotary"), looked_up("--position", "rotary", "--columns", "5,0:2")
    assert part["columns"] == [5, 0, 1]
    for name in ("token", "input"):
        assert part["matrices"][name] == [[row[5], row[0], row[1]] for row in whole["matrices"][name]]
    assert part["matrices"]["position"] == whole["matrices"]["position"]
    angles = ("lookup", CAT, "--dim", "6", "--position", "rotary", "--show", "position")
    csv = run.ok(*angles, "-f", "csv").text.splitlines()
    assert csv[0] == "position,id,token,0,1,2"
    assert {line.count(",") for line in csv} == {5}
    assert run.ok("lookup", CAT, "--dim", "6", "--columns", "5,3", "-f", "csv").text.startswith("position,id,token,5,3")


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_needed_is_opened_and_told(kind: str) -> None:
    names = ["token", "position"] if kind == "learned" else ["token"]
    source = StubSource({name: Stub(np.eye(4)) for name in names})
    look_up(of_ids([1, 2]), source, LookupOptions(position=kind))
    assert [*source.asked] == names
    assert [*looked_up("--position", kind)["run"]["shapes"]] == names
    stored = load(run.ok("lookup", CAT, "--dim", "6", "--position", kind, "-f", "safetensors").out)
    assert ("position" in stored) == (kind != "none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_length_limits_learned_positions_alone(kind: str) -> None:
    arguments = ("lookup", CAT, "--dim", "6", "--context-length", "2", "--position", kind)
    if kind == "learned":
        assert "5 tokens are more than the context length of 2" in run.refused(*arguments)
        return
    assert len(json.loads(run.ok(*arguments, "-f", "json").out)["tokens"]) == 5
    windows = json.loads(run.ok(*arguments, "--window", "-f", "json").out)["tokens"]
    assert [(row["sequence"], row["position"]) for row in windows] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--position", "none", "--show", "position"), "has no rows that --show could name"),
        (
            ("--position", "none", "--show", "token,position", "-f", "json"),
            "has no rows that --show could name",
        ),
        (("--position", "rotary", "--dim", "5"), "--dim must be even, not 5"),
        (("--position", "rotary", "--theta", "0.5"), "--theta must be a finite number from 1, not 0.5"),
        (("--pairing", "halves"), "--pairing is an option of rotary positions, not of learned ones"),
        (
            ("--position", "sinusoidal", "--theta", "9"),
            "--theta is an option of rotary positions",
        ),
        (("--position", "rotary", "--trace", "0"), "--trace writes out a sum; --position rotary adds nothing"),
        (("--position", "none", "--trace", "0"), "--trace writes out a sum; --position none adds nothing"),
        (
            ("--position", "rotary", "--show", "position", "--columns", "1"),
            "--columns is for token and input; position is shown whole",
        ),
        (("--only", "the"), None),
        (("--only", " bird"), "--only ' bird': ID 6512 (' bird') does not occur"),
        (("--only", " the bird"), "ID 6512 (' bird') does not occur"),
        (("--only-ids", "262,7"), "--only-ids 262,7: ID 7 ('(') does not occur"),
        (("--only", ""), "--only '' has no tokens"),
        (("--only", "the", "--only-ids", "262"), "--only and --only-ids stand for the same tokens"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], said: str | None) -> None:
    if said is None:
        run.ok("lookup", CAT, *arguments)
    else:
        assert said in run.refused("lookup", CAT, *arguments)


def test_ids_of_no_encoding_are_chosen_by_ids() -> None:
    with pytest.raises(InputError, match="take only_ids"):
        look_up(of_ids([1, 2]), SeededSource(Seeded(4, 2)), LookupOptions(only="the"))
    result = look_up(of_ids([1, 2, 1], [2]), SeededSource(Seeded(4, 2)), LookupOptions(only_ids="2"))
    assert result.index(np.arange(2)).tolist() == [1, 3]


# --- pages ------------------------------------------------------------------------------------------------------------

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
Untrained: random rows of seed 123. --from MODEL reads a real model.
"""
LEARNED = "position: row p of C = 1,024 positions"
SINES = "position: columns 2i and 2i + 1 are the sine and cosine of p / 10000^(2i/D)"
ROTARY = """\
Input embeddings = token embeddings, rotated by position: 2 of 6 tokens, D = 2 columns
       row  token  │        0        1
──────────────────────────────────────
token  262  ␣the   │  {t}
       262  ␣the   │  {t}
input    0  ␣the   │  {i0}
         4  ␣the   │  {i4}
The angles in radians, D/2 = 1; one column per pair
pos  │       0
──────────────
  0  │  0.0000
  4  │  4.0000
token: row ID of V = 50,257 tokens
position: pair i is rotated by p · 10,000^(-2i/D); pairs are interleaved
input: the rotated token row. Models rotate queries and keys, not this row.
Untrained: random rows of seed 123. --from MODEL reads a real model.
"""
NONE = """\
Input embeddings = token embeddings: 2 of 6 tokens, D = 2 columns
         row  token  │        0        1
────────────────────────────────────────
token    262  ␣the   │  {t}
         262  ␣the   │  {t}
= input    0  ␣the   │  {t}
           4  ␣the   │  {t}
token: row ID of V = 50,257 tokens; input: the token row, the same at every position
Untrained: random rows of seed 123. --from MODEL reads a real model.
"""


@pytest.mark.parametrize(("kind", "page"), [*zip(KINDS, (ONLY, ONLY, ROTARY, NONE), strict=True)])
def test_the_whole_page_of_one_token_at_two_positions(kind: str, page: str) -> None:
    layers = live(Seeded(V, 2))
    token = layers["token"][262]
    rows = {
        "learned": layers["position"][[0, 4]],
        "sinusoidal": np.array([[0, 1], [math.sin(4), math.cos(4)]]),
    }.get(kind, np.zeros((2, 2)))
    values = {"t": token, "p0": rows[0], "p4": rows[1], "i0": token + rows[0], "i4": token + rows[1]}
    if kind == "rotary":
        values["i4"] = np.array(turned(token, 4, [(0, 1)], 1e4))
    written = {name: "  ".join(f"{value:7.4f}" for value in row) for name, row in values.items()}
    found = run.ok("lookup", " the cat saw on the dog", "--only", " the", "--dim", "2", "--position", kind).text
    assert found == page.format(**written, position=LEARNED if kind == "learned" else SINES)


def test_token_rows_alone_say_where_the_tokens_stand() -> None:
    printed = run.ok("lookup", CAT, "--only-ids", "262,3797", "--show", "token", "--dim", "2").text
    (table,) = grids(printed, 120)
    assert [label[0] for label in table.labels] == ["1", "3"]
    table.check(live(Seeded(V, 2))["token"][[3797, 262]])


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_each_kind_fits_and_holds_its_numbers(kind: str, width: int) -> None:
    result = look_up(of_ids(IDS), SeededSource(Seeded(V, 256)), LookupOptions(position=kind))
    found = result.rows(np.arange(5), result.options.matrices)
    printed = run.ok("lookup", CAT, "--position", kind, COLUMNS=str(width)).text
    tables = grids(printed, width)
    bands = [name for name in found if kind != "rotary" or name != "position"]
    each = np.stack([found[name] for name in bands], axis=1 if len(bands) == 3 else 0)  # one or two are bands
    tables[0].check(each.reshape(-1, 256))
    assert len(tables) == 1 + (kind == "rotary")
    if kind == "rotary":
        tables[1].check(found["position"])
    if width > 80:
        assert max(map(len, printed.splitlines())) <= width


@pytest.mark.parametrize(
    ("lines", "same"),
    [((CAT, DOG), True), ((CAT, CAT), False), ((CAT, f"{DOG}."), False), ((CAT, DOG, DOG), False), ((CAT,), False)],
)
def test_two_orders_of_one_bag_of_tokens_are_called_so(lines: tuple[str, ...], same: bool) -> None:
    said = "\nBoth sequences are the same bag of tokens in different orders:\n"
    said += "equal token rows, different input embeddings.\n"
    printed = run.ok("lookup", "--lines", "--dim", "2", stdin="\n".join(lines)).text
    assert (said in printed) == same
    assert ("same bag" in printed) == same
    assert (": B = 2 sequences, T = 5 tokens, D = 2 columns\n" in printed) == (lines in ((CAT, DOG), (CAT, CAT)))


def test_without_positions_the_order_is_lost() -> None:
    printed = run.ok("lookup", "--lines", "--dim", "2", "--position", "none", stdin=f"{CAT}\n{DOG}").text
    assert "equal input embeddings: the order is lost." in printed

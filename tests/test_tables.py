"""Tables: at any width the numbers read back out of them are torch's, none is cut, and what is left out is said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from wcwidth import wcswidth

from embcli import encodings
from embcli.tokens import shown
from embcli.weights.seeded import Seeded
from tests.inside import Inside
from tests.oracles import live
from tests.screen import OWN_ESCAPES, bare, check_left_out, drawn, grids, on_terminal, said_to_be_left_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import Embcli
    from tests.screen import Grid

V, D, C = 50257, 256, 1024
PLAIN = "Every effort moves you"
WIDE = "naïve 日本語 🤖 e\u0301 🇨🇭 👩\u200d💻 ok\u202e \x1b[2J [bold]x[/] │ का \ufeff\x01 한국어"
WIDTHS = (40, 80, 200)
NARROW_TO_WIDE = (40, 41, 44, 49, 53, 60, 67, 75, 80, 97, 120, 144, 181, 200, 222, 257, 299, 300)
COLORED = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@pytest.fixture(scope="module")
def layers() -> dict[str, np.ndarray]:
    return live(Seeded(V, D, C))


def looked_up(layers: dict[str, np.ndarray], text: str) -> tuple[list[int], dict[str, np.ndarray]]:
    ids = encodings.get("gpt2").tiktoken.encode_ordinary(text)
    token, position = layers["token"][ids], layers["position"][: len(ids)]
    return ids, {"token": token, "position": position, "input": token + position}


def token_by_token(rows: dict[str, np.ndarray], chosen: Sequence[int]) -> np.ndarray:
    """Return the three rows of each token under each other, (3n, D)."""
    each = [rows[name][[*chosen]] for name in ("token", "position", "input")]
    return np.stack(each, axis=1).reshape(3 * len(chosen), -1)


def row_numbers(table: Grid) -> list[int]:
    """Return the first number among the labels of each row: where it stands in its layer."""
    return [int(next(cell for cell in label if cell.isdigit())) for label in table.labels]


def check_lookup(printed: str, width: int, text: str, layers: dict[str, np.ndarray]) -> None:
    """Hold the one grid of a lookup, the three rows of each token under each other, against the layers."""
    ids, expected = looked_up(layers, text)
    (table,) = grids(printed, width)
    hidden = said_to_be_left_out(printed, "row", len(ids))
    rows = [row for row in range(len(ids)) if row not in hidden]
    table.check(token_by_token(expected, rows))
    assert [label[-2:] for label in table.labels] == [
        [name, str(number)]
        for row in rows
        for name, number in (("token", ids[row]), ("+ position", row), ("= input", row))
    ]
    names = [shown(encodings.get("gpt2").token_bytes(ids[row])) for row in rows]
    found = [label[:-2] for label in table.labels[::3]]  # tokens are shortened, or left out, on a narrow page
    assert found in ([[]] * len(rows), [[name] for name in names]) or width < 80
    assert all(len(label) == 2 for place, label in enumerate(table.labels) if place % 3)
    said = " ".join(printed.split())
    assert f"position embeddings: T = {len(ids)} tokens, D = {D} columns " in said
    assert re.search(f"token: row ID of V = {V:,} tokens(;| ) ?position: row p of C = {C:,} positions ", said)
    assert said.endswith("Untrained: random rows of seed 123.")
    check_left_out(printed, "column", table.columns, D)


def check_weights(printed: str, width: int, layers: dict[str, np.ndarray]) -> None:
    (table,) = grids(printed, width)
    rows = row_numbers(table)
    table.check(layers["token"][rows])
    check_left_out(printed, "row", rows, V)
    check_left_out(printed, "column", table.columns, D)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", [PLAIN, WIDE], ids=["plain", "wide"])
def test_lookup_on_a_terminal(width: int, text: str, layers: dict[str, np.ndarray]) -> None:
    printed = Inside(terminal=True).ok("lookup", text, COLUMNS=str(width), **COLORED).text
    assert "\x1b" not in bare(printed)
    check_lookup(bare(printed), width, text, layers)
    terminal = drawn(printed.replace("\n", "\r\n"), width)
    check_lookup(terminal.text, width, text, layers)
    bars = [
        [column for column, cell in line.items() if cell.data == "│"][-1]
        for line in terminal.screen.buffer.values()
        if re.search(r"\d\.\d{4}", "".join(cell.data for cell in line.values()))
    ]
    assert len(bars) == 3 * min(len(looked_up(layers, text)[0]), 40)
    assert len({*bars}) == 1  # the terminal, too, draws the bar straight


@pytest.mark.parametrize("width", WIDTHS)
def test_weights_on_a_terminal(width: int, layers: dict[str, np.ndarray]) -> None:
    printed = Inside(terminal=True).ok("weights", COLUMNS=str(width), **COLORED).text
    check_weights(bare(printed), width, layers)
    check_weights(drawn(printed.replace("\n", "\r\n"), width).text, width, layers)


@pytest.mark.parametrize("width", NARROW_TO_WIDE)
def test_tables_through_a_pipe(inside: Embcli, width: int, layers: dict[str, np.ndarray]) -> None:
    environment = {"COLUMNS": str(width)}
    for text in (PLAIN, WIDE):
        printed = inside.ok("lookup", text, **environment).text
        assert "\x1b" not in printed
        check_lookup(printed, width, text, layers)
    check_weights(inside.ok("weights", **environment).text, width, layers)


def test_a_long_lookup_shows_its_first_and_last_tokens_and_says_so(
    inside: Embcli, layers: dict[str, np.ndarray]
) -> None:
    text = PLAIN * 30
    printed = inside.ok("lookup", text).text
    assert len(said_to_be_left_out(printed, "row", len(looked_up(layers, text)[0]))) > 20
    lines = printed.splitlines()
    (gap,) = [number for number, line in enumerate(lines) if "⋮" in line]
    assert ("= input" in lines[gap - 1], "token" in lines[gap + 1]) == (True, True)
    check_lookup(printed, 120, text, layers)


@pytest.mark.parametrize("precision", [1, 2, 8, 16])
def test_precision(inside: Embcli, precision: int, layers: dict[str, np.ndarray]) -> None:
    printed = inside.ok("lookup", PLAIN, "--precision", str(precision), "--show", "token", COLUMNS="80").text
    (table,) = grids(printed, 80)
    table.check(looked_up(layers, PLAIN)[1]["token"], precision)
    check_left_out(printed, "column", table.columns, D)


# --- columns that the user chose --------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("width", [40, 57, 80, 120, 200])
def test_chosen_columns_are_never_left_out(width: int, terminal: bool, layers: dict[str, np.ndarray]) -> None:
    chosen = [200, *range(40), 255, 7]
    run = Inside(terminal)
    arguments = ("--columns", "200,0:40,255,7", "--color", "never")
    printed = run.ok("lookup", PLAIN, *arguments, COLUMNS=str(width)).text
    ids, expected = looked_up(layers, PLAIN)
    values = token_by_token(expected, range(4))
    found = grids(printed, width)
    for table in found:
        table.check(values)
        assert row_numbers(table) == [number for row in range(4) for number in (ids[row], row, row)]
    assert [column for table in found for column in table.columns] == chosen
    assert "Left out" not in printed

    printed = run.ok("weights", "--rows", "50256,0:3", *arguments, COLUMNS=str(width)).text
    found = grids(printed, width)
    for table in found:
        table.check(layers["token"][[50256, 0, 1, 2]])
        assert row_numbers(table) == [50256, 0, 1, 2]
    assert [column for table in found for column in table.columns] == chosen
    assert "Left out" not in printed
    assert len(found) > 1


def test_chosen_columns_that_fit_stand_in_one_table(inside: Embcli, layers: dict[str, np.ndarray]) -> None:
    printed = inside.ok("weights", "--rows", "50256,100,0:3", "--columns", "255,0:2,7").text
    (table,) = grids(printed, 120)
    assert table.columns == [255, 0, 1, 7]
    assert row_numbers(table) == [50256, 100, 0, 1, 2]
    table.check(layers["token"][[50256, 100, 0, 1, 2]])
    assert "Left out" not in printed


# --- one screen -------------------------------------------------------------------------------------------------------


# --- colour and width -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terminal", "arguments", "environment", "colored"),
    [
        (False, (), {}, False),
        (False, (), {"FORCE_COLOR": "1"}, True),
        (False, (), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (False, ("--color", "always"), {"NO_COLOR": "1"}, True),
        (False, ("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (True, (), {}, True),
        (True, (), {"NO_COLOR": "1"}, False),
        (True, (), {"NO_COLOR": ""}, True),
        (True, (), {"TERM": "dumb"}, False),
        (True, (), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        (True, ("--color", "never"), {}, False),
        (True, ("--color", "always"), {"NO_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
@pytest.mark.parametrize(
    "verb", [("tokenize", WIDE), ("weights", "--vocab", "6", "--dim", "3")], ids=lambda verb: verb[0]
)
def test_colour_is_a_choice_and_changes_nothing_else(
    terminal: bool, arguments: tuple[str, ...], environment: dict[str, str], colored: bool, verb: tuple[str, ...]
) -> None:
    run = Inside(terminal)
    printed = run.ok(*verb, *arguments, **{"TERM": "xterm-256color", **environment}).text
    assert bool(OWN_ESCAPES.search(printed)) == colored
    assert "\x1b" not in bare(printed)
    trimmed = [line.rstrip() for line in bare(printed).splitlines()]
    assert trimmed == [line.rstrip() for line in run.ok(*verb, "--color", "never").text.splitlines()]


def test_columns_outdoes_the_terminal() -> None:
    terminal = on_terminal(80, "tokenize", PLAIN * 9, COLUMNS="50", NO_COLOR="1")
    assert 40 < max(wcswidth(line) for line in terminal.raw.split("\n")) <= 50


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("39", 40), ("1", 40), ("0", 120), ("", 120), ("wide", 120)]
)
def test_the_width_of_a_pipe(inside: Embcli, columns: str, width: int) -> None:
    printed = inside.ok("lookup", PLAIN, "--show", "token", COLUMNS=columns).text
    (table,) = grids(printed, width)
    assert inside.ok("lookup", PLAIN, "--show", "token", COLUMNS=str(width)).text == printed
    assert len(table.columns) > (width - 40) // 10  # and the width is made use of


HOSTILE = "[bold red]x[/] \x1b[2J"


def test_markup_and_escape_sequences_in_a_text_stay_text(inside: Embcli) -> None:
    printed = inside.ok("lookup", HOSTILE, "--show", "input", COLUMNS="300").text
    ids = encodings.get("gpt2").tiktoken.encode_ordinary(HOSTILE)
    names = [shown(encodings.get("gpt2").token_bytes(token_id)) for token_id in ids]
    assert "".join(names) == r"[bold␣red]x[/]␣\x1b[2J"
    assert "\x1b" not in printed
    assert [label[1] for label in grids(printed, 300)[0].labels] == names
    terminal = on_terminal(200, "lookup", HOSTILE)
    assert "\x1b" not in bare(terminal.raw)
    assert [label[0] for label in grids(terminal.text, 200)[0].labels[::3]] == names
    view = on_terminal(80, "tokenize", HOSTILE, NO_COLOR="1")
    assert "\x1b" not in view.raw


# --- whole pages ------------------------------------------------------------------------------------------------------

WEIGHED = """Position weight matrix: C = 4 positions, one row each, D = 5 columns
pos  │        0        1        2        3        4
───────────────────────────────────────────────────
  0  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  1  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  2  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  3  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}

seed 7, 20 parameters (float32), 80 bytes
mean {:.4f}, standard deviation {:.4f}, minimum {:.4f}, maximum {:.4f}
Untrained: random rows of seed 7.
"""
LOOKED_UP = """Input embeddings = token + position embeddings: T = 2 tokens, D = 3 columns
            row  │        0        1        2
─────────────────────────────────────────────
token         5  │  {:7.4f}  {:7.4f}  {:7.4f}
+ position    0  │  {:7.4f}  {:7.4f}  {:7.4f}
= input       0  │  {:7.4f}  {:7.4f}  {:7.4f}
token         3  │  {:7.4f}  {:7.4f}  {:7.4f}
+ position    1  │  {:7.4f}  {:7.4f}  {:7.4f}
= input       1  │  {:7.4f}  {:7.4f}  {:7.4f}
token: row ID of V = 6 tokens
position: row p of C = 1,024 positions

Trace of token 1: token row 3 + position row 1 = input row 1
column     token   position      input
     0  {:8.4f} + {:8.4f} = {:8.4f}
     1  {:8.4f} + {:8.4f} = {:8.4f}
     2  {:8.4f} + {:8.4f} = {:8.4f}
The sum is computed in float32; it is shown to 4 decimals.
Untrained: random rows of seed 123.
"""


def test_the_whole_output_of_lookup(inside: Embcli) -> None:
    drawn_layers = live(Seeded(6, 3))
    token, position = drawn_layers["token"][[5, 3]], drawn_layers["position"][:2]
    rows = {"token": token, "position": position, "input": token + position}
    numbers = token_by_token(rows, range(2)).ravel().tolist()
    traced = np.stack([token[1], position[1], token[1] + position[1]], axis=1).ravel().tolist()
    arguments = ("--ids", "5,3", "--vocab", "6", "--dim", "3", "--trace", "1")
    assert inside.ok("lookup", *arguments, COLUMNS="60").text == LOOKED_UP.format(*numbers, *traced)


@pytest.mark.parametrize(
    ("show", "title", "headers", "told"),
    [
        ("token", "Token embeddings", "ID   token", 1),
        ("position", "Position embeddings", "pos", 1),
        ("input", "Input embeddings", "pos  token", 1),
        ("token,input", "Token and input embeddings", "row  token", 1),
    ],
)
def test_a_lookup_shows_the_matrices_that_are_wanted_and_no_others(
    inside: Embcli, layers: dict[str, np.ndarray], show: str, title: str, headers: str, told: int
) -> None:
    printed = inside.ok("lookup", PLAIN, "--show", show).text
    lines = printed.splitlines()
    assert lines[0] == f"{title}: T = 4 tokens, D = 256 columns"
    assert re.sub(" +", " ", headers) in re.sub(" +", " ", lines[1])
    (table,) = grids(printed, 120)
    table.check(np.concatenate([looked_up(layers, PLAIN)[1][name] for name in show.split(",")]))
    after = lines[3 + len(table.values) :]
    assert len(after) == told + 2  # where the rows are from, what is left out, and that they are random: no sum
    assert after[-2].startswith("Left out: columns")
    assert "position" not in printed or "position" in show or show == "input"


@pytest.mark.parametrize("precision", [11, 12, 16])
def test_a_number_is_worth_more_than_a_token_on_a_narrow_page(inside: Embcli, precision: int) -> None:
    wanted = ("--precision", str(precision), "--show", "input")
    lines = inside.ok("lookup", "Every effort", *wanted, COLUMNS="40").text.splitlines()
    rows = [line for line in lines if "│" in line]
    assert max(map(len, rows)) <= 40
    assert all(len(row.split("│")[1].split()[0].split(".")[1]) == precision for row in rows[1:])

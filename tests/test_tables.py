"""Tables: at any width the numbers read back out of them are torch's, none is cut, and what is left out is said."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pexpect
import pyte
import pytest
import torch
from embcli.page.grid import Half, Label, Shown, print_grid, shorten
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from wcwidth import wcswidth

from embcli import encodings
from embcli.page.terminal import Page
from embcli.tokens import shown
from tests.conftest import TIMEOUT, Embcli
from tests.inside import Inside

if TYPE_CHECKING:
    from collections.abc import Sequence

untimed = settings(deadline=None)
V, D, C = 50257, 256, 1024
PLAIN = "Every effort moves you"
WIDE = "naïve 日本語 🤖 e\u0301 🇨🇭 👩\u200d💻 ok\u202e \x1b[2J [bold]x[/] │ का \ufeff\x01 한국어"
WIDTHS = (40, 80, 200)
NARROW_TO_WIDE = (40, 41, 44, 49, 53, 60, 67, 75, 80, 97, 120, 144, 181, 222, 257, 299, 300)
OWN_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # colours: all that embcli ever sends


@dataclass(frozen=True)
class Grid:
    """A table of numbers, read from what was printed."""

    headers: list[str]  # of the columns of numbers, with … where some are left out
    labels: list[list[str]]
    values: list[list[str]]

    @property
    def columns(self) -> list[int]:
        return [int(header) for header in self.headers if header != "…"]

    def check(self, expected: np.ndarray, precision: int = 4) -> None:
        """Hold the numbers against (rows, D) float32 values, each row by its columns' headers."""
        assert len(self.values) == len(expected)
        for row, values in zip(self.values, expected, strict=True):
            assert [cell == "…" for cell in row] == [header == "…" for header in self.headers]
            numbers = [cell for cell in row if cell != "…"]
            assert numbers == [f"{values[column]:.{precision}f}" for column in self.columns]


def grids(lines: Sequence[str], width: int) -> list[Grid]:
    """Read all tables of numbers, and hold that they are straight, and no wider than they may be."""
    found = []
    for place, line in enumerate(lines):
        if not line or {*line} != {"─"}:
            continue
        body = []
        for row in lines[place + 1 :]:
            if "│" not in row:
                break
            body.append(row)
        table = [lines[place - 1], *body]
        assert len({wcswidth(row.rpartition("│")[0]) for row in table}) == 1, table  # the bar stands straight
        assert len({wcswidth(row) for row in table}) == 1, table  # and so does the last digit
        assert max(wcswidth(line), wcswidth(table[0])) <= width, table
        cells = [(left.split(), right.split()) for left, _, right in (row.rpartition("│") for row in table)]
        rows = [(left, right) for left, right in cells[1:] if {*right} != {"⋮"}]
        found.append(Grid(cells[0][1], [left for left, _ in rows], [right for _, right in rows]))
    return found


def check_left_out(text: str, what: str, seen: list[int], total: int) -> None:
    """Hold that what is seen and what is said to be left out make up all of it."""
    said = re.search(rf"{what}s? (\d+)(?: to (\d+))? \(([\d,]+) of ([\d,]+)\)", " ".join(text.split()))
    if said is None:
        assert seen == [*range(total)]
        return
    hidden = [*range(int(said[1]), int(said[2] or said[1]) + 1)]
    assert sorted(seen + hidden) == [*range(total)]
    assert [int(number.replace(",", "")) for number in said.group(3, 4)] == [len(hidden), total]


@pytest.fixture(scope="module")
def layers() -> dict[str, np.ndarray]:
    torch.manual_seed(123)
    return {name: torch.nn.Embedding(rows, D).weight.detach().numpy() for name, rows in (("token", V), ("position", C))}


def looked_up(layers: dict[str, np.ndarray], text: str) -> tuple[list[int], dict[str, np.ndarray]]:
    ids = encodings.get("gpt2").tiktoken.encode_ordinary(text)
    token, position = layers["token"][ids], layers["position"][: len(ids)]
    return ids, {"token": token, "position": position, "input": token + position}


def check_lookup(printed: str, width: int, text: str, layers: dict[str, np.ndarray]) -> None:
    ids, expected = looked_up(layers, text)
    tables = grids(printed.split("\n"), width)
    assert re.findall("^(Token|Position|Input) embeddings", printed, re.MULTILINE) == ["Token", "Position", "Input"]
    assert len(tables) == 3
    for table, name in zip(tables, expected, strict=True):
        rows = [int(label[0]) for label in table.labels]
        table.check(expected[name][rows])
        assert [int(label[-1]) for label in table.labels] == [ids[row] for row in rows]
        check_left_out(printed, "row", rows, len(ids))
        check_left_out(printed, "column", table.columns, D)


def check_weights(printed: str, width: int, layers: dict[str, np.ndarray]) -> None:
    (table,) = grids(printed.split("\n"), width)
    rows = [int(label[0]) for label in table.labels]
    table.check(layers["token"][rows])
    check_left_out(printed, "row", rows, V)
    check_left_out(printed, "column", table.columns, D)


@dataclass(frozen=True)
class Terminal:
    """What a terminal shows after a command."""

    raw: str
    screen: pyte.Screen

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip() + "\n"


def on_terminal(width: int, *arguments: str, **environment: str) -> Terminal:
    """Run embcli in a pseudo-terminal; a line that is wider than it would be seen to go on in the next one."""
    command, *rest = Embcli.command
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    child = pexpect.spawn(
        command, [*rest, *arguments], dimensions=(300, width), env=environment, timeout=TIMEOUT, encoding="utf-8"
    )
    raw = child.read()
    child.close()
    assert child.exitstatus == 0, raw
    screen = pyte.Screen(width, 300)
    pyte.Stream(screen).feed(raw)
    return Terminal(raw.replace("\r\n", "\n"), screen)


@pytest.fixture
def inside() -> Embcli:
    return Inside()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("text", [PLAIN, WIDE], ids=["plain", "wide"])
def test_lookup_on_a_terminal(width: int, text: str, layers: dict[str, np.ndarray]) -> None:
    terminal = on_terminal(width, "lookup", text)
    assert "\x1b" not in OWN_ESCAPES.sub("", terminal.raw)
    check_lookup(OWN_ESCAPES.sub("", terminal.raw), width, text, layers)
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
    terminal = on_terminal(width, "weights")
    check_weights(OWN_ESCAPES.sub("", terminal.raw), width, layers)
    check_weights(terminal.text, width, layers)


def test_colours_tell_sign_and_size() -> None:
    screen = on_terminal(80, "weights", "--vocab", "6", "--dim", "3").screen
    leaning: dict[float, int] = {}
    for line in screen.buffer.values():
        for number in re.finditer(r"-?\d\.\d{4}", "".join(line[column].data for column in range(40))):
            color = line[number.start()].fg
            if re.fullmatch("[0-9a-f]{6}", color):
                leaning[float(number[0])] = int(color[:2], 16) - int(color[4:], 16)  # red less blue
    assert len(leaning) == 18
    values = sorted(leaning)
    assert [leaning[value] for value in values] == sorted(leaning.values())
    assert leaning[values[0]] < 0 < leaning[values[-1]]


@pytest.mark.parametrize("width", NARROW_TO_WIDE)
def test_tables_through_a_pipe(inside: Embcli, width: int, layers: dict[str, np.ndarray]) -> None:
    environment = {"COLUMNS": str(width)}
    for text in (PLAIN, WIDE):
        printed = inside.ok("lookup", text, **environment).text
        assert "\x1b" not in printed
        check_lookup(printed, width, text, layers)
    check_weights(inside.ok("weights", **environment).text, width, layers)


@pytest.mark.parametrize("precision", [1, 2, 8, 16])
def test_precision(inside: Embcli, precision: int, layers: dict[str, np.ndarray]) -> None:
    printed = inside.ok("lookup", PLAIN, "--precision", str(precision), "--show", "token", COLUMNS="80").text
    (table,) = grids(printed.split("\n"), 80)
    table.check(looked_up(layers, PLAIN)[1]["token"], precision)
    check_left_out(printed, "column", table.columns, D)


def test_chosen_columns_keep_their_numbers(inside: Embcli, layers: dict[str, np.ndarray]) -> None:
    printed = inside.ok("weights", "--rows", "50256,100,0:3", "--columns", "255,0:2,7").text
    (table,) = grids(printed.split("\n"), 120)
    assert table.columns == [255, 0, 1, 7]
    assert [int(label[0]) for label in table.labels] == [50256, 100, 0, 1, 2]
    table.check(layers["token"][[50256, 100, 0, 1, 2]])
    assert "Left out" not in printed


@untimed
@given(st.text(st.sampled_from("ab日本語é🤖"), max_size=30), st.integers(6, 30))
@example("日" * 30, 24)
def test_a_long_token_is_shortened_in_its_middle(token: str, most: int) -> None:
    short = shorten(token, most)
    if wcswidth(token) <= most:
        assert short == token
        return
    assert most - 2 <= wcswidth(short) <= most  # where a wide character does not fit, a space may stand for its half
    head, _, tail = (part.strip(" ") for part in short.partition("…"))
    assert token.startswith(head)
    assert token.endswith(tail)
    assert abs(wcswidth(head) - wcswidth(tail)) <= 3


ODD = [1e30, -1e30, 1e-30, -1e-30, 3.4e38, 1e-45, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -999999.94]
tables_of_floats = st_numpy.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=st.floats(width=32) | st.sampled_from(ODD)
)


@untimed
@given(tables_of_floats, st.integers(40, 300), st.integers(1, 8), st.sampled_from(["", "a", "日本語" * 9]))
@example(np.array([ODD], np.float32), 40, 4, "")
@example(np.array([ODD], np.float32), 300, 4, "日")
def test_any_numbers_fit_and_can_be_read_back(values: np.ndarray, width: int, precision: int, token: str) -> None:
    page = Page(width=width, precision=precision)
    count, total = values.shape
    labels = [Label("pos", [*map(str, range(count))]), Label("token", [token] * count, "left", shortens=True)]
    seen = print_grid(page, labels, [Half("", values)], np.arange(total), Shown(count, 0, count))
    (table,) = grids(page.content().decode().split("\n"), width)
    assert table.columns == seen.places.tolist()
    for row, expected in zip(table.values, values, strict=True):
        for cell, column in zip([cell for cell in row if cell != "…"], table.columns, strict=True):
            exact = float(expected[column])
            # Either form has all its decimals; one with an exponent is used where the other would say too little.
            assert cell in (f"{exact:.{precision}f}", f"{exact:.{precision}e}")
            assert float(cell) == pytest.approx(
                exact, rel=0.5 * 10.0**-precision, abs=0.5 * 10.0**-precision, nan_ok=True
            )


@untimed
@given(st.floats(2**20, 2**127, width=32) | st.floats(2**-100, 2**-20, width=32))
def test_large_and_small_numbers_keep_their_digits(number: float) -> None:
    page = Page(width=80)
    print_grid(
        page, [Label("pos", ["0"])], [Half("", np.array([[number, -number]], np.float32))], np.arange(2), Shown(1, 0, 1)
    )
    ((plus, minus),) = grids(page.content().decode().split("\n"), 80)[0].values
    assert float(plus) == pytest.approx(number, rel=1e-4) == -float(minus)


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
    def bare(printed: str) -> list[str]:
        """Return the table and what stands below it; above it, without colour, bars stand between the tokens."""
        return [line.rstrip() for part in printed.split("\n\n")[-2:] for line in part.split("\n")]

    run = Inside(terminal)
    printed = run.ok(*verb, *arguments, **{"TERM": "xterm-256color", **environment}).text
    assert bool(OWN_ESCAPES.search(printed)) == colored
    stripped = OWN_ESCAPES.sub("", printed)
    assert "\x1b" not in stripped
    assert bare(stripped) == bare(run.ok(*verb, "--color", "never").text)


def test_columns_outdoes_the_terminal() -> None:
    terminal = on_terminal(80, "tokenize", PLAIN * 9, COLUMNS="50", NO_COLOR="1")
    assert 40 < max(wcswidth(line) for line in terminal.raw.split("\n")) <= 50


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("39", 40), ("1", 40), ("0", 120), ("", 120), ("wide", 120)]
)
def test_the_width_of_a_pipe(inside: Embcli, columns: str, width: int) -> None:
    printed = inside.ok("lookup", PLAIN, "--show", "token", COLUMNS=columns).text
    (table,) = grids(printed.split("\n"), width)
    assert inside.ok("lookup", PLAIN, "--show", "token", COLUMNS=str(width)).text == printed
    assert len(table.columns) > (width - 40) // 10  # and the width is made use of


HOSTILE = "[bold red]x[/] \x1b[2J"


def test_markup_and_escape_sequences_in_a_text_stay_text(embcli: Embcli) -> None:
    printed = embcli.ok("lookup", HOSTILE, COLUMNS="300").text
    ids = encodings.get("gpt2").tiktoken.encode_ordinary(HOSTILE)
    names = [shown(encodings.get("gpt2").token_bytes(token_id)) for token_id in ids]
    assert "".join(names) == r"[bold␣red]x[/]␣\x1b[2J"
    assert "\x1b" not in printed
    assert [label[1] for label in grids(printed.split("\n"), 300)[0].labels] == names
    terminal = on_terminal(200, "lookup", HOSTILE)
    assert "\x1b" not in OWN_ESCAPES.sub("", terminal.raw)
    assert [label[1] for label in grids(terminal.text.split("\n"), 200)[0].labels] == names
    view = on_terminal(80, "tokenize", HOSTILE, NO_COLOR="1")
    assert "\x1b" not in view.raw
    assert view.text.startswith(r"[│bold│ red│]│x│[/│]│ │\x1b│[│2│J")


TOKENIZED = r"""pos     token        ID  bytes  span
────────────────────────────────────
  0     Hi        17250  48 69  0:2
  1  ╭  \x20\xe6  10545  20 e6  2:4
  2  │  \x97        245  97     3:4
  3  ╰  \xa5         98  a5     3:4
  4  ╭  \xe6\x9c  17312  e6 9c  4:5
  5  ╰  \xac        105  ac     4:5
  6     !             0  21     5:6
  7     ␣           220  20     6:7

7 characters, 11 bytes, 8 tokens, 0.88 characters per token (gpt2)
日 is in tokens 1 to 3: \x20\xe6 + \x97 + \xa5
本 is in tokens 4 to 5: \xe6\x9c + \xac
"""
WEIGHED = """Position weight matrix, (C, D) = (4, 5): a row a position
pos  │        0        1        2        3        4
───────────────────────────────────────────────────
  0  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  1  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  2  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}
  3  │  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}  {:7.4f}

seed 7, 20 parameters (float32), 80 bytes
mean {:.4f}, standard deviation {:.4f}, minimum {:.4f}, maximum {:.4f}
"""
LOOKED_UP = """Token embeddings, (T, D) = (2, 3)
Each line is row ID of the token weight matrix (V, D) = (6, 3).
pos  ID  │        0        1        2
─────────────────────────────────────
  0   5  │  {:7.4f}  {:7.4f}  {:7.4f}
  1   3  │  {:7.4f}  {:7.4f}  {:7.4f}

Position embeddings, (T, D) = (2, 3)
Each line is row pos of the position weight matrix (C, D) = (1,024, 3).
pos  ID  │        0        1        2
─────────────────────────────────────
  0   5  │  {:7.4f}  {:7.4f}  {:7.4f}
  1   3  │  {:7.4f}  {:7.4f}  {:7.4f}

Input embeddings, (T, D) = (2, 3)
Each line is the token row plus the position row: what the model reads.
pos  ID  │        0        1        2
─────────────────────────────────────
  0   5  │  {:7.4f}  {:7.4f}  {:7.4f}
  1   3  │  {:7.4f}  {:7.4f}  {:7.4f}

input = token + position: (T, D) + (T, D) = (T, D), here (2, 3) + (2, 3) = (2, 3)

Trace of token 1: token row 3 + position row 1 = input row 1
column     token   position      input
     0  {:8.4f} + {:8.4f} = {:8.4f}
     1  {:8.4f} + {:8.4f} = {:8.4f}
     2  {:8.4f} + {:8.4f} = {:8.4f}
The sum is one of float32 values; it is shown to 4 decimals.
"""


def test_the_whole_output_of_tokenize(inside: Embcli) -> None:
    assert inside.ok("tokenize", "Hi 日本! ", COLUMNS="60").text == TOKENIZED


def test_the_whole_output_of_weights(inside: Embcli) -> None:
    torch.manual_seed(7)
    torch.nn.Embedding(3, 5)
    rows = torch.nn.Embedding(4, 5).weight.detach()
    summary = (rows.double().mean(), rows.double().std(), rows.min(), rows.max())
    expected = WEIGHED.format(*rows.flatten().tolist(), *map(float, summary))
    sizes = ("--vocab", "3", "--dim", "5", "--context-length", "4", "--seed", "7")
    assert inside.ok("weights", "--layer", "position", *sizes, COLUMNS="60").text == expected


def test_the_whole_output_of_lookup(inside: Embcli) -> None:
    torch.manual_seed(123)
    token = torch.nn.Embedding(6, 3).weight.detach()[[5, 3]]
    position = torch.nn.Embedding(C, 3).weight.detach()[:2]
    numbers = torch.cat([token, position, token + position]).flatten().tolist()
    traced = torch.stack([token[1], position[1], token[1] + position[1]], dim=1).flatten().tolist()
    arguments = ("--ids", "5,3", "--vocab", "6", "--dim", "3", "--trace", "1")
    assert inside.ok("lookup", *arguments, COLUMNS="60").text == LOOKED_UP.format(*numbers, *traced)


@pytest.mark.parametrize("precision", [11, 12, 16])
def test_a_number_is_worth_more_than_a_token_on_a_narrow_page(inside: Embcli, precision: int) -> None:
    wanted = ("--precision", str(precision), "--show", "input")
    lines = inside.ok("lookup", "Every effort", *wanted, COLUMNS="40").text.splitlines()
    rows = [line for line in lines if "│" in line]
    assert max(map(len, rows)) <= 40
    assert all(len(row.split("│")[1].split()[0].split(".")[1]) == precision for row in rows[1:])

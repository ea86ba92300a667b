"""Pictures in text: what is marked is what is picked, what goes where goes there, and each number is torch's."""

from __future__ import annotations

import re

import numpy as np
import pytest
from wcwidth import wcswidth

from embcli.formats import VIEWS, formats_for
from embcli.model import Model
from embcli.seeded_layers.seeded import Seeded
from tests.oracles import live, of_ids, stub
from tests.runners import InProcess

WIDTHS = (40, 80, 200)
CAT, IDS = "the cat saw the dog the the the", [1169, 3797, 2497, 262, 3290, 262, 262, 262]
TOY = """\
Each ID picks a row of the token matrix: V = 6 tokens, D = 3 columns
 ID  row  │        0        1        2  to pos
──────────────────────────────────────────────
       0  │   0.3374  -0.1778  -0.1690
1 →    1  │   0.9178   1.5810   1.3010  → 3
2 →    2  │   1.2753  -0.2010  -0.1606  → 0, 4
3 →    3  │  -0.4015   0.9666  -1.1481  → 1
       4  │  -1.1589   0.3255  -0.6315
5 →    5  │  -2.8400  -0.7849  -1.4096  → 2
Token embeddings: T = 5 tokens, D = 3 columns
pos  ID  │        0        1        2
─────────────────────────────────────
  0   2  │   1.2753  -0.2010  -0.1606
  1   3  │  -0.4015   0.9666  -1.1481
  2   5  │  -2.8400  -0.7849  -1.4096
  3   1  │   0.9178   1.5810   1.3010
  4   2  │   1.2753  -0.2010  -0.1606
Untrained: random rows of seed 123.
"""
run = InProcess()


def held(printed: str, width: int, expected: np.ndarray) -> list[str]:
    """Hold a table against (rows, D) float32 values, and that it is straight; return the last label of each row."""
    lines = [line.rstrip() for line in printed.splitlines() if "│" in line and "⋮" not in line]
    (header, *labels), (columns, *rows) = zip(*(line.split("│") for line in lines), strict=True)
    assert len({*map(wcswidth, [header, *labels])}) == len({*map(len, [columns, *rows])}) == 1
    assert max(map(wcswidth, printed.splitlines())) <= width
    for row, values in zip(rows, expected, strict=True):
        numbers = ["…" if each == "…" else f"{values[int(each)]:.4f}" for each in columns.split()]
        assert row.split() == numbers
    return [label.split()[-1] for label in labels]


def parted(printed: str) -> tuple[str, list[str], str]:
    """Return the matrix of a lookup's picture, what its last column says of each row, and the rest of the page."""
    picture, _, rest = printed.partition("Token embeddings")
    lines = [line for line in picture.splitlines() if "│" in line]
    cut = lines[0].index("to ")
    goals = [line[cut:] for line in lines[1:] if "⋮" not in line]
    return "\n".join(line[:cut].rstrip() for line in lines), goals, rest


def test_the_whole_picture_of_a_lookup() -> None:
    toy = ("--ids", "2,3,5,1,2", "--vocab", "6", "--dim", "3")
    assert run.ok("lookup", *toy, "--draw", COLUMNS="80").text == TOY
    rest = run.ok("lookup", *toy, COLUMNS="80").text
    whole = run.ok("lookup", *toy, "--draw", "--show", "token,position,input", COLUMNS="80").text
    assert whole == TOY.partition("Token emb")[0] + re.sub(
        "(?m)^token: .*; position", "position", rest
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_a_picture_of_a_lookup_has_the_picked_rows_and_says_where_each_goes(width: int) -> None:
    printed = run.ok("lookup", CAT, "--draw", COLUMNS=str(width)).text
    token = live(Seeded(50257, 256))["token"]
    assert max(len(line) for line in printed.splitlines() if "│" in line) <= width
    matrix, goals, rest = parted(printed)
    rows = [0, *sorted({*IDS}), 50256]
    assert held(matrix, width, token[rows]) == [*map(str, rows)]
    held(rest, width, token[IDS])
    arrows = re.findall(r"(\d+) → +(\d+)  │", printed)
    assert [int(row) for _, row in arrows] == rows[1:-1]
    assert [token_id for token_id, _ in arrows] == [row for _, row in arrows]
    assert (goals[0], goals[-1]) == ("", "")
    for row, goal in zip(rows[1:-1], goals[1:-1], strict=True):
        places = [place for place, token_id in enumerate(IDS) if token_id == row]
        found = re.fullmatch(r"→ ([\d, ]*?)(?:(?:, )?(\d+) (?:more|in all))?", goal)
        assert found, goal
        named = [int(place) for place in found[1].split(", ") if place]
        assert named == places[: len(named)]
        assert len(places) == len(named) + int(found[2] or 0)
    assert len([line for line in printed.splitlines() if "⋮" in line]) == 6


def test_rows_that_are_not_picked_are_asked_for_as_well() -> None:
    source = stub(np.eye(20), np.eye(20))
    Model(source).lookup(of_ids([7, 3]), draw=True)
    assert source.asked["token"].tolist() == [7, 3, 0, 19]
    arguments = ("lookup", "--ids", "7,3", "--vocab", "20", "--dim", "2", "--draw")
    assert run.ok(*arguments, "--no-cache").text == run.ok(*arguments).text


def test_a_picture_of_four_tokens_fits_a_screen() -> None:
    printed = run.ok("lookup", "Every effort moves you", "--draw", COLUMNS="80").text
    assert printed.count("\n") < 24


def test_sequences_are_named_where_there_are_several() -> None:
    printed = run.ok(
        "lookup", "--lines", "--ids", "-", "--vocab", "6", "--dim", "2", "--draw", stdin="1 2\n2 5"
    ).text
    assert re.findall(r"(\d) →.*→ (.*)", printed) == [("1", "0:0"), ("2", "0:1, 1:0"), ("5", "1:1")]


def test_more_rows_than_a_picture_has_room_for_are_said_to_be_missing() -> None:
    printed = run.ok(
        "lookup", "--ids", ",".join(map(str, range(10, 50))), "--dim", "2", "--draw"
    ).text
    assert "Left out: picked rows 16 to 43 (28 of 40).\n" in printed
    rows = [0, *range(10, 16), *range(44, 50), 50256]
    held(parted(printed)[0], 120, live(Seeded(50257, 2))["token"][rows])


def test_pictures_of_all_pages_have_the_same_numbers_and_only_pages_have_them() -> None:
    case = ("lookup", "--ids", "1,2", "--dim", "3", "--vocab", "6", "--draw")
    table, markdown = (
        re.findall(r"-?\d+\.\d{4}\b", run.ok(*case, "-f", each).text)
        for each in ("table", "markdown")
    )
    assert len(table) >= 12
    assert table == markdown
    for format in {*formats_for("batches")} - {*VIEWS}:
        assert f"--draw cannot be shown in {format}" in run.refused(*case, "-f", format)

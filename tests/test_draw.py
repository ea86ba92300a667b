"""Pictures in text: what is marked is what is picked, and each number is torch's."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest
from wcwidth import wcswidth

from embcli.formats import VIEWS, formats_for
from embcli.seeded_layers.seeded import Seeded
from tests.cases import cases
from tests.oracles import live

CAT = "the cat saw the dog the the the the the the"
CAT_IDS = [1169, 3797, 2497, 262, 3290, 262, 262, 262, 262, 262, 262]
NUMBER_OR_DOTS = re.compile(r"-?\d+\.\d{4}|…")
COLUMN = re.compile(r"\d+|…")

PAGES = {
    "lookup/draw.txt": "lookup --ids 2,3,5,1,2 --vocab 6 --dim 3 --draw",
    "lookup/draw-with-positions.txt": (
        "lookup --ids 2,3,5,1,2 --vocab 6 --dim 3 --draw --show token,position,input"
    ),
    "lookup/draw-four-tokens.txt": "lookup 'Every effort moves you' --draw",
    "lookup/draw-many-rows.txt": (
        "lookup --ids 10,12,14,16,18,20,22,24,26,28,30,32,34,36,38 --vocab 60 --dim 2 --draw"
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_whole_page_of_a_picture(in_process, snapshot, name):
    printed = in_process.ok(*shlex.split(PAGES[name]), COLUMNS="80").text

    snapshot(name, printed)


def test_sequences_are_named_where_there_are_several(in_process, snapshot):
    command = "lookup --lines --ids - --vocab 6 --dim 2 --draw"
    printed = in_process.ok(*command.split(), stdin="1 2\n2 5", COLUMNS="80").text

    snapshot("lookup/draw-sequences.txt", printed)


def assert_rows(table: str, width: int, rows: list[int], matrix: np.ndarray) -> None:
    """Hold the numbers of a table's rows, whose last label is an ID, against a matrix."""
    lines = []
    for line in table.splitlines():
        if "│" in line and "⋮" not in line:
            lines.append(line.rstrip())
    assert max(map(wcswidth, lines)) <= width

    header, *body = [line.split("│") for line in lines]
    assert len({wcswidth(labels) for labels, _ in body}) == 1
    columns = COLUMN.findall(header[1])
    for row, (labels, values) in zip(rows, body, strict=True):
        assert labels.split()[-1] == str(row)
        numbers, _, _ = values.partition("→")
        for column, value in zip(columns, NUMBER_OR_DOTS.findall(numbers), strict=True):
            expected = "…" if column == "…" else f"{matrix[row, int(column)]:.4f}"
            assert value == expected


def assert_places(words: str, places: list[int]) -> None:
    """Hold the words behind a picked row, such as `→ 3, 5, …`, against its places."""
    named = [int(place) for place in re.findall(r"\d+", words)]
    assert named == places[: len(named)]
    assert words.endswith("…") == (len(named) < len(places))


@cases
def test_a_picture_has_the_picked_rows_and_says_where_each_goes(in_process, width):
    token = live(Seeded(50257, 256))["token"]
    picked = sorted(set(CAT_IDS))

    printed = in_process.ok("lookup", CAT, "--draw", COLUMNS=str(width)).text

    picture, _, embeddings = printed.partition("Token embeddings")
    assert_rows(picture, width, [0, *picked, 50256], token)
    assert_rows(embeddings, width, CAT_IDS, token)
    arrows = re.findall(r"(\d+) → +(\d+)  │.*  (→ .*)$", picture, re.MULTILINE)
    assert [int(row) for _, row, _ in arrows] == picked
    for token_id, row, words in arrows:
        assert token_id == row
        places = [place for place, picked_id in enumerate(CAT_IDS) if picked_id == int(row)]
        assert_places(words, places)


def test_a_picture_of_many_rows_has_torchs_numbers(in_process):
    ids = range(10, 50)
    written = ",".join(map(str, ids))

    words = ("lookup", "--ids", written, "--dim", "2", "--draw")
    printed = in_process.ok(*words, COLUMNS="80").text

    picture, *_ = printed.partition("Token embeddings")
    shown = [0, *ids[:6], *ids[-6:], 50256]
    assert_rows(picture, 80, shown, live(Seeded(50257, 2))["token"])
    assert "picked rows 16 to 43 (28 of 40)" in printed


SMALL = ("lookup", "--ids", "1,2", "--dim", "3", "--vocab", "6", "--draw")


@cases
def test_a_picture_and_its_table_are_side_by_side_where_they_fit(
    in_process, width, titles_in_a_line
):
    printed = in_process.ok(*SMALL, "--bare", COLUMNS=str(width)).text
    first, *_ = printed.splitlines()
    assert first.count("D = 3 columns") == titles_in_a_line


@pytest.mark.parametrize("format", sorted({*formats_for("batches")} - {*VIEWS}))
def test_data_has_no_picture(in_process, format):
    refusal = in_process.refused(*SMALL, "-f", format)

    assert "--draw" in refusal
    assert format in refusal

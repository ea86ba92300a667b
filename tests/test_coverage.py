"""Coverage: how often torch's own loader reads each token of the chapter's data set; and ranges of IDs."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import embcli
from embcli import glossary
from embcli.errors import InputError
from embcli.text import parse_ids
from tests.inside import Inside

run = Inside()


def read_by_torch(
    size: int, batch_size: int, length: int, stride: int, shuffle: bool, keep_last: bool
) -> list[list[list[int]]]:
    """Return the inputs of all batches over the IDs 0 to size - 1, the loader drawing first after the seed."""
    samples = [list(range(start, start + length)) for start in range(0, size - length, stride)]
    if not samples:
        return []
    torch.manual_seed(123)
    loader = DataLoader(
        samples, batch_size=batch_size, shuffle=shuffle, drop_last=not keep_last, collate_fn=lambda batch: batch
    )
    return [*loader]


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(2, 40),
    batch_size=st.integers(1, 4),
    length=st.integers(1, 6),
    stride=st.integers(1, 8),
    shuffle=st.booleans(),
    keep_last=st.booleans(),
)
def test_counts_and_sums_are_those_of_torchs_loader(
    size: int, batch_size: int, length: int, stride: int, shuffle: bool, keep_last: bool
) -> None:
    model = embcli.seeded(vocab=50, dim=1)
    options = {"batch_size": batch_size, "max_length": length, "stride": stride, "shuffle": shuffle}
    options |= {"keep_last": keep_last, "loader_first": True}
    batches = read_by_torch(size, batch_size, length, stride, shuffle, keep_last)
    if not batches:
        with pytest.raises(InputError):
            model.batch(range(size), coverage=True, **options)
        return
    found = model.batch(range(size), coverage=True, **options)
    read = np.array([token for batch in batches for sample in batch for token in sample])
    wanted = np.bincount(read, minlength=size)
    assert found.counts.tolist() == wanted.tolist()
    starts = range(0, size - length, stride)
    within = {place for start in starts for place in range(start, start + length)}
    end = starts[-1] + length
    assert (found.once, found.repeated) == ((wanted == 1).sum(), (wanted > 1).sum())
    assert found.skipped == len({*range(end)} - within)
    assert found.left_over == size - end >= 1
    assert found.dropped == len([place for place in within if not wanted[place]])
    assert found.once + found.repeated + found.skipped + found.dropped + found.left_over == size
    all_batches = model.batch(range(size), all=True, **options)
    assert all_batches.inputs.tolist() == [sample for batch in batches for sample in batch]


def test_the_loader_alone_gives_the_tables_of_the_book() -> None:
    lines = [shlex.split(line)[1:] for line in glossary.find("questions").examples if "0:1001" in line]
    plain, shuffled = (re.findall(r"│((?:  *\d+)+)  │((?:  *\d+)+)$", run.ok(*line).text, re.M) for line in lines)
    tables = [[[*map(int, part.split())] for row in rows for part in row] for rows in (plain, shuffled)]
    assert tables[0][2:7:2] == [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert tables[0][-2:] == [[996, 997, 998, 999], [997, 998, 999, 1000]]
    assert tables[1][-4::2] == [[880, 881, 882, 883], [112, 113, 114, 115]]


def test_with_the_loader_first_the_rows_are_those_of_lookup() -> None:
    model = embcli.seeded(vocab=20, dim=3)
    batch = model.batch(range(9), batch_size=1, loader_first=True, context_length=1024)
    assert batch.input[0].tobytes() == model.lookup(range(4)).input.tobytes()


SMALL = ("batch", "--vocab", "12", "--dim", "2", "--coverage")


def test_a_page_of_coverage() -> None:
    words = ["--ids", "0:12", "--batch-size", "2", "--max-length", "3", "--stride", "4"]
    assert run.ok(*SMALL, *words, COLUMNS="60").text == (
        "Which of 12 tokens are read\n"
        "3 samples of T = 3 tokens, stride 4, in 1 batch of B = 2\n"
        "sample  0  1  2  3  4  5  6  7  8  9  10  11\n"
        "────────────────────────────────────────────\n"
        "     0  0  1  2\n"
        "     1              4  5  6\n"
        "     2                          8  9  10\n"
        "  read  1  1  1  0  1  1  1  0  0  0  0   0\n"
        "\n"
        "How often each token of the text is an input:\n"
        "│  0                                             11\n"
        "───────────────────────────────────────────────────\n"
        "│  @@@@@@@@@@@@....@@@@@@@@@@@@....................\n"
        "\n"
        "0 ...:::-----===+++++***#####%%%@@@ 1\n"
        "\n"
        "tokens\n"
        "     6 read once\n"
        "     2 skipped: the stride exceeds T by 1\n"
        "     3 dropped: 1 sample without a full batch\n"
        "     1 left over at the end: too few for another sample\n"
    )


def test_rows_of_coverage() -> None:
    words = ["--ids", "0:6", "--batch-size", "1", "--max-length", "3", "--stride", "2", "-f", "json"]
    document = json.loads(run.ok(*SMALL, *words).text)
    assert [row["samples"] for row in document["tokens"]] == [1, 1, 2, 1, 1, 0]
    sums = [document["run"][name] for name in ("once", "repeated", "skipped", "dropped", "left_over")]
    assert sums == [4, 1, 0, 0, 1]


def test_a_stride_above_the_length_is_told() -> None:
    words = ["batch", "--ids", "0:30", "--vocab", "30", "--dim", "2", "--batch-size", "2", "--stride"]
    assert "The stride exceeds T: 2 of 6 tokens are in no sample.\n" in run.ok(*words, "6").text
    assert "exceeds" not in run.ok(*words, "4").text


@pytest.mark.parametrize(
    ("text", "ids"), [("2:5", [2, 3, 4]), ("7, 0:2 9", [7, 0, 1, 9]), ("[1:3,5]", [1, 2, 5]), ("0:1", [0])]
)
def test_ranges_of_ids(text: str, ids: list[int]) -> None:
    assert parse_ids(text).tolist() == ids
    assert run.ok("tokenize", "--ids", text, "-f", "ids").text.split() == [str(each) for each in ids]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5:5", "'5:5' at position 0 has no IDs: a range ends after its start, as in 0:5"),
        ("1 7:2", "'7:2' at position 1 has no IDs"),
        ("3:", "'' at position 0 is not a token ID"),
        ("1:2:3", "'2:3' at position 0 is not a token ID"),
        ("-1:3", "ID -1 at position 0 is negative"),
        ("0:9000000000000000000", "the ranges have 9,000,000,000,000,000,000 IDs; at most 100,000,000 are possible"),
    ],
)
def test_ranges_that_are_none_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_ids(text)


@pytest.mark.parametrize("words", ["--layers-first --loader-first", "--coverage --all", "--coverage --index 0"])
def test_options_that_exclude_each_other(words: str) -> None:
    assert run.refused("batch", "--ids", "0:30", "--dim", "2", *words.split())

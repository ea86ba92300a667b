"""The figures of the book's notebooks at seed 123 come out, through the commands a reader would type."""

from __future__ import annotations

import io

import numpy as np

from tests.conftest import Embcli

WEIGHTS = [
    [0.3374, -0.1778, -0.1690],
    [0.9178, 1.5810, 1.3010],
    [1.2753, -0.2010, -0.1606],
    [-0.4015, 0.9666, -1.1481],
    [-1.1589, 0.3255, -0.6315],
    [-2.8400, -0.7849, -1.4096],
]
VERDICT = (
    "I HAD always thought Jack Gisburn rather a cheap genius--though a good fellow enough--so it was no great surprise "
    "to me to hear that, in"
)
BATCH = [
    *([40, 367, 2885, 1464], [1807, 3619, 402, 271], [10899, 2138, 257, 7026], [15632, 438, 2016, 257]),
    *([922, 5891, 1576, 438], [568, 340, 373, 645], [1049, 5975, 284, 502], [284, 3285, 326, 11]),
]


def test_weights_of_six_rows_and_three_columns_and_the_rows_that_ids_pick(inside: Embcli) -> None:
    for words, rows in ((("weights",), range(6)), (("lookup", "--ids", "2,3,5,1", "--show", "token"), (2, 3, 5, 1))):
        found = np.load(io.BytesIO(inside.ok(*words, "--vocab", "6", "--dim", "3", "-f", "npy").out))
        assert found.round(4).tolist() == np.array(WEIGHTS, np.float32)[[*rows]].tolist()


def test_the_first_batch_of_the_verdict(inside: Embcli) -> None:
    ids = [*map(int, inside.ok("tokenize", VERDICT, "-f", "ids").text.split())]
    assert [ids[start : start + 4] for start in range(0, 32, 4)] == BATCH
    assert ids[32:] == [287]

"""Parquet holds what ndjson holds; tests of writers hold each format against its own library."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from tests.oracles import normal
from tests.readers import from_ndjson

Row = dict[str, Any]


def without_vectors(row: Row) -> Row:
    """Return a row without its vectors."""
    return {name: row[name] for name in row if name != "vectors"}


def nan_as_none(row: Row) -> Row:
    """Return a row with None, as JSON has it, in place of NaN."""
    return {name: None if value != value else value for name, value in row.items()}


@pytest.mark.parametrize(
    "command",
    [
        "neighbors --ids 2,3 --lines --dim 3 --vocab 6 -k 3",
        'neighbors "Every effort" --dim 8',
        "audit base.npy --rows all",
        "diff base.npy tuned.npy --encoding gpt2",
    ],
)
def test_parquet_holds_the_rows_that_ndjson_holds(in_process, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    base = normal(50, 4)
    base[7] = np.nan
    np.save("base.npy", base)
    np.save("tuned.npy", np.concatenate([base[:40], base[:3] * 2]))
    words = shlex.split(command)

    in_process(*words, "-o", "rows.parquet")
    as_ndjson = in_process(*words, "-f", "ndjson")

    lines = [without_vectors(row) for row in from_ndjson(as_ndjson.out)]
    rows = parquet.read_table("rows.parquet").to_pylist()
    assert [nan_as_none(row) for row in rows] == lines
    assert len(rows) > 2

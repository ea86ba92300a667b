"""The data formats as other programs read them: the standard library, numpy."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from embcli.errors import Notes
from embcli.formats import DataFormat
from embcli.records import Records
from embcli.writers import write


def float32(values: Any) -> np.ndarray:
    return np.array(values, np.float64).astype(np.float32)


def from_csv(data: bytes) -> list[list[str]]:
    text = data.decode()
    nul = next(
        sign for sign in map(chr, range(0xE000, 0xF8FF)) if sign not in text
    )  # csv of Python 3.10 refuses NUL
    rows = csv.reader(io.StringIO(text.replace("\0", nul), newline=""), strict=True)
    return [[cell.replace(nul, "\0") for cell in row] for row in rows]


def from_tsv(data: bytes) -> list[list[str]]:
    meant = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    assert data.endswith(b"\n")
    assert b"\r" not in data  # which many readers take for the end of a line
    return [
        [re.sub(r"\\(.)", lambda match: meant[match[1]], cell) for cell in line.split("\t")]
        for line in data.decode()[:-1].split("\n")
    ]


def from_ndjson(data: bytes) -> list[dict[str, Any]]:
    assert data.endswith(b"\n") or not data
    return [json.loads(line, parse_constant=pytest.fail) for line in data.split(b"\n")[:-1]]


def from_json(data: bytes) -> dict[str, Any]:
    document = json.loads(data, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert isinstance(document, dict)
    return document


SEPARATED = {"csv": from_csv, "tsv": from_tsv}


def written(
    records: Records,
    form: DataFormat,
    show: tuple[str, ...] | None = None,
    notes: Notes | None = None,
) -> bytes:
    file = io.BytesIO()
    write(replace(records, shown=show or records.shown), form, file, notes)
    return file.getvalue()

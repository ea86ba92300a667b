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
from PIL import Image

from embcli.errors import Notes
from embcli.formats import DataFormat
from embcli.records import Records
from embcli.writers import write


def float32(values: Any) -> np.ndarray:
    """Return numbers, or their decimals, as float32."""
    return np.array(values, np.float64).astype(np.float32)


def from_csv(data: bytes) -> list[list[str]]:
    """Return the cells of csv; NUL has a stand-in, as csv of Python 3.10 refuses it."""
    text = data.decode()
    nul = "\ue000"
    while nul in text:
        nul = chr(ord(nul) + 1)
    rows = csv.reader(io.StringIO(text.replace("\0", nul), newline=""), strict=True)
    return [[cell.replace(nul, "\0") for cell in row] for row in rows]


def as_npy(array: np.ndarray) -> bytes:
    """Return what numpy saves of an array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def from_tsv(data: bytes) -> list[list[str]]:
    """Return the cells of tsv, without their escapes."""
    assert data.endswith(b"\n")
    assert b"\r" not in data, "many readers take it for the end of a line"
    lines = data.decode()[:-1].split("\n")
    return [[_unescaped(cell) for cell in line.split("\t")] for line in lines]


def _unescaped(cell: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPED[match[1]], cell)


def from_ndjson(data: bytes) -> list[dict[str, Any]]:
    """Return the objects of ndjson; NaN and Infinity, which JSON does not have, fail the test."""
    assert data.endswith(b"\n") or not data
    lines = data.split(b"\n")[:-1]
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def from_json(data: bytes) -> dict[str, Any]:
    """Return a JSON document; NaN and Infinity, which JSON does not have, fail the test."""
    document = json.loads(data, parse_constant=pytest.fail)
    assert isinstance(document, dict)
    return document


SEPARATED = {"csv": from_csv, "tsv": from_tsv}


def written(
    records: Records,
    form: DataFormat,
    show: tuple[str, ...] | None = None,
    notes: Notes | None = None,
) -> bytes:
    """Return records as a file of a format, with all matrices or with these."""
    file = io.BytesIO()
    write(replace(records, shown=show or records.shown), form, file, notes or Notes())
    return file.getvalue()


def from_png(picture: bytes) -> np.ndarray:
    """Return the pixels of a PNG, (height, width, 4) uint8: red, green, blue, alpha."""
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA"))

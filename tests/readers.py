"""The data formats as other programs read them: the standard library, numpy."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

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


def size_of_png(picture: bytes) -> tuple[int, int]:
    """Return the width and height in pixels, from the header of a PNG."""
    return struct.unpack(">II", picture[16:24])


def from_png(picture: bytes) -> np.ndarray:
    """Return the pixels of a PNG, (height, width, 4) uint8: red, green, blue, alpha."""
    data = b""
    start = 8
    while start < len(picture):
        (length,) = struct.unpack(">I", picture[start : start + 4])
        if picture[start + 4 : start + 8] == b"IDAT":
            data += picture[start + 8 : start + 8 + length]
        start += 12 + length

    width, height = size_of_png(picture)
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + 4 * width)
    pixels = np.zeros((1 + height, 1 + width, 4), int)  # with a row above, and a column before
    for y, (kind, *line) in enumerate(lines.tolist(), 1):
        for x, differences in enumerate(np.reshape(line, (width, 4)), 1):
            left = pixels[y, x - 1]
            above = pixels[y - 1, x]
            corner = pixels[y - 1, x - 1]
            guesses = [0 * left, left, above, (left + above) // 2, _paeth(left, above, corner)]
            pixels[y, x] = (differences + guesses[kind]) % 256
    return pixels[1:, 1:].astype(np.uint8)


def _paeth(left: np.ndarray, above: np.ndarray, corner: np.ndarray) -> np.ndarray:
    """Return whichever of three is nearest to left + above - corner, as PNG predicts."""
    three = np.array([left, above, corner])
    distances = np.abs(left + above - corner - three)
    return np.choose(distances.argmin(axis=0), three)

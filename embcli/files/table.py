"""Numbers as text: numpy.savetxt's lines, and csv whose last columns are those of a matrix.

The text is read whole.
"""

from __future__ import annotations

import io
import re

import numpy as np

from embcli.binary import Binary, BinaryStream
from embcli.errors import Notes
from embcli.files import vectors
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import StoredLayer, Tensor, Tensors


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return the numbers as one matrix; a single column or line is one row.

    Words can look like numbers, so a text without commas that is more than numbers is read as word
    vectors.
    """
    stream = io.BufferedReader(BinaryStream(binary))
    first_line = stream.readline()
    stream.seek(0)
    commas = first_line.count(b",")
    header = re.match(rb"(?!nan|inf)(?:[a-z_]*,)+", first_line)
    columns = range(header[0].count(b","), commas + 1) if header else None
    try:
        numbers = np.loadtxt(
            io.TextIOWrapper(stream, "utf-8"),
            np.float32,
            comments=None,
            delimiter="," if commas else None,
            skiprows=1 if header else 0,
            usecols=columns,
            quotechar='"',
        )
    except ValueError as error:
        if not commas:
            return vectors.read(binary, notes)
        reason, *_ = str(error).partition(";")  # then numpy advises on its own parameters
        raise binary.file_error(f"it is not a table of numbers ({reason[:200]})") from None
    rows = np.atleast_2d(numbers)
    dtype = StoredDtype("decimal", rows.dtype)
    tensor = Tensor(
        binary.path.stem,
        rows.shape,
        dtype.name,
        binary.size,
        binary,
        start=0,
        matrix=lambda tensor: StoredLayer(tensor.shape, dtype, rows.__getitem__),
    )
    return Tensors(binary, "numbers as text", {tensor.name: tensor})

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

# A pattern of a header of csv, whose groups are the names of columns before those of the matrix.
# pandas and R leave out the name of the column of row names.
_NAME = r'(?!nan|inf)[ "]*[a-z_][^,]*'
_HEADER = re.compile(rf'(?i)((?:(?!nan|inf)[a-z_]*,)+)[0-9,]+|((?:"")?,)?{_NAME}(?:,{_NAME})*')


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return the numbers as one matrix; a single column or line is one row.

    Words can look like numbers, so a text without commas that has a word is read as word vectors,
    as is a file with their suffix.
    """
    if binary.path.suffix == ".vec":
        return vectors.read(binary, notes)
    stream = io.BufferedReader(BinaryStream(binary))
    # A byte that is not UTF-8 can be in a column that is not read.
    text = io.TextIOWrapper(stream, "utf-8-sig", "replace")
    beginning = text.read(1 << 16)
    text.seek(0)
    comments, line, next_line = re.findall(r"\A((?:#.*\n)*)(.*)\n?(.*)", beginning)[0]
    skipped = comments.count("\n")
    commas = line.count(",")
    columns = None
    header = _HEADER.fullmatch(line) if commas else None
    if header:
        skipped += 1
        names = "".join(header.groups(""))
        if names:
            columns = range(names.count(","), commas + 1)
    elif commas and line == ",".join(map(str, range(commas + 1))):
        # pandas numbers columns without names.
        is_header = "." in next_line
        if is_header:
            skipped += 1
        kind = "names of columns" if is_header else "numbers"
        notes.add(f"the first line of {binary.path.name}, {line[:60]}, is read as {kind}")

    try:
        numbers = np.loadtxt(
            text,
            comments=None,
            delimiter="," if commas else None,
            skiprows=skipped,
            usecols=columns,
            quotechar='"',
            ndmin=2,
        )
    except ValueError as error:
        has_words = re.search(r"(?i)[^-+.0-9einfa\s]", beginning)
        has_sizes = re.fullmatch(r"\d+ \d+\s*", line)  # the first line of word2vec's text
        if (has_words or has_sizes) and not commas:
            return vectors.read(binary, notes)
        reason, *_ = str(error).partition("; use")  # then numpy advises on its own parameters
        raise binary.file_error(f"it is not a table of numbers ({reason[:200]})") from None

    is_vector = not commas and numbers.shape[1] == 1
    rows = numbers.T if is_vector else numbers
    dtype = StoredDtype("decimal", rows.dtype)
    tensor = Tensor(
        binary.path.stem,
        rows.shape,
        dtype.name,
        binary.size,
        binary,
        start=0,
        matrix=lambda tensor: StoredLayer(tensor.shape, dtype, rows.__getitem__),
        array_shape=rows.shape[1:] if is_vector else (),
    )
    return Tensors(binary, "numbers as text", {tensor.name: tensor})

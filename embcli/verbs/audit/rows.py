"""What is unusual in the rows and columns of a matrix: checks of a MatrixAudit."""

from __future__ import annotations

import reprlib

import numpy as np

from embcli.encodings import Encoding
from embcli.names import Fault
from embcli.verbs.audit.finding import Finding, Found, Level, of_rows
from embcli.verbs.audit.matrix import MatrixAudit
from embcli.wording import counted, first_of

_SHARE_EQUAL = 0.01  # of all rows, from which on equal ones are no chance
_LEAST_EQUAL = 10
_FLOATS = {"float32", "float16", "bfloat16"}


def check_broken(matrix: MatrixAudit) -> Found:
    """Check that no row is non-finite, zero or too large; those of a head have the kind `head`."""
    for name, rows in matrix.broken.items():
        kind: Fault = "zero" if name == "zero" else "non-finite"
        if matrix.name == "head":
            kind = "head"
        level: Level = "alarm"
        text = f"{counted(len(rows), f'{name} row')} in the {matrix.in_words}"
        if name == "zero" and {*rows.tolist()} <= matrix.files.unread_rows:
            level = "remark"
            text += ", of a token that no text has"
        yield from of_rows(level, kind, rows, text, matrix.name)


def check_constant(matrix: MatrixAudit) -> Found:
    """Check that no column has the same value in all used rows."""
    count = len(matrix.scan.constant)
    if count and len(matrix.measured) > 1:
        columns = reprlib.repr(matrix.scan.constant.tolist())
        text = (
            f"{count:,} of {counted(matrix.shape[1], 'column')} with the same value in all rows "
            f"of the {matrix.in_words}: {columns}"
        )
        yield Finding("finding", "constant", text, count)


def check_dtype(matrix: MatrixAudit) -> Found:
    """Check that the dtype that files name is that of the numbers."""
    dtype = matrix.dtype
    stated = matrix.files.stated_dtype
    if matrix.other_dtype:
        text = f"the {matrix.in_words} is labelled {dtype}; its bits are {matrix.other_dtype}"
        yield Finding("finding", "fit", text)
    elif stated != dtype and {stated, dtype} <= _FLOATS:
        text = f"config.json states the dtype {stated}; the {matrix.in_words} is {dtype}"
        yield Finding("remark", "fit", text)


def check_equal(matrix: MatrixAudit) -> Found:
    """Check that no two tokens have equal rows."""
    count = len(matrix.repeated)
    if count:
        groups = first_of([" = ".join(map(str, group[:4])) for group in matrix.scan.equal], 3)
        tokens = counted(count, "token")
        text = f"{tokens} with the row of another, in the {matrix.in_words}: {groups}"
        level: Level = "remark"
        # Without an encoding, the unused rows are not known.
        encoding = matrix.files.encoding
        others = np.setdiff1d(matrix.repeated, matrix.candidates)
        least = max(_SHARE_EQUAL * len(matrix.measured), _LEAST_EQUAL)
        are_many = len(others) >= least or (encoding is not None and _have_run(others, encoding))
        # Unused rows can be equal, and are told from these.
        are_used = len(others) > 0 and matrix.separation.threshold is not None
        if encoding is not None and (are_many or are_used):
            level = "finding"
        yield Finding(level, "equal", text, count)


def _have_run(ids: np.ndarray, encoding: Encoding) -> bool:
    """Return whether there are ten consecutive IDs of tokens that were not added.

    Tokens that no text had are scattered, except reserved ones, which are added.
    """
    own = np.setdiff1d(ids, [*encoding.added])
    return bool((own[9:] - own[:-9] == 9).any())


def check_candidates(matrix: MatrixAudit) -> Found:
    """Check that no row of a used token is like those of unused ones."""
    tokens = counted(len(matrix.candidates), "token")
    text = f"{tokens} like unused rows, in the {matrix.in_words}"
    yield from of_rows("remark", "candidates", matrix.candidates, text, matrix.name)

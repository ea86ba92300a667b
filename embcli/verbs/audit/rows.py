"""What is unusual in the rows and columns of a matrix: checks of a MatrixAudit."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator

from embcli.names import Fault
from embcli.verbs.audit.finding import Finding, Level
from embcli.verbs.audit.matrix import MatrixAudit
from embcli.wording import counted


def check_broken(matrix: MatrixAudit) -> Iterator[Finding]:
    """Check that no row is non-finite, zero or too large; those of a head have the kind `head`."""
    for name, rows in matrix.broken.items():
        kind: Fault = "zero" if name == "zero" else "non-finite"
        if matrix.name == "head":
            kind = "head"
        if len(rows):
            level: Level = "alarm"
            text = f"{counted(len(rows), f'{name} row')} in the {matrix.in_words}"
            if name == "zero" and {*rows.tolist()} <= matrix.files.unread_rows:
                level = "remark"
                text += ", of a token that no text has"
            ids = tuple(rows.tolist())
            yield Finding(level, kind, len(ids), text, True, matrix.name, ids)


def check_constant(matrix: MatrixAudit) -> Iterator[Finding]:
    """Check that no column has the same value in all used rows."""
    count = len(matrix.constant)
    if count and len(matrix.measured) > 1:
        columns = reprlib.repr(matrix.constant.tolist())
        text = (
            f"{count:,} of {matrix.shape[1]:,} columns with the same value in all rows "
            f"of the {matrix.in_words}: {columns}"
        )
        yield Finding("finding", "constant", count, text)


def check_dtype(matrix: MatrixAudit) -> Iterator[Finding]:
    """Check that the dtype of 16-bit numbers is the one that their file names."""
    if matrix.other_dtype:
        text = (
            f"the {matrix.in_words} is labelled {matrix.dtype}; its bits are {matrix.other_dtype}"
        )
        yield Finding("finding", "fit", 1, text)


def check_equal(matrix: MatrixAudit) -> Iterator[Finding]:
    """Check that no two tokens have equal rows."""
    count = matrix.equal_tokens
    if count:
        text = f"{counted(count, 'token')} with the row of another, in the {matrix.in_words}"
        yield Finding("remark", "equal", count, text, is_in_matrix=True)


def check_candidates(matrix: MatrixAudit) -> Iterator[Finding]:
    """Check that no row of a used token is like those of unused ones."""
    count = len(matrix.candidates)
    if count:
        text = f"{counted(count, 'token')} like unused rows, in the {matrix.in_words}"
        ids = tuple(matrix.candidates.tolist())
        yield Finding("remark", "candidates", count, text, True, matrix.name, ids)

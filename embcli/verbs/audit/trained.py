"""Whether rows were trained: checks of a MatrixAudit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.names import Fault, TokenLayer
from embcli.verbs.audit.distribution import Initial
from embcli.verbs.audit.finding import Finding, Found, Level, of_rows, rows_in_words
from embcli.verbs.audit.matrix import MatrixAudit
from embcli.verbs.audit.outliers import TIMES, outliers
from embcli.wording import counted

# A typical value is from a hundredth to a thousand times as large as a drawn one.
_LEAST_TIMES = 1 / 100
_MOST_TIMES = 1000
_FEW_ZEROS = 1 / 64  # of the values of a typical row
_MANY_ZEROS = 1 / 8  # of those of a row, if the typical one has few
_LEAST_VALUES = 10_000  # of a file, below which its matrices may be drawn as an example
# What the rows of added tokens are, by their trace.
_TRACES = {
    "mean": "the mean of all rows",
    "noise": "the mean of all rows plus small random numbers",
    "near": "nearly equal to one another",
    "copy": "copies of another row",
    "drawn": "as long as rows that a model draws",
    "pieces": "the means of the pieces of their names",
    "length": "as long as rows that a model draws",
    "ordinary": "the mean of all rows",
    "unused": "like rows without a token, as hardly a row of older tokens is",
}


def check_untrained(matrix: MatrixAudit) -> Found:
    """Check that the rows of added tokens were trained."""
    for trace, rows in matrix.untrained.items():
        tokens = counted(len(rows), "token" if trace == "ordinary" else "added token")
        where = f"{rows_in_words(rows)} of the {matrix.in_words}"
        level: Level = "finding"
        kind: Fault = "untrained"
        looks = "looks untrained" if len(rows) == 1 else "look untrained"
        if trace in ("pieces", "length"):
            level = "remark"
            kind = "possibly-untrained"
            looks = "may be untrained, which cannot be told"
        text = f"{tokens} {looks}: {where}, {_TRACES[trace]}"
        yield from of_rows(level, kind, rows, text, matrix.name)


def check_initial(matrix: MatrixAudit) -> Found:
    """Check that the rows of a model are not as they were initialised.

    A text need not have any of the tokens of one byte, so runs of these are not told.
    """
    checkpoint = matrix.files.checkpoint
    if checkpoint is not None:
        where = matrix.in_words
        yield from as_initialised(checkpoint, matrix.initial, where, "initial", matrix.name)


def as_initialised(
    checkpoint: Checkpoint,
    found: Iterable[Initial],
    matrix: str,
    kind: Fault,
    layer: TokenLayer | None = None,
) -> Found:
    """Yield the rows of a matrix that are as they were initialised.

    A small file can be drawn as an example, and so can an array, or a run of rows in a file without
    a config.json, unless it is a GGUF file.
    """
    values = 0
    with suppress(InputError):  # An index names what its file lacks.
        values = sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values())
    form = checkpoint.tensors.format
    has_settings = checkpoint.roles.config or form == "GGUF"
    for rows in found:
        is_whole_model = not rows.margin and form in ("safetensors", "PyTorch")
        if values < _LEAST_VALUES or not (has_settings or is_whole_model):
            continue
        ids = np.arange(rows.first, rows.stop)
        text = (
            f"{rows_in_words(ids)} of the {matrix}{rows.margin} look as initialised: "
            f"{rows.distribution} values around 0 in each column"
        )
        yield from of_rows("finding", kind, ids, text, layer)


def check_outliers(matrix: MatrixAudit) -> Found:
    """Check that no used row is far longer or shorter than others, or is in part zero.

    Added rows that were not trained are short for another reason, and so are candidates that are
    about as long as unused rows. A head can choose a row after the last token if it is long.
    """
    norms = matrix.norms
    shortest = np.nanmin(norms[[*matrix.unused]], initial=np.inf)
    is_alike = norms[matrix.candidates] > shortest / TIMES
    candidates = matrix.candidates[is_alike]
    others = np.concatenate([[*matrix.unused], candidates, *matrix.untrained.values()])
    used = np.setdiff1d(np.flatnonzero(norms > 0), others)
    found = used[outliers(norms[used], matrix.scan.largest[used])]
    faults = {f"a norm or a largest value {TIMES} times beyond those of all others": found}
    zeros = matrix.scan.zeros[used] / matrix.shape[1]
    has_few = np.count_nonzero(zeros <= _FEW_ZEROS) > len(used) / 2
    if has_few and matrix.files.config:  # Other matrices can be of counts.
        faults["values in part zero, unlike most"] = used[zeros >= _MANY_ZEROS]
    if matrix.is_head:
        padding = np.array(matrix.by_use.get("padding", []), np.int64)
        long = padding[norms[padding] > TIMES * norms[used].max(initial=0)]
        faults[f"after the last token, yet {TIMES} times as long as the rows of tokens"] = long
    for fault, rows in faults.items():
        if len(rows):
            text = f"{rows_in_words(rows)} of the {matrix.in_words}: {fault}"
            yield from of_rows("finding", "outliers", rows, text, matrix.name)


def check_scale(matrix: MatrixAudit) -> Found:
    """Check that values are about as large as those of rows that the model draws."""
    drawn = matrix.files.deviation
    norms = matrix.norms[matrix.measured]
    if not drawn or not norms.any():
        return
    typical = float(np.median(norms)) / math.sqrt(matrix.shape[1])
    if not _LEAST_TIMES < typical / drawn < _MOST_TIMES:
        text = (
            f"values of the {matrix.in_words} are about {typical:.2g} in size, "
            f"those of rows that the model draws {drawn:g}"
        )
        yield Finding("finding", "outliers", text, len(matrix.measured), layer=matrix.name)

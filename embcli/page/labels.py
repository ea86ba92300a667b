"""What the pages of several verbs share: labels of rows and tokens, where numbers come from, rows that are picked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from rich.text import Text

from embcli.layer import Origin
from embcli.page import Label, Note, omission
from embcli.selection import Excerpt
from embcli.tokens import Tokens, shown

_MOST_PICKED = 12  # rows of a drawing
_EIGHTHS = " ▏▎▍▌▋▊▉"


def token_labels(tokens: Tokens, places: np.ndarray) -> list[Label]:
    sequence, position = tokens.places(places)
    ids = tokens.ids[places]
    labels = [Label("seq", sequence)] if tokens.many else []
    labels.append(Label("pos", position))
    if tokens.encoding is not None:
        labels.append(token_label(tokens.bytes_of(ids)))
    return [*labels, Label("ID", ids)]


def token_label(tokens: Sequence[bytes | None]) -> Label:
    return Label("token", [shown(token) for token in tokens], "left", short=True)


def id_labels(
    ids: np.ndarray, tokens: Sequence[bytes | None] | None, name: str = "ID"
) -> list[Label]:
    return [Label(name, ids), *([] if tokens is None else [token_label(tokens)])]


def origin_in_words(origin: Origin, layer: str) -> str:
    return f"seed {origin.seed}" if origin.is_seeded else origin.tensors[layer]


def origin_lines(origin: Origin) -> Iterator[Text]:
    """Yield what the reader must know of the numbers: that seeded rows are random, or which facts are guesses."""
    for reason in dict.fromkeys(origin.guesses.values()):
        yield guess(reason)
    if origin.is_seeded:
        yield Note(f"Untrained: random rows of seed {origin.seed}.", "path", style="dim")


def guess(reason: str) -> Note:
    return Note(f"A guess: {reason}", "tensor", "encoding")


def head_in_words(relation: str, rows: int, reason: str) -> str:
    """Describe an output head: its relation to the token matrix, and in how many rows both were compared."""
    described = {
        "same": "the token matrix itself (tied)",
        "equal": f"a copy of the token matrix: {rows:,} rows compared, all equal",
        "other": "another tensor (not tied)",
        "none": "none in the file"
        if reason
        else "none in the file, as in most files of tied models",
    }[relation]
    return f"{described}; {reason}" if reason else described


def first_of(each: Iterable[str], top: int, between: str = ", ") -> str:
    begin = [*islice(each, top + 1)]
    return between.join([*begin[:top], *["..."] * (len(begin) > top)])


def named_rows(rows: np.ndarray, tokens: Sequence[bytes | None]) -> list[str]:
    return [
        f"{row} {shown(token)}".strip() for row, token in zip(rows.tolist(), tokens, strict=True)
    ]


def bar(share: float, cells: int) -> str:
    """Return a bar of blocks that fills a share of some cells, in eighths of a cell, at least one."""
    eighths = max(round(share * cells * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


class PickedRows(NamedTuple):
    """The rows of a weight matrix in a drawing: rows that IDs pick, and some rows beside them."""

    rows: np.ndarray  # (n,) int64, in order
    gaps: list[int]  # the places before which rows are not shown
    tones: list[str]  # the style of each row
    missing: str  # in words, picked rows that are not shown


def picked_rows(ids: np.ndarray, context: np.ndarray) -> PickedRows:
    """Choose from the rows that IDs (n,) pick, and add rows beside them (m,)."""
    picked = np.unique(ids).astype(np.int64)
    excerpt = Excerpt.ends(_MOST_PICKED, len(picked))
    rows = np.unique(np.concatenate([picked[excerpt.places], context]))
    gaps = (np.flatnonzero(np.diff(rows) > 1) + 1).tolist()
    tones = np.where(np.isin(rows, picked), "strong", "dim").tolist()
    return PickedRows(rows, gaps, tones, omission(excerpt, "picked row", picked))

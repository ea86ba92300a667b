"""What the pages of several verbs have in common: the labels of tokens, rows that are picked, what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.page import LEAST_TOKEN, Column, Excerpt
from embcli.selection import distinct
from embcli.tokens import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embcli.files.checkpoint import Head
    from embcli.page import Page, Tone
    from embcli.tokens import Tokens

_MOST_PICKED = 12  # rows of a picture
_EIGHTHS = " ▏▎▍▌▋▊▉"


def token_labels(tokens: Tokens, places: np.ndarray) -> list[Column]:
    """Return the labels of a row a token: sequence (where there are many), position, token, ID."""
    sequence, position = tokens.places(places)
    ids = tokens.ids[places]
    labels = [Column("seq", [str(each) for each in sequence])] if tokens.many else []
    labels.append(Column("pos", [str(each) for each in position]))
    if tokens.encoding is not None:
        labels.append(token_column(tokens.bytes_of(ids)))
    return [*labels, Column("ID", [str(each) for each in ids])]


def token_column(tokens: Sequence[bytes | None]) -> Column:
    """Return the label of rows that stand for tokens."""
    return Column("token", [shown(token) for token in tokens], "left", least=LEAST_TOKEN)


def put_guesses(page: Page, run: dict[str, Any]) -> None:
    """Say on the page what is a guess of how the numbers came about."""
    for reason in run.get("guesses", {}).values():
        page.line(f"A guess: {reason}")


def head_in_words(head: Head) -> str:
    """Return what is known of an output head."""
    told = {
        "same": "the token matrix itself (tied)",
        "equal": f"another tensor, equal to the token matrix in the {head.rows:,} rows compared",
        "other": "another tensor (not tied)",
        "none": "none in the file",
    }[head.relation]
    return f"{told}; {head.reason}" if head.reason else told


def left_out(*parts: str) -> str:
    """Return in words what is left out of a table: `Left out: row 3 (1 of 9) and columns ...`; empty for nothing."""
    missing = [part for part in parts if part]
    return f"Left out: {' and '.join(missing)}" if missing else ""


def bar(share: float, room: int) -> str:
    """Return a bar of blocks that fills this share of the room, to an eighth of a cell, and at least one eighth."""
    eighths = max(round(share * room * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True, eq=False)
class PickedRows:
    """The rows of a weight matrix that a picture shows: those that IDs pick, and some beside them."""

    rows: np.ndarray  # (n,) int64, in order
    marks: list[bool]  # whether each is picked
    missing: str  # in words, what else is picked

    @classmethod
    def of(cls, ids: np.ndarray, beside: np.ndarray) -> PickedRows:
        """Return what a picture shows of the rows that these IDs (n,) pick, with others beside them (m,)."""
        picked, _ = distinct(ids)
        few = Excerpt.most(_MOST_PICKED, len(picked))
        rows, _ = distinct(np.concatenate([picked[few.places], beside]).astype(np.int64))
        chosen = {*picked[few.places].tolist()}
        return cls(rows, [row in chosen for row in rows.tolist()], few.missing(picked.astype(np.int64), "picked row"))

    @property
    def gaps(self) -> list[int]:
        """The places in front of which rows are left out."""
        return (np.flatnonzero(np.diff(self.rows) > 1) + 1).tolist()

    @property
    def tones(self) -> list[Tone]:
        """How each row is to look."""
        return ["strong" if mark else "dim" for mark in self.marks]

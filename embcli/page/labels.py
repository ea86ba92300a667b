"""What the pages of several verbs share.

These are labels of rows and tokens, the lines that say where numbers come from, facts in words, and
the choice of rows for a drawing. Nothing here reads a row of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.text import Text

from embcli.encodings import Encoding
from embcli.layer import Origin
from embcli.page import Label, Note, omission, safe_text
from embcli.selection import Excerpt
from embcli.tokens import Tokens, shown, tokens_of, varies_in_width
from embcli.wording import first_of

PARTS_OF_CHARACTERS = r"\x..: bytes of tokens that share a character"
_UNKNOWN_WIDTH = r"\u....: a character whose width terminals disagree on"


def legend_of_tokens(*meanings: str, text: str) -> Iterator[Text]:
    """Yield a line on the marks beside tokens, and on escapes in the text, if there are any."""
    legend = [*filter(None, meanings)]
    if any(map(varies_in_width, text)):
        legend.append(_UNKNOWN_WIDTH)
    if legend:
        yield safe_text(f"{'; '.join(legend)}.")


def token_labels(tokens: Tokens, places: np.ndarray) -> list[Label]:
    """Return the labels of tokens, a line for each, in the order in which all tables have them."""
    sequence, position = tokens.places(places)
    ids = tokens.ids[places]
    labels = []
    if tokens.many:
        labels.append(Label("seq", sequence))
    labels.append(Label("pos", position))
    if tokens.encoding is not None:
        labels.append(token_label(tokens.bytes_of(ids)))
    labels.append(Label("ID", ids))
    return labels


def token_label(tokens: Sequence[bytes | None], name: str = "token") -> Label:
    cells = [safe_text(shown(token), "strong") for token in tokens]
    return Label(name, cells, "left", short=True)


def id_labels(
    ids: np.ndarray, encoding: Encoding | None, name: str = "ID", header: str = "token"
) -> list[Label]:
    labels = [Label(name, ids)]
    if encoding is not None:
        labels.append(token_label(tokens_of(ids, encoding), header))
    return labels


def origin_in_words(origin: Origin, layer: str) -> str:
    return origin.name if origin.is_seeded else origin.tensors[layer]


def origin_lines(origin: Origin, other_rows: str = "") -> Iterator[Note]:
    """Yield the guesses about a checkpoint, or that seeded rows are random.

    `other_rows` says why they are not those of another command.
    """
    for reason in dict.fromkeys(origin.guesses.values()):
        yield guess(reason)
    if origin.is_seeded:
        yield Note(f"Untrained: random rows of {origin.name}{other_rows}.", "path")


def guess(reason: str) -> Note:
    return Note(f"A guess: {reason}", "tensor", "encoding")


def head_in_words(relation: str, compared: str, reason: str) -> str:
    """Describe an output head by its relation to the token matrix.

    `compared` names the rows of both that were compared, `reason` why no more is known.
    """
    descriptions = {
        "same": "the token matrix itself (tied)",
        "stated": "none in the file",
        "equal": f"a copy of the token matrix: {compared} compared, all equal",
        "other": "another tensor (not tied)",
        "none": "none in the file",
    }
    description = descriptions[relation]
    return f"{description}; {reason}" if reason else description


def first_rows(
    ids: Sequence[int] | np.ndarray, encoding: Encoding | None, most: int, separator: str = ", "
) -> str:
    """Return the first rows, each with its token if there is one: `262 ␣the, 263 ␣a, ...`."""
    rows = np.array(ids[: most + 1])  # one more tells first_of that there are others
    pairs = zip(rows.tolist(), tokens_of(rows, encoding), strict=True)
    return first_of([f"{row} {shown(token)}".strip() for row, token in pairs], most, separator)


def row_names(rows: np.ndarray, encoding: Encoding | None) -> list[Text]:
    """Return the names of rows: their tokens, or their numbers."""
    pairs = zip(rows.tolist(), tokens_of(rows, encoding), strict=True)
    return [safe_text(shown(token) or row) for row, token in pairs]


class PickedRows(NamedTuple):
    """The rows of a weight matrix in a drawing: those that IDs pick, and some for context."""

    rows: np.ndarray  # (n,) int64, in order
    gaps: list[int]  # places of rows that have hidden rows before them
    row_styles: list[str]  # the style of each row
    missing: str  # in words, picked rows that are not shown


_MOST_PICKED = 12  # rows of a drawing


def picked_rows(ids: np.ndarray, context: np.ndarray) -> PickedRows:
    """Choose from the rows that IDs pick, (n,), and add the rows of their context, (m,)."""
    picked = np.unique(ids).astype(np.int64)
    excerpt = Excerpt.ends(_MOST_PICKED, len(picked))
    rows = np.unique(np.concatenate([picked[excerpt.places], context]))
    gaps = (np.flatnonzero(np.diff(rows) > 1) + 1).tolist()
    is_picked = np.isin(rows, picked)
    row_styles = np.where(is_picked, "strong", "dim").tolist()
    return PickedRows(rows, gaps, row_styles, omission(excerpt, "picked row", picked))

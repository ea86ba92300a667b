"""Parts of the pages of several verbs: token labels, picked rows, omitted rows and columns, the origin of numbers."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embcli.layer import Origin
from embcli.oldpage import LEAST_TOKEN, Column, Excerpt, Page, Tone, Word
from embcli.selection import distinct
from embcli.tokens import Tokens, shown

_MOST_PICKED = 12  # rows of a picture
_EIGHTHS = " ▏▎▍▌▋▊▉"


def token_labels(tokens: Tokens, places: np.ndarray) -> list[Column]:
    """Return the labels of rows, one per token: sequence (if there are several), position, token, ID."""
    sequence, position = tokens.places(places)
    ids = tokens.ids[places]
    labels = [Column("seq", sequence)] if tokens.many else []
    labels.append(Column("pos", position))
    if tokens.encoding is not None:
        labels.append(token_column(tokens.bytes_of(ids)))
    return [*labels, Column("ID", ids)]


def token_column(tokens: Sequence[bytes | None]) -> Column:
    """Return the tokens that rows stand for, as a column."""
    return Column("token", [shown(token) for token in tokens], "left", least=LEAST_TOKEN)


def origin_in_words(origin: Origin, layer: str) -> str:
    """Return where the numbers of a layer come from: a seed, or a tensor."""
    return f"seed {origin.seed}" if origin.is_seeded else origin.tensors[layer]


def matrix_in_words(origin: Origin, layer: str) -> str:
    """Name the matrix of a layer: by its role, or by its tensor if the user chose another one."""
    return f"tensor {origin.tensors[layer]}" if layer == "token" and origin.is_other else f"the {layer} weight matrix"


def put_origin(page: Page, origin: Origin) -> None:
    """Say at the end of a page that seeded rows are random, or which facts about a file are guesses."""
    put_guesses(page, origin.guesses)
    if origin.is_seeded:
        page.line(Word(f"Untrained: random rows of seed {origin.seed}.", "dim"))


def put_guesses(page: Page, guesses: Mapping[str, str]) -> None:
    """Put the guesses about the origin of the numbers on a page, by their reasons."""
    for reason in guesses.values():
        page.line(f"A guess: {reason}")


def head_in_words(relation: str, rows: int, reason: str) -> str:
    """Describe an output head: its relation to the token matrix, and in how many rows both were compared."""
    described = {
        "same": "the token matrix itself (tied)",
        "equal": f"a copy of the token matrix: {rows:,} rows compared, all equal",
        "other": "another tensor (not tied)",
        "none": "none in the file, as in most files of tied models",
    }[relation]
    return f"{described}; {reason}" if reason else described


def left_out(*parts: str) -> str:
    """Return a sentence about rows and columns that are not shown: `Left out: row 3 (1 of 9) and columns ...`."""
    missing = [part for part in parts if part]
    return f"Left out: {' and '.join(missing)}" if missing else ""


def put_left_out(page: Page, *parts: str) -> None:
    """Say on a page which rows and columns are not shown."""
    if missing := left_out(*parts):
        page.line(f"{missing}.")


def bar(share: float, cells: int) -> str:
    """Return a bar of blocks that fills a share of some cells, in eighths of a cell, at least one."""
    eighths = max(round(share * cells * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True, eq=False)
class PickedRows:
    """The rows of a weight matrix in a picture: rows that IDs pick, and some rows beside them."""

    rows: np.ndarray  # (n,) int64, in order
    marks: list[bool]  # whether each is picked
    missing: str  # in words, picked rows that are not shown

    @classmethod
    def of(cls, ids: np.ndarray, beside: np.ndarray) -> "PickedRows":
        """Choose from the rows that IDs (n,) pick, and add rows beside them (m,)."""
        picked, _ = distinct(ids)
        excerpt = Excerpt.ends(_MOST_PICKED, len(picked))
        rows, _ = distinct(np.concatenate([picked[excerpt.places], beside]).astype(np.int64))
        marks = np.isin(rows, picked[excerpt.places]).tolist()
        return cls(rows, marks, excerpt.missing("picked row", picked.astype(np.int64)))

    @property
    def gaps(self) -> list[int]:
        """The places before which rows are not shown."""
        return (np.flatnonzero(np.diff(self.rows) > 1) + 1).tolist()

    @property
    def tones(self) -> list[Tone]:
        """The tone of each row."""
        return ["strong" if mark else "dim" for mark in self.marks]


def put_prose(text: str, page: Page, indent: str = "", hanging: str = "", tone: Tone = "plain") -> None:
    """Put sentences on the page, wrapped to its width."""
    for line in wrapped(text, page, indent, hanging):
        page.line(Word(line, tone))


def wrapped(text: str, page: Page, indent: str = "", hanging: str = "") -> list[str]:
    """Return the lines of sentences as wide as the page, all but the first indented by `hanging`."""
    wrapper = textwrap.TextWrapper(
        page.width, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.wrap(text)

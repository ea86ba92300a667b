"""What the pages of several verbs have in common: the labels of tokens, and what is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embcli.page import LEAST_TOKEN, Column
from embcli.tokens import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from embcli.page import Page
    from embcli.tokens import Tokens


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


def left_out(*parts: str) -> str:
    """Return in words what is left out of a table: `Left out: row 3 (1 of 9) and columns ...`; empty for nothing."""
    missing = [part for part in parts if part]
    return f"Left out: {' and '.join(missing)}" if missing else ""

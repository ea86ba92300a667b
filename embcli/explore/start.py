"""Which screen is there first."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from embcli.explore.desk import Desk
from embcli.explore.matrix import MatrixView

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.explore.desk import Spell
    from embcli.model import Model
    from embcli.verbs.weights import WeightMatrix


def begin(
    model: Model,
    spell: Spell,
    named: Callable[[str], str],
    color: bool,
    row: str | None = None,
    text: str | None = None,
    sort: str = "id",
) -> Desk:
    """Return the desk with its first screen: the matrix, perhaps at a row or sorted, or the tokens of a text.

    Raises InputError for a row that does not exist.
    """
    desk = Desk(model, cast("WeightMatrix", model.weights()), spell, named, color)
    desk.open(MatrixView(desk, 0 if row is None else desk.row_of(row), sort))
    return desk

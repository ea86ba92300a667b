"""Which screen is there first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.explore.chapter import BatchView, LookupView
from embcli.explore.desk import Desk, KeysView
from embcli.explore.find import FindView
from embcli.explore.matrix import MatrixView
from embcli.explore.paged import PageView
from embcli.explore.pair import PairView
from embcli.explore.row import RowView
from embcli.explore.whole import WholeView

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.explore.desk import Spell, View
    from embcli.model import Model


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

    Raises InputError for a row that does not exist, and for a text if the rows have no tokens.
    """
    screens: dict[str, type[View]] = {
        "matrix": MatrixView,
        "row": RowView,
        "pair": PairView,
        "page": PageView,
        "find": FindView,
        "whole": WholeView,
        "lookup": LookupView,
        "batch": BatchView,
        "keys": KeysView,
    }
    desk = Desk(model, model.weights(), spell, named, color, screens, text or "")
    desk.open("matrix", 0 if row is None else desk.row_of(row), sort)
    if text is not None:
        desk.do_find()
    return desk

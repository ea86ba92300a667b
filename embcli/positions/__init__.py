"""Kinds of positions, one file each; this file names them and their options, without numpy.

The verb `positions` shows the kinds, `lookup` adds some of them to token rows. To add a kind, write
its file, add its name and row here, and its case to `verbs/positions/`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, get_args

from embcli.errors import InputError
from embcli.names import SHORT_LENGTH, Strings
from embcli.wording import Parameter

# The verb `positions` shows the former, and a lookup adds the latter to token rows.
PositionKind = Literal["learned", "sinusoidal", "relative", "rotary"]
JoinedKind = Literal["learned", "sinusoidal", "none"]
KINDS: tuple[PositionKind, ...] = get_args(PositionKind)
JOINED_KINDS: Strings = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"
# Papers have other names for kinds.
NAMES = {
    "rope": "rotary",
    "absolute": "learned",
    **{kind: kind for kind in (*KINDS, NO_POSITIONS)},
}
LARGEST_DISTANCE = 16  # k of relative positions: larger distances have the same row


class KindRow(NamedTuple):
    """The options of a kind of positions, the rows that it reads, and its numbers."""

    options: Strings = ()  # `ids` names the token row, which a seed draws
    layers: Strings = ()
    layers_of_similarity: Strings = ()  # those that only its similarities read
    layer_rows: int = 0  # of its position layer; 0 for T
    length: int = 0  # T by default; 0 for that of the model
    columns_per_number: int = 1


ROWS = {
    "learned": KindRow(("seed",), layers=("position",)),
    "sinusoidal": KindRow(),
    "relative": KindRow(
        ("ids", "seed"),
        layers=("position",),
        layers_of_similarity=("token",),
        layer_rows=2 * LARGEST_DISTANCE + 1,
        length=SHORT_LENGTH,
    ),
    "rotary": KindRow(("ids", "pairing", "seed", "theta"), layers=("token",), columns_per_number=2),
}


def kind_named(name: str | None) -> Any:
    """Return the kind with this name, or that of a paper, whatever its capitals.

    An unknown name is returned as it is.
    """
    return name and NAMES.get(str(name).lower(), name)


def check_options(kind: PositionKind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None means it was not chosen."""
    for option, value in options.items():
        if value is not None and option not in ROWS[kind].options:
            others = [each for each in KINDS if option in ROWS[each].options]
            raise InputError(
                "{option} is not an option of {kind} positions; these have it: {others}",
                option=Parameter(option),
                kind=kind,
                others=", ".join(others),
            )

"""Kinds of positions, one file each; this file names them and their options, without numpy.

The verb `positions` shows the kinds, `lookup` adds some of them to token rows. To add a kind, write
its file, add its name and options here, and its case to `verbs/positions/`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from embcli.errors import InputError
from embcli.names import Strings
from embcli.wording import Parameter, Sentence

# The verb `positions` shows the former, and a lookup adds the latter to token rows.
PositionKind = Literal["learned", "sinusoidal", "relative", "rotary"]
JoinedKind = Literal["learned", "sinusoidal", "none"]
KINDS: tuple[PositionKind, ...] = get_args(PositionKind)
JOINED_KINDS: tuple[JoinedKind, ...] = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"
# Papers have other names for kinds.
NAMES = {
    "rope": "rotary",
    "absolute": "learned",
    **{kind: kind for kind in (*KINDS, NO_POSITIONS)},
}
# The options that a kind has; `ids` names the token row that positions are applied to, which a
# seed draws.
OPTIONS: dict[PositionKind, Strings] = {
    "learned": ("seed",),
    "sinusoidal": (),
    "relative": ("ids", "seed"),
    "rotary": ("ids", "pairing", "seed", "theta"),
}


def kind_named(name: str | None) -> Any:
    """Return the kind with this name, or that of a paper, whatever its capitals.

    An unknown name is returned as it is.
    """
    return name and NAMES.get(str(name).lower(), name)


def check_options(kind: PositionKind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None means it was not chosen."""
    for option, value in options.items():
        if value is not None and option not in OPTIONS[kind]:
            wrong = "{option} is not an option of {kind} positions; these have it: {others}"
            others = ", ".join([each for each in KINDS if option in OPTIONS[each]])
            raise InputError(Sentence(wrong, option=Parameter(option), kind=kind, others=others))

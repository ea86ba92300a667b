"""Kinds of positions, one file each; this file names them and their options, without numpy.

The verb `positions` shows the kinds, `lookup` adds some of them to token rows. To add a kind, write
its file, add its name and options here, and its case to `verbs/positions/`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from embcli.errors import InputError
from embcli.wording import Parameter, Sentence

# The verb `positions` shows the former, and a lookup adds the latter to token rows.
PositionKind = Literal["learned", "sinusoidal", "relative", "rotary"]
JoinedKind = Literal["learned", "sinusoidal", "none"]
KINDS: tuple[PositionKind, ...] = get_args(PositionKind)
JOINED_KINDS: tuple[JoinedKind, ...] = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"
# Papers have other names for kinds.
_NAMES = {
    "rope": "rotary",
    "absolute": "learned",
    **{kind: kind for kind in (*KINDS, NO_POSITIONS)},
}
# The kinds that have an option; `ids` names the token row that positions are applied to.
OPTIONS: dict[str, tuple[PositionKind, ...]] = {
    "pairing": ("rotary",),
    "theta": ("rotary",),
    "ids": ("relative", "rotary"),
}


def kind_named(name: str | None) -> Any:
    """Return the kind with this name, or that of a paper, whatever its capitals.

    An unknown name is returned as it is.
    """
    return name and _NAMES.get(str(name).lower(), name)


def check_options(kind: PositionKind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None means it was not chosen."""
    for option, value in options.items():
        kinds = OPTIONS[option]
        if value is not None and kind not in kinds:
            wrong = "{option} is an option of {kinds} positions, not of {kind} ones"
            others = " and ".join(kinds)
            raise InputError(Sentence(wrong, option=Parameter(option), kinds=others, kind=kind))

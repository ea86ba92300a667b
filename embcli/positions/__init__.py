"""Kinds of positions, a file each; this one names them and their options, without numpy.

To add a kind, write its file, add its name and options here, and its case to `verbs/positions.py`.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from embcli.errors import InputError
from embcli.wording import Parameter, Sentence

PositionKind = Literal[
    "learned", "sinusoidal", "relative", "rotary"
]  # that the verb `positions` shows
JoinedKind = Literal["learned", "sinusoidal", "none"]  # that a lookup can add to token rows
OTHER_NAMES: dict[str, PositionKind] = {
    "rope": "rotary",
    "absolute": "learned",
}  # that papers have for kinds
KINDS: tuple[PositionKind, ...] = get_args(PositionKind)
JOINED_KINDS: tuple[JoinedKind, ...] = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"
OPTIONS: dict[
    str, tuple[PositionKind, ...]
] = {  # `ids` names the token row that positions are applied to
    "pairing": ("rotary",),
    "theta": ("rotary",),
    "ids": ("relative", "rotary"),
}


def check_options(name: PositionKind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None stands for one that is not given."""
    for option, value in options.items():
        if value is not None and name not in OPTIONS[option]:
            of = f"{' and '.join(OPTIONS[option])} positions, not of {name} ones"
            raise InputError(
                Sentence("{option} is an option of {of}", option=Parameter(option), of=of)
            )

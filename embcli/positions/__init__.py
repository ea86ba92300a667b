"""Kinds of positions, a file each; this one names them, and loads a kind, and numpy with it, when it is used.

To add a kind, write its file, and add its name and its class here. The class is final, so mypy names what it lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.positions.kind import Positions

Kind = Literal["learned", "sinusoidal", "relative", "rotary"]  # that the verb `positions` shows
JoinedKind = Literal["learned", "sinusoidal", "none"]  # that a lookup can add to token rows
KINDS: tuple[Kind, ...] = get_args(Kind)
JOINED_KINDS: tuple[JoinedKind, ...] = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"


def kind_of(name: Kind) -> type[Positions]:
    from embcli.positions import learned, relative, rotary, sinusoidal

    match name:
        case "learned":
            return learned.Learned
        case "sinusoidal":
            return sinusoidal.Sinusoidal
        case "relative":
            return relative.Relative
        case "rotary":
            return rotary.Rotary


def check_options(name: Kind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None stands for one that is not given."""
    for option in [option for option, value in options.items() if value is not None]:
        owners = [each for each in KINDS if option in kind_of(each).options]
        if name not in owners:
            of = f"{' and '.join(owners)} positions, not of {name} ones"
            raise InputError(f"{option} is an option of {of}", parameters=(option,))

"""Kinds of positions, a file each; this one names them, and loads a kind, and numpy with it, when it is used.

To add a kind, write its file, and add its name and its class here: to those that the verb `positions` shows, to those
that a lookup can join to token rows, or to both. The class is final, so that mypy names what it lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.positions.kind import JoinedPositions, Positions, ShownPositions

Kind = Literal["learned", "sinusoidal", "relative", "rotary", "alibi", "t5"]  # that the verb `positions` shows
JoinedKind = Literal["learned", "sinusoidal", "rotary", "none"]  # that a lookup can join to token rows
KINDS: tuple[Kind, ...] = get_args(Kind)
JOINED_KINDS: tuple[JoinedKind, ...] = get_args(JoinedKind)
DEFAULT_KIND: Final = "learned"
NO_POSITIONS: Final = "none"


def shown_kind(name: Kind) -> type[ShownPositions]:
    """Return the class of a kind that the verb `positions` shows."""
    from embcli.positions import biases, learned, relative, rotary, sinusoidal

    match name:
        case "learned":
            return learned.Learned
        case "sinusoidal":
            return sinusoidal.Sinusoidal
        case "relative":
            return relative.Relative
        case "rotary":
            return rotary.Rotary
        case "alibi":
            return biases.Alibi
        case "t5":
            return biases.Buckets


def joined_kind(name: JoinedKind) -> type[JoinedPositions]:
    """Return the class of a kind that a lookup can join to token rows."""
    from embcli.positions import learned, none, rotary, sinusoidal

    match name:
        case "learned":
            return learned.Learned
        case "sinusoidal":
            return sinusoidal.Sinusoidal
        case "rotary":
            return rotary.Rotary
        case "none":
            return none.NoPositions


def check_options(name: Kind | JoinedKind, **options: object) -> None:
    """Raise InputError for an option that only other kinds have; None stands for one that is not given."""
    if all(value is None for value in options.values()):
        return
    kinds: dict[str, type[Positions]] = {each: shown_kind(each) for each in KINDS}
    kinds.update({each: joined_kind(each) for each in JOINED_KINDS})
    for option, value in options.items():
        owners = [each for each, kind in kinds.items() if option in kind.options]
        if value is not None and name not in owners:
            others = name if name == NO_POSITIONS else f"{name} ones"
            raise InputError(
                f"{option} is an option of {' and '.join(owners)} positions, not of {others}", parameters=(option,)
            )

"""What each verb can be asked for: a frozen dataclass a verb, whose fields are named as the command's options are.

They check themselves. The command makes its flags from these fields, so this module imports nothing heavy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.errors import InputError
from embcli.names import (
    MATRICES,
    PAIRINGS,
    Pairing,
    check_choice,
)
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, KINDS, NO_POSITIONS, JoinedKind, Kind, check_options, kind_of

if TYPE_CHECKING:
    from embcli.positions.kind import Positions


@dataclass(frozen=True)
class LookupOptions:
    """The options of `lookup`.

    Raises InputError for options that do not go together.
    """

    show: tuple[str, ...] | None = None  # the matrices on a page; None for all, or for the token rows below a picture
    columns: str | None = None  # as in `0:8,255`
    trace: int | None = None  # the token whose sum a page writes out
    draw: bool = False
    position: JoinedKind | None = None  # None for the model's own; of seeded layers, the learned ones
    only: str | None = None  # a text or IDs: only these tokens are looked up

    def __post_init__(self) -> None:
        check_choice("position", self.position, JOINED_KINDS)
        for name in self.show or ():
            check_choice("show", name, MATRICES)
        if self.position == NO_POSITIONS and "position" in (self.show or ()):
            raise InputError("position none has no rows that show could name", parameters=("position", "show"))

    @property
    def matrices(self) -> tuple[str, ...]:
        """The matrices of the result; of a real model, what its first block reads may follow."""
        missing = {"hidden"} - {*(self.show or ())} | ({"position"} if self.position == NO_POSITIONS else set())
        return tuple(name for name in MATRICES if name not in missing)

    @property
    def shown(self) -> tuple[str, ...]:
        """The matrices on a page."""
        if self.show is None:
            return ("token",) if self.draw else self.matrices
        return tuple(name for name in MATRICES if name in self.show)


@dataclass(frozen=True)
class PositionOptions:
    """The options of `positions`; raises InputError for an option that the kind does not have."""

    kind: Kind | None = None  # None for the model's own; of seeded layers, the learned ones
    pairing: Pairing | None = None
    theta: float | None = None
    ids: str | None = None  # the token whose row the positions are applied to
    similarity: bool = False
    rows: str | None = None  # positions, as in `0:5,100`
    columns: str | None = None  # of D, of the pairs of D, or of similarity the other positions

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("pairing", self.pairing, PAIRINGS)
        if self.kind is not None:
            check_options(self.kind, pairing=self.pairing, theta=self.theta, ids=self.ids)
        self.token_id()

    def positions(self, dim: int) -> Positions:
        """Return the positions for rows of D numbers; their layer is not open. Raises LayerError for a wrong D."""
        kind = kind_of(self.kind or DEFAULT_KIND)
        given = {name: getattr(self, name) for name in kind.options if name != "ids"}
        return kind(dim, **{name: value for name, value in given.items() if value is not None})

    def token_id(self) -> int:
        """Return the ID of the token whose row the positions are applied to."""
        from embcli.text import parse_ids

        ids = parse_ids("0" if self.ids is None else self.ids)
        if len(ids) != 1:
            reason = f"ids must be one token ID, not {len(ids)}: {str(self.ids)[:40]!r}"
            raise InputError(reason, parameters=("ids",))
        return int(ids[0])

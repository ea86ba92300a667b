"""What each verb can be asked for: a frozen dataclass a verb, whose fields are named as the command's options are.

They check themselves. The command makes its flags from these fields, so this module imports nothing heavy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.errors import InputError
from embcli.names import (
    MATRICES,
    OUTPUTS,
    PAIRINGS,
    STEPS,
    Pairing,
    check_choice,
)
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, KINDS, NO_POSITIONS, JoinedKind, Kind, check_options, kind_of
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.positions.kind import Positions


@dataclass(frozen=True)
class ComparisonOptions:
    """What a comparison computes and shows; raises InputError for an unknown name or a learning rate out of range."""

    show: tuple[str, ...] | None = (
        None  # steps and outputs; None for both outputs, and as many steps as fit on the screen
    )
    trace: bool = False
    gradient: bool = False
    learning_rate: float | None = None  # of one step of training, which needs the gradients
    draw: bool = False

    def __post_init__(self) -> None:
        for name in self.show or ():
            check_choice("show", name, (*STEPS, *OUTPUTS))
        rate = self.learning_rate
        if rate is not None and not 0 <= rate < math.inf:
            raise InputError(
                f"learning_rate must be a finite number of at least 0, not {rate:g}", parameters=("learning_rate",)
            )

    @property
    def with_gradient(self) -> bool:
        """Whether gradients are computed."""
        return self.gradient or self.learning_rate is not None

    @property
    def outputs(self) -> tuple[str, ...] | None:
        """The outputs that `show` names; None for both."""
        return tuple(name for name in OUTPUTS if name in (self.show or ())) or None

    @property
    def steps(self) -> tuple[str, ...] | None:
        """The steps that `show` names, in their order, where an output stands for its step; None for those that fit."""
        if self.show is None:
            return None
        return tuple(step for step in STEPS if step in self.show or (step == "outputs" and self.outputs))


@dataclass(frozen=True)
class Batching:
    """How a text is split into samples and batches, and which are chosen; raises InputError for impossible ones."""

    batch_size: int = 8  # B
    max_length: int = 4  # T
    stride: int = 4
    shuffle: bool = False
    keep_last: bool = False  # even if incomplete
    index: int | None = None  # of the batch; None for the first
    all: bool = False  # all batches
    draw: bool = False  # show the batch as a picture

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_length", "stride"):
            value = getattr(self, name)
            if not 1 <= value < 2**31:
                given = str(value)[:20]
                raise InputError(f"{name} must be at least 1 and below 2**31, not {given}", parameters=(name,))
        if self.all and self.index is not None:
            raise InputError("all and index both choose batches; give one of them", parameters=("all", "index"))

    def samples(self, tokens: int) -> int:
        """Return the number of samples in this many tokens; a sample takes T tokens and the next one."""
        return max(-(-(tokens - self.max_length) // self.stride), 0)

    def batches(self, tokens: int) -> int:
        """Return the number of batches in this many tokens."""
        full, rest = divmod(self.samples(tokens), self.batch_size)
        return full + (self.keep_last and rest > 0)

    def check(self, tokens: int, context_length: int) -> None:
        """Raise InputError if the chosen batch does not exist, or the position layer has too few rows."""
        samples, batches, length = self.samples(tokens), self.batches(tokens), self.max_length
        if not samples:
            raise InputError(
                f"need at least {length + 1:,} tokens (max_length {length:,} and one more), got {tokens:,}",
                parameters=("max_length",),
            )
        if not batches:
            reason = f"{counted(samples, 'sample')} of max_length {length:,} do not fill a batch of {self.batch_size:,}"
            raise InputError(f"{reason}; keep_last keeps them", parameters=("max_length", "keep_last"))
        if not 0 <= (self.index or 0) < batches:
            given, are = str(self.index)[:20], "is" if batches == 1 else "are"
            raise InputError(
                f"index {given} is not a batch: there {are} {batches:,}, counted from 0", parameters=("index",)
            )
        if length > context_length:
            raise InputError(
                f"max_length {length:,} is more than context_length {context_length:,}: each position needs a row",
                parameters=("max_length", "context_length"),
            )


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

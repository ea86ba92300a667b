"""A recipe: the steps from a token row to what the first block of a real model reads.

`files/families.py` has the steps of each family, and `files/recipes.py` fills in the numbers and tensors of one model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

    from embcli.names import Part

Inside = Literal["", "rotary", "alibi", "relative"]  # the positions that blocks compute; empty for none

INSIDE: dict[Inside, str] = {"rotary": "rotary", "alibi": "ALiBi", "relative": "relative"}


@dataclass(frozen=True)
class When:
    """A condition on config.json: a key has this value; `default` is the value of a missing key."""

    key: str
    equals: bool | str = True
    default: bool | str = False


@dataclass(frozen=True)
class Scale:
    """Multiply the rows by a number, by the square root of D, or by a number of config.json."""

    factor: float = 1.0  # if config.json has no `key`
    root: bool = False  # the square root of D
    key: str = ""
    when: When | None = None
    is_rounded: bool = False  # the model rounds the factor to the type of its weights first


@dataclass(frozen=True)
class AddPosition:
    """Add the position rows."""

    when: When | None = None


@dataclass(frozen=True)
class AddType:
    """Add the row of a token type: this one, unless the user chooses another."""

    row: int = 0


@dataclass(frozen=True)
class AddRow:
    """Add row 0 of another matrix, the same for all tokens; of several matrices, their rows one after another."""

    tensors: tuple[str, ...]
    when: When | None = None


@dataclass(frozen=True)
class Norm:
    """Normalise each row; torch's LayerNorm, the same spelled out (other bits), or the gain and the bias only."""

    names: tuple[str, ...]  # of its module
    key: str = ""  # of its epsilon
    epsilon: float = 1e-12  # if config.json has no `key`
    kind: Literal["torch", "spelled", "gain"] = "torch"
    when: When | None = None
    weight: str = ""  # the tensors that were found
    bias: str = ""


@dataclass(frozen=True)
class Project:
    """Multiply the rows by a matrix."""

    name: str
    is_optional: bool = False  # applied if there is such a tensor
    neighbours: bool = False  # of the next row, the row itself and the one before it, side by side
    beside: tuple[str, ...] = ()  # row 0 of these matrices follows each row
    weight: str = ""  # the tensors that were found
    bias: str = ""


Step = Scale | AddPosition | AddType | AddRow | Norm | Project


@dataclass(frozen=True)
class Quirk:
    """A token that the model treats in a way of its own, which no step repeats."""

    token: int | str  # its ID, or the key of its ID in config.json
    why: str
    when: When | None = None


@dataclass(frozen=True)
class Recipe:
    """How token rows become what the first block of this model reads."""

    model: str  # its `model_type`
    where: str  # what names it: config.json, or the metadata of a GGUF file
    values: Callable[[str], np.ndarray]  # returns a tensor by its name, as float32
    width: int  # columns of what the first block reads
    is_known: bool = True
    unknown: str = ""  # why the model's input is not known
    steps: tuple[Step, ...] = ()
    first: int = 0  # the row of position 0
    padding: int | None = None  # the ID of tokens that positions do not count
    waves: str = ""  # the formula of its sinusoids
    inside: Inside = ""
    part: Part | None = None
    biases: tuple[tuple[str, float], ...] = ()  # the options of ALiBi, or of T5's buckets, and their values
    caveat: str = ""  # what the model does to its biases besides
    quirks: tuple[tuple[int, str], ...] = ()  # IDs that the model treats in a way of its own, and which

    @property
    def sum(self) -> tuple[Step, ...]:
        """The steps before the first norm or projection, which make an input embedding."""
        return self.steps[: self._sums]

    @property
    def rest(self) -> tuple[Step, ...]:
        """The steps from the first norm or projection on; empty if the first block reads input embeddings."""
        return self.steps[self._sums :]

    @property
    def _sums(self) -> int:
        ends = (place for place, step in enumerate(self.steps) if isinstance(step, Norm | Project))
        return next(ends, len(self.steps))

    @property
    def formula(self) -> str:
        """The order in which rows are added to an input embedding: `(token x 2 + token_type) + position`."""
        text = "token"
        for step in self.sum:
            if isinstance(step, Scale):
                text += f" x {step.factor:.6g}"
            elif not isinstance(step, AddRow):
                term = "position" if isinstance(step, AddPosition) else "token_type"
                text = f"{f'({text})' if ' + ' in text else text} + {term}"
            elif not text.endswith("rows 0"):
                text += " + rows 0"
        return text

    @property
    def rows_for_all(self) -> list[tuple[str, ...]]:
        """The matrices whose row 0 is a term of every input embedding."""
        return [step.tensors for step in self.sum if isinstance(step, AddRow)]

    @property
    def norm(self) -> Norm | None:
        """The norm that makes what the first block reads of an input embedding; None if something else does."""
        return self.rest[0] if len(self.rest) == 1 and isinstance(self.rest[0], Norm) else None

    @property
    def has_positions(self) -> bool:
        """Whether position rows are added."""
        return any(isinstance(step, AddPosition) for step in self.steps)

    @property
    def adds(self) -> Literal["learned", "sinusoidal"] | None:
        """The kind of the position rows that are a term of the input embedding; None if there are none."""
        if not any(isinstance(step, AddPosition) for step in self.sum):
            return None
        return "sinusoidal" if self.waves else "learned"

    @property
    def type_is_last(self) -> bool:
        """Whether the row of a token type is added after the position row."""
        kinds = [type(step) for step in self.sum if isinstance(step, AddPosition | AddType)]
        return kinds == [AddPosition, AddType]

    def with_type(self, row: int) -> Recipe:
        """Return the recipe with another token type."""
        return replace(self, steps=tuple(AddType(row) if isinstance(step, AddType) else step for step in self.steps))

    @property
    def type_row(self) -> int | None:
        """The token type whose row is added unless the user chooses another; None if none is added."""
        return next((step.row for step in self.steps if isinstance(step, AddType)), None)

    @property
    def scales(self) -> list[Scale]:
        """The steps that multiply rows by a number."""
        return [step for step in self.steps if isinstance(step, Scale)]

    @property
    def scale(self) -> float:
        """What token rows are multiplied by."""
        return self.scales[0].factor if self.scales else 1.0

    @property
    def words(self) -> str:
        """The steps in words: `token x 27.71 + sinusoidal position, then LayerNorm`."""
        text, last = "token", None
        for step in self.steps:
            if isinstance(step, AddRow) and isinstance(last, AddRow):
                text += "" if _of(step) in text else f" and {_of(step)}"
            else:
                follows = ", " in text and isinstance(step, AddPosition | AddType | AddRow)
                text += f"{',' if follows else ''}{self._step_in_words(step)}"
            last = step
        return text

    @property
    def inside_in_words(self) -> str:
        """What the blocks do with positions; empty if they do nothing."""
        return f"{INSIDE[self.inside]} positions inside the blocks" if self.inside else ""

    @property
    def positions_in_words(self) -> str:
        """What names the model, and which positions it has."""
        added = f"{'sinusoidal' if self.waves else 'learned'} positions, which it adds" if self.has_positions else ""
        text = ", and ".join(filter(None, (added, self.inside_in_words))) or "no positions"
        return f"{self.where} says model_type {self.model}: it has {text}"

    def _step_in_words(self, step: Step) -> str:
        match step:
            case Scale(factor=factor):
                return f" x {factor:.6g}"
            case AddPosition():
                return f" + {'sinusoidal ' if self.waves else ''}position"
            case AddType(row=row):
                return f" + token type {row}"
            case AddRow():
                return f" + row 0 of {_of(step)}"
            case Norm(kind=kind):
                return ", then gain and bias" if kind == "gain" else ", then LayerNorm"
            case Project(neighbours=neighbours):
                return f", then projection{' of three tokens' if neighbours else ''} to {self.width:,}"


@dataclass(frozen=True)
class Rotation:
    """How a model rotates queries and keys: each head alike, the first columns of it in pairs."""

    pairing: Literal["interleaved", "halves"]
    theta: float
    head: int  # columns of a head
    rates: tuple[float, ...]  # radians for each position, one per pair
    scaling: str = ""  # in words
    attention: float = 1.0  # what cosines and sines are multiplied by
    layers: str = ""  # which layers rotate like this, if others rotate in another way
    other: Rotation | None = None  # how those do
    longer: Rotation | None = None  # of texts of more than `length` tokens
    length: int = 0

    def chosen(self, theta: float | None, length: int) -> Rotation | None:
        """Return the rotation of a text of so many tokens, in the layers with this theta; None if there are none."""
        for each in (self, self.other):
            if each is not None and theta in (None, each.theta):
                return each.longer if each.longer is not None and length > each.length else each
        return None


def _of(step: AddRow) -> str:
    """Return the matrices of a step by the last words of their names."""
    return " and ".join(dict.fromkeys(name.split(".")[-2] for name in step.tensors))

"""A recipe: the steps from a token row to what the first block of a real model reads.

`files/families.py` has the steps of each family, `files/recipes.py` fills in the numbers and tensors of one model, and
`verbs/hidden.py` applies them. Each step says itself in `words`, and in the `formula` of an input embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

    from embcli.names import Part


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

    @property
    def words(self) -> str:
        return f" x {self.factor:.6g}"

    formula = words


@dataclass(frozen=True)
class AddPosition:
    """Add the position rows."""

    when: When | None = None
    waves: str = ""  # the formula of its sinusoids; empty for the rows of a position matrix
    first: int = 0  # the position of these sinusoids that position 0 has

    formula = " + position"

    @property
    def words(self) -> str:
        return f" + {'sinusoidal ' if self.waves else ''}position"


@dataclass(frozen=True)
class AddType:
    """Add the row of a token type."""

    row: int = 0

    formula = " + token_type"

    @property
    def words(self) -> str:
        return f" + token type {self.row}"


@dataclass(frozen=True)
class AddRow:
    """Add row 0 of another matrix, the same for all tokens; of several matrices, their rows one after another."""

    tensors: tuple[str, ...]
    when: When | None = None

    formula = " + rows 0"

    @property
    def words(self) -> str:
        return f" + row 0 of {' and '.join(dict.fromkeys(name.split('.')[-2] for name in self.tensors))}"


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

    @property
    def words(self) -> str:
        return ", then gain and bias" if self.kind == "gain" else ", then LayerNorm"


@dataclass(frozen=True)
class Project:
    """Multiply the rows by a matrix."""

    name: str
    is_optional: bool = False  # applied if there is such a tensor, and it changes the number of columns
    neighbours: bool = False  # of the next row, the row itself and the one before it, side by side
    beside: tuple[AddRow, ...] = ()  # rows that follow each row
    when: When | None = None
    weight: str = ""  # the tensors that were found
    bias: str = ""
    width: int = 0  # columns of its rows

    @property
    def words(self) -> str:
        return f", then projection{' of three tokens' if self.neighbours else ''} to {self.width:,}"


Step = Scale | AddPosition | AddType | AddRow | Norm | Project


@dataclass(frozen=True)
class Quirk:
    """A token that the model treats in a way of its own, which no step repeats."""

    token: int | str  # its ID, or the key of its ID in config.json
    why: str
    when: When | None = None


def formula_of(steps: tuple[Step, ...]) -> str:
    """Return the order in which steps add rows to an input embedding: `(token x 2 + token_type) + position`."""
    text = "token"
    for step in steps:
        if isinstance(step, AddPosition | AddType) and " + " in text:
            text = f"({text})"
        if not isinstance(step, Norm | Project) and not (isinstance(step, AddRow) and text.endswith(step.formula)):
            text += step.formula
    return text


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
    padding: int | None = None  # the ID of tokens that positions do not count
    blocks: str = ""  # what its blocks do with positions, in words; empty for nothing
    part: Part | None = None
    quirks: tuple[tuple[int, str], ...] = ()  # IDs that the model treats in a way of its own, and which

    @property
    def sum(self) -> tuple[Step, ...]:
        """The steps before the first norm or projection, which make an input embedding."""
        ends = (place for place, step in enumerate(self.steps) if isinstance(step, Norm | Project))
        return self.steps[: next(ends, len(self.steps))]

    @property
    def rest(self) -> tuple[Step, ...]:
        """The steps from the first norm or projection on; empty if the first block reads input embeddings."""
        return self.steps[len(self.sum) :]

    @property
    def scale(self) -> float:
        """What token rows are multiplied by."""
        return next((step.factor for step in self.steps if isinstance(step, Scale)), 1.0)

    @property
    def position(self) -> AddPosition | None:
        """The step that adds position rows."""
        return next((step for step in self.steps if isinstance(step, AddPosition)), None)

    @property
    def adds(self) -> Literal["learned", "sinusoidal"] | None:
        """The kind of the position rows that are a term of the input embedding; None if there are none."""
        if self.position is None or self.position not in self.sum:
            return None
        return "sinusoidal" if self.position.waves else "learned"

    @property
    def words(self) -> str:
        """The steps in words: `token x 27.71 + sinusoidal position, then LayerNorm`."""
        text, last = "token", None
        for step in self.steps:
            words, is_added = step.words, isinstance(step, AddPosition | AddType | AddRow)
            if isinstance(step, AddRow) and isinstance(last, AddRow):
                of = words.removeprefix(" + row 0 of ")
                words = "" if of in text else f" and {of}"
            elif is_added and ", " in text:
                words = f",{words}"
            text, last = text + words, step
        return text

    @property
    def positions_in_words(self) -> str:
        """What names the model, and which positions it has."""
        kind = "sinusoidal" if self.position and self.position.waves else "learned"
        added = f"it adds {kind} positions" if self.position else ""
        text = "; ".join(filter(None, (added, self.blocks))) or "it has no positions"
        return f"{self.where} says model_type {self.model}: {text}"

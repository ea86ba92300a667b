"""A recipe: the steps from a token row to what the first block of a real model reads.

`files/families.py` has the steps of each family, `files/recipes.py` fills in the numbers and the
tensors of one model, and `numerics/steps.py` applies them. This module only describes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from embcli.names import Strings

if TYPE_CHECKING:
    import numpy as np

    from embcli.names import ModelPart


class When(NamedTuple):
    """A condition on config.json: a key has this value."""

    key: str
    equals: bool | str = True
    default: bool | str = False  # the value of a missing key


class Scale(NamedTuple):
    """Multiply the rows by a number, by the square root of D, or by a number of config.json."""

    factor: float = 1.0  # applies if config.json has no `key`
    root: bool = False  # whether the factor is the square root of D
    key: str = ""
    when: When | None = None
    is_rounded: bool = False  # whether the model rounds the factor to the type of its weights


# Empty for the rows of a position matrix; "paper" for seeded rows.
SinusoidFormula = Literal["", "paper", "sines, cosines", "sines, cosines in float64"]


class AddPosition(NamedTuple):
    """Add the position rows."""

    when: When | None = None
    sinusoid_formula: SinusoidFormula = ""
    position_offset: int = 0  # the position in the formula that position 0 has
    padding_id: int = -1  # the position in the formula whose row is zero, if it has one


class AddType(NamedTuple):
    """Add the row of a token type."""

    row: int = 0


class Norm(NamedTuple):
    """Normalise each row, by torch's LayerNorm or the same spelled out, which gives other bits."""

    names: Strings  # names that its module has in checkpoints
    key: str = ""  # the key of its epsilon in config.json
    epsilon: float = 1e-12  # applies if config.json has no `key`
    kind: Literal["torch", "spelled"] = "torch"
    has_bias: bool = True
    when: When | None = None
    weight: str = ""  # the tensors that were found
    bias: str = ""


class Project(NamedTuple):
    """Multiply the rows by a matrix."""

    name: str
    # An optional projection is applied if its tensor exists and changes the number of columns.
    is_optional: bool = False
    when: When | None = None
    weight: str = ""  # the tensors that were found
    bias: str = ""
    width: int = 0  # columns of its rows


RecipeStep = Scale | AddPosition | AddType | Norm | Project
Steps = tuple[RecipeStep, ...]


def in_words(steps: Steps) -> str:
    """Return steps in words: `token x 27.71 + sinusoidal position, then LayerNorm`."""
    text = "token"
    plus = " +"
    for step in steps:
        match step:
            case Scale(factor=factor):
                text += f" x {factor:.6g}"
            case AddPosition(sinusoid_formula=""):
                text += f"{plus} position"
            case AddPosition():
                text += f"{plus} sinusoidal position"
            case AddType(row=row):
                text += f"{plus} token type {row}"
            case Norm():
                text += ", then LayerNorm"
                plus = ", +"
            case Project(width=width):
                text += f", then projection to {width:,}"
                plus = ", +"
    return text


class Recipe(NamedTuple):
    """How token rows become what the first block of this model reads."""

    model: str  # its `model_type`
    where: str  # what names it: config.json, or the metadata of a GGUF file
    values: Callable[[str], np.ndarray]  # returns a tensor by its name, as float32
    width: int  # columns of what the first block reads
    is_known: bool = True
    unknown: str = ""  # why the model's input is not known
    steps: Steps = ()
    padding: int | None = None  # the ID of tokens that positions do not count
    blocks: str = ""  # what its blocks do with positions, in words; empty for nothing
    part: ModelPart | None = None
    remark: str = ""  # what the model does that no step repeats

    @property
    def input_steps(self) -> Steps:
        """The steps before the first norm or projection, which make an input embedding."""
        for place, step in enumerate(self.steps):
            if isinstance(step, Norm | Project):
                return self.steps[:place]
        return self.steps

    @property
    def hidden_steps(self) -> Steps:
        """The steps from the first norm or projection on.

        They are empty if the first block reads input embeddings.
        """
        return self.steps[len(self.input_steps) :]

    @property
    def scale(self) -> float:
        """The factor of the first scale; 1 if there is none."""
        for step in self.steps:
            if isinstance(step, Scale):
                return step.factor
        return 1.0

    @property
    def position(self) -> AddPosition | None:
        for step in self.steps:
            if isinstance(step, AddPosition):
                return step
        return None

    @property
    def words(self) -> str:
        return in_words(self.steps)

    @property
    def positions_in_words(self) -> str:
        facts = []
        if self.position is not None:
            kind = "sinusoidal" if self.position.sinusoid_formula else "learned"
            facts.append(f"it adds {kind} positions")
        if self.blocks:
            facts.append(self.blocks)
        positions = "; ".join(facts) or "it has no positions"
        return f"{self.where} says model_type {self.model}: {positions}"

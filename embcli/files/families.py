"""Model families as data: their names of tensors, and their steps from token rows to first block.

The facts were measured on transformers 5.23, bit for bit; tests/families repeats the measurement.
`roles` reads the names, `recipes` the steps. To add a family to data/families.json, add its names,
its `model_type` in `own_token_names`, and in the row with the same steps, or a new row; a step that
no row has yet is a row of its own there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from embcli.binary import JsonObject, quoted
from embcli.errors import InputError
from embcli.recipe import (
    AddPosition,
    AddType,
    Norm,
    Project,
    Scale,
    SinusoidFormula,
    Steps,
    When,
)
from embcli.wording import load_facts


class Family(NamedTuple):
    """Models with the same steps from a token row to the input of the first block."""

    model_types: str  # separated by spaces
    steps: Steps = ()
    position_offset: int = 0  # the row of position 0
    # Positions begin after this ID, and do not count padding. A string is the ID's key.
    padding_id: int | str | None = None
    # The formula of sinusoidal positions, used if the file has no position matrix.
    sinusoid_formula: SinusoidFormula = ""
    block_positions: str = ""  # one of BLOCKS
    has_two_parts: bool = False  # whether an encoder and a decoder both read tokens
    when: When | None = None
    remark: str = ""  # what the model does that no step repeats
    unknown: str = ""  # why no steps lead to the input of the first block


_STEPS = {
    "scale": Scale,
    "position": AddPosition,
    "type": AddType,
    "norm": Norm,
    "project": Project,
}


def _made(kind: Callable[..., Any], fields: JsonObject) -> Any:
    """Return a family or a step that families.json describes."""
    if "when" in fields:
        fields["when"] = When(**fields["when"])
    return kind(**fields)


def _families() -> Iterator[Family]:
    """Yield the families; of those with a `model_type`, the first whose condition fits is used."""
    steps = {name: _made(_STEPS[kind], fields) for name, (kind, fields) in _STORED["steps"].items()}
    for fields in chain.from_iterable(_STORED["families"].values()):
        fields["steps"] = tuple(steps[name] for name in fields.get("steps", ()))
        yield _made(Family, fields)


_STORED = load_facts("families.json")
# The names of each matrix, in order of rank: the first that a file has is used, after any prefix.
# Different matrices with names of one rank are refused as ambiguous.
NAMES: dict[str, list[dict[str, str]]] = _STORED["names"]
SUFFIXES = _STORED["suffixes"]  # what can follow a name
# The name of the token matrix in types of models, which comes before all other names there.
TOKEN_NAMES = _STORED["own_token_names"]
# The names of norms next to a token matrix, which a model applies to the sum of its rows.
NORMS = _STORED["norms"]
# Position matrices that use row 2 for position 0, recognised without a config.json.
SHIFTED_POSITIONS: list[JsonObject] = _STORED["shifted_positions"]
BLOCKS = _STORED["block_positions"]  # the positions that blocks compute, in words
FAMILIES = tuple(_families())
# The names that llama.cpp uses for a `model_type`, where they differ.
MODEL_TYPES_OF_GGUF: dict[str, str] = _STORED["gguf_model_types"]
# Keys of config.json, and their names in GGUF, which follow the name of the architecture.
KEYS_OF_GGUF: dict[str, str] = _STORED["gguf_keys"]
# The keys of config.json whose numbers are others in GGUF, by `model_type`.
CHANGED_FOR_GGUF: dict[str, list[str]] = _STORED["changed_for_gguf"]

_LARGEST_FLOAT32 = 3e38  # the largest number allowed in config.json
_LARGEST_WHOLE = 1 << 53


class Settings(NamedTuple):
    """The settings of config.json, or of a GGUF file under the same names; null is a missing value.

    They are read strictly: methods raise InputError for a value of the wrong type.
    """

    values: JsonObject
    file_error: Callable[[str], InputError]
    where: str = "config.json"

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not abs(value) <= _LARGEST_FLOAT32:
            raise self.wrong(key, "a finite float32")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        if type(value) is not int or not 0 <= value < _LARGEST_WHOLE:
            raise self.wrong(key, "a whole number from 0")
        return value

    def holds(self, condition: When | None) -> bool:
        if condition is None:
            return True
        value = self.values.get(condition.key)
        if value is None:
            return condition.default == condition.equals
        if not isinstance(value, type(condition.equals)):
            expected = "true or false" if isinstance(condition.equals, bool) else "a word"
            raise self.wrong(condition.key, expected)
        return bool(value == condition.equals)

    def wrong(self, key: str, expected: str) -> InputError:
        """Return the error for a value that is not what it must be."""
        value = quoted(str(self.values[key]), 40)
        return self.file_error(f"{self.where} has {value} as {key}, which must be {expected}")


def settings_of_gguf(metadata: JsonObject) -> JsonObject:
    """Return the metadata of a GGUF file under the names of config.json; empty for another file."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}
    settings = {}
    settings["model_type"] = MODEL_TYPES_OF_GGUF.get(architecture, architecture)
    for key, name in KEYS_OF_GGUF.items():
        value = metadata.get(f"{architecture}.{name}")
        if value is not None:
            settings[key] = value
    return settings


def family_of(settings: Settings) -> Family | None:
    """Return the family of a `model_type`, or None."""
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    for family in FAMILIES:
        is_named = model in family.model_types.split()
        if is_named and settings.holds(family.when):
            return family
    return None


def has_two_parts(model: object) -> bool:
    """Return whether two parts of such a model, an encoder and a decoder, read tokens."""
    return any(family.has_two_parts and model in family.model_types.split() for family in FAMILIES)


def first_position(family: Family, settings: Settings) -> int:
    """Return the row of the position matrix that stands for position 0."""
    padding = padding_of(family, settings)
    return family.position_offset if padding is None else padding + 1


def padding_of(family: Family, settings: Settings) -> int | None:
    """Return the ID of the tokens that positions do not count; None if they count all tokens."""
    padding = family.padding_id
    return settings.whole(padding, 1) if isinstance(padding, str) else padding

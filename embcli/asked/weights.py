"""Which tensors of a folder the class of config.json finds, and which it ties.

transformers opens no file of weights for the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from embcli.asked.kept import kept_answer
from embcli.asked.process import NotAskedError
from embcli.errors import Notes

NUMBER = re.compile(r"(?<=\.)\d{1,9}(?=\.)")  # of a layer or an expert, in a tensor's name
TensorSize = tuple[str, Sequence[int]]  # a dtype, as torch names it, and a shape


@dataclass(frozen=True)
class ModelFacts:
    """What a class makes of the tensors in a folder; names are those of its own parameters."""

    transformers: str  # the version
    name: str  # of the class; empty if transformers has no such class
    failure: str = ""  # why there is no such model, in words that go on after that name
    faults: Sequence[str] = ()  # what is wrong in config.json
    missing: Sequence[str] = ()
    mismatched: Sequence[tuple[str, Sequence[int], Sequence[int]]] = ()  # name, shape in file, own
    unexpected: Sequence[str] = ()
    ties: Mapping[str, str] = field(default_factory=dict)
    token: str | None = None
    head: str | None = None
    body: str = ""  # the first part of all names except those of a head; empty if there is none
    ones: Sequence[str] = ()  # how weights end that are 1 in a new model; `*` is a layer's number

    @property
    def ties_head(self) -> bool:
        """Whether the class ties the output head to the token matrix."""
        if self.token is None or self.head is None:
            return False
        return self.ties.get(self.head, self.head) == self.ties.get(self.token, self.token)

    def is_one(self, name: str) -> bool:
        """Return whether a weight of the files is 1 in a new model."""
        return NUMBER.sub("*", f".{name}").endswith(tuple(self.ones))


def facts_of(folder: Path, tensors: Mapping[str, TensorSize], notes: Notes) -> ModelFacts:
    """Return what the class makes of a folder's weights; raises NotAskedError without an answer.

    `tensors` has the dtype and the shape of each tensor of its files, by name.
    """
    try:
        return kept_answer(
            ModelFacts,
            [(folder / "config.json").read_bytes(), orjson.dumps(tensors)],
            notes,
            "weights",
            folder=str(folder.absolute()),
            tensors=tensors,
        )
    except Exception as error:  # An audit goes on without an answer, whatever the reason.
        raise NotAskedError(str(error)) from None

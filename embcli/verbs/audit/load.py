"""What transformers makes of a model's weights: which it draws at random, and which it ties.

`question_about` asks beside the passes over the matrices, and `Loading` has the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embcli.asked.process import NotAskedError
from embcli.asked.weights import ModelFacts, Question
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.checkpoint import Checkpoint
from embcli.files.families import NAMES
from embcli.files.roles import equal_rows
from embcli.files.tensors import Tensors
from embcli.files.text_model import name_parts
from embcli.layer import Source
from embcli.verbs.audit.fit import Finding, Level
from embcli.wording import counted

_NAMED = 3  # names of tensors in a sentence
_LOADED = ("model.safetensors", "model.safetensors.index.json")
# The keys by which config.json states how many layers a model has.
_LAYER_COUNTS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("encoder_layers", "decoder_layers"),
)


def question_about(source: Source) -> Question | str:
    """Return the question about a model's weights, or why nobody is asked."""
    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return ""
    return _why_not(source) or Question(source.tensors.path.parent)


def _why_not(source: Checkpoint) -> str:
    """Return why transformers has no answer about a model's weights; empty if it may have one."""
    tensors = source.tensors
    layers = _stated_layers(source.config)
    reason = ""
    if source.roles.token.binary.is_remote:
        reason = "the weights are remote"
    elif tensors.path.name not in _LOADED or tensors.format != "safetensors":
        reason = f"the file is not a {_LOADED[0]}"
    elif not source.config:
        reason = "there is no config.json"
    elif tensors.path.with_name("adapter_config.json").is_file():
        reason = "adapter_config.json names another model"
    elif "transformers_weights" in source.config:
        reason = "config.json names another file of weights"
    elif layers > len(tensors):
        found = counted(len(tensors), "tensor")
        reason = f"config.json states {layers:,} layers, the file has {found}"
    elif not _has_layers(source):
        reason = "the file has no layers"
    return reason


def _stated(config: Mapping[str, Any], names: Collection[str]) -> Iterator[Any]:
    """Yield what config.json states under these names, for the whole model and for its parts."""
    parts = [config]
    for part in parts:  # Those of parts are added while they are read.
        for key, value in part.items():
            if isinstance(value, dict):
                parts.append(value)
            elif key in names:
                yield value


def _stated_layers(config: Mapping[str, Any]) -> int:
    """Return the most layers that config.json states."""
    counts = [value for value in _stated(config, _LAYER_COUNTS) if type(value) is int]
    return max(counts, default=0)


def _states_untied(config: Mapping[str, Any]) -> bool:
    """Return whether config.json states that the head is a matrix of its own."""
    flags = [*_stated(config, ("tie_word_embeddings",))]
    return False in flags and True not in flags


def _has_layers(source: Checkpoint) -> bool:
    """Return whether there are matrices beside those of tokens, positions, types and the head."""
    known = set()
    for role in NAMES:
        try:
            tensor = source.roles.find(role)
        except InputError:  # Several tensors could have the role.
            return True
        if tensor is not None:
            known.add(tensor.name)
    for name in source.tensors:
        try:
            shape = source.tensors[name].shape
        except InputError:  # An index names what its file lacks.
            return True
        if name not in known and len(shape) > 1 and min(shape) > 1:
            return True
    return False


@dataclass(frozen=True)
class Loading:
    """What a class makes of a model's weights, or why this is not known."""

    facts: ModelFacts | None = None
    not_asked: str = ""  # the reason; empty for a matrix that has no other files

    @classmethod
    def answered(cls, question: Question | str) -> Loading:
        """Wait for the answer to a question."""
        if isinstance(question, str):
            return cls(not_asked=question)
        try:
            return cls(question.answer())
        except NotAskedError as error:
            return cls(not_asked=str(error))

    @property
    def in_words(self) -> str:
        """The end of the sentence that says what was asked."""
        if self.facts is not None:
            return f", as transformers {self.facts.transformers} loads it"
        return f"; not asked: {self.not_asked}" if self.not_asked else ""

    def findings(self, source: Source, head_is_copy: bool) -> Iterator[Finding]:
        """Yield what is said; `head_is_copy` if all rows of head and token matrix are equal."""
        if not isinstance(source, Checkpoint):
            return
        yield from _of_index(source)
        if self.facts is None:
            return
        if self.facts.failure:
            yield Finding("alarm", "load", 1, f"{self.facts.name} {self.facts.failure}")
            return
        yield from _Drawn(self.facts, source).findings()
        yield from _of_ties(self.facts, source, head_is_copy)


def _of_index(source: Checkpoint) -> Iterator[Finding]:
    """Yield what an index does not say of its files, which transformers reads whole."""
    tensors = source.tensors
    if not _has_index(tensors) or source.roles.token.binary.is_remote:
        return
    counts: Counter[str] = Counter()
    for file in tensors.files:
        counts.update(list(open_tensors(Path(file))))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        text = f"{_listed(repeated)} in several files; transformers takes the last"
        yield Finding("finding", "load", len(repeated), text)
    named = {*tensors}
    unnamed = [name for name in counts if name not in named]
    if unnamed:
        text = (
            f"{tensors.path.name} does not name {_listed(unnamed)}; transformers reads whole files"
        )
        yield Finding("remark", "load", len(unnamed), text)


def _has_index(tensors: Tensors) -> bool:
    return tensors.path.name.endswith(".index.json")


class _Drawn:
    """The parameters of a class that the files do not have; they are drawn at random."""

    def __init__(self, facts: ModelFacts, source: Checkpoint) -> None:
        self.facts = facts
        self.source = source

    def findings(self) -> Iterator[Finding]:
        matrices: list[str] = []
        layers: list[str] = []
        others: list[str] = []
        is_quantised = "quantization_config" in self.source.config
        for name in self.facts.drawn:
            if name in (self.facts.token, self.facts.head):
                matrices.append(name)
            elif is_quantised:
                continue  # It can be stored in parts.
            elif _is_position(name):
                matrices.append(name)
            elif self._is_own_head(name):
                others.append(name)
            else:
                layers.append(name)

        level: Level = "alarm" if matrices else "finding"
        names = [*matrices, *layers]
        if names:
            text = f"{self.facts.name} draws {_listed(names)} at random{self._cause(names)}"
            yield Finding(level, "load", len(names), text)
        if others:
            text = f"{self.facts.name} draws {_listed(others)} at random, a pooler or a task's head"
            yield Finding("remark", "load", len(others), text)

    def _is_own_head(self, name: str) -> bool:
        """Return whether a parameter is of a pooler, or of a head that is trained for a task."""
        parts = name_parts(name)
        is_outside = self.facts.body not in ("", parts[0])
        return "pooler" in parts or (self.facts.head is None and is_outside)

    def _cause(self, names: list[str]) -> str:
        """Return in words why the files lack these names, where it is plain."""
        facts = self.facts
        for name, given, own in facts.mismatched:
            if name in names:
                return f": {name} is {tuple(given)} in the file, {tuple(own)} by config.json"
        start = _added_start(facts.unexpected, names)
        if start:
            return f": all names in the file begin with {start!r}"
        tensors = self.source.tensors
        if _has_index(tensors) and not {*tensors}.isdisjoint(names):
            return f": {tensors.path.name} names what its files lack"
        return ""


def _added_start(found: Sequence[str], names: Iterable[str]) -> str:
    """Return what all found names begin with before the names that are looked for, or nothing."""
    for name in names:
        for each in found:
            start = each.removesuffix(name)
            if start != each and all(other.startswith(start) for other in found):
                return start
    return ""


def _is_position(name: str) -> bool:
    """Return whether a parameter is a position matrix of a text, by its name."""
    *modules, parameter = name_parts(name)
    is_visual = any(module.startswith(("vision", "visual")) for module in modules)
    is_named = len(modules) > 0 and modules[-1] in NAMES["position"]
    return is_named and parameter == "weight" and not is_visual


def _listed(names: Sequence[str]) -> str:
    first = ", ".join(names[:_NAMED])
    others = ", ..." if len(names) > _NAMED else ""
    return f"{counted(len(names), 'tensor')} ({first}{others})"


def _of_ties(facts: ModelFacts, source: Checkpoint, head_is_copy: bool) -> Iterator[Finding]:
    """Yield the matrices that the class ties, and that differ in the file.

    A head of its own is right where config.json states one: T5's class ties it all the same.
    """
    untied = "which the class ties, differ in the file: both are loaded, untied"
    stored = {*source.tensors}
    token = source.roles.token
    head = None
    if facts.ties_head and not _states_untied(source.config):
        head = source.roles.find("head")
    if head is not None and head.stored_at != token.stored_at and not head_is_copy:
        yield Finding("finding", "tied", 1, f"{head.name} and {token.name}, {untied}")
    for name, other in facts.ties.items():
        if name == facts.head or not {name, other} <= stored:
            continue
        first = source.tensors[name]
        second = source.tensors[other]
        if first.is_matrix and not equal_rows(first, second, all_rows=True):
            yield Finding("finding", "tied", 1, f"{name} and {other}, {untied}")

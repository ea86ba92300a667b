"""What transformers makes of a model's weights: which it draws at random, and which it ties.

`question_about` asks beside the passes over the matrices, and `Loading` has the answer.
`check_index` looks at the files that it loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embcli.asked.process import NotAskedError
from embcli.asked.weights import ModelFacts, Question
from embcli.files.checkpoint import Checkpoint
from embcli.files.families import NAMES
from embcli.files.roles import equal_rows
from embcli.files.tensors import Tensors
from embcli.files.text_model import name_parts
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, Level, NotChecked, first_names
from embcli.wording import counted

_LOADED = ("model.safetensors", "model.safetensors.index.json")


def question_about(checkpoint: Checkpoint | None) -> Question | str:
    """Return the question about a model's weights, or why nobody is asked."""
    if checkpoint is None:
        return ""
    return _why_not(checkpoint) or Question(checkpoint.tensors.path.parent)


def _why_not(checkpoint: Checkpoint) -> str:
    """Return why transformers has no answer about a model's weights; empty if it may have one."""
    tensors = checkpoint.tensors
    layers = checkpoint.config.get("num_hidden_layers")
    reason = ""
    if checkpoint.roles.token.binary.is_remote:
        reason = "the weights are remote"
    elif tensors.path.name not in _LOADED or tensors.format != "safetensors":
        reason = f"the file is not a {_LOADED[0]}"
    elif not checkpoint.config:
        reason = "there is no config.json"
    elif tensors.path.with_name("adapter_config.json").is_file():
        reason = "adapter_config.json names another model"
    elif "transformers_weights" in checkpoint.config:
        reason = "config.json names another file of weights"
    elif isinstance(layers, int) and layers > len(tensors):
        reason = f"config.json states {layers:,} layers, more than the file has tensors"
    elif not _has_layers(tensors):
        reason = "the file has no layers"
    return reason


def _states_untied(config: Mapping[str, Any]) -> bool:
    """Return whether config.json states that the head is a matrix of its own, for any part."""
    flags = []
    configs = [config]
    for part in configs:  # Those of parts are added while they are read.
        flags.append(part.get("tie_word_embeddings"))
        configs += [value for value in part.values() if isinstance(value, dict)]
    return False in flags and True not in flags


def _has_layers(names: Iterable[str]) -> bool:
    """Return whether names of tensors have numbers, as those of all layers: `h.0.attn.weight`."""
    return any(part.isdigit() for name in names for part in name_parts(name))


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

    def findings(self, checkpoint: Checkpoint | None, head_is_copy: bool) -> Iterator[Finding]:
        """Yield what is said; `head_is_copy` if all rows of head and token matrix are equal."""
        if self.facts is None or checkpoint is None:
            return
        if self.facts.failure:
            yield Finding("alarm", "load", 1, f"{self.facts.name} {self.facts.failure}")
            return
        yield from _of_drawn(self.facts, checkpoint)
        yield from _of_ties(self.facts, checkpoint, head_is_copy)


def check_index(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that an index names each tensor of its files, which transformers reads whole, and once.

    Only headers are read. Raises InputError for a damaged file.
    """
    tensors = checkpoint.tensors
    if tensors.files == (tensors.binary.name,):
        return
    if checkpoint.roles.token.binary.is_remote:
        yield NotChecked("the shards of other tensors")
        return

    counts = Counter(tensors.names_in_files())
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        text = f"{_listed(repeated)} in several files; transformers takes the last"
        yield Finding("finding", "load", len(repeated), text)
    unnamed = sorted(counts.keys() - tensors.keys())
    if unnamed:
        listed = _listed(unnamed)
        text = f"{tensors.path.name} does not name {listed}; transformers reads whole files"
        yield Finding("remark", "load", len(unnamed), text)


def _of_drawn(facts: ModelFacts, checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield the parameters of the class that the files do not have; they are drawn at random."""
    matrices: list[str] = []
    layers: list[str] = []
    task_layers: list[str] = []
    is_quantised = "quantization_config" in checkpoint.config
    for name in facts.drawn:
        if name in (facts.token, facts.head):
            matrices.append(name)
        elif is_quantised:
            continue  # It can be stored in parts.
        elif _is_position(name):
            matrices.append(name)
        elif _is_of_task(name, facts):
            task_layers.append(name)
        else:
            layers.append(name)

    level: Level = "alarm" if matrices else "finding"
    names = [*matrices, *layers]
    if names:
        cause = _cause(names, facts, checkpoint.tensors)
        text = f"{facts.name} draws {_listed(names)} at random{cause}"
        yield Finding(level, "load", len(names), text)
    if task_layers:
        text = f"{facts.name} draws {_listed(task_layers)} at random, a pooler or a task's head"
        yield Finding("remark", "load", len(task_layers), text)


def _is_of_task(name: str, facts: ModelFacts) -> bool:
    """Return whether a parameter is of a pooler, or of a head that is trained for a task."""
    modules = name_parts(name)
    is_outside = facts.body not in ("", modules[0])
    return "pooler" in modules or (facts.head is None and is_outside)


def _cause(names: list[str], facts: ModelFacts, tensors: Tensors) -> str:
    """Return in words why the files lack these names, where it is plain."""
    for name, given, own in facts.mismatched:
        if name in names:
            return f": {name} is {tuple(given)} in the file, {tuple(own)} by config.json"
    start = _added_start(facts.unexpected, names)
    if start:
        names_in_words = counted(len(facts.unexpected), "name")
        if len(facts.unexpected) == len(tensors):
            names_in_words = "all names"
        return f": {names_in_words} in the file begin with {start!r}"
    is_index = tensors.path.suffix == ".json"
    if is_index and not {*tensors}.isdisjoint(names):
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
    return f"{counted(len(names), 'tensor')} ({first_names(names, 3)})"


def _of_ties(facts: ModelFacts, checkpoint: Checkpoint, head_is_copy: bool) -> Iterator[Finding]:
    """Yield the matrices that the class ties, and that differ in the file.

    A head of its own is right where config.json states one: T5's class ties it all the same.
    """
    untied = "which the class ties, differ in the file: both are loaded, untied"
    stored = {*checkpoint.tensors}
    token = checkpoint.roles.token
    head = None
    if facts.ties_head and not _states_untied(checkpoint.config):
        head = checkpoint.roles.find("head")
    if head is not None and head.stored_at != token.stored_at and not head_is_copy:
        yield Finding("finding", "tied", 1, f"{head.name} and {token.name}, {untied}")
    for name, other in facts.ties.items():
        if name == facts.head or not {name, other} <= stored:
            continue
        first = checkpoint.tensors[name]
        second = checkpoint.tensors[other]
        if first.is_matrix and not equal_rows(first, second, all_rows=True):
            yield Finding("finding", "tied", 1, f"{name} and {other}, {untied}")

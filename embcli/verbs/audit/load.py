"""What transformers makes of a model's weights: which it draws at random, and which it ties.

`Loading` has the answer to the question; `check_index` looks at the files that it loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from embcli.asked.process import NotAskedError
from embcli.asked.weights import NUMBER, ModelFacts, facts_of
from embcli.errors import InputError, Notes
from embcli.files.checkpoint import Checkpoint
from embcli.files.roles import equal_rows
from embcli.files.tensors import Tensors
from embcli.files.text_model import name_parts
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, Level, not_checked, of_tensors
from embcli.wording import counted, in_data

# The files that transformers loads, and their formats.
_LOADED = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_FORMATS = ("safetensors", "PyTorch")
# What can be drawn at random, by the level of its finding.
_HARMLESS = {"finding": ", a task's head", "remark": ", a pooler"}
_ADAPTER = "adapter_config.json adds an adapter"


def _why_not(checkpoint: Checkpoint) -> str:
    """Return why transformers has no answer about a model's weights; empty if it may have one."""
    tensors = checkpoint.tensors
    layers = checkpoint.config.get("num_hidden_layers")
    if checkpoint.roles.token.binary.is_remote:
        return "the weights are remote"
    if tensors.path.name not in _LOADED:
        return f"it loads {_LOADED[0]}, and not {in_data(tensors.path.name)}"
    if not checkpoint.config:
        return "config.json is missing or empty"
    if tensors.path.with_name("adapter_config.json").is_file():
        return _ADAPTER
    if isinstance(layers, int) and layers > len(tensors):
        return f"config.json states {layers:,} layers, more than the file has tensors"
    return "" if any(map(NUMBER.search, tensors)) else "the file has no layers"


@dataclass(frozen=True)
class Loading:
    """What a class makes of a model's weights, or why this is not known."""

    facts: ModelFacts | None = None
    not_asked: str = ""  # the reason; empty for a matrix that has no other files

    @classmethod
    def of(cls, checkpoint: Checkpoint | None, notes: Notes) -> Loading:
        """Ask about a model's weights.

        There is no reason to name if another program loads such files, as llama.cpp does GGUF
        files.
        """
        if checkpoint is None or checkpoint.tensors.format not in _FORMATS:
            return cls()
        reason = _why_not(checkpoint)
        if reason:
            return cls(not_asked=reason)
        tensors = checkpoint.tensors
        try:
            sizes = {each.name: (each.dtype, each.shape) for each in tensors.in_files()}
            facts = facts_of(tensors.path.parent, sizes, notes)
        except (InputError, NotAskedError) as error:
            return cls(not_asked=str(error))
        return cls(facts)

    @property
    def in_words(self) -> str:
        """The end of the sentence that says what was asked."""
        if self.facts is not None:
            return f"; transformers {self.facts.transformers} finds its weights by name and shape"
        return f"; transformers was not asked: {self.not_asked}" if self.not_asked else ""

    def findings(self, files: ModelFiles, head_is_copy: bool) -> Found:
        """Yield what is said; `head_is_copy` if all rows of head and token matrix are equal."""
        checkpoint = files.checkpoint
        facts = self.facts
        if self.not_asked == _ADAPTER:
            yield Finding("finding", "load", f"{_ADAPTER} to these weights: twice, if merged")
        elif self.not_asked:
            yield Finding("remark", "not-asked", f"transformers was not asked: {self.not_asked}")
        if head_is_copy and files.config.get("tie_word_embeddings") is False:
            yield Finding(
                "remark",
                "tied",
                "the output head is a copy of the token matrix, and config.json does not tie them",
            )
        if checkpoint is None or facts is None:
            return
        if facts.failure:
            level: Level = "alarm" if facts.name else "finding"
            name = facts.name or f"transformers {facts.transformers}"
            yield Finding(level, "load", f"{name} {facts.failure}")
        else:
            for fault in facts.faults:
                yield Finding("finding", "load", fault)
            yield from _of_mismatched(facts)
            yield from _of_drawn(facts, checkpoint)
            yield from _of_unexpected(facts, checkpoint)
            yield from _of_ties(facts, checkpoint, head_is_copy)


def check_index(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that an index names each tensor of its files, which transformers reads whole, and once.

    Only headers are read. Raises InputError for a file that cannot be read.
    """
    tensors = checkpoint.tensors
    if tensors.files == (tensors.binary.name,):
        return
    if checkpoint.roles.token.binary.is_remote:
        yield not_checked("the shards of other tensors")
        return

    counts = Counter(tensor.name for tensor in tensors.in_files())
    repeated = [name for name, count in counts.items() if count > 1]
    problem = "in several files, of which transformers takes the last"
    yield from of_tensors("finding", "load", repeated, problem, "tensor")
    unnamed = sorted(counts.keys() - tensors.keys())
    problem = f"not named by {tensors.path.name}; transformers reads whole files"
    yield from of_tensors("remark", "load", unnamed, problem, "tensor")


def _of_mismatched(facts: ModelFacts) -> Found:
    """Yield the parameters of another shape in the files, with which nothing is loaded."""
    count = len(facts.mismatched)
    for name, given, own in facts.mismatched[:1]:
        sizes = f"{name} is {tuple(given)} in the file, {tuple(own)} by config.json"
        text = f"{facts.name} does not load {counted(count, 'tensor')}: {sizes}"
        yield Finding("alarm", "load", text, count)


def _of_drawn(facts: ModelFacts, checkpoint: Checkpoint) -> Found:
    """Yield the parameters of the class that the files do not have; they are drawn at random."""
    for level in get_args(Level):
        names = [name for name in sorted(facts.missing) if _level_of(name, facts) == level]
        cause = _HARMLESS.get(level) or _cause(names, facts, checkpoint.tensors)
        problem = f"drawn at random by {facts.name}{cause}"
        yield from of_tensors(level, "load", names, problem, "tensor")


def _level_of(name: str, facts: ModelFacts) -> Level:
    """Return how much it matters that a parameter is drawn: hidden states need no pooler."""
    modules = name_parts(name)
    if facts.head is None and facts.body not in ("", modules[0]):
        return "finding"
    return "remark" if "pooler" in modules else "alarm"


def _of_unexpected(facts: ModelFacts, checkpoint: Checkpoint) -> Found:
    """Yield the tensors of the files that the class leaves out.

    Those of layers that the class has are a finding, unless they are buffers, which it may compute.
    Layers that predict further tokens are left out by right; config.json counts them by a key of
    their own.
    """
    names = facts.unexpected
    if not names or _added_start(names, facts.missing):
        return  # The names that are drawn have said it.
    problem = f"left out by {facts.name}"
    level: Level = "remark"
    tensors = checkpoint.tensors
    loaded = tensors.keys() - {*names}
    layers = {NUMBER.split(name)[0] for name in loaded if NUMBER.search(name)}
    of_layers = []
    for name in names:
        # A class can rename what it reads.
        is_buffer = name in tensors and len(tensors[name].shape) not in (1, 2)
        is_weight = name.endswith((".weight", ".bias")) and not is_buffer
        if is_weight and NUMBER.split(name)[0] in layers:
            of_layers.append(name)
    if of_layers and "num_nextn_predict_layers" not in checkpoint.roles.config:
        level = "finding"
        problem += ", as config.json states fewer layers, or their names are others"
    yield from of_tensors(level, "load", names, problem, "tensor")


def _cause(names: list[str], facts: ModelFacts, tensors: Tensors) -> str:
    """Return in words why the files lack these names, where it is plain."""
    start = _added_start(facts.unexpected, names)
    if start:
        names_in_words = counted(len(facts.unexpected), "name")
        if len(facts.unexpected) == len(tensors):
            names_in_words = "all names"
        return f", as {names_in_words} in the file begin with {start!r}"
    if tensors.path.suffix == ".json" and {*tensors} & {*names}:
        return f", as {tensors.path.name} names what its files lack"
    return ""


def _added_start(found: Sequence[str], names: Iterable[str]) -> str:
    """Return what all found names begin with before the names that are looked for, or nothing."""
    for name in names:
        for each in found:
            start = each.removesuffix(name)
            if start != each and all(other.startswith(start) for other in found):
                return start
    return ""


def _of_ties(facts: ModelFacts, checkpoint: Checkpoint, head_is_copy: bool) -> Found:
    """Yield the matrices that the class ties, and that differ in the file.

    A head of its own is right where config.json states one: T5's class ties it all the same.
    """
    untied = "which the class ties, differ in the file: both are loaded, untied"
    token = checkpoint.roles.token
    configs = (checkpoint.config, checkpoint.roles.config)  # of the whole, and of its text model
    flags = [config.get("tie_word_embeddings") for config in configs]
    if facts.ties_head and not head_is_copy and (True in flags or False not in flags):
        head = checkpoint.roles.find("head")
        if head is not None and head.stored_at != token.stored_at:
            yield Finding("finding", "tied", f"{head.name} and {token.name}, {untied}")
    for name, other in facts.ties.items():
        if name == facts.head or not {name, other} <= {*checkpoint.tensors}:
            continue
        first = checkpoint.tensors[name]
        second = checkpoint.tensors[other]
        if first.is_matrix and not equal_rows(first, second, all_rows=True):
            yield Finding("finding", "tied", f"{name} and {other}, {untied}")

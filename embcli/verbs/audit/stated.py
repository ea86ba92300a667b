"""Whether the names of the tensors are what config.json states, if transformers was not asked.

These checks find only what no class loads as it is meant: in known families that are one text model
whose layers share no weights.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import count

from embcli.asked.weights import NUMBER
from embcli.binary import JsonObject
from embcli.files.checkpoint import Checkpoint
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found

# What wrappers of torch and PEFT put before all names.
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "base_model.model.")
# Keys of models whose layers share weights, as ALBERT's, or of whose two parts each has layers.
_OTHER_LAYERS = {"num_hidden_groups", "encoder_layers"}
_NOT_TIED = "the output head and the token matrix, which config.json ties, differ"
_NO_HEAD = "config.json states tie_word_embeddings false, and there is no output head"


def check_stated(checkpoint: Checkpoint, files: ModelFiles, head_is_copy: bool) -> Found:
    """Yield a layer that is missing, a prefix of all names, and a head that is lost or not tied."""
    roles = checkpoint.roles
    config = roles.config
    if not roles.family or roles.adapter or roles.token.binary.is_remote:
        return
    if roles.part or config != checkpoint.config or _OTHER_LAYERS & config.keys():
        return

    names = [tensor.name for tensor in checkpoint.tensors.in_files()]
    for start in _WRAPPERS:
        if all(name.startswith(start) for name in names):
            text = f"all names begin with {start!r}: the model's class finds none of them"
            yield Finding("finding", "load", len(names), text)
    if not any(map(NUMBER.search, names)):
        return
    yield from _lost_layer(names, config)
    if files.head and re.search("ForCausalLM|LMHead", str(config.get("architectures"))):
        is_tied = config.get("tie_word_embeddings")
        if is_tied and files.head.is_own and not head_is_copy:
            yield Finding("finding", "tied", 1, _NOT_TIED)
        is_none = files.head.relation == "none"
        if is_tied is False and is_none and not any("head" in name for name in names):
            yield Finding("finding", "load", 1, _NO_HEAD)


def _lost_layer(names: list[str], config: JsonObject) -> Found:
    """Yield the first layer that no tensor is of, if names of tensors have numbers of layers."""
    numbers = defaultdict(list)  # of the tensors whose names begin alike
    for name in names:
        number = NUMBER.search(name)
        if number:
            numbers[name[: number.start()]].append(int(number[0]))
    layers = max(numbers, key=lambda start: len(numbers[start]))
    lost = next(number for number in count() if number not in numbers[layers])
    last = max(numbers[layers])
    stated = config.get("num_hidden_layers", config.get("n_layer"))
    if isinstance(stated, int):
        last = max(last, stated - 1)
    if lost <= last:
        text = f"no tensor is of {layers}{lost}; by names and config.json, the last layer is {last}"
        yield Finding("finding", "load", 1, text)

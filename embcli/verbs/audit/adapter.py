"""Whether an adapter of PEFT fits its adapter_config.json, and its base model.

Only names and shapes are read of a base model, if it is on this disk.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from embcli.binary import JsonObject
from embcli.encodings.encoding import sibling_json
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.hub.local import located
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, not_checked, of_tensors
from embcli.verbs.audit.fit import check_sizes
from embcli.wording import in_data

# What PEFT saves of a token matrix or an output head, if modules_to_save names it.
_OF_TOKENS = ("embed_tokens", "lm_head", "wte", "word_embeddings", "embed_in", "embed_out")
# A module's name from its layers on, which files and classes share.
_IN_LAYER = re.compile(r"\w+\.\d+\.[\w.]+?(?=\.lora_|\.\w+$)")
# Settings by which matrices have other shapes, or the model other layers.
_OTHERS = ("use_qalora", "use_bdlora", "layer_replication", "target_parameters")

_Sizes = dict[str, set[int]]  # the sizes of a base model's tensors, by module


def check_adapter(checkpoint: Checkpoint | None, files: ModelFiles) -> Found:
    """Check that an adapter has what adapter_config.json states, and fits its base model.

    There is no checkpoint if the file of the adapter has no rows of tokens.
    """
    tensors = files.tensors
    is_whole = checkpoint is not None and not checkpoint.roles.adapter
    if tensors is None or tensors.binary.is_remote or is_whole:
        return
    settings = sibling_json(tensors.path, "adapter_config.json")
    yield from _check_saved(tensors, settings.get("modules_to_save"))
    sizes: _Sizes = defaultdict(set)
    name = str(settings.get("base_model_name_or_path"))
    try:
        base = Checkpoint(str(located(name)))
        for tensor in base.tensors.values():
            sizes["".join(_IN_LAYER.findall(tensor.name))].update(tensor.shape)
        if not files.rows and not settings.get("trainable_token_indices"):
            yield from check_sizes(ModelFiles(base.roles.token.shape[0], files.encoding))
        if "quantization_config" in base.config:
            sizes.clear()
    except InputError:
        yield not_checked(f"the base model {in_data(name)} is not on this disk, or not whole")
    if settings.get("peft_type") != "LORA" or any(map(settings.get, _OTHERS)):
        yield not_checked("the shapes of this kind of adapter")
    else:
        yield from _check_matrices(tensors, settings, sizes)


def _check_saved(tensors: Tensors, modules: Any) -> Found:
    """Check that the matrices of tokens that PEFT was to save whole are in the file."""
    for module in modules if isinstance(modules, list) else ():
        if module in _OF_TOKENS and not any(f".{module}." in name for name in tensors):
            text = f"adapter_config.json has {module} in modules_to_save, and no tensor is of it"
            yield Finding("finding", "load", text)


def _check_matrices(tensors: Tensors, settings: JsonObject, sizes: _Sizes) -> Found:
    """Check the sizes of the matrices lora_A, (r, inputs), and lora_B, (outputs, r).

    Those of several experts can be one matrix. Sizes are empty if the base model is unknown.
    """
    ranks = [settings.get("r")]
    if isinstance(settings.get("rank_pattern"), dict):
        ranks += settings["rank_pattern"].values()
    misfits = []
    for name, tensor in tensors.items():
        _, lora, matrix = name.partition(".lora_")
        if not lora or not tensor.is_matrix or re.search("experts|magnitude", name):
            continue
        rank, size = tensor.shape[::-1] if "B" in matrix else tensor.shape
        has_size = not sizes or size in sizes["".join(_IN_LAYER.findall(name))]
        if rank not in ranks or not has_size:
            misfits.append(name)
    problem = "of another size than adapter_config.json or the base model states"
    yield from of_tensors("alarm", "load", misfits, problem, "tensor")

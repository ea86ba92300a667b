"""What an audit says of missing weights and of ties, held against real loads of transformers.

A real load is one on the CPU in this process. What it lost is found by comparing its weights with
those of the model that was saved, and with the file's: no list of transformers is believed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import embcli
from embcli.verbs.audit import Audit

pytest.importorskip("transformers")

import transformers

from tests.cases import cases
from tests.families.checkpoints import (
    FAULTY,
    HEADS,
    HEALTHY,
    INDEX,
    TIE_KEYS,
    UNASKED,
    WHOLE,
    WRAPPERS,
    Files,
    Wrapper,
    files_in,
    make,
    model_of,
)

pytestmark = pytest.mark.filterwarnings("ignore")

LEVELS = ("", "remark", "finding", "alarm")
# embcli finds no token matrix where these files say that it is, and refuses them.
REFUSED = {
    "the index names the wrong shards",
    "no token matrix, but a head",
    "the index does not name a shard",
    "a shard is missing",
}
# What an audit's sentence names as the cause.
CAUSES = {
    "_orig_mod. before all names": "_orig_mod.",
    "_orig_mod. before all names, tied": "_orig_mod.",
    "module. before all names": "module.",
    "module. before all names, T5": "module.",
    "base_model.model. before all names": "base_model.model.",
    "the index names a head": INDEX,
    "the index names a layer": INDEX,
}


@dataclass(frozen=True)
class Load:
    """What a real load makes of a folder."""

    model: Any = None  # None if it is not loaded
    refusal: str = ""  # the exception's class
    named: frozenset[str] = frozenset()  # weights that transformers names as missing or mismatched
    lost: frozenset[str] = (
        frozenset()
    )  # weights whose values are neither the model's nor the file's

    @property
    def level(self) -> str:
        """The level of what an audit says; "" for nothing."""
        if self.refusal:
            return "finding"
        levels = [level_of(self.model, name) for name in self.lost]
        return max(levels, key=LEVELS.index, default="")


def loaded(folder: Path, made: Any) -> Load:
    """Return what transformers loads from a folder that was made from a model."""
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = getattr(transformers, config.architectures[0])
        model, info = kind.from_pretrained(
            folder,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            use_safetensors=True,
        )
    except Exception as error:
        return Load(refusal=type(error).__name__)

    mismatched = {name for name, _, _ in info["mismatched_keys"]}
    named = frozenset(info["missing_keys"] | mismatched)
    return Load(model, named=named, lost=frozenset(lost_weights(model, made, folder)))


def lost_weights(model: Any, made: Any, folder: Path) -> set[str]:
    """Return the names of weights whose values came neither from the model nor from the file."""
    before = made.state_dict()
    prefix = made.base_model_prefix + "."
    stored = [rows for file in folder.glob("*.safetensors") for rows in tensors_in(file)]
    lost = set()
    for name, rows in model.state_dict().items():
        origins = [before.get(name), before.get(prefix + name), *stored]
        if not any(has_values(rows, origin) for origin in origins):
            lost.add(name)
    return lost


def tensors_in(file: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    return list(load_file(file).values())


def has_values(rows: torch.Tensor, origin: torch.Tensor | None) -> bool:
    if origin is None or origin.shape != rows.shape:
        return False
    return torch.equal(origin.to(rows.dtype), rows)


def level_of(model: Any, name: str) -> str:
    """Return the level of a lost weight: no hidden state depends on a pooler or a task's head."""
    is_outside = not name.startswith(f"{model.base_model_prefix}.")
    if is_outside and model.base_model is not model and model.get_output_embeddings() is None:
        return "finding"
    return "remark" if "pooler" in name.split(".") else "alarm"


def is_tied(model: Any) -> bool:
    """Return whether a loaded model's head is the matrix of some embedding, the same object."""
    head = model.get_output_embeddings().weight
    embeddings = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    return any(module.weight is head for module in embeddings)


def said(found: Audit, kind: str) -> list[Any]:
    return [finding for finding in found.findings if finding.kind == kind]


def highest(findings: list[Any]) -> str:
    levels = [finding.level for finding in findings]
    return max(levels, key=LEVELS.index, default="")


def reasons(found: Audit) -> list[str]:
    """Return why transformers was not asked; nothing if it was."""
    return [found.loading.not_asked] if found.loading.not_asked else []


# --- transformers alone ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*HEALTHY, *WRAPPERS, *WHOLE])
def test_a_real_load_of_whole_files_loses_nothing(name, tmp_path):
    load = loaded(tmp_path, make(name, tmp_path))
    assert load.refusal == ""
    assert load.lost == frozenset()
    assert load.named == frozenset()


@pytest.mark.parametrize("name", FAULTY)
def test_a_real_load_of_faulty_files_loses_what_transformers_names(name, tmp_path):
    made = make(name, tmp_path)
    load = loaded(tmp_path, made)
    assert load.refusal or load.lost
    if load.refusal:
        return

    tied_to_them = set()
    for target, source in load.model.all_tied_weights_keys.items():
        if load.named & {target, source}:
            tied_to_them |= {target, source}
    assert load.named <= load.lost
    assert load.lost <= load.named | tied_to_them


@pytest.mark.parametrize("name", ["no pooler", "no classifier", "no score"])
def test_what_is_no_alarm_changes_no_hidden_state(name, tmp_path):
    load = loaded(tmp_path, make(name, tmp_path))
    assert load.level in ("remark", "finding")
    ids = torch.tensor([[5, 9, 17]])
    with torch.no_grad():
        before = load.model(ids, output_hidden_states=True).hidden_states[-1]
        for weight in load.lost:
            load.model.get_parameter(weight).fill_(torch.nan)
        after = load.model(ids, output_hidden_states=True).hidden_states[-1]
    assert torch.equal(before, after)


# --- audits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*HEALTHY, *WRAPPERS, *WHOLE])
def test_an_audit_of_whole_files_finds_only_layers_that_are_not_loaded(name, tmp_path):
    make(name, tmp_path)
    if name in REFUSED:
        with pytest.raises(embcli.InputError):
            embcli.open(tmp_path).audit()
        return

    found = embcli.open(tmp_path).audit()
    assert reasons(found) == []
    # transformers loads a model without the others, as nobody meant it.
    levels = ("finding",) if name == "fewer layers in config.json" else ("", "remark")
    assert highest(said(found, "load")) in levels
    assert highest(said(found, "tied")) in ("", "remark")


@pytest.mark.parametrize("name", FAULTY)
def test_an_audit_says_what_a_real_load_lost(name, tmp_path):
    load = loaded(tmp_path, make(name, tmp_path))
    if name in REFUSED:
        with pytest.raises(embcli.InputError):
            embcli.open(tmp_path).audit()
        return

    found = embcli.open(tmp_path).audit()
    findings = [each for each in said(found, "load") if "left out" not in each.text]
    text = "\n".join(finding.text for finding in findings)
    assert reasons(found) == []
    if load.refusal:
        assert highest(findings) in ("finding", "alarm")
        assert not found.is_sound
        return
    assert highest(findings) == load.level
    assert found.is_sound <= (load.level == "remark")
    assert sum(finding.rows for finding in findings) == len(load.named)
    assert any(lost in text for lost in load.named)
    assert CAUSES.get(name, "") in text


@pytest.mark.parametrize(
    "name", ["LlamaForCausalLM", "GemmaForCausalLM", "Qwen3NextForCausalLM", "BertForMaskedLM"]
)
def test_norms_of_zeros_are_right_if_they_are_zero_in_a_new_model(name, tmp_path):
    model = make(name, tmp_path)
    new = dict(type(model)(model.config).named_parameters())
    wrong = set()
    with torch.no_grad():
        for norm, weight in model.named_parameters():
            if norm.endswith("norm.weight") and weight.dim() == 1:
                weight.zero_()
                if new[norm].any():
                    wrong.add(norm)
    model.save_pretrained(tmp_path)
    findings = said(embcli.open(tmp_path).audit(), "zero")
    assert sum(finding.rows for finding in findings) == len(wrong)
    assert any(norm in findings[0].text for norm in wrong) == bool(wrong)


@pytest.mark.parametrize("name", UNASKED)
def test_an_audit_says_nothing_where_nobody_can_be_asked(name, tmp_path):
    make(name, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found = embcli.open(tmp_path).audit()
    assert sorted(tmp_path.rglob("*")) == before
    assert said(found, "load") == []
    (reason,) = reasons(found)
    if name == "more layers than tensors":
        assert "1,000,000,000 layers" in reason


SCHEMES = ("awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "torchao")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dropped", ["", "layers.1.mlp.", "lm_head.weight"])
def test_a_quantized_layer_is_there_if_any_of_its_parts_is(scheme, dropped, tmp_path):
    make("LlamaForCausalLM", tmp_path)
    files = files_in(tmp_path)
    files.config["quantization_config"] = {"quant_method": scheme}
    for name in [*files.tensors]:
        if name.endswith("_proj.weight"):
            weight = files.tensors.pop(name)
            files.tensors[name.replace("weight", "qweight")] = weight[:4]
            files.tensors[name.replace("weight", "scales")] = weight[4:5].clone()
    files.keep(lambda name: dropped not in name or not dropped)
    files.write(tmp_path)
    found = embcli.open(tmp_path).audit()
    assert reasons(found) == []
    assert highest(said(found, "load")) == ("alarm" if dropped else "")


@cases
def test_a_config_json_of_other_weights_is_a_finding(settings, text, tmp_path):
    make("LlamaForCausalLM", tmp_path)
    files = files_in(tmp_path)
    files.config |= settings
    files.write(tmp_path)
    assert said(embcli.open(tmp_path).audit(), "load")[0].text == text


@cases
def test_of_a_file_of_pytorch_the_same_is_said(dropped, level, tmp_path):
    make("LlamaForCausalLM", tmp_path)
    files = files_in(tmp_path)
    files.weights = "pytorch_model.bin"
    if level:
        files.drop(dropped)
    files.write(tmp_path)
    found = embcli.open(tmp_path).audit()
    assert reasons(found) == []
    assert highest(said(found, "load")) == level


def test_settings_of_older_files_stand_at_one_level(tmp_path):
    made = make("Qwen2VLForConditionalGeneration", tmp_path)
    files = flat(files_in(tmp_path))
    files.write(tmp_path)
    assert loaded(tmp_path, made).lost == frozenset()
    assert highest(said(embcli.open(tmp_path).audit(), "load")) in ("", "remark")


def flat(files: Files) -> Files:
    """Return the files with the settings of the language model at the upper level."""
    text = files.config.pop("text_config")
    del text["model_type"]
    files.config = text | files.config
    return files


# --- ties -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRAPPERS)
def test_ties_at_two_levels_are_those_of_a_real_load(name, tmp_path):
    wrapper = Wrapper(name, tmp_path)
    made = model_of(name)
    wrong = []
    for keys in TIE_KEYS:
        ties_equal_rows = False
        for head in HEADS:
            wrapper.write(tmp_path, keys, head)
            load = loaded(tmp_path, made)
            if head == "equal":
                ties_equal_rows = is_tied(load.model)
            is_drawn = bool(load.named)
            is_contradicted = head == "other" and ties_equal_rows
            expected = ("alarm" if is_drawn else "", is_contradicted)

            found = embcli.open(tmp_path).audit()
            is_said = highest(said(found, "tied")) in ("finding", "alarm")
            if (highest(said(found, "load")), is_said) != expected:
                wrong.append((keys, head, expected))
    assert wrong == []


def test_a_file_larger_than_the_limit_on_memory_is_asked_about(tmp_path):
    """The file has 5 GB, nearly all of it a hole."""
    make("LlamaForCausalLM", tmp_path)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    place = len(data) - 8 - length
    header["other.weight"] = {
        "dtype": "F32",
        "shape": [20_000, 65_536],
        "data_offsets": [place, place + 4 * 20_000 * 65_536],
    }
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text + data[8 + length :])
        stream.truncate(8 + len(text) + place + 4 * 20_000 * 65_536)
    found = embcli.open(tmp_path).audit()
    assert reasons(found) == []
    assert found.is_sound

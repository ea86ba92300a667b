"""Tiny checkpoints as transformers saves them: healthy ones, and ones with one fault each.

`HEALTHY` and `WRAPPERS` name classes of transformers. `CASES` changes the files of one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from tests.cases import data
from tests.families.models import MODELS, SMALL

Tensors = dict[str, torch.Tensor]

_DATA = data(__name__)

# --- configurations of tiny models ----------------------------------------------------------------

# Sizes that models of experts, of states and of images have besides those of SMALL.
_SIZES = SMALL | _DATA["sizes"]
_IMAGE_SIZES = _SIZES | _DATA["image_sizes"]
# Lists that have one kind for each of the two layers.
_LISTS = ("layer_types", "mlp_layer_types")


def tiny(kind: Any, given: dict[str, Any], part: str = "") -> Any:
    """Return the configuration of a tiny model; `part` is its name in that of a larger one."""
    known = kind()
    is_seen = "vision" in part
    sizes = _IMAGE_SIZES if is_seen else _SIZES
    values: dict[str, Any] = {key: size for key, size in sizes.items() if hasattr(known, key)}
    for key in _LISTS:
        kinds = getattr(known, key, None)
        if kinds and key in kind.__dataclass_fields__:
            first_kinds = list(dict.fromkeys(kinds))[:2]
            values[key] = (first_kinds * 2)[:2]
    for name in kind.sub_configs:
        part_config = getattr(known, name, None)
        if part_config is not None:
            values[name] = tiny(type(part_config), given.get(name, {}), name).to_dict()
    for key, value in given.items():
        if key not in kind.sub_configs:
            values[key] = value
    set_values = {key: value for key, value in values.items() if value is not None}
    return kind(**set_values)


def model_of(name: str) -> Any:
    """Return a tiny model with random weights, by the name of its class or in MODELS."""
    class_name, given = _RECIPES.get(name) or MODELS.get(name) or (name, {})
    made = getattr(transformers, class_name)
    torch.manual_seed(7)
    model = made(tiny(made.config_class, given))
    random = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.parameters():
            if not weight.requires_grad:  # Sinusoids are computed, not saved.
                continue
            mean = 0.7 if weight.dim() == 1 else 0
            weight.copy_(0.5 * torch.randn(weight.shape, generator=random) + mean)
    return model.eval()


# --- healthy ones ---------------------------------------------------------------------------------

_RECIPES: dict[str, tuple[str, dict[str, Any]]] = _DATA["recipes"]

_DECODERS = """
GPT2LMHeadModel GPTJForCausalLM GPTNeoXForCausalLM LlamaForCausalLM GemmaForCausalLM
Gemma2ForCausalLM Gemma3ForCausalLM Gemma3nForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM
MistralForCausalLM PhiForCausalLM Phi3ForCausalLM BloomForCausalLM MambaForCausalLM
OpenAIGPTLMHeadModel GPTBigCodeForCausalLM XGLMForCausalLM CohereForCausalLM Cohere2ForCausalLM
Starcoder2ForCausalLM StableLmForCausalLM OlmoForCausalLM Olmo2ForCausalLM PersimmonForCausalLM
NemotronForCausalLM Glm4ForCausalLM SmolLM3ForCausalLM GraniteForCausalLM GPT-Neo
RwkvForCausalLM OPT OPT-350m Falcon MPT XLNet CodeGen LFM2
"""
_EXPERTS = """
Mixtral Qwen2MoeForCausalLM Qwen3MoeForCausalLM OlmoeForCausalLM PhimoeForCausalLM
GptOssForCausalLM Glm4MoeForCausalLM GraniteMoeForCausalLM Qwen3NextForCausalLM
"""
_ENCODERS = """
BertModel BertForMaskedLM BertForSequenceClassification BertForPreTraining RobertaForMaskedLM
XLMRobertaForMaskedLM DistilBertForMaskedLM DebertaForMaskedLM ModernBertForMaskedLM ALBERT
ELECTRA MPNetForMaskedLM NomicBertModel Longformer BigBird ESM-2 LlamaForSequenceClassification
CLIPTextModel SiglipModel LUKE MllamaForConditionalGeneration
"""
_BOTH = """
T5ForConditionalGeneration MT5ForConditionalGeneration BartForConditionalGeneration Marian mBART
Pegasus M2M100ForConditionalGeneration WhisperForConditionalGeneration T5EncoderModel
SwitchTransformersForConditionalGeneration T5GemmaForConditionalGeneration
"""
HEALTHY = (
    *_DECODERS.split(),
    *_EXPERTS.split(),
    *_ENCODERS.split(),
    *_BOTH.split(),
    "Llama, tied",
    "GPT-2, untied",
    "DeepSeek V3",
)

# Models around a language model, whose configurations say at two levels whether heads are tied.
_WRAPPERS = """
Gemma3ForConditionalGeneration Qwen3VLForConditionalGeneration Idefics3ForConditionalGeneration
Mistral3ForConditionalGeneration Qwen2_5_VLForConditionalGeneration LlavaForConditionalGeneration
PaliGemmaForConditionalGeneration SmolVLMForConditionalGeneration InternVLForConditionalGeneration
Qwen2VLForConditionalGeneration AyaVisionForConditionalGeneration
Blip2ForConditionalGeneration LlavaNextForConditionalGeneration
LlavaOnevisionForConditionalGeneration VipLlavaForConditionalGeneration
Qwen2AudioForConditionalGeneration VoxtralForConditionalGeneration Glm4vForConditionalGeneration
Qwen3VLMoeForConditionalGeneration Ovis2ForConditionalGeneration Kosmos2ForConditionalGeneration
"""
WRAPPERS = tuple(_WRAPPERS.split())

# --- the files of a checkpoint --------------------------------------------------------------------

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass
class Files:
    """What a folder will have: it is changed, and then written."""

    tensors: Tensors
    config: dict[str, Any]
    shards: tuple[Tensors, ...] = ()  # by SHARDS, in place of one file
    weight_map: dict[str, str] = field(default_factory=dict)
    weights: str = WEIGHTS  # the name of the only file
    others: dict[str, str] = field(default_factory=dict)  # name -> text

    def keep(self, is_kept: Callable[[str], bool]) -> None:
        self.tensors = {name: rows for name, rows in self.tensors.items() if is_kept(name)}

    def drop(self, *parts: str) -> None:
        """Leave out the tensors whose names have one of these parts; each part must occur."""
        for part in parts:
            assert any(part in name for name in self.tensors), part
        self.keep(lambda name: not any(part in name for part in parts))

    def split(self) -> None:
        """Put each second tensor into a second shard."""
        names = sorted(self.tensors)
        self.shards = (
            {name: self.tensors[name] for name in names[::2]},
            {name: self.tensors[name] for name in names[1::2]},
        )
        for file, shard in zip(SHARDS, self.shards, strict=True):
            self.weight_map |= dict.fromkeys(shard, file)

    def shard_of(self, name: str) -> Tensors:
        return next(shard for shard in self.shards if name in shard)

    # The changes that cases name.

    def set(self, settings: dict[str, Any]) -> None:
        self.config |= settings

    def unset(self, key: str) -> None:
        del self.config[key]

    def keep_only(self, *parts: str) -> None:
        self.keep(lambda name: any(part in name for part in parts))

    def add_prefix(self, prefix: str) -> None:
        self.tensors = {prefix + name: rows for name, rows in self.tensors.items()}

    def cut_prefix(self, prefix: str) -> None:
        self.tensors = {name.removeprefix(prefix): rows for name, rows in self.tensors.items()}

    def shorten(self, name: str) -> None:
        """Leave out the last row of a tensor."""
        self.tensors[name] = self.tensors[name][:-1].clone()

    def convert(self, dtype: str) -> None:
        to = getattr(torch, dtype)
        self.tensors = {name: rows.to(to) for name, rows in self.tensors.items()}
        self.config["dtype"] = dtype

    def copy_head(self, token: str) -> None:
        self.tensors["lm_head.weight"] = self.tensors[token].clone()

    def add_other_head(self, token: str) -> None:
        self.tensors["lm_head.weight"] = self.tensors[token].flip(0).clone()

    def add(self, *names: str) -> None:
        """Add vectors, which older versions saved."""
        for name in names:
            self.tensors[name] = torch.ones(4)

    def rename(self, weights: str) -> None:
        self.weights = weights

    def add_code(self, name: str) -> None:
        self.others[name] = "raise SystemExit('this code was run')\n"

    def unname(self, name: str) -> None:
        """Leave a tensor out of the index."""
        del self.weight_map[name]

    def lose(self, name: str) -> None:
        """Leave a tensor out of its shard, but not out of the index."""
        del self.shard_of(name)[name]

    def swap_shards(self) -> None:
        """Let the index name the wrong shards."""
        for name, file in self.weight_map.items():
            self.weight_map[name] = SHARDS[1 - SHARDS.index(file)]

    def unname_shard(self) -> None:
        for name in self.shards[1]:
            self.unname(name)

    def lose_shard(self) -> None:
        self.shards = self.shards[:1]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for file in (WEIGHTS, "generation_config.json"):
            (folder / file).unlink(missing_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        if self.shards:
            for file, shard in zip(SHARDS, self.shards, strict=False):
                save_file(shard, folder / file, {"format": "pt"})
            index = {"metadata": {"total_size": 0}, "weight_map": self.weight_map}
            (folder / INDEX).write_text(json.dumps(index))
        elif self.weights.endswith(".bin"):
            torch.save(self.tensors, folder / self.weights)
        else:
            save_file(self.tensors, folder / self.weights, {"format": "pt"})
        for name, text in self.others.items():
            (folder / name).write_text(text)


def files_in(folder: Path) -> Files:
    config = json.loads((folder / "config.json").read_text())
    return Files(load_file(folder / WEIGHTS), config)


def add_tokenizer(folder: Path) -> None:
    """Give a folder a tokenizer of 96 words."""
    words = {f"w{number}": number for number in range(96)}
    Tokenizer(models.WordLevel(words, "w0")).save(str(folder / "tokenizer.json"))


# --- faults ---------------------------------------------------------------------------------------

# Each case names a model as `model_of` takes it, and methods of Files that change it, in order.
WHOLE = _DATA["whole"]  # transformers loads these files whole, although they look odd
FAULTY = _DATA["faulty"]  # transformers loads these with random weights, or not at all
UNASKED = _DATA["unasked"]  # transformers cannot be asked about these, or need not be
CASES: dict[str, dict[str, Any]] = WHOLE | FAULTY | UNASKED


def change(files: Files, changes: list[list[Any]]) -> None:
    for method, *arguments in changes:
        getattr(files, method)(*arguments)


def make(name: str, folder: Path) -> Any:
    """Save the checkpoint of this name; return the model as it was before it was saved."""
    case = CASES.get(name, {"model": name})
    model = model_of(case["model"])
    model.save_pretrained(folder)
    if "changes" in case:
        files = files_in(folder)
        change(files, case["changes"])
        files.write(folder)
    if "has_tokenizer" in case:
        add_tokenizer(folder)
    return model


# --- ties at two levels of a configuration --------------------------------------------------------

Keys = tuple[bool | None, bool | None]
# What the upper and the lower level of a config.json say; None says nothing.
TIE_KEYS: tuple[Keys, ...] = (
    (None, None),
    (None, True),
    (True, None),
    (True, False),
    (False, True),
)
HEADS = ("none", "equal", "other")  # what a file has of a head
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config")


class Wrapper:
    """The files of a model around a language model, with keys and heads of one's choice."""

    def __init__(self, name: str, folder: Path) -> None:
        model = model_of(name)
        token = model.get_input_embeddings().weight.detach()
        head = model.get_output_embeddings()
        self.other_head = token.flip(0).clone()
        head.weight = torch.nn.Parameter(self.other_head)
        model.save_pretrained(folder)
        self.files = files_in(folder)
        self.token = self._name_of(token)
        self.head = self._name_of(self.other_head)

    def _name_of(self, rows: torch.Tensor) -> str:
        return next(
            name for name, stored in self.files.tensors.items() if torch.equal(stored, rows)
        )

    def write(self, folder: Path, keys: Keys, head: str) -> None:
        files = deepcopy(self.files)
        if head == "none":
            del files.tensors[self.head]
        elif head == "equal":
            files.tensors[self.head] = files.tensors[self.token].clone()
        levels = (files.config, _text_config_of(files.config))
        for level, is_tied in zip(levels, keys, strict=True):
            level.pop("tie_word_embeddings", None)
            if is_tied is not None:
                level["tie_word_embeddings"] = is_tied
        files.write(folder)


def _text_config_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of the language model inside of another one."""
    return next(config[key] for key in _TEXT_CONFIGS if key in config)

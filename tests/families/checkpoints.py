"""Tiny checkpoints as transformers saves them: healthy ones, and ones with one fault each.

`HEALTHY` and `WRAPPERS` name classes of transformers. `CASES` changes the files of one of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from tests.families.models import MODELS, SMALL

Tensors = dict[str, torch.Tensor]

# --- configurations of tiny models ----------------------------------------------------------------

# Sizes that models of experts, of states and of images have besides those of SMALL.
_SIZES = SMALL | {
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "laurel_rank": 4,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 96,
    "projection_dim": 16,
    "num_query_tokens": 4,
    "lora_rank": 4,
}
_IMAGE_SIZES = _SIZES | {
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "image_size": 16,
    "patch_size": 8,
    "temporal_patch_size": 1,
    "spatial_merge_size": 1,
    "depth": 1,
    "embed_dim": 16,
    "out_hidden_size": 16,
    "vision_output_dim": 48,
    "attention_heads": 2,
}
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

_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama, tied": ("LlamaForCausalLM", {"tie_word_embeddings": True}),
    "GPT-2, untied": ("GPT2LMHeadModel", {"tie_word_embeddings": False}),
    "DeepSeek V3": ("DeepseekV3ForCausalLM", {"first_k_dense_replace": 1}),
    "Mixtral": ("MixtralForCausalLM", {"num_local_experts": 4}),
}

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

Change = Callable[[Files], None]
_TOKEN = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"


class Case(NamedTuple):
    """A model whose files are changed."""

    model: str  # as `model_of` takes it
    change: Change
    has_tokenizer: bool = False


def _prefixed(prefix: str) -> Change:
    def change(files: Files) -> None:
        files.tensors = {prefix + name: rows for name, rows in files.tensors.items()}

    return change


def _without(*parts: str) -> Change:
    return lambda files: files.drop(*parts)


def _only(*parts: str) -> Change:
    return lambda files: files.keep(lambda name: any(part in name for part in parts))


def _with(**values: Any) -> Change:
    """Return a change of config.json; a key whose value is ... is left out."""

    def change(files: Files) -> None:
        files.config |= values
        for key, value in values.items():
            if value is ...:
                del files.config[key]

    return change


def _shortened(*names: str) -> Change:
    def change(files: Files) -> None:
        for name in names:
            files.tensors[name] = files.tensors[name][:-1].clone()

    return change


def _as_dtype(dtype: torch.dtype) -> Change:
    def change(files: Files) -> None:
        files.tensors = {name: rows.to(dtype) for name, rows in files.tensors.items()}
        files.config["dtype"] = str(dtype).removeprefix("torch.")

    return change


def _copied_head(token: str) -> Change:
    def change(files: Files) -> None:
        files.tensors[_HEAD] = files.tensors[token].clone()

    return change


def _other_head(token: str) -> Change:
    def change(files: Files) -> None:
        files.tensors[_HEAD] = files.tensors[token].flip(0).clone()

    return change


def _split(files: Files) -> None:
    files.split()


def _unnamed_in_index(files: Files) -> None:
    files.split()
    del files.weight_map["lm_head.weight"]


def _named_in_index_only(*names: str) -> Change:
    def change(files: Files) -> None:
        files.split()
        for name in names:
            del files.shard_of(name)[name]

    return change


def _wrong_shard_in_index(files: Files) -> None:
    files.split()
    for name, file in files.weight_map.items():
        files.weight_map[name] = SHARDS[1 - SHARDS.index(file)]


def _one_shard_in_index(files: Files) -> None:
    files.split()
    second = files.shards[1]
    for name in second:
        del files.weight_map[name]


def _one_shard_in_folder(files: Files) -> None:
    files.split()
    files.shards = files.shards[:1]


def _both_kinds_of_names(files: Files) -> None:
    files.tensors = {name.removeprefix("model."): rows for name, rows in files.tensors.items()}


def _old_buffers(files: Files) -> None:
    files.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    files.tensors["model.rotary_emb.inv_freq"] = torch.ones(4)


def _weights_named(name: str) -> Change:
    def change(files: Files) -> None:
        files.weights = name

    return change


def _custom_code(files: Files) -> None:
    files.config["model_type"] = "nobodys_own"
    files.config["auto_map"] = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    files.others["own.py"] = "raise SystemExit('this code was run')\n"


def _after(*changes: Change) -> Change:
    def change(files: Files) -> None:
        for each in changes:
            each(files)

    return change


_LLAMA = "LlamaForCausalLM"
_GPT2 = "GPT2LMHeadModel"
_BERT = "BertForMaskedLM"

# Files that transformers loads whole, although they look odd.
WHOLE = {
    "the head is stored, too": Case("Llama, tied", _copied_head(_TOKEN)),
    # A T5 has a flag for its scale under the name of a tie: config.json is right to say false.
    "a head of its own, T5": Case(
        "T5ForConditionalGeneration",
        _after(_other_head("shared.weight"), _with(tie_word_embeddings=False)),
    ),
    "names of the bare model": Case(_LLAMA, _both_kinds_of_names),
    "one prefix too many": Case(_LLAMA, _prefixed("model.")),
    "buffers of older versions": Case(_LLAMA, _old_buffers),
    "two shards": Case(_LLAMA, _split, has_tokenizer=True),
    "the index does not name the head": Case(_LLAMA, _unnamed_in_index),
    "the index names the wrong shards": Case(_LLAMA, _wrong_shard_in_index),
    "float16": Case(_LLAMA, _as_dtype(torch.float16)),
    "bfloat16, tied": Case(_GPT2, _as_dtype(torch.bfloat16), has_tokenizer=True),
    "custom code for a known class": Case(_LLAMA, _with(auto_map={"AutoConfig": "own.Config"})),
    "fewer layers in config.json": Case(_LLAMA, _with(num_hidden_layers=1)),
    "the bare class": Case(_LLAMA, _with(architectures=["LlamaModel"]), has_tokenizer=True),
}

# Files that transformers loads with random weights, or not at all.
FAULTY = {
    "_orig_mod. before all names": Case(_LLAMA, _prefixed("_orig_mod.")),
    "_orig_mod. before all names, tied": Case(_GPT2, _prefixed("_orig_mod.")),
    "module. before all names": Case(_BERT, _prefixed("module.")),
    "module. before all names, T5": Case("T5ForConditionalGeneration", _prefixed("module.")),
    "base_model.model. before all names": Case(_LLAMA, _prefixed("base_model.model.")),
    "no token matrix, but a head": Case(_LLAMA, _without(_TOKEN)),
    "no position matrix, GPT-2": Case(_GPT2, _without("wpe.weight")),
    "no position matrix, BERT": Case(_BERT, _without("position_embeddings.weight")),
    "no position matrix, OPT": Case("OPT", _without("embed_positions.weight")),
    "no position matrix, BART": Case(
        "BartForConditionalGeneration", _without("decoder.embed_positions.weight")
    ),
    "no head": Case(_LLAMA, _without(_HEAD)),
    "no head, GPT-2": Case("GPT-2, untied", _without(_HEAD)),
    "no head, experts": Case("Mixtral", _without(_HEAD)),
    "one layer less": Case(_LLAMA, _without("layers.1."), has_tokenizer=True),
    "no last norm": Case(_LLAMA, _without("model.norm.")),
    "one bias less": Case(_GPT2, _without("h.0.attn.c_attn.bias")),
    "no transform before the head": Case(_BERT, _without("predictions.transform.dense.")),
    "no pooler": Case("BertModel", _without("pooler.")),
    "no classifier": Case("BertForSequenceClassification", _without("classifier.")),
    "no score": Case("LlamaForSequenceClassification", _without("score.")),
    "no pooler and no classifier": Case(
        "BertForSequenceClassification", _without("pooler.", "classifier.")
    ),
    "a masked model as the bare class": Case(_BERT, _with(architectures=["BertModel"])),
    "one expert less": Case("Mixtral", _without("layers.1.block_sparse_moe.experts.3.w1")),
    "no router": Case("Mixtral", _without("layers.0.block_sparse_moe.gate.")),
    "no encoder for images": Case("LlavaForConditionalGeneration", _without("vision_tower.")),
    "no positions of images": Case(
        "LlavaForConditionalGeneration", _without("vision_tower.embeddings.position_embedding")
    ),
    "the index names a head": Case(_LLAMA, _named_in_index_only(_HEAD)),
    "the index names a layer": Case(
        _LLAMA, _named_in_index_only("model.layers.0.mlp.up_proj.weight")
    ),
    "the index does not name a shard": Case(_LLAMA, _one_shard_in_index),
    "a shard is missing": Case(_LLAMA, _one_shard_in_folder),
    "vocab_size is larger": Case(_LLAMA, _with(vocab_size=104)),
    "vocab_size is smaller, tied": Case(_GPT2, _with(vocab_size=90)),
    "other sizes inside": Case(_LLAMA, _with(intermediate_size=40)),
    "fewer heads for keys": Case(_LLAMA, _with(num_key_value_heads=1)),
    "hidden_size is larger": Case(_LLAMA, _with(hidden_size=32, head_dim=8)),
    "more positions": Case(_GPT2, _with(n_positions=80)),
    "a head without its last row": Case(_LLAMA, _shortened(_HEAD)),
    "an expert without its last row": Case(
        "Mixtral", _shortened("model.layers.0.block_sparse_moe.experts.1.w2.weight")
    ),
    "unknown activation": Case(_LLAMA, _with(hidden_act="squared_sine")),
    "heads that do not divide": Case(_LLAMA, _with(num_attention_heads=3)),
    "a text as a size": Case(_LLAMA, _with(intermediate_size="large")),
    "a list of layers that is too short": Case(
        "Qwen2ForCausalLM", _with(layer_types=["full_attention"])
    ),
    "unknown scaling of rotations": Case(
        _LLAMA, _with(rope_parameters={"rope_type": "spiral", "rope_theta": 10_000.0})
    ),
    "padding outside of the rows": Case(_LLAMA, _with(pad_token_id=4_000)),
    "unknown model_type": Case(_LLAMA, _with(model_type="nobodys_own")),
    "an unknown class": Case(_LLAMA, _with(architectures=["LlamaForEverything"])),
    "a class of another family": Case(_LLAMA, _with(architectures=["GPT2LMHeadModel"])),
}

# Files of which transformers cannot be asked, or need not be.
UNASKED = {
    "no model_type": Case(_LLAMA, _with(model_type=...)),
    "custom code": Case(_LLAMA, _custom_code),
    "no architectures": Case(_LLAMA, _with(architectures=...)),
    "a class that chooses one": Case(_LLAMA, _with(architectures=["AutoModelForCausalLM"])),
    "a class of no model": Case(_LLAMA, _with(architectures=["LlamaConfig"])),
    "the class of all models": Case(_LLAMA, _with(architectures=["PreTrainedModel"])),
    "the token matrix alone": Case(_LLAMA, _only(_TOKEN)),
    "the token matrix and the head": Case(_LLAMA, _only(_TOKEN, _HEAD)),
    "the matrices before the first block": Case(
        _BERT, _only("word_embeddings", "position_embeddings", "token_type_embeddings")
    ),
    "weights of another name": Case(_LLAMA, _weights_named("consolidated.safetensors")),
    "more layers than tensors": Case(_LLAMA, _with(num_hidden_layers=10**9)),
}

CASES = WHOLE | FAULTY | UNASKED


def make(name: str, folder: Path) -> Any:
    """Save the checkpoint of this name; return the model as it was before it was saved."""
    case = CASES.get(name)
    model = model_of(case.model if case else name)
    model.save_pretrained(folder)
    if case is not None:
        files = files_in(folder)
        case.change(files)
        files.write(folder)
        if case.has_tokenizer:
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

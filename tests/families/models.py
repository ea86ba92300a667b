"""Tiny models of the families of transformers with random weights; what their first blocks read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.cases import data

# The sizes of a tiny model, each with the names that configurations have for it.
_SIZES = {
    0: "bos_token_id",
    1: "pad_token_id",
    2: """
        num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers
        num_decoder_layers num_attention_heads n_head n_heads num_heads num_key_value_heads
        encoder_attention_heads decoder_attention_heads attention_heads eos_token_id
    """,
    4: "num_experts num_local_experts state_size d_state rotary_dim",
    8: "head_dim d_kv d_head",
    16: "hidden_size d_model n_embd dim emb_dim num_mel_bins",
    32: """
        intermediate_size ffn_dim d_ff hidden_dim n_inner d_inner dff encoder_ffn_dim
        decoder_ffn_dim
    """,
    64: """
        max_position_embeddings n_positions n_ctx max_source_positions max_target_positions
    """,
    96: "vocab_size",
}
SMALL: dict[str, int] = {}
for _size, _names in _SIZES.items():
    SMALL |= dict.fromkeys(_names.split(), _size)

# Models with the settings of SMALL alone, by their classes.
_PLAIN = """
GPT2LMHeadModel GPTJForCausalLM GPTNeoXForCausalLM GPTNeoXJapaneseForCausalLM LlamaForCausalLM
GemmaForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM
MistralForCausalLM PhiForCausalLM Phi3ForCausalLM BertModel BertForMaskedLM
BertForSequenceClassification RobertaForMaskedLM RobertaPreLayerNormForMaskedLM
XLMRobertaForMaskedLM XLMRobertaXLForMaskedLM CamembertForMaskedLM DistilBertForMaskedLM
DebertaForMaskedLM ModernBertForMaskedLM T5ForConditionalGeneration MT5ForConditionalGeneration
UMT5ForConditionalGeneration LongT5ForConditionalGeneration
SwitchTransformersForConditionalGeneration BloomForCausalLM CLIPTextModel SiglipTextModel
OwlViTTextModel BlipTextModel AltCLIPTextModel ClapTextModel WhisperForConditionalGeneration
MambaForCausalLM BartForConditionalGeneration M2M100ForConditionalGeneration
NllbMoeForConditionalGeneration PLBartForConditionalGeneration MvpForConditionalGeneration
MPNetForMaskedLM OpenAIGPTLMHeadModel
GPTBigCodeForCausalLM BioGptForCausalLM XGLMForCausalLM CohereForCausalLM Starcoder2ForCausalLM
StableLmForCausalLM OlmoForCausalLM GptOssForCausalLM TrOCRForCausalLM NystromformerForMaskedLM
SplinterModel IBertForMaskedLM Data2VecTextForMaskedLM YosoForMaskedLM MraForMaskedLM
PersimmonForCausalLM ErnieForMaskedLM MegatronBertForMaskedLM NemotronForCausalLM
HeliumForCausalLM GlmForCausalLM MoshiForCausalLM Speech2TextForConditionalGeneration
DogeForCausalLM MiniMaxForCausalLM NomicBertModel Ministral3ForCausalLM
HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
"""

_DATA = data(__name__)
# A name -> the model's class, and settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in _PLAIN.split()}
MODELS |= _DATA["models"]
# Models that see: a name -> the classes of both configurations, without `Config`, and the
# decoder's settings.
SEEING: dict[str, tuple[str, str, dict[str, Any]]] = _DATA["seeing"]


def saved(name: str, folder: Path, **more: Any) -> Any:
    """Save a tiny model with random weights, and return it as transformers loads it."""
    torch.manual_seed(7)
    if name in SEEING:
        model = _model_that_sees(name, more)
    else:
        class_name, given = MODELS[name]
        made = getattr(transformers, class_name)
        model = made(small(made.config_class, given | more))
    random = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.parameters():
            mean = 0.7 if weight.dim() == 1 else 0
            weight.copy_(0.5 * torch.randn(weight.shape, generator=random) + mean)
    model.save_pretrained(folder)
    if name == "TrOCR, sinusoids":  # transformers 5.23 does not load what it saves.
        return model.eval()
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def _model_that_sees(name: str, more: dict[str, Any]) -> Any:
    encoder_name, decoder_name, given = SEEING[name]
    encoder = getattr(transformers, f"{encoder_name}Config")(**_DATA["sees"][encoder_name])
    decoder = small(getattr(transformers, f"{decoder_name}Config"), given | more)
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return transformers.VisionEncoderDecoderModel(config=both)


def small(kind: Any, given: dict[str, Any]) -> Any:
    """Return the configuration of a tiny model."""
    known = kind()
    names = {*vars(known), *kind.attribute_map}
    sizes = {key: size for key, size in SMALL.items() if key in names} | given
    set_sizes = {key: size for key, size in sizes.items() if size is not None}
    return kind(**set_sizes)


# --- what first blocks read -----------------------------------------------------------------------

Part = str | None  # "encoder", "decoder", or None in a model that has not both
HEARS_OR_SEES = ("whisper", "speech_to_text", "vision-encoder-decoder")


def read_by_first_blocks(model: Any, ids: list[int]) -> dict[Part, np.ndarray]:
    """Return what the first block of each part that reads tokens reads, (T, columns) float32."""
    read: dict[Part, torch.Tensor] = {}
    for part, block in _first_blocks(model).items():
        block.forward = _told(block.forward, read, part)
    arguments = _arguments(model, torch.tensor([ids]))
    model(**arguments)

    model_type = model.config.model_type
    if model_type in HEARS_OR_SEES:
        read = {None: read["decoder"]}
    found = {}
    for part, values in read.items():
        rows = values.detach().squeeze()
        if model_type == "squeezebert":  # Its blocks read columns.
            rows = rows.T
        found[part] = rows[-len(ids) :].numpy()  # CPM-Ant puts a prompt before them.
    return found


def _told(forward: Callable[..., Any], read: dict[Part, torch.Tensor], part: Part) -> Any:
    """Return a function that notes what it is first given, and goes on as before."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        read.setdefault(part, arguments[0] if arguments else named["hidden_states"])
        return forward(*arguments, **named)

    return wrapped


def _first_blocks(model: Any) -> dict[Part, Any]:
    others = re.compile(r"vision|image_encoder|conv_layers|\.\d")
    in_part = re.compile(r"(?:^|\.)(encoder|decoder)\.")
    lists = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and not others.search(name):
            part = in_part.search(name)
            lists.append((part[1] if part else None, module))

    has_both = {"encoder", "decoder"} <= {part for part, _ in lists}
    blocks: dict[Part, Any] = {}
    for part, module in lists:
        first = getattr(module[0], "albert_layers", module)[0]
        blocks.setdefault(part if has_both else None, first)
    return blocks


def _arguments(model: Any, ids: torch.Tensor) -> dict[str, Any]:
    """Return what a model is called with: IDs, and a random sound or picture if it needs one."""
    model_type = model.config.model_type
    if model_type == "whisper":
        return {"input_features": torch.randn(1, 16, 128), "decoder_input_ids": ids}
    if model_type == "speech_to_text":
        sounds = torch.randn(1, 32, model.config.input_feat_per_channel)
        return {"input_features": sounds, "decoder_input_ids": ids}
    if model_type == "vision-encoder-decoder":
        return {"pixel_values": torch.randn(1, 3, 16, 16), "decoder_input_ids": ids}
    known = inspect.signature(model.forward).parameters
    arguments: dict[str, Any] = {"input_ids": ids}
    if "decoder_input_ids" in known and model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = ids
    if "attention_mask" in known and model_type != "xlnet":
        arguments["attention_mask"] = torch.ones_like(ids)
    return arguments

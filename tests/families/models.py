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

_VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "image_size": 16,
    "patch_size": 8,
}
_GROUPED = ("q", "k", "v", "post_attention", "intermediate", "output")
_SQUEEZED = {f"{name}_groups": 1 for name in _GROUPED}
_ESM = {"mask_token_id": 4, "pad_token_id": 1}
_DECODER = {"scale_embedding": True, "is_decoder": True, "is_encoder_decoder": False}
_BLOCKS = {"attention_type": "original_full", "block_size": 4}

_GRANITE = {
    "embedding_multiplier": 12.0,
    "layer_types": ["mamba", "attention"],
    "mamba_n_heads": 4,
    "shared_intermediate_size": 16,
}
_LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
}

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

# A name -> the model's class, and settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in _PLAIN.split()},
    "GPT-Neo": ("GPTNeoForCausalLM", {"attention_types": [[["global", "local"], 1]]}),
    "DistilBERT, sinusoids": ("DistilBertForMaskedLM", {"sinusoidal_pos_embds": True}),
    "ALBERT": ("AlbertForMaskedLM", {"embedding_size": 8}),
    "ELECTRA": ("ElectraForPreTraining", {"embedding_size": 8}),
    "ELECTRA, one size": ("ElectraForPreTraining", {"embedding_size": 16}),
    "DeBERTa, types": ("DebertaForMaskedLM", {"type_vocab_size": 2, "relative_attention": True}),
    "DeBERTa v2": ("DebertaV2ForMaskedLM", {"type_vocab_size": 0}),
    "DeBERTa v3": (
        "DebertaV2ForMaskedLM",
        {"type_vocab_size": 0, "position_biased_input": False, "relative_attention": True},
    ),
    "OPT": ("OPTForCausalLM", {"word_embed_proj_dim": 16}),
    "OPT-350m": ("OPTForCausalLM", {"word_embed_proj_dim": 8, "do_layer_norm_before": False}),
    "Falcon": ("FalconForCausalLM", {"alibi": False, "head_dim": None}),
    "Falcon, ALiBi": ("FalconForCausalLM", {"alibi": True, "head_dim": None}),
    "MPT": ("MptForCausalLM", {"max_seq_len": 64}),
    "GIT": ("GitForCausalLM", {"vision_config": _VISION}),
    "Mamba 2": ("Mamba2ForCausalLM", {"num_heads": 4, "n_groups": 1}),
    "BART, scaled": ("BartForConditionalGeneration", {"scale_embedding": True}),
    "mBART": ("MBartForConditionalGeneration", {"scale_embedding": True}),
    "Pegasus": ("PegasusForConditionalGeneration", {"scale_embedding": True}),
    "Marian": ("MarianMTModel", {"scale_embedding": True, "decoder_vocab_size": 96}),
    "LED": (
        "LEDForConditionalGeneration",
        {
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 48,
            "attention_window": 4,
        },
    ),
    "BigBird-Pegasus": (
        "BigBirdPegasusForConditionalGeneration",
        {"attention_type": "original_full"},
    ),
    "Blenderbot": ("BlenderbotForConditionalGeneration", {"scale_embedding": True}),
    "XLNet": ("XLNetLMHeadModel", {"max_position_embeddings": None}),
    "XLM": ("XLMWithLMHeadModel", {"n_langs": 2}),
    "XLM, sinusoids": ("XLMWithLMHeadModel", {"sinusoidal_embeddings": True}),
    "ESM-1": ("EsmForMaskedLM", {**_ESM, "emb_layer_norm_before": True, "token_dropout": True}),
    "ESM-1, bare": ("EsmForMaskedLM", _ESM),
    "ESM-2": (
        "EsmForMaskedLM",
        {**_ESM, "position_embedding_type": "rotary", "token_dropout": True},
    ),
    "Longformer": ("LongformerForMaskedLM", {"attention_window": 4}),
    "CodeGen": ("CodeGenForCausalLM", {"n_head": 4, "num_attention_heads": None}),
    "Granite": ("GraniteForCausalLM", {"embedding_multiplier": 12.0}),
    "TrOCR, sinusoids": (
        "TrOCRForCausalLM",
        {
            "use_learned_position_embeddings": False,
            "layernorm_embedding": False,
            "scale_embedding": True,
        },
    ),
    "RemBERT": ("RemBertForMaskedLM", {"input_embedding_size": 8, "output_embedding_size": 12}),
    "ConvBERT": ("ConvBertForMaskedLM", {"embedding_size": 8}),
    "SqueezeBERT": ("SqueezeBertForMaskedLM", {"embedding_size": 16, **_SQUEEZED}),
    "BigBird": ("BigBirdForMaskedLM", _BLOCKS),
    "BigBird, scaled": ("BigBirdForMaskedLM", {**_BLOCKS, "rescale_embeddings": True}),
    "FNet": ("FNetForMaskedLM", {"tpu_short_seq_length": 64}),
    "X-MOD": ("XmodForMaskedLM", {"languages": ["en_XX"], "default_language": "en_XX"}),
    "LUKE": ("LukeForMaskedLM", {"entity_vocab_size": 20, "entity_emb_size": 8}),
    "LFM2": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "Jamba": (
        "JambaForCausalLM",
        {"mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False, "attn_layer_offset": 1}
        | {"attn_layer_period": 2},
    ),
    "MiniCPM3": ("MiniCPM3ForCausalLM", {"scale_emb": 6.3}),
    "GLM-4.5": ("Glm4MoeForCausalLM", {"n_routed_experts": 4, "num_experts_per_tok": 2}),
    "Ernie 4.5, experts": ("Ernie4_5_MoeForCausalLM", {"moe_k": 2, "moe_num_experts": 4}),
    "Falcon-H1": (
        "FalconH1ForCausalLM",
        {"embedding_multiplier": 5.5, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
    ),
    "Granite 4, RoPE": (
        "GraniteMoeHybridForCausalLM",
        _GRANITE | {"position_embedding_type": "rope"},
    ),
    "Granite 4": ("GraniteMoeHybridForCausalLM", _GRANITE),
    "Qwen3-Next": ("Qwen3NextForCausalLM", _LINEAR | {"num_experts_per_tok": 2}),
    "Qwen3.5": ("Qwen3_5ForCausalLM", _LINEAR),
    "Qwen3.5, experts": ("Qwen3_5MoeForCausalLM", _LINEAR | {"num_experts_per_tok": 2}),
    "Gemma 4": (
        "Gemma4ForCausalLM",
        {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96},
    ),
    "BART, decoder": ("BartForCausalLM", _DECODER),
}

# Models that see: a name -> the classes of both configurations, without `Config`, and the
# decoder's settings.
SEEING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "TrOCR, seeing": ("DeiT", "TrOCR", {"scale_embedding": True}),
    "Donut": ("DonutSwin", "MBart", _DECODER),
    "Nougat": ("DonutSwin", "MBart", _DECODER | {"add_final_layer_norm": True}),
    "ViT and GPT-2": ("ViT", "GPT2", {}),
}
_SEES = {
    "DonutSwin": {
        "image_size": 16,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [1],
        "num_heads": [2],
        "window_size": 4,
    },
    "DeiT": _VISION,
    "ViT": _VISION,
}


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
    encoder = getattr(transformers, f"{encoder_name}Config")(**_SEES[encoder_name])
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

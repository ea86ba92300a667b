"""Tiny models of the families of transformers, with random weights, and what their first blocks read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

# The sizes of a tiny model, by the names that configurations have for them.
SMALL: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "hidden_dim", "n_inner", "d_inner", "dff"), 32),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 32),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 64),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "d_head"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    "state_size": 4,
    "d_state": 4,
    "rotary_dim": 4,
    "num_mel_bins": 16,
    "vocab_size": 96,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
_VISION = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16, "patch_size": 8}
_ROC_BERT = {"pronunciation_vocab_size": 30, "shape_vocab_size": 30, "pronunciation_embed_dim": 6, "shape_embed_dim": 5}
_SQUEEZED = dict.fromkeys((f"{name}_groups" for name in ("q", "k", "v", "post_attention", "intermediate", "output")), 1)
_ESM = {"mask_token_id": 4, "pad_token_id": 1}
_DECODER = {"scale_embedding": True, "is_decoder": True, "is_encoder_decoder": False}
_BLOCKS = {"attention_type": "original_full", "block_size": 4}

# A name -> the model's class, what precedes `Config` in that of its configuration, and settings.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": ("GPT2LMHeadModel", "GPT2", {}),
    "GPT-Neo": ("GPTNeoForCausalLM", "GPTNeo", {"attention_types": [[["global", "local"], 1]]}),
    "GPT-J": ("GPTJForCausalLM", "GPTJ", {}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoX", {}),
    "GPT-NeoX Japanese": ("GPTNeoXJapaneseForCausalLM", "GPTNeoXJapanese", {}),
    "Llama": ("LlamaForCausalLM", "Llama", {}),
    "Gemma": ("GemmaForCausalLM", "Gemma", {}),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2", {}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3Text", {}),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2", {}),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3", {}),
    "Mistral": ("MistralForCausalLM", "Mistral", {}),
    "Phi": ("PhiForCausalLM", "Phi", {}),
    "Phi-3": ("Phi3ForCausalLM", "Phi3", {}),
    "BERT": ("BertModel", "Bert", {}),
    "BERT, masked": ("BertForMaskedLM", "Bert", {}),
    "BERT, classes": ("BertForSequenceClassification", "Bert", {}),
    "RoBERTa": ("RobertaForMaskedLM", "Roberta", {}),
    "RoBERTa-PreLayerNorm": ("RobertaPreLayerNormForMaskedLM", "RobertaPreLayerNorm", {}),
    "XLM-R": ("XLMRobertaForMaskedLM", "XLMRoberta", {}),
    "XLM-R-XL": ("XLMRobertaXLForMaskedLM", "XLMRobertaXL", {}),
    "CamemBERT": ("CamembertForMaskedLM", "Camembert", {}),
    "DistilBERT": ("DistilBertForMaskedLM", "DistilBert", {}),
    "DistilBERT, sinusoids": ("DistilBertForMaskedLM", "DistilBert", {"sinusoidal_pos_embds": True}),
    "ALBERT": ("AlbertForMaskedLM", "Albert", {"embedding_size": 8}),
    "ELECTRA": ("ElectraForPreTraining", "Electra", {"embedding_size": 8}),
    "ELECTRA, one size": ("ElectraForPreTraining", "Electra", {"embedding_size": 16}),
    "DeBERTa": ("DebertaForMaskedLM", "Deberta", {}),
    "DeBERTa, types": ("DebertaForMaskedLM", "Deberta", {"type_vocab_size": 2, "relative_attention": True}),
    "DeBERTa v2": ("DebertaV2ForMaskedLM", "DebertaV2", {"type_vocab_size": 0}),
    "DeBERTa v3": (
        "DebertaV2ForMaskedLM",
        "DebertaV2",
        {"type_vocab_size": 0, "position_biased_input": False, "relative_attention": True},
    ),
    "ModernBERT": ("ModernBertForMaskedLM", "ModernBert", {}),
    "T5": ("T5ForConditionalGeneration", "T5", {}),
    "mT5": ("MT5ForConditionalGeneration", "MT5", {}),
    "UMT5": ("UMT5ForConditionalGeneration", "UMT5", {}),
    "LongT5": ("LongT5ForConditionalGeneration", "LongT5", {}),
    "Switch": ("SwitchTransformersForConditionalGeneration", "SwitchTransformers", {}),
    "OPT": ("OPTForCausalLM", "OPT", {"word_embed_proj_dim": 16}),
    "OPT-350m": ("OPTForCausalLM", "OPT", {"word_embed_proj_dim": 8, "do_layer_norm_before": False}),
    "Bloom": ("BloomForCausalLM", "Bloom", {}),
    "Falcon": ("FalconForCausalLM", "Falcon", {"alibi": False, "head_dim": None}),
    "Falcon, ALiBi": ("FalconForCausalLM", "Falcon", {"alibi": True, "head_dim": None}),
    "MPT": ("MptForCausalLM", "Mpt", {"max_seq_len": 64}),
    "CLIP": ("CLIPTextModel", "CLIPText", {}),
    "SigLIP": ("SiglipTextModel", "SiglipText", {}),
    "OWL-ViT": ("OwlViTTextModel", "OwlViTText", {}),
    "BLIP": ("BlipTextModel", "BlipText", {}),
    "AltCLIP": ("AltCLIPTextModel", "AltCLIPText", {}),
    "CLAP": ("ClapTextModel", "ClapText", {}),
    "GIT": ("GitForCausalLM", "Git", {"vision_config": {"hidden_size": 16, **_VISION}}),
    "Whisper": ("WhisperForConditionalGeneration", "Whisper", {}),
    "Mamba": ("MambaForCausalLM", "Mamba", {}),
    "Mamba 2": ("Mamba2ForCausalLM", "Mamba2", {"num_heads": 4, "n_groups": 1}),
    "BART": ("BartForConditionalGeneration", "Bart", {}),
    "BART, scaled": ("BartForConditionalGeneration", "Bart", {"scale_embedding": True}),
    "mBART": ("MBartForConditionalGeneration", "MBart", {"scale_embedding": True}),
    "Pegasus": ("PegasusForConditionalGeneration", "Pegasus", {"scale_embedding": True}),
    "Marian": ("MarianMTModel", "Marian", {"scale_embedding": True, "decoder_vocab_size": 96}),
    "M2M100": ("M2M100ForConditionalGeneration", "M2M100", {}),
    "NLLB-MoE": ("NllbMoeForConditionalGeneration", "NllbMoe", {}),
    "PLBart": ("PLBartForConditionalGeneration", "PLBart", {}),
    "LED": (
        "LEDForConditionalGeneration",
        "LED",
        {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 48, "attention_window": 4},
    ),
    "MVP": ("MvpForConditionalGeneration", "Mvp", {}),
    "BigBird-Pegasus": (
        "BigBirdPegasusForConditionalGeneration",
        "BigBirdPegasus",
        {"attention_type": "original_full"},
    ),
    "Blenderbot": ("BlenderbotForConditionalGeneration", "Blenderbot", {"scale_embedding": True}),
    "Blenderbot Small": ("BlenderbotSmallForConditionalGeneration", "BlenderbotSmall", {}),
    "XLNet": ("XLNetLMHeadModel", "XLNet", {"max_position_embeddings": None}),
    "XLM": ("XLMWithLMHeadModel", "XLM", {"n_langs": 2}),
    "XLM, sinusoids": ("XLMWithLMHeadModel", "XLM", {"sinusoidal_embeddings": True}),
    "ESM-1": ("EsmForMaskedLM", "Esm", {**_ESM, "emb_layer_norm_before": True, "token_dropout": True}),
    "ESM-1, bare": ("EsmForMaskedLM", "Esm", _ESM),
    "ESM-2": ("EsmForMaskedLM", "Esm", {**_ESM, "position_embedding_type": "rotary", "token_dropout": True}),
    "Longformer": ("LongformerForMaskedLM", "Longformer", {"attention_window": 4}),
    "MPNet": ("MPNetForMaskedLM", "MPNet", {}),
    "CTRL": ("CTRLLMHeadModel", "CTRL", {}),
    "OpenAI GPT": ("OpenAIGPTLMHeadModel", "OpenAIGPT", {}),
    "CodeGen": ("CodeGenForCausalLM", "CodeGen", {"n_head": 4, "num_attention_heads": None}),
    "GPT-BigCode": ("GPTBigCodeForCausalLM", "GPTBigCode", {}),
    "BioGPT": ("BioGptForCausalLM", "BioGpt", {}),
    "XGLM": ("XGLMForCausalLM", "XGLM", {}),
    "Cohere": ("CohereForCausalLM", "Cohere", {}),
    "Granite": ("GraniteForCausalLM", "Granite", {"embedding_multiplier": 12.0}),
    "StarCoder 2": ("Starcoder2ForCausalLM", "Starcoder2", {}),
    "StableLM": ("StableLmForCausalLM", "StableLm", {}),
    "OLMo": ("OlmoForCausalLM", "Olmo", {}),
    "gpt-oss": ("GptOssForCausalLM", "GptOss", {}),
    "TrOCR": ("TrOCRForCausalLM", "TrOCR", {}),
    "TrOCR, sinusoids": (
        "TrOCRForCausalLM",
        "TrOCR",
        {"use_learned_position_embeddings": False, "layernorm_embedding": False, "scale_embedding": True},
    ),
    "RemBERT": ("RemBertForMaskedLM", "RemBert", {"input_embedding_size": 8, "output_embedding_size": 12}),
    "ConvBERT": ("ConvBertForMaskedLM", "ConvBert", {"embedding_size": 8}),
    "Nystromformer": ("NystromformerForMaskedLM", "Nystromformer", {}),
    "Splinter": ("SplinterModel", "Splinter", {}),
    "SqueezeBERT": ("SqueezeBertForMaskedLM", "SqueezeBert", {"embedding_size": 16, **_SQUEEZED}),
    "LayoutLM": ("LayoutLMForMaskedLM", "LayoutLM", {"max_2d_position_embeddings": 32}),
    "LayoutLMv3": (
        "LayoutLMv3Model",
        "LayoutLMv3",
        {"coordinate_size": 3, "shape_size": 2, "visual_embed": False},
    ),
    "MobileBERT": (
        "MobileBertForMaskedLM",
        "MobileBert",
        {"embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8},
    ),
    "I-BERT": ("IBertForMaskedLM", "IBert", {}),
    "Data2Vec": ("Data2VecTextForMaskedLM", "Data2VecText", {}),
    "YOSO": ("YosoForMaskedLM", "Yoso", {}),
    "MRA": ("MraForMaskedLM", "Mra", {}),
    "Persimmon": ("PersimmonForCausalLM", "Persimmon", {}),
    "BigBird": ("BigBirdForMaskedLM", "BigBird", _BLOCKS),
    "BigBird, scaled": ("BigBirdForMaskedLM", "BigBird", {**_BLOCKS, "rescale_embeddings": True}),
    "FNet": ("FNetForMaskedLM", "FNet", {"tpu_short_seq_length": 64}),
    "ERNIE": ("ErnieForMaskedLM", "Ernie", {}),
    "ERNIE, tasks": ("ErnieForMaskedLM", "Ernie", {"use_task_id": True}),
    "Megatron-BERT": ("MegatronBertForMaskedLM", "MegatronBert", {}),
    "Nemotron": ("NemotronForCausalLM", "Nemotron", {}),
    "Helium": ("HeliumForCausalLM", "Helium", {}),
    "GLM": ("GlmForCausalLM", "Glm", {}),
    "X-MOD": ("XmodForMaskedLM", "Xmod", {"languages": ["en_XX"], "default_language": "en_XX"}),
    "LUKE": ("LukeForMaskedLM", "Luke", {"entity_vocab_size": 20, "entity_emb_size": 8}),
    "LFM2": ("Lfm2ForCausalLM", "Lfm2", {"layer_types": ["conv", "full_attention"]}),
    "Moshi": ("MoshiForCausalLM", "Moshi", {}),
    "Bark": ("BarkSemanticModel", "BarkSemantic", {"input_vocab_size": 96, "output_vocab_size": 96}),
    "Speech2Text": ("Speech2TextForConditionalGeneration", "Speech2Text", {}),
    "Doge": ("DogeForCausalLM", "Doge", {}),
    "Jamba": (
        "JambaForCausalLM",
        "Jamba",
        {"mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False, "attn_layer_offset": 1}
        | {"attn_layer_period": 2},
    ),
    "MiniMax": ("MiniMaxForCausalLM", "MiniMax", {}),
    "RoCBert": ("RoCBertForMaskedLM", "RoCBert", _ROC_BERT),
    "CPM-Ant": ("CpmAntForCausalLM", "CpmAnt", {}),
    "Nomic BERT": ("NomicBertModel", "NomicBert", {}),
    "MobileBERT, no trigrams": (
        "MobileBertForMaskedLM",
        "MobileBert",
        {"embedding_size": 8, "intra_bottleneck_size": 8, "true_hidden_size": 8, "trigram_input": False},
    ),
    "RoCBert, plain": (
        "RoCBertForMaskedLM",
        "RoCBert",
        {**_ROC_BERT, "enable_shape": False, "enable_pronunciation": False},
    ),
    "BART, decoder": ("BartForCausalLM", "Bart", _DECODER),
    "Blenderbot Small, decoder": ("BlenderbotSmallForCausalLM", "BlenderbotSmall", _DECODER),
}

# Models that see: a name -> what precedes `Config` in those of the encoder and the decoder, and the decoder's settings.
SEEING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "TrOCR, seeing": ("DeiT", "TrOCR", {"scale_embedding": True}),
    "Donut": ("DonutSwin", "MBart", _DECODER),
    "Nougat": ("DonutSwin", "MBart", _DECODER | {"add_final_layer_norm": True}),
    "ViT and GPT-2": ("ViT", "GPT2", {}),
}
_SEES = {
    "DonutSwin": {"image_size": 16, "patch_size": 4, "embed_dim": 8, "depths": [1], "num_heads": [2], "window_size": 4},
    "DeiT": {"hidden_size": 16, **_VISION},
    "ViT": {"hidden_size": 16, **_VISION},
}


def saved(name: str, folder: Path, **more: Any) -> Any:
    """Save a tiny model with random weights, gains and biases; return it as transformers loads it."""
    torch.manual_seed(7)
    if name in SEEING:
        encoder, configuration, given = SEEING[name]
        halves = getattr(transformers, f"{encoder}Config")(**_SEES[encoder]), _small(configuration, given | more)
        both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(*halves)
        model = transformers.VisionEncoderDecoderModel(config=both)
    else:
        class_name, configuration, given = MODELS[name]
        model = getattr(transformers, class_name)(_small(configuration, given | more))
    random = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=random) + (0.7 if weight.dim() == 1 else 0))
    model.save_pretrained(folder)
    if name == "TrOCR, sinusoids":  # transformers 5.23 does not load what it saves
        return model.eval()
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def _small(configuration: str, given: dict[str, Any]) -> Any:
    """Return the configuration of a tiny model."""
    kind = getattr(transformers, f"{configuration}Config")
    known = kind()
    sizes = {key: size for key, size in SMALL.items() if hasattr(known, key)} | given
    return kind(**{key: size for key, size in sizes.items() if size is not None})


def read_by_first_blocks(model: Any, ids: list[int]) -> dict[str | None, np.ndarray]:
    """Return what the first block of each part that reads tokens reads, (T, columns) float32; by part or under None."""
    read: dict[str | None, torch.Tensor] = {}
    for part, block in _first_blocks(model).items():
        block.forward = _told(block.forward, read, part)
    model(**_arguments(model, torch.tensor([ids])))
    rows = {part: values.detach().squeeze() for part, values in read.items()}
    if model.config.model_type == "squeezebert":  # its blocks read columns
        rows = {part: values.T for part, values in rows.items()}
    if model.config.model_type in ("whisper", "speech_to_text", "vision-encoder-decoder"):  # they hear or see
        rows = {None: rows["decoder"]}
    return {part: values[-len(ids) :].numpy() for part, values in rows.items()}  # CPM-Ant puts a prompt before them


def _told(forward: Callable[..., Any], read: dict[str | None, torch.Tensor], part: str | None) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        read.setdefault(part, arguments[0] if arguments else named["hidden_states"])
        return forward(*arguments, **named)

    return wrapped


def _first_blocks(model: Any) -> dict[str | None, Any]:
    others = re.compile(r"vision|image_encoder|conv_layers|\.\d")
    lists = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and not others.search(name)
    ]
    parts = [re.search(r"(?:^|\.)(encoder|decoder)\.", name) for name, _ in lists]
    has_both = {each[1] for each in parts if each} == {"encoder", "decoder"}
    blocks: dict[str | None, Any] = {}
    for (_, module), part in zip(lists, parts, strict=True):
        first = getattr(module[0], "albert_layers", module)[0]
        blocks.setdefault(part[1] if part and has_both else None, first)
    return blocks


def _arguments(model: Any, ids: torch.Tensor) -> dict[str, Any]:
    known = inspect.signature(model.forward).parameters
    if "input_features" in known:
        sizes = (16, 128) if model.config.model_type == "whisper" else (32, model.config.input_feat_per_channel)
        return {"input_features": torch.randn(1, *sizes), "decoder_input_ids": ids}
    if model.config.model_type == "vision-encoder-decoder":
        return {"pixel_values": torch.randn(1, 3, 16, 16), "decoder_input_ids": ids}
    arguments: dict[str, Any] = {"input_ids": ids}
    if "decoder_input_ids" in known and model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = ids
    if "attention_mask" in known and model.config.model_type not in ("cpmant", "xlnet"):
        arguments["attention_mask"] = torch.ones_like(ids)
    return arguments

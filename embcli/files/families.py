"""Model families as data: how they name their tensors, and how token rows become what their first block reads.

The facts were measured on transformers 5.23, bit for bit; tests/families repeats the measurement. To add a family, add
its names to `NAMES`, and its `model_type` to the row of `FAMILIES` with the same steps, or a row of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from embcli.binary import quoted
from embcli.errors import InputError
from embcli.names import PARTS, ModelPart
from embcli.recipe import AddPosition, AddType, Norm, Project, Quirk, RecipeStep, Scale, When

# The names of each matrix; the first that a file has counts. Any prefix may precede a name, and a suffix may follow it.
NAMES: dict[str, tuple[str, ...]] = {
    "token": (
        "wte",  # GPT-2, GPT-Neo, GPT-J, MPT, nanoGPT
        "tok_emb",  # the book's GPTModel, minGPT
        "shared",  # T5, BART, Marian: one matrix for encoder and decoder
        "embed_tokens",  # Llama, Mistral, Qwen, Gemma, Phi, OPT, fairseq
        "tok_embeddings",  # Llama as Meta publishes it, InternLM2, ModernBERT
        "word_embeddings",  # BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, BLOOM, Falcon
        "word_embedding",  # XLNet
        "embed_in",  # GPT-NeoX, Pythia
        "token_embd",  # GGUF, all models
        "token_embedding",  # CLIP, Whisper as OpenAI publishes it
        "tokens_embed",  # the first GPT
        "input_embeds_layer",  # Bark
        "token",  # an archive of the user's own
        "embeddings",  # Mamba, RWKV, XLM, Model2Vec
        "embedding",  # plain torch modules
        "emb",  # RWKV as BlinkDL publishes it
    ),
    "position": (
        "wpe",  # GPT-2, GPT-Neo, nanoGPT
        "pos_emb",  # the book's GPTModel, minGPT
        "position_embeddings",  # BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, XLM
        "embed_positions",  # OPT, BART, Whisper, fairseq
        "position_embd",  # GGUF
        "position_embedding",  # CLIP
        "positional_embedding",  # CLIP and Whisper as OpenAI publishes them
        "positions_embed",  # the first GPT
        "position_embeds_layer",  # Bark
        "position",  # an archive of the user's own
    ),
    "token_type": (
        "token_type_embeddings",  # BERT and its relatives
        "token_types",  # GGUF
    ),
    "head": (
        "lm_head",  # most of Hugging Face's causal models
        "out_head",  # the book's GPTModel
        "output",  # GGUF, Llama as Meta publishes it, InternLM2
        "embed_out",  # GPT-NeoX, Pythia
        "cls.predictions.decoder",  # BERT
        "lm_head.decoder",  # RoBERTa
        "output_layer",  # ChatGLM
        "head",  # RWKV, minGPT
    ),
}
SUFFIXES = ("weight", "embedding")

# The names of norms beside a token matrix, which a model applies to the sum of its rows.
NORMS = ("LayerNorm", "layernorm_embedding", "word_embeddings_layernorm", "embed_norm")

# The ends of the names of classes with an output head, and of those without one.
HEADED = re.compile(
    "(?:LMHeadModel|HeadsModel|LMHead|MTModel|ForCausalLM|ForMaskedLM|ForConditionalGeneration)$"
)
HEADLESS = re.compile(
    "(?<!EncoderDecoder)Model$|For(?:(?:Sequence|Token)Classification|QuestionAnswering|MultipleChoice)$"
)

# Position matrices whose row 2 is that of position 0, if there is no config.json: a pattern of the name, the rows
# modulo 64 (None for any), and the reason.
SHIFTED = (
    # fairseq's RoBERTa and its relatives number positions from the padding's ID on, which is 1.
    (
        r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\.",
        None,
        "is named as RoBERTa's",
    ),
    # fairseq's BART and its relatives have an offset of 2, whatever the padding.
    (r"(?:^|\.)embed_positions(?:\.|$)", 2, "has {rows:,} rows, as OPT's and BART's"),
)

BlockPositions = Literal[
    "", "rotary", "alibi", "relative"
]  # the positions that blocks compute; empty for none
BLOCKS: dict[BlockPositions, str] = {
    "": "",
    "rotary": "its blocks rotate queries and keys: RoPE",
    "alibi": "its blocks add a bias per distance: ALiBi",
    "relative": "its blocks use relative positions",
}


class Family(NamedTuple):
    """Models with the same steps from a token row to what the first block reads."""

    models: str  # values of `model_type`
    steps: tuple[RecipeStep, ...] = ()
    position_offset: int = 0  # the row of position 0
    padding_id: int | str | None = (
        None  # positions begin after this padding ID, and do not count padding; or its key
    )
    sinusoid_formula: str = (
        ""  # the formula of sinusoidal positions, if the file has no position matrix
    )
    block_positions: BlockPositions = ""
    block_positions_when: When | None = None
    reads: tuple[ModelPart, ...] = ()  # the parts of the model that read tokens, if there are two
    part: ModelPart | None = None  # the part that the row is about
    when: When | None = None
    quirks: tuple[Quirk, ...] = ()
    unknown: str = ""  # why no steps tell what the first block reads


_TYPE, _POSITION = AddType(), AddPosition()
_BERT_NORM = Norm(("LayerNorm", "token_embd_norm"), "layer_norm_eps")
_SPELLED = Norm(("LayerNorm",), "layer_norm_eps", 1e-12, "spelled")
_BART_NORM = Norm(("layernorm_embedding",), epsilon=1e-5)
_SCALED = Scale(root=True, when=When("scale_embedding"))  # false if the key is missing
_SCALED_BY_DEFAULT = Scale(root=True, when=When("scale_embedding", default=True))
_TROCR = (_SCALED, _POSITION, _BART_NORM._replace(when=When("layernorm_embedding", default=True)))
_BIASED = When("position_biased_input", default=True)
_DEBERTA = (AddPosition(_BIASED), _TYPE, Project("embed_proj", is_optional=True))
_DEBERTA_NORM = Norm(("LayerNorm",), "layer_norm_eps", 1e-7)
_BLOOM_NORM = ("word_embeddings_layernorm", "token_embd_norm")
_RELATIVE = When("relative_attention")
_ABSOLUTE, _ROTARY = (
    When("position_embedding_type", kind, default="absolute") for kind in ("absolute", "rotary")
)
_DROPOUT = When("token_dropout")
_OF_ESM = (Scale(0.88, when=_DROPOUT),)
_MASKED = Quirk(
    "mask_token_id",
    "the model sets its row to 0 and scales the others by more; embcli does not",
    _DROPOUT,
)
_ESM_NORM = Norm(("layer_norm",), "layer_norm_eps", when=When("emb_layer_norm_before"))
_BOTH: tuple[ModelPart, ...] = PARTS

# The first row with a `model_type`, a part and a condition that fit counts.
FAMILIES = (
    # The token rows themselves; blocks rotate queries and keys.
    Family(
        "llama mistral mixtral ministral qwen2 qwen2_moe qwen3 qwen3_moe phi phi3 phimoe gpt_neox gpt_neox_japanese "
        "gptj codegen cohere cohere2 starcoder2 stablelm olmo olmo2 olmo3 olmoe gpt_oss persimmon nemotron helium glm "
        "glm4 lfm2 moshi doge minimax deepseek_v2 deepseek_v3 smollm3 seed_oss ernie4_5 exaone4 arcee apertus",
        block_positions="rotary",
    ),
    Family("falcon", block_positions="alibi", when=When("alibi")),
    Family("falcon", block_positions="rotary"),
    Family("mpt", block_positions="alibi"),
    Family("mamba mamba2 falcon_mamba jamba rwkv"),
    Family("xlnet", block_positions="relative"),
    Family("t5 mt5 umt5 longt5 switch_transformers", block_positions="relative", reads=_BOTH),
    # The token rows by a number.
    Family(
        "gemma gemma2 gemma3 gemma3_text vaultgemma",
        (Scale(root=True, is_rounded=True),),
        block_positions="rotary",
    ),
    Family(
        "granite granitemoe granitemoeshared",
        (Scale(key="embedding_multiplier"),),
        block_positions="rotary",
    ),
    # A position row is added, or a sinusoid.
    Family(
        "gpt2 gpt_neo openai-gpt gpt_bigcode whisper clip_text_model siglip_text_model owlvit_text_model",
        (_POSITION,),
    ),
    Family("semantic coarse_acoustics", (_POSITION,)),  # Bark
    Family("opt", (Project("project_in", is_optional=True), _POSITION), position_offset=2),
    Family("biogpt", (_SCALED_BY_DEFAULT, _POSITION), position_offset=2),
    Family(
        "xglm",
        (_SCALED_BY_DEFAULT, _POSITION),
        position_offset=2,
        sinusoid_formula="sines, cosines",
    ),
    Family("xlm-roberta-xl", (_TYPE, _POSITION), padding_id="pad_token_id"),
    Family("megatron-bert", (_TYPE, _POSITION)),
    # Encoder-decoders.
    Family(
        "bart plbart mbart mvp", (_SCALED, _POSITION, _BART_NORM), position_offset=2, reads=_BOTH
    ),
    Family("led", (_POSITION, _BART_NORM), reads=_BOTH),
    Family("bigbird_pegasus", (_SCALED_BY_DEFAULT, _POSITION), reads=_BOTH),
    Family("blenderbot", (_SCALED, _POSITION), reads=_BOTH),
    Family("blenderbot-small", (_SCALED, _POSITION, _BART_NORM), reads=_BOTH, part="encoder"),
    Family("blenderbot-small", (_BART_NORM, _POSITION), reads=_BOTH, part="decoder"),
    Family(
        "pegasus marian",
        (_SCALED, _POSITION),
        sinusoid_formula="sines, cosines in float64",
        reads=_BOTH,
    ),
    Family(
        "m2m_100 nllb-moe",
        (_SCALED_BY_DEFAULT, _POSITION),
        padding_id="pad_token_id",
        sinusoid_formula="sines, cosines",
        reads=_BOTH,
    ),
    Family(
        "speech_to_text",
        (_SCALED_BY_DEFAULT, _POSITION),
        padding_id="pad_token_id",
        sinusoid_formula="sines, cosines",
    ),
    Family(
        "trocr",
        _TROCR,
        position_offset=2,
        when=When("use_learned_position_embeddings", default=True),
    ),
    Family("trocr", _TROCR, padding_id="pad_token_id", sinusoid_formula="sines, cosines"),
    # A LayerNorm follows.
    Family("bloom", (Norm(_BLOOM_NORM, "layer_norm_epsilon", 1e-5),), block_positions="alibi"),
    Family(
        "modernbert modernbert-decoder",
        (Norm(("norm", "token_embd_norm"), "norm_eps", 1e-5),),
        block_positions="rotary",
    ),
    Family(
        "nomic_bert nomic-bert",
        (_TYPE, _BERT_NORM._replace(names=(*_BERT_NORM.names, "emb_ln"))),
        block_positions="rotary",
    ),
    Family("jina-bert-v2", (_TYPE, _BERT_NORM), block_positions="alibi"),
    Family(
        "xlm",
        (_POSITION, Norm(("layer_norm_emb",), "layer_norm_eps")),
        quirks=tuple(
            Quirk(key, "the model sets rows of padding at the end to 0; embcli does not")
            for key in ("pad_index", "pad_token_id")
        ),
    ),
    Family("distilbert", (_POSITION, Norm(("LayerNorm",)))),
    Family("git blip_text_model bert-generation", (_POSITION, _BERT_NORM)),
    Family("mpnet", (_POSITION, _BERT_NORM), padding_id=1, block_positions="relative"),
    Family(
        "esm",
        (*_OF_ESM, _POSITION, _ESM_NORM),
        padding_id="pad_token_id",
        when=_ABSOLUTE,
        quirks=(_MASKED,),
    ),
    Family("esm", (*_OF_ESM, _ESM_NORM), block_positions="rotary", when=_ROTARY, quirks=(_MASKED,)),
    Family("bert splinter dpr", (_TYPE, _POSITION, _BERT_NORM)),
    Family(
        "roberta roberta-prelayernorm xlm-roberta camembert data2vec-text xmod altclip_text_model clap_text_model",
        (_TYPE, _POSITION, _BERT_NORM),
        padding_id="pad_token_id",
    ),
    Family(
        "ibert",
        (_TYPE, _POSITION, _SPELLED),
        padding_id="pad_token_id",
        when=When("quant_mode", equals=False),
    ),
    Family("longformer luke", (_POSITION, _TYPE, _BERT_NORM), padding_id="pad_token_id"),
    Family("nystromformer yoso mra", (_TYPE, _POSITION, _BERT_NORM), position_offset=2),
    Family("squeezebert", (_POSITION, _TYPE, _BERT_NORM)),
    Family(
        "big_bird",
        (Scale(root=True, when=When("rescale_embeddings")), _TYPE, _POSITION, _BERT_NORM),
    ),
    Family("ernie", (_TYPE, _POSITION, _BERT_NORM), when=When("use_task_id", equals=False)),
    # A projection follows, or comes before.
    Family(
        "electra", (_TYPE, _POSITION, _BERT_NORM, Project("embeddings_project", is_optional=True))
    ),
    Family(
        "convbert", (_POSITION, _TYPE, _BERT_NORM, Project("embeddings_project", is_optional=True))
    ),
    Family(
        "albert rembert", (_TYPE, _POSITION, _BERT_NORM, Project("embedding_hidden_mapping_in"))
    ),
    Family("fnet", (_TYPE, _POSITION, _BERT_NORM, Project("projection"))),
    Family(
        "deberta",
        (*_DEBERTA, _DEBERTA_NORM._replace(kind="spelled")),
        block_positions="relative",
        block_positions_when=_RELATIVE,
    ),
    Family(
        "deberta-v2",
        (*_DEBERTA, _DEBERTA_NORM),
        block_positions="relative",
        block_positions_when=_RELATIVE,
    ),
    # What no text tells.
    Family(
        "markuplm",
        padding_id="pad_token_id",
        unknown="it adds a row for the place of each token in a page of HTML, which no text tells",
    ),
    Family(
        "musicgen_decoder musicgen_melody_decoder",
        unknown="it adds up rows of several token matrices",
    ),
)

# What llama.cpp calls a `model_type`, if it is another word.
OF_GGUF = {
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "gptneox": "gpt_neox",
    "starcoder": "gpt_bigcode",
    "gpt-oss": "gpt_oss",
    "command-r": "cohere",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "deepseek2": "deepseek_v2",
    "modern-bert": "modernbert",
    "gemma-embedding": "gemma3_text",
    "t5encoder": "t5",
}
# Keys of config.json, and what follows the architecture in GGUF's.
KEYS_OF_GGUF = {
    **dict.fromkeys(
        ("layer_norm_eps", "layer_norm_epsilon", "norm_eps"), "attention.layer_norm_epsilon"
    ),
    "hidden_size": "embedding_length",
    "embedding_multiplier": "embedding_scale",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rope_type": "rope.scaling.type",
}

LARGEST = 1e300  # of a number in config.json
_LARGEST_WHOLE = 1 << 53


class Settings(NamedTuple):
    """What config.json says, read strictly: a value of the wrong type is refused; null is a missing value."""

    values: Mapping[str, Any]
    file_error: Callable[[str], InputError]
    where: str = "config.json"

    def number(self, key: str, default: float, least: float = -LARGEST) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not least <= value <= LARGEST
        ):
            above = f" of at least {least:g}" if least > -LARGEST else ""
            raise self.wrong(key, f"a finite number{above}")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST_WHOLE:
            raise self.wrong(key, "a whole number from 0")
        return value

    def holds(self, when: When | None) -> bool:
        if when is None:
            return True
        value = self.values.get(when.key)
        if value is None:
            return when.default == when.equals
        if not isinstance(value, type(when.equals)):
            raise self.wrong(
                when.key, "true or false" if isinstance(when.equals, bool) else "a word"
            )
        return bool(value == when.equals)

    def wrong(self, key: str, right: str) -> InputError:
        given = quoted(str(self.values[key]), 40)
        name = key if self.where == "config.json" else KEYS_OF_GGUF.get(key, key)
        return self.file_error(f"{self.where} has {given} as {name}, which must be {right}")


def of_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of a GGUF file says, under the names of config.json; empty for another file."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}
    stated = {key: metadata.get(f"{architecture}.{name}") for key, name in KEYS_OF_GGUF.items()}
    return {"model_type": OF_GGUF.get(architecture, architecture)} | {
        k: v for k, v in stated.items() if v is not None
    }


def family_of(settings: Settings, part: ModelPart | None = None) -> Family | None:
    """Return the family of a `model_type`, or None; `part` chooses between the parts of an encoder-decoder."""
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    for family in FAMILIES:
        fits = model in family.models.split() and family.part in (None, part or "encoder")
        if fits and settings.holds(family.when):
            return family
    return None


def has_two_parts(model: object) -> bool:
    return any(family.reads and model in family.models.split() for family in FAMILIES)


def first_position(family: Family, settings: Settings) -> int:
    padding = padding_of(family, settings)
    return family.position_offset if padding is None else padding + 1


def padding_of(family: Family, settings: Settings) -> int | None:
    """Return the ID of tokens that the positions of a family do not count; None if they count all tokens."""
    return (
        settings.whole(family.padding_id, 1)
        if isinstance(family.padding_id, str)
        else family.padding_id
    )

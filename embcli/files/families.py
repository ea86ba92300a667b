"""Model families as data: their names of tensors, and their steps from token rows to first block.

The facts were measured on transformers 5.23, bit for bit; tests/families repeats the measurement.
`roles` reads the names, `recipes` the steps. To add a family, add its names to `NAMES`, and its
`model_type` to a row of `TOKEN_NAMES` and to the row of `FAMILIES` with the same steps, or a new
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from embcli.binary import quoted
from embcli.errors import InputError
from embcli.recipe import AddPosition, AddType, Norm, Project, RecipeStep, Scale, When

# The names of each matrix; the first that a file has is used. Any prefix may precede a name, and a
# suffix may follow it. Several names in one string, separated by spaces, have the same rank:
# different matrices with them are refused as ambiguous.
NAMES: dict[str, tuple[str, ...]] = {
    "token": (
        "shared",  # T5, BART, Marian: one matrix for encoder and decoder
        (
            "wte "  # GPT-2, GPT-Neo, GPT-J, MPT, nanoGPT
            "tok_emb "  # the book's GPTModel, minGPT
            "embed_tokens "  # Llama, Mistral, Qwen, Gemma, Phi, OPT, fairseq
            "tok_embeddings "  # Llama as Meta publishes it, InternLM2, ModernBERT
            "word_embeddings "  # BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, BLOOM, Falcon
            "word_embedding "  # XLNet
            "embed_in "  # GPT-NeoX, Pythia
            "token_embd "  # GGUF, all models
            "token_embedding "  # CLIP, Whisper as OpenAI publishes it
            "tokens_embed "  # the first GPT
            "emb_layer"  # WordEmbeddings of Sentence Transformers
        ),
        "token",  # archives that users make
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
        "position",  # archives that users make
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
# What follows a name; the last three are those of packed matrices.
SUFFIXES = ("", ".weight", ".embedding", ".qweight", ".weight_packed", ".W_q")

# The name of the token matrix in types of models, which spaces separate. It comes before all other
# names in a file of such a model.
TOKEN_NAMES = {
    "wte": "codegen gpt2 gpt_bigcode gpt_neo gptj mpt",
    "embed_tokens": (
        "apertus arcee biogpt cohere cohere2 deepseek_v2 deepseek_v3 doge ernie4_5 ernie4_5_moe "
        "exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text gemma3n_text gemma4_text glm glm4 "
        "glm4_moe gpt_oss granite granitemoe granitemoehybrid granitemoeshared helium "
        "hunyuan_v1_dense hunyuan_v1_moe jamba lfm2 llama minicpm3 minimax ministral ministral3 "
        "mistral mixtral moshi nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3 "
        "phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next "
        "seed_oss smollm3 stablelm starcoder2 vaultgemma xglm"
    ),
    "word_embeddings": (
        "albert bert big_bird bloom camembert deberta deberta-v2 distilbert electra ernie falcon "
        "longformer mpnet roberta xlm-roberta xlm-roberta-xl"
    ),
    "embed_in": "gpt_neox gpt_neox_japanese",
    "embeddings": "falcon_mamba mamba mamba2 rwkv xlm",
}

# The names of norms next to a token matrix, which a model applies to the sum of its rows.
NORMS = ("LayerNorm", "layernorm_embedding", "word_embeddings_layernorm", "embed_norm")


class ShiftedPositions(NamedTuple):
    """Position matrices that use row 2 for position 0, recognised without a config.json."""

    name: str  # a pattern of the tensor's name
    rows_modulo_64: int | None  # None for any number of rows
    reason: str


SHIFTED_POSITIONS = (
    # fairseq's RoBERTa and its relatives count positions from the padding's ID, which is 1.
    ShiftedPositions(
        r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\.",
        None,
        "is named as RoBERTa's",
    ),
    # fairseq's BART and its relatives have an offset of 2, whatever the padding is.
    ShiftedPositions(
        r"(?:^|\.)embed_positions(?:\.|$)",
        2,
        "has {rows:,} rows, as OPT's and BART's",
    ),
)

# The positions that blocks compute; empty for none.
BlockPositions = Literal["", "rotary", "alibi", "relative"]
BLOCKS: dict[BlockPositions, str] = {
    "": "",
    "rotary": "its blocks rotate queries and keys: RoPE",
    "alibi": "its blocks add a bias per distance: ALiBi",
    "relative": "its blocks use relative positions",
}


class Family(NamedTuple):
    """Models with the same steps from a token row to the input of the first block."""

    model_types: str  # separated by spaces
    steps: tuple[RecipeStep, ...] = ()
    position_offset: int = 0  # the row of position 0
    # Positions begin after this ID, and do not count padding. A string is the ID's key.
    padding_id: int | str | None = None
    # The formula of sinusoidal positions, used if the file has no position matrix.
    sinusoid_formula: str = ""
    block_positions: BlockPositions = ""
    block_positions_when: When | None = None
    has_two_parts: bool = False  # whether an encoder and a decoder both read tokens
    when: When | None = None
    remark: str = ""  # what the model does that no step repeats
    unknown: str = ""  # why no steps lead to the input of the first block


_TYPE = AddType()
_POSITION = AddPosition()
_BERT_NORM = Norm(("embeddings.LayerNorm", "token_embd_norm"), "layer_norm_eps")
_SPELLED_NORM = Norm(("embeddings.LayerNorm",), "layer_norm_eps", 1e-12, "spelled")
_BART_NORM = Norm(("layernorm_embedding",), epsilon=1e-5)
_SCALED = Scale(root=True, when=When("scale_embedding"))  # not applied if the key is missing
_SCALED_BY_DEFAULT = Scale(root=True, when=When("scale_embedding", default=True))
_TROCR_NORM = _BART_NORM._replace(when=When("layernorm_embedding", default=True))
_TROCR = (_SCALED, _POSITION, _TROCR_NORM)
_DEBERTA_POSITION = AddPosition(When("position_biased_input", default=True))
_DEBERTA = (_DEBERTA_POSITION, _TYPE, Project("embed_proj", is_optional=True))
_DEBERTA_NORM = Norm(("embeddings.LayerNorm",), "layer_norm_eps", 1e-7)
_BLOOM_NORM = Norm(("word_embeddings_layernorm", "token_embd_norm"), "layer_norm_epsilon", 1e-5)
_NOMIC_NORM = Norm((*_BERT_NORM.names, "emb_ln"), "layer_norm_eps")
_RELATIVE = When("relative_attention")
_ABSOLUTE = When("position_embedding_type", "absolute", default="absolute")
_ROTARY = When("position_embedding_type", "rotary", default="absolute")
_ESM_SCALE = Scale(0.88, when=When("token_dropout"))
_ESM_MASK = (
    "with token_dropout, the model sets the row of a mask to 0 and scales the others by more; "
    "embcli does not"
)
_ESM_NORM = Norm(("embeddings.layer_norm",), "layer_norm_eps", when=When("emb_layer_norm_before"))

# The first row whose `model_types` and condition fit is used.
FAMILIES = (
    # The first block reads the token rows; most blocks rotate queries and keys.
    Family(
        "llama mistral mixtral ministral qwen2 qwen2_moe qwen3 qwen3_moe phi phi3 phimoe gpt_neox "
        "gpt_neox_japanese gptj codegen cohere cohere2 starcoder2 stablelm olmo olmo2 olmo3 olmoe "
        "gpt_oss persimmon nemotron helium glm glm4 lfm2 moshi doge minimax deepseek_v2 "
        "deepseek_v3 smollm3 seed_oss ernie4_5 ernie4_5_moe exaone4 arcee apertus glm4_moe "
        "hunyuan_v1_dense hunyuan_v1_moe ministral3 qwen3_next qwen3_5_text qwen3_5_moe_text",
        block_positions="rotary",
    ),
    Family("falcon", block_positions="alibi", when=When("alibi")),
    Family("falcon", block_positions="rotary"),
    Family("mpt", block_positions="alibi"),
    Family("mamba mamba2 falcon_mamba jamba rwkv"),
    Family("xlnet", block_positions="relative"),
    Family(
        "t5 mt5 umt5 longt5 switch_transformers", block_positions="relative", has_two_parts=True
    ),
    # The token rows are multiplied by a number.
    Family(
        "gemma gemma2 gemma3 gemma3_text gemma4_text vaultgemma",
        (Scale(root=True, is_rounded=True),),
        block_positions="rotary",
    ),
    Family(
        "granite granitemoe granitemoeshared falcon_h1",
        (Scale(key="embedding_multiplier"),),
        block_positions="rotary",
    ),
    Family(
        "granitemoehybrid",
        (Scale(key="embedding_multiplier"),),
        block_positions="rotary",
        block_positions_when=When("position_embedding_type", "rope", default=""),
    ),
    Family(
        "minicpm3",
        (Scale(12.0, key="scale_emb", is_rounded=True),),
        block_positions="rotary",
    ),
    # A position row is added, or a sinusoid.
    Family(
        "gpt2 gpt_neo openai-gpt gpt_bigcode whisper clip_text_model siglip_text_model "
        "owlvit_text_model",
        (_POSITION,),
    ),
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
    # Most of these are encoder-decoders.
    Family(
        "bart plbart mbart mvp",
        (_SCALED, _POSITION, _BART_NORM),
        position_offset=2,
        has_two_parts=True,
    ),
    Family("led", (_POSITION, _BART_NORM), has_two_parts=True),
    Family("bigbird_pegasus", (_SCALED_BY_DEFAULT, _POSITION), has_two_parts=True),
    Family("blenderbot", (_SCALED, _POSITION), has_two_parts=True),
    Family(
        "pegasus marian",
        (_SCALED, _POSITION),
        sinusoid_formula="sines, cosines in float64",
        has_two_parts=True,
    ),
    Family(
        "m2m_100 nllb-moe",
        (_SCALED_BY_DEFAULT, _POSITION),
        padding_id="pad_token_id",
        sinusoid_formula="sines, cosines",
        has_two_parts=True,
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
    Family("bloom", (_BLOOM_NORM,), block_positions="alibi"),
    Family(
        "modernbert modernbert-decoder",
        (Norm(("embeddings.norm", "token_embd_norm"), "norm_eps", 1e-5, has_bias=False),),
        block_positions="rotary",
    ),
    Family(
        "nomic_bert nomic-bert",
        (_TYPE, _NOMIC_NORM),
        block_positions="rotary",
    ),
    Family("jina-bert-v2", (_TYPE, _BERT_NORM), block_positions="alibi"),
    Family(
        "xlm",
        (_POSITION, Norm(("layer_norm_emb",), "layer_norm_eps")),
        remark="the model sets rows of padding at the end to 0; embcli does not",
    ),
    Family("distilbert", (_POSITION, Norm(("embeddings.LayerNorm",)))),
    Family("git blip_text_model bert-generation", (_POSITION, _BERT_NORM)),
    Family("mpnet", (_POSITION, _BERT_NORM), padding_id=1, block_positions="relative"),
    Family(
        "esm",
        (_ESM_SCALE, _POSITION, _ESM_NORM),
        padding_id="pad_token_id",
        when=_ABSOLUTE,
        remark=_ESM_MASK,
    ),
    Family(
        "esm", (_ESM_SCALE, _ESM_NORM), block_positions="rotary", when=_ROTARY, remark=_ESM_MASK
    ),
    Family("bert splinter dpr", (_TYPE, _POSITION, _BERT_NORM)),
    Family(
        "roberta roberta-prelayernorm xlm-roberta camembert data2vec-text xmod altclip_text_model "
        "clap_text_model",
        (_TYPE, _POSITION, _BERT_NORM),
        padding_id="pad_token_id",
    ),
    Family(
        "ibert",
        (_TYPE, _POSITION, _SPELLED_NORM),
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
    # There is a projection, after the norm or before it.
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
    # A text alone does not determine the input of the first block.
    Family(
        "markuplm",
        padding_id="pad_token_id",
        unknown="it adds a row for the place of each token in a page of HTML, which no text tells",
    ),
    Family("gemma3n_text", unknown="it makes several rows of each, one for each of its streams"),
    Family(
        "musicgen_decoder musicgen_melody_decoder",
        unknown="it adds up rows of several token matrices",
    ),
)

# The names that llama.cpp uses for a `model_type`, where they differ.
MODEL_TYPES_OF_GGUF = {
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
# Keys of config.json, and their names in GGUF, which follow the name of the architecture.
KEYS_OF_GGUF = {
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "norm_eps": "attention.layer_norm_epsilon",
    "hidden_size": "embedding_length",
    "embedding_multiplier": "embedding_scale",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rope_type": "rope.scaling.type",
}

LARGEST_NUMBER = 1e300  # the largest number allowed in config.json
_LARGEST_WHOLE = 1 << 53


class Settings(NamedTuple):
    """The settings of config.json, or of a GGUF file under the same names; null is a missing value.

    They are read strictly: methods raise InputError for a value of the wrong type.
    """

    values: Mapping[str, Any]
    file_error: Callable[[str], InputError]
    where: str = "config.json"

    def number(self, key: str, default: float, least: float = -LARGEST_NUMBER) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= LARGEST_NUMBER:
            bound = f" of at least {least:g}" if least > -LARGEST_NUMBER else ""
            raise self.wrong(key, f"a finite number{bound}")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not 0 <= value < _LARGEST_WHOLE:
            raise self.wrong(key, "a whole number from 0")
        return int(value)

    def holds(self, condition: When | None) -> bool:
        if condition is None:
            return True
        value = self.values.get(condition.key)
        if value is None:
            return condition.default == condition.equals
        if not isinstance(value, type(condition.equals)):
            expected = "true or false" if isinstance(condition.equals, bool) else "a word"
            raise self.wrong(condition.key, expected)
        return bool(value == condition.equals)

    def wrong(self, key: str, expected: str) -> InputError:
        """Return the error for a value that is not what it must be."""
        value = quoted(str(self.values[key]), 40)
        name = key if self.where == "config.json" else KEYS_OF_GGUF.get(key, key)
        return self.file_error(f"{self.where} has {value} as {name}, which must be {expected}")


def settings_of_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a GGUF file under the names of config.json; empty for another file."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}
    settings: dict[str, Any] = {}
    settings["model_type"] = MODEL_TYPES_OF_GGUF.get(architecture, architecture)
    for key, name in KEYS_OF_GGUF.items():
        value = metadata.get(f"{architecture}.{name}")
        if value is not None:
            settings[key] = value
    return settings


def family_of(settings: Settings) -> Family | None:
    """Return the family of a `model_type`, or None."""
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    for family in FAMILIES:
        is_named = model in family.model_types.split()
        if is_named and settings.holds(family.when):
            return family
    return None


def has_two_parts(model: object) -> bool:
    """Return whether two parts of such a model, an encoder and a decoder, read tokens."""
    return any(family.has_two_parts and model in family.model_types.split() for family in FAMILIES)


def first_position(family: Family, settings: Settings) -> int:
    """Return the row of the position matrix that stands for position 0."""
    padding = padding_of(family, settings)
    return family.position_offset if padding is None else padding + 1


def padding_of(family: Family, settings: Settings) -> int | None:
    """Return the ID of the tokens that positions do not count; None if they count all tokens."""
    padding = family.padding_id
    return settings.whole(padding, 1) if isinstance(padding, str) else padding

"""Model families as data: their names of tensors, and their steps from token rows to first block.

The facts were measured on transformers 5.23, bit for bit; tests/families repeats the measurement.
`roles` reads the names, `recipes` the steps. To add a family, add its names to `NAMES`, its
`model_type` to a row of `TOKEN_NAMES`, and to the row of data/families.json with the same steps, or
a new row; a step that no row has yet is a row of its own there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Literal, NamedTuple

from embcli.binary import quoted
from embcli.errors import InputError
from embcli.recipe import AddPosition, AddType, Norm, Project, RecipeStep, Scale, When
from embcli.wording import load_facts

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


_STEPS: dict[str, type[RecipeStep]] = {
    "scale": Scale,
    "position": AddPosition,
    "type": AddType,
    "norm": Norm,
    "project": Project,
}


def _made(kind: Callable[..., Any], fields: dict[str, Any]) -> Any:
    """Return a family or a step that families.json describes."""
    for name in ("when", "block_positions_when"):
        if name in fields:
            fields[name] = When(**fields[name])
    return kind(**fields)


def _families(stored: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the families; of those with a `model_type`, the first whose condition fits is used."""
    steps = {name: _made(_STEPS[kind], fields) for name, (kind, fields) in stored["steps"].items()}
    for fields in chain.from_iterable(stored["families"].values()):
        fields["steps"] = tuple(steps[name] for name in fields.get("steps", ()))
        yield _made(Family, fields)


_STORED = load_facts("families.json")
FAMILIES = tuple(_families(_STORED))
# The names that llama.cpp uses for a `model_type`, where they differ.
MODEL_TYPES_OF_GGUF: dict[str, str] = _STORED["gguf_model_types"]
# Keys of config.json, and their names in GGUF, which follow the name of the architecture.
KEYS_OF_GGUF: dict[str, str] = _STORED["gguf_keys"]

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

"""What differs between model families, as data: the names of their tensors and the row of their first position.

To add a family, add its names to `NAMES`, and a row to `FAMILIES` if its first position is not row 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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

CAUSAL = re.compile("(?:LMHeadModel|ForCausalLM)$")  # the ends of the names of classes with an output head


@dataclass(frozen=True)
class Family:
    """Models whose position 0 is not row 0 of their position matrix.

    The first of these that is given tells a family: config.json's `model_type`, else the name of the position tensor.
    """

    label: str  # in messages
    models: frozenset[str]  # values of `model_type`
    tensor_name: re.Pattern[str]
    rows: int | None = None  # by name, only a matrix of this many rows modulo 64 is of the family
    first_row: int = 2
    follows_padding: bool = False  # the first row is the one after config.json's `pad_token_id`, if it has one

    def evidence(self, rows: int) -> str:
        """Return why a tensor's name and number of rows are those of the family."""
        return f"is named as {self.label}" if self.rows is None else f"has {rows:,} rows, as {self.label}"


FAMILIES = (
    # fairseq's RoBERTa and its relatives number positions from the padding's ID on, which is 1.
    Family(
        "RoBERTa's",
        frozenset(
            (
                *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "camembert", "xmod", "ibert"),
                *("data2vec-text", "longformer", "luke", "markuplm", "layoutlmv3", "esm"),
            )
        ),
        re.compile(r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\."),
        follows_padding=True,
    ),
    # fairseq's BART and its relatives have an offset of 2, whatever the padding.
    Family(
        "OPT's and BART's",
        frozenset(("opt", "bart", "mbart", "plbart", "mvp", "biogpt", "mpnet", "nystromformer", "yoso", "mra")),
        re.compile(r"(?:^|\.)embed_positions(?:\.|$)"),
        rows=2,
    ),
)


def family_of_model(model_type: str) -> Family | None:
    """Return the family of a `model_type`; None if its position 0 is row 0."""
    return next((family for family in FAMILIES if model_type in family.models), None)


def family_of_tensor(name: str, rows: int) -> Family | None:
    """Return the family whose position matrix has this name and number of rows; None if no family does.

    >>> family_of_tensor("model.decoder.embed_positions.weight", 2050).label
    "OPT's and BART's"
    """
    named = (family for family in FAMILIES if family.tensor_name.search(name))
    return next((family for family in named if family.rows in (None, rows % 64)), None)

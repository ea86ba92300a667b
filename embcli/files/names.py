"""How model families name their tensors, as data, and what a name tells about the first position.

To add a family, add its names to `NAMES`; what it does with the rows is a row of families.py.
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
        "input_embeds_layer",  # Bark
        "input_embedding",  # CPM-Ant
        "transformer.w",  # CTRL
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
        "segment_embedding",  # CPM-Ant
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

CAUSAL = re.compile("(?:LMHeadModel|ForCausalLM)$")  # the ends of the names of classes with an output head


@dataclass(frozen=True)
class Named:
    """Models whose position 0 is not row 0 of their position matrix, by its name if there is no config.json."""

    label: str  # in messages
    tensor_name: re.Pattern[str]
    rows: int | None = None  # only a matrix of this many rows modulo 64 is of the family
    first_row: int = 2

    def evidence(self, rows: int) -> str:
        """Return why a tensor's name and number of rows are those of the family."""
        return f"is named as {self.label}" if self.rows is None else f"has {rows:,} rows, as {self.label}"


BY_NAME = (
    # fairseq's RoBERTa and its relatives number positions from the padding's ID on, which is 1.
    Named("RoBERTa's", re.compile(r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\.")),
    # fairseq's BART and its relatives have an offset of 2, whatever the padding.
    Named("OPT's and BART's", re.compile(r"(?:^|\.)embed_positions(?:\.|$)"), rows=2),
)


def family_of_tensor(name: str, rows: int) -> Named | None:
    """Return the family whose position matrix has this name and number of rows; None if no family does.

    >>> family_of_tensor("model.decoder.embed_positions.weight", 2050).label
    "OPT's and BART's"
    """
    named = (family for family in BY_NAME if family.tensor_name.search(name))
    return next((family for family in named if family.rows in (None, rows % 64)), None)

"""How model families name their tensors, as data, and what a name tells about the first position.

To add a family, add its names to `NAMES`; what it does with the rows is a row of families.py.
"""

from __future__ import annotations

import re

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


# Position matrices whose row 2 is that of position 0, if there is no config.json: a pattern of the name, the rows
# modulo 64 (None for any), and the reason.
SHIFTED = (
    # fairseq's RoBERTa and its relatives number positions from the padding's ID on, which is 1.
    (r"(?:^|\.)(?:roberta|xlm_roberta|camembert|longformer|mpnet|esm)\.", None, "is named as RoBERTa's"),
    # fairseq's BART and its relatives have an offset of 2, whatever the padding.
    (r"(?:^|\.)embed_positions(?:\.|$)", 2, "has {rows:,} rows, as OPT's and BART's"),
)

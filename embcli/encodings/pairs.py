"""GPT-2's two files, `vocab.json` with the IDs of tokens and `merges.txt` with the merges of bytes in their order."""

from __future__ import annotations

from pathlib import Path

from embcli.binary import Binary
from embcli.encodings.merging import BytePairs, merged_ids, ranks_of
from embcli.encodings.spelling import from_characters
from embcli.encodings.splitting import splitting_of
from embcli.encodings.vocabulary import LONGEST, MOST_IDS, FileVocabulary
from embcli.strict_json import read_object

# A tokenizer's class in tokenizer_config.json, or a model's type in config.json -> its pre-tokenizer.
_PRE = {
    **dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"), "gpt-2"),
    **dict.fromkeys(("gpt2", "roberta", "bart", "opt", "longformer"), "gpt-2"),
    **dict.fromkeys(("Qwen2Tokenizer", "qwen2"), "qwen2"),
}


def read_pairs(binary: Binary, pre: str | None) -> FileVocabulary:
    """Return the tokens of `vocab.json` and the merges of the `merges.txt` beside it."""
    ids = read_object(binary, LONGEST)
    if not all(type(token_id) is int and 0 <= token_id < MOST_IDS for token_id in ids.values()):
        raise binary.refused("it is not a list of tokens with their IDs")
    path = binary.path.with_name("merges.txt")
    lines = Binary(path).read_whole(LONGEST).splitlines()
    merges = [line for line in lines if line and not line.startswith(b"#version")]
    splitting = splitting_of(binary, pre or _named_beside(binary.path))
    words = {token.encode(errors="replace"): token_id for token, token_id in ids.items()}
    tokens = {token_id: from_characters(word) for word, token_id in words.items()}
    return FileVocabulary(tokens, BytePairs(words, ranks_of(merges), splitting), merges=merged_ids(merges, words))


def _named_beside(path: Path) -> str | None:
    """Return the pre-tokenizer that follows from the files beside a vocabulary."""
    for name, key in (("tokenizer_config.json", "tokenizer_class"), ("config.json", "model_type")):
        beside = path.with_name(name)
        if beside.is_file():
            value = str(read_object(Binary(beside), LONGEST).get(key))
            if value.removesuffix("Fast") in _PRE:
                return _PRE[value.removesuffix("Fast")]
    return None

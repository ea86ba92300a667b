"""Files of tokens by rank, which are merged in this order: tiktoken's `.tiktoken` and Mistral's `tekken.json`."""

from __future__ import annotations

from binascii import Error, a2b_base64

from embcli.binary import Binary
from embcli.encodings.merging import Ranks
from embcli.encodings.splitting import Splitting, splitting_of
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.encodings.vocabulary import LONGEST, MOST_IDS, FileVocabulary, NamedToken
from embcli.strict_json import read_object

_MOST_SPECIAL = 1 << 16  # tokens of a tekken.json, which need not list them


def read_tiktoken(binary: Binary, pre: str | None) -> FileVocabulary:
    """Return the tokens of a `.tiktoken` file: its name, or that of a pre-tokenizer, tells how a text is split."""
    lines = binary.read_whole(LONGEST).split(b"\n")
    try:
        ranks = {a2b_base64(word): int(rank) for word, rank in (line.split() for line in lines if line.strip())}
    except (ValueError, Error):
        raise binary.refused("it is not a file of tokens and ranks") from None
    if any(not 0 <= rank < MOST_IDS for rank in ranks.values()):
        raise binary.refused("it has a rank that no vocabulary has")
    known = DEFINITIONS.get(binary.path.stem) if pre is None else None
    if known is not None:
        splitting, special = Splitting((known.pattern,)), known.special_tokens
    else:
        splitting, special = splitting_of(binary, pre), {}
    named = [NamedToken(name, token_id, True) for name, token_id in special.items()]
    return _vocabulary(ranks, Ranks(ranks, splitting), named)


def read_tekken(binary: Binary, pre: str | None) -> FileVocabulary:
    """Return the tokens of a `tekken.json`: special tokens have the first IDs."""
    content = read_object(binary, LONGEST)
    try:
        config = content["config"]
        first, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
        ranks = {a2b_base64(each["token_bytes"]): int(each["rank"]) for each in content["vocab"]}
        special = {int(each["rank"]): str(each["token_str"]) for each in content.get("special_tokens") or ()}
        splitting = Splitting((str(config["pattern"]),)) if pre is None else splitting_of(binary, pre)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise binary.refused(f"it is not a tekken.json ({error!r})") from None
    if not 0 <= first <= size < MOST_IDS or any(rank < 0 for rank in ranks.values()):
        raise binary.refused("it has a rank that no vocabulary has")
    if first > _MOST_SPECIAL:
        raise binary.refused(f"it promises {first:,} special tokens")
    used = {token: rank for token, rank in ranks.items() if rank < size - first}
    named = [NamedToken(special.get(rank, f"<SPECIAL_{rank}>"), rank, True) for rank in range(first)]
    return _vocabulary(used, Ranks(used, splitting, first), named, first)


def _vocabulary(ranks: dict[bytes, int], algorithm: Ranks, named: list[NamedToken], first: int = 0) -> FileVocabulary:
    tokens = {rank + first: token for token, rank in ranks.items()}
    tokens |= {each.token_id: each.name.encode(errors="replace") for each in named}
    merges = [token_id for token_id in sorted(tokens) if len(tokens[token_id]) > 1]
    special = {each.token_id for each in named}
    ordered = sorted(named, key=lambda each: -len(each.name))
    return FileVocabulary(tokens, algorithm, ordered, [token_id for token_id in merges if token_id not in special])

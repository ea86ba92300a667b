"""What an encoding tells of its IDs: which tokens no text is made of, and which are merges of BPE in their order."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.tiktoken import TiktokenEncoding

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.names import Unused

# Bytes that UTF-8 never has: RFC 3629, section 3.
_NEVER = re.compile(rb"[\xc0\xc1\xf5-\xff]")
# Names that are kept free for later: Llama 3, o200k_harmony, BERT, Gemma, Qwen, Mistral, Phi-3, DeepSeek, fairseq.
_RESERVED = re.compile(
    r"[<\[]\W?(?:reserved(?:[_▁ ]special[_▁ ]token)?|unused|extra|dummy|SPECIAL|place(?:[_▁ ]?holder)?(?:[_▁ ]no)?)"
    r"[_▁ ]?[0-9]+\W?[>\]]|madeupword[0-9]+"
)


def unused(encoding: Encoding, size: int) -> dict[int, Unused]:
    """Return which of the IDs below `size` no text makes, and why: by ID, in order.

    `padding` comes behind the last token, a `gap` is an ID without one before it, the token of a `byte` has one that
    UTF-8 never has, and a `reserved` one is named as such.

    >>> from embcli.encodings import get
    >>> found = unused(get("gpt2"), 50259)
    >>> len(found), found[50257], found[177]
    (15, 'padding', 'byte')
    """
    known = min(encoding.vocabulary_size, size)
    found = {token_id: why for token_id in range(known) if (why := _why(encoding.token_bytes(token_id)))}
    return found | dict.fromkeys(range(known, size), "padding")


def _why(token: bytes | None) -> Unused | None:
    if token is None:
        return "gap"
    if _NEVER.search(token):
        return "byte"
    return "reserved" if _RESERVED.fullmatch(token.decode("utf-8", "replace")) else None


def merged(encoding: Encoding) -> list[int]:
    """Return the IDs of the tokens that BPE merged, in the order of merges, which is that of IDs as a rule.

    The later a merge, the rarer the token. Single bytes, single characters and special tokens are no merges.

    >>> from embcli.encodings import get
    >>> found = merged(get("gpt2"))
    >>> found[0], found[-1], len(found)
    (256, 50255, 50000)
    """
    if isinstance(encoding, TiktokenEncoding):
        special = {*encoding.definition.special_tokens.values()}
        ids = (token_id for token_id in range(encoding.vocabulary_size) if token_id not in special)
        return [token_id for token_id in ids if len(encoding.token_bytes(token_id) or b"") > 1]
    return _merges(encoding) if isinstance(encoding, HuggingFaceEncoding) else []


def _merges(encoding: HuggingFaceEncoding) -> list[int]:
    """Return the IDs of what the merges of a tokenizer.json make, in their order."""
    model = json.loads(encoding.tokenizer.to_str())["model"]
    prefix = model.get("continuing_subword_prefix") or ""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", ()))
    ids = (encoding.tokenizer.token_to_id(left + right.removeprefix(prefix)) for left, right in pairs)
    return list(dict.fromkeys(token_id for token_id in ids if token_id is not None))

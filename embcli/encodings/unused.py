"""The tokens of an encoding that no text can produce."""

from __future__ import annotations

import re

from embcli.encodings import Encoding
from embcli.names import Unused

# Bytes invalid in UTF-8: RFC 3629, section 3.
_NEVER = re.compile(rb"[\xc0\xc1\xf5-\xff]")
# Names of reserved tokens: Llama 3, o200k_harmony, BERT, Gemma, Qwen, Mistral, Phi-3, DeepSeek, fairseq.
_RESERVED = re.compile(
    r"[<\[]\W?(?:reserved(?:[_▁ ]special[_▁ ]token)?|unused|extra|dummy|SPECIAL|place(?:[_▁ ]?holder)?(?:[_▁ ]no)?)"
    r"[_▁ ]?[0-9]+\W?[>\]]|madeupword[0-9]+"
)


def unused(encoding: Encoding, size: int) -> dict[int, Unused]:
    """Return the IDs below `size` that no text can produce, in order, and why.

    `padding` follows the last token, a `gap` is an ID without a token before it, a `byte` token has a byte that is
    invalid in UTF-8, and a `reserved` token has a name that says so.

    >>> from embcli.encodings import get
    >>> reasons = unused(get("gpt2"), 50259)
    >>> len(reasons), reasons[50257], reasons[177]
    (15, 'padding', 'byte')
    """
    known = min(encoding.vocabulary_size, size)
    reasons = {token_id: why for token_id in range(known) if (why := _why(encoding.token_bytes(token_id)))}
    return reasons | dict.fromkeys(range(known, size), "padding")


def _why(token: bytes | None) -> Unused | None:
    if token is None:
        return "gap"
    if _NEVER.search(token):
        return "byte"
    return "reserved" if _RESERVED.fullmatch(token.decode("utf-8", "replace")) else None

"""Which tokens of an encoding no text is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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

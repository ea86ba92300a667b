"""Which tokens no text makes, and which are merges: held against what the encodings themselves decode and name."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from embcli import encodings
from embcli.verbs.audit import unused


@cache
def possible_bytes() -> set[int]:
    """Return the bytes of all characters in UTF-8."""
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    return set(np.frombuffer("".join(characters).encode(), np.uint8).tolist())


@pytest.mark.parametrize("name", ["gpt2", "p50k_base", "cl100k_base", "o200k_base", "o200k_harmony"])
def test_unused_tokens_are_gaps_impossible_bytes_and_reserved_names(name: str) -> None:
    """A byte belongs to UTF-8 where some character has it; all characters are looked at."""
    known = encodings.get(name)
    wanted: dict[int, str] = {}
    for token_id in range(known.vocabulary_size):
        token = known.token_bytes(token_id)
        if token is None:
            wanted[token_id] = "gap"
        elif not {*token} <= possible_bytes():
            wanted[token_id] = "byte"
        elif b"reserved_" in token and token.startswith(b"<|"):
            wanted[token_id] = "reserved"
    assert unused(known, known.vocabulary_size) == wanted
    assert unused(known, 300) == {token_id: why for token_id, why in wanted.items() if token_id < 300}
    beyond = known.vocabulary_size + 2
    assert unused(known, beyond) == wanted | dict.fromkeys(range(known.vocabulary_size, beyond), "padding")


RESERVED = [
    *("<|reserved_special_token_7|>", "<|reserved_200000|>", "[unused12]", "<unused5>", "<|extra_3|>", "<|dummy_4|>"),
    *("<SPECIAL_20>", "<|placeholder1|>", "<｜place▁holder▁no▁8｜>", "madeupword0001", "<reserved_1>"),
]
PLAIN = ["<|endoftext|>", "[MASK]", "[12]", "unused12", "<unused>", "<s>", "<extra_id_0>", "reserved", "<|im_start|>"]
PLAIN += ["see [unused1]", "[unused1] and", "madeupword0001s"]


class NamedToken:
    """An encoding of just these tokens."""

    name = "named"
    vocabulary_size = len(RESERVED) + len(PLAIN)

    def token_bytes(self, token_id: int) -> bytes:
        return [*RESERVED, *PLAIN][token_id].encode()


def test_names_that_families_of_models_keep_free_are_reserved() -> None:
    assert unused(NamedToken(), NamedToken.vocabulary_size) == dict.fromkeys(range(len(RESERVED)), "reserved")

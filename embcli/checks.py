"""Checks of tokens against the layers that they pick rows of."""

from __future__ import annotations

import numpy as np

from embcli.errors import InputError
from embcli.tokens import Tokens, token_text
from embcli.words import naming


def check_ids(tokens: Tokens, vocabulary_size: int, grows: bool = True) -> None:
    """Raise InputError for the first ID that a layer of V rows has no row for; `grows` if V can be chosen."""
    wrong = np.flatnonzero((tokens.ids < 0) | (tokens.ids >= vocabulary_size))
    if not len(wrong):
        return
    place = int(wrong[0])
    token_id = int(tokens.ids[place])
    sentence = (
        "{token} at position {place:,} has no row: the token layer has V = {size:,} rows, for IDs from 0 to {last}"
    )
    if grows:
        sentence += "; pass {vocab} {least} or more"
    token = id_in_words(token_id, tokens.encoding.token_bytes(token_id) if tokens.encoding else None)
    last, least = vocabulary_size - 1, int(tokens.ids.max()) + 1
    raise InputError(naming(sentence, token=token, place=place, size=vocabulary_size, last=last, least=least))


def check_length(tokens: Tokens, context_length: int, grows: bool) -> None:
    """Raise InputError for a sequence of more tokens than positions; `grows` if the context length can be chosen."""
    if tokens.longest > context_length:
        longer = "{context_length} {longest} for one sequence, or " if grows else ""
        sentence = "{longest:,} tokens are more than the context length of {most:,}: pass "
        sentence += f"{longer}{{window}} for several of {{most:,}}"
        raise InputError(naming(sentence, longest=tokens.longest, most=context_length))


def id_in_words(token_id: int, token: bytes | None) -> str:
    """Return an ID with its token, if there is one.

    >>> id_in_words(262, b" the")
    "ID 262 (' the')"
    """
    return f"ID {token_id}" if token is None else f"ID {token_id} ({token_text(token)!r})"

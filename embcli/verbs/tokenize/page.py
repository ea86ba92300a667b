"""The page of a tokenized text: a table of tokens, and counts.

A character can be spread over several tokens. Such tokens are a group, which brackets join.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.text import Text

from embcli.page import Label, omission, omitted, ruled, safe_text, token_style
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.tokenize import Tokenization, characters_begun
from embcli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_MOST_ROWS = 200
# By whether a token begins in the middle of a character, and whether the next token continues it.
_BRACKETS = {(False, False): "", (False, True): "╭", (True, True): "│", (True, False): "╰"}


class TokenRow(NamedTuple):
    """A token in the table."""

    place: int  # among all tokens
    token: bytes
    is_joined: bool  # whether it begins in the middle of a character


Group = list[TokenRow]  # tokens that share characters, or one token


def page(result: Tokenization, console: Console, options: ConsoleOptions) -> RenderResult:
    excerpt = Excerpt.ends(_MOST_ROWS, len(result.tokens))
    rows = _rows(result, excerpt.places)
    groups = _groups(rows)
    yield _table(result, excerpt, rows, groups)
    yield from omitted(omission(excerpt, "row"))
    yield ""
    yield _totals(result)


def _rows(result: Tokenization, places: np.ndarray) -> list[TokenRow]:
    tokens = result.tokens.bytes_of(result.tokens.ids[places])
    joined = result.joined[places].tolist()
    return [
        TokenRow(place, token or b"", is_joined)
        for place, token, is_joined in zip(places.tolist(), tokens, joined, strict=True)
    ]


def _groups(rows: Sequence[TokenRow]) -> list[Group]:
    groups: list[Group] = []
    for row in rows:
        if groups and row.is_joined and groups[-1][-1].place == row.place - 1:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _table(
    result: Tokenization, excerpt: Excerpt, rows: Sequence[TokenRow], groups: Sequence[Group]
) -> Table:
    places = excerpt.places
    sequence, position = result.tokens.places(places)
    labels = []
    if result.tokens.many:
        labels.append(Label("seq", sequence))
    labels.append(Label("pos", position))
    brackets = _brackets(groups)
    if any(brackets):
        labels.append(Label("", brackets, "left", short=True))

    tokens = [safe_text(shown(row.token), token_style(row.place)) for row in rows]
    spans = [f"{start}:{end}" for start, end in result.spans[places].tolist()]
    labels += [
        Label("token", tokens, "left", short=True),
        Label("ID", result.tokens.ids[places]),
        Label("bytes", [row.token.hex(" ") for row in rows], "left", short=True),
        Label("span", spans, "left"),
    ]
    return ruled(labels, gaps=excerpt.gaps)


def _brackets(groups: Sequence[Group]) -> list[str]:
    """Return the bracket beside each row; the last one of a group has what its tokens share."""
    brackets = []
    for group in groups:
        *others, last = group
        brackets += [_BRACKETS[row.is_joined, True] for row in others]
        bracket = _BRACKETS[last.is_joined, False]
        brackets.append(f"{bracket} {_shared_characters(group)}".rstrip())
    return brackets


def _shared_characters(group: Group) -> str:
    """Return the characters that tokens share; "" if the table has not all of these tokens."""
    if len(group) == 1 or group[0].is_joined:
        return ""
    tokens = [row.token for row in group]
    characters_before = tokens[0].decode(errors="ignore").encode()
    return shown(b"".join(tokens)[len(characters_before) :])


def _totals(result: Tokenization) -> Text:
    tokens = result.tokens
    if tokens.texts is None:
        characters = int(characters_begun(tokens).sum())
        size = int(tokens.measured(len).sum())
    else:
        characters = sum(map(len, tokens.texts))
        size = sum(len(text.encode()) for text in tokens.texts)

    counts = [
        counted(characters, "character"),
        counted(size, "byte"),
        counted(len(tokens), "token"),
    ]
    if len(tokens):
        counts.append(f"{characters / len(tokens):.2f} characters per token")
    encoding = tokens.encoding.name if tokens.encoding else "no encoding"
    remark = "" if result._decodes_to_text else "; they decode to another text"
    return safe_text(f"{', '.join(counts)} ({encoding}){remark}")

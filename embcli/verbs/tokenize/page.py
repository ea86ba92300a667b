"""The page of a tokenized text: a table of tokens, and counts.

A character can be spread over several tokens. Such tokens are a group, which brackets join.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from embcli.page import Label, omission, omitted, ruled, safe_text
from embcli.page.labels import PARTS_OF_CHARACTERS, legend_of_tokens, token_labels
from embcli.selection import Excerpt
from embcli.tokens import token_text
from embcli.verbs.tokenize import Tokenization, characters_begun
from embcli.wording import counted

_MOST_ROWS = 200
# By whether a token begins in the middle of a character, and whether the next token continues it.
_BRACKETS = {(False, False): "", (False, True): "╭", (True, True): "│", (True, False): "╰"}


def page(result: Tokenization, console: Console, options: ConsoleOptions) -> RenderResult:
    excerpt = Excerpt.ends(_MOST_ROWS, len(result.tokens))
    yield _table(result, excerpt)
    yield from omitted(omission(excerpt, "row"))
    yield ""
    yield _totals(result)
    parts = f"{PARTS_OF_CHARACTERS}, joined by a bracket" if result.joined.any() else ""
    tokens = result.tokens.bytes_of(result.tokens.ids[excerpt.places])
    text = "".join(token_text(token) or "" for token in tokens)
    yield from legend_of_tokens(parts, text=text)


def _table(result: Tokenization, excerpt: Excerpt) -> Table:
    index = excerpt.places
    ids = result.tokens.ids[index]
    tokens = [token or b"" for token in result.tokens.bytes_of(ids)]
    labels = token_labels(result.tokens, index)
    brackets = _brackets(index, result.joined[index])
    if any(brackets):
        labels.insert(-2, Label("", brackets))  # before the token and its ID

    spans = [f"{start}:{end}" for start, end in result.spans[index].tolist()]
    labels += [
        Label("bytes", [token.hex(" ") for token in tokens], "left", short=True),
        Label("span", spans, "left"),
    ]
    return ruled(labels, gaps=excerpt.gaps)


def _brackets(index: np.ndarray, joined: np.ndarray) -> list[str]:
    """Return the bracket beside each row of the table, which has tokens of a text, (n,) int64.

    `joined` says which of them begin in the middle of a character, (n,) bool.
    """
    follows = np.diff(index, prepend=-2) == 1  # the row above has the previous token of the text
    continues = np.append(joined & follows, False)[1:]  # which the row below does
    return [_BRACKETS[sides] for sides in zip(joined.tolist(), continues.tolist(), strict=True)]


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
    remark = f"; {result._decoded_otherwise}" if result._decoded_otherwise else ""
    return safe_text(f"{', '.join(counts)} ({encoding}){remark}")

"""The page of a text under tokenizers: its tokens as running text, and their numbers.

Each token has a background; without colours, a mark is after each. Each encoding has its lines
below those of the one before, and each line of the text its number of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embcli.names import Background
from embcli.page import (
    Label,
    LeftOut,
    medium_of,
    rows_that_fit,
    ruled,
    safe_text,
    shorten,
    title,
)
from embcli.page.colors import colors_of, token_style
from embcli.page.labels import PARTS_OF_CHARACTERS, legend_of_tokens
from embcli.page.svg import RIGHT_TO_LEFT
from embcli.page.table import GAP, least_width
from embcli.tokens import shown
from embcli.verbs.tokenize import Tokenization
from embcli.verbs.tokenizers import Tokenizers
from embcli.wording import counted

_CUT = "│"
_MORE = "…"  # ends a line whose further ones are left out
_OTHER_LINES = 8  # of a slide


class RunningLine(NamedTuple):
    """A line of the page, with what stands beside it: in further lines of a text, nothing."""

    text: Text
    encoding: str = ""
    tokens: str = ""  # how many


def page(result: Tokenizers, console: Console, options: ConsoleOptions) -> RenderResult:
    background = medium_of(console).background if colors_of(console) else None
    yield title("The text in tokens")
    shown_names = [shorten(each.name, 16) for each in result.encodings]
    counts = "tokens per line" if "\n" in result._subject else "tokens"
    beside = [
        Label("encoding", shown_names, "left"),
        Label(counts, [f"{max(result.counts):,}"]),
    ]
    available = options.max_width - least_width(beside, 0) - GAP

    texts = len(result.texts)
    most = rows_that_fit(options, 32)  # lines
    if medium_of(console).is_slide:
        most = options.max_height - _OTHER_LINES - texts  # which have blank lines between them
    lines: list[RunningLine] = []
    sections = []
    is_whole = True
    for sequence in range(texts):
        if len(lines) >= most:
            is_whole = False
            break
        if lines and len(result.encodings) > 1:
            sections.append(len(lines))
        running = []
        for number in range(len(shown_names)):
            lines_of_text = _running_lines(result, number, sequence, available, background)
            running.append(list(islice(lines_of_text, most + 1)))
        # Each later text has a line for each encoding, at least.
        room = most - len(lines) - (texts - 1 - sequence) * len(running)
        share = most
        while share > 1 and sum(min(len(found), share) for found in running) > room:
            share -= 1
        for name, found in zip(shown_names, running, strict=True):
            if len(found) > share:
                last = found[share - 1].text
                last.truncate(available - 1)
                last.append(_MORE)
                is_whole = False
            first, *others = found[:share]
            lines += [first._replace(encoding=name), *others]
    labels = [
        Label("encoding", [line.encoding for line in lines], "left"),
        Label(counts, [line.tokens for line in lines]),
        Label("text", [line.text for line in lines], "left"),
    ]
    yield ruled(labels, sections=sections)
    yield ""

    yield from _totals(result)
    legend = "Each background is a token" if background else f"{_CUT} ends a token"
    if RIGHT_TO_LEFT.search(result._subject):
        legend += ", from left to right"
    has_parts = any(Tokenization(tokens).joined.any() for tokens in result.tokens)
    parts = PARTS_OF_CHARACTERS if has_parts else ""
    yield from legend_of_tokens(legend, parts, text=result._subject)
    if not is_whole:
        yield LeftOut(f"Left out: the rest of the text, after {_MORE} in a line.")


def _running_lines(
    result: Tokenizers,
    number: int,
    sequence: int,
    available: int,
    background: Background | None,
) -> Iterator[RunningLine]:
    """Yield the lines of a text in an encoding, of this width.

    A token with a line end in it ends a line.
    """
    tokens = result.tokens[number]
    first, stop = tokens.starts[sequence : sequence + 2].tolist()
    ids = tokens.ids[first:stop]
    is_last = tokens.measured(lambda token: b"\n" in token)[first:stop]
    lines_of_text = np.split(ids, np.flatnonzero(is_last) + 1)
    if len(lines_of_text) > 1 and not len(lines_of_text[-1]):
        lines_of_text.pop()

    place = 0
    for ids_of_line in lines_of_text:
        count = f"{len(ids_of_line):,}"
        line = Text()
        for token in tokens.bytes_of(ids_of_line):
            word = shorten(shown(token), max(available - 1, 1))
            cell = Text(f"{word}{_CUT}")
            if background:  # A space can be seen by its colour.
                cell = Text(word.replace("␣", " "), token_style(place, background))
            place += 1
            if line.cell_len + cell.cell_len > available:
                yield RunningLine(line, tokens=count)
                count = ""
                line = Text()
            line.append_text(cell)
        yield RunningLine(line, tokens=count)


def _totals(result: Tokenizers) -> Iterator[Text]:
    facts = [
        counted(sum(map(len, result.texts)), "character"),
        counted(result.bytes, "byte"),
    ]
    for encoding, count in zip(result.encodings, result.counts, strict=True):
        facts.append(f"{encoding.name}: {counted(count, 'token')}")
    yield safe_text(", ".join(facts))

    cuts = {tuple(tokens) for tokens in result.tokens}
    if len(result.encodings) > 1 and len(cuts) == 1:
        distinct = {tokens.ids.tobytes() for tokens in result.tokens}
        ids = ", with different IDs" if len(distinct) > 1 else ""
        yield safe_text(f"All cut it the same way{ids}")

"""The page of `explain`: an entry, or the list of all words."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from embcli.glossary import Command, Entry, Item
from embcli.hints import hint
from embcli.page import Page, Word
from embcli.views.parts import put_prose

if TYPE_CHECKING:
    from embcli.verbs.explain import Explanations

_INDENT = "  "


def view(result: Explanations, page: Page) -> None:
    """Put an entry on a page, or all words by their parts."""
    if not result.is_list:
        _put_entry(result.entries[0], page)
        return
    for part, entries in groupby(result.entries, lambda entry: entry.part):
        page.title(part)
        put_prose(", ".join(entry.word for entry in entries), page, _INDENT, _INDENT)
    page.line()
    page.line(Word(hint("explain"), "dim"))


def _put_entry(entry: Entry, page: Page) -> None:
    also = f" ({', '.join(entry.also)})" if entry.also else ""
    first, *more = textwrap.wrap(entry.word + also, page.width, subsequent_indent=_INDENT)
    page.line(Word(first[: len(entry.word)], "strong"), Word(first[len(entry.word) :], "dim"))
    for line in more:
        page.line(Word(line, "dim"))
    for block in entry.blocks:
        if isinstance(block, Command):
            page.line(Word(f"{_INDENT}{block.text}", "embedding"))
        elif isinstance(block, Item):
            put_prose(f"{block.name}: {block.text}" if block.name else block.text, page, _INDENT, _INDENT * 2)
        else:
            put_prose(block.text, page)
    if entry.source:
        put_prose(f"Source: {entry.source}", page, tone="dim")

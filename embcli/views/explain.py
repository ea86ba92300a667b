"""The page of `explain`: an entry, or the list of all words."""

from itertools import groupby

from embcli.glossary import Command, Entry, Item
from embcli.hints import hint
from embcli.oldpage import Page, Tone, Word
from embcli.verbs.explain import Explanations
from embcli.views.parts import put_prose, wrapped

_INDENT = "  "


def view(result: Explanations, page: Page) -> None:
    """Put an entry on a page, or all words by their parts."""
    if not result.is_list:
        _put_entry(result.entries[0], page)
        return
    for part, entries in groupby(result.entries, lambda entry: entry.part):
        _put_named(part, ": " + ", ".join(entry.word for entry in entries), page)
    page.line()
    page.line(Word(hint("explain"), "dim"))


def _put_entry(entry: Entry, page: Page) -> None:
    also = f" ({', '.join(entry.also)})" if entry.also else ""
    _put_named(entry.word, also, page, tone="dim")
    for block in entry.blocks:
        if isinstance(block, Command):
            page.line(Word(f"{_INDENT}{block.text}", "embedding"))
        elif isinstance(block, Item):
            _put_named(block.name, f": {block.text}" if block.name else block.text, page, _INDENT)
        else:
            put_prose(block.text, page)
    if entry.source:
        put_prose(f"Source: {entry.source}", page, tone="dim")


def _put_named(name: str, text: str, page: Page, indent: str = "", tone: Tone = "plain") -> None:
    """Put a name and the text after it on the page, wrapped to its width."""
    left = len(name)
    for line in wrapped(name + text, page, indent, indent + _INDENT):
        start = len(line) - len(line.lstrip())
        end = start + max(left, 0)
        page.line(Word(line[:end], "strong"), Word(line[end:], tone))
        left -= len(line) - start + 1  # the blank at which the line was broken

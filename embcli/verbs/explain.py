"""Explanations: what a word on a page means, an example that runs, and where a book or a paper has it.

The words are read from `data/explain/`: a file for each part, an entry for each word. An entry is a heading
(`# one-hot`), perhaps a line of other names (`Also: one-hot row`), and blocks between blank lines: a paragraph;
commands, indented by four blanks; items, each a line `- name: text`; and at the end where a book or a paper has it
(`From: ...`). An item is a word of its own, too.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from embcli.errors import InputError
from embcli.names import __version__
from embcli.records import Records, listed
from embcli.result import Result
from embcli.wording import Sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

FOLDER = Path(__file__).parents[1] / "data" / "explain"


class Block(NamedTuple):
    kind: Literal["prose", "command", "item"]
    text: str
    name: str = ""


class Entry(NamedTuple):
    word: str
    part: str  # the part of the glossary to which it belongs
    also: tuple[str, ...]  # other names of it
    blocks: tuple[Block, ...]
    source: str  # where a book or a paper has it; empty if nowhere

    @property
    def text(self) -> str:
        """All paragraphs and items, a line each."""
        prose = (each for each in self.blocks if each.kind != "command")
        return "\n".join(f"{each.name}: {each.text}" if each.name else each.text for each in prose)

    @property
    def examples(self) -> tuple[str, ...]:
        """The command lines."""
        return tuple(each.text for each in self.blocks if each.kind == "command")


@dataclass(frozen=True, eq=False)
class Explanations(Result, verb="explain", content="list"):
    """The entry of one word, or the entries of all words."""

    entries: tuple[Entry, ...]  # of several, the page lists the words only

    def records(self) -> Records:
        return listed(
            {"embcli": __version__},
            "words",
            word=(str, [each.word for each in self.entries]),
            part=(str, [each.part for each in self.entries]),
            also=(str, [", ".join(each.also) for each in self.entries]),
            text=(str, [each.text for each in self.entries]),
            examples=(str, ["\n".join(each.examples) for each in self.entries]),
            source=(str, [each.source for each in self.entries]),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.padding import Padding
        from rich.text import Text

        from embcli.page import safe_text, title

        if len(self.entries) > 1:
            for part, group in groupby(self.entries, lambda entry: entry.part):
                yield title(part).append_text(
                    safe_text(f": {', '.join(each.word for each in group)}", "not bold")
                )
            return
        (entry,) = self.entries
        also = f" ({', '.join(entry.also)})" if entry.also else ""
        yield title(entry.word).append_text(safe_text(also, "not bold dim"))
        for block in entry.blocks:
            if block.kind == "prose":
                yield safe_text(block.text)
            elif block.kind == "command":
                yield safe_text(f"  {block.text}", "accent")
            else:
                text = Text.assemble(
                    title(block.name), safe_text(f": {block.text}" if block.name else block.text)
                )
                yield Padding(text, (0, 0, 0, 2))
        if entry.source:
            yield safe_text(f"Source: {entry.source}", "dim")


def explain(word: str | None = None) -> Explanations:
    """Explain a word that a page prints, such as "one-hot"; without any, list all words.

    The entries are those of `embcli explain`. Capitals, blanks, hyphens and "explain" in front do not count.
    Raises InputError, with the nearest words, for a word that is not explained.

    >>> explain("One hot").entries[0].word
    'one-hot'
    """
    if word is None:
        return Explanations(entries())
    known, asked = {_plain(name): entry for name, entry in named().items()}, _plain(word)
    for name in (
        asked,
        asked.removesuffix("s"),
        asked.removeprefix("explain"),
        asked.rstrip("?!.,;"),
    ):
        if name in known:
            return Explanations((known[name],))
    parts = [_plain(part) for part in re.split(r"[\s?!.,;]+", word)]
    alike = difflib.get_close_matches(asked, known)
    near = dict.fromkeys(known[name].word for name in (*parts, *alike) if name in known)
    nearest = f"the nearest: {', '.join(near)}" if near else "explain without one lists all"
    unknown = Sentence(
        "{word} {given!r} is not explained; {nearest}", given=word[:60], nearest=nearest
    )
    hint = (
        "embcli explain questions answers whole questions" if re.search(r"\S\s+\S|\?", word) else ""
    )
    raise InputError(unknown, hint)


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of the book's chapter."""
    parts = [
        re.split(r"^# ", file.read_text("utf-8"), flags=re.MULTILINE)
        for file in sorted(FOLDER.glob("*.md"))
    ]
    return tuple(
        _entry(part.strip(), *text.split("\n", 1)) for part, *texts in parts for text in texts
    )


@cache
def named() -> dict[str, Entry]:
    """Return what is explained, by all of its names; a word goes before an item of the same name."""
    names: dict[str, Entry] = {}
    for entry in entries():
        whole = Block("command", f"embcli explain {entry.word}")
        for item in entry.blocks:
            short = Entry(item.name, entry.part, (), (Block("prose", item.text), whole), "")
            names |= dict.fromkeys(item.name.split(", ") if item.name else (), short)
    return names | {name: entry for entry in entries() for name in (entry.word, *entry.also)}


def _plain(word: str) -> str:
    return re.sub(r"[][\s_<|>-]", "", word).casefold()


def _entry(part: str, word: str, text: str) -> Entry:
    also: tuple[str, ...] = ()
    source, blocks = "", []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        line = " ".join(block.split())
        if line.startswith("Also: "):
            also = tuple(line.removeprefix("Also: ").split(", "))
        elif line.startswith("From: "):
            source = line.removeprefix("From: ")
        elif block.startswith("    "):
            blocks += [Block("command", each.strip()) for each in block.split("\n")]
        elif block.startswith("- "):
            for item in block.removeprefix("- ").split("\n- "):
                name, colon, meaning = " ".join(item.split()).partition(": ")
                blocks.append(Block("item", meaning, name) if colon else Block("item", name))
        else:
            blocks.append(Block("prose", line))
    return Entry(word.strip(), part, also, tuple(blocks), source)

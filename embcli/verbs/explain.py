"""Explanations: what a word on a page means, an example that runs, and where a book has it.

The words are read from `data/explain/`: a file for each part, an entry for each word. An entry is a
heading (`# one-hot`), perhaps a line of other names (`Also: one-hot row`), and blocks between blank
lines: a paragraph; commands, indented by four blanks; items, each a line `- name: text`; a table,
whose lines begin with `| `; and at the end where a book or a paper has it (`From: ...`). An item is
a word of its own, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
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
    from rich.text import Text

FOLDER = Path(__file__).parents[1] / "data" / "explain"
# Words that do not tell what a question is about.
_COMMON_WORDS = re.compile(
    r"\b(a|about|all|an|and|any|are|as|at|be|becomes?|between|by|can|do|does|each|explain|for|from|get"
    r"|happens?|has|have|how|i|in|into|is|it|its|like|looks?|many|me|means?|much|my|no|not|of|on|or|same|so"
    r"|than|that|the|there|they|things?|this|to|versus|vs|was|we|what|when|where|which|who|why|will"
    r"|with|you|your)\b"
)


class Block(NamedTuple):
    """A paragraph, a command line, an item of a list, or a table."""

    kind: Literal["prose", "command", "item", "table"]
    text: str
    name: str = ""  # the name of an item

    @property
    def line(self) -> str:
        return f"{self.name}: {self.text}" if self.name else self.text


class Entry(NamedTuple):
    """What is explained of a word."""

    word: str
    part: str  # the part of the glossary to which it belongs
    also: tuple[str, ...]  # its other names
    blocks: tuple[Block, ...]
    source: str  # where a book or a paper has it; empty if nowhere

    @property
    def text(self) -> str:
        """All paragraphs, items and tables, in lines."""
        lines = [block.line for block in self.blocks if block.kind != "command"]
        return "\n".join(lines)

    @property
    def examples(self) -> tuple[str, ...]:
        """The command lines."""
        commands = [block.text for block in self.blocks if block.kind == "command"]
        return tuple(commands)


@dataclass(frozen=True, eq=False)
class Explanations(Result, verb="explain", content="list"):
    """The entry of one word, or the entries of all words."""

    entries: tuple[Entry, ...]

    def records(self) -> Records:
        run = {"embcli": __version__}
        return listed(
            run,
            "words",
            word=(str, [entry.word for entry in self.entries]),
            part=(str, [entry.part for entry in self.entries]),
            also=(str, [", ".join(entry.also) for entry in self.entries]),
            text=(str, [entry.text for entry in self.entries]),
            examples=(str, ["\n".join(entry.examples) for entry in self.entries]),
            source=(str, [entry.source for entry in self.entries]),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if len(self.entries) == 1:
            yield from _entry_page(self.entries[0])
        else:
            yield from _list_page(self.entries)


def _list_page(entries: Iterable[Entry]) -> RenderResult:
    """Yield the words of each part, without their explanations."""
    from embcli.page import safe_text, title

    for part, group in groupby(entries, lambda entry: entry.part):
        words = ", ".join(entry.word for entry in group)
        line = title(part)
        yield line.append_text(safe_text(f": {words}", "not bold"))


def _entry_page(entry: Entry) -> RenderResult:
    from rich.padding import Padding

    from embcli.page import Drawing, safe_text, title

    heading = title(entry.word)
    other_names = f" ({', '.join(entry.also)})" if entry.also else ""
    yield heading.append_text(safe_text(other_names, "not bold dim"))
    for block in entry.blocks:
        if block.kind == "prose":
            yield safe_text(block.text)
        elif block.kind == "command":
            yield safe_text(f"  {block.text}", "accent")
        elif block.kind == "table":
            yield Drawing([safe_text(line) for line in block.text.split("\n")])
        else:
            yield Padding(_item_text(block), (0, 0, 0, 2))
    if entry.source:
        yield safe_text(f"Source: {entry.source}", "dim")


def _item_text(item: Block) -> Text:
    from rich.text import Text

    from embcli.page import safe_text, title

    meaning = f": {item.text}" if item.name else item.text
    return Text.assemble(title(item.name), safe_text(meaning))


def explain(word: str | None = None) -> Explanations:
    """Explain a word that a page prints, such as "one-hot"; without any, list all words.

    The entries are those of `embcli explain`. Capitals, blanks, hyphens and "explain" in front do
    not count. A question finds the entry whose names share most words with it.
    Raises InputError, with the nearest words, for a word that is not explained.

    >>> explain("One hot").entries[0].word
    'one-hot'
    """
    if word is None:
        return Explanations(entries())
    known = _by_plain_name()
    word = str(word)
    plain_word = _plain(word)
    variants = (
        plain_word,
        plain_word.removesuffix("s"),
        plain_word.removeprefix("explain"),
        plain_word.rstrip("?!.,;"),
    )
    for variant in variants:
        if variant in known:
            return Explanations((known[variant],))
    return Explanations((_answer(word, known),))


def _answer(asked: str, known: Mapping[str, Entry]) -> Entry:
    """Return the entry whose names share most words with a question."""
    asked_words = _telling_words(asked)

    def likeness(entry: Entry) -> tuple[int, int]:
        words = _telling_words(" ".join((entry.word, *entry.also)))
        return len(words & asked_words), -len(words)

    best = max(entries(), key=likeness)
    if likeness(best)[0] == 0:
        raise _not_explained(asked, known)
    return best


def _telling_words(text: str) -> set[str]:
    """Return the words that tell what a text is about, without a plural's s."""
    rest = _COMMON_WORDS.sub("", text.casefold())
    return {_plain(word).removesuffix("s") for word in re.findall(r"[^\s?!.,;:()\"]+", rest)}


def _not_explained(word: str, known: Mapping[str, Entry]) -> InputError:
    """Return the error for an unknown word, with the nearest words that are known."""
    near = [known[name].word for name in difflib.get_close_matches(_plain(word), known)]
    nearest = "explain without one lists all"
    if near:
        nearest = f"the nearest: {', '.join(dict.fromkeys(near))}"
    wrong = "{word} {given!r} is not explained; {nearest}"
    hint = ""
    if re.search(r"\S\s+\S|\?", word):
        hint = "embcli explain questions answers whole questions"
    return InputError(Sentence(wrong, given=word[:60], nearest=nearest), hint)


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of the book's chapter."""
    found = []
    for file in sorted(FOLDER.glob("*.md")):
        part, *texts = re.split(r"^# ", file.read_text("utf-8"), flags=re.MULTILINE)
        found += [_parse_entry(part.strip(), text) for text in texts]
    return tuple(found)


@cache
def named() -> dict[str, Entry]:
    """Return what is explained, by all names; a word wins over an item of the same name."""
    by_name: dict[str, Entry] = {}
    for entry in entries():
        see_entry = Block("command", f"embcli explain {entry.word}")
        for item in entry.blocks:
            if item.name:
                blocks = (Block("prose", item.text), see_entry)
                short_entry = Entry(item.name, entry.part, (), blocks, "")
                by_name |= dict.fromkeys(item.name.split(", "), short_entry)
    for entry in entries():
        by_name |= dict.fromkeys((entry.word, *entry.also), entry)
    return by_name


@cache
def _by_plain_name() -> dict[str, Entry]:
    return {_plain(name): entry for name, entry in named().items()}


def _plain(word: str) -> str:
    return re.sub(r"[][\s_<|>-]", "", word).casefold()


def _parse_entry(part: str, text: str) -> Entry:
    """Return the entry of a text: its word in the first line, and blocks between blank lines."""
    word, body = text.split("\n", 1)
    also: tuple[str, ...] = ()
    source = ""
    blocks: list[Block] = []
    for block in re.split(r"\n\s*\n", body.strip("\n")):
        line = " ".join(block.split())
        if line.startswith("Also: "):
            names = line.removeprefix("Also: ")
            also = tuple(names.split(", "))
        elif line.startswith("From: "):
            source = line.removeprefix("From: ")
        elif block.startswith("    "):
            blocks += [Block("command", command.strip()) for command in block.split("\n")]
        elif block.startswith("- "):
            items = block.removeprefix("- ").split("\n- ")
            blocks += [_parse_item(item) for item in items]
        elif block.startswith("| "):
            blocks.append(Block("table", re.sub("^[|] ", "", block, flags=re.MULTILINE)))
        else:
            blocks.append(Block("prose", line))
    return Entry(word.strip(), part, also, tuple(blocks), source)


def _parse_item(item: str) -> Block:
    line = " ".join(item.split())
    name, colon, meaning = line.partition(": ")
    return Block("item", meaning, name) if colon else Block("item", line)

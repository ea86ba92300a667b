"""The words that embcli explains, read from `data/explain/`: a file for each part, an entry for each word.

An entry is a heading (`# one-hot`), perhaps a line of other names (`Also: one-hot row`), and blocks between blank
lines: a paragraph; commands, indented by four blanks; items, each a line `- name: text`; and at the end where a book
or a paper has it (`From: ...`). An item is a word of its own, too.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from embcli.errors import InputError

FOLDER = Path(__file__).parent / "data" / "explain"
_ALSO, _FROM = "Also: ", "From: "


@dataclass(frozen=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True)
class Command:
    """A command line as it is typed."""

    text: str


@dataclass(frozen=True)
class Item:
    """A name and what it means; without a name, a line of a list."""

    name: str
    text: str


@dataclass(frozen=True)
class Entry:
    """A word and its explanation."""

    word: str
    part: str  # the part of the glossary to which it belongs
    also: tuple[str, ...]  # other names of it
    blocks: tuple[Paragraph | Command | Item, ...]
    source: str  # where a book or a paper has it; empty if nowhere

    @property
    def text(self) -> str:
        """All paragraphs and items, a line each."""
        named = (f"{each.name}: " if isinstance(each, Item) and each.name else "" for each in self._prose)
        return "\n".join(name + each.text for name, each in zip(named, self._prose, strict=True))

    @property
    def examples(self) -> tuple[str, ...]:
        """The command lines."""
        return tuple(each.text for each in self.blocks if isinstance(each, Command))

    @property
    def items(self) -> list[Entry]:
        """Each item as an entry, which leads back to this one."""
        whole = Command(f"embcli explain {self.word}")
        items = [each for each in self.blocks if isinstance(each, Item) and each.name]
        return [Entry(each.name, self.part, (), (Paragraph(each.text), whole), "") for each in items]

    @property
    def _prose(self) -> list[Paragraph | Item]:
        return [each for each in self.blocks if not isinstance(each, Command)]


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, in the order of the book's chapter."""
    return tuple(entry for file in sorted(FOLDER.glob("*.md")) for entry in _read(file))


def find(word: str) -> Entry:
    """Return the entry of a word, of another name of it, or of an item.

    Capitals, blanks and hyphens do not count. Raises InputError, with the nearest words, for what is not explained.

    >>> find("One hot").word
    'one-hot'
    """
    known, asked = _known(), _plain(word)
    singular = asked.removesuffix("s")
    if entry := known.get(asked) or known.get(singular):
        return entry
    words = [known[part] for part in map(_plain, word.split()) if part in known]
    if len(words) == 1:
        return words[0]
    near = dict.fromkeys(entry.word for entry in words)
    near |= dict.fromkeys(known[name].word for name in difflib.get_close_matches(asked, known, 3, 0.6))
    nearest = f"the nearest: {', '.join(near)}" if near else "explain without a word lists all"
    raise InputError(f"word {word[:60]!r} is not explained; {nearest}", parameters=("word",))


@cache
def named() -> dict[str, Entry]:
    """Return what is explained, by all of its names; a word goes before an item of the same name."""
    items = {name: item for entry in entries() for item in entry.items for name in item.word.split(", ")}
    return items | {name: entry for entry in entries() for name in (entry.word, *entry.also)}


@cache
def _known() -> dict[str, Entry]:
    return {_plain(name): entry for name, entry in named().items()}


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]", "", word).casefold()


def _read(file: Path) -> list[Entry]:
    part, *texts = re.split(r"^# ", file.read_text("utf-8"), flags=re.MULTILINE)
    return [_entry(part.strip(), *text.split("\n", 1)) for text in texts]


def _entry(part: str, word: str, text: str) -> Entry:
    also, source = "", ""
    blocks: list[Paragraph | Command | Item] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if block.startswith(_ALSO):
            also = block.removeprefix(_ALSO)
        elif block.startswith(_FROM):
            source = " ".join(block.removeprefix(_FROM).split())
        elif block.startswith("    "):
            blocks += [Command(line.strip()) for line in lines]
        elif block.startswith("- "):
            blocks += [_item(" ".join(item.split())) for item in block.removeprefix("- ").split("\n- ")]
        else:
            blocks.append(Paragraph(" ".join(block.split())))
    return Entry(word.strip(), part, tuple(also.split(", ")) if also else (), tuple(blocks), source)


def _item(text: str) -> Item:
    name, colon, meaning = text.partition(": ")
    return Item(name, meaning) if colon else Item("", text)

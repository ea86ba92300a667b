"""Explanations: what a word on a page means, an example that runs, and where a book has it.

The words are read from `data/explain/`: a file for each part, an entry for each word. An entry is a
heading (`# one-hot`), perhaps a line of other names (`Also: one-hot row`), and blocks between blank
lines: a paragraph; commands, indented by four blanks; items, each a line `- name: text`; a table,
whose lines begin with `| `; and at the end where a book or a paper has it (`From: ...`). An item is
a word of its own, too.
"""

from __future__ import annotations

import difflib
import math
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
    r"\b(a|about|all|always|an|and|any|are|as|at|be|because|becomes?|between|by|can|could|differ"
    r"|differences?|different|differs|do|does|each|embcli|every|explain|find|for|from|get|gives?"
    r"|good|happens?|has|have|how|i|if|in|into|is|it|its|just|know|like|looks?|makes?|many|me"
    r"|means?|much|my|need|never|no|not|of|on|one|or|other|our|out|really|same|see|should|shows?|so"
    r"|such|takes?|tell|than|that|the|their|then|there|these|they|things?|this|those|three|to"
    r"|too|two|use|used|using|versus|vs|was|way|we|what|when|where|which|while|who|whole|why"
    r"|will|with|works?|would|you|your)\b"
)
# A question for a difference becomes "one vs another".
_DIFFERENCE = re.compile(r"\bdifferences? between (.+?) and\b", re.IGNORECASE)
_COMPARING = re.compile(r"\b(?:vs|versus|or|(?:differs?|different) from)\b", re.IGNORECASE)
_IN_NAME = 3  # the weight of a word in an entry's names
_IN_TEXT = 1
_NEARLY = 0.6  # the share of the best entry's score from which another one may be meant, too
_MOST_CANDIDATES = 3
_NEAR = 0.75  # how similar the spelling of a word must be to that of a known one, from 0 to 1


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
    def names(self) -> tuple[str, ...]:
        return self.word, *self.also

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
    """The entry of one word, of two that are compared, candidates, or the entries of all words."""

    entries: tuple[Entry, ...]
    are_candidates: bool = False  # whether each of the entries may be the one that is meant

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
        if self.are_candidates:
            yield from _candidates_page(self.entries)
        elif len(self.entries) > 2:
            yield from _list_page(self.entries)
        else:
            for place, entry in enumerate(self.entries):
                if place:
                    yield ""
                yield from _entry_page(entry)


def _list_page(entries: Iterable[Entry]) -> RenderResult:
    """Yield the words of each part, without their explanations."""
    for part, group in groupby(entries, lambda entry: entry.part):
        words = ", ".join(entry.word for entry in group)
        yield _item_text(Block("item", words, part))


def _candidates_page(entries: Iterable[Entry]) -> RenderResult:
    """Yield the first sentence of each entry."""
    yield "Several entries may answer; embcli explain WORD shows one:"
    for entry in entries:
        first_line, *_ = entry.text.split("\n")
        sentence, *_ = first_line.split(". ")
        yield _item_text(Block("item", sentence, entry.word))


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
    not count. A question finds the entry that has most of its words, or three at most if several
    have nearly as many; "one vs another" and "the difference between one and another" find both.
    Raises InputError, with the nearest words, for a word that is not explained.

    >>> explain("One hot").entries[0].word
    'one-hot'
    """
    if word is None:
        return Explanations(entries())
    known = _by_plain_name()
    word = str(word)
    name = word.rstrip("?!.,;")
    entry = named().get(name) or known.get(_plain(name))  # N is not n
    if entry is not None:
        return Explanations((entry,))
    question = _DIFFERENCE.sub(r"\1 vs", word)
    found = _answers(question)
    if not found:
        raise _not_explained(word, known)
    is_sure = len(found) == 1 or _COMPARING.search(question)
    return Explanations(tuple(found), are_candidates=not is_sure)


def _answers(question: str) -> list[Entry]:
    """Return the entries that answer a question; several if none of them is clearly the best.

    "One vs another" has the best of each side, unless the best of both has both in a name.
    """
    asked = _telling_words(question)
    best = _best(asked)
    sides = _COMPARING.split(question, 1)
    if len(sides) == 1:
        return best
    both: dict[Entry, None] = {}
    for side in sides:
        both |= dict.fromkeys(_best(_telling_words(side))[:1])
    for entry in best[:1]:
        if any(asked <= _telling_words(f"{entry.word} {name}") for name in entry.names):
            return [entry]
    return [*both]


def _best(asked: frozenset[str]) -> list[Entry]:
    """Return the entries with a name of just these words, or else those that have most of them.

    They are three at most, the best first, and only one if it is clearly the best.
    """
    best = [entry for entry in entries() if asked and asked in map(_telling_words, entry.names)]
    if not best:
        scores = {entry: _score(asked, weights) for entry, weights in _index().items()}
        least = _NEARLY * max(scores.values())
        best = [entry for entry in scores if scores[entry] >= least > 0]
        best.sort(key=scores.__getitem__, reverse=True)
    return best[:_MOST_CANDIDATES]


def _score(asked: frozenset[str], weights: Mapping[str, int]) -> float:
    """Return how much of a question an entry has; a word of few entries counts more."""
    return sum(weights[word] * _rarity(word) for word in asked & weights.keys())


@cache
def _rarity(word: str) -> float:
    """Return the inverse document frequency of a word that some entry has."""
    having = [weights for weights in _index().values() if word in weights]
    return math.log(len(_index()) / len(having))


@cache
def _index() -> dict[Entry, dict[str, int]]:
    """Return the words of each entry with their weights."""
    index = {}
    for entry in entries():
        weights = dict.fromkeys(_telling_words(entry.text), _IN_TEXT)
        index[entry] = weights | dict.fromkeys(_telling_words(" ".join(entry.names)), _IN_NAME)
    return index


def _telling_words(text: str) -> frozenset[str]:
    """Return the stems of the words that tell what a text is about, and numbers like 50256."""
    rest = _COMMON_WORDS.sub("", text.casefold())
    return frozenset(map(_stem, re.findall(r"[^\W_]*[^\W\d_][^\W_]*|\d{4,}", rest)))


def _stem(word: str) -> str:
    """Return a word without a plural's s, and without -ing, -ed and -e.

    >>> _stem("batches"), _stem("dropping"), _stem("drops")
    ('batch', 'drop', 'drop')
    """
    return re.sub(r"(?<=\w{3})(\w)\1?(ing|ed|e)$", r"\1", word.removesuffix("s"))


def _not_explained(word: str, known: Mapping[str, Entry]) -> InputError:
    """Return the error for an unknown word, with the nearest words that are known."""
    close = difflib.get_close_matches(_plain(word), known, cutoff=_NEAR)
    near = [known[name].word for name in close]
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
        by_name |= dict.fromkeys(entry.names, entry)
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

"""Explanations: what a word on a page means, an example that runs, and where a book has it.

The words are read from `data/explain/`: a file for each part, an entry for each word. An entry is a
heading (`# one-hot`), perhaps other names (`Also: one-hot row, one-hot vector`) and the questions
that it answers (`Asked: what does one-hot mean; why not use one-hot vectors`), and blocks between
blank lines: a paragraph; commands, indented by four blanks; items, each a line `- name: text`; a
table, whose lines begin with `| `; and at the end where a book or a paper has it (`From: ...`). An
item is a word of its own, too. The questions are not printed: a reader's own question is compared
with them.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from embcli.errors import InputError
from embcli.result import Result
from embcli.wording import Sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

FOLDER = Path(__file__).parents[1] / "data" / "explain"
# Words that do not tell what a question is about.
_COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all also always am an and any anything are as at be because become becomes
        before between by can could differ difference differences different differs do does each
        embcli every everything explain find for from get give gives good happen happens has have
        how i if in into is it its just know less like look looks make makes many me mean means
        more most much my need nothing of on one only or other our out really see should show
        shows so something such take takes tell than that the their then there these they thing
        things this those three to too two use used using versus vs was way we what when where
        whether which while who whole why will with work works would you your
        """,
    )
)
# A question for a difference becomes "one vs another".
_DIFFERENCE = re.compile(r"\bdifferences? between (.+?) and\b", re.IGNORECASE)
_COMPARING = re.compile(r"\b(?:vs|versus|or|(?:differs?|different) from)\b", re.IGNORECASE)
_OF_WORDS = 0.4  # the part of an entry's likeness that is of its words, not of one name or question
_SURE = 0.7  # the likeness from which an entry may stand alone
_LEAST = 0.3  # the likeness from which an entry is offered
_LEAD = 0.1  # how much more like a question the entry that answers it is than the next one
_MOST_CANDIDATES = 4
_TIE = 0.03  # entries whose likeness differs by less are equally like a question
_NEAR = 0.81  # how similar the spelling of a word must be to that of a known one, from 0 to 1


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
    asked: tuple[str, ...] = ()  # questions that it answers, and words that are not shown as names

    @property
    def names(self) -> tuple[str, ...]:
        return self.word, *self.also, *self.asked

    @property
    def text(self) -> str:
        """All paragraphs, items and tables, in lines."""
        lines = [block.line for block in self.blocks if block.kind != "command"]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Explanations(Result, verb="explain"):
    """The entry of one word, of two that are compared, candidates, or the entries of all words."""

    entries: tuple[Entry, ...]
    are_candidates: bool = False  # whether each of the entries may be the one that is meant
    see_also: tuple[Entry, ...] = ()  # the next ones like a question, after the one that answers

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
            if self.see_also:
                words = ", ".join(entry.word for entry in self.see_also)
                yield _item_text(Block("item", words, "See also"))


def _list_page(entries: Iterable[Entry]) -> RenderResult:
    """Yield the words of each part, without their explanations."""
    for part, group in groupby(entries, lambda entry: entry.part):
        words = ", ".join(entry.word for entry in group)
        yield _item_text(Block("item", words, part))


def _candidates_page(entries: Iterable[Entry]) -> RenderResult:
    """Yield the first sentence of each entry."""
    yield "The entries nearest to this question; embcli explain WORD shows one:"
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
    not count. A question finds the entry with the name or the question that is most like it, and
    names the next ones; or it finds four at most, as candidates, if several are nearly as like it
    or none is like enough; "one vs another" and "the difference between one and another" find both.
    Raises InputError, with the nearest words, for a word that is not explained.

    >>> explain("One hot").entries[0].word
    'one-hot'
    """
    if word is None:
        return Explanations(entries())
    word = str(word)
    name = word.rstrip("?!.,;")
    entry = named().get(name) or _by_plain_name().get(_plain(name))  # N is not n
    if entry is not None:
        return Explanations((entry,))
    answers = _answers(_DIFFERENCE.sub(r"\1 vs", word))
    if not answers.entries:
        raise _not_explained(word)
    return answers


def _answers(question: str) -> Explanations:
    """Return the entry that answers a question; candidates, if none of them surely does.

    "One vs another" has the entries of both sides, unless one entry has a name of just these words.
    """
    sides = [_nearest(_telling_words(side)) for side in _COMPARING.split(question, 1)]
    whole = _nearest(_telling_words(question), sure=_SURE if len(sides) == 1 else 1)
    if not whole.are_candidates or any(side.are_candidates for side in sides):
        return whole
    both = dict.fromkeys(side.entries[0] for side in sides)
    return Explanations(tuple(both))


def _nearest(asked: Set[str], sure: float = _SURE) -> Explanations:
    """Return the entry that is most like a question, or candidates; none if no entry is like it."""
    if not asked:
        return Explanations((), are_candidates=True)
    likeness = {entry: _likeness(asked, entry) for entry in entries()}
    best = max(likeness.values())
    least = max(_LEAST, 2 * best - 1)  # one that is twice as unlike as the best is not meant
    nearest = sorted(likeness, key=likeness.__getitem__, reverse=True)
    if best < sure and best - likeness[nearest[_MOST_CANDIDATES]] < _TIE:
        return Explanations((), are_candidates=True)  # its known words are in many entries
    near = [entry for entry in nearest[:_MOST_CANDIDATES] if likeness[entry] >= least]
    is_ahead = all(best - likeness[entry] >= _LEAD for entry in near[1:])
    if is_ahead and best >= sure:
        return Explanations(tuple(near[:1]), see_also=tuple(near[1:]))
    return Explanations(tuple(near), are_candidates=True)


def _likeness(asked: Set[str], entry: Entry) -> float:
    """Return how like a question an entry is, from 0 to 1.

    One part is the share of words that the question and the nearest of the entry's names and
    questions have in common; the other is the share of its words that the entry has at all.
    """
    size = _size(asked)
    of_phrases = []
    for phrase in _phrases()[entry]:
        common = _size(asked & phrase)
        of_phrases.append(2 * common / (size + _size(phrase)))
    of_words = _size(asked & _words()[entry]) / size
    return (1 - _OF_WORDS) * max(of_phrases) + _OF_WORDS * of_words


def _size(words: Iterable[str]) -> float:
    return math.fsum(map(_rarity, words))


@cache
def _rarity(word: str) -> float:
    """Return the weight of a word: the root of its smoothed inverse document frequency."""
    having = [words for words in _words().values() if word in words]
    return math.sqrt(1 + math.log((1 + len(entries())) / (1 + len(having))))


@cache
def _phrases() -> dict[Entry, list[frozenset[str]]]:
    """Return the words of each name and each question of the entries."""
    return {entry: [*map(_telling_words, entry.names)] for entry in entries()}


@cache
def _words() -> dict[Entry, frozenset[str]]:
    """Return all words of each entry."""
    return {entry: _telling_words(" ".join((entry.text, *entry.names))) for entry in entries()}


def _telling_words(text: str) -> frozenset[str]:
    """Return the stems of the words that tell what a text is about, and numbers like 50256."""
    words = re.findall(r"\w*[^\W\d_]\w*|\d{3,}", text.casefold())
    return frozenset(_stem(word) for word in words if word not in _COMMON_WORDS)


def _stem(word: str) -> str:
    """Return a word without a plural's s, and without -ing, -ed and -e.

    >>> _stem("batches"), _stem("dropping"), _stem("drops")
    ('batch', 'drop', 'drop')
    """
    return re.sub(r"(?<=\w{3})(\w)\1?(ing|ed|e)$", r"\1", word.removesuffix("s"))


def _not_explained(word: str) -> InputError:
    """Return the error for an unknown word, with the entries whose names are spelled like it."""
    word = word[:60]  # a screen's line has room for so much, and so much is compared quickly
    known = _by_plain_name()
    near: dict[str, None] = {}
    for part in word.split():
        if part.casefold() not in _COMMON_WORDS:
            close = difflib.get_close_matches(_plain(part), known, cutoff=_NEAR)
            near |= dict.fromkeys(known[name].word for name in close)
    nearest = "explain without one lists all"
    if near:
        nearest = f"the nearest: {', '.join(near)}"
    wrong = "{word} {given!r} is not explained; {nearest}"
    hint = ""
    if re.search(r"\S\s+\S|\?", word):
        hint = "embcli explain questions answers whole questions"
    return InputError(Sentence(wrong, given=word, nearest=nearest), hint)


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
    fields = dict.fromkeys(("Also", "Asked", "From"), "")
    blocks: list[Block] = []
    for block in re.split(r"\n\s*\n", body.strip("\n")):
        line = " ".join(block.split())
        field, _, value = line.partition(": ")
        if field in fields:
            fields[field] = value
        elif block.startswith("    "):
            blocks += [Block("command", command.strip()) for command in block.split("\n")]
        elif block.startswith("- "):
            items = block.removeprefix("- ").split("\n- ")
            blocks += [_parse_item(item) for item in items]
        elif block.startswith("| "):
            blocks.append(Block("table", re.sub("^[|] ", "", block, flags=re.MULTILINE)))
        else:
            blocks.append(Block("prose", line))
    also = filter(None, fields["Also"].split(", "))
    asked = filter(None, fields["Asked"].split("; "))
    return Entry(word.strip(), part, tuple(also), tuple(blocks), fields["From"], tuple(asked))


def _parse_item(item: str) -> Block:
    line = " ".join(item.split())
    name, colon, meaning = line.partition(": ")
    return Block("item", meaning, name) if colon else Block("item", line)

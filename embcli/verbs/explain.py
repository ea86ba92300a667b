"""Explanations: what a word on a page means, an example that runs, and where a book has it.

The words are read from `data/explain/`: a file for each part, an entry for each word. An entry is a
heading (`# one-hot`), its other names (`Also: one-hot row, one-hot vector`), the questions that it
answers (`Asked: what does one-hot mean; why not use one-hot vectors`), and blocks between blank
lines: a paragraph; commands, indented by four blanks; items, each a line `- name: text`; a
table, whose lines begin with `| `; and at the end where a book or a paper has it (`From: ...`). An
item is a word of its own, too. The questions are not printed: a reader's own question is compared
with them. The part "Answers" has entries for questions that no word's entry answers first; the list
of all words leaves it out.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, groupby
from typing import TYPE_CHECKING, Literal, NamedTuple

from embcli.errors import InputError
from embcli.names import Strings
from embcli.result import Result
from embcli.wording import DATA

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

FOLDER = DATA / "explain"
# Words that do not tell what a question is about.
_COMMON_WORDS = frozenset((DATA / "common_words.txt").read_text("utf-8").split())
# A question for a difference becomes "one vs another".
_DIFFERENCE = re.compile(r"\bdiff\w*rences? between (.+?) and\b", re.IGNORECASE)
_COMPARING = re.compile(r"\b(?:vs|versus|or|(?:differs?|different) from)\b", re.IGNORECASE)
_MARKS = "?!.,;\"'`\u2018\u2019\u201c\u201d"  # around a name

# How like a question an entry is: 1 if one of its own questions has the same words.
_SHARE_OF_TEXT = 0.4  # of an entry's text in that; its names and questions have the rest
_POWER = 6  # of the likenesses that are added: the higher, the more the best one counts
# How near entries must be, from 0 to 1.
_OFFERED = 0.35  # as a candidate; it must be half as near as the nearest, too
_AS_NEAR = 0.89  # to be as good as the nearest, as a share of its nearness
_CLEARLY_NEAR = 0.8  # if only a name is common to the question and the entry
_MOST_CANDIDATES = 5
_MOST_NEXT = 2  # entries that are named below one that answers
# How similar the spelling must be to that of what is known, from 0 to 1.
_SIMILAR_NAME = 0.83  # two letters in six are exchanged
_SIMILAR_WORD = 0.88  # in a question: one wrong letter in nine, one missing in five


class Block(NamedTuple):
    """A paragraph, a command line, an item of a list, or a table."""

    kind: Literal["prose", "command", "item", "table"]
    text: str
    name: str = ""  # the name of an item


@dataclass(frozen=True, eq=False)
class Entry:
    """What is explained of a word."""

    word: str
    part: str  # the part of the glossary to which it belongs
    blocks: list[Block]
    also: Sequence[str] = ()  # its other names
    asked: Sequence[str] = ()  # questions that it answers, and words that are not shown as names
    source: str = ""  # where a book or a paper has it

    @property
    def names(self) -> list[str]:
        return [self.word, *self.also, *self.asked]

    @property
    def text(self) -> str:
        """All paragraphs, items and tables, in lines."""
        return "\n".join(
            f"{block.name}: {block.text}" if block.name else block.text
            for block in self.blocks
            if block.kind != "command"
        )

    @cached_property
    def items(self) -> frozenset[str]:
        """The names of its items; paragraphs and commands have none, which is empty."""
        return frozenset(", ".join(block.name for block in self.blocks).split(", "))

    @cached_property
    def phrases(self) -> list[frozenset[str]]:
        """The stems of each name and each question."""
        return [*map(_telling_words, self.names)]

    def is_named_by(self, words: Set[str]) -> bool:
        """Return whether these have all stems of a name that is shown."""
        return any(set() < name <= words for name in self.phrases[: 1 + len(self.also)])

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of the text, the names and the questions."""
        return _telling_words(self.text).union(*self.phrases)


@dataclass(frozen=True, eq=False)
class Explanations(Result, verb="explain"):
    """The entry of one word, of two that are compared, candidates, or the entries of all words."""

    entries: tuple[Entry, ...]
    # Of candidates, each of which may be the one that is meant: the sentence that fits best.
    sentences: Strings = ()
    # Those that have an item of the entry's name, or the next ones like a question.
    see_also: tuple[Entry, ...] = ()

    @property
    def _subject(self) -> str:
        return " and ".join(entry.word for entry in self.entries[:2])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.sentences:
            yield "No entry surely answers this; nearest (embcli explain WORD shows an entry):"
        if len(self.sentences) > 1:
            for entry, sentence in zip(self.entries, self.sentences, strict=True):
                yield _item_text(entry.word, sentence)
            yield "\nThe first of them:"
            yield from _entry_page(self.entries[0])
        elif len(self.entries) > 2:
            for part, group in groupby(self.entries, lambda entry: entry.part):
                if part != "Answers":  # a question finds them
                    yield _item_text(part, ", ".join(entry.word for entry in group))
        else:
            for place, entry in enumerate(self.entries):
                if place:
                    yield ""
                yield from _entry_page(entry)
            if self.see_also:
                words = ", ".join(entry.word for entry in self.see_also)
                yield _item_text("See also", words)


def _entry_page(entry: Entry) -> RenderResult:
    from rich.padding import Padding

    from embcli.page import Drawing, safe_text, title

    other_names = f" ({', '.join(entry.also)})" if entry.also else ""
    yield title(entry.word).append_text(safe_text(other_names, "not bold dim"))
    for block in entry.blocks:
        if block.kind == "prose":
            yield safe_text(block.text)
        elif block.kind == "command":
            yield safe_text(f"  {block.text}", "accent")
        elif block.kind == "table":
            yield Drawing([safe_text(line) for line in block.text.split("\n")])
        else:
            yield Padding(_item_text(block.name, block.text), (0, 0, 0, 2))
    if entry.source:
        yield safe_text(f"Source: {entry.source}", "dim")


def _item_text(name: str, meaning: str) -> Text:
    from embcli.page import safe_text, title

    return title(name).append_text(safe_text(f": {meaning}", "not bold"))


def explain(word: str | None = None) -> Explanations:
    """Explain a word that a page prints, such as "one-hot"; without any, list all words.

    The entries are those of `embcli explain`. Capitals, blanks, hyphens and "explain" in front do
    not count, and a single word may be spelled a little wrong. A question finds the entry that
    answers it, if one is like it and ahead of all others, and names the next ones, or finds two
    that are level; otherwise at most five candidates, each with the sentence that fits best. "One
    vs another" and "the difference between one and another" find both. Raises InputError for a
    word that is not explained, and for a question that no entry is near.

    >>> explain("One hot").entries[0].word
    'one-hot'
    """
    if word is None:
        return Explanations(entries())
    question = str(word)
    entry = _entry_named(question)
    if entry is None:
        return _answer(question)
    others = [each for each in entries() if each is not entry and each.items & {*entry.names}]
    return Explanations((entry,), see_also=tuple(others))


def _entry_named(question: str) -> Entry | None:
    """Return the entry of a name, which a question may have around it or spell a little wrong."""
    known = _by_plain_name()
    for part in _parts(question):
        entry = named().get(part) or known.get(_plain(part))  # N is not n
        if entry is not None:
            return entry
    if len(_telling_words(question)) == 1:
        for name in difflib.get_close_matches(_plain(part), known, 1, _SIMILAR_NAME):
            return known[name]
    return None


def _answer(question: str) -> Explanations:
    """Return the entries that answer a question, or candidates; raises InputError without any."""
    compared = _DIFFERENCE.sub(r"\1 vs", question)
    asked = _asked_words(compared)
    near = _nearest(asked)
    if not near:
        raise InputError(
            "{word} {given!r} is not explained, and no entry is near it",
            "embcli explain lists all words, embcli explain questions common questions",
            given=question[:60],  # a screen's line has room for so much
        )
    # Both sides of a comparison, unless an entry has a question of just its words.
    answers = _answers(asked)
    if not any(asked in entry.phrases for entry in near):
        sides = [_answers(_asked_words(side)) for side in _COMPARING.split(compared, 1)]
        both = list(dict.fromkeys(chain(*sides)))
        if all(sides) and len(both) == 2:
            answers = both
    if answers:
        others = [entry for entry in near if entry not in answers]
        return Explanations(tuple(answers), see_also=tuple(others[:_MOST_NEXT]))
    sentences = []
    for entry in near:
        # The sentence that has most of the question's words, the first of equals.
        all_sentences = re.split(r"(?<=[.?]) |\n", entry.text)
        sentences.append(max(all_sentences, key=lambda each: _size(asked & _telling_words(each))))
    return Explanations(tuple(near), tuple(sentences))


def _parts(question: str) -> Iterator[str]:
    """Yield a question, and what is left of it as common words in front and at the end are removed.

    >>> [*_parts("What does 'stride' do?")]
    ["What does 'stride' do", 'does stride do', 'stride do', 'stride']
    """
    yield question.rstrip(_MARKS)
    words = [word.strip(_MARKS) for word in question.split()]
    for end in (0, -1):
        while len(words) > 1 and words[end].casefold() in _COMMON_WORDS:
            del words[end]
            yield " ".join(words)


def _answers(asked: frozenset[str]) -> list[Entry]:
    """Return the entry that surely answers a question, or two of which each may.

    An entry with a question of the same words does. Otherwise those do that are about as near as
    the nearest, and those with the rarest word of the question as a name. Each of them needs two
    of the question's words in one of its own questions: a single word does not tell what is asked
    about it, unless it is a name, and the question is near enough to some entry.
    """
    near = _nearest(asked)
    if not near:
        return []
    best = max(near.values())
    rarest = max(sorted(asked), key=_rarity)
    leading = [entry for entry in near if entry.is_named_by({rarest})]
    leading += [entry for entry in near if near[entry] >= _AS_NEAR * best and entry not in leading]
    same = [entry for entry in near if asked in entry.phrases]
    if len(same) == 1:
        leading = same
    for entry in leading:
        has_two = any(len(asked & phrase) > 1 for phrase in entry.phrases)
        if not has_two and (best < _CLEARLY_NEAR or not entry.is_named_by(asked)):
            return []
    return leading if len(leading) <= 2 else []


@cache
def _nearest(asked: frozenset[str]) -> dict[Entry, float]:
    """Return the entries near to a question, at most five, the nearest first: how near each is.

    That is how like the question the entry is, times the share of the question's words that are in
    any entry. So words that no entry has tell that a question is about something else.
    """
    if not asked:
        return {}
    share = _size(asked & _known_words()) / _size(asked)
    nearness = {entry: share * _likeness(asked, entry) for entry in entries()}
    least = max(_OFFERED, max(nearness.values()) / 2)
    nearest = Counter(nearness).most_common(_MOST_CANDIDATES)
    return {entry: near for entry, near in nearest if near >= least}


def _asked_words(question: str) -> frozenset[str]:
    """Return the telling words of a question; one with a typo as the known word that it is like."""
    return frozenset(map(_known_word, _telling_words(question)))


@cache
def _known_word(word: str) -> str:
    if word in _known_words():
        return word
    [known] = difflib.get_close_matches(word, _known_words(), 1, _SIMILAR_WORD) or [word]
    return known


@cache
def _known_words() -> frozenset[str]:
    return frozenset().union(*[entry.stems for entry in entries()])


def _likeness(asked: frozenset[str], entry: Entry) -> float:
    """Return how like a question an entry is: about 1 if it has a question of the same words.

    One part is the share of words that the question has in common with the names and questions of
    the entry: with the nearest above all, but several near ones count for more than one. The other
    is the share of its words that the entry has at all.
    """
    size = _size(asked)
    shared = [phrase for phrase in entry.phrases if not asked.isdisjoint(phrase)]  # one in twenty
    alike = [2 * _size(asked & phrase) / (size + _size(phrase)) for phrase in shared]
    of_phrases = math.pow(math.fsum(each**_POWER for each in alike), 1 / _POWER)
    of_words = _size(asked & entry.stems) / size
    return (1 - _SHARE_OF_TEXT) * of_phrases + _SHARE_OF_TEXT * of_words


@cache
def _size(words: frozenset[str]) -> float:
    return math.fsum(map(_rarity, words))


@cache
def _rarity(word: str) -> float:
    """Return the weight of a word: the root of its smoothed inverse document frequency."""
    having = [entry for entry in entries() if word in entry.stems]
    return math.sqrt(1 + math.log((1 + len(entries())) / (1 + len(having))))


def _telling_words(text: str) -> frozenset[str]:
    """Return the stems of the words that tell what a text is about, numbers like 50256 and -0.0."""
    # GPT-2 is gpt2, and 1,132 is 1132.
    text = re.sub(r"(?<=[a-z])-(?=\d)|(?<=\d),(?=\d{3}\b)", "", text.casefold())
    words = re.findall(r"(?<!\w['\u2019])\b\w*[^\W\d_]\w*|-?\d+\.\d+|\d{3,}", text)
    return frozenset(_stem(word) for word in words if word not in _COMMON_WORDS)


def _stem(word: str) -> str:
    """Return a word without a plural's s, and without -ing, -ed and -e.

    >>> _stem("batches"), _stem("dropping"), _stem("drops")
    ('batch', 'drop', 'drop')
    """
    return re.sub(r"(?<=\w{3})(\w)\1?(ing|ed|e)$", r"\1", word.removesuffix("s"))


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
    """Return what is explained, by all names; a word wins over an item of the same name.

    The page of the one and of the other names the entries that have such an item.
    """
    of_items: dict[str, Entry] = {}
    of_entries: dict[str, Entry] = {}
    for entry in entries():
        of_entries |= dict.fromkeys(entry.names, entry)
        for item in entry.blocks:
            if item.name:
                names = item.name.split(", ")
                meaning = [Block("prose", item.text)]
                of_items |= dict.fromkeys(names, Entry(item.name, entry.part, meaning, asked=names))
    return of_items | of_entries


@cache
def _by_plain_name() -> dict[str, Entry]:
    return {_plain(name): entry for name, entry in named().items()}


def _plain(word: str) -> str:
    return re.sub(r"[][\s_<|>\"]|(?<=\w)-", "", word).casefold()


_FIELD = re.compile(r"^(Also|Asked|From): (.+(?:\n.+)*)\n*", re.MULTILINE)


def _parse_entry(part: str, text: str) -> Entry:
    """Return the entry of a text: its word in the first line, then fields and blocks."""
    fields = {name: " ".join(value.split()) for name, value in _FIELD.findall(text)}
    word, *blocks = re.split(r"\n{2,}|\n(?=- |    )", _FIELD.sub("", text).rstrip())
    return Entry(
        word,
        part,
        [*map(_parse_block, blocks)],
        also=fields["Also"].split(", "),
        asked=fields["Asked"].split("; "),
        source=fields.get("From", ""),
    )


def _parse_block(text: str) -> Block:
    line = " ".join(text.split())
    if text.startswith("| "):
        return Block("table", re.sub("^[|] ", "", text, flags=re.MULTILINE))
    if text.startswith("    "):
        return Block("command", text.strip())
    if text.startswith("- "):
        name, _, meaning = line.removeprefix("- ").partition(": ")
        return Block("item", meaning, name)
    return Block("prose", line)

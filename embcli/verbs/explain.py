"""Explanations: what a word on a page means, an example that runs, and where a book or a paper has it."""

from __future__ import annotations

from dataclasses import dataclass

from embcli import glossary
from embcli.glossary import Entry
from embcli.records import Records, listed
from embcli.result import Result
from embcli.version import __version__


@dataclass(frozen=True, eq=False)
class Explanations(Result, verb="explain", content="list"):
    """The entry of one word, or the entries of all words."""

    entries: tuple[Entry, ...]
    is_list: bool  # whether the page lists the words only

    def records(self) -> Records:
        """Return the entries as rows."""
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


def explain(word: str | None = None) -> Explanations:
    """Explain a word that a page prints, such as "one-hot"; without any, list all words.

    The entries are those of `embcli explain`. Raises InputError for a word that is not explained, with its nearest.

    >>> explain("stride").entries[0].word
    'stride'
    """
    return Explanations(glossary.entries() if word is None else (glossary.find(word),), is_list=word is None)

"""The line below a page: options that show what the page leaves out, or other numbers.

`output` asks for it when a table goes to standard output. It chooses by the parameters that the
notes of the page name, never by what is printed; the suggestions are in `data/suggestions.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from embcli.page import Hint, Note
from embcli.wording import load_facts


def suggestions(verb: str, known: Collection[str], notes: Sequence[Note | Hint]) -> str:
    """Return a sentence about options that a page makes useful; empty if there are none.

    `known` are the options of the command.

    >>> suggestions("weights", ("columns",), [Hint(["columns"], leaves_out=True)])
    '--columns picks columns; -f npy has all.'
    >>> suggestions("weights", ("sort",), [Note("Only these rows were read.", "sort")])
    '--sort norm reads all rows.'
    """
    facts = load_facts("suggestions.json")
    parameters = chain.from_iterable(note.parameters for note in notes)
    found = [facts["options"].get(name) for name in parameters if name in known]
    if any(note.leaves_out for note in notes):
        found.append(facts["formats"].get(verb))
    found.append(facts["words"].get(verb))
    words = "; ".join(dict.fromkeys(filter(None, found)))
    return words and f"{words}."

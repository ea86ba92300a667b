"""The line below a page: options that show what the page leaves out, or other numbers.

`output` asks for it when a table goes to standard output. It chooses by the parameters that the
notes of the page name, never by what is printed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from embcli.page import LeftOut

if TYPE_CHECKING:
    from embcli.page import Hint, Note

# What an option does, by the parameter that a note names.
_DO = {
    "columns": "--columns picks columns",
    "precision": "--precision sets the decimals",
    "only": "--only picks tokens",
    "rows": "--rows picks rows",
    "top": "-k N shows more",
    "tensors": "--tensors lists all",
    "show": "--show NAMES picks steps",
    "draw": "--draw shows whole tokens",
    "merges": "--no-draw lists the merges in order",
    "index": "--index K picks another batch",
    "keep_last": "--keep-last keeps incomplete batches",
    "tensor": "--tensor or --encoding name others",
    "sort": "--sort norm reads all rows",
    "layer": "--layer head shows the output heads",
    "path": "--from MODEL reads a real model",
}
_HAS_ALL = {  # the verbs whose results have everything in another format
    "batch": "-o FILE.npy has all",
    "lookup": "-f npy has all",
    "positions": "-f npy has all",
    "weights": "-f npy has all",
    "count": "-f csv has all",
    "tokenize": "-f tsv has all",
    "tokenizers": "-f ndjson has all",
    "merges": "-f ndjson has all",
    "neighbors": "-f ndjson has all",
}
_EXPLAINED = ("audit", "diff")  # verbs whose pages use words of their own


def suggestions(verb: str, known: Collection[str], notes: Sequence[Note | Hint]) -> str:
    """Return a sentence about options that a page makes useful; empty if there are none.

    `known` are the options of the command.

    >>> suggestions("weights", ("columns",), [LeftOut("columns 4 to 253", "columns")])
    '--columns picks columns; -f npy has all.'
    >>> from embcli.page import Note
    >>> suggestions("weights", ("sort",), [Note("Only these rows were read.", "sort")])
    '--sort norm reads all rows.'
    """
    found = []
    for note in notes:
        found += [_DO[name] for name in note.parameters if name in known and name in _DO]
    is_partial = any(isinstance(note, LeftOut) or "format" in note.parameters for note in notes)
    if is_partial and verb in _HAS_ALL:
        found.append(_HAS_ALL[verb])
    if verb in _EXPLAINED:
        found.append(f"embcli explain {verb} explains the words")
    if not found:
        return ""
    return f"{'; '.join(dict.fromkeys(found))}."

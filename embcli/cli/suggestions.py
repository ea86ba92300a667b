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

# What options do, by the parameters that a note names.
_DO = {
    ("columns",): "--columns picks columns",
    ("only",): "--only picks tokens",
    ("only", "columns"): "--only, --columns pick more",
    ("rows", "columns"): "--rows, --columns pick more",
    ("top",): "-k N shows more",
    ("tensors",): "--tensors lists all",
    ("show",): "--show NAMES picks steps",
    ("draw",): "--draw shows whole tokens",
    ("index",): "--index K picks another batch",
    ("keep_last",): "--keep-last keeps incomplete batches",
    ("tensor", "encoding"): "--tensor or --encoding name others",
    ("layer",): "--layer head shows the output heads",
    ("path",): "--from MODEL reads a real model",
}
_WITHOUT_FROM = "lookup --from MODEL reads real rows"
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
    """
    found = _for_omissions(verb, known, [note for note in notes if isinstance(note, LeftOut)])
    for note in notes:
        if not isinstance(note, LeftOut) and note.parameters:
            found += _for_note(verb, known, note.parameters)
    if verb in _EXPLAINED:
        found.append(f"embcli explain {verb} explains the words")
    if not found:
        return ""
    return f"{'; '.join(dict.fromkeys(found))}."


def _for_omissions(verb: str, known: Collection[str], omissions: Sequence[LeftOut]) -> list[str]:
    """Return what shows the things that a page leaves out."""
    if not omissions:
        return []
    found = []
    parameters = dict.fromkeys(name for note in omissions for name in note.parameters)
    usable = tuple(name for name in parameters if name in known)
    if usable in _DO:
        found.append(_DO[usable])
    else:
        found += [_DO[(name,)] for name in usable if (name,) in _DO]
    if verb in _HAS_ALL:
        found.append(_HAS_ALL[verb])
    return found


def _for_note(verb: str, known: Collection[str], parameters: tuple[str, ...]) -> list[str]:
    """Return what changes the thing that a note with these parameters is about."""
    if parameters == ("format",):
        return [_HAS_ALL[verb]]
    if {*parameters} <= {*known}:
        return [_DO[parameters]]
    if parameters == ("path",):
        return [_WITHOUT_FROM]
    return []

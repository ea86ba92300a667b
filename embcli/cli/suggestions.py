"""The line below a page on standard output: options that show what the page leaves out, or other numbers."""

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
    ("keep_last",): "--keep-last keeps incomplete batches",
    ("tensor", "encoding"): "--tensor or --encoding name others",
    ("path",): "--from MODEL reads a real model",
}
_WITHOUT_FROM = "lookup --from MODEL reads real rows"
_HAS_ALL = {  # the verbs whose results have everything in another format
    "batch": "-o FILE.npy has all",
    "lookup": "-f npy has all",
    "positions": "-f npy has all",
    "weights": "-f npy has all",
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
    found: list[str] = []
    omitted = [note for note in notes if isinstance(note, LeftOut)]
    if omitted:
        parameters = dict.fromkeys(
            name for note in omitted for name in note.parameters if name in known
        )
        found += [_DO[tuple(parameters)]] if parameters else []
        found += [_HAS_ALL[verb]] if verb in _HAS_ALL else []
    for note in notes:
        if note in omitted or not note.parameters:
            continue
        if note.parameters == ("format",):
            found.append(_HAS_ALL[verb])
        elif {*note.parameters} <= {*known}:
            found.append(_DO[note.parameters])
        elif note.parameters == ("path",):
            found.append(_WITHOUT_FROM)
    if verb in _EXPLAINED:
        found.append(f"embcli explain {verb} explains the words")
    return f"{'; '.join(dict.fromkeys(found))}." if found else ""

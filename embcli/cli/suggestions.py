"""The last line below a page: what to type to see more, by what the page says."""

import re

_MORE = {  # by verb: options for what a page leaves out, and a format that has everything
    "batch": {"column": "--columns picks columns", "": "-f npy -o FILE has all"},
    "compare": {"Not shown": "--show NAMES picks steps"},
    "lookup": {"column": "--columns picks columns", "": "-f npy has all"},
    "merges": {"": "-f ndjson has all"},
    "neighbors": {"": "-f ndjson has all"},
    "positions": {"row": "--rows picks rows", "column": "--columns picks columns", "": "-f npy has all"},
    "tokenize": {"": "-f tsv has all"},
    "tokenizers": {"": "-f ndjson has all"},
    "weights": {"row": "--rows picks rows", "column": "--columns picks columns", "": "-f npy has all"},
    "audit": {"": "-k N shows more"},
    "diff": {"": "-k N shows more"},
}


def suggestions(verb: str, page: str) -> str:
    """Return a sentence about options that a page makes useful; empty if there are none.

    >>> suggestions("weights", "Left out: columns 4 to 253 (250 of 256).")
    '--columns picks columns; -f npy has all.'
    """
    omitted = " ".join(re.findall(r"^ *((?:Left out|Not shown)[^.]*)", page, re.MULTILINE))
    found = [words for what, words in _MORE.get(verb, {}).items() if omitted and what in omitted]
    if "\nA guess: " in page:
        found.append("--tensor or --encoding name others")
    if "\nUntrained: " in page:
        found.append("lookup --from MODEL reads a real model" if verb == "batch" else "--from MODEL reads a real model")
    if verb in ("audit", "diff"):
        found.append(f"embcli explain {verb} explains the words")
    return f"{'; '.join(found)}." if found else ""

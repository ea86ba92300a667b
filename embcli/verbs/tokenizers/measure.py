"""Where encodings cut texts: the ends of their tokens, and the segments between shared cuts.

Places are counted in bytes of all texts; one more place is between two texts, so that the end of
one is not the beginning of the next. `bases` are the places where the texts begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from embcli.tokens import Tokens


def segments_of(ends: Sequence[np.ndarray], bases: np.ndarray) -> np.ndarray:
    """Return which segments between shared cuts are one token in all encodings, (n,) bool.

    A text ends with a segment even if the encodings do not share their last cut in it.
    """
    shared_cuts = reduce(np.intersect1d, ends)
    cuts = np.setdiff1d(reduce(np.union1d, ends), bases)  # A token without text is no cut.
    # The last cut in a text is the last one before the next text begins.
    last_cuts = np.append(0, cuts)[np.searchsorted(cuts, bases[1:])]
    stops = np.setdiff1d(np.union1d(shared_cuts, last_cuts), bases)
    cuts_within = np.diff(np.searchsorted(cuts, stops), prepend=-1)
    is_same: np.ndarray = (cuts_within == 1) & np.isin(stops, shared_cuts)
    return is_same


def token_ends(tokens: Tokens, texts: Sequence[str], bases: np.ndarray) -> np.ndarray:
    """Return the place where each token of the texts ends, (T,) int64."""
    ends: np.ndarray = np.cumsum(tokens.measured(len))
    bytes_before_text = np.append(0, ends)[tokens.starts[:-1]]
    ends += np.repeat(bases[:-1] - bytes_before_text, np.diff(tokens.starts))
    if tokens.spans is None:
        return ends

    # The bytes of such tokens can differ from those of the text.
    starts = tokens.starts.tolist()
    for number, text in enumerate(texts):
        part = slice(starts[number], starts[number + 1])
        data = text.encode()
        spelled = b"".join(token or b"" for token in tokens.bytes_of(tokens.ids[part]))
        if spelled == b" " + data:
            # The encoding adds a space before each text.
            ends[part] -= 1
        elif spelled != data:
            ends[part] = bases[number] + _ends_by_spans(tokens.spans[part], data)
    return ends


def _ends_by_spans(spans: np.ndarray, data: bytes) -> np.ndarray:
    """Return the byte of a text where each span of characters, (T, 2), ends; these never decrease.

    `data` is the text in UTF-8, in which all bytes of a character but the first are 10xxxxxx.
    """
    begins_character = np.frombuffer(data, np.uint8) & 0xC0 != 0x80
    character_starts = np.append(np.flatnonzero(begins_character), len(data))
    return np.maximum.accumulate(character_starts[spans[:, 1]])

"""Where encodings cut texts: the ends of their tokens, and the segments between shared cuts.

Places are counted in bytes of all texts; one more place is between two texts, so that the end of
one is not the beginning of the next. `bases` are the places where the texts begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from embcli.tokens import Tokens


class Segment(NamedTuple):
    """A part of a text between two places where all encodings cut."""

    sequence: int  # the number of its text
    start: int  # the character of that text where it begins
    is_same: bool  # whether it is one token in all encodings
    tokens: list[list[bytes]]  # by encoding
    ends: list[list[int]]  # by encoding: where its tokens end, in bytes from its start


class Bounds(NamedTuple):
    """Where the segments of all texts begin and end."""

    starts: np.ndarray  # (n,) int64
    stops: np.ndarray  # (n,) int64
    is_same: np.ndarray  # (n,) bool: whether the segment is one token in all encodings


def segment_bounds(ends: Sequence[np.ndarray], bases: np.ndarray) -> Bounds:
    """Return the segments between the cuts that all encodings make, from the ends of their tokens.

    A text ends with a segment even if the encodings do not share their last cut in it.
    """
    shared_cuts = reduce(np.intersect1d, ends)
    cuts = reduce(np.union1d, ends)
    # The last cut in a text is the last one before the next text begins.
    last_cuts = np.append(0, cuts)[np.searchsorted(cuts, bases[1:])]
    stops = np.union1d(shared_cuts, last_cuts)
    text_starts = bases[np.searchsorted(bases, stops, "right") - 1]
    has_bytes = stops > text_starts
    stops = stops[has_bytes]
    text_starts = text_starts[has_bytes]

    previous_stops = np.append(0, stops)[:-1]
    starts = np.maximum(previous_stops, text_starts)
    cuts_within = np.searchsorted(cuts, stops, "right") - np.searchsorted(cuts, starts, "right")
    is_same = (cuts_within == 1) & np.isin(stops, shared_cuts)
    return Bounds(starts, stops, is_same)


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

"""One text under several tokenizers: how many tokens each makes of it, and where they cut it differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.notes import Notes
from embcli.records import Names, Piece, Records
from embcli.result import Result
from embcli.text import Sequences
from embcli.tokens import Tokens, tokenize
from embcli.verbs.tokenize import Tokenization
from embcli.version import __version__

_MOST = 100  # encodings: their cuts are counted in a byte


@dataclass(frozen=True, eq=False)
class Segment:
    """A part of a text between two places where all encodings cut: the tokens that each makes of it."""

    sequence: int
    start: int  # character of its text
    tokens: list[list[bytes]]  # by encoding
    ends: list[list[int]]  # of these tokens, in bytes from the start of the part

    @property
    def is_same(self) -> bool:
        """Whether it is one token in all encodings."""
        return len({*self.ends[0]}) == 1 and len({frozenset(ends) for ends in self.ends}) == 1


@dataclass(frozen=True, eq=False)
class Tokenizers(Result, verb="tokenizers", content="list"):
    """The tokens of a text, or of several, in each encoding.

    Places are counted in bytes of all texts; one more place is between two texts. A token extends from the end of the
    previous one, so that spaces which an encoding drops belong to the token after them.
    """

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    tokens: tuple[Tokens, ...]  # in each encoding
    ends: tuple[np.ndarray, ...]  # (T,) unsigned: the place where each token ends, in each encoding
    cuts: np.ndarray  # (places,) uint8: how many encodings cut at a place
    bases: np.ndarray  # (texts + 1,) int64: the place where each text begins, and one after the last

    @property
    def names(self) -> list[str]:
        """The names of the encodings."""
        return [encoding.name for encoding in self.encodings]

    @property
    def counts(self) -> list[int]:
        """How many tokens each encoding makes."""
        return [len(tokens) for tokens in self.tokens]

    @property
    def characters(self) -> int:
        """The number of characters of all texts."""
        return sum(map(len, self.texts))

    @property
    def size(self) -> int:
        """The number of bytes of all texts."""
        return len(self.cuts) - len(self.bases)

    @cached_property
    def _places(self) -> np.ndarray:
        """All places where any encoding cuts, (n,) unsigned."""
        return np.flatnonzero(self.cuts).astype(self.ends[0].dtype)

    @cached_property
    def _shared(self) -> np.ndarray:
        """The indices in `_places` of those where all encodings cut, (m,) int64."""
        return np.flatnonzero(self.cuts[self._places] == len(self.tokens))

    @cached_property
    def _opens(self) -> np.ndarray:
        """Whether a text begins at the end of each segment, (m - 1,) bool; such a segment is empty or lacks tokens."""
        begins = np.zeros(len(self._places), bool)
        begins[np.searchsorted(self._places, self.bases)] = True
        return np.asarray(begins[self._shared[1:]])

    @property
    def same(self) -> int:
        """How many tokens are the same in all encodings."""
        return int(((np.diff(self._shared) == 1) & ~self._opens).sum())

    @property
    def different(self) -> int:
        """How many segments of the text are cut differently."""
        return int((np.diff(self._shared) > 1).sum())

    def segments(self, different: bool = False) -> Iterator[Segment]:
        """Yield the segments of the text between shared cuts, or only those that are cut differently."""
        is_cut = np.diff(self._shared) > 1
        opened = -1  # the sequence whose characters are counted
        for k in np.flatnonzero(is_cut if different else is_cut | ~self._opens):  # a list of these would be large
            start, stop = self._places[self._shared[k : k + 2]].tolist()
            sequence = int(np.searchsorted(self.bases, start, side="right")) - 1
            base = int(self.bases[sequence])
            if sequence != opened:
                opened, read, characters = sequence, 0, 0
                data = np.frombuffer(self.texts[sequence].encode(), np.uint8)
            characters += int(np.count_nonzero(data[read : start - base] & 0xC0 != 0x80))
            read = start - base
            is_inside = data[read] & 0xC0 == 0x80  # a character
            yield self._segment(sequence, characters - int(is_inside), start, stop - int(self._opens[k]))

    def _segment(self, sequence: int, character: int, start: int, stop: int) -> Segment:
        groups: list[list[bytes]] = []
        places: list[list[int]] = []
        for tokens, ends in zip(self.tokens, self.ends, strict=True):
            opens = start == self.bases[sequence]
            first = int(tokens.starts[sequence]) if opens else int(np.searchsorted(ends, start, side="right"))
            last = int(np.searchsorted(ends, stop, side="right"))
            groups.append([token or b"" for token in tokens.bytes_at(np.arange(first, last))])
            places.append([end - start for end in ends[first:last].tolist()])
        return Segment(sequence, character, groups, places)

    def records(self) -> Records:
        """Return the tokens of each encoding as rows, one encoding after the other."""
        fields = {"encoding": str, **Tokenization(self.tokens[0]).records().fields, "common": bool}
        summary = [
            {
                "encoding": encoding.name,
                "vocabulary_size": encoding.vocabulary_size,
                "tokens": count,
                "characters_per_token": self.characters / count if count else None,
            }
            for encoding, count in zip(self.encodings, self.counts, strict=True)
        ]
        run = {"embcli": __version__, "sequences": len(self.texts), "characters": self.characters, "bytes": self.size}
        run |= {"same": self.same, "different": self.different}
        return Records(run, "tokens", sum(self.counts), fields, self._pieces, more={"encodings": summary})

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        own = tuple(name for name in fields if name not in ("encoding", "common"))
        for number, (name, tokens) in enumerate(zip(self.names, self.tokens, strict=True)):
            first = 0
            for piece in Tokenization(tokens).records().pieces(own, ()):
                index = np.arange(first, first + piece.rows)
                values = {"encoding": [name] * piece.rows, **piece.fields, "common": self.common(number, index)}
                yield Piece(piece.rows, {name: values[name] for name in fields})
                first += piece.rows

    def common(self, number: int, index: np.ndarray) -> np.ndarray:
        """Return which tokens of an encoding, (n,) int64, extend over the same text in all encodings, (n,) bool."""
        tokens, ends = self.tokens[number], self.ends[number]
        sequence, position = tokens.places(index)
        start = np.where(position == 0, self.bases[sequence], ends[index - 1])
        place = np.searchsorted(self._places, ends[index])
        is_shared = self.cuts[start] == len(self.tokens), self.cuts[ends[index]] == len(self.tokens)
        return np.asarray((self._places[place - 1] == start) & is_shared[0] & is_shared[1])


def tokenizers(given: Sequences, encodings: Sequence[Encoding], special: bool, notes: Notes) -> Tokenizers:
    """Return the tokens of texts in each encoding, and where they cut the texts.

    Raises InputError for IDs, for an encoding that is given twice, and for none or too many.
    """
    names = [encoding.name for encoding in encodings]
    if given.texts is None:
        raise InputError("only a text can be split by several tokenizers, not IDs")
    if not 1 <= len(names) <= _MOST:
        raise InputError(
            f"encoding must name from 1 to {_MOST} tokenizers, not {len(names):,}", parameters=("encoding",)
        )
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"encoding names {twice} twice; give each tokenizer once", parameters=("encoding",))
    bases = np.cumsum([0, *(len(text.encode(errors="replace")) + 1 for text in given.texts)])
    tokens = tuple(tokenize(given, encoding, special, spans=True, around=False) for encoding in encodings)
    if not any(map(len, tokens)):
        notes.add("the input is empty: there are no tokens")
    ends = tuple(_ends(each, given.texts, bases) for each in tokens)
    cuts = np.zeros(int(bases[-1]) + 1, np.uint8)
    for places in ends:
        is_cut = np.zeros(len(cuts), bool)
        is_cut[places] = True
        cuts += is_cut
    cuts[bases] = len(encodings)
    return Tokenizers(given.texts, tuple(encodings), tokens, ends, cuts, bases, notes=notes)


def _ends(tokens: Tokens, texts: tuple[str, ...], bases: np.ndarray) -> np.ndarray:
    """Return the place where each token ends, (T,) unsigned."""
    is_used = np.zeros(int(tokens.ids.max(initial=0)) + 1, bool)
    is_used[tokens.ids] = True
    used = np.flatnonzero(is_used)
    lengths = np.zeros(len(is_used), np.int64)  # by ID
    lengths[used] = [len(token or b"") for token in tokens.bytes_of(used)]
    ends = lengths[tokens.ids]
    for place, token in tokens.spelled.items():
        ends[place] = len(token)
    np.cumsum(ends, out=ends)
    before = np.append(0, ends)[tokens.starts[:-1]]  # each text, in the bytes of all tokens
    for first, last, shift in zip(tokens.starts, tokens.starts[1:], bases[:-1] - before, strict=False):
        ends[first:last] += shift
    if tokens.spans is not None:  # the bytes of the tokens may differ from those of the text
        for text, base, (first, last) in zip(texts, bases.tolist(), pairwise(tokens.starts.tolist()), strict=False):
            data = text.encode()
            spelled = b"".join(token or b"" for token in tokens.bytes_at(np.arange(first, last)))
            if spelled == b" " + data:  # a space that the encoding adds before each text
                ends[first:last] -= 1
            elif spelled != data:
                begins = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) & 0xC0 != 0x80), len(data))
                ends[first:last] = base + np.maximum.accumulate(begins[tokens.spans[first:last, 1]])
    return np.asarray(ends.astype(np.min_scalar_type(int(bases[-1]))))

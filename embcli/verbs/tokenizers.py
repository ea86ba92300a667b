"""One text under several tokenizers: how many tokens each makes of it, and where they cut it differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, Notes
from embcli.names import __version__
from embcli.records import Names, Piece, Records
from embcli.result import Result
from embcli.text import Sequences
from embcli.tokens import Tokens, shown, tokenize
from embcli.verbs.tokenize import Tokenization
from embcli.words import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Label

_LONGEST_NAME = 16  # cells of a name beside the text; if one is longer, numbers stand for the names
_LONGEST_TOKEN = 18  # cells
_LINES = 7  # of a page, without its rows of encodings
_CUT = "│"
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
            groups.append([token or b"" for token in tokens.bytes_of(tokens.ids[first:last])])
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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from embcli.page import Label, left_out, lines_of, ruled, title, words

        names = [words(name) for name in self.names]
        is_long = max(name.cell_len for name in names) > _LONGEST_NAME
        numbers = [Text(str(number)) for number in range(1, len(names) + 1)]
        labels = numbers if is_long else names
        most = max((lines_of(console) - _LINES - len(labels)) // (len(labels) + 1), 1)
        several = len(self.texts) > 1
        longest = Text(f"line {len(self.texts)}, char" if several else "char")
        available = options.max_width - max(label.cell_len for label in (*labels, longest)) - 1
        rows = list(islice(_rows(self.segments(), available), most + 1))
        is_whole = len(rows) <= most
        if not is_whole and self.different:
            rows = list(islice(_rows(self.segments(different=True), available), most + 1))
        legend = f": {_CUT} marks a cut that only some of them make" if self.different else ""
        yield title(f"The text under {counted(len(names), 'tokenizer')}{legend}")
        for row in rows[:most]:
            line = f"line {row[0][0] + 1}" if several else ""
            head = ", ".join(filter(None, (line, "char" if any(label.header for _, label in row) else "")))
            begin = Label(head, [words(label.plain, "dim") for label in labels], "left")
            yield ruled([begin, *(label for _, label in row)], has_rule=False)
        yield ""
        ratios = [self.characters / count if count else None for count in self.counts]
        yield ruled(
            [
                *([Label("", numbers)] if is_long else []),
                Label("encoding", names, "left", short=True),
                Label("vocab", [f"{encoding.vocabulary_size:,}" for encoding in self.encodings]),
                Label("tokens", [f"{count:,}" for count in self.counts]),
                Label("chars/token", ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
            ]
        )
        yield ""
        differences = f"{counted(self.same, 'token')} in common, {counted(self.different, 'place')} cut differently"
        sizes = f"{counted(self.characters, 'character')}, {counted(self.size, 'byte')}"
        yield words(f"{sizes}; {differences if self.different else 'all cut it the same way'}")
        if not is_whole and not self.different:
            yield words(left_out("the rest of the text"))
        elif not is_whole:
            missing = self.different - sum(map(len, rows[:most]))
            yield words(left_out("where all agree" if self.same else "", f"{missing:,} more places" if missing else ""))


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
    np.cumsum(ends, out=ends)
    before = np.append(0, ends)[tokens.starts[:-1]]  # each text, in the bytes of all tokens
    for first, last, shift in zip(tokens.starts, tokens.starts[1:], bases[:-1] - before, strict=False):
        ends[first:last] += shift
    if tokens.spans is not None:  # the bytes of the tokens may differ from those of the text
        for text, base, (first, last) in zip(texts, bases.tolist(), pairwise(tokens.starts.tolist()), strict=False):
            data = text.encode()
            spelled = b"".join(token or b"" for token in tokens.bytes_of(tokens.ids[first:last]))
            if spelled == b" " + data:  # a space that the encoding adds before each text
                ends[first:last] -= 1
            elif spelled != data:
                begins = np.append(np.flatnonzero(np.frombuffer(data, np.uint8) & 0xC0 != 0x80), len(data))
                ends[first:last] = base + np.maximum.accumulate(begins[tokens.spans[first:last, 1]])
    return np.asarray(ends.astype(np.min_scalar_type(int(bases[-1]))))


def _rows(segments: Iterable[Segment], available: int) -> Iterator[list[tuple[int, Label]]]:
    """Yield the segments of a text in rows that fit, each with its text's number and as a column; texts begin rows.

    The header is the place of a segment that is cut differently; a line is for each encoding.
    """
    from embcli.page import Label, token_style, words

    row: list[tuple[int, Label]] = []
    cells = 0
    for place, segment in enumerate(segments):
        style = "" if segment.is_same else token_style(place)
        lines = [words(line, style) for line in _aligned(segment, available)]
        column = Label("" if segment.is_same else str(segment.start), lines, "left")
        if row and (cells + column.width > available or segment.sequence != row[-1][0]):
            yield row
            row, cells = [], 0
        row.append((segment.sequence, column))
        cells += column.width + 1
    if row:
        yield row


def _aligned(segment: Segment, available: int) -> list[str]:
    """Return a line for each encoding: its tokens, with a mark at each cut; the same cut is at the same cell."""
    from rich.cells import cell_len

    by_encoding = [_texts(*each, most=available) for each in zip(segment.tokens, segment.ends, strict=True)]
    cells: dict[int, int] = {}  # after the mark at each cut
    begins = [0] * len(by_encoding)  # the cell where the next token of each encoding begins
    last = 0
    for place in sorted({place for texts in by_encoding for place in texts}):
        which = [number for number, texts in enumerate(by_encoding) if place in texts]
        last = max(last + 1, *(begins[number] + cell_len(by_encoding[number][place]) + 1 for number in which))
        cells[place] = last
        for number in which:
            begins[number] = last
    return [_line(texts, cells, available - 1 if last - 1 > available else last) for texts in by_encoding]


def _texts(tokens: list[bytes], ends: list[int], most: int) -> dict[int, str]:
    """Return the first tokens of a segment by their ends, as they are shown."""
    from embcli.page import shorten

    texts: dict[int, str] = {}
    for token, end in zip(tokens[:most], ends, strict=False):
        before = f"{texts[end]}{_CUT}" if end in texts else ""
        texts[end] = before + shorten(shown(token), _LONGEST_TOKEN)
    return texts


def _line(texts: dict[int, str], cells: dict[int, int], available: int) -> str:
    """Return tokens with a mark at each cut, in the available cells; dots follow if they need more."""
    from rich.cells import cell_len

    line = ""
    for place, text in texts.items():
        if cells[place] > available:
            return f"{line}{text if cell_len(line + text) <= available else ''}…"
        line += text
        line += " " * (cells[place] - 1 - cell_len(line)) + _CUT
    return line.removesuffix(_CUT)

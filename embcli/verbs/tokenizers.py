"""One text under several tokenizers: how many tokens each makes of it, and where they cut it differently."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embcli.encodings import Encoding, get
from embcli.errors import InputError, Notes
from embcli.names import __version__
from embcli.opened import TextOrIds, sequences_of
from embcli.records import Names, Piece, Records
from embcli.result import Result
from embcli.tokens import Tokens, shown, tokenize
from embcli.verbs.tokenize import Tokenization
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Label

_LONGEST_NAME = 16  # cells of a name beside the text; if one is longer, numbers stand for the names
_LONGEST_TOKEN = 18  # cells
_MOST_LINES = 32  # of the text, in a pipe or a file
_CUT = "│"
_MOST = 100  # encodings


class Segment(NamedTuple):
    """A part of a text between two places where all encodings cut: the tokens that each makes of it."""

    sequence: int
    start: int  # character of its text
    is_same: bool  # whether it is one token in all encodings
    tokens: list[list[bytes]]  # by encoding
    ends: list[list[int]]  # of these tokens, in bytes from the start of the part


@dataclass(frozen=True, eq=False)
class Tokenizers(Result, verb="tokenizers", content="list"):
    """The tokens of a text, or of several, in each encoding.

    Places are counted in bytes of all texts; one more place is between two texts. A token extends from the end of the
    previous one, so that spaces which an encoding drops belong to the token after them.
    """

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    tokens: tuple[Tokens, ...]  # in each encoding
    ends: tuple[np.ndarray, ...]  # (T,) int64: the place where each token ends, in each encoding
    bases: (
        np.ndarray
    )  # (texts + 1,) int64: the place where each text begins, and one after the last

    @property
    def counts(self) -> list[int]:
        """How many tokens each encoding makes."""
        return [len(tokens) for tokens in self.tokens]

    @cached_property
    def _segments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where segments begin and end, (n,) int64 each, and which are one token in all encodings, (n,) bool."""
        shared, cuts = reduce(np.intersect1d, self.ends), reduce(np.union1d, self.ends)
        last = np.append(0, cuts)[np.searchsorted(cuts, self.bases[1:])]
        stops = np.union1d(shared, last)  # the last cut in each text may not be shared
        bases = self.bases[np.searchsorted(self.bases, stops, "right") - 1]
        stops, bases = stops[stops > bases], bases[stops > bases]
        starts = np.maximum(np.append(0, stops)[:-1], bases)
        count = np.searchsorted(cuts, stops, "right") - np.searchsorted(cuts, starts, "right")
        return starts, stops, (count == 1) & np.isin(stops, shared)

    @property
    def same(self) -> int:
        """How many tokens are the same in all encodings."""
        return int(self._segments[2].sum())

    @property
    def different(self) -> int:
        """How many segments of the text are cut differently."""
        return int((~self._segments[2]).sum())

    def segments(self, different: bool = False) -> Iterator[Segment]:
        """Yield the segments of the text between shared cuts, or only those that are cut differently."""
        starts, stops, is_same = self._segments
        for k in (
            np.flatnonzero(~is_same) if different else range(len(stops))
        ):  # a list of these would be large
            start, stop = int(starts[k]), int(stops[k])
            sequence = int(np.searchsorted(self.bases, start, "right")) - 1
            base = int(self.bases[sequence])
            before = self.texts[sequence].encode()[: start - base].decode(errors="ignore")
            groups, places = [], []
            for tokens, ends in zip(self.tokens, self.ends, strict=True):
                first = int(
                    tokens.starts[sequence]
                    if start == base
                    else np.searchsorted(ends, start, "right")
                )
                part = slice(first, int(np.searchsorted(ends, stop, "right")))
                groups.append([token or b"" for token in tokens.bytes_of(tokens.ids[part])])
                places.append((ends[part] - start).tolist())
            yield Segment(sequence, len(before), bool(is_same[k]), groups, places)

    def records(self) -> Records:
        fields = {"encoding": str, **Tokenization(self.tokens[0]).records().fields, "common": bool}
        summary = [
            {
                "encoding": encoding.name,
                "vocabulary_size": encoding.vocabulary_size,
                "tokens": count,
                "characters_per_token": sum(map(len, self.texts)) / count if count else None,
            }
            for encoding, count in zip(self.encodings, self.counts, strict=True)
        ]
        run = {
            "embcli": __version__,
            "sequences": len(self.texts),
            "characters": sum(map(len, self.texts)),
        }
        run |= {
            "bytes": int(self.bases[-1]) - len(self.texts),
            "same": self.same,
            "different": self.different,
        }
        return Records(
            run, "tokens", sum(self.counts), fields, self._pieces, more={"encodings": summary}
        )

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        own = tuple(name for name in fields if name not in ("encoding", "common"))
        stops, is_same = self._segments[1:]
        for encoding, tokens, ends in zip(self.encodings, self.tokens, self.ends, strict=True):
            common = np.isin(ends, stops[is_same]) & (
                np.diff(ends, prepend=-1) > 0
            )  # a token that is not empty
            first = 0
            for piece in Tokenization(tokens).records().pieces(own, ()):
                part = slice(first, first + piece.rows)
                values = {
                    "encoding": [encoding.name] * piece.rows,
                    **piece.fields,
                    "common": common[part],
                }
                yield Piece(piece.rows, {name: values[name] for name in fields})
                first += piece.rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        from embcli.page import Hint, Label, left_out, rows_that_fit, ruled, safe_text, title
        from embcli.page.table import GAP, SHORTEST

        names = [safe_text(encoding.name) for encoding in self.encodings]
        is_long = max(name.cell_len for name in names) > _LONGEST_NAME
        numbers = [Text(str(number)) for number in range(1, len(names) + 1)]
        labels = numbers if is_long else names
        most = max(rows_that_fit(options, _MOST_LINES) // (len(labels) + 1), 1)
        several, characters = len(self.texts) > 1, sum(map(len, self.texts))
        longest = Text(f"line {len(self.texts)}, char" if several else "char")
        available = options.max_width - max(label.cell_len for label in (*labels, longest)) - 1
        rows = [*islice(_rows(self.segments(), available), most + 1)]
        is_whole = len(rows) <= most
        if not is_whole and self.different:
            rows = [*islice(_rows(self.segments(different=True), available), most + 1)]
        legend = f": {_CUT} marks a cut that only some of them make" if self.different else ""
        yield title(f"The text under {counted(len(names), 'tokenizer')}{legend}")
        for sequence, columns in rows[:most]:
            heads = (
                f"line {sequence + 1}" if several else "",
                "char" if any(each.header for each in columns) else "",
            )
            head = ", ".join(filter(None, heads))
            begin = Label(head, [safe_text(label.plain, "dim") for label in labels], "left")
            yield ruled([begin, *columns], has_rule=False)
        yield ""
        ratios = [f"{characters / count:.2f}" if count else "" for count in self.counts]
        table = [
            *([Label("", numbers)] if is_long else []),
            Label("encoding", names, "left", short=True),
            Label("vocab", [f"{encoding.vocabulary_size:,}" for encoding in self.encodings]),
            Label("tokens", [f"{count:,}" for count in self.counts]),
            Label("chars/token", ratios),
        ]
        if (room := options.max_width - sum(label.width + GAP for label in table)) >= SHORTEST:
            ids = [
                " ".join(map(str, tokens.ids[:room].tolist())) for tokens in self.tokens
            ]  # a cell each, or more
            cells = [textwrap.shorten(each, room, placeholder=" …") for each in ids]
            table.append(Label("IDs", cells, "left"))
            if cells != ids:
                yield Hint(("format",))
        yield ruled(table)
        yield ""
        differences = f"{counted(self.same, 'token')} in common, {counted(self.different, 'place')} cut differently"
        sizes = f"{counted(characters, 'character')}, {counted(int(self.bases[-1]) - len(self.texts), 'byte')}"
        yield safe_text(f"{sizes}; {differences if self.different else 'all cut it the same way'}")
        if is_whole:
            return
        parts = ["the rest of the text"]
        if self.different:
            missing = self.different - sum(len(columns) for _, columns in rows[:most])
            parts = [
                "where all agree" if self.same else "",
                f"{missing:,} more places" if missing else "",
            ]
        note = left_out(*parts)
        if note is not None:
            yield note


def tokenizers(
    text: TextOrIds,
    encodings: Sequence[str],
    *,
    special: bool = False,
    lines: bool = False,
    notes: Notes | None = None,
) -> Tokenizers:
    """Return one text, or several, under several tokenizers: the tokens of each, and where they cut differently.

    `encodings` are names and files as `seeded` and `open` take them; `lines` makes each line a text of its own. Raises
    InputError for IDs, for an encoding that is not found or given twice, and for none.

    >>> import embcli
    >>> result = embcli.tokenizers("Unbelievable!", ["gpt2", "o200k_base"])
    >>> result.counts, result.same, result.different
    ([5, 4], 3, 1)
    """
    given = sequences_of(text, lines)
    remarks = Notes() if notes is None else notes
    known = [get(name) for name in ([encodings] if isinstance(encodings, str) else encodings)]
    names = [encoding.name for encoding in known]
    if given.texts is None:
        raise InputError("only a text can be split by several tokenizers, not IDs")
    if not 1 <= len(names) <= _MOST:
        wrong = "{encoding} must name from 1 to {most} tokenizers, not {count:,}"
        raise InputError(Sentence(wrong, most=_MOST, count=len(names)))
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(
            Sentence("{encoding} names {twice} twice; give each tokenizer once", twice=twice)
        )
    tokens = tuple(tokenize(given, encoding, special, has_added=False) for encoding in known)
    if not any(map(len, tokens)):
        remarks.add("the input is empty: there are no tokens")
    bases = np.cumsum([0, *(len(text.encode()) + 1 for text in given.texts)])
    ends = tuple(_ends(each, given.texts, bases) for each in tokens)
    return Tokenizers(given.texts, tuple(known), tokens, ends, bases, notes=remarks)


def _ends(tokens: Tokens, texts: tuple[str, ...], bases: np.ndarray) -> np.ndarray:
    """Return the place where each token ends, (T,) int64."""
    ends = np.cumsum(tokens.measured(len))
    before = np.append(0, ends)[tokens.starts[:-1]]  # each text, in the bytes of all tokens
    ends += np.repeat(bases[:-1] - before, np.diff(tokens.starts))
    if tokens.spans is not None:  # the bytes of the tokens may differ from those of the text
        for text, base, (first, last) in zip(
            texts, bases.tolist(), pairwise(tokens.starts.tolist()), strict=False
        ):
            data = text.encode()
            spelled = b"".join(token or b"" for token in tokens.bytes_of(tokens.ids[first:last]))
            if spelled == b" " + data:  # a space that the encoding adds before each text
                ends[first:last] -= 1
            elif spelled != data:
                begins = np.append(
                    np.flatnonzero(np.frombuffer(data, np.uint8) & 0xC0 != 0x80), len(data)
                )
                ends[first:last] = base + np.maximum.accumulate(begins[tokens.spans[first:last, 1]])
    return np.asarray(ends)


def _rows(segments: Iterable[Segment], available: int) -> Iterator[tuple[int, list[Label]]]:
    """Yield the segments of a text in rows that fit, each row with its text's number; texts begin rows.

    Each segment is a column of a line per encoding; its header is its place if it is cut differently.
    """
    from embcli.page import Label, safe_text, token_style

    columns: list[Label] = []
    cells = sequence = 0
    for place, segment in enumerate(segments):
        style = "" if segment.is_same else token_style(place)
        lines = [safe_text(line, style) for line in _aligned(segment, available)]
        column = Label("" if segment.is_same else str(segment.start), lines, "left")
        if columns and (cells + column.width > available or segment.sequence != sequence):
            yield sequence, columns
            columns, cells = [], 0
        sequence, cells = segment.sequence, cells + column.width + 1
        columns.append(column)
    if columns:
        yield sequence, columns


def _aligned(segment: Segment, available: int) -> list[str]:
    """Return a line for each encoding: its tokens, with a mark at each cut; the same cut is at the same cell."""
    from rich.cells import cell_len, set_cell_size

    from embcli.page import shorten

    lines, last = [""] * len(segment.tokens), 0
    texts: list[dict[int, str]] = [{} for _ in lines]  # of the tokens that end at each place
    for found, tokens, ends in zip(texts, segment.tokens, segment.ends, strict=True):
        for token, end in zip(tokens[:available], ends, strict=False):  # more have no room
            before = f"{found[end]}{_CUT}" if end in found else ""
            found[end] = before + shorten(shown(token), _LONGEST_TOKEN)
    for place in sorted({place for found in texts for place in found}):
        which = [number for number, found in enumerate(texts) if place in found]
        last = max(last, *(cell_len(lines[number] + texts[number][place]) for number in which)) + 1
        if last - 1 > available:
            break
        for number in which:
            lines[number] = set_cell_size(lines[number] + texts[number].pop(place), last - 1) + _CUT
    for number, found in enumerate(texts):
        if found:  # dots stand for them, after the next one if there is room
            text = lines[number] + next(iter(found.values()))
            text = text if cell_len(text) < available else lines[number]
            lines[number] = set_cell_size(text, min(cell_len(text), available - 1)) + "…"
    return [line.removesuffix(_CUT) for line in lines]

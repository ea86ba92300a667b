"""The page of one text under several tokenizers: the tokens below each other, and their counts.

The same cut is at the same cell in all lines. A text that is too long for the page shows only the
segments that are cut differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embcli.page import (
    Label,
    LeftOut,
    rows_that_fit,
    ruled,
    safe_text,
    shorten,
    title,
    token_style,
)
from embcli.tokens import shown
from embcli.verbs.tokenizers import Tokenizers
from embcli.verbs.tokenizers.measure import Segment
from embcli.wording import counted

_CUT = "│"


class TextRow(NamedTuple):
    """Segments of one text side by side; each column has a line for each encoding."""

    sequence: int  # the number of the text
    columns: list[Label]


def page(result: Tokenizers, console: Console, options: ConsoleOptions) -> RenderResult:
    count = len(result.encodings)
    legend = f": {_CUT} marks a cut that only some of them make" if result.different else ""
    yield title(f"The text under {counted(count, 'tokenizer')}{legend}")

    longest_name = 16  # cells, beside a text
    line_labels = [safe_text(shorten(each.name, longest_name), "dim") for each in result.encodings]
    shown_segments = 0
    for row in _rows_that_fit(result, line_labels, options):
        shown_segments += len(row.columns)
        heads = []
        if len(result.texts) > 1:
            heads.append(f"line {row.sequence + 1}")
        if any(column.header for column in row.columns):
            heads.append("char")
        names = Label(", ".join(heads), line_labels, "left")
        yield ruled([names, *row.columns], has_rule=False)
    yield ""

    characters = sum(map(len, result.texts))
    ratios = [f"{characters / count:.2f}" if count else "" for count in result.counts]
    yield ruled(
        [
            Label("encoding", [each.name for each in result.encodings], "left", short=True),
            Label("vocab", [f"{each.vocabulary_size:,}" for each in result.encodings]),
            Label("tokens", [f"{count:,}" for count in result.counts]),
            Label("chars/token", ratios),
        ]
    )
    yield ""

    yield _totals(result)
    if shown_segments == result.same + result.different:
        return
    missing = []
    if result.same and result.different:
        missing.append("where all agree")
    places = result.different - shown_segments
    if places > 0:
        missing.append(f"{places:,} more places")
    yield LeftOut(f"Left out: {' and '.join(missing) or 'the rest of the text'}.")


def _rows_that_fit(
    result: Tokenizers, line_labels: Sequence[Text], options: ConsoleOptions
) -> list[TextRow]:
    """Return the rows of the whole text if it fits, otherwise those of what is cut differently."""
    most_lines = 32  # the limit in a pipe or a file
    most = max(rows_that_fit(options, most_lines) // (len(line_labels) + 1), 1)
    longest_head = Text("char")
    if len(result.texts) > 1:
        longest_head = Text(f"line {len(result.texts)}, char")
    label_width = max(label.cell_len for label in (*line_labels, longest_head))
    available = options.max_width - label_width - 1

    # One row more than fits tells whether the text is longer.
    rows = list(islice(_text_rows(result.segments(), available), most + 1))
    if len(rows) > most and result.different:
        segments = result.segments(different=True)
        rows = list(islice(_text_rows(segments, available), most))
    return rows[:most]


def _text_rows(segments: Iterable[Segment], available: int) -> Iterator[TextRow]:
    """Yield segments in rows that fit; each text begins a row.

    The header of a segment that is cut differently is the character where it begins.
    """
    columns: list[Label] = []
    width = 0
    sequence = 0
    for place, segment in enumerate(segments):
        column = _column(segment, place, available)
        is_full = width + column.width > available
        if columns and (is_full or segment.sequence != sequence):
            yield TextRow(sequence, columns)
            columns = []
            width = 0
        sequence = segment.sequence
        width += column.width + 1
        columns.append(column)
    if columns:
        yield TextRow(sequence, columns)


def _column(segment: Segment, place: int, available: int) -> Label:
    header = "" if segment.is_same else str(segment.start)
    style = "" if segment.is_same else token_style(place)
    lines = [safe_text(line, style) for line in _aligned_lines(segment, available)]
    return Label(header, lines, "left")


def _aligned_lines(segment: Segment, available: int) -> list[str]:
    """Return a line for each encoding: its tokens, and a mark at each cut, aligned by place.

    Dots stand for the tokens that do not fit.
    """
    longest_token = 18  # cells
    texts_by_encoding = []
    for tokens, ends in zip(segment.tokens, segment.ends, strict=True):
        texts_by_end: dict[int, str] = {}
        # Each token takes a cell or more, so that others have no room.
        for token, end in zip(tokens[:available], ends[:available], strict=True):
            text = shorten(shown(token), longest_token)
            if end in texts_by_end:  # by several tokens, some without text
                text = f"{texts_by_end[end]}{_CUT}{text}"
            texts_by_end[end] = text
        texts_by_encoding.append(texts_by_end)

    lines = [""] * len(segment.tokens)
    width = 0
    for end in sorted(set[int]().union(*texts_by_encoding)):
        cut = [number for number, texts in enumerate(texts_by_encoding) if end in texts]
        longer = {number: lines[number] + texts_by_encoding[number][end] for number in cut}
        width = max(width, *map(cell_len, longer.values()))
        if width >= available:
            lines = [f"{line}…" for line in lines]
            break
        for number, line in longer.items():
            lines[number] = set_cell_size(line, width) + _CUT
        width += 1
    return [line.removesuffix(_CUT) for line in lines]


def _totals(result: Tokenizers) -> Text:
    characters = counted(sum(map(len, result.texts)), "character")
    size = counted(int(result.bases[-1]) - len(result.texts), "byte")
    comparison = "all cut it the same way"
    if result.has_different_ids:
        comparison += ", with different IDs"
    if result.different:
        same = counted(result.same, "token")
        comparison = f"{same} in common, {counted(result.different, 'place')} cut differently"
    return safe_text(f"{characters}, {size}; {comparison}")

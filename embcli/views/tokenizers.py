"""The page of `tokenize` with several encodings: the text as each of them cuts it, and how many tokens that makes."""

from collections.abc import Iterable, Iterator
from itertools import islice

from embcli.hints import hint
from embcli.oldpage import Column, Page, Word
from embcli.oldpage.layout import cell_len, shorten, token_tone
from embcli.tokens import shown
from embcli.verbs.tokenizers import Segment, Tokenizers
from embcli.words import counted

_LONGEST_NAME = 16  # cells of a name beside the text; if one is longer, numbers stand for the names
_LONGEST_TOKEN = 18  # cells
_LEAST_NAME = 6
_LINES = 7  # of a page, without its rows of encodings
_CUT = "│"


def view(result: Tokenizers, page: Page) -> None:
    """Put the text on the page as each encoding cuts it, how many tokens that makes, and how often they differ."""
    names = [page.safe(name) for name in result.names]
    numbers = [str(number) for number in range(1, len(names) + 1)] if max(map(cell_len, names)) > _LONGEST_NAME else []
    legend = f": {_CUT} marks a cut that only some of them make" if result.different else ""
    page.title(f"The text under {counted(len(names), 'tokenizer')}{legend}")
    left_out = _put_text(result, numbers or names, page)
    page.line()
    ratios = [result.characters / count if count else None for count in result.counts]
    columns = [
        Column("encoding", names, "left", least=_LEAST_NAME),
        Column("vocab", [f"{encoding.vocabulary_size:,}" for encoding in result.encodings]),
        Column("tokens", [f"{count:,}" for count in result.counts]),
        Column("chars/token", ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
    ]
    page.table([*([Column("", numbers)] if numbers else []), *columns])
    page.line()
    differences = f"{counted(result.same, 'token')} in common, {counted(result.different, 'place')} cut differently"
    sizes = f"{counted(result.characters, 'character')}, {counted(result.size, 'byte')}"
    page.line(f"{sizes}; {differences if result.different else 'all cut it the same way'}")
    if left_out:
        page.line(f"Left out: {left_out}; {hint('tsv')}.")


def _put_text(result: Tokenizers, labels: list[str], page: Page) -> str:
    """Put the text on the page, or only the places that differ if it is too long; return in words what is left out."""
    most = max((page.paper.lines - _LINES - len(labels)) // (len(labels) + 1), 1)
    longest = f"line {len(result.texts)}, char" if len(result.texts) > 1 else "char"
    available = page.width - max(map(cell_len, (*labels, longest))) - 1
    rows = list(islice(_rows(result.segments(), available), most + 1))
    is_whole = len(rows) <= most
    if not is_whole and result.different:
        rows = list(islice(_rows(result.segments(different=True), available), most + 1))
    for row in rows[:most]:
        line = f"line {row[0][0] + 1}" if len(result.texts) > 1 else ""
        title = ", ".join(filter(None, (line, "char" if any(column.header for _, column in row) else "")))
        label = Column(title, [Word(each, "dim") for each in labels], "left")
        page.table([label, *(column for _, column in row)], ruled=False)
    if is_whole or not result.different:
        return "" if is_whole else "the rest of the text"
    missing = result.different - sum(map(len, rows[:most]))
    alike, more = "where all agree" if result.same else "", f"{missing:,} more places" if missing else ""
    return " and ".join(filter(None, (alike, more)))


def _rows(segments: Iterable[Segment], available: int) -> Iterator[list[tuple[int, Column]]]:
    """Yield the segments of a text in rows that fit, each with its text's number and as a column; texts begin rows.

    The header is the place of a segment that is cut differently; a line is for each encoding.
    """
    row: list[tuple[int, Column]] = []
    cells = 0
    for place, segment in enumerate(segments):
        tone = "plain" if segment.is_same else token_tone(place)
        lines = [Word(line, tone) for line in _aligned(segment, available)]
        column = Column("" if segment.is_same else str(segment.start), lines, "left")
        if row and (cells + column.width > available or segment.sequence != row[-1][0]):
            yield row
            row, cells = [], 0
        row.append((segment.sequence, column))
        cells += column.width + 1
    if row:
        yield row


def _aligned(segment: Segment, available: int) -> list[str]:
    """Return a line for each encoding: its tokens, with a mark at each cut; the same cut is at the same cell."""
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
    texts: dict[int, str] = {}
    for token, end in zip(tokens[:most], ends, strict=False):
        before = f"{texts[end]}{_CUT}" if end in texts else ""
        texts[end] = before + shorten(shown(token), _LONGEST_TOKEN)
    return texts


def _line(texts: dict[int, str], cells: dict[int, int], available: int) -> str:
    """Return tokens with a mark at each cut, in the available cells; dots follow if they need more."""
    line = ""
    for place, text in texts.items():
        if cells[place] > available:
            return f"{line}{text if cell_len(line + text) <= available else ''}…"
        line += text
        line += " " * (cells[place] - 1 - cell_len(line)) + _CUT
    return line.removesuffix(_CUT)

"""Counting tokens: how many a text, a file or a line has, under one encoding or several.

Rows are counted as they are read, so that they can be written while others are still to come. A
tally has what they have in common. No tokens are kept.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from embcli.atomic import opened_files
from embcli.encodings import Encoding, get_several
from embcli.errors import InputError, Notes, whole_number
from embcli.names import DEFAULT_ENCODING, LONGEST_TEXT, Status, __version__
from embcli.records import FieldTypes, Names, Piece, Records
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.text import original_bytes
from embcli.tokens import Reading
from embcli.wording import Sentence, counted, in_bytes, in_data

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Label

_END = 100  # rows of a page at each end
_MOST_ROWS = 256  # of a piece of data
_LONGEST = 24  # cells of a file's name beside numbers


class Count(NamedTuple):
    """The counts of a text, a file or a line."""

    file: str | None  # None for a text
    line: int  # from 1; 1 also for a whole file
    tokens: dict[str, int]  # by the name of the encoding
    characters: int
    bytes: int

    def plus(self, row: Count) -> Count:
        """Return a total to which a row is added."""
        tokens = {name: count + row.tokens[name] for name, count in self.tokens.items()}
        characters = self.characters + row.characters
        size = self.bytes + row.bytes
        return Count(self.file, self.line + 1, tokens, characters, size)


class CountInput(NamedTuple):
    """A text or a file; it is opened when its turn comes."""

    path: str | None  # None for a text
    open: Callable[[], AbstractContextManager[Any]]

    @classmethod
    def of_text(cls, text: str) -> CountInput:
        return cls(None, partial(io.BytesIO, original_bytes(text)))

    @classmethod
    def of_file(cls, path: str | Path) -> CountInput:
        opened_files.add(Path(path).absolute())
        return cls(str(path), partial(Path(path).open, "rb"))


@dataclass(eq=False)
class Counting:
    """How texts and files are counted, and what has been counted so far."""

    encodings: tuple[Encoding, ...]
    _: KW_ONLY
    lines: bool = False
    special: bool = False
    fail_above: int | None = None
    notes: Notes = field(default_factory=Notes)
    total: Count = field(init=False)  # the sum of the rows; its line is their number
    above: int = 0  # rows with more tokens than the limit
    failures: int = 0  # files that cannot be counted

    def __post_init__(self) -> None:
        """Raise RangeError for a limit below 0, and for an encoding that cannot split a text."""
        if self.fail_above is not None:
            whole_number("fail_above", self.fail_above, 0)
        for encoding in self.encodings:
            self._reading(encoding).ids("")
        tokens = {encoding.name: 0 for encoding in self.encodings}
        self.total = Count("total", 0, tokens, 0, 0)

    def rows(self, sources: Iterable[CountInput]) -> Iterator[Count]:
        """Yield the rows of texts and files as they are counted."""
        for source in sources:
            try:
                with source.open() as file:
                    texts: Iterable[bytes] = iter(partial(file.readline, LONGEST_TEXT + 1), b"")
                    if not self.lines:
                        texts = [file.read(LONGEST_TEXT + 1)]
                    for line, data in enumerate(texts, 1):
                        yield self._counted(source.path, line, data)
            except (OSError, InputError) as error:
                self.failures += 1
                reason = getattr(error, "strerror", None) or error
                text = "cannot count {what}: {reason}"
                self.notes.add(Sentence(text, what=_shown(source.path), reason=reason))
        if self.above:
            things = counted(self.above, "line" if self.lines else "text")
            limit = counted(self.fail_above or 0, "token")
            self.notes.add(f"{things} with more than {limit}")

    def _counted(self, path: str | None, line: int, data: bytes) -> Count:
        """Return a row for the bytes of a text or of a line, which is added to the total."""
        if len(data) > LONGEST_TEXT:
            raise InputError(f"it gives more than {in_bytes(LONGEST_TEXT)} without an end")
        if self.lines:
            data = data.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode(errors="replace")
            self.notes.add(
                f"{_shown(path)} is not UTF-8: it is counted with replacement characters"
            )

        tokens = {}
        for encoding in self.encodings:
            reading = self._reading(encoding)
            added = sum(map(len, reading.added))
            tokens[encoding.name] = added + len(reading.ids(text))
        if self.fail_above is not None and max(tokens.values()) > self.fail_above:
            self.above += 1
        file = None if path is None else in_data(path)
        row = Count(file, line, tokens, len(text), len(data))
        self.total = self.total.plus(row)
        return row

    def _reading(self, encoding: Encoding) -> Reading:
        return Reading(encoding, self.special, has_added=True)


def _shown(path: str | None) -> str:
    return "the text" if path is None else repr(path)


@dataclass(frozen=True, eq=False)
class Counts(Result, verb="count"):
    """The counts of texts and files, or of their lines.

    The rows of `count` can be read again. Those of the command are counted while they are read, and
    belong to the total only then.
    """

    rows: Iterable[Count]
    counting: Counting

    @property
    def total(self) -> Count:
        """The sum of the rows that have been read."""
        return self.counting.total

    @property
    def encodings(self) -> Names:
        """The names of the encodings."""
        return tuple(self.total.tokens)

    @property
    def status(self) -> Status:
        """The exit status of the command: 2 if a file cannot be counted, 1 if one has too many."""
        if self.counting.failures:
            return 2
        return 1 if self.counting.above else 0

    @cached_property
    def ends(self) -> list[Count]:
        """The first and the last rows, those of a page."""
        remaining = iter(self.rows)
        return [*islice(remaining, _END), *deque(remaining, _END)]

    def _records(self) -> Records:
        """Return an object of numbers for each row; cells have a column for each encoding."""
        first: FieldTypes = {"file": str}
        if self.counting.lines:
            first["line"] = int
        sizes: FieldTypes = {"characters": int, "bytes": int}
        by_encoding: FieldTypes = {f"tokens.{name}": int for name in self.encodings}
        run = {"embcli": __version__, "encodings": list(self.encodings)}
        known = length_hint(self.rows)  # 0 if they are counted while they are read
        cells = Records(run, "counts", known, first | by_encoding | sizes, self._pieces)
        return replace(cells, fields=first | {"tokens": dict[str, int]} | sizes, cells=cells)

    def _pieces(self, names: Names, _: Names) -> Iterator[Piece]:
        rows = iter(self.rows)
        while piece := [*islice(rows, _MOST_ROWS)]:
            fields = {name: [getattr(row, name) for row in piece] for name in Count._fields}
            for encoding in self.encodings:
                fields[f"tokens.{encoding}"] = [row.tokens[encoding] for row in piece]
            yield Piece(len(piece), {name: fields[name] for name in names})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table of rows and their total, with as many columns as there is room for."""
        from embcli.page import Label, Note, omitted, ruled, title
        from embcli.page.table import least_width

        yield title(f"Tokens under {', '.join(self.encodings)}")
        rows = [*self.ends, self.total]
        if len(rows) == 2 and not self.counting.failures:
            rows.pop()  # the total of one row is that row
        labels = [Label("file", [row.file or "text" for row in rows], "left", short=True)]
        if self.counting.lines:
            labels.append(_numbers("line", [row.line for row in rows]))
        all_columns = self._columns(rows)
        columns = [*all_columns]
        while columns and least_width([*labels, *columns], _LONGEST) > options.max_width:
            columns.pop()
        excerpt = Excerpt.ends(2 * _END, self.total.line)
        tones = [""] * len(self.ends)
        yield ruled(
            [*labels, *columns],
            gaps=excerpt.gaps,
            row_styles=[*tones, "strong"],
            sections=[len(excerpt.gaps) + len(self.ends)],
        )

        missing = {"row": excerpt.left_out, "column": len(all_columns) - len(columns)}
        parts = [counted(number, what) for what, number in missing.items() if number]
        yield from omitted(*parts)
        if self.counting.failures:
            if not parts:
                yield ""
            yield Note("The total is without what cannot be counted.")

    def _columns(self, rows: list[Count]) -> list[Label]:
        """Return the numbers, the most important ones first."""
        from embcli.page import Label

        several = len(self.encodings) > 1
        tokens = []
        ratios = []
        for name in self.encodings:
            counts = [row.tokens[name] for row in rows]
            tokens.append(_numbers(name if several else "tokens", counts))
            cells = []
            for row, count in zip(rows, counts, strict=True):
                cells.append(f"{row.characters / count:.2f}" if count else "")
            ratios.append(Label(f"chars/{name if several else 'token'}", cells))
        characters = _numbers("characters", [row.characters for row in rows])
        sizes = _numbers("bytes", [row.bytes for row in rows])
        return [*tokens, characters, sizes, *ratios]


def _numbers(header: str, numbers: list[int]) -> Label:
    from embcli.page import Label

    return Label(header, [f"{number:,}" for number in numbers])


def count(
    texts: str | Iterable[str] = (),
    *,
    paths: str | Path | Iterable[str | Path] = (),
    encodings: str | Iterable[str] = DEFAULT_ENCODING,
    lines: bool = False,
    special: bool = False,
    fail_above: int | None = None,
) -> Counts:
    """Return how many tokens texts and files have, under one encoding or several.

    A row is a text or a file; with `lines`, it is a line, without its end. What is not UTF-8 is
    counted with replacement characters. Special tokens are plain text unless `special`, which also
    counts those that a model reads around a text. The status of the result is 2 if a file cannot be
    read, which is noted, and 1 if a row has more tokens than `fail_above`.

    >>> import embcli
    >>> counts = embcli.count(["Every effort", "moves you"], encodings=["gpt2", "o200k_base"])
    >>> [row.tokens["gpt2"] for row in counts.rows], counts.total.tokens
    ([2, 3], {'gpt2': 5, 'o200k_base': 4})
    """
    notes = Notes()
    found = get_several(encodings, notes)
    counting = Counting(
        found,
        lines=lines,
        special=special,
        fail_above=fail_above,
        notes=notes,
    )
    given_texts = [texts] if isinstance(texts, str) else texts
    given_paths = [paths] if isinstance(paths, str | Path) else paths
    sources = [CountInput.of_text(text) for text in given_texts]
    sources += [CountInput.of_file(path) for path in given_paths]
    rows = tuple(counting.rows(sources))
    return Counts(rows, counting, notes=counting.notes)

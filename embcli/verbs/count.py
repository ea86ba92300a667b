"""Counting tokens: how many a text, a file or a line has, under one encoding or several.

Rows are counted as they are read, so that they can be written while others are still to come. A
tally has what they have in common. No tokens are kept.
"""

from __future__ import annotations

import io
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from embcli.encodings import Encoding, get_several
from embcli.errors import InputError, Notes
from embcli.names import DEFAULT_ENCODING, __version__
from embcli.records import FieldType, Names, NumbersBy, Piece, Records
from embcli.result import Result
from embcli.text import original_bytes
from embcli.wording import Sentence, counted, in_data

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


_END = 100  # rows of a page at each end
_LONGEST = 24  # cells of a file's name beside numbers


class Count(NamedTuple):
    """The counts of a text, a file or a line."""

    file: str | None  # None for a text
    line: int  # from 1; 1 also for a whole file
    tokens: dict[str, int]  # by the name of the encoding
    characters: int
    bytes: int


class Source(NamedTuple):
    """A text or a file; it is opened when its turn comes."""

    path: str | None  # None for a text
    open: Callable[[], AbstractContextManager[Any]]

    @classmethod
    def of_text(cls, text: str) -> Source:
        return cls(None, partial(io.BytesIO, original_bytes(text)))

    @classmethod
    def of_file(cls, path: str | Path) -> Source:
        return cls(str(path), partial(Path(path).open, "rb"))


@dataclass(eq=False)
class Tally:
    """What has been counted so far, and what has been left out."""

    rows: int = 0
    tokens: Counter[str] = field(default_factory=Counter)  # by the name of the encoding
    characters: int = 0
    bytes: int = 0
    above: int = 0  # rows with more tokens than the limit
    failures: int = 0  # files that cannot be counted
    hidden: int = 0  # files and folders in folders
    binary: int = 0  # files in folders


@dataclass(frozen=True, eq=False)
class Counting:
    """How texts and files are counted, and the tally of what has been counted."""

    encodings: tuple[Encoding, ...]
    lines: bool = False
    special: bool = False
    fail_above: int | None = None
    recursive: bool = False
    notes: Notes = field(default_factory=Notes)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        """Raise InputError for a limit below 0, and for an encoding that cannot split a text."""
        if self.fail_above is not None and self.fail_above < 0:
            wrong = "{fail_above} must be at least 0, not {given:,}"
            raise InputError(Sentence(wrong, given=self.fail_above))
        for encoding in self.encodings:
            encoding.count("", self.special)
        self.notes.count(self._above_in_words)
        self.notes.count(self._left_out_in_words)

    def _above_in_words(self) -> str:
        if not self.tally.above:
            return ""
        things = counted(self.tally.above, "line" if self.lines else "text")
        return f"{things} with more than {counted(self.fail_above or 0, 'token')}"

    def _left_out_in_words(self) -> str:
        if not self.tally.hidden + self.tally.binary:
            return ""
        return f"left out: {self.tally.hidden:,} hidden, {self.tally.binary:,} binary or special"

    def rows(self, sources: Iterable[Source]) -> Iterator[Count]:
        """Yield the rows of texts and files as they are counted."""
        for source in self._files(sources):
            try:
                with source.open() as file:
                    texts = file if self.lines else [file.read()]
                    for line, data in enumerate(texts, 1):
                        yield self._counted(source.path, line, data)
            except (OSError, InputError) as error:
                self._fail(source.path, error)

    def _counted(self, path: str | None, line: int, data: bytes) -> Count:
        """Return a row for the bytes of a text or of a line."""
        if self.lines:
            data = data.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode(errors="replace")
            self.notes.add(
                f"{_shown(path)} is not UTF-8: it is counted with replacement characters"
            )

        tokens = {encoding.name: self._tokens(encoding, text) for encoding in self.encodings}
        self._add(tokens, len(text), len(data))
        file = None if path is None else in_data(path)
        return Count(file, line, tokens, len(text), len(data))

    def _tokens(self, encoding: Encoding, text: str) -> int:
        """Return how many tokens a model reads for a text."""
        remark = encoding.why_in_memory(text, self.special)
        if remark:
            self.notes.add(remark)
        added = sum(map(len, encoding.bos_eos)) if self.special else 0
        return added + encoding.count(text, self.special)

    def _add(self, tokens: dict[str, int], characters: int, size: int) -> None:
        tally = self.tally
        tally.rows += 1
        tally.characters += characters
        tally.bytes += size
        for name, count in tokens.items():
            tally.tokens[name] += count
        if self.fail_above is not None and max(tokens.values()) > self.fail_above:
            tally.above += 1

    def _fail(self, path: str | None, error: OSError | InputError) -> None:
        """Note that a file cannot be counted; the next one is."""
        reason: object = error.message if isinstance(error, InputError) else error.strerror
        if isinstance(error, IsADirectoryError):
            reason = Sentence("it is a folder; {recursive} counts the files in it")
        self.tally.failures += 1
        self.notes.add(Sentence("cannot count {what}: {reason}", what=_shown(path), reason=reason))

    def _files(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Yield texts and files and, if they are asked for, the files in folders."""
        for source in sources:
            if self.recursive and source.path is not None and Path(source.path).is_dir():
                yield from map(Source.of_file, self._files_in(source.path))
            else:
                yield source

    def _files_in(self, folder: str) -> Iterator[Path]:
        """Yield the paths of the files in a folder that are neither hidden, binary nor special."""

        def fail(error: OSError) -> None:
            self._fail(error.filename, error)

        for parent, folders, files in os.walk(folder, onerror=fail):
            names = [*folders, *files]
            self.tally.hidden += sum(name.startswith(".") for name in names)
            # os.walk goes on with these.
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = Path(parent, name)
                if name.startswith("."):
                    continue
                if _is_text(path):
                    yield path
                else:
                    self.tally.binary += 1


def _shown(path: str | None) -> str:
    return "the text" if path is None else repr(path)


def _is_text(path: Path) -> bool:
    """Return whether a path names a file without a NUL in its first bytes, as git decides it."""
    if not path.is_file():
        return False
    with suppress(OSError), path.open("rb") as file:
        return b"\0" not in file.read(8000)
    return True  # The error is noted where the file is counted.


@dataclass(frozen=True, eq=False)
class Counts(Result, verb="count", content="list"):
    """The counts of texts and files, or of their lines.

    The rows of `count` can be read again. Those of the command are counted while they are read, and
    belong to the tally only then.
    """

    rows: Iterable[Count]
    counting: Counting

    @property
    def tally(self) -> Tally:
        return self.counting.tally

    @cached_property
    def encodings(self) -> tuple[str, ...]:
        """The names of the encodings."""
        return tuple(encoding.name for encoding in self.counting.encodings)

    @property
    def total(self) -> Count:
        """The sum of the rows that have been read."""
        tally = self.tally
        tokens = {name: tally.tokens[name] for name in self.encodings}
        return Count("total", tally.rows, tokens, tally.characters, tally.bytes)

    @property
    def status(self) -> int:
        """The exit status of the command: 2 if a file cannot be counted, 1 if one has too many."""
        return 2 if self.tally.failures else min(self.tally.above, 1)

    @cached_property
    def ends(self) -> list[Count]:
        """The first and the last rows, those of a page."""
        remaining = iter(self.rows)
        return [*islice(remaining, _END), *deque(remaining, _END)]

    def records(self) -> Records:
        fields: dict[str, FieldType] = {"file": str}
        if self.counting.lines:
            fields["line"] = int
        fields |= {"tokens": NumbersBy(self.encodings), "characters": int, "bytes": int}
        run = {"embcli": __version__, "encodings": list(self.encodings)}
        known = length_hint(self.rows)  # 0 if they are counted while they are read
        return Records(run, "counts", known, fields, self._pieces)

    def _pieces(self, names: Names, _: Names) -> Iterator[Piece]:
        for row in self.rows:
            yield Piece(1, {name: [getattr(row, name)] for name in names})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table of rows and their total, with as many columns as there is room for."""
        from embcli.page import Label, left_out, ruled, title
        from embcli.page.table import GAP

        yield title(f"Tokens under {', '.join(self.encodings)}")
        rows = [*self.ends, self.total]
        labels = [Label("file", [row.file or "text" for row in rows], "left", short=True)]
        if self.counting.lines:
            labels.append(Label("line", [f"{row.line:,}" for row in rows]))
        room = options.max_width - sum(min(label.width, _LONGEST) + GAP for label in labels)
        columns = [Label(*column) for column in self._columns(rows)]
        shown = 0
        for column in columns:
            room -= column.width + GAP
            if room + GAP < 0:
                break
            shown += 1
        omitted = self.tally.rows - len(self.ends)
        yield ruled([*labels, *columns[:shown]], gaps=[_END] if omitted else ())

        missing_rows = counted(omitted, "row") if omitted else ""
        missing = len(columns) - shown
        note = left_out(missing_rows, counted(missing, "column") if missing else "")
        if note is not None:
            yield note
        if self.counting.lines:
            yield "The total is the sum of the lines; line ends are not counted."
        if self.tally.failures:
            yield "The total is without what cannot be counted."

    def _columns(self, rows: list[Count]) -> Iterator[tuple[str, list[str]]]:
        """Yield the headers and cells of numbers, the most important ones first."""
        several = len(self.encodings) > 1
        for name in self.encodings:
            yield name if several else "tokens", [f"{row.tokens[name]:,}" for row in rows]
        yield "characters", [f"{row.characters:,}" for row in rows]
        yield "bytes", [f"{row.bytes:,}" for row in rows]
        for name in self.encodings:
            yield f"chars/{name if several else 'token'}", [_ratio(row, name) for row in rows]


def _ratio(row: Count, name: str) -> str:
    tokens = row.tokens[name]
    return f"{row.characters / tokens:.2f}" if tokens else ""


def count(
    texts: str | Iterable[str] = (),
    *,
    paths: str | Path | Iterable[str | Path] = (),
    encodings: str | Iterable[str] = DEFAULT_ENCODING,
    lines: bool = False,
    special: bool = False,
    fail_above: int | None = None,
    recursive: bool = False,
) -> Counts:
    """Return how many tokens texts and files have, under one encoding or several.

    A row is a text or a file; with `lines`, it is a line, without its end. `recursive` counts the
    files in folders, except hidden and binary ones. What is not UTF-8 is counted with replacement
    characters. Special tokens are plain text unless `special`, which also counts those that a model
    reads around a text. The status of the result is 2 if a file cannot be read, which is noted, and
    1 if a row has more tokens than `fail_above`.

    >>> import embcli
    >>> counts = embcli.count(["Every effort", "moves you"], encodings=["gpt2", "o200k_base"])
    >>> [row.tokens["gpt2"] for row in counts.rows], counts.total.tokens
    ([2, 3], {'gpt2': 5, 'o200k_base': 4})
    """
    counting = Counting(get_several(encodings), lines, special, fail_above, recursive)
    given_texts = [texts] if isinstance(texts, str) else texts
    given_paths = [paths] if isinstance(paths, str | Path) else paths
    sources = [*map(Source.of_text, given_texts), *map(Source.of_file, given_paths)]
    rows = tuple(counting.rows(sources))
    return Counts(rows, counting, notes=counting.notes)

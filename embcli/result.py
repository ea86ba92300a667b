"""The result of a verb: frozen data that can be shown as a page, read as arrays and written to a file in a format."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_args

from embcli.atomic import destination, explaining_failure, refuse_unwritable, replacing_folder
from embcli.errors import (
    InputError,
    Notes,
    OutputError,
    Watch,
    check_choice,
    missing_extra,
    unwatched,
)
from embcli.formats import (
    ALIASES,
    FORMATS,
    PICTURES,
    SUFFIXES,
    VIEWS,
    ContentKind,
    DataFormat,
    FormatName,
    PageFormat,
    formats_for,
)
from embcli.names import DEFAULT_PRECISION, Theme
from embcli.wording import Parameter, Sentence, in_line

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from embcli.page import Hint, Note
    from embcli.records import Records

Own = TypeVar("Own", bound="Result")
_PIPE_WIDTH, _PICTURE_WIDTH = 120, 100
_RANGES = {"precision": (1, 16), "width": (40, 1000)}  # a float32 has at most 9 significant digits


@dataclass(frozen=True, eq=False, kw_only=True)
class Style:
    """How a result looks on a page; raises OutputError and InputError for values out of range."""

    precision: int = DEFAULT_PRECISION  # decimals
    heat: bool = False  # matrices as strips of colours
    bare: bool = False  # titles, tables, pictures and drawings alone
    width: int | None = None  # columns of a page; None for the default of the medium
    theme: Theme = "light"  # the background of a picture
    suggest: Callable[[Sequence[Note | Hint]], str] | None = (
        None  # makes a line of what notes say of parameters
    )

    def __post_init__(self) -> None:
        check_choice("theme", self.theme, get_args(Theme))
        for name, (low, high) in _RANGES.items():
            given = getattr(self, name)
            if given is not None and not low <= given <= high:
                wrong = "{name} {given} is out of range; it goes from {low} to {high}"
                raise OutputError(
                    Sentence(wrong, name=Parameter(name), given=given, low=low, high=high)
                )


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The result of a verb.

    `str(result)` is its page as in a pipe, without the last newline; a notebook shows the same page with colours.
    A subclass names its verb, and the kind of its content, from which the formats follow.
    """

    verb: ClassVar[str]
    content: ClassVar[ContentKind]
    notes: Notes = field(default_factory=Notes)  # remarks on how it came about
    style: Style = field(default_factory=Style)

    def __init_subclass__(cls, *, verb: str, content: ContentKind) -> None:
        cls.verb, cls.content = verb, content
        setattr(cls, "__repr__", Result.__repr__)  # noqa: B010 - a dataclass then makes none of its own

    def __repr__(self) -> str:
        records = self.records()
        run, shapes = (
            records.run,
            [f"{name} {each.shape}" for name, each in records.matrices.items()],
        )
        source = (
            [f"seed {run['seed']}"]
            if "seed" in run
            else [str(run["from"])]
            if "from" in run
            else []
        )
        told = ", ".join([*(shapes or [f"{records.rows:,} {records.unit}"]), *source])
        return in_line(f"<embcli {self.verb}: {told}>")

    @abstractmethod
    def records(self) -> Records:
        """Return the result as data."""

    @abstractmethod
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts of the page, for rich."""

    @property
    def why_no(self) -> str:
        """Why the answer to the verb's question is no, in words; empty for yes, and for a verb without a question."""
        return ""

    @property
    def status(self) -> int:
        """The exit status of the command: 0, or 1 if the answer is no."""
        return 1 if self.why_no else 0

    def styled(self: Own, **changes: Any) -> Own:
        """Return the same result with another style: `styled(heat=True, width=80)`; see Style.

        Raises OutputError and InputError for values out of range.
        """
        return replace(self, style=replace(self.style, **changes))

    def view(self) -> RenderableType:
        """Return the page, as the style says."""
        from embcli.page.parts import BarePage, SuggestingPage

        if self.style.bare:
            return BarePage(self)
        return SuggestingPage(self, self.style.suggest) if self.style.suggest else self

    def page(self, format: FormatName) -> bytes:
        """Return the result as a page in one of the formats that are views, as in a file."""
        from embcli.page.export import exported

        chosen_format(self.content, format, None)
        return exported(
            self.view(),
            cast("PageFormat", format),
            width_of(self.style.width, format),
            self.style.theme,
        )

    def __str__(self) -> str:
        return self.page("table").decode().removesuffix("\n")

    def _repr_html_(self) -> str:
        """Return the page as a fragment of HTML, for notebooks on a light or a dark background."""
        from embcli.page.export import fragment

        return fragment(self.view(), width_of(self.style.width, "html"))

    def save(
        self, path: str | Path, format: FormatName | None = None, *, watch: Watch = unwatched
    ) -> None:
        """Write the result to a file, in the format of its suffix unless another one is named; atomically.

        `watch` counts the rows of data. Raises OutputError for a format that cannot hold this result, and for a place
        that cannot be written.
        """
        from embcli import writers

        chosen, file = chosen_format(self.content, format, path), Path(path)
        if chosen in VIEWS:
            content = self.page(chosen)
            with explaining_failure(file), destination(file) as place:
                place.write(content)
            return
        records = self.records()
        refuse_many(records.shown, chosen)
        with (
            explaining_failure(file),
            replacing_folder(file) if FORMATS[chosen].folder else destination(file) as place,
        ):
            writers.write(records, cast("DataFormat", chosen), place, self.notes, watch)

    def to_arrow(self) -> Any:
        """Return the fields and one matrix as a `pyarrow.Table`, as parquet has them.

        Raises OutputError if the result has no such form, or the extra `arrow` is missing.
        """
        from embcli import writers

        records = self.records()
        chosen_format(self.content, "parquet", None)
        refuse_many(records.shown, "parquet")
        return writers.table(records)

    def matrix(self, name: str) -> np.ndarray:
        """Return a whole matrix by its name. Raises OutputError if there is none of this name."""
        import numpy as np

        records, done = self.records(), 0
        if (described := records.matrices.get(name)) is None:
            there = ", ".join(records.matrices) or "none"
            raise OutputError(f"this result has no matrix {name[:40]!r}; there are: {there}")
        matrix = np.empty(described.shape, described.dtype)
        for piece in records.pieces((), (name,)):
            matrix[done : done + piece.rows] = piece.matrices[name]
            done += piece.rows
        return matrix

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        records = self.records()
        shown = records.shown or records.one
        if len(shown) != 1:
            names = ", ".join(shown or records.matrices) or "none"
            raise OutputError(f"this result is not one matrix; name one: matrix(name), of {names}")
        return self.matrix(shown[0])  # numpy itself makes another dtype of it


class MatrixOf:
    """An attribute of a result that is one of its matrices, assembled when it is asked for."""

    def __set_name__(self, owner: type[Result], name: str) -> None:
        self._name = name

    def __get__(self, result: Result, owner: type[Result]) -> np.ndarray:
        try:
            return result.matrix(self._name)
        except OutputError as error:
            raise AttributeError(str(error)) from None


def chosen_format(
    kind: ContentKind, format: str | None, path: str | Path | None, default: str = ""
) -> FormatName:
    """Return the format to write: as named, else by the suffix of the file, else the default if it can hold the result.

    Raises OutputError for a format that cannot hold this kind of result or whose package is missing, for an unknown
    suffix without a default, and for a file that obviously cannot be written.
    """
    default = ALIASES.get(default, default)
    if default and default not in FORMATS:
        raise OutputError(
            f"EMBCLI_FORMAT {default[:40]!r} is not a format; choose from {', '.join(FORMATS)}"
        )
    known = formats_for(kind)
    file = Path(path or "")
    suffix = file.suffix.lower()
    chosen = ALIASES.get(format, format) if format else SUFFIXES.get(suffix)
    if chosen is None:
        if suffix and not default:
            cure: str | Sentence = "use .txt, .md, .svg, .html or .png"
            if kind != "page":
                cure = Sentence("{format} names one of {known}", known=", ".join(known))
            raise OutputError(
                Sentence(
                    "{output} {file!r} has no known extension; {cure}", file=str(file), cure=cure
                )
            )
        chosen = default if default in known else "table"
    if chosen not in known:
        raise OutputError(
            f"this result cannot be written as {chosen[:40]}; it can be written as {', '.join(known)}"
        )
    found = FORMATS[chosen]
    if found.extra is not None:
        try:
            import_module(found.extra[0])
        except Exception as error:  # a package that is there can fail to load in any way
            raise OutputError(missing_extra(chosen, found.extra[1], error)) from None
    if path is not None:
        if str(path).endswith("/") and not found.folder:
            raise OutputError(f"{path!r} names a folder, and {chosen} is one file")
        try:
            refuse_unwritable(file, found.folder)
        except ValueError as error:  # a NUL, or half of a surrogate pair
            wrong = Sentence(
                "{output} {file!r} cannot name a file: {error}", file=str(file)[:60], error=error
            )
            raise InputError(wrong) from None
    return found.name


def refuse_many(shown: tuple[str, ...] | None, format: FormatName) -> None:
    """Raise OutputError for several matrices in a format that holds one."""
    if shown is not None and len(shown) > 1 and FORMATS[format].one_matrix:
        wrong = "this format holds one matrix, not {shown}; choose one with {show}"
        raise OutputError(Sentence(wrong, shown=", ".join(shown)))


def width_of(width: int | None, format: FormatName) -> int:
    """Return the columns of a page in a format that is not for a terminal."""
    by_default = _PICTURE_WIDTH if format in PICTURES else number_in("COLUMNS") or _PIPE_WIDTH
    return width or max(by_default, _RANGES["width"][0])


def number_in(variable: str) -> int:
    """Return a whole number from the environment; 0 if there is none."""
    value = os.environ.get(variable, "")
    return int(value[:6]) if value.isascii() and value.isdigit() else 0

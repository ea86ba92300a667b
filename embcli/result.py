"""What every verb returns: frozen data that can be shown as a page, read as arrays and written to a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from embcli.atomic import destination, replacing_folder
from embcli.errors import InputError, OutputError
from embcli.formats import FORMATS, KINDS, PICTURES, VIEWS
from embcli.names import DEFAULT_PRECISION, THEMES, check_choice
from embcli.notes import Notes
from embcli.passes import unwatched
from embcli.saving import chosen_format, refuse_many, refuse_unwritable, refuse_without_package, told_when_it_fails
from embcli.words import naming

if TYPE_CHECKING:
    import numpy as np

    from embcli.formats import Data, FormatName
    from embcli.names import Theme
    from embcli.page import Page, Paper
    from embcli.passes import Watch
    from embcli.records import Records

Own = TypeVar("Own", bound="Result")
PIPE_WIDTH, PICTURE_WIDTH = 120, 100
_MOST_DECIMALS = 16  # a float32 has at most 9 significant digits
_WIDTHS = 40, 1000  # that a page can have


@dataclass(frozen=True, eq=False, kw_only=True)
class Style:
    """How a result looks on a page; raises OutputError and InputError for values out of range."""

    precision: int = DEFAULT_PRECISION  # decimals
    heat: bool = False  # matrices as strips of colours
    scale: float | None = None  # the number at the ends of a heat map's scale; None for the largest |number|
    width: int | None = None  # columns of a page; None for what the medium has
    theme: Theme = "light"  # the background of a picture

    def __post_init__(self) -> None:
        check_choice("theme", self.theme, THEMES)
        if not 1 <= self.precision <= _MOST_DECIMALS:
            range_ = {"given": self.precision, "low": 1, "high": _MOST_DECIMALS}
            raise OutputError(naming("{precision} {given} is out of range; it goes from {low} to {high}", **range_))
        if self.width is not None and not _WIDTHS[0] <= self.width <= _WIDTHS[1]:
            range_ = {"given": self.width, "low": _WIDTHS[0], "high": _WIDTHS[1]}
            raise OutputError(naming("{width} {given} is out of range; it goes from {low} to {high}", **range_))
        if self.scale is not None and not self.heat:
            raise InputError(naming("{scale} {given:g} has nothing to scale; it goes with {heat}", given=self.scale))
        if self.scale is not None and not 0 < self.scale < float("inf"):
            raise InputError(
                naming("{scale} {given:g} is out of range; it is a finite number above 0", given=self.scale)
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The result of a verb.

    `str(result)` is its page as in a pipe, without the last line's end; a notebook shows the same page with colours.
    `views/` has a module of the verb's name that puts the result on a page.
    """

    verb: ClassVar[str]
    notes: Notes = field(default_factory=Notes)  # remarks on how it came about
    style: Style = field(default_factory=Style)

    @abstractmethod
    def records(self) -> Records:
        """Return the result as data."""

    def styled(self: Own, **changes: Any) -> Own:
        """Return the same result with another style: `styled(heat=True, width=80)`; see Style.

        Raises OutputError and InputError for values out of range.
        """
        return replace(self, style=replace(self.style, **changes))

    def page(self, format: FormatName, paper: Paper | None = None) -> bytes:
        """Return the result as a page in one of the formats that are views; without paper, as in a file."""
        page = new_page(format, paper or paper_of(self.style, format))
        self.put_on(page)
        return page.content()

    def put_on(self, page: Page) -> None:
        """Put the result on a page."""
        import_module(f"embcli.views.{self.verb}").view(self, page)

    def __str__(self) -> str:
        return self.page("table").decode().removesuffix("\n")

    def _repr_html_(self) -> str:
        """Return the page as a fragment of HTML, for notebooks on a light or a dark background."""
        from embcli.page.html import Html

        page = Html(paper_of(self.style, "html"))
        self.put_on(page)
        return page.fragment()

    def save(self, path: str | Path, format: FormatName | None = None) -> None:
        """Write the result to a file, in the format of its suffix unless another one is named; atomically.

        Raises OutputError for a format that cannot hold this result, and for a place that cannot be written.
        """
        file = Path(path)
        chosen = chosen_format(KINDS[self.verb], format, file, "")
        self._refuse(chosen)
        refuse_unwritable(file, chosen)
        self.write(chosen, file)

    def write(self, format: FormatName, path: Path, watch: Watch = unwatched) -> None:
        """Write the result in a format to a path that has been checked; `watch` is told of the rows written."""
        if format in VIEWS:
            content = self.page(format)
            with told_when_it_fails(path), destination(path) as file:
                file.write(content)
            return
        from embcli import writers

        with told_when_it_fails(path), replacing_folder(path) if FORMATS[format].folder else destination(path) as place:
            writers.write(self.records(), cast("Data", format), place, self.notes, watch)

    def to_arrow(self) -> Any:
        """Return the fields and one matrix as a `pyarrow.Table`, as parquet has them.

        Raises OutputError where the result has no such form, or the extra `arrow` is missing.
        """
        self._refuse("parquet")
        from embcli import writers

        return writers.table(self.records())

    def _refuse(self, format: FormatName) -> None:
        """Raise OutputError for a format that cannot hold the result, or whose package is missing."""
        if KINDS[self.verb] not in FORMATS[format].kinds:
            raise OutputError(f"this result cannot be written as {format}")
        refuse_without_package(format)
        refuse_many(self.records().shown if format not in VIEWS else None, format)

    def matrix(self, name: str) -> np.ndarray:
        """Return one matrix by its name, whole. Raises OutputError where there is none of this name."""
        import numpy as np

        records = self.records()
        if name not in records.matrices:
            there = ", ".join(records.matrices) or "none"
            raise OutputError(f"this result has no matrix {name[:40]!r}; there are: {there}")
        described = records.matrices[name]
        matrix = np.empty(described.shape, described.dtype)
        done = 0
        for piece in records.pieces((), (name,)):
            matrix[done : done + piece.rows] = piece.matrices[name]
            done += piece.rows
        return matrix

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        records = self.records()
        shown = records.shown if records.shown is not None else (records.default,) if records.default else ()
        if len(shown) != 1:
            names = ", ".join(shown or records.matrices) or "none"
            raise OutputError(f"this result is not one matrix; name one: matrix(name), of {names}")
        matrix = self.matrix(shown[0])
        return matrix if dtype is None else matrix.astype(dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawing(Result):
    """A result that is drawn on a canvas and has no page of text."""

    def page(self, format: FormatName, paper: Paper | None = None) -> bytes:
        """Return the drawing in one of the formats that hold it."""
        canvas = new_page(format, paper or paper_of(self.style, format)).canvas()
        import_module(f"embcli.views.{self.verb}").view(self, canvas)
        return canvas.content()

    def __str__(self) -> str:
        return f"<embcli {self.verb}: a drawing; save it as .svg or .png>"

    def _repr_html_(self) -> str:
        return self.page("svg").decode()


class MatrixOf:
    """An attribute of a result that is one of its matrices, assembled when it is asked for."""

    def __set_name__(self, owner: type[Result], name: str) -> None:
        self._name = name

    def __get__(self, result: Result | None, owner: type[Result]) -> np.ndarray:
        if result is None:
            raise AttributeError(self._name)
        try:
            return result.matrix(self._name)
        except OutputError as error:
            raise AttributeError(str(error)) from None


def paper_of(style: Style, format: FormatName) -> Paper:
    """Return what a page in a format is put on, where that is not a terminal."""
    from embcli.page import Paper

    picture = format in PICTURES
    return Paper(
        width=style.width or (PICTURE_WIDTH if picture else size_of("COLUMNS") or PIPE_WIDTH),
        color=picture,
        precision=style.precision,
        heat=style.heat,
        scale=style.scale,
        theme=style.theme,
    )


def size_of(variable: str) -> int:
    """Return the columns or lines of a page that an environment variable names; 0 if it names none."""
    value = os.environ.get(variable, "")
    return int(value[:6]) if value.isascii() and value.isdigit() else 0


def new_page(format: FormatName, paper: Paper) -> Page:
    """Return an empty page of the kind that a format is."""
    from embcli.page import page_kind

    return page_kind(FORMATS[format].page)(paper)

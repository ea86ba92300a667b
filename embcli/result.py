"""What a verb returns: frozen data that is shown as a page, read as arrays, or written to a file.

Every verb has a subclass of `Result`. The command and the library's users call the same methods;
pages and writers are imported when a method needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    ClassVar,
    NoReturn,
    cast,
    get_args,
)

from embcli.atomic import destination, explaining_failure, refuse_unwritable
from embcli.errors import (
    MissingDataError,
    Notes,
    OutputError,
    WrongTypeError,
    check_choice,
    missing_extra,
    whole_number,
)
from embcli.formats import (
    ALIASES,
    FORMATS,
    PICTURES,
    SUFFIXES,
    VIEWS,
    ContentKind,
    FormatName,
    PageFormat,
    content_of,
    formats_for,
)
from embcli.names import DEFAULT_PRECISION, Status, Strings, Theme, __version__
from embcli.wording import Sentence, counted, in_line, load_facts

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from typing_extensions import Self

    from embcli.page.export import Frame
    from embcli.records import Records

_HIGHEST_PRECISION = 16  # decimals; a float32 has at most 9 significant digits
_LEAST_WIDTH = 40
_LARGEST_WIDTH = 1000
_WITHOUT_BARE = ("info", "cache", "explain")  # verbs whose pages are not bare


@dataclass(frozen=True, eq=False, kw_only=True)
class PageStyle:
    """How a result looks on a page; raises InputError for values out of range."""

    precision: int = DEFAULT_PRECISION  # decimals
    keeps_precision: bool = False  # whether no table has fewer, so that its columns fit
    heat: bool = False  # whether matrices are strips of colours
    bare: bool = False  # whether a page has only titles, tables, pictures and drawings
    width: int | None = None  # columns of a page; None for the default of the medium
    theme: Theme = "auto"  # the background; auto: the terminal's, and light in a file or notebook
    # The heading of a slide, "" for what the page is about; None for a picture of another size.
    slide: str | None = None

    @property
    def of_numbers(self) -> dict[str, Any]:
        """The options of a matrix of numbers on a page."""
        return {
            "precision": self.precision,
            "keeps_precision": self.keeps_precision,
            "heat": self.heat,
        }

    def __post_init__(self) -> None:
        check_choice("theme", self.theme, get_args(Theme))
        precision = whole_number("precision", self.precision, 1, _HIGHEST_PRECISION)
        object.__setattr__(self, "precision", precision)  # numpy's can be unsigned
        if self.width is not None:
            whole_number("width", self.width, _LEAST_WIDTH, _LARGEST_WIDTH)
        if self.slide is not None and self.width is not None:
            raise OutputError(Sentence("{slide} has its own width; leave out {width}"))


def short_name(path: str) -> str:
    """Return the end of a path, which has the name of a model: its folder and file.

    >>> short_name("../models/gpt2/model.safetensors"), short_name("../gpt2")
    ('gpt2/model.safetensors', 'gpt2')
    """
    file = Path(path)
    names = [part for part in file.parts if part not in (file.anchor, "..")]
    return "/".join(names[-2:]) or file.resolve().name


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """The result of a verb.

    `str(result)` is its page as in a pipe, without the last newline; a notebook shows the same page
    with colours. A subclass names its verb: `class Lookup(Result, verb="lookup")`.
    """

    _verb: ClassVar[str]
    notes: Notes = field(default_factory=Notes)  # remarks on how it came about
    style: PageStyle = field(default_factory=PageStyle)

    def __init_subclass__(cls, *, verb: str) -> None:
        cls._verb = verb
        # A dataclass would make a __repr__ with all fields, unless its class has one of its own.
        setattr(cls, "__repr__", Result.__repr__)  # noqa: B010 - mypy refuses the assignment

    def __copy__(self) -> Self:
        return replace(self)

    def _refuse(self, *_: Any) -> Any:
        raise WrongTypeError(
            f"a result of {self._verb} is not a list; to_dicts() returns its rows, "
            "help(result) lists the rest"
        )

    __iter__ = __getitem__ = __len__ = _refuse

    def __bool__(self) -> bool:
        return True

    if not TYPE_CHECKING:  # With it, a type checker would accept any name.

        def __getattr__(self, name: str) -> np.ndarray:
            return self.matrix(name)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a result is not pickled or deep-copied; save it, or compute it again")

    @property
    def content(self) -> ContentKind:
        """What the result is, which decides the formats that can hold it."""
        return content_of(self._verb, {})

    def __repr__(self) -> str:
        about = self._subject or "a page"
        if self.content != "page":
            records = self._records()
            shapes = [f"{name} {records.shape(array)}" for name, array in records.matrices.items()]
            about = ", ".join(shapes) or counted(records.rows, records.unit.removesuffix("s"))
        return in_line(f"<embcli {self._verb}: {about}; print() shows it>")

    def _records(self) -> Records:
        """Return the result as data; raises MissingDataError for a page that has none."""
        raise MissingDataError(f"{self._verb} has a page, without data behind it")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Return the parts of the page, for rich: those of the module `page` beside the verb."""
        module = import_module(f"{self.__module__}.page")
        return list(module.page(self, console, options))  # all rows are read before one is shown

    @property
    def _why_no(self) -> str:
        """The reason, in words, why the verb's question is answered with no.

        It is empty for a yes, and for a verb without a question.
        """
        return ""

    @property
    def status(self) -> Status:
        """The exit status of the command: 0, or 1 if the answer is no."""
        return 1 if self._why_no else 0

    def styled(self, **changes: Any) -> Self:
        """Return the same result with another style: `styled(heat=True, width=80)`; see PageStyle.

        With a heading, `styled(slide="Week 2").save("slide.png")` writes a slide of 1920 x 1080.
        Raises InputError for values out of range.
        """
        return replace(self, style=replace(self.style, **changes))

    def _view(self) -> RenderableType:
        """Return the page, as the style says."""
        from embcli.page.parts import BarePage

        return BarePage(self) if self.style.bare else self

    def page(self, format: FormatName) -> bytes:
        """Return the result as a page in one of the formats that are views, as in a file."""
        from embcli.page.export import exported

        chosen_format(self.content, format, None)
        style = self.style
        frame = self._frame() if format in PICTURES else None
        return exported(
            self._view(),
            cast("PageFormat", format),
            style.width or 0,
            style.theme,
            self.notes.add,
            frame,
        )

    def _frame(self) -> Frame:
        """Return what is around the page of a picture."""
        from embcli.page.export import Frame

        run = {} if self.content == "page" else self._records().run
        opened = [run, run.get("base", {}), run.get("tuned", {})]
        models = [short_name(each["from"]) for each in opened if "from" in each]
        encodings = filter(None, run.get("encodings") or [run.get("encoding")])
        names = dict.fromkeys([*models, *map(short_name, encodings)])
        source = [f"embcli {__version__}", *names]
        if "seed" in run and self._uses_seed:
            source.append(f"seed {run['seed']}")
        of_models = " and ".join(models or names)
        heading = self.style.slide or self._subject or of_models or self._verb.capitalize()
        return Frame(
            is_slide=self.style.slide is not None,
            heading=heading,
            source=", ".join(source),
            models=models,
            fewer_lines=Sentence(load_facts("suggestions.json")["fewer lines"][self._verb]),
            bare=self.styled(bare=self._verb not in _WITHOUT_BARE)._view(),
        )

    @property
    def _uses_seed(self) -> bool:
        """Whether the page shows what depends on the seed of the layers, if there is one."""
        return True

    @property
    def _subject(self) -> str:
        """What the result is about: its text; empty for a result without one."""
        tokens = getattr(self, "tokens", None)
        if isinstance(tokens, tuple):  # of several encodings
            tokens = tokens[0]
        return " / ".join(getattr(tokens, "texts", None) or ())

    def __str__(self) -> str:
        return self.page("table").decode().removesuffix("\n")

    def _repr_html_(self) -> str:
        """Return the page as a fragment of HTML, for notebooks."""
        from embcli.page.export import fragment

        return fragment(self._view(), self.style.width or 0, self.style.theme)

    def save(self, path: str | Path, format: FormatName | None = None) -> None:
        """Write the result to a file atomically, in the format of its suffix or in a named one.

        Raises OutputError for a format that cannot hold this result, and for a place that cannot be
        written.
        """
        chosen = chosen_format(self.content, format, path)
        write = self._writer(chosen)
        place = Path(path)
        with explaining_failure(place), destination(place) as file:
            write(file)

    def _writer(self, format: FormatName) -> Callable[[BinaryIO], object]:
        """Return a function that writes the result into an open file, as a page or as data.

        What can fail before the file is opened has been done.
        """
        if format in VIEWS:
            page = self.page(format)
            return lambda file: file.write(page)
        from embcli import writers

        records = self._records()
        refuse_many(records.shown, format)
        return lambda file: writers.write(records, format, file, self.notes)

    def _written(self, format: FormatName) -> bytes:
        """Return the result as data in a format, as in a file.

        Raises MissingDataError for a page, and OutputError for a result that is not one table.
        """
        self._records()
        chosen_format(self.content, format, None)
        file = BytesIO()
        self._writer(format)(file)
        return file.getvalue()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts, as a file of ndjson has them, which writes NaN as null.

        Raises MissingDataError for a page, and OutputError for a result that is not one table.

        >>> import embcli
        >>> embcli.seeded().tokenize("Every effort").to_dicts()[1]["token"]
        ' effort'
        """
        import orjson

        return list(map(orjson.loads, self._written("ndjson").splitlines()))

    def to_arrow(self) -> Any:
        """Return the fields and one matrix as a `pyarrow.Table`, as parquet has them.

        Raises OutputError for a result that is not one table, and without the extra `arrow`.
        """
        data = BytesIO(self._written("parquet"))
        from pyarrow import parquet

        return parquet.read_table(data)

    def to_pandas(self) -> Any:
        """Return the table of `to_arrow` as a `pandas.DataFrame`, with a column for each number.

        Its columns are named as in csv: "0" is the first number of each row. Raises OutputError as
        `to_arrow` does, and without pandas.
        """
        try:
            import pandas
        except ImportError as error:
            cure = "pip install pandas 'embcli[arrow]'"
            raise OutputError(f"to_pandas needs pandas and pyarrow: {cure} ({error})") from None
        frame = self.to_arrow().to_pandas()
        records = self._records()
        if "vector" in frame:
            columns = map(str, records.column_numbers(*records.one))
            numbers = pandas.DataFrame(frame.pop("vector").tolist(), columns=columns)
            return frame.join(numbers)
        return frame

    def matrix(self, name: str) -> np.ndarray:
        """Return a whole matrix by its name; raises MissingDataError if there is none of it."""
        import numpy as np

        records = self._records()
        array = records.matrices.get(name)
        if array is None:
            names = ", ".join(records.matrices) or "none"
            raise MissingDataError(
                f"a result of {self._verb} has no {str(name)!r} here; its matrices: {names}; "
                "to_dicts() returns its rows, help(result) lists the rest"
            )
        matrix = np.empty(array.shape, array.dtype)
        start = 0
        for piece in records.pieces((), (name,)):
            stop = start + piece.rows
            matrix[start:stop] = piece.matrices[name]
            start = stop
        return matrix.reshape(records.shape(array))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        records = self._records()
        shown = records.shown or records.one
        # numpy itself converts it to another dtype.
        return self.matrix(shown[0] if len(shown) == 1 else "single matrix")


class MatrixOf(property):
    """An attribute of a result that is one of its matrices, assembled when it is asked for.

    As a property it is not computed for Tab completion. It is read-only; `result.matrix(name)` and
    `numpy.array(result)` can be written to.
    """

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type[Result], name: str) -> None:
        self._name = name

    def __get__(self, result: Any, owner: type | None = None, /) -> Any:
        if result is None:
            return self
        matrix = result.matrix(self._name)
        matrix.flags.writeable = False  # the next one would not have what is written to this one
        return matrix


def chosen_format(
    kind: ContentKind, format: str | None, path: str | Path | None, default: str = ""
) -> FormatName:
    """Return the format to write a result in.

    It is the named one, else that of the file's suffix, else the default if it can hold the result.
    Raises OutputError for a format that cannot hold this kind of result or whose package is
    missing, for an unknown suffix without a default, and for a file that obviously cannot be
    written.
    """
    default = ALIASES.get(default, default)
    known = formats_for(kind)
    name: str = default if default in known else "table"
    if format:
        name = format.lower()
        name = ALIASES.get(name, name)
    elif path is not None:
        name = _format_of_file(known, Path(path), default) or name
    if name not in known:
        if Path(name).suffix:
            wrong = "{format} {given!r} is not a format; {file} reads a file, {output} writes one"
            raise OutputError(wrong, given=name)
        if name not in FORMATS:
            check_choice("format", name, known)
        names = ", ".join(known)
        raise OutputError(f"this result cannot be written as {name}; it can be written as {names}")

    chosen = FORMATS[name]
    if chosen.extra is not None:
        package, extra = chosen.extra
        try:
            import_module(package)
        except Exception as error:  # An installed package can fail to load in any way.
            raise OutputError(missing_extra(name, extra, error)) from None
    if path is not None:
        if f"/{path}".endswith("/"):  # An empty name stands for a folder, too.
            raise OutputError(f"{path!r} does not name a file, and {name} is one file")
        refuse_unwritable(Path(path))
    return chosen.name


def _format_of_file(known: Strings, file: Path, default: str) -> str:
    """Return the format of a file's suffix; empty for another suffix, if there is a default."""
    suffix = file.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if suffix and not default:
        wrong = "{output} {file!r} has no known extension; {format} names one of {known}"
        hint = "A browser prints an .html file as PDF." if suffix == ".pdf" else ""
        raise OutputError(wrong, hint, file=str(file), known=", ".join(known))
    return ""


def refuse_many(shown: Strings | None, format: FormatName) -> None:
    """Raise OutputError for several matrices in a format that holds one."""
    if shown and (len(shown) > 1 or "all" in shown) and FORMATS[format].one_matrix:
        raise OutputError(
            "this format holds one matrix, not {shown}; choose one with {show}",
            shown=", ".join(shown),
        )

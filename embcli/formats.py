"""The formats that a result can be written in: one row a format, from which all else is derived."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

PageFormat = Literal["table", "markdown", "svg", "html", "png"]
DataFormat = Literal[
    "json", "ndjson", "csv", "tsv", "npy", "safetensors", "parquet", "ids", "projector"
]
FormatName = Literal[PageFormat, DataFormat]
# What a result consists of: rows of fields; fields that rank rows of a matrix; token IDs; matrices; matrices in each
# row; rows that are embeddings; more than rows, which only a JSON document has room for; a page without data behind it.
ContentKind = Literal[
    "list", "ranking", "tokens", "matrices", "batches", "embeddings", "document", "page"
]

_ROWS: tuple[ContentKind, ...] = ("list", "ranking", "tokens", "matrices", "embeddings")
_DATA: tuple[ContentKind, ...] = (*_ROWS, "batches")
_PAGES: tuple[ContentKind, ...] = (*_DATA, "document", "page")
_ARRAYS: tuple[ContentKind, ...] = ("tokens", "matrices", "batches", "embeddings")


class Format(NamedTuple):
    name: FormatName
    kinds: tuple[ContentKind, ...]  # of results that it can hold
    suffixes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    binary: bool = False
    one_matrix: bool = False  # whether it has room for one matrix only
    folder: tuple[str, ...] = ()  # the files of a format that is a folder
    extra: tuple[str, str] | None = (
        None  # the package that it requires, and embcli's extra that installs it
    )
    picture: bool = False  # whether it is a page with colours for a file


ROWS = (
    Format("table", _PAGES, (".table", ".txt")),
    Format("markdown", _PAGES, (".markdown", ".md"), ("md",)),
    Format("svg", _PAGES, (".svg",), picture=True),
    Format("html", _PAGES, (".html",), picture=True),
    Format("png", _PAGES, (".png",), binary=True, extra=("resvg_py", "pictures"), picture=True),
    Format("json", (*_DATA, "document"), (".json",)),
    Format("ndjson", _DATA, (".ndjson", ".jsonl"), ("jsonl",)),
    Format("csv", _ROWS, (".csv",), one_matrix=True),
    Format("tsv", _ROWS, (".tsv",), one_matrix=True),
    Format("npy", _ARRAYS, (".npy",), binary=True, one_matrix=True),
    Format("safetensors", _ARRAYS, (".safetensors",), binary=True),
    Format(
        "parquet",
        ("ranking", "embeddings"),
        (".parquet",),
        (),
        True,
        True,
        extra=("pyarrow", "arrow"),
    ),
    Format("ids", ("tokens",), (".ids",)),
    Format(
        "projector",
        ("embeddings",),
        one_matrix=True,
        folder=("vectors.tsv", "metadata.tsv", "projector_config.pbtxt"),
    ),
)
FORMATS: dict[str, Format] = {each.name: each for each in ROWS}
SUFFIXES: dict[str, FormatName] = {suffix: each.name for each in ROWS for suffix in each.suffixes}
ALIASES: dict[str, FormatName] = {alias: each.name for each in ROWS for alias in each.aliases}
VIEWS: tuple[FormatName, ...] = get_args(PageFormat)
PICTURES: tuple[FormatName, ...] = tuple(each.name for each in ROWS if each.picture)


def formats_for(kind: ContentKind) -> tuple[FormatName, ...]:
    """Return the formats that can hold a kind of result.

    >>> formats_for("page")
    ('table', 'markdown', 'svg', 'html', 'png')
    """
    return tuple(each.name for each in ROWS if kind in each.kinds)


def or_list(formats: tuple[str, ...]) -> str:
    """Return formats to choose from, in words.

    >>> or_list(("svg", "html", "png"))
    'svg, html or png'
    """
    return " or ".join([", ".join(formats[:-1]), formats[-1]]) if len(formats) > 1 else formats[0]

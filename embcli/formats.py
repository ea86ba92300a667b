"""The formats that a result can be written in.

`ROWS` has one row per format. `content_of` says what the result of a verb is, which decides the
formats that can hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from embcli.names import OUTPUTS, Extra, Strings
from embcli.positions import kind_named

PictureFormat = Literal["svg", "html", "png"]  # pages with colours, for a file
PageFormat = Literal["table", "markdown", PictureFormat]
DataFormat = Literal["json", "ndjson", "csv", "tsv", "npy", "safetensors", "parquet", "ids"]
FormatName = Literal[PageFormat, DataFormat]
ContentKind = Literal[
    "list",  # rows of fields
    "ranking",  # fields that rank the rows of a matrix
    "tokens",  # token IDs
    "matrices",
    "batches",  # matrices in each row
    "samples",  # the same, with further rows for formats of cells
    "embeddings",  # rows that are embeddings
    "document",  # more than rows, which only JSON can hold
    "page",  # a page without data
    "text",  # bytes, which are written as they are
]

ContentKinds = tuple[ContentKind, ...]
FormatNames = tuple[FormatName, ...]
_ROWS: ContentKinds = ("list", "ranking", "tokens", "matrices", "embeddings")
_CELLS: ContentKinds = (*_ROWS, "samples")
_DATA: ContentKinds = (*_ROWS, "batches", "samples")
_PAGES: ContentKinds = (*_DATA, "document", "page")
_ARRAYS: ContentKinds = ("tokens", "matrices", "batches", "samples", "embeddings")


# What the results of verbs are; `content_of` knows of options that make another of one.
CONTENTS: dict[str, ContentKind] = {
    "tokenize": "tokens",
    "merges": "list",
    "tokenizers": "list",
    "batch": "samples",
    "lookup": "embeddings",
    "compare": "matrices",
    "positions": "embeddings",
    "weights": "embeddings",
    "neighbors": "ranking",
    "audit": "ranking",
    "diff": "ranking",
    "tour": "page",
    "explain": "page",
    "decode": "text",
    "count": "list",
    "info": "list",
    "cache": "page",
}


def content_of(verb: str, options: Mapping[str, Any]) -> ContentKind:
    """Return what the result of a verb with these options is.

    The command asks with all its options before the work. Afterwards the result asks with those
    that matter.

    >>> content_of("compare", {}), content_of("compare", {"gradient": True})
    ('matrices', 'document')
    """
    option = options.get
    if verb == "tokenize":
        is_derived = option("merges") or option("draw") or option("inline")
        if is_derived or len(option("encoding", ())) > 1:
            return "list"
    elif verb == "compare":
        has_gradient = option("gradient") or option("learning_rate") is not None
        shown = option("show") or ()
        if has_gradient or not {"outputs", *OUTPUTS}.issuperset(shown):
            return "document"  # Other steps are no matrices.
    elif verb == "positions":
        is_relative = kind_named(option("kind")) == "relative"
        if is_relative and not option("similarity"):
            return "batches"  # There is a row for each pair of tokens.
    return CONTENTS[verb]


class Format(NamedTuple):
    name: FormatName
    kinds: ContentKinds  # the kinds of results that it can hold
    binary: bool = False
    one_matrix: bool = False  # whether it has room for one matrix only
    # Some formats need a package, which one of embcli's extras installs: (package, extra).
    extra: tuple[str, Extra] | None = None


ROWS = (
    Format("table", _PAGES),
    Format("markdown", _PAGES),
    Format("svg", _PAGES),
    Format("html", _PAGES),
    Format("png", _PAGES, binary=True, extra=("resvg_py", "pictures")),
    Format("json", (*_DATA, "document")),
    Format("ndjson", _DATA),
    Format("csv", _CELLS, one_matrix=True),
    Format("tsv", _CELLS, one_matrix=True),
    Format("npy", _ARRAYS, binary=True, one_matrix=True),
    Format("safetensors", _ARRAYS, binary=True),
    Format(
        "parquet",
        ("list", "tokens", "ranking", "samples", "embeddings"),
        binary=True,
        one_matrix=True,
        extra=("pyarrow", "arrow"),
    ),
    Format("ids", ("tokens",)),
)
FORMATS = {row.name: row for row in ROWS}
ALIASES: dict[str, FormatName] = {"md": "markdown", "jsonl": "ndjson", "txt": "table"}
# A suffix is a dot and the name of a format, or another word for it.
SUFFIXES = {f".{row.name}": row.name for row in ROWS}
SUFFIXES |= {f".{alias}": name for alias, name in ALIASES.items()}
VIEWS: FormatNames = get_args(PageFormat)
PICTURES: tuple[PictureFormat, ...] = get_args(PictureFormat)


def formats_for(kind: ContentKind) -> FormatNames:
    """Return the formats that can hold a kind of result.

    >>> formats_for("page")
    ('table', 'markdown', 'svg', 'html', 'png')
    """
    names = [row.name for row in ROWS if kind in row.kinds]
    return tuple(names)


def or_list(formats: Strings) -> str:
    """Return formats to choose from, in words.

    >>> or_list(("svg", "html", "png"))
    'svg, html or png'
    """
    others = ", ".join(formats[:-1])
    return f"{others} or {formats[-1]}"

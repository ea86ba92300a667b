"""What rich has no renderable for: matrices that fit their width, strips of colours, drawings.

A result yields these, and rich's own texts and tables, in its `__rich_console__`; `export` makes
files of the same page. Everything here imports rich, so that a verb imports it only for a page.
"""

from embcli.page.colors import STYLES
from embcli.page.matrix import Matrix, NumberFormat, written
from embcli.page.medium import medium_of
from embcli.page.parts import (
    Answer,
    Drawing,
    Flow,
    Hint,
    LeftOut,
    Note,
    Product,
    left_out,
    omission,
    omitted,
    rows_that_fit,
    safe_text,
    title,
)
from embcli.page.strips import Strips, Values
from embcli.page.table import Label, ruled, shorten

__all__ = [
    "STYLES",
    "Answer",
    "Drawing",
    "Flow",
    "Hint",
    "Label",
    "LeftOut",
    "Matrix",
    "Note",
    "NumberFormat",
    "Product",
    "Strips",
    "Values",
    "left_out",
    "medium_of",
    "omission",
    "omitted",
    "rows_that_fit",
    "ruled",
    "safe_text",
    "shorten",
    "title",
    "written",
]

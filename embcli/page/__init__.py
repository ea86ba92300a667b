"""What rich has no renderable for: matrices that fit their width, strips of colours, drawings.

A result yields these, and rich's own texts and tables, in its `__rich_console__`; `export` makes
files of the same page. Everything here imports rich, so that a verb imports it only for a page.
Names are imported as themselves, by which type checkers know that they are for others.
"""

from embcli.page.colors import STYLES as STYLES
from embcli.page.matrix import Matrix as Matrix, NumberFormat as NumberFormat, written as written
from embcli.page.medium import medium_of as medium_of
from embcli.page.parts import (
    Answer as Answer,
    Drawing as Drawing,
    Flow as Flow,
    Hint as Hint,
    LeftOut as LeftOut,
    Note as Note,
    Product as Product,
    left_out as left_out,
    omission as omission,
    omitted as omitted,
    rows_that_fit as rows_that_fit,
    safe_text as safe_text,
    title as title,
)
from embcli.page.strips import Strips as Strips, Values as Values
from embcli.page.table import Label as Label, ruled as ruled, shorten as shorten

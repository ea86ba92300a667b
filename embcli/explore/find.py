"""Finding rows: the tokens of a text, while it is typed, and the words of the vocabulary that resemble it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embcli.explore.desk import View
from embcli.explore.drawing import BOLD, DIM, Key, Line, Moving, beside, length, lines_of, new_sheet, text_line, under_cursor
from embcli.explore.field import Field
from embcli.page import Column
from embcli.page.layout import shorten
from embcli.tokens import shown

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.jobs import Job
    from embcli.tokens import Tokens

"""What a page is drawn for: a terminal, a pipe or a file, and what is known of it."""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple, cast, get_args

from rich.console import Console

from embcli.errors import variable
from embcli.names import PIPE_WIDTH, Background, Theme
from embcli.wording import number_in


class Medium(NamedTuple):
    """What rich's console and its options do not say of that which a page is drawn for."""

    background: Background
    is_file: bool = False  # a picture or a document, which has room beside the page
    height: int | None = None  # lines of a screen; None if there is no end
    has_fine_cells: bool = False  # an SVG picture, in which many numbers can share a cell
    shows_svg: bool = False  # a picture or HTML, in which a part of a page can be SVG
    is_slide: bool = False


class PageConsole(Console):
    """A console for the pages of a medium, which knows it; rich's may not."""

    def __init__(self, medium: Medium, width: int, color_system: Any = None) -> None:
        super().__init__(
            file=io.StringIO(),
            width=width,
            height=medium.height,
            color_system=color_system,
            no_color=color_system is None,
            force_terminal=medium.height is not None,
            force_jupyter=False,
        )
        self.medium = medium


def medium_of(console: Console) -> Medium:
    """Return what a console's pages are for: the terminal or a file, if the console is not ours."""
    if isinstance(console, PageConsole):
        return console.medium
    return Medium(terminal_background(), is_file=console.record)


def pipe_width() -> int:
    """Return the columns of a page in a pipe."""
    return max(number_in("COLUMNS") or PIPE_WIDTH, 40)


def terminal_background() -> Background:
    """Return the background that the environment names, or a dark one.

    Raises RangeError if EMBCLI_THEME is not a theme.
    """
    theme = variable("EMBCLI_THEME", get_args(Theme))
    if theme in get_args(Background):
        return cast("Background", theme)
    # COLORFGBG has the numbers of two colours among 16, `15;0`: the last is the background.
    number = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if number in ("7", "15") else "dark"

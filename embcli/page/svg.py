"""A page as an SVG picture: text is placed by cells, and backgrounds are rectangles.

rich's own export takes a wide character, which fills two cells, for one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

Lines = list[list[Segment]]

FONT_SIZE = 21  # pixels
FONTS = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
_WIDE_FONTS = (
    "'Noto Sans Mono CJK JP','Noto Sans CJK JP','Hiragino Sans','MS Gothic',"
    "'Noto Color Emoji','Apple Color Emoji','Segoe UI Emoji',monospace"
)
_FITTED = ' lengthAdjust="spacingAndGlyphs"'  # or a letter can be wider than its cell
_FONTS_OF_HEBREW = f" font-family=\"'DejaVu Sans',{FONTS}\""  # or bold letters may be taken
CELL = 12.04  # the width of a letter
LINE = 24.4  # as high as the letters that draw boxes, so that these touch
_BASELINE = 20.0  # below the top of a line
_MARGIN = 2  # cells beside the lines; half as many lines above and below
SLIDE_COLUMNS = 84
SHORT_SLIDE = 52  # columns; shorter lines are drawn no larger
WIDEST_SLIDE = 100  # columns that 24 lines leave room for
SLIDE_LINES = 24  # below the heading
_ABOVE = 3.2  # lines above those of a slide: margins, and a heading of this scale
_HEADING = 1.7
HEADING_COLUMNS = 70  # of a heading in two lines
LONGEST_HEADING = 130  # columns of two lines, with room where a word ends the first
_HEADING_LINES = 2  # as high as the others
_BELOW = 1.6  # lines below: a small one, and margins
_SOURCE = 0.9  # its scale, unless it is long
LONGEST_SOURCE = 110  # columns, 28 pixels high at least
_SLIDE_WIDTH = 1920  # pixels
_SLIDE_HEIGHT = 1080
CRISP = 'shape-rendering="crispEdges"'
# Words of Hebrew, Arabic and other scripts in these blocks of Unicode, and the blanks between them.
_LETTER = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
RIGHT_TO_LEFT = re.compile(f"{_LETTER}+(?: +{_LETTER}+)*")
# Words of scripts from Devanagari to Vedic, without the stroke that ends a sentence.
SYLLABLES = "[◌\u0900-\u0963\u0966-\u1cff]+"
JOINED = re.compile(f"({RIGHT_TO_LEFT.pattern}|{SYLLABLES})")
_MARKED = re.compile(f"␣({RIGHT_TO_LEFT.pattern})")
_DOCUMENT = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">
<style>.embcli-wide {{ font-family: {wide_fonts}; text-anchor: middle; }}</style>
<rect width="100%" height="100%" fill="{background}"/>
<g style="font-family: {fonts}; font-size: {font_size}px" \
fill="{foreground}" color="{foreground}">
{elements}
</g>
</svg>
"""


def picture(lines: Lines, theme: TerminalTheme) -> str:
    """Return lines with margins around them as an SVG picture."""
    width = (_columns(lines) + 2 * _MARGIN) * CELL - 1
    height = (len(lines) + _MARGIN) * LINE - 1
    group = _group(lines, _MARGIN * CELL, _MARGIN / 2 * LINE)
    return _document([group], theme, width, height)


def slide(heading: Lines, lines: Lines, source: Lines, theme: TerminalTheme) -> str:
    """Return lines as a slide of 1920 x 1080, between a large line and a small one.

    All are drawn as large as they fit.
    """
    scale = slide_scale(lines)
    line = scale * LINE
    left = scale * _MARGIN * CELL
    room = (_SLIDE_WIDTH - 2 * left) / CELL
    height = min(_HEADING, _HEADING_LINES / len(heading))
    groups = [
        _group(heading, left, 0.8 * line, min(room / _columns(heading), height * scale)),
        _group(lines, left, _ABOVE * line, scale),
        _group(
            source,
            left,
            _SLIDE_HEIGHT - 1.1 * line,
            min(room / _columns(source), _SOURCE * scale),
        ),
    ]
    return _document(groups, theme, _SLIDE_WIDTH, _SLIDE_HEIGHT)


def slide_scale(lines: Lines) -> float:
    """Return how large the lines of a slide are drawn: as they fit, if they are not short."""
    columns = max(_columns(lines), SHORT_SLIDE) + 2 * _MARGIN
    height = len(lines) + _ABOVE + _BELOW
    return min(_SLIDE_WIDTH / (columns * CELL), _SLIDE_HEIGHT / (height * LINE))


def _columns(lines: Lines) -> int:
    return Segment.get_shape(lines)[0]


def _document(groups: Sequence[str], theme: TerminalTheme, width: float, height: float) -> str:
    return _DOCUMENT.format(
        width=width,
        height=height,
        fonts=FONTS,
        wide_fonts=_WIDE_FONTS,
        font_size=FONT_SIZE,
        foreground=theme.foreground_color.hex,
        background=theme.background_color.hex,
        elements="\n".join(groups),
    )


def _group(lines: Lines, left: float, top: float, scale: float = 1) -> str:
    """Return lines at a place, and of a size, as an element."""
    backgrounds: list[str] = []
    texts: list[str] = []
    for number, line in enumerate(lines):
        y = number * LINE
        x = 0.0
        for segment in line:
            backgrounds += _background(segment, x, y + 1.5)
            texts += letters(segment, x, y + _BASELINE)
            x += segment.cell_length * CELL
    elements = "\n".join(backgrounds + texts)
    return f'<g transform="translate({left:g} {top:g}) scale({scale:g})">\n{elements}\n</g>'


def _background(segment: Segment, x: float, y: float) -> Iterator[str]:
    """Yield what lies below the letters of a segment: a colour, or elements."""
    style = segment.style or Style.null()
    width = segment.cell_length * CELL
    if style.bgcolor:
        size = f'width="{width:g}" height="{LINE + 0.25:g}"'
        color = style.bgcolor.get_truecolor().hex
        yield f'<rect fill="{color}" x="{x:g}" y="{y:g}" {size} {CRISP}/>'
    if "svg" in style.meta:
        yield f'<g transform="translate({x:g} {y:g})">{style.meta["svg"]}</g>'


def letters(segment: Segment, x: float, y: float) -> Iterator[str]:
    """Yield the letters of a segment; a wide one is in the middle of its cells."""
    if not segment.text.strip():
        return
    style = segment.style or Style.null()
    y += LINE * style.meta.get("lines_lower", 0.0)
    look = ""
    if style.color:
        look += f' fill="{style.color.get_truecolor().hex}"'
    if style.bold:
        look += ' font-weight="bold"'
    for text, cells, is_apart in runs(segment.text):
        width = cells * CELL
        code = html.escape(text).replace(" ", "&#160;")
        if is_apart and not JOINED.match(text):
            middle = x + width / 2
            yield f'<text class="embcli-wide" x="{middle:g}" y="{y:g}"{look}>{code}</text>'
        else:
            fit = _FITTED if is_apart else ""
            fonts = _FONTS_OF_HEBREW if "\u0590" <= text < "\u0600" else ""
            size = f'textLength="{width:g}"{fit}{fonts}'
            yield f'<text x="{x:g}" y="{y:g}" {size}{look}>{code}</text>'
        x += width


class Run(NamedTuple):
    """Part of a text: narrow characters, or one that has a place of its own."""

    text: str
    cells: int
    is_apart: bool  # whether it is a wide character, or words whose letters join


def runs(text: str) -> Iterator[Run]:
    """Yield the parts of a text.

    Words whose letters join are apart, so that no viewer moves what is beside them, as their IDs.
    The mark of a space is on the right of words that it is before if they are read from the right.
    """
    text = _MARKED.sub(r"\1␣", text)
    for place, part in enumerate(JOINED.split(text)):
        if place % 2:
            yield Run(part, cell_len(part), True)
            continue
        graphemes, _ = split_graphemes(part)
        for is_wide, run in groupby(graphemes, lambda grapheme: grapheme[2] > 1):
            spans = list(run)
            if not is_wide:
                width = sum(cells for _, _, cells in spans)
                spans = [(spans[0][0], spans[-1][1], width)]
            for start, end, cells in spans:
                yield Run(part[start:end], cells, is_wide)

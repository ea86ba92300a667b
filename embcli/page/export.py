"""A result's page in other forms than a terminal's.

They are plain text, SVG, HTML, PNG, a fragment for a notebook, and Markdown. rich exports all but
the last two: PNG is drawn of the SVG, and Markdown is made of the same tables and texts.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from itertools import chain
from typing import NamedTuple, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from embcli.errors import OutputError
from embcli.formats import PageFormat
from embcli.names import PICTURE_WIDTH, Background, Theme
from embcli.page.colors import INKS
from embcli.page.medium import Medium, PageConsole, pipe_width, terminal_background
from embcli.page.parts import (
    CutPage,
    Drawing,
    Flow,
    RuledLine,
    Sheets,
    Title,
    TypedCommand,
    safe_text,
    title,
)
from embcli.page.strips import Shades
from embcli.page.svg import (
    FONTS,
    HEADING_COLUMNS,
    JOINED,
    LONGEST_HEADING,
    LONGEST_SOURCE,
    SHORT_SLIDE,
    SLIDE_COLUMNS,
    SLIDE_LINES,
    SYLLABLES,
    WIDEST_SLIDE,
    Run,
    picture,
    runs,
    slide,
    slide_scale,
)
from embcli.page.table import Bar, Line, Shortened
from embcli.tokens import in_picture
from embcli.wording import Sentence

_ZOOM = 1.5  # the size of a PNG relative to its SVG, unless it is a slide
_ANSI = [(127, 127, 127)] * 8  # no page uses the 16 colours of a terminal
_THEMES = {
    "light": TerminalTheme((255, 255, 255), (36, 41, 47), _ANSI),
    "dark": TerminalTheme((17, 21, 28), (226, 230, 234), _ANSI),
}
_HTML = """\
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<title>{heading}</title>
<style>
body {{ background: {background}; color: {foreground}; margin: 12px; }}
pre {{ font: 14px/16px FONTS; margin: 0; }}
p {{ font: 16px/22px Georgia,serif; max-width: 44em; margin: 6px 0; }}
h1 {{ font: bold 28px/34px Georgia,serif; margin: 0 0 12px; }}
h2 {{ font: bold 19px/24px Georgia,serif; margin: 0 0 8px; }}
pre svg {{ width: 100ch; max-width: 100%; height: auto; }}
.embcli-wide {{ text-anchor: middle; }}
section + section {{ margin-top: 28px; }}
@page {{ margin: 14mm; @bottom-center {{ content: counter(page); }} }}
@media print {{
  body {{ margin: 0; }}
  pre {{ font-size: 8.5pt; line-height: 11pt; break-inside: avoid; }}
  p {{ font-size: 10.5pt; line-height: 14pt; max-width: none; }}
  section {{ break-inside: avoid; }}
  section.new-paper {{ break-before: page; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
""".replace("FONTS", FONTS)
_PAPER = """\
<style>
@page {{ size: {paper}; }}
p {{ overflow-wrap: anywhere; break-inside: avoid; }}
pre + p {{ margin-top: 12px; }}
p.line {{ display: flex; align-items: end; height: 9mm; margin: 0; border-bottom: 0.5pt solid; }}
h1, h2, pre:has(+ pre) {{ break-after: avoid; }}
section.new-paper ~ section + section + section:last-of-type {{ break-before: avoid; }}
h1 + .line, h1 + .line + .line {{ display: inline-flex; width: 49%; }}
section.new-paper ~ section p:first-of-type {{ font-style: italic; }}
@page {{ margin: 14mm 14mm 12mm; font: 10pt Georgia,serif; }}
@page {{ @top-right {{ content: "Name: ______________________________"; }} }}
@page :first {{ margin-top: 12mm; @top-right {{ content: " "; }} }}
@page answers {{ @top-right {{ content: "Answers"; }} }}
@media print {{
  pre {{ font-size: 10pt; line-height: 11.5pt; }}
  p {{ line-height: 13.5pt; }}
  section + section {{ margin-top: 16pt; }}
  section.new-paper {{ margin-top: 0; }}
  section.new-paper ~ section {{ margin-top: 12pt; }}
  section.new-paper ~ section pre {{ font-size: 9pt; line-height: 10pt; }}
  section.new-paper ~ section p {{ line-height: 12.5pt; margin: 4px 0; }}
  section.new-paper ~ section h2 {{ font-size: 17px; line-height: 20px; margin-bottom: 5px; }}
  section.new-paper, section.new-paper ~ section {{ page: answers; }}
  span[style*="{dim}"] {{ color: black !important; }}
}}
</style>
"""
_FULL_WINDOW = """\
<style>
body { margin: 0; }
svg { display: block; width: 100vw; height: 100vh; }
@page { size: 1920px 1080px; margin: 0; @bottom-center { content: none; } }
</style>
"""
# Another font may draw a character, in another width.
_BOX = '<span style="display: inline-block; width: {cells}ch">{text}</span>'
# Words whose letters join are drawn as wide as their cells; the bottom is at the base of letters.
_FITTED = (
    '<svg style="width: {cells}ch; max-width: none; height: .8em; overflow: visible">'
    '<text y="100%" textLength="100%" lengthAdjust="spacingAndGlyphs" fill="currentColor">'
    "{text}</text></svg>"
)
# The width of such a word, from Devanagari on, in an SVG picture.
_WIDTH_OF_WORD = re.compile(
    rf'(?<=textLength=")([1-9]\S*)(?=" lengthAdjust="spacingAndGlyphs"[^>]*>({SYLLABLES})<)'
)
_MARK = 5.5  # pixels of a spacing mark
_MOST_TRIED = 24  # characters that may have no font; to try one takes 4 ms
_AS_LARGE = 0.9  # as the largest type of a slide: wider parts beside each other are better


class Frame(NamedTuple):
    """What is around the page of a picture, and how one that is too long can have fewer lines."""

    is_slide: bool
    heading: str  # of a slide
    source: str  # on a slide: the program, the model, the seed
    models: Sequence[str]  # their names, which are below another picture
    fewer_lines: Sentence
    bare: RenderableType = ""  # the same page without remarks


def text(
    page: RenderableType,
    width: int,
    lines: int | None = None,
    color: bool = False,
    theme: Theme = "auto",
) -> str:
    """Return a page as in a pipe or, with the lines of a screen, as on a terminal.

    No line ends in spaces. A width of 0 stands for that of a pipe.
    """
    background = terminal_background() if theme == "auto" else theme
    color_system = None
    if color:
        color_system = Console(force_terminal=True).color_system or "standard"
    console = PageConsole(Medium(background, height=lines), width or pipe_width(), color_system)
    with console.capture() as captured:
        console.print(Segments(_segments(page, console)), end="")
    return re.sub(" +$", "", captured.get(), flags=re.MULTILINE)


def _segments(page: RenderableType, console: PageConsole) -> list[Segment]:
    """Return a page in colours for its background.

    On a terminal that is dark, or of which nothing is known, those are the colours of all pages.
    """
    options = console.options.update(highlight=False, markup=False)
    medium = console.medium
    context = copy_context()
    context.run(in_picture.set, medium.shows_svg)
    segments = context.run(list, console.render(page, options))
    if medium.shows_svg or medium.background == "light":
        segments = [_inked(segment, INKS[medium.background]) for segment in segments]
    return segments


def exported(
    page: RenderableType,
    format: PageFormat,
    width: int,
    theme: Theme,
    remark: Callable[[str], object] | None = None,
    frame: Frame | None = None,
) -> bytes:
    """Return a page as a text or a picture, which is light unless the theme is dark.

    A picture of a model has its name below it.

    A width of 0 stands for that of a pipe, or of a picture.
    `remark` gets a sentence on characters that a PNG does not show.
    Raises OutputError if PNG cannot be drawn here.
    """
    background = "light" if theme == "auto" else theme
    is_slide = frame is not None and frame.is_slide
    if frame and frame.models and not is_slide:
        page = Group(page, "", safe_text(f"From {', '.join(frame.models)}", "dim"))
    match format:
        case "table":
            return text(page, width).encode()
        case "markdown":
            return markdown(page, width).encode()
        case "html":
            return _html(page, width, background, frame).encode()
        case "svg":
            return _svg(page, width, background, frame).encode()
        case "png":
            svg = _svg(page, width, background, frame)
            if remark:
                _remark_undrawn(svg, remark)
            return png(svg, background, 1.0 if is_slide else _ZOOM)


def _svg(page: RenderableType, width: int, background: Background, frame: Frame | None) -> str:
    theme = _THEMES[background]
    if frame is None or not frame.is_slide:
        medium = Medium(background, is_file=True, has_fine_cells=True, shows_svg=True)
        return picture(_lines(page, width, medium), theme)

    medium = Medium(background, False, SLIDE_LINES, True, True, is_slide=True)
    lines = _slide_lines(page, medium)
    if len(lines) > SLIDE_LINES:
        wrong = "this page has {count} lines, and a slide has room for {most}; {fewer}"
        if len(_slide_lines(frame.bare, medium)) <= SLIDE_LINES:
            wrong += ", or {bare}"
        raise OutputError(wrong, count=len(lines), most=SLIDE_LINES, fewer=frame.fewer_lines)
    heading = title(frame.heading)
    heading.truncate(LONGEST_HEADING, overflow="ellipsis")
    columns = SLIDE_COLUMNS if heading.cell_len <= SLIDE_COLUMNS else HEADING_COLUMNS
    source = safe_text(frame.source, "dim")
    source.truncate(LONGEST_SOURCE, overflow="ellipsis")
    return slide(
        _lines(heading, columns, medium), lines, _lines(source, LONGEST_SOURCE, medium), theme
    )


def _slide_lines(page: RenderableType, medium: Medium) -> list[list[Segment]]:
    """Return the lines of a page, as wide as makes a slide show them largest.

    A page narrower than `SLIDE_COLUMNS` is taken only if it shows all that one of this width does.
    Of pages that are about as large, the widest is taken: its parts stand beside each other.
    """
    pages = [_lines(page, WIDEST_SLIDE, medium), _lines(page, SLIDE_COLUMNS, medium)]
    shown = _characters(pages[1])
    for width in range(SLIDE_COLUMNS - 4, SHORT_SLIDE - 1, -4):
        lines = _lines(page, width, medium)
        if len(lines) > SLIDE_LINES:
            break  # as narrower ones have more
        if shown <= _characters(lines):
            pages.append(lines)
    largest = max(map(slide_scale, pages))
    return next(lines for lines in pages if slide_scale(lines) >= _AS_LARGE * largest)


def _characters(lines: Sequence[Sequence[Segment]]) -> Counter[str]:
    """Return how often lines show each character that is no part of a frame.

    A cell of a strip of colours counts as one, so that shorter strips show less.
    """
    characters: Counter[str] = Counter()
    for segment in chain.from_iterable(lines):
        is_colored = segment.style and "svg" in segment.style.meta
        characters.update(segment.text.replace(" ", "█") if is_colored else segment.text)
    for frame in " ─│":
        del characters[frame]
    return characters


def _html(page: RenderableType, width: int, background: Background, frame: Frame | None) -> str:
    """Return a page as a document of HTML, with a section for each of several sheets.

    A slide is the SVG picture of it, as large as the window.
    """
    terminal = _THEMES[background]
    heading = "embcli"
    body = ""
    if frame and frame.is_slide:
        heading = frame.heading
        body = _FULL_WINDOW + _svg(page, width, background, frame)
    elif isinstance(page, Sheets):
        heading = page.heading
        body = _PAPER.format(paper=page.paper, dim=INKS["light"]["dim"])
        for place, sheet in enumerate(page.sheets):
            body += '<section class="new-paper">\n' if place == page.new_paper else "<section>\n"
            for part in sheet:
                match part:
                    case Title():
                        name = "h1" if place in (0, page.new_paper) else "h2"
                        body += f"<{name}>{html.escape(part.plain)}</{name}>\n"
                    case RuledLine():
                        body += f'<p class="line">{html.escape(part.words)}</p>\n'
                    case Text():
                        words = html.escape(part.plain)
                        if _is_bold(part):
                            words = f"<b>{words}</b>"
                        body += f"<p>{words}</p>\n"
                    case "":
                        pass
                    case _:
                        body += f"<pre>{_html_code(part, SLIDE_COLUMNS, background)}</pre>"
            body += "</section>\n"
    else:
        body = f"<pre>{_html_code(page, width, background)}</pre>"
    return _HTML.format(
        heading=html.escape(heading),
        body=body,
        background=terminal.background_color.hex,
        foreground=terminal.foreground_color.hex,
    )


def fragment(page: RenderableType, width: int, theme: Theme) -> str:
    """Return a page as an element for a notebook, which is light unless the theme is dark."""
    background = "light" if theme == "auto" else theme
    terminal = _THEMES[background]
    colors = f"background: {terminal.background_color.hex}; color: {terminal.foreground_color.hex}"
    style = f"{colors}; font: 14px/16px {FONTS}; white-space: pre; overflow-x: auto"
    return f'<pre style="{style}">{_html_code(page, width, background)}</pre>'


def _html_code(page: RenderableType, width: int, background: Background) -> str:
    """Return a page as text with elements of HTML for its colours."""
    lines = _lines(page, width, Medium(background, is_file=True, shows_svg=True))
    segments = []
    for line in lines:
        segments += [*line, Segment("\n")]
    code = ""
    for text, style, _ in Segment.simplify(segments):
        element = "".join(map(_html_run, runs(text)))
        if style and "svg" in style.meta:
            element = style.meta["svg"]
        css = style.get_html_style(_THEMES[background]) if style else ""
        code += f'<span style="{css}">{element}</span>' if css else element
    return code.replace("⋮", _BOX.format(cells=1, text="⋮"))


def _html_run(run: Run) -> str:
    """Return part of a text as HTML; what is apart takes its columns in any font."""
    text = html.escape(run.text)
    if not run.is_apart:
        return text
    box = _FITTED if JOINED.match(text) else _BOX
    return box.format(cells=run.cells, text=text)


def png(svg: str, background: Background = "light", zoom: float = _ZOOM) -> bytes:
    """Return an SVG picture as PNG, drawn with a monospace font of this machine."""
    import resvg_py

    if _drawn("X") == _drawn(""):
        raise OutputError(
            "png needs a monospace font, and there is none; "
            "on Debian: apt install fonts-dejavu-core"
        )
    svg = _WIDTH_OF_WORD.sub(_corrected, svg)
    # The SVG can end within the last pixels, which have its background, too.
    ground = _THEMES[background].background_color.hex
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, background=ground))


def _corrected(word: re.Match[str]) -> str:
    """Return the width to ask resvg for, so that a word is as wide as it should be.

    resvg does not count the spacing marks of a word; most are about half as wide as a letter.
    """
    width = float(word[1])
    marks = [*map(unicodedata.category, word[2])].count("Mc")
    return f"{width * width / (width + marks * _MARK):g}"


def _drawn(text: str) -> bytes:
    """Return a small PNG of a text."""
    import resvg_py

    attributes = 'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"'
    svg = f'<svg {attributes}><text y="9" font-family="{FONTS}">{text}</text></svg>'
    return bytes(resvg_py.svg_to_bytes(svg_string=svg))


def _remark_undrawn(svg: str, remark: Callable[[str], object]) -> None:
    """Say which characters of a picture no font of this machine has, if there are any.

    Monospace fonts have the letters of Europe and the symbols of pages; of all others, one of each
    128 in Unicode's order is tried, as a script has about as many.
    """
    others = sorted(set(re.findall(r"[\u0590-\u1fff\u2c00-\U0010ffff]", svg)))
    tried = {ord(character) >> 7: character for character in others}
    box = _drawn("\U0010fffd")  # a character for private use
    missing = []
    for character in [*tried.values()][:_MOST_TRIED]:
        if _drawn(character) == box:
            missing.append(unicodedata.name(character, repr(character)))
    if missing:
        remark(
            f"no font of this machine has {', '.join(missing)}, so the PNG shows boxes; SVG and "
            "HTML use the fonts of their viewer; on Debian: apt install fonts-noto"
        )


def _lines(page: RenderableType, width: int, medium: Medium) -> list[list[Segment]]:
    """Return the lines of a page in a file."""
    console = PageConsole(medium, width or PICTURE_WIDTH, "truecolor")
    segments = _segments(page, console)
    return list(Segment.split_lines(segments))


def _inked(segment: Segment, inks: dict[str, str]) -> Segment:
    """Return a segment in the colour that takes the place of its own in a picture, if one does."""
    style = segment.style or Style.null()
    name = ""
    if style.color:
        name = style.color.name
    elif style.dim:
        name = "dim"
    if name not in inks:
        return segment
    return segment._replace(style=style + Style.parse(f"not dim {inks[name]}"))


def markdown(page: RenderableType, width: int) -> str:
    """Return a page as Markdown: its tables, its texts as paragraphs, drawings as code."""
    console = PageConsole(Medium("light"), width or pipe_width())
    return "\n\n".join(filter(None, _blocks(page, console))) + "\n"


def _blocks(page: RenderableType, console: Console) -> Iterator[str]:
    match page:
        case str():
            yield _sentence(Text(page))
        case TypedCommand():
            yield f"    {page.plain}"
        case Text():
            yield _sentence(page)
        case Table():
            yield _table(page)
        case Drawing():
            # Nothing in a block of code is markup.
            yield "\n".join(f"    {line.plain}".rstrip() for line in page.lines)
        case Flow():
            yield from _blocks(Group(*chain.from_iterable(page.blocks)), console)
        case CutPage():
            yield from _blocks(page.page, console)  # a text has no last line
        case Padding():
            yield from _blocks(page.renderable, console)
        case _:
            for part in page.__rich_console__(console, console.options):  # type: ignore[union-attr]
                yield from _blocks(cast("RenderableType", part), console)


# GitHub also makes links of bare addresses, and math of $.
_MARKS = re.compile(r"[\\`*_\[<|~$&@]|:(?=//)|(?<=www)\.")
# At the beginning of a line they make a list, a quote or a heading.
_MARKS_IN_FRONT = re.compile(r"^(\d+(?=[.)](?: |$))|(?=-(?!\d)|[+>#]))")
# A parser may strip all blanks except spaces.
_BLANKS = re.compile(r"[^\S ]")


def _sentence(text: Text) -> str:
    """Return a text in one line of Markdown, in which none of it is markup."""
    escaped = _MARKS.sub(r"\\\g<0>", text.plain.strip(" "))
    escaped = _BLANKS.sub(lambda blank: f"&#x{ord(blank[0]):x};", escaped)
    escaped = _MARKS_IN_FRONT.sub(r"\1\\", escaped)
    return f"**{escaped}**" if escaped and _is_bold(text) else escaped


def _is_bold(text: Text) -> bool:
    return isinstance(text.style, Style) and bool(text.style.bold)


def _table(table: Table) -> str:
    """Return a table without its bars.

    The cells of a Line are columns of their own, each with the title of its block.
    """
    columns = []
    for column in table.columns:
        header = _text(column.header)
        cells = [_text(cell) for cell in column.cells]
        match header:
            case Bar():
                pass
            case Line():
                columns += _columns_of_lines(header, cells)
            case _:
                columns.append(_column(header, cells, column.justify == "right"))
    rows = [" | ".join(row) for row in zip(*columns, strict=True)]
    return "\n".join(f"| {row} |" for row in rows)


def _columns_of_lines(header: Line, lines: Sequence[Text]) -> list[list[str]]:
    rows = [line.cells for line in lines if isinstance(line, Line)]
    columns = []
    for name, *cells in zip(header.cells, *rows, strict=True):
        title = Text(f"{header.title} {name.plain}".strip())
        columns.append(_column(title, cells, is_right=True))
    return columns


def _column(header: Text, cells: Sequence[Text], is_right: bool) -> list[str]:
    """Return the header of a column, a rule below it, and its cells, all of one width."""
    written = [_cell(header), *map(_cell, cells)]
    width = max(3, *(cell.cell_len for cell in written))
    for cell in written:
        cell.align("right" if is_right else "left", width)
    first_line, *lines = (cell.plain for cell in written)
    dashes = "-" * (width - 1)
    rule = f"{dashes}:" if is_right else f":{dashes}"
    return [first_line, rule, *lines]


def _cell(cell: Text) -> Text:
    if isinstance(cell, Shades):
        return Text(f"`{cell.plain}`")
    return Text(_sentence(cell))


def _text(cell: RenderableType) -> Text:
    match cell:
        case Shortened():
            return cell.text
        case Text():
            return cell
        case _:
            return Text(str(cell))

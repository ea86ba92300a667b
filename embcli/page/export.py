"""A result's page in other forms than a terminal's: plain text, SVG, HTML, PNG, a notebook's fragment, Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.terminal_theme import TerminalTheme
from rich.text import Text
from rich.theme import Theme as Themes

from embcli.errors import OutputError
from embcli.page.colors import DARK, INKS
from embcli.page.parts import CutPage, Sheets
from embcli.page.strips import Shades
from embcli.page.table import Bar, Drawing, Line, Shortened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.formats import PageFormat
    from embcli.names import Theme

_FONTS = "'DejaVu Sans Mono',Menlo,Consolas,monospace"
_ANSI = [(127, 127, 127)] * 8  # a page uses none of the 16 colours of a terminal
_THEMES: dict[Theme, TerminalTheme] = {
    "light": TerminalTheme((255, 255, 255), (36, 41, 47), _ANSI),
    "dark": TerminalTheme((17, 21, 28), (226, 230, 234), _ANSI),
}
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {terminal_width} {terminal_height}" width="{terminal_width}">
<style>
.{unique_id}-matrix {{ font-family: FONTS; font-size: 21px; }}
{styles}
</style>
<rect width="100%" height="100%" fill="GROUND"/>
<defs>{lines}</defs>
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</svg>
""".replace("FONTS", _FONTS)
_HTML = """\
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<title>embcli</title>
<style>
body {{ background: {background}; color: {foreground}; margin: 12px; }}
pre {{ font: 14px/16px FONTS; margin: 0; }}
pre + pre {{ margin-top: 16px; }}
@media print {{
  body {{ margin: 0; }}
  pre {{ font-size: 8pt; line-height: 9.2pt; break-inside: avoid; }}
  pre + pre:last-child {{ break-before: page; }}
}}
</style>
</head>
<body>
<pre>{code}</pre>
</body>
</html>
""".replace("FONTS", _FONTS)
_PROBE = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><text y="9" font-family="{_FONTS}">X</text></svg>'
_FRAGMENT = (
    f'<pre style="font: 14px/16px {_FONTS}; white-space: pre; overflow-x: auto">{{code}}</pre>'
)
_DOTS = '<span style="display: inline-block; width: 1ch">⋮</span>'  # which another font may draw, in another width
_MARKS = re.compile(
    r"[\\`*_\[<|~$&@]|:(?=//)|(?<=www)\."
)  # GitHub also makes links of bare addresses, and math of $
_MARKS_IN_FRONT = re.compile(
    r"^(\d+(?=[.)](?: |$))|(?=-(?!\d)|[+>#]))"
)  # of lists, quotes, headings
_BLANKS = re.compile(r"[^\S ]")  # all but the common one; a parser may strip them


def text(page: RenderableType, width: int, lines: int | None = None, color: bool = False) -> str:
    """Return a page as in a pipe, or on a terminal of some lines, without blanks at the ends of lines."""
    colors = (Console(force_terminal=True).color_system or "standard") if color else None
    console = _console(
        width,
        height=lines,
        force_terminal=lines is not None,
        color_system=colors,
        no_color=not color,
    )
    with console.capture() as captured:
        console.print(page, highlight=False, markup=False, emoji=False)
    return "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))


def exported(
    page: RenderableType, format: PageFormat, width: int, theme: Theme, color: bool = True
) -> bytes:
    """Return a page as a text or a picture. Raises OutputError if PNG cannot be drawn here."""
    if format in ("table", "markdown"):
        return (text(page, width) if format == "table" else markdown(page, width)).encode()
    if format == "html":
        return _html(page, width, color, theme).encode()
    console = _recorded(page, width, color, theme, margin=2)
    code = _SVG.replace("GROUND", _THEMES[theme].background_color.hex)
    svg = console.export_svg(
        theme=_THEMES[theme], code_format=code, unique_id="embcli", font_aspect_ratio=0.602
    )
    return svg.encode() if format == "svg" else png(svg)


def _html(page: RenderableType, width: int, color: bool, theme: Theme) -> str:
    """Return a page as a document of HTML, in which a printer keeps each sheet whole."""
    codes = []
    for sheet in page.sheets if isinstance(page, Sheets) else [page]:
        console = _recorded(sheet, width, color, theme)
        codes.append(
            console.export_html(theme=_THEMES[theme], code_format="{code}", inline_styles=True)
        )
    background = _THEMES[theme].background_color.hex
    foreground = _THEMES[theme].foreground_color.hex
    code = "</pre>\n<pre>".join(codes).replace("⋮", _DOTS)
    return _HTML.format(code=code, background=background, foreground=foreground)


def fragment(page: RenderableType, width: int) -> str:
    """Return a page as an element for a notebook; its colours can be read on a light and on a dark background."""
    console = _recorded(page, width, True, None)
    return console.export_html(code_format=_FRAGMENT, inline_styles=True).replace("⋮", _DOTS)


def png(svg: str) -> bytes:
    """Return an SVG picture as PNG, by a monospace font of this machine."""
    import resvg_py

    if resvg_py.svg_to_bytes(svg_string=_PROBE) == resvg_py.svg_to_bytes(
        svg_string=_PROBE.replace("X", "")
    ):
        raise OutputError(
            "png needs a monospace font, and there is none; on Debian: apt install fonts-dejavu-core"
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2))


def markdown(page: RenderableType, width: int) -> str:
    return "\n\n".join(filter(None, _blocks(page, _console(width, color_system=None)))) + "\n"


def _console(width: int, **options: Any) -> Console:
    """Return a console for a page; in a notebook rich's own would print there, too."""
    return Console(file=io.StringIO(), width=width, force_jupyter=False, **options)


def _recorded(
    page: RenderableType, width: int, color: bool, theme: Theme | None, margin: int = 0
) -> Console:
    """Return a console with a page, which is as wide as the longest line, and margins; no theme for any background."""
    console = _console(width, record=True, color_system="truecolor", no_color=not color)
    if theme == "dark":
        console.push_theme(Themes({DARK: "bold"}))
    segments = console.render(page, console.options.update(highlight=False, markup=False))
    inked = (_inked(segment, INKS[theme] if theme else {}) for segment in segments)
    lines = [*Segment.split_lines(inked if color else Segment.remove_color(segments))]
    console.width = max(map(Segment.get_line_length, lines), default=width) + 2 * margin
    edge = [Segment("\n")] * (margin // 2)
    body = [each for line in lines for each in (Segment(" " * margin), *line, Segment("\n"))]
    console.print(Segments([*edge, *body, *edge]), end="", crop=False)
    return console


def _inked(segment: Segment, inks: dict[str, str]) -> Segment:
    style = segment.style or Style.null()
    ink = inks.get(style.color.name if style.color else "dim" if style.dim else "")
    return segment._replace(style=style + Style.parse(f"not dim {ink}")) if ink else segment


def _blocks(page: RenderableType, console: Console) -> Iterator[str]:
    if isinstance(page, str | Text):
        yield _sentence(page if isinstance(page, Text) else Text(page))
    elif isinstance(page, Table):
        yield _table(page)
    elif isinstance(page, Drawing):
        yield "\n".join(
            f"    {line.plain}".rstrip() for line in page.lines
        )  # a block of code, whatever is in it
    elif isinstance(page, CutPage):
        yield from _blocks(page.page, console)  # a text has no last line
    elif isinstance(page, Padding):
        yield from _blocks(page.renderable, console)
    else:
        for part in page.__rich_console__(console, console.options):  # type: ignore[union-attr]
            yield from _blocks(cast("RenderableType", part), console)


def _sentence(text: Text) -> str:
    marked = _MARKS.sub(r"\\\g<0>", text.plain.strip(" "))
    escaped = _MARKS_IN_FRONT.sub(
        r"\1\\", _BLANKS.sub(lambda match: f"&#x{ord(match[0]):x};", marked)
    )
    return (
        f"**{escaped}**"
        if escaped and isinstance(text.style, Style) and text.style.bold
        else escaped
    )


def _table(table: Table) -> str:
    """Return a table without its bars; the cells of a line are columns of their own, with the title of their block."""
    columns = []
    for column in table.columns:
        header, *cells = map(_text, (column.header, *column.cells))
        if isinstance(header, Bar):
            continue
        if isinstance(header, Line):
            heads = [Text(f"{header.title} {cell.plain}".strip()) for cell in header.cells]
            rows = [cell.cells if isinstance(cell, Line) else [cell] * len(heads) for cell in cells]
            columns += [_column(each, True) for each in zip(heads, *rows, strict=True)]
        else:
            columns.append(_column((header, *cells), column.justify == "right"))
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))


def _column(cells: Sequence[Text], is_right: bool) -> list[str]:
    """Return the cells of a column, the header first, and a rule below it, all of one width."""
    shown = [
        Text(f"`{cell.plain}`" if isinstance(cell, Shades) else _sentence(cell)) for cell in cells
    ]
    width = max(3, *(cell.cell_len for cell in shown))
    for cell in shown:
        cell.align("right" if is_right else "left", width)
    rule = "-" * (width - 1)
    return [
        shown[0].plain,
        f"{rule}:" if is_right else f":{rule}",
        *(cell.plain for cell in shown[1:]),
    ]


def _text(cell: RenderableType) -> Text:
    whole = cell.text if isinstance(cell, Shortened) else cell
    return whole if isinstance(whole, Text) else Text(str(whole))

"""Pages as self-contained XHTML, without scripts; text can be selected and copied. A fragment is for a notebook."""

from collections.abc import Iterable
from itertools import groupby
from xml.sax.saxutils import escape

from embcli.oldpage.canvas import LINE, MARGIN, PALETTES, SIZE, Palette
from embcli.oldpage.shapes import Run, ThemedPage, boxes_of
from embcli.oldpage.svg import FONTS

_DOCUMENT = """\
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<title>embcli</title>
<style>
body {{ background: {ground}; color: {ink}; margin: {margin}px; }}
{rules}</style>
</head>
<body>
<pre>{lines}</pre>
</body>
</html>
"""
_RULES = """\
{scope}pre {{ font: {size}px/{line}px {fonts}; margin: 0; }}
{scope}i {{ display: inline-block; height: {line}px; vertical-align: top; font-style: normal; overflow: hidden; }}
{scope}i.drawn {{ color: transparent; position: relative; }}
{scope}i.drawn span {{ position: absolute; }}
"""
# The notebook's own theme wins over the system's: JupyterLab and VS Code name theirs on the body.
_FRAGMENT = """\
<div class="embcli-page"><style>
.embcli-page {{ {light} overflow-x: auto; }}
@media (prefers-color-scheme: dark) {{ .embcli-page {{ {dark} }} }}
[data-jp-theme-light="true"] .embcli-page, .vscode-light .embcli-page {{ {light} }}
[data-jp-theme-light="false"] .embcli-page, .vscode-dark .embcli-page {{ {dark} }}
{rules}div.embcli-page pre {{ background: none; border: 0; color: {ink}; padding: 0; white-space: pre; }}
</style><pre>{lines}</pre></div>
"""
_SCOPE = "div.embcli-page "
_BOLD = ";font-weight:bold"


def _variables(palette: Palette) -> dict[str, str]:
    """Return the colours of text by the names of their CSS custom properties."""
    tones = {name.replace(" ", "-"): color for name, color in palette.tones.items()}
    return {f"--embcli-{name}": color for name, color in {"ink": palette.ink, "dim": palette.dim, **tones}.items()}


def _declared(palette: Palette) -> str:
    return " ".join(f"{name}: {color};" for name, color in _variables(palette).items())


def _by_name(palette: Palette) -> Palette:
    """Return a palette whose colours refer to the custom properties."""
    ink, dim, *tones = (f"var({name})" for name in _variables(palette))
    return Palette("none", ink, dim, dict(zip(palette.tones, tones, strict=True)))


class Html(ThemedPage):
    """A page as an XHTML document.

    ASCII stands as it is; other characters get boxes of their width, as they may come from another font.
    """

    def content(self) -> bytes:
        """Return the document in UTF-8."""
        colors = {"ground": self.palette.ground, "ink": self.palette.ink, "margin": MARGIN}
        return _DOCUMENT.format(**colors, rules=_rules(""), lines=self._lines(self.palette)).encode()

    def fragment(self) -> str:
        """Return the page as an element for a notebook, light or dark as the notebook is, that styles only itself."""
        palette = _by_name(self.palette)
        light, dark = _declared(PALETTES["light"]), _declared(PALETTES["dark"])
        return _FRAGMENT.format(
            light=light, dark=dark, ink=palette.ink, rules=_rules(_SCOPE), lines=self._lines(palette)
        )

    def _lines(self, palette: Palette) -> str:
        return "\n".join(_line(line, palette.ink) for line in self.runs(palette))


def _rules(scope: str) -> str:
    return _RULES.format(scope=scope, size=SIZE, line=LINE, fonts=FONTS)


def _line(line: list[Run], ink: str) -> str:
    """Return a line; shapes side by side are one box without seams."""
    groups = [(is_drawn, [*runs]) for is_drawn, runs in groupby(line, key=lambda run: run.is_drawn)]
    return "".join(_strip(runs) if is_drawn else "".join(_word(run, ink) for run in runs) for is_drawn, runs in groups)


def _word(run: Run, ink: str) -> str:
    text = escape(run.text)
    if run.is_blank:
        return text
    look = (f";color:{run.ink}" if run.ink != ink else "") + _BOLD * run.bold
    if not text.isascii():
        return f'<i style="width:{run.cells}ch{look}">{text}</i>'
    return f'<span style="{look[1:]}">{text}</span>' if look else text


def _strip(runs: list[Run]) -> str:
    start, cells = runs[0].at, sum(run.cells for run in runs)
    bands: dict[tuple[float, float], list[tuple[float, float, str]]] = {}
    for (left, top, right, bottom), color in boxes_of(runs):
        bands.setdefault((top, bottom), []).append(((left - start) / cells, (right - start) / cells, color))
    layers = [_layer(*band, sorted(boxes)) for band, boxes in bands.items()]
    words = (
        escape(run.text)
        if run.is_shape
        else f'<span style="left:{run.at - start}ch;color:{run.ink}{_BOLD * run.bold}">{escape(run.text)}</span>'
        for run in runs
    )
    return f'<i class="drawn" style="width:{cells}ch;background:{",".join(layers)}">{"".join(words)}</i>'


def _layer(top: float, bottom: float, boxes: Iterable[tuple[float, float, str]]) -> str:
    """Return rectangles of one height, from left to right, as a layer of CSS backgrounds."""
    stops, at = [], 0.0
    for left, right, color in boxes:
        if left > at:
            stops.append(f"transparent {at:.4%} {left:.4%}")
        stops.append(f"{color} {left:.4%} {right:.4%}")
        at = right
    if at < 1:
        stops.append(f"transparent {at:.4%}")
    height = bottom - top
    place = top / (1 - height) if height < 1 else 0  # CSS wants a share of the height that is left
    return f"linear-gradient(90deg,{','.join(stops)}) 0 {place:.2%}/100% {height:.2%} no-repeat"

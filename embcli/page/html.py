"""Pages as XHTML, on their own: no script, nothing from elsewhere, and text that can be selected and copied."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from embcli.page.canvas import LINE, MARGIN, SIZE
from embcli.page.drawn import Drawn, boxes_of
from embcli.page.svg import FONTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embcli.page.drawn import Run

_PAGE = """\
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en">
<head>
<meta charset="utf-8" />
<title>embcli</title>
<style>
body {{ background: {ground}; color: {ink}; margin: {margin}px; }}
pre {{ font: {size}px/{line}px {fonts}; margin: 0; }}
i {{ display: inline-block; height: {line}px; vertical-align: top; font-style: normal; overflow: hidden; }}
i.drawn {{ color: transparent; position: relative; }}
i.drawn span {{ position: absolute; }}
</style>
</head>
<body>
<pre>{lines}</pre>
</body>
</html>
"""


class Html(Drawn):
    """A page as an XHTML document.

    ASCII stands as it is; other characters get boxes of their width, for they may come from another font.
    """

    def content(self) -> bytes:
        """Return the document in UTF-8."""
        palette = self._palette
        lines = "\n".join(map(self._written, self.runs()))
        return _PAGE.format(
            ground=palette.ground, ink=palette.ink, margin=MARGIN, size=SIZE, line=LINE, fonts=FONTS, lines=lines
        ).encode()

    def _written(self, line: list[Run]) -> str:
        """Return a line; what is drawn side by side is one box, in which no seams can be seen."""
        groups = [(drawn, [*runs]) for drawn, runs in groupby(line, key=lambda run: run.is_drawn)]
        return "".join(self._strip(runs) if drawn else "".join(map(self._word, runs)) for drawn, runs in groups)

    def _word(self, run: Run) -> str:
        text = escape(run.text)
        if run.is_blank:
            return text
        look = f";color:{run.ink}" if run.ink != self._palette.ink else ""
        look += _bold(run)
        if not text.isascii():
            return f'<i style="width:{run.cells}ch{look}">{text}</i>'
        return f'<span style="{look[1:]}">{text}</span>' if look else text

    def _strip(self, runs: list[Run]) -> str:
        start, cells = runs[0].at, sum(run.cells for run in runs)
        bands: dict[tuple[float, float], list[tuple[float, float, str]]] = {}
        for (left, top, right, bottom), color in boxes_of(runs):
            bands.setdefault((top, bottom), []).append(((left - start) / cells, (right - start) / cells, color))
        layers = [_layer(*band, sorted(boxes)) for band, boxes in bands.items()]
        words = (
            escape(run.text)
            if run.is_shape
            else f'<span style="left:{run.at - start}ch;color:{run.ink}{_bold(run)}">{escape(run.text)}</span>'
            for run in runs
        )
        return f'<i class="drawn" style="width:{cells}ch;background:{",".join(layers)}">{"".join(words)}</i>'


def _bold(run: Run) -> str:
    return ";font-weight:bold" if run.bold else ""


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
    place = top / (1 - height) if height < 1 else 0  # as CSS has it: a share of the room that is left
    return f"linear-gradient(90deg,{','.join(stops)}) 0 {place:.2%}/100% {height:.2%} no-repeat"

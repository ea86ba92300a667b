"""Pages as XHTML, on their own: no script, nothing from elsewhere, and text that can be selected and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from embcli.page.canvas import LINE, MARGIN, SIZE
from embcli.page.drawn import Drawn
from embcli.page.svg import FONTS

if TYPE_CHECKING:
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
i {{ display: inline-block; height: {line}px; overflow: hidden; vertical-align: top; font-style: normal; }}
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
        lines = "\n".join("".join(map(self._word, line)) for line in self.runs())
        return _PAGE.format(
            ground=palette.ground, ink=palette.ink, margin=MARGIN, size=SIZE, line=LINE, fonts=FONTS, lines=lines
        ).encode()

    def _word(self, run: Run) -> str:
        text = escape(run.text)
        if run.is_blank:
            return text
        look = ""
        if run.is_shape or run.ground or not run.text.isascii():
            boxes = [*run.boxes()]
            look = f"width:{run.cells}ch"
            if boxes:
                look += f";background:{','.join(_layer(box, run.cells, color) for box, color in reversed(boxes))}"
        if run.is_shape:
            look += ";color:transparent"
        elif run.ink != self._palette.ink:
            look += f";color:{run.ink}"
        if run.bold:
            look += ";font-weight:bold"
        if not look:
            return text
        name = "i" if look.startswith("width") else "span"
        return f'<{name} style="{look.lstrip(";")}">{text}</{name}>'


def _layer(box: tuple[float, float, float, float], cells: int, color: str) -> str:
    """Return a rectangle as a layer of CSS backgrounds."""
    left, top, right, bottom = box[0] / cells, box[1], box[2] / cells, box[3]
    place = " ".join(f"{_percent(start, stop)}" for start, stop in ((left, right), (top, bottom)))
    return f"linear-gradient({color},{color}) {place}/{(right - left):.2%} {(bottom - top):.2%} no-repeat"


def _percent(start: float, stop: float) -> str:
    """Return where something from start to stop stands, as CSS has it: a share of the room that is left."""
    room = 1 - (stop - start)
    return f"{start / room if room else 0:.2%}"

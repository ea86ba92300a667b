"""Pages as self-contained SVG: no script, no font and no style from elsewhere, and text that can be selected."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from embcli.oldpage.canvas import BASELINE, SIZE, Canvas, Palette, Span
from embcli.oldpage.shapes import CanvasPage

FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class SvgCanvas(Canvas):
    """An SVG document; each span of text is as wide as its cells, so that columns are straight in any font."""

    def __init__(self, width: int, height: int, palette: Palette) -> None:
        super().__init__(width, height, palette)
        self._elements: list[str] = []
        self.rectangle(0, 0, width, height, palette.ground)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Fill a rectangle, with sharp edges."""
        self._elements.append(
            f'<rect x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}" fill="{color}"/>'
        )

    def line(self, y: float, spans: Sequence[Span]) -> None:
        """Write a line of text whose top is at y."""
        if spans:
            words = "".join(map(self._word, spans))
            self._elements.append(f'<text y="{_short(y + BASELINE)}" fill="{self.palette.ink}">{words}</text>')

    def _word(self, span: Span) -> str:
        text = escape(span.text)
        if not span.text.strip(" "):
            return text
        look = f' x="{_short(span.x)}" textLength="{_short(span.width)}"'
        if span.color != self.palette.ink:
            look += f' fill="{span.color or "none"}"'
        if span.bold:
            look += ' font-weight="bold"'
        return f"<tspan{look}>{text}</tspan>"

    def content(self) -> bytes:
        """Return the document in UTF-8."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        text = f'font-family="{FONTS}" font-size="{SIZE}" xml:space="preserve" shape-rendering="crispEdges"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {text}>'
        return "\n".join([head, *self._elements, "</svg>\n"]).encode()


class Svg(CanvasPage):
    """A page as an SVG picture."""

    kind = SvgCanvas


def _short(length: float) -> str:
    """Return a length with at most three decimals."""
    return f"{length:.3f}".rstrip("0").rstrip(".")

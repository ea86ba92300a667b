"""Pages as PNG, drawn by matplotlib without pyplot, whose import takes three times as long."""

import io
import logging
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from embcli import errors
from embcli.errors import OutputError
from embcli.oldpage.canvas import BASELINE, CELL, Canvas, Palette, Span
from embcli.oldpage.layout import cell_len
from embcli.oldpage.shapes import CanvasPage
from embcli.safe import in_line

logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it mentions its font cache
from matplotlib import font_manager  # noqa: E402
from matplotlib.backends.backend_agg import RendererAgg  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import FontProperties  # noqa: E402
from matplotlib.ft2font import FT2Font  # noqa: E402
from PIL import Image  # noqa: E402

_SCALE = 2  # pixels for a unit
_DPI = 72 * _SCALE  # a unit is a point
_MOST = 2**16 - 1  # pixels of a side, the limit of matplotlib
_BYTES = 12  # of a pixel: 4 that are drawn on, 8 in Pillow
_JOINERS = "\u200d\ufe0e\ufe0f"  # join several characters to one picture, if the font has it
_FONT = "DejaVu Sans Mono"  # comes with matplotlib
_SIZE = CELL / 0.602  # of that font, in points


class PngCanvas(Canvas):
    """A PNG picture, two pixels for a unit."""

    def __init__(self, width: int, height: int, palette: Palette) -> None:
        super().__init__(width, height, palette)
        size = width * _SCALE, height * _SCALE
        if max(size) > _MOST or _BYTES * size[0] * size[1] > errors.memory_of_machine():
            raise OutputError("this page is too large for a PNG; SVG and HTML have no size limit")
        self._renderer = RendererAgg(*size, _DPI)  # type: ignore[no-untyped-call]
        self._pixels = np.asarray(self._renderer.buffer_rgba())  # type: ignore[no-untyped-call]  # a view of its buffer
        self._pixels[:] = _rgba(palette.ground)
        self._figure = Figure((width / 72, height / 72), _DPI, frameon=False)

    @staticmethod
    def safe(text: str) -> str:
        """Return a text as it can stand in a line; characters that no installed font has become escapes."""
        return "".join(
            each if _font(each) and each not in _JOINERS else each.encode("ascii", "backslashreplace").decode()
            for each in in_line(text)
        )

    def rectangle(self, x: float, y: float, width: float, height: float, color: str) -> None:
        """Fill a rectangle, with sharp edges, behind all text."""
        left, top, right, bottom = (round(each * _SCALE) for each in (x, y, x + width, y + height))
        self._pixels[top : max(bottom, top + 1), left : max(right, left + 1)] = _rgba(color)

    def line(self, y: float, spans: Sequence[Span]) -> None:
        """Write a line of text whose top is at y."""
        for span in spans:
            if span.color is not None and span.text.strip(" "):
                for start, text, font in _by_font(span.text, span.bold):
                    x = span.x + span.width * cell_len(span.text[:start]) / cell_len(span.text)
                    self._figure.text(
                        x * _SCALE,
                        (self.height - y - BASELINE) * _SCALE,
                        text,
                        transform=None,
                        color=span.color,
                        fontproperties=FontProperties(fname=font, size=_SIZE),
                        verticalalignment="baseline",
                        parse_math=False,
                        usetex=False,
                    )

    def content(self) -> bytes:
        """Return the picture as a PNG file."""
        self._figure.draw(self._renderer)
        file = io.BytesIO()  # not by savefig, whose resolution a user's matplotlibrc can change
        Image.fromarray(self._pixels[..., :3]).save(file, "PNG")
        return file.getvalue()


class Png(CanvasPage):
    """A page as a PNG picture."""

    kind = PngCanvas


def _rgba(color: str) -> tuple[int, ...]:
    return *bytes.fromhex(color[1:]), 255


def _by_font(text: str, bold: bool) -> Iterator[tuple[int, str, str]]:
    """Yield the parts of a text that one font can draw: their start, their characters, the font's file."""
    start = 0
    fonts = [_font(each, bold) for each in text]
    for place in range(1, len(text) + 1):
        if place == len(text) or fonts[place] != fonts[start]:
            yield start, text[start:place], fonts[start] or _file(bold)
            start = place


@cache
def _font(character: str, bold: bool = False) -> str | None:
    """Return the file of a font that has a character, the usual one if possible."""
    own = _file(bold)
    if font_manager.get_font(own).get_char_index(ord(character)):
        return own
    return next((path for path, font in _others().items() if font.get_char_index(ord(character))), None)


@cache
def _file(bold: bool) -> str:
    return font_manager.findfont(FontProperties(family=_FONT, weight="bold" if bold else "normal"))


@cache
def _others() -> dict[str, FT2Font]:
    """Return the installed fonts, those with cells of one width first; fonts made of pictures are left out."""
    fonts = {}
    for entry in sorted(font_manager.fontManager.ttflist, key=lambda each: ("Mono" not in each.name, each.fname)):
        if "LastResort" in entry.fname or entry.weight != 400 or entry.style != "normal":
            continue  # LastResort has a placeholder for every character
        try:
            fonts[entry.fname] = font_manager.get_font(entry.fname)
        except (OSError, RuntimeError):
            continue  # unreadable, or without outlines
    return fonts

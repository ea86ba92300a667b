"""Reading pictures as other programs do: an XML parser for SVG and XHTML, pillow for PNG."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
from PIL import Image
from rich.cells import cell_len

from embcli.oldpage.canvas import BASELINE, CELL, LINE, MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

SVG, XHTML = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xhtml}"
DRAWN = set(" ▀▄▌▐█▏▎▍▋▊▉─│╭╰")


def svg(data: bytes) -> Element:
    """Parse an SVG picture; it holds shapes and text."""
    assert b"<!" not in data
    root = _on_its_own(data)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {"svg", "rect", "path", "text", "tspan"}
    return root


def html(data: bytes) -> Element:
    """Parse an XHTML page; it holds text and its looks."""
    assert data.startswith(b"<!DOCTYPE html>\n")
    assert data.count(b"<!") == 1
    root = _on_its_own(data)
    tags = {each.tag.removeprefix(XHTML) for each in root.iter()}
    assert tags <= {"html", "head", "meta", "title", "style", "body", "pre", "i", "span"}
    return root


def _on_its_own(data: bytes) -> Element:
    """Parse a document that refers to nothing and runs nothing; its text may say what it likes."""
    assert b"<?" not in data
    root = ElementTree.fromstring(data.decode())
    for each in root.iter():
        assert not [key for key in each.attrib if key.startswith("on") or key.endswith(("href", "src"))]
        said = [*each.attrib.values(), each.text or "" if each.tag == f"{XHTML}style" else ""]
        assert not re.search("url|import|script|//", " ".join(said))
    return root


def lines(data: bytes, form: str) -> list[str]:
    """Return the lines of a page, without blanks at their ends."""
    return [line.rstrip(" ") for line in (_svg_lines(data) if form == "svg" else _html_lines(data))]


def _svg_lines(data: bytes) -> Iterator[str]:
    """Yield the lines by their height; each piece stands where the cells before it end, and is as wide as its own."""
    root, texts = svg(data), {}
    for text in root.iter(f"{SVG}text"):
        line = (float(text.get("y", "")) - BASELINE - MARGIN) / LINE
        assert line == int(line) not in texts
        texts[int(line)] = "".join(text.itertext())
        before = text.text or ""
        for piece in text:
            word = piece.text or ""
            assert float(piece.get("x", "")) == MARGIN + cell_len(before) * CELL
            assert float(piece.get("textLength", "")) == cell_len(word) * CELL
            assert (piece.get("fill") == "none") == ({*word} <= DRAWN)
            before += word + (piece.tail or "")
    for number in range((int(root.get("height", "")) - 2 * MARGIN) // LINE):
        yield texts.get(number, "")


def _html_lines(data: bytes) -> list[str]:
    (pre,) = html(data).iter(f"{XHTML}pre")
    for box in pre.iter(f"{XHTML}i"):
        assert re.match(r"width:(\d+)ch", box.get("style", ""))[1] == str(cell_len("".join(box.itertext())))  # type: ignore[index]
        if box.get("class") == "drawn":  # its own text is invisible
            assert {*"".join([box.text or "", *(word.tail or "" for word in box)])} <= DRAWN
    return "".join(pre.itertext()).split("\n")


def png(data: bytes) -> np.ndarray:
    """Return the pixels of a PNG picture, (height, width, 3) uint8."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

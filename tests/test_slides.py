"""A slide is the page of a terminal of 84 x 24, drawn as large as 1920 x 1080 pixels hold."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Group

import embcli
from embcli.page import safe_text
from embcli.page.export import Frame, exported
from embcli.wording import Sentence
from tests.cases import cases
from tests.readers import from_png

TEXT = "{http://www.w3.org/2000/svg}text"
FRAME = Frame(True, "Heading", "source", [], Sentence("give less"))
CELL = 12.04  # pixels
PARTS = ["A", "b", "学", "生", "x", "👋🏽", "e\u0301", "שלום", "|"]


def drawn(text: str, lines: int = 1) -> str:
    """Return a slide of equal lines, below a heading that is one more, as SVG."""
    page = Group(*[safe_text(text)] * lines)
    return exported(page, "svg", 0, "light", frame=FRAME._replace(heading=text)).decode()


@cases
def test_all_of_a_slide_is_within_it_in_large_type(lines, columns, least):
    """The heading is as long as a line, and as large as it fits."""
    svg = drawn("x" * columns, lines)

    assert 'viewBox="0 0 1920 1080"' in svg
    groups = svg.split('<g transform="')[1:]
    scales = []
    for group in groups:
        left, top, scale = map(float, re.findall(r"[\d.]+", group)[:3])
        texts = re.findall(r'<text x="0" y="(\S+)" textLength="(\S+)"', group)
        bottom, right = np.array(texts, float).max(axis=0)
        assert left + scale * (right + CELL) <= 1920
        assert top + scale * (bottom + 8) <= 1080
        scales.append(scale)
    heading, scale, source = scales
    assert 21 * scale >= 32
    assert least <= heading / scale <= 2
    assert source < scale


@cases
def test_a_page_is_narrower_where_that_makes_it_larger(in_process, command, least):
    """The heading has two lines, nearly as large as the others."""
    words = shlex.split(command)
    svg = in_process.ok(*words, "-f", "svg", "--slide", "words " * 20).text
    scales = re.findall(r"scale\((\S+)\)", svg)
    assert min(map(float, scales[:2])) > least


def test_similarities_have_no_colours_of_signs(in_process):
    command = "positions sinusoidal --similarity --dim 8 --slide Cosines -f svg"
    assert "#c02800" not in in_process.ok(*command.split()).text


def test_the_colours_of_similarities_begin_at_the_least_one(in_process):
    command = "positions rotary --similarity --heat --slide Cosines -f svg"
    assert ">164.1&#160;<" in in_process.ok(*command.split()).text


@cases
def test_a_refusal_names_what_makes_a_page_fit(in_process, command, cure, fitting):
    """The fitting command follows the cure."""
    words = (*shlex.split(command), "--slide", "", "-f", "svg")
    assert cure in in_process.refused(*words)
    assert in_process(*shlex.split(fitting), "--slide", "", "-f", "svg").status < 2


@cases
def test_a_slide_has_no_other_width_and_is_a_picture(in_process, options, word):
    assert word in in_process.refused("tokenize", "hi", "--slide", "", *options.split())


def test_a_slide_in_html_is_the_same_svg_and_a_png_has_its_size(in_process, tmp_path):
    words = ("tokenize", "Hi <b>", "--slide", "1 < 2", "--theme", "dark", "-o")
    for format in ("svg", "html", "png"):
        in_process.ok(*words, str(tmp_path / f"slide.{format}"))

    html = (tmp_path / "slide.html").read_text()
    assert (tmp_path / "slide.svg").read_text() in html
    assert "<title>1 &lt; 2</title>" in html
    pixels = from_png((tmp_path / "slide.png").read_bytes())
    assert pixels.shape[:2] == (1080, 1920)
    assert pixels[[0, -1], [0, -1], :3].tolist() == [[17, 21, 28]] * 2


@cases
def test_a_slide_says_what_it_is_about_and_its_source(in_process, command, heading, source):
    svg = in_process.ok(*shlex.split(command), "--slide", "", "-f", "svg").text
    texts = [
        "".join(text.itertext()).replace("\xa0", " ") for text in ET.fromstring(svg).iter(TEXT)
    ]
    assert texts[0] == heading
    assert texts[-1] == f"embcli {embcli.__version__}{source}"


def test_characters_of_a_picture_are_in_their_cells():
    line = "".join(PARTS)
    svg = exported(safe_text(line), "svg", 40, "light").decode()
    html = exported(safe_text(line), "html", 40, "light").decode()

    found = {}
    for text in ET.fromstring(svg).iter(TEXT):
        is_wide = text.get("class") == "embcli-wide"
        width = 2 * CELL if is_wide else float(text.attrib["textLength"])
        start = float(text.attrib["x"]) - (CELL if is_wide else 0)
        assert width == pytest.approx(CELL * cell_len("".join(text.itertext())))
        found["".join(text.itertext())] = start / CELL
    assert found == pytest.approx(
        {"Ab": 0, "学": 2, "生": 4, "x": 6, "👋🏽": 7, "e\u0301": 9, "שלום": 10, "|": 14}
    )
    boxes = re.findall(r'<span style="display: inline-block; width: .ch">(.+?)</span>', html)
    assert boxes == ["学", "生", "👋🏽"]
    fitted = re.findall(r'<svg style="width: (.)ch.+?textLength="100%"[^>]*>(.+?)<', html)
    assert fitted == [("4", "שלום")]


@cases
def test_a_word_of_joined_letters_has_the_width_of_its_cells_in_a_png(word):
    reds = from_png(exported(safe_text(word), "png", 40, "light"))[..., 0]
    right = np.flatnonzero(reds.min(axis=0) < 128).max()
    assert right / 1.5 == pytest.approx((2 + cell_len(word)) * CELL, abs=4)


def test_a_slide_of_a_model_has_the_ends_of_paths(in_process, made_files):
    svg = in_process.ok("info", f"{made_files}/gpt2", "--slide", "", "-f", "svg").text
    assert str(made_files) not in svg


def test_a_heat_map_has_all_columns_and_most_of_the_lines():
    table = embcli.seeded(vocab=1, dim=256).positions("sinusoidal", context_length=100)
    svg = table.styled(heat=True, slide="Waves").page("svg").decode()

    strips = re.findall(r'<g transform="translate.*?</g>', svg)
    assert len(strips) >= 13
    assert all("M255 0.5h1" in strip for strip in strips)


def test_dots_and_the_next_label_of_a_heat_map_are_lines_of_their_own(in_process):
    command = "weights --vocab 100 --dim 8 --heat --slide Rows -f svg"
    svg = in_process.ok(*command.split()).text
    assert re.findall(r'x="0" y="(\S+)" .+>(?:&#160;⋮|80)<', svg) == ["239.6", "264"]


@cases
def test_tables_beside_each_other_begin_at_the_same_line(in_process, heat):
    """Neither has a heading that is wrapped."""
    command = "positions rotary --dim 128 --ids 49999 --slide Angles -f svg"
    svg = in_process.ok(*command.split(), *heat).text
    first, second = re.findall(r'y="(\S+)" [^>]+>pos<', svg.replace("&#160;", ""))
    assert first == second


@cases
def test_what_fits_beside_a_table_or_a_picture_is_not_below_it(in_process, command, words):
    svg = in_process.ok(*shlex.split(command), "--slide", "", "-f", "svg").text
    (x,) = re.findall(rf'<text x="(\S+)" [^>]+>{words}', svg.replace("&#160;", " "))
    assert float(x) > 40 * CELL


@cases
def test_the_rows_of_a_token_stay_together_on_a_slide(count, strips, rows):
    """They share a line if they would be too many."""
    lookup = embcli.seeded(dim=32).lookup(list(range(count)))
    svg = lookup.styled(heat=True, slide="Sum").page("svg").decode()

    found = re.findall(r'<g transform="scale.*?</g>', svg)
    assert len(found) == strips
    for strip in found:
        assert len({*re.findall(r"M\d+ (\d).5", strip)}) == rows
    assert ("each line, from above: token, + position, = input" in svg.replace("&#160;", " ")) == (
        rows == 3
    )


@pytest.mark.parametrize("length", [3, 200])
def test_a_source_is_as_large_as_can_be_read(length):
    page = Group(*[safe_text("x" * 84)] * 24)
    svg = exported(page, "svg", 0, "light", frame=FRAME._replace(source="s" * length))
    *_, scale = re.findall(r"scale\((\S+)\)", svg.decode())
    assert 21 * float(scale) >= 28


def test_a_slide_of_many_lines_is_as_wide_as_they_leave_room_for():
    table = embcli.seeded(vocab=1, dim=256).positions("sinusoidal")
    svg = table.styled(heat=True, slide="Waves").page("svg").decode()
    (rule,) = re.findall(r'textLength="(\S+)"[^>]*>─+<', svg)
    assert float(rule) > 95 * CELL

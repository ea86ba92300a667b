"""Views drawn for a file: every one is there whole, safe and straight, in SVG, XHTML and PNG."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embcli import errors, names
from embcli.oldpage import Bar, Column, Page, Paper, Word, canvas, heat, png
from embcli.oldpage.canvas import CELL, LINE, MARGIN, PALETTES
from embcli.oldpage.html import Html
from embcli.oldpage.lines import Look, Piece, Sheet
from embcli.oldpage.png import Png
from embcli.oldpage.svg import Svg
from embcli.oldpage.terminal import Terminal
from embcli.safe import in_line
from tests import drawings
from tests.conftest import TIMEOUT
from tests.inside import Inside
from tests.pictures import FOLDER, PICTURES, drawn
from tests.screen import contrast
from tests.test_markup import TEXTS, put_all
from tests.test_readme import MEASURED, NUMBER, README

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embcli.oldpage.shapes import ThemedPage

run = Inside()
untimed = settings(deadline=None)
KINDS: dict[str, type[ThemedPage]] = {"svg": Svg, "html": Html}
kinds = pytest.mark.parametrize("form", KINDS)
themes = pytest.mark.parametrize("theme", PALETTES)
SMALL = ("--vocab", "6", "--dim", "40")
TEXT = "Every effort moves you… 👋 日本語"
VIEWS = {
    "tokenize": ("tokenize", TEXT),
    "tokenize --lines": ("tokenize", "a\nb c", "--lines"),
    "weights": ("weights", *SMALL),
    "weights --columns": ("weights", *SMALL, "--columns", "0:30"),
    "lookup": ("lookup", TEXT),
    "lookup --trace": ("lookup", "--ids", "2,3,5,1", *SMALL, "--trace", "0", "--draw"),
    "lookup --position sinusoidal": ("lookup", TEXT, "--position", "sinusoidal"),
    "lookup --heat": ("lookup", TEXT, "--heat", "--color", "never"),
    "weights --map": ("weights", *SMALL, "--map", "--color", "never"),
    "positions": ("positions", "--kind", "relative", "--context-length", "6"),
    "positions --similarity": ("positions", "--kind", "sinusoidal", "--similarity"),
    "neighbors": ("neighbors", "--ids", "3", *SMALL),
    "audit": ("audit", *SMALL),
    "info": ("info",),
    "cache": ("cache",),
}
HOSTILE = (
    "<script>alert(1)</script>",
    "]]> & &amp; &#0; <!-- -->",
    "NUL \x00 ESC \x1b[31m",
    "\ufffe\uffff\ud800",
    "\u202eabc\u2066",
    '"\' onload="x"',
    "日本語 한국 é e\u0301 👋 👩‍👩‍👧",
)


def page(kind: type[Page], put: Callable[[Page], object], width: int = 100, theme: names.Theme = "light") -> bytes:
    drawn = kind(Paper(width, color=True, theme=theme))
    put(drawn)
    return drawn.content()


def words(text: str) -> list[str]:
    """Return the words of a view, except those that are measured."""
    return MEASURED.sub("", text).split()


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("view", VIEWS)
def test_a_picture_holds_what_the_table_of_that_width_shows(view: str, width: int) -> None:
    text = b"Every effort moves you, and so do I. Every effort."
    arguments = [*VIEWS[view], "--width", str(width), "-f"]
    table = run.ok(*arguments, "table", stdin=text).text
    for form in KINDS:
        found = drawings.lines(run.ok(*arguments, form, stdin=text).out, form)
        short = [line for line in table.splitlines() if len(line) <= width]
        assert short == [line for line in found if line in short]
        assert words("\n".join([*found, ""])) == words(table)


@themes
@kinds
def test_hostile_text_is_read_back_as_the_page_shows_it(form: str, theme: names.Theme) -> None:
    def put(page: Page) -> None:
        for text in HOSTILE:
            page.line(text)
            page.title(text)
        page.table([Column("<b>", HOSTILE, "left"), Bar("&"), Column("]]>", [Word(each, "bad") for each in HOSTILE])])

    found = drawings.lines(page(KINDS[form], put, 200, theme), form)
    assert found[: 2 * len(HOSTILE)] == [in_line(text) for text in HOSTILE for _ in range(2)]
    assert found == plain(put, 200)


def plain(put: Callable[[Page], object], width: int) -> list[str]:
    """Return the lines of a page in a pipe."""
    drawn = Terminal(Paper(width))
    put(drawn)
    return drawn.content().decode().splitlines()


JOINED = st.text(st.sampled_from("\u200d\ufe0f\u0300\u08ca\U0001f3fb👋👩a1 \u3000─█日"), max_size=6)


@kinds
@given(texts=st.lists(TEXTS | JOINED, min_size=1, max_size=4))
@example(texts=["\u0300", "─\u0300", "█\u08ca", "\U0001f3fb"])  # a mark joins the blank or the shape before it
@example(texts=["\u200da", "a \u200db", "\u3000\u200d"])  # and a joiner has nothing to join
@untimed
def test_any_text_is_read_back(form: str, texts: list[str]) -> None:
    def put(page: Page) -> None:
        page.table([Column("", texts, "left"), Column("n", [Word(text, "strong") for text in texts])])
        page.line(*texts)

    assert drawings.lines(page(KINDS[form], put, 400), form) == [line.rstrip(" ") for line in plain(put, 400)]


@kinds
def test_a_line_that_is_too_long_goes_on_in_the_next(form: str) -> None:
    found = drawings.lines(page(KINDS[form], lambda page: page.line("word " * 50), 60), form)
    assert max(map(len, found)) <= 60
    assert " ".join(found).split() == ["word"] * 50


@pytest.mark.parametrize("theme", PALETTES)
def test_every_colour_of_a_theme_can_be_read_on_its_ground(theme: names.Theme) -> None:
    palette = PALETTES[theme]
    for color in (palette.ink, palette.dim, *palette.tones.values()):
        assert contrast(rgb(color), rgb(palette.ground)) >= 4.5


def rgb(color: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue


@themes
def test_tones_have_the_colours_of_the_theme(theme: names.Theme) -> None:
    def put(page: Page) -> None:
        page.line(Word("cold", "embedding"), "  ", Word("warm", "linear"), "  ", Word("dim", "dim"), "  ", "ink")
        page.line(Word("good", "good"), "  ", Word("three", "token 3"))

    palette = PALETTES[theme]
    tones = palette.tones
    wanted = {"cold": tones["cold"], "warm": tones["warm"], "dim": palette.dim, "ink": None}
    wanted |= {"good": tones["good"], "three": tones["token 3"]}
    words = {word.text: word for word in drawings.svg(page(Svg, put, theme=theme)).iter(f"{drawings.SVG}tspan")}
    assert {text: word.get("fill") for text, word in words.items()} == wanted
    assert [text for text, word in words.items() if word.get("font-weight") == "bold"] == ["good"]
    text = page(Html, put, theme=theme).decode()
    spans = dict(re.findall(r'<span style="color:(#\w+)(?:;font-weight:bold)?">(\w+)', text))
    assert spans == {color: word for word, color in wanted.items() if color}
    assert f"background: {palette.ground}; color: {palette.ink}" in text


# --- strips: what is drawn cell by cell -------------------------------------------------------------------------------

STEPS = 90, 30, 10  # places on the scale of colours
RED, GREEN, BLUE = ("#" + bytes(heat.TRUECOLOR[step]).hex() for step in STEPS)
GOLD, BLACK = "#ffd700", "#000000"
STRIP = [
    Piece("row  "),
    Piece("▌", Look(STEPS[0], STEPS[1])),
    Piece("▌", Look(STEPS[1], STEPS[2])),
    Piece("   ", Look(None, STEPS[2])),
    Piece("▀▀", Look(STEPS[0], STEPS[2])),
    Piece("?", Look("mark", "black", bold=True)),
    Piece("█", Look(STEPS[1])),
    Piece("▌", Look(STEPS[0])),
]
TOP = [RED, GREEN, GREEN, BLUE, *[BLUE] * 6, *[RED] * 4, BLACK, BLACK, GREEN, GREEN, RED, None]  # half cells
BOTTOM = [RED, GREEN, GREEN, BLUE, *[BLUE] * 10, BLACK, BLACK, GREEN, GREEN, RED, None]


def put_strip(page: Page) -> None:
    assert isinstance(page, Sheet)
    page.rows = lambda: [STRIP, [Piece("row 2")]]  # type: ignore[method-assign]


def test_a_strip_in_svg_is_rectangles_that_meet() -> None:
    found: dict[str, list[str | None]] = {"top": [None] * 20, "bottom": [None] * 20}
    boxes = []
    root = drawings.svg(page(Svg, put_strip))
    assert root.get("shape-rendering") == "crispEdges"
    for rect in [*root.iter(f"{drawings.SVG}rect")][1:]:
        x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        start, count = (x - MARGIN) / (CELL / 2) - 10, width / (CELL / 2)
        assert start == int(start)
        assert count == int(count)
        boxes.append((start, rect.get("fill")))
        for half, top in (("top", MARGIN), ("bottom", MARGIN + LINE / 2)):
            if y <= top < y + height:
                assert found[half][int(start) : int(start + count)] == [None] * int(count), "they overlap"
                found[half][int(start) : int(start + count)] = [rect.get("fill")] * int(count)
    assert found == {"top": TOP, "bottom": BOTTOM}
    assert (1, GREEN) in boxes, "equal neighbours are one rectangle"
    assert (2, GREEN) not in boxes
    assert drawings.lines(page(Svg, put_strip), "svg")[0] == "row  ▌▌   ▀▀?█▌"


def test_a_strip_in_html_is_one_background() -> None:
    data = page(Html, put_strip)
    (strip,) = (each for each in drawings.html(data).iter(f"{drawings.XHTML}i") if each.get("class") == "drawn")
    style = strip.get("style", "")
    assert style.startswith("width:10ch;")
    found: dict[str, list[str | None]] = {"top": [None] * 20, "bottom": [None] * 20}
    layers = re.findall(r"linear-gradient\(90deg,(.*?)\) 0 ([\d.]+)%/100% ([\d.]+)% no-repeat", style)
    assert layers
    for stops, place, height in layers:
        halves = ["top", "bottom"] if float(height) == 100 else ["top"] if float(place) == 0 else ["bottom"]
        for color, start, stop in re.findall(r"(#\w+) ([\d.]+)% ([\d.]+)%", stops):
            for half in halves:
                for cell in range(round(float(start) / 5), round(float(stop) / 5)):
                    found[half][cell] = color
    assert found == {"top": TOP, "bottom": BOTTOM}
    (mark,) = strip
    assert mark.text == "?"
    assert mark.get("style") == f"left:7ch;color:{GOLD};font-weight:bold"
    assert drawings.lines(data, "html")[0] == "row  ▌▌   ▀▀?█▌"


def test_a_strip_in_a_png_has_its_colours_to_the_edge() -> None:
    pixels = drawings.png(page(Png, put_strip))
    for y, wanted in ((MARGIN + 1, TOP), (MARGIN + LINE - 1, BOTTOM)):
        for place, color in enumerate(wanted):
            x = MARGIN + 5 * CELL + (place + 0.5) * CELL / 2
            assert tuple(pixels[2 * y, round(2 * x)]) == rgb(color or PALETTES["light"].ground), place


@kinds
def test_lines_and_brackets_are_drawn_and_still_text(form: str) -> None:
    def put(page: Page) -> None:
        page.table([Column("", ["╭", "│", "╰"], "left"), Bar(), Column("n", ["1", "2", "▌"])])

    data = page(KINDS[form], put)
    assert drawings.lines(data, form) == plain(put, 100)
    if form == "svg":
        boxes = [*drawings.svg(data).iter(f"{drawings.SVG}rect")][1:]
        across = [box for box in boxes if float(box.get("width", "")) == len("╭  │  1") * CELL]
        assert len(across) == 1, "the rule is one line"
        assert {box.get("fill") for box in boxes} == {PALETTES["light"].dim, PALETTES["light"].ink}


# --- fragments for notebooks ------------------------------------------------------------------------------------------


def fragment(put: Callable[[Page], object], width: int = 100, theme: names.Theme = "light") -> str:
    page = Html(Paper(width, color=True, theme=theme))
    put(page)
    return page.fragment()


def declared(style: str, selector: str) -> dict[str, str]:
    """Return the custom properties that a rule declares."""
    (rule,) = re.findall(re.escape(selector) + r" \{ ([^{}]*)\}", style)
    return dict(re.findall(r"--embcli-([\w-]+): (#\w+);", rule))


def test_a_fragment_has_the_text_and_the_looks_of_the_document() -> None:
    def put(page: Page) -> None:
        put_all(page)
        for text in HOSTILE:
            page.line(text)

    root = ElementTree.fromstring(fragment(put))
    (pre,) = root.iter("pre")
    assert [line.rstrip(" ") for line in "".join(pre.itertext()).split("\n")] == plain(put, 100)
    assert {each.tag for each in root.iter()} == {"div", "style", "pre", "span", "i"}
    (document,) = drawings.html(page(Html, put)).iter(f"{drawings.XHTML}pre")
    palette = PALETTES["light"]
    names = {palette.ink: "ink", palette.dim: "dim", **{tone: name for name, tone in palette.tones.items()}}
    for own, other in zip(pre.iter(), document.iter(), strict=True):
        expected = {
            key: re.sub("#\\w+", lambda color: f"var(--embcli-{names[color[0]]})", value)
            for key, value in other.items()
        }
        assert own.attrib == expected


def test_the_colours_of_a_fragment_are_those_of_the_theme_of_the_notebook() -> None:
    text = fragment(put_all)
    assert text == fragment(put_all, theme="dark")
    style = ElementTree.fromstring(text).findtext("style") or ""
    for theme, palette in PALETTES.items():
        expected = {"ink": palette.ink, "dim": palette.dim}
        expected |= {name.replace(" ", "-"): color for name, color in palette.tones.items()}
        by_system = ".embcli-page {" if theme == "light" else "@media (prefers-color-scheme: dark) { .embcli-page {"
        light = str(theme == "light").lower()
        by_notebook = f'[data-jp-theme-light="{light}"] .embcli-page, .vscode-{theme} .embcli-page {{'
        assert [declared(style, each.removesuffix(" {")) for each in (f"\n{by_system}", by_notebook)] == [expected] * 2
    used = {*re.findall(r"var\(--embcli-([\w-]+)\)", text)}
    assert used <= {*expected}


def test_a_fragment_styles_nothing_but_itself() -> None:
    style = ElementTree.fromstring(fragment(put_all)).findtext("style") or ""
    selectors = re.findall(r"([^{}]+) \{ [^{}]*\}", style.replace("@media (prefers-color-scheme: dark) {", ""))
    assert len(selectors) > 5
    assert all(".embcli-page" in part for selector in selectors for part in selector.split(","))
    assert not re.search("url|import|script|//|#(?!\\w{6}\\b)", style)


def test_colours_of_numbers_are_the_same_in_any_theme() -> None:
    text = fragment(put_strip)
    assert all(color in text for color in (RED, GREEN, BLUE, GOLD, BLACK))


# --- PNG --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", PALETTES)
def test_a_png_is_as_large_as_its_lines_and_holds_their_colours(theme: names.Theme) -> None:
    lines = plain(put_all, 100)
    pixels = drawings.png(page(Png, put_all, 100, theme))
    width = int(np.ceil(max(map(png.cell_len, lines)) * CELL))
    assert pixels.shape == (2 * (2 * MARGIN + len(lines) * LINE), 2 * (2 * MARGIN + width), 3)
    colors = {rgb(f"#{color:06x}") for color in np.unique(pixels @ [1 << 16, 1 << 8, 1]).tolist()}
    palette = PALETTES[theme]
    assert {rgb(each) for each in (palette.ground, palette.ink, palette.dim, palette.tones["cold"])} <= colors
    frame = pixels.copy()
    frame[2 * MARGIN - 2 : -2 * MARGIN + 2, 2 * MARGIN - 2 : -2 * MARGIN + 2] = rgb(palette.ground)
    assert (frame == rgb(palette.ground)).all(), "something is drawn into the margin"


def test_a_character_that_no_font_has_is_its_escape_in_a_png() -> None:
    shown = page(Png, lambda page: page.line("a\U0010fffdb 1\u200d"))
    assert shown == page(Png, lambda page: page.line("a\\U0010fffdb 1\\u200d"))
    assert shown != page(Png, lambda page: page.line("ab 1"))


def test_a_table_with_escapes_is_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    own = png._font
    monkeypatch.setattr(png, "_font", lambda each, bold=False: None if each == "é" else own(each, bold))
    drawn = Png(Paper(60, color=True))
    drawn.table([Column("token", ["café", "e"], "left"), Column("n", ["1", "2"])])
    assert ["".join(run.text for run in line) for line in drawn.runs(drawn.palette)][2:] == [
        "caf\\xe9  1",
        "e        2",
    ]


def test_a_page_that_is_too_long_for_a_png_is_refused() -> None:
    def put(page: Page) -> None:
        for _ in range(2000):
            page.line("x")

    with pytest.raises(png.OutputError, match="too large for a PNG; SVG"):
        page(Png, put)
    assert len(drawings.lines(page(Svg, put), "svg")) == 2000


def test_a_png_that_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of_it = 12 * drawings.png(page(Png, put_all))[..., 0].size
    monkeypatch.setattr(errors, "memory_of_machine", lambda: bytes_of_it)
    page(Png, put_all)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: bytes_of_it - 1)
    with pytest.raises(png.OutputError, match="too large for a PNG; SVG"):
        page(Png, put_all)


LARGE = r"""
import re
from pathlib import Path
from embcli.oldpage.canvas import PALETTES, Span
from embcli.oldpage.png import PngCanvas
def most():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
PngCanvas(9, 18, PALETTES["light"]).content()  # what matplotlib takes for itself
before = most()
canvas = PngCanvas(1000, 5000, PALETTES["light"])
canvas.line(18, [Span(9, 8.5, "x", "#000000")])
canvas.content()
print(most() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_png_takes_no_more_memory_than_it_is_refused_for() -> None:
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, timeout=TIMEOUT, check=True)
    pixels = 2000 * 10000
    assert 4 * pixels < int(done.stdout) < 12 * pixels * 1.1


@pytest.mark.parametrize("arguments", [("lookup", TEXT), ("weights", *SMALL)])
def test_a_png_of_a_verb_can_be_read_and_is_the_same_again(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = tmp_path / "view.png"
    run.ok(*arguments, "-o", str(path))
    assert len(np.unique(drawings.png(path.read_bytes()) @ [1 << 16, 1 << 8, 1])) > 20  # colours
    assert run.ok(*arguments, "-f", "png").out == path.read_bytes()


def test_a_png_without_matplotlib_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = run.refused("lookup", "hi", "--seed", "71", "-f", "png")
    assert message == "embcli: png needs a package that is missing: pip install 'embcli[pictures]'\n"
    run.ok("lookup", "hi", "-f", "svg")


def test_a_picture_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys\n"
        "from embcli.__main__ import main\n"
        "for form in ('svg', 'html', 'png'):\n"
        "    sys.argv = ['embcli', 'tokenize', 'hi', '-f', form]; main()\n"
        "    print(*sorted({'rich', 'torch', 'matplotlib', 'matplotlib.pyplot'} & {*sys.modules}), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT, check=True)
    assert ran.stderr.decode() == "rich\nrich\nmatplotlib rich\n"


# --- options ----------------------------------------------------------------------------------------------------------


def test_the_width_of_a_picture_is_100_cells_whatever_the_terminal() -> None:
    wide = run.ok("lookup", TEXT, "-f", "svg", COLUMNS="70", LINES="10").out
    assert wide == run.ok("lookup", TEXT, "-f", "svg", "--width", "100").out
    assert 90 < max(map(len, drawings.lines(wide, "svg"))) <= 100


def test_the_width_of_a_table_can_be_said_too() -> None:
    said = run.ok("lookup", TEXT, "--width", "70", COLUMNS="200").text
    assert said == run.ok("lookup", TEXT, COLUMNS="70").text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--width", "39"), "--width 39 is out of range; it goes from 40 to 1000"),
        (("--width", "1001", "-f", "svg"), "--width 1001 is out of range; it goes from 40 to 1000"),
        (
            ("--width", "80", "-f", "npy"),
            "--width cannot be shown in npy; it needs --format table, markdown, svg, html or png",
        ),
        (("--theme", "dark"), "--theme cannot be shown in table; it needs --format svg, html or png"),
        (("--theme", "dark", "-f", "json"), "--theme cannot be shown in json"),
        (("--theme", "grey", "-f", "svg"), "'grey' is not one of 'light', 'dark'"),
    ],
)
def test_what_makes_no_sense_of_a_page_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in run.refused("tokenize", "hi", *arguments)


def test_a_picture_without_colour_is_ink_alone() -> None:
    data = run.ok("lookup", TEXT, "-f", "svg", "--color", "never").out.decode()
    assert {*re.findall("#[0-9a-f]{6}", data)} == {
        PALETTES["light"].ground,
        PALETTES["light"].ink,
        PALETTES["light"].dim,
    }
    colors = run.ok("lookup", TEXT, "-f", "svg", NO_COLOR="1", TERM="dumb").out
    assert colors == run.ok("lookup", TEXT, "-f", "svg").out, "a file is no terminal"


def test_a_png_is_not_for_a_terminal() -> None:
    assert "binary data is not for a terminal" in Inside(terminal=True).refused("tokenize", "hi", "-f", "png")


def test_cells_are_numbers_that_a_float_holds() -> None:
    for length in (canvas.CELL / 2, canvas.LINE / 2, canvas.MARGIN):
        assert length * 8 == int(length * 8), "edges of neighbours would differ in their last digits"


# --- the README's pictures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PICTURES if name != "explore"])  # which textual draws
def test_a_picture_in_the_readme_is_what_embcli_draws(name: str) -> None:
    assert f"](tests/pictures/{name}.svg)" in README.read_text()
    kept, now = ((FOLDER / f"{name}.svg").read_bytes(), drawn(name))
    assert b"\r" not in kept
    found, wanted = (MEASURED.sub("", "\n".join([*drawings.lines(data, "svg"), ""])) for data in (now, kept))
    assert NUMBER.sub("0", found) == NUMBER.sub("0", wanted)
    numbers = [float(number) for number in NUMBER.findall(wanted)]
    assert [float(number) for number in NUMBER.findall(found)] == pytest.approx(numbers, abs=2e-4)
    assert shapes(now) == shapes(kept)


def shapes(data: bytes) -> list[dict[str, str]]:
    """Return the rectangles of a picture, except its background, which is as high as a busy machine makes it."""
    return [each.attrib for each in drawings.svg(data).iter(f"{drawings.SVG}rect")][1:]


def test_every_kept_picture_is_one_of_these() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == {*PICTURES}
    assert all(path.stat().st_size < 100_000 for path in FOLDER.glob("*.svg"))

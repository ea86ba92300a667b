"""What pages are drawn of: numbers, tables, text from outside, colours, strips, exports.

No number is cut at any width, lines fit, text from outside is data, and exports can be read.
"""

from __future__ import annotations

import builtins
import io
import math
import re
import shlex
import sys
import unicodedata
import xml.etree.ElementTree as ET
from itertools import groupby, pairwise

import numpy as np
import pyte
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.text import Text
from wcwidth import wcswidth

import embcli
from embcli.errors import OutputError
from embcli.page import (
    STYLES,
    Drawing,
    Label,
    Matrix,
    NumberFormat,
    Strips,
    Values,
    export,
    ruled,
    safe_text,
    shorten,
    title,
)
from embcli.page.colors import (
    INFINITE,
    INKS,
    NAN,
    TOKEN_COLORS,
    ColorScale,
    colors_of,
)
from embcli.page.parts import CutPage
from embcli.page.strips import Fit, strip
from embcli.tokens import shown
from tests.cases import cases, data
from tests.readers import from_png

TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # colours: all that a page ever sends
VALUES = np.array([[0.5, -0.25, 1.0], [0.0, 2.0, -3.125]], np.float32)
TOKENS = Label("token", ["Every", "␣effort"], "left", short=True)
MATRIX = Matrix([TOKENS, Label("ID", [7, 8])], [Values(VALUES)], np.arange(3))


def console(width: int = 80, system: str = "truecolor", height: int = 24) -> Console:
    """Return the console of a terminal."""
    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=True,
        color_system=system,  # type: ignore[arg-type]
    )


def on_terminal(page: RenderableType, width: int = 80, height: int = 24) -> str:
    """Return what a terminal is sent for a page."""
    drawn = console(width, height=height)
    with drawn.capture() as captured:
        drawn.print(page, highlight=False)
    return captured.get()


def of_one_row(values: np.ndarray, precision: int = 4, heat: bool = False) -> Matrix:
    """Return a matrix of one row with an ID."""
    labels = [Label("ID", [0])]
    numbers = np.arange(len(values))
    return Matrix(labels, [Values(values[None])], numbers, precision=precision, heat=heat)


# --- tables ---------------------------------------------------------------------------------------


def test_columns_and_rows_in_the_middle_are_left_out_and_named(snapshot):
    values = np.arange(18, dtype=np.float32).reshape(2, 9)
    labels = [Label("ID", [0, 9])]
    numbers = np.arange(10, 19)
    page = Matrix(labels, [Values(values)], numbers, gaps=[1], rows_left_out="rows 1 to 8")

    snapshot("page/columns-and-rows-left-out.txt", export.text(page, 46))


def test_tokens_are_shortened_if_one_column_fits_beside_them(in_process, snapshot):
    page = in_process.ok("lookup", "Every understanding", "--dim", "8", COLUMNS="40").text
    snapshot("page/one-column.txt", page)


def test_a_table_of_labels_has_dots_where_rows_are_left_out(snapshot):
    letters = Label("a", ["x", safe_text("y", "good")], "left")
    table = ruled([letters, Label("b", [1, 22])], gaps=[1])

    snapshot("page/labels-with-rows-left-out.txt", export.text(table, 40))


def test_a_drawing_that_is_too_wide_is_cut(snapshot):
    drawing = Drawing([Text("╭─╮"), Text("│ │" * 40)])

    snapshot("page/drawing-too-wide.txt", export.text(drawing, 40))


TREES = ["A\nAA\nAAA", "", "B\nBB\nBBB", "", "C\nCC\nCCC", "", "the end"]


@pytest.mark.parametrize("height", range(4, 15))
def test_a_page_is_cut_in_its_middle_between_drawings(height):
    parts: list[RenderableType] = [title("the title")]
    for text in TREES:
        lines = [Text(line) for line in text.split("\n")]
        parts.append(Drawing(lines) if len(lines) > 1 else text)
    whole = export.text(Group(*parts), 80).splitlines()

    cut = export.text(CutPage(Group(*parts), ["other"], height), 80).splitlines()

    assert len(cut) < height
    (place,) = (place for place, line in enumerate(cut) if line.startswith("…"))
    tail = len(cut) - place - 1
    assert cut[:place] == whole[:place]
    assert cut[place + 1 :] == whole[len(whole) - tail :]
    assert cut[place] == f"… {len(whole) - place - tail} more lines; the command alone prints them"
    for letter in "ABC":
        assert sum(line.startswith(letter) for line in cut) in (0, 3)


ODD = [
    *(1e30, -1e30, 1e-30, -1e-30),
    *(3.4e38, 1e-45, 1.5, -999999.94),
    *(math.nan, math.inf, -math.inf, 0.0, -0.0),
]
ODD_OR_ANY = st.floats(width=32) | st.sampled_from(np.float32(ODD).tolist())
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 40))
FLOATS = arrays.arrays(np.float32, SHAPES, elements=ODD_OR_ANY)


def cells_of_line(line: str) -> list[list[str]]:
    """Return the cells of each block of a line, without those of dots."""
    blocks = []
    for block in line.split("│")[1:]:
        cells = [cell for cell in block.split() if cell != "…"]
        blocks.append(cells)
    return blocks


def assert_written(cells: list[str], numbers: np.ndarray, precision: int) -> None:
    """Hold each cell against Python's way to write its number, fixed or with an exponent."""
    rounding = 0.5000001 * 10.0**-precision
    for cell, number in zip(cells, numbers.tolist(), strict=True):
        assert cell in (f"{number:.{precision}f}", f"{number:.{precision}e}")
        assert float(cell) == pytest.approx(number, rel=rounding, abs=rounding, nan_ok=True)


@given(
    values=FLOATS,
    width=st.integers(40, 200),
    precision=st.integers(0, 12),
    blocks=st.integers(1, 2),
)
@example(np.float32([ODD]), 40, 4, 1)
@example(np.float32([[0.0, *[-0.0] * 12]]), 46, 1, 1)  # numpy may take either zero to be the least
def test_no_number_is_cut_at_any_width(values, width, precision, blocks):
    tokens = [f"␣token{row}" * 3 for row in range(len(values))]
    labels = [Label("token", tokens, "left", short=True)]
    numbers = np.arange(values.shape[1])
    page = Matrix(labels, [Values(values)] * blocks, numbers, precision=precision)

    lines = export.text(page, width).splitlines()

    header, _, *rows = lines[: 2 + len(values)]
    is_wider = max(map(cell_len, lines)) > width
    has_lost_bars = min(line.count("│") for line in [header, *rows]) < blocks
    if is_wider or has_lost_bars:  # Then rich squeezes the table, for want of room.
        block_width = NumberFormat([values], precision).width + 6
        assert blocks == 2
        assert 2 * block_width > width
        return
    columns = [int(number) for number in cells_of_line(header)[0]]
    for line, row in zip(rows, values.astype(float), strict=True):
        for cells in cells_of_line(line):
            assert_written(cells, row[columns], precision)


@given(
    values=FLOATS,
    width=st.integers(24, 120),
    precision=st.integers(1, 4),
    step=st.sampled_from([1, 10**9]),
)
def test_chosen_columns_continue_in_further_tables(values, width, precision, step):
    columns = np.arange(values.shape[1]) * step
    labels = [Label("ID", range(len(values)))]
    page = Matrix(labels, [Values(values)], columns, precision=precision, every=True)

    printed = export.text(page, width)

    headers = []
    lines = printed.splitlines()
    for line, line_below in pairwise(lines):
        if set(line_below) == {"─"}:
            headers.append(cells_of_line(line)[0])
    named = [int(number) for header in headers for number in header]
    assert named == columns.tolist()
    assert (len(headers) == 1) == page.fits(width)
    assert "…" not in printed

    decimals = re.findall(r"\.\d+(e?)", printed)
    assert len(set(decimals)) <= 1, "all numbers have an exponent, or none has"


@cases
def test_a_number_has_an_exponent_where_a_fixed_point_says_too_little(number, precision, written):
    page = of_one_row(np.float32([number]), precision)

    row = export.text(page, 400).splitlines()[2]

    assert cells_of_line(row) == [[written]]


@cases
def test_a_page_in_a_pipe_is_as_wide_as_the_environment_says(in_process, columns, width):
    page = in_process.ok("weights", "--vocab", "5", COLUMNS=columns, LINES=columns).text

    with_option = in_process.ok("weights", "--vocab", "5", "--width", str(width), COLUMNS="77").text
    assert page == with_option
    widest_row = max(map(len, page.splitlines()[1:5]))
    assert width - 12 < widest_row <= width


# --- text from outside ----------------------------------------------------------------------------

WIDE = "naïve 日本語 🤖 e\u0301 🇨🇭 👩\u200d💻 ok\u202e \x1b[2J [bold]x[/] │ का \ufeff\x01 한국어"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")


@given(st.text(st.characters(codec="utf-8"), max_size=30))
@example("\x1b]0;pwn\x07\x1b[2J\u202e\u2066\u200b\x9b\r[bold]")
def test_text_from_outside_is_one_line_of_data(text):
    labels = [Label("token", [text], "left", short=True)]
    matrix = Matrix(labels, [Values(VALUES[:1], text)], np.arange(3))
    page = Group(title(text), matrix, safe_text(text))

    printed = ESCAPE.sub("", on_terminal(page, 300))

    assert not UNSAFE.search(printed)
    rows = re.findall(r"^.*│.* 0\.5000 .*$", printed, re.MULTILINE)
    assert len(rows) == 1


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("verb", ["tokenize", "lookup"])
def test_a_terminal_shows_tables_of_wide_and_hostile_tokens_straight(in_process, verb, width):
    environment = TRUECOLOR | {"COLUMNS": str(width), "LINES": "100"}
    sent = in_process.ok(verb, WIDE, terminal=True, **environment).text
    printed = ESCAPE.sub("", sent)
    assert not UNSAFE.search(printed)

    screen = pyte.Screen(width, 110)
    pyte.Stream(screen).feed(sent.replace("\n", "\r\n"))
    lines = [line.rstrip() for line in screen.display]
    assert " ".join(lines).split() == printed.split(), "the terminal breaks no line"

    is_row = re.compile(r".*(\d:\d+$|\d\.\d{4})")
    rows = [row for row, line in enumerate(lines) if is_row.match(line)]
    assert len(rows) >= 20
    if verb == "lookup":
        widths = {wcswidth(lines[row]) for row in rows}
        bars = {last_bar(screen, row) for row in rows}
        assert len(widths) == 1
        assert len(bars) == 1


def last_bar(screen: pyte.Screen, row: int) -> int:
    """Return the cell of the last bar in a row of a screen."""
    cells = screen.buffer[row]
    return max(column for column in range(screen.columns) if cells[column].data == "│")


CHARACTERS = st.sampled_from("ab日本語é🤖\\\x1b\x00\u202e\U0001f1e6\n ")


@given(token=st.text(CHARACTERS, min_size=1, max_size=30), cells=st.integers(6, 30))
@example("日" * 30, 24)
def test_a_long_token_is_shortened_in_its_middle_and_escapes_are_whole_or_left_out(token, cells):
    characters = [shown(character.encode()) for character in token]
    whole = "".join(characters)

    short = shorten(whole, cells)

    if cell_len(whole) <= cells:
        assert short == whole
        return
    head, dots, tail = short.partition("…")
    counts = range(len(characters) + 1)
    assert dots
    assert cell_len(short) <= cells
    assert head in ["".join(characters[:count]) for count in counts]
    assert tail in ["".join(characters[count:]) for count in counts]
    if max(map(cell_len, characters)) <= 2:
        assert cell_len(short) >= cells - 1
        assert abs(cell_len(head) - cell_len(tail)) <= 2


# --- colours --------------------------------------------------------------------------------------

BACKGROUNDS = data(__name__)["backgrounds"]
COLORS = {style.color for style in STYLES.values() if style.color is not None}


def linear(color: tuple[int, ...]) -> np.ndarray:
    """Return the shares of red, green and blue in a colour's light, as sRGB defines them."""
    shares = np.array(color) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def luminance(color: tuple[int, ...]) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Return the contrast of two colours, as WCAG 2 defines it."""
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", BACKGROUNDS.values(), ids=BACKGROUNDS)
@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
def test_every_colour_can_be_read_on_any_background(system, background):
    for color in COLORS:
        seen = color.downgrade(system).get_truecolor()
        assert contrast(seen, background) >= 3, color


def test_sixteen_colours_have_no_white_and_no_grey():
    numbers = {color.downgrade(ColorSystem.STANDARD).number for color in COLORS}

    assert numbers.isdisjoint({0, 7, 8, 15})
    assert len(numbers) >= 4


def test_signs_have_colours_and_dim_rows_have_none():
    page = Matrix([Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), row_styles=["", "dim"])

    colored = []
    for segment in console(80).render(page):
        if segment.style and segment.style.color:
            colored.append((segment.text, segment.style.color.name))
    assert colored == [
        ("0.5000", "#d75f00"),
        ("-0.2500", "#0087d7"),
        ("1.0000", "#d75f00"),
    ]


@cases
def test_colour_is_a_choice_and_changes_nothing_else(
    in_process,
    is_terminal,
    color,
    environment,
    is_colored,
):
    variables = {"TERM": "xterm-256color"} | environment
    options = () if color == "auto" else ("--color", color)
    command = ("weights", "--vocab", "6", "--dim", "3")

    page = in_process.ok(*command, *options, terminal=is_terminal, **variables).text
    heat = in_process.ok(*command, "--heat", *options, terminal=is_terminal, **variables).text

    assert bool(ESCAPE.search(page)) == is_colored
    assert bool(ESCAPE.search(heat)) == is_colored
    plain = in_process.ok(*command, "--color", "never", terminal=is_terminal).text
    assert ESCAPE.sub("", page) == plain


# --- strips and pictures --------------------------------------------------------------------------


TWELVE = arrays.arrays(np.float32, 12, elements=st.floats(width=32))
COUNTS = st.sampled_from([5, 9, 13, 97])


@given(values=TWELVE, count=COUNTS, is_signed=st.booleans())
def test_a_level_of_a_scale_is_the_nearest_one(values, count, is_signed):
    values = values if is_signed else np.abs(values)
    finite = values[np.isfinite(values)].astype(float)
    limit = np.abs(finite).max(initial=0)

    scale = ColorScale.of([values]).from_least(values)
    levels = scale.levels(values, count)

    assert scale.limit == limit
    places = np.linspace(scale.least, limit, count) / (limit or 1)
    for value, level in zip(values.tolist(), levels.tolist(), strict=True):
        if math.isnan(value):
            assert level == NAN
        elif math.isinf(value):
            assert level == INFINITE
        else:
            distances = np.abs(places - value / (limit or 1))
            assert distances[level] <= distances.min() + 1e-12


@cases
def test_colours_leave_the_background_from_zero_on_and_blue_and_red_tell_the_sign(
    terminal, background, monkeypatch
):
    """Zero is close to the background that the terminal has by COLORFGBG."""
    monkeypatch.setenv("COLORFGBG", terminal)
    shades = [color.get_truecolor() for color in colors_of(console())]
    half = len(shades) // 2
    assert len(set(shades)) == 2 * half + 1

    contrasts = np.array([contrast(shade, background) for shade in shades])
    assert contrasts[half] < 1.7
    assert (np.diff(contrasts[: half + 1]) < 0).all()
    assert (np.diff(contrasts[half:]) > 0).all()
    red, _, blue = np.transpose(shades)
    assert (blue[:half] > red[:half]).all()
    assert (red[half + 1 :] > blue[half + 1 :]).all()


def test_a_theme_says_what_the_background_of_a_terminal_is(in_process, tmp_path):
    words = ("weights", "--vocab", "6", "--dim", "3", "--heat", "--color", "always")

    def shown(*options: str, **variables: str) -> str:
        return in_process.ok(*words, *options, **TRUECOLOR, **variables).text

    dark = shown()
    light = shown(COLORFGBG="0;15")
    assert shown(EMBCLI_THEME="light", COLORFGBG="15;0") == light
    assert dark != light
    assert ESCAPE.sub("", dark) == ESCAPE.sub("", light)
    assert shown("--theme", "auto") == dark
    assert shown("--theme", "dark", COLORFGBG="0;15") == dark
    assert shown("--theme", "light", terminal=True, COLUMNS="120") == light

    path = tmp_path / "page.txt"
    assert not shown("-o", str(path))
    assert "\x1b" not in path.read_text(), "a file has no colours"


def cells_of_strip(text: Text, drawn: Console) -> list[str | Color | None]:
    """Return what each cell of a strip shows: a mark, or a colour."""
    cells: list[str | Color | None] = []
    for segment in drawn.render(text):
        style = segment.style or Style()
        for character in segment.text.rstrip("\n"):
            cells.append(character if character in "?!" else style.bgcolor)
    return cells


ROW = st.tuples(st.just(1), st.integers(1, 30))


@pytest.mark.parametrize("system", ["truecolor", "256", "standard"])
@given(arrays.arrays(np.float32, ROW, elements=st.floats(width=32)))
@example(np.float32([[1, math.nan, 1, math.inf, 1, -1]]))
def test_the_colours_of_strips_are_the_levels_of_their_numbers(system, values):
    drawn = console(400, system)
    scale = ColorScale.of([values])
    assert (scale.least < 0) == bool((values[np.isfinite(values)] < 0).any())
    colors = colors_of(drawn)
    lowest = 0 if scale.least < 0 else len(colors) // 2  # Without negative numbers: the upper half.
    marks = {NAN: "?", INFINITE: "!"}
    expected = []
    for level in scale.levels(values[0], len(colors) - lowest).tolist():
        expected.append(marks.get(level) or colors[level + lowest])

    assert cells_of_strip(strip(values, scale, drawn), drawn) == expected


@given(
    columns=st.integers(1, 5000),
    available=st.integers(1, 300),
    columns_per_cell=st.sampled_from([1, 4]),
)
def test_columns_are_in_bins_only_where_they_have_no_room(columns, available, columns_per_cell):
    fit = Fit.of(columns, available, columns_per_cell)

    largest_count = columns_per_cell * available
    assert fit.width <= available
    assert fit.bins == math.ceil(columns / fit.columns_per_bin)
    assert (fit.columns_per_bin == 1) == (columns <= largest_count)
    if fit.columns_per_bin > 1:
        smaller_bins = math.ceil(columns / (fit.columns_per_bin - 1))
        assert smaller_bins > largest_count


@pytest.mark.parametrize("width", [30, 80, 200])
@cases
def test_numbers_of_columns_stand_above_their_cells(columns, width):
    """Row n is 1 in column n, and 0 elsewhere; of columns that share a cell, one is shown."""
    numbers = np.arange(columns)
    page = Strips([Label("row", numbers)], [Values(np.eye(columns, dtype=np.float32))], numbers)

    printed = export.text(page, width)

    name, axis, *strips = re.findall(r"│  (.*)", printed)
    assert name == "columns"
    *ticks, last = re.finditer(r"\d+", axis)
    shown = re.search(r"shown: 1 in (\d+) columns", printed)
    step = int(shown[1]) if shown else 1
    for tick in ticks:
        first = int(tick[0]) // step * step
        assert any(strip[tick.start()] != "." for strip in strips[first : first + step])
    assert int(last[0]) == columns - 1
    assert strips[(columns - 1) // step * step][last.start() : last.end()].strip(".")
    steps = {*np.diff([int(tick[0]) for tick in ticks]).tolist()}
    assert len(steps) <= 1
    assert steps <= {1, 8, 20, 50, 100}


def test_of_columns_without_room_every_nth_is_shown():
    values = np.tile(np.float32([1, -1]), (1, 500))
    page = Strips([Label("row", [0])], [Values(values)], np.arange(1000))

    printed = export.text(page, 80)
    assert "shown: 1 in 14 columns" in printed
    assert ".@.@.@" in printed


def test_without_colour_heat_is_characters_with_marks_for_non_finite_numbers(
    snapshot,
):
    values = np.float32([[0.5, -0.25, 1.0, math.nan], [0.0, 2.0, -3.125, -math.inf]])
    page = Matrix([Label("ID", [0, 1])], [Values(values)], np.arange(4), heat=True)

    snapshot("page/heat-without-colour.txt", export.text(page, 60))


@pytest.mark.parametrize("height", [12, 22, 38, 60])
@pytest.mark.parametrize("size", [5, 64, 80, 301])
@pytest.mark.parametrize("square", [False, True])
def test_a_picture_fits_its_lines_and_uses_them(square, size, height):
    numbers = np.arange(size)
    values = np.arange(size * size, dtype=np.float32).reshape(size, size)
    labels = [Label("pos", numbers)]
    page = Strips(labels, [Values(values)], numbers, lines=height, square=square)

    printed = ESCAPE.sub("", on_terminal(page, height=height))

    lines = printed.splitlines()
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= 80
    room = height - 5
    assert ("shown: 1 in" in printed) == (size > min(room, 72))
    if size > room:
        assert 2 * len(lines) > height, "the picture uses most of its lines"


def colors_of_picture(page: Strips) -> np.ndarray:
    """Return the colours of a picture in SVG, (rows, columns, 3), from its paths."""
    svg = export.exported(page, "svg", 0, "light").decode()
    strips = []
    for paths in re.findall(r"<g transform=.*?>(.*?)</g>", svg):
        cells: dict[tuple[int, int], tuple[int, ...]] = {}
        for color, path in re.findall(r'stroke="#(\w{6})" d="([^"]*)"', paths):
            for x, y in re.findall(r"M(\d+) (\d+)\.5h1", path):
                assert (int(y), int(x)) not in cells
                cells[int(y), int(x)] = tuple(bytes.fromhex(color))
        height, width = np.max([*cells], axis=0) + 1
        strip = [cells[place] for place in np.ndindex(height, width)]
        strips.append(np.array(strip).reshape(height, width, 3))
    return np.concatenate(strips)


@cases
def test_a_similarity_in_a_picture_has_a_cell_for_each_number(lines, size, step):
    """Without room for all, every n-th row and column is shown, never a mean."""
    numbers = np.arange(size)
    values = np.eye(size, dtype=np.float32)
    page = Strips([Label("pos", numbers)], [Values(values)], numbers, lines=lines, square=True)

    colors = colors_of_picture(page)

    shown = math.ceil(size / step)
    assert colors.shape == (shown, shown, 3)
    is_dark = colors.sum(axis=2) < 300
    assert np.array_equal(is_dark, np.eye(shown, dtype=bool))


def labels_of_svg(svg: str) -> list[tuple[int, float]]:
    """Return the whole numbers in the first column of a picture, each with its height."""
    label = r'x="0" y="(\S+)" [^>]*>(?:&#160;)*(\d+)</text>'
    return [(int(number), float(height)) for height, number in re.findall(label, svg)]


@cases
def test_a_label_is_at_the_middle_of_its_row(in_process, command, lines, shown):
    """A row has some lines, or shares one with others."""
    svg = in_process.ok(*shlex.split(command), "--heat", "-f", "svg").text
    middles: list[float] = []
    strip = r'translate\(\S+ (\S+)\)"><g transform="scale\(\S+ (\S+)\)" [^>]+>(.*?)</g>'
    for top, height, paths in re.findall(strip, svg):
        rows = {int(row) for row in re.findall(r" (\d+)\.5h1", paths)}
        middles += [float(top) + (row + 0.5) * float(height) for row in sorted(rows)]

    middles_of_rows = np.reshape(middles, (-1, lines)).mean(axis=1)
    numbers, heights = zip(*labels_of_svg(svg), strict=True)
    assert [*numbers] == shown
    to_baseline = 6.3
    assert heights - middles_of_rows[[*numbers]] == pytest.approx(to_baseline, abs=0.3)


@cases
def test_many_rows_of_a_picture_share_lines_which_have_the_label_of_the_first(rows, step):
    """Rows before and after a gap share no line."""
    is_high = np.random.default_rng(7).random((rows, 384)) < 0.5
    values = np.where(is_high, 1, 0).astype(np.float32)
    labels = [Label("ID", range(rows))]
    page = Strips(labels, [Values(values)], np.arange(384), [rows // 2], most_lines=36)

    colors = colors_of_picture(page)
    svg = export.exported(page, "svg", 0, "light").decode()

    assert np.array_equal(colors.sum(axis=2) < 300, is_high)
    labels_of_lines = [*range(0, rows // 2, step), *range(rows // 2, rows, step)]
    assert [label for label, _ in labels_of_svg(svg)] == labels_of_lines
    assert f"each line: {step} rows, labelled by the first" in svg.replace("&#160;", " ")


def test_a_picture_shows_non_finite_numbers_in_yellow_and_says_how_many():
    values = np.float32([[1, math.nan, -1, math.inf]])
    page = Strips([Label("ID", [0])], [Values(values)], np.arange(4), lines=5)

    colors = colors_of_picture(page)

    yellow = [(255, 215, 0)]
    assert (colors == yellow).all(axis=2).tolist() == [[False, True, False, True]]
    svg = export.exported(page, "svg", 100, "light").decode()
    assert "yellow: 1 NaN; yellow: 1 infinite" in svg.replace("&#160;", " ")


@cases
def test_a_picture_without_room_shows_every_nth_row_and_column(rows, columns, shown):
    values = np.ones((rows, columns), np.float32)
    labels = [Label("pos", np.arange(rows))]
    page = Strips(labels, [Values(values)], np.arange(columns), lines=28)

    printed = ESCAPE.sub("", on_terminal(page, height=28))

    assert printed.splitlines()[-1].endswith(f"1  {shown}")


# --- files ----------------------------------------------------------------------------------------


def test_a_png_without_a_font_is_refused(monkeypatch):
    monkeypatch.setattr("resvg_py.svg_to_bytes", lambda **_: b"a picture without text")

    with pytest.raises(OutputError, match="fonts-dejavu-core"):
        export.exported(MATRIX, "png", 60, "light")


def test_a_png_without_its_package_is_refused_and_an_svg_is_not(in_process, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)

    with pytest.raises(OutputError, match="missing"):
        embcli.explain("one-hot").page("png")

    refusal = in_process.refused("tokenize", "hi", "-f", "png")
    assert "'embcli[pictures]'" in refusal
    in_process.ok("tokenize", "hi", "-f", "svg")


def test_a_png_shows_text():
    svg = export.exported(MATRIX, "svg", 60, "light").decode()
    without_text = re.sub("<text.*?</text>", "", svg, flags=re.DOTALL)

    assert len(export.png(svg)) > 2 * len(export.png(without_text))


def test_a_notebook_gets_a_fragment_and_nothing_else(monkeypatch, capsys):
    shell = type("ZMQInteractiveShell", (), {})  # rich knows a notebook by this name
    monkeypatch.setattr(builtins, "get_ipython", shell, raising=False)
    model = embcli.seeded(6, 3)
    written = f"{model[0][1]:.4f}"
    result = model.weights()

    fragment = ET.fromstring(result._repr_html_())

    assert fragment.tag == "pre"
    assert written in "".join(fragment.itertext())
    assert written in str(result)
    assert capsys.readouterr().out == ""


@cases
def test_a_fragment_has_the_background_that_its_colours_are_for(theme, colors):
    page = of_one_row(np.float32([-1, 0, 1]), heat=True)

    fragment = export.fragment(page, 60, theme)

    assert fragment.startswith(f'<pre style="{colors}; ')


MARKS = "|_*$\\&#%`{}~^<>\"'![]()-+=.,:@/ a1x\u3000"
HOSTILE = r"""
a|b \| \\| \ \\ _a_ a_b_c **a** *a $a$ $$ `a` `` ``` ~~a~~ \$ &amp; &#36; &nbsp; <b> </td> <!--
[x](y) ![x](y) [1em] *[1em] <https://a.b> https://a.b/c_d www.a.b a@b.c {a} {} }{ -- --- ----
~~~ *** === |-| [x]:\ty 1. 1.5 -0.3374 #x
"""
BLOCKS = [
    *("- x", "+ x", "> x", "# x", "1. x", "12) x", "- - -"),
    *("    x", " a  b ", "│", "a\nb", "e\u0301", "\x1b]0;x"),
]


def read_markdown(document: str) -> list[str]:
    """Return the texts of a document that has tables, paragraphs and bold texts only."""
    found = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(document):
        if token.type != "inline":
            kind = token.type.removesuffix("_open").removesuffix("_close")
            assert kind in ("paragraph", "table", "thead", "tbody", "tr", "th", "td"), token
            continue
        children = token.children or []
        assert {child.type for child in children} <= {"text", "strong_open", "strong_close"}
        found.append("".join(child.content for child in children))
    return found


WORDS = st.text(st.sampled_from(MARKS), max_size=12) | st.text(max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=5))
@example(HOSTILE.split())
@example(BLOCKS)
def test_any_text_is_read_back_from_markdown(texts):
    bold = [safe_text(text, "strong") for text in texts]
    table = ruled([Label("a", texts, "left"), Label("b", bold)])
    paragraphs = Group(*map(safe_text, texts))

    document = export.markdown(Group(table), 80) + "\n" + export.markdown(paragraphs, 80)

    expected = ["a", "b"]
    plain = [safe_text(text).plain.strip(" ") for text in texts]
    for text in plain:
        expected += [text, text]
    expected += [text for text in plain if text]
    assert read_markdown(document) == expected
    for match in re.finditer(r"(\\*)\$", document):
        assert len(match[1]) % 2 == 1, "GitHub would look for math"
    assert not re.search(r"\w://|www\.|\w@", document), "GitHub would make a link"


@cases
def test_a_picture_that_fills_a_slide_has_text_that_can_be_read(in_process, words):
    svg = in_process.ok(*words.split(), "-f", "svg").text

    (size,) = re.findall(r'viewBox="0 0 (\S+) (\S+)"', svg)
    width, height = map(float, size)
    assert 21 * min(1920 / width, 1080 / height) >= 16


def cut_to_the_edge(svg: str) -> str:
    """Return the left edge of a picture, which makes a PNG of few pixels."""
    return re.sub(r'(viewBox="0 0) \S+ (\S+)" width="\S+"', r'\1 4 \2" width="4"', svg)


@pytest.mark.parametrize("lines", [20, 27, 57])
def test_a_png_is_opaque_up_to_its_last_pixels(lines):
    page = Group(*["x" * 100] * lines)
    svg = export.exported(page, "svg", 100, "light").decode()

    pixels = from_png(export.png(cut_to_the_edge(svg)))

    assert (pixels == 255).all()


def test_between_the_colours_of_two_rows_in_a_png_there_is_no_third_one():
    """Rows of one number, each several lines high, fill a stretch of the picture."""
    values = np.float32([[-1], [1], [1], [-1], [0.5]])
    page = Strips([Label("ID", range(5))], [Values(values)], np.arange(1))
    svg = export.exported(page, "svg", 40, "light").decode()
    at_the_edge = re.sub(r"translate\(\S+", "translate(0", re.sub("<text.*?</text>", "", svg))

    pixels = from_png(export.png(cut_to_the_edge(at_the_edge)))

    found = [color for color, _ in groupby(pixels[:, 1, :3].tolist())]
    rows = [color for color, _ in groupby(colors_of_picture(page)[:, 0].tolist())]
    assert len(rows) == 4
    assert found == [[*WHITE], *rows, [*WHITE]]


@cases
def test_a_scale_that_a_few_numbers_set_ends_at_a_percentile(largest, limit, beyond):
    """The numbers have marks and means of their own if they are not finite."""
    values = np.ones((4, 200), np.float32)
    values[1, 7] = largest
    values[2, 9] = -largest
    values[3, :2] = np.nan, np.inf
    page = Matrix([Label("ID", range(4))], [Values(values)], np.arange(200), heat=True)

    lines = export.text(page, 300).splitlines()

    assert lines[-1].startswith(f"-{limit:g} ")
    assert f" {limit:g}  " in lines[-1]
    expected = f"the scale ends at the 99.5th percentile{beyond}; " if beyond else ""
    assert lines[-1].endswith(f"{expected}?: 1 NaN; !: 1 infinite")
    (row,) = [line.split()[-1] for line in lines if line.split()[:1] == ["2"]]
    assert row[9] == ".", "the first of the characters"


def test_a_scale_of_mostly_zeros_reaches_the_largest_number():
    values = np.zeros((1, 1000))
    values[0, 3] = 2.0

    scale = ColorScale.of([values])
    assert scale.without_outliers([values]) == scale
    nothing = ColorScale.of([np.zeros((0, 3))])
    assert nothing.without_outliers([np.zeros((0, 3))]) == nothing


@cases
def test_words_of_a_picture_stand_out_from_its_background(theme, least):
    labels = [Label("ID", [0, 1])]
    matrix = Matrix(labels, [Values(VALUES)], np.arange(3), [1], row_styles=["", "dim"], column="")
    page = Group(matrix, Text("Same", STYLES["good"]))

    html = export.exported(page, "html", 60, theme).decode()

    names = re.findall(r"(?:ground|color): #(\w{6})", html)
    background, *inks = [tuple(bytes.fromhex(name)) for name in names]
    assert len({background, *inks}) >= 6
    assert min(contrast(ink, background) for ink in inks) >= least
    dim = INKS[theme]["dim"]
    assert dim in html
    assert contrast(tuple(bytes.fromhex(dim[1:])), background) >= 4.5


WHITE = (255, 255, 255)


@cases
def test_no_number_is_yellow_on_a_light_terminal_of_16_colours(in_process, theme, has_yellow):
    words = ("lookup", "--ids", "2,3", "--vocab", "6", "--dim", "3", "--theme", theme)

    printed = in_process.ok(*words, terminal=True, TERM="xterm", COLORTERM="").text

    codes = ";".join(re.findall(r"\x1b\[([\d;]+)m", printed)).split(";")
    assert bool({*codes} & {"33", "93"}) == has_yellow


def test_three_tokens_differ_also_in_16_colours():
    colors = map(Color.parse, TOKEN_COLORS)
    numbers = [color.downgrade(ColorSystem.STANDARD).number for color in colors]

    assert len({*numbers}) == 3


# How linear red, green and blue are seen: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHTS = {sight: np.array(rows) for sight, rows in data(__name__)["sights"].items()}


def in_lab(color: tuple[int, ...], sight: np.ndarray) -> np.ndarray:
    """Return a colour as CIE L*a*b* has it, white D65, as a sight sees it."""
    seen = np.clip(sight @ linear(color), 0, 1)
    to_xyz = [[0.434, 0.376, 0.190], [0.213, 0.715, 0.072], [0.018, 0.109, 0.873]]  # white is 1
    x, y, z = np.cbrt(to_xyz @ seen)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [None, "light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS.values(), ids=SIGHTS)
def test_no_sight_confuses_the_colours_of_neighbouring_tokens(sight, theme):
    inks = INKS[theme] if theme else {}
    seen = []
    names = [*TOKEN_COLORS, TOKEN_COLORS[0], str(STYLES["negative"]), str(STYLES["positive"])]
    for name in names:
        seen.append(in_lab(tuple(bytes.fromhex(inks.get(name, name)[1:])), sight))

    *tokens, negative, positive = seen
    distances = [float(np.linalg.norm(one - other)) for one, other in pairwise(tokens)]
    assert min(distances) >= 17
    is_red_green = sight is not SIGHTS["tritanopia"]
    for token in tokens if is_red_green else []:
        assert np.linalg.norm(token - negative) >= 20
        assert np.linalg.norm(token - positive) >= 20


@cases
def test_characters_that_no_font_has_are_noted_for_png(
    in_process, tmp_path, monkeypatch, text, undrawn
):
    def drawn(text: str) -> bytes:
        return b"box" if text >= "\u1000" else text.encode()

    monkeypatch.setattr(export, "_drawn", drawn)
    monkeypatch.chdir(tmp_path)
    for format in ("png", "svg"):
        error = in_process("tokenize", "x", "--slide", text, "-o", f"x.{format}").err
        named = [character for character in text if unicodedata.name(character) in error]
        assert named == (undrawn if format == "png" else [])

"""Pages that rich draws: no number is cut at any width, lines fit, text from outside is data, exports can be read."""

from __future__ import annotations

import builtins
import io
import math
import re
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.color import Color, ColorSystem
from rich.console import Console, Group
from rich.style import Style
from rich.text import Text
from wcwidth import wcswidth

import embcli as package
from embcli.errors import OutputError
from embcli.page import (
    STYLES,
    Drawing,
    Label,
    Matrix,
    Strips,
    Values,
    export,
    ruled,
    safe_text,
    shorten,
    title,
    token_style,
)
from embcli.page.colors import INFINITE, INKS, NAN, ColorScale, colors_of, means, sign_style
from embcli.page.strips import Fit, strip
from embcli.tokens import shown
from tests.runners import InProcess

# --- tables -----------------------------------------------------------------------------------------------------------

VALUES = np.array([[0.5, -0.25, 1.0], [0.0, 2.0, -3.125]], np.float32)
PLAIN = Matrix(
    [Label("token", ["Every", "␣effort"], "left", short=True), Label("ID", [7, 8])],
    [Values(VALUES)],
    np.arange(3),
)
ODD = [
    1e30,
    -1e30,
    1e-30,
    -1e-30,
    3.4e38,
    1e-45,
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    1.5,
    -999999.94,
]
FLOATS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 5), st.integers(1, 40)),
    elements=st.floats(width=32) | st.sampled_from(np.float32(ODD).tolist()),
)
TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


def console(width: int = 80, system: str | None = "truecolor", height: int = 24) -> Console:
    return Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=system
    )  # type: ignore[arg-type]


def on_terminal(page: object, width: int = 80, height: int = 24) -> str:
    drawn = console(width, height=height)
    with drawn.capture() as captured:
        drawn.print(page, highlight=False)
    return captured.get()


def one_row(values: list[float], precision: int = 4) -> list[str]:
    """Return the cells of a matrix of one row, all of whose columns fit."""
    matrix = Matrix(
        [Label("ID", [0])],
        [Values(np.float32([values]))],
        np.arange(len(values)),
        precision=precision,
    )
    return export.text(matrix, 400).splitlines()[2].split("│")[1].split()


def test_columns_and_rows_in_the_middle_are_left_out_and_named() -> None:
    values = np.arange(18, dtype=np.float32).reshape(2, 9)
    page = Matrix(
        [Label("ID", [0, 9])],
        [Values(values)],
        np.arange(10, 19),
        gaps=[1],
        rows_left_out="rows 1 to 8",
    )
    assert export.text(page, 46) == (
        "ID  │       10       11  …       17       18\n"
        "────────────────────────────────────────────\n"
        " 0  │   0.0000   1.0000  …   7.0000   8.0000\n"
        " ⋮  │        ⋮        ⋮  ⋮        ⋮        ⋮\n"
        " 9  │   9.0000  10.0000  …  16.0000  17.0000\n"
        "Left out: rows 1 to 8 and columns 12 to 16 (5\n"
        "of 9).\n"
    )


def test_tables_of_labels_and_drawings() -> None:
    table = ruled(
        [Label("a", ["x", safe_text("y", "good")], "left"), Label("b", [1, 22])], gaps=[1]
    )
    assert export.text(table, 40) == "a   b\n─────\nx   1\n⋮   ⋮\ny  22\n"
    assert export.text(Drawing([Text("╭─╮"), Text("│ │" * 40)]), 40).splitlines()[0] == "╭─╮"


@given(
    values=FLOATS,
    width=st.integers(40, 200),
    precision=st.integers(0, 12),
    blocks=st.integers(1, 2),
)
@example(np.float32([ODD]), 40, 4, 1)
@example(np.float32([[0.0, *[-0.0] * 12]]), 46, 1, 1)  # numpy may take either zero to be the least
def test_no_number_is_cut_at_any_width(
    values: np.ndarray, width: int, precision: int, blocks: int
) -> None:
    labels = [
        Label("token", [f"␣token{row}" * 3 for row in range(len(values))], "left", short=True)
    ]
    page = Matrix(
        labels, [Values(values)] * blocks, np.arange(values.shape[1]), precision=precision
    )
    lines = export.text(page, width).splitlines()
    if max(map(cell_len, lines)) > width:
        assert precision > 8  # two blocks of one very long number need more than the narrowest page
        return
    shown = [int(each) for each in lines[0].partition("│")[2].split("│")[0].split() if each != "…"]
    for line, row in zip(lines[2 : 2 + len(values)], values.astype(float), strict=True):
        for block in line.split("│")[1:]:
            for cell, column in zip(
                [each for each in block.split() if each != "…"], shown, strict=True
            ):
                assert cell in (f"{row[column]:.{precision}f}", f"{row[column]:.{precision}e}")
                limit = 0.5000001 * 10.0**-precision
                assert float(cell) == pytest.approx(row[column], rel=limit, abs=limit, nan_ok=True)


@given(
    values=FLOATS,
    width=st.integers(40, 120),
    precision=st.integers(1, 4),
    step=st.sampled_from([1, 10**9]),
)
def test_chosen_columns_continue_in_further_tables(
    values: np.ndarray, width: int, precision: int, step: int
) -> None:
    numbers = np.arange(values.shape[1]) * step
    labels = [Label("ID", range(len(values)))]
    page = Matrix(labels, [Values(values)], numbers, precision=precision, every=True)
    lines = export.text(page, width).splitlines()
    headers = [
        line.partition("│")[2].split()
        for line, rule in pairwise(lines)
        if rule and {*rule} == {"─"}
    ]
    assert [int(each) for header in headers for each in header] == numbers.tolist()
    assert (len(headers) == 1) == page.fits(width)
    cells = [cell for line in lines for cell in line.partition("│")[2].split() if "." in cell]
    assert len({"e" in cell for cell in cells}) <= 1
    assert "…" not in "".join(lines)


@pytest.mark.parametrize(
    ("number", "precision", "written"),
    [
        (999999.94, 4, "999999.9375"),
        (1e6, 4, "1.0000e+06"),
        (-1e6, 2, "-1.00e+06"),
        (0.00006, 4, "0.0001"),
        (0.00004, 4, "4.0000e-05"),
        (0.04, 1, "4.0e-02"),
        (0.06, 1, "0.1"),
        (0.0, 4, "0.0000"),
    ],
)
def test_an_exponent_is_used_where_a_fixed_point_says_too_little_and_for_all(
    number: float, precision: int, written: str
) -> None:
    assert one_row([number], precision) == [written]
    assert one_row([2e6, 0.5]) == ["2.0000e+06", "5.0000e-01"]


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("39", 40), ("1", 40), ("0", 120), ("", 120), ("wide", 120)]
)
def test_the_width_of_a_pipe(in_process: InProcess, columns: str, width: int) -> None:
    page = in_process.ok("weights", "--vocab", "5", COLUMNS=columns).text
    assert (
        page == in_process.ok("weights", "--vocab", "5", "--width", str(width), COLUMNS="77").text
    )
    assert width - 12 < max(map(len, page.splitlines()[1:5])) <= width


# --- text from outside ------------------------------------------------------------------------------------------------

WIDE = "naïve 日本語 🤖 e\u0301 🇨🇭 👩\u200d💻 ok\u202e \x1b[2J [bold]x[/] │ का \ufeff\x01 한국어"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")  # colours: all that a page ever sends


@given(st.text(st.characters(codec="utf-8"), max_size=30))
@example("\x1b]0;pwn\x07\x1b[2J\u202e\u2066\u200b\x9b\r[bold]")
def test_text_from_outside_is_one_line_of_data(text: str) -> None:
    labels = [Label("token", [text], "left", short=True)]
    page = Group(
        title(text), Matrix(labels, [Values(VALUES[:1], text)], np.arange(3)), safe_text(text)
    )
    bare = ESCAPE.sub("", on_terminal(page, 300))
    assert not UNSAFE.search(bare)
    assert len([line for line in bare.splitlines() if "│" in line and "0.5000" in line]) == 1


def test_markup_in_text_is_not_markup() -> None:
    assert export.text(safe_text("[bold]x[/bold] :smile:"), 80) == "[bold]x[/bold] :smile:\n"


@pytest.mark.parametrize("verb", ["tokenize", "lookup"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_terminal_shows_tables_of_wide_and_hostile_tokens_straight(verb: str, width: int) -> None:
    raw = (
        InProcess().ok(verb, WIDE, COLUMNS=str(width), LINES="300", **TRUECOLOR, terminal=True).text
    )
    assert not UNSAFE.search(ESCAPE.sub("", raw))
    screen = pyte.Screen(width, 300)
    pyte.Stream(screen).feed(raw.replace("\n", "\r\n"))
    lines = [line.rstrip() for line in screen.display]
    assert " ".join(lines).split() == ESCAPE.sub("", raw).split()  # the terminal broke no line
    table = [line for line in lines if re.search(r"\d:\d+$|-?\d\.\d{4}", line)]
    assert len(table) >= 20
    assert len({wcswidth(line) for line in table}) == 1 or verb == "tokenize"
    if verb == "lookup":
        cells = [screen.buffer[row] for row, line in enumerate(lines) if line in table]
        assert len({max(x for x in range(width) if each[x].data == "│") for each in cells}) == 1


@given(
    st.text(st.sampled_from("ab日本語é🤖\\\x1b\x00\u202e\U0001f1e6\n "), min_size=1, max_size=30),
    st.integers(6, 30),
)
@example("日" * 30, 24)
def test_a_long_token_is_shortened_in_its_middle_and_an_escape_is_whole_or_left_out(
    token: str, most: int
) -> None:
    characters = [shown(character.encode()) for character in token]
    whole, widest = "".join(characters), max(map(cell_len, characters))
    head, dots, tail = (short := shorten(whole, most)).partition("…")
    assert (short == whole) == (not dots) == (cell_len(whole) <= most)
    assert head in {"".join(characters[:count]) for count in range(len(characters) + 1)}
    assert not dots or tail in {"".join(characters[count:]) for count in range(len(characters) + 1)}
    assert not dots or cell_len(short) <= most
    assert (
        not dots
        or widest > 2
        or (cell_len(short) >= most - 1 and abs(cell_len(head) - cell_len(tail)) <= 2)
    )


# --- colours ----------------------------------------------------------------------------------------------------------

GROUNDS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "Solarized dark": (0, 43, 54),
    "light": (253, 246, 227),
}
COLORS = {
    each.color for each in (*STYLES.values(), *map(token_style, range(4))) if each.color is not None
}


def luminance(color: tuple[int, ...]) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    shares = [part / 255 for part in color]
    red, green, blue = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
@pytest.mark.parametrize("ground", GROUNDS)
def test_every_colour_can_be_read_on_any_ground(system: ColorSystem, ground: str) -> None:
    for color in COLORS:
        assert contrast(color.downgrade(system).get_truecolor(), GROUNDS[ground]) >= 3, color


def test_sixteen_colours_have_no_white_and_no_grey() -> None:
    numbers = {color.downgrade(ColorSystem.STANDARD).number for color in COLORS}
    assert not numbers & {0, 7, 8, 15}
    assert len(numbers) >= 4


def test_signs_have_colours_and_dim_rows_have_none() -> None:
    page = Matrix([Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), tones=["", "dim"])
    drawn = console(80)
    colors = [
        (each.text, str(each.style.color))
        for each in drawn.render(page)
        if each.style and each.style.color
    ]
    named = [(text, "#0087d7" in name or "#d75f00" in name) for text, name in colors]
    assert named == [("0.5000", True), ("-0.2500", True), ("1.0000", True)]
    assert ["#0087d7" in name for _, name in colors] == [False, True, False]
    assert {str(sign_style(each)) for each in (math.nan, math.inf, -math.inf)} == {"bold #ff0000"}
    assert {sign_style(each) for each in (0.0, -0.0)} == {Style()}


@pytest.mark.parametrize(
    ("is_terminal", "arguments", "environment", "colored"),
    [
        (False, (), {}, False),
        (False, (), {"FORCE_COLOR": "1"}, True),
        (False, (), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (False, ("--color", "always"), {"NO_COLOR": "1"}, True),
        (False, ("--color", "never"), {"FORCE_COLOR": "1"}, False),
        (True, (), {}, True),
        (True, (), {"NO_COLOR": "1"}, False),
        (True, (), {"NO_COLOR": ""}, True),
        (True, (), {"TERM": "dumb"}, False),
        (True, (), {"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        (True, ("--color", "never"), {}, False),
        (True, ("--color", "always"), {"NO_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
@pytest.mark.parametrize("verb", ["weights", "weights --heat"])
def test_colour_is_a_choice_and_changes_nothing_else(
    in_process: InProcess,
    is_terminal: bool,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    colored: bool,
    verb: str,
) -> None:
    line = [*verb.split(), "--vocab", "6", "--dim", "3"]
    variables = {"TERM": "xterm-256color"} | environment
    printed = in_process.ok(*line, *arguments, terminal=is_terminal, **variables).text
    assert bool(ESCAPE.search(printed)) == colored
    if "--heat" not in verb:
        assert (
            ESCAPE.sub("", printed)
            == in_process.ok(*line, "--color", "never", terminal=is_terminal).text
        )


# --- strips and pictures ----------------------------------------------------------------------------------------------


@given(
    arrays.arrays(np.float32, 12, elements=st.floats(width=32)),
    st.sampled_from([5, 9, 13, 97]),
    st.booleans(),
)
def test_a_step_of_the_scale_is_the_nearest_one_and_symmetric_about_zero(
    values: np.ndarray, count: int, signed: bool
) -> None:
    values = values if signed else np.abs(values)
    scale = ColorScale.of([values])
    assert scale.limit == max(
        (abs(float(each)) for each in values if math.isfinite(each)), default=0
    )
    places, steps = np.linspace(-1 if scale.signed else 0, 1, count), scale.levels(values, count)
    for value, step in zip(values.tolist(), steps.tolist(), strict=True):
        if math.isfinite(value):
            share = value / scale.limit if scale.limit else 0.0
            assert abs(places[step] - share) <= np.abs(places - share).min() + 1e-12
        else:
            assert step == (NAN if math.isnan(value) else INFINITE)
    if scale.signed:
        assert (scale.levels(-values, count)[steps >= 0] == count - 1 - steps[steps >= 0]).all()


def test_colours_grow_darker_from_zero_on_and_blue_and_red_tell_the_sign() -> None:
    shades = [color.get_truecolor() for color in colors_of(console())]
    light, half = [*map(luminance, shades)], len(shades) // 2
    assert len({*shades}) == len(shades) == 2 * half + 1
    assert all(one < other for one, other in pairwise(light[: half + 1]))
    assert all(one > other for one, other in pairwise(light[half:]))
    assert all(blue > red for red, _, blue in shades[:half])
    assert all(red > blue for red, _, blue in shades[half + 1 :])
    assert [color.name for color in colors_of(console(system="standard"))] == [
        "blue",
        "cyan",
        "white",
        "yellow",
        "red",
    ]


def cells_of(text: Text, drawn: Console) -> list[tuple[str, Color | None, Color | None]]:
    """Return each cell of a strip: its character and both colours."""
    found = []
    for segment in drawn.render(text):
        style = segment.style or Style()
        found += [(each, style.color, style.bgcolor) for each in segment.text.rstrip("\n")]
    return found


@given(
    arrays.arrays(
        np.float32, st.tuples(st.just(2), st.integers(1, 30)), elements=st.floats(width=32)
    )
)
@example(np.float32([[1, math.nan, 1], [math.inf, 1, -1]]))
@pytest.mark.parametrize("system", ["truecolor", "256", "standard"])
def test_the_colours_of_strips_are_the_steps_of_their_numbers(
    system: str, values: np.ndarray
) -> None:
    drawn = console(400, system)
    colors, scale = colors_of(drawn), ColorScale.of([values])
    zero = (
        0 if scale.signed else len(colors) // 2
    )  # a matrix without negative numbers has the upper half
    assert scale.signed == bool((values < 0).any())
    steps = scale.levels(values, len(colors) - zero)
    steps[steps >= 0] += zero

    def expected(*pair: int) -> object:
        return (
            "?"
            if NAN in pair
            else "!"
            if INFINITE in pair
            else tuple(colors[step] for step in pair)
        )

    def seen(cell: tuple[str, Color | None, Color | None]) -> object:
        return cell[0] if cell[0] in "?!" else (cell[2], cell[2]) if cell[0] == " " else cell[1:]

    one, halves, rows = (strip(values, scale, drawn, 1, glyph) for glyph in ("", "▌", "▀"))
    assert [seen(cell) for cell in cells_of(rows, drawn)] == [
        expected(*pair) for pair in steps.T.tolist()
    ]
    upper = cells_of(strip(values[:1], scale, drawn), drawn)
    assert [seen(cell) for cell in upper] == [expected(step, step) for step in steps[0].tolist()]
    even = steps[0, : len(steps[0]) // 2 * 2].reshape(-1, 2).tolist()
    assert [seen(cell) for cell in cells_of(halves, drawn)][: len(even)] == [
        expected(*pair) for pair in even
    ]
    assert one.cell_len == values.shape[1]


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 40))), st.integers(1, 12)
)
@example(np.float32([[math.inf, -math.inf, math.inf, math.nan]]), 2)
def test_a_bin_is_the_mean_of_its_columns_and_shows_what_is_no_number(
    values: np.ndarray, size: int
) -> None:
    for row, bins in zip(values, means(values, size), strict=True):
        parts = [row[at : at + size] for at in range(0, len(row), size)]
        for part, mean in zip(parts, bins, strict=True):
            if np.isfinite(part).all():
                exact, largest = math.fsum(part.tolist()) / len(part), float(np.abs(part).max())
                assert mean == pytest.approx(exact, rel=1e-9, abs=1e-9 * largest)
            else:
                assert np.isnan(mean) if np.isnan(part).any() else np.isinf(mean)


def test_means_of_kinds_of_columns_that_alternate() -> None:
    assert means(np.array([[0.0, 10, 2, 12, 4, 14]]), 2, column_period=2).tolist() == [
        [1.0, 11.0, 4.0, 14.0]
    ]


@given(st.integers(1, 5000), st.integers(1, 300), st.booleans())
def test_columns_are_in_bins_only_where_they_have_no_room(
    columns: int, room: int, halves: bool
) -> None:
    fit = Fit.of(columns, room, halves)
    assert fit.width <= room
    assert fit.bins == -(-columns // fit.columns_per_bin)
    assert (fit.columns_per_bin == 1) == (columns <= room * (1 + halves))
    assert fit.columns_per_bin == 1 or -(-columns // (fit.columns_per_bin - 1)) > room * (
        1 + halves
    )  # and no more of them than need be


def test_without_colour_heat_is_characters_and_marks_stand_for_what_is_no_number() -> None:
    values = np.float32([[0.5, -0.25, 1.0, math.nan], [0.0, 2.0, -3.125, -math.inf]])
    page = Matrix([Label("ID", [0, 1])], [Values(values)], np.arange(4), heat=True)
    assert export.text(page, 60) == (
        "ID  │  0              3\n"
        "───────────────────────\n"
        " 0  │  ****++++****????\n"
        " 1  │  ++++%%%%....!!!!\n"
        "\n"
        "-3.125 ...:::-----===+++++***#####%%%@@@ 3.125\n"
        "?: 1 NaN; !: 1 infinite\n"
    )


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("size", [5, 64, 301])
@pytest.mark.parametrize("height", [24, 40])
def test_a_picture_fits_a_screen_and_averages_rows_and_columns(
    square: bool, size: int, height: int
) -> None:
    values = np.arange(size * size, dtype=np.float32).reshape(size, size)
    page = Strips(
        [Label("pos", np.arange(size))],
        [Values(values)],
        np.arange(size),
        lines=height,
        square=square,
    )
    lines = ESCAPE.sub("", on_terminal(page, height=height)).splitlines()
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= 80
    assert ("the mean of" in " ".join(lines)) == (size > 2 * (height - 5))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_picture_without_its_package_or_a_font_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resvg_py

    with monkeypatch.context() as patch:
        patch.setattr(resvg_py, "svg_to_bytes", lambda **_: b"a picture without text")
        with pytest.raises(OutputError, match="fonts-dejavu-core"):
            export.exported(PLAIN, "png", 60, "light")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(OutputError, match="png needs a package that is missing"):
        package.explain("one-hot").page("png")
    refused = InProcess().refused("tokenize", "hi", "-f", "png")
    assert (
        refused == "embcli: png needs a package that is missing: pip install 'embcli[pictures]'\n"
    )
    InProcess().ok("tokenize", "hi", "-f", "svg")


def test_a_png_shows_text_and_colours(tmp_path: Path) -> None:
    svg = export.exported(PLAIN, "svg", 60, "light").decode()
    drawn, blank = export.png(svg), export.png(re.sub("<text.*?</text>", "", svg, flags=re.DOTALL))
    assert InProcess().ok(*PAGES["lookup --heat"], "-f", "png").out[:4] == drawn[:4] == b"\x89PNG"
    assert len(drawn) > 2 * len(blank)
    assert (
        drawn
        != export.exported(PLAIN, "png", 60, "light", color=False)
        != export.exported(PLAIN, "png", 60, "dark")
    )


@pytest.mark.parametrize("heat", [False, True])
def test_a_picture_without_colour_has_shades_of_grey_only(heat: bool) -> None:
    page = Matrix(PLAIN.labels, PLAIN.blocks, PLAIN.numbers, heat=heat)
    for color in (False, True):
        svg = export.exported(page, "svg", 60, "light", color).decode()
        hues = {
            each
            for each in re.findall("#([0-9a-f]{6})", svg)
            if int(each[4:], 16) - int(each[:2], 16) > 20
        }
        assert bool(hues) == color


def test_a_notebook_gets_a_fragment_without_a_background_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = type("ZMQInteractiveShell", (), {})
    monkeypatch.setattr(
        builtins, "get_ipython", shell, raising=False
    )  # by which rich knows a notebook
    result = package.seeded(6, 3).weights()
    fragment = ET.fromstring(result._repr_html_())
    assert fragment.tag == "pre"
    assert "-0.1778" in "".join(fragment.itertext())
    assert "background" not in fragment.attrib["style"]
    assert "-0.1778" in str(result)
    assert capsys.readouterr().out == ""


def test_markdown_has_a_column_for_each_number_and_says_what_the_page_says() -> None:
    page = Group(title("*Two* rows"), PLAIN, safe_text("1. `x` | y"))
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(export.markdown(page, 80))
    assert rendered.count("<th ") == 5
    numbers = re.findall(r"<td[^>]*>(-?\d\.\d{4})</td>", rendered)
    assert [float(each) for each in numbers] == VALUES.ravel().tolist()
    assert "<strong>*Two* rows</strong>" in rendered
    assert "<p>1. `x` | y</p>" in rendered


MARKS = "|_*$\\&#%`{}~^<>\"'![]()-+=.,:@/ a1x\u3000"
HOSTILE = r"""
a|b \| \\| \ \\ _a_ a_b_c **a** *a $a$ $$ `a` `` ``` ~~a~~ \$ &amp; &#36; &nbsp; <b> </td> <!-- [x](y) ![x](y) [1em]
*[1em] <https://a.b> https://a.b/c_d www.a.b a@b.c {a} {} }{ -- --- ---- ~~~ *** === |-| [x]:\ty 1. 1.5 -0.3374 #x
"""


@given(
    st.lists(
        st.text(st.sampled_from(MARKS), max_size=12) | st.text(max_size=12), min_size=1, max_size=5
    )
)
@example(HOSTILE.split())
@example(
    [
        "- x",
        "+ x",
        "> x",
        "# x",
        "1. x",
        "12) x",
        "- - -",
        "    x",
        " a  b ",
        "│",
        "a\nb",
        "e\u0301",
        "\x1b]0;x",
    ]
)
def test_any_text_is_read_back_from_markdown(texts: list[str]) -> None:
    page = Group(
        ruled(
            [Label("a", texts, "left"), Label("b", [safe_text(each, "strong") for each in texts])]
        )
    )
    lines = Group(*(safe_text(each) for each in texts))
    found: list[str] = []
    document = export.markdown(page, 80) + "\n" + export.markdown(lines, 80)
    assert all(len(match[1]) % 2 for match in re.finditer(r"(\\*)\$", document)), (
        "GitHub would look for math"
    )
    assert not re.search(r"\w://|www\.|\w@", document), "GitHub would make a link"
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(document):
        if token.type == "inline":
            assert {each.type for each in token.children or []} <= {
                "text",
                "strong_open",
                "strong_close",
            }
            found.append("".join(each.content for each in token.children or []))
        else:
            assert re.fullmatch(
                "(paragraph|table|thead|tbody|tr|th|td)_(open|close)", token.type
            ), token
    expected = [safe_text(each).plain.strip(" ") for each in texts]
    assert found == [
        "a",
        "b",
        *(each for each in expected for _ in range(2)),
        *filter(None, expected),
    ]


@pytest.mark.parametrize(
    ("columns", "rows", "averaged"), [(512, 128, ""), (513, 128, "2 "), (512, 129, "2 rows")]
)
def test_a_file_has_a_cell_for_each_number_up_to_512_columns_and_128_rows(
    columns: int, rows: int, averaged: str
) -> None:
    values = np.sin(np.arange(rows * columns, dtype=np.float32).reshape(rows, columns))
    page = Strips([Label("pos", np.arange(rows))], [Values(values)], np.arange(columns), lines=40)
    pre = "".join(
        ET.fromstring(export.exported(page, "html", 100, "light", color=False))
        .find(".//{*}pre")
        .itertext()
    )  # type: ignore[union-attr]
    lines = [line for line in pre.splitlines()[2:] if "│" in line]
    assert ("the mean of" in pre) == bool(averaged)
    assert averaged in pre
    if not averaged:
        assert (len(lines), {len(line.split("│ ")[1].strip()) for line in lines}) == (
            rows,
            {columns},
        )


@pytest.mark.parametrize(
    "verb",
    ["tokenize", "tokenize --merges", "weights", "lookup --heat", "batch", "positions", "audit"],
)
def test_bare_has_titles_and_tables_or_pictures_alone(verb: str) -> None:
    whole, bare = (InProcess().ok(*PAGES[verb], *more).text for more in ((), ("--bare",)))
    said = re.sub("\nThe size of all numbers: .*|\nFrom token i to token j: .*", "", whole)
    assert said.startswith(bare.removesuffix("\n"))
    assert not re.search("Untrained|standard deviation|tokens \\(gpt2|what the model reads", bare)
    assert re.search("Untrained|tokens \\(gpt2|characters", whole)


def test_zero_is_a_middle_grey_on_a_dark_ground_and_colours_grow_lighter_from_it() -> None:
    page = Matrix(
        [Label("ID", [0])], [Values(np.float32([[-1, -0.5, 0, 0.5, 1]]))], np.arange(5), heat=True
    )
    dark, light = (export.exported(page, "html", 60, theme).decode() for theme in ("dark", "light"))
    found = [re.findall("background-color: #(\\w{6})", each)[:5] for each in (dark, light)]
    dark_values, light_values = (
        [sum(bytes.fromhex(each)) / 3 for each in colors] for colors in found
    )
    assert 80 <= dark_values[2] <= 160 < 200 <= light_values[2]
    assert dark_values[2] == min(dark_values)
    assert light_values[2] == max(light_values)
    low, high = (
        np.frombuffer(bytes.fromhex(found[0][place]), np.uint8).astype(int) for place in (0, 4)
    )
    assert (
        np.abs(low - high).sum() >= 300
    )  # the ends are as far apart as blue and orange, not two tints of white


@pytest.mark.parametrize(("theme", "least"), [("dark", 4.5), ("light", 3.8)])
def test_words_of_a_picture_stand_out_from_its_background(
    theme: Literal["dark", "light"], least: float
) -> None:
    page = Matrix(
        [Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), [1], tones=["", "dim"], column=""
    )
    html = export.exported(Group(page, Text("Same", STYLES["good"])), "html", 60, theme).decode()
    assert INKS[theme]["dim"] in html
    found = [tuple(bytes.fromhex(each)) for each in re.findall("(?:ground|color): #(\\w{6})", html)]
    assert len({*found}) >= 6
    assert min(contrast(each, found[0]) for each in found[1:]) >= least
    assert contrast(tuple(bytes.fromhex(INKS[theme]["dim"][1:])), found[0]) >= 4.5


def test_dots_of_rows_that_are_left_out_keep_to_their_cells_in_html_whatever_the_font() -> None:
    page = Matrix([Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), [1])
    for html in (export.exported(page, "html", 60, "light").decode(), export.fragment(page, 60)):
        assert (
            html.count("⋮")
            == html.count('<span style="display: inline-block; width: 1ch">⋮</span>')
            == 4
        )


# --- verbs ------------------------------------------------------------------------------------------------------------

SMALL = ("--vocab", "60", "--dim", "40")
IDS = ("--ids", "2,3,5,1", *SMALL)
TEXT = "Every effort moves you… 👋 日本語 <b> [i]"
PAGES = {
    "tokenize": ("tokenize", TEXT),
    "tokenize --merges": ("tokenize", "This is it", "--merges", "--draw"),
    "tokenize two": ("tokenize", TEXT, "--encoding", "gpt2", "--encoding", "o200k_base"),
    "weights": ("weights", *SMALL),
    "lookup": ("lookup", TEXT, "--dim", "40"),
    "lookup --draw": ("lookup", *IDS, "--trace", "0", "--draw"),
    "lookup --heat": ("lookup", *IDS, "--heat", "--color", "never"),
    "compare": ("compare", "--ids", "2,3,1", "--show", "shared,cost", "--trace", "--gradient"),
    "batch": ("batch", "--ids", "1,2,3,4,5,6", *SMALL, "--batch-size", "1", "--draw"),
    "positions": ("positions", "relative", "--context-length", "6", *SMALL),
    "positions --similarity": ("positions", "sinusoidal", "--similarity"),
    "neighbors": ("neighbors", "--ids", "3", *SMALL),
    "audit": ("audit", *SMALL),
    "info": ("info",),
    "cache": ("cache",),
    "explain": ("explain", "matrices"),
}
MEASURED = re.compile(r"^(?:time .*|  at least .*|linear: [\s\S]*?by\s+zero.*)$", re.MULTILINE)


def said_in(text: str) -> str:
    """Return a page without blanks, without lines, which an SVG has as paths, and without what is measured."""
    return "".join(re.sub("[─│╭╮╰╯┬┴┼]", "", MEASURED.sub("", text.replace("\xa0", " "))).split())


@pytest.mark.parametrize("view", PAGES)
def test_each_page_in_each_format_says_what_the_table_says(view: str) -> None:
    run, verb = InProcess(), [*PAGES[view], "--width", "90"]
    table = run.ok(*verb, "-f", "table").text
    assert max(map(cell_len, table.splitlines())) <= 90
    for format in ("svg", "html"):
        document = run.ok(*verb, "-f", format).out
        root = ET.fromstring(document)
        assert not re.search(rb"font-face|<script|https?://(?!www\.w3\.org)", document)
        lines: dict[float, str] = {}
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            lines[float(text.get("y", ""))] = lines.get(float(text.get("y", "")), "") + "".join(
                text.itertext()
            )
        said = "\n".join(lines[y] for y in sorted(lines)) or "".join(
            root.find(".//{*}pre").itertext()
        )  # type: ignore[union-attr]
        assert said_in(said) == said_in(table)
    markdown = run.ok(*verb, "-f", "markdown").text
    numbers = set(re.findall(r"-?\d+\.\d{4}\b", MEASURED.sub("", table)))
    assert numbers <= {*re.findall(r"-?\d+\.\d{4}\b", markdown)}

"""Strips of colours: read back from what is printed they are the numbers, within a step of the scale."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from embcli.formats import VIEWS as PAGES
from embcli.oldpage import Block, Column, Paper, heat
from embcli.oldpage.heat import Fit, Lines, Scale, means
from embcli.oldpage.markdown import Markdown
from embcli.oldpage.shapes import LINE, MARGIN
from embcli.oldpage.terminal import Terminal
from embcli.positions.rotary import Rotary
from embcli.positions.sinusoidal import Sinusoidal
from embcli.weights.seeded import Seeded
from tests import drawings
from tests.inside import Inside
from tests.oracles import live
from tests.screen import OWN_ESCAPES, contrast, on_terminal, rgb, styled

if TYPE_CHECKING:
    from pathlib import Path

    from embcli.oldpage import Page
    from tests.conftest import Embcli

untimed = settings(deadline=None)
DEPTHS = {
    "truecolour": ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, heat.TRUECOLOR),
    "256": ({"TERM": "xterm-256color"}, heat.COLORS_256),
    "16": ({"TERM": "xterm"}, heat.COLORS_16),
}
depths = pytest.mark.parametrize(("environment", "palette"), DEPTHS.values(), ids=[*DEPTHS])
floats = st.floats(width=32, allow_subnormal=True)
matrices = st_numpy.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=floats)


# --- reading strips back ----------------------------------------------------------------------------------------------


def halves(codes: tuple[int, ...]) -> dict[str, object]:
    """Return the colours of fore- and background that escape sequences name, as the palettes write them."""
    found: dict[str, object] = {}
    rest = [*codes]
    while rest:
        code = rest.pop(0)
        if code in (38, 48):
            kind = rest.pop(0)
            found["fore" if code == 38 else "back"] = rest.pop(0) if kind == 5 else tuple(rest.pop(0) for _ in range(3))
        elif code >= 30:
            bright = 8 if code >= 90 else 0
            found["fore" if code // 10 in (3, 9) else "back"] = code % 10 + bright
    return found


@dataclass(frozen=True)
class Cells:
    """The cells of a strip: characters, and the colours of both halves of each (None where there is no such half)."""

    characters: str
    first: list[object]
    second: list[object]


def cells(line: str) -> Cells:
    """Read the strip of a line, which stands behind its last bar."""
    characters, first, second, behind = "", [], [], "│" not in OWN_ESCAPES.sub("", line)
    for piece in styled(line):
        if "│" in piece.text:
            behind = True
        colors = halves(piece.codes)
        if not behind or not colors or "│" in piece.text:
            continue
        for character in piece.text:
            characters += character
            both = character in "▌▀"
            first.append(colors["fore"] if both else colors["back"])
            second.append(colors.get("back"))
    return Cells(characters, first, second)


def strips(printed: str) -> list[Cells]:
    """Return all strips except the colour bars."""
    lines = [line for line in printed.split("\n") if "│" in line]
    return [found for line in lines if (found := cells(line)).characters]


def numbers(strip: Cells, palette: tuple[Any, ...], columns: int, limit: float) -> np.ndarray:
    """Return the numbers that a strip of so many columns shows."""
    width = len(strip.characters)
    if width < columns:
        colors = [half for pair in zip(strip.first, strip.second, strict=True) for half in pair][:columns]
    else:
        assert width % columns == 0
        colors = strip.first[:: width // columns]
        assert strip.first == strip.second == [color for color in colors for _ in range(width // columns)]
    steps = np.array([palette.index(color) for color in colors])
    half = len(palette) // 2
    return (steps - half) / half * limit  # sizes have the upper half of the palette


def characters(printed: str) -> list[str]:
    """Return all strips of characters except the colour bars."""
    found = [line.rpartition("│")[2].strip() for line in printed.split("\n") if "│" in line]
    return [strip for strip in found if strip and {*strip} <= {*heat.RAMP, "?", "!"}]


def read(strip: str, limit: float, signed: bool = True) -> np.ndarray:
    """Return the numbers that a strip of characters shows."""
    steps = np.array([heat.RAMP.index(character) for character in strip])
    return (steps / 4 - 1) * limit if signed else steps / 8 * limit


def range_of(printed: str) -> tuple[float, float]:
    """Return the numbers at the ends of the first colour bar."""
    for line in OWN_ESCAPES.sub("", printed).split("\n"):
        match = re.match(rf"(0|-\S+) [ ▌`{re.escape(heat.RAMP)}]+ (\d\S*)(?:  |$)", line)
        if match:
            return float(match[1]), float(match[2])
    raise AssertionError("there is no colour bar")


def averaged(values: np.ndarray, per: int) -> np.ndarray:
    """Return the means of columns in bins, the slow way."""
    return np.array([[row[at : at + per].astype(float).mean() for at in range(0, len(row), per)] for row in values])


def per(printed: str) -> int:
    """Return how many columns a page says that each colour is the mean of."""
    said = re.search(r"each (?:colour|character): the mean of (\d+) columns(?: \(last: (\d+)\))?", printed)
    return int(said[1]) if said else 1


# --- the scale --------------------------------------------------------------------------------------------------------


@untimed
@given(
    st_numpy.arrays(np.float32, 12, elements=floats),
    st.none() | st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False),
    st.sampled_from([5, 9, 13, 97]),
    st.booleans(),
)
def test_a_step_is_the_nearest_one(values: np.ndarray, limit: float | None, count: int, signed: bool) -> None:
    values = values if signed else np.abs(values)
    scale = Scale.of([values], limit, signed)
    finite = [abs(float(value)) for value in values if math.isfinite(value)]
    assert scale.limit == (limit if limit is not None else max(finite, default=0))
    places = np.linspace(-1 if signed else 0, 1, count)
    for value, step in zip(values.tolist(), scale.steps(values, count).tolist(), strict=True):
        if math.isnan(value):
            assert step == heat.NAN
        elif math.isinf(value):
            assert step == heat.INFINITE
        elif scale.limit == 0:
            assert places[step] == 0
        else:
            share = max(min(value / scale.limit, 1.0), -1.0)
            assert abs(places[step] - share) <= np.abs(places - share).min() + 1e-12
    assert scale.beyond(values) == sum(each > scale.limit for each in finite)


@untimed
@given(st_numpy.arrays(np.float32, 9, elements=floats), st.sampled_from([5, 13, 97]))
def test_the_scale_is_symmetric_about_0(values: np.ndarray, count: int) -> None:
    scale = Scale.of([values])
    steps = scale.steps(values, count)
    known = steps >= 0
    assert (scale.steps(-values, count)[known] == count - 1 - steps[known]).all()
    assert scale.steps(np.zeros(1), count).tolist() == [count // 2]


@depths
def test_colours_grow_darker_from_0_on_and_blue_and_red_tell_the_sign(
    environment: dict[str, str], palette: tuple[Any, ...]
) -> None:
    assert len({*palette}) == len(palette)
    assert len(palette) % 2 == 1
    if len(palette) <= 5:
        assert palette == (4, 6, 7, 3, 1)  # blue, cyan, white, yellow, red
        return
    shades = [rgb((38, 5, color)) if isinstance(color, int) else color for color in palette]
    light = [contrast(shade, (0, 0, 0)) for shade in shades]
    half = len(shades) // 2
    assert all(one < other for one, other in pairwise(light[: half + 1]))
    assert all(one > other for one, other in pairwise(light[half:]))
    assert all(blue > red for red, _, blue in shades[:half])
    assert all(red > blue for red, _, blue in shades[half + 1 :])


@untimed
@given(matrices, st.integers(1, 12))
@example(np.array([[np.inf, -np.inf, np.inf, np.nan]], np.float32), 2)
def test_a_bin_is_the_mean_of_its_columns_and_shows_what_is_no_number(values: np.ndarray, size: int) -> None:
    found = means(values, size)
    for row, bins in zip(values, found, strict=True):
        parts = [row[at : at + size] for at in range(0, len(row), size)]
        assert len(parts) == len(bins)
        for part, mean in zip(parts, bins, strict=True):
            if np.isnan(part).any():
                assert np.isnan(mean)
            elif np.isinf(part).any():
                assert np.isinf(mean)
            else:
                assert mean == pytest.approx(
                    math.fsum(part.tolist()) / len(part), rel=1e-9, abs=1e-9 * float(np.abs(part).max())
                )


@untimed
@given(st.integers(1, 5000), st.integers(1, 300), st.booleans())
def test_columns_are_in_bins_only_where_they_have_no_room(columns: int, room: int, halves: bool) -> None:
    fit = Fit.of(columns, room, halves)
    assert fit.width <= room
    assert fit.bins == -(-columns // fit.per)
    assert fit.halves == (halves and columns > room)
    assert fit.cells == max(min(room // columns, heat.WIDEST), 1)
    assert (fit.per == 1) == (columns <= room * (1 + halves))
    assert fit.per == 1 or -(-columns // (fit.per - 1)) > room * (1 + halves)  # and no more of them than need be


@untimed
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 30), st.integers(16, 100), st.booleans())
def test_a_picture_fits_and_its_numbers_are_square(
    rows: int, columns: int, lines: int, room: int, in_colour: bool
) -> None:
    squares = Lines.squares((rows, columns), lines, room, in_colour)
    bins = np.zeros((-(-rows // squares.per), -(-columns // squares.per)))
    drawn = squares.strips(bins, Scale(1.0))
    assert len(drawn) <= lines
    assert {strip.width for strip in drawn} == {bins.shape[1] * squares.height * (1 if in_colour else 2)}
    assert drawn[0].width <= room
    begin = [row for row in squares.rows(len(drawn)) if row is not None]
    assert begin[0] == 0
    assert {*begin} <= {*range(0, rows, squares.per)}


# --- strips on a page -------------------------------------------------------------------------------------------------


@depths
@pytest.mark.parametrize(("dim", "width"), [(3, 80), (60, 100), (97, 90), (256, 200), (256, 80), (1000, 90)])
def test_the_colours_of_all_columns_are_their_numbers(
    environment: dict[str, str], palette: tuple[Any, ...], dim: int, width: int
) -> None:
    run = Inside(terminal=True)
    printed = run.ok("weights", "--vocab", "7", "--dim", str(dim), "--heat", COLUMNS=str(width), **environment).text
    expected = averaged(live(Seeded(7, dim))["token"], per(printed))
    low, high = range_of(printed)
    assert -low == high == float(f"{np.abs(expected).max():.4g}")
    found = strips(printed)
    assert len(found) == 7
    step = 2 * high / (len(palette) - 1)
    for strip, row in zip(found, expected, strict=True):
        assert np.abs(numbers(strip, palette, len(row), high) - row).max() <= step / 2 * 1.01
    assert max(len(OWN_ESCAPES.sub("", line)) for line in printed.split("\n")) <= width
    assert (per(printed) == 1) == (dim <= 2 * (width - 20))


@pytest.mark.parametrize("dim", [3, 60, 256, 1000])
@pytest.mark.parametrize("where", ["pipe", "NO_COLOR", "dumb", "never", "markdown"], ids=lambda where: where)
def test_without_colour_the_ink_of_characters_tells_the_numbers(where: str, dim: int) -> None:
    arguments = {"never": ("--color", "never"), "markdown": ("-f", "markdown")}.get(where, ())
    environment = {"NO_COLOR": {"NO_COLOR": "1", "TERM": "xterm"}, "dumb": {"TERM": "dumb"}}.get(where, {})
    run = Inside(terminal=where in ("NO_COLOR", "dumb", "never"))
    sizes = ("--vocab", "7", "--dim", str(dim))
    printed = run.ok("weights", *sizes, "--heat", *arguments, COLUMNS="110", **environment).text
    assert "\x1b" not in printed
    text = printed.replace("`", "").replace("\\", "") if where == "markdown" else printed
    text = re.sub(r" \| (?=[^|]*$)", " │ ", text.replace(" |\n", "\n"), flags=re.M)
    text = re.sub(r"^\| -.*\n", "", text, flags=re.M)  # Markdown's rule
    expected = averaged(live(Seeded(7, dim))["token"], per(printed))
    found = characters(text)
    assert len(found) == 7
    high = float(f"{np.abs(expected).max():.4g}")
    for strip, row in zip(found, expected, strict=True):
        wide = len(strip) // len(row)
        assert len(strip) == wide * len(row)
        assert np.abs(read(strip[::wide], high) - row).max() <= high / 8 * 1.01


@pytest.mark.parametrize("kind", [Terminal, Markdown])
def test_what_is_no_number_is_marked_and_counted(kind: type[Page], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    values = np.ones((2, 6), np.float32)
    values[0, 1], values[1, 4], values[1, 5] = np.nan, np.inf, -np.inf
    page = kind(Paper(60, None, color=True, heat=True))
    page.grid([Column("ID", ["0", "1"])], [Block("", values)], np.arange(6))
    printed = page.content().decode()
    if kind is Terminal:
        found = [strip.characters[::4] for strip in strips(printed)]
        assert [[mark for mark in row if mark in "?!"] for row in found] == [["?"], ["!", "!"]]
        assert [row.index(mark) for row, mark in zip(found, "?!", strict=True)] == [1, 4]
    else:
        assert re.search(r"@@@@\?\?\?\?@{16}", printed)
        assert re.search(r"@{16}!{8}", printed)
    assert "?: 1 NaN; !: 2 infinite" in printed


def test_a_mark_stands_for_both_columns_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    values = np.ones((1, 100), np.float32)
    values[0, 51] = np.nan
    page = Terminal(Paper(80, None, color=True, heat=True))
    page.grid([Column("ID", ["0"])], [Block("", values)], np.arange(100))
    (strip,) = strips(page.content().decode())
    assert strip.characters == " " * 25 + "?" + " " * 24


def test_the_rows_of_a_token_stand_under_each_other_so_that_the_sum_is_seen() -> None:
    printed = Inside().ok("lookup", "Every effort", "--dim", "40", "--heat").text
    layers = live(Seeded(50257, 40))
    token, position = layers["token"][[6109, 3626]], layers["position"][:2]
    expected = np.stack([token, position, token + position], axis=1).reshape(6, 40)
    lines = [re.split(r" {2,}", line.partition("│")[0].strip()) for line in printed.split("\n") if "│" in line][1:]
    assert lines == [
        ["Every", "token", "6109"],
        ["+ position", "0"],
        ["= input", "0"],
        ["␣effort", "token", "3626"],
        ["+ position", "1"],
        ["= input", "1"],
    ]
    _, high = range_of(printed)
    for strip, row in zip(characters(printed), expected, strict=True):
        assert np.abs(read(strip[:: len(strip) // 40], high) - row).max() <= high / 8 * 1.01


def test_compare_shows_both_outputs_as_strips() -> None:
    printed = Inside().ok("compare", "--ids", "2,3,1", "--dim", "8", "--show", "outputs", "--heat").text
    layer = live(Seeded(4, 8))["token"][[2, 3, 1]]
    rows = [line.split("│")[1:] for line in printed.split("\n") if line.count("│") == 2][2:]
    assert len(rows) == 3
    high = range_of(printed)[1]
    for (left, right), row in zip(rows, layer, strict=True):
        strip, (same, difference) = left.strip(), right.split()
        assert same == strip
        assert difference == "0"
        assert np.abs(read(strip[::4], high) - row).max() <= high / 8 * 1.01
    wide = Inside().ok("compare", "--ids", "2,3,1", "--dim", "100", "--show", "outputs", "--heat", COLUMNS="80").text
    assert [len(each) for each in characters(wide.replace(" 0\n", "\n"))] == [50] * 6  # row under row


def test_batch_shows_its_input_embeddings_as_strips() -> None:
    sizes = ("--batch-size", "1", "--max-length", "3", "--stride", "3", "--dim", "30", "--vocab", "9")
    run = Inside()
    printed = run.ok("batch", "--ids", "1,2,3,4", *sizes, "--heat").text
    exact = np.array(json.loads(run.ok("batch", "--ids", "1,2,3,4", *sizes, "-f", "json").text)["matrices"]["input"][0])
    found = characters(printed)
    assert len(found) == 3
    high = range_of(printed)[1]
    for strip, row in zip(found, exact, strict=True):
        assert np.abs(read(strip[:: len(strip) // 30], high) - row).max() <= high / 8 * 1.01


# --- positions as a picture of all rows -------------------------------------------------------------------------------


def averaged_apart(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the means of rows, and of columns that are all even or all odd, in turn, the slow way."""
    high = [values[at : at + rows].mean(axis=0) for at in range(0, len(values), rows)]
    kinds = [averaged(np.array(high)[:, parity::2], columns) for parity in (0, 1)]
    return np.array(
        [
            [kinds[at % 2][row, at // 2] for at in range(sum(kind.shape[1] for kind in kinds))]
            for row in range(len(high))
        ]
    )


@pytest.mark.parametrize(
    ("length", "dim", "screen", "bins"),
    [
        (None, 256, (80, 24), (16, 128)),  # a row in each line, two numbers in each cell
        (None, 7, (80, 24), (16, 7)),
        ("300", 256, (80, 24), (30, 64)),  # two rows in each line
        ("1024", 97, (60, 40), (57, 49)),
        ("20", 50, (120, 40), (20, 50)),
    ],
)
def test_positions_are_a_picture_of_all_rows_that_averages_no_sine_with_a_cosine(
    length: str | None, dim: int, screen: tuple[int, int], bins: tuple[int, int]
) -> None:
    given = ("--context-length", length) if length else ()
    environment, palette = DEPTHS["truecolour"]
    run = Inside(terminal=True)
    size = {"COLUMNS": str(screen[0]), "LINES": str(screen[1])}
    printed = run.ok(
        "positions", "--kind", "sinusoidal", *given, "--dim", str(dim), "--heat", **size, **environment
    ).text
    said = re.search(r"the mean of (?:(\d+) rows)?(?: x )?(?:(\d+) even or odd columns)?", " ".join(printed.split()))
    rows, columns = (int(each or 1) for each in said.groups()) if said else (1, 1)
    expected = averaged_apart(Sinusoidal(dim).exact(np.arange(int(length or 16))), rows, columns)
    assert expected.shape == bins
    assert len(printed.splitlines()) < screen[1]
    high, half = range_of(printed)[1], len(palette) // 2
    stacked = len(strips(printed)) < len(expected)
    for place, strip in enumerate(strips(printed)):
        if stacked:
            both = [each for each in (strip.first, strip.second) if None not in each]
            found = np.array([[(palette.index(color) - half) / half * high for color in each] for each in both])
            wanted = expected[2 * place : 2 * place + 2]
        else:
            found, wanted = numbers(strip, palette, bins[1], high), expected[place]
        assert np.abs(found - wanted).max() <= high / half / 2 * 1.01


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
def test_a_rotated_row_averages_no_pair(pairing: Any) -> None:
    layers = ("--vocab", "5", "--dim", "256")
    printed = Inside().ok("positions", "rotary", "--pairing", pairing, *layers, "--heat", COLUMNS="100").text
    row = live(Seeded(5, 256))["token"][[0]]
    rotated = Rotary(256, pairing=pairing).exact(row, np.array([15]))
    size, kind = re.findall(r"the mean of (\d+) (columns|even or odd columns)", printed)[-1]
    assert kind == ("columns" if pairing == "halves" else "even or odd columns")
    (expected,) = averaged(rotated, int(size)) if pairing == "halves" else averaged_apart(rotated, 1, int(size))
    high = float(re.findall(r"@ ([0-9.]+)", printed)[-1])
    assert np.abs(read(characters(printed)[-1], high) - expected).max() <= high / 8 * 1.01


@pytest.mark.parametrize("form", ["svg", "html", "png"])
def test_files_show_sines_and_cosines_as_stripes(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"picture.{form}"
    Inside().ok("positions", "--kind", "sinusoidal", "--heat", "-o", str(path))
    zero, one = heat.TRUECOLOR[48], heat.TRUECOLOR[96]  # sines and cosines of position 0
    if form == "png":
        line = drawings.png(path.read_bytes())[round(2 * (MARGIN + 4.5 * LINE))].tolist()
        assert sum((tuple(left), tuple(right)) == (zero, one) for left, right in pairwise(line)) == 64
    elif form == "svg":
        line = re.findall(r' y="84" [^>]* fill="(.*?)"', path.read_text())
        assert [line.count("#" + bytes(color).hex()) for color in (zero, one)] == [64, 64]
    else:
        assert re.findall("#" + bytes(zero).hex() + "|#" + bytes(one).hex(), path.read_text())[:128] == [
            "#" + bytes(color).hex() for color in (zero, one) * 64
        ]


# --- dot products as a picture ----------------------------------------------------------------------------------------


@depths
@pytest.mark.parametrize("length", [5, 40, 301])
def test_the_picture_of_dot_products_is_their_means(
    environment: dict[str, str], palette: tuple[Any, ...], length: int
) -> None:
    arguments = ("--kind", "sinusoidal", "--similarity", "--context-length", str(length), "--dim", "16", "--heat")
    printed = Inside(terminal=True).ok("positions", *arguments, COLUMNS="90", LINES="40", **environment).text
    rows = Sinusoidal(16).exact(np.arange(length))
    size = int(said[1]) if (said := re.search(r"the mean of (\d+) rows x \1 columns", printed)) else 1
    starts = range(0, length, size)
    dots = rows @ rows.T
    expected = np.array([[dots[a : a + size, b : b + size].mean() for b in starts] for a in starts])
    found = strips(printed)
    high = range_of(printed)[1]
    seen = np.array(
        [
            [palette.index(color) for color in half]
            for each in found
            for half in (each.first, each.second)
            if None not in half
        ]
    )
    times = seen.shape[1] // len(expected)
    assert seen.shape == (len(expected) * times, len(expected) * times)
    half = len(palette) // 2
    shown = (seen - half) / half * high
    assert np.abs(shown - expected.repeat(times, 0).repeat(times, 1)).max() <= high / half / 2 * 1.01
    labels = [line.partition("│")[0].strip() for line in OWN_ESCAPES.sub("", printed).split("\n") if "│" in line][1:]
    tops = [int(label) for label in labels if label]
    assert tops == [*range(0, length, size)][:: 2 if times == 1 else 1]


def test_dot_products_without_colour_are_twice_as_wide_as_high() -> None:
    printed = Inside().ok("positions", "--similarity", "--context-length", "6", "--dim", "8", "--heat").text
    rows = live(Seeded(50257, 8, 6))["position"].astype(float)
    found = characters(printed)
    assert (len(found), {len(each) for each in found}) == (24, {48})
    high = range_of(printed)[1]
    for strip, row in zip(found[::4], rows @ rows.T, strict=True):
        assert np.abs(read(strip[::8], high) - row).max() <= high / 8 * 1.01


# --- what is refused --------------------------------------------------------------------------------------------------

SHOWN = f"it needs --format {', '.join(PAGES[:-1])} or {PAGES[-1]}"
HUGE = ("--vocab", "9" * 20)  # a layer that is refused once it is looked at


@pytest.mark.parametrize("verb", ["weights", "lookup", "compare", "positions", "batch"])
@pytest.mark.parametrize("form", ["json", "npy"])
def test_colours_have_no_place_in_data_and_no_layer_is_looked_at(inside: Embcli, verb: str, form: str) -> None:
    given = {"lookup": ("--ids", "1"), "compare": ("--ids", "1"), "batch": ("--ids", "1,2")}.get(verb, ())
    ran = inside(verb, *given, *HUGE, "--heat", "-f", form)
    assert ran.status == 2
    assert ran.err == f"embcli: --heat cannot be shown in {form}; {SHOWN}\n"


def test_a_map_as_data_is_refused_before_a_layer_is_looked_at(inside: Embcli) -> None:
    ran = inside("weights", *HUGE, "--map", "-f", "csv")
    assert (ran.status, ran.err) == (2, f"embcli: --map cannot be shown in csv; {SHOWN}\n")


@pytest.mark.parametrize("width", [80, 200])
def test_strips_fit_a_real_terminal(width: int) -> None:
    shown = on_terminal(width, "lookup", "Every effort moves you", "--heat", height=24)
    assert shown.history == 0
    assert max(len(OWN_ESCAPES.sub("", line)) for line in shown.raw.split("\n")) <= width
    assert len(strips(shown.raw)) == 12

"""Pages: numbers are never cut, text is safe, colours can be read on any ground, and a bar tells of long work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from wcwidth import wcswidth

from embcli.cli import console
from embcli.oldpage import Bar, Block, Column, Excerpt, Paper, Tone, Word
from embcli.oldpage.layout import shorten
from embcli.oldpage.terminal import Terminal
from embcli.tokens import shown
from tests.inside import Buffer, Inside, Stream
from tests.screen import bare, contrast, grids, rgb, words

if TYPE_CHECKING:
    from tests.conftest import Embcli

untimed = settings(deadline=None)
TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
COLORS_256 = {"TERM": "xterm-256color"}
COLORS_16 = {"TERM": "xterm"}
NUMBER = r"-?\d+\.\d+"


def page(width: int = 80, precision: int = 4, color: bool = False) -> Terminal:
    return Terminal(Paper(width, None, color, precision))


def printed(page: Terminal) -> str:
    return page.content().decode()


def grid(values: object, width: int = 80, precision: int = 4, color: bool = False) -> str:
    """Return a matrix as it is printed, all of whose columns fit."""
    matrix = np.array(values, np.float32)
    sheet = page(width, precision, color)
    sheet.grid([Column("pos", [*map(str, range(len(matrix)))])], [Block("", matrix)], np.arange(matrix.shape[1]))
    return printed(sheet)


# --- text -------------------------------------------------------------------------------------------------------------


@untimed
@given(st.text(st.sampled_from("ab日本語é🤖"), max_size=30), st.integers(6, 30))
@example("日" * 30, 24)
def test_a_long_token_is_shortened_in_its_middle(token: str, most: int) -> None:
    short = shorten(token, most)
    if wcswidth(token) <= most:
        assert short == token
        return
    assert most - 1 <= wcswidth(short) <= most
    head, _, tail = short.partition("…")
    assert token.startswith(head)
    assert token.endswith(tail)
    assert abs(wcswidth(head) - wcswidth(tail)) <= 2


@untimed
@given(st.text(st.sampled_from("a\\\x1b\x00\u202e\U0001f1e6\n "), min_size=1, max_size=20), st.integers(6, 24))
def test_an_escape_is_shown_whole_or_not_at_all(token: str, most: int) -> None:
    characters = [shown(character.encode()) for character in token]
    head, dots, tail = shorten("".join(characters), most).partition("…")
    assert head in {"".join(characters[:count]) for count in range(len(characters) + 1)}
    assert not dots or tail in {"".join(characters[count:]) for count in range(len(characters) + 1)}


HOSTILE = "\x1b]0;pwn\x07\x1b[2J\u202e\u2066\u200b\x9b\r[bold]"
PUT = {
    "title": lambda page: page.title(HOSTILE),
    "line": lambda page: page.line(HOSTILE, Word(HOSTILE, "good")),
    "table": lambda page: page.table([Column(HOSTILE, [HOSTILE, Word(HOSTILE, "bad")], "left")]),
    "grid": lambda page: page.grid(
        [Column(HOSTILE, [HOSTILE])],
        [Block(HOSTILE, np.zeros((1, 1), np.float32))],
        np.arange(1),
        after=[Column(HOSTILE, [HOSTILE])],
    ),
}


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_whatever_is_put_on_a_page_is_made_safe_there(put: object, color: bool) -> None:
    sheet = page(300, color=color)
    put(sheet)
    text = bare(printed(sheet))
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e\u2066]", text) is None
    assert "\\u001b]0;pwn\\u0007" in text
    assert "[bold]" in text


def test_a_newline_in_a_text_ends_no_line() -> None:
    sheet = page()
    sheet.line("a\nb\tc")
    assert printed(sheet) == "a\\nb\\tc\n"


# --- numbers ----------------------------------------------------------------------------------------------------------

ODD = [1e30, -1e30, 1e-30, -1e-30, 3.4e38, 1e-45, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -999999.94]
tables_of_floats = st_numpy.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 30)),
    elements=st.floats(width=32) | st.sampled_from(np.float32(ODD).tolist()),
)


@untimed
@given(tables_of_floats, st.integers(40, 300), st.integers(1, 8), st.sampled_from(["", "a", "日本語" * 9]))
@example(np.array([ODD], np.float32), 40, 4, "")
@example(np.array([ODD], np.float32), 300, 4, "日")
@example(np.array([[-0.0, 1.0]], np.float32), 40, 4, "")
def test_any_numbers_fit_and_can_be_read_back(values: np.ndarray, width: int, precision: int, token: str) -> None:
    sheet = page(width, precision)
    count, total = values.shape
    labels = [Column("pos", [*map(str, range(count))]), Column("token", [token] * count, "left", least=6)]
    seen = sheet.grid(labels, [Block("", values)], np.arange(total))
    (table,) = grids(printed(sheet), width)
    assert table.columns == seen.places.tolist()
    for row, expected in zip(table.values, values, strict=True):
        for cell, column in zip([cell for cell in row if cell != "…"], table.columns, strict=True):
            exact = float(expected[column])
            # Either form has all its decimals; one with an exponent is used where the other would say too little.
            assert cell in (f"{exact:.{precision}f}", f"{exact:.{precision}e}")
            assert float(cell) == pytest.approx(
                exact, rel=0.5 * 10.0**-precision, abs=0.5 * 10.0**-precision, nan_ok=True
            )


@untimed
@given(tables_of_floats, st.integers(40, 120), st.integers(1, 4), st.sampled_from([1, 1009, 10**9]))
@example(np.array([[1e6, *[-999999.94] * 5]], np.float32), 40, 2, 1)  # with an exponent each takes less room
@example(np.array([[0.0, *[-0.0] * 12]], np.float32), 46, 1, 1)  # numpy may take either zero to be the least
@example(np.array([[*[-0.0] * 12, 0.0]], np.float32), 46, 1, 1)
@example(np.ones((1, 9), np.float32), 46, 1, 10**9)  # the numbers of the columns are wider than those in them
def test_where_every_column_is_wanted_none_is_left_out(
    values: np.ndarray, width: int, precision: int, step: int
) -> None:
    sheet = page(width, precision)
    count, total = values.shape
    labels, numbers = [Column("pos", [*map(str, range(count))])], np.arange(total) * step
    whole = sheet.fits_grid(labels, [Block("", values)], numbers)
    seen = sheet.grid(labels, [Block("", values)], numbers, every=True)
    assert seen.left_out == 0
    tables = grids(printed(sheet), width)
    assert [column for table in tables for column in table.columns] == numbers.tolist()
    assert "…" not in printed(sheet)
    assert (len(tables) == 1) == whole
    cells = [cell for table in tables for row in table.values for cell in row]
    assert len({"e" in cell for cell in cells if cell.strip("-") not in ("nan", "inf")}) <= 1


@untimed
@given(st.floats(2**20, 2**127, width=32) | st.floats(2**-100, 2**-20, width=32))
def test_large_and_small_numbers_keep_their_digits(number: float) -> None:
    ((plus, minus),) = grids(grid([[number, -number]]), 80)[0].values
    assert float(plus) == pytest.approx(number, rel=1e-4) == -float(minus)


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
def test_an_exponent_is_used_only_where_a_fixed_point_says_too_little(
    number: float, precision: int, written: str
) -> None:
    assert grids(grid([[number]], precision=precision), 80)[0].values == [[written]]


def test_numbers_of_one_table_are_written_alike() -> None:
    ((large, small),) = grids(grid([[2e6, 0.5]]), 80)[0].values
    assert (large, small) == ("2.0000e+06", "5.0000e-01")


@untimed
@given(st.integers(1, 100), st.integers(0, 300), st.integers(1, 7))
def test_an_excerpt_says_what_it_does_not_show(most: int, total: int, step: int) -> None:
    which = Excerpt.ends(most, total)
    seen = which.places.tolist()
    assert len(seen) == min(most, total)
    numbers = np.arange(total) * step
    hidden = [place for place in range(total) if place not in seen]
    text = which.missing("row", numbers)
    if not hidden:
        assert (text, which.gaps) == ("", ())
        return
    assert which.gaps == (seen.index(hidden[-1] + 1) if hidden[-1] + 1 in seen else len(seen),)
    first, last, counts = hidden[0] * step, hidden[-1] * step, f"({len(hidden)} of {total})"
    if len(hidden) == 1:
        assert text == f"row {first} {counts}"
    else:
        assert text == (f"rows {first} to {last} {counts}" if step == 1 else f"rows {counts}")


def test_counts_of_what_is_left_out_have_separators() -> None:
    assert Excerpt.ends(10, 50257).missing("row") == "rows 5 to 50251 (50,247 of 50,257)"


# --- colours ----------------------------------------------------------------------------------------------------------

GROUNDS = {"black": (0, 0, 0), "white": (255, 255, 255), "Solarized dark": (0, 43, 54), "light": (253, 246, 227)}


def test_contrast_is_that_of_the_definition() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)
    assert rgb((38, 5, 32)) == (0, 135, 215)
    assert rgb((38, 5, 244)) == (128, 128, 128)


def colored(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> str:
    """Return all that can have a colour, as it is printed: each tone, numbers of each size, and what verbs print."""
    for name in ("TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    sheet = page(color=True)
    sheet.line(*(Word(tone, tone) for tone in get_args(Tone)))
    sheet.table([Column("sign", [Word(str(sign), sign=sign) for sign in (-1, 0, 1)])])
    sheet.table([Column("tone", [*get_args(Tone)], tone=tone) for tone in get_args(Tone)])
    run = Inside()
    verbs = (
        ("weights", "--vocab", "6", "--dim", "3"),
        ("tokenize", "naïve 日本語 and more"),
        ("lookup", "--ids", "1,2", "--vocab", "6", "--dim", "3", "--trace", "1"),
        ("compare", "--trace", "--gradient", "--vocab", "70"),
    )
    return printed(sheet) + "".join(run.ok(*verb, "--color", "always").text for verb in verbs)


@pytest.mark.parametrize(
    ("environment", "kind"), [(TRUECOLOR, (38, 2)), (COLORS_256, (38, 5))], ids=["truecolour", "256"]
)
def test_every_colour_can_be_read_on_any_ground(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], kind: tuple[int, int]
) -> None:
    colors = {word.color for word in words(colored(monkeypatch, environment), ".+") if word.color}
    assert len(colors) >= 6
    for color in colors:
        assert color[:2] == kind
        for name, ground in GROUNDS.items():
            assert contrast(rgb(color), ground) >= 3, (color, name)


def test_sixteen_colours_have_no_white_and_no_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    colors = {word.color for word in words(colored(monkeypatch, COLORS_16), ".+") if word.color}
    assert len(colors) >= 4
    assert all(len(color) == 1 for color in colors)
    assert not {(30,), (37,), (90,), (97,)} & colors


@pytest.mark.parametrize("environment", [TRUECOLOR, COLORS_256, COLORS_16], ids=["truecolour", "256", "16"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("weights", "--vocab", "6", "--dim", "3"),
        ("lookup", "--ids", "2,3", "--vocab", "6", "--dim", "3", "--draw", "--show", "token,position,input"),
        ("compare", "--ids", "2,3", "--draw", "--trace", "--show", "outputs", "--vocab", "6", "--dim", "3"),
    ],
    ids=["weights", "lookup", "compare"],
)
def test_a_number_is_blue_below_zero_and_orange_above_unless_its_row_is_dim(
    environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    printed = Inside(terminal=True).ok(*arguments, **environment).text
    numbers = words("\n".join(line for line in printed.splitlines() if "│" in line), NUMBER)
    hues = {(number.text[0] == "-", number.dim, number.color) for number in numbers}
    (cold,), (warm,) = ([hue for negative, dim, hue in hues if not dim and negative is sign] for sign in (True, False))
    assert cold != warm
    if environment is TRUECOLOR:
        (red, _, blue), (other_red, _, other_blue) = rgb(cold), rgb(warm)
        assert (red < blue, other_red > other_blue) == (True, True)
    dim = {(True, True, ()), (False, True, ())}
    assert hues - dim == {(True, False, cold), (False, False, warm)}
    assert (hues & dim == dim) == ("--draw" in arguments)


def test_nan_and_infinity_are_red_whatever_their_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TRUECOLOR.items():
        monkeypatch.setenv(name, value)
    text = grid([[np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0]], 120, color=True)
    odd, usual = words(text, "nan|-?inf"), words(text, NUMBER)
    (color,) = {word.color for word in odd}
    assert [word.text for word in odd] == ["nan", "inf", "-inf"]
    red, green, blue = rgb(color)
    assert red > 2 * max(green, blue)
    assert color not in {word.color for word in usual}
    assert all(word.bold for word in odd)


def test_zero_has_no_colour() -> None:
    plain = [word.text for word in words(grid([[0.0, -0.0, 1e-9, -0.1]], color=True), NUMBER) if not word.color]
    assert plain == ["0.0000", "-0.0000"]


def test_titles_stand_over_their_bars() -> None:
    sheet = page(120)
    values = np.zeros((2, 3), np.float32)
    sheet.grid([Column("pos", ["0", "1"])], [Block("left", values), Block("right", values)], np.arange(3))
    over, header, *_ = printed(sheet).splitlines()
    bars = [place for place, character in enumerate(header) if character == "│"]
    assert [place for place, character in enumerate(over) if character == "│"] == bars
    assert [over[bar + 1 :].split()[0] for bar in bars] == ["left", "right"]


def test_dots_stand_where_rows_are_left_out() -> None:
    sheet = page()
    sheet.table([Column("a", ["1", "2", "9"]), Bar(), Column("b", ["1", "2", "9"])], gaps=(2,))
    assert [line.split() for line in printed(sheet).splitlines()[2:]] == [
        ["1", "│", "1"],
        ["2", "│", "2"],
        ["⋮", "│", "⋮"],
        ["9", "│", "9"],
    ]


# --- the progress bar -------------------------------------------------------------------------------------------------


class Clock:
    """A clock that each look at moves on."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("seconds", "terminal", "seen"), [(0.3, True, True), (0.001, True, False), (9, False, False)])
def test_a_bar_is_shown_for_long_work_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, seconds: float, terminal: bool, seen: bool
) -> None:
    error = Buffer(terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console, "time", Clock(seconds))
    monkeypatch.setattr("sys.stderr", Stream(error))
    sizes = [10, 20, 30, 40]
    assert list(console.watched(sizes, 100, lambda size: size)) == sizes
    drawn = error.getvalue().decode()
    assert ("━" in drawn) == seen
    assert ("100%" in drawn) == seen
    assert not drawn or terminal
    if seen:
        assert drawn.rstrip().endswith("\x1b[2K")  # and then it is gone


@pytest.mark.parametrize(
    "verb",
    [
        ("lookup", "--ids", "1,2", "--vocab", "6", "--dim", "3", "-f", "csv"),
        ("weights", "--vocab", "6", "--dim", "3", "-f", "npy"),
    ],
    ids=lambda verb: verb[0],
)
def test_long_work_of_a_verb_has_a_bar_that_leaves_its_output_as_it_is(
    monkeypatch: pytest.MonkeyPatch, inside: Embcli, verb: tuple[str, ...]
) -> None:
    quiet = inside.ok(*verb)
    monkeypatch.setattr(console, "_PATIENCE", -1.0)
    ran = Inside(noisy=True)(*verb, TERM="xterm")
    assert ran.status == 0
    assert "━" in ran.err
    assert ran.out == quiet.out
    assert "━" not in ran.out.decode(errors="replace")
    assert "━" not in inside(*verb, TERM="xterm").err


def test_data_that_runs_over_the_terminal_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_PATIENCE", -1.0)
    ran = Inside(terminal=True, noisy=True)("weights", "--vocab", "6", "--dim", "3", "-f", "csv", TERM="xterm")
    assert (ran.status, ran.err) == (0, "")

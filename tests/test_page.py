"""Pages that rich draws: no number is cut at any width, lines fit, text from outside is data, exports can be read."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console, Group
from rich.text import Text

from embcli.page import Drawing, Label, Matrix, Picture, Strips, Values, export, ruled, shorten, title, words
from embcli.page.colors import Scale, means
from tests.conftest import Embcli

VALUES = np.array([[0.5, -0.25, 1.0], [0.0, 2.0, -3.125]], np.float32)
PLAIN = Matrix(
    [Label("token", ["Every", "␣effort"], "left", short=True), Label("ID", [7, 8])], [Values(VALUES)], np.arange(3)
)
FLOATS = arrays.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=st.floats(width=32))


def on_terminal(page: object, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="truecolor", highlight=False)
    with console.capture() as captured:
        console.print(page)
    return captured.get()


def test_a_matrix_is_a_table_with_a_bar_a_rule_and_numbers_of_one_width() -> None:
    assert export.text(PLAIN, 80) == (
        "token    ID  │        0        1        2\n"
        "─────────────────────────────────────────\n"
        "Every     7  │   0.5000  -0.2500   1.0000\n"
        "␣effort   8  │   0.0000   2.0000  -3.1250\n"
    )


def test_columns_in_the_middle_are_left_out_and_named() -> None:
    wide = Matrix([Label("ID", [3])], [Values(np.arange(9, dtype=np.float32)[None])], np.arange(10, 19), gaps=[])
    assert export.text(wide, 46) == (
        "ID  │      10      11  …      17      18\n"
        "────────────────────────────────────────\n"
        " 3  │  0.0000  1.0000  …  7.0000  8.0000\n"
        "Left out: columns 12 to 16 (5 of 9).\n"
    )


def test_rows_of_dots_stand_for_rows_that_are_left_out() -> None:
    page = Matrix([Label("ID", [0, 9])], [Values(VALUES[:, :1])], np.arange(1), gaps=[1], rows_left_out="rows 1 to 8")
    assert export.text(page, 40).splitlines()[2:] == [
        " 0  │  0.5000",
        " ⋮  │       ⋮",
        " 9  │  0.0000",
        "Left out: rows 1 to 8.",
    ]


def test_blocks_stand_side_by_side_with_their_titles() -> None:
    blocks = [Values(VALUES[:1, :2], "embedding"), Values(VALUES[:1, :2], "linear")]
    page = Matrix([Label("ID", [2])], blocks, np.arange(2), after=[Label("diff", ["0"])])
    assert export.text(page, 80) == (
        "    │  embedding         │  linear\n"
        "ID  │        0        1  │        0        1  diff\n"
        "──────────────────────────────────────────────────\n"
        " 2  │   0.5000  -0.2500  │   0.5000  -0.2500     0\n"
    )


def test_chosen_columns_continue_in_further_tables() -> None:
    values = np.arange(12, dtype=np.float32)[None]
    page = export.text(Matrix([Label("ID", [1])], [Values(values)], np.arange(12), every=True), 40)
    assert [float(each) for each in re.findall(r"\d+\.\d{4}", page)] == [*range(12)]
    assert "…" not in page


@given(values=FLOATS, width=st.integers(40, 200), precision=st.integers(0, 12), blocks=st.integers(1, 2))
def test_no_number_is_cut_at_any_width(values: np.ndarray, width: int, precision: int, blocks: int) -> None:
    labels = [Label("token", [f"␣token{row}" * 3 for row in range(len(values))], "left", short=True)]
    page = Matrix(labels, [Values(values)] * blocks, np.arange(values.shape[1]), precision=precision)
    lines = export.text(page, width).splitlines()
    fits_one = max(map(cell_len, lines)) <= width
    assert fits_one or precision > 8  # two blocks of one very long number need more than the narrowest page
    known = {form % value for value in values.ravel() for form in (f"%.{precision}f", f"%.{precision}e")} | {
        "nan",
        "inf",
        "-inf",
    }
    if fits_one:
        for line in lines[2 : 2 + len(values)]:
            assert set(line.partition("│")[2].split()) <= known | {"│", "…"}


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_text_from_outside_is_one_line_of_data(text: str) -> None:
    page = Group(
        title(text),
        Matrix([Label("token", [text], "left", short=True)], [Values(VALUES[:1])], np.arange(3)),
        words(text),
    )
    drawn = on_terminal(page, 200)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", bare)
    rows = [line for line in bare.splitlines() if "│" in line and "0.5000" in line]
    assert len(rows) == 1


def test_markup_in_text_is_not_markup() -> None:
    assert export.text(words("[bold]x[/bold] :smile:"), 80) == "[bold]x[/bold] :smile:\n"


def test_signs_have_colours_and_dim_rows_have_none() -> None:
    page = Matrix([Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), tones=["", "dim"])
    first, second = on_terminal(page).splitlines()[2:4]
    assert "\x1b[38;2;0;135;215m-0.2500" in first
    assert "\x1b[38;2;215;95;0m1.0000" in first
    assert "38;2" not in second


@pytest.mark.parametrize(
    ("terminal", "ground"), [("xterm", r"\x1b\[\d*;?4[0-7]m"), ("xterm-256color", "48;5;"), ("truecolor", "48;2;")]
)
def test_heat_has_a_colour_per_number(embcli: Embcli, terminal: str, ground: str) -> None:
    variables = {"TERM": "xterm-256color", "COLORTERM": "truecolor"} if terminal == "truecolor" else {"TERM": terminal}
    page = embcli.ok("weights", "--vocab", "4", "--dim", "3", "--heat", "--color", "always", **variables).text
    assert len(re.findall(ground, page)) >= 9


def test_without_colour_heat_is_characters() -> None:
    page = Matrix([Label("ID", [0, 1])], [Values(VALUES)], np.arange(3), heat=True)
    assert export.text(page, 40) == (
        "ID  │  0          2\n"
        "───────────────────\n"
        " 0  │  ****++++****\n"
        " 1  │  ++++%%%%....\n"
        "\n"
        "-3.125 ..:::----===+++***####%%%@@ 3.125\n"
    )


def test_strips_average_what_does_not_fit_and_say_so() -> None:
    values = np.array([[1, 3, 5, 7] * 30], np.float32)
    page = export.text(Strips([Label("ID", [0])], [Values(values)], np.arange(120)), 40)
    assert "each character: the mean of 4 columns" in page


def test_marks_stand_for_what_is_no_number() -> None:
    values = np.array([[np.nan, 1, np.inf, 0]], np.float32)
    page = export.text(Strips([Label("ID", [0])], [Values(values)], np.arange(4)), 60)
    assert "????@@@@!!!!...." in page.replace("++++", "....")
    assert "?: 1 NaN; !: 1 infinite" in page


@pytest.mark.parametrize("square", [False, True])
def test_a_picture_averages_rows_and_columns(square: bool) -> None:
    values = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    page = Picture("pos", np.arange(64), np.arange(64), lambda rows: values[rows], square=square, lines=21)
    assert "the mean of 4 rows" in export.text(page, 80)
    assert len(export.text(page, 80).splitlines()) <= 21
    assert "▀" in on_terminal(page, 80)


def test_tables_of_labels_and_drawings() -> None:
    table = ruled([Label("a", ["x", words("y", "good")], "left"), Label("b", [1, 22])], gaps=[1])
    assert export.text(table, 40) == "a   b\n─────\nx   1\n⋮   ⋮\ny  22\n"
    assert export.text(Drawing([Text("╭─╮"), Text("│ │" * 40)]), 40).splitlines()[0] == "╭─╮"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("heat", [False, True])
def test_exports_are_xml_with_every_number_and_no_address_of_another_machine(theme: str, heat: bool) -> None:
    page = Group(title("A & <b>"), Matrix(PLAIN.labels, PLAIN.blocks, PLAIN.numbers, heat=heat))
    for format in ("svg", "html"):
        document = export.exported(page, format, 60, theme)
        text = "".join(ET.fromstring(document).itertext()).replace("\xa0", " ")
        assert "A & <b>" in text
        assert heat or all(number in text for number in ("0.5000", "-0.2500", "-3.1250"))
        assert b"font-face" not in document
        assert not re.search(rb"https?://(?!www\.w3\.org)", document)
    assert export.exported(page, "png", 60, theme).startswith(b"\x89PNG")


def test_a_notebook_gets_a_fragment_without_a_background_of_its_own() -> None:
    fragment = ET.fromstring(export.fragment(PLAIN, 80))
    assert fragment.tag == "pre"
    assert "-3.1250" in "".join(fragment.itertext())
    assert "background" not in fragment.attrib["style"]


def test_markdown_has_a_column_for_each_number() -> None:
    page = Group(title("*Two* rows"), PLAIN, words("1. `x` | y"))
    rendered = MarkdownIt("gfm-like", {"linkify": False}).render(export.markdown(page, 80))
    assert rendered.count("<th ") == 5
    assert re.findall(r"<td[^>]*>(-?\d\.\d{4})</td>", rendered) == [
        "0.5000",
        "-0.2500",
        "1.0000",
        "0.0000",
        "2.0000",
        "-3.1250",
    ]
    assert "<strong>*Two* rows</strong>" in rendered
    assert "<p>1. `x` | y</p>" in rendered


@pytest.mark.parametrize(
    ("text", "most", "short"), [("abcdef", 6, "abcdef"), ("abcdefgh", 5, "ab…gh"), (r"\xf0\x9f\x98", 8, r"\xf0…")]
)
def test_text_is_shortened_in_the_middle_between_escapes(text: str, most: int, short: str) -> None:
    assert shorten(text, most) == short


def test_the_scale_is_symmetric_about_zero() -> None:
    assert Scale(2.0).steps(np.array([-2, 0, 0.9, 2, np.nan, np.inf]), 5).tolist() == [0, 2, 3, 4, -1, -2]


def test_means_of_kinds_of_columns_that_alternate() -> None:
    assert means(np.array([[0.0, 10, 2, 12, 4, 14]]), 2, apart=2).tolist() == [[1.0, 11.0, 4.0, 14.0]]

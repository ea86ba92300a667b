"""Markdown: all that the table shows, and a reader gets every text back as it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from embcli.oldpage import Bar, Block, Column, Page, Paper, Word
from embcli.oldpage.markdown import Markdown
from embcli.oldpage.terminal import Terminal
from embcli.safe import in_line
from embcli.tokens import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markdown_it.token import Token

untimed = settings(deadline=None)
WORDS = r"""
a|b \| \\| \ \\ _a_ a_b_c **a** *a $a$ $$ `a` `` ``` ~~a~~ \$ &amp; &#36; &nbsp; <b> </td> <!-- [x](y) ![x](y) [1em]
*[1em] <https://a.b> https://a.b/c_d www.a.b a@b.c {a} {} }{ -- --- ---- ~~~ *** === |-|
"""
HOSTILE = (
    *"|_*$\\&#%`{}~^<>\"'![]()-+=.,:;@/?│⋮…␣█╭",
    *WORDS.split(),
    *("[x]: y", "- - -", "1. x", "12) x", "1.", "1.5", "-0.3374", "- x", "+ x", "> x", "# x", "#x", "####### x"),
    *("    x", " a  b ", "\u3000x\xa0", shown(b" effort"), shown(b"\\n\t\x1b|"), shown(b"\xe2\x80")),
    *("naïve 日本語 🤖 e\u0301", "\x1b]0;x\x07", "a\nb", "0│1"),
)
TEXTS = st.one_of(
    st.text(st.sampled_from("|_*$\\&#%`{}~^<>\"'![]()-+=.,:@/ a1x\u3000"), max_size=12),
    st.text(max_size=12),
    st.binary(max_size=8).map(shown),
    st.sampled_from(HOSTILE),
)


def expected(text: str) -> str:
    """What a reader is to get: blanks around it are the page's own."""
    return in_line(text).strip(" ")


def written(put: Callable[[Page], object], width: int = 120) -> str:
    """Write a page and hold it against what is true of all of them."""
    page = Markdown(Paper(width, color=True))
    put(page)
    text = page.content().decode()
    assert "\x1b" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\n\n\n" not in text
    assert not re.search(" $", text, re.MULTILINE)
    return text


# Each block is a paragraph, or a table as rows of cells whose first is the header.
Blocks = list[str | list[list[str]]]


def markdown_blocks(text: str) -> Blocks:
    """Read Markdown with a parser of it; the only markup that may be there is bold and tables."""
    for match in re.finditer(r"(\\*)\$", text):
        assert len(match[1]) % 2 == 1, "GitHub would look for math"
    assert not re.search(r"\w://|www\.|\w@", text), "GitHub would make a link"
    blocks: Blocks = []
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    for token in tokens:
        if token.type == "paragraph_open":
            blocks.append("")
        elif token.type == "table_open":
            blocks.append([])
        elif token.type == "inline":
            block = blocks[-1]
            if isinstance(block, str):
                blocks[-1] = _inline(token)
            else:
                block[-1].append(_inline(token))
        elif token.type == "tr_open":
            block = blocks[-1]
            assert isinstance(block, list)
            block.append([])
        else:
            assert re.fullmatch("(paragraph|table|thead|tbody|tr|th|td)_(open|close)", token.type), token
    return blocks


def _inline(token: Token) -> str:
    children = token.children or []
    assert {child.type for child in children} <= {"text", "strong_open", "strong_close"}, token.content
    return "".join(child.content for child in children)


def test_cells_that_look_like_markup_are_read_back_equal() -> None:
    _check_cells(HOSTILE)


@given(cells=st.lists(TEXTS, min_size=1, max_size=5))
@untimed
def test_any_cell_is_read_back_equal(cells: list[str]) -> None:
    _check_cells(cells)


def _check_cells(cells: Sequence[str]) -> None:
    """Put each text in front, in the middle, last, bold and in the header."""
    strong = [Word(cell, "strong") for cell in cells]
    columns = [Column("a", cells, "left"), Column("b", strong), Column(cells[0], cells[::-1])]
    text = written(lambda page: page.table([*columns]))
    header = ["a", "b", expected(cells[0])]
    rows = [[*map(expected, row)] for row in zip(cells, cells, reversed(cells), strict=True)]
    assert markdown_blocks(text) == [[header, *rows]]


def test_lines_that_look_like_markup_are_read_back_equal() -> None:
    _check_lines(HOSTILE)


@given(lines=st.lists(TEXTS, min_size=1, max_size=4))
@example(lines=["a", "---", "===", "| a |", "|---|"])
@untimed
def test_any_line_is_a_paragraph_of_its_own(lines: list[str]) -> None:
    _check_lines(lines)


def _check_lines(lines: Sequence[str]) -> None:
    """Put each text on a page as a title, plain and bold."""

    def put(page: Page) -> None:
        for line in lines:
            page.title(line)
            page.line(line)
            page.line(Word(line, "bad"))

    text = written(put)
    paragraphs = [expected(line) for line in lines for _ in range(3) if expected(line)]
    assert (markdown_blocks(text) if text != "\n" else []) == paragraphs


def put_all(page: Page) -> None:
    """Put one of everything on a page."""
    page.title("Two ways: #1")
    page.line("T = 3 (tokens), ", Word("D = 2", "strong"), " … ±1/√V × 2 → 6")
    page.line("- and 100% of it")
    page.line()
    page.line()
    page.line(Word("Not bit-identical: $1", "bad"))
    page.table([Column("token", ["a|b", "␣日本"], "left", tone="dim"), Column("ID", ["1", Word("20", "good")])], (1,))
    labels, after = [Column("pos", ["0", "1", "2"])], [Column("diff", ["0", "1.2e-07", "0"])]
    values = np.array([[0.33743, -0.1778], [np.nan, 1], [-2, 3]], np.float32)
    page.grid(labels, [Block("embedding", values), Block("linear", -values)], np.arange(2), (2,), after)
    page.table([Column("", ["+", "="]), Bar(), Column("x_0", ["1.5", "2"], minimum=9)], ruled=False)
    page.line()


MARKDOWN = r"""
**Two ways: #1**

T = 3 (tokens), D = 2 … ±1/√V × 2 → 6

\- and 100% of it

**Not bit-identical: \$1**

| token |     ID |
| :---- | -----: |
| a\|b  |      1 |
| ⋮     |      ⋮ |
| ␣日本 | **20** |

| pos | embedding 0 | embedding 1 | linear 0 | linear 1 |    diff |
| --: | ----------: | ----------: | -------: | -------: | ------: |
|   0 |      0.3374 |     -0.1778 |  -0.3374 |   0.1778 |       0 |
|   1 |     **nan** |      1.0000 |  **nan** |  -1.0000 | 1.2e-07 |
|   ⋮ |           ⋮ |           ⋮ |        ⋮ |        ⋮ |       ⋮ |
|   2 |     -2.0000 |      3.0000 |   2.0000 |  -3.0000 |       0 |

|     | x\_0 |
| --: | ---: |
|   + |  1.5 |
|   = |    2 |
"""[1:]


def test_a_page_looks_like_this() -> None:
    assert written(put_all) == MARKDOWN


LEFT_OUT = r"""
|  ID | embedding 0 | embedding … | embedding 9 | linear 0 | linear … | linear 9 | diff |
| --: | ----------: | :---------- | ----------: | -------: | :------- | -------: | ---: |
|   7 |      0.0000 | …           |      9.0000 |  -0.0000 | …        |  -9.0000 |    0 |
"""[1:]


def test_a_title_stands_over_the_dots_of_its_columns_too() -> None:
    values = np.arange(10, dtype=np.float32)[None]
    blocks = [Block("embedding", values), Block("linear", -values)]
    text = written(lambda page: page.grid([Column("ID", ["7"])], blocks, np.arange(10), (), [Column("diff", "0")]), 60)
    assert text == LEFT_OUT


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_tables_hold_what_a_pipe_of_that_width_shows(width: int) -> None:
    values = np.random.default_rng(1).normal(size=(5, 40)).astype(np.float32)
    labels = [Column("ID", [*"01234"]), Column("token", ["x" * 30, *"abcd"], "left", least=6)]

    def put(page: Page) -> None:
        page.grid(labels, [Block("", values)], np.arange(40), (3,), [Column("diff", ["0"] * 5)])

    pipe = Terminal(Paper(width))
    put(pipe)
    header, _, *rows = pipe.content().decode().splitlines()
    (table,) = markdown_blocks(written(put, width))
    assert table == [line.replace("│", "").replace("⋮", " ⋮ ").split() for line in (header, *rows)]


def test_parts_go_on_a_page_as_blocks_and_none_is_too_long_for_it() -> None:
    whole, page = Markdown(Paper(120)), Markdown(Paper(120))
    for _ in range(2):
        put_all(whole)
        part = page.part()
        put_all(part)
        assert part.lines == 0
        page.add(part)
    assert page.content() == whole.content()

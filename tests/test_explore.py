"""The full screen: what keys do, that its numbers are numpy's, and how it leaves the terminal."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pexpect
import pyte
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.color import ColorSystem
from textual import constants, events
from textual.geometry import Size
from textual.widgets import DataTable

import embcli
from embcli import encodings
from embcli.cli.groups import opened
from embcli.explore.app import Explorer
from embcli.explore.explored import ExploredMatrix
from embcli.explore.find import WordIndex
from embcli.explore.spelling import speller
from embcli.explore.view import ExplorerScreen
from embcli.tokens import shown
from tests.explored import held, lines, norms, press, scores, send, settle
from tests.runners import TIMEOUT, InProcess, become

SMALL: Any = {"vocab": 300, "dim": 20}
COLORS = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@asynccontextmanager
async def walk(
    path: Path | None = None,
    size: tuple[int, int] = (80, 24),
    model: embcli.Model | None = None,
    **begun: Any,
) -> AsyncIterator[Any]:
    """Begin the full screen of a file, of a model, or of a small seeded one, without a terminal."""
    given, named = {} if path else SMALL, str(path) if path else None
    app = Explorer(ExploredMatrix(model or opened(given, named), speller(named, given)), **begun)
    app.NOTIFICATION_TIMEOUT = (
        600  # seconds: on a busy machine a walk takes longer than a note stays
    )
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield app, pilot


def broken(folder: Path) -> Path:
    """Write a matrix with rows of NaN and of zeros, infinities, and numbers of all sizes."""
    matrix = np.random.default_rng(1).standard_normal((500, 9)).astype(np.float32)
    matrix[[3, 499]], matrix[[7, 100]], matrix[9, 2], matrix[11:14] = (
        np.nan,
        0,
        np.inf,
        [[1e30], [-1e-30], [12345.5]],
    )
    np.save(folder / "broken.npy", matrix)
    return folder / "broken.npy"


# --- numbers ----------------------------------------------------------------------------------------------------------


KEYS = [
    *(
        "down",
        "up",
        "pagedown",
        "pageup",
        "right",
        "left",
        "shift+right",
        "home",
        "end",
        "0",
        "dollar_sign",
    )
    * 2
]
KEYS += [
    *"jkGshc",
    "s",
    "h",
    "space",
    "c",
    "enter",
    "enter",
    "n",
    "tab",
    "escape",
    "escape",
    "slash",
    "colon",
]
SIZES = ((80, 24), (120, 40), (200, 60), (40, 12), (61, 17))


async def test_the_first_screen_has_tokens_in_all_rows() -> None:
    async with walk(model=embcli.seeded(dim=9), size=(80, 12)) as (app, pilot):
        head, *rows = (line for line in lines(app) if "│" in line)
        assert [row.split()[:2] for row in rows[:3]] == [["0", "!"], ["1", '"'], ["2", "#"]]
        assert {row.index("│") for row in rows} == {head.index("│")}
        await press(pilot, "enter")
        assert lines(app)[0].startswith(" Row 0  !   norm ")


@pytest.mark.parametrize("seed", [1, 2])
async def test_numbers_of_screens_that_keys_lead_to_at_random_are_those_of_numpy(
    tmp_path: Path, seed: int
) -> None:
    path, chance, count = broken(tmp_path), random.Random(seed), 0
    async with walk(path) as (app, pilot):
        for _ in range(12):
            for key in chance.choices(KEYS, k=chance.randint(1, 4)):
                await press(pilot, key)
                if key == "colon":
                    typed = chance.choice([str(chance.randrange(500)), "7,3", "x", "9999999", ""])
                    await press(
                        pilot, *("comma" if each == "," else each for each in typed), "enter"
                    )
                elif key == "slash" and app.focused is not None and app.focused.id is None:
                    await press(
                        pilot, *chance.choices("abe1", k=2), chance.choice(["enter", "escape"])
                    )
            if chance.random() < 0.1:
                await pilot.resize_terminal(*chance.choice(SIZES))
            await settle(pilot)
            count += held(app, np.load(path)) if isinstance(app.screen, ExplorerScreen) else 0
    assert count > 300


async def test_the_command_of_a_row_names_the_columns_that_a_low_terminal_shows(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "wide.npy", np.random.default_rng(3).standard_normal((4, 300), np.float32))
    heights = set()
    async with walk(tmp_path / "wide.npy", size=(120, 12)) as (app, pilot):
        await press(pilot, "enter")
        values = app.screen.lines
        for height in range(12, 4, -1):
            await pilot.resize_terminal(120, height)
            await settle(pilot)
            rest = [line[: values.size.width].partition("│")[2] for line in lines(app)[2:-2]]
            numbers = " ".join(rest).split()
            if numbers:
                heights.add(values.size.height)
                assert len(numbers) == len(values.shown_columns), height
    assert {2, 3} < heights  # the first line has no values


async def test_colours_beyond_the_scale_are_those_of_its_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    matrix = np.linspace(-1, 1, 900, dtype=np.float32).reshape(100, 9) ** 3
    np.save(tmp_path / "grows.npy", matrix)
    async with walk(tmp_path / "grows.npy", row=50) as (app, pilot):
        for keys in (["h"], ["end"], ["home"]):
            await press(pilot, *keys)
            held(app, matrix)
        assert lines(app)[2].split("│")[1].strip() == "." * 36


async def test_a_terminal_of_16_colours_has_five_for_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    np.save(tmp_path / "five.npy", np.linspace(-1, 1, 5, dtype=np.float32)[None])
    async with walk(tmp_path / "five.npy") as (app, pilot):
        await press(pilot, "h")
        cells = [
            each.style for each in app.screen._compositor.render_strips(app.size)[2] if each.style
        ]
        colors = [
            cell.bgcolor.downgrade(ColorSystem.STANDARD).number for cell in cells if cell.bgcolor
        ]
        assert colors[-6:-1] == [4, 6, 7, 3, 1], "blue, cyan, white, yellow, red"


@pytest.mark.parametrize("is_file", [False, True])
async def test_every_screen_names_commands_that_print_its_numbers(
    in_process: InProcess, tmp_path: Path, is_file: bool
) -> None:
    path = tmp_path / "words.vec"
    rows = np.random.default_rng(3).standard_normal((40, 12)).astype(np.float32)
    words = ["Hi", *(f"word{place}" for place in range(1, 40))]
    path.write_text(
        "\n".join(" ".join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True))
    )
    async with walk(path if is_file else None) as (app, pilot):
        for keys in (
            ["j", "right"],
            ["s"],
            ["enter"],
            ["space", "escape", "j", "c"],
            ["escape", "slash", *"Hi"],
        ):
            await press(pilot, *keys)
            printed = "\n".join(
                in_process(*shlex.split(each)[1:], "-f", "ndjson").text
                for each in app.screen.commands()
            )
            exact = {
                format(float(each), ".4f")
                for each in re.findall(r"-?\d+\.\d+(?:e[+-]\d+)?", printed)
            }
            numbers = re.findall(r"-?\d+\.\d{4}\b", "\n".join(lines(app)[:-2]))
            last = {
                *re.findall(r"(\S+)[ ▁-█]*$", "\n".join(lines(app)), re.M)
            }  # differences of two rows
            assert {*numbers} - exact <= (last if "rows" in lines(app)[0] else set()), keys
            assert numbers or "Find" in lines(app)[0]


async def test_rows_are_sorted_by_norm_and_by_id_again(tmp_path: Path) -> None:
    path = broken(tmp_path)
    expected = np.argsort(-norms(np.load(path)), kind="stable")
    async with walk(path, sort="norm") as (app, pilot):
        assert held(app, np.load(path))
        assert "by norm: 1 of 500" in lines(app)[0]
        await press(pilot, "j", "j", "s")
        assert app.screen.lines.row == expected[2]
        assert f"row {expected[2]} of 500" in lines(app)[0], "by ID again, on the same row"
        await press(pilot, "colon", "3", "enter", "enter")
        assert "row 3 contains NaN" in " ".join("".join(lines(app)).split())


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_keys_lead_through_rows_and_back() -> None:
    matrix = embcli.seeded(**SMALL)[0:300]
    async with walk(row=7) as (app, pilot):
        for keys, row in ([], 7), (["end", "down", "pagedown"], 299), (["home", "up"], 0):
            await press(pilot, *keys)
            assert f"row {row} of 300" in lines(app)[0]
        await press(pilot, "g", *"299", "comma", "3", "enter")
        assert "row 299 of 300" in lines(app)[0]
        assert re.search(r"│ +3 +4", lines(app)[1])
        await press(pilot, "enter")
        assert "Row 299" in lines(app)[0]
        nearest = scores(matrix, 299, "cosine")[0]
        await press(pilot, "j", "enter")
        assert app.screen.row == nearest[1]
        await press(pilot, "tab", "enter")
        assert app.screen.row == scores(matrix, nearest[1], "l2")[0][0]
        await press(pilot, "backspace", "escape", "escape", "escape")
        assert "row 299" in lines(app)[0]
        await press(pilot, "question_mark")
        assert all(f"{words} the row" in "\n".join(lines(app)) for words in ("mark", "compare"))
        await press(pilot, "q", "home", "G", "k", "colon", *"300", "enter")
        assert "row 298 of 300" in lines(app)[0], "q has closed the keys, and 300 is out of range"
        await press(pilot, "q")


async def test_columns_clicks_and_names_lead_to_rows() -> None:
    model = embcli.seeded(
        vocab=1169, dim=300
    )  # "the" is the first token of GPT-2 without a row, " the" is 262
    matrix = model[0:1169]
    async with walk(model=model, text="the") as (app, pilot):
        await press(pilot, "enter")
        assert "ID 1169 has no row: there are 1,169, from ID 0 on" in {
            each.message for each in app._notifications
        }
        await press(pilot, "escape", "colon", *"the", "enter")
        assert app.screen.lines.row == 262
        first = lines(app)[1].split("│")[1].split()
        for key, place, column in (
            ("shift+right", 0, int(first[-1]) + 1),
            ("dollar_sign", -1, 299),
            ("0", 0, 0),
        ):
            await press(pilot, key)
            assert int(lines(app)[1].split("│")[1].split()[place]) == column
            assert held(app, matrix)
        top = round(app.screen.lines.scroll_y)
        for expected in (f"row {top + 4} of 1,169", f"Row {top + 4} "):
            await pilot.click("MatrixLines", offset=(5, 5))
            await settle(pilot)
            assert expected in lines(app)[0]
        for typed in (["comma", *"299"], ["7", "comma", *"299"]):
            await press(pilot, "colon", *typed, "enter")
            assert app.screen.lines.shown_columns.stop == 300
            assert held(app, matrix)
        assert "Row 7 " in lines(app)[0]
        await press(pilot, "y", "colon", *"qzx", "enter")
        assert app.clipboard == "\n".join(app.screen.commands())
        assert any(each.message.startswith("'qzx' is not a row") for each in app._notifications)


async def test_a_row_and_a_text_can_be_typed_at_once() -> None:
    async with walk(model=embcli.seeded(dim=4)) as (app, pilot):
        await send(pilot, "colon", *"262", "enter")
        assert app.screen.lines.row == 262
        await send(pilot, "slash", *"effort", "enter")
        assert app.screen.lines.row == int(encodings.get("gpt2").encode("effort")[0])


@pytest.mark.parametrize("seed", range(4))
async def test_keys_at_random_end_nothing(seed: int) -> None:
    chance = random.Random(seed)
    async with walk() as (app, pilot):
        for _ in range(5):
            await send(pilot, *chance.choices([*KEYS, "question_mark", "a", "1", "y"], k=40))
            assert app.is_running


async def test_a_prompt_that_is_left_changes_nothing() -> None:
    async with walk() as (app, pilot):
        before = lines(app)
        await press(pilot, "colon", *"29", "escape")
        assert lines(app) == before
        await press(pilot, "down", "enter", "tab", "colon")
        assert "a row's ID or token" in lines(app)[-2]
        await press(pilot, "escape", "escape", "colon", *"29", "enter")
        assert app.screen.lines.row == 29, "it is empty when it opens again"


@pytest.mark.parametrize("size", [(40, 12), (80, 24)])
async def test_numbers_with_exponents_are_whole_on_every_screen(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    matrix = np.random.default_rng(1).standard_normal((70, 300)).astype(np.float32) * np.float32(
        -1e30
    )
    np.save(tmp_path / "large.npy", matrix)
    async with walk(tmp_path / "large.npy", size=size) as (app, pilot):
        for keys in (
            ["space", "j"],
            ["right", "enter"],
            ["escape", "c"],
            ["down"],
            ["escape", "s"],
        ):
            await press(pilot, *keys)
            assert held(app, matrix) >= 4, keys
            assert app.size.width < 80 or "? Keys q Quit" in lines(app)[-1], keys


@pytest.mark.parametrize("keys", [["colon"], ["question_mark"], ["slash"], []])
async def test_ctrl_c_ends_every_screen(keys: list[str]) -> None:
    async with walk() as (app, pilot):
        await pilot.press(*keys, "ctrl+c")
        assert app.return_code == 130
        assert "embcli weights" in app.return_value[0]


async def test_a_part_of_a_word_that_a_file_does_not_have_leads_to_its_words(
    tmp_path: Path,
) -> None:
    (tmp_path / "words.vec").write_text("queen 1 2\nking 2 3\nthinking 3 4\n")
    async with walk(tmp_path / "words.vec", size=(200, 40)) as (app, pilot):
        await press(pilot, "slash", *"kin")
        assert "Find" not in lines(app)[-1]
        assert "has no row for 'kin'" in lines(app)[0]
        assert [line.split()[:3] for line in lines(app)[3:5]] == [
            ["word", "1", "king"],
            ["word", "2", "thinking"],
        ]
        await press(pilot, "slash", "colon")
        assert lines(app)[1].strip() == "kin/:", "a slash and a colon are typed"
        await press(pilot, "backspace", "backspace", "down", "enter")
        assert app.screen.lines.row == 2


async def test_what_cannot_be_done_is_said_and_the_screen_goes_on(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((500, 8), np.float32))
    async with walk(tmp_path / "rows.npy", size=(120, 40)) as (
        app,
        pilot,
    ):  # on 24 lines, notes cover rows
        await press(pilot, "slash", "c", "escape")
        said = [each.message for each in app._notifications]
        assert said[0] == "no tokenizer: name one with --encoding (: goes to a row by its ID)"
        assert [text.split()[0] for text in said[1:]] == ["Space", "This"]
        os.truncate(tmp_path / "rows.npy", 1000)
        await press(pilot, "end")
        assert "rows.npy" in "".join(lines(app)[1:5])
        await press(pilot, "enter", "s", "h", "home")
        assert app.is_running


async def test_words_that_are_read_as_the_app_ends_reach_no_list() -> None:
    async with walk(text="a") as (app, _):
        screen = app.screen
        await screen.query_one(DataTable).remove()
        screen._show_result(screen._show_words, WordIndex(["a"]))
        assert app.is_running
        assert app.words is not None


def test_a_text_to_begin_at_needs_tokens(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "rows.npy", np.ones((300, 4), np.float32))
    monkeypatch.setattr("embcli.cli.explore.is_terminal", lambda _: True)
    monkeypatch.setattr("embcli.explore.app.run", lambda _: 0)
    refused = in_process.refused("explore", str(tmp_path / "rows.npy"), "--text", "a", TERM="xterm")
    assert refused == "embcli: these rows have no tokens: --encoding names an encoding\n"


async def test_notes_of_a_model_are_told(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((300, 4), np.float32))
    model = embcli.open(tmp_path / "rows.npy", encoding="gpt2")
    model.notes.add("[a] note")
    async with walk(model=model) as (app, _):
        said = [each.message for each in app._notifications]
        assert said == [
            "gpt2 has 50,257 tokens, this matrix 300 rows: probably not its tokenizer",
            "[a] note",
        ]


async def test_hostile_words_and_names_are_shown_escaped(tmp_path: Path) -> None:
    words = ["\x1b[2J", "\u202eevil", "[bold]", "x" * 3000, "\\xff", "中文" * 30]
    path = tmp_path / "a\x1b]0;[red]b.vec"
    path.write_text(
        "\n".join(["6 2", *(f"{word} {place} 1" for place, word in enumerate(words))]) + "\n"
    )
    async with walk(path, size=(80, 20)) as (app, pilot):
        for key in [
            "j",
            "h",
            "s",
            "enter",
            "space",
            "escape",
            "j",
            "c",
            "escape",
            "slash",
            "x",
            "d",
            "escape",
        ]:
            await press(pilot, key)
            assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines(app)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (61, 17)])
async def test_rows_fill_the_first_screen_and_a_resized_one(size: tuple[int, int]) -> None:
    def rows(app: Any) -> int:
        return sum(bool(re.match(r" +\d+ .*│.*\d\.\d{4}", line)) for line in lines(app))

    async with walk(size=size) as (app, pilot):
        assert rows(app) == size[1] - 4, "all but a title, a header, a command and the keys"
        await pilot.resize_terminal(100, 30)
        await settle(pilot)
        assert rows(app) == 26


@pytest.mark.parametrize("size", [(1, 1), (4, 24), (20, 6), (40, 3)])
async def test_a_terminal_of_any_size_is_drawn(size: tuple[int, int]) -> None:
    async with walk() as (app, pilot):
        await press(pilot, "question_mark")
        app.post_message(events.Resize(*[Size(*size)] * 2))
        await press(pilot, "pagedown", "escape", "j", "h", "enter", "escape", "colon", "1")
        await press(pilot, "pagedown", "escape")
        assert app.is_running


# --- words ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.text("aAbB␣é中\\x", max_size=8), max_size=30),
    st.text("aAbB é中\\x\n\ud800", max_size=5),
)
@example(["aab" * 1000], "abababababababab")
@example(["ab" * 200], "bbaab" * 5)
def test_words_have_the_letters_in_order_and_the_word_itself_is_first(
    words: list[str], typed: str
) -> None:
    query = typed.replace("\n", " ").replace("\ud800", "?").replace(" ", "␣").strip("␣")
    keep = str if query != query.lower() else str.lower
    bare = [word.lstrip("␣") or word for word in words]

    def has(word: str) -> bool:
        letters = iter(keep(word))
        return bool(query) and all(each in letters for each in query)

    found = WordIndex(words).find(typed).tolist()
    assert sorted(found) == [place for place, word in enumerate(bare) if has(word)]
    if query and query in bare and keep is str.lower:
        assert keep(bare[found[0]]) == query


def test_a_vocabulary_is_searched_as_pages_spell_it() -> None:
    gpt2 = encodings.get("gpt2")
    words = WordIndex([shown(gpt2.entry(each)) for each in range(50_257)])
    assert {gpt2.entry(each) for each in words.find("Paris")[:2].tolist()} == {b" Paris", b"Paris"}
    assert gpt2.encode(" neighbor")[0] in words.find("nghbr")
    assert len(words.find("e")) == 50


# --- a real terminal --------------------------------------------------------------------------------------------------


def spawned(without: int | None = None, **environment: str) -> Any:
    """Begin explore in a pseudo-terminal, perhaps with one of the three streams elsewhere."""

    def begin() -> None:
        if without is not None:
            os.dup2(os.open(os.devnull, os.O_RDWR), without)
        become(("explore", "--vocab", "300", "--dim", "20"), COLORS | environment)

    return pexpect.spawn(sys.executable, preexec_fn=begin, timeout=TIMEOUT, dimensions=(24, 80))


@pytest.mark.parametrize(
    ("key", "number", "status"),
    [
        ("qj", 0, 0),
        ("\x03", 0, 130),
        *(("", number, 128 + number) for number in (1, 2, 15)),
    ],  # SIGHUP, SIGINT, SIGTERM
)
def test_the_terminal_is_left_as_it_was(key: str, number: int, status: int) -> None:
    child = spawned()
    before, screen = termios.tcgetattr(child.child_fd), pyte.Screen(80, 24)
    child.expect("Quit")
    if key == "qj":  # and what is typed behind it
        child.send("\x1a")  # Ctrl-Z: the shell's screen, until it goes on
        child.expect_exact("\x1b[?1049l")
        os.waitpid(child.pid, os.WUNTRACED)
        assert termios.tcgetattr(child.child_fd) == before
        child.kill(signal.SIGCONT)
        child.expect("Quit")
        child.send(":299\r")  # typed at once
        child.expect("299 of 300")
        child.send(b"\xff\xc3(")  # invalid UTF-8
        child.send("k")
        child.expect("298 of 300")
    child.send(key) if key else child.kill(number)
    rest = child.read()
    child.close()
    assert child.exitstatus == status
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"):
        assert sequence in rest
    assert b"Traceback" not in rest
    pyte.ByteStream(screen).feed(rest.rpartition(b"\x1b[?1049l")[2])
    left = "".join(screen.display).strip()
    assert (
        re.fullmatch(r"embcli weights --vocab 300 --dim 20 --rows 2\d\d:300 --columns 0:\d", left)
        or status
    )


@pytest.mark.parametrize(
    ("without", "term", "log", "said"),
    [
        *(
            (stream, "xterm", None, "explore is a full screen and needs a terminal")
            for stream in (0, 1)
        ),
        (None, "dumb", None, "explore is a full screen and needs a terminal"),
        (None, "xterm", "/nowhere/log", "cannot open '/nowhere/log': No such file"),
    ],
)
def test_what_no_screen_can_be_shown_on_is_said(
    monkeypatch: pytest.MonkeyPatch, without: int | None, term: str, log: str | None, said: str
) -> None:
    monkeypatch.setattr(constants, "LOG_FILE", log)  # as TEXTUAL_LOG sets it
    child = spawned(without, TERM=term)
    assert said in child.read().decode()
    child.close()
    assert child.exitstatus == 2


def test_a_command_line_is_quoted_for_a_shell() -> None:
    assert speller("a b", {})("weights", "--rows", "1") == "embcli weights 'a b' --rows 1"
    assert (
        speller(None, {"encoding": "gpt2"})("tokenize", text="-a b")
        == "embcli tokenize --encoding gpt2 -- '-a b'"
    )

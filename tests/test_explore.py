"""The full screen: what keys do, that its numbers are numpy's, and how it leaves the terminal."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shlex
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pexpect
import pyte
import pytest
from hypothesis import given, strategies as st
from textual import constants

import embcli
from embcli import encodings
from embcli.cli.groups import opened
from embcli.explore.app import Explorer
from embcli.explore.explored import ExploredMatrix
from embcli.explore.find import containing
from embcli.explore.view import ExplorerScreen
from embcli.verbs.explain import explain
from tests.cases import cases, data
from tests.explored import held, lines, norms, press, resize, scores, send, settle
from tests.oracles import normal
from tests.runners import TIMEOUT, Child, become

SMALL: Any = {"vocab": 300, "dim": 20}
COLORS = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@asynccontextmanager
async def walk(
    path: Path | None = None,
    size: tuple[int, int] = (80, 24),
    model: embcli.Model | None = None,
    has_notes: bool = False,
    **begun: Any,
) -> AsyncIterator[Any]:
    """Begin the full screen of a file, of a model, or of a small seeded one, without a terminal."""
    options = {} if path or model else SMALL
    name = str(path) if path else None
    if model is None:
        model = opened(options, name)
    app = Explorer(ExploredMatrix(model, name, options), **begun)
    # On a busy machine a walk takes longer than a note stays.
    app.NOTIFICATION_TIMEOUT = 600
    async with app.run_test(size=size, notifications=has_notes) as pilot:
        await settle(pilot)
        yield app, pilot


def screen(app: Explorer) -> str:
    """Return what is on the screen as a text."""
    text = "\n".join(line.rstrip() for line in lines(app))
    return f"{text}\n"


def notes(app: Explorer) -> list[str]:
    """Return the notes that the app has shown."""
    return [note.message for note in app._notifications]


def saved(folder: Path, matrix: np.ndarray) -> Path:
    """Write a matrix into a file and return its path."""
    np.save(folder / "rows.npy", matrix)
    return folder / "rows.npy"


def broken(folder: Path) -> Path:
    """Write a matrix with rows of NaN and of zeros, infinities, and numbers of all sizes."""
    matrix = normal(500, 9, 1)
    matrix[[3, 499]] = np.nan
    matrix[[7, 100]] = 0
    matrix[9, 2] = np.inf
    matrix[11:14] = [[1e30], [-1e-30], [12345.5]]
    return saved(folder, matrix)


# --- numbers --------------------------------------------------------------------------------------

MOVES = [
    *("down", "up", "pagedown", "pageup", "right", "left", "shift+right"),
    *("home", "end", "0", "dollar_sign"),
]
KEYS = [*MOVES, *MOVES]
KEYS += ["j", "k", "G", "s", "h", "s", "h", "enter", "enter", "n", "tab"]
KEYS += ["escape", "escape", "slash", "colon"]


async def test_the_first_screen_has_tokens_in_all_rows(snapshot):
    async with walk(model=embcli.seeded(dim=9), size=(80, 12)) as (app, pilot):
        snapshot("explore/matrix.txt", screen(app))
        await press(pilot, "enter")
        snapshot("explore/row.txt", screen(app))


async def press_at_random(app: Explorer, pilot: Any, chance: random.Random) -> None:
    """Press a key, and type something into the field that it opens."""
    key = chance.choice(KEYS)
    await press(pilot, key)
    if key == "colon":
        typed = chance.choice([str(chance.randrange(500)), "7,3", "x", "9999999", ""])
        keys = ["comma" if letter == "," else letter for letter in typed]
        await press(pilot, *keys, "enter")
    elif key == "slash" and app.focused is not None and app.focused.id is None:
        end = chance.choice(["enter", "escape"])
        await press(pilot, *chance.choices("abe1", k=2), end)


async def test_numbers_of_screens_that_keys_lead_to_at_random_are_those_of_numpy(
    tmp_path,
):
    path = broken(tmp_path)
    matrix = np.load(path)
    chance = random.Random(3)
    count = 0
    async with walk(path, size=(61, 12)) as (app, pilot):
        for _ in range(16):
            await press_at_random(app, pilot, chance)
            if isinstance(app.screen, ExplorerScreen):
                count += held(app, matrix)
        await resize(pilot, 80, 17)
        count += held(app, matrix)
    assert count > 300


async def test_colours_beyond_the_scale_are_those_of_its_ends(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_COLOR", "1")
    matrix = np.linspace(-1, 1, 900, dtype=np.float32).reshape(100, 9) ** 3
    async with walk(saved(tmp_path, matrix), row=50) as (app, pilot):
        for key in ("h", "end", "home"):
            await press(pilot, key)
            held(app, matrix)
        assert lines(app)[2].split("│")[1].strip() == "." * 36


SCREENS = data(__name__)["screens"]


def words_file(folder: Path) -> Path:
    """Write word vectors, whose first word is Hi."""
    rows = normal(40, 12, 3)
    words = ["Hi", *(f"word{place}" for place in range(1, 40))]
    found = [" ".join([word, *map(str, row)]) for word, row in zip(words, rows, strict=True)]
    path = folder / "words.vec"
    path.write_text("\n".join(found))
    return path


@pytest.mark.parametrize("is_file", [False, True])
async def test_every_screen_names_commands_that_print_its_numbers(in_process, tmp_path, is_file):
    path = words_file(tmp_path) if is_file else None
    async with walk(path, size=(80, 14)) as (app, pilot):
        for name, keys in SCREENS:
            await press(pilot, *keys)

            commands = [shlex.split(command)[1:] for command in app.screen.commands()]
            printed = [in_process(*words, "-f", "ndjson").text for words in commands]
            decimals = re.findall(r"-?\d+\.\d+(?:e[+-]\d+)?", "\n".join(printed))
            expected = {format(float(decimal), ".4f") for decimal in decimals}
            shown = re.findall(r"-?\d+\.\d{4}\b", "\n".join(lines(app)[:-2]))

            assert {*shown} - expected == set(), name
            assert shown or name == "find"


async def test_rows_are_sorted_by_norm_and_by_id_again(tmp_path):
    path = broken(tmp_path)
    expected = np.argsort(-norms(np.load(path)), kind="stable")
    async with walk(path) as (app, pilot):
        await press(pilot, "s")
        assert held(app, np.load(path))
        assert app.matrix.by_norm

        await press(pilot, "j", "j", "s")
        assert not app.matrix.by_norm
        assert app.screen.lines.row == expected[2]

        await press(pilot, "colon", "3", "enter", "enter")
        assert "contains NaN" in notes(app)[-1]


# --- keys -----------------------------------------------------------------------------------------


async def test_keys_lead_through_rows_and_back(snapshot):
    matrix = embcli.seeded(**SMALL)[0:300]
    async with walk(row=7) as (app, pilot):
        assert app.screen.lines.row == 7
        await press(pilot, "end", "down", "pagedown")
        assert app.screen.lines.row == 299
        await press(pilot, "home", "up")
        assert app.screen.lines.row == 0
        await press(pilot, "pagedown")
        assert app.screen.lines.row == 20

        await press(pilot, "g", *"299", "comma", "3", "enter")
        assert app.screen.lines.row == 299
        assert columns(app)[0] == 3

        await press(pilot, "enter")
        assert app.screen.row == 299
        nearest = scores(matrix, 299, "cosine")[0]
        await press(pilot, "j", "enter")
        assert app.screen.row == nearest[1]
        await press(pilot, "tab", "j", "enter")  # The first is the same by both metrics.
        assert app.screen.row == scores(matrix, nearest[1], "l2")[0][1]

        await press(pilot, "backspace", "escape", "escape", "escape")
        assert app.screen.lines.row == 299
        await press(pilot, "question_mark")
        snapshot("explore/key-bindings.txt", screen(app))
        # ? closes the keys, and 300 is out of range.
        await press(pilot, "question_mark", "home", "G", "k", "colon", *"300", "enter")
        assert app.screen.lines.row == 298


def test_each_key_is_named_in_the_entry_of_explore():
    words = data(__name__)["keys"]  # of the entry, which name each
    text = explain("explore").entries[0].text
    for path in Path(embcli.__file__).with_name("explore").glob("*.py"):
        bound = re.findall(r'(?:^ +|[\[,] ?|Binding)\("([\w+,]+)", "', path.read_text(), re.M)
        for key in ",".join(bound).split(","):
            assert words[key] in text, key


def columns(app: Explorer) -> list[int]:
    """Return the numbers of the columns in the header of the matrix."""
    return [int(number) for number in lines(app)[1].split("│")[1].split()]


async def test_columns_lead_from_one_end_to_the_other():
    model = embcli.seeded(vocab=70, dim=300)
    matrix = model[0:70]
    async with walk(model=model) as (app, pilot):
        last = columns(app)[-1]
        for key, place, column in [
            ("shift+right", 0, last + 1),
            ("dollar_sign", -1, 299),
            ("0", 0, 0),
        ]:
            await press(pilot, key)
            assert columns(app)[place] == column
            assert held(app, matrix)

        await press(pilot, "enter")
        for typed in (["comma", *"299"], ["7", "comma", *"299"]):
            await press(pilot, "colon", *typed, "enter")
            assert app.screen.lines.column > 200
            assert held(app, matrix)
        assert app.screen.row == 7


async def test_a_token_leads_to_its_row_if_it_has_one_and_y_copies_the_command(snapshot):
    # "the" is the first token of GPT-2 beyond these rows, " the" is 262.
    async with walk(model=embcli.seeded(vocab=1169, dim=4)) as (app, pilot):
        await press(pilot, "colon", "space", *"the", "enter")
        assert app.screen.lines.row == 262

        await press(pilot, "y", "colon", *"qzx", "enter")
        assert app.clipboard == "\n".join(app.screen.commands())
        assert "'qzx' is 2 tokens" in notes(app)[-1]

        await send(pilot, "colon", *"7", "enter")
        assert app.screen.lines.row == 7, "keys can be typed at once"
        await send(pilot, "slash", *"in", "enter")
        assert app.screen.lines.row == encodings.get("gpt2").encode("in")[0]

        await press(pilot, "colon", *"the", "enter")
        assert "'the' is ID 1169, and there are 1,169 rows" in notes(app)[-1]
        await press(pilot, "slash", *"the the")
        snapshot("explore/rows.txt", screen(app))


async def test_keys_at_random_end_nothing():
    chance = random.Random(1)
    async with walk(size=(40, 12)) as (app, pilot):
        for _ in range(2):
            await send(pilot, *chance.choices([*KEYS, "question_mark", "a", "1", "y"], k=40))
            # The app also ends by a signal to the process of the tests, which gives a code.
            assert app.return_code is None
            assert app.is_running


async def test_rows_beyond_many_screens_take_the_place_of_the_last_one(monkeypatch):
    monkeypatch.setattr("embcli.explore.app._MOST_SCREENS", 4)  # are 20
    async with walk(size=(40, 8)) as (app, pilot):
        await press(pilot, "enter")
        for row in range(6):
            await press(pilot, "colon", str(row), "enter")
            assert app.screen.row == row
        assert len(app.screen_stack) == 4
        await app.open_row(3)
        app.pop_screen()  # before it is drawn
        await settle(pilot)
        await press(pilot, "colon", "4", "enter")
        await press(pilot, *["escape"] * 3)
        assert len(app.screen_stack) == 1


async def test_a_prompt_that_is_left_changes_nothing(snapshot):
    async with walk(size=(80, 8), has_notes=True) as (app, pilot):
        before = lines(app)
        await press(pilot, "colon", *"29", "escape")
        assert lines(app) == before

        # The last of two notes is shown, above the rows.
        await press(pilot, "y", "backspace", "colon")
        snapshot("explore/prompt.txt", screen(app))
        await press(pilot, "escape", "down", "enter", "tab", "colon", "escape", "escape")
        await press(pilot, "colon", *"29", "enter")
        assert app.screen.lines.row == 29, "it is empty when it opens again"


# Widths, and the keys that lead to a further screen.
NARROW_AND_WIDE = data(__name__)["narrow and wide"]


async def test_numbers_with_exponents_are_whole_on_every_screen(tmp_path):
    matrix = normal(70, 300, 1) * np.float32(-1e30)
    async with walk(saved(tmp_path, matrix), size=(40, 12)) as (app, pilot):
        for width, keys in NARROW_AND_WIDE:
            await resize(pilot, width, 12)
            await press(pilot, *keys)
            assert held(app, matrix) >= 4, keys
            assert width < 80 or "q Quit" in lines(app)[-1], keys


async def test_ctrl_c_ends_every_screen(monkeypatch):
    ends = []
    async with walk() as (app, pilot):
        with monkeypatch.context() as patch:
            patch.setattr(
                app, "exit", lambda commands, return_code: ends.append((commands, return_code))
            )
            for keys in ([], ["colon"], ["escape", "question_mark"], ["escape", "slash", "a"]):
                await press(pilot, *keys, "ctrl+c")

    for (command, *_), status in ends:
        assert command.startswith("embcli ")
        assert status == 130
    assert len(ends) == 4


# --- finding --------------------------------------------------------------------------------------


async def test_a_part_of_a_word_that_a_file_does_not_have_leads_to_its_words(
    tmp_path, monkeypatch, snapshot
):
    monkeypatch.chdir(tmp_path)
    Path("words.vec").write_text("queen 1 2\nking 2 3\nthinking 3 4\n")
    async with walk(Path("words.vec"), size=(80, 10)) as (app, pilot):
        await press(pilot, "slash", *"kin")
        snapshot("explore/part-of-a-word.txt", screen(app))
        await press(pilot, "slash", "colon")
        assert app.focused.value == "kin/:", "a slash and a colon are typed"
        await press(pilot, "backspace", "backspace", "down", "enter")
        assert app.screen.lines.row == 2


def test_a_text_to_begin_at_needs_tokens(in_process, tmp_path, monkeypatch):
    path = saved(tmp_path, np.ones((300, 4), np.float32))
    monkeypatch.setattr("embcli.cli.explore.is_terminal", lambda _: True)
    monkeypatch.setattr("embcli.explore.app.run", lambda _: 0)
    refused = in_process.refused("explore", str(path), "--text", "a", TERM="xterm")
    assert "--encoding" in refused


@given(st.lists(st.text("ab é中\\x", max_size=8)), st.text("aAbB é中\\x\ud800", max_size=5))
def test_words_contain_the_last_word_of_a_text_and_the_word_itself_is_first(words, typed):
    last = (typed.lower().split(" ") or [""])[-1]
    if typed.endswith(" "):
        last = (typed.lower().split() or [""])[-1]
    found = containing(words, typed)

    places = [place for place, word in enumerate(words) if last and last in word]
    assert len(found) == min(len(places), 50)
    assert {*found} <= {*places}
    if last in words and last:
        assert words[found[0]] == last


async def test_a_vocabulary_is_searched_as_pages_spell_it():
    gpt2 = encodings.get("gpt2")
    async with walk(model=embcli.seeded(dim=2), text="a") as (app, _):
        first, second = containing(app.words, "Paris")[:2]
        assert {gpt2.token_bytes(first), gpt2.token_bytes(second)} == {b" Paris", b"Paris"}
        assert gpt2.encode(" neighbor")[0] in containing(app.words, "the ighb")
        assert len(containing(app.words, "e")) == 50


async def test_enter_goes_to_the_first_token_that_begins_with_what_is_typed():
    async with walk(model=embcli.seeded(dim=2)) as (app, pilot):
        await press(pilot, "slash", *"Pari", "enter")
        assert app.screen.lines.row in {6342, 40313}, "Paris, with a space before it or without"


# --- notes, words and sizes of any kind -----------------------------------------------------------


async def test_what_cannot_be_done_is_said_and_the_screen_goes_on(tmp_path, snapshot):
    path = saved(tmp_path, np.ones((500, 8), np.float32))
    # On 24 lines, notes cover rows.
    async with walk(path, size=(120, 40)) as (app, pilot):
        await press(pilot, "slash", "c", "escape")
        snapshot("explore/notes.txt", "\n".join(notes(app)) + "\n")

        os.truncate(path, 1000)
        await press(pilot, "end")
        assert "rows.npy" in lines(app)[0]
        await press(pilot, "enter", "s", "h", "home")
        assert app.is_running


async def test_notes_of_a_model_are_shown(tmp_path):
    model = embcli.open(saved(tmp_path, np.ones((300, 4), np.float32)), encoding="gpt2")
    model.notes.add("[a] note")
    async with walk(model=model) as (app, _):
        assert notes(app)[0].splitlines() == [*model.notes]


HOSTILE = ["\x1b[2J", "\u202eevil", "[bold]", "x" * 3000, "\\xff", "中文" * 30]


async def test_hostile_words_and_names_are_shown_escaped(tmp_path):
    rows = [f"{word} {place} 1" for place, word in enumerate(HOSTILE)]
    path = tmp_path / "a\x1b]0;[red]b.vec"
    path.write_text("\n".join(["6 2", *rows, ""]))
    keys = ["j", "h", "s", "enter", "escape", "j", "slash", "x", "d"]
    async with walk(path, size=(80, 20)) as (app, pilot):
        for key in [*keys, "escape"]:
            await press(pilot, key)
            assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(lines(app)))


def rows_on(app: Explorer) -> int:
    """Return how many rows with numbers are on the screen."""
    rows = [line for line in lines(app) if re.match(r" +\d+ .*│.*\d\.\d{4}", line)]
    return len(rows)


async def test_rows_fill_the_first_screen_and_a_resized_one():
    async with walk(size=(80, 24)) as (app, pilot):
        assert rows_on(app) == 20, "all but a title, a header, a command and the keys"
        for width, height in [(120, 40), (61, 17), (100, 30)]:
            await resize(pilot, width, height)
            assert rows_on(app) == height - 4


async def test_a_terminal_of_any_size_is_drawn():
    async with walk(size=(80, 12)) as (app, pilot):
        for keys in (["question_mark"], ["escape", "h"], ["enter"], ["colon", "1"]):
            await press(pilot, *keys)
            for width, height in [(1, 1), (4, 24), (40, 3)]:
                await resize(pilot, width, height)
                await press(pilot, "pagedown")
                assert len(lines(app)) == height, keys


async def test_a_narrow_screen_of_keys_is_laid_out_for_good():
    async with walk(size=(80, 24)) as (_, pilot):
        await press(pilot, "question_mark")
        await asyncio.wait_for(resize(pilot, 3, 80), timeout=20)  # a hang is a failure


# --- a real terminal ------------------------------------------------------------------------------


def spawned(without: int | None = None, **environment: str) -> Any:
    """Begin explore in a pseudo-terminal, perhaps with one of the three streams elsewhere."""

    def begin() -> None:
        if without is not None:
            os.dup2(os.open(os.devnull, os.O_RDWR), without)
        become(("explore", "--vocab", "300", "--dim", "20"), COLORS | environment)

    return Child(sys.executable, preexec_fn=begin, timeout=TIMEOUT, dimensions=(24, 80))


def left_on(child: Any) -> str:
    """Wait until explore ends; return what is then on the screen of the shell."""
    rest = child.rest()
    assert b"Traceback" not in rest
    # The screen of before, the cursor, and no mouse.
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"):
        assert sequence in rest
    screen = pyte.Screen(80, 24)
    pyte.ByteStream(screen).feed(rest.rpartition(b"\x1b[?1049l")[2])
    return "".join(screen.display).strip()


class SlowQueue(Queue):
    def get(self, *options):
        time.sleep(0.05)
        return super().get(*options)


@pytest.mark.parametrize("moment", range(0, 4, 2))
def test_a_signal_at_the_start_leaves_the_terminal_as_it_was(moment, monkeypatch):
    monkeypatch.setattr("textual.drivers._writer_thread.Queue", SlowQueue)
    child = spawned()
    child.expect_exact("\x1b[?1049h")
    time.sleep(0.02 * moment)
    child.kill(signal.SIGHUP)
    left_on(child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(number):
    child = spawned()
    child.expect("Quit")
    child.kill(number)
    left_on(child)
    assert child.exitstatus == 128 + number


def test_quit_prints_the_command_of_the_screen_and_ctrl_z_is_a_break():
    child = spawned()
    before = termios.tcgetattr(child.child_fd)
    child.expect("Quit")

    child.send("\x1a")  # Ctrl-Z shows the shell's screen until explore continues.
    child.expect_exact("\x1b[?1049l")
    os.waitpid(child.pid, os.WUNTRACED)
    assert termios.tcgetattr(child.child_fd) == before
    child.kill(signal.SIGCONT)
    child.expect("Quit")

    child.send(":299\r")  # It is typed at once.
    child.expect("299 of 300")
    child.send(b"\xff\xc3(")  # This is invalid UTF-8; a key that is read with it is lost.
    for _ in range(TIMEOUT):
        child.send("k")
        answer = child.expect(["29[0-8] of 300", pexpect.TIMEOUT], timeout=1)
        if answer == 0:
            break
    assert answer == 0
    child.send("qj")  # What is typed behind q is dropped.
    command = r"embcli weights --vocab 300 --dim 20 --rows 2\d\d:300 --columns 0:\d"
    assert re.fullmatch(command, left_on(child))
    assert child.exitstatus == 0


@cases
def test_explore_says_why_it_can_show_no_screen(monkeypatch, without, term, log, message):
    monkeypatch.setattr(constants, "LOG_FILE", log)  # TEXTUAL_LOG sets it like this.
    child = spawned(without, TERM=term)
    assert message in child.rest().decode()
    assert child.exitstatus == 2


def test_a_command_line_is_quoted_for_a_shell():
    given = {"no_cache": True, "seed": 0, "tensor": None}
    matrix = ExploredMatrix(embcli.seeded(6, 3), "a b", given)
    options = "--no-cache --seed 0"
    assert matrix.spell("weights", "--rows", "1") == f"embcli weights 'a b' {options} --rows 1"
    assert matrix.spell("neighbors") == f"embcli neighbors --from 'a b' {options}"

"""The full screen: what keys do, that its numbers are those of its commands, and how it leaves the terminal."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import signal
import sys
import termios
import threading
from pathlib import Path
from threading import Event

import numpy as np
import pexpect
import pyte
import pytest
from textual import events
from textual.geometry import Region
from wcwidth import wcswidth

import embcli
from embcli.cli.explore import speller
from embcli.cli.models import NamedModel
from embcli.cli.options import flag_of
from embcli.explore import jobs
from embcli.explore.app import Explorer
from embcli.explore.desk import Desk
from embcli.explore.start import begin
from tests.conftest import TIMEOUT, Embcli
from tests.screen import COLORS
from tests.screens import settled

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?|\bnan\b|\binf\b")
SMALL = {"vocab": 300, "dim": 20}


@pytest.fixture(autouse=True)
def _passes_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_REST", 0.0)


def desk_of(path: Path | None = None, *, color: bool = False, **begun: str) -> Desk:
    """Return the desk of a model of a file, or of a small seeded one."""
    given = NamedModel(**SMALL) if path is None else NamedModel(path=str(path))
    return begin(given.opened(None), speller(given, None), flag_of, color, **begun)


def press(desk: Desk, *names: str) -> None:
    for name in names:
        desk.press("space" if name == " " else name, name if len(name) == 1 else None)


def frame(desk: Desk, width: int = 120, height: int = 40) -> list[str]:
    """Return the text of the lines on the screen once nothing runs any more."""
    return ["".join(piece.text for piece in line) for line in settled(desk, width, height)]


def printed(desk: Desk, inside: Embcli) -> str:
    """Return what the commands of the screen print."""
    found = []
    for command in desk.view.commands():
        piped = re.fullmatch(r"printf %s (.*) \| (.*)", command)
        stdin = shlex.split(piped[1])[0] if piped else b""
        found.append(inside(*shlex.split(piped[2] if piped else command)[1:], stdin=stdin).text)
    return "\n".join(found)


def test_every_screen_shows_the_numbers_that_its_commands_print(inside: Embcli) -> None:
    desk = desk_of()
    for keys in (
        ["j", "j", "right"],
        ["s"],
        [" ", "j", "s"],
        ["h", "pagedown"],
        ["h", "s", "enter"],
        ["p"],
        ["tab", "j", "n"],
        ["w"],
        ["escape", "c"],
        ["w"],
        ["escape", "escape", "escape", "m"],
        ["tab"],
        ["tab"],
        ["escape", "l", *"Hi there", "enter"],
        ["h"],
        ["b"],
        ["plus", "right_square_bracket"],
    ):
        for key in keys:
            press(desk, key)
            body = frame(desk)[1:-2]
        assert not desk.said, (keys, desk.said)
        shown = {number for line in body for number in NUMBER.findall(line)}
        unknown = shown - {*NUMBER.findall(printed(desk, inside)), "1.0000"}  # the cosine of a row and itself
        assert desk.view.__class__.__name__ == "WholeView" or not unknown, (keys, desk.view.commands())
        assert not unknown or keys == ["tab"], keys  # the norms of findings are in audit's data


def test_keys_lead_through_rows() -> None:
    desk = desk_of(row="7")
    assert "row 7 of 300" in frame(desk)[0]
    press(desk, "g", *"299,3", "enter")
    shown = frame(desk)
    assert "row 299 of 300" in shown[0]
    assert re.search(r"│ +3 +4", shown[1])
    for key, columns in (("dollar_sign", "19"), ("0", "0 +1"), ("right", "1 +2")):
        press(desk, key)
        assert re.search(rf"│.* {columns}\b", frame(desk)[1]), key
    press(desk, "enter")
    frame(desk)
    press(desk, "j", "n")
    other = desk.view.row
    assert f"Row {other}" in frame(desk)[0]
    press(desk, "backspace")
    assert "Row 299" in frame(desk)[0]
    assert "Esc back  ? keys" in frame(desk)[-1]
    press(desk, "escape", "escape")
    assert "q quits" in frame(desk)[-1]
    press(desk, "home")
    assert "Esc back" not in frame(desk)[-1]
    press(desk, "g", *"300", "enter")
    assert "out of range" in frame(desk)[-1]
    press(desk, "question_mark")
    lines = frame(desk, height=12)
    assert any("Ctrl-D Ctrl-U" in line for line in lines)
    desk.view.scroll(5)
    assert frame(desk, height=12)[1:5] == lines[6:10]
    press(desk, "q")
    assert desk.ended


def test_one_can_go_back_a_hundred_screens_and_a_covered_search_ends() -> None:
    desk = desk_of()
    for row in range(150):
        desk.open("row", row)
        desk.frame(80, 24)
    assert [len(desk.stack), desk.stack[0].row, desk.stack[1].row] == [101, 0, 50]
    press(desk, "m", "m", "escape", "escape")
    assert "Row 148" in frame(desk)[0]
    assert all("searching" not in line for line in frame(desk))


def test_rows_are_sorted_by_norm_and_by_cosine_to_the_marked_row(tmp_path: Path) -> None:
    """A row of zeros has a norm and no cosine, one with NaN has neither: it is last."""
    matrix = np.random.default_rng(1).standard_normal((30, 5), np.float32)
    matrix[3], matrix[20, 2] = 0, np.nan
    np.save(tmp_path / "rows.npy", matrix)
    desk = desk_of(tmp_path / "rows.npy", sort="norm")
    norms = np.linalg.norm(matrix.astype(np.float64), axis=1)
    assert _rows(desk) == np.argsort(-norms).tolist()
    first = desk.view.row
    press(desk, " ", "s")
    with np.errstate(invalid="ignore"):
        cosines = matrix @ matrix[first] / norms
    assert _rows(desk) == np.argsort(-cosines, kind="stable").tolist()
    press(desk, "j", "j")
    row = desk.view.row
    press(desk, "s")
    assert f"row {row} of 30" in frame(desk)[0], "by ID again, on the same row"


def _rows(desk: Desk) -> list[int]:
    """Return the IDs on the screen of a matrix."""
    return [int(line.lstrip(" •").split()[0]) for line in frame(desk)[3:-2] if line.strip()]


def test_a_text_leads_to_its_rows() -> None:
    desk = begin(embcli.seeded(dim=4), speller(NamedModel(dim=4), None), flag_of, False, text="Every effort")
    shown = "\n".join(frame(desk))
    assert "6109" in shown
    assert "3626" in shown
    press(desk, "tab")
    for _ in range(len("Every effort")):
        press(desk, "backspace")
    press(desk, *"Pari")
    assert "␣Paris" in "\n".join(frame(desk)[2:12])
    press(desk, "enter", "enter")
    assert "␣Paris" in frame(desk)[0]
    assert desk.view.row in (40313, 33380, 12366, 6342), "one of the words that begin like that"


def test_a_text_is_typed_in_place_of_the_one_before_and_cancelled_by_escape() -> None:
    desk = desk_of()
    press(desk, "slash", *"er")
    frame(desk)
    press(desk, "enter", "slash", *"kin")
    assert (desk.text, desk.field.text) == ("kin", "kin")
    press(desk, "escape")
    assert desk.text == "er"
    press(desk, "slash", "left", "X")
    assert desk.text == "eXr"


def test_a_part_of_a_word_that_a_file_does_not_have_leads_to_its_words(tmp_path: Path) -> None:
    (tmp_path / "words.vec").write_text("queen 1 2\nking 2 3\nthinking 3 4\n")
    desk = desk_of(tmp_path / "words.vec")
    press(desk, "slash", *"kin")
    texts, words = zip(*(line.split("│") for line in frame(desk)[1:5]), strict=True)
    assert "for 'kin'; did you mean 'king'?" in " ".join(map(str.strip, texts))
    assert [line.split() for line in words[2:]] == [["king", "1"], ["thinking", "2"]]
    press(desk, "down", "enter")
    assert desk.view.row == 2


def test_errors_speak_of_the_screen(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2), np.float32))
    desk = desk_of(tmp_path / "rows.npy")
    assert not re.search("find|lookup|batch", frame(desk)[-1])
    press(desk, "l")
    assert "these rows have no tokens: g goes to a row" in frame(desk)[-1]
    press(desk, "g", *"x", "enter")
    assert "'x' is not a row; give its ID" in frame(desk)[-1]
    desk = desk_of()
    press(desk, "b", *"a b", "enter")
    assert "need at least 5 tokens (window 4 and one more), got 2" in frame(desk)[2]


def test_passes_wait_while_keys_are_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_REST", TIMEOUT)
    desk, begun, pressed, went_on = desk_of(), Event(), Event(), Event()

    def work(model: embcli.Model) -> None:
        for item in model.watch((begun, went_on), 2, lambda _: 1):
            item.set()
            pressed.wait(TIMEOUT)

    running = desk.start(work)
    assert begun.wait(TIMEOUT)
    press(desk, "j")
    pressed.set()
    waiting = desk.start(lambda _: went_on.set())
    assert not went_on.wait(0.05)
    running.cancel()
    waiting.cancel()
    for thread in threading.enumerate():
        if thread.name == jobs.NAME:
            thread.join(TIMEOUT / 2)
            assert not thread.is_alive()
    assert not went_on.is_set()


def test_two_rows_stand_side_by_side() -> None:
    desk = desk_of(row="9")
    press(desk, " ", "j", "c")
    nine, ten = embcli.seeded(**SMALL)[9:11]
    lines = [line.split("│") for line in frame(desk, 60, 40) if line.count("│") == 1]
    values = [[*cells[1].split()] for cells in lines if re.fullmatch(r" *\d+ *", cells[0])]
    expected = np.stack([nine, ten, nine - ten], axis=1)
    assert values == [[f"{value:.4f}" for value in row] for row in expected.tolist()]


def test_no_number_of_a_row_is_cut(tmp_path: Path) -> None:
    """Three columns of long numbers do not fit beside two lists of neighbours, or beside one."""
    np.save(tmp_path / "large.npy", np.full((9, 3), -1.5e30, np.float32) * np.arange(1, 10)[:, None])
    desk = desk_of(tmp_path / "large.npy")
    press(desk, "enter", "p")
    for width in (60, 80, 100, 120, 160):
        shown = "\n".join(frame(desk, width, 30)[:-2])
        assert shown.count("-1.5000e+30") == 6, width


def test_a_command_line_is_what_a_shell_takes() -> None:
    spell = speller(NamedModel(path="a b.gguf", tensor="w"), "gpt2")
    line = "embcli lookup --from 'a b.gguf' --tensor w --encoding gpt2 --heat -- -x"
    assert spell("lookup", "--heat", text="-x") == line
    assert spell("weights").split()[2:4] == ["'a", "b.gguf'"]
    assert spell("batch", piped="it's\n").startswith(r"printf %s $'it\'s\n' | embcli batch")


@pytest.mark.parametrize("size", [(40, 10), (60, 16), (250, 70)])
@pytest.mark.parametrize("color", [False, True])
def test_every_screen_fits_every_size(size: tuple[int, int], color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is pressed, each line has as many cells as the terminal, and there are as many lines."""
    for name, value in COLORS.items():
        monkeypatch.setenv(name, value)
    desk = desk_of(color=color)
    for key in ["j", "enter", "p", "tab", "n", "w", "question_mark", "escape", " ", "g", *"9,3", "enter", "c", "m"]:
        press(desk, key)
        lines = frame(desk, *size)
        assert len(lines) == size[1]
        assert {wcswidth(line) for line in lines} == {size[0]}, key


def test_hostile_names_and_odd_matrices_are_shown(tmp_path: Path) -> None:
    """NaN, zeros, one row, one column, no tokens; the words of a vocabulary and the name of a file are not trusted."""
    words = ["\x1b[2J", "\u202eevil", "[bold]", "x" * 500, "\\xff"]
    rows = np.array([[1, np.nan], [0, 0], [np.inf, 1], [1e30, -1e-30], [-0.0, 3]])
    lines = [f"{word} {a!r} {b!r}" for word, (a, b) in zip(words, rows.tolist(), strict=True)]
    (tmp_path / "a\x1b]0;b.vec").write_text("\n".join(["5 2", *lines]) + "\n")
    np.save(tmp_path / "one.npy", np.ones((1, 1), np.float32))
    np.save(tmp_path / "rows.npy", rows.astype(np.float32))
    for name in ("a\x1b]0;b.vec", "one.npy", "rows.npy"):
        desk = desk_of(tmp_path / name)
        for key in ["j", "h", "h", "s", "s", "enter", "tab", "w", "escape", "p", "escape", "m", "tab", "tab", "enter"]:
            press(desk, key)
            assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(frame(desk, 80, 20)))


def test_a_file_that_is_cut_is_reported_and_the_screen_goes_on(tmp_path: Path) -> None:
    np.save(tmp_path / "cut.npy", np.ones((500, 8), np.float32))
    desk = desk_of(tmp_path / "cut.npy")
    frame(desk)
    os.truncate(tmp_path / "cut.npy", 1000)
    press(desk, "G")
    assert "cut.npy" in "".join(frame(desk)[1:5])
    press(desk, "home", "j")
    assert len(frame(desk)) == 40


def test_the_screen_is_saved_as_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    desk = desk_of(color=True)
    frame(desk)
    press(desk, "Y", "Y")
    assert "Saved explore-2.svg" in desk.said
    assert (tmp_path / "explore.svg").read_bytes().startswith(b"<svg")


def test_textual_shows_the_desk_and_passes_keys_and_clicks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in COLORS.items():
        monkeypatch.setenv(name, value)

    async def walk() -> None:
        desk = desk_of(color=True)
        app = Explorer(desk)
        screen = pyte.Screen(80, 24)
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("down", "space", "space", "G", "home")
            assert desk.marked is None
            await pilot.press("space")
            assert desk.marked == 0
            written = app.query_one("_Lines").render_lines(Region(0, 0, 80, 24))
            pyte.Stream(screen).feed("\r\n".join(strip.render(app.console) for strip in written))
            assert screen.display == frame(desk, 80, 24)
            first, number = screen.buffer[3][5], screen.buffer[3][screen.display[3].rindex(".")]
            assert [first.bold, first.reverse, number.reverse] == [True, True, False]
            assert [screen.buffer[23][place].bold for place in (1, 7)] == [True, False], "Enter row"
            assert number.fg == ("0087d7" if "-" in screen.display[3].split()[-1] else "d75f00")
            await pilot.click(offset=(5, 7))
            assert desk.view.row == 4
            await pilot.resize_terminal(100, 30)
            assert desk.size == (100, 30)
            assert desk.view.row == 4
            await pilot.press("enter")
            app.query_one("_Lines").post_message(events.Key("alt+shift+g", "G"))
            await pilot.pause()
            assert desk.view.row == 299, "back, and to the end"
            await pilot.press("q")
        assert app.status == 0

    asyncio.run(walk())


def test_without_a_terminal_there_is_a_sentence(embcli: Embcli) -> None:
    assert "explore is a full screen and needs a terminal" in embcli.refused("explore", "--vocab", "300")


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize(("key", "number", "status"), [("q", 0, 0), ("\x03", 0, 130), ("", signal.SIGTERM, 143)])
def test_the_terminal_is_left_as_it_was(key: str, number: int, status: int) -> None:
    arguments = ["-m", "embcli", "explore", "--vocab", "300", "--dim", "20"]
    environment = os.environ | COLORS
    child = pexpect.spawn(sys.executable, arguments, env=environment, timeout=TIMEOUT, dimensions=(24, 80))
    before = termios.tcgetattr(child.child_fd)
    child.expect("quit")
    if number == 0:
        child.send("\x1a")  # Ctrl-Z: the shell's screen, until it goes on
        child.expect_exact("\x1b[?1049l")
        os.waitpid(child.pid, os.WUNTRACED)
        assert termios.tcgetattr(child.child_fd) == before
        child.kill(signal.SIGCONT)
        child.expect("quit")
        child.send("y")  # OSC 52: the command in the terminal's clipboard
        child.expect(r"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07")
        assert base64.b64decode(child.match[1]).endswith(b"--columns 0:4")
    child.send(key) if key else child.kill(number)
    rest = child.read()
    child.close()
    assert child.exitstatus == status
    for sequence in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1003l"):
        assert sequence in rest
    assert rest.endswith(b"--columns 0:4\r\n") == (status == 0)
    assert b"Traceback" not in rest

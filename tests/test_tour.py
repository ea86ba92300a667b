"""The tour: each step's command, output and words, the keys on a terminal, and files that are no tours."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import termios
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyte
import pytest

from embcli import names
from embcli.cli.tour import STEPS, TourStep, as_typed, with_text
from tests.runners import TIMEOUT, InProcess, Process, Terminal
from tests.test_readme import printed

NUMBERS = range(1, len(STEPS) + 1)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MEASURED = re.compile(r"^(?:time .*|  at least .*|linear: [\s\S]*?by\s+zero.*)$", re.MULTILINE)
NEXT = "q quits: "
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def numbers(text: str) -> set[str]:
    return {number.rstrip(",") for number in NUMBER.findall(text.replace("GPT-2", ""))}


@cache
def printed_by(command: str) -> str:
    return InProcess().ok(*with_text(command, names.TOUR_TEXT), COLUMNS="80").text


def output(step: TourStep) -> str:
    """Return what the command of a step prints when it is typed."""
    return printed_by(step.command)


# --- what the steps say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", NUMBERS)
def test_every_number_in_the_words_of_a_step_is_printed_or_follows(number: int) -> None:
    step = STEPS[number - 1]
    known = numbers(output(step)) | numbers(step.command)
    if "[0.5, -0.2, 0.1]" in step.words:  # whose numbers have a test of their own, below
        return
    if "pairs of positions" in step.words:
        known.add(str(4 * 4))
    assert numbers(f"{step.heading} {step.words} {step.question}") <= known
    if "{text}" in step.command:  # the reader's own has other IDs
        assert not numbers(step.words) - {"50,257", "256"}


def test_the_chapters_sum_is_what_numpy_makes_of_it_in_float32() -> None:
    words = next(step.words for step in STEPS if "[0.5" in step.words)
    first, second, total = (np.float32(json.loads(each)) for each in re.findall(r"\[.*?\]", words))
    np.testing.assert_allclose(first + second, total, rtol=1e-6)


def test_the_answers_are_what_the_commands_print() -> None:
    matrix, picked = (output(STEPS[place]).splitlines() for place in (1, 2))
    row = next(line.split("│")[1] for line in picked if re.match(r" +\d+ +3 ", line))
    assert next(line for line in matrix if line.endswith(row)).split()[0] == STEPS[2].answers[0]
    cost = next(line for line in output(STEPS[4]).splitlines() if line.startswith("multiply-adds"))
    assert cost.split()[1] == STEPS[4].answers[0]
    assert printed_by(STEPS[2].about) in InProcess().ok("tour", "--step", "3", COLUMNS="80").text
    sample = next(line for line in output(STEPS[6]).splitlines() if line.startswith("     0  "))
    assert sample.split("│")[2].split()[0] == STEPS[6].answers[0]


def test_the_commands_that_the_words_name_do_what_they_say() -> None:
    named = [
        line
        for step in STEPS
        for line in re.findall(r"embcli (?:tokenize|explain) [^.)]*", step.words)
    ]
    special, gradient = map(printed_by, named)
    assert re.search(r"^ +1  <\|endoftext\|> +50256 ", special, re.MULTILINE)
    assert "AdamW moves them" in " ".join(gradient.split())
    assert "--stride 1 samples overlap" in STEPS[6].words
    starts = re.findall(
        r"^ +[01]  .*?│ +(.*?)  ", printed_by(f"{STEPS[6].command} --stride 1"), re.MULTILINE
    )
    assert starts == ["40", "367"]


def test_the_two_sentences_have_the_same_tokens_and_other_input_rows() -> None:
    step = next(step for step in STEPS if "--lines" in step.command)
    found = json.loads(
        InProcess().ok(*with_text(step.command, ""), "-f", "json", "--show", "token,input").out
    )
    rows = {
        name: np.sort(np.float32(each).reshape(2, 5, 3), axis=1)
        for name, each in found["matrices"].items()
    }
    assert rows["token"][0].tobytes() == rows["token"][1].tobytes()
    assert rows["input"][0].tobytes() != rows["input"][1].tobytes()


# --- in a pipe --------------------------------------------------------------------------------------------------------


def test_in_a_pipe_all_of_it_is_printed_with_the_output_of_each_command(
    in_process: InProcess,
) -> None:
    text = MEASURED.sub("", in_process.ok("tour", COLUMNS="80").text)
    assert "\x1b" not in text
    assert NEXT not in text
    for number, step in zip(NUMBERS, STEPS, strict=True):
        begin = text.index(f"{number}/{len(STEPS)}  {step.heading}\n")
        assert MEASURED.sub("", output(step)) + "\n" in text[begin:]
        assert " ".join(step.words.split()) in " ".join(text[begin:].split())
    *own, model = (shlex.split(line.removeprefix("$ embcli ")) for line in text.splitlines()[-3:])
    assert [in_process.ok(*words).status for words in own] == [0, 0]
    assert model[-2:] == ["--from", "MODEL"]


@pytest.mark.parametrize("number", [1, 11])
def test_a_command_works_as_it_is_shown_in_a_shell(number: int, tmp_path: Path) -> None:
    command = as_typed(with_text(STEPS[number - 1].command, names.TOUR_TEXT))
    text = InProcess().ok("tour", "--step", str(number), COLUMNS="80").text
    assert "$ " + command.replace("\n", "\n> ") in text
    assert (
        printed(command, str(tmp_path)).removesuffix("--from MODEL reads a real model.\n") in text
    )
    assert text.count("embcli ") == 1


@pytest.mark.parametrize(
    "text", ["it's", 'a "b"', "$HOME `id` \\ !", "- a dash", "--dim", "-ofile", "{text}", "a\nb"]
)
def test_the_readers_own_text_reaches_the_command_as_it_is(text: str, tmp_path: Path) -> None:
    shown = InProcess().ok("tour", "--text", text, "--step", "1", COLUMNS="80").text
    expected = InProcess().ok("tokenize", "--merges", "--draw", stdin=text, COLUMNS="80").text
    assert expected in shown
    command = (
        shown.split("\n", 1)[1].split("\nEach piece")[0].removeprefix("$ ").replace("\n> ", "\n")
    )
    script = f"embcli() {{ printf '%s\\0' \"$@\"; }}\n{command}"  # a shell says which words it makes of the command
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, cwd=tmp_path, check=True, timeout=TIMEOUT
    )
    words = ran.stdout.decode().removesuffix("\0").split("\0")
    assert InProcess().ok(*words, COLUMNS="80").text == expected
    assert not [*tmp_path.iterdir()]


def test_a_text_of_ones_own_reaches_each_step_with_a_text() -> None:
    text = InProcess().ok("tour", "--text", "you and me", COLUMNS="80").text
    assert text.count('"you and me"') == sum("{text}" in step.command for step in STEPS) == 3
    assert '"you and me\n> me and you" --lines' in text
    assert "the cat" not in text


def test_the_position_that_a_token_gets_is_the_row_that_the_step_on_positions_shows() -> None:
    shown = next(line for line in output(STEPS[7]).splitlines() if line.startswith("  0 "))
    traced = re.findall(r"^ +\d +\S+ \+ +(\S+) =", output(STEPS[9]), re.MULTILINE)
    assert shown.split("│")[1].split() == traced


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_handout_is_one_page_with_all_steps(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"handout.{suffix}"
    assert InProcess().ok("tour", "-o", str(file)).out == b""
    page = (
        html.unescape(re.sub("<[^>]*>", "", file.read_text()))
        if suffix == "html"
        else file.read_text()
    )
    words = " ".join(page.replace("\\", "").split())
    for number, step in zip(NUMBERS, STEPS, strict=True):
        assert f"{number}/{len(STEPS)} {step.heading}" in words
        assert step.words in words
    for line in printed_by(STEPS[10].command).splitlines()[2:]:
        numbers = re.findall(r"-?\d\.\d{4}", line)
        assert re.search(r"\D+".join(map(re.escape, numbers)), page), line
    asked, _, answers = page.partition("Answers")
    assert page.index(f"\n{len(STEPS)}/" if suffix == "html" else f"**{len(STEPS)}/") < len(asked)
    for step in STEPS:
        if step.question:
            assert " ".join(step.question.split()) in " ".join(asked.split())
            assert f"The answer: {step.answers[0]}" in answers
            assert step.command in answers
            assert step.command not in asked
    assert "The answer: " not in asked
    assert "<script" not in file.read_text()


def test_a_printer_splits_no_step_and_the_answers_begin_a_sheet(tmp_path: Path) -> None:
    InProcess().ok(
        "tour", "--text", "Every effort moves you. " * 40, "-o", str(tmp_path / "handout.html")
    )
    page = (tmp_path / "handout.html").read_text()
    *steps, _, answers = re.findall("<pre>(.*?)</pre>", page, re.DOTALL)
    assert [re.findall(r">(\d+)/", each) for each in steps] == [[str(each)] for each in NUMBERS]
    assert "Answers</span>" in answers.split("\n")[0]
    assert max(each.count("\n") for each in steps) < 60 > answers.count("\n")
    assert page.count("<span") > 100, "there are colours"
    css = page.partition("@media print")[2].partition("</style>")[0]
    assert re.search(r"  pre \{[^}]*break-inside: avoid", css)
    assert re.search(r"  pre \+ pre:last-child \{ break-before: page; \}", css)


# --- on a terminal ----------------------------------------------------------------------------------------------------


class Screen:
    """embcli tour in a terminal, and what is to be seen there."""

    def __init__(
        self, *arguments: str, width: int = 80, height: int = 24, **environment: str
    ) -> None:
        self.screen = pyte.HistoryScreen(width, height)
        self.stream, self.raw = pyte.Stream(self.screen), ""
        environment = {"TERM": "xterm-256color", **environment}
        self.child = Terminal().start("tour", *arguments, width=width, height=height, **environment)

    def press(self, key: str = "") -> str:
        """Press a key and return what stands on the screen when the next one is waited for."""
        self.child.send(key)
        self.child.expect("quits(\\): |: )")
        self.feed(self.child.before + self.child.after)
        assert len(self.screen.history.top) <= 1, "some of the step has scrolled away"
        return self.text

    def feed(self, raw: str) -> None:
        self.raw += raw
        self.stream.feed(raw)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def end(self, key: str) -> int:
        """Press a key that ends it, and return the exit status."""
        self.child.send(key)
        self.feed(self.child.read())
        self.child.close()
        return self.child.exitstatus


def test_each_step_fits_a_terminal_of_80_by_24_and_enter_goes_on_to_the_end() -> None:
    screen = Screen()
    seen = screen.press()
    for number, step in zip(NUMBERS, STEPS, strict=True):
        if step.question:
            assert seen.count("$ embcli") == (1 if step.about else 0)
            assert not step.about or all(
                line in seen for line in printed_by(step.about).splitlines()
            )
            assert " ".join(step.question.split()) in " ".join(seen.split())
            seen = screen.press(f"{step.answers[0]}\n")
            assert "\nRight.\n" in seen
            assert " ".join(step.question.split()) in " ".join(seen.split())
        begin = f"{number}/{len(STEPS)}  {step.heading}\n"
        assert seen.startswith(begin if step.question else f"{begin}$ embcli ")
        assert seen.count("$ embcli ") == 1
        assert " ".join(step.words.split()) in " ".join(seen.split())
        assert seen.rstrip().endswith(NEXT.strip())
        assert ("more lines" in seen) == (step is STEPS[-1])
        assert "Left out: row" not in seen
        assert "by hand" in step.words or numbers(step.words) <= numbers(
            seen.rstrip().rpartition("\n\n")[0]
        )
        if number < len(NUMBERS):
            seen = screen.press("\n\n")  # the second one comes too early
    assert screen.end("\n") == 0
    assert (
        COLOR.sub("", screen.raw)
        .rstrip()
        .endswith('$ embcli lookup "A text of yours" --from MODEL')
    )
    assert COLOR.search(screen.raw), "there are colours"
    assert (
        COLOR.sub("", screen.raw).count("\x1b[H\x1b[2J")
        == COLOR.sub("", screen.raw).count("\x1b") // 2
    )


def test_a_long_text_leaves_the_heading_on_the_screen_and_says_how_much_is_not() -> None:
    seen = Screen("--text", "Every effort moves you. " * 40).press()
    assert seen.startswith("1/")
    assert re.search(r"\n… \d+ more lines; the command alone prints them\n", seen)
    assert "these are the tokens" in " ".join(seen.split())


@pytest.mark.parametrize("height", [33, 40])
def test_a_step_whose_page_could_fill_a_larger_terminal_leaves_room_for_its_words(
    height: int,
) -> None:
    assert (
        Screen("--step", str(len(NUMBERS)), width=120, height=height)
        .press()
        .startswith(f"{len(NUMBERS)}/")
    )


def test_keys_go_on_and_back_and_a_wrong_answer_gets_the_right_one() -> None:
    screen = Screen("--step", "2", NO_COLOR="1")
    assert screen.press().startswith("2/")
    assert screen.press("b").startswith("1/")
    assert screen.press("b").startswith("1/")
    assert screen.press("x").startswith("1/")
    assert screen.press(" ").startswith("2/")
    assert "Your answer" in screen.press("n")
    assert "\nNot quite. Try again" in screen.press("4\n")
    assert "\nNot quite. The answer: 3\n" in screen.press("the fifth\n")
    screen.press("b")
    screen.press("n")
    screen.press("4\n")
    assert "\nRight.\n" in screen.press("The fourth.\n")
    assert screen.press("b").startswith("2/")
    screen.press("\n")
    seen = screen.press("\n")
    assert seen.startswith("3/")
    assert "Right." not in seen
    assert "Not quite" not in seen
    assert screen.end("q") == 0
    assert not COLOR.search(screen.raw)


@pytest.mark.parametrize(
    ("step", "key", "status"),
    [("3", "q\n", 0), ("3", "\x04", 0), ("1", "\x04", 0), ("1", "\x03", 130)],
)
def test_a_tour_can_be_ended_at_a_question_and_by_the_keys_that_end_programs(
    step: int, key: str, status: int
) -> None:
    screen = Screen("--step", str(step))
    screen.press()
    assert screen.end(key) == status


def test_ctrl_c_leaves_a_tour_whose_step_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embcli.cli.groups.opened", Mock(side_effect=KeyboardInterrupt))
    ran = InProcess()("tour", "--step", "2")
    assert (ran.status, ran.out) == (130, b"")


def test_a_dumb_terminal_gets_no_escapes() -> None:
    screen = Screen(TERM="dumb")
    assert "1/" in screen.press()
    assert screen.end("q") == 0
    assert "\x1b" not in screen.raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_terminal_is_restored_when_the_tour_is_killed(number: signal.Signals) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    child = Process().start("tour", stdin=slave, stdout=slave, stderr=slave)
    seen = b""
    while NEXT.encode() not in seen:
        seen += os.read(master, 4096)
    while termios.tcgetattr(slave)[3] & termios.ICANON:
        assert child.poll() is None
    child.send_signal(number)
    assert child.wait(TIMEOUT) == 128 + number
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)

"""The tour: what its steps say, its keys on a terminal, and its handouts."""

from __future__ import annotations

import html
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import termios
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyte
import pytest
import torch

from embcli.cli.tour import EXERCISES, STEPS, TourStep, _wants_hint, with_text
from embcli.names import TOUR_TEXT
from embcli.verbs.explain import explain
from tests.cases import cases
from tests.runners import TIMEOUT, InProcess, Terminal

UNTRAINED = [step for step in STEPS if "{model}" not in step.command]
ON_PAPER = [step for step in (*UNTRAINED, *EXERCISES) if step.command or step.question]
OF_ALL = f"/{len(UNTRAINED)}  "
LONG_TEXT = "Every effort moves you. " * 40
LAST_PROMPT = "q quits: "
COLOR = re.compile(r"\x1b\[[0-9;]*m")
CLEAR = "\x1b[H\x1b[2J"


def numbers(text: str) -> set[str]:
    """Return the numbers in a text."""
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text.replace("GPT-2", ""))
    return {number.replace(",", "") for number in found}


def output(in_process: InProcess, step: TourStep) -> str:
    """Return what the command of a step prints."""
    return in_process.ok(*with_text(step.command, step.text), COLUMNS="80").text


def tour(in_process: InProcess, *arguments: str) -> str:
    """Return what the tour prints into a pipe of 80 columns."""
    return in_process.ok("tour", *arguments, COLUMNS="80").text


def data(in_process: InProcess, command: str) -> dict[str, Any]:
    """Return the result of a command as a JSON document."""
    words = with_text(command.removesuffix(" --bare"), TOUR_TEXT)
    return json.loads(in_process.ok(*words, "-f", "json").out)


def step_with(part: str) -> TourStep:
    """Return the first step that has this in its command or its words."""
    return next(step for step in STEPS if part in step.command + step.words)


def number_of(part: str) -> str:
    """Return the number of that step, as --steps takes it."""
    return str(STEPS.index(step_with(part)) + 1)


QUESTION = number_of("--ids 2,3,5,1")
SUM_STEP = number_of("--trace")
TREES = ["--steps", number_of("bpe:story:400")]
WIDE = number_of("--show token {text}")


# --- what the steps say ---------------------------------------------------------------------------


def test_all_steps_follow_each_other_with_their_commands_and_their_words(in_process, snapshot):
    start, *pages = re.split(rf"^\d+{OF_ALL}", tour(in_process), flags=re.MULTILINE)

    assert start == ""
    for step, page in zip(UNTRAINED, pages, strict=True):
        name = re.sub(r"\W+", "-", step.heading.lower())
        snapshot(f"tour/steps/{name}.txt", f"{page.rstrip()}\n")


def test_a_step_that_fails_is_reported_and_gives_status_2(in_process):
    longer_than_the_position_layer = "a " * 1100

    ran = in_process("tour", "--steps", SUM_STEP, "--text", longer_than_the_position_layer)

    assert ran.status == 2
    assert "1,024" in ran.err
    assert step_with("--trace").words[:40] in ran.text


@pytest.mark.parametrize("step", UNTRAINED)
def test_every_number_in_the_words_of_a_step_is_printed_or_follows(step, in_process):
    if not step.command:
        return
    printed = numbers(output(in_process, step)) | numbers(step.command)

    assert numbers(f"{step.heading} {step.words}") <= printed
    if "[0.5, -0.2, 0.1]" not in step.question:  # These numbers have the next test.
        assert numbers(step.question) <= printed
    if "{text}" in step.command:  # The reader's own text has other IDs.
        assert numbers(step.words) <= {"50257", "256", "400"}


def test_the_chapters_sum_is_what_numpy_makes_of_it_in_float32():
    step = step_with("--trace")
    rows = re.findall(r"\[.*?\]", f"{step.question} {step.answers[0]}")
    first, second, total = (np.float32(json.loads(row)) for row in rows)
    np.testing.assert_allclose(first + second, total, rtol=1e-6)


def test_the_answer_to_a_lookup_is_how_many_numbers_it_has(in_process):
    step = step_with("--ids 2,3,5,1")
    picked = data(in_process, step.command)["matrices"]["token"]
    assert str(np.size(picked)) == step.answers[0]


def test_the_answer_to_the_cost_is_what_compare_counts(in_process):
    step = step_with("--show cost")
    cost = data(in_process, step.command)["cost"]
    assert str(cost["multiply_adds"]["embedding"]) == step.answers[0]


def test_the_answer_to_a_batch_is_how_many_tokens_one_sample_takes(in_process):
    step = step_with("embcli batch")
    matrices = data(in_process, step.command)["matrices"]
    taken = [*matrices["inputs"][0], matrices["targets"][0][-1]]
    assert str(len(taken)) == step.answers[0]

    line = f"--vocab 9 --batch-size 1 --max-length {len(matrices['inputs'][0])}".split()
    in_process.ok("batch", "--ids", f"0:{len(taken)}", *line)
    in_process.refused("batch", "--ids", f"0:{len(taken) - 1}", *line)


@pytest.mark.parametrize("step", [step for step in STEPS if step.answers])
def test_no_question_has_its_answer_on_its_sheet_and_each_has_a_hint(step, in_process):
    shown = f"{step.heading} {step.question} {step.hint}"
    if step.about:
        shown += output(in_process, step._replace(command=step.about))
    assert not re.search(rf"\b{re.escape(step.answers[0])}\b", shown)
    assert step.hint


@cases
def test_an_answer_is_taken_as_meant(heading, right, wrong):
    (step,) = [step for step in (*STEPS, *EXERCISES) if step.heading == heading]
    assert [answer for answer in right if not step.is_right(answer)] == []
    assert [answer for answer in wrong if step.is_right(answer)] == []


@cases
def test_whoever_does_not_know_gets_a_hint(answer, wants_hint):
    assert _wants_hint(answer) == wants_hint


# --- a text of one's own --------------------------------------------------------------------------


def words_of(command: str, folder: Path) -> list[str]:
    """Return the words that a shell makes of a command of embcli."""
    script = f"embcli() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, cwd=folder, check=True, timeout=TIMEOUT
    )
    assert ran.stderr == b""
    assert not [*folder.iterdir()]
    return ran.stdout.decode().removesuffix("\0").split("\0")


@cases
def test_the_readers_own_text_reaches_the_command_as_it_is(text, tmp_path, in_process):
    expected = in_process.ok("tokenize", stdin=text, COLUMNS="80").text

    shown = tour(in_process, "--text", text, "--steps", "1")
    above = shown.partition(expected)[0]
    command = above.partition("$ ")[2]
    words = words_of(command, tmp_path)

    assert expected in shown
    assert in_process.ok(*words, COLUMNS="80").text == expected


def test_a_text_of_ones_own_reaches_each_step_with_a_text(in_process):
    text = tour(in_process, "--text", "you and me")
    assert text.count('"you and me"') == sum("{text}" in step.command for step in UNTRAINED)


def test_steps_about_an_english_story_keep_their_text_and_say_so(in_process):
    kept = [step for step in STEPS if step.keeps]
    steps = ",".join([number_of(step.command) for step in kept])
    words = tour(in_process, "--text", "Учитель читает книгу", "--steps", steps).split()
    text = " ".join(words)
    assert '"Учитель читает книгу"' not in text
    for step in kept:
        assert f'"{step.text}"' in text
        assert step.words + step.keeps in text


# --- handouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["html", "md"])
def test_a_handout_asks_on_one_sheet_and_answers_on_the_last(
    suffix, tmp_path, in_process, snapshot
):
    file = tmp_path / f"handout.{suffix}"
    assert tour(in_process, "--steps", QUESTION, "-o", str(file)) == ""
    snapshot(f"tour/handout-of-a-question.{suffix}", file.read_text())


@pytest.fixture(scope="module")
def handout(
    tmp_path_factory: pytest.TempPathFactory, shared_cache: Path, in_process: InProcess
) -> str:
    """Return the handout of all steps, as Markdown without its escapes."""
    file = tmp_path_factory.mktemp("tour") / "handout.md"
    words = ("-o", str(file), "--title", "Week 2")
    in_process.ok("tour", *words, EMBCLI_CACHE_DIR=str(shared_cache), COLUMNS="80")
    return file.read_text().replace("\\", "")


def test_a_handout_has_all_steps_and_their_answers_at_the_end(handout):
    assert handout.startswith("**Week 2**\n\nName: ___")
    steps, _, answers = handout.partition("**Week 2: answers**")
    assert "What comes next" not in handout
    for step in ON_PAPER:
        number = [*UNTRAINED, *EXERCISES].index(step) + 1  # as the tour numbers them
        assert f"**{number}/{len(UNTRAINED) + len(EXERCISES)}  {step.heading}**\n" in steps
        assert step.words in (answers if step.question else steps)
        if step.question:
            assert step.question in steps
            assert step.question in answers
            assert step.command not in steps or not step.command
        for answer in step.answers[:1]:
            assert f"**The answer: {answer}**\n" in answers
    assert "The answer: " not in steps


def test_a_handout_without_answers_has_all_the_rest(tmp_path, in_process):
    file = tmp_path / "questions.md"
    tour(in_process, "--quiz", "--steps", "3-", "--no-answers", "-o", str(file))
    assert file.read_text().count("Your answer") == len(EXERCISES) - 2
    assert "The answer" not in file.read_text()


torch.manual_seed(123)
TOKEN_ROWS = torch.nn.Embedding(6, 3).weight
SUM = (TOKEN_ROWS[5] + torch.nn.Embedding(1024, 3).weight[0]).tolist()
# The pages that answer the questions of a handout, and what each has to say.
SOLUTIONS = {
    "Question: tokens": " 6 tokens,",
    "Question: a one-hot row": "  0   2  0  0  1  0 ",
    "Question: targets": "│  1  4  1  5",
    "Question: number of samples": "N = 4 samples",
    "Question: dropped samples": "2 samples dropped",
    "Question: shapes": "(2, 3, 5)",
    "Question: a sum by hand": "   ".join(f"{number:.2f}" for number in SUM).replace(" -", "-"),
    "Question: how many different rows": "  4  ␣you    345",
    "Question: the gradient of a token that occurs twice": " 3  2",
}


@pytest.mark.parametrize(
    "step", [each for each in EXERCISES if each.heading in SOLUTIONS], ids=lambda step: step.heading
)
def test_the_page_of_an_answer_has_it(step, in_process):
    page = output(in_process, step)
    assert SOLUTIONS[step.heading] in page
    assert numbers(step.answers[0]) <= numbers(page)
    assert SOLUTIONS[step.heading] not in step.question + step.about


def test_html_sets_sentences_as_prose_for_a_sheet_of_paper(tmp_path, in_process):
    file = str(tmp_path / "handout.html")
    tour(in_process, "--paper", "letter", "-o", file)

    page = (tmp_path / "handout.html").read_text()
    assert "@page { size: letter;" in page
    prose = re.findall("<p>(.*?)</p>", page, re.DOTALL)
    sentences = [html.unescape(re.sub("<.*?>", "", text)).strip() for text in prose]
    for step in ON_PAPER:
        assert step.words in sentences
    assert "$ embcli" not in "".join(sentences)
    assert "│" not in "".join(prose)


PRINT = (
    "chromium --headless --no-sandbox --no-pdf-header-footer --user-data-dir=. "
    "--print-to-pdf=handout.pdf handout.html && pdftotext -layout handout.pdf"
)


@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("pdftotext")),
    reason="chromium or pdftotext is not installed: nothing is printed",
)
@cases
def test_a_step_is_printed_on_one_sheet_of_paper_and_so_is_an_answer(
    text, paper, tmp_path, in_process
):
    tour(in_process, "--text", text, "--paper", paper, "-o", str(tmp_path / "handout.html"))
    subprocess.run(PRINT, shell=True, cwd=tmp_path, capture_output=True, check=True)
    sheets = (tmp_path / "handout.txt").read_text().split("\f")

    for step in ON_PAPER:
        *_, last = [sheet for sheet in sheets if f" {step.heading}\n" in sheet]
        words = "".join(last.split())
        for part in (step.question, step.words, *step.answers[:1]):
            assert "".join(part.split()) in words


# --- on a terminal --------------------------------------------------------------------------------


class Screen:
    """The tour in a terminal, and what is to be seen there."""

    def __init__(
        self,
        terminal: Terminal,
        *arguments: str,
        width: int = 80,
        height: int = 24,
        **environment: str,
    ) -> None:
        self.raw = ""
        self.screen = pyte.HistoryScreen(width, height)
        self.stream = pyte.Stream(self.screen)
        environment = {"TERM": "xterm-256color", **environment}
        self.child = terminal.start("tour", *arguments, width=width, height=height, **environment)

    def press(self, key: str = "") -> str:
        """Press a key and return what stands on the screen when the next one is waited for."""
        self.child.send(key)
        self.child.expect("quits(\\): |: )")
        self.feed(self.child.before + self.child.after)
        if re.search("Enter (continues|ends the tour), ", self.text):
            self.child.wait_without_echo()  # What is typed before is dropped.
        assert len(self.screen.history.top) <= 1, "some of the step has scrolled away"
        return self.text

    def feed(self, raw: str) -> None:
        self.raw += raw
        self.stream.feed(raw)

    @property
    def text(self) -> str:
        lines = [line.rstrip() for line in self.screen.display]
        return "\n".join(lines)

    def end(self, key: str) -> int:
        """Press a key that ends it, and return the exit status."""
        self.child.send(key)
        self.feed(self.child.rest())
        return self.child.exitstatus


@pytest.fixture
def start(terminal: Terminal) -> Callable[..., Screen]:
    """Return what starts a tour on a terminal."""
    return partial(Screen, terminal)


def test_words_about_steps_with_a_text_number_those_that_have_one():
    steps = [step for step in UNTRAINED if "{text}" in step.command]
    of_the_story = [number_of(step.command) for step in steps if step.keeps]
    others = [number_of(step.command) for step in steps if not step.keeps]
    words = explain("tour").entries[0].text
    assert f"in steps {', '.join(others)} and those two" in words
    assert f"in {' and '.join(of_the_story)}, about an English story" in words


def test_each_step_fits_a_terminal_of_80_by_24_and_enter_leads_to_the_end(
    start,
):
    screen = start()
    seen = screen.press()
    for number, step in enumerate(UNTRAINED, 1):
        assert seen.startswith(f"{number}{OF_ALL}{step.heading}\n")
        if step.question:
            assert seen.count("$ embcli") == (1 if step.about else 0)
            seen = screen.press(f"{step.answers[0]}\n")
            assert f"\nRight: {step.answers[0]}\n" in seen
        assert seen.count("$ embcli ") == (step.about + step.command).count("embcli")

        page, _, words = seen.rstrip().rpartition("\n\n")
        assert " ".join(step.words.split()) in " ".join(words.split())
        assert words.endswith(LAST_PROMPT.strip())
        assert numbers(step.words) <= numbers(page)
        assert "more lines" not in seen, "all of the page is shown"

        if number < len(UNTRAINED):
            seen = screen.press("\n\n")  # The second one comes too early.

    assert screen.end("\n") == 0
    asked = [step for step in UNTRAINED if step.answers]
    assert f"Right answers: {len(asked)} of {len(asked)}; skipped: 0." in screen.text
    assert COLOR.search(screen.raw)
    assert "\x1b" not in COLOR.sub("", screen.raw).replace(CLEAR, "")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("the-first-step", []),
        ("a-question-below-its-picture", ["--steps", number_of("--windows")]),
        ("a-long-text-cut", ["--text", LONG_TEXT]),
        ("trees-cut-below-a-tree", ["--text", "The old keeper of the lamp on the hill", *TREES]),
        ("trees-that-fill-the-lines", ["--text", "the keeper and the lamp", *TREES]),
        ("a-table-with-all-that-is-left-out", ["--text", "გამარჯობა", "--steps", WIDE]),
    ],
)
def test_a_step_stands_on_a_screen(name, arguments, start, snapshot):
    snapshot(f"tour/screen-of-{name}.txt", start(*arguments).press())


def test_a_long_page_keeps_its_header_and_its_end_which_the_words_are_about(start, snapshot):
    text = " ".join(["Every effort moves you forward"] * 5)
    screen = start("--steps", SUM_STEP, "--text", text)
    screen.press()
    snapshot("tour/screen-of-a-long-page-cut.txt", screen.press("\n"))


@cases
def test_a_key_leads_on_or_back(keys, start):
    screen = start()
    assert screen.press().startswith("1/")
    for key, shown in keys:
        assert screen.press(key).startswith(f"{shown}/"), key
    assert screen.end("q") == 0


def test_an_unknown_key_gets_the_keys_on_the_same_line(start):
    screen = start()
    page = screen.press()
    assert screen.press("x") == page.replace("Enter cont", "Unknown key. Enter cont")


def test_a_wrong_answer_and_a_question_mark_get_the_hint_and_the_question_again(start, snapshot):
    screen = start("--steps", QUESTION, NO_COLOR="1")

    screens = [screen.press(key) for key in ("", "4\n", "?\n", "abc\n", "5\n", "6\n")]

    last_lines = [text.rstrip().split("\n")[-5:] for text in screens]
    snapshot("tour/wrong-answers.txt", "\n\n".join(map("\n".join, last_lines)) + "\n")
    assert screen.end("q") == 0
    assert not COLOR.search(screen.raw)


def test_a_right_answer_at_the_third_try_is_right_and_enter_skips_a_question(start):
    screen = start("--steps", f"1,{QUESTION}")
    for key in ("", "\n", "4\n", "?\n"):
        screen.press(key)
    assert "\nRight: 12\n" in screen.press("Twelve.\n")

    assert screen.press("b").startswith("1/")
    assert "Your answer" in screen.press("\n")
    shown = screen.press("skip\n")
    assert shown.startswith(f"{QUESTION}/")
    assert "\nThe answer: 12\n" in shown
    assert screen.end("\n") == 0
    assert "Right answers: 1 of 1; skipped: 0." in screen.text


def test_the_last_answer_to_a_question_counts(start):
    screen = start("--quiz", "--steps", "1,3")
    for key in ("", "5\n", "\n", "b", "6\n"):
        screen.press(key)
    screen.press("\n")
    assert "Enter ends the tour" in screen.press("400\n")
    assert screen.end("\n") == 0
    assert "Right answers: 2 of 2; skipped: 0." in screen.text


def test_a_wrong_answer_counts_if_words_follow_it(start):
    screen = start("--quiz", "--steps", "1")
    for key in ("", "5\n", "no idea\n"):
        screen.press(key)
    assert "Not quite. The answer" in screen.press("\n")
    assert screen.end("\n") == 0
    assert "Right answers: 0 of 1; skipped: 0." in screen.text


def test_a_quiz_counts_right_answers_and_shows_those_that_are_reasons(start):
    screen = start("--quiz", "--steps", "1-4")
    for key in ("", "6\n", "\n", "names are unknown\n"):
        shown = screen.press(key)
    assert EXERCISES[1].words[:40] in shown
    assert "Compare yours:" in shown
    assert "Not quite" not in shown
    screen.press("\n")
    for key in ("58\n", "\n", "\n", "\n"):
        screen.press(key)
    assert screen.end("\n") == 0
    assert "Right answers: 1 of 2; skipped: 1." in screen.text


@cases
def test_an_answer_has_a_reply(step, answer, reply, start):
    screen = start("--steps", number_of(step))
    screen.press()
    assert reply in screen.press(answer)


def test_each_answer_of_the_quiz_fits_a_terminal_of_80_by_24(start):
    screen = start("--quiz")
    key = ""
    for _ in EXERCISES:
        screen.press(key)
        key = "\n"
        assert "more lines" not in screen.press(key)


def test_steps_are_shown_in_the_order_they_are_named_and_keep_their_numbers(in_process):
    count = len(UNTRAINED)
    shown = tour(in_process, "--steps", f"5, 2-3,{count - 1}-")
    numbers = [5, 2, 3, count - 1, count]
    headings = [f"{number}{OF_ALL}{UNTRAINED[number - 1].heading}" for number in numbers]
    assert re.findall(rf"^\d+{OF_ALL}.*", shown, re.MULTILINE) == headings


@cases
def test_steps_that_are_not_there_are_refused(steps, wrong, in_process):
    assert f"not '{wrong}'" in in_process.refused("tour", "--steps", steps)


def test_a_model_has_steps_of_its_own(tmp_path, monkeypatch, in_process):
    monkeypatch.chdir(tmp_path)
    in_process.ok("weights", "--vocab", "50257", "--dim", "4", "-o", "my.npy")
    steps = f"{number_of('--from {model}')}-{number_of('-k 5')}"
    shown = tour(in_process, "--from", "my.npy", "--steps", steps)
    assert [line for line in shown.split("\n") if line.startswith("$ ")] == [
        f'$ embcli lookup --from my.npy --show token --heat "{TOUR_TEXT}"',
        f'$ embcli neighbors --from my.npy -k 5 "{TOUR_TEXT}"',
    ]
    path = str(tmp_path / "my.npy")
    in_process.ok("tour", "--from", path, "--steps", steps, "-o", "handout.md")
    assert f"--from {tmp_path.name}/my.npy -k 5" in Path("handout.md").read_text()
    in_process.refused("tour", "--from", "your.npy")
    in_process.ok("weights", "--vocab", "6", "--dim", "3", "-o", "rows.npy")
    assert "tokenizer" in in_process.refused("tour", "--from", "rows.npy")


@cases
def test_a_tour_ends_at_a_question_and_by_the_keys_that_end_programs(step, key, status, start):
    screen = start("--steps", number_of(step) + "-")
    screen.press()
    assert screen.end(key) == status
    assert screen.screen.cursor.x == 0, "the line is clean"


def test_ctrl_c_leaves_a_tour_whose_step_is_at_work(monkeypatch, in_process):
    monkeypatch.setattr("embcli.cli.groups.opened", Mock(side_effect=KeyboardInterrupt))
    ran = in_process("tour", "--steps", QUESTION)
    assert ran.status == 130
    assert ran.out == b""


def test_a_dumb_terminal_gets_no_escapes(start):
    screen = start(TERM="dumb")
    assert "1/" in screen.press()
    assert screen.end("q") == 0
    assert "\x1b" not in screen.raw


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_terminal_is_restored_when_the_tour_is_killed(number, process):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    child = process.start("tour", stdin=slave, stdout=slave, stderr=slave)
    seen = b""
    while LAST_PROMPT.encode() not in seen:
        seen += os.read(master, 4096)
    while termios.tcgetattr(slave)[3] & termios.ICANON:
        assert child.poll() is None

    child.send_signal(number)

    assert child.wait(TIMEOUT) == 128 + number
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)

"""The full screen: what keys do, that its numbers are those of its commands, and how it leaves the terminal."""

from __future__ import annotations

import re
import shlex
import threading
from pathlib import Path

from embcli.cli.explore import speller
from embcli.cli.models import NamedModel
from embcli.cli.options import flag_of
from embcli.explore.desk import Desk
from embcli.explore.jobs import NAME
from embcli.explore.start import begin
from tests.conftest import TIMEOUT, Embcli

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?|\bnan\b|\binf\b")
HOSTILE = b"\x1b[2J", b"\xe2\x80\xaeevil", b"[bold]", b"\xff", b"\n"


def desk_of(path: Path | None = None, *, color: bool = False, **settings: object) -> Desk:
    """Return the desk of a model of a file, or of a small seeded one."""
    given = NamedModel(path=None if path is None else str(path), **({} if path else {"vocab": 300, "dim": 20}))
    begun = {key: settings.pop(key) for key in ("row", "text", "sort") if key in settings}
    return begin(given.opened(None), speller(given, None), flag_of, color, **begun)


def press(desk: Desk, *names: str) -> None:
    """Press keys; of a text, each of its letters."""
    for name in names:
        for key in name if name.startswith(" ") else [name]:
            desk.press("space" if key == " " else key, key if len(key) == 1 else None)


def typed(desk: Desk, text: str) -> None:
    for character in text:
        desk.press(character, character)


def frame(desk: Desk, width: int = 100, height: int = 30) -> list[str]:
    """Return the lines on the screen once nothing runs any more."""
    while True:
        lines = ["".join(piece.text for piece in line) for line in desk.frame(width, height)]
        running = [thread for thread in threading.enumerate() if thread.name == NAME]
        for thread in running:
            thread.join(TIMEOUT)
        if not running:
            return lines


def numbers_of_commands(desk: Desk, inside: Embcli) -> set[str]:
    """Return the numbers that the commands of the screen print."""
    found: set[str] = set()
    for command in desk.view.commands():
        piped = re.fullmatch(r"printf %s (.*) \| (.*)", command)
        stdin = shlex.split(piped[1])[0] if piped else b""
        ran = inside(*shlex.split(piped[2] if piped else command)[1:], stdin=stdin)
        found |= {*NUMBER.findall(ran.text)}
    return found


def check_numbers(desk: Desk, inside: Embcli) -> None:
    """Hold all numbers with a fraction on the screen against those of its commands."""
    body = frame(desk, 120, 40)[1:-2]
    shown = {number for line in body for number in NUMBER.findall(line)}
    assert shown <= numbers_of_commands(desk, inside), desk.view.commands()


def test_every_screen_shows_the_numbers_that_its_command_prints(inside: Embcli) -> None:
    desk = desk_of()
    screens = 0
    for keys in (
        ["j", "j", "right"],
        ["s"],
        ["space", "j", "s"],
        ["h"],
        ["h", "s", "enter"],
        ["p"],
        ["tab", "j", "n"],
        ["w"],
        ["escape", "c"],
        ["w"],
        ["escape", "escape", "escape", "m"],
        ["tab"],
        ["escape", "l", *"Hi there", "enter"],
        ["b"],
        ["plus", "right_square_bracket"],
    ):
        for key in keys:
            press(desk, "space" if key == " " else key)
            frame(desk, 120, 40)
        assert not desk.said, (keys, desk.said)
        check_numbers(desk, inside)
        screens += 1
    assert screens == 15

"""Any words on the command line: an answer or a sentence, whatever they are.

`python -m tests.fuzz_arguments [COUNT] [SEED]` tries so many; the suite tries a few.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import typer

from embcli import formats, names
from embcli.cli.app import command_line
from tests.conftest import Ran
from tests.inside import Inside

COMMANDS = typer.main.get_command(command_line()).commands
ODD = [
    "",
    "-",
    "--",
    "-5 degrees",
    "[bold]",
    "\x1b[2J",
    "\udcff",
    "\ud800",
    "\u202eab",
    "é",
    "漢字",
    "9" * 5000,
    "=",
    "%s",
]
WHOLE = ["1", "2", "0", "3", "7", "-1", "x", "1e3", "99999999999", "9" * 401]
CHOSEN = ["0:2", "0", ":", ":,:,:", "-1", "5:2", "x", "0:1:2", "100", ""]
SEEDS = ["0", "123", "18446744073709551615", "18446744073709551616", "-1"]
# The first two are good. No value asks for much: what is not small is refused.
VALUES: dict[str, list[str]] = {
    "--file": ["text.txt", "/dev/null", "none", ".", "bytes", "-"],
    "--ids": ["2,3,1", "[1, 2]", "1 2", "-1", "1,x", "50257", "-", ",", "0"],
    "--encoding": [*names.ENCODINGS, "gpt-4o", "gpt3", "gpt4", "gpt2,o200k_base", "gpt2,"],
    "--seed": SEEDS,
    "--show": [*names.MATRICES, *names.STEPS, *names.OUTPUTS, "token,input", "embedding,linear", ","],
    "--columns": CHOSEN,
    "--rows": CHOSEN,
    "--layer": [*get_args(names.Layer), "x"],
    "--color": ["auto", "always", "never", "red"],
    "--format": [*formats.FORMATS, *formats.ALIASES, "yaml"],
    "--output": ["-", "out.json", "out", *(f"out.{name}" for name in formats.FORMATS), "none/out", ".", "text.txt/x"],
    "--show-completion": ["bash", "zsh", "tcsh"],
}
TEXTS = ["Every effort moves you", "hi", "a b", "<|endoftext|>", "6109", *ODD]


def vector(chance: random.Random) -> list[str]:
    """Return some words, most of them such that they might have been meant."""
    command = chance.choice([*COMMANDS, *COMMANDS, "cache clear", "lookpu", ""])
    words = command.split()
    known = COMMANDS.get(command, COMMANDS["lookup"])
    if command in ("weights", "audit") or chance.random() < 0.5:
        words += ["--vocab", chance.choice(["6", "100"]), "--dim", chance.choice(["3", "16"])] * (command in _SIZED)
    options = [option for option in known.params if option.opts[0].startswith("-")]
    for _ in range(chance.choice([0, 1, 1, 2, 3, 6]) if options else 0):
        option = chance.choice(options)
        name = chance.choice(option.opts)
        if getattr(option, "is_flag", False):
            words.append(name)
            continue
        values = VALUES.get(option.opts[0], WHOLE)
        value = chance.choice(chance.choices([values[:2], values, ODD], [15, 4, 1])[0])
        words += [[name, value], [f"{name}={value}"], [name]][chance.choices([0, 1, 2], [12, 6, 1])[0]]
    for _ in range(chance.choices([0, 1, 2], [3, 4, 1])[0] if command in _READING else chance.random() < 0.05):
        words.insert(chance.randint(1 if words else 0, len(words)), chance.choice(TEXTS))
    if chance.random() < 0.1:
        words.insert(
            chance.randint(0, len(words)), chance.choice(["--help", "-h", "-V", "--version", "--nonsense", "-x"])
        )
    if chance.random() < 0.05:
        chance.shuffle(words)
    if words and chance.random() < 0.1:
        place = chance.randrange(len(words))
        words[place] = words[place][: chance.randint(0, len(words[place]))]
    return [] if _is_large(words) else words


_SIZED = ("weights", "lookup", "compare", "audit", "neighbors")
_READING = ("tokenize", "decode", "lookup", "compare")


def _is_large(words: list[str]) -> bool:
    """Say whether this would go through a whole layer of 50,257 rows, or all steps of the tour."""
    whole = {"weights", "audit"} & {*words} and "--vocab" not in words
    return bool(whole) or ("tour" in words and "--step" not in words)


def fault(ran: Ran) -> str:
    """Return what is wrong with the end of a run; nothing, as it should be."""
    said = [line for line in ran.err.splitlines() if line]
    told = [line for line in said if not any(note in line for note in _NOTES)]
    if ran.status not in (0, 1, 2):
        return f"status {ran.status}"
    if "Traceback" in ran.err:
        return "a traceback"
    if ran.status < 2:
        return "an error without status 2" if told else ""
    if not told or not told[0].startswith("embcli: ") or len(told) > 2:
        return f"an error of {len(told)} lines"
    return "output beside an error" if ran.out else ""


_NOTES = (
    *("embcli: the input is empty", "embcli: nothing is cached", "embcli: no JSON", "embcli: NaN"),
    *(" is read as a text; for ", "embcli: status 1: "),
)


def _given_up() -> None:
    raise AssertionError("standard output is given up, which nothing hinders here")


def run(count: int, seed: int, folder: Path) -> tuple[list[str], Counter[int]]:
    """Try so many vectors in a folder of their own; return what went wrong, and how often each status came."""
    chance, faults, statuses = random.Random(seed), [], Counter[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("EMBCLI_CACHE_DIR", str(folder / "cache"))
        patch.setenv("HOME", str(folder))
        patch.setattr("embcli.__main__._silence", _given_up)  # it is this process's own standard output
        for number in range(count):
            (folder / "text.txt").write_text("Every effort\nmoves you\n")
            (folder / "bytes").write_bytes(b"caf\xe9")
            words, form = vector(chance), chance.choice([*[""] * 9, *formats.FORMATS, "jsonl", "x"])
            stdin, terminal = chance.choice(["", "hi", "1 2", "\x00\ufeff"]), chance.random() < 0.3
            try:
                ran = Inside(terminal)(*words, stdin=stdin, EMBCLI_FORMAT=form)
                statuses[ran.status] += 1
                wrong = fault(ran) and f"{fault(ran)}: {ran.err[:300]!r}"
            except BaseException as error:  # whatever it is, it is a fault
                wrong = repr(error)
            if wrong:
                faults.append(f"{number}: {words!r} {form=} {stdin=} {terminal=}: {wrong}")
    return faults, statuses


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    many, start = map(int, [*sys.argv[1:], *("20000", "0")[len(sys.argv) - 1 :]])
    with tempfile.TemporaryDirectory() as name:
        found, counted = run(many, start, Path(name))
    print(*found, dict(counted), sep="\n")
    sys.exit(bool(found))

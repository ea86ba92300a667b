"""Completion: the scripts in completions/ in real shells, and what may be typed before TAB.

PowerShell's script is compared, and what it asks is asked, but it is not run.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import tiktoken

from embcli import formats, names
from tests.cases import cases, data
from tests.runners import PARSERS, TIMEOUT, Child, InProcess

FOLDER = Path(__file__).parents[1] / "completions"
SCRIPTS = {
    "bash": FOLDER / "embcli.bash",
    "zsh": FOLDER / "_embcli",
    "fish": FOLDER / "embcli.fish",
    "powershell": FOLDER / "embcli.ps1",
    "pwsh": FOLDER / "embcli.ps1",
}

ENCODINGS = tiktoken.list_encoding_names()


def flags(command: str) -> set[str]:
    """Return all options of a command."""
    spellings = {
        flag
        for option in PARSERS[command].params
        for flag in (*option.opts, *option.secondary_opts)
    }
    return {flag for flag in spellings if flag.startswith("-")} | {"-h", "--help"}


def beginning(start: str, known: Iterable[str]) -> set[str]:
    """Return the names that begin with this."""
    return {name for name in known if name.startswith(start)}


# What is typed, and all that the last word of it may become.
CASES = {
    "embcli ": set(PARSERS),
    "embcli --version ": set(PARSERS),
    "embcli cache ": {"list", "clear"},
    "embcli lookup -": flags("lookup"),
    "embcli tokenize x --": beginning("--", flags("tokenize")),
    "embcli lookup --encoding ": set(ENCODINGS),
    "embcli lookup --encoding gp": {"gpt2"},
    "embcli lookup --encoding no": {"notes.txt"},
    "embcli decode 1 2 --encoding o": beginning("o", ENCODINGS),
    "embcli tokenize x --encoding gpt2,o": {f"gpt2,{name}" for name in beginning("o", ENCODINGS)},
    "embcli weights --rows 0:5 --format ": set(formats.FORMATS),
    "embcli lookup 'it''s = a \"test\"' -f n": beginning("n", formats.FORMATS),
    "embcli weights --layer ": set(get_args(names.LayerName)),
    "embcli lookup --show ": set(names.MATRICES),
    "embcli lookup --show input,token,": {"input,token,position", "input,token,hidden"},
    "embcli compare --show em": {"embedding"},
    "embcli compare --show shared,": {f"shared,{name}" for name in {*names.COMPARED} - {"shared"}},
    "embcli --show-completion ": set(SCRIPTS),
    "embcli lookup --file no": {"notes.txt"},
    "embcli info -o no": {"notes.txt"},
}


# What is typed, and what becomes of it when TAB is pressed once.
LINES = data(__name__)["lines"]

SETUP = {
    "bash": r"""
        bind 'set enable-bracketed-paste off'
        bind '"\C-xa": insert-completions'
        bind -x '"\C-xp": printf "<<%s>>\n" "$READLINE_LINE"; READLINE_LINE='
        """,
    "zsh": r"""
        unsetopt zle_bracketed_paste prompt_sp auto_menu
        autoload -Uz compinit; compinit -D -u
        zle -C all complete-word _generic; bindkey '^Xa' all
        zstyle ':completion:all:*' completer _all_matches _complete
        zstyle ':completion:all:*' insert yes
        show() { print -r -- "<<$BUFFER>>"; BUFFER= }; zle -N show; bindkey '^Xp' show
        """,
}
START = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
# Keys: insert all candidates; show the line and clear it; clear it.
ALL = "\x18a"
SHOW = "\x18p"
CLEAR = "\x15"


class Shell:
    """bash or zsh in a terminal, with embcli's script loaded."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str]) -> None:
        self.shell = Child(
            name,
            START[name],
            cwd=folder,
            env={**environment, "TERM": "dumb", "PS1": "", "HISTFILE": os.devnull},
            encoding="utf-8",
            echo=False,
            timeout=TIMEOUT,
            dimensions=(50, 1000),
        )
        script = shlex.quote(str(SCRIPTS[name]))
        for line in (*SETUP[name].splitlines(), f"source {script}", "PS1=", "echo rea''dy"):
            self.shell.sendline(line.strip())
        self.shell.expect_exact("ready")

    def press(self, line: str, key: str) -> str:
        """Type a line, press a key, and return what the line has become.

        No error may have come out on the way.
        """
        self.shell.send(CLEAR + line + key + SHOW)
        self.shell.expect("<<(.*?)>>")
        assert "Traceback" not in self.shell.before
        assert "Error" not in self.shell.before
        return self.shell.match[1]

    def candidates(self, line: str) -> list[str]:
        """Return all that the last word of a line may become."""
        before = line[: line.rindex(" ") + 1]
        return self.press(line, ALL).removeprefix(before).split()

    def close(self) -> None:
        """End the shell."""
        self.shell.close(force=True)


# The program embcli of a shell hands its environment to this process, which needs no start.
PROGRAM = """#!/bin/sh
env -0 > {folder}/asked
{{ read status; cat; }} < {folder}/answer
exit $status
"""


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    in_process: InProcess,
) -> Iterator[Shell]:
    """Yield a shell in a folder with a file."""
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp("folder")
    (folder / "notes.txt").touch()

    programs = tmp_path_factory.mktemp("programs")
    program = programs / "embcli"
    program.write_text(PROGRAM.format(folder=programs))
    program.chmod(0o755)
    os.mkfifo(programs / "asked")
    os.mkfifo(programs / "answer")
    threading.Thread(target=_answer, args=(in_process, programs), daemon=True).start()

    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    opened = Shell(name, folder, {**os.environ, "PATH": path, "HOME": str(folder)})
    yield opened
    opened.close()


def _answer(in_process: InProcess, folder: Path) -> None:
    """Answer each request of a shell's script by what it has in its environment."""
    while True:
        variables = (folder / "asked").read_bytes().decode().removesuffix("\0").split("\0")
        environment = dict(variable.split("=", 1) for variable in variables)
        request = {
            name: value for name, value in environment.items() if name.startswith(("_", "COMP_"))
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(environment["PWD"])
            ran = in_process(**request)
        error = f"Error: {ran.err}" if ran.err else ""
        (folder / "answer").write_text(f"{ran.status}\n{ran.text}{error}")


@pytest.mark.parametrize("line", CASES)
def test_all_that_is_meant_completes_and_nothing_else(shell, line):
    offered = shell.candidates(line)
    assert set(offered) == CASES[line]
    assert len(offered) == len(CASES[line])


@pytest.mark.parametrize("line", LINES)
def test_tab_completes_the_line_or_leaves_it(shell, line):
    assert shell.press(line, "\t") == LINES[line]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_what_the_program_prints(name, in_process):
    assert in_process.ok("--show-completion", name).text == SCRIPTS[name].read_text()


def test_the_empty_request_that_powershell_leaves_behind_is_none(in_process):
    expected = in_process.ok("tokenize", "hi").text
    assert in_process.ok("tokenize", "hi", _EMBCLI_COMPLETE="").text == expected


# --- models ---------------------------------------------------------------------------------------


@pytest.fixture
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with three models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    for folder in ("models--org--one", "models--org--two", "models--gpt2", "datasets--org--set"):
        (tmp_path / "hub" / folder).mkdir(parents=True)


@pytest.mark.usefixtures("_models")
@cases
def test_models_of_the_cache_complete(line, offered, in_process):
    words = f"embcli {line}"
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = in_process(_EMBCLI_COMPLETE="complete_bash", **asked)
    assert ran.text.split() == offered
    assert not ran.err


@cases
def test_a_place_that_bash_does_not_give_is_the_first(environment, in_process):
    ran = in_process.ok(_EMBCLI_COMPLETE="complete_bash", **environment)
    assert set(ran.text.split()) == set(PARSERS)


# --- faults ---------------------------------------------------------------------------------------


@cases
def test_an_unknown_request_is_refused_and_named(asked, in_process):
    message = in_process.refused(_EMBCLI_COMPLETE=asked)
    assert "_EMBCLI_COMPLETE" in message
    assert "known request" in message
    assert "\x1b" not in message


FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/embcli.fish"}


@pytest.mark.parametrize("shell", FILES)
@pytest.mark.parametrize("odd", ["a home that is a file", "no home", "a folder in its place"])
def test_completion_that_cannot_be_installed_is_refused(tmp_path, shell, odd, in_process):
    home = tmp_path / "home"
    if odd == "no home":
        home = Path("/proc/none")
    elif odd == "a home that is a file":
        home.touch()
    else:
        (home / FILES[shell]).mkdir(parents=True)
    message = in_process.refused("--install-completion", shell, HOME=str(home))
    assert "cannot write" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("shell", FILES)
def test_completion_is_installed_once_after_what_the_file_holds(tmp_path, shell, in_process):
    file = tmp_path / FILES[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"alias e=\xff")

    in_process.ok("--install-completion", shell, HOME=str(tmp_path))
    in_process.ok("--install-completion", shell, HOME=str(tmp_path))

    content = file.read_bytes()
    assert content.startswith(b"alias e=\xff\n")
    assert content.count(SCRIPTS[shell].read_bytes().strip()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_disk_that_fills_up_leaves_the_start_file_as_it_was(tmp_path, shell, in_process):
    """A limit on the size of files fails as a full disk does, in the middle of a write."""
    start = tmp_path / f".{shell}rc"
    before = b"alias e=vi\n" * 9000
    start.write_bytes(before)

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        message = in_process.refused("--install-completion", shell, HOME=str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert f"'{start}': File too large" in message
    assert start.read_bytes() == before
    assert not [*tmp_path.glob(".embcli*")]


def test_powershell_is_told_how_to_install_it(in_process):
    assert "$PROFILE" in in_process.refused("--install-completion", "pwsh")

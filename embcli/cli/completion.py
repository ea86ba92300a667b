"""Completion of a shell's words: Typer answers its scripts; this installs them, and gets their requests in shape."""

import os
import re
from pathlib import Path
from typing import get_args

from typer import completion

from embcli.errors import InputError, OutputError
from embcli.names import PROGRAM, Shell

REQUEST = "_EMBCLI_COMPLETE"  # the variable with the request of a script, such as complete_bash
# For each shell the file that it starts with, or reads for completion, and what has to stand before the script there.
_FILES = {
    "bash": (".bashrc", ""),
    "zsh": (".zshrc", "autoload -Uz compinit; compinit\n"),
    "fish": (".config/fish/completions/embcli.fish", ""),
}


def prepare(request: str) -> list[str]:
    """Return the words typed so far, as a completion script that has started this process says; prepare the answer."""
    action, _, shell = request.partition("_")
    if action not in ("complete", "source") or shell not in get_args(Shell):
        raise InputError(
            f"{REQUEST} {request[:40]!r} is not a known request; unset it, or set complete_bash"
        )
    # Typer gets to know its shells as it makes its own two options; embcli has others in their place.
    completion.get_completion_inspect_parameters()
    os.environ["COLUMNS"] = (
        "10000"  # rich would wrap the help texts, and scripts read one line for each candidate
    )
    cursor = int(os.environ.get("COMP_CWORD", "0"))
    words = os.environ.get("COMP_WORDS", PROGRAM).split("\n")[: cursor + 1]
    # bash makes `--format = js` of `--format=js`, and Typer can complete `--format js`.
    typed, joined = re.subn(r"(\n--.*)\n=\n", r"\1\n", "\n".join(words))
    os.environ |= {"COMP_WORDS": typed, "COMP_CWORD": str(cursor - joined)}
    return (os.environ.get("_TYPER_COMPLETE_ARGS") or typed).split()[1:]


def script(shell: str) -> str:
    made: str = completion.get_completion_script(  # type: ignore[attr-defined]  # it does not list what it exports
        prog_name=PROGRAM, complete_var=REQUEST, shell=shell
    )
    return made


def install(shell: str) -> str:
    """Append the script to the shell's own file, and return what to tell; raises OutputError if that fails."""
    from embcli.atomic import destination, explaining_failure

    if shell not in _FILES:
        hint = f"embcli --show-completion {shell} prints the script: add it to the file that $PROFILE names"
        raise OutputError(f"completion for {shell} is not installed by embcli", hint)
    name, before = _FILES[shell]
    path = Path.home() / name
    block = f"{before}{script(shell)}\n".encode()
    with explaining_failure(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes() if path.exists() else b""
        if block not in lines:
            with destination(path) as file:
                file.write(lines + (b"\n" if lines else b"") + block)
    return f"{shell} completion is in {path}; it takes effect in a new terminal"

"""Completion of a shell's words, which Typer answers.

This module gets the requests of the shells' scripts in shape, and installs these scripts.
"""

import os
from pathlib import Path
from typing import get_args

from typer import completion

from embcli.errors import InputError, OutputError
from embcli.names import PROGRAM, Shell
from embcli.wording import number_in

REQUEST = "_EMBCLI_COMPLETE"  # the variable with the request of a script, such as complete_bash
# Each shell has a file that it starts with, or reads for completion, and needs some text before the
# script there.
_FILES = {
    "bash": (".bashrc", ""),
    "zsh": (".zshrc", "autoload -Uz compinit; compinit\n"),
    "fish": (".config/fish/completions/embcli.fish", ""),
}


def prepare(request: str) -> list[str]:
    """Return the words typed so far, and prepare Typer's answer.

    The request and the words come from the completion script that has started this process.
    """
    action, _, shell = request.partition("_")
    if action not in ("complete", "source") or shell not in get_args(Shell):
        raise InputError(
            f"{REQUEST} {request!r} is not a known request; unset it, or set complete_bash"
        )
    # Typer gets to know its shells as it makes its own two options; embcli has others in their
    # place.
    completion.get_completion_inspect_parameters()
    # rich would wrap the help texts, and scripts read one line for each candidate.
    os.environ["COLUMNS"] = "10000"
    # bash has these two; Typer fails without them.
    bash_words = os.environ.setdefault("COMP_WORDS", PROGRAM)
    if not number_in("COMP_CWORD"):
        os.environ["COMP_CWORD"] = "1"
    return (os.environ.get("_TYPER_COMPLETE_ARGS") or bash_words).split()[1:]


def script(shell: str) -> str:
    # The module does not list what it exports, so mypy does not know the function.
    get_script = completion.get_completion_script  # type: ignore[attr-defined]
    return get_script(prog_name=PROGRAM, complete_var=REQUEST, shell=shell)


def install(shell: str) -> str:
    """Append the script to the shell's own file, and return what to tell.

    Raises OutputError if that fails.
    """
    from embcli.atomic import destination, explaining_failure

    if shell not in _FILES:
        raise OutputError(
            f"completion for {shell} is not installed by embcli",
            f"embcli --show-completion {shell} prints the script: "
            "add it to the file that your shell reads first (PowerShell's is in $PROFILE)",
        )
    name, preparation = _FILES[shell]
    path = Path.home() / name
    block = f"{preparation}{script(shell)}\n".encode()
    with explaining_failure(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        if block not in content:
            if content:
                content += b"\n"
            with destination(path) as file:
                file.write(content + block)
    return f"{shell} completion is in {path}; it takes effect in a new terminal"

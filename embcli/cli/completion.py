"""Answers to the shells' completion scripts at each TAB: fast, and nothing but candidates.

Typer makes the scripts and reads their requests, which are environment variables: the program gets the words typed so
far, and prints the candidates.
"""

import os
import re
from typing import get_args

import typer  # whose annotations Typer itself reads
from typer import completion

from embcli import names
from embcli.errors import InputError, OutputError
from embcli.version import __version__

PROGRAM = "embcli"
_REQUEST = "_EMBCLI_COMPLETE"  # the variable with the request of a script, such as complete_bash


def show_version(context: typer.Context, requested: bool) -> None:
    """Show the version and end, unless the rest of the line is being completed."""
    if requested and not context.resilient_parsing:
        typer.echo(f"embcli {__version__}")
        raise typer.Exit


def prepare() -> bool:
    """Return whether a completion script has started this process, and prepare for the answer."""
    request = os.environ.get(_REQUEST)
    if not request:  # PowerShell's script leaves it behind, empty
        return False
    if not re.fullmatch(f"(complete|source)_({'|'.join(get_args(names.Shell))})", request):
        raise InputError(f"{_REQUEST} {request[:40]!r} is not a known request; unset it, or set complete_bash")
    # Typer gets to know its shells as it makes its own two options; embcli has others in their place, see options.py.
    completion.get_completion_inspect_parameters()
    os.environ["COLUMNS"] = "10000"  # rich would wrap the help texts, and scripts read one line for each candidate
    if not os.environ.get("COMP_CWORD", "").isdecimal():  # not asked by a shell's script
        os.environ |= {"COMP_WORDS": PROGRAM, "COMP_CWORD": "0"}
    _take_equals_out()
    return True


def install(context: typer.Context, parameter: typer.CallbackParam, shell: str | None) -> str | None:
    """Install the script for a shell, if one is named; raises OutputError if it cannot be installed."""
    from subprocess import CalledProcessError

    reason: object
    try:
        installed: str | None = completion.install_callback(context, parameter, shell)
        return installed
    except OSError as error:  # names the file; one without a name is about standard output
        if error.filename is None:
            raise
        reason = f"{str(error.filename)!r}: {error.strerror}"
    except UnicodeError:
        reason = "a file that it reads when it starts is not UTF-8"
    except CalledProcessError as error:
        reason = f"it ended with status {error.returncode}"
    cure = f"; embcli --show-completion {shell} prints the script"
    raise OutputError(f"cannot install completion for {shell}: {reason}{cure}") from None


def _take_equals_out() -> None:
    """Change `--format = js`, which bash makes of `--format=js`, to `--format js`, which Typer can complete."""
    words, cursor = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if "=" in words and cursor.isdecimal():
        before = range(1, min(int(cursor), len(words)))
        extra = {at for at in before if words[at] == "=" and words[at - 1].startswith("--")}
        os.environ["COMP_WORDS"] = "\n".join(word for at, word in enumerate(words) if at not in extra)
        os.environ["COMP_CWORD"] = str(int(cursor) - len(extra))

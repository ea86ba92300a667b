"""The options and arguments of all commands, each declared once, as an annotated type; and the flags of parameters."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from embcli import names

# Parameters of the library whose flags have other names; all others are flags of the same name.
_FLAGS = {"top": "-k", "path": "--from", "text": "TEXT", "word": "WORD"}


def flag_of(parameter: str) -> str:
    """Return a parameter of the library as a user types it.

    >>> flag_of("context_length"), flag_of("path")
    ('--context-length', '--from')
    """
    return _FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")


def some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of a name, or of the last of some comma-separated names, by those that are not used yet."""

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        others = [name for name in known if name not in before and name.startswith(last)]
        return [",".join([*before, name]) for name in others] if {*before} <= {*known} else []

    return complete


def explained_words(incomplete: str) -> list[str]:
    """Complete a word that is explained; words that a shell would have to quote are omitted."""
    from embcli.verbs.explain import named

    return sorted(
        {
            name
            for name in named()
            if re.fullmatch(r"\w[\w.-]*", name) and name.startswith(incomplete)
        }
    )


def encodings(incomplete: str) -> list[str]:
    """Complete the last of some encodings, or a folder or a tokenizer's file that needs no quotes."""
    if "," in incomplete:
        return some_of(names.ENCODINGS)(incomplete)
    known = [name for name in names.ENCODINGS if name.startswith(incomplete)]
    if known and incomplete:
        with suppress(OSError), os.scandir() as entries:  # the folder may be gone or unreadable
            here = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
            plain = filter(re.compile(r"[\w.-]+(/|\.(json|gguf|tiktoken))").fullmatch, here)
            known += [name for name in plain if name.startswith(incomplete)]
    return known


def argument(metavar: str, help: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False, **settings)


def option(
    panel: str, help: str, spelling: str = "", default: str | bool = True, **settings: Any
) -> Any:
    """Return an option as it is spelled: flags, if they are not the parameter's name, and a metavar."""
    flags = [word for word in spelling.split() if word.startswith("-")]
    metavar = " ".join(spelling.split()[len(flags) :]) or None
    return typer.Option(
        *flags, metavar=metavar, help=help, rich_help_panel=panel, show_default=default, **settings
    )


MODEL = "A model: file, folder, or name in the Hugging Face cache."
ENCODING = "An encoding or a model by tiktoken's name, a tokenizer's file, or a GGUF."

# What is given.
Lines = Annotated[
    bool, option("Input", "Make each line of the input a sequence of its own.", "--lines")
]
Encoding = Annotated[
    str | None,
    option(
        "Input",
        ENCODING,
        "NAME",
        f"{names.DEFAULT_ENCODING}; of a real model, its own",
        autocompletion=encodings,
    ),
]

# The model.
Path_ = Annotated[str | None, argument("PATH", MODEL)]
Tensor = Annotated[str | None, option("Model", "The token matrix in that file.", "NAME")]
Vocab = Annotated[int | None, option("Model", "Rows of the token layer.", "V", "the encoding's")]
Dim = Annotated[
    int | None, option("Model", "Columns: the embedding dimension.", "D", str(names.DEFAULT_DIM))
]
Seed = Annotated[
    int | None, option("Model", "Seed of torch's generator.", "INT", str(names.DEFAULT_SEED))
]
NoCache = Annotated[bool, option("Model", "Do not use the cache.", "--no-cache")]

# What is shown.
Rows = Annotated[str | None, option("View", "Which rows: 0:5,100,50256.", "ROWS")]
Columns = Annotated[
    str | None, option("View", "Which columns: 0:8,255 (8 not included).", "COLUMNS")
]
Sort = Annotated[names.Sort, option("View", "Order of the rows; norm: the largest first.")]
Draw = Annotated[bool, option("View", "Draw it as a picture.", "--draw")]
TopOfEach = Annotated[int, option("View", "Rows of each kind to show.", "--top -k K")]

# Where the result goes.
Output = Annotated[
    str | None, option("Output", "Write to a file; written atomically.", "--output -o PATH", False)
]

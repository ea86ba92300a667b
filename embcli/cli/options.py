"""The options and arguments that several commands share, and the flags of parameters.

Each is declared once, as an annotated type, and named in the signature of a command or in a group.
"""

import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from embcli import names
from embcli.errors import InputError
from embcli.formats import VIEWS, FormatName

# Parameters of the library whose flags have other names; all others are flags of the same name.
_FLAGS = {"top": "-k", "path": "--from", "kind": "KIND", "text": "TEXT", "word": "WORD"}


def flag_of(parameter: str) -> str:
    """Return a parameter of the library as a user types it.

    >>> flag_of("context_length"), flag_of("path")
    ('--context-length', '--from')
    """
    return _FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")


def some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a function that completes one of these names, or the last of several with commas.

    It offers only names that are not used yet; without any, the shell completes paths.
    """

    def complete(incomplete: str) -> list[str]:
        *used, last = incomplete.split(",")
        if not {*used} <= {*known}:
            return []
        others = [name for name in known if name not in used and name.startswith(last)]
        return [",".join([*used, name]) for name in others]

    return complete


def explained_words(incomplete: str) -> list[str]:
    """Complete a word that is explained; words that a shell would have to quote are omitted."""
    from embcli.verbs.explain import named

    plain = {name for name in named() if re.fullmatch(r"\w[\w.-]*", name)}
    return sorted(name for name in plain if name.startswith(incomplete))


def models(incomplete: str) -> list[str]:
    """Complete the name of a model in the Hugging Face cache.

    Without such a model there are no names, and the shell completes paths.
    """
    from embcli.hub.local import cache_folder, cached_names

    return [name for name in cached_names(cache_folder()) if name.startswith(incomplete)]


def listed(words: str) -> tuple[str, ...]:
    """Return comma-separated names, which the library checks."""
    return tuple(name.strip() for name in words.split(","))


def several(encodings: list[str]) -> list[str]:
    """Return the encodings that are named, one or several in a word."""
    return [str(made_from_input(name)) for name in listed(",".join(encodings))]


def made_from_input(encoding: str | None) -> str | None:
    """Return the name of an encoding; that of a vocabulary made from standard input has its path.

    Nothing else can read standard input then.
    """
    kind, _, place = (encoding or "").partition(":")
    if kind not in names.MADE_FROM_TEXT or place.partition(":")[0] != "-":
        return encoding
    if sys.stdin is None or sys.stdin.isatty():
        example = f"{names.PROGRAM} weights --encoding words:- < story.txt"
        raise InputError(f"{encoding} needs a text that is piped in, as in: {example}")
    sys.stdin = None
    return f"{kind}:{place.replace('-', '/dev/stdin', 1)}"


def argument(metavar: str, help: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False, **settings)


def option(
    panel: str, help: str, spelling: str = "", *, default: str | bool = True, **settings: Any
) -> Any:
    """Return an option in a panel of the help.

    Its spelling has flags, unless they are the parameter's name, and a metavar: `--top -k K`. The
    default is what the help shows as such: a text, or whether to show the parameter's own.
    """
    words = spelling.split()
    flags = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(flags) :])
    return typer.Option(
        *flags,
        metavar=metavar or None,
        help=help,
        rich_help_panel=panel,
        show_default=default,
        **settings,
    )


class ShownIn(NamedTuple):
    """A mark at an option that only some formats can show."""

    formats: tuple[FormatName, ...]


ON_PAGES = ShownIn(VIEWS)


MODEL = "A model: file, folder, name in the Hugging Face cache, or hf://org/name."
ENCODING = (
    "An encoding or a model by tiktoken's name, a tokenizer's file, a GGUF, words:TEXTFILE, or "
    "bpe:TEXTFILE:N."
)

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
        default=f"{names.DEFAULT_ENCODING}; of a real model, its own",
        callback=made_from_input,
        autocompletion=some_of(names.ENCODINGS),
    ),
]
DEFAULT_ENCODINGS = [names.DEFAULT_ENCODING]
Encodings = Annotated[
    list[str],
    option(
        "Input",
        "An encoding or model, a tokenizer's file, or a GGUF; several are compared: "
        "gpt2,o200k_base.",
        "--encoding NAMES",
        default=names.DEFAULT_ENCODING,
        callback=several,
        autocompletion=some_of(names.ENCODINGS),
    ),
]
Special = Annotated[
    bool,
    option(
        "Input",
        "Recognise special tokens; add those that a model reads around a text.",
        "--special",
    ),
]

# The model.
Path_ = Annotated[str | None, argument("PATH", MODEL, autocompletion=models)]
Tensor = Annotated[
    str | None,
    option("Model", "The token matrix in that file.", "NAME"),
]
Vocab = Annotated[
    int | None, option("Model", "Rows of the token layer.", "V", default="the encoding's")
]
Dim = Annotated[
    int | None,
    option("Model", "Columns: the embedding dimension.", "D", default=str(names.DEFAULT_DIM)),
]
Seed = Annotated[
    int | None,
    option("Model", "Seed of torch's generator.", "INT", default=str(names.DEFAULT_SEED)),
]
NoCache = Annotated[bool, option("Model", "Do not use the cache.", "--no-cache")]

TokenLayer = Annotated[
    names.TokenLayer,
    option("Model", "Token matrix or output head; the same if tied."),
]
OnlyLayer = Annotated[
    names.TokenLayer | None,
    option("Model", "Only this matrix.", "", default="token, and a head of its own"),
]

# What is shown.
Rows = Annotated[str | None, option("View", "Which rows: 0:5,100,50256.", "ROWS")]
Match = Annotated[str | None, option("View", "Only tokens matching REGEX.", "REGEX")]
Columns = Annotated[
    str | None, option("View", "Which columns: 0:8,255 (8 not included).", "COLUMNS")
]
Sort = Annotated[names.Sort, option("View", "Order of the rows; norm: the largest first.")]
Draw = Annotated[bool, option("View", "Draw it as a picture.", "--draw"), ON_PAGES]
Map = Annotated[
    bool, option("View", "Map the rows by two principal components.", "--map"), ON_PAGES
]
TopOfEach = Annotated[int, option("View", "Rows of each kind to show.", "--top -k K")]

# Where the result goes.
Output = Annotated[
    str | None,
    option("Output", "Write to a file; written atomically.", "--output -o PATH", default=False),
]

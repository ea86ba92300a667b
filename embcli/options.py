"""The options that verbs share, each declared once, so that a flag means the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from typer.completion import install_callback, show_callback

from embcli.encodings import DEFINITIONS

Format = Literal["table", "json", "ndjson", "csv", "tsv", "npy", "safetensors", "ids"]
Color = Literal["auto", "always", "never"]
LayerName = Literal["token", "position"]
MatrixName = Literal["token", "position", "input"]
StepName = Literal["ids", "one-hot", "first", "shared", "outputs"]
Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]
Errors = Literal["strict", "replace"]


def _whole(value: str | int) -> int:
    """Parse a whole number; torch, numpy and embcli itself say what is wrong with one that is out of range."""
    try:
        return int(value)
    except ValueError:
        shown = str(value)[:40]
        if str(value).strip().lstrip("+-").isdecimal():  # Python converts no more than some thousand digits
            raise typer.BadParameter(f"{shown}... is out of range.") from None
        raise typer.BadParameter(f"{shown!r} is no whole number.") from None


def _encodings(incomplete: str) -> list[str]:
    return [name for name in DEFINITIONS if name.startswith(incomplete)]


def _matrices(incomplete: str) -> list[str]:
    return _last_of(incomplete, get_args(MatrixName))


def _steps(incomplete: str) -> list[str]:
    return _last_of(incomplete, get_args(StepName))


def _last_of(incomplete: str, known: tuple[str, ...]) -> list[str]:
    """Complete the last of the names between commas, by those that do not stand before it."""
    *given, _ = incomplete.split(",")
    return [",".join([*given, name]) for name in known if name not in given] if set(given) <= set(known) else []


# Typer's own two options of these names find out the shell that they run in; here it is named, so that a script can be
# made anywhere.
ShowCompletion = Annotated[
    Shell | None,
    typer.Option("--show-completion", help="Print the completion script for a shell.", callback=show_callback),
]
InstallCompletion = Annotated[
    Shell | None,
    typer.Option("--install-completion", help="Install completion for a shell.", callback=install_callback),
]
Text = Annotated[
    str | None,
    typer.Argument(metavar="[TEXT]", help="The text; - or nothing reads standard input.", show_default=False),
]
CompareText = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEXT]",
        help="The text; - reads standard input, and without TEXT, --file and --ids the IDs are 2,3,1.",
        show_default=False,
    ),
]
File = Annotated[Path | None, typer.Option("--file", metavar="PATH", help="Read the text from a file.")]
Ids = Annotated[
    str | None,
    typer.Option("--ids", metavar="IDS", help="Token IDs in place of TEXT: 2,3,5,1; - reads standard input."),
]
Lines = Annotated[bool, typer.Option("--lines", help="Make each line of the input a sequence of its own.")]
InputErrors = Annotated[Errors, typer.Option("--errors", help="Refuse or replace bytes that are no UTF-8.")]
Encoding = Annotated[
    str,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="tiktoken's name of an encoding or of a model (gpt-4o).",
        autocompletion=_encodings,
    ),
]
Special = Annotated[bool, typer.Option("--special", help="Read special tokens in the text as such.")]
Seed = Annotated[int, typer.Option("--seed", parser=_whole, metavar="INT", help="Seed of torch's generator.")]
Vocab = Annotated[
    int | None,
    typer.Option("--vocab", parser=_whole, metavar="V", help="Rows of the token layer.", show_default="the encoding's"),
]
Dim = Annotated[int, typer.Option("--dim", parser=_whole, metavar="D", help="Columns: the embedding dimension.")]
ContextLength = Annotated[
    int, typer.Option("--context-length", parser=_whole, metavar="C", help="Rows of the position layer.")
]
Window = Annotated[bool, typer.Option("--window", help="Cut longer input into sequences of C tokens.")]
Show = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="NAMES",
        help="Which matrices: token, position, input.",
        show_default="all",
        autocompletion=_matrices,
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="NAMES",
        help="Which steps: ids, one-hot, first (the linear layer's own first weights), shared, outputs; or one output "
        "for csv, tsv and npy: embedding, linear.",
        show_default="outputs, and what fits on the screen",
        autocompletion=_steps,
    ),
]
TraceProducts = Annotated[bool, typer.Option("--trace", help="Write out the product of each token.")]
Gradients = Annotated[bool, typer.Option("--gradient", help="Compare the gradients of one backward pass, too.")]
Bench = Annotated[bool, typer.Option("--bench", help="Measure both for growing V, up to --vocab or the encoding's.")]
VocabOfIds = Annotated[
    int | None,
    typer.Option(
        "--vocab",
        parser=_whole,
        metavar="V",
        help="Rows of the token layer.",
        show_default="the encoding's; with --ids, the largest ID + 1",
    ),
]
Rows = Annotated[str | None, typer.Option("--rows", metavar="ROWS", help="Which rows: 0:5,100,50256.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="COLUMNS", help="Which columns: 0:8,255 (8 not included).")
]
Layer = Annotated[LayerName, typer.Option("--layer", help="Which layer.")]
Trace = Annotated[
    int | None,
    typer.Option("--trace", parser=_whole, metavar="N", help="Spell out the sum for token N, counted from 0."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep layers in the cache folder.")]
Form = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-f",
        help="Form of the result; ids is for tokenize.",
        show_default="by --output's suffix, EMBCLI_FORMAT, or table",
    ),
]
OutputPath = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write to a file, whole or not at all.")
]
Precision = Annotated[int, typer.Option("--precision", parser=_whole, metavar="N", help="Decimals in a table.")]
ColorChoice = Annotated[Color, typer.Option("--color", help="Colour in a table.")]


def names(given: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...] | None:
    """Return the names in a list between commas, in the known order; None where nothing was given.

    Raises InputError for a name that is not known.
    """
    if given is None:
        return None
    from embcli.errors import InputError

    chosen = [name.strip() for name in given.split(",")]
    for name in chosen:
        if name not in known:
            raise InputError(
                f"{option} {name[:40]!r} is not known; choose from {', '.join(known)}, with commas between"
            )
    return tuple(name for name in known if name in chosen)

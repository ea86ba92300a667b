"""The options and arguments of all commands, each declared once, as an annotated type; and the flags of parameters."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from embcli import formats, names
from embcli.positions import JOINED_KINDS, KINDS

INPUT, MODEL, VIEW, OUTPUT = "Input", "Model", "View", "Output"

# Parameters of the library whose flags have other names; all others are flags of the same name.
_FLAGS = {"top": "-k", "path": "--from", "text": "TEXT", "word": "WORD"}
_OTHER_KINDS = {"rope": "rotary"}  # names that papers have for kinds of positions


def flag_of(parameter: str) -> str:
    """Return a parameter of the library as a user types it.

    >>> flag_of("context_length"), flag_of("path")
    ('--context-length', '--from')
    """
    return _FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")


def kind_named(value: str) -> str:
    """Return a kind of positions by its name or another name for it; an unknown name stays as it is."""
    return _OTHER_KINDS.get(value, value)


def some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of the last of some comma-separated names, by names that are not used yet."""

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        others = [name for name in known if name not in before and name.startswith(last)]
        return [",".join([*before, name]) for name in others] if {*before} <= {*known} else []

    return complete


def _one_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def _words(incomplete: str) -> list[str]:
    """Complete a word that is explained; words that a shell would have to quote are omitted."""
    from embcli.verbs.explain import named

    return sorted({name for name in named() if re.fullmatch(r"\w[\w.-]*", name) and name.startswith(incomplete)})


def _encodings(incomplete: str) -> list[str]:
    """Complete the last of some encodings, or the name of a folder or a tokenizer's file.

    Shells offer files if nothing is returned. Names that a shell would have to quote are omitted.
    """
    if "," in incomplete:
        return some_of(names.ENCODINGS)(incomplete)
    known = [name for name in names.ENCODINGS if name.startswith(incomplete)]
    if known and incomplete:
        with suppress(OSError), os.scandir() as entries:  # the folder may be gone or unreadable
            here = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
            plain = filter(re.compile(r"[\w.-]+(/|\.(json|gguf|tiktoken))").fullmatch, here)
            known += [name for name in plain if name.startswith(incomplete)]
    return known


def _argument(metavar: str, help: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False, **settings)


def _option(
    panel: str, help: str, flags: str = "", metavar: str | None = None, default: Any = True, **more: Any
) -> Any:
    """Return an option; `flags` are separated by blanks, `default` is a default that the help describes in words."""
    settings = {"help": help, "rich_help_panel": panel, "metavar": metavar, "show_default": default, **more}
    return typer.Option(*flags.split(), **settings)


_MODEL = "A model: file, folder, or name in the Hugging Face cache."

# What is given.
Text = Annotated[str | None, _argument("TEXT", "Text to use; omit it or pass - to read standard input.")]
ComparedText = Annotated[str | None, _argument("TEXT", "Text to use, or - to read it; without any, the IDs 2,3,1.")]
TextFile = Annotated[Path | None, _argument("FILE", "A file with the text; omit it or pass - to read standard input.")]
Words = Annotated[list[str] | None, _argument("WORD", "A term, field or format of a page.", autocompletion=_words)]
GivenIds = Annotated[list[str] | None, _argument("IDS", "Token IDs: 6109 3626, or 6109,3626.")]
File = Annotated[Path | None, _option(INPUT, "Read the text from a file.", metavar="PATH")]
Ids = Annotated[
    str | None, _option(INPUT, "Token IDs in place of the text: 2,3,5,1, or - to read them.", metavar="IDS")
]
RowOf = Annotated[
    str | None, _option(INPUT, "Token row that the positions are applied to.", "--ids", metavar="ID", default="0")
]
Special = Annotated[bool, _option(INPUT, "Recognise special tokens in the text.", "--special")]
Lines = Annotated[bool, _option(INPUT, "Make each line of the input a sequence of its own.", "--lines")]
Window = Annotated[bool, _option(INPUT, "Split longer input into sequences of C tokens.", "--window")]
Plus = Annotated[list[str] | None, _option(INPUT, "Add the row of this token.", metavar="TEXT")]
Minus = Annotated[list[str] | None, _option(INPUT, "Subtract the row of this token.", metavar="TEXT")]
Vectors = Annotated[
    Path | None,
    _option(
        INPUT,
        "Vectors in place of the text, one per line: a JSON array, or an object of lookup's ndjson; - reads them.",
        "--vector",
        "PATH",
    ),
]
Encoding = Annotated[
    str | None,
    _option(
        INPUT,
        "An encoding or a model by tiktoken's name, a tokenizer's file, or a GGUF.",
        metavar="NAME",
        default=f"{names.DEFAULT_ENCODING}; of a real model, its own",
        autocompletion=_encodings,
    ),
]
Encodings = Annotated[
    list[str] | None,
    _option(
        INPUT,
        "An encoding or model, a tokenizer's file, or a GGUF; several are compared: gpt2,o200k_base.",
        "--encoding",
        "NAMES",
        names.DEFAULT_ENCODING,
        autocompletion=_encodings,
    ),
]
BatchSize = Annotated[int, _option(INPUT, "Samples in a batch.", metavar="B")]
MaxLength = Annotated[int, _option(INPUT, "Tokens in a sample.", metavar="T")]
Stride = Annotated[int, _option(INPUT, "Tokens from one sample to the next.", metavar="N")]
Shuffle = Annotated[bool, _option(INPUT, "Shuffle the samples.", "--shuffle")]
KeepLast = Annotated[bool, _option(INPUT, "Keep the last batch even if incomplete.", "--keep-last")]
Index = Annotated[int | None, _option(INPUT, "Which batch, counted from 0.", metavar="K", default="0")]
All = Annotated[bool, _option(INPUT, "All batches.", "--all")]

# The model.
Path_ = Annotated[str | None, _argument("PATH", _MODEL)]
Base = Annotated[str, _argument("BASE", _MODEL)]
Tuned = Annotated[str, _argument("TUNED", "The other model, usually fine-tuned from BASE.")]
From = Annotated[str | None, _option(MODEL, _MODEL, "--from", "PATH")]
Tensor = Annotated[str | None, _option(MODEL, "The token matrix in that file.", metavar="NAME")]
Vocab = Annotated[int | None, _option(MODEL, "Rows of the token layer.", metavar="V", default="the encoding's")]
Dim = Annotated[
    int | None, _option(MODEL, "Columns: the embedding dimension.", metavar="D", default=str(names.DEFAULT_DIM))
]
ComparedDim = Annotated[
    int | None, _option(MODEL, "Columns: the embedding dimension.", "--dim", "D", default=str(names.COMPARED_DIM))
]
ContextLength = Annotated[
    int | None, _option(MODEL, "Rows of the position layer.", metavar="C", default=str(names.DEFAULT_CONTEXT_LENGTH))
]
BatchContextLength = Annotated[
    int | None, _option(MODEL, "Rows of the position layer.", "--context-length", "C", default="--max-length")
]
PositionCount = Annotated[
    int | None,
    _option(
        MODEL,
        "T, the number of positions.",
        "--context-length",
        "T",
        default=f"{names.DEFAULT_CONTEXT_LENGTH}, of which a page shows 16; relative {names.SHORT_LENGTH}",
    ),
]
Seed = Annotated[
    int | None, _option(MODEL, "Seed of torch's generator.", metavar="INT", default=str(names.DEFAULT_SEED))
]
NoCache = Annotated[bool, _option(MODEL, "Do not use the cache.", "--no-cache")]
Layer = Annotated[names.Layer, _option(MODEL, "Which layer.")]
KindOrPath = Annotated[
    str | None,
    _argument("KIND", f"{', '.join(KINDS[:-1])} or {KINDS[-1]}; or PATH.", autocompletion=_one_of(KINDS)),
]
Kind = Annotated[
    str | None, _option(MODEL, "Which kind of positions.", metavar="KIND", default=False, autocompletion=_one_of(KINDS))
]
Joined = Annotated[
    str | None,
    _option(
        MODEL,
        f"Positions that join the token rows: {', '.join(JOINED_KINDS)}.",
        "--position",
        "KIND",
        autocompletion=_one_of(JOINED_KINDS),
    ),
]
Pairing = Annotated[
    names.Pairing | None,
    _option(MODEL, "Which columns rotary positions rotate together.", default="interleaved"),
]
Theta = Annotated[float | None, _option(MODEL, "Base of the rotary angles.", default=f"{names.DEFAULT_THETA:g}")]

# What is shown.
Matrices = Annotated[
    str | None,
    _option(
        VIEW,
        "Which matrices: token, position, input, hidden.",
        "--show",
        "NAMES",
        autocompletion=some_of(names.MATRICES),
        default="all",
    ),
]
Steps = Annotated[
    str | None,
    _option(
        VIEW,
        "Steps: ids, one-hot, first (the linear layer's own weights), shared, outputs; or embedding or linear.",
        "--show",
        "NAMES",
        autocompletion=some_of((*names.STEPS, *names.OUTPUTS)),
        default="outputs, and what fits",
    ),
]
Only = Annotated[
    str | None, _option(VIEW, 'Only the tokens of this text, or with these IDs: 345; " 345" is a text.', metavar="TEXT")
]
Rows = Annotated[str | None, _option(VIEW, "Which rows: 0:5,100,50256.", metavar="ROWS")]
TokenRows = Annotated[
    str | None, _option(VIEW, "Which rows: 0:5,100,50256, or tokens: king,queen.", "--rows", metavar="ROWS")
]
Row = Annotated[str | None, _option(VIEW, "Begin at a row, by its ID or token.", metavar="ROW")]
BeginText = Annotated[str | None, _option(VIEW, "Begin at the tokens of a text.", "--text", "TEXT")]
Columns = Annotated[str | None, _option(VIEW, "Which columns: 0:8,255 (8 not included).", metavar="COLUMNS")]
Sort = Annotated[names.Sort, _option(VIEW, "Order of the rows; norm: the largest first.")]
Map = Annotated[bool, _option(VIEW, "Show the whole matrix at once: how large its numbers are.", "--map")]
Draw = Annotated[bool, _option(VIEW, "Draw it as a picture.", "--draw")]
Merges = Annotated[bool, _option(VIEW, "Show how each piece becomes tokens, merge by merge.", "--merges")]
Trace = Annotated[int | None, _option(VIEW, "Spell out the sum for token N, counted from 0.", metavar="N")]
TraceAll = Annotated[bool, _option(VIEW, "Write out the product of each token.", "--trace")]
Gradient = Annotated[bool, _option(VIEW, "Also compare the gradients of one backward pass.", "--gradient")]
Rate = Annotated[
    float | None, _option(VIEW, "Also take one step of training by the gradients.", "--learning-rate", "RATE")
]
Similarity = Annotated[bool, _option(VIEW, "Show the dot products of positions.", "--similarity")]
Metric = Annotated[names.Metric, _option(VIEW, "Similarity measure.")]
Top = Annotated[int, _option(VIEW, "How many neighbours.", "--top -k", "K")]
TopOfEach = Annotated[int, _option(VIEW, "Rows of each kind to show.", "--top -k", "K")]
Match = Annotated[str | None, _option(VIEW, "Only tokens matching REGEX.", metavar="REGEX")]
FailOn = Annotated[
    str | None,
    _option(
        VIEW,
        f"Exit with 1 for these: {', '.join(names.FAULTS)}.",
        metavar="NAMES",
        default=",".join(names.BROKEN),
        autocompletion=some_of(names.FAULTS),
    ),
]
Step = Annotated[
    int | None, _option(VIEW, "Start at step N, counted from 1; in a pipe, print only that step.", metavar="N")
]
TourText = Annotated[str, _option(INPUT, "The text of the steps that take one.", "--text", "TEXT")]
AllTensors = Annotated[bool, _option(VIEW, "List all tensors of the model.", "--tensors")]
Models = Annotated[bool, _option(VIEW, "List the models on this machine.", "--models")]
Precision = Annotated[int, _option(VIEW, "Decimals in a table.", metavar="N")]
Heat = Annotated[bool, _option(VIEW, "Show all columns as a heat map.", "--heat")]
Color = Annotated[names.Color, _option(VIEW, "Colour in a table.")]
Width = Annotated[
    int | None,
    _option(VIEW, "Columns of a page.", metavar="N", default="the terminal's; in a pipe 120, a picture 100"),
]
Theme = Annotated[names.Theme | None, _option(VIEW, "Background of a picture.", default="light")]

# Where the result goes.
Format = Annotated[
    str | None,
    _option(
        OUTPUT,
        f"{formats.either(tuple(formats.FORMATS))}, as the result allows.",
        "--format -f",
        "FORMAT",
        default="by -o's suffix, EMBCLI_FORMAT or table",
        autocompletion=_one_of(tuple(formats.FORMATS)),
    ),
]
Output = Annotated[
    Path | None, _option(OUTPUT, "Write to a file; written atomically.", "--output -o", "PATH", default=False)
]

"""The options and arguments of all commands, each declared once, as an annotated type; and the flags of parameters."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from embcli import formats, names
from embcli.positions import JOINED_KINDS, KINDS

# Parameters of the library whose flags have other names; all others are flags of the same name.
_FLAGS = {"top": "-k", "path": "--from", "text": "TEXT", "word": "WORD"}


def flag_of(parameter: str) -> str:
    """Return a parameter of the library as a user types it.

    >>> flag_of("context_length"), flag_of("path")
    ('--context-length', '--from')
    """
    return _FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")


def _some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
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
    """Complete the last of some encodings, or a folder or a tokenizer's file that needs no quotes."""
    if "," in incomplete:
        return _some_of(names.ENCODINGS)(incomplete)
    known = [name for name in names.ENCODINGS if name.startswith(incomplete)]
    if known and incomplete:
        with suppress(OSError), os.scandir() as entries:  # the folder may be gone or unreadable
            here = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
            plain = filter(re.compile(r"[\w.-]+(/|\.(json|gguf|tiktoken))").fullmatch, here)
            known += [name for name in plain if name.startswith(incomplete)]
    return known


def _argument(metavar: str, help: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False, **settings)


def _option(panel: str, help: str, spelling: str = "", default: str | bool = True, **settings: Any) -> Any:
    """Return an option as it is spelled: flags, if they are not the parameter's name, and a metavar."""
    flags = [word for word in spelling.split() if word.startswith("-")]
    metavar = " ".join(spelling.split()[len(flags) :]) or None
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel, show_default=default, **settings)


_input, _model, _view, _output = (partial(_option, panel) for panel in ("Input", "Model", "View", "Output"))
_MODEL = "A model: file, folder, or name in the Hugging Face cache."
_VECTORS = "Vectors in place of the text: a .npy, or one JSON array or line of lookup's ndjson per line; - reads them."
_POSITIONS = f"{names.DEFAULT_CONTEXT_LENGTH}, of which a page shows 16; relative {names.SHORT_LENGTH}"
_STEPS = "Steps: ids, one-hot, first (the linear layer's own weights), shared, outputs, cost; or embedding, linear."
_ENCODING = "An encoding or a model by tiktoken's name, a tokenizer's file, or a GGUF."
_ENCODINGS = "An encoding or model, a tokenizer's file, or a GGUF; several are compared: gpt2,o200k_base."
_JOINED = f"Positions that join the token rows: {', '.join(JOINED_KINDS)}."
_FORMATS, _FAULTS = tuple(formats.FORMATS), f"Exit with 1 for these: {', '.join(names.FAULTS)}."

# What is given.
Text = Annotated[str | None, _argument("TEXT", "Text to use; omit it or pass - to read standard input.")]
ComparedText = Annotated[str | None, _argument("TEXT", "Text to use, or - to read it; without any, the IDs 2,3,1.")]
Words = Annotated[list[str] | None, _argument("WORD", "A term, field or format of a page.", autocompletion=_words)]
GivenIds = Annotated[list[str] | None, _argument("IDS", "Token IDs: 6109 3626, or 6109,3626.")]
CommandWords = Annotated[list[str] | None, _argument("COMMAND", "Such as lookup.")]
File = Annotated[Path | None, _input("Read the text from a file.", "PATH")]
Ids = Annotated[str | None, _input("Token IDs in place of the text: 2,3,5,1, or - to read them.", "IDS")]
RowOf = Annotated[str | None, _input("Token row that the positions are applied to.", "--ids ID", "0")]
Special = Annotated[bool, _input("Recognise special tokens; add those that a model reads around a text.", "--special")]
Lines = Annotated[bool, _input("Make each line of the input a sequence of its own.", "--lines")]
Window = Annotated[bool, _input("Split longer input into sequences of C tokens.", "--window")]
Plus = Annotated[list[str] | None, _input("Add the row of this token.", "TEXT")]
Minus = Annotated[list[str] | None, _input("Subtract the row of this token.", "TEXT")]
Vectors = Annotated[Path | None, _input(_VECTORS, "--vector PATH")]
_encoding = partial(_input, autocompletion=_encodings)
Encoding = Annotated[str | None, _encoding(_ENCODING, "NAME", f"{names.DEFAULT_ENCODING}; of a real model, its own")]
Encodings = Annotated[list[str] | None, _encoding(_ENCODINGS, "--encoding NAMES", names.DEFAULT_ENCODING)]
BatchSize = Annotated[int, _input("Samples in a batch.", "B")]
MaxLength = Annotated[int, _input("Tokens in a sample.", "T")]
Stride = Annotated[int | None, _input("Tokens from one sample to the next.", "N", "--max-length")]
Shuffle = Annotated[bool, _input("Shuffle the samples.", "--shuffle")]
KeepLast = Annotated[bool, _input("Keep the last batch even if incomplete.", "--keep-last")]
Index = Annotated[int | None, _input("Which batch, counted from 0.", "K", "0")]
All = Annotated[bool, _input("All batches.", "--all")]
TourText = Annotated[str, _input("The text of the steps that take one.", "--text TEXT")]

# The model.
Path_ = Annotated[str | None, _argument("PATH", _MODEL)]
Base = Annotated[str, _argument("BASE", _MODEL)]
Tuned = Annotated[str, _argument("TUNED", "The other model, usually fine-tuned from BASE.")]
From = Annotated[str | None, _model(_MODEL, "--from PATH")]
Tensor = Annotated[str | None, _model("The token matrix in that file.", "NAME")]
Vocab = Annotated[int | None, _model("Rows of the token layer.", "V", "the encoding's")]
Dim = Annotated[int | None, _model("Columns: the embedding dimension.", "D", str(names.DEFAULT_DIM))]
ComparedDim = Annotated[int | None, _model("Columns: the embedding dimension.", "--dim D", str(names.COMPARED_DIM))]
ContextLength = Annotated[int | None, _model("Rows of the position layer.", "C", str(names.DEFAULT_CONTEXT_LENGTH))]
BatchContextLength = Annotated[int | None, _model("Rows of the position layer.", "--context-length C", "--max-length")]
PositionCount = Annotated[int | None, _model("T, the number of positions.", "--context-length T", _POSITIONS)]
Seed = Annotated[int | None, _model("Seed of torch's generator.", "INT", str(names.DEFAULT_SEED))]
NoCache = Annotated[bool, _model("Do not use the cache.", "--no-cache")]
Layer = Annotated[names.Layer, _model("Which layer.")]
KindOrPath = Annotated[
    str | None, _argument("KIND", f"{formats.either(KINDS)}; or PATH.", autocompletion=_one_of(KINDS))
]
Kind = Annotated[str | None, _model("Which kind of positions.", "KIND", False, autocompletion=_one_of(KINDS))]
Joined = Annotated[str | None, _model(_JOINED, "--position KIND", autocompletion=_one_of(JOINED_KINDS))]
Pairing = Annotated[names.Pairing | None, _model("Which columns rotary positions rotate together.", "", "interleaved")]
Theta = Annotated[float | None, _model("Base of the rotary angles.", "", f"{names.DEFAULT_THETA:g}")]

# What is shown.
_matrices = partial(_view, autocompletion=_some_of(names.MATRICES))
_steps = partial(_view, autocompletion=_some_of((*names.STEPS, *names.OUTPUTS)))
Matrices = Annotated[str | None, _matrices("Which matrices: token, position, input, hidden.", "--show NAMES", "all")]
Steps = Annotated[str | None, _steps(_STEPS, "--show NAMES", "outputs, and what fits")]
Only = Annotated[str | None, _view('Only the tokens of this text, or with these IDs: 345; " 345" is a text.', "TEXT")]
Rows = Annotated[str | None, _view("Which rows: 0:5,100,50256.", "ROWS")]
TokenRows = Annotated[str | None, _view("Which rows: 0:5,100,50256, or tokens: king,queen.", "--rows ROWS")]
Row = Annotated[str | None, _view("Begin at a row, by its ID or token.", "ROW")]
BeginText = Annotated[str | None, _view("Begin at the tokens of a text.", "--text TEXT")]
Columns = Annotated[str | None, _view("Which columns: 0:8,255 (8 not included).", "COLUMNS")]
Sort = Annotated[names.Sort, _view("Order of the rows; norm: the largest first.")]
Map = Annotated[bool, _view("Show the whole matrix at once: how large its numbers are.", "--map")]
Draw = Annotated[bool, _view("Draw it as a picture.", "--draw")]
Merges = Annotated[bool, _view("Show how each piece becomes tokens, merge by merge.", "--merges")]
Trace = Annotated[int | None, _view("Spell out the sum for token N, counted from 0.", "N")]
TraceAll = Annotated[bool, _view("Write out the product of each token.", "--trace")]
Gradient = Annotated[bool, _view("Also compare the gradients of one backward pass.", "--gradient")]
Rate = Annotated[float | None, _view("Also take one step of training by the gradients.", "--learning-rate RATE")]
Similarity = Annotated[bool, _view("Show the dot products of positions.", "--similarity")]
Metric = Annotated[names.Metric, _view("Similarity measure.")]
Top = Annotated[int, _view("How many neighbours.", "--top -k K")]
TopOfEach = Annotated[int, _view("Rows of each kind to show.", "--top -k K")]
Match = Annotated[str | None, _view("Only tokens matching REGEX.", "REGEX")]
_faults = partial(_view, autocompletion=_some_of(names.FAULTS))
FailOn = Annotated[str | None, _faults(_FAULTS, "NAMES", ",".join(names.BROKEN))]
Step = Annotated[int | None, _view("Start at step N, counted from 1; in a pipe, print only that step.", "N")]
AllTensors = Annotated[bool, _view("List all tensors of the model.", "--tensors")]
Models = Annotated[bool, _view("List the models on this machine.", "--models")]
Precision = Annotated[int, _view("Decimals in a table.", "N")]
Heat = Annotated[bool, _view("Show all columns as a heat map.", "--heat")]
Bare = Annotated[bool, _view("Only titles, and tables or pictures: no explanations, notes, costs.", "--bare")]
Color = Annotated[names.Color, _view("Colour in a table.")]
Width = Annotated[int | None, _view("Columns of a page.", "N", "the terminal's; in a pipe 120, a picture 100")]
Theme = Annotated[names.Theme | None, _view("Background of a picture.", "", "light")]

# Where the result goes.
_format = partial(_output, autocompletion=_one_of(_FORMATS))
_ANY = f"{formats.either(_FORMATS)}, as the result allows."
Format = Annotated[str | None, _format(_ANY, "--format -f FORMAT", "by -o's suffix, EMBCLI_FORMAT or table")]
Output = Annotated[str | None, _output("Write to a file; written atomically.", "--output -o PATH", False)]

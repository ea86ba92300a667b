"""What a user may type: the names of formats, matrices, layers, steps and choices; and what holds where he does not."""

from __future__ import annotations

from typing import Literal, get_args

View = Literal["table", "markdown", "latex", "svg", "html", "png"]
Data = Literal["json", "ndjson", "csv", "tsv", "npy", "safetensors", "parquet", "ids", "projector"]
Format = Literal[View, Data]
Verb = Literal[
    "tokenize",
    "decode",
    "weights",
    "lookup",
    "compare",
    "batch",
    "positions",
    "neighbors",
    "audit",
    "diff",
    "tour",
    "info",
    "cache",
]
Layer = Literal["token", "position"]
Matrix = Literal["token", "position", "input"]
Step = Literal["ids", "one-hot", "first", "shared", "outputs"]
Output = Literal["embedding", "linear"]  # of the last step: data formats can name one of them
Positions = Literal["learned", "sinusoidal", "relative", "rotary"]
Joined = Literal["learned", "sinusoidal", "rotary", "none"]  # the kinds of positions that a lookup joins to token rows
Pairing = Literal["interleaved", "halves"]  # of the columns that rotary positions turn
Metric = Literal["cosine", "dot", "l2"]  # by which rows are near
Color = Literal["auto", "always", "never"]
Theme = Literal["light", "dark"]  # the ground of a picture
Errors = Literal["strict", "replace"]
Unused = Literal["padding", "gap", "byte", "reserved"]  # why no text makes a token
Fault = Literal["non-finite", "zero", "missing", "equal", "padding", "candidates"]  # that an audit finds
Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]

FORMATS: tuple[Format, ...] = get_args(Format)
VERBS: tuple[Verb, ...] = get_args(Verb)
MATRICES: tuple[Matrix, ...] = get_args(Matrix)
STEPS: tuple[Step, ...] = get_args(Step)
OUTPUTS: tuple[Output, ...] = get_args(Output)
FAULTS: tuple[Fault, ...] = get_args(Fault)
BROKEN: tuple[Fault, ...] = ("non-finite", "zero", "missing")  # for which an audit's status is 1
PICTURES: tuple[Format, ...] = ("svg", "html", "png")  # views with colours, drawn for a file
DRAWINGS: tuple[Format, ...] = ("svg", "png")  # what more than lines can be drawn in
PAGES: tuple[Format, ...] = get_args(View)  # views; all other formats are data
LISTED: tuple[Format, ...] = (*PAGES, "json", "ndjson", "csv", "tsv")  # the formats of a result that has rows
RANKED: tuple[Format, ...] = (*LISTED, "parquet")  # of one whose rows tell of rows of a matrix
TOKENIZED: tuple[Format, ...] = (*LISTED, "npy", "safetensors", "ids")  # of one that has IDs
COMPARED: tuple[Format, ...] = (*LISTED, "npy", "safetensors")  # of one that has matrices
BATCHED: tuple[Format, ...] = (*PAGES, "json", "ndjson", "npy", "safetensors")  # of one with matrices in each row
LOOKED_UP: tuple[Format, ...] = (*COMPARED, "parquet", "projector")  # of one whose rows are embeddings
ALIASES: dict[str, Format] = {"jsonl": "ndjson"}
BINARY: tuple[Format, ...] = ("png", "npy", "safetensors", "parquet")
FOLDERS: dict[Format, tuple[str, ...]] = {"projector": ("vectors.tsv", "metadata.tsv")}  # formats of several files
EXTRAS: dict[Format, tuple[str, str]] = {  # the package that a format takes, and its extra
    "parquet": ("pyarrow", "arrow"),
    "png": ("matplotlib", "pictures"),
}
ONE_MATRIX: tuple[Format, ...] = ("csv", "tsv", "npy", "parquet", "projector")  # formats with room for just one
SUFFIXES: dict[str, Format] = {
    **{f".{name}": name for name in FORMATS if name not in FOLDERS},
    ".txt": "table",
    ".md": "markdown",
    ".tex": "latex",
    ".jsonl": "ndjson",
}

ENCODINGS = ("gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony")
DEFAULT_ENCODING = "gpt2"
DEFAULT_SEED = 123
DEFAULT_DIM = 256
DEFAULT_CONTEXT_LENGTH = 1024
DEFAULT_CLIP = 16
DEFAULT_THETA = 10000.0
COMPARED_IDS = "2,3,1"  # what `compare` takes where nothing is given
COMPARED_DIM = 5
TOUR_TEXT = "Every effort moves you"  # in the steps of a tour that take one
DEFAULT_PRECISION = 4  # decimals in a table

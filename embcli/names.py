"""The names that a user can choose from, and the defaults."""

from __future__ import annotations

from typing import Literal, get_args

PROGRAM = "embcli"
__version__ = "0.2.0"  # the one place that names it

LayerName = Literal["token", "position"]
Matrix = Literal[
    "token", "position", "input", "hidden"
]  # hidden: what the first block of a real model reads
ComparisonStep = Literal["ids", "one-hot", "first", "shared", "outputs"]  # of a comparison
ComparedOutput = Literal["embedding", "linear"]  # of its last step
Pairing = Literal["interleaved", "halves"]  # of the columns that rotary positions rotate
ModelPart = Literal["encoder", "decoder"]  # of a model that has both
Sort = Literal["id", "norm"]  # the order of the rows of a matrix
Metric = Literal["cosine", "dot", "l2"]
Color = Literal["auto", "always", "never"]
Theme = Literal["light", "dark"]  # the background of a picture
Unused = Literal["padding", "gap", "byte", "reserved"]  # why no text contains a token
Fault = Literal[
    "non-finite", "zero", "missing", "equal", "padding", "candidates"
]  # that an audit finds
Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]
CacheAction = Literal["list", "clear"]

MATRICES: tuple[Matrix, ...] = get_args(Matrix)
STEPS: tuple[ComparisonStep, ...] = get_args(ComparisonStep)
OUTPUTS: tuple[ComparedOutput, ...] = get_args(ComparedOutput)
PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)
PARTS: tuple[ModelPart, ...] = get_args(ModelPart)
FAULTS: tuple[Fault, ...] = get_args(Fault)
BROKEN: tuple[Fault, ...] = (
    "non-finite",
    "zero",
    "missing",
)  # the faults that no model can use a matrix with

ENCODINGS = (
    "gpt2",
    "r50k_base",
    "p50k_base",
    "p50k_edit",
    "cl100k_base",
    "o200k_base",
    "o200k_harmony",
)
DEFAULT_ENCODING = "gpt2"
DEFAULT_SEED = 123
DEFAULT_DIM = 256
DEFAULT_CONTEXT_LENGTH = 1024
SHORT_LENGTH = 16  # positions that a page shows if nobody chose T
DEFAULT_THETA = 10000.0
COMPARED_IDS = "2,3,1"  # what the command compares if nothing is given
COMPARED_DIM = 5
TOUR_TEXT = "Every effort moves you"
DEFAULT_PRECISION = 4  # decimals
SHOWN_ROWS = 3  # of each kind, on a page of an audit or a diff

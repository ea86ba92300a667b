"""The names that a user can choose from, the defaults, and the types of shapes.

The library checks its parameters against names, and the command offers them. Whatever lists all
names of a kind is derived from the type.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

PROGRAM = "embcli"
__version__ = "0.2.0"  # No other file names the version.

Strings = tuple[str, ...]
Shape = tuple[int, ...]  # of an array
MatrixShape = tuple[int, int]  # rows and columns: (V, D) or (C, D)

LayerName = Literal["token", "position", "head"]
TokenLayer = Literal["token", "head"]  # the layers that have a row for each token
MatrixName = Literal["token", "position", "input", "hidden"]  # a model's first block reads `hidden`
ComparisonStep = Literal["ids", "one-hot", "first", "shared", "outputs"]
ComparedOutput = Literal["embedding", "linear"]  # the outputs in the last step of a comparison
Pairing = Literal["interleaved", "halves"]  # how rotary positions pair the columns they rotate
ModelPart = Literal["encoder", "decoder"]
Sort = Literal["id", "norm"]  # the order of the rows of a matrix
Metric = Literal["cosine", "dot", "l2"]
Similarity = Literal["cosine", "dot"]  # how similar two positions are
Color = Literal["auto", "always", "never"]
Background = Literal["light", "dark"]
Paper = Literal["a4", "letter"]  # the size of a handout
Theme = Literal["auto", "light", "dark"]  # a background, or that of wherever a page is shown
Unused = Literal["padding", "gap", "byte", "reserved"]  # why no text contains a token
# What an audit can find; whoever runs it says what of it gives status 1.
Fault = Literal[
    "non-finite",
    "zero",
    "missing",
    "head",
    "special-ids",
    "positions",
    "load",
    "not-asked",
    "not-checked",
    "untrained",
    "possibly-untrained",
    "initial",
    "outliers",
    "tied",
    "fit",
    "template",
    "constant",
    "equal",
    "padding",
    "candidates",
]
FaultGroup = Literal["findings", "alarms", "all", "none"]  # several of them, by one name
MadeFromText = Literal["words", "words1", "bpe"]  # what an encoding is made of a text by
Extra = Literal["models", "arrow", "pictures", "explore", "transformers"]  # packages of embcli
Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]
CacheAction = Literal["list", "clear"]
Status = Literal[0, 1, 2, 130]  # of the process; `explain exit status` says what each means
# What the environment can set; `explain environment` says what each is for, and `variable` of
# errors.py has the values where it reads one.
Variable = Literal[
    "EMBCLI_FORMAT", "EMBCLI_THEME", "EMBCLI_CACHE_DIR", "EMBCLI_ASK", "EMBCLI_DEBUG"
]


class MetricRow(NamedTuple):
    """How pages name a metric, and which scores are the nearest."""

    words: str
    is_distance: bool = False  # whether the smallest scores are the nearest, not the largest


METRICS = {
    "cosine": MetricRow("cosine"),
    "dot": MetricRow("dot product"),
    "l2": MetricRow("L2 distance", is_distance=True),
}
MATRICES: Strings = get_args(MatrixName)
STEPS: tuple[ComparisonStep, ...] = get_args(ComparisonStep)
OUTPUTS: Strings = get_args(ComparedOutput)
COMPARED: Strings = (*STEPS, *OUTPUTS, "cost", "all")  # what a comparison can show
FAULTS: Strings = get_args(Fault)
FAULT_GROUPS: Strings = get_args(FaultGroup)

# How the encodings that are made from a text are spelled.
MADE_FROM_TEXT = {
    "words": "words:TEXTFILE",
    "words1": "words1:TEXTFILE",
    "bpe": "bpe:TEXTFILE:N",
}
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
DEFAULT_BATCH_SIZE = 8  # samples in a batch, if there are as many
DEFAULT_SAMPLE_LENGTH = 4  # tokens in a sample of a batch
SHORT_LENGTH = 16  # positions that a page shows if nobody chose T
DEFAULT_THETA = 10000.0
COMPARED_IDS = (2, 3, 1)  # the IDs that are compared by default
COMPARED_DIM = 5
TOUR_TEXT = "Every effort moves you"
LONGEST_TEXT = 10**9  # bytes; a device and a pipe may have no end, as /dev/zero has none
DEFAULT_PRECISION = 4  # decimals
PIPE_WIDTH = 120  # columns of a page in a pipe
PICTURE_WIDTH = 100  # columns of a page in a picture
SHOWN_ROWS = 3  # rows of each kind on a page of an audit or a diff

"""The options that verbs share, each declared once, so that a flag means the same everywhere, and in groups.

A group is one parameter of a command and one value: what is given, which model, where the result goes. `grouped`
spreads it for Typer, to which each field is an option.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.completion import install_callback, show_callback

from embcli import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embcli.encodings import Encoding
    from embcli.output import Output
    from embcli.tokens import Tokens
    from embcli.verbs.batch import Wanted
    from embcli.weights.source import SeededSource


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command as Typer is to see it: with the fields of its groups in place of the groups."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in declared if is_dataclass(each.annotation)}

    def spread(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        return command(**given)

    parameters: list[inspect.Parameter] = []
    for each in declared:
        parameters += _spread(groups[each.name]) if each.name in groups else [each.replace(kind=each.KEYWORD_ONLY)]
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return spread


def _spread(group: Any) -> list[inspect.Parameter]:
    """Return the fields of a group as the parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(group)
    ]


def whole(value: str | int) -> int:
    """Parse a whole number; torch, numpy and embcli itself say what is wrong with one that is out of range."""
    try:
        return int(value)
    except ValueError:
        shown = str(value)[:40]
        if str(value).strip().lstrip("+-").isdecimal():  # Python converts no more than some thousand digits
            raise typer.BadParameter(f"{shown}... is out of range.") from None
        raise typer.BadParameter(f"{shown!r} is no whole number.") from None


def listed(given: str | None, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names in the list between commas that --show takes, in the known order; None where none was given.

    Raises InputError for a name that is not known.
    """
    if given is None:
        return None
    from embcli.errors import InputError

    chosen = [name.strip() for name in given.split(",")]
    for name in chosen:
        if name not in known:
            raise InputError(f"--show {name[:40]!r} is not known; choose from {', '.join(known)}, with commas between")
    return tuple(name for name in known if name in chosen)


def _encodings(incomplete: str) -> list[str]:
    return [name for name in names.ENCODINGS if name.startswith(incomplete)]


def _matrices(incomplete: str) -> list[str]:
    return _last_of(incomplete, names.MATRICES)


def _steps(incomplete: str) -> list[str]:
    return _last_of(incomplete, (*names.STEPS, *names.OUTPUTS))


def _last_of(incomplete: str, known: tuple[str, ...]) -> list[str]:
    """Complete the last of the names between commas, by those that do not stand before it."""
    *given, _ = incomplete.split(",")
    return [",".join([*given, name]) for name in known if name not in given] if set(given) <= set(known) else []


# Typer's own two options of these names find out the shell that they run in; here it is named, so that a script can be
# made anywhere.
ShowCompletion = Annotated[
    names.Shell | None,
    typer.Option("--show-completion", help="Print the completion script for a shell.", callback=show_callback),
]
InstallCompletion = Annotated[
    names.Shell | None,
    typer.Option("--install-completion", help="Install completion for a shell.", callback=install_callback),
]
EncodingName = Annotated[
    str,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="tiktoken's name of an encoding or of a model (gpt-4o).",
        autocompletion=_encodings,
    ),
]
Window = Annotated[bool, typer.Option("--window", help="Cut longer input into sequences of C tokens.")]
ShowMatrices = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="NAMES",
        help="Which matrices: token, position, input.",
        show_default="all",
        autocompletion=_matrices,
    ),
]
ShowSteps = Annotated[
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
Rows = Annotated[str | None, typer.Option("--rows", metavar="ROWS", help="Which rows: 0:5,100,50256.")]
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="COLUMNS", help="Which columns: 0:8,255 (8 not included).")
]
LayerName = Annotated[names.Layer, typer.Option("--layer", help="Which layer.")]
Trace = Annotated[
    int | None,
    typer.Option("--trace", parser=whole, metavar="N", help="Spell out the sum for token N, counted from 0."),
]
PositionsKind = Annotated[names.Positions, typer.Option("--kind", help="Which kind of positions.")]
Clip = Annotated[
    int | None,
    typer.Option(
        "--clip", parser=whole, metavar="K", help="Largest relative distance.", show_default=str(names.DEFAULT_CLIP)
    ),
]
Pairing = Annotated[
    names.Pairing | None,
    typer.Option("--pairing", help="Which columns rotary positions turn together.", show_default="interleaved"),
]
Theta = Annotated[
    float | None,
    typer.Option("--theta", metavar="THETA", help="Base of the rotary angles.", show_default="10000"),
]
Similarity = Annotated[bool, typer.Option("--similarity", help="Show the dot products of positions.")]
OneID = Annotated[
    str | None,
    typer.Option(
        "--ids", metavar="ID", help="The token whose row rotary and relative positions meet.", show_default="0"
    ),
]
Seed = Annotated[int, typer.Option("--seed", parser=whole, metavar="INT", help="Seed of torch's generator.")]
Dim = Annotated[int, typer.Option("--dim", parser=whole, metavar="D", help="Columns: the embedding dimension.")]
OutputPath = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="PATH", help="Write to a file, whole or not at all.")
]


IDs = Annotated[
    str | None,
    typer.Option("--ids", metavar="IDS", help="Token IDs in place of the text: 2,3,5,1; - reads standard input."),
]
Errors = Annotated[names.Errors, typer.Option("--errors", help="Refuse or replace bytes that are no UTF-8.")]
Special = Annotated[bool, typer.Option("--special", help="Read special tokens in the text as such.")]


@dataclass(frozen=True)
class Given:
    """What is given: a text or token IDs."""

    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The text; - or nothing reads standard input.", show_default=False),
    ] = None
    file: Annotated[Path | None, typer.Option("--file", metavar="PATH", help="Read the text from a file.")] = None
    ids: IDs = None
    errors: Errors = "strict"
    special: Special = False

    @property
    def as_text(self) -> bool:
        """Whether it is a text, and not IDs."""
        return self.ids is None

    def tokens(self, encoding: Encoding | None) -> Tokens:
        """Return the tokens of what is given."""
        from embcli.text import read
        from embcli.tokens import tokenize

        given = read(self.text, self.file, self.ids, self._lines, self.errors)
        return tokenize(given, encoding, self.special)

    @property
    def _lines(self) -> bool:
        return False


@dataclass(frozen=True)
class GivenLines(Given):
    """What is given, in one sequence or in one a line."""

    lines: Annotated[bool, typer.Option("--lines", help="Make each line of the input a sequence of its own.")] = False

    @property
    def _lines(self) -> bool:
        return self.lines


@dataclass(frozen=True)
class GivenOrExample(Given):
    """What is given, or else the IDs of an example."""

    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="The text; - reads standard input, and without TEXT, --file and --ids the IDs are 2,3,1.",
            show_default=False,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.text is None and self.file is None and self.ids is None:
            object.__setattr__(self, "ids", names.COMPARED_IDS)


@dataclass(frozen=True)
class GivenFile:
    """What is given: a file with a text, or token IDs."""

    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A file with the text; - or nothing reads standard input."),
    ] = None
    ids: IDs = None
    errors: Errors = "strict"
    special: Special = False

    def tokens(self, encoding: Encoding | None) -> Tokens:
        """Return the tokens of what is given; raises InputError, with a hint, for a text in place of a file."""
        import os
        import shlex

        from embcli.errors import InputError
        from embcli.text import read
        from embcli.tokens import tokenize

        if self.file is not None and str(self.file) != "-" and not os.access(self.file, os.F_OK):
            text = str(self.file)
            hint = f"for a text: echo {shlex.quote(text if len(text) <= 60 else f'{text[:60]}...')} | embcli batch -"
            raise InputError(f"there is no file {text[:60]!r}", hint)
        given = read(None, self.file, self.ids, False, self.errors, example="embcli batch the-verdict.txt")
        return tokenize(given, encoding, self.special)


Vocab = Annotated[
    int | None,
    typer.Option("--vocab", parser=whole, metavar="V", help="Rows of the token layer.", show_default="the encoding's"),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor keep layers in the cache folder.")]


@dataclass(frozen=True)
class Model:
    """Which model: a seeded pair of layers."""

    seed: Seed = names.DEFAULT_SEED
    vocab: Vocab = None
    dim: Dim = names.DEFAULT_DIM
    context_length: Annotated[
        int, typer.Option("--context-length", parser=whole, metavar="C", help="Rows of the position layer.")
    ] = names.DEFAULT_CONTEXT_LENGTH
    no_cache: NoCache = False

    def source(self, encoding: Encoding) -> SeededSource:
        """Return where the layers come from; nothing is drawn yet."""
        from embcli.encodings import meant
        from embcli.weights.cache import Cache
        from embcli.weights.seeded import Seeded
        from embcli.weights.source import SeededSource

        size = encoding.vocabulary_size if self.vocab is None else self.vocab
        seeded = Seeded(size, self.dim, self.context_length, self.seed)
        return SeededSource(seeded, None if self.no_cache else Cache.from_environment(), meant(encoding, size))


@dataclass(frozen=True)
class ModelOfBatches:
    """Which model: a seeded pair of layers, with a position row for each token of a sample."""

    seed: Seed = names.DEFAULT_SEED
    vocab: Vocab = None
    dim: Dim = names.DEFAULT_DIM
    context_length: Annotated[
        int | None,
        typer.Option(
            "--context-length",
            parser=whole,
            metavar="C",
            help="Rows of the position layer.",
            show_default="--max-length",
        ),
    ] = None
    no_cache: NoCache = False

    def of(self, max_length: int) -> Model:
        """Return the model for samples of so many tokens."""
        length = max_length if self.context_length is None else self.context_length
        return Model(self.seed, self.vocab, self.dim, length, self.no_cache)


@dataclass(frozen=True)
class Batching:
    """How a text is cut into samples and batches, and which of them."""

    batch_size: Annotated[int, typer.Option("--batch-size", parser=whole, metavar="B", help="Samples in a batch.")] = 8
    max_length: Annotated[int, typer.Option("--max-length", parser=whole, metavar="T", help="Tokens in a sample.")] = 4
    stride: Annotated[
        int, typer.Option("--stride", parser=whole, metavar="N", help="Tokens from one sample to the next.")
    ] = 4
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle the samples.")] = False
    keep_last: Annotated[bool, typer.Option("--keep-last", help="Keep the last batch also where it is not full.")] = (
        False
    )
    index: Annotated[
        int | None,
        typer.Option("--index", parser=whole, metavar="K", help="Which batch, counted from 0.", show_default="0"),
    ] = None
    every: Annotated[bool, typer.Option("--all", help="All batches.")] = False
    layers_first: Annotated[
        bool,
        typer.Option("--layers-first", help="Draw both layers before the loader takes random numbers."),
    ] = False

    def wanted(self) -> Wanted:
        """Return the batches that are wanted; raises InputError for what makes none."""
        from embcli.verbs.batch import Wanted

        return Wanted(**vars(self))


@dataclass(frozen=True)
class SmallModel:
    """Which model: a seeded layer, as large as the IDs need it."""

    seed: Seed = names.DEFAULT_SEED
    vocab: Annotated[
        int | None,
        typer.Option(
            "--vocab",
            parser=whole,
            metavar="V",
            help="Rows of the token layer.",
            show_default="the encoding's; with --ids, the largest ID + 1",
        ),
    ] = None
    dim: Dim = names.COMPARED_DIM


@dataclass(frozen=True)
class Place:
    """Where the result goes, and in what form."""

    format: Annotated[
        names.Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Form of the result; ids is for tokenize.",
            show_default="by --output's suffix, EMBCLI_FORMAT, or table",
        ),
    ] = None
    output: OutputPath = None
    color: Annotated[names.Color, typer.Option("--color", help="Colour in a table.")] = "auto"

    def to(
        self,
        able: tuple[names.Format, ...],
        show: tuple[str, ...] | None = None,
        needs: Mapping[str, tuple[names.Format, ...]] | None = None,
    ) -> Output:
        """Return the output, for a result that has the formats `able`; raises OutputError for what cannot be done."""
        from embcli import output

        return output.to(able, self.format, self.output, self.color, self._precision, show, needs)

    @property
    def _precision(self) -> int:
        return 4


@dataclass(frozen=True)
class PlaceOfNumbers(Place):
    """Where a result with numbers goes."""

    precision: Annotated[int, typer.Option("--precision", parser=whole, metavar="N", help="Decimals in a table.")] = 4

    @property
    def _precision(self) -> int:
        return self.precision

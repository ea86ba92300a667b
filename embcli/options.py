"""The options that verbs share, each declared once, so that a flag means the same everywhere, and in groups.

A group is one parameter of a command: what is given, which model, where the result goes. Annotations are values here,
not strings, which would have to be read back at each start.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer
from typer.completion import show_callback

from embcli import completion, names
from embcli.groups import INPUT, MODEL, OUTPUT, VIEW, Group

if TYPE_CHECKING:
    import numpy as np

    from embcli.encodings import Encoding
    from embcli.files.checkpoint import Checkpoint
    from embcli.layer import Source
    from embcli.output import Output
    from embcli.tokens import Tokens
    from embcli.verbs import neighbors
    from embcli.verbs.batch import Wanted
    from embcli.weights.source import SeededSource

Name = TypeVar("Name", bound=str)


def whole(value: str | int) -> int:
    """Parse a whole number; torch, numpy and embcli itself say what is wrong with one that is out of range."""
    try:
        return int(value)
    except ValueError:
        shown = str(value)[:40]
        if str(value).strip().lstrip("+-").isdecimal():  # Python converts no more than some thousand digits
            raise typer.BadParameter(f"{shown}... is out of range.") from None
        raise typer.BadParameter(f"{shown!r} is no whole number.") from None


def _format(value: str) -> str:
    name = names.ALIASES.get(value, value)
    if name not in names.FORMATS:
        raise typer.BadParameter(f"{value[:40]!r} is no format; there are {', '.join(names.FORMATS)}.")
    return name


def listed(given: str | None, known: tuple[Name, ...], flag: str = "--show") -> tuple[Name, ...] | None:
    """Return the names in the list between commas that a flag takes, in the known order; None where none was given.

    Raises InputError for a name that is not known.
    """
    if given is None:
        return None
    from embcli.errors import InputError

    chosen = [name.strip() for name in given.split(",")]
    for name in chosen:
        if name not in known:
            raise InputError(f"{flag} {name[:40]!r} is not known; choose from {', '.join(known)}, with commas between")
    return tuple(name for name in known if name in chosen)


def _one_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return what completes one of these names."""
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def _some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return what completes the last of some names between commas, by those that do not stand before it."""

    def completed(incomplete: str) -> list[str]:
        *given, last = incomplete.split(",")
        others = [name for name in known if name not in given and name.startswith(last)]
        return [",".join([*given, name]) for name in others] if {*given} <= {*known} else []

    return completed


def _encodings(incomplete: str) -> list[str]:
    """Complete the name of an encoding, and beside it folders and JSON files; shells offer files where there is none.

    A name that a shell would have to quote is left out, as others have named these files.
    """
    import os
    import re
    from contextlib import suppress

    found, here = [name for name in names.ENCODINGS if name.startswith(incomplete)], []
    if found and incomplete:
        with suppress(OSError), os.scandir() as entries:  # the folder may be gone, or not to be read
            here = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
        plain = [name for name in here if name.startswith(incomplete) and re.fullmatch(r"[\w.-]+(/|\.json)", name)]
        found += sorted(plain)
    return found


# Typer's own two options of these names find out the shell that they run in; here it is named, so that a script can be
# made anywhere.
ShowCompletion = Annotated[
    names.Shell | None,
    typer.Option(
        "--show-completion", help="Print the completion script for a shell.", callback=show_callback, hidden=True
    ),
]
InstallCompletion = Annotated[
    names.Shell | None,
    typer.Option(
        "--install-completion", help="Install completion for a shell.", callback=completion.install, hidden=True
    ),
]
EncodingName = Annotated[
    str,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="tiktoken's name of an encoding or of a model (gpt-4o), or a tokenizer.json.",
        autocompletion=_encodings,
        rich_help_panel=INPUT,
    ),
]
EveryTensor = Annotated[bool, typer.Option("--tensors", help="With --from: list all tensors.", rich_help_panel=VIEW)]
EncodingOfModel = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="tiktoken's name of an encoding or of a model (gpt-4o), or a tokenizer.json.",
        show_default=f"{names.DEFAULT_ENCODING}; with --from, its tokenizer.json, or that with as many tokens as rows",
        autocompletion=_encodings,
        rich_help_panel=INPUT,
    ),
]
ShowMatrices = Annotated[
    str | None,
    typer.Option(
        "--show",
        metavar="NAMES",
        help="Which matrices: token, position, input.",
        show_default="all",
        autocompletion=_some_of(names.MATRICES),
        rich_help_panel=VIEW,
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
        autocompletion=_some_of((*names.STEPS, *names.OUTPUTS)),
        rich_help_panel=VIEW,
    ),
]
TraceProducts = Annotated[
    bool, typer.Option("--trace", help="Write out the product of each token.", rich_help_panel=VIEW)
]
Gradients = Annotated[
    bool, typer.Option("--gradient", help="Compare the gradients of one backward pass, too.", rich_help_panel=VIEW)
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        metavar="RATE",
        help="Take one step of training by the gradients, too.",
        rich_help_panel=VIEW,
    ),
]
Bench = Annotated[
    bool,
    typer.Option("--bench", help="Measure both for growing V, up to --vocab or the encoding's.", rich_help_panel=VIEW),
]
Rows = Annotated[
    str | None, typer.Option("--rows", metavar="ROWS", help="Which rows: 0:5,100,50256.", rich_help_panel=VIEW)
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="COLUMNS", help="Which columns: 0:8,255 (8 not included).", rich_help_panel=VIEW),
]
DensityMap = Annotated[
    bool, typer.Option("--map", help="Show all of the matrix at once: how large its numbers are.", rich_help_panel=VIEW)
]
LayerName = Annotated[names.Layer, typer.Option("--layer", help="Which layer.", rich_help_panel=MODEL)]
Scatter = Annotated[
    bool,
    typer.Option("--scatter", help="Draw the rows by their two principal components.", rich_help_panel=VIEW),
]
Draw = Annotated[bool, typer.Option("--draw", help="Draw it as a picture.", rich_help_panel=VIEW)]
Trace = Annotated[
    int | None,
    typer.Option(
        "--trace",
        parser=whole,
        metavar="N",
        help="Spell out the sum for token N, counted from 0.",
        rich_help_panel=VIEW,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", parser=whole, metavar="INT", help="Seed of torch's generator.", rich_help_panel=MODEL),
]
Dim = Annotated[
    int,
    typer.Option("--dim", parser=whole, metavar="D", help="Columns: the embedding dimension.", rich_help_panel=MODEL),
]
Vocab = Annotated[
    int | None,
    typer.Option(
        "--vocab",
        parser=whole,
        metavar="V",
        help="Rows of the token layer.",
        show_default="the encoding's",
        rich_help_panel=MODEL,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Neither read nor keep layers in the cache folder.", rich_help_panel=MODEL),
]
PositionsKind = Annotated[
    names.Positions, typer.Option("--kind", help="Which kind of positions.", rich_help_panel=MODEL)
]
Clip = Annotated[
    int | None,
    typer.Option(
        "--clip",
        parser=whole,
        metavar="K",
        help="Of relative positions, the largest distance.",
        show_default=str(names.DEFAULT_CLIP),
        rich_help_panel=MODEL,
    ),
]
Pairing = Annotated[
    names.Pairing | None,
    typer.Option(
        "--pairing",
        help="Which columns rotary positions turn together.",
        show_default="interleaved",
        rich_help_panel=MODEL,
    ),
]
Theta = Annotated[
    float | None,
    typer.Option(
        "--theta",
        metavar="THETA",
        help="Base of the rotary angles.",
        show_default=f"{names.DEFAULT_THETA:g}",
        rich_help_panel=MODEL,
    ),
]
Similarity = Annotated[
    bool, typer.Option("--similarity", help="Show the dot products of positions.", rich_help_panel=VIEW)
]
OneID = Annotated[
    str | None,
    typer.Option(
        "--ids",
        metavar="ID",
        help="The token whose row rotary and relative positions meet.",
        show_default="0",
        rich_help_panel=INPUT,
    ),
]
FailOn = Annotated[
    str | None,
    typer.Option(
        "--fail-on",
        metavar="NAMES",
        help=f"For which faults the exit status is 1: {', '.join(names.FAULTS)}.",
        show_default=",".join(names.BROKEN),
        autocompletion=_some_of(names.FAULTS),
        rich_help_panel=VIEW,
    ),
]
TourFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="A tour of your own, in JSON.", show_default="embcli's")
]
TourText = Annotated[
    str,
    typer.Option("--text", metavar="TEXT", help="The text of the steps that take one.", rich_help_panel=INPUT),
]
TourStep = Annotated[
    int | None,
    typer.Option(
        "--step",
        parser=whole,
        metavar="N",
        help="Start at step N, counted from 1; in a pipe, print it alone.",
        rich_help_panel=VIEW,
    ),
]
IDs = Annotated[
    str | None,
    typer.Option(
        "--ids",
        metavar="IDS",
        help="Token IDs in place of the text: 2,3,5,1; - reads standard input.",
        rich_help_panel=INPUT,
    ),
]
Errors = Annotated[
    names.Errors,
    typer.Option("--errors", help="Refuse or replace bytes that are no UTF-8.", rich_help_panel=INPUT),
]
Special = Annotated[
    bool, typer.Option("--special", help="Read special tokens in the text as such.", rich_help_panel=INPUT)
]
OutputPath = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="PATH", help="Write to a file, whole or not at all.", rich_help_panel=OUTPUT
    ),
]


class Given(Group):
    """What is given: a text or token IDs."""

    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The text; - or nothing reads standard input.", show_default=False),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="Read the text from a file.", rich_help_panel=INPUT),
    ] = None
    ids: IDs = None
    errors: Errors = "strict"
    special: Special = False

    @property
    def as_text(self) -> bool:
        """Whether it is a text, and not IDs."""
        return self.ids is None

    def tokens(
        self,
        encoding: "Encoding | None",
        example: str = 'embcli lookup "Every effort moves you"',
        spans: bool = False,
    ) -> "Tokens":
        """Return the tokens of what is given; where there is nothing, the error tells the example.

        With `spans` it is worked out where they stand in the text.
        """
        from embcli.errors import InputError
        from embcli.safe import note
        from embcli.text import read
        from embcli.tokens import tokenize

        if encoding is None and self.as_text:
            raise InputError("these rows stand for the tokens of no encoding that is known: give --ids, or --encoding")
        given = read(self.text, self.file, self.ids, self._lines, self.errors, example)
        tokens = tokenize(given, encoding, self.special, spans)
        if not len(tokens):
            note("the input is empty: there are no tokens")
        return tokens

    @property
    def _lines(self) -> bool:
        return False


class GivenLines(Given):
    """What is given, in one sequence or in one a line."""

    lines: Annotated[
        bool,
        typer.Option("--lines", help="Make each line of the input a sequence of its own.", rich_help_panel=INPUT),
    ] = False

    @property
    def _lines(self) -> bool:
        return self.lines


class GivenQueries(GivenLines):
    """What neighbours are asked of: a text or token IDs, perhaps with others added and taken away, or vectors."""

    plus: Annotated[
        list[str] | None,
        typer.Option("--plus", metavar="TEXT", help="Add the row of this token, too.", rich_help_panel=INPUT),
    ] = None
    minus: Annotated[
        list[str] | None,
        typer.Option("--minus", metavar="TEXT", help="Take the row of this token away.", rich_help_panel=INPUT),
    ] = None
    vector: Annotated[
        Path | None,
        typer.Option(
            "--vector",
            metavar="PATH",
            help="Vectors in place of the text, a JSON array or an object of lookup's ndjson a line; - reads standard "
            "input.",
            rich_help_panel=INPUT,
        ),
    ] = None
    show: Annotated[
        str | None,
        typer.Option(
            "--show",
            metavar="NAME",
            help="Which vectors of such objects.",
            show_default="input",
            autocompletion=_one_of(names.MATRICES),
            rich_help_panel=INPUT,
        ),
    ] = None

    def queries(self, encoding: "Encoding | None") -> "Callable[[tuple[int, int]], list[neighbors.Query]]":
        """Return what gives the queries for a layer of a shape; all input is read before that."""
        from embcli.errors import InputError
        from embcli.text import read
        from embcli.verbs.neighbors import queries_of_tokens, queries_of_vectors

        plus, minus = self.plus or [], self.minus or []
        if self.vector is None:
            if self.show is not None:
                raise InputError("--show says which vectors, and goes with --vector")
            tokens = self.tokens(encoding, 'embcli neighbors " Paris"')
            return lambda shape: queries_of_tokens(tokens, encoding if self.as_text else None, plus, minus, shape[0])
        given = {"TEXT": self.text, "--file": self.file, "--ids": self.ids, "--plus": self.plus, "--minus": self.minus}
        others = [name for name, value in given.items() if value]
        if others:
            raise InputError(f"{others[0]} and --vector stand for the same input; give one of them")
        (text,) = read(None, self.vector, None, False, self.errors, "embcli neighbors --vector -").texts or ("",)
        return lambda shape: queries_of_vectors(text, self.show, shape[1])


class Nearness(Group):
    """What near means, and which rows are answers."""

    metric: Annotated[names.Metric, typer.Option("--metric", help="By which rows are near.", rich_help_panel=VIEW)] = (
        "cosine"
    )
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            "-k",
            parser=whole,
            metavar="K",
            help="How many neighbours.",
            show_default="10; with --within, all",
            rich_help_panel=VIEW,
        ),
    ] = None
    include_query: Annotated[
        bool, typer.Option("--include-query", help="Answer with tokens of the query, too.", rich_help_panel=VIEW)
    ] = False
    center: Annotated[
        bool, typer.Option("--center", help="Take the mean row away from all rows first.", rich_help_panel=VIEW)
    ] = False
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            metavar="R",
            help="Just rows with a score of at least R; under l2, at a distance of at most R.",
            rich_help_panel=VIEW,
        ),
    ] = None
    match: Annotated[
        str | None,
        typer.Option(
            "--match", metavar="REGEX", help="Just tokens that a regular expression finds.", rich_help_panel=VIEW
        ),
    ] = None
    rows: Rows = None
    why: Annotated[bool, typer.Option("--why", help="Tell what each score is made of.", rich_help_panel=VIEW)] = False

    def wanted(self) -> "neighbors.Nearness":
        """Return what is wanted; raises InputError for what cannot be."""
        from embcli.verbs.neighbors import Nearness

        return Nearness(**vars(self))


class GivenWindows(GivenLines):
    """What is given, in sequences that a position layer has room for."""

    window: Annotated[
        bool, typer.Option("--window", help="Cut longer input into sequences of C tokens.", rich_help_panel=INPUT)
    ] = False
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="TEXT", help="Just the tokens of this text.", rich_help_panel=VIEW),
    ] = None
    only_ids: Annotated[
        str | None,
        typer.Option("--only-ids", metavar="IDS", help="Just the tokens with these IDs.", rich_help_panel=VIEW),
    ] = None

    def chosen(self, tokens: "Tokens") -> "np.ndarray | None":
        """Return which of the tokens the user chose, (n,) int64; None for all of them."""
        from embcli.verbs.lookup import occurrences

        return occurrences(tokens, self.only, self.only_ids, self.special)


class GivenOrExample(Given):
    """What is given, or else the IDs of an example."""

    text: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT",
            help="The text; - reads standard input, and without TEXT, --file and --ids the IDs are 2,3,1.",
            show_default=False,
        ),
    ] = None

    def __init__(self, **values: Any) -> None:
        nothing = all(values.get(name) is None for name in ("text", "file", "ids"))
        super().__init__(**values | {"ids": names.COMPARED_IDS} if nothing else values)


class GivenFile(Group):
    """What is given: a file with a text, or token IDs."""

    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A file with the text; - or nothing reads standard input.", show_default=False
        ),
    ] = None
    ids: IDs = None
    errors: Errors = "strict"
    special: Special = False

    def tokens(self, encoding: "Encoding | None") -> "Tokens":
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


def _dim_option(default: int) -> Any:
    """Return --dim where it has no default of its own, so that it is seen to be given."""
    return typer.Option(
        "--dim",
        parser=whole,
        metavar="D",
        help="Columns: the embedding dimension.",
        show_default=str(default),
        rich_help_panel=MODEL,
    )


class Model(Group):
    """Which model: a seeded pair of layers."""

    vocab: Vocab = None
    dim: Dim = names.DEFAULT_DIM
    context_length: Annotated[
        int,
        typer.Option(
            "--context-length", parser=whole, metavar="C", help="Rows of the position layer.", rich_help_panel=MODEL
        ),
    ] = names.DEFAULT_CONTEXT_LENGTH
    seed: Seed = names.DEFAULT_SEED
    no_cache: NoCache = False

    def source(self, encoding: "Encoding") -> "SeededSource":
        """Return where the layers come from; nothing is drawn yet."""
        from embcli.encodings import meant
        from embcli.weights.cache import Cache
        from embcli.weights.seeded import Seeded
        from embcli.weights.source import SeededSource

        size = encoding.vocabulary_size if self.vocab is None else self.vocab
        seeded = Seeded(size, self.dim, self.context_length, self.seed)
        return SeededSource(seeded, None if self.no_cache else Cache.from_environment(), meant(encoding, size))


class OneMatrix(Group):
    """Which token matrix: that of a checkpoint's file, if one is named."""

    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="A real model in place of seeded layers: its file or folder, or its name in the local Hugging Face "
            "cache.",
            rich_help_panel=MODEL,
        ),
    ] = None
    tensor: Annotated[
        str | None,
        typer.Option("--tensor", metavar="NAME", help="The token matrix in that file.", rich_help_panel=MODEL),
    ] = None
    transposed: Annotated[
        bool, typer.Option("--transposed", help="Its matrices are stored as (D, V).", rich_help_panel=MODEL)
    ] = False

    def opened(self, checkpoint: str, encoding: str | None) -> "Checkpoint":
        """Return what a file holds; raises InputError for what cannot be read."""
        from embcli import encodings
        from embcli.files.checkpoint import Checkpoint
        from embcli.layer import shape_of

        found = Checkpoint.of(checkpoint, self.tensor, self._named_positions, self.transposed)
        size, _ = shape_of(found, "token")
        known = encodings.of_rows(found.tensors) if encoding is None else encodings.get(encoding)
        found.encoding = known or encodings.guessed(size)
        if known is None and found.encoding is not None:
            found.reasons["encoding"] = f"{found.encoding.name}, which has as many tokens as there are rows"
        return found

    def refuse_without(self) -> None:
        """Raise InputError for options that say more of a file, where there is none."""
        self.refuse("goes with --from, which names the file", "--tensor", "--position-tensor", "--transposed")

    def refuse(self, why: str, *flags: str) -> None:
        """Raise InputError where one of these flags was given."""
        from embcli.errors import InputError

        for flag in flags:
            given = getattr(self, flag[2:].replace("-", "_"), None)
            if given is not None and given is not False:
                raise InputError(f"{flag} {why}")

    def tell_changes(self, source: "Source | None") -> None:
        """Say how many of the values that were read float32 cannot hold."""
        count = getattr(source, "changed", 0)
        if count:
            from embcli.safe import note

            note(f"{count:,} values were rounded to float32, which does not hold them exactly")

    @property
    def _named_positions(self) -> str | None:
        return None


class Checkpointed(OneMatrix):
    """Which model: a checkpoint's file, if one is named."""

    position_tensor: Annotated[
        str | None,
        typer.Option(
            "--position-tensor", metavar="NAME", help="The position matrix in that file.", rich_help_panel=MODEL
        ),
    ] = None

    @property
    def _named_positions(self) -> str | None:
        return self.position_tensor


_SEEDED = ("--vocab", "--dim", "--context-length", "--seed", "--no-cache")  # flags that say what to draw


class AnyModel(Checkpointed):
    """Which model: a checkpoint's file, or else a seeded pair of layers."""

    vocab: Vocab = None
    dim: Annotated[
        int | None,
        _dim_option(names.DEFAULT_DIM),
    ] = None
    context_length: Annotated[
        int | None,
        typer.Option(
            "--context-length",
            parser=whole,
            metavar="C",
            help="Rows of the position layer.",
            show_default=str(names.DEFAULT_CONTEXT_LENGTH),
            rich_help_panel=MODEL,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            parser=whole,
            metavar="INT",
            help="Seed of torch's generator.",
            show_default=str(names.DEFAULT_SEED),
            rich_help_panel=MODEL,
        ),
    ] = None
    no_cache: NoCache = False

    @property
    def position_shape(self) -> tuple[int, int]:
        """C and D of the seeded position layer."""
        length = names.DEFAULT_CONTEXT_LENGTH if self.context_length is None else self.context_length
        return length, names.DEFAULT_DIM if self.dim is None else self.dim

    def source(self, encoding: str | None) -> "tuple[Source, Encoding | None]":
        """Return where the layers come from, and the encoding of texts; nothing is drawn or read whole yet."""
        if self.checkpoint is not None:
            self.refuse("is for seeded layers; --from takes what the file holds", *_SEEDED)
            found = self.opened(self.checkpoint, encoding)
            return found, found.encoding
        from embcli import encodings

        self.refuse_without()
        known = encodings.get(encoding or names.DEFAULT_ENCODING)
        length, dim = self.position_shape
        seed = names.DEFAULT_SEED if self.seed is None else self.seed
        model = Model(vocab=self.vocab, dim=dim, context_length=length, seed=seed, no_cache=self.no_cache)
        return model.source(known), known


class TwoModels(Group):
    """Which two checkpoints are held against each other."""

    base: Annotated[
        str, typer.Argument(metavar="BASE", help="A model's file or folder, or its name in the local cache.")
    ]
    tuned: Annotated[str, typer.Argument(metavar="TUNED", help="Another one, as a rule made from it.")]
    tensor: Annotated[
        str | None,
        typer.Option("--tensor", metavar="NAME", help="The token matrix in both files.", rich_help_panel=MODEL),
    ] = None
    transposed: Annotated[
        bool, typer.Option("--transposed", help="It is stored as (D, V) in both.", rich_help_panel=MODEL)
    ] = False

    def opened(self, encoding: str | None) -> "tuple[Checkpoint, Checkpoint]":
        """Return what both files hold; raises InputError for what cannot be read."""
        found = OneMatrix(tensor=self.tensor, transposed=self.transposed)
        return found.opened(self.base, encoding), found.opened(self.tuned, encoding)


class ModelOfBatches(Group):
    """Which model: a seeded pair of layers, with a position row for each token of a sample."""

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
            rich_help_panel=MODEL,
        ),
    ] = None
    seed: Seed = names.DEFAULT_SEED
    no_cache: NoCache = False

    def of(self, max_length: int) -> Model:
        """Return the model for samples of so many tokens."""
        length = max_length if self.context_length is None else self.context_length
        return Model(vocab=self.vocab, dim=self.dim, context_length=length, seed=self.seed, no_cache=self.no_cache)


class Batching(Group):
    """How a text is cut into samples and batches, and which of them."""

    batch_size: Annotated[
        int, typer.Option("--batch-size", parser=whole, metavar="B", help="Samples in a batch.", rich_help_panel=INPUT)
    ] = 8
    max_length: Annotated[
        int, typer.Option("--max-length", parser=whole, metavar="T", help="Tokens in a sample.", rich_help_panel=INPUT)
    ] = 4
    stride: Annotated[
        int,
        typer.Option(
            "--stride", parser=whole, metavar="N", help="Tokens from one sample to the next.", rich_help_panel=INPUT
        ),
    ] = 4
    shuffle: Annotated[bool, typer.Option("--shuffle", help="Shuffle the samples.", rich_help_panel=INPUT)] = False
    keep_last: Annotated[
        bool, typer.Option("--keep-last", help="Keep the last batch also where it is not full.", rich_help_panel=INPUT)
    ] = False
    index: Annotated[
        int | None,
        typer.Option(
            "--index",
            parser=whole,
            metavar="K",
            help="Which batch, counted from 0.",
            rich_help_panel=INPUT,
            show_default="0",
        ),
    ] = None
    every: Annotated[bool, typer.Option("--all", help="All batches.", rich_help_panel=INPUT)] = False
    layers_first: Annotated[
        bool,
        typer.Option(
            "--layers-first", help="Draw both layers before the loader takes random numbers.", rich_help_panel=INPUT
        ),
    ] = False

    def wanted(self) -> "Wanted":
        """Return the batches that are wanted; raises InputError for what makes none."""
        from embcli.verbs.batch import Wanted

        return Wanted(**vars(self))


class Joining(Group):
    """Which positions join the token rows."""

    position: Annotated[
        names.Joined,
        typer.Option(
            "--position",
            help="Which kind of positions; rotary ones have angles, which --columns leaves whole.",
            rich_help_panel=MODEL,
        ),
    ] = "learned"
    pairing: Pairing = None
    theta: Theta = None
    token_type: Annotated[
        int | None,
        typer.Option(
            "--token-type",
            parser=whole,
            metavar="N",
            help="With --from: add row N of the model's token types (BERT).",
            rich_help_panel=MODEL,
        ),
    ] = None


class SmallModel(OneMatrix):
    """Which model: the token matrix of a checkpoint's file, or else a seeded layer, as large as the IDs need it."""

    vocab: Annotated[
        int | None,
        typer.Option(
            "--vocab",
            parser=whole,
            metavar="V",
            help="Rows of the token layer.",
            show_default="the encoding's; with --ids, the largest ID + 1",
            rich_help_panel=MODEL,
        ),
    ] = None
    dim: Annotated[
        int | None,
        _dim_option(names.COMPARED_DIM),
    ] = None
    seed: Seed = names.DEFAULT_SEED

    def source(self, encoding: str | None) -> "Checkpoint | None":
        """Return what a file holds, where one is named; its matrix has not been read."""
        if self.checkpoint is None:
            self.refuse_without()
            return None
        self.refuse("is for seeded layers; --from takes what the file holds", "--vocab", "--dim")
        return self.opened(self.checkpoint, encoding)


def _format_option(able: tuple[names.Format, ...]) -> Any:
    return typer.Option(
        "--format",
        "-f",
        parser=_format,
        metavar="FORMAT",
        help=f"{', '.join(able[:-1])} or {able[-1]}.",
        show_default="by the suffix of --output, else EMBCLI_FORMAT, else table",
        autocompletion=_one_of(able),
        rich_help_panel=OUTPUT,
    )


class Place(Group):
    """Where the result goes, and in what form, for a result that is a list."""

    able: ClassVar[tuple[names.Format, ...]] = names.LISTED
    format: Annotated[names.Format | None, _format_option(names.LISTED)] = None
    output: OutputPath = None
    color: Annotated[names.Color, typer.Option("--color", help="Colour in a table.", rich_help_panel=VIEW)] = "auto"
    width: Annotated[
        int | None,
        typer.Option(
            "--width",
            parser=whole,
            metavar="N",
            help="Columns of a table or a picture.",
            show_default="the terminal's, in a pipe 120, in a picture 100",
            rich_help_panel=VIEW,
        ),
    ] = None
    theme: Annotated[
        names.Theme | None,
        typer.Option("--theme", help="Ground of a picture.", show_default="light", rich_help_panel=VIEW),
    ] = None

    def to(
        self,
        show: tuple[str, ...] | None = None,
        needs: Mapping[str, tuple[names.Format, ...]] | None = None,
    ) -> "Output":
        """Return the output; raises OutputError for what cannot be done.

        `show` are the matrices that the user named, and `needs` the options that only some formats have a place for.
        """
        from embcli import output

        given = (self.format, self.output, self.color, self._precision)
        return output.to(self.able, *given, show, needs, self.width, self.theme)

    @property
    def _precision(self) -> int:
        return names.DEFAULT_PRECISION


class PlaceOfFindings(Place):
    """Where goes what was found of the rows of a matrix."""

    able = names.RANKED
    format: Annotated[names.Format | None, _format_option(names.RANKED)] = None


class PlaceOfTokens(Place):
    """Where tokens go."""

    able = names.TOKENIZED
    format: Annotated[names.Format | None, _format_option(names.TOKENIZED)] = None


class PlaceOfMatrices(Place):
    """Where a result with numbers goes."""

    able = names.COMPARED
    format: Annotated[names.Format | None, _format_option(names.COMPARED)] = None
    precision: Annotated[
        int,
        typer.Option("--precision", parser=whole, metavar="N", help="Decimals in a table.", rich_help_panel=VIEW),
    ] = names.DEFAULT_PRECISION
    heat: Annotated[
        bool, typer.Option("--heat", help="Show numbers as colours, those of all columns.", rich_help_panel=VIEW)
    ] = False
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            metavar="R",
            help="With --heat: the numbers from -R to R.",
            show_default="the largest |number|",
            rich_help_panel=VIEW,
        ),
    ] = None

    def to(
        self,
        show: tuple[str, ...] | None = None,
        needs: Mapping[str, tuple[names.Format, ...]] | None = None,
        colored_by: str | None = None,
    ) -> "Output":
        """Return the output; `colored_by` is the option that asks for colours, where another than --heat was given.

        Raises OutputError for what cannot be done, and InputError for a scale that is none, or is of no use.
        """
        from dataclasses import replace
        from math import inf

        from embcli.errors import InputError

        flag = colored_by or ("--heat" if self.heat else None)
        if self.scale is not None and flag is None:
            raise InputError(f"--scale {self.scale:g} has nothing to scale; it goes with --heat")
        if self.scale is not None and not 0 < self.scale < inf:
            raise InputError(f"--scale {self.scale:g} is out of range; it is a finite number above 0")
        asked = {**(needs or {}), flag: names.PAGES} if flag else needs
        return replace(super().to(show, asked), heat=flag is not None, scale=self.scale)

    @property
    def _precision(self) -> int:
        return self.precision


class PlaceOfRanked(PlaceOfMatrices):
    """Where a list goes that can be shown as rows of a matrix."""

    able = names.RANKED
    format: Annotated[names.Format | None, _format_option(names.RANKED)] = None


class PlaceOfEmbeddings(PlaceOfMatrices):
    """Where rows that are embeddings go."""

    able = names.LOOKED_UP
    format: Annotated[names.Format | None, _format_option(names.LOOKED_UP)] = None


class PlaceOfBatches(PlaceOfMatrices):
    """Where batches go."""

    able = names.BATCHED
    format: Annotated[names.Format | None, _format_option(names.BATCHED)] = None

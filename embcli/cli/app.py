"""The command line: for each verb a signature, one call of the library, and one call that writes its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from embcli import names
from embcli.cli.completion import PROGRAM
from embcli.cli.groups import grouped
from embcli.cli.help import ALL, LEARN, MATRIX, MORE, TEXT, VECTORS, GroupHelp, Overview, VerbHelp
from embcli.cli.models import (
    AnyModel,
    ComparisonModel,
    NamedFile,
    NamedModel,
    PositionsModel,
    SeededModel,
    TwoModels,
    refuse_options,
)
from embcli.cli.streams import FileInput, InputOrExample, LinesInput, MatrixTarget, QueriesInput, Target, WindowsInput
from embcli.errors import InputError
from embcli.options import Batching, ComparisonOptions, LookupOptions, Nearness, PositionOptions
from embcli.safe import in_line
from embcli.selection import select
from embcli.verbs.cache import clear, contents

if TYPE_CHECKING:
    from embcli.formats import Kind
    from embcli.store import Store

# Functions, the kinds of their results, and settings for Typer.
_VERBS: dict[str, tuple[Callable[..., Any], Kind | None, dict[str, Any]]] = {}


def verb(
    kind: Kind | None, group: str, examples: dict[str, str], **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a function a verb of a group, with examples by what they show.

    `kind` is the kind of its result, if it can be written in several formats.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        about = {"cls": VerbHelp, "epilog": _epilog(examples), "rich_help_panel": group}
        _VERBS[function.__name__] = function, kind, about | settings
        return function

    return register


def _epilog(examples: dict[str, str]) -> str:
    return "\n".join(f"# {comment}\n{command}" for comment, command in examples.items())


def command_line(
    words: Sequence[str] | None = None, check: Callable[[dict[str, Any]], None] | None = None
) -> typer.Typer:
    """Return the command line: all of it, or only what these words after `embcli` need.

    `check` gets the values of all options of a verb before it runs, and may raise an error.
    The options of all verbs take 50 ms, a fifth of a lookup; those of the called verb take 5, and the list of verbs
    needs none.
    """
    app = typer.Typer(
        cls=Overview,
        add_completion=False,  # options.py has options of the same names that take the shell's
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(grouped(embcli, "embcli"))
    is_list = words is not None and [*words] in ([], ["--help"], ["-h"])
    called = words[0] if words and words[0] in (*_VERBS, "cache") else None
    for name, (function, kind, settings) in _VERBS.items():
        if called in (None, name):
            app.command(**settings)(_without_options(function) if is_list else grouped(function, name, kind, check))
    if called in (None, "cache"):
        app.add_typer(_cache(), name="cache", rich_help_panel=MORE)
    return app


def run(
    words: Sequence[str] | None, check: Callable[[dict[str, Any]], None] | None = None, **settings: object
) -> object:
    """Run the command of these words after `embcli`; None answers a completion script.

    With a check of the options only these words are run, never those that were probably meant.
    Raises InputError, with the command that was probably meant, for words that are no command.
    """
    try:
        return command_line(words, check)(words, prog_name=PROGRAM, standalone_mode=False, **settings)
    except typer.TyperException as error:
        from embcli.cli.slips import Slip

        slip = Slip.of(error, words or ())
    if slip.corrected is None or check is not None:
        raise InputError(slip.message, slip.hint)
    return run(slip.corrected, None, **settings)


def _without_options(function: Callable[..., Any]) -> Callable[[], None]:
    def listed() -> None: ...

    listed.__name__, listed.__doc__ = function.__name__, function.__doc__
    return listed


def _cache() -> typer.Typer:
    """Return the commands of `embcli cache`."""
    cache = typer.Typer(cls=GroupHelp, help="Show or clear the cache.", rich_markup_mode=None)
    examples = {
        "where layers are kept, and how much space they take": "embcli cache",
        "the same as data": "embcli cache -f json",
        "remove everything": "embcli cache clear",
    }
    cache.callback(invoke_without_command=True, epilog=_epilog(examples))(grouped(cache_show, "cache", "list"))
    cache.command("clear", cls=VerbHelp)(cache_clear)
    return cache


def embcli(
    context: typer.Context,
    version: bool = False,
    show_completion: names.Shell | None = None,
    install_completion: names.Shell | None = None,
) -> None:
    """Show what an embedding layer does, from text to the numbers that a model reads."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@verb(
    "tokens",
    TEXT,
    {
        "the tokens of a sentence, their IDs and bytes": 'embcli tokenize "Every effort moves you"',
        "how its letters became these tokens": "embcli tokenize strawberry --merges --draw",
        "under two tokenizers, side by side": 'embcli tokenize "Unbelievable!" --encoding gpt2,o200k_base',
    },
)
def tokenize(
    source: LinesInput,
    encoding: tuple[str, ...] = (names.DEFAULT_ENCODING,),
    merges: bool = False,
    draw: bool = False,
    *,
    target: Target,
) -> int | None:
    """Show the tokens of a text.

    One row per token: position, token, ID, bytes, and its span in the text.
    """
    if draw and not merges:
        raise InputError("--draw draws the trees of --merges; give both")
    modes = {"--merges": merges, "--encoding with several names": len(encoding) > 1}
    pages = [flag for flag, is_given in modes.items() if is_given]
    if len(pages) > 1:
        raise InputError(f"{pages[0]} and {pages[1]} are two pages; give one of them")
    if pages and source.ids is not None:
        raise InputError(f"{pages[0]} shows how a text becomes tokens; --ids gives none")
    output = target.output_of("list" if pages else "tokens", {"draw": draw})
    if len(encoding) > 1:
        from embcli.cli.console import PrintedNotes
        from embcli.model import tokenizers

        notes, text = PrintedNotes(), source.sequences()
        return output.write(tokenizers(text, encoding, special=source.special, notes=notes))
    model = AnyModel().opened(encoding[0])
    if merges:
        return output.write(model.merges(source.sequences(), special=source.special, draw=draw))
    return output.write(model.tokenize(source.sequences(), special=source.special))


@verb(
    None,
    TEXT,
    {
        "back to text": "embcli decode 6109 3626 6100 345",
        "with the encoding of another model": "embcli decode --encoding gpt-4o 13225",
        "all IDs from a pipe": "embcli tokenize -f ids < book.txt | embcli decode",
    },
    context_settings={"ignore_unknown_options": True},
)
def decode(
    ids: list[str] | None = None,
    encoding: str = names.DEFAULT_ENCODING,
    output: Path | None = None,
) -> None:
    """Turn token IDs back into text.

    Byte for byte. Without IDS, IDs are read from standard input.
    """
    from embcli.cli.output import Output, named
    from embcli.cli.text import read_ids

    model = AnyModel().opened(encoding)
    Output("table", named(output)).write_text(model.decode_bytes(read_ids(" ".join(ids) if ids else None)))


@verb(
    "embeddings",
    MATRIX,
    {
        "all of a small layer, with random numbers": "embcli weights --vocab 6 --dim 3",
        "chosen rows and columns of a model": "embcli weights model.safetensors --rows 0:5,100 --columns 0:8",
        "the whole matrix as a picture of how large its numbers are": "embcli weights model.safetensors --map",
    },
)
def weights(
    model: NamedModel,
    layer: names.Layer = "token",
    rows: str | None = None,
    columns: str | None = None,
    sort: names.Sort = "id",
    map: bool = False,
    encoding: str | None = None,
    *,
    target: MatrixTarget,
) -> None:
    """Show the weight matrix of a layer.

    As a summary, as a map, or as chosen rows and columns, sorted by norm if you like.
    """
    from embcli.layer import shape_of

    if map and target.heat:
        raise InputError("--map is a picture in colours already; leave out --heat")
    output = target.output_of("embeddings", {"map": map})
    opened = model.opened(encoding)
    size, dim = shape_of(opened.source, layer)
    rows = opened.numbered(rows, layer)
    output.refuse_many_numbers(_count(rows, size, "row") * _count(columns, dim, "column"))
    output.write(opened.weights(layer=layer, rows=rows, columns=columns, sort=sort, map=map))


def _count(spec: str | None, size: int, what: str) -> int:
    """Return how many rows or columns are chosen."""
    return size if spec is None else len(select(spec, size, what))


@verb(
    "embeddings",
    VECTORS,
    {
        "token rows + position rows = input embeddings": 'embcli lookup "Every effort moves you"',
        "a small layer, and the sum of the first token": "embcli lookup --ids 2,3,5,1 --vocab 6 --dim 3 --trace 0",
        "what a real model reads, as a file": 'embcli lookup "Every effort moves you" --from gpt2 -o input.npy',
    },
)
def lookup(
    source: WindowsInput, model: AnyModel, options: LookupOptions, encoding: str | None = None, *, target: MatrixTarget
) -> None:
    """Show the rows that tokens pick, and their input embeddings.

    Token rows + position rows = input embeddings, which the model reads.
    """
    output = target.output_of("embeddings", vars(options), options.show)
    opened = model.opened(encoding)
    tokens = opened.tokens(source.sequences(), source.special)
    if options.only is None:
        columns = _count(options.columns, opened.shape[1], "column")
        output.refuse_many_numbers(len(tokens) * columns, len(options.show or options.matrices))
    output.write(opened.lookup(tokens, window=source.window, **vars(options)))


@verb(
    "matrices",
    VECTORS,
    {
        "the chapter's three IDs, step by step": "embcli compare",
        "the product of each token, written out": 'embcli compare "Every effort moves you" --trace',
        "on the matrix of a model": "embcli compare --from model.safetensors",
    },
)
def compare(
    source: InputOrExample,
    model: ComparisonModel,
    options: ComparisonOptions,
    encoding: str | None = None,
    *,
    target: MatrixTarget,
) -> int:
    """Show that a lookup is a one-hot product.

    With the same weight, bit for bit; the exit status is 1 if they differ.
    """
    output = target.output_of("matrices", vars(options), options.outputs)
    sequences = source.sequences()
    opened = model.opened_for(sequences, encoding)
    tokens = opened.tokens(sequences, source.special)
    weights = len({"first", "shared"} & {*(options.show or ())}) * math.prod(opened.shape)
    output.refuse_many_numbers(len(tokens) * opened.shape[1], len(options.outputs or names.OUTPUTS), weights)
    return output.write(opened.compare(tokens, seed=model.seed, **vars(options)))


@verb(
    "batches",
    TEXT,
    {
        "the first batch, as in the chapter": "embcli batch the-verdict.txt",
        "every number of a short text": 'echo "Every effort moves you forward" | embcli batch --batch-size 1 --dim 3',
        "all batches, shuffled, for the next program": "embcli batch the-verdict.txt --shuffle --all -o input.npy",
    },
)
def batch(
    source: FileInput,
    model: SeededModel,
    batching: Batching,
    encoding: str = names.DEFAULT_ENCODING,
    columns: str | None = None,
    *,
    target: MatrixTarget,
) -> None:
    """Show sliding-window batches of a text.

    Inputs, targets, and the shapes up to what a model reads, (B, T, D).
    """
    output = target.output_of("batches", vars(batching))
    opened = model.opened(encoding)
    tokens = opened.tokens(source.sequences(), source.special)
    output.write(opened.batch(tokens, context_length=model.context_length, columns=columns, **vars(batching)))


@verb(
    "embeddings",
    VECTORS,
    {
        "waves of growing length, as colours": "embcli positions sinusoidal --heat",
        "angles by which rotary positions rotate a row": "embcli positions rotary",
        "how similar the positions of a model are": "embcli positions model.safetensors --similarity",
    },
)
def positions(
    model: PositionsModel, options: PositionOptions, encoding: str | None = None, *, target: MatrixTarget
) -> None:
    """Show how a position becomes a vector.

    In six ways, or as in a real model. A page shows positions 0 to 15, unless you choose T or rows.
    """
    output = target.output_of("embeddings", vars(options))
    output.write(model.opened(encoding).positions(context_length=model.context_length, **vars(options)))


@verb(
    "ranking",
    MATRIX,
    {
        "the tokens nearest to a token of a model": 'embcli neighbors " Paris" --from gpt2',
        "king - man + woman": 'embcli neighbors " king" --minus " man" --plus " woman" --from gpt2',
        "nearest to each input embedding of a text": 'embcli lookup "Hi there" -f ndjson | embcli neighbors --vector -',
    },
)
def neighbors(
    source: QueriesInput, model: AnyModel, nearness: Nearness, encoding: str | None = None, *, target: MatrixTarget
) -> None:
    """Show the rows nearest to a row.

    Among all rows of the token layer. The search is exact: every row is scored in float64.
    """
    output = target.output_of("ranking", vars(nearness))
    opened = model.opened(encoding)
    output.write(opened.neighbors(**source.queries(opened), **vars(nearness)))


@verb(
    "ranking",
    MATRIX,
    {
        "broken, unused, equal and under-trained rows": "embcli audit model.safetensors",
        "status 1 for these faults, for a script": "embcli audit model.safetensors --fail-on missing,padding",
        "every finding, as a table for a spreadsheet": "embcli audit model.safetensors -f csv -o audit.csv",
    },
)
def audit(
    model: NamedModel,
    fail_on: tuple[names.Fault, ...] | None = None,
    top: int = names.SHOWN_ROWS,
    encoding: str | None = None,
    *,
    target: Target,
) -> int:
    """Show what looks unusual in a token matrix.

    Broken, unused, equal and under-trained rows; the exit status is 1 if any are broken.
    """
    output = target.output_of("ranking")
    return output.write(model.opened(encoding).audit(fail_on=fail_on, top=top))


@verb(
    "ranking",
    MATRIX,
    {
        "which rows fine-tuning changed, and how much": "embcli diff model.safetensors tuned.safetensors",
        "all rows, for the next program": "embcli diff model.safetensors tuned.safetensors -f ndjson",
        "status 1 if any row differs, for a script": "embcli diff model.safetensors tuned.safetensors -o changed.csv",
    },
)
def diff(models: TwoModels, top: int = names.SHOWN_ROWS, encoding: str | None = None, *, target: Target) -> int:
    """Show which rows of two checkpoints differ.

    Matched by their tokens; the exit status is 1 if any differ.
    """
    output = target.output_of("ranking")
    base, tuned = models.opened(encoding)
    return output.write(base.diff(tuned, top=top))


@verb(
    None,
    MATRIX,
    {
        "walk through the matrix of a model": "embcli explore model.safetensors",
        "from a row on, by its token or ID": 'embcli explore gpt2 --row " Paris"',
        "the tokens of a text, and their rows": 'embcli explore gpt2 --text "Every effort moves you"',
    },
)
def explore(
    model: NamedModel,
    row: str | None = None,
    text: str | None = None,
    sort: names.Sort = "id",
    encoding: str | None = None,
) -> int:
    """Walk through a matrix, full-screen.

    Rows, neighbours, findings and input embeddings, by keys; ? lists them. Each screen names the command that prints
    it, and q prints that command.
    """
    from embcli.cli.explore import walk

    return walk(model, encoding, row, text, sort)


@verb(
    None,
    LEARN,
    {
        "all steps, with questions": "embcli tour",
        "one step, with your own text": 'embcli tour --text "Hello, world" --step 3',
        "a tour of your own": "embcli tour my-tour.json",
    },
)
def tour(file: Path | None = None, step: int | None = None, text: str = names.TOUR_TEXT) -> int:
    """Go through the chapter, step by step.

    embcli commands, their output and short explanations; Enter continues.
    """
    from embcli.cli.tour import guide

    if step is None and file is not None and str(file).isdecimal() and not file.exists():  # `embcli tour 3`
        file, step = None, int(str(file))
    verbs = tuple(name for name in (*_VERBS, "cache") if name != "tour")
    return guide(file, verbs, text, step, run)


@verb(
    "list",
    LEARN,
    {
        "a word that a page prints": "embcli explain one-hot",
        "a field of the data formats": "embcli explain equal_to",
        "the list of words": "embcli explain",
    },
)
def explain(word: list[str] | None = None, *, target: Target) -> None:
    """Explain a word of a page, with an example and its source.

    Without WORD, list all words that are explained.
    """
    from embcli.verbs.explain import explain

    target.output_of("list").write(explain(" ".join(word) if word else None))


@verb(
    None,
    LEARN,
    {
        "all options of a verb, in groups": "embcli help lookup",
        "of a command of a verb": "embcli help cache clear",
        "the list of verbs": "embcli help",
    },
)
def help(words: list[str] | None = None) -> None:
    """Show all options of a verb, and its examples."""
    run([*(words or ()), "--help"], obj=ALL)


@verb(
    "list",
    MORE,
    {
        "versions, encodings and the cache": "embcli info",
        "the tensors of a model, and what they are for": "embcli info gpt2",
        "the models on this machine": "embcli info --models",
    },
)
def info(
    model: NamedFile, tensors: bool = False, models: bool = False, encoding: str | None = None, *, target: Target
) -> None:
    """Show versions and the cache, or the tensors of a model.

    Without PATH, encodings and the CPU capability of torch, too. With PATH, the tensors that embcli reads, or all.
    """
    output = target.output_of("list")
    if models:
        from embcli.cli.console import PrintedNotes
        from embcli.verbs.models import local_models

        if model.path is not None:
            raise InputError("--models lists all models; leave out the model")
        refuse_options(vars(model))
        output.write(local_models(PrintedNotes()))
    elif model.path is None:
        from embcli.verbs.info import info

        refuse_options(vars(model))
        output.write(info())
    else:
        output.write(model.opened(encoding).info(tensors=tensors))


def cache_show(context: typer.Context, target: Target) -> None:
    """Show where layers and indexes are kept, and how much space each of them takes."""
    if context.invoked_subcommand is None:
        target.output_of("list").write(contents(_store()))


def cache_clear() -> None:
    """Remove everything from the cache."""
    typer.echo(in_line(clear(_store()).removed))


def _store() -> Store | None:
    from embcli.cli.console import PrintedNotes
    from embcli.store import Store

    return Store.from_environment(PrintedNotes())

"""The command line: for each verb a signature of option groups, one call that works it out, and one that shows it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from embcli import __version__, names, options
from embcli.groups import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

# To make the commands of all verbs takes a while: that is done for what needs them all (completion, and the tour), for
# which this is None. The list of verbs needs no options.
_CALLED = next((word for word in sys.argv[1:2] if word in names.VERBS and word != "tour"), None)
_LISTED = sys.argv[1:2] in (["--help"], ["-h"])
_ON_A_TERMINAL = sys.stdout is not None and sys.stdout.isatty()
_WIDEST = 100  # columns of a help text
_VERBS = "What an embedding layer does, from text to the numbers that a model reads"
if _ON_A_TERMINAL:  # which Typer asks for the width of its panels
    os.environ.setdefault("TERMINAL_WIDTH", str(min(shutil.get_terminal_size().columns, _WIDEST)))
_MARKUP: Literal["rich"] | None = "rich" if _ON_A_TERMINAL else None  # in a pipe, help is one plain list

app = typer.Typer(
    add_completion=False,  # options.py has options of the same names that take the shell's
    rich_markup_mode=_MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": _WIDEST},
)


def verb(*examples: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what makes a function a command, with these examples under its help, unless another one is called."""
    register = app.command(epilog=_epilog(*examples), rich_help_panel=_VERBS, **settings)
    if _LISTED:
        return lambda function: register(_without_options(function))
    return lambda function: register(grouped(function)) if _CALLED in (None, function.__name__) else function


def _without_options(function: Callable[..., Any]) -> Callable[[], None]:
    def listed() -> None: ...

    listed.__name__, listed.__doc__ = function.__name__, function.__doc__
    return listed


def _epilog(*examples: str) -> str:
    return "\n\n".join(["Examples:", *examples])


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # that is, not while the rest of the line is completed
        typer.echo(f"embcli {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help="" if _ON_A_TERMINAL else None)
def embcli(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    show_completion: options.ShowCompletion = None,
    install_completion: options.InstallCompletion = None,
) -> None:
    """Show what an embedding layer does, from text to the numbers that a model reads."""
    if context.invoked_subcommand is None:
        text = context.get_help()  # which rich prints by itself
        typer.echo(text, nl=bool(text))


@verb(
    'embcli tokenize "Every effort moves you"',
    "embcli tokenize --file book.txt -f ids -o book.ids",
    'embcli tokenize "Hello" --encoding gpt-4o',
)
def tokenize(
    given: options.GivenLines,
    encoding: options.EncodingName = names.DEFAULT_ENCODING,
    *,
    place: options.PlaceOfTokens,
) -> None:
    """Show the tokens of a text.

    A row a token: position, token, ID, bytes, and where it stands in the text.
    """
    from embcli import encodings
    from embcli.verbs.tokenize import Tokenization
    from embcli.views.tokenize import view

    output = place.to()
    tokens = given.tokens(encodings.get(encoding), 'embcli tokenize "Every effort moves you"', spans=True)
    output.write(Tokenization(tokens), view)


@verb(
    "embcli decode 6109 3626 6100 345",
    "embcli tokenize -f ids < book.txt | embcli decode",
    context_settings={"ignore_unknown_options": True},
)
def decode(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="IDS", help="Token IDs: 6109 3626, or 6109,3626.", show_default=False),
    ] = None,
    encoding: options.EncodingName = names.DEFAULT_ENCODING,
    output: options.OutputPath = None,
) -> None:
    """Turn token IDs back into text.

    Byte for byte; without IDs they are read from standard input.
    """
    from embcli import encodings, text
    from embcli.output import Output, named
    from embcli.verbs.decode import decode

    array = text.read_ids(" ".join(ids) if ids else None)
    Output("table", named(output)).write_text(decode(array, encodings.get(encoding)))


@verb(
    "embcli weights --vocab 6 --dim 3",
    "embcli weights --rows 0:5,100 --columns 0:8",
    "embcli weights --from model.safetensors --map",
    "embcli weights --scatter -o scatter.svg",
)
def weights(
    model: options.AnyModel,
    layer: options.LayerName = "token",
    rows: options.Rows = None,
    columns: options.Columns = None,
    density: options.DensityMap = False,
    encoding: options.EncodingOfModel = None,
    scatter: options.Scatter = False,
    *,
    place: options.PlaceOfEmbeddings,
) -> None:
    """Show the weight matrix of a layer.

    All of it in short, or as a map, or chosen rows and columns.
    """
    from embcli.errors import InputError
    from embcli.page.progress import watched

    if density and scatter:
        raise InputError("--map and --scatter are two pictures; give one of them")
    needs = {"--scatter": names.DRAWINGS} if scatter else {}
    output = place.to(needs=needs, colored_by="--map" if density else None)
    source, _ = model.source(encoding)
    if density:
        from embcli.verbs.map import density_map
        from embcli.views import map as density_view

        found = density_map(source, layer, rows, columns, watched)
        output.put(lambda page: density_view.view(found, page))
    elif scatter:
        from embcli.verbs import scatter as verb
        from embcli.views import scatter as view_of_scatter

        output.draw(verb.scatter(source, layer, rows, columns, watched), view_of_scatter.view)
    else:
        from embcli.verbs.weights import weights
        from embcli.views.weights import view

        output.write(weights(source, layer, rows, columns, watched), view)
    model.tell_changes(source)


@verb(
    'embcli lookup "Every effort moves you"',
    "embcli lookup --ids 2,3,5,1 --vocab 6 --dim 3 --trace 0",
    "embcli lookup --file book.txt --window -o input.npy",
    'embcli lookup "the cat saw the dog" --only " the" --position rotary',
)
def lookup(
    given: options.GivenWindows,
    model: options.AnyModel,
    joining: options.Joining,
    encoding: options.EncodingOfModel = None,
    show: options.ShowMatrices = None,
    columns: options.Columns = None,
    trace: options.Trace = None,
    draw: options.Draw = False,
    *,
    place: options.PlaceOfEmbeddings,
) -> None:
    """Show the rows that tokens pick, and their input embeddings.

    Token rows + position rows = input embeddings, which the model reads.
    """
    from embcli.layer import shape_of
    from embcli.verbs.lookup import Wanted, look_up
    from embcli.views.lookup import view

    wanted = Wanted(options.listed(show, names.MATRICES), columns, trace, draw, **vars(joining))
    output = place.to(wanted.show, wanted.needs())
    source, known = model.source(encoding)
    tokens = given.tokens(known if given.as_text else source.encoding)
    tokens = tokens.window(shape_of(source, "position")[0]) if given.window else tokens
    room = output.room(len(wanted.show or wanted.matrices))
    output.write(look_up(tokens, source, wanted, given.chosen(tokens), room), view)
    model.tell_changes(source)


@verb(
    "embcli compare",
    'embcli compare "Every effort moves you" --trace',
    "embcli compare --ids 2,3,1 --gradient --bench",
    "embcli compare --from model.safetensors",
)
def compare(
    given: options.GivenOrExample,
    model: options.SmallModel,
    encoding: options.EncodingOfModel = None,
    show: options.ShowSteps = None,
    trace: options.TraceProducts = False,
    gradient: options.Gradients = False,
    learning_rate: options.LearningRate = None,
    bench: options.Bench = False,
    draw: options.Draw = False,
    *,
    place: options.PlaceOfMatrices,
) -> int:
    """Show that a lookup is a one-hot product.

    With the same weight, bit for bit; the exit status is 1 where it is not.
    """
    from embcli import encodings
    from embcli.page.progress import watched
    from embcli.verbs import compare as verb
    from embcli.views.compare import view

    steps = options.listed(show, (*names.STEPS, *names.OUTPUTS))
    wanted = verb.Wanted.of(steps, trace, gradient, bench, learning_rate, draw)
    output = place.to(wanted.outputs, wanted.needs())
    source, room = model.source(encoding), output.room(len(names.OUTPUTS))
    if source is None:
        known, dim = encodings.get(encoding or names.DEFAULT_ENCODING), model.dim
        dim = names.COMPARED_DIM if dim is None else dim
        task = verb.task(given.tokens(known), given.as_text, known, model.vocab, dim, model.seed, wanted, room)
    else:
        task = verb.task_of(source, given.tokens(source.encoding), model.seed, wanted, room)
    result = verb.compare(task, watched)
    output.write(result, view)
    model.tell_changes(source)
    return int(not result.verdict.identical)


@verb(
    "embcli batch the-verdict.txt",
    'echo "Every effort moves you forward" | embcli batch - --batch-size 1 --dim 3',
    "embcli batch the-verdict.txt --shuffle --all -o input.npy",
)
def batch(
    given: options.GivenFile,
    model: options.ModelOfBatches,
    batching: options.Batching,
    encoding: options.EncodingName = names.DEFAULT_ENCODING,
    columns: options.Columns = None,
    draw: options.Draw = False,
    *,
    place: options.PlaceOfBatches,
) -> None:
    """Show sliding-window batches of a text.

    Inputs, targets, and the shapes up to what a model reads, (B, T, D).
    """
    from embcli import encodings
    from embcli.verbs.batch import batch
    from embcli.views.batch import picture, view

    wanted = batching.wanted()
    output = place.to(needs={"--draw": names.PAGES} if draw else {})
    known = encodings.get(encoding)
    source = model.of(wanted.max_length).source(known)
    tokens = given.tokens(known if given.ids is None else source.encoding)
    output.write(batch(tokens, source, wanted, columns), picture if draw or place.heat else view)


@verb(
    "embcli positions --kind sinusoidal",
    "embcli positions --kind rotary --pairing halves --similarity",
    "embcli positions --kind relative --clip 4 --context-length 16 -o relative.npy",
    "embcli positions --from model.safetensors --similarity",
)
def positions(
    model: options.AnyModel,
    kind: options.PositionsKind = "learned",
    clip: options.Clip = None,
    pairing: options.Pairing = None,
    theta: options.Theta = None,
    ids: options.OneID = None,
    similarity: options.Similarity = False,
    rows: options.Rows = None,
    columns: options.Columns = None,
    encoding: options.EncodingOfModel = None,
    *,
    place: options.PlaceOfEmbeddings,
) -> None:
    """Show how a position becomes a vector.

    In four ways, for as many positions as --context-length says; or the learned ones of a real model.
    """
    from embcli.verbs.positions import Wanted, positions, stored_shape
    from embcli.views.positions import view

    stored = model.source(encoding)[0] if model.checkpoint is not None else None
    length, dim = model.position_shape if stored is None else stored_shape(stored, kind)
    wanted = Wanted(kind, length, dim, clip, pairing, theta, ids, similarity)
    output = place.to(needs=wanted.needs())
    source = stored or model.but(context_length=wanted.rows).source(encoding)[0]
    output.write(positions(wanted, source, rows, columns), view)
    model.tell_changes(source)


@verb(
    'embcli neighbors " Paris"',
    "embcli neighbors --ids 3 --from model.safetensors --metric l2 --why",
    'embcli neighbors " king" --minus " man" --plus " woman"',
    'embcli lookup "Hi there" -f ndjson | embcli neighbors --vector -',
)
def neighbors(
    given: options.GivenQueries,
    model: options.AnyModel,
    near: options.Nearness,
    encoding: options.EncodingOfModel = None,
    *,
    place: options.PlaceOfRanked,
) -> None:
    """Show the rows nearest to a row.

    Of all rows of the token layer, exactly: scores are float64, and proven to be the first.
    """
    from embcli.layer import shape_of
    from embcli.page.progress import watched
    from embcli.verbs.neighbors import neighbors
    from embcli.views.neighbors import view

    wanted = near.wanted()
    output = place.to(needs={"--why": (*names.PAGES, "json", "ndjson")} if wanted.why else {})
    source, known = model.source(encoding)
    queries = given.queries(known if given.as_text else source.encoding)(shape_of(source, "token"))
    output.write(neighbors(source, queries, wanted, watched), view)
    model.tell_changes(source)


@verb(
    "embcli audit --from model.safetensors",
    "embcli audit --from model.safetensors --fail-on missing,padding",
    "embcli audit --dim 4 -f csv -o audit.csv",
)
def audit(
    model: options.AnyModel,
    fail_on: options.FailOn = None,
    encoding: options.EncodingOfModel = None,
    *,
    place: options.PlaceOfFindings,
) -> int:
    """Show what is odd about a token matrix.

    Broken, unused, equal and hardly trained rows; the exit status is 1 where it is broken.
    """
    from embcli.page.progress import watched
    from embcli.verbs.audit import audit
    from embcli.views.audit import view

    chosen = options.listed(fail_on, names.FAULTS, "--fail-on")
    output = place.to()
    source, _ = model.source(encoding)
    result = audit(source, chosen, watched)
    output.write(result, view)
    model.tell_changes(source)
    return int(bool(result.broken))


@verb("embcli diff model.safetensors tuned.safetensors", "embcli diff model.safetensors tuned.safetensors -f ndjson")
def diff(models: options.TwoModels, encoding: options.EncodingOfModel = None, *, place: options.PlaceOfFindings) -> int:
    """Show which rows of two checkpoints differ.

    Matched by their tokens; the exit status is 1 where some do.
    """
    from embcli.page.progress import watched
    from embcli.verbs.diff import diff
    from embcli.views.diff import view

    output = place.to()
    base, tuned = models.opened(encoding)
    result = diff(base, tuned, watched)
    output.write(result, view)
    return int(result.different)


@verb(
    "embcli tour",
    'embcli tour --text "Hello, world" --step 3',
    "embcli tour my-tour.json",
)
def tour(
    file: options.TourFile = None,
    step: options.TourStep = None,
    text: options.TourText = names.TOUR_TEXT,
) -> int:
    """Go through the chapter, step by step.

    Commands of embcli, their output, and words; Enter goes on.
    """
    from embcli import guide
    from embcli.verbs.tour import read

    verbs = tuple(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # that of an app is a group
    return guide.guide(read(file, verbs, text), step, _run)


def _run(words: list[str]) -> object:
    """Run a command of embcli within this one; raises InputError for one that is not well formed."""
    from embcli.errors import InputError

    try:
        return app(words, prog_name="embcli", standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(" ".join(error.format_message().split())) from None


@verb("embcli info", "embcli info -f json", "embcli info --from model.safetensors")
def info(
    model: options.Checkpointed,
    tensors: options.EveryTensor = False,
    encoding: options.EncodingOfModel = None,
    *,
    place: options.Place,
) -> None:
    """Show versions, encodings and the cache, or what a file holds.

    With versions the CPU capability that torch uses; of a file the tensors that embcli knows, or all.
    """
    output = place.to()
    if model.checkpoint is None:
        from embcli.verbs.info import info
        from embcli.views.info import view

        model.refuse_without()
        output.write(info(), view)
    else:
        from embcli.verbs.model import model_info
        from embcli.views.model import view as view_of_model

        output.write(model_info(model.opened(model.checkpoint, encoding), tensors), view_of_model)


cache = typer.Typer(help="Show, clear or verify the kept layers.", rich_markup_mode=_MARKUP)
if _CALLED in (None, "cache"):
    app.add_typer(cache, name="cache", rich_help_panel=_VERBS)


@cache.callback(
    invoke_without_command=True, epilog=_epilog("embcli cache", "embcli cache verify", "embcli cache clear")
)
@grouped
def cache_show(context: typer.Context, place: options.Place) -> None:
    """Show where seeded layers are kept, how much they take, and which they are."""
    if context.invoked_subcommand is not None:
        return
    from embcli.verbs.cache import contents
    from embcli.views.cache import view
    from embcli.weights.cache import Cache

    output = place.to()
    output.write(contents(Cache.from_environment()), view)


@cache.command("clear")
def cache_clear() -> None:
    """Remove all kept layers."""
    from embcli.safe import in_line
    from embcli.verbs.cache import clear
    from embcli.weights.cache import Cache

    typer.echo(in_line(clear(Cache.from_environment()).in_words))


@cache.command("verify")
@grouped
def cache_verify(place: options.Place) -> int:
    """Read all kept layers. Say which are damaged; the exit status is 1 if one is."""
    from embcli.verbs.cache import contents
    from embcli.views.cache import view
    from embcli.weights.cache import Cache

    output = place.to()
    result = contents(Cache.from_environment(), verify=True)
    output.write(result, view)
    return int(result.damaged > 0)

"""The command line: a command opens a model, calls one of its methods, and gives the result to its output."""

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embcli import names
from embcli.cli import options as o
from embcli.cli.completion import PROGRAM, install, script
from embcli.cli.console import PrintedNotes, say
from embcli.cli.input import kind_and_path, kind_named, one_path, opened, read, read_ids
from embcli.errors import InputError, OutputError
from embcli.formats import ALIASES, FORMATS, PICTURES, SUFFIXES, VIEWS, Kind, able, either
from embcli.names import __version__

if TYPE_CHECKING:
    from embcli.cli.output import Output

Function = Callable[..., Any]
_COMMANDS: dict[str, tuple[Function, dict[str, Any]]] = {}  # functions, and settings for Typer


def command(panel: str, *examples: str, **settings: Any) -> Callable[[Function], Function]:
    """Return a decorator that makes a function a command in a panel of the list; an example ends with a comment."""
    parts = (example.partition("  # ") for example in examples)
    epilog = "\n\n".join(f"[dim]# {comment}[/dim]\n\n{line}" for line, _, comment in parts)

    def register(function: Function) -> Function:
        _COMMANDS[function.__name__] = function, {"rich_help_panel": panel, "epilog": epilog, **settings}
        return function

    return register


def command_line(words: Sequence[str] | None = None) -> typer.Typer:
    """Return the command line: all of it, or only what these words after `embcli` need.

    A start builds one command; the list of commands needs no option of any. Without words the list fits a screen.
    """
    is_first = words is not None and not words
    app = typer.Typer(
        add_completion=False,  # embcli installs scripts itself
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": [] if is_first else ["--help", "-h"]},
    )
    called = words[0] if words and words[0] in _COMMANDS else None
    root: Function = first_screen if is_first else (lambda: None) if called else embcli  # of options before a command
    app.callback(invoke_without_command=True)(root)
    for name, (function, settings) in _COMMANDS.items():
        if words is None or name == called:
            app.command(**settings)(function)
        elif called is None and not (is_first and settings["rich_help_panel"] == "More"):
            app.command(name, help=function.__doc__, **settings)(lambda: None)
    return app


def run(words: Sequence[str], **settings: object) -> object:
    """Run the command of these words after `embcli`; raises InputError for words that are no command."""
    first = words[0] if words else ""
    known = first in _COMMANDS
    if words and not known and not first.startswith("-"):
        quoted, is_folder = shlex.quote(first[:60]), os.access(f"{first}/.", os.F_OK)
        if (is_there := os.access(first, os.F_OK)) or re.search(r"[./][\w-]+$", first):
            of_text = "" if is_folder else f", embcli tokenize --file {quoted} a text"
            what = "a folder, " if is_folder else "a file, " if is_there else ""
            raise InputError(f"{first[:60]!r} is {what}not a command", f"embcli info {quoted} shows a model{of_text}")
        from difflib import get_close_matches

        from embcli.verbs.explain import named

        if first.casefold() in named():
            raise InputError(f"{first!r} is not a command", f"embcli explain {first} explains the word; embcli --help")
        if not get_close_matches(first, _COMMANDS):
            text = shlex.quote(" ".join(takewhile(lambda word: not word.startswith("-"), words))[:60])
            raise InputError(f"{first[:60]!r} is not a command", f"For a text: embcli tokenize {text}; embcli --help")
    try:
        return command_line(words)(words, prog_name=PROGRAM, standalone_mode=False, **settings)
    except typer.TyperException as error:
        message = " ".join(error.format_message().split())
        called = f"{PROGRAM} {first}" if known else PROGRAM
        has_text = known and "text" in _COMMANDS[first][0].__annotations__
        cure = "Write IDs as one word: 2,3,5,1. " if "--ids" in words else "Put a text of several words in quotes. "
        cure = "--text takes a text in quotes, --step a number. " if first == "tour" else cure
        quotes = cure if has_text and "unexpected extra argument" in message else ""
        if re.match("No such option: -[0-9]", message):
            quotes = "IDs are not negative; a text that begins with - goes after --. "
        elif message.startswith("No such option: --from") and first in ("tokenize", "decode"):
            quotes = "--encoding takes a model's folder or tokenizer. "
        raise InputError(message, f"{quotes}Try '{called} --help' for help.") from None


def complete(words: Sequence[str]) -> object:
    """Answer a completion script; `words` are those typed so far after `embcli`."""
    return command_line([*words, ""])(prog_name=PROGRAM)


def output_for(
    kind: Kind,
    format: str | None = None,
    path: str | None = None,
    color: names.Color = "auto",
    width: int | None = None,
    theme: names.Theme | None = None,
    precision: int = names.DEFAULT_PRECISION,
    heat: bool = False,
    bare: bool = False,
    *,
    reads: Sequence[str | Path | None] = (),
    show: tuple[str, ...] | None = None,
    pages: dict[str, bool] | None = None,
    limits: Mapping[str, tuple[str, ...]] | None = None,
) -> "Output":
    """Return the output for a kind of result; raises OutputError for a format or a file that cannot hold it.

    `reads` are the files that the command reads, `show` the matrices that the user named, `pages` flags that only a
    page can show and whether they are given, `limits` given flags and the formats that can show them. Completion, which
    has no output, imports nothing for it.
    """
    from embcli.cli.output import Output
    from embcli.result import Style, chosen_format, refuse_many

    style = Style(precision=precision, heat=heat, bare=bare, width=width, theme=theme or "light")
    file = None if path is None or path == "-" else Path(path)
    default = os.environ.get("EMBCLI_FORMAT") or ""
    if default and ALIASES.get(default, default) not in FORMATS:
        raise OutputError(f"EMBCLI_FORMAT {default[:40]!r} is not a format; choose from {', '.join(FORMATS)}")
    chosen = chosen_format(kind, format, None if file is None else path, default)
    given = {"--heat": heat, "--bare": bare, "--width": width is not None, **(pages or {})}
    needed = {flag: VIEWS for flag, is_given in given.items() if is_given} | ({"--theme": PICTURES} if theme else {})
    for flag, formats in {**needed, **(limits or {})}.items():
        if chosen not in formats:
            example = "" if file or chosen != "table" else f", as in: -o picture.{formats[0]}"
            raise OutputError(f"{flag} cannot be shown in {chosen}; it needs --format {either(formats)}{example}")
    refuse_many(show, chosen)
    out = Output(chosen, file, color, style)
    if file and format and SUFFIXES.get(file.suffix.lower(), chosen) != chosen:
        say(f"{str(file)!r} is written as {chosen}, as --format says, not as {SUFFIXES[file.suffix.lower()]}")
    for place in [Path(each) for each in reads if each is not None]:
        with suppress(OSError, ValueError):  # one of them does not exist
            if file and file.is_file() and (file.samefile(place) or (place.is_dir() and place.samefile(file.parent))):
                raise OutputError(f"{str(file)!r} is read by this command; name another file with --output")
    return out


_Shell = Annotated[names.Shell | None, typer.Option(metavar="SHELL", help="Print the completion script for a shell.")]
_ShellToInstall = Annotated[names.Shell | None, typer.Option(metavar="SHELL", help="Install completion for a shell.")]


def embcli(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
    show_completion: _Shell = None,
    install_completion: _ShellToInstall = None,
) -> None:
    """Show what an embedding layer does, from text to the numbers that a model reads.

    Start with [bold]embcli tour[/bold], the chapter step by step; or [bold]embcli lookup "Hi there"[/bold].
    """
    if version:
        typer.echo(f"embcli {__version__}")
    elif show_completion is not None:
        typer.echo(script(show_completion))
    elif install_completion is not None:
        typer.echo(install(install_completion))
    else:
        return
    raise typer.Exit


def first_screen(context: typer.Context) -> None:
    """Start with [bold]embcli tour[/bold], the chapter step by step; or [bold]embcli lookup "Hi there"[/bold].
    COMMAND --help shows examples; embcli --help lists options and more commands.
    """  # noqa: D205 - Typer would show the blank line
    context.get_help()


@command(
    "Text and vectors",
    'embcli tokenize "Every effort moves you"  # the tokens of a sentence, their IDs and bytes',
    "embcli tokenize strawberry --merges --draw  # how its letters became these tokens",
    'embcli tokenize "Unbelievable!" --encoding gpt2,o200k_base  # under two tokenizers, side by side',
)
def tokenize(
    text: o.Text = None,
    file: o.File = None,
    ids: o.Ids = None,
    special: o.Special = False,
    lines: o.Lines = False,
    encoding: o.Encodings = None,
    merges: o.Merges = False,
    draw: o.Draw = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> int:
    """Show the tokens of a text.

    One row per token: position, token, ID, bytes, and its span in the text.
    """
    from embcli.verbs.tokenizers import tokenizers

    given_names = encoding or [names.DEFAULT_ENCODING]
    several = [name for each in given_names for name in ([each] if os.access(each, os.F_OK) else each.split(","))]
    merges = merges or draw
    if merges and len(several) > 1:
        raise InputError("--merges and --draw take one encoding, not several; give one name")
    if ids is not None and (merges or len(several) > 1):
        raise InputError("only a text becomes tokens by merges or by several encodings; leave out --ids")
    kind: Kind = "list" if merges or len(several) > 1 else "tokens"
    page = format, output, color, width, theme
    out = output_for(kind, *page, bare=bare, reads=(file, *several), pages={"--draw": draw})
    given = read(text, file, ids, lines, 'embcli tokenize "Every effort moves you"')
    if len(several) > 1:
        return out.write(tokenizers(given, several, special=special, notes=PrintedNotes()))
    model = opened(encoding=several[0])
    if merges:
        return out.write(model.merges(given, special=special, draw=draw))
    return out.write(model.tokenize(given, special=special))


@command(
    "Text and vectors",
    "embcli batch --file the-verdict.txt  # the first batch, as in the chapter",
    'embcli batch "Every effort moves you forward" --batch-size 1 --dim 3 --draw  # every number of a short text',
    "embcli batch --file the-verdict.txt --shuffle --all -o input.npy  # all batches, shuffled, for the next program",
)
def batch(
    text: o.Text = None,
    file: o.File = None,
    ids: o.Ids = None,
    special: o.Special = False,
    batch_size: o.BatchSize = 8,
    max_length: o.MaxLength = 4,
    stride: o.Stride = None,
    shuffle: o.Shuffle = False,
    keep_last: o.KeepLast = False,
    index: o.Index = None,
    all: o.All = False,
    encoding: o.Encoding = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.BatchContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    columns: o.Columns = None,
    draw: o.Draw = False,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show sliding-window batches of a text.

    Inputs, targets, and the shapes up to what a model reads, (B, T, D).
    """
    page = format, output, color, width, theme, precision, heat, bare
    out = output_for("batches", *page, reads=(file, encoding), pages={"--draw": draw})
    unused = "--columns" if columns else "--precision" if precision != names.DEFAULT_PRECISION else ""
    if unused and out.format in VIEWS and not draw and not heat:
        raise InputError(f"{unused} has no effect on IDs; --draw and --heat show the input embeddings")
    if text is not None and len(text) < 256 and Path(text).is_file():
        hint = f"for its text: embcli batch --file {shlex.quote(text)}"
        raise InputError(f"{text[:60]!r} is a file; TEXT is the text itself", hint)
    model = opened(None, encoding, None, vocab, dim, context_length, seed, no_cache)
    result = model.batch(
        read(text, file, ids, example='embcli batch "Every effort moves you forward" --batch-size 1'),
        special=special,
        batch_size=batch_size,
        max_length=max_length,
        stride=stride,
        shuffle=shuffle,
        keep_last=keep_last,
        index=index,
        all=all,
        context_length=context_length,
        draw=draw,
        columns=columns,
    )
    out.write(result)


def _names(listed: str | None) -> Any:
    """Return comma-separated names, which the library checks."""
    return None if listed is None else tuple(name.strip() for name in listed.split(","))


@command(
    "Text and vectors",
    'embcli lookup "Every effort moves you"  # token rows + position rows = input embeddings',
    "embcli lookup --ids 2,3,5,1 --vocab 6 --dim 3 --trace 0  # a small layer, and the sum of the first token",
    'embcli lookup "Every effort moves you" --from gpt2 -o input.npy  # what a real model reads, as a file',
)
def lookup(
    text: o.Text = None,
    file: o.File = None,
    ids: o.Ids = None,
    special: o.Special = False,
    lines: o.Lines = False,
    window: o.Window = False,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.ContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    position: o.Joined = None,
    show: o.Matrices = None,
    only: o.Only = None,
    columns: o.Columns = None,
    trace: o.Trace = None,
    draw: o.Draw = False,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show the rows that tokens pick, and their input embeddings.

    Token rows + position rows = input embeddings, which the model reads.
    """
    from embcli.selection import count

    matrices, page = _names(show), (format, output, color, width, theme, precision, heat, bare)
    reads, pages = (file, path, encoding), {"--trace": trace is not None, "--draw": draw}
    out = output_for("embeddings", *page, reads=reads, show=matrices, pages=pages)
    model = opened(path, encoding, tensor, vocab, dim, context_length, seed, no_cache)
    tokens = model.tokens(read(text, file, ids, lines), special, notes=model.notes)
    if only is None:
        out.refuse_many_numbers(len(tokens) * count(columns, model.shape[1], "column"), len(matrices or "123"))
    result = model.lookup(
        tokens,
        special=special,
        window=window,
        show=matrices,
        columns=columns,
        trace=trace,
        draw=draw,
        only=only,
        position=kind_named(position),
    )
    out.write(result)


@command(
    "Text and vectors",
    "embcli compare  # the chapter's three IDs, step by step",
    'embcli compare "Every effort moves you" --trace  # the product of each token, written out',
    "embcli compare --from model.safetensors  # on the matrix of a model",
)
def compare(
    text: o.ComparedText = None,
    file: o.File = None,
    ids: o.Ids = None,
    special: o.Special = False,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.ComparedDim = None,
    seed: o.Seed = None,
    show: o.Steps = None,
    trace: o.TraceAll = False,
    gradient: o.Gradient = False,
    learning_rate: o.Rate = None,
    draw: o.Draw = False,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> int:
    """Show that a lookup is a one-hot product.

    With the same weight, bit for bit; the exit status is 1 if they differ.
    """
    shown = _names(show)
    steps = [step for step in shown or () if step in (*names.STEPS, "cost") and step != "outputs"]
    given_flags = {"--gradient": gradient, "--learning-rate": learning_rate is not None}
    limited = [flag for flag, is_given in given_flags.items() if is_given] + [f"--show {step}" for step in steps]
    out = output_for(
        "matrices",
        *(format, output, color, width, theme, precision, heat, bare),
        reads=(file, path, encoding),
        show=tuple(name for name in names.OUTPUTS if name in (shown or ())) or None,
        pages={"--trace": trace, "--draw": draw},
        limits=dict.fromkeys(limited, (*VIEWS, "json")),
    )
    if text is None and file is None and ids is None:
        ids = names.COMPARED_IDS
    given = read(text, file, ids, example="embcli compare")
    if path is None:  # a layer as large as the IDs need it, without a position layer
        if vocab is None and given.ids is not None:
            vocab = max((int(each.max(initial=0)) for each in given.ids), default=0) + 1
        dim = names.COMPARED_DIM if dim is None else dim
        model = opened(None, encoding, tensor, vocab, dim, context_length=1, seed=seed, no_cache=True)
    else:
        model = opened(path, encoding, tensor, vocab, dim)
    tokens = model.tokens(given, special, notes=model.notes)
    out.refuse_many_numbers(len(tokens) * model.shape[1], 2)
    if {"first", "shared"} & {*steps}:
        matrices = len({"first", "shared"} & {*steps}) * math.prod(model.shape)
        out.refuse_many_numbers(matrices + 2 * len(tokens) * model.shape[1])
    own = names.DEFAULT_SEED if seed is None else seed  # of the linear layer's own first weights
    result = model.compare(
        tokens, show=shown, trace=trace, gradient=gradient, learning_rate=learning_rate, draw=draw, seed=own
    )
    return out.write(result)


@command(
    "Text and vectors",
    "embcli positions sinusoidal --context-length 32 --dim 64 --heat  # waves of growing length, as colours",
    "embcli positions rotary  # angles by which rotary positions rotate a row",
    "embcli positions model.safetensors --similarity  # how similar the positions of a model are",
)
def positions(
    named_kind: o.KindOrPath = None,
    named: o.Path_ = None,
    ids: o.RowOf = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.PositionCount = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    kind: o.Kind = None,
    pairing: o.Pairing = None,
    theta: o.Theta = None,
    similarity: o.Similarity = False,
    rows: o.Rows = None,
    columns: o.Columns = None,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show how a position becomes a vector.

    As learned, sinusoidal, relative or rotary positions, or as in a real model. A page shows positions 0 to 15, unless
    you choose T or rows.
    """
    chosen, named = kind_and_path(named_kind, named, kind)
    path = one_path(named, path)
    page = format, output, color, width, theme, precision, heat, bare
    limits = {"--kind relative": able("batches")} if chosen == "relative" and not similarity else {}
    out = output_for("embeddings", *page, reads=(path, encoding), limits=limits)
    model = opened(path, encoding, tensor, vocab, dim, context_length, seed, no_cache)
    result = model.positions(
        chosen,
        context_length=context_length,
        pairing=pairing,
        theta=theta,
        ids=ids,
        similarity=similarity,
        rows=rows,
        columns=columns,
    )
    out.write(result)


@command(
    "Matrices and models",
    "embcli weights --vocab 6 --dim 3  # all of a small layer, with random numbers",
    "embcli weights model.safetensors --rows 0:5,100 --columns 0:8  # chosen rows and columns of a model",
    "embcli weights model.safetensors --map  # the whole matrix as a picture of how large its numbers are",
)
def weights(
    named: o.Path_ = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.ContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    layer: o.Layer = "token",
    rows: o.TokenRows = None,
    columns: o.Columns = None,
    sort: o.Sort = "id",
    map: o.Map = False,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show the weight matrix of a layer.

    As a summary, as a map, or as chosen rows and columns, sorted by norm if you like.
    """
    from embcli.layer import shape_of
    from embcli.selection import count

    if map and heat:
        raise InputError("--map is a picture in colours already; leave out --heat")
    path = one_path(named, path)
    page = format, output, color, width, theme, precision, heat or map, bare
    out = output_for("embeddings", *page, reads=(path, encoding), pages={"--map": map})
    model = opened(path, encoding, tensor, vocab, dim, context_length, seed, no_cache)
    numbered, (size, dim) = model.resolve_rows(rows, layer), shape_of(model.source, layer)
    out.refuse_many_numbers(count(numbered, size, "row") * count(columns, dim, "column"))
    out.write(model.weights(layer=layer, rows=rows, columns=columns, sort=sort, map=map))


@command(
    "Matrices and models",
    'embcli neighbors " Paris" --from gpt2  # the tokens nearest to a token of a model',
    'embcli neighbors " king" --minus " man" --plus " woman" --from gpt2  # king - man + woman',
    'embcli lookup "Hi there" -f ndjson | embcli neighbors --vector -  # nearest to each input embedding of a text',
)
def neighbors(
    text: o.Text = None,
    file: o.File = None,
    ids: o.Ids = None,
    special: o.Special = False,
    lines: o.Lines = False,
    plus: o.Plus = None,
    minus: o.Minus = None,
    vector: o.Vectors = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.ContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    metric: o.Metric = "cosine",
    top: o.Top = 10,
    match: o.Match = None,
    rows: o.Rows = None,
    precision: o.Precision = names.DEFAULT_PRECISION,
    heat: o.Heat = False,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show the rows nearest to a row.

    Among all rows of the token layer; every score is exact, in float64.
    """
    from embcli.verbs.neighbors import vectors_in_array, vectors_in_lines

    page = format, output, color, width, theme, precision, heat, bare
    out = output_for("ranking", *page, reads=(file, path, vector, encoding))
    given = {"TEXT": text, "--file": file, "--ids": ids, "--plus": plus, "--minus": minus}
    others = [name for name, value in given.items() if value]
    if vector is not None and others:
        raise InputError(f"{others[0]} and --vector stand for the same input; give one of them")
    model = opened(path, encoding, tensor, vocab, dim, context_length, seed, no_cache)
    tokens = vectors = None
    if vector is not None and vector.suffix == ".npy":
        vectors = vectors_in_array(vector)
    elif vector is None:
        given_text = read(text, file, ids, lines, 'embcli neighbors " Paris" --from gpt2')
        tokens = model.tokens(given_text, special, notes=model.notes, has_added=False)
    else:
        (typed,) = read(file=vector, example="embcli neighbors --vector -").texts or ("",)
        vectors = vectors_in_lines(typed, model.shape[1])
    result = model.neighbors(
        tokens, plus=plus or (), minus=minus or (), vector=vectors, metric=metric, top=top, match=match, rows=rows
    )
    out.write(result)


@command(
    "Matrices and models",
    "embcli audit model.safetensors  # broken, unused, equal and under-trained rows",
    "embcli audit model.safetensors --fail-on missing,padding  # status 1 for these faults, for a script",
    "embcli audit model.safetensors -f csv -o audit.csv  # every finding, as a table for a spreadsheet",
)
def audit(
    named: o.Path_ = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.ContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    fail_on: o.FailOn = None,
    top: o.TopOfEach = names.SHOWN_ROWS,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> int:
    """Show what looks unusual in a token matrix.

    Broken, unused, equal and under-trained rows; the exit status is 1 if any are broken.
    """
    path = one_path(named, path)
    out = output_for("ranking", format, output, color, width, theme, bare=bare, reads=(path, encoding))
    model = opened(path, encoding, tensor, vocab, dim, context_length, seed, no_cache)
    return out.write(model.audit(fail_on=_names(fail_on), top=top))


@command(
    "Matrices and models",
    "embcli diff model.safetensors tuned.safetensors  # which rows fine-tuning changed, and how much",
    "embcli diff model.safetensors tuned.safetensors -f ndjson  # all rows, for the next program",
    "embcli diff model.safetensors tuned.safetensors -o changed.csv  # status 1 if any row differs, for a script",
)
def diff(
    base: o.Base,
    tuned: o.Tuned,
    encoding: o.Encoding = None,
    tensor: o.Tensor = None,
    top: o.TopOfEach = names.SHOWN_ROWS,
    bare: o.Bare = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> int:
    """Show which rows of two checkpoints differ.

    Matched by their tokens; the exit status is 1 if any differ.
    """
    out = output_for("ranking", format, output, color, width, theme, bare=bare, reads=(base, tuned, encoding))
    notes = PrintedNotes()  # of both
    one, other = (opened(path, encoding, tensor, notes=notes) for path in (base, tuned))
    return out.write(one.diff(other, top=top))


@command(
    "Matrices and models",
    "embcli explore model.safetensors  # walk through the matrix of a model",
    'embcli explore gpt2 --row " Paris"  # from a row on, by its token or ID',
    'embcli explore gpt2 --text "Every effort moves you"  # the tokens of a text, and their rows',
)
def explore(
    named: o.Path_ = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    vocab: o.Vocab = None,
    dim: o.Dim = None,
    context_length: o.ContextLength = None,
    seed: o.Seed = None,
    no_cache: o.NoCache = False,
    row: o.Row = None,
    text: o.BeginText = None,
    sort: o.Sort = "id",
) -> int:
    """Walk through a matrix, full-screen.

    Rows, neighbours, findings and input embeddings, by keys; ? lists them. Each screen names the command that prints
    it, and q prints that command.
    """
    from embcli.cli.explore import walk

    path = one_path(named, path)
    layers = {"vocab": vocab, "dim": dim, "context_length": context_length, "seed": seed, "no_cache": no_cache}
    return walk(path, {"encoding": encoding, "tensor": tensor, **layers}, row, text, sort)


@command(
    "Text and vectors",
    "embcli tour  # all steps, with questions",
    'embcli tour --text "Hello, world" --step 6  # one step, with your own text',
    "embcli tour -o handout.html  # all steps on one page",
)
def tour(text: o.TourText = names.TOUR_TEXT, step: o.Step = None, output: o.Output = None) -> int:
    """Go through the chapter, step by step.

    embcli commands, their output and short explanations; Enter continues.
    """
    from embcli.cli.tour import guide

    return guide(text, step, run, output_for("page", path=output))


@command(
    "Text and vectors",
    "embcli explain one-hot  # a word that a page prints",
    "embcli explain equal_to  # a field of the data formats",
    "embcli explain  # the list of words",
)
def explain(
    word: o.Words = None,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Explain a word of a page, with an example and its source.

    Without WORD, list all words that are explained.
    """
    from embcli.verbs.explain import explain

    output_for("list", format, output, color, width, theme).write(explain(" ".join(word) if word else None))


@command(
    "More",
    "embcli decode 6109 3626 6100 345  # back to text",
    "embcli decode --encoding gpt-4o 13225  # with the encoding of another model",
    "embcli tokenize -f ids < book.txt | embcli decode  # all IDs from a pipe",
)
def decode(ids: o.GivenIds = None, encoding: o.Encoding = None, output: o.Output = None) -> None:
    """Turn token IDs back into text.

    Byte for byte. Without IDS, IDs are read from standard input.
    """
    from embcli.cli.output import Output

    text = opened(encoding=encoding).decode_bytes(read_ids(" ".join(ids) if ids else None))
    Output(path=None if output in (None, "-") else Path(output)).write_bytes(text, "text")


@command("More", "embcli help lookup  # all options of a command", "embcli help  # the list of commands")
def help(words: o.CommandWords = None) -> None:
    """Show all options of a command, and examples."""
    run([*(words or ()), "--help"])


@command(
    "Matrices and models",
    "embcli info  # versions, encodings and the cache",
    "embcli info gpt2  # the tensors of a model, and what they are for",
    "embcli info --models  # the models on this machine",
)
def info(
    named: o.Path_ = None,
    encoding: o.Encoding = None,
    path: o.From = None,
    tensor: o.Tensor = None,
    tensors: o.AllTensors = False,
    models: o.Models = False,
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show versions and the cache, or the tensors of a model.

    Without PATH, encodings and the CPU capability of torch, too. With PATH, the tensors that embcli reads, or all.
    """
    from embcli.verbs.info import local_models, this_machine

    path = one_path(named, path)
    out = output_for("list", format, output, color, width, theme, reads=(path, encoding))
    if path is not None and models:
        raise InputError("--models lists all models; leave out the model")
    if path is not None or tensor is not None:
        out.write(opened(path, encoding, tensor).info(tensors=tensors))
    else:
        out.write(local_models(PrintedNotes()) if models else this_machine())


@command(
    "More",
    "embcli cache  # where layers are kept, and how much space they take",
    "embcli cache clear  # remove everything",
)
def cache(
    action: Annotated[names.CacheAction, typer.Argument(help="What to do.", metavar="[list|clear]")] = "list",
    color: o.Color = "auto",
    width: o.Width = None,
    theme: o.Theme = None,
    format: o.Format = None,
    output: o.Output = None,
) -> None:
    """Show where layers are kept, and how much space each takes; or remove them."""
    from embcli.store import Store
    from embcli.verbs.cache import files
    from embcli.words import counted, in_bytes, in_line

    found = files(Store.from_environment(PrintedNotes()), remove=action == "clear")
    if action == "clear":
        removed = f"{counted(len(found.entries), 'file')} removed, {in_bytes(found.size)}, from {found.folder}"
        typer.echo(in_line(removed))
    else:
        output_for("list", format, output, color, width, theme).write(found)

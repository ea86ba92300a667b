"""The command line: a signature, one core call and one view call for each verb, and the one catch of EmbcliError."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from embcli import __version__, completion, encodings, options, render
from embcli.errors import EmbcliError, OutputError
from embcli.weights import DEFAULT_CONTEXT_LENGTH, DEFAULT_DIM, DEFAULT_SEED, Seeded, SeededSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embcli.output import Output
    from embcli.tokens import Tokens

app = typer.Typer(
    add_completion=False,  # options.py has options of the same names that take the shell's
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:  # that is, not while the rest of the line is completed
        typer.echo(f"embcli {__version__}")
        raise typer.Exit


@app.callback()
def embcli(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    show_completion: options.ShowCompletion = None,
    install_completion: options.InstallCompletion = None,
) -> None:
    """Show what an embedding layer does: text -> tokens -> IDs -> token rows + position rows -> input embeddings."""


@app.command()
def tokenize(
    text: options.Text = None,
    file: options.File = None,
    ids: options.Ids = None,
    lines: options.Lines = False,
    errors: options.InputErrors = "strict",
    encoding: options.Encoding = encodings.DEFAULT,
    special: options.Special = False,
    form: options.Form = None,
    output: options.OutputPath = None,
    color: options.ColorChoice = "auto",
) -> None:
    """Show the tokens of a text. A row a token: position, token, ID, bytes, and where it stands in the text."""
    from embcli.tokens import Tokenization

    tokens = _tokens(text, file, ids, lines, errors, encodings.get(encoding), special)
    _output(form, output, color).write(Tokenization(tokens), lambda *on: render.tokens.view(*on))


@app.command(context_settings={"ignore_unknown_options": True})
def decode(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[IDS]...", help="Token IDs: 6109 3626, or 6109,3626.", show_default=False),
    ] = None,
    encoding: options.Encoding = encodings.DEFAULT,
    output: options.OutputPath = None,
) -> None:
    """Turn token IDs back into text. Byte for byte; without IDs they are read from standard input."""
    from embcli.text import read
    from embcli.tokens import decode as core

    (array,) = read(ids=" ".join(ids) if ids else "-").ids or ()
    with _output(None, output).open("text") as file:
        file.write(core(array, encodings.get(encoding)))


@app.command()
def weights(
    layer: options.Layer = "token",
    rows: options.Rows = None,
    columns: options.Columns = None,
    seed: options.Seed = DEFAULT_SEED,
    vocab: options.Vocab = None,
    dim: options.Dim = DEFAULT_DIM,
    context_length: options.ContextLength = DEFAULT_CONTEXT_LENGTH,
    encoding: options.Encoding = encodings.DEFAULT,
    no_cache: options.NoCache = False,
    form: options.Form = None,
    output: options.OutputPath = None,
    precision: options.Precision = 4,
    color: options.ColorChoice = "auto",
) -> None:
    """Show the weight matrix of a layer. All of it in short, or chosen rows and columns."""
    from embcli.verbs.weights import matrix

    out = _output(form, output, color, precision)
    source, known = _source(seed, vocab, dim, context_length, encoding, no_cache)
    result = matrix(source, layer, known, rows, columns)
    out.write(result, lambda result, page: render.matrices.weights(result, page, chosen=rows is not None))


@app.command()
def lookup(
    text: options.Text = None,
    file: options.File = None,
    ids: options.Ids = None,
    lines: options.Lines = False,
    window: options.Window = False,
    errors: options.InputErrors = "strict",
    encoding: options.Encoding = encodings.DEFAULT,
    special: options.Special = False,
    seed: options.Seed = DEFAULT_SEED,
    vocab: options.Vocab = None,
    dim: options.Dim = DEFAULT_DIM,
    context_length: options.ContextLength = DEFAULT_CONTEXT_LENGTH,
    show: options.Show = None,
    columns: options.Columns = None,
    trace: options.Trace = None,
    no_cache: options.NoCache = False,
    form: options.Form = None,
    output: options.OutputPath = None,
    precision: options.Precision = 4,
    color: options.ColorChoice = "auto",
) -> None:
    """Show the rows that tokens pick. With the rows of their positions, and the sum of both: the input embeddings."""
    from embcli.verbs.lookup import MATRICES, look_up

    out, chosen = _output(form, output, color, precision), options.names(show, MATRICES, "--show")
    source, known = _source(seed, vocab, dim, context_length, encoding, no_cache)
    tokens = _tokens(text, file, ids, lines, errors, known if ids else encodings.get(encoding), special)
    result = look_up(tokens.window(context_length) if window else tokens, source, columns)
    needs = {"--trace": ("table",)} if trace is not None else {}
    out.write(
        result, lambda result, page: render.matrices.lookup(result, page, chosen or MATRICES, trace), chosen, needs
    )


@app.command()
def compare(
    text: options.CompareText = None,
    file: options.File = None,
    ids: options.Ids = None,
    errors: options.InputErrors = "strict",
    encoding: options.Encoding = encodings.DEFAULT,
    special: options.Special = False,
    seed: options.Seed = DEFAULT_SEED,
    vocab: options.VocabOfIds = None,
    dim: options.Dim = 5,
    show: options.Steps = None,
    trace: options.TraceProducts = False,
    gradient: options.Gradients = False,
    bench: options.Bench = False,
    form: options.Form = None,
    output: options.OutputPath = None,
    precision: options.Precision = 4,
    color: options.ColorChoice = "auto",
) -> int:
    """Show that a lookup is a one-hot product. With the same weight, bit for bit; exit status 1 where it is not."""
    from embcli.verbs.compare import DEFAULT_IDS, OUTPUTS, STEPS, Task, needs, steps

    out, chosen = _output(form, output, color, precision), options.names(show, (*STEPS, *OUTPUTS), "--show")
    known = encodings.get(encoding)
    if text is None and file is None and ids is None:
        ids = DEFAULT_IDS
    named = ids is None or vocab == known.vocabulary_size  # then the rows stand for the encoding's tokens
    tokens = _tokens(text, file, ids, False, errors, known if named else None, special)
    least = known.vocabulary_size if ids is None else int(tokens.ids.max(initial=0)) + 1
    size = least if vocab is None else vocab
    sweep = (vocab or known.vocabulary_size) if bench else None
    task = Task(tokens, Seeded(size, dim, 1, seed), steps(chosen), gradient, sweep)

    from embcli.verbs.compare.layers import compare as core  # torch, once it is sure to be needed

    result = core(task, lambda sizes: render.compare.watched(sizes))
    outputs = tuple(name for name in chosen or () if name in OUTPUTS) or None
    out.write(result, lambda result, page: render.compare.view(result, page, trace), outputs, needs(task, trace))
    return int(not result.verdict.identical)


@app.command()
def info(form: options.Form = None, output: options.OutputPath = None, color: options.ColorChoice = "auto") -> None:
    """Show versions, encodings and the cache. And the CPU capability that torch uses."""
    from embcli.verbs.info import info as core

    _output(form, output, color).write(core(), lambda *on: render.info.view(*on))


cache = typer.Typer(help="Show, clear or verify the kept layers.", rich_markup_mode=None)
app.add_typer(cache, name="cache")


@cache.callback(invoke_without_command=True)
def cache_show(
    context: typer.Context,
    form: options.Form = None,
    output: options.OutputPath = None,
    color: options.ColorChoice = "auto",
) -> None:
    """Show where seeded layers are kept, how much they take, and which they are."""
    if context.invoked_subcommand is None:
        from embcli.weights.kept import Cache, contents

        _output(form, output, color).write(contents(Cache.from_environment()), lambda *on: render.cache.view(*on))


@cache.command("clear")
def cache_clear() -> None:
    """Remove all kept layers."""
    from embcli.weights import counted, in_bytes
    from embcli.weights.kept import Cache

    kept = Cache.from_environment()
    files, size = kept.clear()
    typer.echo(f"{counted(files, 'file')} removed, {in_bytes(size)}, from {kept.folder}")


@cache.command("verify")
def cache_verify(
    form: options.Form = None, output: options.OutputPath = None, color: options.ColorChoice = "auto"
) -> int:
    """Read all kept layers. Say which are damaged; the exit status is 1 if one is."""
    from embcli.weights.kept import Cache, contents

    result = contents(Cache.from_environment(), verify=True)
    _output(form, output, color).write(result, lambda *on: render.cache.view(*on))
    return int(result.damaged > 0)


def _tokens(
    text: str | None,
    file: Path | None,
    ids: str | None,
    lines: bool,
    errors: str,
    encoding: encodings.Encoding | None,
    special: bool = False,
) -> Tokens:
    from embcli.text import read
    from embcli.tokens import tokenize as core

    return core(read(text, file, ids, lines, errors), encoding, special)


def _source(
    seed: int, vocab: int | None, dim: int, context_length: int, encoding: str, no_cache: bool
) -> tuple[SeededSource, encodings.Encoding | None]:
    """Return the source of seeded layers, and the encoding whose tokens its rows stand for, if V is an encoding's."""
    from embcli.weights.kept import Cache

    known = encodings.get(encoding)
    size = known.vocabulary_size if vocab is None else vocab
    spec = Seeded(size, dim, context_length, seed)
    return SeededSource(spec, None if no_cache else Cache.from_environment()), (
        known if size == known.vocabulary_size else None
    )


def _output(form: str | None, path: Path | None, color: str = "auto", precision: int = 4) -> Output:
    from embcli.output import Output

    return Output(form, path, precision, color)


def main() -> int:
    """Run the command line and return its exit status: 0 done or yes, 1 no, 2 trouble, 130 interrupted."""
    try:
        status = _flushed(_command)
    except EmbcliError as error:
        if os.environ.get("EMBCLI_DEBUG") == "1":
            raise
        return _trouble(str(error))
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "embcli"
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        return _trouble(f"{message}\nTry '{command} --help' for help.")
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        _silence()
        return 0
    return status if isinstance(status, int) else 0


def _command() -> object:
    """Run what the command line or a completion script asks for, and return what the command returns."""
    completion.prepare()
    try:
        return app(prog_name=completion.PROGRAM, standalone_mode=False)
    except SystemExit as stop:  # Typer ends so when it has completed a line, or printed a script
        if isinstance(stop.__context__, BrokenPipeError):  # which Typer takes for a failure, with status 1
            raise stop.__context__ from None
        return stop.code


def _flushed(command: Callable[[], object]) -> object:
    """Return what a command returns, when all that it and Typer (--help) printed is written."""
    try:
        status = command()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        _silence()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None
    return status


def _trouble(message: str) -> int:
    from embcli.safe import printable

    if sys.stderr is not None:
        with suppress(OSError):  # the status tells it too
            print(f"embcli: {printable(message)}", file=sys.stderr, flush=True)
    return 2


def _silence() -> None:
    """Send the rest of standard output nowhere, so that Python does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

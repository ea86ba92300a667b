"""The command line: one function per command, and the app that Typer makes of them.

A command opens what its options name, calls a verb of the library, and returns the result;
`Command` writes it. The annotations of these functions are read as Typer's options, so this file
has no `from __future__ import annotations`.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import typer.core

from embcli import names
from embcli.cli import options as o
from embcli.cli.command import BARE, FILE, NUMBERS, PAGE, SCORES, Command, Function, Options
from embcli.cli.console import PrintedNotes
from embcli.cli.groups import (
    BatchModel,
    ComparedGiven,
    ComparedModel,
    FileOptions,
    Given,
    KindAndPath,
    ModelGiven,
    ModelOptions,
    PositionsModel,
    ReadingOptions,
    TourOptions,
    one_path,
    opened,
)
from embcli.cli.hints import cure_of, cure_of_words, refuse_slips, refuse_unknown
from embcli.cli.input import read_ids, read_text, read_vectors, sources
from embcli.cli.options import some_of
from embcli.errors import InputError, OutputError
from embcli.names import PROGRAM, __version__
from embcli.positions import JOINED_KINDS, KINDS, check_options
from embcli.wording import counted

Finish = Callable[[Command, Options], object]  # what is done with the values of a command's options
_WELCOME = (
    "Start with [bold]embcli tour[/bold], the chapter step by step; "
    'or [bold]embcli lookup "Hi there"[/bold].'
)
_HELP = (
    f"Show what an embedding layer does, from text to the numbers that a model reads.\n\n{_WELCOME}"
)
_FIRST_HELP = (
    f"{_WELCOME}\nCOMMAND --help shows examples; embcli --help lists options and more commands."
)

COMMANDS: dict[str, tuple[Command, dict[str, Any]]] = {}  # by name, with settings for Typer


def command(panel: str, view: Any = ()) -> Callable[[Function], Function]:
    """Return a decorator that makes a function a command in a panel of the list.

    Its docstring is its help: paragraphs, and examples, each a comment above a command line. `view`
    has the groups of options that say how its result is shown, and where it goes.
    """

    def register(function: Function) -> Function:
        paragraphs = []
        for paragraph in (inspect.getdoc(function) or "").split("\n\n"):
            if paragraph.startswith("# "):  # The command line of an example stands out.
                comment, line = paragraph.split("\n")
                paragraphs.append(f"{comment}\n[not dim]{line}[/]")
            else:  # It fills any width.
                paragraphs.append(" ".join(paragraph.split()))
        settings = {"rich_help_panel": panel, "help": "\n\n".join(paragraphs)}
        COMMANDS[function.__name__] = Command(function, view), settings
        return function

    return register


class _Helping:
    """Help that is refused without standard output."""

    def format_help(self, context: Any, formatter: Any) -> None:
        if sys.stdout is None:
            raise OutputError("standard output is closed; open it, or redirect it to a file")
        super().format_help(context, formatter)  # type: ignore[misc]


class Group(_Helping, typer.core.TyperGroup):
    """The list of commands."""


class StrictCommand(_Helping, typer.core.TyperCommand):
    """A command that refuses slips which Typer would take for something else.

    It refuses extra words as well, and leaves them in the context: a hint depends on them.
    """

    allow_extra_args = True  # for Typer

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        if context.resilient_parsing:  # A line that is being completed is not judged.
            return super().parse_args(context, words)
        refuse_slips(words, self.get_params(context))
        extra_words = super().parse_args(context, words)
        if extra_words:
            context.fail(
                f"{counted(len(extra_words), 'argument')} too many: {' '.join(extra_words)}"
            )
        return extra_words


def command_line(words: Sequence[str] | None = None, finish: Finish = Command.write) -> Any:
    """Return Typer's group of commands: all of them, or only what these words after `embcli` need.

    A start builds one command; the list of commands needs no option of any. Without words the list
    fits a screen.
    """
    is_first = words is not None and not words
    called = words[0] if words and words[0] in COMMANDS else None
    app = typer.Typer(
        cls=Group,
        add_completion=False,  # embcli installs scripts itself
        rich_markup_mode="rich",
        context_settings={"help_option_names": [] if is_first else ["--help", "-h"]},
    )

    help = _HELP
    without_command: Any = embcli
    if is_first:
        help = _FIRST_HELP
        without_command = first_screen
    elif called is not None:
        without_command = None
    app.callback(invoke_without_command=True, help=help)(without_command)

    for name, (each, settings) in COMMANDS.items():
        is_hidden = is_first and settings["rich_help_panel"] == "More"
        if words is None or name == called:
            app.command(name, cls=StrictCommand, **settings)(each.for_typer(finish))
        elif called is None and not is_hidden:
            app.command(name, **settings)(_without_options)
    return typer.main.get_command(app)


def _without_options() -> None:
    pass  # a command that is only listed needs no options


def run(words: Sequence[str], finish: Finish = Command.write) -> object:
    """Run the command of these words after `embcli`.

    Raises InputError for words that are no command.
    """
    first = words[0] if words else ""
    if words and first not in COMMANDS and not first.startswith("-"):
        refuse_unknown(words, COMMANDS)
    try:
        return command_line(words, finish)(words, prog_name=PROGRAM, standalone_mode=False)
    except typer.TyperException as error:
        command = first if first in COMMANDS else ""
        cure = cure_of(error, words, command, command_line())
        message = " ".join(error.format_message().split())
        called = f"{PROGRAM} {command}".rstrip()
        raise InputError(message, f"{cure} Try '{called} --help' for help.".lstrip()) from None
    except InputError as error:
        error.hint = cure_of_words("models", [error.model], first) or error.hint
        raise


def embcli(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
    show_completion: Annotated[
        names.Shell | None,
        typer.Option(metavar="SHELL", help="Print the completion script for a shell."),
    ] = None,
    install_completion: Annotated[
        names.Shell | None, typer.Option(metavar="SHELL", help="Install completion for a shell.")
    ] = None,
) -> None:
    """Answer the options before a command."""
    from embcli.cli.completion import install, script
    from embcli.cli.output import ResultWriter

    if version:
        answer = f"embcli {__version__}"
    elif show_completion is not None:
        answer = script(show_completion)
    elif install_completion is not None:
        answer = install(install_completion)
    else:
        return
    ResultWriter().write(f"{answer}\n".encode("utf-8", "backslashreplace"))
    raise typer.Exit


def first_screen(context: typer.Context) -> None:
    """Show the list of commands; nothing is given after `embcli`."""
    context.get_help()


@command("Text and vectors", view=BARE)
def tokenize(
    *,
    given: ModelGiven,
    lines: bool = False,
    encoding: o.Encodings = o.DEFAULT_ENCODINGS,
    merges: bool = False,
    draw: bool | None = None,
    inline: bool = False,
) -> Any:
    """Show the tokens of a text.

    One row per token: position, token, ID, bytes, and its span in the text.

    # the tokens of a sentence, their IDs and bytes
    embcli tokenize "Every effort moves you"

    # how its letters became these tokens
    embcli tokenize strawberry --merges

    # its tokens in colours, under two tokenizers
    embcli tokenize "Unbelievable!" --encoding gpt2,o200k_base
    """
    is_derived = merges or draw
    if is_derived and (inline or len(encoding) > 1):
        raise InputError("--merges and --draw take one encoding, and not --inline; give one name")
    sequences = given.read('embcli tokenize "Every effort moves you"', lines)
    if len(encoding) > 1 or inline:
        from embcli.verbs.tokenizers import tokenizers

        return tokenizers(sequences, encoding, special=given.special, notes=PrintedNotes())
    model = opened({"encoding": encoding[0]})
    if is_derived:
        from embcli.verbs.merges import merges as derive

        return derive(model, sequences, special=given.special, draw=draw is not False)
    from embcli.verbs import tokenize as verb

    return verb.tokenize(model, sequences, special=given.special, no_added=given.no_added)


@command("Text and vectors", view=NUMBERS)
def batch(
    *,
    given: Given,
    batch_size: int | None = None,
    max_length: int = names.DEFAULT_SAMPLE_LENGTH,
    stride: int | None = None,
    shuffle: bool = False,
    keep_last: bool = False,
    index: int | None = None,
    all: bool = False,
    layers: BatchModel,
    columns: str | None = None,
    draw: bool = False,
    windows: bool = False,
) -> Any:
    """Show sliding-window batches of a text.

    Inputs, targets, and the shapes up to what a model reads, (B, T, D).

    # two samples, and the shapes up to what a model reads
    embcli batch "the cat sat on the mat by the door" --batch-size 2

    # every number of a short text
    embcli batch "Every effort moves you forward" --dim 3 --draw

    # all batches of the chapter's story, which is in the book's code, shuffled
    embcli batch --file the-verdict.txt --shuffle --all -o input.npy
    """
    from embcli.verbs import batch as verb

    return verb.batch(
        layers.opened(),
        given.read('embcli batch "Every effort moves you forward"'),
        special=given.special,
        batch_size=batch_size,
        max_length=max_length,
        stride=stride,
        shuffle=shuffle,
        keep_last=keep_last,
        index=index,
        all=all,
        context_length=layers.context_length,
        draw=draw,
        windows=windows,
        columns=columns,
    )


@command("Text and vectors", view=NUMBERS)
def lookup(
    *,
    given: ModelGiven,
    lines: bool = False,
    window: bool = False,
    model: ModelOptions,
    position: Annotated[str | None, some_of(JOINED_KINDS)] = None,
    show: Annotated[o.Listed, some_of(names.MATRICES)] = None,
    only: str | None = None,
    columns: str | None = None,
    trace: int | None = None,
    draw: bool = False,
) -> Any:
    """Show the rows that tokens pick, and their input embeddings.

    Token rows + position rows = input embeddings, which the model reads.

    # token rows + position rows = input embeddings
    embcli lookup "Every effort moves you"

    # a small layer, and the sum of the first token
    embcli lookup --ids 2,3,5,1 --vocab 6 --dim 3 --trace 0

    # what a real model reads, as a file
    embcli lookup "Every effort moves you" --from gpt2 -o input.npy
    """
    from embcli.verbs import lookup as verb

    return verb.lookup(
        model.opened(),
        given.read('embcli lookup "Every effort moves you"', lines),
        special=given.special,
        no_added=given.no_added,
        window=window,
        show=show,
        columns=columns,
        trace=trace,
        draw=draw,
        only=only,
        position=cast("Any", position),
    )


@command("Text and vectors", view=NUMBERS)
def compare(
    *,
    given: ComparedGiven,
    model: ComparedModel,
    show: Annotated[o.Listed, some_of(names.COMPARED)] = None,
    gradient: bool = False,
    learning_rate: float | None = None,
    draw: bool = False,
) -> Any:
    """Show that a lookup is a one-hot product.

    With the same weight, bit for bit; the exit status is 1 if they differ.

    # the chapter's three IDs, step by step
    embcli compare

    # the product, with all its numbers
    embcli compare "Every effort moves you" --draw

    # on the matrix of a model
    embcli compare --from model.safetensors
    """
    from embcli.text import sequences_of

    sequences = sequences_of(names.COMPARED_IDS) if given.is_empty else given.read("embcli compare")
    from embcli.verbs import compare as verb

    return verb.compare(
        model.opened_for(sequences),
        sequences,
        special=given.special,
        no_added=given.no_added,
        show=show,
        gradient=gradient,
        learning_rate=learning_rate,
        draw=draw,
        seed=model.seed,
    )


@command("Text and vectors", view=NUMBERS)
def positions(
    *,
    named: KindAndPath,
    ids: str | None = None,
    model: PositionsModel,
    pairing: names.Pairing | None = None,
    theta: float | None = None,
    similarity: bool = False,
    metric: names.Similarity | None = None,
    rows: str | None = None,
    columns: str | None = None,
) -> Any:
    """Show how a position becomes a vector.

    As learned, sinusoidal, relative or rotary positions, or as in a real model. A page shows
    the first positions, unless you choose T or rows.

    # waves of growing length, as colours
    embcli positions sinusoidal --context-length 32 --dim 64 --heat

    # angles by which rotary positions rotate a row
    embcli positions rotary

    # how similar the positions of a model are
    embcli positions model.safetensors --similarity
    """
    chosen, path = named.chosen()
    from embcli.verbs import positions as verb

    if chosen in KINDS:
        check_options(chosen, seed=model.seed)
    return verb.positions(
        model.opened(path),
        chosen,
        context_length=model.context_length,
        pairing=pairing,
        theta=theta,
        ids=ids,
        similarity=similarity,
        metric=metric,
        rows=rows,
        columns=columns,
    )


@command("Matrices and models", view=NUMBERS)
def weights(
    *,
    named: o.ModelPath = None,
    model: ModelOptions,
    layer: names.LayerName = "token",
    rows: str | None = None,
    columns: str | None = None,
    sort: names.Sort = "id",
    map: bool = False,
) -> Any:
    """Show the weight matrix of a layer.

    As a summary, or as chosen rows and columns, sorted by norm if you like.

    # all of a small layer, with random numbers
    embcli weights --vocab 6 --dim 3

    # chosen rows and columns of a model
    embcli weights model.safetensors --rows 0:5,100 --columns 0:8

    # the first and last rows, all columns as colours
    embcli weights model.safetensors --heat
    """
    from embcli.verbs import weights as verb

    return verb.weights(
        model.opened(named), layer=layer, rows=rows, columns=columns, sort=sort, map=map
    )


@command("Matrices and models", view=SCORES)
def neighbors(
    *,
    given: Given,
    lines: bool = False,
    plus: list[str] | None = None,
    minus: list[str] | None = None,
    vector: Path | None = None,
    model: ModelOptions,
    layer: names.TokenLayer = "token",
    metric: names.Metric = "cosine",
    top: int = 10,
    match: str | None = None,
    rows: str | None = None,
    map: bool = False,
) -> Any:
    """Show the rows nearest to a row.

    Among all rows of the token layer; every score is exact, in float64.

    # the tokens nearest to a token of a model
    embcli neighbors " Paris" --from gpt2

    # king - man + woman
    embcli neighbors " king" --minus " man" --plus " woman" --from gpt2

    # nearest to each input embedding of a text
    embcli lookup "Hi there" -f npy | embcli neighbors --vector -
    """
    source = model.opened()
    sequences = vectors = None
    if vector is None:
        sequences = given.read('embcli neighbors " Paris" --from gpt2', lines)
    elif given.is_empty:
        vectors = read_vectors(vector)
    else:
        raise InputError("--vector stands for the text or the IDs; give one of them")
    from embcli.verbs import neighbors as verb

    return verb.neighbors(
        source,
        sequences,
        layer=layer,
        special=given.special,
        plus=plus or (),
        minus=minus or (),
        vector=vectors,
        metric=metric,
        top=top,
        match=match,
        rows=rows,
        map=map,
    )


@command("Matrices and models", view=BARE)
def audit(
    *,
    named: o.ModelPath = None,
    model: ModelOptions,
    layer: names.TokenLayer | None = None,
    fail_on: Annotated[o.Listed, some_of((*names.FAULTS, *names.FAULT_GROUPS))] = None,
    top: int = names.SHOWN_ROWS,
) -> Any:
    """Show what looks unusual in a token matrix.

    Broken, unused, equal and untrained rows, and files that do not fit: 0 means sound.

    # broken, unused, equal and under-trained rows
    embcli audit model.safetensors

    # status 1 for what is broken, and for padding
    embcli audit model.safetensors --fail-on alarms,padding

    # every finding, as a table for a spreadsheet
    embcli audit model.safetensors -f csv -o audit.csv
    """
    from embcli.files.roles import AdapterError
    from embcli.verbs import audit as verb

    if named is None and model.is_empty:
        raise InputError(
            "audit needs a model, such as embcli audit model.safetensors; "
            "--vocab, --dim or --seed audit a seeded layer"
        )
    try:
        opened = model.opened(named)
    except AdapterError:
        if layer or model.encoding:
            raise
        return verb.audit_adapter(str(named or model.path), fail_on)
    return verb.audit(opened, layer=layer, fail_on=fail_on, top=top)


@command("Matrices and models", view=BARE)
def diff(
    *,
    base: str,
    tuned: str,
    reading: ReadingOptions,
    layer: names.TokenLayer | None = None,
    tokens: bool = False,
    atol: float = 0.0,
    text: Path | None = None,
    top: int = names.SHOWN_ROWS,
) -> Any:
    """Show which rows of two checkpoints differ.

    Matched by their tokens; the exit status is 1 if any differ. Of two tokenizers' files, which
    tokens differ.

    # which rows fine-tuning changed, and how much
    embcli diff model.safetensors tuned.safetensors

    # all rows, for the next program
    embcli diff model.safetensors tuned.safetensors -f ndjson

    # status 1 if any row differs, for a script
    embcli diff model.safetensors tuned.safetensors -o changed.csv
    """
    options = vars(reading)
    words = None if text is None else read_text(text, "--file", "embcli diff")
    notes = PrintedNotes()  # are those of both models
    from embcli.verbs import diff as verb

    if _is_vocabulary(base, tokens) or _is_vocabulary(tuned, tokens):
        first = _vocabulary(base, options, notes)
        second = _vocabulary(tuned, options, notes)
        return verb.compare_tokens(first, second, top, notes, words)
    return verb.diff(
        opened(options, base, notes),
        opened(options, tuned, notes),
        layer=layer,
        tokens=tokens,
        atol=atol,
        text=words,
        top=top,
    )


def _is_vocabulary(name: str, compares_tokens: bool) -> bool:
    """Return whether an argument is a tokenizer's file, or an encoding if tokens are compared."""
    from embcli.hub.local import is_tokenizer

    return is_tokenizer(name) or (compares_tokens and name in names.ENCODINGS)


def _vocabulary(path: str, options: Options, notes: PrintedNotes) -> Any:
    """Return the tokens of a tokenizer's file, or of a model."""
    from embcli.encodings import get
    from embcli.verbs.diff import Vocabulary, vocabulary

    if _is_vocabulary(path, compares_tokens=True):
        return Vocabulary(path, get(path, notes))
    return vocabulary(opened(options, path, notes))


@command("Matrices and models")
def explore(
    *,
    named: o.ModelPath = None,
    model: ModelOptions,
    layer: names.TokenLayer = "token",
    row: str | None = None,
    text: str | None = None,
) -> int:
    """Walk through a matrix, full-screen.

    Rows, neighbours, findings and input embeddings, by keys; ? lists them. Each screen names the
    command that prints it, and q prints that command.

    # walk through the matrix of a model
    embcli explore model.safetensors

    # from a row on, by its token or ID
    embcli explore gpt2 --row " Paris"

    # the tokens of a text, and their rows
    embcli explore gpt2 --text "Every effort moves you"
    """
    from embcli.cli.explore import walk

    return walk(one_path(named, model.path), model, layer, row, text)


@command("Text and vectors")
def tour(*, asked: TourOptions, output: str | None = None) -> Any:
    """Go through the chapter, step by step.

    embcli commands, their output and short explanations; Enter continues.

    # all steps, with questions
    embcli tour

    # from step 8 to the end, with your own text
    embcli tour --text "Hello, world" --steps 8-

    # further questions, with a score
    embcli tour --quiz

    # all steps and all questions, to print; the answers come last
    embcli tour -o handout.html --title "Week 2"
    """
    from embcli.cli.tour import guide

    if asked.path is not None:
        model = opened({}, asked.path)  # refuses it before any step is shown
        if model.encoding is None:
            raise InputError(
                "the tour needs tokens, and the encoding of these rows is unknown",
                "The tour has no --encoding: put a tokenizer.json or the like beside the model.",
            )

    return guide(asked, partial(run, finish=Command.result), is_file=output not in (None, "-"))


@command("Text and vectors", view=PAGE)
def explain(
    *,
    word: o.Explained = None,
) -> Any:
    """Explain a word of a page, with an example and its source.

    Without WORD, list all words that are explained.

    # a word that a page prints
    embcli explain one-hot

    # a field of the data formats
    embcli explain l2_distance

    # a question, in words of yours
    embcli explain sinusoidal vs learned

    # the list of words
    embcli explain
    """
    from embcli.verbs.explain import explain

    return explain(" ".join(word) if word else None)


@command("More", view=FILE)
def decode(
    *,
    ids: list[str] | None = None,
    encoding: o.Encoding = None,
) -> bytes:
    """Turn token IDs back into text.

    Byte for byte. Without IDS, IDs are read from standard input.

    # back to text
    embcli decode 6109 3626 6100 345

    # with the encoding of another model
    embcli decode --encoding gpt-4o 13225

    # all IDs from a pipe
    embcli tokenize --file book.txt -f ids | embcli decode
    """
    token_ids = read_ids(" ".join(ids) if ids else None)
    from embcli.verbs import decode as verb

    return verb.decode_bytes(opened({"encoding": encoding}), token_ids)


@command("More", view=BARE)
def count(
    *,
    files: list[str] | None = None,
    text: str | None = None,
    lines: bool = False,
    encoding: o.Encodings = o.DEFAULT_ENCODINGS,
    special: bool = False,
    fail_above: int | None = None,
) -> Any:
    """Count the tokens of files.

    One row per file, or per line, and the total.

    # the tokens of files, and their total
    embcli count book.txt the-verdict.txt

    # each line under two tokenizers, for a spreadsheet
    embcli count book.txt --encoding gpt2,o200k_base --lines -f csv

    # status 1 if it has more tokens, for a script
    embcli count book.txt --fail-above 100000
    """
    from embcli.encodings import get_several
    from embcli.verbs.count import Counting, Counts

    notes = PrintedNotes()
    counting = Counting(
        get_several(encoding, notes),
        lines=lines,
        special=special,
        fail_above=fail_above,
        notes=notes,
    )
    rows = counting.rows(sources(files, text))
    first_row = [*islice(rows, 1)]
    if counting.failures and not first_row:
        raise InputError("nothing could be counted; --text takes a text in place of files")
    return Counts(chain(first_row, rows), counting, notes=counting.notes)


@command("Matrices and models", view=PAGE)
def info(
    *,
    named: o.ModelPath = None,
    model: FileOptions,
    tensors: bool = False,
) -> Any:
    """Show versions and the cache, or the tensors of a model.

    Without PATH, encodings and the CPU capability of torch, too. With PATH, the tensors that embcli
    reads, or all.

    # versions, encodings and the cache
    embcli info

    # the tensors of a model, and what they are for
    embcli info gpt2
    """
    from embcli.verbs.info import info as info_of_model, this_machine

    if named is not None or model.is_of_file:
        return info_of_model(model.opened(named), tensors=tensors)
    return this_machine()


@command("More", view=PAGE)
def cache(
    *,
    action: names.CacheAction = "list",
) -> Any:
    """Show where layers and tokenizers are kept, and how much space each takes; or remove them.

    # where layers and tokenizers are kept, and how much space they take
    embcli cache

    # remove everything
    embcli cache clear
    """
    from embcli.store import Store
    from embcli.verbs.cache import files

    return files(Store.from_environment(PrintedNotes()), action)

"""The options of all verbs, each declared once by the name of its parameter: a flag means the same everywhere."""

import copy
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

import typer
from typer.completion import show_callback
from typer.models import OptionInfo

from embcli import formats, names
from embcli.cli import completion
from embcli.errors import InputError
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, KINDS

# The order of options in the help.
COMMON, INPUT, MODEL, VIEW, OUTPUT = PANELS = ("Options", "Input", "Model", "View", "Output")
# The options that most people need: the help of a verb shows them first.
_COMMON = {
    "tokenize": ("file", "encoding", "special", "format", "output"),
    "decode": ("encoding", "output"),
    "weights": ("rows", "columns", "map", "dim", "output"),
    "lookup": ("ids", "path", "dim", "heat", "output"),
    "compare": ("ids", "path", "trace", "show", "output"),
    "batch": ("batch_size", "max_length", "stride", "shuffle", "output"),
    "positions": ("context_length", "rows", "similarity", "heat", "output"),
    "neighbors": ("path", "ids", "top", "metric", "output"),
    "audit": ("fail_on", "tensor", "top", "format", "output"),
    "diff": ("tensor", "color", "top", "format", "output"),
    "explore": ("row", "text", "sort", "dim", "encoding"),
    "tour": ("text", "step"),
    "explain": ("width", "color", "theme", "format", "output"),
    "info": ("tensors", "models", "encoding", "format", "output"),
    "cache": ("width", "color", "theme", "format", "output"),
}

_OTHER_KINDS = {"rope": "rotary"}  # names that papers have for kinds of positions


def whole_number(value: str | int) -> int:
    """Parse a whole number; torch, numpy and embcli itself refuse one that is out of range."""
    try:
        return int(value)
    except ValueError:
        shown = str(value)[:40]
        if str(value).strip().lstrip("+-").isdecimal():  # Python converts no more than some thousand digits
            raise typer.BadParameter(f"{shown}... is out of range.") from None
        raise typer.BadParameter(f"{shown!r} is not a whole number.") from None


def kind_named(value: str) -> str:
    """Return a kind of positions by its name or another name for it; a name that is not known stays as it is."""
    return _OTHER_KINDS.get(value, value)


def _format(value: str) -> str:
    name = formats.ALIASES.get(value, value)
    if name not in formats.FORMATS:
        raise typer.BadParameter(f"{value[:40]!r} is not a format; choose from {', '.join(formats.FORMATS)}.")
    return name


def _names_of(parameter: str, known: tuple[str, ...]) -> Callable[[str | tuple[str, ...]], tuple[str, ...]]:
    """Return a parser of comma-separated names; it returns them in the order of the known ones."""

    def parse(value: str | tuple[str, ...]) -> tuple[str, ...]:
        chosen = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
        for name in chosen:
            if name not in known:
                choice = f"choose from {', '.join(known)}, separated by commas"
                raise InputError(f"{flag_of(parameter)} {name[:40]!r} is not known; {choice}")
        return tuple(name for name in known if name in chosen)

    return parse


def _one_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of one of these names."""
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def _some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return a completion of the last of some comma-separated names, by names that are not used yet."""

    def complete(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        others = [name for name in known if name not in before and name.startswith(last)]
        return [",".join([*before, name]) for name in others] if {*before} <= {*known} else []

    return complete


def _words(incomplete: str) -> list[str]:
    """Complete a word that is explained; words that a shell would have to quote are omitted."""
    from embcli.verbs.explain import named

    return sorted({name for name in named() if re.fullmatch(r"\w[\w.-]*", name) and name.startswith(incomplete)})


def _encodings(incomplete: str) -> list[str]:
    """Complete the name of an encoding, and also folders and JSON files; shells offer files if nothing is returned.

    Names that a shell would have to quote are omitted. Of several, separated by commas, it completes the last.
    """
    *before, last = incomplete.split(",")
    if before:
        others = (name for name in names.ENCODINGS if name not in before and name.startswith(last))
        return [",".join([*before, name]) for name in others]
    known = [name for name in names.ENCODINGS if name.startswith(incomplete)]
    if known and incomplete:
        with suppress(OSError), os.scandir() as entries:  # the folder may be gone or unreadable
            here = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
            plain = filter(re.compile(r"[\w.-]+(/|\.(json|gguf|tiktoken))").fullmatch, here)
            known += [name for name in plain if name.startswith(incomplete)]
    return known


def _list_of(name: str, known: tuple[str, ...]) -> dict[str, Any]:
    return {"parser": _names_of(name, known), "metavar": "NAMES", "autocompletion": _some_of(known)}


def _option(panel: str | None, help: str, default: str | None = None, flags: str = "", **settings: Any) -> Any:
    """Return the declaration of an option.

    `default` describes its default in words; `flags` are separated by blanks, and by default its name as a flag.
    """
    if default is not None:
        settings["show_default"] = default
    return typer.Option(..., *flags.split(), help=help, rich_help_panel=panel, **settings)


def _argument(metavar: str, help: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help, **{"show_default": False, **settings})


def _encoding(help: str, default: str = names.DEFAULT_ENCODING, metavar: str = "NAME") -> Any:
    return _option(INPUT, help, default, metavar=metavar, autocompletion=_encodings)


def _kinds(help: str, known: tuple[str, ...], default: str = DEFAULT_KIND) -> Any:
    return _option(MODEL, help, default, parser=kind_named, autocompletion=_one_of(known))


_ENCODING = "An encoding or a model by tiktoken's name, a tokenizer's file, or a GGUF."
_MODEL = "A model: file, folder, or name in the Hugging Face cache."
# By the name of the parameter; `verb.parameter` if a verb declares it differently.
DECLARED: dict[str, Any] = {
    # What is given.
    "text": _argument("TEXT", "Text to use; omit it or pass - to read standard input."),
    "compare.text": _argument("TEXT", "Text to use, or - to read it; without any, the IDs 2,3,1."),
    "word": _argument("WORD", "A term, field or format of a page.", autocompletion=_words),
    "tour.text": _option(INPUT, "The text of the steps that take one.", metavar="TEXT"),
    "explore.text": _option(INPUT, "Begin at the tokens of a text.", metavar="TEXT"),
    "file": _option(INPUT, "Read the text from a file.", metavar="PATH"),
    "batch.file": _argument("FILE", "A file with the text; omit it or pass - to read standard input."),
    "tour.file": _argument("FILE", "A tour of your own, in JSON.", show_default="embcli's"),
    "words": _argument("VERB", "The verb, such as lookup, or cache clear."),
    "decode.ids": _argument("IDS", "Token IDs: 6109 3626, or 6109,3626."),
    "ids": _option(INPUT, "Token IDs in place of the text: 2,3,5,1, or - to read them.", metavar="IDS"),
    "positions.ids": _option(INPUT, "Token row that the positions are applied to.", "0", metavar="ID"),
    "special": _option(INPUT, "Recognise special tokens in the text."),
    "lines": _option(INPUT, "Make each line of the input a sequence of its own."),
    "window": _option(INPUT, "Split longer input into sequences of C tokens."),
    "plus": _option(INPUT, "Add the row of this token.", metavar="TEXT"),
    "minus": _option(INPUT, "Subtract the row of this token.", metavar="TEXT"),
    "vector": _option(
        INPUT,
        "Vectors in place of the text: one JSON array, or one object of lookup's ndjson, per line; - reads standard "
        "input.",
        metavar="PATH",
    ),
    "encoding": _encoding(_ENCODING, f"{names.DEFAULT_ENCODING}; of a real model, its own"),
    **dict.fromkeys(("decode.encoding", "batch.encoding"), _encoding(_ENCODING)),
    "tokenize.encoding": _encoding(
        "An encoding or model, a tokenizer's file, or a GGUF; several are compared: gpt2,o200k_base.", metavar="NAMES"
    ),
    "step": _option(VIEW, "Start at step N, counted from 1; in a pipe, print only that step.", metavar="N"),
    "batch_size": _option(INPUT, "Samples in a batch.", metavar="B"),
    "max_length": _option(INPUT, "Tokens in a sample.", metavar="T"),
    "stride": _option(INPUT, "Tokens from one sample to the next.", metavar="N"),
    "shuffle": _option(INPUT, "Shuffle the samples."),
    "keep_last": _option(INPUT, "Keep the last batch even if incomplete."),
    "index": _option(INPUT, "Which batch, counted from 0.", "0", metavar="K"),
    "all": _option(INPUT, "All batches."),
    "merges": _option(VIEW, "Show how each piece becomes tokens, merge by merge."),
    "tokenize.draw": _option(VIEW, "Draw the merges as trees."),
    # The model.
    "path": _option(MODEL, _MODEL, flags="--from", metavar="PATH"),
    "named": _argument("PATH", _MODEL),
    "named_kind": _argument("KIND", f"{', '.join(KINDS[:-1])} or {KINDS[-1]}; or PATH."),
    "tensor": _option(MODEL, "The token matrix in that file.", metavar="NAME"),
    "diff.tensor": _option(MODEL, "The token matrix in both files.", metavar="NAME"),
    "base": _argument("BASE", _MODEL),
    "tuned": _argument("TUNED", "The other model, usually fine-tuned from BASE."),
    "vocab": _option(MODEL, "Rows of the token layer.", "the encoding's", metavar="V"),
    "compare.vocab": _option(
        MODEL, "Rows of the token layer.", "the encoding's; with --ids, the largest ID + 1", metavar="V"
    ),
    "dim": _option(MODEL, "Columns: the embedding dimension.", str(names.DEFAULT_DIM), metavar="D"),
    "compare.dim": _option(MODEL, "Columns: the embedding dimension.", str(names.COMPARED_DIM), metavar="D"),
    "context_length": _option(MODEL, "Rows of the position layer.", str(names.DEFAULT_CONTEXT_LENGTH), metavar="C"),
    "positions.context_length": _option(
        MODEL,
        "T, the number of positions: rows of the position layer.",
        f"{names.DEFAULT_CONTEXT_LENGTH}, of which a page shows 16; relative {names.SHORT_LENGTH}",
        metavar="T",
    ),
    "batch.context_length": _option(MODEL, "Rows of the position layer.", "--max-length", metavar="C"),
    "seed": _option(MODEL, "Seed of torch's generator.", str(names.DEFAULT_SEED), metavar="INT"),
    "no_cache": _option(MODEL, "Do not use the cache."),
    "layer": _option(MODEL, "Which layer."),
    "kind": _kinds("Which kind of positions.", KINDS, f"{DEFAULT_KIND}; with --from, the model's own"),
    "pairing": _option(MODEL, "Which columns rotary positions rotate together.", "interleaved"),
    "theta": _option(MODEL, "Base of the rotary angles.", f"{names.DEFAULT_THETA:g}", metavar="THETA"),
    "position": _kinds(
        "Which kind of positions is added.", JOINED_KINDS, f"{DEFAULT_KIND}; with --from, the model's own"
    ),
    # What is shown.
    "show": _option(VIEW, "Which matrices: token, position, input, hidden.", "all", **_list_of("show", names.MATRICES)),
    "compare.show": _option(
        VIEW,
        "Steps: ids, one-hot, first (the linear layer's own weights), shared, outputs; or embedding or linear.",
        "outputs, and what fits",
        **_list_of("show", (*names.STEPS, *names.OUTPUTS)),
    ),
    "only": _option(VIEW, 'Only the tokens of this text, or with these IDs: 345; " 345" is a text.', metavar="TEXT"),
    "rows": _option(VIEW, "Which rows: 0:5,100,50256.", metavar="ROWS"),
    "weights.rows": _option(VIEW, "Which rows: 0:5,100,50256, or tokens: king,queen.", metavar="ROWS"),
    "row": _option(VIEW, "Begin at a row, by its ID or token.", metavar="ROW"),
    "columns": _option(VIEW, "Which columns: 0:8,255 (8 not included).", metavar="COLUMNS"),
    "sort": _option(VIEW, "Order of the rows; norm: the largest first."),
    "map": _option(VIEW, "Show the whole matrix at once: how large its numbers are."),
    "draw": _option(VIEW, "Draw it as a picture."),
    "trace": _option(VIEW, "Spell out the sum for token N, counted from 0.", metavar="N"),
    "compare.trace": _option(VIEW, "Write out the product of each token."),
    "gradient": _option(VIEW, "Also compare the gradients of one backward pass."),
    "learning_rate": _option(VIEW, "Also take one step of training by the gradients.", metavar="RATE"),
    "similarity": _option(VIEW, "Show the dot products of positions."),
    "metric": _option(VIEW, "What near means."),
    "top": _option(VIEW, "How many neighbours.", "10", "--top -k", metavar="K"),
    **dict.fromkeys(
        ("audit.top", "diff.top"), _option(VIEW, "Rows of each kind to show.", flags="--top -k", metavar="K")
    ),
    "match": _option(VIEW, "Only tokens matching REGEX.", metavar="REGEX"),
    "fail_on": _option(
        VIEW,
        f"Exit with 1 for these: {', '.join(names.FAULTS)}.",
        ",".join(names.BROKEN),
        **_list_of("fail_on", names.FAULTS),
    ),
    "tensors": _option(VIEW, "List all tensors of the model."),
    "models": _option(VIEW, "List the models on this machine."),
    "precision": _option(VIEW, "Decimals in a table.", metavar="N"),
    "heat": _option(VIEW, "Show all columns as a heat map."),
    "color": _option(VIEW, "Colour in a table."),
    "width": _option(VIEW, "Columns of a page.", "the terminal's; in a pipe 120, a picture 100", metavar="N"),
    "theme": _option(VIEW, "Background of a picture.", "light"),
    # Where the result goes.
    "format": _option(
        OUTPUT, "", "by -o's suffix, EMBCLI_FORMAT or table", "--format -f", parser=_format, metavar="FORMAT"
    ),
    "output": _option(OUTPUT, "Write to a file; written atomically.", flags="--output -o", metavar="PATH"),
    "version": _option(
        None, "Show the version and exit.", flags="--version -V", callback=completion.show_version, is_eager=True
    ),
    # Typer's own two options of these names detect the shell; here it is named, so that a script can be made anywhere.
    "show_completion": _option(None, "Print the completion script for a shell.", callback=show_callback, hidden=True),
    "install_completion": _option(None, "Install completion for a shell.", callback=completion.install, hidden=True),
}
for _name, _declared in DECLARED.items():
    if isinstance(_declared, OptionInfo) and not _declared.param_decls:
        _declared.param_decls = (f"--{_name.rpartition('.')[2].replace('_', '-')}",)


def declared(verb: str, kind: formats.Kind | None, name: str, hint: Any = str) -> Any:
    """Return the declaration of a parameter of a verb, whose result is of a kind, for Typer; `hint` is its type."""
    option = copy.copy(DECLARED.get(f"{verb}.{name}") or DECLARED[name])
    types = (hint, *get_args(hint))
    if int in types:
        option.parser = whole_number
    if name == "format" and kind:
        able = formats.able(kind)
        option.help, option.autocompletion = f"{formats.either(able)}.", _one_of(able)
    choices = next((get_args(each) for each in types if get_origin(each) is Literal), ())
    if choices and option.metavar is None:
        option.metavar, option.help = name.upper(), f"{option.help[:-1]}: {formats.either(choices)}."
    if name in _COMMON.get(verb, ()):
        option.rich_help_panel = COMMON
    return option


def flag_of(name: str) -> str:
    """Return a parameter as a user types it: `--dim` for dim, TEXT for text.

    >>> flag_of("learning_rate"), flag_of("text"), flag_of("anything")
    ('--learning-rate', 'TEXT', 'anything')
    """
    option = DECLARED.get(name)
    if option is None:
        return name
    return next((each for each in option.param_decls or () if each.startswith("--")), str(option.metavar))

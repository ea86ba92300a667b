"""Options in groups: each group is declared once and put on many commands.

A command's signature names its groups, and `Command` makes flags of their options. A command that
words an option in a way of its own has a subclass, which declares this option anew. Annotations are
read as they stand here, so this file has no `from __future__ import annotations`.
"""

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from embcli import names
from embcli.cli import options as o
from embcli.cli.console import PrintedNotes
from embcli.cli.input import read
from embcli.cli.options import argument, option, some_of
from embcli.errors import InputError, Notes, UnknownWordError
from embcli.formats import FORMATS, PICTURES, or_list
from embcli.positions import KINDS, kind_named
from embcli.wording import Sentence

if TYPE_CHECKING:
    from embcli.opened import Opened
    from embcli.text import Sequences


class OptionGroup:
    """Options of several commands: annotated attributes, whose values are their defaults.

    A group is no dataclass: making one takes 0.4 ms of each start.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take the values of this group from all options of a command."""
        for flag in self.flags():
            setattr(self, flag.name, options[flag.name])

    @classmethod
    def flags(cls) -> list[inspect.Parameter]:
        """Return the options as a function declares them, those of the base class first."""
        declared: dict[str, Any] = {}
        for group in reversed(cls.__mro__):
            declared.update(inspect.get_annotations(group))
        flags = []
        for name, annotation in declared.items():
            kind = inspect.Parameter.KEYWORD_ONLY
            default = getattr(cls, name)
            flags.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
        return flags


class Given(OptionGroup):
    """A text from an argument, a file or standard input, or token IDs in its place."""

    text: Annotated[
        str | None, argument("TEXT", "Text to use; omit it or pass - to read standard input.")
    ] = None
    file: Annotated[Path | None, option("Input", "Read the text from a file.", "PATH")] = None
    ids: Annotated[
        str | None,
        option("Input", "Token IDs in place of the text: 2,3,5,1, or - to read them.", "IDS"),
    ] = None
    special: o.Special = False

    @property
    def is_empty(self) -> bool:
        return self.text is None and self.file is None and self.ids is None

    def read(self, example: str, lines: bool = False) -> "Sequences":
        """Return the texts or the IDs.

        The example, which begins with the verb, says what could be given.
        """
        return read(self.text, self.file, self.ids, lines, example)


class ModelGiven(Given):
    """A text or token IDs as a model reads them: with the tokens that it adds, or without them."""

    no_added: Annotated[
        bool, option("Input", "With --special: add no tokens around the text.", "--no-added")
    ] = False

    def read(self, example: str, lines: bool = False) -> "Sequences":
        if self.no_added and not self.special:
            raise InputError(Sentence("{no_added} goes with {special}, which adds tokens"))
        return super().read(example, lines)


class ComparedGiven(ModelGiven):
    """A text or token IDs, or the IDs of the chapter."""

    text: Annotated[
        str | None, argument("TEXT", "Text to use, or - to read it; without any, the IDs 2,3,1.")
    ] = None


class TourOptions(OptionGroup):
    """What the tour goes through, and how it is printed."""

    text: Annotated[
        str | None, option("Input", "A text of yours for the steps that take one.", "--text TEXT")
    ] = None
    path: Annotated[
        str | None,
        option(
            "Input",
            "Add steps on the rows of a model: a file, folder, name or hf://org/name.",
            "--from MODEL",
            autocompletion=o.models,
        ),
    ] = None
    steps: Annotated[
        str | None,
        option("View", "Only these steps, in this order; 8- goes to the end.", "--steps 1,3,8-10"),
    ] = None
    quiz: Annotated[
        bool, option("View", "The further questions of the handout in place of steps.", "--quiz")
    ] = False
    title: Annotated[
        str, option("Output", "The title of a handout (with --output).", "--title TEXT")
    ] = "From text to input embeddings"
    no_answers: Annotated[
        bool, option("Output", "Leave out the answers (with --output).", "--no-answers")
    ] = False
    paper: Annotated[
        names.Paper, option("Output", "The paper of a handout (with --output FILE.html).")
    ] = "a4"


class FileOptions(OptionGroup):
    """A model on disk."""

    encoding: o.Encoding = None
    path: Annotated[
        str | None, option("Model", o.MODEL, "--from PATH", autocompletion=o.models)
    ] = None
    tensor: o.Tensor = None

    def opened(self, path: str | None = None, word_hint: str = "") -> "Opened":
        """Return the model that an argument or --from names.

        `word_hint` says what else a single word may be.
        """
        try:
            return opened(vars(self), one_path(path, self.path, word_hint))
        except UnknownWordError as error:
            error.hint = word_hint or error.hint
            raise


_OF_LAYERS = ("vocab", "dim", "context_length", "seed")


class LayerOptions(OptionGroup):
    """Layers of a seed."""

    vocab: o.Vocab = None
    dim: o.Dim = None
    context_length: Annotated[
        int | None,
        option(
            "Model", "Rows of the position layer.", "C", default=str(names.DEFAULT_CONTEXT_LENGTH)
        ),
    ] = None
    seed: o.Seed = None
    no_cache: o.NoCache = False


class ModelOptions(LayerOptions, FileOptions):
    """A model on disk, or layers of a seed."""

    @property
    def is_empty(self) -> bool:
        """Whether no option names a model or asks for a seeded layer."""
        return not _given(vars(self), ("path", *_OF_LAYERS))


class PositionsModel(ModelOptions):
    """A model on disk, or layers of a seed, with positions for any T."""

    context_length: Annotated[
        int | None,
        option(
            "Model",
            "Number of positions: C of a layer, T of a formula.",
            "--context-length C",
            default=f"{names.DEFAULT_CONTEXT_LENGTH}, of which a page shows 16; "
            f"relative {names.SHORT_LENGTH}",
        ),
    ] = None


class ComparedModel(FileOptions):
    """A model on disk, or a layer of a seed that is as large as the IDs need it."""

    vocab: Annotated[
        int | None,
        option(
            "Model",
            "Rows of the token layer.",
            "V",
            default="largest ID + 1; of text, the encoding's",
        ),
    ] = None
    dim: Annotated[
        int | None,
        option(
            "Model", "Columns: the embedding dimension.", "--dim D", default=str(names.COMPARED_DIM)
        ),
    ] = None
    seed: o.Seed = None

    def opened_for(self, sequences: "Sequences") -> "Opened":
        """Return the model that --from names, or a small one for these IDs."""
        if self.path is not None or self.tensor is not None:
            return opened({**vars(self), "seed": None}, self.path)
        from embcli.opened import seeded_for

        options = _given(vars(self), ("vocab", "dim", "encoding", "seed"))
        return seeded_for(sequences, **options, notes=PrintedNotes())


class BatchModel(LayerOptions):
    """Layers of a seed, whose position layer is as long as the samples."""

    encoding: o.Encoding = None
    context_length: Annotated[
        int | None,
        option(
            "Model", "Rows of the position layer.", "--context-length C", default="--max-length"
        ),
    ] = None

    def opened(self) -> "Opened":
        return opened(vars(self))


class KindAndPath(OptionGroup):
    """A kind of positions and a model; the first argument can be the one or the other."""

    named_kind: Annotated[
        str | None, argument("KIND", f"{or_list(KINDS)}; or PATH.", autocompletion=some_of(KINDS))
    ] = None
    named: o.Path_ = None

    def chosen(self) -> tuple[Any, str | None]:
        """Return the kind, which the library checks, and the path."""
        first = self.named_kind
        if first is None:
            return None, self.named
        is_path = os.access(first, os.F_OK) or not first.isalpha()
        is_kind = kind_named(first) in KINDS
        if is_path and not is_kind and self.named is None:
            return None, first
        return first, self.named


class Precision(OptionGroup):
    """How many digits numbers have."""

    precision: Annotated[
        int | None,
        option("View", "Decimals in a table.", "N", default=str(names.DEFAULT_PRECISION)),
    ] = None


class Heat(OptionGroup):
    """Whether numbers are colours."""

    heat: Annotated[
        bool, option("View", "Show all columns as a heat map.", "--heat"), o.ON_PAGES
    ] = False


class Bare(OptionGroup):
    """A page without explanations."""

    bare: Annotated[
        bool,
        option(
            "View", "Only titles, and tables or pictures: no explanations, notes, costs.", "--bare"
        ),
        o.ON_PAGES,
    ] = False


class Page(OptionGroup):
    """How a page looks, and where the result goes."""

    color: Annotated[names.Color, option("View", "Colour in a table.")] = "auto"
    width: Annotated[
        int | None,
        option(
            "View",
            "Columns of a page.",
            "N",
            default="the terminal's; in a pipe 120, a picture 100",
        ),
        o.ON_PAGES,
    ] = None
    theme: Annotated[
        names.Theme | None,
        option(
            "View",
            "Background of the terminal, or of a picture.",
            "",
            default="auto: EMBCLI_THEME, COLORFGBG or dark; a picture's light",
        ),
        o.ShownIn(("table", *PICTURES)),
    ] = None
    slide: Annotated[
        str | None,
        option("View", 'Draw a slide of 1920 x 1080 with a heading; "" names the text.', "TITLE"),
        o.ShownIn(PICTURES),
    ] = None
    format: Annotated[
        str | None,
        option(
            "Output",
            f"{or_list(tuple(FORMATS))}, as the result allows.",
            "--format -f FORMAT",
            default="by -o's suffix, EMBCLI_FORMAT or table",
            autocompletion=some_of(tuple(FORMATS)),
        ),
    ] = None
    output: o.Output = None


class File(OptionGroup):
    """A file in place of standard output."""

    output: o.Output = None


def opened(
    options: Mapping[str, Any], path: str | None = None, notes: Notes | None = None
) -> "Opened":
    """Return the model of a path, or layers of a seed.

    Raises InputError for options of the other one.
    """
    from embcli.opened import Opened

    remarks = notes or PrintedNotes()
    of_file = _given(options, ("encoding", "tensor"))
    of_layers = _given(options, (*_OF_LAYERS, "no_cache"))
    if path is None:
        if "tensor" in of_file:
            raise InputError(Sentence("{tensor} goes with {path}, which names the file"))
        return Opened.seeded(**of_file, **of_layers, notes=remarks)
    for name in of_layers:
        flag = o.flag_of(name)
        raise InputError(f"{flag} is for seeded layers; --from takes what the file holds")
    return Opened.open(path, **of_file, notes=remarks)


def _given(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: options[name] for name in names if is_given(options.get(name))}


def is_given(value: object) -> bool:
    """Return whether an option is given; 0 is a value."""
    return value is not None and value is not False


def one_path(argument: str | None, option: str | None, hint: str = "") -> str | None:
    """Return the model that an argument or --from names; raises InputError for both."""
    if argument is not None and option is not None:
        wrong = f"{argument!r} and --from name the same thing, the model; give one of them"
        raise InputError(wrong, hint)
    return argument if option is None else option

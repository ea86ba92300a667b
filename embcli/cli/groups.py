"""Options in groups: each group is declared once and put on many commands.

A command's signature names its groups, and `Command` makes flags of their options, with the words
of `data/options.json`. A command that words an option in a way of its own has a subclass, of whose
name the words are. Annotations are read as they stand here, so this file has no `from __future__
import annotations`.
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
from embcli.cli.options import as_flag, some_of
from embcli.errors import InputError, Notes
from embcli.formats import FORMATS
from embcli.names import Strings
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
        for group in type(self).__mro__:
            for name in inspect.get_annotations(group):
                if name in options:
                    setattr(self, name, options[name])

    @classmethod
    def flags(cls) -> list[inspect.Parameter]:
        """Return the options as Typer reads them, those of the base class first."""
        declared = {}
        owners = []
        for group in reversed(cls.__mro__):
            declared.update(inspect.get_annotations(group))
            owners.append(group.__name__)
        return [as_flag(name, declared[name], getattr(cls, name), owners) for name in declared]


class Given(OptionGroup):
    """A text from an argument, a file or standard input, or token IDs in its place."""

    text: str | None = None
    file: Path | None = None
    ids: str | None = None
    special: bool = False

    @property
    def is_empty(self) -> bool:
        return not _given(vars(self), ("text", "file", "ids"))

    read = read


class ModelGiven(Given):
    """A text or token IDs as a model reads them: with the tokens that it adds, or without them."""

    no_added: bool = False

    def read(self, example: str, lines: bool = False) -> "Sequences":
        if self.no_added and not self.special:
            raise InputError(Sentence("{no_added} goes with {special}, which adds tokens"))
        return super().read(example, lines)


class ComparedGiven(ModelGiven):
    """A text or token IDs, or the IDs of the chapter."""


class TourOptions(OptionGroup):
    """What the tour goes through, and how it is printed."""

    text: str | None = None
    path: o.ModelPath = None
    steps: str | None = None
    quiz: bool = False
    title: str = "From text to input embeddings"
    no_answers: bool = False
    paper: names.Paper = "a4"


class EncodingOption(OptionGroup):
    """How text becomes token IDs."""

    encoding: o.Encoding = None


class PathOption(EncodingOption):
    """Which model on disk."""

    path: o.ModelPath = None


class ReadingOptions(EncodingOption):
    """How a model on disk is read, whatever names it."""

    tensor: str | None = None


class FileOptions(ReadingOptions, PathOption):
    """A model on disk."""

    @property
    def is_of_file(self) -> bool:
        """Whether an option is about a file."""
        return bool(_given(vars(self), ("path", *_OF_FILE)))

    def opened(self, path: str | None = None) -> "Opened":
        """Return the model that an argument or --from names."""
        return opened(vars(self), one_path(path, self.path))


class LayerOptions(OptionGroup):
    """Layers of a seed."""

    vocab: int | None = None
    dim: int | None = None
    context_length: int | None = None
    seed: int | None = None
    no_cache: bool = False


_OF_FILE = tuple(inspect.get_annotations(ReadingOptions))
_OF_LAYERS = tuple(inspect.get_annotations(LayerOptions))


class ModelOptions(LayerOptions, FileOptions):
    """A model on disk, or layers of a seed."""

    @property
    def is_empty(self) -> bool:
        """Whether no option names a model or asks for a seeded layer."""
        return not _given(vars(self), ("path", *_OF_LAYERS))


class PositionsModel(ModelOptions):
    """A model on disk, or layers of a seed, with positions for any T."""


class ComparedModel(FileOptions):
    """A model on disk, or a layer of a seed that is as large as the IDs need it."""

    vocab: int | None = None
    dim: int | None = None
    seed: int | None = None

    def opened_for(self, sequences: "Sequences") -> "Opened":
        """Return the model that --from names, or a small one for these IDs."""
        if self.is_of_file:
            return opened({**vars(self), "seed": None}, self.path)
        from embcli.opened import seeded_for

        options = _given(vars(self), tuple(vars(self)))
        return seeded_for(sequences, **options, notes=PrintedNotes())


class BatchModel(EncodingOption, LayerOptions):
    """Layers of a seed, whose position layer is as long as the samples."""

    def opened(self) -> "Opened":
        return opened(vars(self))


class KindAndPath(OptionGroup):
    """A kind of positions and a model; the first argument can be the one or the other."""

    kind: Annotated[str | None, some_of(KINDS)] = None
    named: o.ModelPath = None

    def chosen(self) -> tuple[Any, str | None]:
        """Return the kind, which the library checks, and the path."""
        kind = kind_named(self.kind)
        is_kind = kind in (None, *KINDS) or self.named is not None
        if not is_kind and (os.access(kind, os.F_OK) or not kind.isalpha()):
            return None, kind
        return kind, self.named


class Precision(OptionGroup):
    """How many digits numbers have."""

    precision: int | None = None


class Heat(OptionGroup):
    """Whether numbers are colours."""

    heat: bool = False


class Bare(OptionGroup):
    """A page without explanations."""

    bare: bool = False


class Page(OptionGroup):
    """How a page looks, and where the result goes."""

    color: names.Color = "auto"
    width: int | None = None
    theme: names.Theme | None = None
    slide: str | None = None
    format: Annotated[str | None, some_of(tuple(FORMATS))] = None
    output: str | None = None


class File(OptionGroup):
    """A file in place of standard output."""

    output: str | None = None


def opened(
    options: Mapping[str, Any], path: str | None = None, notes: Notes | None = None
) -> "Opened":
    """Return the model of a path, or layers of a seed.

    Raises InputError for options of the other one.
    """
    from embcli.opened import Opened

    remarks = notes or PrintedNotes()
    encoding = _given(options, ("encoding",))
    of_file = _given(options, _OF_FILE)
    of_layers = _given(options, _OF_LAYERS)
    if path is None:
        for name in of_file:
            raise InputError(f"{o.flag_of(name)} goes with --from, which names the file")
        return Opened.seeded(**encoding, **of_layers, notes=remarks)
    for name in of_layers:
        wrong = f"{o.flag_of(name)} is for seeded layers, and {path!r} is read as a model"
        raise InputError(wrong, model=path)
    return Opened.open(path, **encoding, **of_file, notes=remarks)


def _given(options: Mapping[str, Any], names: Strings) -> dict[str, Any]:
    return {name: options[name] for name in names if is_given(options.get(name))}


def is_given(value: object) -> bool:
    """Return whether an option is given; 0 is a value."""
    return value is not None and value is not False


def one_path(argument: str | None, option: str | None) -> str | None:
    """Return the model that an argument or --from names; raises InputError for both."""
    if argument is not None and option is not None:
        wrong = f"{argument!r} and --from name the same thing, the model; give one of them"
        raise InputError(wrong, model=argument)
    return argument if option is None else option

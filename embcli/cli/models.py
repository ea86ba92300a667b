"""The groups of options for the model: seeded layers, or a checkpoint's file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from embcli import names
from embcli.cli.groups import Group
from embcli.cli.options import flag_of, kind_named
from embcli.errors import InputError
from embcli.positions import KINDS

if TYPE_CHECKING:
    from embcli.model import Model
    from embcli.text import Sequences

_OF_SEEDED: tuple[str, ...] = ("vocab", "dim", "context_length", "seed", "no_cache")
_OF_FILES: tuple[str, ...] = ("tensor",)


class ModelOptions(Group):
    """The options that choose a model: a checkpoint's file, seeded layers, or either."""

    def opened(self, encoding: str | None) -> Model:
        """Return the model; nothing is drawn or read whole yet.

        Raises InputError for options that describe a file if none is named, and for those of seeded layers if one is.
        """
        return _opened(encoding, vars(self))


class FileModel(ModelOptions):
    """A checkpoint's file, if one is named."""

    path: str | None = None
    tensor: str | None = None


class SeededModel(ModelOptions):
    """A seeded pair of layers."""

    vocab: int | None = None
    dim: int | None = None
    context_length: int | None = None
    seed: int | None = None
    no_cache: bool = False


class AnyModel(SeededModel, FileModel):
    """A checkpoint's file, or else a seeded pair of layers."""


class NamedFile(FileModel):
    """A checkpoint's file, which an argument can name in place of --from."""

    named: str | None = None

    @staticmethod
    def merge(given: dict[str, Any]) -> None:
        """Let the argument be the path; raises InputError if --from names one, too."""
        named = given["named"]
        if named is not None and given["path"] is not None:
            raise InputError(f"{named[:60]!r} and --from name the same thing, the model; give one of them")
        given |= {"path": given["path"] or named, "named": None}


class NamedModel(NamedFile, AnyModel):
    """A checkpoint's file, which an argument can name, or else a seeded pair of layers."""


class PositionsModel(AnyModel):
    """A model that an argument can name, after the kind of positions."""

    named_kind: str | None = None
    named: str | None = None

    @staticmethod
    def merge(given: dict[str, Any]) -> None:
        """Let the first argument be the kind, or the model if it is no kind; raises InputError for two of either."""
        from difflib import get_close_matches

        first = given["named_kind"] and kind_named(given["named_kind"])
        given["named_kind"] = None
        if first in KINDS:
            if given["kind"] not in (first, None):
                raise InputError(f"{first} and --kind name the same thing, the kind; give one of them")
            given["kind"] = first
        elif first is not None:
            misspelled = first.isalpha() and not os.access(first, os.F_OK) and get_close_matches(first, KINDS)
            if misspelled or given["named"] is not None:
                raise InputError(f"{first[:60]!r} is not a kind of positions; choose from {', '.join(KINDS)}")
            given["named"] = first
        NamedFile.merge(given)


class ComparisonModel(FileModel):
    """The token matrix of a checkpoint's file, or else a seeded layer as large as the IDs need it."""

    vocab: int | None = None
    dim: int | None = None
    seed: int = names.DEFAULT_SEED  # also of the linear layer's own first weights

    def opened_for(self, sequences: Sequences, encoding: str | None) -> Model:
        """Return the model on which these sequences are compared."""
        if self.path is not None:
            return _opened(encoding, vars(self) | {"seed": None})
        vocab = self.vocab
        if vocab is None and sequences.ids is not None:
            vocab = max((int(ids.max(initial=0)) for ids in sequences.ids), default=0) + 1
        dim = names.COMPARED_DIM if self.dim is None else self.dim
        return _opened(encoding, vars(self) | {"vocab": vocab, "dim": dim, "context_length": 1, "no_cache": True})


class TwoModels(Group):
    """The two checkpoints that are compared."""

    base: str
    tuned: str
    tensor: str | None = None

    def opened(self, encoding: str | None) -> tuple[Model, Model]:
        """Return both models."""
        options = {"tensor": self.tensor}
        return _opened(encoding, {"path": self.base, **options}), _opened(encoding, {"path": self.tuned, **options})


def refuse_options(options: dict[str, Any]) -> None:
    """Raise InputError for options of seeded layers if a file is named, and for those of files if none is."""
    wrong, why = _OF_FILES, "goes with --from, which names the file"
    if options.get("path") is not None:
        wrong, why = _OF_SEEDED, "is for seeded layers; --from takes what the file holds"
    for name in wrong:
        if options.get(name) is not None and options[name] is not False:
            raise InputError(f"{flag_of(name)} {why}")


def _opened(encoding: str | None, options: dict[str, Any]) -> Model:
    from embcli import model as library
    from embcli.cli.console import PrintedNotes, watched

    refuse_options(options)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if "path" in given:
        model = library.open(**given, encoding=encoding, notes=PrintedNotes())
    else:
        model = library.seeded(**given, encoding=encoding or names.DEFAULT_ENCODING, notes=PrintedNotes())
    model.watch = watched
    return model

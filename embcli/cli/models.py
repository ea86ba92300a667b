"""The groups of options for the model: seeded layers, or a checkpoint's file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from embcli import names
from embcli.cli.groups import Group
from embcli.cli.options import flag_of, kind_named
from embcli.errors import InputError
from embcli.names import Part
from embcli.positions import KINDS

if TYPE_CHECKING:
    from embcli.model import Model
    from embcli.text import Sequences
    from embcli.verbs.tokenizers import Tokenizers

_OF_SEEDED = ("vocab", "dim", "context_length", "seed", "no_cache")
_OF_FILES = ("tensor", "position_tensor", "transposed", "part")


class ModelInFile(Group):
    """A checkpoint's file, if one is named."""

    path: str | None = None
    pre: str | None = None
    tensor: str | None = None
    transposed: bool = False
    part: Part | None = None

    def from_file(self, encoding: str | None, of_seeded: tuple[str, ...] = _OF_SEEDED) -> Model | None:
        """Return the model of a file; None if no file is named.

        Raises InputError for options of the other kind: those of seeded layers, or those that describe a file.
        """
        from embcli import model as library
        from embcli.cli.console import PrintedNotes

        if self.path is None:
            self.refuse_without_file()
            return None
        self._refuse(of_seeded, "is for seeded layers; --from takes what the file holds")
        model = library.open(
            self.path,
            encoding=encoding,
            pre=self.pre,
            tensor=self.tensor,
            position_tensor=getattr(self, "position_tensor", None),
            transposed=self.transposed,
            part=self.part,
            notes=PrintedNotes(),
        )
        return _watched(model)

    def refuse_without_file(self) -> None:
        """Raise InputError for options that describe a file if no file is named."""
        self._refuse(_OF_FILES, "goes with --from, which names the file")

    def _refuse(self, fields: tuple[str, ...], why: str) -> None:
        for field in fields:
            value = getattr(self, field, None)
            if value is not None and value is not False:
                raise InputError(f"{flag_of(field)} {why}")


class OneModel(ModelInFile):
    """A checkpoint's file."""

    position_tensor: str | None = None

    def opened(self, encoding: str | None) -> Model:
        """Return the model; raises InputError if no file is named."""
        model = self.from_file(encoding)
        if model is None:
            raise InputError("--from names the file")
        return model


class AnyModel(ModelInFile):
    """A checkpoint's file, or else a seeded pair of layers."""

    position_tensor: str | None = None
    vocab: int | None = None
    dim: int | None = None
    context_length: int | None = None
    seed: int | None = None
    no_cache: bool = False

    def opened(self, encoding: str | None) -> Model:
        """Return the model; nothing is drawn or read whole yet."""
        sizes = {"vocab": self.vocab, "dim": self.dim, "context_length": self.context_length}
        model = self.from_file(encoding)
        return model or _seeded(encoding, self.pre, **sizes, seed=self.seed, no_cache=self.no_cache)


class Named(Group):
    """A model that an argument can name in place of --from."""

    named: str | None = None

    @staticmethod
    def merge(given: dict[str, Any]) -> None:
        """Let the argument be the path; raises InputError if --from names one, too."""
        if given["named"] is not None and given["path"] is not None:
            raise InputError(f"{given['named'][:60]!r} and --from name the same thing, the model; give one of them")
        given["path"] = given["path"] or given["named"]


class NamedFile(Named, OneModel):
    """A checkpoint's file, which an argument can name."""


class NamedModel(Named, AnyModel):
    """A checkpoint's file, which an argument can name, or else a seeded pair of layers."""


class NamedKind(Group):
    """A kind of positions that an argument can name in place of --kind."""

    named_kind: str | None = None


class ModelOfPositions(Named, NamedKind, AnyModel):
    """A model that an argument can name, after the kind of positions."""

    @staticmethod
    def merge(given: dict[str, Any]) -> None:
        """Let the first argument be the kind, or the model if it is no kind; raises InputError for two of either."""
        from difflib import get_close_matches

        first = given["named_kind"] and kind_named(given["named_kind"])
        if first in KINDS:
            if given["kind"] not in (first, None):
                raise InputError(f"{first} and --kind name the same thing, the kind; give one of them")
            given["kind"] = first
        elif first is not None:
            misspelled = first.isalpha() and not os.access(first, os.F_OK) and get_close_matches(first, KINDS)
            if misspelled or given["named"] is not None:
                raise InputError(f"{first[:60]!r} is not a kind of positions; choose from {', '.join(KINDS)}")
            given["named"] = first
        Named.merge(given)


class ModelOfBatches(Group):
    """A seeded pair of layers, with a position row for each token of a sample."""

    pre: str | None = None
    vocab: int | None = None
    dim: int | None = None
    context_length: int | None = None
    seed: int | None = None
    no_cache: bool = False

    def opened(self, encoding: str) -> Model:
        """Return the model, whose position layer the batches draw themselves."""
        sizes = {"vocab": self.vocab, "dim": self.dim, "context_length": self.context_length}
        return _seeded(encoding, self.pre, **sizes, seed=self.seed, no_cache=self.no_cache)


class ModelOfComparison(ModelInFile):
    """The token matrix of a checkpoint's file, or else a seeded layer as large as the IDs need it."""

    vocab: int | None = None
    dim: int | None = None
    seed: int = names.DEFAULT_SEED  # also of the linear layer's own first weights

    def opened_for(self, given: Sequences, encoding: str | None) -> Model:
        """Return the model on which these sequences are compared."""
        return self.from_file(encoding, ("vocab", "dim")) or self._small(given, encoding)

    def largest(self, model: Model) -> int | None:
        """Return the largest V of a benchmark: --vocab, or that of the encoding; of a file, all of its rows."""
        if self.path is not None or model.encoding is None:
            return None
        return self.vocab or model.encoding.vocabulary_size

    def _small(self, given: Sequences, encoding: str | None) -> Model:
        vocab = self.vocab
        if vocab is None and given.ids is not None:
            vocab = max((int(ids.max(initial=0)) for ids in given.ids), default=0) + 1
        dim = names.COMPARED_DIM if self.dim is None else self.dim
        return _seeded(encoding, self.pre, vocab=vocab, dim=dim, context_length=1, seed=self.seed, no_cache=True)


class TwoModels(Group):
    """The two checkpoints that are compared."""

    base: str
    tuned: str
    pre: str | None = None
    tensor: str | None = None
    transposed: bool = False

    def opened(self, encoding: str | None) -> tuple[Model, Model]:
        """Return both models."""
        base, tuned = (
            OneModel(path=path, pre=self.pre, tensor=self.tensor, transposed=self.transposed).opened(encoding)
            for path in (self.base, self.tuned)
        )
        return base, tuned


def compared(given: Sequences, encodings: Sequence[str], pre: str | None, special: bool) -> Tokenizers:
    """Return a text under several tokenizers."""
    from embcli.cli.console import PrintedNotes
    from embcli.model import tokenizers

    return tokenizers(given, encodings, pre=pre, special=special, notes=PrintedNotes())


def _seeded(encoding: str | None, pre: str | None, **given: int | None) -> Model:
    """Return seeded layers; None means the default."""
    from embcli import model as library
    from embcli.cli.console import PrintedNotes

    known: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return _watched(library.seeded(encoding=encoding or names.DEFAULT_ENCODING, pre=pre, notes=PrintedNotes(), **known))


def _watched(model: Model) -> Model:
    from embcli.cli.console import watched

    model.watch = watched
    return model

"""The model that the options of a command name: a checkpoint's file, or seeded layers."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from embcli.cli.console import PrintedNotes, watched
from embcli.cli.options import flag_of
from embcli.errors import InputError
from embcli.names import DEFAULT_ENCODING
from embcli.positions import KINDS

if TYPE_CHECKING:
    from embcli.model import Model


def opened(
    path: str | None = None,
    encoding: str | None = None,
    tensor: str | None = None,
    vocab: int | None = None,
    dim: int | None = None,
    context_length: int | None = None,
    seed: int | None = None,
    no_cache: bool = False,
) -> Model:
    """Return the model; raises InputError for options of a file if none is named, and of seeded layers if one is."""
    shape = {"vocab": vocab, "dim": dim, "context_length": context_length, "seed": seed, "no_cache": no_cache or None}
    layers: dict[str, Any] = {name: value for name, value in shape.items() if value is not None}
    if path is None and tensor is not None:
        raise InputError("tensor goes with path, which names the file", parameters=("tensor", "path"))
    if path is not None and layers:
        raise InputError(f"{flag_of(next(iter(layers)))} is for seeded layers; --from takes what the file holds")
    from embcli import model as library

    if path is None:
        model = library.seeded(**layers, encoding=encoding or DEFAULT_ENCODING, notes=PrintedNotes())
    else:
        model = library.open(path, encoding=encoding, tensor=tensor, notes=PrintedNotes())
    model.watch = watched
    return model


def one_path(argument: str | None, option: str | None) -> str | None:
    """Return the model that an argument or --from names; raises InputError for both."""
    if argument is not None and option is not None:
        raise InputError(f"{argument[:60]!r} and --from name the same thing, the model; give one of them")
    return argument if option is None else option


def kind_named(value: str | None) -> Any:
    """Return a kind of positions by its name or another name that papers have for it; the library checks it."""
    return "rotary" if value == "rope" else value


def kind_and_path(first: str | None, second: str | None, kind: str | None) -> tuple[Any, str | None]:
    """Return the kind of positions and the model that two arguments and --kind name; the first may be either."""
    kind, named = kind_named(kind), kind_named(first)
    if named is None or (named in KINDS and kind in (None, named)):
        return named or kind, second
    if named in KINDS:
        raise InputError(f"{named} and --kind name the same thing, the kind; give one of them")
    if second is not None or (named.isalpha() and not os.access(named, os.F_OK) and get_close_matches(named, KINDS)):
        raise InputError(f"{named[:60]!r} is not a kind of positions; choose from {', '.join(KINDS)}")
    return kind, named

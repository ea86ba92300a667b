"""The comparison of both ways from token IDs to vectors: a lookup, and a linear layer's product with one-hot rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embcli.encodings import labels_rows
from embcli.layer import shape_of
from embcli.passes import unwatched
from embcli.verbs.compare.found import Comparison, Stored, Task, Wanted
from embcli.weights.build import loading_torch
from embcli.weights.seeded import Seeded

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.layer import Source
    from embcli.passes import Watch
    from embcli.tokens import Tokens

__all__ = ["Comparison", "Task", "Wanted", "compare", "task", "task_of"]


def task(
    tokens: Tokens,
    as_text: bool,
    encoding: Encoding,
    vocabulary_size: int | None,
    dim: int,
    seed: int,
    wanted: Wanted,
    room: int | None = None,
) -> Task:
    """Return what to compare; without a V it is the encoding's for a text, and as large as the IDs need it for IDs.

    Raises InputError for an ID without a row, LayerError for layers that cannot be, and OutputError for a matrix of
    more numbers than there is room for.
    """
    least = encoding.vocabulary_size if as_text else int(tokens.ids.max(initial=0)) + 1
    size = least if vocabulary_size is None else vocabulary_size
    sweep = (vocabulary_size or encoding.vocabulary_size) if wanted.bench else None
    named = replace(tokens, encoding=labels_rows(encoding, size, as_text))
    return Task(named, Seeded(size, dim, 1, seed), wanted, sweep, room)


def task_of(source: Source, tokens: Tokens, seed: int, wanted: Wanted, room: int | None = None) -> Task:
    """Return what to compare on the token matrix of a source; its benchmark goes up to all of the rows.

    Raises what `task` raises, before the matrix is read.
    """
    size, _ = shape_of(source, "token")
    return Task(tokens, Stored(source, seed), wanted, size if wanted.bench else None, room)


def compare(task: Task, watch: Watch = unwatched) -> Comparison:
    """Return what both layers give; `watch` goes through the vocabulary sizes of the benchmark."""
    with loading_torch():
        from embcli.verbs.compare import layers  # torch, once it is sure to be needed

    return layers.compare(task, watch)

"""Sliding-window batches of inputs and targets, and what a model reads of them: token rows + position rows, (B, T, D).

torch's own DataLoader decides which samples are in which batch, with the draws of the chapter's script in their order:
seed, token layer, loader, iterator and first batch, position layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from embcli.layer import Layer, Origin, shape_of
from embcli.options import Batching
from embcli.records import Array, Names, Piece, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.tokens import Tokens, check_ids
from embcli.weights.build import loading_torch
from embcli.weights.source import SeededSource

_PIECE = 1 << 18  # values that are computed at a time


@dataclass(frozen=True, eq=False)
class Batches(Result, verb="batch", content="batches"):
    """One batch of a text, or all of them; rows are gathered on demand."""

    tokens: Tokens
    batching: Batching
    layer: Layer  # (V, D)
    positions: np.ndarray  # (T, D) float32
    order: np.ndarray  # (N,) int64: the samples of these batches
    columns: np.ndarray  # (chosen columns,) int64
    origin: Origin
    run: dict[str, Any]

    inputs = MatrixOf()  # (N, T) int64: the input IDs of all these samples
    targets = MatrixOf()  # (N, T) int64: the inputs shifted by one
    input = MatrixOf()  # (N, T, chosen columns) float32: the input embeddings

    @property
    def count(self) -> int:
        return self.batching.batches(len(self.tokens))

    @property
    def first(self) -> int:
        return self.batching.index or 0

    def batch_of(self, places: np.ndarray) -> np.ndarray:
        """Return the batches of the samples at these places in `order`, (n,) int64."""
        return np.asarray(self.first + places // self.batching.batch_size)

    def ids(self, samples: np.ndarray) -> np.ndarray:
        """Return the tokens of samples and the next one, (n, T + 1) int64: [:, :-1] are inputs, [:, 1:] targets."""
        starts = samples[:, None] * self.batching.stride
        return np.asarray(self.tokens.ids[starts + np.arange(self.batching.max_length + 1)].astype(np.int64))

    def embeddings(self, samples: np.ndarray) -> np.ndarray:
        """Return the input embeddings of samples, token rows + position rows, (n, T, chosen columns) float32."""
        ids = self.ids(samples)[:, :-1]
        rows: np.ndarray = self.layer.rows(ids.ravel()).reshape(*ids.shape, -1) + self.positions
        return rows if len(self.columns) == rows.shape[-1] else rows[..., self.columns]

    def records(self) -> Records:
        """Return the batches as data: a row for each sample; in ndjson a line for each batch."""
        shape = len(self.order), self.batching.max_length
        step = max(_PIECE // (self.batching.max_length * self.layer.shape[1]), 1)
        return Records(
            run=self.run,
            unit="samples",
            rows=len(self.order),
            fields={"batch": int, "sample": int},
            pieces=in_pieces(len(self.order), step, self._values),
            matrices={
                "inputs": Array(shape, "int64"),
                "targets": Array(shape, "int64"),
                "input": Array((*shape, len(self.columns))),
            },
            columns=tuple(self.columns.tolist()),
            default="input",
            lines=self._lines(),
        )

    def _values(self, places: np.ndarray, names: Names) -> dict[str, np.ndarray]:
        """Return the fields and matrices of the samples at these places in `order`."""
        samples = self.order[places]
        ids = self.ids(samples)
        values = {"batch": self.batch_of(places), "sample": samples, "inputs": ids[:, :-1], "targets": ids[:, 1:]}
        return {**values, "input": self.embeddings(samples)} if "input" in names else values

    def _lines(self) -> Records:
        size = self.batching.batch_size
        batches = -(-len(self.order) // size)

        def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
            for batch in range(batches):
                places = np.arange(batch * size, min((batch + 1) * size, len(self.order)))
                values = {name: each[None] for name, each in self._values(places, matrices).items()}
                values["batch"] = np.array([self.first + batch])
                yield Piece(1, {name: values[name] for name in fields}, {name: values[name] for name in matrices})

        shape = batches, size, self.batching.max_length, len(self.columns)
        types = {"batch": int, "inputs": list[int], "targets": list[int]}
        return Records(self.run, "batches", batches, types, pieces, {"input": Array(shape)})


def batch(
    tokens: Tokens, source: SeededSource, batching: Batching | None = None, columns: str | None = None
) -> Batches:
    """Return the chosen batches of a text; `columns` selects columns of `input`, as in `0:8,255`.

    Raises InputError for a text without such a batch, for an ID without a row, and for columns out of range.
    """
    batching = batching or Batching()
    (size, dim), (context_length, _) = shape_of(source, "token"), shape_of(source, "position")
    batching.check(len(tokens), context_length)
    check_ids(tokens, size)
    chosen = select(columns, dim, "column")
    order, positions = _drawn(batching, source, batching.samples(len(tokens)))
    start = (batching.index or 0) * batching.batch_size
    stop = (batching.batches(len(tokens)) if batching.all else 1) * batching.batch_size + start
    layers = source.open({"token": tokens.ids})
    names = ("batch_size", "max_length", "stride", "shuffle", "keep_last")
    run = run_of(tokens.encoding, sequences=tokens.sequences, **layers.origin.document())
    run |= {
        "shapes": {"token": [size, dim], "position": [context_length, dim]},
        "batches": batching.batches(len(tokens)),
        **{name: getattr(batching, name) for name in names},
    }
    layer, order = layers["token"], order[start:stop]
    return Batches(tokens, batching, layer, positions, order, chosen, layers.origin, run, notes=source.notes)


def _drawn(batching: Batching, source: SeededSource, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all samples in the order of torch's loader, (N,) int64, and the position rows, (T, D) float32.

    The generator stands after the token layer when the loader begins; the position layer is drawn after the loader.
    """
    with loading_torch(source.notes):
        import torch
        from torch.utils.data import DataLoader

        from embcli.weights.drawing import Stream, global_generator
    with global_generator():
        torch.set_rng_state(Stream(source.seeded, "token").state_after())
        loader: DataLoader[int] = DataLoader(
            range(samples),  # type: ignore[arg-type]  # a data set of the samples' numbers
            batch_size=batching.batch_size,
            shuffle=batching.shuffle,
            drop_last=not batching.keep_last,
        )
        iter(loader)  # which consumes a random number
        order = np.fromiter(loader.sampler, np.int64, samples)
        layer = torch.nn.Embedding(*shape_of(source, "position"))
        return order, layer.weight.detach()[: batching.max_length].numpy().copy()

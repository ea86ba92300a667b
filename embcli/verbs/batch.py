"""Sliding-window batches of inputs and targets, and what a model reads of them: token rows + position rows, (B, T, D).

Which samples are in which batch is decided by torch's own DataLoader, with the draws that the chapter's script makes
in its order: seed, token layer, loader, iterator and first batch, position layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import embcli
from embcli.checks import check_ids
from embcli.errors import InputError
from embcli.records import Array, Names, Piece, Records
from embcli.selection import select
from embcli.weights.build import loading_torch
from embcli.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Layer
    from embcli.tokens import Tokens
    from embcli.weights.source import SeededSource

_PIECE = 1 << 18  # values that are worked on at a time


@dataclass(frozen=True)
class Wanted:
    """How a text is cut into samples and batches, and which of them; raises InputError for what makes no batches."""

    batch_size: int = 8  # B
    max_length: int = 4  # T
    stride: int = 4
    shuffle: bool = False
    keep_last: bool = False  # also where it is not full
    index: int | None = None  # of the batch; None for the first
    every: bool = False  # all batches
    layers_first: bool = False  # both layers are drawn before the loader takes a random number

    def __post_init__(self) -> None:
        for flag, value in (
            ("--batch-size", self.batch_size),
            ("--max-length", self.max_length),
            ("--stride", self.stride),
        ):
            if not 1 <= value < 2**31:
                raise InputError(f"{flag} {str(value)[:20]} makes no batches; it must be 1 or more")
        if self.every and self.index is not None:
            raise InputError("--all and --index choose batches both; give one of them")

    def document(self) -> dict[str, Any]:
        """Return how the batches came about, for a run."""
        names = ("batch_size", "max_length", "stride", "shuffle", "keep_last", "layers_first")
        return {name: getattr(self, name) for name in names}

    def samples(self, tokens: int) -> int:
        """Return how many samples so many tokens give; each is of T tokens, and the one behind them."""
        return max(-(-(tokens - self.max_length) // self.stride), 0)

    def batches(self, tokens: int) -> int:
        """Return how many batches so many tokens give."""
        full, rest = divmod(self.samples(tokens), self.batch_size)
        return full + (self.keep_last and rest > 0)

    def check(self, tokens: int, context_length: int) -> None:
        """Raise InputError where so many tokens have no such batch, or its positions no rows."""
        samples, batches = self.samples(tokens), self.batches(tokens)
        if not samples:
            raise InputError(
                f"{counted(tokens, 'token')} {'is' if tokens == 1 else 'are'} too few for a sample: that takes "
                f"--max-length {self.max_length} and one more"
            )
        if not batches:
            raise InputError(
                f"{counted(samples, 'sample')} of --max-length {self.max_length} fill no batch of {self.batch_size}; "
                "--keep-last keeps what there is"
            )
        if not 0 <= (self.index or 0) < batches:
            there_are = f"there {'is' if batches == 1 else 'are'} {batches:,}"
            raise InputError(f"--index {self.index} names no batch: {there_are}, counted from 0")
        if self.max_length > context_length:
            raise InputError(
                f"--max-length {self.max_length} is more than --context-length {context_length}: "
                "a position without a row cannot be added"
            )


@dataclass(frozen=True)
class Batches:
    """One batch of a text, or all of them; the rows are gathered when they are asked for."""

    tokens: Tokens
    wanted: Wanted
    layer: Layer  # (V, D)
    positions: np.ndarray  # (T, D) float32
    context_length: int  # C, rows of the position layer
    order: np.ndarray  # (N,) int64: the samples of these batches
    columns: np.ndarray  # (chosen columns,) int64
    run: dict[str, Any]

    @property
    def count(self) -> int:
        """How many batches the text gives in all."""
        return self.wanted.batches(len(self.tokens))

    @property
    def first(self) -> int:
        """The number of the first of these batches."""
        return self.wanted.index or 0

    def batch_of(self, places: np.ndarray) -> np.ndarray:
        """Return the batch that each of these samples is in, by their places among those here, (n,) int64."""
        found: np.ndarray = self.first + places // self.wanted.batch_size
        return found

    def ids(self, samples: np.ndarray) -> np.ndarray:
        """Return the tokens of samples with the one behind them, (n, T + 1) int64: [:, :-1] inputs, [:, 1:] targets."""
        starts = samples[:, None] * self.wanted.stride
        found: np.ndarray = self.tokens.ids[starts + np.arange(self.wanted.max_length + 1)].astype(np.int64)
        return found

    def rows(self, samples: np.ndarray, names: Names) -> dict[str, np.ndarray]:
        """Return of these samples what is named: `inputs` and `targets` (n, T) int64, `input` (n, T, D) float32."""
        ids = self.ids(samples)
        found = {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
        if "input" in names:
            token = self.layer.rows(found["inputs"].ravel()).reshape(*found["inputs"].shape, -1)
            whole = token + self.positions
            found["input"] = whole if len(self.columns) == whole.shape[-1] else whole[..., self.columns]
        return {name: found[name] for name in names}

    def records(self) -> Records:
        """Return the batches as data: a row a sample, or in lines a batch."""
        shape = len(self.order), self.wanted.max_length
        return Records(
            run=self.run,
            unit="samples",
            rows=len(self.order),
            fields={"batch": int, "sample": int},
            pieces=self._samples,
            matrices={
                "inputs": Array(shape, "int64"),
                "targets": Array(shape, "int64"),
                "input": Array((*shape, len(self.columns))),
            },
            columns=tuple(self.columns.tolist()),
            default="input",
            lines=self._lines(),
        )

    def _samples(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        step = max(_PIECE // (self.wanted.max_length * self.layer.shape[1]), 1)
        for start in range(0, len(self.order), step):
            samples = self.order[start : start + step]
            values = {"sample": samples, "batch": self.batch_of(np.arange(start, start + len(samples)))}
            yield Piece(len(samples), {name: values[name] for name in fields}, self.rows(samples, matrices))

    def _lines(self) -> Records:
        size = self.wanted.batch_size
        rows = -(-len(self.order) // size)

        def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
            for row in range(rows):
                samples = self.order[row * size : (row + 1) * size]
                found = self.rows(samples, (*(name for name in fields if name != "batch"), *matrices))
                values = {name: each[None] for name, each in found.items()}
                values["batch"] = np.array([self.first + row])
                yield Piece(1, {name: values[name] for name in fields}, {name: values[name] for name in matrices})

        shape = rows, size, self.wanted.max_length, len(self.columns)
        return Records(
            self.run,
            "batches",
            rows,
            {"batch": int, "inputs": list[int], "targets": list[int]},
            pieces,
            {"input": Array(shape)},
        )


def batch(tokens: Tokens, source: SeededSource, wanted: Wanted, columns: str | None = None) -> Batches:
    """Return the batches of a text that are wanted; `columns` chooses columns of `input`, as in `0:8,255`.

    Raises InputError for a text without such a batch, for an ID without a row, and for columns out of range.
    """
    (size, dim), (context_length, _) = source.shape("token"), source.shape("position")
    wanted.check(len(tokens), context_length)
    check_ids(tokens, size)
    chosen = select(columns, dim, "column")
    order, positions = _drawn(wanted, source, wanted.samples(len(tokens)))
    start = (wanted.index or 0) * wanted.batch_size
    stop = wanted.batches(len(tokens)) * wanted.batch_size if wanted.every else start + wanted.batch_size
    layer = source.open({"token": tokens.ids})["token"]
    run = {
        "embcli": embcli.__version__,
        "encoding": tokens.encoding.name if tokens.encoding else None,
        "sequences": tokens.sequences,
        **source.run,
        "shapes": {"token": [size, dim], "position": [context_length, dim]},
        "batches": wanted.batches(len(tokens)),
        **wanted.document(),
    }
    return Batches(tokens, wanted, layer, positions, context_length, order[start:stop], chosen, run)


def _drawn(wanted: Wanted, source: SeededSource, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return all samples in the order that the loader gives them, (N,) int64, and the position rows, (T, D) float32."""
    with loading_torch():
        import torch
        from torch.utils.data import DataLoader

        from embcli.weights.drawing import Drawing
    places = np.arange(wanted.max_length)
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(Drawing(source.seeded).state_behind("position" if wanted.layers_first else "token"))
        loader: DataLoader[int] = DataLoader(
            range(samples),  # type: ignore[arg-type]  # samples by their numbers: which is all that is asked
            batch_size=wanted.batch_size,
            shuffle=wanted.shuffle,
            drop_last=not wanted.keep_last,
        )
        iter(loader)  # which takes a random number
        order = np.fromiter(loader.sampler, np.int64, samples)
        if wanted.layers_first:
            return order, source.open({"position": places})["position"].rows(places)
        layer = torch.nn.Embedding(*source.shape("position"))
        return order, layer.weight.detach()[: wanted.max_length].numpy().copy()

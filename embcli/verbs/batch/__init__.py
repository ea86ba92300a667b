"""Sliding-window batches of inputs and targets, and the input embeddings that a model reads.

`batch` makes Batches; layers are drawn when their numbers are asked for, so that a page of IDs in
order needs no torch. `windows` cuts the text and draws as the chapter's data loader does, and
`page` shows the result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from embcli.errors import InputError, RangeError, whole_number
from embcli.layer import shape_of
from embcli.names import DEFAULT_BATCH_SIZE, DEFAULT_SAMPLE_LENGTH
from embcli.opened import Opened, TextOrIds
from embcli.records import (
    ArraySpec,
    Columns,
    Document,
    FieldTypes,
    Names,
    Records,
    in_pieces,
    run_of,
)
from embcli.result import MatrixOf, Result
from embcli.seeded_layers.source import SeededSource
from embcli.selection import Selection, select
from embcli.tokens import Tokens, check_ids, token_text
from embcli.verbs.batch.windows import Draws, Windows, loader_draws
from embcli.wording import Sentence, counted


@dataclass(frozen=True, eq=False)
class Batches(Result, verb="batch"):
    """One batch of a text, or all of them; layers are drawn and rows are gathered on demand."""

    tokens: Tokens
    source: SeededSource
    windows: Windows
    _places: np.ndarray  # (N,) int64: of the samples of these batches in the loader's order
    columns: np.ndarray  # (chosen columns,) int64
    count: int  # batches of the whole text
    first: int  # batch
    all: bool  # batches
    draw: bool
    _draws_windows: bool  # whether a page shows where the samples are in the text
    _columns_chosen: bool  # whether the user chose them

    inputs = MatrixOf("(N, T) int64: the input IDs of all these samples")
    targets = MatrixOf("(N, T) int64: the inputs shifted by one")
    input = MatrixOf("(N, T, chosen columns) float32: the input embeddings")

    def __post_init__(self) -> None:
        if self._draws_windows and (self.draw or self.style.heat):
            raise InputError(Sentence("{windows} is another picture than {draw} and {heat}"))

    @cached_property
    def _draws(self) -> Draws:
        """What the chapter's script draws; torch is imported."""
        return loader_draws(self.source, self.tokens.ids, self.windows, self.notes)

    @cached_property
    def order(self) -> np.ndarray:
        """The samples of these batches, (N,) int64."""
        return self._draws.order[self._places] if self.windows.shuffle else self._places

    @property
    def _is_drawn(self) -> bool:
        """Whether a page shows the numbers that the model reads, not only IDs."""
        has_numbers = self.draw or self.style.heat or self._columns_chosen
        return has_numbers and not self._draws_windows

    @property
    def _uses_seed(self) -> bool:
        return not self._draws_windows or self.windows.shuffle

    def ids_of(self, samples: np.ndarray) -> np.ndarray:
        """Return the tokens of samples and the next one, (n, T + 1) int64.

        `[:, :-1]` are the inputs, `[:, 1:]` the targets.
        """
        starts = samples[:, None] * self.windows.stride
        places = starts + np.arange(self.windows.max_length + 1)
        return self.tokens.ids.take(places).astype(np.int64)

    @property
    def token(self) -> np.ndarray:
        """The token embeddings of all these samples, (N, T, chosen columns) float32."""
        return self._token_rows(self.order)

    @property
    def position(self) -> np.ndarray:
        """The position embeddings, the same for each sample, (T, chosen columns) float32."""
        return self._draws.position[: self.windows.max_length, self.columns]

    def embeddings(self, samples: np.ndarray) -> np.ndarray:
        """Return token rows + position rows of samples, (n, T, chosen columns) float32."""
        return np.asarray(self._token_rows(samples) + self.position)

    def _token_rows(self, samples: np.ndarray) -> np.ndarray:
        """Return the token rows of samples, (n, T, chosen columns) float32."""
        ids = self.ids_of(samples)[:, :-1]
        rows = self._draws.layers["token"].rows(ids.ravel()).reshape(*ids.shape, -1)
        return rows[..., self.columns] if self._columns_chosen else rows

    def _records(self) -> Records:
        samples = len(self.order)
        length = self.windows.max_length
        dim = len(self.columns)
        run = run_of(self.tokens.encoding, sequences=self.tokens.sequences)
        run |= self.source.origin.document()
        run["shapes"] = {name: [*shape_of(self.source, name)] for name in ("token", "position")}
        run["batches"] = self.count
        run |= vars(self.windows) | dict(self._draws.layers.origin.build)
        ids = ArraySpec((samples, length), "int64")
        return Records(
            run=run,
            unit="samples",
            rows=samples,
            fields={"batch": int, "sample": int},
            pieces=in_pieces(samples, length * dim, self._values),
            matrices={
                "inputs": ids,
                "targets": ids,
                "input": ArraySpec((samples, length, dim)),
            },
            columns=tuple(self.columns.tolist()),
            default="input",
            cells=self._cells(run),
        )

    def _cells(self, run: Document) -> Records:
        """Return a row for each position of these samples: the input and the target."""
        numbers = ("batch", "sample", "position", "input_id", "target_id")
        fields: FieldTypes = dict.fromkeys(numbers, int)
        if self.tokens.encoding is not None:
            fields |= dict.fromkeys(("input_token", "target_token"), str)
        rows = len(self._places) * self.windows.max_length
        return Records(run, "positions", rows, fields, in_pieces(rows, len(fields), self._pairs))

    def _pairs(self, index: np.ndarray, names: Names) -> Columns:
        position = index % self.windows.max_length
        values = self._values(index // self.windows.max_length, ())
        values["position"] = position
        for name in ("input", "target"):
            ids = values[f"{name}s"][np.arange(len(index)), position]
            values[f"{name}_id"] = ids
            values[f"{name}_token"] = list(map(token_text, self.tokens.bytes_of(ids)))
        return values

    def _values(self, places: np.ndarray, names: Names) -> Columns:
        samples = self.order[places]
        ids = self.ids_of(samples)
        values = {
            "batch": self.first + places // self.windows.batch_size,
            "sample": samples,
            "inputs": ids[:, :-1],
            "targets": ids[:, 1:],
        }
        if "input" in names:
            values["input"] = self.embeddings(samples)
        return values


def batch(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    batch_size: int | None = None,
    max_length: int = DEFAULT_SAMPLE_LENGTH,
    stride: int | None = None,
    shuffle: bool = False,
    keep_last: bool = False,
    index: int | None = None,
    all: bool = False,
    context_length: int | None = None,
    draw: bool = False,
    windows: bool = False,
    columns: Selection | None = None,
) -> Batches:
    """Return sliding-window batches as the chapter's loader gives them.

    These are inputs and targets, (B, T) each, and input embeddings, (B, T, D). A batch has
    `batch_size` samples, or as many as there are. The position layer has `context_length` rows, by
    default `max_length`. Raises InputError for a text without such a batch, and for a model that is
    not seeded.

    >>> import embcli
    >>> batch = embcli.seeded(dim=3).batch("Every effort moves you forward")
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[6109, 3626, 6100, 345]], [[3626, 6100, 345, 2651]])
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes)
    stride = max_length if stride is None else stride
    size = DEFAULT_BATCH_SIZE if batch_size is None else batch_size
    sliding = Windows(size, max_length, stride, shuffle, keep_last)
    if all and index is not None:
        raise InputError(Sentence("{all} and {index} both choose batches; give one of them"))
    source = model.source
    if not isinstance(source, SeededSource):
        raise InputError(
            "batches are of seeded layers, which the loader's random numbers are drawn between"
        )
    position_rows = max_length if context_length is None else context_length
    source = source.resized(position_rows)
    vocabulary_size, dim = shape_of(source, "token")

    # Refuse batches that the text or the position layer is too short for.
    samples = sliding.samples(len(tokens))
    if batch_size is None and samples and not sliding.batches(samples):
        sliding = replace(sliding, batch_size=samples)
    count = sliding.batches(samples)
    _check_counts(sliding, len(tokens), samples)
    first = _checked_index(index or 0, count)
    if max_length > position_rows:
        wrong = "{max_length} {length:,} is more than {context_length} {rows:,}"
        wrong += ": each position needs a row"
        raise RangeError(wrong, length=max_length, rows=position_rows)
    check_ids(tokens, vocabulary_size)

    stop = count if all else first + 1
    places = np.arange(samples)[first * sliding.batch_size : stop * sliding.batch_size]
    return Batches(
        tokens=tokens,
        source=source,
        windows=sliding,
        _places=places,
        columns=select(columns, dim, "column"),
        count=count,
        first=first,
        all=all,
        draw=draw,
        _draws_windows=windows,
        _columns_chosen=columns is not None,
        notes=notes,
    )


def _checked_index(index: int, count: int) -> int:
    """Return the index of one of so many batches; raises RangeError if none has it."""
    if index and count == 1:
        wrong = "{index} {given} is not a batch: there is one batch, {index} 0"
        raise RangeError(wrong, given=index)
    return whole_number("index", index, 0, count - 1)


def _check_counts(windows: Windows, tokens: int, samples: int) -> None:
    """Raise InputError if there are too few tokens for a sample, or samples for a batch."""
    length = windows.max_length
    if not samples:
        wrong = (
            "need at least {needed:,} tokens ({max_length} {length:,} and one more), got {tokens:,}"
            ": give a longer text or, with at least 2 tokens, a smaller {max_length}"
        )
        raise InputError(wrong, needed=length + 1, length=length, tokens=tokens)
    if not windows.batches(samples):
        wrong = (
            "{samples} of {max_length} {length:,}, too few for a batch of {size:,}; "
            "{keep_last} keeps an incomplete one"
        )
        raise InputError(
            wrong, samples=counted(samples, "sample"), length=length, size=windows.batch_size
        )

"""Sliding-window batches of inputs and targets, and what a model reads of them: token rows + position rows, (B, T, D).

torch's own DataLoader decides which samples are in which batch, with the draws of the chapter's script in their order:
seed, token layer, loader, iterator and first batch, position layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError, Watch
from embcli.layer import Layer, Origin, shape_of
from embcli.opened import Opened, TextOrIds
from embcli.records import ArraySpec, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.seeded_layers.build import loading_torch
from embcli.seeded_layers.source import SeededSource
from embcli.selection import Excerpt, select
from embcli.tokens import Tokens, check_ids, shown
from embcli.wording import Parameter, Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Matrix

_MOST_SAMPLES = 8
_SHORT_WORDS = 12  # cells of the tokens of a sample if not all positions fit beside them
_MOST_DRAWN = 3, 5  # samples of a picture, and tokens in each
_MOST_IN_COLOUR = 2  # samples of a picture in colours, which has a colour bar below


@dataclass(frozen=True, eq=False)
class Batches(Result, verb="batch", content="batches"):
    """One batch of a text, or all of them; rows are gathered on demand."""

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: np.ndarray  # (T, D) float32
    order: np.ndarray  # (N,) int64: the samples of these batches
    columns: np.ndarray  # (chosen columns,) int64
    origin: Origin
    run: dict[str, Any]
    count: int  # batches of the whole text
    first: int  # batch
    batch_size: int  # B
    max_length: int  # T
    stride: int
    shuffle: bool
    keep_last: bool  # even if incomplete
    all: bool  # batches
    draw: bool
    columns_chosen: bool  # by the user

    inputs = MatrixOf()  # (N, T) int64: the input IDs of all these samples
    targets = MatrixOf()  # (N, T) int64: the inputs shifted by one
    input = MatrixOf()  # (N, T, chosen columns) float32: the input embeddings

    @property
    def is_drawn(self) -> bool:
        """Whether a page shows the numbers that the model reads, not only IDs."""
        return self.draw or self.style.heat or self.columns_chosen

    def ids(self, samples: np.ndarray) -> np.ndarray:
        """Return the tokens of samples and the next one, (n, T + 1) int64: [:, :-1] are inputs, [:, 1:] targets."""
        starts = samples[:, None] * self.stride
        return np.asarray(self.tokens.ids[starts + np.arange(self.max_length + 1)].astype(np.int64))

    def embeddings(self, samples: np.ndarray) -> np.ndarray:
        """Return the input embeddings of samples, token rows + position rows, (n, T, chosen columns) float32."""
        ids = self.ids(samples)[:, :-1]
        rows: np.ndarray = self.layer.rows(ids.ravel()).reshape(*ids.shape, -1) + self.positions
        return rows if len(self.columns) == rows.shape[-1] else rows[..., self.columns]

    def records(self) -> Records:
        shape = len(self.order), self.max_length
        return Records(
            run=self.run,
            unit="samples",
            rows=len(self.order),
            fields={"batch": int, "sample": int},
            pieces=in_pieces(len(self.order), self.max_length * self.layer.shape[1], self._values),
            matrices={
                "inputs": ArraySpec(shape, "int64"),
                "targets": ArraySpec(shape, "int64"),
                "input": ArraySpec((*shape, len(self.columns))),
            },
            columns=tuple(self.columns.tolist()),
            default="input",
            lines=self._lines,
        )

    def _values(self, places: np.ndarray, names: Names) -> dict[str, np.ndarray]:
        samples, batches = self.order[places], self.first + places // self.batch_size
        ids = self.ids(samples)
        values = {"batch": batches, "sample": samples, "inputs": ids[:, :-1], "targets": ids[:, 1:]}
        return {**values, "input": self.embeddings(samples)} if "input" in names else values

    def _lines(self, watch: Watch) -> Iterator[dict[str, Any]]:
        batches = np.split(self.order, range(self.batch_size, len(self.order), self.batch_size))
        for number, samples in enumerate(watch(batches, len(self.order), len), self.first):
            ids = self.ids(samples)
            inputs, targets = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
            vectors = {"input": np.ascontiguousarray(self.embeddings(samples))}
            yield {"batch": number, "inputs": inputs, "targets": targets, "vectors": vectors}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Hint, Label, Note, ruled, safe_text, title
        from embcli.page.labels import origin_lines

        length, count, (size, dim) = self.max_length, len(self.order), self.layer.shape
        if self.is_drawn:
            matrix, is_shortened = self._picture(), False
        else:
            matrix, is_shortened = self._table(options.max_width)
        which = f"Batch {self.first:,} of {self.count:,}"
        if self.all:
            which = "The only batch" if self.count == 1 else f"All {self.count:,} batches"
        letter, shape = "N" if self.all else "B", f"{count:,}, {length:,}"
        samples = f"{letter} = {counted(count, 'sample')} of T = {counted(length, 'token')}"
        yield title(
            f"{which}: {samples}, stride {self.stride:,}{', shuffled' if self.shuffle else ''}"
        )
        yield matrix
        if is_shortened:
            yield Hint(("draw",))
        if self.style.bare:
            return
        names = ["IDs", "token", "+ position", "= input"]
        letters = [f"({letter}, T)", f"({letter}, T, D)", "(T, D)", f"({letter}, T, D)"]
        shapes = [
            f"({shape})",
            f"({shape}, {dim:,})",
            f"({length:,}, {dim:,})",
            f"({shape}, {dim:,})",
        ]
        rows = f"rows of V = {counted(size, 'token')}, D = {counted(dim, 'column')}"
        remarks = Label(
            "", ["", rows, "the same for each sample", "what the model reads"], "left", short=True
        )
        yield ruled(
            [*(Label("", each, "left") for each in (names, letters, shapes)), remarks],
            has_rule=False,
        )
        dropped = -(-(len(self.tokens) - length) // self.stride) - self.count * self.batch_size
        if dropped > 0:
            yield Note(
                f"{counted(dropped, 'sample')} dropped: the last batch is incomplete.", "keep_last"
            )
        if self.stride > length:
            skipped = f"{self.stride - length:,} of {self.stride:,} tokens"
            yield safe_text(f"The stride exceeds T: {skipped} are in no sample.")
        if self.is_drawn:
            yield safe_text(
                "Position rows differ from lookup's: the loader consumes a random number first."
            )
        yield from origin_lines(self.origin)

    def _table(self, width: int) -> tuple[Matrix, bool]:
        """Return the table of IDs, and whether tokens beside them are shortened."""
        from embcli.page import Label, Matrix, Values, omission, shorten
        from embcli.page.table import SHORTEST

        rows = Excerpt.ends(_MOST_SAMPLES, len(self.order))
        samples = self.order[rows.places]
        ids = self.ids(samples)  # (n, T + 1)
        labels = [Label("batch", self.first + rows.places // self.batch_size)] if self.all else []
        labels.append(Label("sample", samples))
        is_shortened = False
        if self.tokens.encoding is not None:
            cell = len(str(max(int(ids.max()), self.max_length - 1)))
            room = (
                width
                - sum(label.width + 2 for label in labels)
                - 2 * (3 + self.max_length * (cell + 2))
            )
            most = (
                room if room >= SHORTEST else _SHORT_WORDS
            )  # the positions that do not fit are left out
            whole = [" ".join(map(shown, self.tokens.bytes_of(sample))) for sample in ids]
            words = [shorten(each, most) for each in whole]
            is_shortened = words != whole
            labels.append(Label("tokens", words, "left", short=room < SHORTEST))
        blocks, missing = (
            [Values(ids[:, :-1], "inputs"), Values(ids[:, 1:], "targets")],
            omission(rows, "row"),
        )
        places = np.arange(self.max_length)
        return Matrix(
            labels, blocks, places, rows.gaps, column="position", rows_left_out=missing
        ), is_shortened

    def _picture(self) -> Matrix:
        from embcli.page import Label, Matrix, Values, omission
        from embcli.page.labels import token_label

        most = _MOST_IN_COLOUR if self.style.heat else _MOST_DRAWN[0]
        samples, tokens = (
            Excerpt.ends(most, len(self.order)),
            Excerpt.ends(_MOST_DRAWN[1], self.max_length),
        )
        order, count = self.order[samples.places], len(tokens.places)
        ids, targets = (self.ids(order)[:, tokens.places + after].ravel() for after in (0, 1))
        values = self.embeddings(order)[:, tokens.places].reshape(
            len(ids), -1
        )  # (samples * tokens, columns)
        brackets = [" ╭", *[" │"] * (count - 2), " ╰"] if count > 1 else [" ·"]
        named = [
            f"{'' if k else each}{brackets[k]}" for each in order.tolist() for k in range(count)
        ]
        labels = [Label("sample", named), Label("pos", [*tokens.places] * len(order))]
        for name, each in (("token", ids), ("target", targets))[: 1 + self.draw]:
            if self.tokens.encoding is not None:
                labels.append(token_label(self.tokens.bytes_of(each))._replace(header=name))
            is_named = name == "token" or self.tokens.encoding is not None
            labels.append(Label("ID" if is_named else name, each))
        gaps = [gap * count for gap in samples.gaps]
        gaps += [place * count + gap for place in range(len(order)) for gap in tokens.gaps]
        missing = [omission(samples, "sample", self.order), omission(tokens, "position")]
        return Matrix(
            labels,
            [Values(values, "input")],
            self.columns,
            gaps,
            precision=self.style.precision,
            heat=self.style.heat,
            rows_left_out=" and ".join(filter(None, missing)),
        )


def batch(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    batch_size: int = 8,
    max_length: int = 4,
    stride: int | None = None,
    shuffle: bool = False,
    keep_last: bool = False,
    index: int | None = None,
    all: bool = False,
    context_length: int | None = None,
    draw: bool = False,
    columns: str | None = None,
) -> Batches:
    """Return sliding-window batches as the chapter's loader gives them: inputs, targets (B, T), input (B, T, D).

    The position layer has `context_length` rows, by default `max_length`. Raises InputError for a text without such
    a batch, and for a model that is not seeded.

    >>> import embcli
    >>> batch = embcli.seeded(dim=3).batch("Every effort moves you forward", batch_size=1)
    >>> batch.inputs.tolist(), batch.targets.tolist()
    ([[6109, 3626, 6100, 345]], [[3626, 6100, 345, 2651]])
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes)
    stride = max_length if stride is None else stride
    for name, value in (("batch_size", batch_size), ("max_length", max_length), ("stride", stride)):
        if not 1 <= value < 2**31:
            wrong = "{name} must be at least 1 and below 2**31, not {value}"
            raise InputError(Sentence(wrong, name=Parameter(name), value=str(value)[:20]))
    if all and index is not None:
        raise InputError(Sentence("{all} and {index} both choose batches; give one of them"))
    source = model.source
    if not isinstance(source, SeededSource):
        raise InputError(
            "batches are of seeded layers, which the loader's random numbers are drawn between"
        )
    source = source.resized(max_length if context_length is None else context_length)
    (size, dim), (context_length, _) = shape_of(source, "token"), shape_of(source, "position")
    samples = max(
        -(-(len(tokens) - max_length) // stride), 0
    )  # each takes T tokens and the next one
    count = -(-samples // batch_size) if keep_last else samples // batch_size
    first = index or 0
    if not samples:
        wrong = (
            "need at least {needed:,} tokens ({max_length} {length:,} and one more), got {tokens:,}"
        )
        raise InputError(
            Sentence(wrong, needed=max_length + 1, length=max_length, tokens=len(tokens))
        )
    if not count:
        wrong = (
            "{samples} of {max_length} {length:,}, too few for a batch of {size:,}; "
            "{keep_last} keeps an incomplete one"
        )
        raise InputError(
            Sentence(wrong, samples=counted(samples, "sample"), length=max_length, size=batch_size)
        )
    if not 0 <= first < count:
        there = f"there {'is' if count == 1 else 'are'} {count:,}, counted from 0"
        raise InputError(
            Sentence("{index} {given} is not a batch: {there}", given=str(index)[:20], there=there)
        )
    if max_length > context_length:
        wrong = "{max_length} {length:,} is more than {context_length} {rows:,}: each position needs a row"
        raise InputError(Sentence(wrong, length=max_length, rows=context_length))
    check_ids(tokens, size)
    chosen = select(columns, dim, "column")
    with loading_torch(notes):
        import torch
        from torch.utils.data import DataLoader

        from embcli.seeded_layers.drawing import RandomStream, global_generator
    with global_generator():
        torch.set_rng_state(RandomStream(source.seeded, "token").state_after())
        numbers: Any = range(samples)  # a data set of the samples' numbers
        loader = DataLoader(numbers, batch_size, shuffle, drop_last=not keep_last)
        iter(loader)  # which consumes a random number
        order = np.fromiter(loader.sampler, np.int64, samples)
        position = torch.nn.Embedding(context_length, dim).weight.detach()
    layers = source.open({"token": tokens.ids}, notes)
    split: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length, "stride": stride}
    split |= {"shuffle": shuffle, "keep_last": keep_last}
    run = run_of(tokens.encoding, sequences=tokens.sequences, **layers.origin.document())
    run |= {
        "shapes": {"token": [size, dim], "position": [context_length, dim]},
        "batches": count,
        **split,
    }
    return Batches(
        tokens=tokens,
        layer=layers["token"],
        positions=position[:max_length].numpy().copy(),
        order=order[first * batch_size : (count if all else first + 1) * batch_size],
        columns=chosen,
        origin=layers.origin,
        run=run,
        count=count,
        first=first,
        all=all,
        draw=draw,
        columns_chosen=columns is not None,
        **split,
        notes=notes,
    )

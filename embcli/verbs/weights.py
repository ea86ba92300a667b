"""The weight matrix itself: chosen rows and columns of a layer, a summary of the whole layer, and its map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, Watch, check_choice
from embcli.layer import Layer, Origin, Summary, shape_of
from embcli.names import Layer as LayerName
from embcli.names import Sort
from embcli.opened import Opened
from embcli.records import ArraySpec, FieldType, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import Excerpt, select
from embcli.tokens import token_text, tokens_of
from embcli.verbs.statistics import NormOrder, norm_order
from embcli.words import Parameter, Sentence, counted, in_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

_FRAME, _NORM = 14, 10  # lines around a map; cells of the longest norm
_ZERO, _BAD = "0", "!"  # marks of rows and columns: all zero, not finite
_MOST_CHOSEN, _MOST = 200, 10  # rows on a page: of those that the user chose, of all
_IN_ORDER, _SCATTERED = 1 << 18, 1 << 22  # values that are read at a time: a drawn layer is drawn anew for each read


@dataclass(frozen=True, eq=False)
class WeightMatrix(Result, verb="weights", content="embeddings"):
    """Rows and columns of a layer; the rows are read when they are used."""

    name: str  # "token" or "position"
    layer: Layer
    ids: np.ndarray  # (chosen rows,) int64
    columns: np.ndarray  # (chosen columns,) int64
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
    origin: Origin
    run: dict[str, Any]
    rows_chosen: bool  # by the user
    columns_chosen: bool
    watch: Watch  # counts the rows of a pass over the whole layer
    order: NormOrder | None = None  # of all rows of the layer, if the chosen ones are in it
    token = MatrixOf()  # (n, chosen columns) float32, if it is that layer
    position = MatrixOf()  # (n, chosen columns) float32

    @cached_property
    def summary(self) -> Summary:
        """The mean, standard deviation, minimum and maximum of the whole layer."""
        return self.order.summary if self.order else self.layer.summary(self.watch)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the layer, (n, chosen columns) float32."""
        return self.layer.rows(ids)[:, self.columns]

    def records(self) -> Records:
        fields: dict[str, FieldType] = {"id": int, **({"token": str} if self.encoding else {})}
        fields |= {"norm": float, "rank": int} if self.order else {}

        def values(places: np.ndarray, names: Names) -> dict[str, Any]:
            ids = self.ids[places]
            found: dict[str, Any] = {"id": ids}
            if "token" in names:
                found["token"] = list(map(token_text, tokens_of(ids, self.encoding)))
            return found | ({"norm": self.order.norms[ids], "rank": self.order.ranks[ids]} if self.order else {})

        def rows(places: np.ndarray, names: Names) -> dict[str, Any]:
            return dict.fromkeys(names, self.rows(self.ids[places]))

        most = _SCATTERED if self.order else _IN_ORDER
        pieces = in_pieces(len(self.ids), self.layer.shape[1], values, rows, most)
        matrices = {self.name: ArraySpec((len(self.ids), len(self.columns)))}
        columns = tuple(self.columns.tolist())
        return Records(self.run, "rows", len(self.ids), fields, pieces, matrices, columns, self.name)

    @property
    def padding(self) -> str:
        """Which rows of a checkpoint are padding after the last token, in words; empty for none."""
        size, encoding = self.layer.shape[0], self.encoding
        if encoding is None or self.origin.is_seeded or encoding.vocabulary_size >= size:
            return ""
        return f"rows {encoding.vocabulary_size} to {size - 1}, for which {encoding.name} has no tokens"

    @property
    def title(self) -> str:
        size, dim = self.layer.shape
        if self.name == "token" and self.origin.is_other:
            return f"Tensor {self.origin.tensors['token']}: {counted(size, 'row')}, {counted(dim, 'column')}"
        rows = f"C = {counted(size, 'position')}, one row each"
        if self.name == "token":
            rows = f"V = {counted(size, 'row')}" if self.padding else f"V = {counted(size, 'token')}, one row each"
        return f"{self.name.capitalize()} weight matrix: {rows}, D = {counted(dim, 'column')}"

    def lines_below(self, summary: Summary | None) -> Iterator[Text]:
        from embcli.page import NumberFormat, words
        from embcli.verbs.parts import origin_in_words, origin_lines

        size, dim = self.layer.shape
        stored = in_bytes(self.origin.sizes.get(self.name, 4 * size * dim))
        origin = origin_in_words(self.origin, self.name)
        yield words(f"{origin}, {counted(size * dim, 'parameter')} ({self.layer.dtype}), {stored}")
        if summary is not None:
            ends = np.array([summary.minimum, summary.maximum], np.float32)
            write = NumberFormat([ends], self.style.precision).write
            mean, deviation = f"mean {write(summary.mean)}", f"standard deviation {write(summary.std)}"
            yield words(f"{mean}, {deviation}, minimum {write(ends[0])}, maximum {write(ends[1])}")
        if self.padding:
            yield words(f"Padding: {self.padding}")
        yield from origin_lines(self.origin)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, Matrix, Values, title, written
        from embcli.verbs.parts import id_labels

        rows = Excerpt.ends(_MOST_CHOSEN if self.rows_chosen else _MOST, len(self.ids))
        ids = self.ids[rows.places]
        label = "row" if self.origin.is_other and self.encoding is None else "ID"
        tokens = tokens_of(ids, self.encoding) if self.encoding is not None else None
        labels = id_labels(ids, tokens, "pos" if self.name == "position" else label)
        missing = rows.missing("row", self.ids)
        if self.order is not None:
            labels.append(Label("norm", written(self.order.norms[ids], self.style.precision)))
            labels.append(Label("rank", self.order.ranks[ids]))
            missing = rows.missing("rank", self.order.ranks[self.ids])
        values = self.rows(ids)
        yield title(self.title)
        yield Matrix(
            labels,
            [Values(values)],
            self.columns,
            rows.gaps,
            precision=self.style.precision,
            heat=self.style.heat,
            every=self.columns_chosen,
            rows_left_out=missing,
            rows_parameter="rows",
        )
        yield ""
        yield from self.lines_below(None if self.rows_chosen and not self.order else self.summary)  # without a pass


class Bins(NamedTuple):
    """A whole matrix in bins of consecutive rows and columns; the last bins may be smaller. Sums are in float64."""

    sizes: np.ndarray  # (row bins, column bins) float64: root mean square; NaN or infinite if a value is
    norms: np.ndarray  # (row bins,) float64: mean norm of the finite rows; NaN if there are none
    zero_rows: np.ndarray  # (row bins,): number of zero rows
    non_finite_rows: np.ndarray  # (row bins,): number of rows with NaN or infinity
    zero_columns: np.ndarray  # (columns,) bool
    non_finite_columns: np.ndarray  # (columns,) bool
    summary: Summary


@dataclass(frozen=True, eq=False)
class WeightMap(WeightMatrix, verb="map", content="page"):
    """A whole weight matrix, to be shown in bins; each call of `bins` passes over all rows."""

    @np.errstate(invalid="ignore")  # of infinities
    def bins(self, rows: int, columns: int) -> Bins:
        """Return the matrix in bins of `rows` x `columns` values, from one pass."""
        size, dim = self.layer.shape
        first_rows, first_columns = np.arange(0, size, rows), np.arange(0, dim, columns)
        squares, (norms, zero, bad) = np.zeros((len(first_rows), dim)), np.zeros((3, len(first_rows)))
        summary, row = Summary(), 0
        for block in self.watch(self.layer.blocks(), size, len):
            exact = np.square(block, dtype=np.float64)
            lengths = exact.sum(axis=1)
            finite = np.isfinite(lengths)
            bins = np.arange(row, row + len(block)) // rows
            starts = np.flatnonzero(np.diff(bins, prepend=-1))
            for total, values in (
                (squares, exact),
                (norms, np.sqrt(np.where(finite, lengths, 0))),
                (zero, lengths == 0),
                (bad, ~finite),
            ):
                total[bins[starts]] += np.add.reduceat(values, starts, dtype=np.float64)
            summary.add(block)
            row += len(block)
        counts, of_columns = np.diff(np.append(first_rows, size)), squares.sum(axis=0)
        per_bin = counts[:, None] * np.diff(np.append(first_columns, dim))
        return Bins(
            np.sqrt(np.add.reduceat(squares, first_columns, axis=1) / per_bin),
            np.where(counts > bad, norms / np.maximum(counts - bad, 1), np.nan),
            zero,
            bad,
            of_columns == 0,
            ~np.isfinite(of_columns),
            summary,
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, Strips, Values, lines_of, strip_numbers, title, words

        size, dim = self.layer.shape
        rows = -(-size // max(lines_of(console, options) - _FRAME, 4))
        starts = Label("from row", np.arange(0, size, rows))
        after = [Label("", [], "left", minimum=2), Label("mean norm", [], minimum=_NORM)]
        columns = -(-dim // strip_numbers(console, options.max_width, [starts], after))
        bins, first = self.bins(rows, columns), np.arange(0, dim, columns)
        marked = {_ZERO: (bins.zero_rows, bins.zero_columns), _BAD: (bins.non_finite_rows, bins.non_finite_columns)}
        marks = ["".join(mark for mark, (each, _) in marked.items() if each[row]) for row in range(len(bins.norms))]
        norms = [f"{norm:#.4g}".rstrip(".") for norm in bins.norms]
        after = [after[0]._replace(cells=marks), after[1]._replace(cells=norms)]
        zero, bad = (np.logical_or.reduceat(each, first) for _, each in marked.values())
        below = np.where(bad, _BAD, np.where(zero, _ZERO, "")).tolist() if (bad | zero).any() else []
        each = f"{counted(rows, 'row')} x {counted(columns, 'column')}"
        yield title(self.title)
        how = f"the root mean square of {each} each" if rows * columns > 1 else "|number|"
        yield words(f"The size of all numbers: {how}")
        ends = np.append(first[:-1], dim - 1)
        yield Strips([starts], [Values(bins.sizes)], ends, (), after, self.style.precision, signed=False, below=below)
        counts = [
            f"{mark}: {counted(int(of_rows.sum()), 'row')} and {counted(int(of_columns.sum()), 'column')} {what}"
            for (mark, (of_rows, of_columns)), what in zip(marked.items(), ("all zero", "not finite"), strict=True)
            if of_rows.any() or of_columns.any()
        ]
        if counts:
            yield words(f"{'; '.join(counts)}.")
        yield ""
        yield from self.lines_below(bins.summary)


def weights(
    model: Opened,
    *,
    layer: LayerName = "token",
    rows: str | None = None,
    columns: str | None = None,
    sort: Sort = "id",
    map: bool = False,
) -> WeightMatrix:
    """Return the weight matrix of a layer, (V, D) or (C, D), or the chosen rows and columns (`"0:5,100"`) of it.

    A row can be named by its token, too: `"king,queen"`. `sort="norm"` orders the rows by their norms, the largest
    first; then `order` has the norms and ranks of all rows. `map` returns the size of its numbers in bins instead.
    Raises InputError for rows and columns out of range, LayerError where there is no such layer.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights(rows="2").token.round(4).astype(str).tolist()
    [['1.2753', '-0.201', '-0.1606']]
    """
    check_choice("layer", str(layer), get_args(LayerName))
    check_choice("sort", sort, get_args(Sort))
    for name, given in (("sort", None if sort == "id" else sort), ("rows", rows), ("columns", columns)):
        if map and given is not None:
            wrong = "{name} {given} cannot be combined with {map}, which shows the whole matrix in order"
            raise InputError(Sentence(wrong, name=Parameter(name), given=given[:40]))
    notes = model.notes.begun()
    size, dim = shape_of(model.source, layer)
    encoding = model.source.encoding if layer == "token" else None
    ids = select(model.resolve_rows(rows, layer), size, "row")
    chosen = select(columns, dim, "column")
    layers = model.source.open({layer: None}, notes)
    order = norm_order(layers[layer], model.watch) if sort == "norm" else None
    if order is not None:
        ids = order.ids if rows is None else ids[np.argsort(order.ranks[ids], kind="stable")]
    return (WeightMap if map else WeightMatrix)(
        name=layer,
        layer=layers[layer],
        ids=ids,
        columns=chosen,
        encoding=encoding,
        origin=layers.origin,
        run=run_of(encoding, **layers.origin.document()),
        rows_chosen=rows is not None,
        columns_chosen=columns is not None,
        watch=model.watch,
        order=order,
        notes=notes,
    )

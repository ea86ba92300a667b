"""The weight matrix itself: chosen rows and columns of a layer, and a summary of the whole layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import Watch, check_choice
from embcli.layer import Layer, Origin, Summary, shape_of
from embcli.names import LayerName, Sort
from embcli.numerics.statistics import NormOrder, norm_order
from embcli.opened import Opened
from embcli.records import ArraySpec, FieldType, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import Excerpt, select
from embcli.tokens import token_text, tokens_of
from embcli.wording import counted, in_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

_MOST_CHOSEN, _MOST = 200, 10  # rows on a page: of those that the user chose, of all
_IN_ORDER, _SCATTERED = (
    1 << 18,
    1 << 22,
)  # values that are read at a time: a drawn layer is drawn anew for each read


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
            return found | (
                {"norm": self.order.norms[ids], "rank": self.order.ranks[ids]} if self.order else {}
            )

        def rows(places: np.ndarray, names: Names) -> dict[str, Any]:
            return dict.fromkeys(names, self.rows(self.ids[places]))

        most = _SCATTERED if self.order else _IN_ORDER
        pieces = in_pieces(len(self.ids), self.layer.shape[1], values, rows, most)
        matrices = {self.name: ArraySpec((len(self.ids), len(self.columns)))}
        columns = tuple(self.columns.tolist())
        return Records(
            self.run, "rows", len(self.ids), fields, pieces, matrices, columns, self.name
        )

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
        if self.name == "token" and self.origin.is_custom_tensor:
            return f"Tensor {self.origin.tensors['token']}: {counted(size, 'row')}, {counted(dim, 'column')}"
        rows = f"C = {counted(size, 'position')}, one row each"
        if self.name == "token":
            rows = (
                f"V = {counted(size, 'row')}"
                if self.padding
                else f"V = {counted(size, 'token')}, one row each"
            )
        return f"{self.name.capitalize()} weight matrix: {rows}, D = {counted(dim, 'column')}"

    def lines_below(self, summary: Summary | None) -> Iterator[Text]:
        from embcli.page import NumberFormat, safe_text
        from embcli.page.labels import origin_in_words, origin_lines

        size, dim = self.layer.shape
        stored = in_bytes(self.origin.sizes.get(self.name, 4 * size * dim))
        origin = origin_in_words(self.origin, self.name)
        yield safe_text(
            f"{origin}, {counted(size * dim, 'parameter')} ({self.layer.dtype}), {stored}"
        )
        if summary is not None:
            ends = np.array([summary.minimum, summary.maximum], np.float32)
            write = NumberFormat([ends], self.style.precision).write
            mean, deviation = (
                f"mean {write(summary.mean)}",
                f"standard deviation {write(summary.std)}",
            )
            yield safe_text(
                f"{mean}, {deviation}, minimum {write(ends[0])}, maximum {write(ends[1])}"
            )
        if self.padding:
            yield safe_text(f"Padding: {self.padding}")
        yield from origin_lines(self.origin)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, Matrix, Values, omission, rows_that_fit, title, written
        from embcli.page.labels import id_labels

        rows = Excerpt.ends(
            _MOST_CHOSEN if self.rows_chosen else rows_that_fit(options, _MOST), len(self.ids)
        )
        ids = self.ids[rows.places]
        label = "row" if self.origin.is_custom_tensor and self.encoding is None else "ID"
        tokens = tokens_of(ids, self.encoding) if self.encoding is not None else None
        labels = id_labels(ids, tokens, "pos" if self.name == "position" else label)
        missing = omission(rows, "row", self.ids)
        if self.order is not None:
            labels.append(Label("norm", written(self.order.norms[ids], self.style.precision)))
            labels.append(Label("rank", self.order.ranks[ids]))
            missing = omission(rows, "rank", self.order.ranks[self.ids])
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
        yield from self.lines_below(
            None if self.rows_chosen and not self.order else self.summary
        )  # without a pass


def weights(
    model: Opened,
    *,
    layer: LayerName = "token",
    rows: str | None = None,
    columns: str | None = None,
    sort: Sort = "id",
) -> WeightMatrix:
    """Return the weight matrix of a layer, (V, D) or (C, D), or the chosen rows and columns (`"0:5,100"`) of it.

    A row can be named by its token, too: `"king,queen"`. `sort="norm"` orders the rows by their norms, the largest
    first; then `order` has the norms and ranks of all rows.
    Raises InputError for rows and columns out of range, LayerError where there is no such layer.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights(rows="2").token.round(4).astype(str).tolist()
    [['1.2753', '-0.201', '-0.1606']]
    """
    check_choice("layer", str(layer), get_args(LayerName))
    check_choice("sort", sort, get_args(Sort))
    notes = model.notes.begun()
    size, dim = shape_of(model.source, layer)
    encoding = model.source.encoding if layer == "token" else None
    ids = select(model.resolve_rows(rows, layer), size, "row")
    chosen = select(columns, dim, "column")
    layers = model.source.open({layer: None}, notes)
    order = norm_order(layers[layer], model.watch) if sort == "norm" else None
    if order is not None:
        ids = order.ids if rows is None else ids[np.argsort(order.ranks[ids], kind="stable")]
    return WeightMatrix(
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

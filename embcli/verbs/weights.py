"""The weight matrix of a layer: chosen rows and columns of it, and a summary of all of it.

`weights` opens the layer; its rows are read when the result is shown or written, piece by piece, so
that a layer can be larger than memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, get_args

import numpy as np

from embcli.binary import LONGEST_LOAD
from embcli.encodings import Encoding
from embcli.errors import InputError, check_choice
from embcli.layer import Layer, Origin, Summary, shape_of
from embcli.names import LayerName, Sort
from embcli.numerics.statistics import NormOrder, norm_order
from embcli.opened import Opened
from embcli.records import (
    ArraySpec,
    Columns,
    FieldTypes,
    Names,
    Records,
    in_pieces,
    run_of,
)
from embcli.result import MatrixOf, Result
from embcli.selection import Excerpt, Selection, select
from embcli.tokens import resolve_rows, token_text, tokens_of
from embcli.wording import Sentence, counted, in_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Label


@dataclass(frozen=True, eq=False)
class WeightMatrix(Result, verb="weights"):
    """Rows and columns of a layer; the rows are read when they are used."""

    name: LayerName
    layer: Layer
    ids: np.ndarray  # (chosen rows,) int64
    columns: np.ndarray  # (chosen columns,) int64
    encoding: Encoding | None  # has the tokens that rows stand for; None if they are no tokens
    origin: Origin
    _rows_chosen: bool  # whether the user chose them
    _columns_chosen: bool
    order: NormOrder | None  # orders all rows of the layer, if the user asked for it
    is_map: bool  # whether the page is a map of the rows
    token = MatrixOf("(n, chosen columns) float32, if it is that layer")
    position = MatrixOf("(n, chosen columns) float32")
    head = MatrixOf("(n, chosen columns) float32")

    @cached_property
    def summary(self) -> Summary:
        """The mean, standard deviation, minimum and maximum of the whole layer."""
        return self.order.summary if self.order else self.layer.summary(self.notes.watch)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the layer, (n, chosen columns) float32."""
        return self.layer.rows(ids)[:, self.columns]

    def _records(self) -> Records:
        fields: FieldTypes = {"id": int}
        if self.encoding:
            fields["token"] = str
        count = len(self.ids)
        size, dim = self.layer.shape
        stored_row = self.origin.sizes.get(self.name, 0) // size
        if not self._rows_chosen or stored_row * count > LONGEST_LOAD:
            self.layer.load()
        # A drawn layer is drawn anew for each piece, so scattered rows are read in larger ones.
        numbers_of_piece = 1 << 18
        if self.order:
            fields |= {"norm": float, "rank": int}
            numbers_of_piece = 1 << 22
        return Records(
            run=run_of(self.encoding, **self.origin.document()),
            unit="rows",
            rows=count,
            fields=fields,
            pieces=in_pieces(
                count,
                dim,
                self._fields,
                lambda places, names: dict.fromkeys(names, self.rows(self.ids[places])),
                numbers_of_piece,
            ),
            matrices={self.name: ArraySpec((count, len(self.columns)))},
            columns=tuple(self.columns.tolist()),
            default=self.name,
        )

    def _fields(self, places: np.ndarray, names: Names) -> Columns:
        ids = self.ids[places]
        fields = {"id": ids}
        if "token" in names:
            fields["token"] = [token_text(token) for token in tokens_of(ids, self.encoding)]
        if self.order:
            fields["norm"] = self.order.norms[ids]
            fields["rank"] = self.order.ranks[ids]
        return fields

    @property
    def title(self) -> str:
        size, dim = self.layer.shape
        columns = counted(dim, "column")
        if self.origin.is_custom_tensor:
            return f"Tensor {self.origin.tensors[self.name]}: {counted(size, 'row')}, {columns}"
        names = {
            "token": "Token weight matrix: V",
            "position": "Position weight matrix: C",
            "head": "Output head: V",
        }
        return f"{names[self.name]} = {counted(size, 'row')}, D = {columns}"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import (
            Matrix,
            Values,
            medium_of,
            omission,
            omitted,
            rows_that_fit,
            title,
        )
        from embcli.page.labels import row_names
        from embcli.page.map import Map
        from embcli.page.strips import SLIDE_STRIPS

        most_rows = 200
        medium = medium_of(console)
        style = self.style
        if not self._rows_chosen:
            rows_elsewhere = 40 if medium.is_file else 10  # of a picture, and in a pipe
            most_rows = rows_that_fit(options, rows_elsewhere)
            if style.heat and medium.has_fine_cells:
                most_rows = 40
            elif style.heat and options.is_terminal:
                most_rows -= 3  # A colour bar and a blank line are below, names of columns above.
        most_lines = SLIDE_STRIPS if medium.height else 42
        excerpt = Excerpt.ends(most_rows, len(self.ids))
        ids = self.ids[excerpt.places]
        missing = omission(excerpt, "row", self.ids)
        if self.order is not None:
            missing = omission(excerpt, "rank", self.order.ranks[self.ids])
        values = self.rows(ids)

        yield title(self.title)
        if self.is_map:
            labels = row_names(ids, self.encoding)
            yield Map(values, labels, 4 if style.bare else 8)
            yield from omitted(missing, parameters=("rows",))
            yield ""
        else:
            yield Matrix(
                self._labels(ids),
                [Values(values)],
                self.columns,
                excerpt.gaps,
                **style.of_numbers,
                every=self._columns_chosen,
                rows_left_out=missing,
                rows_parameter="rows",
                has_notes=not style.bare,
                most_lines=most_lines,
            )
        yield from self._facts()

    def _labels(self, ids: np.ndarray) -> list[Label]:
        from embcli.page import Label, written
        from embcli.page.labels import id_labels

        name = "ID"
        if self.name == "position":
            name = "pos"
        elif self.encoding is None and self.origin.is_custom_tensor:
            name = "row"
        labels = id_labels(ids, self.encoding, name)
        if self.order is not None:
            labels.append(Label("norm", written(self.order.norms[ids], self.style.precision)))
            labels.append(Label("rank", self.order.ranks[ids]))
        return labels

    def _facts(self) -> RenderResult:
        """Yield what holds for the whole layer."""
        from embcli.page import Note, safe_text, written
        from embcli.page.labels import origin_in_words, origin_lines

        size, dim = self.layer.shape
        origin = origin_in_words(self.origin, self.name)
        parameters = f"{counted(size * dim, 'parameter')} ({self.layer.dtype})"
        stored = in_bytes(self.origin.sizes.get(self.name, 4 * size * dim))
        yield safe_text(f"{origin}, {parameters}, {stored}")

        # A summary takes a pass over the layer, which chosen rows are not worth.
        if self.order is not None or not (self._rows_chosen or self.origin.is_remote):
            summary = self.summary
            numbers = np.array([summary.mean, summary.std, summary.minimum, summary.maximum])
            mean, deviation, minimum, maximum = written(numbers, self.style.precision)
            yield safe_text(
                f"mean {mean}, standard deviation {deviation}, minimum {minimum}, maximum {maximum}"
            )
        elif not self._rows_chosen:
            yield Note("Only these rows were read, over the network.", "sort")
        encoding = self.encoding
        if encoding and not self.origin.is_seeded and encoding.vocabulary_size < size:
            rows = f"rows {encoding.vocabulary_size} to {size - 1}"
            yield safe_text(f"Padding: {rows}, for which {encoding.name} has no tokens")
        yield from origin_lines(self.origin)


def weights(
    model: Opened,
    *,
    layer: LayerName = "token",
    rows: Selection | None = None,
    columns: Selection | None = None,
    sort: Sort = "id",
    map: bool = False,
) -> WeightMatrix:
    """Return the weight matrix of a layer, (V, D) or (C, D), or chosen rows and columns of it.

    The `head` of a tied model is its token matrix.

    A choice is a text, `"0:5,100"`, or indices, `[2, 3]` or `range(5)`. A row can be named by its
    token, too: `"king,queen"`.
    `sort="norm"` orders the rows by their norms, the largest first; then `order` has the norms and
    ranks of all rows. With `map`, the page shows chosen rows by their first two principal
    components. Raises InputError for rows and columns out of range, LayerError if there is no such
    layer.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights(rows="2").token.round(4).astype(str).tolist()
    [['1.2753', '-0.201', '-0.1606']]
    """
    check_choice("layer", str(layer), get_args(LayerName))
    check_choice("sort", str(sort), get_args(Sort))
    if map and rows is None:
        raise InputError(Sentence("{map} shows chosen rows; choose them with {rows}"))
    notes = model.notes.begun()
    size, dim = shape_of(model.source, layer)
    encoding = None if layer == "position" else model.source.encoding
    ids = select(resolve_rows(rows, encoding, size, notes), size, "row")
    chosen_columns = select(columns, dim, "column")
    layers = model.source.open({layer: None}, notes)

    match sort:
        case "id":
            order = None
        case "norm":
            order = norm_order(layers[layer], notes.watch)
            ids = ids[np.argsort(order.ranks[ids], kind="stable")]
    return WeightMatrix(
        name=layer,
        layer=layers[layer],
        ids=ids,
        columns=chosen_columns,
        encoding=encoding,
        origin=layers.origin,
        _rows_chosen=rows is not None,
        _columns_chosen=columns is not None,
        order=order,
        is_map=map,
        notes=notes,
    )

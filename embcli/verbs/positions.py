"""How positions become vectors: the rows, angles or distances of a kind, and its dot products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError, check_choice, refuse_too_large
from embcli.layer import Origin, Source, shape_of
from embcli.names import (
    DEFAULT_CONTEXT_LENGTH,
    DEFAULT_THETA,
    PAIRINGS,
    SHORT_LENGTH,
    Pairing,
    __version__,
)
from embcli.numerics.steps import sinusoids
from embcli.opened import Opened
from embcli.positions import DEFAULT_KIND, KINDS, OPTIONS, OTHER_NAMES, PositionKind, check_options
from embcli.positions.kind import PositionMatrix, Shown
from embcli.positions.learned import learned
from embcli.positions.relative import K, relative
from embcli.positions.rotary import check, rotary
from embcli.positions.sinusoidal import sinusoidal
from embcli.records import ArraySpec, Records, in_pieces
from embcli.result import MatrixOf, Result
from embcli.seeded_layers.seeded import check_size
from embcli.selection import Excerpt, select
from embcli.text import parse_ids
from embcli.tokens import Tokens, check_ids
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Matrix

_MOST_CHOSEN = 200  # rows of a page that the user chose
_ONE_TABLE, _TWO_TABLES, _HEADINGS = (
    10,
    13,
    5,
)  # rows of one table in a pipe, lines of two tables and of their headings
_LINES = 35  # of a picture in a pipe or a file


@dataclass(frozen=True, eq=False)
class PositionTable(Result, verb="positions", content="embeddings"):
    """The matrices of a kind of positions, for the chosen positions; each is an array under its name."""

    kind: PositionKind
    shown: Callable[[], Shown]
    options: dict[str, Any]  # of the kind, in data
    token_id: int  # of the row that the positions are applied to
    length: int  # T
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # of D, of pairs of D, or positions (similarity), (columns,) int64
    is_similarity: bool
    origin: Origin | None  # of the layers; None for positions that are only computed
    rows_chosen: bool  # by the user
    columns_chosen: bool
    is_long: bool = False  # more positions than a page shows, as nobody chose T or rows
    reason: str = ""  # why these are the positions of a model, if nobody chose the kind

    position = MatrixOf()  # (n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32
    input = MatrixOf()  # (n, D) float32, a token row with the positions applied to it
    distance = MatrixOf()  # (n, T) int64
    similarity = MatrixOf()  # (n, T) float32, dot products

    @property
    def matrices(self) -> list[PositionMatrix]:
        if self.is_similarity:
            return [PositionMatrix("similarity", self.shown().products(self.columns), self.columns)]
        return self.shown().matrices

    def records(self) -> Records:
        named = {each.name: each for each in self.matrices if each.name}
        shapes = {name: (*each.between, len(each.columns)) for name, each in named.items()}
        origin = self.origin.document() if self.origin else {}
        return Records(
            run={"embcli": __version__, "kind": self.kind, **origin, **self.options},
            unit="positions",
            rows=len(self.chosen),
            fields={"position": int},
            pieces=in_pieces(
                len(self.chosen),
                max(int(np.prod(shape)) for shape in shapes.values()),
                lambda index, names: dict.fromkeys(names, self.chosen[index]),
                lambda index, names: {name: named[name].rows(self.chosen[index]) for name in names},
            ),
            matrices={
                name: ArraySpec((len(self.chosen), *shapes[name]), each.dtype)
                for name, each in named.items()
            },
            columns=tuple(self.columns.tolist()),
            default=next(iter(named)),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli import page
        from embcli.page.labels import origin_lines

        length, chosen = self.length, self.chosen
        if self.is_long:
            length, chosen = SHORT_LENGTH, chosen[:SHORT_LENGTH]
        first = f" 0 to {length - 1} of {self.length:,}" if self.is_long else ""
        said = self.shown()
        if self.is_similarity:
            heading = (
                f"Dot products of {self.kind} positions{first}: T = {counted(length, 'position')}"
            )
            head = [page.title(heading), page.safe_text(said.meaning)]
            if self.kind in OPTIONS["ids"]:
                head.append(page.safe_text(f"The row is that of token ID {self.token_id}."))
        else:
            heading = (
                f"{self.kind.capitalize()} positions{first}: T = {length:,} positions, {said.size}"
            )
            head = [page.title(heading), page.safe_text(said.formula)]
        end = [
            page.safe_text(line)
            for line in ("" if self.is_similarity else said.note, self.reason)
            if line
        ]
        if (origin := self.origin) is not None:
            layer = "position" if "position" in origin.tensors else "token"
            if not origin.is_seeded and (layer == "position" or not self.reason):
                has_offset = layer == "position" and origin.first_position
                offset = f"; position 0 is its row {origin.first_position}" if has_offset else ""
                end.append(
                    page.safe_text(f"{origin.tensors[layer]} ({origin.dtypes[layer]}){offset}")
                )
            end += origin_lines(origin)
        yield from head
        shown = [matrix for matrix in self.matrices if matrix.heading is not None]
        for place, matrix in enumerate(shown):
            if place:
                yield ""
            if matrix.heading:
                yield page.title(matrix.heading)
            numbers = (
                chosen if matrix.numbers is None else matrix.numbers
            )  # of its rows, (n,) int64
            columns = matrix.columns
            if self.is_similarity and self.is_long and not self.columns_chosen:
                columns = columns[:length]
            yield self._table(matrix, numbers, columns, options, len(shown))
        yield from end

    @property
    def _rows_of_all(self) -> int:
        """How many rows the tables of a page have."""
        numbers = [matrix.numbers for matrix in self.matrices if matrix.heading is not None]
        return sum(len(self.chosen if each is None else each) for each in numbers)

    def _table(
        self,
        matrix: PositionMatrix,
        numbers: np.ndarray,
        columns: np.ndarray,
        options: ConsoleOptions,
        tables: int,
    ) -> Matrix:
        """Return rows of a matrix, one of so many tables: as many as fit, or a picture of all."""
        from embcli.page import Label, Matrix, Values, omission, rows_that_fit

        lines = None
        if self.style.heat and (self.is_similarity or not self.rows_chosen):
            lines = rows_that_fit(options, _LINES * tables) // tables
            most = len(numbers)
        elif matrix.numbers is None and self.rows_chosen:
            most = _MOST_CHOSEN
        elif len(numbers) <= SHORT_LENGTH and not options.is_terminal:  # as on a page without a T
            most = SHORT_LENGTH
        elif tables == 1:
            most = rows_that_fit(options, _ONE_TABLE)
        else:
            most = (rows_that_fit(options, _TWO_TABLES) - _HEADINGS) // tables
            if options.is_terminal and self._rows_of_all <= rows_that_fit(options, 0):
                most = len(numbers)
        rows = Excerpt.ends(most, len(numbers))
        values = matrix.rows(numbers[rows.places])[:, : len(columns)]
        return Matrix(
            [Label(matrix.label, numbers[rows.places])],
            [Values(values, column_period=matrix.column_period)],
            columns,
            rows.gaps,
            precision=self.style.precision,
            heat=self.style.heat,
            every=self.columns_chosen,
            lines=lines,
            square=self.is_similarity,
            rows_left_out=omission(rows, "row", numbers),
            rows_parameter="rows",
        )


def positions(
    model: Opened,
    kind: PositionKind | None = None,
    *,
    context_length: int | None = None,
    pairing: Pairing | None = None,
    theta: float | None = None,
    ids: str | int | None = None,
    similarity: bool = False,
    rows: str | None = None,
    columns: str | None = None,
) -> PositionTable:
    """Return what positions become: learned or sinusoidal rows (T, D), rotary angles, or relative distances.

    Unless `kind` is given, it is the model's own; of seeded layers, learned. T is the context length, of relative
    positions 16; unless it is given, a page shows positions 0 to 15.
    `similarity` returns their dot products, (T, T). Raises InputError for an option that this kind does not have,
    and LayerError for an odd D of rotary positions.

    >>> import embcli
    >>> embcli.seeded(dim=4).positions("sinusoidal", context_length=2).position.round(4).astype(str).tolist()
    [['0.0', '1.0', '0.0', '1.0'], ['0.8415', '0.5403', '0.01', '1.0']]
    """
    source = model.source
    notes = model.notes.begun()
    kind = OTHER_NAMES.get(kind or "", kind)
    check_choice("kind", kind, KINDS)
    check_choice("pairing", pairing, PAIRINGS)
    name, reason, length, dim = _chosen(source, kind, context_length)
    check_options(name, pairing=pairing, theta=theta, ids=ids)
    token_ids = parse_ids("0" if ids is None else str(ids))
    if len(token_ids) != 1:
        wrong = "{ids} must be one token ID, not {count}: {given!r}"
        raise InputError(Sentence(wrong, count=len(token_ids), given=str(ids)[:40]))
    check_size("context_length", length)
    refuse_too_large("a table of positions", (length, dim))
    if name == "rotary":
        check(dim, theta := DEFAULT_THETA if theta is None else theta)
    size = dim // 2 if name == "rotary" else dim
    chosen = select(rows, length, "position")
    of_columns = select(columns, length if similarity else size, "column")
    asked: dict[str, np.ndarray | None] = {}
    if name == "rotary" or (name == "relative" and similarity):
        asked["token"] = token_ids
        check_ids(
            Tokens(token_ids, np.array([0, 1]), source.encoding), shape_of(source, "token")[0]
        )
    if name in ("learned", "relative"):
        asked["position"] = None
    layers = source.resized(2 * K + 1 if name == "relative" else length).open(asked, notes)
    row = layers["token"].rows(token_ids) if "token" in layers else np.empty((1, 0), np.float32)
    token_id, picked, is_stored = (
        int(token_ids[0]),
        np.arange(size) if similarity else of_columns,
        False,
    )
    options: dict[str, Any] = {}
    match name:
        case "learned":
            is_stored = not source.origin.is_seeded
            shown = partial(learned, layers["position"], picked, is_stored)
        case "sinusoidal":
            step = source.recipe and source.recipe.position
            shown = partial(
                sinusoidal, dim, picked, partial(sinusoids, step, dim) if step else None
            )
        case "relative":
            shown, options = partial(relative, layers["position"], picked, length, row), {"clip": K}
        case "rotary":
            options = {"pairing": pairing or "interleaved", "theta": theta}
            shown = partial(rotary, picked, row, token_id, **options)
    return PositionTable(
        kind=name,
        shown=shown,
        options=options,
        token_id=token_id,
        length=length,
        chosen=chosen,
        columns=of_columns,
        is_similarity=similarity,
        origin=layers.origin if layers else None,
        rows_chosen=rows is not None,
        columns_chosen=columns is not None,
        is_long=context_length is None and rows is None and not is_stored and length > SHORT_LENGTH,
        reason=reason,
        notes=notes,
    )


def _chosen(
    source: Source, kind: PositionKind | None, context_length: int | None
) -> tuple[PositionKind, str, int, int]:
    """Return the kind of positions, why it is that of the model if nobody chose it, T, and D."""
    seeded, recipe, shape, reason = (
        source.origin.is_seeded,
        source.recipe,
        source.shape("position"),
        "",
    )
    waves = recipe and recipe.position and recipe.position.sinusoid_formula
    if kind is None and recipe is not None:
        if not recipe.is_known and shape is None:
            raise InputError(f"which positions a {quoted(recipe.model)} model has is not known")
        if recipe.is_known:
            reason = recipe.positions_in_words
        if recipe.is_known and recipe.position is None:
            raise InputError(f"{reason}; no position rows are added, so there is nothing to show")
    name: PositionKind = kind or ("sinusoidal" if waves and reason else DEFAULT_KIND)
    if seeded or (name == "sinusoidal" and waves):
        own = shape[0] if seeded and shape else DEFAULT_CONTEXT_LENGTH
        default = (
            SHORT_LENGTH if name == "relative" else own
        )  # distances belong to a T, not to a layer
        return (
            name,
            reason,
            default if context_length is None else context_length,
            shape_of(source, "token")[1],
        )
    if name != DEFAULT_KIND:
        raise InputError(Sentence("{kind} {name} is computed, not read from a file", name=name))
    if shape is None:
        raise InputError(f"this model has no {name} positions")
    return name, reason, *shape

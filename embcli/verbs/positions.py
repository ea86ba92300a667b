"""How positions become vectors: the rows, angles or distances of each kind, and the dot products in which it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import embcli
from embcli import names
from embcli.errors import InputError, LayerError
from embcli.layer import shape_of
from embcli.positions import Learned, Relative, Rotary, Sinusoidal
from embcli.records import Array, Names, Piece, Records
from embcli.selection import select
from embcli.text import parse_ids
from embcli.tokens import Tokens
from embcli.verbs.lookup import check_ids
from embcli.weights.seeded import refuse_too_large

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embcli.layer import Layer, Source

Kind = Learned | Sinusoidal | Relative | Rotary
_NO_ROW = np.empty((0, 0), np.float32)
_PIECE = 1 << 18  # values that are worked on at a time


@dataclass(frozen=True)
class Wanted:
    """Which kind of positions, of how many, and what of them; all of it checked before a number is drawn.

    Raises InputError for an option that this kind has no use for, and LayerError for numbers that make no positions.
    """

    kind: names.Positions
    length: int  # T
    dim: int  # D
    clip: int | None = None  # k, of relative positions
    pairing: names.Pairing | None = None  # this and theta of rotary ones
    theta: float | None = None
    ids: str | None = None  # the token whose row they meet
    similarity: bool = False

    def __post_init__(self) -> None:
        for option, value, kinds in (
            ("--clip", self.clip, ("relative",)),
            ("--pairing", self.pairing, ("rotary",)),
            ("--theta", self.theta, ("rotary",)),
            ("--ids", self.ids, ("relative", "rotary")),
        ):
            if value is not None and self.kind not in kinds:
                raise InputError(f"{option} has no place in {self.kind} positions; it goes with {' or '.join(kinds)}")
        if self.length < 1:
            raise LayerError(f"--context-length {self.length} makes no positions; it must be 1 or more")
        if self.clip is not None and self.clip < 0:
            raise LayerError(f"--clip {self.clip} is out of range; it must be 0 or more")
        refuse_too_large("a table of positions", (self.length, self.dim))
        if self.kind == "rotary":
            self.rotary()
        self.token_id()

    @property
    def rows(self) -> int:
        """How many rows the position layer has: T, or 2k + 1 for the distances that relative positions know."""
        if self.kind != "relative":
            return self.length
        return 2 * (names.DEFAULT_CLIP if self.clip is None else self.clip) + 1

    def needs(self) -> dict[str, tuple[names.Format, ...]]:
        """Return which options only some formats have a place for: a row for each pair of positions has no flat one."""
        return {"--kind relative": names.BATCHED} if self.kind == "relative" and not self.similarity else {}

    @property
    def meets_a_row(self) -> bool:
        """Whether a token's row is part of it: one that is turned, or that relative rows are multiplied with."""
        return self.kind == "rotary" or (self.kind == "relative" and self.similarity)

    def rotary(self) -> Rotary:
        """Return the rotary positions that are wanted."""
        theta = names.DEFAULT_THETA if self.theta is None else self.theta
        return Rotary(self.dim, self.pairing or "interleaved", theta)

    def token_id(self) -> int:
        """Return the ID of the token whose row the positions meet."""
        ids = parse_ids("0" if self.ids is None else self.ids)
        if len(ids) != 1:
            raise InputError(f"--ids {str(self.ids)[:40]!r} names {len(ids)} tokens; positions are shown on one row")
        return int(ids[0])


@dataclass(frozen=True)
class Matrix:
    """One matrix of the result, whose rows are worked out when they are asked for."""

    array: Array  # (n, ...), a row for each chosen position
    rows: Callable[[np.ndarray], np.ndarray]  # positions (m,) -> (m, ...)


@dataclass(frozen=True)
class PositionTable:
    """What each of the chosen positions becomes."""

    wanted: Wanted
    kind: Kind
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # of D, of pairs (rotary), or positions (similarity), (columns,) int64
    matrices: dict[str, Matrix]  # the first is the one that formats with room for one hold
    run: dict[str, Any]
    picked: tuple[bool, bool] = (False, False)  # rows and columns, by the user

    def means(self, per: int) -> np.ndarray:
        """Return the means of the dot products of `per` positions with as many others, (bins, bins) float64.

        The last bins of rows and of columns hold what is left.
        """
        rows, columns = np.arange(0, len(self.chosen), per), np.arange(0, len(self.columns), per)
        counts = np.diff(np.append(columns, len(self.columns)))
        found = np.empty((len(rows), len(columns)))
        for place, start in enumerate(rows.tolist()):
            values = self.matrices["similarity"].rows(self.chosen[start : start + per]).astype(np.float64)
            found[place] = np.add.reduceat(values.mean(axis=0), columns) / counts
        return found

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield the chosen positions in consecutive pieces, with the named matrices."""
        largest = max(int(np.prod(each.array.shape[1:])) for each in self.matrices.values())
        step = max(_PIECE // max(largest, 1), 1)
        for start in range(0, len(self.chosen), step):
            places = self.chosen[start : start + step]
            values = dict.fromkeys(fields, places)
            yield Piece(len(places), values, {name: self.matrices[name].rows(places) for name in matrices})

    def records(self) -> Records:
        """Return the table as data: a row a position."""
        return Records(
            run=self.run,
            unit="positions",
            rows=len(self.chosen),
            fields={"position": int},
            pieces=self.pieces,
            matrices={name: each.array for name, each in self.matrices.items()},
            columns=tuple(self.columns.tolist()),
            default=next(iter(self.matrices)),
        )


def stored_shape(source: Source, kind: names.Positions) -> tuple[int, int]:
    """Return C and D of the learned positions of a real model; raises InputError for other kinds, and for none."""
    if kind != "learned":
        raise InputError(f"--kind {kind} is worked out and not read; --from shows the learned positions of a file")
    shape = source.shape("position")
    if shape is None:
        raise InputError("this model has no learned positions; --position-tensor names them under a name of their own")
    return shape


def positions(wanted: Wanted, source: Source, rows: str | None = None, columns: str | None = None) -> PositionTable:
    """Return what positions become; the source's position layer has `wanted.rows` rows.

    `rows` chooses positions as in `0:5,100`, and `columns` columns: of relative positions those of D, of rotary ones
    pairs, of dot products the positions on the other side. Raises InputError for those out of range, and for an ID
    without a row.
    """
    chosen = select(rows, wanted.length, "position")
    width = wanted.length if wanted.similarity else wanted.dim // (2 if wanted.kind == "rotary" else 1)
    picked = select(columns, width, "column")
    layers = _open(wanted, source, chosen)
    kind = _kind(wanted, layers)
    row = layers["token"].rows(np.array([wanted.token_id()])) if "token" in layers else _NO_ROW  # (1, D) float32
    if wanted.similarity:
        matrices = {"similarity": _similarity(kind, row, len(chosen), picked)}
    else:
        matrices = _matrices(kind, row, wanted.length, len(chosen), picked)
    run = {"embcli": embcli.__version__, "kind": wanted.kind, **(source.run if layers else {})}
    if isinstance(kind, Rotary):
        run |= {"pairing": kind.pairing, "theta": kind.theta}
    elif isinstance(kind, Relative):
        run |= {"clip": kind.clip}
    return PositionTable(wanted, kind, chosen, picked, matrices, run, (rows is not None, columns is not None))


def _open(wanted: Wanted, source: Source, chosen: np.ndarray) -> dict[str, Layer]:
    """Return the layers that this kind reads; sinusoidal positions read none."""
    asked: dict[str, np.ndarray | None] = {}
    if wanted.meets_a_row:
        ids = np.array([wanted.token_id()])
        check_ids(Tokens(ids, np.array([0, 1]), source.encoding), shape_of(source, "token")[0])
        asked["token"] = ids
    if wanted.kind in ("learned", "relative"):
        asked["position"] = chosen if wanted.kind == "learned" and not wanted.similarity else None
    return source.open(asked) if asked else {}


def _kind(wanted: Wanted, layers: dict[str, Layer]) -> Kind:
    if wanted.kind == "sinusoidal":
        return Sinusoidal(wanted.dim)
    if wanted.kind == "rotary":
        return wanted.rotary()
    return (Relative if wanted.kind == "relative" else Learned)(layers["position"])


def _matrices(kind: Kind, row: np.ndarray, length: int, rows: int, columns: np.ndarray) -> dict[str, Matrix]:
    """Return what tells of positions; the token row (1, D) is what rotary ones turn."""
    width = len(columns)
    if isinstance(kind, Relative):
        every = np.arange(length)
        return {
            "position": Matrix(Array((rows, length, width)), lambda at: kind.rows(at, every)[..., columns]),
            "distance": Matrix(Array((rows, length), "int64"), lambda at: kind.distances(at, every)),
        }
    found = {"position": Matrix(Array((rows, width)), lambda at: kind.rows(at)[:, columns])}
    if isinstance(kind, Rotary):
        turned = kind.columns_of(columns)
        found["input"] = Matrix(Array((rows, len(turned))), lambda at: kind.joined(row, at)[:, turned])
    return found


def _similarity(kind: Kind, row: np.ndarray, rows: int, to: np.ndarray) -> Matrix:
    """Return the dot products of positions with others, `to`; summed up in float64."""
    array = Array((rows, len(to)))
    if isinstance(kind, Relative):
        products = (kind.every().astype(np.float64) @ row[0].astype(np.float64)).astype(np.float32)  # (2k + 1,)
        return Matrix(array, lambda at: products[kind.distances(at, to) + kind.clip])
    others = _exact(kind, row, to).T
    return Matrix(array, lambda at: _products(_exact(kind, row, at), others))


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of (n, D) and (D, m) float64, (n, m) float32."""
    with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite, or its product too large for float32
        found: np.ndarray = (left @ right).astype(np.float32)
    return found


def _exact(kind: Learned | Sinusoidal | Rotary, row: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the vectors that positions become, or turn the row into, (n, D) float64."""
    if isinstance(kind, Learned):
        return kind.rows(positions).astype(np.float64)
    return kind.exact(positions) if isinstance(kind, Sinusoidal) else kind.exact(row, positions)

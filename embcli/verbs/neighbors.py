"""The neighbours of a query: the rows of a matrix nearest to it, and what their scores are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from embcli import memory
from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.options import Nearness
from embcli.passes import Watch, unwatched
from embcli.records import Array, FieldType, Names, Piece, Records, in_pieces, run_of
from embcli.result import Result
from embcli.search import Search, mean_row, nearest
from embcli.search.space import Space
from embcli.selection import distinct, select
from embcli.text import lines_of, parse_ids
from embcli.tokens import Tokens, check_ids, token_text, tokens_of

_PIECE = 1 << 18  # values processed at a time
_BYTES_PER_ANSWER = 64  # during a search
_NAMED_COLUMNS = 10  # columns of a score that are listed separately


@dataclass(frozen=True)
class Query:
    """The mean of some rows, with other rows added and subtracted, or a vector."""

    ids: np.ndarray  # (n,) int64
    plus: tuple[np.ndarray, ...] = ()  # the IDs of each term, (n,) int64
    minus: tuple[np.ndarray, ...] = ()
    vector: np.ndarray | None = None  # (D,) float32, instead of IDs


@dataclass(frozen=True)
class Shares:
    """What scores are made of: the share of the mean row, of the columns that add most, and of all other columns.

    With m the mean row, the product of a query q and a row r is m·r + q·m - m·m, the share of the mean, plus a sum over
    the columns of (q - m)(r - m); under cosine all of it is divided by |q||r|. A distance is a sum of squared
    differences divided by the distance, and the mean has no share of it.
    """

    mean: np.ndarray  # (n,) float64
    columns: np.ndarray  # (n, named) int64, the largest share first
    parts: np.ndarray  # (n, named) float64, the shares of these columns
    rest: np.ndarray  # (n,) float64


@dataclass(frozen=True, eq=False)
class Neighbors(Result, verb="neighbors", content="ranking"):
    """The rows nearest to each query."""

    nearness: Nearness
    queries: list[Query]
    vectors: list[np.ndarray]  # (D,) float64 each: the queries, less the mean row if that is subtracted
    search: Search
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
    mean: np.ndarray | None  # (D,) float64, mean of all finite rows; None if it is not needed
    origin: Origin
    run: dict[str, Any]

    @cached_property
    def ids(self) -> np.ndarray:
        """The IDs of the neighbours of all queries, (n,) int64."""
        return np.concatenate([ranking.ids for ranking in self.search.rankings])

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of the neighbours of all queries, (n,) float64."""
        return np.concatenate([ranking.scores for ranking in self.search.rankings])

    def shares(self, number: int, places: np.ndarray) -> Shares:
        """Return what the scores of a query's neighbours at these places are made of, (n,) int64."""
        query, ranking = self.vectors[number], self.search.rankings[number]
        rows, scores = self.rows(ranking.ids[places]), ranking.scores[places]
        if self.nearness.metric == "l2":
            scale, columns, of_mean = np.where(scores > 0, scores, 1), np.square(query - rows), np.zeros(len(rows))
        else:
            mean = np.zeros_like(query) if self.mean is None or self.nearness.center else self.mean
            cosine = self.nearness.metric == "cosine"
            scale = np.linalg.norm(rows, axis=1) * np.linalg.norm(query) if cosine else np.ones(len(rows))
            columns = (query - mean) * (rows - mean)
            of_mean = rows @ mean + query @ mean - mean @ mean
        columns, of_mean = columns / scale[:, None], of_mean / scale
        named = np.argsort(-columns, axis=1, kind="stable")[:, :_NAMED_COLUMNS]
        parts = np.take_along_axis(columns, named, axis=1)
        np.put_along_axis(columns, named, 0, axis=1)
        return Shares(of_mean, named, parts, columns.sum(axis=1))

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float64, less the mean row if that is subtracted."""
        rows = self.layer.rows(ids).astype(np.float64)
        return rows - self.mean if self.nearness.center and self.mean is not None else rows

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the neighbours as data: query, rank, ID, token and score of each, and what the score is made of."""
        why = self.nearness.why
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        parts: dict[str, FieldType] = {"mean": float, "rest": float} if why else {}
        fields: dict[str, FieldType] = {"query": int, "rank": int, "id": int, **token, "score": float, **parts}
        shape = sum(len(each.ids) for each in self.search.rankings), min(_NAMED_COLUMNS, self.layer.shape[1])
        arrays = {"column": Array(shape, "int64"), "share": Array(shape, "float64")} if why else {}
        return Records(self.run, "neighbors", shape[0], fields, self._pieces, arrays)

    def _pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield the neighbours of each query."""
        step = max(_PIECE // self.layer.shape[1], 1)
        for number, ranking in enumerate(self.search.rankings):
            yield from in_pieces(len(ranking.ids), step, partial(self._values, number))(fields, matrices)

    def _values(self, number: int, places: np.ndarray, names: Names) -> dict[str, Any]:
        """Return the fields and matrices of a query's neighbours at these places, (n,) int64."""
        ranking = self.search.rankings[number]
        ids = ranking.ids[places]
        values = {
            "query": np.full(len(ids), number),
            "rank": places + 1,
            "id": ids,
            "token": list(map(token_text, self.tokens(ids))) if "token" in names else [],
            "score": ranking.scores[places],
        }
        if {"mean", "column", "share"} & {*names}:
            shares = self.shares(number, places)
            values |= {"mean": shares.mean, "rest": shares.rest, "column": shares.columns, "share": shares.parts}
        return values


def neighbors(
    source: Source, queries: list[Query], nearness: Nearness | None = None, watch: Watch = unwatched
) -> Neighbors:
    """Return the rows of a source's token layer nearest to each query.

    Raises InputError for a query that is not finite, or zero under cosine; for rows out of range; for `match` if the
    rows stand for no tokens; and if the answers do not fit into memory.
    """
    nearness, encoding = nearness or Nearness(), source.encoding
    size, _ = shape_of(source, "token")
    among = _rows_to_search(nearness, encoding, size)
    layers = source.open({"token": None})
    layer = layers["token"]
    needs_mean = nearness.center or (nearness.why and nearness.metric != "l2")
    mean = mean_row(layer, watch) if needs_mean else None
    if mean is not None and not np.isfinite(mean).all():
        raise InputError("there is no mean row: every row contains NaN or infinity")
    space = Space(nearness.metric, mean if nearness.center else None)
    vectors = [_vector(query, number, layer, space) for number, query in enumerate(queries, 1)]
    excluded = (
        None
        if nearness.include_query
        else [np.concatenate([each.ids, *each.plus, *each.minus]).astype(np.int64) for each in queries]
    )
    k = nearness.count(size if among is None else len(among))
    if nearness.within is None and _BYTES_PER_ANSWER * k * len(queries) > memory.free():
        raise InputError(
            f"{k:,} neighbours of each of {len(queries):,} queries do not fit into memory; lower top",
            parameters=("top",),
        )
    search = nearest(layer, vectors, space, k, among, excluded, nearness.within, watch)
    run = {
        **run_of(encoding, **layers.origin.document()),
        "metric": nearness.metric,
        "center": nearness.center,
        "queries": [_document(query) for query in queries],
        "searched": search.searched,
        "not_finite": len(search.not_finite),
        "zero": len(search.zero),
    }
    return Neighbors(nearness, queries, vectors, search, layer, encoding, mean, layers.origin, run, notes=source.notes)


def _document(query: Query) -> dict[str, list[Any]]:
    plus, minus = ([ids.tolist() for ids in terms] for terms in (query.plus, query.minus))
    return {"ids": query.ids.tolist(), "plus": plus, "minus": minus}


def _rows_to_search(nearness: Nearness, encoding: Encoding | None, size: int) -> np.ndarray | None:
    """Return the rows that may be answers, (n,) int64 ascending; None for all."""
    if nearness.rows is None and nearness.match is None:
        return None
    rows, _ = distinct(select(nearness.rows, size, "row"))
    if nearness.match is None:
        return rows
    if encoding is None:
        raise InputError(
            f"match {nearness.match[:40]!r} needs tokens, and these rows stand for no known tokens",
            parameters=("match",),
        )
    pattern = re.compile(nearness.match)
    texts = map(token_text, tokens_of(rows, encoding))
    return rows[[text is not None and bool(pattern.search(text)) for text in texts]]


def _vector(query: Query, number: int, layer: Layer, space: Space) -> np.ndarray:
    """Return the vector of a query, (D,) float64, less the mean row if that is subtracted; queries count from 1."""
    if query.vector is not None:
        vector = query.vector.astype(np.float64) - (0 if space.mean is None else space.mean)
    else:
        unit = space.metric == "cosine" and bool(query.plus or query.minus)
        vector = _mean_of_rows(query.ids, layer, space, unit)
        for sign, terms in ((1, query.plus), (-1, query.minus)):
            for ids in terms:
                vector += sign * _mean_of_rows(ids, layer, space, unit)
    if not np.isfinite(vector).all():
        raise InputError(f"query {number:,} contains NaN or infinity and has no neighbours")
    if space.metric == "cosine" and not vector.any():
        raise _no_direction(f"query {number:,}")
    return vector


def _mean_of_rows(ids: np.ndarray, layer: Layer, space: Space, unit: bool) -> np.ndarray:
    """Return the mean of some rows, (D,) float64, less the mean row if that is subtracted; of length 1 if `unit`."""
    rows = layer.rows(ids)
    not_finite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(not_finite):
        raise InputError(f"row {int(ids[not_finite[0]])} contains NaN or infinity and has no neighbours")
    term: np.ndarray = rows.astype(np.float64).mean(axis=0) - (0 if space.mean is None else space.mean)
    norm = float(np.linalg.norm(term))
    if space.metric == "cosine" and not norm:
        many = f"the mean of rows {', '.join(map(str, ids[:8]))}"
        raise _no_direction(f"row {int(ids[0])}" if len(ids) == 1 else many)
    return term / norm if unit else term


def _no_direction(what: str) -> InputError:
    return InputError(f"{what} is zero and has no direction; use metric dot or l2", parameters=("metric",))


def queries_of_tokens(
    tokens: Tokens, encoding: Encoding | None, plus: Sequence[str], minus: Sequence[str], rows: int
) -> list[Query]:
    """Return a query for each sequence of tokens, with the same terms added and subtracted.

    Terms are texts in an encoding, or IDs if that is None. Raises InputError for a sequence without tokens and for IDs
    that a layer of `rows` rows does not have.
    """
    check_ids(tokens, rows, grows=False)
    added = tuple(_term_ids(term, "plus", encoding, rows) for term in plus)
    subtracted = tuple(_term_ids(term, "minus", encoding, rows) for term in minus)
    sequences = [tokens.ids[start:stop].astype(np.int64) for start, stop in pairwise(tokens.starts.tolist())]
    empty = next((number for number, ids in enumerate(sequences, 1) if not len(ids)), None)
    if empty is not None or not sequences:
        where = f"line {empty:,} has" if tokens.many and empty else "the input has"
        raise InputError(f"{where} no tokens, so there are no neighbours")
    return [Query(ids, added, subtracted) for ids in sequences]


def _term_ids(term: str, parameter: str, encoding: Encoding | None, rows: int) -> np.ndarray:
    ids = parse_ids(term) if encoding is None else encoding.encode(term).astype(np.int64)
    if not len(ids):
        raise InputError(f"{parameter} {term[:40]!r} has no tokens", parameters=(parameter,))
    check_ids(Tokens(ids, np.array([0, len(ids)]), encoding), rows, grows=False)
    return ids


def queries_of_vectors(vectors: np.ndarray, dim: int) -> list[Query]:
    """Return a query for each vector, (n, D) or (D,); raises InputError for numbers that float32 does not hold."""
    with np.errstate(over="ignore"):
        rows = np.atleast_2d(np.asarray(vectors, np.float32))
    if rows.shape[1:] != (dim,) or not np.isfinite(rows).all():
        raise InputError(
            f"vector must have rows of D = {dim:,} finite numbers, not the shape {rows.shape}", parameters=("vector",)
        )
    return [Query(np.empty(0, np.int64), vector=row) for row in rows]


def vectors_in_lines(text: str, show: str | None, dim: int) -> np.ndarray:
    """Return the vectors in the lines of a text, (n, D) float32: JSON arrays, or objects with one in their `vectors`.

    `show` names it; None stands for `input`. Numbers become float32, the dtype that `lookup` writes. Raises InputError
    for anything else, with its line number.
    """
    lines = [(number, line) for number, line in enumerate(lines_of(text), 1) if line.strip()]
    if not lines:
        raise InputError("vector has no vectors; it takes a JSON array of numbers per line", parameters=("vector",))
    return np.stack([_parsed(line, number, show, dim) for number, line in lines])


def _parsed(line: str, number: int, show: str | None, dim: int) -> np.ndarray:
    import orjson

    def refused(problem: str, *parameters: str) -> InputError:
        return InputError(f"line {number:,} of vector {problem}", parameters=("vector", *parameters))

    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise refused(f"is not valid JSON: {error}") from None
    if isinstance(value, dict):
        vectors, name = value.get("vectors"), show or "input"
        there = ", ".join(vectors)[:60] if isinstance(vectors, dict) else ""
        if not isinstance(vectors, dict) or name not in vectors:
            cure = f"; show chooses from: {there}" if there else ""
            raise refused(f"has no vectors.{name[:40]}{cure}", "show")
        value = vectors[name]
    if not isinstance(value, list) or not all(type(each) in (int, float) for each in value):
        has_null = isinstance(value, list) and None in value
        what = "an array that contains null or NaN" if has_null else "no array of numbers"
        raise refused(f"contains {what}; it takes D = {dim:,} numbers")
    if len(value) != dim:
        raise refused(f"has {len(value):,} numbers, and rows have D = {dim:,}")
    with np.errstate(over="ignore"):
        vector = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise refused("contains a number out of the range of float32")
    return vector

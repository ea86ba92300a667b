"""The neighbours of a row: which rows of a matrix are nearest to it, and what their scores are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli import memory
from embcli.checks import check_ids
from embcli.errors import InputError
from embcli.layer import run_of, shape_of
from embcli.names import PAGES, Format, Metric
from embcli.passes import unwatched
from embcli.records import Array, FieldType, Names, Piece, Records, refuse_too_many
from embcli.search import Search, mean_row, nearest
from embcli.search.space import Space
from embcli.selection import distinct, select
from embcli.text import lines_of, parse_ids
from embcli.tokens import Tokens, token_text, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embcli.encodings import Encoding
    from embcli.layer import Layer, Source
    from embcli.passes import Watch

_DEFAULT_COUNT = 10
_PIECE = 1 << 18  # values that are worked on at a time
_ANSWER = 64  # bytes of a neighbour, while it is looked for
_TOLD = 10  # columns of a score that are told by themselves


@dataclass(frozen=True)
class Wanted:
    """What near means, and which rows are answers; raises InputError for what cannot be."""

    metric: Metric = "cosine"
    top: int | None = None  # k; 10, or with `within` all
    include_query: bool = False
    center: bool = False
    within: float | None = None
    match: str | None = None
    rows: str | None = None  # as in `0:5,100`
    why: bool = False

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise InputError(f"--top {self.top} makes no list; it must be 1 or more")
        if self.within is not None and not np.isfinite(self.within):
            raise InputError(f"--within {self.within} is no score; it takes a finite number")
        if self.within is not None and self.metric == "l2" and self.within < 0:
            raise InputError(f"--within {self.within:g} is no distance; under l2 it must be 0 or more")
        if self.match is not None:
            try:
                re.compile(self.match)
            except re.error as error:
                raise InputError(f"--match {self.match[:60]!r} is no regular expression: {error}") from None

    def needs(self) -> dict[str, tuple[Format, ...]]:
        """Return which options were given that only some formats have a place for, and these formats."""
        return {"--why": (*PAGES, "json", "ndjson")} if self.why else {}

    def count(self, rows: int) -> int:
        """Return k, for so many rows to search."""
        most = rows if self.within is not None else _DEFAULT_COUNT
        return min(most if self.top is None else self.top, max(rows, 1))


@dataclass(frozen=True)
class Query:
    """What neighbours are asked of: the mean of some rows, with others added and taken away, or a vector."""

    ids: np.ndarray  # (n,) int64
    plus: tuple[np.ndarray, ...] = ()  # IDs of terms, (n,) int64 each
    minus: tuple[np.ndarray, ...] = ()
    given: np.ndarray | None = None  # (D,) float32, in place of IDs

    @property
    def every_id(self) -> np.ndarray:
        """The IDs of all terms, (n,) int64."""
        return np.concatenate([self.ids, *self.plus, *self.minus]).astype(np.int64)


@dataclass(frozen=True)
class Shares:
    """What scores are made of: the parts of the mean row, of the columns that add most, and of all others.

    With m the mean row, a product of a query q and a row r is m·r + q·m - m·m, which is the share of the mean, and a
    sum over columns of (q - m)(r - m); under cosine all of it is divided by |q||r|. A distance has squares of
    differences divided by the distance, of which the mean has no share.
    """

    mean: np.ndarray  # (n,) float64
    columns: np.ndarray  # (n, told) int64, the one that adds most first
    parts: np.ndarray  # (n, told) float64, of these columns
    rest: np.ndarray  # (n,) float64

    @property
    def told(self) -> np.ndarray:
        """What the told columns add, (n,) float64."""
        told: np.ndarray = self.parts.sum(axis=1)
        return told


@dataclass(frozen=True)
class Neighbors:
    """For each query the rows that are nearest to it."""

    wanted: Wanted
    queries: list[Query]
    vectors: list[np.ndarray]  # (D,) float64 each: the queries in the space that was searched
    search: Search
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None where they stand for none
    mean: np.ndarray | None  # (D,) float64, of all finite rows; where it was asked for
    run: dict[str, Any]

    room: int | None  # for numbers, where they go on a terminal

    def shares(self, number: int) -> Shares:
        """Return what the scores of a query's neighbours are made of."""
        query, found = self.vectors[number], self.search.found[number]
        step = max(_PIECE // self.layer.shape[1], 1)
        starts = range(0, max(len(found.ids), 1), step)
        parts = [self._shares(query, found.ids[at : at + step], found.scores[at : at + step]) for at in starts]
        return Shares(
            np.concatenate([each.mean for each in parts]),
            np.concatenate([each.columns for each in parts]),
            np.concatenate([each.parts for each in parts]),
            np.concatenate([each.rest for each in parts]),
        )

    def _shares(self, query: np.ndarray, ids: np.ndarray, scores: np.ndarray) -> Shares:
        rows = self.rows(ids)
        mean = np.zeros_like(query) if self.mean is None or self.wanted.center else self.mean
        if self.wanted.metric == "l2":
            scale = np.where(scores > 0, scores, 1)
            columns = np.square(query - rows)
            of_mean = np.zeros(len(rows))
        else:
            cosine = self.wanted.metric == "cosine"
            scale = np.linalg.norm(rows, axis=1) * np.linalg.norm(query) if cosine else np.ones(len(rows))
            columns = (query - mean) * (rows - mean)
            of_mean = rows @ mean + query @ mean - mean @ mean
        columns, of_mean = columns / scale[:, None], of_mean / scale
        told = np.argsort(-columns, axis=1, kind="stable")[:, :_TOLD]
        parts = np.take_along_axis(columns, told, axis=1)
        np.put_along_axis(columns, told, 0, axis=1)
        return Shares(of_mean, told, parts, columns.sum(axis=1))

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows in the space that was searched, (n, D) float64."""
        rows = self.layer.rows(ids).astype(np.float64)
        return rows - self.mean if self.wanted.center and self.mean is not None else rows

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the neighbours as data: query, rank, ID, token and score of each, and what the score is made of.

        Raises OutputError where there are more of them than there is room for.
        """
        why = self.wanted.why
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        parts: dict[str, FieldType] = {"mean": float, "rest": float} if why else {}
        fields: dict[str, FieldType] = {"query": int, "rank": int, "id": int, **token, "score": float, **parts}
        rows, told = sum(len(each.ids) for each in self.search.found), min(_TOLD, self.layer.shape[1])
        arrays = {"column": Array((rows, told), "int64"), "share": Array((rows, told), "float64")} if why else {}
        refuse_too_many(rows * (len(fields) + told * len(arrays)), self.room)
        return Records(self.run, "neighbors", rows, fields, self._pieces, arrays)

    def _pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield the neighbours of each query that has some."""
        for number, found in enumerate(self.search.found):
            count = len(found.ids)
            values: dict[str, Any] = {
                "query": np.full(count, number),
                "rank": np.arange(1, count + 1),
                "id": found.ids,
                "score": found.scores,
            }
            if "token" in fields:
                values["token"] = [token_text(token) for token in self.tokens(found.ids)]
            if "mean" in fields or matrices:
                shares = self.shares(number)
                values |= {"mean": shares.mean, "rest": shares.rest, "column": shares.columns, "share": shares.parts}
            if count:
                yield Piece(count, {name: values[name] for name in fields}, {name: values[name] for name in matrices})


def neighbors(
    source: Source,
    wanted: Wanted,
    asked: Callable[[tuple[int, int]], list[Query]],
    watch: Watch = unwatched,
    room: int | None = None,
) -> Neighbors:
    """Return the rows of a source's token layer nearest to each query; `asked` gives them for a layer (V, D).

    Raises InputError for a query that has no row, or whose row is of no use: not finite, or zero under cosine; for rows
    out of range, where --match has no tokens to look at, and for more answers than memory holds.
    """
    size, dim = shape_of(source, "token")
    queries = asked((size, dim))
    among = _among(wanted, source.encoding, size)
    layer = source.open({"token": None})["token"]
    mean = mean_row(layer, watch) if wanted.center or (wanted.why and wanted.metric != "l2") else None
    if mean is not None and not np.isfinite(mean).all():
        raise InputError("there is no mean row: each row has NaN or infinity in it")
    space = Space(wanted.metric, mean if wanted.center else None)
    vectors = [_vector(query, number, layer, space) for number, query in enumerate(queries, 1)]
    excluded = None if wanted.include_query else [query.every_id for query in queries]
    k = wanted.count(size if among is None else len(among))
    if wanted.within is None and _ANSWER * k * len(queries) > memory.free():
        raise InputError(f"{k:,} neighbours of each of {len(queries):,} queries do not fit into memory; lower --top")
    found = nearest(layer, vectors, space, k, among, excluded, wanted.within, watch)
    run = run_of(source, source.encoding) | {
        "metric": wanted.metric,
        "center": wanted.center,
        "queries": [_told(query) for query in queries],
    }
    run |= {"searched": found.searched, "not_finite": len(found.not_finite), "zero": len(found.zero)}
    return Neighbors(wanted, queries, vectors, found, layer, source.encoding, mean, run, room)


def _told(query: Query) -> dict[str, list[Any]]:
    return {
        "ids": query.ids.tolist(),
        "plus": [each.tolist() for each in query.plus],
        "minus": [each.tolist() for each in query.minus],
    }


def _among(wanted: Wanted, encoding: Encoding | None, size: int) -> np.ndarray | None:
    """Return the rows that may be answers, (n,) int64 ascending; None for all."""
    if wanted.rows is None and wanted.match is None:
        return None
    rows, _ = distinct(select(wanted.rows, size, "row"))
    if wanted.match is None:
        return rows
    if encoding is None:
        raise InputError(
            f"--match {wanted.match[:40]!r} looks at tokens, and these rows stand for those of no encoding"
        )
    pattern = re.compile(wanted.match)
    texts = map(token_text, tokens_of(rows, encoding))
    return rows[[text is not None and bool(pattern.search(text)) for text in texts]]


def _vector(query: Query, number: int, layer: Layer, space: Space) -> np.ndarray:
    """Return what a query is in a space, (D,) float64; `number` is its place, from 1."""
    if query.given is not None:
        vector = query.given.astype(np.float64) - (0 if space.mean is None else space.mean)
    elif query.plus or query.minus:
        vector = sum(
            (
                sign * _term(ids, layer, space, unit=space.metric == "cosine")
                for sign, terms in ((1, (query.ids, *query.plus)), (-1, query.minus))
                for ids in terms
            ),
            np.zeros(layer.shape[1]),
        )
    else:
        vector = _term(query.ids, layer, space)
    if not np.isfinite(vector).all():
        raise InputError(f"query {number:,} has NaN or infinity in it; it is near to nothing")
    if space.metric == "cosine" and not vector.any():
        raise InputError(f"query {number:,} is zero and has no direction; --metric dot and l2 take it")
    return vector


def _term(ids: np.ndarray, layer: Layer, space: Space, unit: bool = False) -> np.ndarray:
    """Return the mean of some rows in a space, (D,) float64, of length 1 if `unit`."""
    rows = layer.rows(ids)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise InputError(f"row {int(ids[bad[0]])} has NaN or infinity in it; it is near to nothing")
    term: np.ndarray = rows.astype(np.float64).mean(axis=0) - (0 if space.mean is None else space.mean)
    norm = float(np.linalg.norm(term))
    if space.metric == "cosine" and not norm:
        which = f"row {int(ids[0])} is" if len(ids) == 1 else f"the mean of rows {', '.join(map(str, ids[:8]))} is"
        raise InputError(f"{which} zero and has no direction; --metric dot and l2 take it")
    return term / norm if unit else term


def of_tokens(
    tokens: Tokens, encoding: Encoding | None, plus: Sequence[str], minus: Sequence[str], shape: tuple[int, int]
) -> list[Query]:
    """Return a query for each sequence of tokens, with the same terms added and taken away.

    Terms are texts in an encoding, or IDs where that is None. Raises InputError for a sequence without tokens and for
    IDs that a layer (V, D) has no row for.
    """
    check_ids(tokens, shape[0], grows=False)
    added, taken = (
        tuple(_of_words(words, flag, encoding, shape[0]) for words in given)
        for flag, given in (("--plus", plus), ("--minus", minus))
    )
    sequences = [tokens.ids[start:stop].astype(np.int64) for start, stop in pairwise(tokens.starts.tolist())]
    empty = next((number for number, ids in enumerate(sequences, 1) if not len(ids)), None)
    if empty is not None or not sequences:
        where = f"line {empty:,} has" if tokens.many and empty else "the input has"
        raise InputError(f"{where} no tokens, and so no neighbours")
    return [Query(ids, added, taken) for ids in sequences]


def _of_words(words: str, flag: str, encoding: Encoding | None, size: int) -> np.ndarray:
    ids = parse_ids(words) if encoding is None else encoding.encode(words).astype(np.int64)
    if not len(ids):
        raise InputError(f"{flag} {words[:40]!r} has no tokens")
    check_ids(Tokens(ids, np.array([0, len(ids)]), encoding), size, grows=False)
    return ids


def of_vectors(text: str, show: str | None, shape: tuple[int, int]) -> list[Query]:
    """Return a query for each line of a text: a JSON array of D numbers, or an object with one among its `vectors`.

    `show` names it, and is `input` where it is None. Numbers become float32, which is what `lookup` wrote. Raises
    InputError for anything else, by its line.
    """
    lines = [(number, line) for number, line in enumerate(lines_of(text), 1) if line.strip()]
    if not lines:
        raise InputError("--vector has no line with a vector; each is a JSON array of numbers")
    return [Query(np.empty(0, np.int64), given=_parsed(line, number, show, shape)) for number, line in lines]


def _parsed(line: str, number: int, show: str | None, shape: tuple[int, int]) -> np.ndarray:
    import orjson

    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"line {number:,} of --vector is no JSON: {error}") from None
    if isinstance(value, dict):
        vectors, name = value.get("vectors"), show or "input"
        if not isinstance(vectors, dict) or name not in vectors:
            there = ", ".join(vectors) if isinstance(vectors, dict) else ""
            hint = f"; --show names another: {there[:60]}" if there else ""
            raise InputError(f"line {number:,} of --vector has no vectors.{name[:40]}{hint}")
        value = vectors[name]
    if not isinstance(value, list) or not all(type(each) in (int, float) for each in value):
        what = "an array with null or NaN in it" if isinstance(value, list) and None in value else "no array of numbers"
        raise InputError(f"line {number:,} of --vector holds {what}; it takes D = {shape[1]:,} numbers")
    if len(value) != shape[1]:
        raise InputError(f"line {number:,} of --vector has {len(value):,} numbers, and rows have D = {shape[1]:,}")
    with np.errstate(over="ignore"):
        vector = np.array(value, np.float64).astype(np.float32)
    if not np.isfinite(vector).all():
        raise InputError(f"line {number:,} of --vector has a number that is beyond float32")
    return vector

"""The neighbours of a query: the rows of a matrix nearest to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, Watch, unwatched
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import Metric, check_choice, check_top
from embcli.records import FieldType, Names, Piece, Records, run_of
from embcli.result import Result
from embcli.selection import Excerpt, distinct, select
from embcli.text import lines_of, parse_ids
from embcli.tokens import Tokens, check_ids, shown, token_text, tokens_of
from embcli.verbs.search import Search, nearest
from embcli.words import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from embcli.page import Label

_PIECE = 1 << 16  # neighbours whose tokens are spelled at a time
_MOST_QUERIES, _MOST_ROWS = 20, 200  # on a page; neighbours of each
_MOST_TERMS = 8  # tokens of a query that are named
_BAR = 12  # cells of the longest bar
_METRICS = {"cosine": "cosine", "dot": "dot product", "l2": "L2 distance"}


@dataclass(frozen=True)
class Query:
    """The mean of some rows, with other rows added and subtracted, or a vector."""

    ids: np.ndarray  # (n,) int64
    plus: tuple[np.ndarray, ...] = ()  # the IDs of each term, (n,) int64
    minus: tuple[np.ndarray, ...] = ()
    vector: np.ndarray | None = None  # (D,) float32, instead of IDs


@dataclass(frozen=True, eq=False)
class Neighbors(Result, verb="neighbors", content="ranking"):
    """The rows nearest to each query."""

    metric: Metric
    queries: list[Query]
    vectors: list[np.ndarray]  # (D,) float64 each
    search: Search
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
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

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the neighbours as data: query, rank, ID, token and score of each."""
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        fields: dict[str, FieldType] = {"query": int, "rank": int, "id": int, **token, "score": float}
        return Records(self.run, "neighbors", len(self.ids), fields, self._pieces)

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        for number, ranking in enumerate(self.search.rankings):
            for start in range(0, len(ranking.ids), _PIECE):
                ids = ranking.ids[start : start + _PIECE]
                values = {
                    "query": np.full(len(ids), number),
                    "rank": np.arange(start + 1, start + 1 + len(ids)),
                    "id": ids,
                    "token": list(map(token_text, self.tokens(ids))) if "token" in fields else [],
                    "score": ranking.scores[start : start + _PIECE],
                }
                yield Piece(len(ids), {name: values[name] for name in fields})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import left_out, words
        from embcli.verbs.parts import origin_lines

        queries = Excerpt.ends(_MOST_QUERIES, len(self.queries))
        parts = [self._part(number) for number in queries.places.tolist()]
        for part in parts:
            yield from part
            yield ""
        of_all = f" of {self.layer.shape[0]:,}" if self.search.searched < self.layer.shape[0] else ""
        yield words(f"Searched {counted(self.search.searched, 'row')}{of_all}.")
        kinds = {"with NaN or infinity": self.search.not_finite, "of zeros, without a direction": self.search.zero}
        for what, ids in kinds.items():
            if len(ids):
                first = ", ".join(map(str, ids[:_MOST_TERMS].tolist())) + (", …" if len(ids) > _MOST_TERMS else "")
                yield words(f"Left out: {counted(len(ids), 'row')} {what}: {first}")
        if missing := left_out(queries.missing("query", np.arange(1, len(self.queries) + 1), "queries")):
            yield words(missing)
        yield from origin_lines(self.origin)

    def _part(self, number: int) -> list[RenderableType]:
        """Return the neighbours of a query, below its tokens."""
        from embcli.page import Label, Matrix, Values, left_out, ruled, title, words, written
        from embcli.verbs.parts import token_label

        query, ranking = self.queries[number], self.search.rankings[number]
        part: list[RenderableType] = [title(f"Nearest to {self._in_words(number)} by {_METRICS[self.metric]}")]
        if len(query.ids) > 1:
            part.append(words(f"The query is the mean of {len(query.ids):,} rows."))
        if not len(ranking.ids):
            return [*part, words("No other rows.")]
        rows = Excerpt.ends(_MOST_ROWS, len(ranking.ids))
        ids, scores = ranking.ids[rows.places], ranking.scores[rows.places]
        labels = [
            Label("rank", rows.places + 1),
            *([] if self.encoding is None else [token_label(self.tokens(ids))]),
            Label("ID", ids),
            Label("distance" if self.metric == "l2" else "score", written(scores, self.style.precision)),
        ]
        missing = rows.missing("rank", np.arange(1, len(ranking.ids) + 1))
        if not self.style.heat:
            part.append(ruled([*labels, self._bars(number, scores)], gaps=rows.gaps))
            return [*part, words(left_out(missing))] if missing else part
        labels = [replace(label, cells=["query" if label.header == "rank" else "", *label.cells]) for label in labels]
        values = np.concatenate([self.vectors[number][None], self.layer.rows(ids)]).astype(np.float32)
        columns, gaps, precision = np.arange(values.shape[1]), [gap + 1 for gap in rows.gaps], self.style.precision
        heat = Matrix(labels, [Values(values)], columns, gaps, heat=True, precision=precision, rows_left_out=missing)
        return [*part, heat]

    def _bars(self, number: int, shown: np.ndarray) -> Label:
        """Return a bar for each score on the scale of its metric, whose ends are the header: the longer, the nearer.

        A full bar is the score of the query itself, and no bar that of a perpendicular row as long as it, or of a row
        that is farther. The product with a longer row can exceed the query's own: then the largest one has the full
        bar.
        """
        from embcli.page import Label, words
        from embcli.verbs.parts import bar

        square, most = float(np.square(self.vectors[number]).sum()), float(self.search.rankings[number].scores.max())
        ends = {"cosine": (0.0, 1.0), "dot": (0.0, max(square, most)), "l2": (math.sqrt(2 * square), 0.0)}
        nothing, full = ends[self.metric]
        shares = (shown - nothing) / ((full - nothing) or -1)  # a query of zeros has no scale
        low, high = (f"{end:.3g}" for end in (nothing, full))
        bars = [words(bar(share, _BAR) if share > 0 else "", "embedding") for share in shares.tolist()]
        return Label(f"{low}{high:>{_BAR - len(low)}}", bars, "left", minimum=_BAR)

    def _in_words(self, number: int) -> str:
        """Return the tokens and IDs of a query."""
        query = self.queries[number]
        if query.vector is not None:
            return f"vector {number + 1:,}"
        terms = [("", query.ids), *((" - ", ids) for ids in query.minus), *((" + ", ids) for ids in query.plus)]
        text = ""
        for sign, ids in terms:
            first = ids[:_MOST_TERMS]
            tokens = zip(map(shown, self.tokens(first)), first.tolist(), strict=True)
            named = [f"{token} ({each})" if token else f"ID {each}" for token, each in tokens]
            named += [f"{len(ids) - len(first):,} more"] if len(ids) > len(first) else []
            text += sign + ", ".join(named)
        return text


def neighbors(
    source: Source,
    queries: list[Query],
    *,
    metric: Metric = "cosine",
    top: int = 10,
    match: str | None = None,
    rows: str | None = None,
    watch: Watch = unwatched,
) -> Neighbors:
    """Return the `top` rows of a source's token layer nearest to each query, among `rows` whose tokens `match`.

    Raises InputError for a query that is not finite, or zero under cosine; for rows out of range; and for `match` if
    the rows stand for no tokens.
    """
    check_choice("metric", metric, get_args(Metric))
    check_top(top)
    encoding, (size, _) = source.encoding, shape_of(source, "token")
    among = _rows_to_search(match, rows, encoding, size)
    layers = source.open({"token": None})
    layer = layers["token"]
    vectors = [_vector(query, number, layer, metric) for number, query in enumerate(queries, 1)]
    excluded = [np.concatenate([each.ids, *each.plus, *each.minus]).astype(np.int64) for each in queries]
    k = min(top, max(size if among is None else len(among), 1))
    search = nearest(layer, vectors, k, metric, among, excluded, watch)
    run = {
        **run_of(encoding, **layers.origin.document()),
        "metric": metric,
        "queries": [_document(query) for query in queries],
        "searched": search.searched,
        "not_finite": len(search.not_finite),
        "zero": len(search.zero),
    }
    return Neighbors(metric, queries, vectors, search, layer, encoding, layers.origin, run, notes=source.notes)


def _document(query: Query) -> dict[str, list[Any]]:
    plus, minus = ([ids.tolist() for ids in terms] for terms in (query.plus, query.minus))
    return {"ids": query.ids.tolist(), "plus": plus, "minus": minus}


def _rows_to_search(match: str | None, rows: str | None, encoding: Encoding | None, size: int) -> np.ndarray | None:
    """Return the rows that may be answers, (n,) int64 ascending; None for all."""
    if rows is None and match is None:
        return None
    ids, _ = distinct(select(rows, size, "row"))
    if match is None:
        return ids
    try:
        pattern = re.compile(match)
    except re.error as error:
        message = f"match {match[:60]!r} is not a regular expression: {error}"
        raise InputError(message, parameters=("match",)) from None
    if encoding is None:
        message = f"match {match[:40]!r} needs tokens, and these rows stand for no known tokens"
        raise InputError(message, parameters=("match",))
    texts = map(token_text, tokens_of(ids, encoding))
    return ids[[text is not None and bool(pattern.search(text)) for text in texts]]


def _vector(query: Query, number: int, layer: Layer, metric: Metric) -> np.ndarray:
    """Return the vector of a query, (D,) float64; queries count from 1."""
    if query.vector is not None:
        vector = query.vector.astype(np.float64)
    else:
        unit = metric == "cosine" and bool(query.plus or query.minus)
        vector = _mean_of_rows(query.ids, layer, metric, unit)
        for sign, terms in ((1, query.plus), (-1, query.minus)):
            for ids in terms:
                vector += sign * _mean_of_rows(ids, layer, metric, unit)
    if not np.isfinite(vector).all():
        raise InputError(f"query {number:,} contains NaN or infinity and has no neighbours")
    if metric == "cosine" and not vector.any():
        raise _no_direction(f"query {number:,}")
    return vector


def _mean_of_rows(ids: np.ndarray, layer: Layer, metric: Metric, unit: bool) -> np.ndarray:
    """Return the mean of some rows, (D,) float64; of length 1 if `unit`."""
    rows = layer.rows(ids)
    not_finite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(not_finite):
        raise InputError(f"row {int(ids[not_finite[0]])} contains NaN or infinity and has no neighbours")
    term: np.ndarray = rows.astype(np.float64).mean(axis=0)
    norm = float(np.linalg.norm(term))
    if metric == "cosine" and not norm:
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


def vectors_in_lines(text: str, dim: int) -> np.ndarray:
    """Return the vectors in the lines of a text, (n, D) float32: JSON arrays, or objects as `lookup` writes them.

    Of an object the vector `input` is taken, or the only one there is. Numbers become float32, the dtype that `lookup`
    writes. Raises InputError for anything else, with its line number.
    """
    lines = [(number, line) for number, line in enumerate(lines_of(text), 1) if line.strip()]
    if not lines:
        raise InputError("vector has no vectors; it takes a JSON array of numbers per line", parameters=("vector",))
    return np.stack([_parsed(line, number, dim) for number, line in lines])


def _parsed(line: str, number: int, dim: int) -> np.ndarray:
    import orjson

    def refused(problem: str) -> InputError:
        return InputError(f"line {number:,} of vector {problem}", parameters=("vector",))

    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise refused(f"is not valid JSON: {error}") from None
    if isinstance(value, dict):
        vectors = value.get("vectors")
        vectors = vectors if isinstance(vectors, dict) else {}
        if "input" not in vectors and len(vectors) != 1:
            raise refused("has no vectors.input")
        value = vectors["input"] if "input" in vectors else next(iter(vectors.values()))
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

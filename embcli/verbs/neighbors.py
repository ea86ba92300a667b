"""The neighbours of a query: the rows of a matrix nearest to it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.lib import format as numpy_format

from embcli.encodings import Encoding
from embcli.errors import InputError, Notes, check_choice, check_top
from embcli.layer import Layer, Origin
from embcli.names import Metric
from embcli.numerics.search import Search, nearest
from embcli.opened import Opened, TextOrIds, remark_scaled
from embcli.records import FieldType, Records, listed, run_of
from embcli.result import Result
from embcli.selection import Excerpt, select
from embcli.text import lines_of, parse_ids
from embcli.tokens import Tokens, check_ids, shown, token_text, tokens_of
from embcli.wording import Parameter, Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from embcli.page import Label

_MOST_QUERIES, _MOST_ROWS = 20, 200  # on a page; neighbours of each
_MOST_TERMS = 8  # tokens of a query that are named
_BAR = 12  # cells of the longest bar
_METRICS = {"cosine": "cosine", "dot": "dot product", "l2": "L2 distance"}


class Query(NamedTuple):
    """The mean of some rows, with other rows added and subtracted, or a vector."""

    ids: np.ndarray  # (n,) int64
    plus: tuple[np.ndarray, ...] = ()  # the IDs of each term, (n,) int64
    minus: tuple[np.ndarray, ...] = ()
    vector: np.ndarray | None = None  # (D,) float32, instead of IDs


@dataclass(frozen=True, eq=False)
class Neighbors(Result, verb="neighbors", content="ranking"):
    metric: Metric
    queries: list[Query]
    vectors: list[np.ndarray]  # (D,) float64 each
    search: Search
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
    origin: Origin

    @property
    def ids(self) -> np.ndarray:
        """The IDs of the neighbours of all queries, (n,) int64."""
        return np.concatenate([ranking.ids for ranking in self.search.rankings])

    @property
    def scores(self) -> np.ndarray:
        """The scores of the neighbours of all queries, (n,) float64."""
        return np.concatenate([ranking.scores for ranking in self.search.rankings])

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        queries = []
        for query in self.queries:
            plus, minus = ([ids.tolist() for ids in terms] for terms in (query.plus, query.minus))
            queries.append({"ids": query.ids.tolist(), "plus": plus, "minus": minus})
        run = {
            **run_of(self.encoding, **self.origin.document()),
            "metric": self.metric,
            "queries": queries,
            "searched": self.search.searched,
            "not_finite": len(self.search.not_finite),
            "zero": len(self.search.zero),
        }
        lengths, ids = [len(ranking.ids) for ranking in self.search.rankings], self.ids
        columns: dict[str, tuple[FieldType, Any]] = {
            "query": (int, np.repeat(np.arange(len(lengths)), lengths)),
            "rank": (int, np.concatenate([np.arange(1, length + 1) for length in lengths])),
            "id": (int, ids),
            **({"token": (str, [*map(token_text, self.tokens(ids))])} if self.encoding else {}),
            "score": (float, self.scores),
        }
        return listed(run, "neighbors", **columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import left_out, omission, safe_text
        from embcli.page.labels import origin_lines

        queries = Excerpt.ends(_MOST_QUERIES, len(self.queries))
        for number in queries.places.tolist():
            yield from self._part(number)
            yield ""
        of_all = (
            f" of {self.layer.shape[0]:,}" if self.search.searched < self.layer.shape[0] else ""
        )
        yield safe_text(f"Searched {counted(self.search.searched, 'row')}{of_all}.")
        kinds = {
            "with NaN or infinity": self.search.not_finite,
            "of zeros, without a direction": self.search.zero,
        }
        for what, ids in kinds.items():
            if len(ids):
                first = ", ".join([*map(str, ids[:_MOST_TERMS]), *["…"] * (len(ids) > _MOST_TERMS)])
                yield safe_text(f"Not ranked: {counted(len(ids), 'row')} {what}: {first}")
        missing = left_out(
            omission(queries, "query", np.arange(1, len(self.queries) + 1), "queries")
        )
        if missing is not None:
            yield missing
        yield from origin_lines(self.origin)

    def _part(self, number: int) -> Iterator[RenderableType]:
        from embcli.page import (
            Label,
            Matrix,
            Values,
            left_out,
            omission,
            ruled,
            safe_text,
            title,
            written,
        )
        from embcli.page.labels import token_label

        query, ranking, precision = (
            self.queries[number],
            self.search.rankings[number],
            self.style.precision,
        )
        named = f"vector {number + 1:,}" if query.vector is not None else ""
        for sign, terms in (
            ("", [query.ids] if not named else []),
            (" - ", query.minus),
            (" + ", query.plus),
        ):
            for ids in terms:
                tokens = zip(map(shown, self.tokens(ids[:_MOST_TERMS])), ids.tolist(), strict=False)
                each = [f"{token} ({row})" if token else f"ID {row}" for token, row in tokens]
                each += [f"{len(ids) - _MOST_TERMS:,} more"] if len(ids) > _MOST_TERMS else []
                named += sign + ", ".join(each)
        yield title(f"Nearest to {named} by {_METRICS[self.metric]}")
        if len(query.ids) > 1:
            yield safe_text(f"The query is the mean of {len(query.ids):,} rows.")
        if self.metric == "cosine" and (query.plus or query.minus):
            yield safe_text("Each term is scaled to length 1 first.")
        if not len(ranking.ids):
            yield safe_text("No other rows.")
            return
        rows = Excerpt.ends(_MOST_ROWS, len(ranking.ids))
        ids, scores = ranking.ids[rows.places], ranking.scores[rows.places]
        labels = [
            Label("rank", rows.places + 1),
            *([] if self.encoding is None else [token_label(self.tokens(ids))]),
            Label("ID", ids),
            Label("distance" if self.metric == "l2" else "score", written(scores, precision)),
        ]
        missing = omission(rows, "rank", np.arange(1, len(ranking.ids) + 1))
        if self.style.heat:
            labels = [
                each._replace(cells=["query" if each.header == "rank" else "", *each.cells])
                for each in labels
            ]
            values = np.concatenate([self.vectors[number][None], self.layer.rows(ids)]).astype(
                np.float32
            )
            columns, gaps = np.arange(values.shape[1]), [gap + 1 for gap in rows.gaps]
            yield Matrix(
                labels,
                [Values(values)],
                columns,
                gaps,
                heat=True,
                precision=precision,
                rows_left_out=missing,
            )
            return
        yield ruled([*labels, self._bars(number, scores)], gaps=rows.gaps)
        note = left_out(missing)
        if note is not None:
            yield note

    def _bars(self, number: int, shown: np.ndarray) -> Label:
        """Return a bar for each score on the scale of its metric, whose ends are the header: the longer, the nearer.

        A full bar is the score of the query itself or a larger product, no bar that of a perpendicular row as long.
        """
        from embcli.page import Label, safe_text
        from embcli.page.labels import bar

        square, most = (
            float(np.square(self.vectors[number]).sum()),
            float(self.search.rankings[number].scores.max()),
        )
        ends = {
            "cosine": (0.0, 1.0),
            "dot": (0.0, max(square, most)),
            "l2": (math.sqrt(2 * square), 0.0),
        }
        nothing, full = ends[self.metric]
        shares = (shown - nothing) / ((full - nothing) or -1)  # a query of zeros has no scale
        low, high = (f"{end:.3g}" for end in (nothing, full))
        bars = [
            safe_text(bar(share, _BAR) if share > 0 else "", "accent") for share in shares.tolist()
        ]
        return Label(f"{low}{high:>{_BAR - len(low)}}", bars, "left", minimum=_BAR)


def neighbors(
    model: Opened,
    text: TextOrIds | None = None,
    *,
    special: bool = False,
    lines: bool = False,
    plus: Sequence[str] = (),
    minus: Sequence[str] = (),
    vector: np.ndarray | None = None,
    metric: Metric = "cosine",
    top: int = 10,
    match: str | None = None,
    rows: str | None = None,
) -> Neighbors:
    """Return the rows nearest to the mean row of a text's tokens, or to a vector, (D,) or (n, D) float32.

    The first `top` by their scores in float64; `plus` and `minus` add and subtract the
    rows of other tokens. Raises InputError for queries without a row, and for rows that are not finite or zero.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).neighbors([2], top=2).ids.tolist()
    [0, 1]
    """
    notes = model.notes.begun()
    remark_scaled(notes, model)
    if vector is not None and text is None:
        queries = queries_of_vectors(vector, model.shape[1])
    elif text is not None and vector is None:
        tokens = model.tokens(text, special, lines, notes=notes, has_added=False)
        encoding = model.encoding if tokens.texts is not None else None
        queries = queries_of_tokens(tokens, encoding, plus, minus, model.shape[0], notes)
    else:
        raise InputError(Sentence("give {text} or {vector}, one of them"))
    if vector is not None and (plus or minus):
        raise InputError(
            Sentence("{plus} and {minus} are for the tokens of a text, not for {vector}")
        )
    check_choice("metric", metric, get_args(Metric))
    check_top(top)
    source = model.source
    encoding = source.encoding
    size, _ = model.shape
    among = None if rows is None and match is None else np.unique(select(rows, size, "row"))
    if match is not None and among is not None:
        try:
            pattern = re.compile(match)
        except re.error as error:
            wrong = Sentence(
                "{match} {given!r} is not a regular expression: {error}",
                given=match[:60],
                error=error,
            )
            raise InputError(wrong) from None
        if encoding is None:
            needs = "{match} {given!r} needs tokens, and these rows stand for no known tokens"
            raise InputError(Sentence(needs, given=match[:40]))
        texts = map(token_text, tokens_of(among, encoding))
        among = among[[text is not None and bool(pattern.search(text)) for text in texts]]
    layers = source.open({"token": None}, notes)
    layer = layers["token"]
    vectors = [_vector(query, number, layer, metric) for number, query in enumerate(queries, 1)]
    excluded = [
        np.concatenate([each.ids, *each.plus, *each.minus]).astype(np.int64) for each in queries
    ]
    search = nearest(layer, vectors, top, metric, among, excluded, model.watch)
    return Neighbors(metric, queries, vectors, search, layer, encoding, layers.origin, notes=notes)


def _vector(query: Query, number: int, layer: Layer, metric: Metric) -> np.ndarray:
    """Return the vector of a query, (D,) float64; queries count from 1."""

    def without_direction(what: str) -> InputError:
        return InputError(
            Sentence("{what} is zero and has no direction; use {metric} dot or l2", what=what)
        )

    vector = np.zeros(layer.shape[1]) if query.vector is None else query.vector.astype(np.float64)
    terms = [] if query.vector is not None else [(1, query.ids)]
    for sign, ids in (
        *terms,
        *((1, each) for each in query.plus),
        *((-1, each) for each in query.minus),
    ):
        rows = layer.rows(ids)
        not_finite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(not_finite):
            raise InputError(
                f"row {int(ids[not_finite[0]])} contains NaN or infinity and has no neighbours"
            )
        term = rows.astype(np.float64).mean(axis=0)
        norm = float(np.linalg.norm(term))
        if metric == "cosine" and not norm:
            many = f"the mean of rows {', '.join(map(str, ids[:8]))}"
            raise without_direction(f"row {int(ids[0])}" if len(ids) == 1 else many)
        vector += sign * (
            term / norm if metric == "cosine" and (query.plus or query.minus) else term
        )
    if metric == "cosine" and not vector.any():
        raise without_direction(f"query {number:,}")
    return vector


def queries_of_tokens(
    tokens: Tokens,
    encoding: Encoding | None,
    plus: Sequence[str],
    minus: Sequence[str],
    rows: int,
    notes: Notes,
) -> list[Query]:
    """Return a query for each sequence of tokens, with the same terms added and subtracted.

    Terms are texts in an encoding, or IDs if that is None; a note says if their first space is a token of its own.
    Raises InputError for a sequence without tokens and for IDs that a layer of `rows` rows does not have.
    """
    plus, minus = ((given,) if isinstance(given, str) else given for given in (plus, minus))
    if any(re.search(" [-+] ", text) for text in tokens.texts or ()):
        notes.add(Sentence("a text is no rule: {minus} and {plus} subtract and add rows"))
    if encoding is not None:
        for text in filter(re.compile(" (?! )").match, (*(tokens.texts or ()), *plus, *minus)):
            others = encoding.encode(text).tolist()[1:]
            spaced = bool(others) and (encoding.token_bytes(others[0]) or b"").startswith(b" ")
            if spaced and encoding.encode(text[1:]).tolist() == others:
                notes.add(
                    f"the tokenizer itself puts a space before a text: leave out the one in {text[:40]!r}"
                )
    check_ids(tokens, rows, can_enlarge=False)
    terms: dict[str, tuple[np.ndarray, ...]] = {}
    for parameter, given in (("plus", plus), ("minus", minus)):
        terms[parameter] = tuple(
            parse_ids(each) if encoding is None else encoding.encode(each) for each in given
        )
        for term, ids in zip(given, terms[parameter], strict=True):
            if not len(ids):
                named = {"parameter": Parameter(parameter), "term": term[:40]}
                raise InputError(Sentence("{parameter} {term!r} has no tokens", **named))
            check_ids(Tokens(ids, np.array([0, len(ids)]), encoding), rows, can_enlarge=False)
    sequences = [
        tokens.ids[start:stop].astype(np.int64) for start, stop in pairwise(tokens.starts.tolist())
    ]
    empty = next((number for number, ids in enumerate(sequences, 1) if not len(ids)), 0)
    if empty or not sequences:
        where = f"line {empty:,} has" if tokens.many and empty else "the input has"
        raise InputError(f"{where} no tokens, so there are no neighbours")
    return [Query(ids, terms["plus"], terms["minus"]) for ids in sequences]


def queries_of_vectors(vectors: np.ndarray, dim: int) -> list[Query]:
    """Return a query for each vector, (n, D) or (D,); raises InputError for numbers that float32 does not hold."""
    with np.errstate(over="ignore"):
        rows = np.atleast_2d(np.asarray(vectors, np.float32))
    if rows.shape[1:] != (dim,) or not np.isfinite(rows).all():
        wanted = (
            "{vector} must have rows of D = {dim_of_rows:,} finite numbers, not the shape {shape}"
        )
        raise InputError(Sentence(wanted, dim_of_rows=dim, shape=rows.shape))
    return [Query(np.empty(0, np.int64), vector=row) for row in rows]


def vectors_in_array(path: Path) -> np.ndarray:
    """Return the vectors of a .npy file, (n, D) or (D,) float32; raises InputError for what is not numbers."""
    try:
        with path.open("rb") as file, np.errstate(over="ignore"):
            return numpy_format.read_array(file, allow_pickle=False).astype(
                np.float32, casting="same_kind"
            )
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {str(path)!r}: {getattr(error, 'strerror', error)}"
        ) from None


def vectors_in_lines(text: str, dim: int) -> np.ndarray:
    """Return the vectors in the lines of a text, (n, D) float32: JSON arrays, or objects as `lookup` writes them.

    Of an object the vector `input` is taken, or the only one there is. Numbers become float32, the dtype that `lookup`
    writes. Raises InputError for anything else, with its line number.
    """
    import orjson

    vectors = []
    for number, line in enumerate(lines_of(text), 1):
        if not line.strip():
            continue
        value: Any = None
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(line)
        if isinstance(value, dict) and isinstance(named := value.get("vectors"), dict):
            value = named.get("input", next(iter(named.values())) if len(named) == 1 else None)
        is_row = (
            isinstance(value, list)
            and len(value) == dim
            and all(type(each) in (int, float) for each in value)
        )
        with np.errstate(over="ignore"):
            vector = np.array(value if is_row else np.nan, np.float64).astype(np.float32)
        if not np.isfinite(vector).all():
            wanted = f"is not an array of D = {dim:,} finite float32 numbers, nor an object with one as vectors.input"
            named = {"number": number, "line": line[:40], "wanted": wanted}
            raise InputError(Sentence("line {number:,} of {vector}, {line!r}, {wanted}", **named))
        vectors.append(vector)
    if not vectors:
        raise InputError(
            Sentence("{vector} has no vectors; it takes a JSON array of numbers per line")
        )
    return np.stack(vectors)

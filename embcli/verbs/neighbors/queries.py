"""The queries of a search: read from texts, IDs or arrays, and turned into vectors.

`neighbors` makes a Query of each text or vector, and `vector_of` looks up and adds its rows. The
command reads vectors from files with `vectors_in_array`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as numpy_format

from embcli.errors import InputError, Notes
from embcli.layer import Layer
from embcli.names import Metric
from embcli.records import Document
from embcli.text import parse_ids
from embcli.tokens import Tokens, check_ids
from embcli.wording import Parameter, Sentence

Terms = tuple[np.ndarray, ...]  # the IDs of each term, (n,) int64


class Query(NamedTuple):
    """The mean of some rows, with the means of other rows added and subtracted, or a vector."""

    ids: np.ndarray  # (n,) int64
    plus: Terms = ()
    minus: Terms = ()
    vector: np.ndarray | None = None  # (D,) float32, instead of IDs

    @property
    def all_ids(self) -> np.ndarray:
        """The IDs of all its terms, (n,) int64."""
        return np.concatenate([self.ids, *self.plus, *self.minus]).astype(np.int64)

    def document(self) -> Document:
        """Return the IDs as they stand in a JSON document."""
        return {
            "ids": self.ids.tolist(),
            "plus": [ids.tolist() for ids in self.plus],
            "minus": [ids.tolist() for ids in self.minus],
        }


def queries_of_tokens(
    tokens: Tokens,
    plus: Sequence[str],
    minus: Sequence[str],
    rows: int,
    notes: Notes,
) -> list[Query]:
    """Return a query for each sequence of tokens, with the same terms added and subtracted.

    Terms of texts are texts, and those of IDs are IDs. Raises InputError for a sequence without
    tokens and for IDs that a layer of `rows` rows does not have.
    """
    # A dash without blanks only joins words.
    if any(re.search(r" [-+] |[^\W\d]\+[^\W\d]", text) for text in tokens.texts or ()):
        notes.add(Sentence("a text is no rule: {minus} and {plus} subtract and add rows"))

    sequences = np.split(tokens.ids.astype(np.int64), tokens.starts[1:-1])
    if tokens.reading is not None and tokens.texts:
        sequences = [tokens.reading.ids_of_token(text) for text in tokens.texts]
    check_ids(tokens, rows, can_enlarge=False)
    added = _terms("plus", plus, tokens, rows)
    subtracted = _terms("minus", minus, tokens, rows)
    for number, ids in enumerate(sequences, 1):
        if not len(ids):
            where = f"line {number:,}" if tokens.many else "the input"
            raise InputError(f"{where} has no tokens, so there are no neighbours")
    return [Query(ids, added, subtracted) for ids in sequences]


def _terms(parameter: str, texts: Sequence[str], tokens: Tokens, rows: int) -> Terms:
    """Return the IDs of each term that a parameter adds or subtracts, (n,) each."""
    texts = (texts,) if isinstance(texts, str) else texts
    encode = parse_ids
    if tokens.reading is not None and tokens.texts is not None:
        encode = tokens.reading.ids_of_token
    terms = []
    for text in texts:
        ids = encode(text)
        if not len(ids):
            raise InputError(
                "{parameter} {term!r} has no tokens", parameter=Parameter(parameter), term=text[:40]
            )
        check_ids(Tokens(ids, np.array([0, len(ids)]), tokens.reading), rows, can_enlarge=False)
        terms.append(ids)
    return tuple(terms)


def queries_of_vectors(vectors: Any, dim: int) -> list[Query]:
    """Return a query for each vector, (n, D) or (D,).

    Raises InputError for another shape, and for numbers that float32 does not hold.
    """
    try:
        with np.errstate(over="ignore"):
            rows = np.atleast_2d(np.asarray(vectors, np.float32))
    except (TypeError, ValueError):
        raise InputError(
            "{vector} must be an array of numbers, not {given}", given=repr(vectors)[:60]
        ) from None
    if rows.shape[1:] != (dim,) or not np.isfinite(rows).all():
        raise InputError(
            "{vector} must have rows of D = {dim_of_rows:,} finite numbers, not the shape {shape}",
            dim_of_rows=dim,
            shape=rows.shape,
        )
    return [Query(np.empty(0, np.int64), vector=row) for row in rows]


def vectors_in_array(data: bytes, name: str) -> np.ndarray:
    """Return the vectors of a .npy file, (n, D) or (D,) float32, from its bytes.

    Raises InputError, with the name of the file, for an array of anything but numbers.
    """
    try:
        with np.errstate(over="ignore"):
            array = numpy_format.read_array(io.BytesIO(data), allow_pickle=False)
            return array.astype(np.float32, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"cannot read {name}: {error}", "-f npy writes vectors: embcli lookup TEXT -f npy"
        ) from None


_NO_DIRECTION = "{what} is zero and has no direction; use {metric} dot or l2"


def vector_of(query: Query, number: int, layer: Layer, metric: Metric) -> np.ndarray:
    """Return the vector of a query, (D,) float64; queries count from 1.

    Raises InputError for rows that are not finite, and under cosine for a zero vector.
    """
    if query.vector is not None:
        vector = query.vector.astype(np.float64)
    else:
        has_terms = bool(query.plus or query.minus)
        vector = np.zeros(layer.shape[1])
        for ids in (query.ids, *query.plus):
            vector += _mean_row(ids, layer, metric, has_terms)
        for ids in query.minus:
            vector -= _mean_row(ids, layer, metric, has_terms)
    if metric == "cosine" and not vector.any():
        raise InputError(_NO_DIRECTION, what=f"query {number:,}")
    return vector


def _mean_row(ids: np.ndarray, layer: Layer, metric: Metric, is_term: bool) -> np.ndarray:
    """Return the mean of some rows, (D,) float64; under cosine a term of a sum has length 1."""
    rows = layer.rows(ids)
    not_finite = ids[~np.isfinite(rows).all(axis=1)]
    if len(not_finite):
        raise InputError(f"row {int(not_finite[0])} contains NaN or infinity and has no neighbours")
    mean: np.ndarray = rows.astype(np.float64).mean(axis=0)
    if metric != "cosine":
        return mean
    length = float(np.linalg.norm(mean))
    if not length:
        names = ", ".join(str(row) for row in ids[:8])
        raise InputError(_NO_DIRECTION, what=f"the mean row of ID {names}")
    return mean / length if is_term else mean

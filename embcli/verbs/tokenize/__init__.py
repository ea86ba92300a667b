"""Tokenizing: text as tokens, each with its ID, its bytes, and its span in the text.

`tokenize` makes a Tokenization, which is plain data; `page` shows it. Its spans are computed only
if they are asked for, so that a long text can be written as IDs only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from embcli.opened import Opened, TextOrIds
from embcli.records import Columns, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.tokens import Reading, Tokens, check_known


@dataclass(frozen=True, eq=False)
class Tokenization(Result, verb="tokenize"):
    """The tokens of texts, or of IDs, which have no text but that of their tokens.

    As a sequence it has their IDs: `len(result)` is T, `result.shape` (T,), `result[0]` the first
    ID, and `list(result)` are all of them. `list(result.tokens)` are the tokens as text.
    """

    tokens: Tokens

    def __post_init__(self) -> None:
        if self.tokens.encoding is not None:
            check_known(self.tokens.ids, self.tokens.encoding)

    @cached_property
    def ids(self) -> np.ndarray:
        """The token IDs, (T,) int64, as torch's layers take them."""
        return self.tokens.ids.astype(np.int64)

    def __len__(self) -> int:
        return len(self.tokens)

    def __bool__(self) -> bool:
        return len(self) > 0

    @property
    def shape(self) -> tuple[int, ...]:
        """(T,), the shape of the IDs."""
        return self.ids.shape

    def __iter__(self) -> Iterator[int]:
        return iter(self.tokens.ids.tolist())

    def __getitem__(self, index: int | slice) -> Any:
        return self.tokens.ids[index].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.ids, dtype, copy=copy)

    @cached_property
    def _decoded_otherwise(self) -> str:
        """What of the texts the tokens do not decode to; empty for IDs, and for equal bytes."""
        tokens = self.tokens
        if tokens.reading is None or tokens.texts is None:
            return ""
        found = ""
        bos, eos = tokens.reading.added
        for text, (start, stop) in zip(
            tokens.texts, pairwise(tokens.starts.tolist()), strict=False
        ):
            ids = tokens.ids[start + len(bos) : stop - len(eos)]
            decoded = tokens.reading.encoding.decode(ids)
            if b"".join(decoded.split()) != "".join(text.split()).encode():
                return "they decode to another text"
            if decoded != text.encode():
                found = "they decode to other white space"
        return found

    @cached_property
    def joined(self) -> np.ndarray:
        """Which tokens begin in the middle of a character, (T,) bool."""
        return self.tokens.measured(lambda token: b"\x80" <= token[:1] < b"\xc0").astype(bool)

    @cached_property
    def spans(self) -> np.ndarray:
        """First and last + 1 character of each token in its sequence, (T, 2) int64.

        All tokens that share a character have the whole character in their spans.
        """
        tokens = self.tokens
        if tokens.spans is not None:
            return tokens.spans
        counts = characters_begun(tokens)
        ends = np.cumsum(counts)
        sequence_starts = np.append(0, ends)[tokens.starts[:-1]]
        bases = np.repeat(sequence_starts, np.diff(tokens.starts))
        starts = np.maximum(ends - counts - self.joined, bases)
        return np.stack([starts - bases, ends - bases], axis=1)

    def _records(self) -> Records:
        count = len(self.tokens)
        sequences = self.tokens.sequences
        fields = {
            **self.tokens.field_types,
            "bytes": str,
            "start": int,
            "end": int,
        }
        return Records(
            run_of(self.tokens.encoding, sequences=sequences),
            "tokens",
            count,
            fields,
            in_pieces(count, len(fields), self._values),
            sequences=sequences,
        )

    def _values(self, index: np.ndarray, names: Names) -> Columns:
        """Return the named fields of some tokens, (n,) int64."""
        values = self.tokens.fields(index, names)
        if "bytes" in names:
            tokens = self.tokens.bytes_of(self.tokens.ids[index])
            values["bytes"] = [(token or b"").hex() for token in tokens]
        if "start" in names:
            values["start"] = self.spans[index, 0]
        if "end" in names:
            values["end"] = self.spans[index, 1]
        return values


def characters_begun(tokens: Tokens) -> np.ndarray:
    """Return how many characters begin in each token, (T,) int64.

    In UTF-8 these are its bytes except those of the form 10xxxxxx.
    """
    return tokens.measured(lambda token: sum(byte & 0xC0 != 0x80 for byte in token))


def tokenize(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    no_added: bool = False,
    lines: bool = False,
) -> Tokenization:
    """Return the tokens of a text: IDs, bytes, and the span of each in characters.

    Special tokens are plain text unless `special`, which also adds those that a model reads around
    a text, unless `no_added`. `lines` makes each line a sequence. Raises InputError for IDs that
    the encoding does not have.

    >>> import embcli
    >>> embcli.seeded().tokenize("Every effort").ids.tolist()
    [6109, 3626]
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, lines, notes=notes, has_added=not no_added)
    if tokens.reading is None and model.encoding is not None:
        # IDs are those of the encoding even if the rows of the model are not.
        tokens = replace(tokens, reading=Reading(model.encoding))
    return Tokenization(tokens, notes=notes)

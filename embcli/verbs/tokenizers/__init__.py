"""One text under several tokenizers: how many tokens each makes, and where they cut differently.

`tokenizers` makes a Tokenizers, which is plain data. `measure` finds the cuts and the segments
between those that all encodings share, `page` shows the tokens as running text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from embcli.encodings import Encoding, get_several
from embcli.errors import InputError, Notes
from embcli.names import __version__
from embcli.opened import TextOrIds
from embcli.records import FieldType, Names, Piece, Records
from embcli.result import Result
from embcli.text import encode_sequences, sequences_of
from embcli.tokens import Tokens
from embcli.verbs.tokenize import Tokenization
from embcli.verbs.tokenizers.measure import segments_of, token_ends


@dataclass(frozen=True, eq=False)
class Tokenizers(Result, verb="tokenizers"):
    """The tokens of a text, or of several, in each encoding.

    Places are counted in bytes of all texts; one more place is between two texts. A token extends
    from the end of the previous one, so that spaces which an encoding drops belong to the token
    after them.
    """

    texts: tuple[str, ...]
    encodings: tuple[Encoding, ...]
    tokens: tuple[Tokens, ...]  # by encoding
    ends: tuple[np.ndarray, ...]  # by encoding: the place where each token ends, (T,) int64
    bases: np.ndarray  # (texts + 1,) int64: where each text begins, and one place after the last

    @property
    def counts(self) -> list[int]:
        """How many tokens each encoding makes."""
        return [len(tokens) for tokens in self.tokens]

    @cached_property
    def _segments(self) -> np.ndarray:
        return segments_of(self.ends, self.bases)

    @property
    def same(self) -> int:
        """How many tokens are the same in all encodings."""
        return int(self._segments.sum())

    @property
    def different(self) -> int:
        """How many segments of the text are cut differently."""
        return int((~self._segments).sum())

    def records(self) -> Records:
        """Return a row for each token, encoding by encoding; the totals stand beside the rows."""
        token_fields = Tokenization(self.tokens[0]).records().fields
        fields: dict[str, FieldType] = {"encoding": str, **token_fields}
        characters = sum(map(len, self.texts))
        run = {
            "embcli": __version__,
            "sequences": len(self.texts),
            "characters": characters,
            "bytes": int(self.bases[-1]) - len(self.texts),
            "same": self.same,
            "different": self.different,
        }
        totals = []
        for encoding, count in zip(self.encodings, self.counts, strict=True):
            total = {
                "encoding": encoding.name,
                "vocabulary_size": encoding.vocabulary_size,
                "tokens": count,
                "characters_per_token": characters / count if count else None,
            }
            totals.append(total)
        more = {"encodings": totals}
        return Records(run, "tokens", sum(self.counts), fields, self._pieces, more=more)

    def _pieces(self, names: Names, _: Names) -> Iterator[Piece]:
        token_names = tuple(name for name in names if name != "encoding")
        for encoding, tokens in zip(self.encodings, self.tokens, strict=True):
            for piece in Tokenization(tokens).records().pieces(token_names, ()):
                values = {"encoding": [encoding.name] * piece.rows, **piece.fields}
                yield Piece(piece.rows, {name: values[name] for name in names})


def tokenizers(
    text: TextOrIds,
    encodings: Sequence[str | Path] | str | Path,
    *,
    special: bool = False,
    lines: bool = False,
    notes: Notes | None = None,
) -> Tokenizers:
    """Return one text, or several, under several tokenizers: the tokens of each, and their cuts.

    `encodings` are names and files as `seeded` and `open` take them; `lines` makes each line a text
    of its own. Raises InputError for IDs, for an encoding that is
    not found or given twice, and for none.

    >>> import embcli
    >>> result = embcli.tokenizers("Unbelievable!", ["gpt2", "o200k_base"])
    >>> result.counts, result.same, result.different
    ([5, 4], 3, 1)
    """
    sequences = sequences_of(text, lines)
    all_notes = Notes() if notes is None else notes
    found = get_several(encodings, all_notes)
    texts = sequences.texts
    if texts is None:
        raise InputError("only a text can be split by several tokenizers, not IDs")

    tokens = tuple(
        encode_sequences(sequences, encoding, special, has_added=False) for encoding in found
    )
    if not any(map(len, tokens)):
        all_notes.add("the input is empty: there are no tokens")
    sizes = [len(text.encode()) + 1 for text in texts]
    bases = np.cumsum([0, *sizes])
    ends = tuple(token_ends(tokens_of_one, texts, bases) for tokens_of_one in tokens)
    return Tokenizers(texts, found, tokens, ends, bases, notes=all_notes)

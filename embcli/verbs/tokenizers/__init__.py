"""One text under several tokenizers: the tokens that each makes of it.

`tokenizers` makes a Tokenizers, which is plain data; `page` shows the tokens as running text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embcli.encodings import Encoding, get_several
from embcli.errors import InputError, Notes
from embcli.names import Strings, __version__
from embcli.opened import TextOrIds
from embcli.records import Names, Piece, Records
from embcli.result import Result
from embcli.text import encode_sequences, sequences_of
from embcli.tokens import Tokens
from embcli.verbs.tokenize import Tokenization


@dataclass(frozen=True, eq=False)
class Tokenizers(Result, verb="tokenizers"):
    """The tokens of a text, or of several, in each encoding."""

    texts: Strings
    encodings: tuple[Encoding, ...]
    tokens: tuple[Tokens, ...]  # by encoding

    @property
    def counts(self) -> list[int]:
        """How many tokens each encoding makes."""
        return [len(tokens) for tokens in self.tokens]

    @property
    def bytes(self) -> int:
        """How many bytes the texts have in UTF-8."""
        return sum(len(text.encode()) for text in self.texts)

    def _records(self) -> Records:
        """Return a row for each token, encoding by encoding; the totals stand beside the rows."""
        fields = {"encoding": str, **Tokenization(self.tokens[0])._records().fields}
        characters = sum(map(len, self.texts))
        run = {
            "embcli": __version__,
            "encodings": [encoding.name for encoding in self.encodings],
            "sequences": len(self.texts),
            "characters": characters,
            "bytes": self.bytes,
        }
        totals = []
        for encoding, count in zip(self.encodings, self.counts, strict=True):
            totals.append(
                {
                    "encoding": encoding.name,
                    "vocabulary_size": encoding.vocabulary_size,
                    "tokens": count,
                    "characters_per_token": characters / count if count else None,
                }
            )
        return Records(
            run,
            "tokens",
            sum(self.counts),
            fields,
            self._pieces,
            more={"encodings": totals},
        )

    def _pieces(self, names: Names, _: Names) -> Iterator[Piece]:
        token_names = tuple(name for name in names if name != "encoding")
        for encoding, tokens in zip(self.encodings, self.tokens, strict=True):
            for piece in Tokenization(tokens)._records().pieces(token_names, ()):
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
    """Return one text, or several, under several tokenizers: the tokens of each.

    `encodings` are names and files as `seeded` and `open` take them; `lines` makes each line a text
    of its own. Raises InputError for IDs, for an encoding that is
    not found or given twice, and for none.

    >>> import embcli
    >>> result = embcli.tokenizers("Unbelievable!", ["gpt2", "o200k_base"])
    >>> result.counts, list(result.tokens[1])
    ([5, 4], ['Un', 'bel', 'ievable', '!'])
    """
    sequences = sequences_of(text, lines)
    all_notes = notes or Notes()
    found = get_several(encodings, all_notes)
    texts = sequences.texts
    if texts is None:
        raise InputError("only a text can be split by several tokenizers, not IDs")

    tokens = tuple(
        encode_sequences(sequences, encoding, special, has_added=False, notes=all_notes)
        for encoding in found
    )
    if not any(map(len, tokens)):
        all_notes.add("the input is empty")
    return Tokenizers(texts, found, tokens, notes=all_notes)

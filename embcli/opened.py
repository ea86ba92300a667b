"""What a verb is given: layers, perhaps with the rows of a real model, and the encoding of texts.

A verb is a function of `Opened` and its own parameters; `model.py` makes these functions methods of `Model`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError, Notes, Watch, unwatched
from embcli.layer import Source, shape_of
from embcli.names import LayerName
from embcli.text import Sequences, lines_of
from embcli.tokens import Tokens, shown, tokenize
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from embcli.encodings import Encoding

TextOrIds = str | Sequence[str] | Sequence[int] | np.ndarray | Sequences | Tokens
_SPECIAL = re.compile(r"<\|\w+\|>")  # most names of special tokens


class Opened:
    """A source of layers and the encoding of texts, as `open` and `seeded` have found them.

    It does not change: what a call has to remark is in the notes of its result.
    """

    def __init__(
        self,
        source: Source,
        encoding: Encoding | None = None,
        notes: Notes | None = None,
        watch: Watch = unwatched,
    ) -> None:
        self.source = source
        self.encoding = encoding  # of texts; None where none is known
        self.notes = Notes() if notes is None else notes  # of opening
        self.watch = watch

    @property
    def shape(self) -> tuple[int, int]:
        """(V, D) of the token layer."""
        return shape_of(self.source, "token")

    def tokens(
        self,
        given: TextOrIds,
        special: bool = False,
        lines: bool = False,
        *,
        notes: Notes | None = None,
        has_added: bool = True,
    ) -> Tokens:
        """Return the tokens of a text, of several texts, or of IDs; remarks go to the notes.

        If `special` and `has_added`, these are also the tokens that the model reads before and after each text. Raises
        InputError for what is neither text nor IDs, and for a text without a known encoding.
        """
        if isinstance(given, Tokens):
            return given
        sequences = sequences_of(given, lines)
        encoding = self.source.encoding if sequences.texts is None else self.encoding
        if sequences.texts is not None and encoding is None:
            missing = "and no tokenizer that can be read, such as tokenizer.json, is beside them"
            unknown = Sentence(
                "these rows belong to no known encoding, {missing}: give {ids}, or {encoding}",
                missing=missing,
            )
            raise InputError(unknown)
        tokens = tokenize(sequences, encoding, special, has_added)
        if notes is not None:
            if encoding is not None and not special:
                _remark_special(tokens, encoding, has_added, notes)
            if not len(tokens):
                notes.add("the input is empty: there are no tokens")
        return tokens

    def resolve_rows(self, rows: str | None, layer: LayerName = "token") -> str | None:
        """Return chosen rows with IDs in place of tokens, which may begin with a space that is not given.

        Raises InputError for a text that is not one token.
        """
        encoding = self.source.encoding if layer == "token" else None
        if encoding is None or not isinstance(rows, str):
            return rows
        parts = rows.split(",")
        for place, part in enumerate(parts):
            if any(character.isalpha() for character in part):  # no ID
                found = [ids for ids in map(encoding.encode, (part, f" {part}")) if len(ids) == 1]
                if not found:
                    what = f"{part[:40]!r} is {counted(len(encoding.encode(part)), 'token')}"
                    raise InputError(Sentence("{rows} takes IDs and tokens, and {what}", what=what))
                parts[place] = str(found[0][0])
        return ",".join(parts)


def _remark_special(tokens: Tokens, encoding: Encoding, has_added: bool, notes: Notes) -> None:
    """Remark which special tokens the model reads around a text, and which stand in the texts as plain text."""
    texts = tokens.texts or ()
    bos_eos = (
        zip(encoding.bos_eos, ("before", "after"), strict=True)
        if has_added and tokens.texts is not None
        else ()
    )
    read = []
    for ids, where in bos_eos:
        if ids:
            added = " ".join(shown(encoding.token_bytes(each)) for each in ids)
            read.append(f"{added} {where}")
    if read:
        notes.add(
            Sentence("the model reads {read} a text; {special} adds them", read=" and ".join(read))
        )

    written = {name for text in texts for name in _SPECIAL.findall(text)}
    plain = [name for name in sorted(written) if len(encoding.encode(name, special=True)) == 1]
    if plain:
        notes.add(
            Sentence(
                "{plain} is read as plain text; {special} makes it one token", plain=" ".join(plain)
            )
        )


def remark_scaled(notes: Notes, *models: Opened) -> None:
    """Remark if a model multiplies its token rows: some verbs take them as they are stored."""
    for model in models:
        with suppress(InputError):  # a config.json that does not fit is no matter here
            recipe = model.source.recipe
            if recipe is not None and recipe.scale != 1:
                notes.add(
                    f"the rows are as stored; the model multiplies them by {recipe.scale:.6g}"
                )


def sequences_of(given: Any, lines: bool = False) -> Sequences:
    """Return what was given as sequences of text or of IDs; raises InputError for anything else."""
    if isinstance(given, Sequences):
        return given
    if isinstance(given, str):
        return Sequences(texts=tuple(lines_of(given)) if lines else (given,), many=lines)
    if isinstance(given, list | tuple) and given and all(isinstance(each, str) for each in given):
        return Sequences(texts=tuple(given), many=True)
    return Sequences(ids=(ids_of(given),))


def ids_of(given: Any) -> np.ndarray:
    """Return token IDs as an array, (T,) int64; raises InputError for anything else."""
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(f"this is neither a text nor a list of token IDs: {str(given)[:60]!r}")
    return ids.astype(np.int64)

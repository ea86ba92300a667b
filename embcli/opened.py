"""What verbs work on: a source of layers, and the encoding of texts.

`open` makes it of a file and `seeded` of a seed; neither reads a row. A verb is a function of
`Opened` and its own parameters; `model.py` makes these functions methods of `Model`. Text and IDs
in all the forms that a user can give become tokens here.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli import names
from embcli.errors import InputError, Notes, Watch, unwatched
from embcli.layer import Source, shape_of
from embcli.selection import Selection
from embcli.text import Sequences, lines_of
from embcli.tokens import Tokens, hint_at_token, shown, tokenize
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from embcli.encodings import Encoding

TextOrIds = str | int | Sequence[Any] | np.ndarray | Sequences | Tokens


# Models have rows without a token, but a tokenizer with fewer tokens for their rows is another's.
_LEAST_SHARE = 0.75


class Opened:
    """A source of layers and the encoding of texts, as `open` and `seeded` have found them.

    It does not change: the remarks of a call are in the notes of its result.
    """

    def __init__(
        self,
        source: Source,
        encoding: Encoding | None = None,
        notes: Notes | None = None,
        watch: Watch = unwatched,
    ) -> None:
        self.source = source
        self.encoding = encoding  # reads texts; None if it is unknown
        # Remarks on how it was opened; `watch` is for notes that are not given.
        self.notes = Notes(watch=watch) if notes is None else notes

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        encoding: str | Path | None = None,
        tensor: str | None = None,
        notes: Notes | None = None,
    ) -> Self:
        """Return a real model: a file, a folder, or `org/name[@revision]`.

        Names are those of the Hugging Face cache; `hf://org/name[@revision][/file]` is read over
        the network, as no other name is. Only the description of the tensors is read. `tensor`
        names the token matrix if it has an unknown name. If an encoder and a decoder both read
        tokens, the encoder counts. Unless it is named, the encoding is the file's own vocabulary, a
        tokenizer beside the weights, or that of tiktoken's with as many tokens as there are rows.
        Raises InputError for a model that is not found, damaged, or ambiguous.

        >>> import embcli, numpy, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "own.npy")
        >>> numpy.save(path, numpy.eye(2, 3, dtype=numpy.float32))
        >>> embcli.open(path)[1].tolist()
        [0.0, 1.0, 0.0]
        """
        from embcli import encodings
        from embcli.files.checkpoint import Checkpoint

        if not isinstance(path, (str, PathLike)):
            given = repr(path)[:60]
            raise InputError(Sentence("{path} must be a text or a Path, not {given}", given=given))
        remarks = Notes() if notes is None else notes
        checkpoint = Checkpoint(str(path), None if tensor is None else str(tensor), remarks)
        rows, _ = shape_of(checkpoint, "token")
        reason = ""
        known: Encoding | None
        if encoding is not None:
            known = encodings.get(encoding, remarks)
        else:
            tensors = checkpoint.tensors
            stored = tensors.own_words()
            try:
                known = encodings.tokenizer_beside(tensors.binary, stored, remarks)
            except InputError as error:
                remarks.add(f"{error}; it is ignored")
                checkpoint.tokenizer_error = error
                known = stored
            if known is None:
                known = encodings.encoding_of_size(rows)
                if known is not None:
                    reason = f"{known.name}, by the number of rows"
            if known is not None and not checkpoint.has_tokens:
                known = encodings.encoding_for_rows(known, rows)

        if known is not None and checkpoint.has_tokens:
            size = known.vocabulary_size
            least_size = 0 if encoding is None else rows * _LEAST_SHARE
            if not least_size <= size <= rows:
                sizes = f"{size:,} tokens, this matrix {counted(rows, 'row')}"
                remarks.add(f"{known.name} has {sizes}: {_doubt(size, rows)}")
        checkpoint.name_encoding(known, reason)
        return cls(checkpoint, known, remarks)

    @classmethod
    def seeded(
        cls,
        vocab: int | None = None,
        dim: int = names.DEFAULT_DIM,
        *,
        encoding: str | Path = names.DEFAULT_ENCODING,
        seed: int = names.DEFAULT_SEED,
        context_length: int = names.DEFAULT_CONTEXT_LENGTH,
        no_cache: bool = False,
        notes: Notes | None = None,
    ) -> Self:
        """Return a model with random layers, bit for bit those of `torch.manual_seed(seed)`.

        The token layer is `torch.nn.Embedding(vocab, dim)`, (V, D) float32, and the position layer,
        drawn right after it, `torch.nn.Embedding(context_length, dim)`, (C, D). V is by default
        that of the encoding. Nothing is drawn yet; drawn layers are kept in the user's cache folder
        unless `no_cache`. Raises InputError for an unknown encoding, and LayerError for shapes and
        seeds out of range.

        >>> import embcli
        >>> embcli.seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
        ['1.2753', '-0.201', '-0.1606']
        """
        from embcli import encodings
        from embcli.seeded_layers.seeded import Seeded
        from embcli.seeded_layers.source import SeededSource
        from embcli.store import Store

        remarks = Notes() if notes is None else notes
        known = encodings.get(encoding, remarks)
        if vocab is None:
            vocab = known.vocabulary_size
        rows_encoding = encodings.encoding_for_rows(known, vocab)
        store = None if no_cache else Store.from_environment(remarks)
        layers = Seeded(vocab, dim, context_length, seed)
        source = SeededSource(layers, store, rows_encoding)
        return cls(source, known, remarks)

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

        If `special` and `has_added`, the tokens that the model reads before and after each text are
        among them. Raises InputError for what is neither text nor IDs, and for a text without a
        known encoding.
        """
        if isinstance(given, Tokens):
            return given
        sequences = sequences_of(given, lines)
        if notes is None:
            notes = Notes()
        if sequences.texts is None:
            tokens = tokenize(sequences, self.source.encoding)
        else:
            if self.encoding is None:
                missing = "and no readable tokenizer, such as tokenizer.json, is beside them"
                unknown = (
                    "the encoding of these rows is unknown, {missing}: give {ids}, or {encoding}"
                )
                raise InputError(Sentence(unknown, missing=missing))
            for text in sequences.texts:
                remark = self.encoding.why_in_memory(text, special)
                if remark:
                    notes.add(remark)
            tokens = tokenize(sequences, self.encoding, special, has_added)
            if not special:
                _remark_special(sequences.texts, self.encoding, has_added, notes)
            _remark_twice(tokens, self.encoding, notes)
        if not len(tokens):
            notes.add("the input is empty: there are no tokens")
        return tokens


def seeded_for(
    ids: TextOrIds,
    vocab: int | None = None,
    dim: int = names.COMPARED_DIM,
    *,
    encoding: str = names.DEFAULT_ENCODING,
    seed: int = names.DEFAULT_SEED,
    notes: Notes | None = None,
) -> Opened:
    """Return a seeded model that is just large enough for these IDs.

    V is by default the largest ID + 1, or for text that of the encoding, and D is 5. The layer is
    not kept, and there is one position.

    >>> seeded_for([2, 3, 1]).shape
    (4, 5)
    """
    sequences = sequences_of(ids)
    if vocab is None and sequences.ids is not None:
        vocab = 1 + int(np.concatenate([[0], *sequences.ids]).max())
    return Opened.seeded(
        vocab, dim, encoding=encoding, seed=seed, context_length=1, no_cache=True, notes=notes
    )


def resolve_rows(
    rows: Selection | None, encoding: Encoding | None, notes: Notes
) -> Selection | None:
    """Return chosen rows with an ID in place of each token of an encoding.

    A token may begin with a space that the user left out, which a note says, and special tokens are
    found by their names. Raises InputError for a text that is not one token.
    """
    if encoding is None or not isinstance(rows, str):
        return rows
    parts = rows.split(",")
    for place, part in enumerate(parts):
        is_token = any(character.isalpha() for character in part)
        if is_token:
            parts[place] = str(_id_of_token(part, encoding, notes))
    return ",".join(parts)


def _doubt(size: int, rows: int) -> str:
    """Return the likely reason why a tokenizer has another number of tokens than there are rows."""
    if 0 < size - rows < size / 100:
        return "was resize_token_embeddings forgotten?"
    return "probably not its tokenizer"


def _id_of_token(text: str, encoding: Encoding, notes: Notes) -> int:
    """Return the ID of a text that is one token, by itself, after a space, or a special one."""
    for candidate, special in ((text, False), (f" {text}", False), (text, True)):
        ids = encoding.encode(candidate, special)
        if len(ids) == 1:
            if candidate != text:
                notes.add(f"{text!r} is not a token; this is the row of {candidate!r}")
            return int(ids[0])
    what = f"{text[:40]!r} is {counted(len(encoding.encode(text)), 'token')}"
    hint = hint_at_token(text, map(encoding.token_bytes, range(encoding.vocabulary_size)))
    raise InputError(Sentence("{rows} takes IDs and tokens, and {what}", what=what), hint)


_SPECIAL = re.compile(r"<\|\w+\|>")  # matches most names of special tokens


def _remark_special(
    texts: Sequence[str], encoding: Encoding, has_added: bool, notes: Notes
) -> None:
    """Remark on special tokens: those that the model adds, and those that count as plain text."""
    if has_added:
        bos, eos = encoding.bos_eos
        added = []
        if bos:
            added.append(f"{_in_words(bos, encoding)} before")
        if eos:
            added.append(f"{_in_words(eos, encoding)} after")
        if added:
            remark = "the model reads {read} a text; {special} adds them"
            notes.add(Sentence(remark, read=" and ".join(added)))

    names: set[str] = set()
    for text in texts:
        names.update(_SPECIAL.findall(text))
    plain = [name for name in sorted(names) if len(encoding.encode(name, special=True)) == 1]
    if plain:
        remark = "{plain} is read as plain text; {special} makes it one token"
        notes.add(Sentence(remark, plain=" ".join(plain)))


def _remark_twice(tokens: Tokens, encoding: Encoding, notes: Notes) -> None:
    """Remark on texts that begin with the name of the token that is added before them."""
    bos, eos = tokens.added
    if not bos:
        return
    first_places = tokens.starts[:-1] + len(bos)
    has_tokens = first_places < tokens.starts[1:] - len(eos)
    if (tokens.ids[first_places[has_tokens]] == bos[0]).any():
        remark = "{bos} is twice before a text: the text begins with it, and {special} adds it"
        notes.add(Sentence(remark, bos=_in_words(bos, encoding)))


def _in_words(ids: Sequence[int], encoding: Encoding) -> str:
    return " ".join(shown(encoding.token_bytes(token_id)) for token_id in ids)


def remark_scaled(notes: Notes, *models: Opened) -> None:
    """Remark if a model multiplies its token rows: some verbs take them as they are stored."""
    for model in models:
        # Only the scale of a recipe counts here, so a wrong config.json is ignored.
        with suppress(InputError):
            recipe = model.source.recipe
            if recipe is not None and recipe.scale != 1:
                notes.add(
                    f"the rows are as stored; the model multiplies them by {recipe.scale:.6g}"
                )


def sequences_of(text_or_ids: Any, lines: bool = False) -> Sequences:
    """Return texts or IDs as sequences; raises InputError for anything else."""
    if isinstance(text_or_ids, Sequences):
        return text_or_ids
    if isinstance(text_or_ids, str):
        texts = tuple(lines_of(text_or_ids)) if lines else (text_or_ids,)
        return Sequences(texts=texts, many=lines)
    if isinstance(text_or_ids, list | tuple) and text_or_ids:
        is_text = all(isinstance(item, str) for item in text_or_ids)
        if is_text:
            return Sequences(texts=tuple(text_or_ids), many=True)
    ids = ids_of(text_or_ids, most_dimensions=2)
    return Sequences(ids=tuple(np.atleast_2d(ids)), many=ids.ndim == 2, shape=ids.shape)


def ids_of(values: Any, most_dimensions: int = 1) -> np.ndarray:
    """Return one ID, (1,), or several, (T,) or (B, T), as int64; raises InputError for others."""
    ids = np.atleast_1d(array_of(values))
    if ids.size and ids.dtype.kind not in "iu":
        raise _neither_error(values)
    if ids.ndim > most_dimensions:
        wrong = f"IDs of shape {ids.shape} have {ids.ndim} dimensions, more than {most_dimensions}"
        raise InputError(f"{wrong}; ids[0] has one less")
    return ids.astype(np.int64)


def array_of(values: Any) -> np.ndarray:
    """Return values as an array; raises InputError for lists of different lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        lengths = [len(row) for row in values if hasattr(row, "__len__")]
        wrong = f"sequences of lengths {reprlib.repr(lengths)} are not one array of IDs"
        raise InputError(f"{wrong}; pad them, or give one at a time") from None


def _neither_error(values: Any) -> InputError:
    given = reprlib.repr(values)
    return InputError(f"this is neither a text nor a list of token IDs, such as [2]: {given}")

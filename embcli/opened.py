"""What verbs work on: a source of layers, and the encoding of texts.

`open` makes it of a file and `seeded` of a seed; neither reads a row. A verb is a function of
`Opened` and its own parameters; `model.py` makes these functions methods of `Model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli import names
from embcli.errors import InputError, Notes, WrongTypeError
from embcli.layer import Source, shape_of
from embcli.text import Sequences, encode_sequences, sequences_of
from embcli.tokens import Tokens
from embcli.wording import Elsewhere, counted

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

    from embcli.encodings import Encoding
    from embcli.files.checkpoint import Checkpoint

TextOrIds = str | int | np.integer[Any] | Sequence[Any] | np.ndarray | Sequences | Tokens


# Models have rows without a token, but a tokenizer with fewer tokens for their rows is another's.
_LEAST_SHARE = 0.75


class Opened:
    """A source of layers and the encoding of texts, as `open` and `seeded` have found them.

    It does not change: the remarks of a call are in the notes of its result.
    """

    def __init__(
        self,
        source: Any = None,
        encoding: Encoding | None = None,
        notes: Notes | None = None,
        **others: object,
    ) -> None:
        if not hasattr(source, "resized"):
            raise WrongTypeError("embcli.open(path) and embcli.seeded(vocab, dim) return a model")
        self.source: Source = source
        self.encoding = encoding  # reads texts; None if it is unknown
        self.notes = notes or Notes()  # remarks on how it was opened

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
        from embcli.encodings import get
        from embcli.files.checkpoint import Checkpoint

        if not isinstance(path, (str, PathLike)):
            raise WrongTypeError(
                "{path} must be a text or a Path, not {given}", given=repr(path)[:60]
            )
        remarks = notes or Notes()
        checkpoint = Checkpoint(str(path), tensor and str(tensor), remarks)
        rows, _ = shape_of(checkpoint, "token")
        if encoding is None:
            known = _encoding_of(checkpoint, rows, remarks)
        else:
            known = get(encoding, remarks)
        if known is not None and not checkpoint.roles.is_custom_tensor:
            size = known.vocabulary_size
            least_size = 0 if encoding is None else rows * _LEAST_SHARE
            if not least_size <= size <= rows:
                sizes = f"{counted(size, 'token')}, this matrix {counted(rows, 'row')}"
                doubt = "probably not its tokenizer"
                if 0 < size - rows < size / 100:
                    doubt = "was resize_token_embeddings forgotten?"
                remarks.add(f"{known.name} has {sizes}: {doubt}")
        checkpoint.encoding = known
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
        unless `no_cache`. Raises InputError for an unknown encoding, RangeError for numbers out of
        range, and LayerError for layers that do not fit into memory.

        >>> import embcli
        >>> embcli.seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
        ['1.2753', '-0.201', '-0.1606']
        """
        from embcli.encodings import get
        from embcli.seeded_layers.seeded import Seeded
        from embcli.seeded_layers.source import SeededSource
        from embcli.store import Store

        remarks = notes or Notes()
        known = get(encoding, remarks)
        if vocab is None:
            vocab = known.vocabulary_size
        source = SeededSource(
            Seeded(vocab, dim, context_length, seed),
            None if no_cache else Store.from_environment(remarks),
            known if vocab == known.vocabulary_size else None,
        )
        return cls(source, known, remarks)

    @property
    def shape(self) -> names.MatrixShape:
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
        remarks = notes or Notes()
        sequences = sequences_of(given, lines)
        encoding = self.source.encoding if sequences.texts is None else self.encoding
        if encoding is None and sequences.texts is not None:
            raise InputError(
                "the encoding of these rows is unknown, and no readable tokenizer, such as "
                "tokenizer.json, is beside them: give {ids}, or {encoding}",
                ids=Elsewhere("ids"),
                encoding=Elsewhere("encoding"),
            )
        tokens = encode_sequences(sequences, encoding, special, has_added, remarks)
        if not len(tokens):
            remarks.add("the input is empty")
        return tokens


def _encoding_of(checkpoint: Checkpoint, rows: int, notes: Notes) -> Encoding | None:
    """Return the encoding of a checkpoint's rows, by its files or by their number."""
    from embcli.encodings import encoding_of_size, tokenizer_beside

    tensors = checkpoint.tensors
    stored = tensors.own_words()
    try:
        known = tokenizer_beside(tensors.binary, stored, notes)
    except InputError as error:
        notes.add(f"{error}; it is ignored")
        checkpoint.tokenizer_error = error
        known = stored
    if known is None:
        known = encoding_of_size(rows)
        if known is not None:
            checkpoint.reasons["encoding"] = f"{known.name}, by the number of rows"
    is_other = known is not None and known.vocabulary_size != rows
    return None if is_other and checkpoint.roles.is_custom_tensor else known


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

    V is by default the largest ID + 1, or for text that of the encoding. The layer is not kept, and
    there is one position.

    >>> seeded_for([2, 3, 1]).shape
    (4, 5)
    """
    sequences = sequences_of(ids)
    if vocab is None and sequences.ids is not None:
        vocab = 1 + int(np.concatenate([[0], *sequences.ids]).max())
    return Opened.seeded(
        vocab, dim, encoding=encoding, seed=seed, context_length=1, no_cache=True, notes=notes
    )


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

"""A model: layers and an encoding, with the verbs as its methods.

`open` makes one of a file, `seeded` one of a seed. The library's users and the command call both;
they read no rows yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from embcli import names
from embcli.errors import InputError, Notes
from embcli.layer import shape_of
from embcli.opened import Opened, TextOrIds, array_of, sequences_of
from embcli.tokens import check_ids
from embcli.verbs.audit import audit
from embcli.verbs.batch import batch
from embcli.verbs.compare import compare
from embcli.verbs.decode import decode, decode_bytes
from embcli.verbs.diff import diff
from embcli.verbs.info import info
from embcli.verbs.lookup import lookup
from embcli.verbs.merges import merges
from embcli.verbs.neighbors import neighbors
from embcli.verbs.positions import positions
from embcli.verbs.tokenize import tokenize
from embcli.verbs.weights import weights
from embcli.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from embcli.encodings import Encoding


def seeded(
    vocab: int | None = None,
    dim: int = names.DEFAULT_DIM,
    *,
    encoding: str | Path = names.DEFAULT_ENCODING,
    seed: int = names.DEFAULT_SEED,
    context_length: int = names.DEFAULT_CONTEXT_LENGTH,
    no_cache: bool = False,
    notes: Notes | None = None,
) -> Model:
    """Return a model with random layers, bit for bit those of `torch.manual_seed(seed)`.

    The token layer is `torch.nn.Embedding(vocab, dim)`, (V, D) float32, and the
    position layer, drawn right after it, `torch.nn.Embedding(context_length, dim)`, (C, D). V is by
    default that of the encoding. Nothing is drawn yet; drawn layers are kept in the user's cache
    folder unless `no_cache`. Raises InputError for an unknown encoding, and LayerError for shapes
    and seeds out of range.

    >>> seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
    ['1.2753', '-0.201', '-0.1606']
    """
    from embcli import encodings
    from embcli.seeded_layers.seeded import Seeded
    from embcli.seeded_layers.source import SeededSource
    from embcli.store import Store

    remarks = Notes() if notes is None else notes
    known = encodings.get(encoding, remarks)
    size = known.vocabulary_size if vocab is None else vocab
    rows_encoding = encodings.encoding_for_rows(known, size)
    store = None if no_cache else Store.from_environment(remarks)
    layers = Seeded(size, dim, context_length, seed)
    source = SeededSource(layers, store, rows_encoding)
    return Model(source, known, remarks)


def seeded_for(
    ids: TextOrIds,
    vocab: int | None = None,
    dim: int | None = None,
    *,
    encoding: str | None = None,
    seed: int | None = None,
    notes: Notes | None = None,
) -> Model:
    """Return a seeded model that is just large enough for these IDs.

    V is by default the largest ID + 1, or for text that of the encoding, and D is 5. The layer is
    not kept, and there is one position.

    >>> seeded_for([2, 3, 1]).shape
    (4, 5)
    """
    sequences = sequences_of(ids)
    if vocab is None and sequences.ids is not None:
        largest_ids = [int(sequence.max(initial=0)) for sequence in sequences.ids]
        vocab = 1 + max(largest_ids, default=0)
    if dim is None:
        dim = names.COMPARED_DIM
    if seed is None:
        seed = names.DEFAULT_SEED
    return seeded(
        vocab,
        dim,
        encoding=encoding or names.DEFAULT_ENCODING,
        seed=seed,
        context_length=1,
        no_cache=True,
        notes=notes,
    )


# Models have rows without a token, but a tokenizer with fewer tokens for their rows is another's.
_LEAST_SHARE = 0.75


def open(
    path: str | Path,
    *,
    encoding: str | Path | None = None,
    tensor: str | None = None,
    base: Model | None = None,
    notes: Notes | None = None,
) -> Model:
    """Return a real model: a file, a folder, or `org/name[@revision]` in the Hugging Face cache.

    `hf://org/name[@revision][/file]` is read over the network, as no other name is.
    Only the description of the tensors is read. `tensor` names the token matrix if it has an
    unknown name. If an encoder and a decoder both read tokens, the encoder counts. Unless it is
    named, the encoding is the file's own vocabulary, a tokenizer beside the weights, or that of
    tiktoken's with as many tokens as there are rows. If the file is a LoRA adapter of PEFT's with
    rows of embeddings, it is applied to `base`. Raises InputError for a model that is not found,
    damaged, or ambiguous.

    >>> import numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "own.npy")
    >>> numpy.save(path, numpy.eye(2, 3, dtype=numpy.float32))
    >>> open(path)[1].tolist()
    [0.0, 1.0, 0.0]
    """
    from embcli import encodings
    from embcli.files.checkpoint import Checkpoint

    remarks = Notes() if notes is None else notes
    if base is not None and isinstance(base.source, Checkpoint) and _is_adapter(path):
        from embcli.files.adapter import AdaptedSource

        return Model(AdaptedSource(base.source, str(path)), base.encoding, remarks)
    checkpoint = Checkpoint(str(path), None if tensor is None else str(tensor), remarks)
    rows, _ = shape_of(checkpoint, "token")
    reason = ""
    known: Encoding | None
    if encoding is not None:
        known = encodings.get(encoding, remarks)
    else:
        tensors = checkpoint.tensors
        known = encodings.encoding_of_file(tensors.binary, tensors.own_words(), remarks)
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
            remarks.add(f"{known.name} has {sizes}: probably not its tokenizer")
    checkpoint.name_encoding(known, reason)
    return Model(checkpoint, known, remarks)


def _is_adapter(path: str | Path) -> bool:
    from embcli.files import open_named
    from embcli.files.adapter import adapted_modules

    return bool(adapted_modules(open_named(str(path))))


class Model(Opened):
    """Layers and the encoding of texts; make one by `seeded` or `open`.

    `len(model)` is V, `model.shape` (V, D). `model[6109]` is a row, (D,) float32; `model[[1, 2]]`,
    `model[0:5]` and `model["Every effort"]` are rows, (n, D) float32, those of a text one per
    token: never a mean. `" effort" in model` tells whether a text is one token with a row. The
    methods take a text, several texts, or IDs; each returns a frozen result, which shows itself as
    the command shows it. A model can be used from several threads.
    """

    tokenize = tokenize
    merges = merges
    decode = decode
    decode_bytes = decode_bytes
    weights = weights
    lookup = lookup
    compare = compare
    batch = batch
    positions = positions
    neighbors = neighbors
    audit = audit
    diff = diff
    info = info

    def __dir__(self) -> list[str]:
        internal = ("source", "watch", "resolve_rows")
        return [name for name in super().__dir__() if name not in internal]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size, dim = self.shape
        name = self.source.origin.name
        encoding = self.encoding.name if self.encoding else None
        return f"<embcli.Model of {name}, (V, D) = ({size:,}, {dim:,}), encoding {encoding}>"

    def __contains__(self, text: object) -> bool:
        if not isinstance(text, str) or not self.encoding:
            return False
        try:
            ids = self.encoding.encode(text)
        except InputError:
            return False
        return len(ids) == 1 and int(ids[0]) < len(self)

    def __getitem__(
        self, key: int | np.integer[Any] | str | slice | Sequence[int] | np.ndarray
    ) -> np.ndarray:
        if isinstance(key, str):
            return self.lookup(key, show=("token",), position="none").token
        if isinstance(key, slice):
            try:
                key = np.arange(*key.indices(len(self)))
            except TypeError as error:
                raise InputError(str(error)) from None
        ids = array_of(key)
        tokens = self.tokens(np.atleast_1d(ids))
        check_ids(tokens, len(self), can_enlarge=self.source.origin.is_seeded)
        layers = self.source.open({"token": tokens.ids})
        rows = layers["token"].rows(tokens.ids)
        return np.asarray(rows if ids.ndim else rows[0])

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            "rows of a model are asked for by ID: model[0:5], or model[:] for all of them"
        )

    __iter__ = __array__ = _refuse

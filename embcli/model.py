"""A model: what `open` and `seeded` return, with the verbs as its methods."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from embcli import names
from embcli.errors import InputError, Notes
from embcli.layer import shape_of
from embcli.opened import Opened, TextOrIds, sequences_of
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

_PADDED = (
    0.75  # the least share of rows that a named tokenizer has tokens for: models add some rows
)


def seeded(
    vocab: int | None = None,
    dim: int = names.DEFAULT_DIM,
    *,
    encoding: str = names.DEFAULT_ENCODING,
    seed: int = names.DEFAULT_SEED,
    context_length: int = names.DEFAULT_CONTEXT_LENGTH,
    no_cache: bool = False,
    notes: Notes | None = None,
) -> Model:
    """Return a model with random layers, bit for bit those of PyTorch after `torch.manual_seed(seed)`.

    The token layer is `torch.nn.Embedding(vocab, dim)`, (V, D) float32, and the position layer, drawn right after it,
    `torch.nn.Embedding(context_length, dim)`, (C, D). V is by default that of the encoding. Nothing is drawn yet; what
    has been drawn is kept in the user's cache folder unless `no_cache`. Raises InputError for an unknown encoding,
    and LayerError for shapes and seeds out of range.

    >>> seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
    ['1.2753', '-0.201', '-0.1606']
    """
    from embcli import encodings
    from embcli.seeded_layers.seeded import Seeded
    from embcli.seeded_layers.source import SeededSource
    from embcli.store import Store

    known = encodings.get(encoding)
    remarks = Notes() if notes is None else notes
    size = known.vocabulary_size if vocab is None else vocab
    store = None if no_cache else Store.from_environment(remarks)
    source = SeededSource(
        Seeded(size, dim, context_length, seed), store, encodings.encoding_for_rows(known, size)
    )
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
    """Return a seeded model that is large enough for these IDs, and no larger: V is the largest ID + 1, D is 5.

    Text needs all tokens of the encoding. The layer is not kept, and there is one position.

    >>> seeded_for([2, 3, 1]).shape
    (4, 5)
    """
    given = sequences_of(ids)
    if vocab is None and given.ids is not None:
        vocab = 1 + max((int(each.max(initial=0)) for each in given.ids), default=0)
    return seeded(
        vocab,
        names.COMPARED_DIM if dim is None else dim,
        encoding=encoding or names.DEFAULT_ENCODING,
        seed=names.DEFAULT_SEED if seed is None else seed,
        context_length=1,
        no_cache=True,
        notes=notes,
    )


def open(
    path: str | Path,
    *,
    encoding: str | None = None,
    tensor: str | None = None,
    notes: Notes | None = None,
) -> Model:
    """Return a real model: a file, a folder, or `org/name[@revision]` in the local Hugging Face cache.

    Only what describes the tensors is read. `tensor` names the token matrix where its name does not tell. Of an encoder
    and a decoder that both read tokens, the encoder counts. The encoding is the file's own vocabulary, a tokenizer
    beside the weights, or tiktoken's with as many tokens as there are rows, unless it is named. Raises InputError for
    what is not found, damaged, or not clear.

    >>> import numpy, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "own.npy")
    >>> numpy.save(path, numpy.eye(2, 3, dtype=numpy.float32))
    >>> open(path)[1].tolist()
    [0.0, 1.0, 0.0]
    """
    from embcli import encodings
    from embcli.files.checkpoint import Checkpoint

    remarks = Notes() if notes is None else notes
    checkpoint = Checkpoint(str(path), tensor, remarks)
    rows, _ = shape_of(checkpoint, "token")
    tensors = checkpoint.tensors
    reason = ""
    if encoding is not None:
        known: Encoding | None = encodings.get(encoding)
    else:
        known = encodings.encoding_of_file(tensors.path, tensors.own_words(), remarks)
        if known is None and (known := encodings.encoding_of_size(rows)):
            reason = f"{known.name}, by the number of rows"
        if known is not None and not checkpoint.has_tokens:
            known = encodings.encoding_for_rows(known, rows)
    least = 0 if encoding is None else rows * _PADDED
    if known is not None and checkpoint.has_tokens and not least <= known.vocabulary_size <= rows:
        sizes = f"{known.vocabulary_size:,} tokens, this matrix {counted(rows, 'row')}"
        remarks.add(f"{known.name} has {sizes}: probably not its tokenizer")
    checkpoint.name_encoding(known, reason)
    return Model(checkpoint, known, remarks)


class Model(Opened):
    """Layers and the encoding of texts; make one by `seeded` or `open`.

    `len(model)` is V, `model.shape` (V, D). `model[6109]` is a row, (D,) float32; `model[[1, 2]]`, `model[0:5]` and
    `model["Every effort"]` are rows, (n, D) float32, those of a text one per token: never a mean. `" effort" in model`
    tells whether a text is one token with a row. The methods take a text, several texts, or IDs; each returns a frozen
    result, which shows itself as the command shows it. A model can be used from several threads.
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

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        size, dim = self.shape
        encoding = self.encoding.name if self.encoding else None
        return f"<embcli.Model of {self.source.origin.name}, (V, D) = ({size:,}, {dim:,}), encoding {encoding}>"

    def __contains__(self, text: object) -> bool:
        ids: Sequence[int] | np.ndarray = ()
        with suppress(InputError):
            ids = self.encoding.encode(text) if isinstance(text, str) and self.encoding else ()
        return len(ids) == 1 and int(ids[0]) < len(self)

    def __getitem__(
        self, key: int | np.integer[Any] | str | slice | Sequence[int] | np.ndarray
    ) -> np.ndarray:
        if isinstance(key, str):
            return self.lookup(key, show=("token",), position="none").token
        ids = np.arange(*key.indices(len(self))) if isinstance(key, slice) else np.asarray(key)
        tokens = self.tokens(np.atleast_1d(ids))
        check_ids(tokens, len(self), can_enlarge=self.source.origin.is_seeded)
        rows = self.source.open({"token": tokens.ids})["token"].rows(tokens.ids)
        return np.asarray(rows if ids.ndim else rows[0])

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            "rows of a model are asked for by ID: model[0:5], or model[:] for all of them"
        )

    __iter__ = __array__ = _refuse

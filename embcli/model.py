"""A model: layers and an encoding, with the verbs as its methods.

`open` makes one of a file, `seeded` one of a seed. The command does without it: it imports only the
verb that it runs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

import numpy as np

from embcli.errors import IdError, Notes, WrongTypeError
from embcli.opened import Opened, TextOrIds
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


class Model(Opened):
    """Layers and the encoding of texts; make one by `seeded` or `open`.

    `model.shape` is (V, D): `len(model)` or `model.vocab`, and `model.dim`. `model[6109]` is a row,
    (D,) float32; `model[[1, 2]]`, `model[0:5]` and `model["Every effort"]` are rows, (n, D)
    float32, those of a text one per token: never a mean. Rows of several texts follow each other,
    as in `lookup`, and IDs of shape (B, T) give (B, T, D). IDs are not counted from the end: a
    negative one is no token, in a slice, too. `6109 in model` tells whether an ID has a row,
    `" effort" in model` whether a text is one token with a row. The methods take a text, several
    texts, or IDs; each returns a frozen result, which shows itself as the command shows it. A model
    can be used from several threads.
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
        name = self.source.origin.name
        encoding = getattr(self.encoding, "name", None)
        return f"<embcli.Model of {name}, (V, D) = ({size:,}, {dim:,}), encoding {encoding}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model is not pickled or copied; open it again, or share it by threads")

    @property
    def vocab(self) -> int:
        """V: the rows of the token layer."""
        return self.shape[0]

    @property
    def dim(self) -> int:
        """D: the embedding dimension, the columns of the token layer."""
        return self.shape[1]

    def encode(self, text: str, *, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) int64: those of `tokenize`."""
        if not isinstance(text, str):
            raise WrongTypeError("encode takes one text; tokenize takes several, or IDs")
        return self.tokenize(text, special=special).ids

    def __contains__(self, text_or_id: object) -> bool:
        if not isinstance(text_or_id, str | int | np.integer):
            return False
        with suppress(ValueError):  # an InputError, or several IDs
            [number] = self.tokens(text_or_id).ids
            return 0 <= int(number) < len(self)
        return False

    def __getitem__(self, key: TextOrIds | slice) -> np.ndarray:
        if isinstance(key, tuple):
            raise WrongTypeError(
                "a pair is not an ID: model[2][1] is a number, model[[2, 1]] are rows, and "
                "model[:][:, 0] is a column"
            )
        if isinstance(key, slice):
            chosen = np.arange(*key.indices(len(self)))
            if min(key.start or 0, key.stop or 0) < 0:
                raise IdError(f"IDs are not counted from the end; the last one is {len(self) - 1}")
            key = chosen
        tokens = self.tokens(key)
        check_ids(tokens, len(self), can_enlarge=self.source.origin.is_seeded)
        layers = self.source.open({"token": tokens.ids}, Notes())
        rows = layers["token"].rows(tokens.ids)
        if tokens.texts is not None:
            return rows
        return rows.reshape(*np.shape(key), rows.shape[1])

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise WrongTypeError(
            "a model is not a list of rows: model[:] is the array of all rows, model[0:5] of five"
        )

    __iter__ = __reversed__ = __array__ = _refuse


# Errors for a wrong call begin with these names.
for _name in ("open", "seeded"):
    vars(Opened)[_name].__func__.__qualname__ = f"embcli.{_name}"

open = Model.open
seeded = Model.seeded

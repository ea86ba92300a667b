"""Decoding: token IDs back to the text, or the bytes, that they stand for.

Both functions check the IDs; the result is plain text or bytes, without a page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embcli.errors import InputError
from embcli.opened import Opened
from embcli.text import ids_of
from embcli.tokens import check_known
from embcli.wording import Elsewhere


def decode(model: Opened, ids: int | Sequence[int] | np.ndarray) -> str:
    """Return the text that IDs stand for; bytes that are not UTF-8 become U+FFFD.

    Raises InputError for IDs that the encoding does not have.

    >>> import embcli
    >>> embcli.seeded().decode([6109, 3626])
    'Every effort'
    """
    return decode_bytes(model, ids).decode(errors="replace")


def decode_bytes(model: Opened, ids: int | Sequence[int] | np.ndarray) -> bytes:
    """Return the bytes that IDs stand for.

    Raises InputError for IDs that the encoding does not have.
    """
    if model.encoding is None:
        raise InputError(
            "{encoding} is required: that of these rows is unknown", encoding=Elsewhere("encoding")
        )
    array = ids_of(ids)
    check_known(array, model.encoding)
    return model.encoding.decode(array)

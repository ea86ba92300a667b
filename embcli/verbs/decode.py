"""Decoding: token IDs back to the bytes of their text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.tokens import Tokens, check_known

if TYPE_CHECKING:
    from embcli.encodings import Encoding


def decode(ids: np.ndarray, encoding: Encoding) -> bytes:
    """Return the bytes of token IDs, (T,); raises InputError for an ID that the encoding does not have."""
    tokens = Tokens(ids, np.array([0, len(ids)]), encoding)
    check_known(tokens)
    return encoding.decode(ids)

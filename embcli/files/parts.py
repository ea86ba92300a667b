"""Files that have a part of each matrix, as the params.json of Llama beside them says.

Processes that share a large model divide its matrices, and each writes a file: the rows of such a
file are some of the model's, or have some of its columns.
"""

from __future__ import annotations

from pathlib import Path

from embcli.encodings.encoding import sibling_json
from embcli.files.tensors import Tensor


def part_in_words(path: Path, tokens: list[Tensor]) -> str:
    """Return in words that a file has a part of its token matrix, or nothing."""
    params = sibling_json(path, "params.json")
    for token in tokens:
        for key, size in zip(("vocab_size", "dim"), token.shape, strict=True):
            stated = params.get(key)
            if isinstance(stated, int) and stated > size:
                return (
                    f"params.json says {key} {stated:,}, and {token} is a part of it; "
                    "merge the parts first"
                )
    return ""

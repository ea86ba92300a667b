"""Files that have a part of each matrix, as their names and params.json say.

Processes that share a large model divide its matrices, and each writes a file: the rows of such a
file are some of the model's, or have some of its columns.
"""

from __future__ import annotations

import re
from pathlib import Path

from embcli.encodings.encoding import sibling_json
from embcli.files.tensors import Tensor

# The names of such files, or of their folders, with the number of a process; a single one is whole.
_NUMBERED = re.compile(
    r"(consolidated\.|"  # Llama as Meta publishes it
    r"mp_rank_)(\d+)(\.pth|_\d+|_model_states\.pt|)"  # Megatron and DeepSpeed
)
# The names of files that never have a whole matrix.
_DIVIDED = re.compile(
    r"\w*fsdp\w*_rank\d+\.bin"  # FSDP of accelerate
    r"|model_world_size_(?!1_)\d+_rank_\d+\.pt"  # FSDP of verl
    r"|__\d+_\d+\.distcp"  # torch.distributed.checkpoint
)
_EACH = "parts, and each has a part of every matrix; merge them first"


def part_in_words(path: Path, tokens: list[Tensor]) -> str:
    """Return in words that a file has a part of its token matrix, or nothing."""
    if _DIVIDED.fullmatch(path.name):
        return f"it is one of several {_EACH}"
    for place in (path.absolute(), path.absolute().parent):
        match = _NUMBERED.fullmatch(place.name)
        if match:
            before, number, after = match.groups()
            count = len(list(place.parent.glob(f"{before}*{after}")))
            if count > 1:
                return f"it is one of {count} {_EACH}"
            if int(number):
                return f"it is one of several {_EACH}"

    params = sibling_json(path, "params.json")
    for token in tokens:
        for key, size in zip(("vocab_size", "dim"), token.shape, strict=True):
            stated = params.get(key)
            if isinstance(stated, int) and stated > size:
                return f"params.json says {key} {stated:,}, and {token} is a part of it"
    return ""

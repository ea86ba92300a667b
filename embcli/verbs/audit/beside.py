"""Whether other files in a model's folder say the same: another set of weights, or a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from embcli.binary import quoted
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.sentencepiece import SentencePieceEncoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding
from embcli.wording import counted, first_of, in_data

# How files of weights are named that people load in place of one another.
_WEIGHTS = re.compile(r".*\.safetensors|(pytorch_model|consolidated).*\.(bin|pth)")


def check_weights(checkpoint: Checkpoint, files: ModelFiles) -> Iterator[Finding]:
    """Say which file is read if the folder has other weights."""
    tensors = checkpoint.tensors
    folder = tensors.path.parent
    if tensors.binary.is_remote or tensors.format not in ("safetensors", "PyTorch"):
        return
    found = {path.name for path in folder.iterdir() if _WEIGHTS.fullmatch(path.name)}
    others = sorted(found - {Path(name).name for name in tensors.files})
    if others:
        text = f"{tensors.path.name} is read; other weights beside it: {first_of(others, 3)}"
        yield Finding("remark", "fit", len(others), in_data(text))


def check_vocabularies(checkpoint: Checkpoint, files: ModelFiles) -> Iterator[Finding]:
    """Check that a tokenizer.model gives the tokens of a tokenizer.json the same IDs."""
    encoding = files.encoding
    if not isinstance(encoding, HuggingFaceEncoding) or encoding.path.name != "tokenizer.json":
        return
    path = encoding.path.with_name("tokenizer.model")
    if not path.is_file():
        return
    ids = encoding.tokenizer.get_vocab(with_added_tokens=False)
    names: list[str] = []
    with suppress(InputError):  # A tokenizer.model need not be SentencePiece's.
        names = SentencePieceEncoding(path, path.name).names
    others = [quoted(name) for place, name in enumerate(names) if ids.get(name, place) != place]
    if others:
        tokens = counted(len(others), "token")
        text = f"{path.name} gives {tokens} of tokenizer.json other IDs: {first_of(others, 3)}"
        yield Finding("finding", "fit", len(others), text)

"""Whether other files in a model's folder say the same: another set of weights, or a vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from embcli.binary import Binary, quoted, read_whole
from embcli.encodings.encoding import MAX_FILE_SIZE
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.sentencepiece import SentencePieceEncoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, first_names
from embcli.wording import counted, in_data

# How files of weights are named that people load in place of one another.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "consolidated*.pth")


def check_weights(checkpoint: Checkpoint, files: ModelFiles) -> Iterator[Finding]:
    """Say which file is read if the folder has other weights."""
    tensors = checkpoint.tensors
    if tensors.path.suffix not in (".safetensors", ".bin", ".json") or tensors.binary.is_remote:
        return
    read = {Path(name).name for name in tensors.files}
    others = set()
    for pattern in _WEIGHTS:
        others |= {path.name for path in tensors.path.parent.glob(pattern)}
    names = [in_data(name) for name in sorted(others - read)]
    if names:
        text = f"{in_data(tensors.path.name)} is read; other weights beside it: "
        yield Finding("remark", "fit", len(names), text + first_names(names, 3))


def check_vocabularies(checkpoint: Checkpoint, files: ModelFiles) -> Iterator[Finding]:
    """Check that tokenizer.model and vocab.txt give the tokens of tokenizer.json the same IDs."""
    encoding = files.encoding
    if not isinstance(encoding, HuggingFaceEncoding) or encoding.path.name != "tokenizer.json":
        return
    ids = encoding.tokenizer.get_vocab(with_added_tokens=False)
    for path in (encoding.path.with_name(name) for name in ("tokenizer.model", "vocab.txt")):
        try:
            words = _words_of(path) if path.exists() else []
        except InputError:
            continue  # A tokenizer.model need not be SentencePiece's.
        other = []
        for token_id, word in enumerate(words):
            name = word.decode(errors="replace")
            if ids.get(name, token_id) != token_id:
                other.append(quoted(name))
        if other:
            tokens = counted(len(other), "token")
            text = f"{path.name} gives {tokens} of {encoding.path.name} other IDs: "
            yield Finding("finding", "fit", len(other), text + first_names(other, 3))


def _words_of(path: Path) -> list[bytes]:
    """Return the tokens of a vocabulary by ID; raises InputError for another file."""
    if path.suffix == ".model":
        return SentencePieceEncoding(path, path.name).words
    return read_whole(Binary(path), MAX_FILE_SIZE).splitlines()

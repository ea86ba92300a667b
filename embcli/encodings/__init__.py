"""Encodings convert text to token IDs and token IDs to bytes; they are found by name, by model, or beside a file."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from embcli.encodings.encoding import Encoding
from embcli.encodings.tiktoken import (
    DEFINITIONS,
    RankFileEncoding,
    TiktokenEncoding,
    import_tiktoken,
)
from embcli.errors import InputError, Notes, missing_extra

__all__ = ["Encoding", "encoding_for_rows", "encoding_of_file", "encoding_of_size", "get"]

_SUFFIXES = (".json", ".gguf", ".tiktoken", ".model", ".txt")  # of files


def encoding_for_rows(encoding: Encoding, size: int, from_text: bool = False) -> Encoding | None:
    """Return the encoding if the rows of a layer are its tokens: it gave their IDs, or V is the same."""
    return encoding if from_text or size == encoding.vocabulary_size else None


def encoding_of_size(size: int) -> Encoding | None:
    return next(
        (get(name) for name, each in DEFINITIONS.items() if each.vocabulary_size == size), None
    )


def encoding_of_file(weights: Path, own: Encoding | None, notes: Notes) -> Encoding | None:
    """Return the encoding of a checkpoint's rows: its own tokens if they split a text, or of a tokenizer beside it."""
    from embcli.hub import TOKENIZERS, tokenizer_file

    if own is not None and own.splits:
        return own
    try:
        path = tokenizer_file(weights.parent, TOKENIZERS)
    except InputError:
        return own
    package = {".json": "tokenizers", ".txt": "tokenizers", ".model": "sentencepiece"}.get(
        path.suffix
    )
    if package and path.name != "tekken.json" and find_spec(package) is None:
        notes.add(missing_extra(f"the {path.name} beside the weights", "models"))
        return own
    return _of_path(path, str(path))


@lru_cache  # freeing a large tokenizer takes a tenth of the time of loading it
def _of_path(path: Path, name: str) -> Encoding:
    """Return the encoding of a file, whose first bytes or name tell the dialect."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(4) == b"GGUF":
            from embcli.encodings.gguf import gguf_encoding

            return gguf_encoding(path, name)
    if path.suffix == ".tiktoken" or path.name == "tekken.json":
        return RankFileEncoding(path, name)
    if path.suffix == ".model":
        from embcli.encodings.sentencepiece import SentencePieceEncoding

        return SentencePieceEncoding(path, name)
    from embcli.encodings.huggingface import HuggingFaceEncoding

    return HuggingFaceEncoding(path, name)


@lru_cache
def get(name: str) -> Encoding:
    """Return the encoding with this name or of this model, which can be the path of a file or of a folder.

    >>> get("gpt-4o").name
    'o200k_base'
    """
    if name in DEFINITIONS:
        return TiktokenEncoding(name)
    from embcli.hub import OLLAMA, located, tokenizer_file

    if "/" in name or name.endswith(_SUFFIXES) or name.startswith(OLLAMA):
        return _of_path(located(name, tokenizer_file), name)
    model = import_tiktoken("tiktoken.model")
    try:
        return TiktokenEncoding(model.encoding_name_for_model(name))
    except KeyError:
        with suppress(InputError):
            return _of_path(located(name, tokenizer_file), name)
        from difflib import get_close_matches

        near = get_close_matches(
            name.lower(), dict.fromkeys([*DEFINITIONS, *model.MODEL_TO_ENCODING]), n=3, cutoff=0.5
        )
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"encodings are {', '.join(DEFINITIONS)}"
        )
        raise InputError(f"no encoding or model is named {name[:60]!r}; {hint}") from None

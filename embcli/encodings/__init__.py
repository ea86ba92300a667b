"""Encodings convert text to token IDs and token IDs to bytes; they are found by name, by model, or beside a file."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from embcli.encodings.encoding import Encoding
from embcli.encodings.tiktoken import DEFINITIONS, TiktokenEncoding, loaded
from embcli.errors import InputError, lacks
from embcli.hub import located, tokenizer_file

if TYPE_CHECKING:
    from pathlib import Path

    from embcli.encodings.own import OwnWords
    from embcli.notes import Notes


__all__ = ["Encoding", "encoding_of_file", "encoding_of_size", "get", "labels_rows"]


def labels_rows(encoding: Encoding, size: int, from_text: bool = False) -> Encoding | None:
    """Return the encoding if the rows of a layer are its tokens, else None.

    They are if the IDs come from a text of this encoding, or if the layer has V rows, as many as the encoding.
    """
    return encoding if from_text or size == encoding.vocabulary_size else None


def encoding_of_size(size: int) -> Encoding | None:
    """Return the first encoding with so many tokens, or None.

    >>> encoding_of_size(50257).name
    'gpt2'
    """
    return next((get(name) for name, each in DEFINITIONS.items() if each.vocabulary_size == size), None)


def encoding_of_file(weights: Path, own: OwnWords | None, notes: Notes) -> Encoding | None:
    """Return the encoding of the rows of a checkpoint's file: its own words, or the tokenizer.json beside it.

    Word vectors have whole words; otherwise a tokenizer.json is preferred, because it can also split a text. A note
    says if the tokenizer.json is not used because a package is missing.
    """
    if own is not None and own.are_whole:
        return own
    path = weights.parent / "tokenizer.json"
    if not path.is_file():
        return own
    if find_spec("tokenizers") is None:
        notes.add(lacks("the tokenizer.json beside the weights", "models"))
        return own
    return _of_tokenizer(path, str(path))


@lru_cache  # freeing a large tokenizer takes a tenth of the time of loading it
def _of_tokenizer(path: Path, name: str) -> Encoding:
    from embcli.encodings.huggingface import HuggingFaceEncoding

    return HuggingFaceEncoding(path, name)


@lru_cache
def get(name: str) -> Encoding:
    """Return the encoding with this name, or of the model with this name.

    The name can also be the path of a tokenizer.json or of its folder, or a model of the local Hugging Face cache.
    Raises InputError with the nearest names if nothing is found.

    >>> get("gpt-4o").name
    'o200k_base'
    """
    if name in DEFINITIONS:
        return TiktokenEncoding(name)
    if "/" in name or name.endswith(".json"):
        return _of_tokenizer(located(name, tokenizer_file), name)
    model = loaded("tiktoken.model")
    try:
        return TiktokenEncoding(model.encoding_name_for_model(name))
    except KeyError:
        with suppress(InputError):
            return _of_tokenizer(located(name, tokenizer_file), name)
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), dict.fromkeys([*DEFINITIONS, *model.MODEL_TO_ENCODING]), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"encodings are {', '.join(DEFINITIONS)}"
        raise InputError(f"no encoding or model is named {name[:60]!r}; {hint}") from None

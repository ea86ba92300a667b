"""Encodings: what turns text into token IDs and token IDs into bytes, by the name of an encoding or of a model."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from embcli.encodings.tiktoken import DEFINITIONS, TiktokenEncoding
from embcli.errors import InputError, lacks
from embcli.safe import note

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from embcli.files.tensors import Tensors


class Encoding(Protocol):
    """What embcli asks of an encoding, wherever it comes from."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def vocabulary_size(self) -> int:
        """V: its IDs go from 0 to V - 1, though not all of them need to have a token."""

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`."""

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None where the encoding has no such token."""

    def entry(self, token_id: int) -> bytes | None:
        """Return a token as the vocabulary tells it from others: its bytes, but `##s` of WordPiece, not `s`."""

    def spelled(self, text: str, ids: np.ndarray) -> dict[int, bytes]:
        """Return what tokens stand for in a text, by their places, where that is not what `token_bytes` gives.

        `ids`, (T,), are those of the text with its special tokens: what all tokens stand for, joined, is the text.
        """

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        """Return from and to which character each token of a text stands, (T, 2); None where their bytes tell it."""

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes that IDs, (T,), stand for together; the encoding has all of them."""

    def merges(self) -> list[int]:
        """Return the IDs of the tokens that BPE merged, in the order of merges, which is that of IDs as a rule.

        The later a merge, the rarer the token. Single bytes, single characters and special tokens are no merges.
        """


def meant(encoding: Encoding, size: int, text: bool = False) -> Encoding | None:
    """Return the encoding whose tokens the rows of a layer stand for, if they stand for any.

    They do where the IDs come from a text of this encoding, and where the layer has V rows, as many as the encoding.
    """
    return encoding if text or size == encoding.vocabulary_size else None


def guessed(size: int) -> Encoding | None:
    """Return the encoding that has so many tokens, the first by name of several; None where none has.

    >>> guessed(50257).name
    'gpt2'
    """
    fitting = (name for name, definition in DEFINITIONS.items() if definition.vocabulary_size == size)
    name = next(fitting, None)
    return None if name is None else get(name)


def of_rows(tensors: Tensors) -> Encoding | None:
    """Return the encoding of the rows of a checkpoint's file; None where neither it nor a file beside it tells.

    Word vectors stand for their own words; otherwise a tokenizer.json comes first, which can split a text, too.
    """
    from embcli.encodings.own import OwnWords

    own = OwnWords(tensors) if tensors.has_words else None
    return own if tensors.words_are_whole else _beside(tensors.path) or own


def _beside(weights: Path) -> Encoding | None:
    """Return the encoding of the tokenizer.json beside a file of weights; None where there is none, or no package."""
    from importlib.util import find_spec

    path = weights.parent / "tokenizer.json"
    if not path.is_file():
        return None
    if find_spec("tokenizers") is None:
        note(lacks("the tokenizer.json beside the weights", "models"))
        return None
    return _of_file(path, str(path))


@lru_cache  # which also holds it: to take a large tokenizer apart again is a tenth of what it took to load
def _of_file(path: Path, name: str) -> Encoding:
    from embcli.encodings.huggingface import HuggingFaceEncoding

    return HuggingFaceEncoding(path, name)


@lru_cache
def get(name: str) -> Encoding:
    """Return the encoding with this name, or the one that the model with this name uses.

    That may also be a tokenizer.json: its path, its folder, or a model of the local Hugging Face cache. Raises
    InputError with the nearest names when there is none.

    >>> get("gpt-4o").name
    'o200k_base'
    """
    if name in DEFINITIONS:
        return TiktokenEncoding(name)
    from embcli.files.hub import tokenizer_file

    if "/" in name or name.endswith(".json"):
        return _of_file(tokenizer_file(name), name)
    from tiktoken import model

    try:
        return TiktokenEncoding(model.encoding_name_for_model(name))
    except KeyError:
        with suppress(InputError):
            return _of_file(tokenizer_file(name), name)
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), dict.fromkeys([*DEFINITIONS, *model.MODEL_TO_ENCODING]), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(DEFINITIONS)}."
        raise InputError(f"no encoding or model is named {name[:60]!r}; {hint}") from None

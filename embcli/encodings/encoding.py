"""The interface of encodings, tokens that are found by their names, the words of word vectors, and packages."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from embcli.binary import Binary, file_error, quoted, read_object
from embcli.encodings.merging import Derivation
from embcli.errors import InputError, missing_extra
from embcli.wording import in_data

MAX_FILE_SIZE = 1 << 27  # bytes of a file that lists tokens
_LONGEST_CONFIG = 1 << 24  # bytes of a tokenizer_config.json
MAX_TOKENS = 1 << 22  # no vocabulary has more
LOCK = RLock()  # special tokens and standard error are set for one call at a time
_Value = TypeVar("_Value")
Fragment = tuple[
    int | None, int, int
]  # the ID of a named token or None, its first and its end character
_BLANKS = " \t\n\v\f\r"
_MOST_LISTED, _LONGEST_LISTED = 8, 30  # words in a message, and characters of one of them
_START = 4  # characters of a name that many share: a text without them has none of these names


class Encoding(ABC):
    """What embcli needs of an encoding, from any source; a dialect inherits the defaults that fit it."""

    name: str  # of the encoding, the model or the file
    splits: bool = True  # whether it can split a text
    bos_eos: tuple[tuple[int, ...], tuple[int, ...]] = (
        (),
        (),
    )  # IDs that a model reads before and after each text

    def __getstate__(self) -> dict[str, Any]:
        """Return what it is made of: nothing that is computed of it."""
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """V: IDs are from 0 to V - 1, though some of them may have no token."""

    @abstractmethod
    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the encoding has no such token."""

    def entry(self, token_id: int) -> bytes | None:
        """Return a token as the vocabulary spells it: its bytes, but `##s` for WordPiece, not `s`."""
        return self.token_bytes(token_id)

    @abstractmethod
    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        """Return the first and the end character of each token of a text, (T, 2); None if their bytes are the text."""

    def decode(self, ids: np.ndarray) -> bytes:
        joined = bytearray()  # bytes.join takes 80 bytes for each token
        for token_id in ids.data:
            joined += self.token_bytes(token_id) or b""
        return bytes(joined)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens; raises InputError if the encoding cannot tell."""
        raise InputError(f"{self.name} does not tell how it splits a text")


class NamedToken(NamedTuple):
    name: str
    token_id: int
    is_special: bool  # whether it is found only if special tokens are asked for
    strips_left: bool = False  # whether the blanks before it belong to no token
    strips_right: bool = False


class VocabularyEncoding(Encoding):
    """Tokens of which some are found in a text by their names; a dialect says how the text between them is split."""

    named: list[
        NamedToken
    ]  # the tokens that a text can contain by their names, in the order in which they are found
    adds_space: bool = False  # whether a text gets a space before it

    @abstractmethod
    def ids_between(self, text: str) -> np.ndarray:
        """Return the IDs of a text without named tokens, (T,) uint32."""

    @abstractmethod
    def spans_between(self, text: str) -> np.ndarray: ...  # (T, 2) int64

    @abstractmethod
    def derivations_between(self, text: str) -> Iterator[Derivation]: ...

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        try:
            parts = [
                self.ids_between(text[start:end])
                if token_id is None
                else np.array([token_id], np.uint32)
                for token_id, start, end in self._fragments(text, special)
            ]
        except (
            UnicodeError,
            RuntimeError,
        ) as error:  # a lone surrogate, or what sentencepiece says
            raise InputError(
                f"{self.name} cannot split this text of {len(text):,} characters: {error}"
            ) from None
        return np.concatenate(parts)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        for token_id, start, end in self._fragments(text, special):
            if token_id is None:
                yield from self.derivations_between(text[start:end])
            else:
                yield Derivation((text[start:end].encode(),), (), (token_id,))

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        parts = [
            self.spans_between(text[start:end]) + start
            if token_id is None
            else np.array([[start, end]])
            for token_id, start, end in self._fragments(text, special)
        ]
        return np.concatenate(parts)

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes of known IDs, (T,), together, without the spaces that texts get before them."""
        if not self.adds_space:
            return super().decode(ids)
        names, begins, joined = {each.token_id for each in self.named}, True, bytearray()
        for token_id in ids.data:
            token = self.token_bytes(token_id) or b""
            joined += token.removeprefix(b" ") if begins else token
            begins = token_id in names
        return bytes(joined)

    def _fragments(self, text: str, special: bool) -> list[Fragment]:
        """Return the named tokens of a text and the texts between them: ID or None, first and end character."""
        fragments: list[Fragment] = [(None, 0, len(text))]
        begun = {start: start in text for start in {named.name[:_START] for named in self.named}}
        for named in self.named:
            if (
                (special or not named.is_special)
                and begun[named.name[:_START]]
                and named.name in text
            ):
                fragments = [part for each in fragments for part in _split(text, each, named)]
        return fragments


def _split(text: str, fragment: Fragment, named: NamedToken) -> Iterator[Fragment]:
    token_id, place, end = fragment
    while token_id is None and (start := text.find(named.name, place, end)) >= 0:
        left = place + len(text[place:start].rstrip(_BLANKS)) if named.strips_left else start
        if left > place:
            yield None, place, left
        place = start + len(named.name)
        yield named.token_id, start, place
        if named.strips_right:
            place = end - len(text[place:end].lstrip(_BLANKS))
    if place < end:
        yield token_id, place, end


class OwnWords(Encoding):
    """The words that a file has for its rows; a text is split at spaces."""

    def __init__(self, path: Path, words: list[bytes]) -> None:
        self.name = in_data(str(path))
        self._path = path
        self._words = words

    @property
    def vocabulary_size(self) -> int:
        return len(self._words)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        words, ids = text.split(), self._ids
        unknown = [word for word in dict.fromkeys(words) if word.encode() not in ids]
        if not unknown:
            return np.array([ids[word.encode()] for word in words], np.uint32)
        more = f" and {len(unknown) - _MOST_LISTED:,} more" if len(unknown) > _MOST_LISTED else ""
        lower = dict.fromkeys(
            word.lower() for word in unknown[:_MOST_LISTED] if word.lower().encode() in ids
        )
        hint = f"in lower case it has {_listed(lower)}" if lower else ""
        raise InputError(
            f"{str(self._path)!r} has no row for {_listed(unknown[:_MOST_LISTED])}{more}", hint
        )

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The first ID of each word."""
        ids = range(len(self._words))
        return dict(zip(reversed(self._words), reversed(ids), strict=True))

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._words[token_id] if 0 <= token_id < len(self._words) else None

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        return np.array([word.span() for word in re.finditer(r"\S+", text)], np.int64).reshape(
            -1, 2
        )

    def decode(self, ids: np.ndarray) -> bytes:
        return b" ".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())


def _listed(words: Iterable[str]) -> str:
    return ", ".join(repr(word[:_LONGEST_LISTED]) for word in words)


def import_package(path: Path, name: str, what: str) -> Any:
    """Import a package; raises InputError that `what`, the file's kind, needs it."""
    try:
        return import_module(name)
    except Exception as error:
        raise file_error(path, missing_extra(what, "models", error)) from None


def sibling_json(path: Path, name: str) -> dict[str, Any]:
    """Return the JSON object of a file of the same folder, which need not be there."""
    path = path.with_name(name)
    return read_object(Binary(path), _LONGEST_CONFIG) if path.is_file() else {}


def call_package(path: Path, failure: str, function: Callable[[], _Value]) -> _Value:
    """Call a package; raises InputError for its errors and its panics, which are not Exceptions.

    Standard error is discarded below Python: Rust writes a trace of its panics to it.
    """
    with LOCK, ExitStack() as after:
        with suppress(OSError):  # it is closed
            standard_error = os.dup(2)
            after.callback(os.close, standard_error)
            after.callback(os.dup2, standard_error, 2)
            os.dup2(after.enter_context(open(os.devnull, "wb")).fileno(), 2)
        try:
            return function()
        except (KeyboardInterrupt, SystemExit, MemoryError, InputError):
            raise
        except BaseException as error:
            raise file_error(path, f"{failure} ({quoted(str(error)).strip(chr(39))})") from None


def load_facts(name: str) -> Any:
    """Return what a JSON file of data/ has."""
    return json.loads((Path(__file__).parents[1] / "data" / name).read_text("utf-8"))

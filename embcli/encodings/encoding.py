"""The interface of encodings, and what several dialects share.

An Encoding is all that embcli needs of a tokenizer. VocabularyEncoding finds tokens by their names
and leaves the text between them to a dialect; OwnWords are the words of a file of word vectors. The
functions at the end read data and call packages whose errors must end in a sentence.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from embcli.binary import Binary, JsonObject, file_error, read_object
from embcli.encodings.merging import Derivation, Ids
from embcli.errors import InputError, missing_extra
from embcli.wording import counted, first_of, in_data

MAX_FILE_SIZE = 1 << 27  # bytes of a file that lists tokens
MAX_TOKENS = 1 << 22  # No vocabulary has more.

Rules = dict[str, Any]
_Value = TypeVar("_Value")
# The IDs that a model reads before and after each text.
BosEos = tuple[tuple[int, ...], tuple[int, ...]]


class UnknownTokenizerError(InputError):
    """A tokenizer is of a kind that embcli does not know how to split a text with."""


class Encoding(ABC):
    """What embcli needs of an encoding; a dialect inherits the defaults that fit it.

    What is computed from its attributes is computed when it is first needed, and kept.
    """

    name: str  # the name of the encoding or model, or the path of its file
    splits: bool = True  # whether it can split a text
    is_byte_level: bool = False  # whether all bytes should be tokens
    why_no_merges = "{name} does not tell how it splits a text"
    bos_eos: BosEos = ((), ())
    # The IDs of special tokens by role, "bos", as the tokenizer has them, and what says so.
    special_ids: Mapping[str, int] = MappingProxyType({})
    described_by: str = ""
    # The names of the tokens that are found in a text by their names, by ID.
    added: Mapping[int, str] = MappingProxyType({})
    faults: Iterable[str] = ()  # sentences on lists in the file that do not fit its tokens
    # What a file says of how a text becomes IDs, by name: merges, normalizer, ... Two encodings can
    # be compared if they have rules of the same names.
    rules: Rules = {}  # noqa: RUF012 - only subclasses have others

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """V: IDs are from 0 to V - 1, though some of them may have no token."""

    @abstractmethod
    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32.

        The names of special tokens are plain text unless `special` is set.
        """

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the encoding has no such token.

        A part of a word is spelled as in the vocabulary: WordPiece has `##s`.
        """

    @abstractmethod
    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        """Return the first and the end character of each token of a text, (T, 2) int64.

        None means that the bytes of the tokens are those of the text.
        """

    def decode(self, ids: np.ndarray) -> bytes:
        joined = bytearray()  # bytes.join takes 80 bytes for each token.
        for token_id in ids.data:
            joined += self.token_bytes(token_id) or b""
        return bytes(joined)

    def restored(self, ids: np.ndarray) -> str:
        """Return the text that a model writes by IDs, (T,), which leaves out special tokens."""
        return self.decode(ids).decode(errors="replace")

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens.

        Raises InputError for an encoding that does not tell.
        """
        raise InputError(self.why_no_merges, name=self.name)


class NamedToken(NamedTuple):
    """A token that is found in a text by its name, before the rest of the text is split."""

    name: str
    token_id: int
    is_special: bool  # whether it is found only if special tokens are asked for
    strips_left: bool = False  # whether the blanks before it belong to no token
    strips_right: bool = False


class _Fragment(NamedTuple):
    """A named token in a text, or a part of the text without named tokens."""

    token_id: int | None  # None for text
    start: int
    end: int


class VocabularyEncoding(Encoding):
    """An encoding some of whose tokens are found in a text by their names.

    A dialect has the names, and says how the text between them is split.
    """

    named: list[NamedToken]  # in the order in which a text is searched for them
    unknown_id: int | None = None  # of the token for what the vocabulary cannot spell
    adds_space: bool = False  # whether a text gets a space before it
    joins_spaces: bool = False  # whether a text loses the spaces that it begins with

    @property
    def added(self) -> dict[int, str]:  # type: ignore[override]
        return {token.token_id: token.name for token in self.named}

    @abstractmethod
    def ids_between(self, text: str) -> np.ndarray:
        """Return the IDs of a text without named tokens, (T,) uint32."""

    @abstractmethod
    def spans_between(self, text: str) -> np.ndarray: ...  # (T, 2) int64

    @abstractmethod
    def derivations_between(self, text: str) -> Iterator[Derivation]: ...

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        parts = []
        try:
            text.encode()  # The error of a package for a lone surrogate says nothing.
            for token_id, start, end in self._fragments(text, special):
                if token_id is None:
                    parts.append(self.ids_between(text[start:end]))
                else:
                    parts.append(np.array([token_id], np.uint32))
        except (UnicodeError, RuntimeError) as error:
            # A text can have a lone surrogate; the errors of sentencepiece are RuntimeErrors.
            raise InputError(
                f"{self.name} cannot split this text of {counted(len(text), 'character')}: {error}"
            ) from None
        return np.concatenate(parts)

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        parts = []
        for token_id, start, end in self._fragments(text, special):
            if token_id is None:
                parts.append(self.spans_between(text[start:end]) + start)
            else:
                parts.append(np.array([[start, end]]))
        return np.concatenate(parts)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        for token_id, start, end in self._fragments(text, special):
            part = text[start:end]
            if token_id is None:
                yield from self.derivations_between(part)
            else:
                yield Derivation((part.encode(),), (), (token_id,))

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the joined bytes of IDs, (T,), without the spaces that texts get before them.

        A text begins after each named token, except the unknown one, which is a part of a text.
        """
        if not self.adds_space and not self.joins_spaces:
            return super().decode(ids)
        ids_before_text = {token.token_id for token in self.named} - {self.unknown_id}
        joined = bytearray()
        begins_text = True
        for token_id in ids.data:
            token = self.token_bytes(token_id) or b""
            if begins_text:
                token = token.removeprefix(b" ")
            joined += token
            begins_text = token_id in ids_before_text or (self.joins_spaces and not token)
        return bytes(joined)

    def _fragments(self, text: str, special: bool) -> list[_Fragment]:
        """Return the named tokens in a text, and the parts of the text between them."""
        fragments = [_Fragment(None, 0, len(text))]
        for token in self.named:
            is_wanted = special or not token.is_special
            if is_wanted and token.name in text:
                parts = [_split_at(token, text, fragment) for fragment in fragments]
                fragments = [fragment for part in parts for fragment in part]
        return fragments


def _split_at(token: NamedToken, text: str, fragment: _Fragment) -> Iterator[_Fragment]:
    """Yield the parts of a fragment: a token wherever it is in a text, and the text around it."""
    blanks = " \t\n\v\f\r"
    if fragment.token_id is not None:
        yield fragment
        return

    place = fragment.start
    end = fragment.end
    while True:
        start = text.find(token.name, place, end)
        if start < 0:
            break
        text_end = start
        if token.strips_left:
            text_end = place + len(text[place:start].rstrip(blanks))
        if text_end > place:
            yield _Fragment(None, place, text_end)

        place = start + len(token.name)
        yield _Fragment(token.token_id, start, place)
        if token.strips_right:
            place = end - len(text[place:end].lstrip(blanks))
    if place < end:
        yield _Fragment(None, place, end)


class OwnWords(Encoding):
    """The words that a file has for its rows; a text is split at spaces."""

    why_no_merges = "{name} is a list of tokens, without merges: leave out {merges} and {draw}"
    word = re.compile(r"\S+")  # what is a word of a text
    unknown_id: int | None = None  # of the token for other words; without it, they are errors
    cure = ""  # what would read them

    def __init__(self, path: str | Path, words: list[bytes]) -> None:
        self.name = in_data(str(path))
        self._path = path
        self._words = words

    @property
    def vocabulary_size(self) -> int:
        return len(self._words)

    @cached_property
    def _ids(self) -> Ids:
        """The first ID of each word."""
        ids = range(len(self._words))
        return dict(zip(reversed(self._words), reversed(ids), strict=True))

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        words = self.word.findall(text)
        ids = [
            self._ids.get(word.encode("utf-8", "surrogatepass"), self.unknown_id) for word in words
        ]
        if None in ids:
            unknown = [word for word, word_id in zip(words, ids, strict=True) if word_id is None]
            raise self._unknown_error(unknown)
        return np.array(ids, np.uint32)

    def _unknown_error(self, unknown: list[str]) -> InputError:
        """Return the error for words without a row.

        It shows the first ones, and which of them have a row in lower case.
        """
        in_lower_case = dict.fromkeys(map(str.lower, unknown))
        known = [word for word in in_lower_case if word.encode() in self._ids]
        hint = self.cure
        if known and not hint:
            hint = f"in lower case it has {first_of(map(repr, known), 8)}"
        words = first_of(map(repr, dict.fromkeys(unknown)), 8)
        return InputError(f"{str(self._path)!r} has no row for {words}", hint)

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._words[token_id] if 0 <= token_id < len(self._words) else None

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        spans = [word.span() for word in self.word.finditer(text)]
        return np.array(spans, np.int64).reshape(-1, 2)

    def decode(self, ids: np.ndarray) -> bytes:
        return b" ".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())


def sibling_json(path: Path, name: str) -> JsonObject:
    """Return the JSON object of a file in the same folder; an empty one without such a file."""
    longest = 1 << 24
    sibling = path.with_name(name)
    return read_object(Binary(sibling), longest) if sibling.exists() else {}


def without_merges(path: Path, model: str) -> InputError:
    """Return the error for a tokenizer that merges nothing, which calls its kind `model`."""
    return file_error(path, f"its model is {model}, which has no merges; tokenize lists its tokens")


def import_package(path: Path, name: str, what: str) -> Any:
    """Import a package; raises InputError, which says that `what`, a kind of file, needs it."""
    try:
        return import_module(name)
    except Exception as error:
        raise file_error(path, missing_extra(what, "models", error)) from None


_PACKAGE_LOCK = RLock()  # Special tokens and standard error are set for one call at a time.


def call_package(path: Path, failure: str, function: Callable[[], _Value]) -> _Value:
    """Call a function of a package; raises InputError, which begins with `failure`, for its errors.

    Those of Rust can be panics, which are no Exceptions, and of which Rust writes a trace to
    standard error; so standard error is discarded below Python.
    """
    with _PACKAGE_LOCK, ExitStack() as stack:
        with suppress(OSError):  # Standard error may be closed.
            standard_error = os.dup(2)
            stack.callback(os.close, standard_error)
            stack.callback(os.dup2, standard_error, 2)
            nowhere = stack.enter_context(open(os.devnull, "wb"))
            os.dup2(nowhere.fileno(), 2)
        try:
            return function()
        except (KeyboardInterrupt, SystemExit, MemoryError, InputError):
            raise
        except BaseException as error:
            raise file_error(path, f"{failure} ({error})") from None

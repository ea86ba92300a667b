"""The vocabulary of a file, in which a text is first searched for tokens by their names, as llama.cpp does.

Faults of packages that read it, which are written in other languages, become a sentence about the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, Protocol, TypeVar

import numpy as np

from embcli.binary import refused, shortened
from embcli.encodings.encoding import Derivation, Encoding
from embcli.errors import InputError, lacks
from embcli.words import in_data

LONGEST = 1 << 27  # bytes of a file that lists tokens
MOST_IDS = 1 << 22  # no vocabulary has more
_Value = TypeVar("_Value")
LOCK = RLock()  # special tokens and standard error are set for one call at a time
Fragment = tuple[int | None, int, int]  # the ID of a named token or None, its first and its end character
_BLANKS = " \t\n\v\f\r"
_START = 4  # characters of a name that many share: a text without them has none of these names


@dataclass(frozen=True)
class NamedToken:
    """A token that a text can contain by its name."""

    name: str
    token_id: int
    is_special: bool  # whether it is found only if special tokens are asked for
    strips_left: bool = False  # whether the blanks before it belong to no token
    strips_right: bool = False


class Splitter(Protocol):
    """What splits a text between named tokens."""

    def ids(self, text: str) -> np.ndarray: ...  # (T,) uint32

    def spans(self, text: str) -> np.ndarray: ...  # (T, 2) int64: the first and the end character of each token

    def derivations(self, text: str) -> Iterator[Derivation]: ...


class VocabularyEncoding(Encoding):
    """The tokens of a file; they are read when the first token or text is needed."""

    adds_space: bool  # whether a text gets a space before it
    named: list[NamedToken]  # the tokens that a text can contain by their names, in the order in which they are found
    splitter: Splitter

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, in_data(name)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        splitter = self.splitter
        try:
            parts = [
                splitter.ids(text[start:end]) if token_id is None else np.array([token_id], np.uint32)
                for token_id, start, end in self._fragments(text, special)
            ]
        except (UnicodeError, RuntimeError) as error:  # a lone surrogate, or what sentencepiece says
            raise InputError(f"{self.name} cannot split this text of {len(text):,} characters: {error}") from None
        return np.concatenate([np.empty(0, np.uint32), *parts])

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        for token_id, start, end in self._fragments(text, special):
            if token_id is None:
                yield from self.splitter.derivations(text[start:end])
            else:
                yield Derivation((text[start:end].encode(),), (), (token_id,))

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        parts = [
            self.splitter.spans(text[start:end]) + start if token_id is None else np.array([[start, end]])
            for token_id, start, end in self._fragments(text, special)
        ]
        return np.concatenate([np.empty((0, 2), np.int64), *parts])

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes of known IDs, (T,), together, without the spaces that texts get before them."""
        if not self.adds_space:
            return super().decode(ids)
        names, begins, pieces = {each.token_id for each in self.named}, True, []
        for token_id in ids.tolist():
            token = self.token_bytes(token_id) or b""
            pieces.append(token.removeprefix(b" ") if begins else token)
            begins = token_id in names
        return b"".join(pieces)

    def _fragments(self, text: str, special: bool) -> list[Fragment]:
        """Return the named tokens of a text and the texts between them: ID or None, first and end character."""
        fragments: list[Fragment] = [(None, 0, len(text))] if text else []
        begun = {start: start in text for start in {named.name[:_START] for named in self.named}}
        for named in self.named:
            if (special or not named.is_special) and begun[named.name[:_START]] and named.name in text:
                fragments = [part for each in fragments for part in _split(text, each, named)]
        return fragments


def _split(text: str, fragment: Fragment, named: NamedToken) -> Iterator[Fragment]:
    token_id, place, end = fragment
    start = text.find(named.name, place, end) if token_id is None else -1
    if start < 0:
        yield fragment
        return
    while start >= 0:
        left = place + len(text[place:start].rstrip(_BLANKS)) if named.strips_left else start
        if left > place:
            yield None, place, left
        place = start + len(named.name)
        yield named.token_id, start, place
        if named.strips_right:
            place = end - len(text[place:end].lstrip(_BLANKS))
        start = text.find(named.name, place, end)
    if place < end:
        yield None, place, end


def package(path: Path, name: str, what: str) -> Any:
    """Import a package; raises InputError that `what`, the file's kind, needs it."""
    try:
        return import_module(name)
    except Exception as error:
        raise refused(path, lacks(what, "models", error)) from None


def guarded(path: Path, failure: str, function: Callable[[], _Value]) -> _Value:
    """Call a package; raises InputError for its errors and its panics, which are not Exceptions."""
    try:
        with LOCK, _silenced():
            return function()
    except (KeyboardInterrupt, SystemExit, MemoryError, InputError):
        raise
    except BaseException as error:
        raise refused(path, f"{failure} ({shortened(str(error)).strip(chr(39))})") from None


@contextmanager
def _silenced() -> Iterator[None]:
    """Discard standard error below Python: Rust writes a trace of its panics to it."""
    try:
        standard_error = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)

"""The vocabulary of a file, in which a text is first searched for tokens by their names, as llama.cpp does.

Faults of packages that read it, which are written in other languages, become a sentence about the file.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from embcli.binary import refused, shortened
from embcli.encodings.encoding import Derivation, Encoding
from embcli.errors import InputError, lacks

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


class VocabularyEncoding(Encoding):
    """Tokens of which some are found in a text by their names; a dialect says how the text between them is split."""

    named: list[NamedToken]  # the tokens that a text can contain by their names, in the order in which they are found
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
            parts = [self.ids_between("")]  # a file that cannot split a text is refused, whatever the text
            for token_id, start, end in self._fragments(text, special):
                parts.append(
                    np.array([token_id], np.uint32) if token_id is not None else self.ids_between(text[start:end])
                )
        except (UnicodeError, RuntimeError) as error:  # a lone surrogate, or what sentencepiece says
            raise InputError(f"{self.name} cannot split this text of {len(text):,} characters: {error}") from None
        return np.concatenate(parts)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        for token_id, start, end in self._fragments(text, special):
            if token_id is None:
                yield from self.derivations_between(text[start:end])
            else:
                yield Derivation((text[start:end].encode(),), (), (token_id,))

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        parts = [
            self.spans_between(text[start:end]) + start if token_id is None else np.array([[start, end]])
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


def package(path: Path, name: str, what: str) -> Any:
    """Import a package; raises InputError that `what`, the file's kind, needs it."""
    try:
        return import_module(name)
    except Exception as error:
        raise refused(path, lacks(what, "models", error)) from None


def guarded(path: Path, failure: str, function: Callable[[], _Value]) -> _Value:
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
            raise refused(path, f"{failure} ({shortened(str(error)).strip(chr(39))})") from None

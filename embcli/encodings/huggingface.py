"""A `tokenizer.json` as an encoding, by the package `tokenizers`: any local tokenizer, with its bytes and spans."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import lacks
from embcli.files.spelling import from_characters, from_piece
from embcli.files.stored import Binary
from embcli.files.tensors import refused, shortened
from embcli.safe import in_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import tokenizers

_LONGEST = 1 << 27  # bytes; those of 262,144 tokens take a quarter
_LAST_ID = (1 << 32) - 1


class HuggingFaceEncoding:
    """The tokenizer of a `tokenizer.json`, without the special tokens that it would put around a text.

    The file is read at the first token or text. Raises InputError then, where it is no such file or the package
    `tokenizers` is missing.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = in_data(name)
        self._last: tuple[str, bool, tokenizers.Encoding] | None = None
        self._known: dict[int, bytes | None] = {}

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        """The `tokenizers.Tokenizer` itself; what it says of truncation, padding and dropout is left out."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise refused(self.path, lacks("a tokenizer.json", "models")) from None
        binary = Binary(self.path)
        if binary.size > _LONGEST:
            raise binary.refused(f"a tokenizer.json of {binary.size:,} bytes is longer than any")
        data = binary.read(0, binary.size)
        found: tokenizers.Tokenizer = self._asked(lambda: Tokenizer.from_buffer(data), "it is no tokenizer.json")
        found.no_truncation()
        found.no_padding()
        if getattr(found.model, "dropout", None) is not None:
            found.model.dropout = None
        return found

    @cached_property
    def vocabulary_size(self) -> int:
        """V: the highest ID of a token, added ones too, and one."""
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`."""
        return np.array(self._encoded(text, special).ids, np.uint32)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None where the tokenizer has no such token."""
        if token_id not in self._known:
            self._known[token_id] = self._looked_up(token_id)
        return self._known[token_id]

    def entry(self, token_id: int) -> bytes | None:
        """Return a token as the vocabulary has it, where its bytes are not all of that."""
        if self._spelling is not None or token_id in self._added:
            return self.token_bytes(token_id)
        token = self.tokenizer.id_to_token(token_id) if 0 <= token_id <= _LAST_ID else None
        return None if token is None else token.encode()

    def spelled(self, text: str, ids: np.ndarray) -> dict[int, bytes]:
        """Return nothing: a token has one spelling."""
        return {}

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        """Return where each token stands in a text, (T, 2) int64: from and to which character.

        Tokens whose bytes are those of the text tell it themselves; of others it is what the tokenizer says.
        """
        encoded = self._encoded(text, special)
        tokens = [self.token_bytes(token_id) or b"" for token_id in encoded.ids]
        if b"".join(tokens) == text.encode():
            return _spans(tokens)
        found = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        cuts = np.flatnonzero((np.diff(found, axis=0) != 0).any(axis=1)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(found)], strict=True):
            if last - first > 1:  # bytes of what the vocabulary does not have: the tokenizer gives all the whole of it
                start, end = found[first].tolist()
                if b"".join(tokens[first:last]) == text[start:end].encode():
                    found[first:last] = start + _spans(tokens[first:last])
        return found

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes that IDs, (T,), stand for, all of them known; a space that a text is given is taken away."""
        if self._spelling is None:
            text: str = self._asked(lambda: self.tokenizer.decode(ids.tolist(), False), "these IDs make no text")
            return text.encode()
        joined = b"".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())
        return joined.removeprefix(b" ") if self._leads_with_space else joined

    def merges(self) -> list[int]:
        """Return the IDs of what the merges of a tokenizer.json make, in their order."""
        model = json.loads(self.tokenizer.to_str())["model"]
        prefix = model.get("continuing_subword_prefix") or ""
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model.get("merges", ()))
        ids = (self.tokenizer.token_to_id(left + right.removeprefix(prefix)) for left, right in pairs)
        return list(dict.fromkeys(token_id for token_id in ids if token_id is not None))

    @cached_property
    def _spelling(self) -> Callable[[bytes], bytes] | None:
        """What turns a token of the vocabulary into its bytes; None where tokens are words and parts of words."""
        kinds = _kinds(self.tokenizer.pre_tokenizer) | _kinds(self.tokenizer.decoder)
        if "ByteLevel" in kinds:
            return from_characters
        fallback = getattr(self.tokenizer.model, "byte_fallback", False)
        return from_piece if fallback or kinds & {"Metaspace", "ByteFallback", "Replace"} else None

    @cached_property
    def _leads_with_space(self) -> bool:
        """Whether a text gets a space in front."""
        first = self._encoded("a", False).ids[:1]
        return any((self.token_bytes(token_id) or b"").startswith(b" ") for token_id in first)

    @cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        found: dict[int, tokenizers.AddedToken] = self.tokenizer.get_added_tokens_decoder()
        return found

    def _looked_up(self, token_id: int) -> bytes | None:
        token = self.tokenizer.id_to_token(token_id) if 0 <= token_id <= _LAST_ID else None
        if token is None:
            return None
        added = self._added.get(token_id)
        if added is not None and (added.special or self._spelling is not from_piece):
            return token.encode()  # Gemma adds pieces of spaces, which are spelled as others are
        if self._spelling is not None:
            return self._spelling(token.encode())
        model = self.tokenizer.model
        prefix = getattr(model, "continuing_subword_prefix", None) or ""
        suffix = getattr(model, "end_of_word_suffix", None) or ""
        return token.removeprefix(prefix).removesuffix(suffix).encode() or token.encode()

    def _encoded(self, text: str, special: bool) -> tokenizers.Encoding:
        """Return what the tokenizer makes of a text; the last one is kept, as its IDs and its spans are asked for."""
        if self._last is None or self._last[:2] != (text, special):
            self.tokenizer.encode_special_tokens = not special
            encoded = self._asked(
                lambda: self.tokenizer.encode(text, add_special_tokens=False),
                f"it cannot split this text of {len(text):,} characters",
            )
            self._last = text, special, encoded
        return self._last[2]

    def _asked(self, ask: Callable[[], Any], failure: str) -> Any:
        """Return what the package answers; raises InputError for its errors, and its panics, which are no Exception."""
        try:
            with _silenced():
                return ask()
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:
            raise refused(self.path, f"{failure} ({shortened(str(error)).strip(chr(39))})") from None


@contextmanager
def _silenced() -> Iterator[None]:
    """Let nothing be written to standard error, past Python, as the package does with a trace of its panics."""
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    try:
        os.dup2(_nowhere(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@cache
def _nowhere() -> int:
    """Return what can be written to and goes nowhere."""
    return os.open(os.devnull, os.O_WRONLY)


def _kinds(part: Any) -> set[str]:
    """Return of what kinds a part of a tokenizer is: its own, and those of a sequence."""
    kinds: set[str] = set()
    described = [json.loads(part.__getstate__())] if part is not None else []
    while described:
        each = described.pop()
        kinds.add(each["type"])
        described += [*each.get("pretokenizers", ()), *each.get("decoders", ())]
    return kinds


def _spans(tokens: list[bytes]) -> np.ndarray:
    """Return the spans of tokens that spell a text, (n, 2) int64; one with a part of a character has all of it."""
    data = np.frombuffer(b"".join(tokens), np.uint8)
    begun = np.concatenate([[0], np.cumsum(data & 0xC0 != 0x80)])  # characters that begin before each byte
    ends = np.cumsum([0, *map(len, tokens)])
    first = begun[np.minimum(ends[:-1] + 1, len(data))] - 1
    return np.stack([np.maximum(first, 0), begun[ends[1:]]], axis=1)

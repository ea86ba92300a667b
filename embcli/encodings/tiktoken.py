"""Encodings that tiktoken splits: its own, built from the rank files in data/ without a network, and files of ranks.

A file is a `.tiktoken` or Mistral's `tekken.json`. The packaged ranks, patterns and special tokens are those of
tiktoken's own `tiktoken_ext.openai_public`; a test compares each of them with the installed tiktoken.
"""

from __future__ import annotations

import gzip
import zlib
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embcli.binary import Binary, read_object, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    MAX_TOKENS,
    NamedToken,
    VocabularyEncoding,
    call_package,
    load_facts,
)
from embcli.encodings.merging import NEVER, Derivation, derive, spans_of
from embcli.errors import InputError, does_not_load
from embcli.wording import in_data

if TYPE_CHECKING:
    from types import ModuleType

    import tiktoken

_SECONDS = 20  # for the search of a piece, which takes milliseconds
_MOST_SPECIAL = 1 << 16  # tokens of a tekken.json, which need not list them


class Definition(NamedTuple):
    ranks: str
    pattern: str
    special_tokens: dict[str, int]
    vocabulary_size: int
    first_rank: int = 0  # the ID of the token of rank 0


DEFINITIONS = {name: Definition(**given) for name, given in load_facts("tiktoken.json").items()}
_HARMONY = DEFINITIONS["o200k_harmony"].special_tokens  # 200018 has two names
_HARMONY |= {
    f"<|reserved_{at}|>": at
    for at in range(200000, 201088)
    if at == 200018 or at not in _HARMONY.values()
}


def rank_file(ranks: str) -> Path:
    return Path(__file__).parents[1] / "data" / f"{ranks}.tiktoken.gz"


def import_tiktoken(module: str = "tiktoken") -> ModuleType:
    try:
        return import_module(module)
    except Exception as error:
        raise InputError(does_not_load("tiktoken", error)) from None


class TiktokenEncoding(VocabularyEncoding):
    """An encoding of tiktoken's, by its name; its ranks are read when the first token or text is needed."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def definition(self) -> Definition:
        return DEFINITIONS[self.name]

    @property
    def vocabulary_size(self) -> int:
        return self.definition.vocabulary_size

    @cached_property
    def ids(self) -> dict[bytes, int]:
        path = rank_file(self.definition.ranks)
        try:
            return _ranks(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, zlib.error, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot read the rank file {str(path)!r}: {reason}; reinstall embcli"
            ) from None

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        """Tokens by ID; of the two names of a special token, the first one is used."""
        special = reversed(self.definition.special_tokens.items())
        return {rank: token for token, rank in self.ids.items()} | {
            at: name.encode() for name, at in special
        }

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes.get(token_id)

    @cached_property
    def tiktoken(self) -> tiktoken.Encoding:
        special, ranks = self.definition.special_tokens, self.ids
        encoding: tiktoken.Encoding = import_tiktoken().Encoding(
            self.name,
            pat_str=self.definition.pattern,
            mergeable_ranks=ranks,
            special_tokens=special,
        )
        return encoding

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        allowed = self.tiktoken.special_tokens_set if special else set()
        try:
            return self.tiktoken.encode_to_numpy(
                text, allowed_special=allowed, disallowed_special=()
            )
        except ValueError as error:
            raise InputError(
                f"{self.name} cannot split this text of {len(text):,} characters: {error}"
            ) from None

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        special = self.definition.special_tokens
        return [
            NamedToken(name, special[name], True) for name in sorted(special, key=len, reverse=True)
        ]

    def ids_between(self, text: str) -> np.ndarray:
        return self.encode(text)

    def spans_between(self, text: str) -> np.ndarray:
        return spans_of(
            text.encode(), [len(self._bytes[token_id]) for token_id in self.encode(text).tolist()]
        )

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        names = self.definition.special_tokens
        has_doubles = special and len({*names.values()}) < len(
            names
        )  # then a text may have the other name
        return super().spans(text, special) if has_doubles else None

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        import regex

        ranks, first = self.ids, self.definition.first_rank
        try:
            pattern = regex.compile(self.definition.pattern, regex.VERSION1)
            for piece in (
                match[0].encode() for match in pattern.finditer(text, timeout=_SECONDS) if match[0]
            ):
                symbols = [b"%c" % byte for byte in piece]
                derivation = derive(
                    symbols, lambda *pair: ranks.get(b"".join(pair), NEVER) - first, ranks.get
                )
                if piece in ranks and derivation.ids != (
                    ranks[piece],
                ):  # it is looked up; merges lead elsewhere
                    derivation = Derivation(derivation.symbols, (), (ranks[piece],))
                yield derivation
        except (ValueError, TimeoutError, regex.error) as error:
            raise InputError(
                f"{self.name} has a pattern that cannot split this text ({error})"
            ) from None


class RankFileEncoding(TiktokenEncoding):
    """The encoding of a file of tokens by rank, which is read when the first token or text is needed."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(in_data(name))
        self.path = path

    @cached_property
    def _content(self) -> tuple[Definition, dict[bytes, int]]:
        return (_tekken if self.path.suffix == ".json" else _listed)(Binary(self.path))

    @cached_property
    def definition(self) -> Definition:
        return self._content[0]

    @cached_property
    def ids(self) -> dict[bytes, int]:
        return self._content[1]

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        failure = f"it cannot split this text of {len(text):,} characters"
        return call_package(
            self.path, failure, lambda: super(RankFileEncoding, self).encode(text, special)
        )


def _ranks(data: bytes) -> dict[bytes, int]:
    """Return the ranks of tokens in the lines of a .tiktoken file."""
    words = data.split()
    if not words:
        raise ValueError("it is empty")
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _listed(binary: Binary) -> tuple[Definition, dict[bytes, int]]:
    """Return a .tiktoken file's definition and the IDs of its tokens; its name tells how a text is split."""
    known = DEFINITIONS.get(binary.path.stem)
    if known is None:
        reason = (
            "its name is none of tiktoken's encodings, and nothing else tells how it splits a text"
        )
        raise binary.file_error(reason, f"encodings are {', '.join(DEFINITIONS)}")
    try:
        ids = _ranks(read_whole(binary, MAX_FILE_SIZE))
    except ValueError:
        raise binary.file_error("it is not a file of tokens and ranks") from None
    if any(not 0 <= rank < MAX_TOKENS for rank in ids.values()):
        raise binary.file_error("it has a rank that no vocabulary has")
    size = max([*ids.values(), *known.special_tokens.values()], default=-1) + 1
    return known._replace(vocabulary_size=size), ids


def _tekken(binary: Binary) -> tuple[Definition, dict[bytes, int]]:
    """Return a tekken.json's definition and the IDs of its tokens, which come after the special ones."""
    content = read_object(binary, MAX_FILE_SIZE)
    try:
        config = content["config"]
        first, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
        ranks = {a2b_base64(each["token_bytes"]): int(each["rank"]) for each in content["vocab"]}
        named = {
            int(each["rank"]): str(each["token_str"])
            for each in content.get("special_tokens") or ()
        }
        pattern = str(config["pattern"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise binary.file_error(f"it is not a tekken.json ({error!r})") from None
    if not 0 <= first <= size < MAX_TOKENS or any(rank < 0 for rank in ranks.values()):
        raise binary.file_error("it has a rank that no vocabulary has")
    if first > _MOST_SPECIAL:
        raise binary.file_error(f"it promises {first:,} special tokens")
    ids = {token: rank + first for token, rank in ranks.items() if rank < size - first}
    special: dict[str, int] = {}
    for at in range(first):
        name = named.get(at, "").encode(errors="ignore").decode()  # without lone surrogates
        is_usable = name not in ("", *special) and name == named[at]
        special[name if is_usable else f"<SPECIAL_{at}>"] = at
    return Definition("", pattern, special, max([*ids.values(), first - 1]) + 1, first), ids

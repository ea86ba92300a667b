"""The encodings that tiktoken splits: its own, by their names, and those of files of ranks.

embcli has the rank files of tiktoken's own encodings in data/, so that none needs a network. Their
patterns and special tokens are those of `tiktoken_ext.openai_public`; a test compares each of them
with the installed tiktoken. A file of ranks is a `.tiktoken` or Mistral's `tekken.json`.
"""

from __future__ import annotations

import gzip
from binascii import a2b_base64
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embcli.binary import Binary, file_error, read_object, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    MAX_TOKENS,
    NamedToken,
    UnknownTokenizerError,
    VocabularyEncoding,
    call_package,
)
from embcli.encodings.kinds import added_ids
from embcli.encodings.merging import NEVER, Derivation, Ids, derive, spans_of
from embcli.errors import InputError, does_not_load
from embcli.wording import DATA, counted, in_data, load_facts

if TYPE_CHECKING:
    from types import ModuleType

    import tiktoken


class Definition(NamedTuple):
    """What tiktoken needs of an encoding, except the ranks of its tokens."""

    ranks: str  # the name of the rank file in data/
    pattern: str
    special_tokens: dict[str, int]
    vocabulary_size: int
    first_rank: int = 0  # the ID of the token of rank 0


Vocabulary = tuple[Definition, Ids]  # with the IDs of tokens that are not special


def _definitions() -> dict[str, Definition]:
    """Return the encodings of tiktoken by name."""
    definitions = {
        name: Definition(**fields) for name, fields in load_facts("tiktoken.json").items()
    }

    special_tokens = definitions["o200k_harmony"].special_tokens
    for token_id in range(200013, 201088):  # 200018 has two names
        special_tokens[f"<|reserved_{token_id}|>"] = token_id
    return definitions


DEFINITIONS = _definitions()


def import_tiktoken(module: str = "tiktoken") -> ModuleType:
    """Import tiktoken or a module of it; raises InputError if that fails."""
    try:
        return import_module(module)
    except Exception as error:
        raise InputError(does_not_load("tiktoken", error)) from None


class TiktokenEncoding(VocabularyEncoding):
    """An encoding of tiktoken's, by its name; its ranks are read for the first token or text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.definition = DEFINITIONS[name]

    @cached_property
    def ids(self) -> Ids:
        """The IDs of the tokens that are not special."""
        path = DATA / f"{self.definition.ranks}.tiktoken.gz"
        try:
            return _parse_ranks(gzip.decompress(path.read_bytes()))
        except Exception as error:  # a damaged file raises many kinds
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot read the rank file {str(path)!r}: {reason}; reinstall embcli"
            ) from None

    @property
    def vocabulary_size(self) -> int:
        return self.definition.vocabulary_size

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        """The tokens by ID; of two names of a special token, it has the first one."""
        tokens = {token_id: token for token, token_id in self.ids.items()}
        special_tokens = self.definition.special_tokens
        for name, token_id in reversed(special_tokens.items()):
            tokens[token_id] = name.encode()
        return tokens

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes.get(token_id)

    @cached_property
    def tiktoken(self) -> tiktoken.Encoding:
        # Without a rank file, its error comes before that of a missing tiktoken.
        ranks = self.ids
        encoding: tiktoken.Encoding = import_tiktoken().Encoding(
            self.name,
            pat_str=self.definition.pattern,
            mergeable_ranks=ranks,
            special_tokens=self.definition.special_tokens,
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
                f"{self.name} cannot split this text of {counted(len(text), 'character')}: {error}"
            ) from None

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        """The special tokens, the longest first."""
        special_tokens = self.definition.special_tokens
        names = sorted(special_tokens, key=len, reverse=True)
        return [NamedToken(name, special_tokens[name], is_special=True) for name in names]

    def ids_between(self, text: str) -> np.ndarray:
        return self.encode(text)

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        # The bytes of a special token are not those of the text if this has another name of it.
        return super().spans(text, special) if special else None

    def spans_between(self, text: str) -> np.ndarray:
        spelled = text.encode()
        lengths = [len(self._bytes[token_id]) for token_id in self.encode(text).tolist()]
        return spans_of(spelled, lengths)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        import regex

        longest_search = 20  # seconds; a search takes milliseconds
        try:
            pattern = regex.compile(self.definition.pattern, regex.VERSION1)
            for match in pattern.finditer(text, timeout=longest_search):
                if match[0]:
                    yield self._derivation(match[0].encode())
        except (ValueError, TimeoutError, regex.error) as error:
            raise InputError(
                f"{self.name} has a pattern that cannot split this text ({error})"
            ) from None

    def _derivation(self, piece: bytes) -> Derivation:
        ids = self.ids
        first_rank = self.definition.first_rank

        def rank(left: bytes, right: bytes) -> float:
            return ids.get(left + right, NEVER) - first_rank

        derivation = derive([b"%c" % byte for byte in piece], rank, ids.get)
        # tiktoken looks up a whole piece first, and merges can lead to other tokens.
        token_id = ids.get(piece)
        if token_id is not None and derivation.ids != (token_id,):
            return Derivation(derivation.symbols, (), (token_id,))
        return derivation


class RankFileEncoding(TiktokenEncoding):
    """The encoding of a file of tokens by rank.

    Without a pattern it has tokens, but cannot split a text.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.name = in_data(name)
        self.path = path
        binary = Binary(path)
        start = binary.read(0, 64).lstrip()
        read = _read_tekken if start.startswith(b"{") else _read_ranks
        self.definition, self.ids = read(binary)
        self.splits = self.definition.pattern != ""

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        if not self.splits:
            reason = "its name is none of tiktoken's encodings, and nothing else tells its pattern"
            raise UnknownTokenizerError(file_error(self.path, reason).message)
        encode = super().encode
        return call_package(
            self.path,
            f"it cannot split this text of {counted(len(text), 'character')}",
            lambda: encode(text, special),
        )


def _parse_ranks(data: bytes) -> Ids:
    """Return the ranks of tokens in the lines of a .tiktoken file."""
    words = data.split()
    if not words:
        raise ValueError("it is empty")
    tokens = map(a2b_base64, words[::2])
    ranks = map(int, words[1::2])
    return dict(zip(tokens, ranks, strict=True))


def _read_ranks(binary: Binary) -> Vocabulary:
    """Return the definition of a file of ranks and the IDs of its tokens.

    The name of the file says which encoding it has. If it does not, as with Llama 3, the pattern is
    unknown, and special tokens are those of a tokenizer_config.json beside it.
    """
    known = DEFINITIONS.get(binary.path.stem)
    if known is None:
        known = Definition("", "", added_ids(binary.path), 0)
    data = read_whole(binary, MAX_FILE_SIZE)
    try:
        ids = _parse_ranks(data)
    except ValueError:
        raise binary.file_error("it is not a file of tokens and ranks") from None
    all_ids = [*ids.values(), *known.special_tokens.values()]
    if not all(0 <= token_id < MAX_TOKENS for token_id in all_ids):
        raise binary.file_error("it has a rank that no vocabulary has")
    return known._replace(vocabulary_size=max(all_ids) + 1), ids


def _read_tekken(binary: Binary) -> Vocabulary:
    """Return the definition of a tekken.json and the IDs of its tokens.

    The special tokens have the first IDs; those of rank 0 and on come after them.
    """
    content = read_object(binary, MAX_FILE_SIZE)
    try:
        config = content["config"]
        count = int(config["default_num_special_tokens"])
        size = int(config["default_vocab_size"])
        ranks = {a2b_base64(entry["token_bytes"]): int(entry["rank"]) for entry in content["vocab"]}
        special = content.get("special_tokens") or ()
        names = {int(entry["rank"]): str(entry["token_str"]) for entry in special}
        pattern = str(config["pattern"])
    except Exception as error:  # values of any type can be in place of any
        raise binary.file_error(f"it is not a tekken.json ({error!r})") from None
    # The file need not list its special tokens, so their number can be any.
    is_known = 0 <= count <= size < MAX_TOKENS and count < 1 << 16
    if not is_known or min(ranks.values(), default=0) < 0:
        raise binary.file_error("it has a rank that no vocabulary has")

    ids = {token: count + rank for token, rank in ranks.items() if count + rank < size}
    special_tokens = {}
    for token_id in range(count):
        name = in_data(names.get(token_id, ""))
        if name == "" or name in special_tokens:
            name = f"<SPECIAL_{token_id}>"
        special_tokens[name] = token_id
    last_id = max([*ids.values(), count - 1])
    return Definition("", pattern, special_tokens, last_id + 1, first_rank=count), ids

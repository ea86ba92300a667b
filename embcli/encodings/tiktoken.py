"""Encodings that tiktoken splits: its own, built from the rank files in data/ without a network, and files of ranks.

The ranks, patterns and special tokens are those of tiktoken's own `tiktoken_ext.openai_public`; a test compares each of
them with the installed tiktoken.
"""

from __future__ import annotations

import gzip
import re
import zlib
from binascii import a2b_base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.encodings.encoding import Derivation, Encoding
from embcli.errors import InputError, does_not_load

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    import tiktoken


_GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_O200K_PATTERN = "|".join(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_SUFFIX}",
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_SUFFIX}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

_END = "<|endoftext|>"
_SECONDS = 20  # for the search of a piece, which takes milliseconds
_HARMONY_NAMED = {
    "startoftext": 199998,
    "endoftext": 199999,
    "return": 200002,
    "constrain": 200003,
    "channel": 200005,
    "start": 200006,
    "end": 200007,
    "message": 200008,
    "call": 200012,
    "endofprompt": 200018,
}
_HARMONY_RESERVED = {200000, 200001, 200004, 200009, 200010, 200011, *range(200013, 201088)}
_HARMONY = {f"<|{name}|>": token_id for name, token_id in _HARMONY_NAMED.items()} | {
    f"<|reserved_{token_id}|>": token_id for token_id in sorted(_HARMONY_RESERVED)
}


@dataclass(frozen=True, eq=False)
class Definition:
    """The parts of an encoding: a rank file, a splitting pattern, special tokens, and V."""

    ranks: str
    pattern: str
    special_tokens: dict[str, int]
    vocabulary_size: int


_FILL_IN = {"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}
_CL100K_SPECIAL = {
    _END: 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}
DEFINITIONS: dict[str, Definition] = {
    "gpt2": Definition("r50k_base", _GPT2_PATTERN, {_END: 50256}, 50257),
    "r50k_base": Definition("r50k_base", _GPT2_PATTERN, {_END: 50256}, 50257),
    "p50k_base": Definition("p50k_base", _GPT2_PATTERN, {_END: 50256}, 50281),
    "p50k_edit": Definition("p50k_base", _GPT2_PATTERN, {_END: 50256} | _FILL_IN, 50284),
    "cl100k_base": Definition("cl100k_base", _CL100K_PATTERN, _CL100K_SPECIAL, 100277),
    "o200k_base": Definition("o200k_base", _O200K_PATTERN, {_END: 199999, "<|endofprompt|>": 200018}, 200019),
    "o200k_harmony": Definition("o200k_base", _O200K_PATTERN, _HARMONY, 201088),
}


def rank_file(ranks: str) -> Path:
    return Path(__file__).parents[1] / "data" / f"{ranks}.tiktoken.gz"


def loaded(module: str = "tiktoken") -> ModuleType:
    """Return a module of tiktoken; raises InputError if it is missing or does not load."""
    try:
        return import_module(module)
    except Exception as error:
        raise InputError(does_not_load("tiktoken", error)) from None


class TiktokenEncoding(Encoding):
    """An encoding of tiktoken's, by its name.

    The rank file is read when the first token is needed, and tiktoken is loaded for the first text: a command that
    needs only V, or the bytes of a few IDs, starts faster.
    """

    first_rank = 0  # the ID of the token of rank 0

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def definition(self) -> Definition:
        return DEFINITIONS[self.name]

    @cached_property
    def _named(self) -> dict[int, list[str]]:
        """The names of special tokens; o200k_harmony has two for 200018, and the first one is used."""
        named: dict[int, list[str]] = {}
        for token, token_id in self.definition.special_tokens.items():
            named.setdefault(token_id, []).append(token)
        return named

    @cached_property
    def _bytes(self) -> dict[int, bytes | None]:
        return {token_id: names[0].encode() for token_id, names in self._named.items()}

    @property
    def vocabulary_size(self) -> int:
        return self.definition.vocabulary_size

    @cached_property
    def _ranks(self) -> bytes:
        path = rank_file(self.definition.ranks)
        try:
            ranks = gzip.decompress(path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"cannot read the rank file {str(path)!r}: {reason}; reinstall embcli") from None
        if not ranks:
            raise InputError(f"the rank file {str(path)!r} is empty; reinstall embcli")
        return ranks

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._ranks.split(b"\n")[:-1]

    @cached_property
    def rank_of(self) -> dict[bytes, int]:
        words = self._ranks.split()
        return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))

    @cached_property
    def tiktoken(self) -> tiktoken.Encoding:
        encoding: tiktoken.Encoding = loaded().Encoding(
            self.name,
            pat_str=self.definition.pattern,
            mergeable_ranks=self.rank_of,
            special_tokens=self.definition.special_tokens,
        )
        return encoding

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`.

        >>> TiktokenEncoding("gpt2").encode("Every effort moves you").tolist()
        [6109, 3626, 6100, 345]
        """
        try:
            return self.tiktoken.encode_to_numpy(
                text, allowed_special="all" if special else set(), disallowed_special=()
            )
        except ValueError as error:
            raise InputError(f"{self.name} cannot split this text of {len(text):,} characters: {error}") from None

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        """Yield the merges of each piece that the encoding's regular expression finds; a special token is a piece.

        A piece that is a token is looked up; it has no merges if they lead elsewhere.
        """
        import regex

        from embcli.encodings.merging import NEVER, derived

        names, ranks = self.definition.special_tokens, self.rank_of
        pattern = regex.compile(self.definition.pattern, regex.VERSION1)
        cut = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))

        def order(left: bytes, right: bytes) -> float:
            return ranks.get(left + right, NEVER) - self.first_rank

        for part in re.split(f"({cut})", text) if special and names else [text]:
            if special and part in names:
                yield Derivation((part.encode(),), (), (names[part],))
                continue
            for match in pattern.finditer(part, timeout=_SECONDS):
                piece = match[0].encode()
                symbols = [piece[place : place + 1] for place in range(len(piece))]
                derivation = derived(symbols, order, ranks.get)
                if piece in ranks and derivation.ids != (ranks[piece],):
                    derivation = Derivation(derivation.symbols, (), (ranks[piece],))
                if piece:
                    yield derivation

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the encoding has no such token.

        >>> TiktokenEncoding("gpt2").token_bytes(6109)
        b'Every'
        """
        try:
            return self._bytes[token_id]
        except KeyError:
            return self._bytes.setdefault(token_id, self._looked_up(token_id))

    def spelled(self, text: str, ids: np.ndarray) -> dict[int, bytes]:
        spelled: dict[int, bytes] = {}
        for token_id, names in self._named.items():
            places = (ids == token_id).nonzero()[0].tolist() if len(names) > 1 else []
            if places:  # only these names give the ID, so they appear in the text in the order of the places
                spellings = re.findall("|".join(map(re.escape, names)), text)
                pairs = zip(places, spellings, strict=True)
                spelled |= {place: name.encode() for place, name in pairs if name != names[0]}
        return spelled

    def merges(self) -> list[int]:
        """Return the IDs of the tokens that BPE merged, in the order of merges.

        >>> merges = TiktokenEncoding("gpt2").merges()
        >>> merges[0], merges[-1], len(merges)
        (256, 50255, 50000)
        """
        special = {*self.definition.special_tokens.values()}
        ids = (token_id for token_id in range(self.vocabulary_size) if token_id not in special)
        return [token_id for token_id in ids if len(self.token_bytes(token_id) or b"") > 1]

    def _looked_up(self, token_id: int) -> bytes | None:
        # The lines are sorted by rank and nearly always line i is rank i; p50k_base omits one rank.
        for guess in (token_id, token_id - 1):
            if 0 <= guess < len(self._lines):
                token, _, rank = self._lines[guess].partition(b" ")
                if int(rank) == token_id:
                    return a2b_base64(token)
        return None

"""Files of tokens by rank, which are merged in this order: tiktoken's `.tiktoken` and Mistral's `tekken.json`."""

from __future__ import annotations

from binascii import Error, a2b_base64
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from embcli.binary import Binary, refused
from embcli.encodings.encoding import Derivation
from embcli.encodings.guard import guarded
from embcli.encodings.tiktoken import DEFINITIONS, Definition, TiktokenEncoding
from embcli.encodings.vocabulary import LONGEST, MOST_IDS
from embcli.safe import in_data
from embcli.strict_json import read_object

_MOST_SPECIAL = 1 << 16  # tokens of a tekken.json, which need not list them
_Content = tuple[Definition, dict[bytes, int], dict[int, bytes]]  # ranks, and the bytes of special tokens


class RankFileEncoding(TiktokenEncoding):
    """The encoding of a file, which is read when the first token or text is needed; tiktoken splits its texts."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(in_data(name))
        self.path = path

    @cached_property
    def _content(self) -> _Content:
        return (_tekken if self.path.suffix == ".json" else _listed)(Binary(self.path))

    @cached_property
    def definition(self) -> Definition:
        return self._content[0]

    @property
    def first_rank(self) -> int:  # type: ignore[override]
        return len(self._content[2]) if self.path.suffix == ".json" else 0

    @cached_property
    def rank_of(self) -> dict[bytes, int]:
        return self._content[1]

    @cached_property
    def _bytes(self) -> dict[int, bytes | None]:
        return {**{rank: token for token, rank in self.rank_of.items()}, **self._content[2]}

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes.get(token_id)

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        self.rank_of  # noqa: B018 - a damaged file is refused by its own sentence
        guarded(self.path, "tiktoken cannot take its tokens or its pattern", lambda: self.tiktoken)
        failure = f"it cannot split this text of {len(text):,} characters"
        return guarded(self.path, failure, lambda: super(RankFileEncoding, self).encode(text, special))

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        import regex

        try:
            yield from super().derivations(text, special)
        except (ValueError, TimeoutError, regex.error) as error:
            raise refused(self.path, f"its pattern cannot split this text ({error})") from None


def _listed(binary: Binary) -> _Content:
    """Return the content of a .tiktoken file; its name tells how a text is split."""
    known = DEFINITIONS.get(binary.path.stem)
    if known is None:
        reason = "its name is none of tiktoken's encodings, and nothing else tells how it splits a text"
        raise binary.refused(reason, f"encodings are {', '.join(DEFINITIONS)}")
    lines = binary.read_whole(LONGEST).split(b"\n")
    try:
        ranks = {a2b_base64(word): int(rank) for word, rank in (line.split() for line in lines if line.strip())}
    except (ValueError, Error):
        raise binary.refused("it is not a file of tokens and ranks") from None
    if any(not 0 <= rank < MOST_IDS for rank in ranks.values()):
        raise binary.refused("it has a rank that no vocabulary has")
    special = known.special_tokens
    size = max([*ranks.values(), *special.values()], default=-1) + 1
    return Definition("", known.pattern, special, size), ranks, {at: name.encode() for name, at in special.items()}


def _tekken(binary: Binary) -> _Content:
    """Return the content of a tekken.json: special tokens have the first IDs."""
    content = read_object(binary, LONGEST)
    try:
        config = content["config"]
        first, size = int(config["default_num_special_tokens"]), int(config["default_vocab_size"])
        ranks = {a2b_base64(each["token_bytes"]): int(each["rank"]) for each in content["vocab"]}
        named = {int(each["rank"]): str(each["token_str"]) for each in content.get("special_tokens") or ()}
        pattern = str(config["pattern"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise binary.refused(f"it is not a tekken.json ({error!r})") from None
    if not 0 <= first <= size < MOST_IDS or any(rank < 0 for rank in ranks.values()):
        raise binary.refused("it has a rank that no vocabulary has")
    if first > _MOST_SPECIAL:
        raise binary.refused(f"it promises {first:,} special tokens")
    used = {token: rank + first for token, rank in ranks.items() if rank < size - first}
    names = {at: named.get(at, f"<SPECIAL_{at}>") for at in range(first)}
    found = {name: at for at, name in reversed(names.items()) if name and name.encode(errors="ignore").decode() == name}
    spelled = {at: name.encode(errors="replace") for at, name in names.items()}
    return Definition("", pattern, found, max([*used.values(), first - 1]) + 1), used, spelled

"""The vocabulary of a GGUF file as an encoding: it splits a text as llama.cpp does.

The header is read at once and the words when the first one is needed. The keys are described in ggml's docs/gguf.md,
the rules are those of llama.cpp's src/llama-vocab.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from embcli.binary import Binary, quoted
from embcli.encodings.encoding import (
    NamedToken,
    VocabularyEncoding,
    call_package,
    import_package,
    load_facts,
)
from embcli.encodings.merging import (
    Derivation,
    ToBytes,
    byte_level_to_bytes,
    bytes_of,
    piece_to_bytes,
)
from embcli.encodings.pieces import (
    BytePairs,
    PieceTokenizer,
    ScoredPairs,
    Unigrams,
    WordPieces,
)
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.gguf import GgufHeader, read_header
from embcli.wording import Sentence, in_data

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5  # types of tokens
_MODELS = ("gpt2", "gemma4", "llama", "bert", "t5")  # whose rules are known


class GgufEncoding(VocabularyEncoding):
    def __init__(self, binary: Binary, header: GgufHeader, words: list[bytes], name: str) -> None:
        self.path = binary.path
        self.name = in_data(name)
        self._binary = binary
        self._header = header
        self._words = words
        self.model, self._pre = (
            header.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")
        )
        self._splitting = splittings().get("gemma4" if self.model == "gemma4" else str(self._pre))
        self.splits = self._refusal is None
        leads = self._flag("add_space_prefix", self.model == "llama")
        self.adds_space = self.model == "bert" or (leads and self.model in ("llama", "t5"))

    @property
    def vocabulary_size(self) -> int:
        return len(self._words)

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        word, spelled = self._words[token_id], self._spelled
        plain = (_CONTROL,) if spelled is piece_to_bytes else (_CONTROL, _USER_DEFINED)
        return word if self._stored_kinds[token_id] in plain else spelled(word)

    @cached_property
    def _spelled(self) -> ToBytes:
        if self.model == "gpt2" and (
            self._splitting is None or "of_characters" not in self._splitting.flags
        ):
            return byte_level_to_bytes
        return piece_to_bytes if self.model in _MODELS else bytes

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        chosen = np.flatnonzero(
            (self._kinds != _NORMAL) & (self._kinds <= _USER_DEFINED) & (self._kinds > 0)
        )
        names = {at: self._words[at].decode(errors="ignore") for at in chosen.tolist()}
        ids = [at for at, name in names.items() if name and name.encode() == self._words[at]]
        ids.sort(key=lambda at: -len(self._words[at]))
        kinds = self._kinds
        return [
            NamedToken(names[at], at, kinds[at] != _USER_DEFINED, *self._strips(self._words[at]))
            for at in ids
        ]

    @cached_property
    def bos_eos(self) -> tuple[tuple[int, ...], tuple[int, ...]]:  # type: ignore[override]
        if self.model == "bert":
            return (self._special("bos", 101),), (self._special("seperator", 102),)
        adds_bos = self.model == "llama" or (
            self._splitting is not None and "adds_bos" in self._splitting.flags
        )
        if self._splitting is not splittings()["gemma4"]:
            adds_bos = self._flag("add_bos_token", adds_bos)
        adds_eos = self._flag("add_eos_token", self.model == "t5")
        bos, eos = _AROUND.get(str(self.model), (None, None))
        return (self._special("bos", bos),) if adds_bos else (), (
            self._special("eos", eos),
        ) if adds_eos else ()

    def ids_between(self, text: str) -> np.ndarray:
        return self._pieces.ids(text)

    def spans_between(self, text: str) -> np.ndarray:
        return self._pieces.spans(text)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        return self._pieces.derivations(text)

    @cached_property
    def _pieces(self) -> PieceTokenizer:
        if self._refusal is not None:
            raise self._refusal
        if self.model == "llama":
            scores = dict(zip(self._words, self._scores.tolist(), strict=True))
            return ScoredPairs(self._ids, scores, self._special("unknown", 0), self.adds_space)
        if self.model == "bert":
            lowers = self._flag("normalizer.lowercase", True)
            strips = self._flag("normalizer.strip_accents", lowers)
            return WordPieces(self._ids, self._special("unknown", 100), lowers, strips)
        return self._unigrams() if self.model == "t5" else self._byte_pairs()

    @cached_property
    def _refusal(self) -> InputError | None:
        what, name = "tokenizer", self.model
        if self.model in _MODELS:
            if self.model != "gpt2" or self._splitting is not None:
                return None
            what, name = "pre-tokenizer", self._pre
        why = (
            f"it does not name its {what}"
            if name is None
            else f"its {what} {quoted(str(name))} is unknown"
        )
        file_error = "it has the tokens of its rows, but cannot split a text: {why}; give {ids} or {encoding}"
        return self._binary.file_error(Sentence(file_error, why=why))

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {word: at for at, word in enumerate(self._words)}

    @cached_property
    def _stored_kinds(self) -> np.ndarray:
        kinds = np.asarray(self._array("token_type"))
        if kinds.dtype not in (np.uint32, np.int32) or len(kinds) != len(self._words):
            kinds = np.zeros(len(self._words), np.int32)
        return np.where(kinds == 0, _NORMAL, kinds)

    @cached_property
    def _kinds(self) -> np.ndarray:
        """The types of the tokens, (V,), with those that follow from their names."""
        kinds = self._stored_kinds.copy()
        ids = self._ids
        for each in load_facts("controls.json"):
            if not any(
                f"tokenizer.ggml.{key}_token_id" in self._header.metadata for key in each["keys"]
            ):
                kinds[[ids[name] for name in map(str.encode, each["names"]) if name in ids]] = each[
                    "kind"
                ]
        if b"<|end|>" in ids and (
            {b"<|return|>", b"<|call|>"} <= ids.keys()
            or (b"<|flush|>" in ids and ids.keys() & {b"<|call|>", b"<|calls|>"})
        ):
            kinds[ids[b"<|end|>"]] = _USER_DEFINED
        if b"</s>" in ids and ids.keys() & {b"<|tool_response>", b"<|plamo:eos|>"}:
            kinds[ids[b"</s>"]] = _NORMAL
        return kinds

    def _strips(self, word: bytes) -> tuple[bool, bool]:
        """Return whether blanks before and after a token belong to no token: this depends on the model's name."""
        metadata = self._header.metadata
        name, architecture = (
            str(metadata.get(f"general.{key}", "")) for key in ("name", "architecture")
        )
        name = name.lower()
        if re.search("jina-v2-(de|es|code)", str(self._pre)) or re.search(
            "nomic-bert-moe|jina-bert-v3", architecture
        ):
            return word == b"<mask>", False
        if "phi-3" in name or "phi3" in name:
            return False, word not in (b"<unk>", b"<s>", b"<|endoftext|>")
        return "modern-bert" in name and word == b"[MASK]", False

    def _array(self, name: str) -> list[bytes] | np.ndarray | None:
        return self._header.arrays.get(f"tokenizer.ggml.{name}")

    @cached_property
    def _scores(self) -> np.ndarray:
        stored = self._array("scores")
        if stored is None:
            return np.zeros(len(self._words), np.float32)
        scores = np.asarray(stored)[: len(self._words)]
        if scores.dtype not in (np.int32, np.float32) or len(scores) < len(self._words):
            raise self._binary.file_error(
                "its tokenizer.ggml.scores are not numbers, one for each token"
            )
        if not np.isfinite(scores).all():
            raise self._binary.file_error("its tokenizer.ggml.scores are not all finite")
        return scores

    def _flag(self, name: str, default: bool) -> bool:
        value = self._header.metadata.get(f"tokenizer.ggml.{name}", default)
        return value if isinstance(value, bool) else default

    def _special(self, name: str, default: int | None) -> int:
        size = self.vocabulary_size
        value = self._header.metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        known = [each for each in (value, default) if isinstance(each, int) and 0 <= each < size]
        if not known:
            raise self._binary.file_error(
                f"it says that a text gets its {name} token, but not which one this is"
            )
        return known[0]

    def _byte_pairs(self) -> PieceTokenizer:
        splitting = self._splitting or splittings()["default"]
        merges = self._array("merges")
        if merges is None and splitting is splittings()["kimi-k2"]:
            merges = []
        if not isinstance(merges, list):
            raise self._binary.file_error(
                "it has no merges (tokenizer.ggml.merges), so it cannot split a text"
            )
        known: Callable[[bytes], bytes | None] = (
            bytes if "of_characters" in splitting.flags else bytes_of
        )
        ids = {token: at for word, at in self._ids.items() if (token := known(word)) is not None}
        ranks: dict[tuple[bytes, bytes], int] = {}
        for rank, merge in enumerate(merges):
            separator = max(merge.find(b" ", 1), 0)
            left, right = known(merge[:separator]), known(merge[separator + 1 :])
            if left and right:
                ranks.setdefault((left, right), rank)
        return BytePairs(ids, ranks, splitting)

    def _unigrams(self) -> PieceTokenizer:
        for name in ("tokenizers", "sentencepiece"):
            import_package(self.path, name, "a tokenizer of the kind t5")
        kinds, scores = self._stored_kinds, self._scores
        known = np.where(kinds == _USER_DEFINED, 0.0, scores).tolist()
        tokens = {
            self._words[token_id].decode(errors="replace"): (token_id, known[token_id])
            for token_id in np.flatnonzero(
                np.isin(kinds, (_NORMAL, _USER_DEFINED, _UNUSED))
            ).tolist()
        }
        stored = self._array("precompiled_charsmap")
        charsmap = b"" if stored is None else np.asarray(stored).tobytes()
        joins = self._flag("remove_extra_whitespaces", False)
        worst, unknown = float(scores[kinds == _NORMAL].min(initial=0)), self._special("unknown", 2)
        failure = "its map of characters is damaged"
        return call_package(
            self.path,
            failure,
            lambda: Unigrams(tokens, unknown, worst, charsmap, joins, self.adds_space),
        )


def vocabulary_of(binary: Binary, header: GgufHeader, name: str) -> GgufEncoding | None:
    """Return the encoding that the tokens of a file make, if it has any."""
    words = header.arrays.get("tokenizer.ggml.tokens")
    return GgufEncoding(binary, header, words, name) if isinstance(words, list) else None


def gguf_encoding(path: Path, name: str) -> GgufEncoding:
    binary = Binary(path)
    found = vocabulary_of(binary, read_header(binary), name)
    if found is None:
        raise binary.file_error("it has no vocabulary (tokenizer.ggml.tokens)")
    return found


_AROUND = {
    "llama": (1, 2),
    "gpt2": (11, 11),
    "t5": (None, 1),
}  # BOS and EOS that the file does not name

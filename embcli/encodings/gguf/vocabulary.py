"""The vocabulary of a GGUF file as an encoding, which splits a text as llama.cpp does.

The readers of checkpoints and the encoding named by a path use it. The header of the file has been
read; what a text needs is made of it when the first text is split. The keys of the header are
described in ggml's docs/gguf.md, the rules are those of llama.cpp's src/llama-vocab.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from embcli.binary import Binary
from embcli.encodings.encoding import (
    BosEos,
    NamedToken,
    VocabularyEncoding,
    without_merges,
)
from embcli.encodings.gguf.header import GgufHeader, read_header
from embcli.encodings.merging import (
    Derivation,
    Ids,
    Pair,
    ToBytes,
    byte_level_to_bytes,
    bytes_of,
    piece_to_bytes,
    piece_to_word_piece,
)
from embcli.encodings.pieces import (
    BytePairs,
    Pairs,
    PieceTokenizer,
    ScoredPairs,
    WordPieces,
)
from embcli.encodings.sentencepiece import CONTROL, NORMAL, UNUSED, USER_DEFINED
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.wording import Elsewhere, Sentence, in_data, load_facts

_MODELS = ("gpt2", "gemma4", "llama", "bert")  # the tokenizers whose rules are known
_FACTS = load_facts("llama_cpp.json")
# The IDs of special tokens that a file need not name, by tokenizer.
DEFAULT_IDS = _FACTS["default_ids"]
# A key of the header, a pattern of its value, and those of the tokens that take blanks before and
# after them.
_STRIPS = _FACTS["strips"]

# llama.cpp's converters give such a name to a row without a token.
_PADDING_NAME = re.compile("(?:▁)?\\[PAD[0-9]+\\]".encode())


def vocabulary_of(binary: Binary, header: GgufHeader, name: str) -> GgufEncoding | None:
    """Return the encoding that the tokens of a file make; None if it has no tokens."""
    words = header.arrays.get("tokenizer.ggml.tokens")
    return GgufEncoding(binary, header, words, name) if isinstance(words, list) else None


def gguf_encoding(binary: Binary, name: str) -> GgufEncoding:
    encoding = vocabulary_of(binary, read_header(binary), name)
    if encoding is None:
        raise binary.file_error("it has no vocabulary (tokenizer.ggml.tokens)")
    return encoding


class GgufEncoding(VocabularyEncoding):
    """The tokens of a GGUF file, with the rules of the tokenizer that the file names.

    A file whose tokenizer is unknown has tokens, but cannot split a text.
    """

    def __init__(self, binary: Binary, header: GgufHeader, words: list[bytes], name: str) -> None:
        self.path = binary.path
        self.name = in_data(name)
        self._binary = binary
        self.header = header
        self.words = words
        self.model = header.metadata.get("tokenizer.ggml.model")
        self.pre_tokenizer = header.metadata.get("tokenizer.ggml.pre")
        splitting = "gemma4" if self.model == "gemma4" else str(self.pre_tokenizer)
        self._splitting = splittings().get(splitting)
        self._flags = self._splitting.flags if self._splitting else []
        self.splits = self._split_error is None
        leads = self._flag("add_space_prefix", self.model == "llama")
        self.adds_space = leads and self.model == "llama"

    @cached_property
    def vocabulary_size(self) -> int:
        size = len(self.words)
        while size and self._is_padding(size - 1):
            size -= 1
        return size

    def _is_padding(self, token_id: int) -> bool:
        """Return whether a row has no token, but a name that a converter invented."""
        is_unused = self.stored_kinds[token_id] == UNUSED
        return bool(is_unused and _PADDING_NAME.fullmatch(self.words[token_id]))

    @property
    def faults(self) -> Iterator[str]:  # type: ignore[override]
        try:
            _ = self._scores
        except InputError as error:
            yield str(error)

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size or self._is_padding(token_id):
            return None
        word = self.words[token_id]
        kind = self.stored_kinds[token_id]
        is_user_defined = kind == USER_DEFINED and self._to_bytes is byte_level_to_bytes
        return word if kind == CONTROL or is_user_defined else self._to_bytes(word)

    @cached_property
    def _to_bytes(self) -> ToBytes:
        if self.model == "gpt2" and "of_characters" not in self._flags:
            return byte_level_to_bytes
        if self.model == "bert":
            return piece_to_word_piece
        return piece_to_bytes if self.model in _MODELS else bytes

    @property
    def unknown_id(self) -> int:  # type: ignore[override]
        return self._special("unknown")

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes that IDs, (T,), stand for; words of BERT have spaces between them."""
        if self.model != "bert":
            return super().decode(ids)
        tokens = [self.token_bytes(token_id) or b"" for token_id in ids.data]
        return b" ".join(tokens).replace(b" ##", b"")

    @cached_property
    def _ids(self) -> Ids:
        return {word: token_id for token_id, word in enumerate(self.words)}

    @cached_property
    def stored_kinds(self) -> np.ndarray:
        """The types of the tokens in the file, (V,)."""
        kinds = np.atleast_1d(np.asarray(self.array("token_type")))[: len(self.words)]
        if kinds.dtype not in (np.uint32, np.int32) or len(kinds) < len(self.words):
            kinds = np.zeros(len(self.words), np.int32)
        return np.where(kinds == 0, NORMAL, kinds)

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        """The tokens that are not normal, the longest first."""
        kinds = self.stored_kinds
        is_named = (kinds > 0) & (kinds != NORMAL) & (kinds <= USER_DEFINED)
        tokens = []
        for token_id in np.flatnonzero(is_named).tolist():
            word = self.words[token_id]
            name = word.decode(errors="ignore")
            if not name or name.encode() != word:
                continue  # It is not UTF-8, so no text contains it.
            is_special = bool(kinds[token_id] != USER_DEFINED)
            tokens.append(NamedToken(name, token_id, is_special, *self._strips(name)))
        return sorted(tokens, key=lambda token: -len(token.name.encode()))

    def _strips(self, name: str) -> tuple[bool, bool]:
        """Return whether blanks before and after a token belong to no token.

        This depends on the name of the model.
        """
        for key, model, left, right in _STRIPS:
            if re.search(model, str(self.header.metadata.get(key))):
                return bool(re.fullmatch(left, name)), bool(re.fullmatch(right, name))
        return False, False

    @cached_property
    def bos_eos(self) -> BosEos:  # type: ignore[override]
        if self.model == "bert":
            return (self._special("bos"),), (self._special("seperator"),)

        adds_bos = self.model == "llama" or "adds_bos" in self._flags
        if self._splitting is not splittings()["gemma4"]:
            adds_bos = self._flag("add_bos_token", adds_bos)
        adds_eos = self._flag("add_eos_token", self.model == "t5")

        bos = (self._special("bos"),) if adds_bos else ()
        eos = (self._special("eos"),) if adds_eos else ()
        return bos, eos

    def ids_between(self, text: str) -> np.ndarray:
        return self._tokenizer.ids(text)

    def spans_between(self, text: str) -> np.ndarray:
        return self._tokenizer.spans(text)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        if not isinstance(self._tokenizer, Pairs):
            raise without_merges(self.path, str(self.model))
        return self._tokenizer.derivations(text)

    @cached_property
    def _split_error(self) -> InputError | None:
        """The error for a text, if the tokenizer or its pre-tokenizer is unknown."""
        if self.model not in _MODELS:
            thing = "tokenizer"
            name = self.model
        elif self.model == "gpt2" and self._splitting is None:
            thing = "pre-tokenizer"
            name = self.pre_tokenizer
        else:
            return None
        why = f"its {thing} {str(name)!r} is unknown"
        if name is None:
            why = f"it does not name its {thing}"
        reason = (
            "it has the tokens of its rows, but cannot split a text: {why}; "
            "give {ids} or {encoding}"
        )
        return self._binary.file_error(
            Sentence(reason, why=why, ids=Elsewhere("ids"), encoding=Elsewhere("encoding"))
        )

    @cached_property
    def _tokenizer(self) -> PieceTokenizer:
        if self._split_error is not None:
            raise self._split_error
        if self.model == "llama":
            scores = dict(zip(self.words, self._scores.tolist(), strict=True))
            return ScoredPairs(self._ids, scores, self.unknown_id, self.adds_space)
        if self.model == "bert":
            lowers = self._flag("normalizer.lowercase", True)
            strips_accents = self._flag("normalizer.strip_accents", lowers)
            return WordPieces(self._ids, self.unknown_id, lowers, strips_accents)
        return self._byte_pairs()

    def _byte_pairs(self) -> PieceTokenizer:
        splitting = self._splitting or splittings()["default"]
        merges = self.merges
        if merges is None and splitting is splittings()["kimi-k2"]:
            merges = []
        if merges is None:
            raise self._binary.file_error(
                "it has no merges (tokenizer.ggml.merges), so it cannot split a text"
            )

        # A word of a byte-level vocabulary with other characters spells no text, so it is left out.
        to_bytes = bytes if "of_characters" in self._flags else bytes_of
        ids = {}
        for word, token_id in self._ids.items():
            token = to_bytes(word)
            if token is not None:
                ids[token] = token_id
        ranks: dict[Pair, int] = {}
        for rank, merge in enumerate(merges):
            separator = max(merge.find(b" ", 1), 0)  # The left part can begin with a space.
            left = to_bytes(merge[:separator])
            right = to_bytes(merge[separator + 1 :])
            if left and right:
                ranks.setdefault((left, right), rank)
        return BytePairs(ids, ranks, splitting)

    @property
    def merges(self) -> list[bytes] | None:
        stored = self.array("merges")
        return stored if isinstance(stored, list) else None

    @cached_property
    def _scores(self) -> np.ndarray:
        """The scores of the tokens, (V,); zeros if the file has none."""
        stored = self.array("scores")
        if stored is None:
            return np.zeros(len(self.words), np.float32)
        scores = np.asarray(stored)[: len(self.words)]
        is_number = scores.dtype in (np.int32, np.float32)
        if not is_number or len(scores) < len(self.words) or not np.isfinite(scores).all():
            raise self._binary.file_error(
                "its tokenizer.ggml.scores are not finite numbers, one for each token"
            )
        return scores

    def array(self, name: str) -> list[bytes] | np.ndarray | None:
        return self.header.arrays.get(f"tokenizer.ggml.{name}")

    def _flag(self, name: str, default: bool) -> bool:
        value = self.header.metadata.get(f"tokenizer.ggml.{name}", default)
        return value if isinstance(value, bool) else default

    def _special(self, name: str) -> int:
        """Return the ID that the file gives to a special token, or the default if that is no ID."""
        default = DEFAULT_IDS[name].get(str(self.model))
        stored = self.header.metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        for token_id in (stored, default):
            if isinstance(token_id, int) and 0 <= token_id < self.vocabulary_size:
                return token_id
        raise self._binary.file_error(
            f"it says that a text gets its {name} token, but not which one this is"
        )

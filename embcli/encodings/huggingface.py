"""What the package `tokenizers` splits: `tokenizer.json`, BERT's `vocab.txt`, GPT-2's `vocab.json` and `merges.txt`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.binary import Binary, read_object, refused
from embcli.encodings.encoding import NEVER, Derivation, Encoding, Step, derived
from embcli.encodings.spelling import from_characters, from_piece, spans_of
from embcli.encodings.vocabulary import LOCK, LONGEST, MOST_IDS, guarded, package
from embcli.words import in_data

if TYPE_CHECKING:
    import tokenizers

_LONGEST_CONFIG = 1 << 24  # bytes of a tokenizer_config.json
_SPECIAL = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")  # of a vocab.txt
_LAST_ID = (1 << 32) - 1
# A tokenizer's class in tokenizer_config.json, or a model's type in config.json -> its pre-tokenizer.
_PRE = {
    **dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"), "gpt-2"),
    **dict.fromkeys(("gpt2", "roberta", "bart", "opt", "longformer"), "gpt-2"),
    **dict.fromkeys(("Qwen2Tokenizer", "qwen2"), "qwen2"),
}


class HuggingFaceEncoding(Encoding):
    """The tokenizer of a `tokenizer.json`, without the special tokens that it would add around a text."""

    kind = "tokenizer.json"

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, in_data(name)
        self._last: tuple[str, bool, tokenizers.Encoding] | None = None
        self._bytes = cache(self._looked_up)

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        package(self.path, "tokenizers", f"a {self.kind}")
        binary = Binary(self.path)
        data = binary.read_whole(LONGEST)
        tokenizer = guarded(self.path, f"it is not a {self.kind}", lambda: self._made(binary, data))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
        return tokenizer

    @cached_property
    def vocabulary_size(self) -> int:
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        return np.array(self._encoded(text, special).ids, np.uint32)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        encoded = self._encoded(text, special)
        derive = {"BPE": self._by_merges, "WordPiece": self._in_order, "Unigram": self._in_order}.get(self._kind)
        if derive is None:
            raise refused(self.path, f"its model is {self._kind}, whose tokens are whole words")
        for _, group in groupby(zip(encoded.word_ids, encoded.ids, strict=True), lambda token: token[0]):
            yield derive([token_id for _, token_id in group])

    def _by_merges(self, ids: list[int]) -> Derivation:
        """Return the merges of a piece, which is spelled by its own tokens."""
        model, tokens = self._model, [(self._token(token_id) or "").encode() for token_id in ids]
        word, suffix = b"".join(tokens), (model.get("end_of_word_suffix") or "").encode()
        spelled, ranks = self._spelling or bytes, self._merge_ranks
        if {*ids} & self._added.keys() or (model.get("ignore_merges") and len(ids) == 1):
            return Derivation(tuple(map(spelled, tokens)), (), tuple(ids))
        if model.get("byte_fallback"):  # a byte is a symbol, spelled <0x0A>
            symbols = re.findall(rb"<0x[0-9A-F]{2}>|[\x00-\x7f]|[\xc2-\xf4][\x80-\xbf]+", word)
        else:
            symbols = [each.encode() for each in word.removesuffix(suffix).decode()]
            symbols[-1:] = [last + suffix for last in symbols[-1:]]
        find = self.tokenizer.token_to_id
        return derived(
            symbols,
            lambda left, right: ranks.get((left, right), NEVER),
            lambda token: find(token.decode()),
            spelled=spelled,
        )

    def _in_order(self, ids: list[int]) -> Derivation:
        scores = self._model["vocab"] if self._kind == "Unigram" else ()
        known = [float(scores[token_id][1]) if token_id < len(scores) else None for token_id in ids]
        return Derivation.in_order(
            [Step(self.token_bytes(at) or b"", at, score=score) for at, score in zip(ids, known, strict=True)]
        )

    @cached_property
    def _model(self) -> dict[str, Any]:
        return dict(json.loads(self.tokenizer.to_str())["model"])

    @property
    def _kind(self) -> str:
        return type(self.tokenizer.model).__name__

    @cached_property
    def _merge_ranks(self) -> dict[tuple[bytes, bytes], int]:
        if self._model.get("continuing_subword_prefix"):
            raise refused(self.path, "its merges spell tokens with a prefix, which cannot be shown")
        ranks: dict[tuple[bytes, bytes], int] = {}
        for rank, merge in enumerate(self._model["merges"]):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            ranks.setdefault((left.encode(), right.encode()), rank)
        return ranks

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._bytes(token_id)

    def entry(self, token_id: int) -> bytes | None:
        if self._spelling is not None or token_id in self._added:
            return self.token_bytes(token_id)
        token = self._token(token_id)
        return None if token is None else token.encode()

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        encoded = self._encoded(text, special)
        tokens = [self.token_bytes(token_id) or b"" for token_id in encoded.ids]
        if b"".join(tokens) == text.encode():
            return spans_of(tokens)
        spans = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        cuts = np.flatnonzero((np.diff(spans, axis=0) != 0).any(axis=1)) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(spans)], strict=True):
            if last - first > 1:  # bytes of an unknown character: the tokenizer gives each of them the whole character
                start, end = spans[first].tolist()
                if b"".join(tokens[first:last]) == text[start:end].encode():
                    spans[first:last] = start + spans_of(tokens[first:last])
        return spans

    def decode(self, ids: np.ndarray) -> bytes:
        if self._spelling is None:
            return self._decoded(ids.tolist()).encode()
        joined = super().decode(ids)
        return joined.removeprefix(b" ") if self._drops_first_space else joined

    @cached_property
    def _spelling(self) -> Callable[[bytes], bytes] | None:
        """The function from a token of the vocabulary to its bytes; None if tokens are words and parts of words."""
        kinds = _kinds(self.tokenizer.pre_tokenizer) | _kinds(self.tokenizer.decoder)
        if "ByteLevel" in kinds:
            return from_characters
        fallback = getattr(self.tokenizer.model, "byte_fallback", False)
        return from_piece if fallback or kinds & {"Metaspace", "ByteFallback", "Replace"} else None

    @cached_property
    def _drops_first_space(self) -> bool:
        """Whether the tokenizer adds a space before a text and removes it again; ByteLevel keeps it."""
        ids = self._encoded("a", False).ids
        return super().decode(np.array(ids)).startswith(b" ") and not self._decoded(ids).startswith(" ")

    def _decoded(self, ids: list[int]) -> str:
        return guarded(self.path, "it cannot decode these IDs", lambda: str(self.tokenizer.decode(ids, False)))

    @cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        return dict(self.tokenizer.get_added_tokens_decoder())

    def _made(self, binary: Binary, data: bytes) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer

        return Tokenizer.from_buffer(data)

    def _beside(self, name: str) -> dict[str, Any]:
        path = self.path.with_name(name)
        return read_object(Binary(path), _LONGEST_CONFIG) if path.is_file() else {}

    def _token(self, token_id: int) -> str | None:
        return self.tokenizer.id_to_token(token_id) if 0 <= token_id <= _LAST_ID else None

    def _looked_up(self, token_id: int) -> bytes | None:
        token = self._token(token_id)
        if token is None:
            return None
        added = self._added.get(token_id)
        if added is not None and (added.special or self._spelling is not from_piece):
            return token.encode()  # Gemma adds pieces of spaces, spelled like others
        if self._spelling is not None:
            return self._spelling(token.encode())
        model = self.tokenizer.model
        prefix = getattr(model, "continuing_subword_prefix", None) or ""
        suffix = getattr(model, "end_of_word_suffix", None) or ""
        return token.removeprefix(prefix).removesuffix(suffix).encode() or token.encode()

    def _encoded(self, text: str, special: bool) -> tokenizers.Encoding:
        """Return the tokenizer's encoding of a text; the last one is kept, for its IDs and then its spans."""
        with LOCK:
            if self._last is None or self._last[:2] != (text, special):
                self.tokenizer.encode_special_tokens = not special
                failure = f"it cannot split this text of {len(text):,} characters"
                encoded = guarded(self.path, failure, lambda: self.tokenizer.encode(text, add_special_tokens=False))
                self._last = text, special, encoded
            return self._last[2]


class BertEncoding(HuggingFaceEncoding):
    """The tokens of a `vocab.txt`; a text is lower-cased unless the tokenizer_config.json beside it says otherwise."""

    kind = "vocab.txt"

    def _made(self, binary: Binary, data: bytes) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

        ids = {word: token_id for token_id, word in enumerate(data.decode().splitlines())}
        tokenizer: tokenizers.Tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))  # noqa: S106 - no password
        lowers = self._beside("tokenizer_config.json").get("do_lower_case") is not False
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowers)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        tokenizer.add_special_tokens([token for token in _SPECIAL if token in ids])
        return tokenizer


class PairsEncoding(HuggingFaceEncoding):
    """The IDs of tokens in `vocab.json`, and the merges in the `merges.txt` beside it.

    A file beside them names the class of the tokenizer, or of the model, which tells how a text is cut into pieces.
    """

    kind = "vocab.json with a merges.txt"

    def _made(self, binary: Binary, data: bytes) -> tokenizers.Tokenizer:
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

        from embcli.encodings.splitting import splittings

        ids = read_object(binary, LONGEST)
        if not all(type(token_id) is int and 0 <= token_id < MOST_IDS for token_id in ids.values()):
            raise binary.refused("it is not a list of tokens with their IDs")
        named = (
            self._beside("tokenizer_config.json").get("tokenizer_class"),
            self._beside("config.json").get("model_type"),
        )
        pre = next((_PRE[kind] for name in named if (kind := str(name).removesuffix("Fast")) in _PRE), None)
        if pre is None:
            reason = "no tokenizer_config.json or config.json beside it names a tokenizer that embcli knows"
            raise binary.refused(f"{reason}, so it cannot split a text")
        lines = Binary(self.path.with_name("merges.txt")).read_whole(LONGEST).decode().split("\n")
        merges = [line.partition(" ")[::2] for line in lines if line.strip() and not line.startswith("#version")]
        tokenizer: tokenizers.Tokenizer = Tokenizer(models.BPE(ids, merges))
        cut = pre_tokenizers.Split(Regex(str(splittings()[pre].rules[0])), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer


def _kinds(part: Any) -> set[str]:
    kinds: set[str] = set()
    described = [json.loads(part.__getstate__())] if part is not None else []
    while described:
        each = described.pop()
        kinds.add(each["type"])
        described += [*each.get("pretokenizers", ()), *each.get("decoders", ())]
    return kinds

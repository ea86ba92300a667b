"""What the package `tokenizers` splits: `tokenizer.json`, BERT's `vocab.txt`, GPT-2's `vocab.json` and `merges.txt`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.binary import Binary, file_error, read_object, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    Encoding,
    call_package,
    import_package,
    sibling_json,
)
from embcli.encodings.merging import (
    NEVER,
    Derivation,
    DerivationStep,
    byte_level_to_bytes,
    derive,
    piece_to_bytes,
    spans_of,
)
from embcli.encodings.splitting import splittings
from embcli.wording import in_data

if TYPE_CHECKING:
    import tokenizers

_SPECIAL = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"  # of BERT
_KINDS = {
    ".txt": "vocab.txt",
    "vocab.json": "vocab.json with a merges.txt",
    "": "tokenizer.json",
}  # by their ends
_LAST_ID = (1 << 32) - 1
# A tokenizer's class in tokenizer_config.json, or a model's type in config.json -> its pre-tokenizer.
_PRE = {
    **dict.fromkeys(("gpt2", "roberta", "bart", "opt", "longformer"), "gpt-2"),
    "qwen2": "qwen2",
}


class HuggingFaceEncoding(Encoding):
    """A tokenizer of the package, without the special tokens that it would add around a text."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, in_data(name)

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        kind = next(kind for end, kind in _KINDS.items() if self.path.name.endswith(end))
        import_package(self.path, "tokenizers", f"a {kind}")
        binary = Binary(self.path)
        tokenizer = call_package(self.path, f"it is not a {kind}", lambda: _made(binary))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
        return tokenizer

    @cached_property
    def vocabulary_size(self) -> int:
        return max(self.tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def bos_eos(self) -> tuple[tuple[int, ...], tuple[int, ...]]:  # type: ignore[override]
        encoded = call_package(
            self.path, "it cannot split a text", lambda: self.tokenizer.encode("a")
        )
        own = [
            place for place, is_added in enumerate(encoded.special_tokens_mask) if not is_added
        ] or [len(encoded)]
        return tuple(encoded.ids[: own[0]]), tuple(encoded.ids[own[-1] + 1 :])

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        return np.array(self._encoded(text, special).ids, np.uint32)

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        encoded, kind = self._encoded(text, special), type(self.tokenizer.model).__name__
        derive = {
            "BPE": self._by_merges,
            "WordPiece": self._in_order,
            "Unigram": self._in_order,
        }.get(kind)
        if derive is None:
            raise file_error(self.path, f"its model is {kind}, whose tokens are whole words")
        for _, group in groupby(
            zip(encoded.word_ids, encoded.ids, strict=True), lambda token: token[0]
        ):
            yield derive([token_id for _, token_id in group])

    def _by_merges(self, ids: list[int]) -> Derivation:
        """Return the merges of a piece, which is spelled by its own tokens."""
        model, tokens = self._model, [(self._token(token_id) or "").encode() for token_id in ids]
        word, suffix = b"".join(tokens), (model.get("end_of_word_suffix") or "").encode()
        spelled, ranks, find = (
            self._spelling or bytes,
            self._merge_ranks,
            self.tokenizer.token_to_id,
        )
        if {*ids} & self._added.keys() or (model.get("ignore_merges") and len(ids) == 1):
            return Derivation(tuple(map(spelled, tokens)), (), tuple(ids))
        if model.get("byte_fallback"):  # a byte is a symbol, spelled <0x0A>
            symbols = re.findall(rb"<0x[0-9A-F]{2}>|[\x00-\x7f]|[\xc2-\xf4][\x80-\xbf]+", word)
        else:
            symbols = [each.encode() for each in word.removesuffix(suffix).decode()]
            symbols[-1:] = [last + suffix for last in symbols[-1:]]
        return derive(
            symbols,
            lambda *pair: ranks.get(pair, NEVER),
            lambda token: find(token.decode()),
            None,
            spelled,
        )

    def _in_order(self, ids: list[int]) -> Derivation:
        scores = self._model["vocab"] if self._model["type"] == "Unigram" else ()
        known = {at: float(scores[at][1]) for at in ids if at < len(scores)}
        return Derivation.in_order(
            [DerivationStep(self.token_bytes(at) or b"", at, score=known.get(at)) for at in ids]
        )

    @cached_property
    def _model(self) -> dict[str, Any]:
        return dict(json.loads(self.tokenizer.to_str())["model"])

    @cached_property
    def _merge_ranks(self) -> dict[tuple[bytes, ...], int]:
        if self._model.get("continuing_subword_prefix"):
            raise file_error(
                self.path, "its merges spell tokens with a prefix, which cannot be shown"
            )
        ranks: dict[tuple[bytes, ...], int] = {}
        for rank, merge in enumerate(self._model["merges"]):
            ranks.setdefault(tuple(part.encode() for part in merge), rank)
        return ranks

    def entry(self, token_id: int) -> bytes | None:
        if self._spelling is not None or token_id in self._added:
            return self.token_bytes(token_id)
        token = self._token(token_id)
        return None if token is None else token.encode()

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        encoded = self._encoded(text, special)
        tokens = [self.token_bytes(token_id) or b"" for token_id in encoded.ids]
        if b"".join(tokens) == text.encode():
            return spans_of(text.encode(), [*map(len, tokens)])
        spans, place = np.array(encoded.offsets, np.int64).reshape(-1, 2), 0
        for (start, end), group in groupby(encoded.offsets):
            first, place = place, place + len(list(group))
            run = tokens[first:place]
            if len(run) > 1 and b"".join(run) == text[start:end].encode():
                # bytes of unknown characters: the tokenizer gives each of them the whole text
                spans[first:place] = start + spans_of(b"".join(run), [*map(len, run)])
        return spans

    def decode(self, ids: np.ndarray) -> bytes:
        if self._spelling is None:
            return self._decoded(ids)
        joined = super().decode(ids)
        return joined.removeprefix(b" ") if self._drops_first_space else joined

    @cached_property
    def _spelling(self) -> Callable[[bytes], bytes] | None:
        """The function from a token of the vocabulary to its bytes; None if tokens are words and parts of words."""
        parts = [
            part
            for part in (self.tokenizer.pre_tokenizer, self.tokenizer.decoder)
            if part is not None
        ]
        kinds = {
            kind for part in parts for kind in re.findall(rb'"type":"(\w+)"', part.__getstate__())
        }
        if b"ByteLevel" in kinds:
            return byte_level_to_bytes
        fallback = getattr(self.tokenizer.model, "byte_fallback", False)
        return (
            piece_to_bytes
            if fallback or kinds & {b"Metaspace", b"ByteFallback", b"Replace"}
            else None
        )

    @cached_property
    def _drops_first_space(self) -> bool:
        """Whether the tokenizer adds a space before a text and removes it again; ByteLevel keeps it."""
        ids = self.encode("a")
        return super().decode(ids).startswith(b" ") and not self._decoded(ids).startswith(b" ")

    def _decoded(self, ids: np.ndarray) -> bytes:
        failure = "it cannot decode these IDs"
        return call_package(
            self.path, failure, lambda: self.tokenizer.decode(ids.tolist(), False)
        ).encode()

    @cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        return dict(self.tokenizer.get_added_tokens_decoder())

    def _token(self, token_id: int) -> str | None:
        return self.tokenizer.id_to_token(token_id) if 0 <= token_id <= _LAST_ID else None

    @lru_cache(1 << 18)  # noqa: B019 - the encoding of a file is kept anyway
    def token_bytes(self, token_id: int) -> bytes | None:
        token = self._token(token_id)
        if token is None:
            return None
        added = self._added.get(token_id)
        if added is not None and (added.special or self._spelling is not piece_to_bytes):
            return token.encode()  # Gemma adds pieces of spaces, spelled like others
        if self._spelling is not None:
            return self._spelling(token.encode())
        model = self.tokenizer.model
        prefix = getattr(model, "continuing_subword_prefix", None) or ""
        suffix = getattr(model, "end_of_word_suffix", None) or ""
        return token.removeprefix(prefix).removesuffix(suffix).encode() or token.encode()

    @lru_cache(1)  # noqa: B019 - the last one is kept, for its IDs and then its spans
    def _encoded(self, text: str, special: bool) -> tokenizers.Encoding:
        def encoded() -> tokenizers.Encoding:
            self.tokenizer.encode_special_tokens = (
                not special
            )  # for all threads, one of which is here at a time
            return self.tokenizer.encode(text, add_special_tokens=False)

        self.tokenizer  # noqa: B018 - a damaged file is refused by its own sentence
        return call_package(
            self.path, f"it cannot split this text of {len(text):,} characters", encoded
        )


def _made(binary: Binary) -> tokenizers.Tokenizer:
    from tokenizers import (
        BertWordPieceTokenizer,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    tokenizer: tokenizers.Tokenizer
    if binary.path.suffix == ".txt":
        ids = {
            word: token_id
            for token_id, word in enumerate(read_whole(binary, MAX_FILE_SIZE).decode().splitlines())
        }
        lowers = (
            sibling_json(binary.path, "tokenizer_config.json").get("do_lower_case") is not False
        )
        is_whole = ids.keys() >= {"[CLS]", "[SEP]"}  # which the package's class asks for
        tokenizer = Tokenizer.from_str(
            BertWordPieceTokenizer(ids if is_whole else None, lowercase=lowers).to_str()
        )
        if not is_whole:
            tokenizer.model = models.WordPiece(ids, unk_token="[UNK]")  # noqa: S106 - no password
            tokenizer.add_special_tokens([token for token in _SPECIAL if token in ids])
        return tokenizer
    if not binary.path.name.endswith("vocab.json"):
        return Tokenizer.from_buffer(read_whole(binary, MAX_FILE_SIZE))
    ids, files = (
        read_object(binary, MAX_FILE_SIZE),
        {"tokenizer_config.json": "tokenizer_class", "config.json": "model_type"},
    )
    named = [str(sibling_json(binary.path, file).get(key)).lower() for file, key in files.items()]
    kinds = [name.removesuffix("fast").removesuffix("tokenizer") for name in named]
    pre = next((_PRE[kind] for kind in kinds if kind in _PRE), None)
    if pre is None:
        reason = (
            "no tokenizer_config.json or config.json beside it names a tokenizer that embcli knows"
        )
        raise binary.file_error(f"{reason}, so it cannot split a text")
    lines = (
        read_whole(Binary(binary.path.with_name("merges.txt")), MAX_FILE_SIZE).decode().split("\n")
    )
    merges = [
        line.partition(" ")[::2]
        for line in lines
        if line.strip() and not line.startswith("#version")
    ]
    tokenizer = Tokenizer(models.BPE(ids, merges))
    cut, level = Regex(splittings()[pre].rules[0]), pre_tokenizers.ByteLevel(False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(cut, "isolated"), level]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer

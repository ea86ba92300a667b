"""What the package `tokenizers` splits: a tokenizer.json, a file's own or one that was asked for.

A lone `vocab.txt` and a `vocab.json` with its merges are read by the defaults of the package. It is
imported, and a file is read, when the first token or text is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from embcli.binary import Binary, file_error, read_object, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    MAX_TOKENS,
    BosEos,
    Encoding,
    Rules,
    call_package,
    import_package,
    without_merges,
)
from embcli.encodings.kinds import named_specials
from embcli.encodings.merging import (
    NEVER,
    Derivation,
    Pair,
    ToBytes,
    byte_level_to_bytes,
    derive,
    piece_to_bytes,
    piece_to_text,
    spans_of_spelling,
    unmade,
)
from embcli.errors import InputError, memory_of_machine
from embcli.wording import counted, first_of, in_bytes, in_data

if TYPE_CHECKING:
    import tokenizers

    from embcli.asked.folder import AskedTokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")  # a token of a byte
MERGES = ("merges.txt", "vocab.bpe")  # the files of merges beside a vocab.json or encoder.json
_IN_UTF8 = 243  # the bytes that a text can have: to BF, and C2 to F4
_FEW = 0.01  # of the tokens, which a healthy vocabulary can have and no text gets
_BYTES_PER_CHARACTER = 150  # of the memory in which the package keeps the tokens of a text


class HuggingFaceEncoding(Encoding):
    """A tokenizer of the package, without the special tokens that it would add around a text.

    `read` makes the tokenizer, and raises InputError for a file that is damaged. `asked` is what
    transformers made of the folder, if it was asked.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        read: Callable[[], tokenizers.Tokenizer],
        asked: AskedTokenizer | None = None,
    ) -> None:
        self.path = path
        self.name = in_data(name)
        self.described_by = asked.kind if asked else path.name
        self._read = read
        self._asked = asked

    @cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        tokenizer = self._read()
        # A text is split whole, and always in the same way.
        self.padding = tokenizer.padding or {}  # as its file says
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if getattr(tokenizer.model, "dropout", None) is not None:
            tokenizer.model.dropout = None
        return tokenizer

    @cached_property
    def rules(self) -> Rules:  # type: ignore[override]
        """What its tokenizer.json describes: its model, and what is done before and after that."""
        # The package would write something for each ID up to the largest.
        if self.vocabulary_size > MAX_TOKENS:
            raise file_error(self.path, "it has an ID that no vocabulary has")
        rules: Rules = json.loads(self._read().to_str())
        rules.update(rules.pop("model"))
        return rules

    @cached_property
    def _added(self) -> dict[int, tokenizers.AddedToken]:
        return dict(self.tokenizer.get_added_tokens_decoder())

    @property
    def added(self) -> dict[int, str]:  # type: ignore[override]
        return {token_id: token.content for token_id, token in self._added.items()}

    @property
    def special_ids(self) -> dict[str, int]:  # type: ignore[override]
        if self._asked is not None:
            return self._asked.special_ids
        found = {}
        for role, name in named_specials(self.path):
            token_id = self.tokenizer.token_to_id(name)
            if role and token_id is not None:
                found[role] = token_id
        return found

    @cached_property
    def vocabulary_size(self) -> int:
        ids = self.tokenizer.get_vocab().values()
        return max(ids, default=-1) + 1

    @property
    def faults(self) -> Iterator[str]:  # type: ignore[override]
        """Yield in words what is missing or lost, wrong IDs, and a name or an ID that is double."""
        names_of_roles: dict[str, str] = {}
        for role, name in named_specials(self.path):
            other = names_of_roles.setdefault(role, name)
            if role and other != name:
                yield (
                    f"special_tokens_map.json names {name!r} as {role}, "
                    f"tokenizer_config.json {other!r}: transformers takes the first"
                )
        if self.rules["type"] == "BPE":
            yield from self._faults_of_pairs()
        if self.rules.get("dropout"):
            share = self.rules["dropout"]
            yield f"{self.path.name} has a dropout of {share:g}: a text gets other tokens each time"

        vocabulary = self.tokenizer.get_vocab()
        around = self.tokenizer.encode("")
        for name, token_id in zip(around.tokens, around.ids, strict=True):
            own_id = vocabulary.get(name, token_id)
            if own_id != token_id:
                yield f"{self.path.name} adds {name!r} as ID {token_id}; its ID is {own_id}"

        names: dict[int, str] = {}
        for name, token_id in sorted(vocabulary.items()):
            first = names.setdefault(token_id, name)
            if first != name:
                yield f"{self.path.name} gives {first!r} and {name!r} one ID, {token_id}"
                return

    def _faults_of_pairs(self) -> Iterator[str]:
        """Yield in words the merges that are missing, and whether tokens of bytes are not used."""
        rules = self.rules
        parts = {token for token in rules["vocab"] if len(token) > 1}
        of_bytes = [token for token in parts if _BYTE.fullmatch(token)]
        tokens = parts.difference(self.added.values(), of_bytes, [rules["unk_token"]])
        suffix = rules["end_of_word_suffix"] or ""
        pairs = [[part.removesuffix(suffix) for part in merge] for merge in rules["merges"]]
        lost = unmade([token.removesuffix(suffix) for token in tokens], pairs)
        if len(lost) > _FEW * len(tokens):
            shown = first_of(map(repr, sorted(lost)), 3)
            yield f"{self.path.name}: no merge of earlier tokens makes {shown}"
        if len(of_bytes) >= _IN_UTF8 and not rules["byte_fallback"]:
            yield f"{self.path.name} has tokens of bytes, but byte_fallback is false"

    @cached_property
    def bos_eos(self) -> BosEos:  # type: ignore[override]
        encoded = call_package(
            self.path, "it cannot split a text", lambda: self.tokenizer.encode("a")
        )
        places = [place for place, added in enumerate(encoded.special_tokens_mask) if not added]
        if not places:
            return tuple(encoded.ids), ()
        return tuple(encoded.ids[: places[0]]), tuple(encoded.ids[places[-1] + 1 :])

    def encode(self, text: str, special: bool = False) -> np.ndarray:
        return np.array(self._encoded(text, special, has_offsets=False).ids, np.uint32)

    def _encoded(self, text: str, special: bool, has_offsets: bool = True) -> tokenizers.Encoding:
        """Return the tokens of a text, with special tokens recognised or not.

        Raises InputError for a text whose tokens would not fit into memory.
        """
        tokenizer = self.tokenizer  # It is read first: a damaged file has an error of its own.
        size = _BYTES_PER_CHARACTER * len(text)
        if size > memory_of_machine():
            raise InputError(
                f"{self.name} takes about {in_bytes(size)} of memory to split this text of "
                f"{len(text):,} characters; give it in parts"
            )

        def call() -> tokenizers.Encoding:
            # All threads share this setting, and call_package lets in one of them at a time.
            splits = self._asked is not None and self._asked.splits_special
            tokenizer.encode_special_tokens = splits or not special
            encode = tokenizer.encode_batch
            if not has_offsets:
                encode = tokenizer.encode_batch_fast  # This takes a third less time.
            return encode([text], add_special_tokens=False)[0]

        return call_package(
            self.path, f"it cannot split this text of {counted(len(text), 'character')}", call
        )

    def spans(self, text: str, special: bool = False) -> np.ndarray:
        """Return the spans of tokens, (T, 2) int64.

        If the tokens do not spell the text, each byte of a character has a span of its own: the
        tokenizer gives each byte of unknown characters the span of all of them.
        """
        encoded = self._encoded(text, special)
        tokens = [self.token_bytes(token_id) or b"" for token_id in encoded.ids]
        spelling = spans_of_spelling(tokens, text)
        if spelling is not None:
            return spelling
        spans = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        first = 0
        for (start, end), group in groupby(encoded.offsets):
            last = first + len(list(group))
            spelling = spans_of_spelling(tokens[first:last], text[start:end])
            if spelling is not None and last - first > 1:
                spans[first:last] = start + spelling
            first = last
        return spans

    @lru_cache(1 << 18)  # noqa: B019 - the encoding of a file is kept anyway
    def token_bytes(self, token_id: int) -> bytes | None:
        largest_id = (1 << 32) - 1  # that the package takes
        if not 0 <= token_id <= largest_id:
            return None
        token = self.tokenizer.id_to_token(token_id)
        if token is None:
            return None
        added = self._added.get(token_id)
        # Gemma adds tokens of several spaces, which are spelled as the others.
        has_pieces = self._to_bytes in (piece_to_bytes, piece_to_text)
        is_plain = added is not None and (added.special or not has_pieces)
        if is_plain or self._to_bytes is None:
            return token.encode()
        return self._to_bytes(token.encode())

    @property
    def is_byte_level(self) -> bool:  # type: ignore[override]
        return self._to_bytes is byte_level_to_bytes

    @cached_property
    def _to_bytes(self) -> ToBytes | None:
        """The function from a token to its bytes; None if tokens are words and parts of words."""
        kinds = set()
        for component in (self.tokenizer.pre_tokenizer, self.tokenizer.decoder):
            if component is not None:
                kinds.update(re.findall(rb'"type":"(\w+)"', component.__getstate__()))
        if b"ByteLevel" in kinds:
            return byte_level_to_bytes
        falls_back = getattr(self.tokenizer.model, "byte_fallback", False)
        if falls_back or b"ByteFallback" in kinds:
            return piece_to_bytes
        if kinds & {b"Metaspace", b"Replace"}:
            return piece_to_text
        return None

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the bytes that the tokenizer decodes IDs to, (T,).

        Bytes that are not UTF-8 are kept, which the tokenizer replaces. It treats only the spaces
        that begin a text in a way of their own.
        """
        if self._to_bytes is not None and self.tokenizer.decoder is None:
            return super().decode(ids)
        text = call_package(
            self.path,
            "it cannot decode these IDs",
            lambda: self.tokenizer.decode(ids.tolist(), skip_special_tokens=False),
        )
        if self._to_bytes is None or "\ufffd" not in text:
            return text.encode()
        spaces = len(text) - len(text.lstrip(" "))
        return b" " * spaces + super().decode(ids).lstrip(b" ")

    def restored(self, ids: np.ndarray) -> str:
        text = call_package(
            self.path, "it cannot decode these IDs", lambda: self.tokenizer.decode(ids.tolist())
        )
        # The class of CLIP does so; the decoder in its file does not.
        return text.replace(self.rules.get("end_of_word_suffix") or " ", " ")

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        model = type(self.tokenizer.model).__name__
        if model != "BPE":
            raise without_merges(self.path, model)
        encoded = self._encoded(text, special)
        ids = encoded.ids
        tokens = encoded.tokens
        stop = 0
        for _, piece in groupby(encoded.word_ids):
            start = stop
            stop += len(list(piece))
            yield self._by_merges(ids[start:stop], tokens[start:stop])

    def _by_merges(self, ids: list[int], tokens: list[str]) -> Derivation:
        """Return the merges of a piece, which its tokens spell."""
        ranks = self._merge_ranks
        is_whole = ids[0] in self._added or bool(self.rules.get("ignore_merges"))
        if is_whole and len(ids) == 1:
            return Derivation((self.token_bytes(ids[0]) or b"",), (), tuple(ids))
        return derive(
            self._symbols(tokens),
            lambda left, right: ranks.get((left, right), NEVER),
            lambda token: self.tokenizer.model.token_to_id(token.decode()),
            to_bytes=self._to_bytes or bytes,
        )

    def _symbols(self, tokens: list[str]) -> list[bytes]:
        """Return what is merged first in a piece: characters, bytes, and unknown characters.

        A byte is spelled `<0x0A>`, and an unknown character as the unknown token.
        """
        model = self.rules
        suffix = model.get("end_of_word_suffix") or ""
        has_suffix = tokens[-1].endswith(suffix)

        symbols = []
        for token in [*tokens[:-1], tokens[-1].removesuffix(suffix)]:
            byte_symbols = _BYTE.findall(token)
            is_bytes = model.get("byte_fallback") and "".join(byte_symbols) == token
            if token == model.get("unk_token"):
                symbols.append(token)
            elif is_bytes:
                symbols += byte_symbols
            else:
                symbols += list(token)
        if has_suffix and symbols:
            symbols[-1] += suffix
        return [symbol.encode() for symbol in symbols]

    @cached_property
    def _merge_ranks(self) -> dict[Pair, int]:
        if self.rules.get("continuing_subword_prefix"):
            raise file_error(
                self.path, "its merges spell tokens with a prefix, which cannot be shown"
            )
        ranks: dict[Pair, int] = {}
        for rank, (left, right) in enumerate(self.rules["merges"]):
            ranks.setdefault((left.encode(), right.encode()), rank)
        return ranks


def read_tokenizer(path: Path, described: str | None = None) -> tokenizers.Tokenizer:
    """Return the tokenizer of a tokenizer.json, or the one that is described for its folder."""
    import_package(path, "tokenizers", "a tokenizer.json")
    from tokenizers import Tokenizer

    data = read_whole(Binary(path), MAX_FILE_SIZE) if described is None else described.encode()
    return call_package(path, "it is not a tokenizer.json", lambda: Tokenizer.from_buffer(data))


def read_word_pieces(path: Path) -> tokenizers.Tokenizer:
    """Return the tokenizer of a lone vocab.txt, which has a token in each line: BERT's."""
    import_package(path, "tokenizers", "a vocab.txt")
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    read = partial(BertWordPieceTokenizer.from_file, str(path))
    bert = call_package(path, "it is not a vocab.txt", read)
    return Tokenizer.from_str(bert.to_str())


def read_byte_pairs(path: Path) -> tokenizers.Tokenizer:
    """Return the tokenizer of a lone vocab.json and of the merges in the same folder: GPT-2's."""
    import_package(path, "tokenizers", "a vocab.json with its merges")
    from tokenizers import ByteLevelBPETokenizer, Tokenizer

    # The package takes either of two tokens with one ID, by chance.
    token_ids = read_object(Binary(path), MAX_FILE_SIZE).values()
    if len(set(map(str, token_ids))) < len(token_ids):
        raise file_error(path, "it gives two tokens one ID")
    merges = [path.with_name(name) for name in MERGES if path.with_name(name).is_file()]
    if not merges:
        raise file_error(path, f"its merges are not beside it ({' or '.join(MERGES)})")
    Binary(merges[0])  # So it is among the files that are read.

    read = partial(ByteLevelBPETokenizer.from_file, str(path), str(merges[0]))
    pairs = call_package(path, "it is not a vocab.json with its merges", read)
    return Tokenizer.from_str(pairs.to_str())


# How the file of a kind is read by itself.
READERS = {
    "tokenizer.json": read_tokenizer,
    "vocab.json": read_byte_pairs,
    "vocab.txt": read_word_pieces,
}

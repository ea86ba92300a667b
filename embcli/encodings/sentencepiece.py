"""SentencePiece's `tokenizer.model` as an encoding.

The package `sentencepiece` splits a text, and protobuf reads the file with its
sentencepiece_model.proto: the bytes of tokens, and their scores for the merges page. The file is
read when the first token or text is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embcli.binary import Binary, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    MAX_TOKENS,
    BosEos,
    NamedToken,
    VocabularyEncoding,
    call_package,
    import_package,
    without_merges,
)
from embcli.encodings.merging import SPACE, Derivation, piece_to_bytes
from embcli.encodings.pieces import ScoredPairs
from embcli.wording import in_data

# The types of pieces, which are those of tokens in a GGUF file, too
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
BYTE = 6

# The types of models
_UNIGRAM = 1
_BPE = 2


class _Piece(NamedTuple):
    word: bytes
    score: float
    kind: int


class _Model(NamedTuple):
    data: bytes  # the whole file
    pieces: list[_Piece]
    kind: int
    adds_space: bool  # whether a text gets a space before it
    joins_spaces: bool  # whether several spaces become one

    def of_kind(self, kind: int) -> list[_Piece]:
        return [piece for piece in self.pieces if piece.kind == kind]


class SentencePieceEncoding(VocabularyEncoding):
    """A model's own pieces; control tokens and the unknown one are found by their names."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = in_data(name)

    @cached_property
    def _model(self) -> _Model:
        return _read_model(Binary(self.path))

    @property
    def names(self) -> list[str]:
        """The names of the pieces, by ID."""
        return [piece.word.decode(errors="replace") for piece in self._model.pieces]

    @cached_property
    def _processor(self) -> Any:
        sentencepiece = import_package(self.path, "sentencepiece", "a tokenizer.model")
        sentencepiece.set_min_log_level(4)
        data = self._model.data
        return call_package(
            self.path,
            "it is not a SentencePiece model",
            lambda: sentencepiece.SentencePieceProcessor(model_proto=data),
        )

    @property
    def adds_space(self) -> bool:  # type: ignore[override]
        return self._model.adds_space

    @property
    def joins_spaces(self) -> bool:  # type: ignore[override]
        return self._model.joins_spaces

    @cached_property
    def unknown_id(self) -> int:  # type: ignore[override]
        return [piece.kind for piece in self._model.pieces].index(UNKNOWN)

    @property
    def vocabulary_size(self) -> int:
        return len(self._model.pieces)

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        """The control tokens and the unknown one, the longest first."""
        tokens = []
        for token_id, piece in enumerate(self._model.pieces):
            if piece.word and piece.kind in (CONTROL, UNKNOWN):
                name = piece.word.decode(errors="replace")
                tokens.append(NamedToken(name, token_id, is_special=True))
        return sorted(tokens, key=lambda token: -len(token.name))

    @cached_property
    def bos_eos(self) -> BosEos:  # type: ignore[override]
        """BOS before a text with byte-pair models, as with Llama's."""
        bos_id = self._processor.bos_id()  # -1 if the model has none
        has_bos = self._model.kind == _BPE and bos_id >= 0
        return ((bos_id,) if has_bos else ()), ()

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        piece = self._model.pieces[token_id]
        if piece.kind in (CONTROL, UNKNOWN):
            return piece.word
        return piece_to_bytes(piece.word)

    def ids_between(self, text: str) -> np.ndarray:
        return np.array(self._encoded(text, "numpy"), np.uint32)

    def _encoded(self, text: str, return_type: str) -> Any:
        text.encode()  # The package's own error for a lone surrogate says nothing.
        return self._processor.encode(text, return_type=return_type)

    def spans_between(self, text: str) -> np.ndarray:
        encoded = self._encoded(text, "offset_mapping")
        spans: list[tuple[int, int]] = encoded["offsets"]
        space = SPACE.encode()
        last = len(spans) - 1
        for place in range(last, -1, -1):
            start, end = spans[place]
            piece = self._model.pieces[encoded["ids"][place]]
            can_be_part = piece.kind == BYTE or piece.word.strip(space)
            if start == end and can_be_part and place < last:
                # Of the parts of a character, only the last one has a span.
                spans[place] = spans[place + 1]
        return np.array(spans, np.int64).reshape(-1, 2)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        if self._model.kind != _BPE:
            raise without_merges(self.path, "Unigram")
        text.encode()  # It raises the error for a lone surrogate.
        pairs = self._scored_pairs
        for word in pairs.words.findall(self._processor.normalize(text)):
            yield pairs.derivation(word)

    @cached_property
    def _scored_pairs(self) -> ScoredPairs:
        pieces = self._model.pieces
        ids = {piece.word: token_id for token_id, piece in enumerate(pieces)}
        scores = {piece.word: piece.score for piece in self._model.of_kind(NORMAL)}
        whole = [piece.word for piece in self._model.of_kind(USER_DEFINED)]
        return ScoredPairs(ids, scores, self.unknown_id, adds_space=False, whole=whole)


def _read_model(binary: Binary) -> _Model:
    """Return the model of a file; raises InputError for one that embcli cannot use."""
    package = "sentencepiece.sentencepiece_model_pb2"
    messages = import_package(binary.path, package, "a tokenizer.model")
    from google.protobuf.message import DecodeError

    data = read_whole(binary, MAX_FILE_SIZE)
    try:
        stored = messages.ModelProto.FromString(data)
        pieces = [_Piece(each.piece.encode(), each.score, each.type) for each in stored.pieces]
    except (DecodeError, AttributeError):  # protobuf gives bytes that are not UTF-8 as they are
        raise binary.file_error("it is not a SentencePiece model") from None
    if not 0 < len(pieces) < MAX_TOKENS:
        raise binary.file_error("it is not a SentencePiece model")

    trainer = stored.trainer_spec
    normalizer = stored.normalizer_spec
    model = _Model(
        data,
        pieces,
        kind=trainer.model_type,
        adds_space=normalizer.add_dummy_prefix,
        joins_spaces=normalizer.remove_extra_whitespaces,
    )
    has_spaces_after_words = trainer.treat_whitespace_as_suffix
    escapes_spaces = normalizer.escape_whitespaces
    if model.kind not in (_UNIGRAM, _BPE) or has_spaces_after_words or not escapes_spaces:
        raise binary.file_error("it is a kind of SentencePiece model that embcli does not know")
    are_finite = np.isfinite([piece.score for piece in pieces]).all()
    if not model.of_kind(UNKNOWN) or not are_finite:
        raise binary.file_error("it has no unknown token, or scores that are not finite")
    return model

"""SentencePiece's `tokenizer.model` as an encoding.

The package `sentencepiece` splits a text, and protobuf reads the file with its
sentencepiece_model.proto: the bytes of tokens, and their scores for the merges page.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

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


class SentencePieceEncoding(VocabularyEncoding):
    """A model's own pieces; control tokens and the unknown one are found by their names."""

    unknown_id: int

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = in_data(name)
        self._model = _read_model(Binary(path))
        normalizer = self._model.normalizer_spec
        self.adds_space = bool(normalizer.add_dummy_prefix)
        self.joins_spaces = bool(normalizer.remove_extra_whitespaces)
        self.unknown_id = [piece.type for piece in self._model.pieces].index(UNKNOWN)

    @property
    def names(self) -> list[str]:
        """The names of the pieces, by ID."""
        return [piece.piece for piece in self._model.pieces]

    @cached_property
    def _processor(self) -> Any:
        sentencepiece = import_package(self.path, "sentencepiece", "a tokenizer.model")
        sentencepiece.set_min_log_level(4)
        data = self._model.SerializeToString()
        return call_package(
            self.path,
            "it is not a SentencePiece model",
            lambda: sentencepiece.SentencePieceProcessor(model_proto=data),
        )

    @property
    def vocabulary_size(self) -> int:
        return len(self._model.pieces)

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        """The control tokens and the unknown one, the longest first."""
        tokens = []
        for token_id, piece in enumerate(self._model.pieces):
            if piece.piece and piece.type in (CONTROL, UNKNOWN):
                tokens.append(NamedToken(piece.piece, token_id, is_special=True))
        return sorted(tokens, key=lambda token: -len(token.name))

    @cached_property
    def bos_eos(self) -> BosEos:  # type: ignore[override]
        """BOS before a text with byte-pair models, as with Llama's."""
        bos_id = self._processor.bos_id()  # -1 if the model has none
        has_bos = self._model.trainer_spec.model_type == _BPE and bos_id >= 0
        return ((bos_id,) if has_bos else ()), ()

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        piece = self._model.pieces[token_id]
        word = piece.piece.encode()
        return word if piece.type in (CONTROL, UNKNOWN) else piece_to_bytes(word)

    def ids_between(self, text: str) -> np.ndarray:
        return np.array(self._processor.encode(text, return_type="numpy"), np.uint32)

    def spans_between(self, text: str) -> np.ndarray:
        encoded = self._processor.encode(text, return_type="offset_mapping")
        spans = encoded["offsets"]
        last = len(spans) - 1
        for place in range(last, -1, -1):
            start, end = spans[place]
            piece = self._model.pieces[encoded["ids"][place]]
            can_be_part = piece.type == BYTE or piece.piece.strip(SPACE)
            if start == end and can_be_part and place < last:
                # Of the parts of a character, only the last one has a span.
                spans[place] = spans[place + 1]
        return np.array(spans, np.int64).reshape(-1, 2)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        if self._model.trainer_spec.model_type != _BPE:
            raise without_merges(self.path, "Unigram")
        pairs = self._scored_pairs
        for word in pairs.words.findall(self._processor.normalize(text)):
            yield pairs.derivation(word)

    @cached_property
    def _scored_pairs(self) -> ScoredPairs:
        ids = {}
        scores = {}
        whole = []
        for token_id, piece in enumerate(self._model.pieces):
            word = piece.piece.encode()
            ids[word] = token_id
            if piece.type == NORMAL:
                scores[word] = piece.score
            elif piece.type == USER_DEFINED:
                whole.append(word)
        return ScoredPairs(ids, scores, self.unknown_id, adds_space=False, whole=whole)


def _read_model(binary: Binary) -> Any:
    """Return the ModelProto of a file; raises InputError for one that embcli cannot use."""
    messages = import_package(
        binary.path, "sentencepiece.sentencepiece_model_pb2", "a tokenizer.model"
    )
    from google.protobuf.message import DecodeError

    data = read_whole(binary, MAX_FILE_SIZE)
    try:
        model = messages.ModelProto.FromString(data)
    except DecodeError:
        raise binary.file_error("it is not a SentencePiece model") from None
    # protobuf gives a text that is not UTF-8 as bytes.
    are_texts = all(isinstance(piece.piece, str) for piece in model.pieces)
    if not 0 < len(model.pieces) < MAX_TOKENS or not are_texts:
        raise binary.file_error("it is not a SentencePiece model")

    trainer = model.trainer_spec
    is_known = trainer.model_type in (_UNIGRAM, _BPE) and not trainer.treat_whitespace_as_suffix
    if not is_known or not model.normalizer_spec.escape_whitespaces:
        raise binary.file_error("it is a kind of SentencePiece model that embcli does not know")
    are_finite = np.isfinite([piece.score for piece in model.pieces]).all()
    if not are_finite or all(piece.type != UNKNOWN for piece in model.pieces):
        raise binary.file_error("it has no unknown token, or scores that are not finite")
    return model

"""SentencePiece's `tokenizer.model` as an encoding; the format is described in its sentencepiece_model.proto."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from struct import error, unpack
from typing import Any, NamedTuple

import numpy as np

from embcli.binary import Binary, read_whole
from embcli.encodings.encoding import (
    MAX_FILE_SIZE,
    MAX_TOKENS,
    NamedToken,
    VocabularyEncoding,
    call_package,
    import_package,
    sibling_json,
)
from embcli.encodings.merging import SPACE, Derivation, DerivationStep, piece_to_bytes
from embcli.encodings.pieces import ScoredPairs
from embcli.wording import in_data

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of pieces
_UNIGRAM, _BPE = 1, 2  # types of models
_NUMBER = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")  # seven bits a byte, the lowest first
_FIXED = {1: 8, 5: 4}  # bytes of a value by its wire type


class _Model(NamedTuple):
    data: bytes
    pieces: list[tuple[bytes, float, int]]  # spelling, score, type
    kind: int
    adds_space: bool  # before a text
    joins_spaces: bool

    def of(self, *kinds: int) -> dict[int, tuple[bytes, float]]:
        return {
            at: (word, score) for at, (word, score, kind) in enumerate(self.pieces) if kind in kinds
        }


class SentencePieceEncoding(VocabularyEncoding):
    """A model's own pieces; control tokens are found by their names."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, in_data(name)

    @cached_property
    def _model(self) -> _Model:
        return _read(Binary(self.path))

    @property
    def adds_space(self) -> bool:  # type: ignore[override]
        return self._model.adds_space

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        words = self._model.of(_CONTROL, _UNKNOWN)
        named = [
            NamedToken(word.decode(errors="replace"), at, True)
            for at, (word, _) in words.items()
            if word
        ]
        return sorted(named, key=lambda each: -len(each.name))

    @cached_property
    def bos_eos(self) -> tuple[tuple[int, ...], tuple[int, ...]]:  # type: ignore[override]
        """BOS and EOS, as tokenizer_config.json says; without it, BOS as Llama, and EOS as T5 in transformers."""
        config = sibling_json(self.path, "tokenizer_config.json")
        adds_bos = config.get("add_bos_token", self._model.kind == _BPE)
        adds_eos = config.get("add_eos_token", "T5" in str(config.get("tokenizer_class")))
        bos, eos = self._processor.bos_id(), self._processor.eos_id()
        return (bos,) if adds_bos and bos >= 0 else (), (eos,) if adds_eos and eos >= 0 else ()

    @property
    def vocabulary_size(self) -> int:
        return len(self._model.pieces)

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        word, _, kind = self._model.pieces[token_id]
        return word if kind in (_CONTROL, _UNKNOWN) else piece_to_bytes(word)

    @cached_property
    def _processor(self) -> Any:
        sentencepiece = import_package(self.path, "sentencepiece", "a tokenizer.model")
        sentencepiece.set_min_log_level(4)
        load, data = sentencepiece.SentencePieceProcessor, self._model.data
        return call_package(
            self.path, "it is not a SentencePiece model", lambda: load(model_proto=data)
        )

    def ids_between(self, text: str) -> np.ndarray:
        return np.array(self._encoded(text, "numpy"), np.uint32)

    def spans_between(self, text: str) -> np.ndarray:
        encoded = self._encoded(text, "offset_mapping")
        spans: list[tuple[int, int]] = encoded["offsets"]
        for place in range(len(spans) - 1, -1, -1):
            (start, end), (word, _, kind) = spans[place], self._model.pieces[encoded["ids"][place]]
            if (
                start == end
                and (kind == _BYTE or word.strip(SPACE.encode()))
                and place + 1 < len(spans)
            ):
                # part of a character, of which only the last part has a span
                spans[place] = spans[place + 1]
            elif self._model.joins_spaces and word.startswith(
                SPACE.encode()
            ):  # the spaces before it may be several
                spans[place] = end - len(text[start:end].replace(SPACE, " ").lstrip()), end
        return np.array(spans, np.int64).reshape(-1, 2)

    def derivations_between(self, text: str) -> Iterator[Derivation]:
        if self._model.kind == _BPE:
            text.encode()
            yield from map(
                self._merging.derivation,
                self._merging.words.findall(self._processor.normalize(text)),
            )
            return
        encoded = self._encoded(text, "offset_mapping")
        scores = (score for _, score in self._model.of(_NORMAL).values())
        worst = float(np.float32(min(scores, default=0.0)) - np.float32(10))  # of what is unknown
        steps: list[DerivationStep] = []
        for token_id, piece in zip(encoded["ids"], encoded["pieces"], strict=True):
            if piece.startswith(SPACE) and steps and steps[-1].token.strip(b" "):
                yield Derivation.in_order(steps)
                steps = []
            _, score, kind = self._model.pieces[token_id]
            token = piece_to_bytes(piece.encode()) if kind != _UNKNOWN else piece.encode()
            if kind == _UNKNOWN or (
                kind == _BYTE and token[0] & 0xC0 != 0x80
            ):  # the first byte of one
                score = worst
            elif kind == _USER_DEFINED:
                score = (len(piece) - 1) / 10
            steps.append(DerivationStep(token, token_id, score=score))
        if steps:
            yield Derivation.in_order(steps)

    @cached_property
    def _merging(self) -> ScoredPairs:
        ids = {word: at for at, (word, _, _) in enumerate(self._model.pieces)}
        whole = [word for word, _ in self._model.of(_USER_DEFINED).values()]
        return ScoredPairs(
            ids, dict(self._model.of(_NORMAL).values()), min(self._model.of(_UNKNOWN)), False, whole
        )

    def _encoded(self, text: str, kind: str) -> Any:
        text.encode()  # the package's own error for a lone surrogate says nothing
        return self._processor.encode(text, return_type=kind)


def _read(binary: Binary) -> _Model:
    data, pieces = read_whole(binary, MAX_FILE_SIZE), []
    settings: dict[int, dict[int, Any]] = {2: {}, 3: {}}  # of the trainer, and of the normalizer
    try:
        for number, value in _fields(data):
            if number == 1:
                piece = dict(_fields(value))
                pieces.append(
                    (
                        bytes(piece[1]),
                        *unpack("<f", piece.get(2, bytes(4))),
                        int(piece.get(3, _NORMAL)),
                    )
                )
            elif number in settings:
                settings[number].update(_fields(value))
        if not 0 < len(pieces) < MAX_TOKENS:
            raise ValueError
    except (ValueError, TypeError, KeyError, error):
        raise binary.file_error("it is not a SentencePiece model") from None
    adds_space, joins_spaces, escapes_spaces = (
        settings[3].get(number, 1) != 0 for number in (3, 4, 5)
    )
    model = _Model(data, pieces, settings[2].get(3, _UNIGRAM), adds_space, joins_spaces)
    if model.kind not in (_UNIGRAM, _BPE) or settings[2].get(24) or not escapes_spaces:
        raise binary.file_error("it is a kind of SentencePiece model that embcli does not know")
    if not model.of(_UNKNOWN) or not np.isfinite([score for _, score, _ in pieces]).all():
        raise binary.file_error("it has no unknown token, or scores that are not finite")
    return model


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: the number of each, and its value, a number or bytes."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        value, place = (_FIXED[kind], place) if kind in _FIXED else _number(data, place)
        if kind and place + value > len(data):
            raise ValueError
        yield key >> 3, data[place : place + value] if kind else value
        place += value if kind else 0


def _number(data: bytes, place: int) -> tuple[int, int]:
    if not (found := _NUMBER.match(data, place)):
        raise ValueError
    return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(found[0])), found.end()

"""SentencePiece's `tokenizer.model` as an encoding; the format is described in its sentencepiece_model.proto."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from struct import error, unpack_from
from typing import Any

import numpy as np

from embcli.binary import Binary
from embcli.encodings.encoding import Derivation, Step
from embcli.encodings.pieces import Scores, without_spaces
from embcli.encodings.spelling import SPACE, from_piece
from embcli.encodings.vocabulary import LONGEST, MOST_IDS, NamedToken, Splitter, VocabularyEncoding, guarded, package

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of pieces
_UNIGRAM, _BPE = 1, 2  # types of models
_NUMBER = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")  # seven bits a byte, the lowest first
_FIXED = {1: 8, 5: 4}  # bytes of a value by its wire type


@dataclass
class _Model:
    """The parts of a model that tell how a text is split."""

    data: bytes
    pieces: list[tuple[bytes, float, int]] = field(default_factory=list)  # spelling, score, type
    trainer: dict[int, int | bytes] = field(default_factory=dict)
    normalizer: dict[int, int | bytes] = field(default_factory=dict)

    @property
    def kind(self) -> int:
        return int(self.trainer.get(3, _UNIGRAM))

    def of(self, *kinds: int) -> list[int]:
        return [at for at, (_, _, kind) in enumerate(self.pieces) if kind in kinds]

    def is_set(self, number: int) -> bool:
        """Return a flag of the normalizer: 3 adds a space before a text, 4 joins spaces."""
        return self.normalizer.get(number, 1) != 0


class SentencePieceEncoding(VocabularyEncoding):
    """A model's own pieces; control tokens are found by their names."""

    @cached_property
    def _model(self) -> _Model:
        return _read(Binary(self.path))

    @property
    def adds_space(self) -> bool:  # type: ignore[override]
        return self._model.is_set(3)

    @cached_property
    def named(self) -> list[NamedToken]:  # type: ignore[override]
        words = {at: self._model.pieces[at][0] for at in self._model.of(_CONTROL, _UNKNOWN)}
        named = [NamedToken(word.decode(errors="replace"), at, True) for at, word in words.items() if word]
        return sorted(named, key=lambda each: -len(each.name))

    @cached_property
    def splitter(self) -> Splitter:  # type: ignore[override]
        sentencepiece = package(self.path, "sentencepiece", "a tokenizer.model")
        sentencepiece.set_min_log_level(4)
        model, processor = self._model, sentencepiece.SentencePieceProcessor
        return guarded(self.path, "it is not a SentencePiece model", lambda: _ModelSplitter(model, processor))

    @property
    def vocabulary_size(self) -> int:
        return len(self._model.pieces)

    def token_bytes(self, token_id: int) -> bytes | None:
        if not 0 <= token_id < self.vocabulary_size:
            return None
        word, _, kind = self._model.pieces[token_id]
        return word if kind in (_CONTROL, _UNKNOWN) else from_piece(word)


class _ModelSplitter(Splitter):
    def __init__(self, model: _Model, processor: Callable[..., Any]) -> None:
        self._whole = processor(model_proto=model.data)
        self._plain = processor(model_proto=model.data + without_spaces(b""))  # for texts that are normalized already
        self._pieces = model.pieces
        self._joins_spaces = model.is_set(4)
        scores = [model.pieces[at][1] for at in model.of(_NORMAL)]
        self._worst = float(np.float32(min(scores, default=0.0)) - np.float32(10))  # of what is unknown
        self._best = max([0.0, *scores])
        self._merging: Scores | None = None
        if model.kind == _BPE:
            ids = {word: at for at, (word, _, _) in enumerate(model.pieces)}
            known = {model.pieces[at][0]: model.pieces[at][1] for at in model.of(_NORMAL)}
            whole = [model.pieces[at][0] for at in model.of(_USER_DEFINED)]
            self._merging = Scores(ids, known, model.of(_UNKNOWN)[0], False, whole)

    def ids(self, text: str) -> np.ndarray:
        return np.array(self._encoded(self._whole, text, "numpy"), np.uint32)

    def spans(self, text: str) -> np.ndarray:
        encoded = self._encoded(self._whole, text, "offset_mapping")
        spans: list[tuple[int, int]] = encoded["offsets"]
        for place in range(len(spans) - 1, -1, -1):
            (start, end), (word, _, kind) = spans[place], self._pieces[encoded["ids"][place]]
            if start == end and (kind == _BYTE or word.strip(SPACE.encode())) and place + 1 < len(spans):
                # part of a character, of which only the last part has a span
                spans[place] = spans[place + 1]
            elif self._joins_spaces and word.startswith(SPACE.encode()):  # the spaces before it may be several
                spans[place] = end - len(text[start:end].replace(SPACE, " ").lstrip()), end
        return np.array(spans, np.int64).reshape(-1, 2)

    def derivations(self, text: str) -> Iterator[Derivation]:
        if self._merging is not None:
            text.encode()
            for word in self._merging.words.findall(self._whole.normalize(text)):
                yield self._merging.merges_of(word, self._encoded(self._plain, word, int))
            return
        encoded = self._encoded(self._whole, text, "offset_mapping")
        steps: list[Step] = []
        for token_id, piece in zip(encoded["ids"], encoded["pieces"], strict=True):
            if piece.startswith(SPACE) and steps and steps[-1].token.strip(b" "):
                yield Derivation.in_order(steps)
                steps = []
            word, score, kind = self._pieces[token_id]
            token = from_piece(piece.encode()) if kind != _UNKNOWN else piece.encode()
            if kind == _UNKNOWN or (kind == _BYTE and token[0] & 0xC0 != 0x80):  # the first byte of one
                score = self._worst
            elif kind == _USER_DEFINED:
                score = len(word) * self._best - 0.1
            steps.append(Step(token, token_id, score=score))
        if steps:
            yield Derivation.in_order(steps)

    def _encoded(self, processor: Any, text: str, kind: Any) -> Any:
        text.encode()  # the package's own error for a lone surrogate says nothing
        return processor.encode(text, return_type=kind)


def _read(binary: Binary) -> _Model:
    model = _Model(binary.read_whole(LONGEST))
    try:
        for number, value in _fields(model.data):
            if number == 1:
                piece = dict(_fields(bytes(value)))
                score = unpack_from("<f", bytes(piece.get(2, bytes(4))))[0]
                model.pieces.append((bytes(piece[1]), score, int(piece.get(3, _NORMAL))))
            elif number == 2:
                model.trainer |= dict(_fields(bytes(value)))
            elif number == 3:
                model.normalizer |= dict(_fields(bytes(value)))
        kind = model.kind
        if not 0 < len(model.pieces) < MOST_IDS:
            raise ValueError
    except (ValueError, TypeError, KeyError, error):
        raise binary.refused("it is not a SentencePiece model") from None
    if kind not in (_UNIGRAM, _BPE) or model.trainer.get(24) or not model.is_set(5):
        raise binary.refused("it is a kind of SentencePiece model that embcli does not know")
    if not model.of(_UNKNOWN) or not np.isfinite([score for _, score, _ in model.pieces]).all():
        raise binary.refused("it has no unknown token, or scores that are not finite")
    return model


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        value, place = (_FIXED[kind], place) if kind in _FIXED else _number(data, place)
        if kind == 0:
            yield key >> 3, value
            continue
        if kind not in (1, 2, 5) or place + value > len(data):
            raise ValueError
        yield key >> 3, data[place : place + value]
        place += value


def _number(data: bytes, place: int) -> tuple[int, int]:
    if not (found := _NUMBER.match(data, place)):
        raise ValueError
    return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(found[0])), found.end()

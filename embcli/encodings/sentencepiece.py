"""SentencePiece's `tokenizer.model` as an encoding; the format is described in its sentencepiece_model.proto."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import error, unpack_from

import numpy as np

from embcli.binary import Binary
from embcli.encodings.algorithm import Algorithm
from embcli.encodings.merging import Scores, merges_by_score
from embcli.encodings.normalizing import Charsmap, Normalization
from embcli.encodings.ranks import read_tiktoken
from embcli.encodings.spelling import from_piece
from embcli.encodings.unigram import Unigrams
from embcli.encodings.vocabulary import LONGEST, MOST_IDS, FileVocabulary, NamedToken

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6  # types of pieces
_UNIGRAM, _BPE = 1, 2  # types of models
_FIXED = {1: 8, 5: 4}  # bytes of a value by its wire type


@dataclass
class _Model:
    """The parts of a model that tell how a text is split."""

    pieces: list[tuple[bytes, float, int]] = field(default_factory=list)  # spelling, score, type
    trainer: dict[int, int | bytes] = field(default_factory=dict)
    normalizer: dict[int, int | bytes] = field(default_factory=dict)

    @property
    def kind(self) -> int:
        return int(self.trainer.get(3, _UNIGRAM))

    def of(self, *kinds: int) -> list[int]:
        """Return the IDs of the pieces of these types."""
        return [at for at, (_, _, kind) in enumerate(self.pieces) if kind in kinds]


def read_sentencepiece(binary: Binary, pre: str | None) -> FileVocabulary:
    """Return the tokens of a `tokenizer.model`; Llama 3's is a `.tiktoken` with this name."""
    if pre is not None:
        return read_tiktoken(binary, pre)
    model = _model(binary)
    if model.kind not in (_UNIGRAM, _BPE) or model.trainer.get(24) or model.normalizer.get(5, 1) == 0:
        raise binary.refused("it is a kind of SentencePiece model that embcli does not know")
    if not model.of(_UNKNOWN) or not np.isfinite([score for _, score, _ in model.pieces]).all():
        raise binary.refused("it has no unknown token, or scores that are not finite")
    try:
        algorithm = _algorithm(model)
    except ValueError as reason:
        raise binary.refused(str(reason)) from None
    plain = {*model.of(_CONTROL, _UNKNOWN)}
    tokens = {at: word if at in plain else from_piece(word) for at, (word, _, _) in enumerate(model.pieces)}
    named = [NamedToken(tokens[at].decode(errors="replace"), at, True) for at in plain if tokens[at]]
    named.sort(key=lambda each: -len(each.name))
    words, scores, _ = zip(*model.pieces, strict=True)
    merges = merges_by_score(words, scores, model.of(_NORMAL)) if model.kind == _BPE else []
    return FileVocabulary(tokens, algorithm, named, merges, model.normalizer.get(3, 1) != 0)


def _algorithm(model: _Model) -> Algorithm:
    stored = bytes(model.normalizer.get(2, b""))
    leads, joins = (model.normalizer.get(key, 1) != 0 for key in (3, 4))
    normalization = Normalization(Charsmap(stored) if stored else None, joins, leads)
    unknown, normal, added = model.of(_UNKNOWN)[0], model.of(_NORMAL), model.of(_USER_DEFINED)
    words = [word for word, _, _ in model.pieces]
    if model.kind == _BPE:
        whole = sorted((words[at] for at in added), key=lambda word: -len(word))
        scores = {words[at]: model.pieces[at][1] for at in normal}
        return Scores({word: at for at, word in enumerate(words)}, scores, unknown, normalization, whole)
    scored = {at: model.pieces[at][1] for at in normal}
    best = max([0.0, *scored.values()])  # others are logarithms of frequencies
    scored |= {at: len(words[at]) * best - 0.1 for at in added}
    known = {words[at].decode(errors="replace"): (at, score) for at, score in scored.items() if words[at]}
    worst = min((scored[at] for at in normal), default=0.0)
    ids_of_bytes = _ids_of_bytes(model) if model.trainer.get(35) else ()
    return Unigrams(known, unknown, worst, normalization, ids_of_bytes, sums="f")


def _ids_of_bytes(model: _Model) -> list[int]:
    """Return the tokens of the 256 bytes; raises ValueError if the model lacks one."""
    known = {model.pieces[at][0]: at for at in model.of(_BYTE)}
    ids = [known[name] for byte in range(256) if (name := b"<0x%02X>" % byte) in known]
    if len(ids) < 256:
        raise ValueError("it spells unknown characters by bytes, and has no tokens for some of them")
    return ids


def _model(binary: Binary) -> _Model:
    """Return the model of a file; raises InputError for a damaged one."""
    model = _Model()
    try:
        for number, value in _fields(binary.read_whole(LONGEST)):
            if number == 1:
                piece = dict(_fields(bytes(value)))
                score = unpack_from("<f", bytes(piece.get(2, bytes(4))))[0]
                model.pieces.append((bytes(piece[1]), score, int(piece.get(3, _NORMAL))))
            elif number == 2:
                model.trainer = dict(_fields(bytes(value)))
            elif number == 3:
                model.normalizer = dict(_fields(bytes(value)))
        kind = model.kind
    except (ValueError, TypeError, KeyError, IndexError, error):
        raise binary.refused("it is not a SentencePiece model") from None
    if not 0 < len(model.pieces) < MOST_IDS or kind < 0:
        raise binary.refused("it is not a SentencePiece model")
    return model


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the numbers and the values of the fields of a message; raises ValueError or IndexError for no message."""
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _number(data, place)
            yield key >> 3, value
            continue
        length, place = (_FIXED[kind], place) if kind in _FIXED else _number(data, place)
        if kind not in (1, 2, 5) or place + length > len(data):
            raise ValueError
        yield key >> 3, data[place : place + length]
        place += length


def _number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError

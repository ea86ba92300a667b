"""embcli reads the tokenizer of a folder as transformers does: the same IDs, in all verbs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import embcli
from embcli import encodings
from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.text import Sequences, encode_sequences
from embcli.tokens import Tokens
from tests.cases import cases, data
from tests.files.made import numbered
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.folders import (
    ALIKE,
    FOLDERS,
    TEXTS,
    json_of,
    lines_of,
    opened,
    piece_model,
    rows,
    vocabulary_size,
    write,
)

pytestmark = pytest.mark.filterwarnings("ignore")

WITH_MATRIX = [name for name, folder in FOLDERS.items() if folder.matrix]
SOME_TEXTS = [
    "the cat",
    "Möchte der Bär",
    " 한국어 고양이",
    "<s>the 日本[SEP]</s>",
    "a\r\nb <|im_start|>",
]


def written(name: str, path: Path) -> Path:
    """Write a folder below a path, and return where it is."""
    place = path / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    write(FOLDERS[name], place)
    return place


def expected_ids(tokenizer: Any, text: str, special: bool) -> list[int]:
    """Return the IDs that transformers gives a text."""
    if special:
        encoded = tokenizer(text)
    else:
        encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=True)
    ids: list[int] = encoded["input_ids"]
    return ids


def ids_of_texts(tokens: Tokens) -> list[list[int]]:
    sequences = np.split(tokens.ids, tokens.starts[1:-1])
    return [ids.tolist() for ids in sequences]


def encoding_of(name: str, place: Path) -> Encoding | None:
    if FOLDERS[name].matrix:
        return embcli.open(place).encoding
    return encodings.get(str(place))


# --- IDs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_every_text_has_the_ids_of_transformers(name, tmp_path):
    place = written(name, tmp_path)
    tokenizer = opened(place)
    encoding = encoding_of(name, place)
    assert encoding is not None

    wrong = {}
    for special in (False, True):
        tokens = encode_sequences(Sequences(texts=TEXTS, many=True), encoding, special)
        found = ids_of_texts(tokens)
        assert len(found) == len(TEXTS)
        for text, ids in zip(TEXTS, found, strict=True):
            right = expected_ids(tokenizer, text, special)
            if ids != right:
                wrong[text, special] = (ids, right)
    first = list(wrong.items())[:3]
    assert not wrong, f"{len(wrong)} of {2 * len(TEXTS)} differ: {first}"
    assert encoding.vocabulary_size == vocabulary_size(tokenizer)


# --- verbs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_MATRIX)
def test_verbs_read_texts_as_transformers_does(name, tmp_path):
    place = written(name, tmp_path)
    tokenizer = opened(place)
    matrix = rows(vocabulary_size(tokenizer))
    model = embcli.open(place)
    for text in SOME_TEXTS:
        for special in (False, True):
            ids = expected_ids(tokenizer, text, special)
            found = model.lookup(text, special=special, show="token")
            assert found.ids.tolist() == ids
            assert_same_bits(found.token, matrix[ids])
        assert_nearest(model, text, matrix, expected_ids(tokenizer, text, special=False))

    for special in (False, True):
        lengths = [len(expected_ids(tokenizer, text, special)) for text in TEXTS]
        counts = embcli.count(TEXTS, encodings=str(place), special=special)
        found_lengths = [number for row in counts.rows for number in row.tokens.values()]
        assert found_lengths == lengths


def assert_nearest(model: embcli.Model, text: str, matrix: np.ndarray, ids: list[int]) -> None:
    """Compare the neighbours of a text with the rows nearest to the mean of the rows of its IDs."""
    wide = matrix.astype(np.float64)
    mean = wide[ids].mean(0)
    scores = wide @ mean / np.linalg.norm(wide, axis=1) / np.linalg.norm(mean)
    scores[ids] = -np.inf
    nearest = np.argsort(-scores)[:5]
    found = model.neighbors(text, top=5)
    assert found.queries[0].ids.tolist() == ids
    assert found.ids.tolist() == nearest.tolist()


# --- diff -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALIKE)
def test_diff_tells_that_a_tokenizer_and_its_saved_form_are_equal(name, tmp_path, in_process):
    base = written(name, tmp_path)
    tuned = written(f"{name}, saved", tmp_path)
    assert opened(base).backend_tokenizer.to_str() == opened(tuned).backend_tokenizer.to_str()

    model = embcli.open(base)
    other = embcli.open(tuned)
    by_tokens = model.diff(other, tokens=True)
    assert by_tokens.rules == {}
    assert by_tokens.counts == {"same": len(model), "moved": 0, "removed": 0, "added": 0}
    by_rows = model.diff(other)
    assert not by_rows.different
    assert by_rows.rules == ()
    assert in_process("diff", "--tokens", str(base), str(tuned)).status == 0


def test_diff_tells_that_only_the_case_of_texts_is_kept_otherwise(tmp_path):
    base = embcli.open(written("bert", tmp_path))
    tuned = embcli.open(written("bert, cased", tmp_path))
    found = base.diff(tuned, tokens=True)
    assert found.counts["same"] == len(base)
    assert list(found.rules) == ["normalizer"]


# --- folders without a tokenizer ------------------------------------------------------------------

CANARY = "canary"


def outside(path: Path) -> Path:
    """Write vocabularies with one telling token, and return the folder that they are in."""
    place = path / "outside"
    place.mkdir()
    words = ["[UNK]", CANARY]
    (place / "vocab.txt").write_bytes(lines_of(words))
    (place / "vocab.json").write_bytes(json_of(numbered(words)))
    (place / "merges.txt").write_bytes(lines_of(["#version: 0.2"]))
    (place / "tokenizer.1.0.json").write_text(Tokenizer(WordLevel(numbered(words))).to_str())
    model = piece_model("bpe", 300, user_defined_symbols=CANARY)
    (place / "tokenizer.model").write_bytes(model)
    return place


# Settings of tokenizer_config.json that lead transformers out of the folder.
LEADING_OUT = data(__name__)["leading_out"]


@pytest.mark.parametrize("has_tokenizer", [False, True])
@pytest.mark.parametrize("way", LEADING_OUT)
def test_no_configuration_leads_out_of_its_folder(way, has_tokenizer, tmp_path):
    place = tmp_path / "inside"
    place.mkdir()
    settings = json_of(LEADING_OUT[way]).decode().replace("{outside}", str(outside(tmp_path)))
    (place / "tokenizer_config.json").write_text(settings)
    if has_tokenizer:
        (place / "tokenizer.json").write_bytes(FOLDERS["gemma"].made_files()["tokenizer.json"])
    else:
        assert CANARY in opened(place).get_vocab()

    tokens: set[bytes | None] = set()
    with suppress(InputError):
        encoding = encodings.get(str(place))
        tokens = {encoding.token_bytes(token_id) for token_id in range(encoding.vocabulary_size)}
    assert CANARY.encode() not in tokens


@cases
def test_no_vocabulary_is_made_up(tokenizer_class, content, tmp_path):
    """Without a file that it reads, transformers makes a vocabulary of the special tokens."""
    (tmp_path / "tokenizer_config.json").write_bytes(json_of({"tokenizer_class": tokenizer_class}))
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    assert len(opened(tmp_path)) < 8
    with pytest.raises(InputError):
        encodings.get(str(tmp_path)).encode("the cat")

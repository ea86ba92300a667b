"""A tokenizer's file is told by its content, whatever its name is."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from embcli import encodings
from embcli.encodings.encoding import UnknownTokenizerError
from embcli.encodings.kinds import kind_of
from embcli.errors import InputError, Notes
from tests.cases import cases
from tests.files.made import save_words, written
from tests.oracles import normal
from tests.test_dialects import BYTES, PAIR_MODEL, SCORED, TOKENS, sentencepiece, tekken

RANKS = b"".join(b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(TOKENS))


@cases
def test_the_first_bytes_of_a_file_say_what_it_is(tmp_path, name, start, kind):
    path = tmp_path / name
    path.write_bytes(start.encode("latin-1"))

    assert kind_of(path) == kind


def test_renamed_files_are_the_same_encodings(tmp_path):
    save_words(tmp_path / "words/tokenizer.json", ["a", "b", "word"])
    model = sentencepiece(tmp_path, PAIR_MODEL, SCORED)
    originals = {
        "mistral.json": tekken(tmp_path / "tekken.json", BYTES),
        "x.spm": model,
        "tokenizer.model.v3": model,
        "words.txt": tmp_path / "words/tokenizer.json",
        "vocabulary.model": written(tmp_path / "m.gguf", {"token_embd.weight": normal(7, 4)}),
    }
    for name, original in originals.items():
        path = tmp_path / "renamed" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(Path(original).read_bytes())
        found = encodings.get(original)
        same = encodings.get(path)

        assert type(same) is type(found)
        assert same.vocabulary_size == found.vocabulary_size > 2
        ids = range(found.vocabulary_size)
        assert [*map(same.token_bytes, ids)] == [*map(found.token_bytes, ids)]
        if found.splits:
            assert same.encode("ab word").tolist() == found.encode("ab word").tolist()


# --- ranks whose pattern is unknown ---------------------------------------------------------------

ADDED = {
    "263": {"content": "<|begin_of_text|>", "special": True},
    "270": {"content": "<|eot_id|>", "special": True},
}


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """Return a file of ranks, as Llama 3 has it."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(RANKS)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return path


def test_a_file_of_ranks_has_the_special_tokens_that_are_listed_beside_it(ranks):
    listed = {"added_tokens_decoder": ADDED}
    ranks.with_name("tokenizer_config.json").write_text(json.dumps(listed))
    notes = Notes()
    encoding = encodings.get(ranks, notes)

    assert not encoding.splits
    assert encoding.vocabulary_size == 271
    assert [encoding.token_bytes(token_id) for token_id in (256, 262, 263, 264, 270, 271)] == [
        *(b"ab", b" ab", b"<|begin_of_text|>", None, b"<|eot_id|>", None)
    ]
    ids = np.array([263, 256, 262], np.uint32)
    assert encoding.decode(ids) == b"<|begin_of_text|>ab ab"
    assert [*notes] == []


def test_a_file_of_ranks_without_special_tokens_is_noted(ranks):
    notes = Notes()
    encoding = encodings.get(ranks, notes)

    assert encoding.vocabulary_size == len(TOKENS)
    assert encoding.decode(np.array([256], np.uint32)) == b"ab"
    assert [*notes] == ["tokenizer.model has the ranks of tokens; its special tokens are unknown"]


def test_a_file_of_ranks_splits_no_text(in_process, ranks):
    with pytest.raises(UnknownTokenizerError, match="nothing else tells its pattern"):
        encodings.get(ranks).encode("a")

    path = str(ranks)
    assert "tells its pattern" in in_process.refused("tokenize", "a", "--encoding", path)
    assert in_process("decode", "256", "262", "--encoding", path).out == b"ab ab"


def test_an_id_that_no_vocabulary_has_is_refused(ranks):
    listed = {"added_tokens_decoder": {str(1 << 22): {"content": "<s>"}}}
    ranks.with_name("tokenizer_config.json").write_text(json.dumps(listed))

    with pytest.raises(InputError, match="a rank that no vocabulary has"):
        encodings.get(ranks).token_bytes(0)

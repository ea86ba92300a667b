"""A tokenizer from whose tokens texts come back changed is a finding; healthy ones have none."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from embcli import encodings
from embcli.verbs.audit.panel import changed_texts
from tests.cases import cases, data
from tests.files.made import numbered


def word_pieces() -> tokenizers.Tokenizer:
    """Return a tokenizer like BERT's whose tokens are small letters, also within words."""
    letters = [*string.ascii_lowercase, *string.digits]
    tokens = ["[UNK]", *letters, *[f"##{letter}" for letter in letters], *string.punctuation]
    made = tokenizers.Tokenizer(models.WordPiece(numbered(tokens), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def byte_pairs() -> tokenizers.Tokenizer:
    """Return a tokenizer like GPT-2's, which has all bytes and some words."""
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    made = tokenizers.Tokenizer(models.BPE(numbered(tokens), merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def spaced_letters() -> tokenizers.Tokenizer:
    """Return a tokenizer like Llama's, which writes spaces as U+2581, and has all bytes."""
    return tokenizers.Tokenizer.from_str(json.dumps(data(__name__)["spaced letters"]))


@cases
def test_a_text_that_comes_back_changed_is_found_whatever_the_cause(make, part, change, count):
    described: dict[str, Any] = json.loads(globals()[make]().to_str())
    if isinstance(change, dict) and isinstance(described[part], dict):
        change = described[part] | change
    described[part] = change
    Path("tokenizer.json").write_text(json.dumps(described))

    found = [*changed_texts(encodings.get("./tokenizer.json"))]

    assert [text.split()[0] for text in found] == [str(count)] * bool(count)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

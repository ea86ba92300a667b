"""Special tokens: those that are added around a text or not, their rows, and cuts that differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import embcli
from embcli.errors import InputError
from tests.files.made import numbered
from tests.runners import InProcess

WORDS = ["<s>", "</s>", "<tool_call>", "every", "effort", "[UNK]"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """Save a model in the working folder, whose tokenizer puts <s> and </s> around a text."""
    ids = numbered(WORDS)
    made = Tokenizer(models.WordLevel(ids, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(WORDS[:3])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    save_file({"wte.weight": rows}, tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    return made


def ids_of(in_process: InProcess, *arguments: str) -> list[int]:
    ran = in_process("tokenize", *arguments, "--encoding", ".", "-f", "json")
    return [row["id"] for row in json.loads(ran.out)["tokens"]]


def test_no_added_recognises_special_tokens_and_adds_none(in_process, model):
    text = "<s>every effort"
    for flags, has_added in ((("--special",), True), (("--special", "--no-added"), False)):
        expected = model.encode(text, add_special_tokens=has_added).ids
        assert ids_of(in_process, text, *flags) == expected


@pytest.mark.parametrize("verb", ["lookup", "compare"])
def test_other_verbs_add_none_either(in_process, model, verb):
    words = (verb, "every effort", "--from", ".", "--special", "--no-added", "-f", "json")
    tokens = json.loads(in_process(*words).out)["tokens"]
    assert [row["id"] for row in tokens] == [3, 4]


def test_a_row_is_found_by_the_name_of_its_special_token(in_process, model):
    words = ("weights", "--from", ".", "--rows", "<tool_call>,effort", "-f", "json")
    rows = json.loads(in_process.ok(*words).out)["rows"]
    assert [row["id"] for row in rows] == [2, 4]
    with pytest.raises(InputError, match="tool_calls"):
        embcli.open(".").weights(rows="<tool_calls>")


def test_options_that_have_no_use_are_refused(in_process, snapshot):
    errors = in_process.refused("tokenize", "a", "--no-added")
    snapshot("tokenize/errors-of-added.txt", errors)

"""What a command has read is never replaced by what it writes: each file keeps its content."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.cases import cases
from tests.files.made import save_words

INDEX = '{"weight_map": {"wte.weight": "one.safetensors", "other": "two.safetensors"}}'


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Write a model in two shards with its tokenizer, and other files that commands read."""
    monkeypatch.chdir(tmp_path)
    folder = Path("model")
    save_words(folder / "tokenizer.json", "abcd")
    rows = np.eye(4, 3, dtype=np.float32)
    np.save("rows.npy", rows)
    save_file({"wte.weight": rows}, folder / "one.safetensors")
    save_file({"other": rows}, folder / "two.safetensors")
    Path(folder, "model.safetensors.index.json").write_text(INDEX)
    Path(folder, "config.json").write_text("{}")
    Path("texts/deep").mkdir(parents=True)
    Path("texts/deep/a.txt").write_text("a b")
    Path("link.txt").symlink_to("texts/deep/a.txt")
    os.link("model/tokenizer.json", "hard.json")
    return folder


@cases
def test_a_file_that_a_command_has_read_is_not_replaced(in_process, model, words, target):
    before = Path(target).read_bytes()
    ran = in_process(*words.split(), "-o", target)
    assert ran.status == 2
    assert f"{target!r} is read by this command" in ran.err.splitlines()[-1]
    assert Path(target).read_bytes() == before


def test_standard_input_is_not_replaced(process, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b c")
    with path.open() as file:
        ran = process.start("tokenize", "-f", "ids", "-o", str(path), stdin=file)
        assert ran.wait() == 2
    assert path.read_text() == "a b c"

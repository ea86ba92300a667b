"""`info` lists special tokens, what a file says of itself, and files without a token matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from safetensors.numpy import save_file

from tests import transcripts
from tests.cases import cases
from tests.files.made import PLAIN, closed, save_words
from tests.runners import InProcess
from tests.transcripts import document_of

ROWS = np.ones((6, 3), np.float32)


_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def run_of(in_process: InProcess, *words: str) -> dict[str, Any]:
    return document_of(in_process, "info", *words)["run"]


def test_special_tokens_of_every_file_are_listed(in_process, snapshot):
    names = ["<s>", "</s>", "<pad>", "<unk>"]
    save_words("m/tokenizer.json", [*names, "a", "b"], special=names)
    save_file({"wte.weight": ROWS}, "m/model.safetensors", metadata={"format": "pt"})
    named = {"unk_token": "<unk>", "pad_token": {"content": "<pad>"}}
    files = {
        "config.json": {"bos_token_id": 0, "eos_token_id": [1, 4]},
        "generation_config.json": {"eos_token_id": 1, "pad_token_id": 2},
        "tokenizer_config.json": PLAIN | named,
        "special_tokens_map.json": {"bos_token": "<s>"},
    }
    for name, content in files.items():
        Path("m", name).write_text(json.dumps(content))

    found = run_of(in_process, "m")["special_ids"]

    assert found[1] == {"role": "eos", "file": "config.json", "ids": [1, 4]}
    # Its names are in other files; the tokenizer has their IDs.
    assert {"role": "pad", "file": "tokenizer.json", "ids": [2]} in found
    snapshot("info/special-ids.txt", in_process.ok("info", "m").text)


def test_a_file_of_special_ids_that_cannot_be_read_is_noted(in_process):
    save_file({"wte.weight": ROWS}, "model.safetensors")
    Path("generation_config.json").write_text('{"eos_token_id": "one"}')

    ran = in_process("info", "model.safetensors")

    assert ran.status == 0
    assert "eos_token_id is 'one'" in ran.err


def test_the_metadata_of_a_file_is_listed(in_process):
    kept = {"format": "pt", "note": "a\nb\x1b[31m"}
    save_file({"wte.weight": ROWS}, "m.safetensors", metadata=kept)
    writer = GGUFWriter("m.gguf", "llama")
    writer.add_name("Tiny")
    writer.add_context_length(7)
    writer.add_tensor("token_embd.weight", ROWS)
    closed(writer)

    assert run_of(in_process, "m.safetensors")["metadata"] == kept
    page = in_process.ok("info", "m.safetensors").text
    assert "metadata: note: a\\nb\\u001b[31m" in page
    metadata = run_of(in_process, "m.gguf")["metadata"]
    assert metadata["general.name"] == "Tiny"
    assert all(key.startswith("general.") for key in metadata)


# llama.cpp ties the head of a GGUF file, whatever config.json states.
@cases
def test_a_head_that_is_in_no_file_is_asked_for_unless_the_format_says_it(
    in_process, file, settings, told
):
    save_file({"wte.weight": ROWS}, "model.safetensors")
    writer = GGUFWriter("m.gguf", "llama")
    writer.add_tensor("token_embd.weight", ROWS)
    closed(writer)
    Path("config.json").write_text(json.dumps(settings or {"vocab_size": 6}))

    page = in_process.ok("info", file).text

    lines = [line for line in page.splitlines() if line.startswith("output head")]
    assert lines == [f"output head: {told}"]


def test_parameters_are_counted_as_torch_counts_them(in_process):
    """Tied weights are one parameter with two names."""
    model = torch.nn.Sequential(torch.nn.Embedding(6, 3), torch.nn.Linear(3, 6))
    model[1].weight = model[0].weight
    names = {"0.weight": "wte.weight", "1.weight": "lm_head.weight", "1.bias": "lm_head.bias"}
    state = {names[name]: tensor for name, tensor in model.state_dict().items()}
    torch.save(state, "model.pt")

    counted = sum(parameter.numel() for parameter in model.parameters())
    assert run_of(in_process, "model.pt")["parameters"] == counted
    assert f"3 tensors, {counted} parameters" in in_process.ok("info", "model.pt").text


def test_tensors_of_a_file_without_a_token_matrix_are_listed_with_any_of_them_chosen(in_process):
    save_file({"x.one": ROWS, "x.two": ROWS[0], "x.three": ROWS}, "other.safetensors")

    assert "x.three" in in_process.refused("info", "other.safetensors")
    words = ("info", "other.safetensors", "--tensor", "x.one", "--tensors")
    names = [row["tensor"] for row in document_of(in_process, *words)["tensors"]]
    assert names == ["x.one", "x.three", "x.two"]


def test_what_is_no_file_of_tensors_is_still_refused(in_process):
    save_file({"x.one": ROWS, "x.two": ROWS}, "other.safetensors")
    Path("text.txt").write_text("This is a text.\n")

    in_process.refused("info", "other.safetensors")
    in_process.refused("info", "text.txt", "--tensors")
    in_process.refused("info", "missing.safetensors", "--tensors")
    in_process.refused("info", "other.safetensors", "--tensors", "--encoding", "nonsense")
    in_process.refused("info", "other.safetensors", "--tensors", "--tensor", "nonsense")

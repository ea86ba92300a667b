"""What the first block of a real model reads, bit for bit what transformers computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file, save_model

import embcli
from embcli.files.families import BLOCKS
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.models import MODELS, SEEING, read_by_first_blocks, saved

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = [5, 9, 17, 9, 40, 77, 3, 8]
WITH_PADDING = [5, 1, 9, 1, 2, 8, 1, 6]


@pytest.mark.parametrize("name", [*MODELS, *SEEING])
def test_hidden_is_what_the_first_block_reads_and_no_word_is_false(name, tmp_path):
    model = saved(name, tmp_path)
    for ids in (PLAIN, WITH_PADDING):
        rows_of = read_by_first_blocks(model, ids)
        assert rows_of
        rows_of.pop("decoder", None)
        for rows in rows_of.values():
            opened = embcli.open(tmp_path)
            found = opened.lookup(ids, show="hidden")
            assert_same_bits(found.hidden, rows)
            if ids == PLAIN:
                hold_words(opened, found, model, rows)


TIED = """
BartForConditionalGeneration mBART T5ForConditionalGeneration Marian Pegasus LED
M2M100ForConditionalGeneration GPT2LMHeadModel
"""


@pytest.mark.parametrize("name", TIED.split())
@pytest.mark.parametrize("metadata", [False, True])
def test_a_tied_matrix_is_found_by_whichever_name_it_is_stored(name, metadata, tmp_path):
    model = saved(name, tmp_path)
    path = tmp_path / "model.safetensors"
    save_model(model, str(path))  # It drops all names but one, and notes the others as metadata.
    if not metadata:
        save_file(load_file(path), path)
    read = next(iter(read_by_first_blocks(model, PLAIN).values()))
    found = embcli.open(tmp_path).lookup(PLAIN, show="hidden")
    assert_same_bits(found.hidden, read)


def hold_words(opened: embcli.Model, found: Any, model: Any, rows: np.ndarray) -> None:
    """Hold what pages and notes say of a model's positions against the model itself."""
    blocks = found.plan.recipe.blocks
    inside = inside_of(model)
    assert blocks.startswith(BLOCKS[inside])
    assert bool(blocks) == bool(inside)

    has_positions = not np.array_equal(rows[1], rows[3])  # Both are rows of ID 9.
    assert (" position" in found.plan.recipe.words) == has_positions
    notes = [note for note in map(str, found.notes) if "adds no position rows" in note]
    if has_positions:
        assert notes == []
        assert blocks in opened.positions().model_positions.reason
    else:
        (note,) = notes
        assert blocks in note
        is_token = np.array_equal(found.token, opened.lookup(PLAIN).input)
        assert note.endswith(" rows are the token rows") == is_token
        with pytest.raises(embcli.InputError, match="no position rows are added"):
            opened.positions()


RELATIVE = r"relative_attention_bias|rel_pos_bias|rel_embeddings|r_r_bias|position_bias\."


def inside_of(model: Any) -> str:
    """Return which positions the blocks of a live model compute, by its modules and parameters."""
    model_type = model.config.model_type
    if model_type in ("bloom", "mpt") or getattr(model.config, "alibi", False):
        return "alibi"
    modules = " ".join(type(module).__name__ for module in model.modules())
    if model_type in ("gptj", "codegen") or "Rotary" in modules:
        return "rotary"
    reads_text = model.decoder if model_type == "vision-encoder-decoder" else model
    parameters = " ".join(name for name, _ in reads_text.named_parameters())
    return "relative" if re.search(RELATIVE, parameters) else ""


@pytest.mark.parametrize("name", ["ESM-1", "ESM-2"])
def test_a_mask_that_the_model_treats_in_its_own_way_is_told(name, tmp_path):
    ids = [5, 4, 9]
    (read,) = read_by_first_blocks(saved(name, tmp_path), ids).values()
    found = embcli.open(tmp_path).lookup(ids, show="hidden")
    assert not np.array_equal(found.hidden, read)
    assert "the model sets the row of a mask" in " ".join(map(str, found.notes))


def test_a_row_of_padding_that_the_model_empties_is_told(tmp_path):
    model = saved("XLM", tmp_path)
    padding = model.config.pad_token_id
    ids = [5, 9, padding]
    first = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[0][0]
    assert first.any(1).tolist() == [True, True, False]
    found = embcli.open(tmp_path).lookup(ids, show="hidden")
    assert found.hidden.any(1).all()
    assert "the model sets rows of padding" in " ".join(map(str, found.notes))

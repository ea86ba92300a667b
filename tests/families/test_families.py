"""What the first block of a real model reads, family by family, bit for bit against transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import embcli
from embcli.files.families import BLOCKS
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.models import MODELS, SEEING, read_by_first_blocks, saved

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN, WITH_PADDING = [5, 9, 17, 9, 40, 77, 3, 8], [5, 1, 9, 1, 2, 8, 1, 6]


@pytest.mark.parametrize("name", [*MODELS, *SEEING])
def test_hidden_is_what_the_first_block_reads_and_no_word_is_false(
    name: str, tmp_path: Path
) -> None:
    model = saved(name, tmp_path)
    for ids in (PLAIN, WITH_PADDING):
        read = read_by_first_blocks(model, ids)
        assert read
        for part, rows in read.items():
            if part == "decoder":
                continue
            opened = embcli.open(tmp_path)
            found = opened.lookup(ids, show="hidden")
            assert_same_bits(found.hidden, rows)
            if ids == PLAIN:
                hold_words(opened, found, model, rows)


def hold_words(opened: embcli.Model, found: Any, model: Any, rows: np.ndarray) -> None:
    """Hold what pages and notes say of a model's positions against the model itself."""
    has_positions = not np.array_equal(rows[1], rows[3])  # of one token
    blocks = found.recipe.blocks
    assert blocks.startswith(BLOCKS[inside_of(model)])
    assert bool(blocks) == bool(inside_of(model))
    assert (" position" in found.recipe.words) == has_positions
    notes = [note for note in map(str, found.notes) if "adds no position rows" in note]
    assert [blocks in note for note in notes] == [True] * (not has_positions)
    if not has_positions:
        only = notes[0].endswith(" rows are the token rows")
        assert only == np.array_equal(found.token, opened.lookup(PLAIN).input)
    if has_positions:
        assert blocks in opened.positions().reason
    else:
        with pytest.raises(
            embcli.InputError, match="no position rows are added, so there is nothing to show"
        ):
            opened.positions()


def inside_of(model: Any) -> str:
    """Return which positions the blocks of a live model compute, by their modules and parameters."""
    if model.config.model_type in ("bloom", "mpt") or getattr(model.config, "alibi", False):
        return "alibi"
    if model.config.model_type in ("gptj", "codegen") or any(
        "Rotary" in type(each).__name__ for each in model.modules()
    ):
        return "rotary"
    relative = re.compile(
        r"relative_attention_bias|rel_pos_bias|rel_embeddings|r_r_bias|position_bias\."
    )
    parts = (
        getattr(model, "decoder", model)
        if model.config.model_type == "vision-encoder-decoder"
        else model
    )
    return "relative" if any(relative.search(name) for name, _ in parts.named_parameters()) else ""


@pytest.mark.parametrize(("name", "token"), [("ESM-1", 4), ("ESM-2", 4)])
def test_a_token_that_the_model_treats_in_its_own_way_is_told(
    name: str, token: int, tmp_path: Path
) -> None:
    (read,) = read_by_first_blocks(saved(name, tmp_path), [5, token, 9]).values()
    found = embcli.open(tmp_path).lookup([5, token, 9], show="hidden")
    assert not np.array_equal(found.hidden, read)
    assert any(str(note).startswith(f"ID {token}: the model") for note in found.notes)


def test_a_row_of_padding_that_the_model_empties_is_told(tmp_path: Path) -> None:
    model = saved("XLM", tmp_path)
    padding = model.config.pad_token_id
    first = model(torch.tensor([[5, 9, padding]]), output_hidden_states=True).hidden_states[0][0]
    assert first.any(1).tolist() == [True, True, False]
    found = embcli.open(tmp_path).lookup([5, 9, padding], show="hidden")
    assert found.hidden.any(1).all()
    assert any(
        str(note).startswith(f"ID {padding}: the model sets rows of padding")
        for note in found.notes
    )


def test_musicgen_reads_texts_with_its_text_encoder(tmp_path: Path) -> None:
    import transformers

    text = transformers.T5Config(
        vocab_size=96, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2
    )
    sound = transformers.EncodecConfig(
        hidden_size=16, num_filters=4, codebook_size=32, codebook_dim=16
    )
    codes = transformers.MusicgenDecoderConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    parts = {
        "text_encoder": text.to_dict(),
        "audio_encoder": sound.to_dict(),
        "decoder": codes.to_dict(),
    }
    model = transformers.MusicgenForConditionalGeneration(
        config=transformers.MusicgenConfig(**parts)
    )
    model.save_pretrained(tmp_path)
    (read,) = read_by_first_blocks(model.text_encoder.eval(), PLAIN).values()
    found = embcli.open(tmp_path).lookup(PLAIN)
    assert_same_bits(found.input, read)
    assert found.recipe.part is None

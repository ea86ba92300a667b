"""Tokens that were added and never trained, found by an audit in models that are trained live.

A small Llama learns made text; its last rows are padding. Then tokens are added, and half of them
are trained for a while.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path

import peft
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM

import embcli
from embcli.verbs.audit import Audit

WORDS = 240
PADDING = 16
NAMED = [WORDS + PADDING + number for number in range(8)]
TRAINED = NAMED[:4]
UNTOUCHED = NAMED[4:]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def untrained(tied: bool) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS + PADDING,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


class MadeText:
    """Words of which each follows the one before it with a chance of its own."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)
        self.frequencies = 1 / torch.arange(1, WORDS + 1)
        chances = torch.rand(WORDS, WORDS, generator=self.generator) ** 8 * self.frequencies
        self.chances = chances / chances.sum(1, keepdim=True)

    def batch(self, named: list[int]) -> torch.Tensor:
        """Return 16 texts of 32 IDs; each of the named tokens stands for one ID in twenty."""
        ids = torch.zeros(16, 32, dtype=torch.long)
        ids[:, 0] = torch.multinomial(self.frequencies, 16, True, generator=self.generator)
        for place in range(1, 32):
            chances = self.chances[ids[:, place - 1]]
            ids[:, place] = torch.multinomial(chances, 1, generator=self.generator)[:, 0]
        for token_id in named:
            ids[torch.rand(ids.shape, generator=self.generator) < 0.05] = token_id
        return ids


def train(model: LlamaForCausalLM, text: MadeText, steps: int, named: list[int]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        ids = text.batch(named)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def audited(model: LlamaForCausalLM, folder: Path) -> Audit:
    """Save a model with its tokenizer, and return its audit."""
    model.save_pretrained(folder)
    words = {f"w{number}": number for number in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    if model.config.vocab_size > WORDS + PADDING:
        tokenizer.add_tokens([AddedToken(f"[unused{number}]") for number in range(PADDING)])
        tokenizer.add_tokens([AddedToken(f"<named{token_id}>") for token_id in NAMED])
    tokenizer.save(str(folder / "tokenizer.json"))
    return embcli.open(folder).audit()


@cache
def learnt(tied: bool) -> tuple[LlamaForCausalLM, MadeText]:
    text = MadeText()
    model = untrained(tied)
    train(model, text, 400, [])
    return model, text


def resized(model: LlamaForCausalLM, mean_resizing: bool) -> LlamaForCausalLM:
    longer = deepcopy(model)
    longer.resize_token_embeddings(WORDS + PADDING + len(NAMED), mean_resizing=mean_resizing)
    return longer


def matrices_of(model: LlamaForCausalLM) -> dict[str, torch.Tensor]:
    token = model.get_input_embeddings().weight.detach().clone()
    if model.config.tie_word_embeddings:
        return {"token": token}
    return {"token": token, "head": model.get_output_embeddings().weight.detach().clone()}


def found_untrained(audit: Audit, layer: str, kind: str = "untrained") -> set[int]:
    """Return the tokens of a matrix that look untrained."""
    ids: set[int] = set()
    for finding in audit.findings:
        if (finding.kind, finding.layer) == (kind, layer):
            ids.update(finding.ids)
    return ids


def assert_told(model: LlamaForCausalLM, start: dict[str, torch.Tensor], folder: Path) -> Audit:
    """Assert that no trained token is said to be untrained, in any dtype; return the last audit."""
    for dtype in DTYPES:
        audit = audited(deepcopy(model).to(dtype), folder / str(dtype))
        for layer, matrix in matrices_of(model).items():
            cosines = torch.cosine_similarity(matrix[NAMED], start[layer][NAMED])
            are_trained = {NAMED[place] for place in torch.nonzero(cosines < 0.9).flatten()}
            assert not found_untrained(audit, layer) & are_trained & {*TRAINED}
    return audit


@pytest.mark.parametrize("steps", [50, 200])
@pytest.mark.parametrize("tied", [True, False])
def test_untouched_rows_of_the_mean_look_untrained(tied, steps, tmp_path):
    model, text = learnt(tied)
    model = resized(model, mean_resizing=True)
    start = matrices_of(model)
    train(model, text, steps, TRAINED)

    audit = assert_told(model, start, tmp_path)

    for layer in start:
        assert found_untrained(audit, layer) == {*UNTOUCHED}
    assert not audit.is_sound


@pytest.mark.parametrize("tied", [True, False])
def test_rows_that_were_drawn_anew_are_told_by_their_length_or_not(tied, tmp_path):
    model, text = learnt(tied)
    model = resized(model, mean_resizing=False)
    audit = audited(model, tmp_path / "start")
    assert found_untrained(audit, "token", "possibly-untrained") == {*NAMED}
    start = matrices_of(model)
    train(model, text, 50, TRAINED)

    assert_told(model, start, tmp_path)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_rows_of_an_adapter_that_trains_tokens_are_told_after_it_is_merged(tmp_path):
    model, text = learnt(True)
    model = resized(model, mean_resizing=True)
    start = matrices_of(model)
    config = peft.LoraConfig(target_modules=["q_proj"], trainable_token_indices=NAMED)
    adapted = peft.get_peft_model(model, config)
    train(adapted, text, 50, TRAINED)
    merged = adapted.merge_and_unload()

    audit = assert_told(merged, start, tmp_path)

    assert found_untrained(audit, "token") == {*UNTOUCHED}


@pytest.mark.parametrize("tied", [True, False])
def test_the_untouched_of_the_added_tokens_rank_before_the_trained(tied, tmp_path):
    model, text = learnt(tied)
    assert audited(untrained(tied), tmp_path / "untrained").main.separation.threshold is None

    drawn_anew = resized(model, mean_resizing=False)
    train(drawn_anew, text, 50, TRAINED)

    # Rows that were drawn anew are like no unused row, and follow some rare words.
    matrix = audited(drawn_anew, tmp_path / "anew").listed
    assert matrix.separation.threshold is not None
    ranked = sorted(NAMED, key=matrix.values[matrix.separation.indicator].__getitem__)
    assert sorted(ranked[:4]) == UNTOUCHED

"""Tokens that were added and never trained are those that an audit says are most like unused ones.

A small Llama learns made text; its last rows are padding. Then four tokens are added, and two of
them are trained for a while.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM

import embcli
from embcli.verbs.audit import Audit

WORDS = 240
PADDING = 16
NAMED = [WORDS + PADDING + number for number in range(4)]
TRAINED = NAMED[:2]
UNTOUCHED = NAMED[2:]


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


def extended(model: LlamaForCausalLM, text: MadeText, mean_resizing: bool) -> LlamaForCausalLM:
    """Return a copy of a model with four tokens more, of which two are trained for a while."""
    longer = deepcopy(model)
    longer.resize_token_embeddings(WORDS + PADDING + 4, mean_resizing=mean_resizing)
    train(longer, text, 50, TRAINED)
    return longer


@pytest.mark.parametrize("tied", [True, False])
def test_the_untouched_of_the_added_tokens_rank_before_the_trained(
    tied: bool, tmp_path: Path
) -> None:
    text = MadeText()
    model = untrained(tied)
    assert not len(audited(model, tmp_path / "untrained").main.ranked)

    train(model, text, 400, [])
    like_the_mean = extended(model, text, mean_resizing=True)
    drawn_anew = extended(model, text, mean_resizing=False)

    first = audited(like_the_mean, tmp_path / "mean").listed.ranked[:2].tolist()
    assert sorted(first) == UNTOUCHED
    # Rows that were drawn anew are like no unused row, and follow some rare words.
    ranked = audited(drawn_anew, tmp_path / "anew").listed.ranked.tolist()
    named = [token_id for token_id in ranked if token_id in NAMED]
    assert sorted(named[:2]) == UNTOUCHED

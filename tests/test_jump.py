"""Jumping ahead gives the draws that stepping there gives, and the layers behind are torch's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from embcli.seeded_layers import drawing
from embcli.seeded_layers.drawing import DrawnLayer
from embcli.seeded_layers.jump import WORDS, jump
from embcli.seeded_layers.seeded import Seeded
from tests.oracles import assert_same_bits, live


def window(seed: int, steps: int) -> np.ndarray:
    """Return the generator's words after `steps` draws, by numpy's own Mersenne Twister."""
    bits = np.random.MT19937()
    bits._legacy_seeding(seed)
    bits.random_raw(steps, output=False)
    state = bits.state["state"]
    blocks = np.concatenate([state["key"], _next_block(state["key"])])
    position = state["pos"]
    return blocks[position : position + WORDS].astype(np.uint32)


def _next_block(key: np.ndarray) -> np.ndarray:
    """Return the 624 words behind a block, one by one."""
    words = [int(word) for word in key]
    for place in range(WORDS):
        mixed = words[place] & 0x80000000 | words[place + 1] & 0x7FFFFFFF
        word = words[place + 397] ^ mixed >> 1
        if mixed & 1:
            word ^= 0x9908B0DF
        words.append(word)
    return np.array(words[WORDS:], np.uint64)


some_steps = st.one_of(
    st.integers(0, 2000),
    st.integers(19_000, 21_000),
    st.integers(0, 3 * 10**6),
)


@given(st.integers(0, 2**32 - 1), some_steps)
@settings(max_examples=25)
def test_a_jump_is_as_many_steps(seed, steps):
    stepped = window(seed, steps)
    jumped = jump(window(seed, 0), steps)
    # Of the first word only the highest bit is used.
    assert jumped[0] >> 31 == stepped[0] >> 31
    assert np.array_equal(jumped[1:], stepped[1:])


FAR = [
    Seeded(150_000, 16, 40),
    Seeded(262_145, 9, 7, seed=2**40 + 5),
    Seeded(5, 3, 700_000),
]


@pytest.mark.parametrize("seeded", FAR, ids=str)
def test_rows_behind_more_draws_than_are_skipped_one_by_one_are_torchs(monkeypatch, seeded):
    """Rows are near, far, near again and far again, in both layers."""
    monkeypatch.setattr(drawing, "_FAR", 1 << 20)  # so that torch draws the layers in no time
    for name in ("position", "token", "position"):
        last = seeded.shapes[name][0] - 1
        layer = DrawnLayer(seeded, name)
        for ids in ([last, 0], [last // 2, last - 1], [1, 2], [last]):
            assert_same_bits(layer.rows(np.array(ids)), live(seeded)[name][ids])

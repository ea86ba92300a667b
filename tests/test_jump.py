"""Jumping ahead gives the draws that stepping there gives, and layers drawn behind a jump are torch's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli.weights.drawing import DrawnLayer
from embcli.weights.jump import WORDS, jump
from embcli.weights.seeded import Seeded
from tests.oracles import assert_same_bits, live


def window(seed: int, steps: int) -> np.ndarray:
    """Return the generator's words after `steps` draws, by numpy's own Mersenne Twister."""
    bits = np.random.MT19937()
    bits._legacy_seeding(seed)
    bits.random_raw(steps, output=False)
    state = bits.state["state"]
    return np.concatenate([state["key"], _next_block(state["key"])])[state["pos"] :][:WORDS].astype(np.uint32)


def _next_block(key: np.ndarray) -> np.ndarray:
    """Return the 624 words behind a block, one by one."""
    words = [int(word) for word in key]
    for place in range(WORDS):
        mixed = words[place] & 0x80000000 | words[place + 1] & 0x7FFFFFFF
        words.append(words[place + 397] ^ mixed >> 1 ^ (0x9908B0DF if mixed & 1 else 0))
    return np.array(words[WORDS:], np.uint64)


@given(
    st.integers(0, 2**32 - 1), st.one_of(st.integers(0, 2000), st.integers(19_000, 21_000), st.integers(0, 3 * 10**6))
)
@settings(max_examples=25, deadline=None)
def test_a_jump_is_as_many_steps(seed: int, steps: int) -> None:
    start, stepped = window(seed, 0), window(seed, steps)
    jumped = jump(start, steps)
    assert np.array_equal(jumped[1:], stepped[1:])
    assert jumped[0] >> 31 == stepped[0] >> 31


@pytest.mark.parametrize("far", [0, 1000])
@pytest.mark.parametrize("shape", [(500, 7, 30), (3, 5, 9), (40, 33, 2), (1, 17, 1)])
def test_layers_behind_a_jump_are_torchs(
    monkeypatch: pytest.MonkeyPatch, far: int, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr("embcli.weights.drawing._FAR", far)
    seeded = Seeded(*shape, seed=2**40 + 5)
    for name in ("position", "token", "position"):
        ids = np.arange(0, seeded.shape(name)[0], 3)
        assert_same_bits(DrawnLayer(seeded, name).rows(ids), live(seeded)[name][ids])


def test_a_distant_row_is_what_skipping_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded, ids = Seeded(3_000_000, 16, 4), np.array([2_999_999])
    jumped = [DrawnLayer(seeded, name).rows(ids % seeded.shape(name)[0]) for name in ("token", "position")]
    monkeypatch.setattr("embcli.weights.drawing._FAR", 10**12)
    skipped = [DrawnLayer(seeded, name).rows(ids % seeded.shape(name)[0]) for name in ("token", "position")]
    assert np.array_equal(jumped, skipped)


def test_a_state_of_another_layout_is_skipped_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embcli.weights.drawing._FAR", 0)
    expected = DrawnLayer(Seeded(100, 16), "position").rows(np.arange(3))
    monkeypatch.setattr("embcli.weights.drawing._WORDS_AT", 32)
    assert np.array_equal(DrawnLayer(Seeded(100, 16), "position").rows(np.arange(3)), expected)


@pytest.mark.parametrize("shape", [(100, 7, 30), (64, 16, 40), (33, 31, 50), (64, 64, 3), (1, 65, 1)])
def test_a_layer_summed_up_in_parts_has_the_figures_of_one_part(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr("embcli.weights.drawing._BUFFER", 64)
    seeded = Seeded(*shape)
    for name in ("token", "position"):
        monkeypatch.setattr("embcli.weights.drawing._FAR", 1 << 40)
        one = DrawnLayer(seeded, name).summary()
        monkeypatch.setattr("embcli.weights.drawing._FAR", 16)
        monkeypatch.setattr("embcli.weights.drawing.readers", lambda _: 3)
        parts = DrawnLayer(seeded, name).summary()
        assert vars(parts) == pytest.approx(vars(one), rel=1e-12)
        whole = live(seeded)[name].astype(np.float64)
        assert (one.minimum, one.maximum) == (whole.min(), whole.max())
        assert (one.mean, one.std) == pytest.approx((whole.mean(), whole.std(ddof=1)), rel=1e-9)

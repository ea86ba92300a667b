"""Layers are drawn as torch.nn.Embedding draws them, bit for bit: whole, in pieces, row by row."""

from __future__ import annotations

import os
from io import BytesIO

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings, strategies as st

import embcli
from embcli.errors import LayerError
from embcli.layer import Layer, Summary
from embcli.seeded_layers.drawing import DrawnLayer
from embcli.seeded_layers.seeded import Seeded
from tests.cases import cases, data
from tests.oracles import assert_same_bits, live

NAMES = ("token", "position")
# Layers of fewer than 16 elements, of exactly 16, and around the boundaries of blocks.
TIGHT = [Seeded(*sizes) for sizes in data(__name__)["tight"]]
# Above the sizes of the buffers that the drawing goes through; one row is wider than a buffer.
LARGE = [
    Seeded(20_011, 131, 517, 9),
    Seeded(3, 1_300_001, 2),
    Seeded(1_200_007, 1, 65_537),
]
sizes = st.integers(1, 40)
seeds = st.integers(0, 2**64 - 1)
seeded_layers = st.builds(Seeded, sizes, sizes, sizes, seeds)


def rows_by_blocks(layer: Layer) -> np.ndarray:
    """Return all rows of a layer as its blocks give them."""
    return np.concatenate([*layer.blocks()])


def rows_by_pieces(layer: Layer, step: int) -> np.ndarray:
    """Return all rows of a layer, of which so many are asked for at a time."""
    ids = np.arange(layer.shape[0])
    starts = ids[step::step]
    pieces = [layer.rows(part) for part in np.split(ids, starts)]
    return np.concatenate(pieces)


@settings(max_examples=100)
@given(seeded_layers | st.sampled_from(TIGHT), st.data())
def test_rows_in_any_order_and_again_and_all_blocks_are_those_of_torch(seeded, data):
    """One call after the other on the same two layers, whose generators move forwards and back."""
    layers = {name: DrawnLayer(seeded, name) for name in NAMES}
    some_names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)
    for name in data.draw(some_names):
        layer = layers[name]
        expected = live(seeded)[name]
        assert layer.shape == expected.shape
        numbers = st.integers(0, len(expected) - 1)
        drawn = data.draw(st.lists(numbers, max_size=12))
        ids = np.array(drawn, np.int64)
        match data.draw(st.sampled_from(["rows", "again", "pieces", "blocks"])):
            case "rows":
                assert_same_bits(layer.rows(ids), expected[ids])
            case "again":
                layer.rows(ids.astype(np.uint32))
                backwards = ids[::-2]
                assert_same_bits(layer.rows(backwards), expected[backwards])
            case "pieces":
                step = data.draw(st.integers(1, 9))
                assert_same_bits(rows_by_pieces(layer, step), expected)
            case "blocks":
                assert_same_bits(rows_by_blocks(layer), expected)


@pytest.mark.parametrize("name", ["position", "token"])
@pytest.mark.parametrize("seeded", [*TIGHT, *LARGE], ids=str)
def test_layers_of_about_one_block_and_larger_than_every_buffer_are_those_of_torch(seeded, name):
    layer = DrawnLayer(seeded, name)
    expected = live(seeded)[name]

    assert_same_bits(rows_by_pieces(layer, len(expected)), expected)
    assert_same_bits(rows_by_blocks(layer), expected)


@pytest.mark.parametrize("method", ["normal_", "random_"])
def test_a_draw_that_fails_leaves_the_generator_in_step(method, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    seeded = Seeded(700, 50)
    layer = DrawnLayer(seeded, "token")
    layer.rows(np.array([9]))

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, method, fail)
        with pytest.raises(MemoryError):
            layer.rows(np.array([3]))

    expected = live(seeded)["token"]
    found = layer.rows(np.array([600]))
    assert_same_bits(found, expected[[600]])


def test_a_drawing_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    layer = DrawnLayer(Seeded(20, 20), "token")
    layer.rows(np.arange(20))

    assert torch.equal(torch.rand(3), expected)


# --- the summary of a layer -----------------------------------------------------------------------

finite = st.floats(-1e6, 1e6, width=32)
odd = st.sampled_from([np.nan, np.inf, -np.inf])
some_floats = st.lists(finite, max_size=9)
some_odd_floats = st.lists(finite | odd, max_size=9)


@settings(max_examples=60)
@given(st.lists(some_floats, min_size=1) | st.lists(some_odd_floats, min_size=1))
@example([[16777216, 16777218], [16777216], [16777218]])  # large numbers close together
@example([[1, 2, 3], [np.inf, -np.inf]])
@example([[0.0, 0.0, 0.0, 0.0, -0.0]])
def test_a_summary_of_pieces_is_that_of_all_values(pieces):
    assume(any(pieces))
    summary = Summary()

    for piece in pieces:
        summary.add(np.array(piece, np.float32))

    values = np.concatenate(pieces)
    whole = torch.from_numpy(values).double()
    positive_zero = 0.0  # turns -0.0 into 0.0: either can be the smallest of both
    np.testing.assert_equal(summary.minimum + positive_zero, whole.min().item() + positive_zero)
    np.testing.assert_equal(summary.maximum + positive_zero, whole.max().item() + positive_zero)
    np.testing.assert_allclose(summary.mean, whole.mean(), rtol=1e-9, atol=1e-6)
    if len(whole) > 1:
        np.testing.assert_allclose(summary.std, whole.std(), rtol=1e-6, atol=1e-9)


# --- what makes a layer ---------------------------------------------------------------------------


SEEDS = [-5, -1, -(2**63), 2**64 - 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_taken_as_torch_takes_it(in_process, tmp_path, monkeypatch, seed):
    """Both spellings have the same bits, in the command and in the library."""
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path))
    torch.manual_seed(seed)
    embedding = torch.nn.Embedding(6, 3)
    expected = embedding.weight.detach().numpy()
    words = ("weights", "--vocab", "6", "--dim", "3", "-f", "npy", "--seed")

    for spelled in (seed, seed % 2**64):
        model = embcli.seeded(6, 3, seed=spelled)
        ran = in_process.ok(*words, str(spelled))

        assert model.source.origin.seed == spelled
        assert_same_bits(model[0:6], expected)
        assert_same_bits(np.load(BytesIO(ran.out)), expected)


@cases
def test_a_layer_larger_than_the_machine_is_refused_and_one_as_large_is_not(
    monkeypatch, name, size
):
    three_pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 3}
    monkeypatch.setattr(os, "sysconf", three_pages.__getitem__)
    rows = 3 * 4096 // 4 // 8
    numbers = {"vocab": 1, "context_length": 1, "dim": 8}

    largest = Seeded(**numbers | {size: rows})

    assert largest.shapes[name] == (rows, 8)
    with pytest.raises(LayerError, match=f"a {name} layer of {rows + 1} x 8"):
        Seeded(**numbers | {size: rows + 1})

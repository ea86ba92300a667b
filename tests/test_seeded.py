"""Layers are drawn bit for bit as torch.nn.Embedding draws them: whole, in pieces, and row by row."""

from __future__ import annotations

import os
import re
import tracemalloc
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import embcli
from embcli.errors import LayerError
from embcli.layer import Summary
from embcli.seeded_layers.drawing import DrawnLayer
from embcli.seeded_layers.seeded import Seeded
from tests.oracles import assert_same_bits, live
from tests.runners import InProcess

NAMES = ("token", "position")
TIGHT = [  # under 16 elements, exactly 16, between, and around the boundaries of blocks
    Seeded(1, 1, 1, 0),
    Seeded(6, 3, 1024),
    Seeded(3, 5, 3, 2**64 - 1),
    Seeded(5, 3, 7),
    Seeded(4, 4, 4, 7),
    Seeded(17, 1, 15),
    Seeded(1, 17, 1),
    Seeded(7, 3, 2, 2**32),
    Seeded(33, 16, 1),
    Seeded(2, 7, 9),
]


def pairs(most: int = 40) -> st.SearchStrategy[Seeded]:
    size = st.integers(1, most)
    return st.builds(Seeded, size, size, size, st.integers(0, 2**64 - 1))


@settings(max_examples=100)
@given(pairs() | st.sampled_from(TIGHT), st.data())
def test_rows_in_any_order_and_again_and_all_blocks_are_those_of_torch(
    seeded: Seeded, data: st.DataObject
) -> None:
    """One call after the other on the same two layers, whose generators move forwards and back."""
    layers = {name: DrawnLayer(seeded, name) for name in NAMES}
    for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)):
        layer, wanted = layers[name], live(seeded)[name]
        assert layer.shape == wanted.shape
        ids = np.array(data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=12)), np.int64)
        match data.draw(st.sampled_from(["rows", "again", "pieces", "blocks"])):
            case "rows":
                assert_same_bits(layer.rows(ids), wanted[ids])
            case "again":
                layer.rows(ids.astype(np.uint32))
                assert_same_bits(layer.rows(ids[::-2]), wanted[ids[::-2]])
            case "pieces":
                step, places = data.draw(st.integers(1, 9)), np.arange(len(wanted))
                pieces = [
                    layer.rows(places[start : start + step])
                    for start in range(0, len(wanted), step)
                ]
                assert_same_bits(np.concatenate(pieces), wanted)
            case "blocks":
                assert_same_bits(np.concatenate([block.copy() for block in layer.blocks()]), wanted)


def test_a_few_rows_of_a_huge_layer_take_the_memory_of_a_few_rows() -> None:
    ids = np.array([3, 30_000, 50_256, 3], np.uint32)
    layer = DrawnLayer(Seeded(50_257, 4096), "token")  # of 0.8 GB
    tracemalloc.start()
    layer.rows(ids)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10**7  # a jump takes most of it
    assert layer.rows(ids).shape == (4, 4096)


# Above the sizes of the buffers that the drawing goes through, with odd shapes: one row wider than a buffer, too.
LARGE = [Seeded(20_011, 131, 517, 9), Seeded(3, 1_300_001, 2), Seeded(1_200_007, 1, 65_537)]


@pytest.mark.parametrize("seeded", [*TIGHT, *LARGE], ids=str)
def test_layers_of_about_one_block_and_larger_than_every_buffer_are_those_of_torch(
    seeded: Seeded,
) -> None:
    for name in ("position", "token"):
        layer = DrawnLayer(seeded, name)
        assert_same_bits(layer.rows(np.arange(layer.shape[0])), live(seeded)[name])
        assert_same_bits(
            np.concatenate([block.copy() for block in layer.blocks()]), live(seeded)[name]
        )


@pytest.mark.parametrize("method", ["normal_", "random_"])
def test_a_draw_that_fails_leaves_the_generator_in_step(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    layer = DrawnLayer(Seeded(700, 50), "token")
    layer.rows(np.array([9]))
    monkeypatch.setattr(torch.Tensor, method, fail)
    with pytest.raises(MemoryError):
        layer.rows(np.array([3]))
    monkeypatch.undo()
    assert_same_bits(layer.rows(np.array([600])), live(Seeded(700, 50))["token"][[600]])


def test_a_drawing_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    DrawnLayer(Seeded(20, 20), "token").rows(np.arange(20))
    assert torch.equal(torch.rand(3), expected)


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=9), min_size=1).filter(any))
def test_a_meter_sums_up_pieces_of_any_size_and_none(pieces: list[list[float]]) -> None:
    summary = Summary()
    for piece in pieces:
        summary.add(np.array(piece, np.float32))
    together = np.array([value for piece in pieces for value in piece], np.float64)
    assert (summary.minimum, summary.maximum) == (together.min(), together.max())
    assert np.isclose(summary.mean, together.mean(), rtol=1e-9, atol=1e-6)
    if len(together) > 1:
        assert np.isclose(summary.std, together.std(ddof=1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("step", [1, 2, 4])
def test_the_standard_deviation_of_large_numbers_close_together_is_exact(step: int) -> None:
    values = np.array([16777216, 16777218, 16777216, 16777218], np.float32)
    summary = Summary()
    for start in range(0, 4, step):
        summary.add(values[start : start + step])
    assert summary.std == pytest.approx((4 / 3) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("odd", [[np.nan], [np.inf], [np.inf, -np.inf], [np.nan, -np.inf]])
@pytest.mark.parametrize("place", [0, 1])
def test_a_meter_of_what_is_no_number_says_what_torch_says(odd: list[float], place: int) -> None:
    pieces = [np.array([1, 2, 3], np.float32), np.array([*odd, 0.5], np.float32)]
    summary = Summary()
    summary.add(pieces[place])
    summary.add(pieces[1 - place])
    whole = torch.from_numpy(np.concatenate(pieces)).double()
    expected = [float(figure) for figure in (whole.mean(), whole.std(), whole.min(), whole.max())]
    assert np.array_equal(
        [summary.mean, summary.std, summary.minimum, summary.maximum], expected, equal_nan=True
    )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"vocab": 0}, "vocab must be at least 1, not 0"),
        ({"dim": -1}, "dim must be at least 1, not -1"),
        ({"context_length": 0}, "context_length must be at least 1, not 0"),
        ({"dim": 10**5000}, "dim is out of range; no machine has that much memory"),
        (
            {"seed": -(2**63) - 1},
            f"seed must be from -2**63 to 2**64 - 1, as in torch, not {-(2**63) - 1}",
        ),
        ({"seed": 2**64}, f"seed must be from -2**63 to 2**64 - 1, as in torch, not {2**64}"),
    ],
)
def test_numbers_that_make_no_layer_are_refused_by_name(wrong: dict[str, int], named: str) -> None:
    with pytest.raises(LayerError, match=f"^{re.escape(named)}$"):
        Seeded(**{"vocab": 6, **wrong})


@pytest.mark.parametrize("seed", [-5, -1, -(2**63), 2**64 - 5])
def test_a_seed_is_taken_as_torch_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same bits and one kept file for both spellings, on the command line and in the library."""
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path))
    torch.manual_seed(seed)
    expected = torch.nn.Embedding(6, 3).weight.detach().numpy()
    torch.manual_seed(seed)
    first = torch.nn.Linear(6, 3, bias=False).weight.detach().numpy()
    for spelled in (seed, seed % 2**64):
        model = embcli.seeded(6, 3, seed=spelled)
        assert model.source.origin.seed == torch.initial_seed()
        ran = InProcess().ok(
            "weights", "--vocab", "6", "--dim", "3", "--seed", str(spelled), "-f", "npy"
        )
        for found in (model[0:6], np.load(BytesIO(ran.out))):
            assert_same_bits(found, expected)
        comparison = embcli.seeded(6, 3).compare([2], seed=spelled)
        assert (comparison.run["seed"], comparison.first.tolist()) == (
            torch.initial_seed(),
            first.tolist(),
        )
    assert len(list(tmp_path.glob("*-seed*"))) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_larger_than_the_machine_is_refused_and_one_as_large_is_not(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 3}.__getitem__)
    rows = 3 * 4096 // 4 // 8
    sizes = {"vocab": 1, "context_length": 1}
    key = "vocab" if name == "token" else "context_length"
    assert Seeded(**{**sizes, key: rows}, dim=8).shape(name) == (rows, 8)
    with pytest.raises(
        LayerError,
        match=f"a {name} layer of {rows + 1} x 8 takes 12.3 kB, and this machine has 12.3",
    ):
        Seeded(**{**sizes, key: rows + 1}, dim=8)

"""Layers are drawn bit for bit as torch.nn.Embedding draws them: whole, in pieces, and row by row."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embcli.errors import LayerError
from embcli.weights import Seeded, SeededSource, seeded
from embcli.weights.drawing import Drawing, Meter
from tests.conftest import Embcli

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


@lru_cache(maxsize=8)
def live(spec: Seeded) -> dict[str, np.ndarray]:
    """Return both layers as torch itself draws them."""
    torch.manual_seed(spec.seed)
    token = torch.nn.Embedding(spec.vocabulary_size, spec.dim)
    position = torch.nn.Embedding(spec.context_length, spec.dim)
    return {"token": token.weight.detach().numpy(), "position": position.weight.detach().numpy()}


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def specs(most: int = 40) -> st.SearchStrategy[Seeded]:
    size = st.integers(1, most)
    return st.builds(Seeded, size, size, size, st.integers(0, 2**64 - 1))


@st.composite
def reads(draw: st.DrawFn) -> tuple[Seeded, list[tuple[str, list[int]]]]:
    """Draw a pair of layers and which rows of which layer are asked for, one call after the other."""
    spec = draw(specs())
    calls = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6)):
        calls.append((name, draw(st.lists(st.integers(0, spec.shape(name)[0] - 1), max_size=12))))
    return spec, calls


@pytest.mark.parametrize("spec", TIGHT, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_all_rows_are_those_of_torch(spec: Seeded, name: str) -> None:
    layer = Drawing(spec).layer(name)
    assert layer.shape == live(spec)[name].shape
    assert_same_bits(layer.rows(np.arange(layer.shape[0])), live(spec)[name])


@settings(max_examples=250, deadline=None)
@given(reads())
def test_rows_in_any_order_and_as_often_as_asked_are_those_of_torch(
    case: tuple[Seeded, list[tuple[str, list[int]]]],
) -> None:
    spec, calls = case
    drawing = Drawing(spec)
    layers = {name: drawing.layer(name) for name in NAMES}
    for name, ids in calls:
        assert_same_bits(layers[name].rows(np.array(ids, np.int64)), live(spec)[name][ids])


@settings(max_examples=100, deadline=None)
@given(specs(), st.integers(1, 9), st.sampled_from(NAMES))
def test_consecutive_pieces_join_to_the_whole(spec: Seeded, step: int, name: str) -> None:
    layer = Drawing(spec).layer(name)
    everything = np.arange(layer.shape[0])
    pieces = [layer.rows(everything[start : start + step]) for start in range(0, len(everything), step)]
    assert_same_bits(np.concatenate(pieces), live(spec)[name])


@settings(max_examples=100, deadline=None)
@given(specs())
@example(Seeded(3, 5, 3))
@example(Seeded(7, 3, 4))
def test_flat_gives_every_element_once_and_in_order(spec: Seeded) -> None:
    drawing = Drawing(spec)
    for name in ("position", "token", "position"):
        pieces = list(drawing.layer(name).flat())  # all of them first: an earlier piece stays what it was
        assert_same_bits(np.concatenate(pieces), live(spec)[name].ravel())


@settings(max_examples=100, deadline=None)
@given(specs(), st.data())
def test_pinned_rows_are_those_of_torch(spec: Seeded, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    ids = np.array(data.draw(st.lists(st.integers(0, spec.shape(name)[0] - 1), min_size=1)), np.uint32)
    pinned = Drawing(spec).layer(name).pin(ids)
    assert pinned.shape == spec.shape(name)
    chosen = np.array(data.draw(st.lists(st.sampled_from(ids.tolist()))), np.int64)
    assert_same_bits(pinned.rows(chosen), live(spec)[name][chosen])
    again = np.arange(spec.shape(name)[0])
    assert_same_bits(pinned.pin(again).rows(again), live(spec)[name])


# Above the sizes of the buffers that the drawing goes through, with odd shapes: one row wider than a buffer, too.
LARGE = [Seeded(20_011, 131, 517, 9), Seeded(3, 1_300_001, 2), Seeded(1_200_007, 1, 65_537)]


@pytest.mark.parametrize("spec", LARGE, ids=str)
def test_layers_larger_than_every_buffer_are_those_of_torch(spec: Seeded) -> None:
    drawing = Drawing(spec)
    for name in ("position", "token"):
        layer = drawing.layer(name)
        assert_same_bits(layer.rows(np.arange(layer.shape[0])), live(spec)[name])
        assert_same_bits(np.concatenate(list(layer.flat())), live(spec)[name].ravel())


@pytest.mark.parametrize("far", [1, 1 << 40], ids=["jumping", "skipping"])
def test_few_rows_of_a_huge_layer_are_those_of_torch_and_so_is_the_position_layer_behind_it(
    monkeypatch: pytest.MonkeyPatch, far: int
) -> None:
    monkeypatch.setattr(seeded, "_FAR", far)
    spec = Seeded(200_019, 65, 33, 2**63 + 2**31)
    drawing = Drawing(spec)
    ids = np.array([200_018, 0, 123_456, 199_999, 123_456, 123_457])
    assert_same_bits(drawing.layer("token").rows(ids), live(spec)["token"][ids])
    assert_same_bits(drawing.layer("position").rows(np.arange(33)), live(spec)["position"])


def test_a_drawing_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Drawing(Seeded(20, 20)).layer("token").rows(np.arange(20))
    assert torch.equal(torch.rand(3), expected)


@settings(max_examples=60, deadline=None)
@given(specs())
@example(LARGE[0])
def test_the_summary_is_that_of_numpy(spec: Seeded) -> None:
    for name in NAMES:
        layer, expected = Drawing(spec).layer(name), live(spec)[name].astype(np.float64)
        summary = layer.summary()
        assert (summary.minimum, summary.maximum) == (expected.min(), expected.max())
        assert np.isclose(summary.mean, expected.mean(), rtol=1e-10, atol=1e-12)
        if expected.size == 1:
            assert np.isnan(summary.std)
        else:
            assert np.isclose(summary.std, expected.std(ddof=1), rtol=1e-9, atol=1e-9)
        assert layer.pin(np.array([0])).summary() == summary or expected.size == 1


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=9), min_size=1).filter(any))
def test_a_meter_sums_up_pieces_of_any_size_and_none(pieces: list[list[float]]) -> None:
    meter = Meter()
    for piece in pieces:
        meter.add(np.array(piece, np.float32))
    together = np.array([value for piece in pieces for value in piece], np.float64)
    summary = meter.summary()
    assert (summary.minimum, summary.maximum) == (together.min(), together.max())
    assert np.isclose(summary.mean, together.mean(), rtol=1e-9, atol=1e-6)
    if len(together) > 1:
        assert np.isclose(summary.std, together.std(ddof=1), rtol=1e-6, atol=1e-1)


def test_the_run_names_torch_and_the_cpu_capability_it_draws_with() -> None:
    run = SeededSource(Seeded(6, 3, 4, 9)).open(NAMES).run
    assert run == {
        "seed": 9,
        "shapes": {"token": [6, 3], "position": [4, 3]},
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"vocabulary_size": 0}, "--vocab 0"),
        ({"dim": -1}, "--dim -1"),
        ({"context_length": 0}, "--context-length 0"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": 2**64}, f"--seed {2**64}"),
    ],
)
def test_numbers_that_make_no_layer_are_refused_by_name(wrong: dict[str, int], named: str) -> None:
    with pytest.raises(LayerError, match=f"^{named} "):
        Seeded(**{"vocabulary_size": 6, **wrong})


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_larger_than_the_memory_is_refused_and_one_as_large_is_not(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 3}.__getitem__)
    rows = 3 * 4096 // 4 // 8
    sizes = {"vocabulary_size": 1, "context_length": 1}
    key = "vocabulary_size" if name == "token" else "context_length"
    assert Seeded(**{**sizes, key: rows}, dim=8).shape(name) == (rows, 8)
    with pytest.raises(LayerError, match=f"a {name} layer of {rows + 1} x 8 takes 12.3 kB, and this machine has 12.3"):
        Seeded(**{**sizes, key: rows + 1}, dim=8)


def test_a_layer_larger_than_the_memory_is_an_error_and_no_attempt(embcli: Embcli) -> None:
    message = embcli.refused("weights", "--vocab", "1000000000", "--dim", "100000")
    assert "a token layer of 1,000,000,000 x 100,000 takes 400.0 TB" in message

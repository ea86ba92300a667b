"""Both layers are torch's own: outputs, gradients and a step of training equal a plain torch script's, bit for bit.

Pages are held as whole transcripts, of a weight whose numbers are exact, or with those of torch.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode

from embcli import errors
from embcli.errors import InputError, LayerError, Notes
from embcli.layer import Origin
from embcli.names import STEPS
from embcli.page import export
from embcli.verbs.compare import Comparison, compare, layers
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from embcli.writers import write
from tests.conftest import TIMEOUT, Embcli
from tests.inside import Inside
from tests.oracles import Stub, StubSource, assert_same_bits, live, live_comparison, of_ids

WEIGHT = np.random.default_rng(7).normal(size=(6, 4)).astype(np.float32)
EXACT = np.arange(-12, 12, dtype=np.float32).reshape(6, 4) / 8
run = Inside()


def seeded(ids: list[int], size: int, dim: int = 5, seed: int = 123, **more: Any) -> Comparison:
    return compare(of_ids(ids), SeededSource(Seeded(size, dim, 1, seed)), **more)


def given_weight(ids: list[int], weight: np.ndarray, **more: Any) -> Comparison:
    origin = Origin(path="model.npy", tensors={"token": "token"}, dtypes={"token": "float32"})
    return compare(of_ids(ids), StubSource({"token": Stub(weight)}, origin=origin, notes=Notes()), **more)


def bits(values: np.ndarray | torch.Tensor) -> bytes:
    return np.ascontiguousarray(values, np.float32).tobytes()


def timed(result: Comparison) -> Comparison:
    """Return the result with times of a machine that is always the same."""
    seconds, least = {"embedding": 1e-5, "linear": 6e-4}, {"embedding": 9e-6, "linear": 5e-4}
    times = {"seconds": seconds, "least_seconds": least, "runs": {"embedding": 8, "linear": 2}, "ratio": 60.0}
    return replace(result, cost=result.cost | times)


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each way as few times as may be: here the figures are not the point."""
    monkeypatch.setattr(layers, "ENOUGH", 0.0)


# --- numbers ----------------------------------------------------------------------------------------------------------


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    size, dim = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    ids = draw(st.lists(st.integers(0, size - 1), max_size=60))
    return ids, size, dim, draw(st.integers(0, 2**64 - 1))


@given(runs())
def test_outputs_first_weights_and_gradients_are_those_of_a_plain_script(run: tuple[list[int], int, int, int]) -> None:
    ids, size, dim, seed = run
    found, wanted = seeded(ids, size, dim, seed, gradient=True), live_comparison(ids, size, dim, seed)
    assert bits(found.first) == bits(wanted.first)
    assert bits(found.weight) == bits(wanted.weight)
    assert bits(found.embedding) == bits(wanted.embedding)
    assert bits(found.linear) == bits(wanted.linear)
    assert found.verdict.identical == (bits(wanted.embedding) == bits(wanted.linear))
    gradient, touched = found.gradient, sorted(set(ids))
    assert gradient.ids.tolist() == touched
    assert gradient.times.tolist() == [ids.count(each) for each in touched]
    assert bits(gradient.embedding) == bits(wanted.embedding_gradient[touched])
    assert bits(gradient.linear) == bits(wanted.linear_gradient.T[touched])
    assert gradient.rows["embedding"] == sum(any(row) for row in wanted.embedding_gradient.tolist())
    assert gradient.rows["linear"] == sum(any(row) for row in wanted.linear_gradient.T.tolist())
    assert gradient.verdict.identical == (bits(gradient.embedding) == bits(gradient.linear))


def test_slices_of_tokens_give_the_bits_of_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(ids: torch.Tensor, size: int) -> torch.Tensor:
        made.append(len(ids) * size)
        return one_hot(ids, size)

    monkeypatch.setattr(layers, "one_hot", counted)
    ids = np.random.default_rng(1).integers(0, 50257, 100).tolist()
    found, wanted = seeded([*ids, *ids[:9]], 50257, 7), live_comparison([*ids, *ids[:9]], 50257, 7, 123)
    assert found.cost["slices"] > 1
    assert max(made) <= 2**20  # numbers of 12 bytes: the whole matrix is never there
    seeded(ids * 4, 50257, 2, gradient=True)
    assert max(made) <= 2**24
    assert bits(found.linear) == bits(wanted.linear)
    assert bits(found.embedding) == bits(wanted.embedding)


def test_a_gradient_summed_up_over_slices_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "GRADIENT_SLICE", 100)
    ids = np.random.default_rng(2).permutation(40)[:25].tolist()  # each ID once: no sum to be rounded
    gradient, wanted = seeded(ids, 40, gradient=True).gradient, live_comparison(ids, 40, 5, 123)
    assert gradient.slices == 13
    assert bits(gradient.linear) == bits(wanted.linear_gradient.T[sorted(ids)])
    repeated = seeded([3, 3, 7, 3] * 5, 40, gradient=True).gradient
    np.testing.assert_allclose(
        repeated.linear, live_comparison([3, 3, 7, 3] * 5, 40, 5, 123).linear_gradient.T[[3, 7]], 1e-5
    )


@pytest.mark.parametrize("ids", [[0], [2, 3, 1], [5, 5, 0, 5], []])
def test_cost_is_counted_as_torch_counts_it(ids: list[int]) -> None:
    cost = seeded(ids, 6, 9).cost
    index, linear = torch.tensor(ids, dtype=torch.int64), torch.nn.Linear(6, 9, bias=False)
    matrix = one_hot(index, 6)
    with FlopCounterMode(display=False) as counted:
        linear(matrix.float())
    assert cost["multiply_adds"] == {"embedding": 0, "linear": counted.get_total_flops() // 2}
    assert cost["one_hot_bytes"] == {"int64": matrix.nbytes, "float32": matrix.float().nbytes}
    read = {"embedding": torch.nn.Embedding(6, 9)(index).nbytes, "linear": linear.weight.nbytes}
    assert cost["weight_bytes_read"] == read
    assert cost["multiplications_by_zero"] == int((matrix == 0).sum()) * 9
    assert cost["ratio"] == cost["seconds"]["linear"] / cost["seconds"]["embedding"] > 0
    assert all(0 < cost["least_seconds"][way] <= cost["seconds"][way] for way in ("embedding", "linear"))
    assert (cost["runs"], cost["threads"]) == ({"embedding": 5, "linear": 5}, 1)


def test_both_ways_are_timed_on_one_thread_that_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes as long as the list says; the first is a warm-up, unless it is long."""
    lookups, products = [9, 3, 1, 8, 2, 2.5], [0.4, 4, 7, 5, 6, 6]
    seen: set[int] = set()

    def clock_of(times: list[float]) -> Callable[[], float]:
        readings = iter(
            [reading for end, took in zip(np.cumsum(times), times, strict=True) for reading in (end - took, end)]
        )

        def clock() -> float:
            seen.add(torch.get_num_threads())
            return float(next(readings))

        return clock

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr(layers, "clock", clock_of([0.1, *lookups[1:], *products]))
        cost = seeded([1, 2], 6).cost
        monkeypatch.setattr(layers, "clock", clock_of([9, 4]))
        long = seeded([1, 2], 6).cost
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
    assert cost["seconds"] == pytest.approx({"embedding": 2.5, "linear": 6})
    assert cost["least_seconds"] == pytest.approx({"embedding": 1, "linear": 4})
    assert cost["runs"] == {"embedding": 5, "linear": 5}
    assert (long["seconds"], long["runs"]) == ({"embedding": 9, "linear": 4}, {"embedding": 1, "linear": 1})


def test_the_time_that_a_process_waits_for_the_processor_does_not_count() -> None:
    def waiting() -> torch.Tensor:
        time.sleep(0.02)
        return torch.zeros(1)

    assert max(layers.timed(waiting)[1]) < 0.01


def trained(layer: torch.nn.Module, given: torch.Tensor, rate: float) -> torch.Tensor:
    """Return the weight of a layer after a step of training, as a script takes one."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    optimizer.zero_grad()
    (layer(given).square().sum() / 2).backward()
    optimizer.step()
    return layer.weight.detach()


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(1, 30), st.integers(1, 12), st.floats(0, 10, width=32))
def test_a_step_is_that_of_torchs_optimizer(data: st.DataObject, size: int, dim: int, rate: float) -> None:
    ids = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    gradient = seeded(ids, size, dim, learning_rate=rate).gradient
    found, touched = gradient.training, gradient.ids.tolist()
    torch.manual_seed(123)
    embedding, linear = torch.nn.Embedding(size, dim), torch.nn.Linear(size, dim, bias=False)
    before = embedding.weight.detach().clone()
    linear.weight = torch.nn.Parameter(before.T.clone())
    left = trained(embedding, torch.tensor(ids), rate)
    right = trained(linear, torch.nn.functional.one_hot(torch.tensor(ids), size).float(), rate).T
    assert touched == sorted(set(ids))
    assert found.before.tobytes() == before[touched].numpy().tobytes()
    assert found.embedding.tobytes() == left[touched].numpy().tobytes()
    np.testing.assert_allclose(found.linear, right[touched].numpy(), rtol=1e-5, atol=1e-5)
    assert found.rows["embedding"] == int((left != before).any(dim=1).sum()) <= len(touched)
    assert found.rows["linear"] == int((right != before).any(dim=1).sum())
    assert found.size == size


def test_the_largest_learning_rate_is_taken_and_other_optimizers_move_other_rows() -> None:
    """As `explain gradient` says: plain SGD leaves rows of tokens that did not occur, AdamW does not."""
    found = seeded([2], 6, learning_rate=float(np.finfo(np.float32).max)).gradient.training
    assert (found.rows, np.isinf(found.embedding).any()) == ({"embedding": 1, "linear": 1}, True)
    layer = torch.nn.Embedding(6, 3)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.tensor([2])).sum().backward()
    optimizer.step()
    assert (layer.weight != before).any(dim=1).all()


def test_the_layers_that_were_compared_stay_as_they_were() -> None:
    plain, stepped = seeded([2, 3, 1], 4), seeded([2, 3, 1], 4, learning_rate=0.5)
    for name in ("first", "weight", "embedding", "linear"):
        assert bits(getattr(plain, name)) == bits(getattr(stepped, name))
    assert plain.gradient is None


# --- weights that are not finite ----------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_makes_the_product_nan_and_is_named(odd: float) -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = odd
    found = given_weight([1, 2, 4], weight, gradient=True)
    linear = torch.nn.Linear(6, 4, bias=False)
    linear.weight = torch.nn.Parameter(torch.tensor(weight).T)
    np.testing.assert_array_equal(found.linear, linear(one_hot(torch.tensor([1, 2, 4]), 6).float()).detach())
    np.testing.assert_array_equal(found.embedding, weight[[1, 2, 4]])
    assert (found.verdict.kind, found.verdict.place) == ("nan", (0, 3))
    assert [row for row, _ in found.verdict.causes] == [2]
    name = "NaN" if np.isnan(odd) else str(odd)
    assert f"Row 2 of the weight has {name} in column 3" in str(found)
    assert f"0 · {name} = NaN" in str(found)
    assert (found.gradient.rows["embedding"], found.gradient.rows["linear"]) == (3, 6)


def test_the_row_that_is_named_is_another_one_than_the_token_s_own() -> None:
    weight = WEIGHT.copy()
    weight[[0, 5], 1] = np.inf
    assert "Row 5 of the weight has inf in column 1" in str(given_weight([0], weight))


def test_a_single_token_whose_own_row_has_an_infinity_comes_out_alike() -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    assert given_weight([2, 2], weight).verdict.identical


def test_the_sign_of_a_zero_is_a_difference_of_bits_that_is_explained() -> None:
    weight = WEIGHT.copy()
    weight[4, 0] = -0.0
    found = given_weight([1, 4], weight)
    assert (found.verdict.kind, found.verdict.place, found.verdict.difference) == ("zero sign", (1, 0), 0.0)
    assert "only the sign of a zero differs" in str(found)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 10])
@pytest.mark.parametrize("gradient", [False, True])
def test_layers_that_do_not_fit_beside_a_one_hot_row_are_refused(
    monkeypatch: pytest.MonkeyPatch, dim: int, gradient: bool
) -> None:
    size = 1_000_000
    matrices = [np.empty((size, dim), np.float32)] * (4 if gradient else 2)  # two weights, and their gradients
    rows = [np.empty(size, np.int64), np.empty(size, np.float32)]
    need = sum(each.nbytes for each in [*matrices, *rows])
    monkeypatch.setattr(layers, "compare", lambda *_: 1 / 0)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: need)
    with pytest.raises(ZeroDivisionError):  # nothing refuses it before
        seeded([1], size, dim, gradient=gradient)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: need - 1)
    refused = rf"a pair of layers of 1,000,000 x {dim} takes {need / 1e6:.1f} MB, and this machine has .* of memory"
    with pytest.raises(LayerError, match=refused):
        seeded([1], size, dim, gradient=gradient)


def test_an_id_without_a_row_is_refused() -> None:
    with pytest.raises(InputError, match=r"^ID 4 at position 1 has no row"):
        seeded([1, 4], 4)
    with pytest.raises(InputError, match=r"^ID 6 at position 0 has no row"):
        given_weight([6], WEIGHT)


def test_options_that_are_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"^show 'shares' is not known; choose from ids, one-hot"):
        seeded([1], 2, show=("ids", "shares"))
    for rate in (-1, np.nan, np.inf, 3.5e38):
        with pytest.raises(
            InputError,
            match=rf"^learning_rate must be a finite float32 of at least 0, not {rate:g}$".replace("+", r"\+"),
        ):
            seeded([1], 2, learning_rate=rate)


# --- as data --------------------------------------------------------------------------------------------------------


def written(result: Comparison, form: str) -> bytes:
    file = io.BytesIO()
    write(result.records(), form, file)
    return file.getvalue()


def test_all_formats_hold_the_same_outputs() -> None:
    found, wanted = seeded([2, 3, 1, 3], 300, 17), live_comparison([2, 3, 1, 3], 300, 17, 123)
    rows = [line.split(",") for line in written(found, "csv").decode().splitlines()]
    assert rows[0] == ["position", "id", "difference", *map(str, range(17))]
    assert [row[:3] for row in rows[1:]] == [[str(p), str(i), "0.0"] for p, i in enumerate([2, 3, 1, 3])]
    assert bits(np.array([row[3:] for row in rows[1:]], np.float32)) == bits(wanted.embedding)
    assert written(found, "tsv").decode().splitlines() == ["\t".join(row) for row in rows]
    assert bits(np.load(io.BytesIO(written(found, "npy")))) == bits(wanted.embedding)
    tensors = safetensors.numpy.load(written(found, "safetensors"))
    lines = [json.loads(line) for line in written(found, "ndjson").splitlines()]
    document = json.loads(written(found, "json"))
    for name in ("embedding", "linear"):
        assert bits(tensors[name]) == bits(wanted.embedding)
        assert bits(np.array([line["vectors"][name] for line in lines])) == bits(wanted.embedding)
        assert bits(np.array(document["matrices"][name])) == bits(wanted.embedding)
    assert tensors["ids"].tolist() == [line["id"] for line in lines] == [2, 3, 1, 3]
    assert document["weights"] == {"first": None, "shared": None}  # 5,100 numbers are not told unasked


def test_weights_are_in_the_document_when_they_are_few_or_named() -> None:
    wanted = live_comparison([2, 3, 1], 4, 5, 123)
    weights = json.loads(written(seeded([2, 3, 1], 4), "json"))["weights"]
    assert bits(np.array(weights["first"])) == bits(wanted.first)
    assert bits(np.array(weights["shared"])) == bits(wanted.weight.T)
    named = json.loads(written(seeded([2], 1000, 17, show=("first",)), "json"))["weights"]
    assert bits(np.array(named["first"])) == bits(live_comparison([2], 1000, 17, 123).first)
    assert named["shared"] is None


def test_json_has_null_for_nan_and_csv_has_nan(capsys: pytest.CaptureFixture[str]) -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    found = given_weight([1, 2], weight, gradient=True)
    document = json.loads(written(found, "json"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [row["difference"] for row in document["tokens"]] == [None, 0.0]
    assert document["verdict"]["largest_difference"] is None
    assert document["verdict"]["place"]["linear"] is None
    assert document["verdict"]["causes"] == [{"row": 2, "column": 3, "value": "inf"}]
    assert document["gradient"]["linear"][1][3] is None
    assert written(found, "csv").decode().splitlines()[1].split(",")[2] == "nan"
    capsys.readouterr()


# --- on a page ------------------------------------------------------------------------------------------------------

FIRST = """\
-0.2039  0.0166 -0.2483  0.1886
-0.4260  0.3665 -0.3634 -0.3975
-0.3159  0.2264 -0.1847  0.1871
-0.4244 -0.3034 -0.1836 -0.0983
-0.3814  0.3274 -0.1179  0.1605
"""
WEIGHT_OF_THE_BOOK = """\
 0.3374 -0.1778 -0.3035 -0.5880  1.5810
 1.3010  1.2753 -0.2010 -0.1606 -0.4015
 0.6957 -1.8061 -1.1589  0.3255 -0.6315
-2.8400 -0.7849 -1.4096 -0.4076  0.7953
"""
DEFAULT = """\
Two ways from token IDs to vectors: embedding layer and linear layer
T = 3 (tokens), V = 4 (rows), D = 5 (columns), seed 123
1. The token IDs, (T,) = (3,)
2  3  1

2. The one-hot matrix, (T, V) = (3, 4)
One row per token: 1 in the column of its ID, 0 in the other 3.
pos  ID  │  0  1  2  3
──────────────────────
  0   2  │  0  0  1  0
  1   3  │  0  0  0  1
  2   1  │  0  1  0  0

3. The linear layer's own first weights, (D, V) = (5, 4)
torch.nn.Linear draws uniform numbers within ±1/√V = ±0.5, torch.nn.Embedding normal ones: one seed gives other numbers.
D  │        0        1        2        3
────────────────────────────────────────
0  │  {F0}
1  │  {F1}
2  │  {F2}
3  │  {F3}
4  │  {F4}

4. The shared weight, embedding.weight, (V, D) = (4, 5)
Now linear.weight = Parameter(embedding.weight.T), (D, V) = (5, 4): each row here is a column of it.
ID  │        0        1        2        3        4
──────────────────────────────────────────────────
 0  │  {W0}
 1  │  {W1}
 2  │  {W2}
 3  │  {W3}

5. The outputs, (T, D) = (3, 5): row ID of the weight; one-hot row · weight
         │  embedding                                    │  linear
pos  ID  │        0        1        2        3        4  │        0        1        2        3        4  diff
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
  0   2  │  {W2}  │  {W2}     0
  1   3  │  {W3}  │  {W3}     0
  2   1  │  {W1}  │  {W1}     0

Bit-identical: all 15 values, the largest |difference| is 0.
A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.
Cost              embedding               linear
───────────────────────────────────────────────────────────────────────────────────────────
multiply-adds             0                   60  T·V·D
weight read        60 bytes             80 bytes  T·D and V·D float32
one-hot matrix            0  96 bytes + 48 bytes  T·V int64, as torch makes it, and float32
time on 1 thread      10 µs               600 µs  median of 8 and 2 runs
  at least             9 µs               500 µs  the fastest run
linear: 60x the time; 45 of 60 are multiplications by zero.
Untrained: random rows of seed 123.
"""
EVERYTHING = """\
Two ways from token IDs to vectors: embedding layer and linear layer
T = 2 (tokens), V = 3 (rows), D = 3 (columns), token (float32)
The shared weight, embedding.weight, (V, D) = (3, 3)
Now linear.weight = Parameter(embedding.weight.T), (D, V) = (3, 3): each row
here is a column of it.
ID  │        0        1        2
────────────────────────────────
 0  │  -1.5000  -1.3750  -1.2500
 1  │  -1.0000  -0.8750  -0.7500
 2  │  -0.5000  -0.3750  -0.2500

Bit-identical: all 6 values, the largest |difference| is 0.
A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.

One-hot rows times the weight = its rows: (2, 3) × (3, 3)
One column per token: its one-hot row, upright; the 1 selects its row.
0  1       row  │        0        1        2
────────────────────────────────────────────
0  0  ×      0  │  -1.5000  -1.3750  -1.2500
1  0  ×      1  │  -1.0000  -0.8750  -0.7500
0  1  ×      2  │  -0.5000  -0.3750  -0.2500
      =  pos 0  │  -1.0000  -0.8750  -0.7500
      =  pos 1  │  -0.5000  -0.3750  -0.2500

The product, written out
Each row of the weight times its entry in the token's one-hot row, and the sum
of all.

token 0, ID 1: 0·row0 + 1·row1 + 0·row2 = row1
factor  row   │        0        1        2
──────────────────────────────────────────
   0 ·  row0  │  -1.5000  -1.3750  -1.2500
 + 1 ·  row1  │  -1.0000  -0.8750  -0.7500
 + 0 ·  row2  │  -0.5000  -0.3750  -0.2500
     =  sum   │  -1.0000  -0.8750  -0.7500

token 1, ID 2: 0·row0 + 0·row1 + 1·row2 = row2
factor  row   │        0        1        2
──────────────────────────────────────────
   0 ·  row0  │  -1.5000  -1.3750  -1.2500
 + 0 ·  row1  │  -1.0000  -0.8750  -0.7500
 + 1 ·  row2  │  -0.5000  -0.3750  -0.2500
     =  sum   │  -0.5000  -0.3750  -0.2500

The gradients of both weights, for the loss output.square().sum() / 2
One row per ID: its gradient is the output itself, summed over its n tokens.
               │  embedding                  │  linear
ID             │        0        1        2  │        0        1        2  diff
───────────────────────────────────────────────────────────────────────────────
 1  row        │  -1.0000  -0.8750  -0.7500  │  -1.0000  -0.8750  -0.7500     0
    gradient   │  -1.0000  -0.8750  -0.7500  │  -1.0000  -0.8750  -0.7500     0
    row after  │  -0.5000  -0.4375  -0.3750  │  -0.5000  -0.4375  -0.3750     0
 2  row        │  -0.5000  -0.3750  -0.2500  │  -0.5000  -0.3750  -0.2500     0
    gradient   │  -0.5000  -0.3750  -0.2500  │  -0.5000  -0.3750  -0.2500     0
    row after  │  -0.2500  -0.1875  -0.1250  │  -0.2500  -0.1875  -0.1250     0
Bit-identical: all 6 values, the largest |difference| is 0.
After one step of torch.optim.SGD: row - 0.5 · gradient
Bit-identical: all 6 values, the largest |difference| is 0.
Moved: 2 of 3 rows in the embedding, 2 of 3 rows in the linear layer.
1 row of 3 is of tokens that did not occur.

Cost             embedding               linear
multiply-adds            0                   18
weight read       24 bytes             36 bytes
one-hot matrix           0  48 bytes + 24 bytes
time on 1 thread     10 µs               600 µs
linear: 60x the time; 12 of 18 are multiplications by zero.
"""
LARGE = """\
Two ways from token IDs to vectors: embedding layer and
linear layer
T = 2 (tokens), V = 1,000 (rows), D = 20 (columns), token
(float32)
The one-hot matrix, (T, V) = (2, 1,000)
One row per token: 1 in the column of its ID, 0 in the other
999.
pos   ID  the 1 is at
─────────────────────
  0    5  column 5
  1  999  column 999

Bit-identical: all 40 values, the largest |difference| is 0.
A one-hot row times the weight is 1 · row ID + 0 · every
other row = row ID.

One-hot rows times the weight = its rows: (2, 1,000) ×
(1,000, 20)
One column per token: its one-hot row, upright; the 1
selects its row.
0  1       row  │      0      1      2  …     18     19
───────────────────────────────────────────────────────
0  0  ×      0  │    0.0    0.0    0.0  …    0.0    0.0
⋮  ⋮  ⋮      ⋮  │      ⋮      ⋮      ⋮  ⋮      ⋮      ⋮
1  0  ×      5  │    5.0    5.0    5.0  …    5.0    5.0
⋮  ⋮  ⋮      ⋮  │      ⋮      ⋮      ⋮  ⋮      ⋮      ⋮
0  1  ×    999  │  999.0  999.0  999.0  …  999.0  999.0
      =  pos 0  │    5.0    5.0    5.0  …    5.0    5.0
      =  pos 1  │  999.0  999.0  999.0  …  999.0  999.0
Left out: columns 3 to 17 (15 of 20).

The product, written out
Each row of the weight times its entry in the token's
one-hot row, and the sum of all.

token 0, ID 5: 0·row0 + … + 1·row5 + … + 0·row999 = row5
factor  row     │      0      1      2  …     18     19
───────────────────────────────────────────────────────
   0 ·  row0    │    0.0    0.0    0.0  …    0.0    0.0
 + 1 ·  row5    │    5.0    5.0    5.0  …    5.0    5.0
 + 0 ·  row999  │  999.0  999.0  999.0  …  999.0  999.0
     =  sum     │    5.0    5.0    5.0  …    5.0    5.0
Left out: 997 terms, all of them 0 times a row and columns 3
to 17 (15 of 20).

token 1, ID 999: 0·row0 + … + 1·row999 = row999
factor  row     │      0      1      2  …     18     19
───────────────────────────────────────────────────────
   0 ·  row0    │    0.0    0.0    0.0  …    0.0    0.0
 + 1 ·  row999  │  999.0  999.0  999.0  …  999.0  999.0
     =  sum     │  999.0  999.0  999.0  …  999.0  999.0
Left out: 998 terms, all of them 0 times a row and columns 3
to 17 (15 of 20).

Cost             embedding            linear
multiply-adds            0            40,000
weight read      160 bytes           80.0 kB
one-hot matrix           0  16.0 kB + 8.0 kB
time on 1 thread     10 µs            600 µs
linear: 60x the time; 39,960 of 40,000 are multiplications
by zero.
"""
ODD = """\
Two ways from token IDs to vectors: embedding
layer and linear layer
T = 2 (tokens), V = 6 (rows), D = 4 (columns),
token (float32)
1. The one-hot matrix, (T, V) = (2, 6)
One row per token: 1 in the column of its ID, 0
in the other 5.
pos  ID  │  0  1  2  3  4  5
────────────────────────────
  0   1  │  0  1  0  0  0  0
  1   0  │  1  0  0  0  0  0

2. The outputs, (T, D) = (2, 4): row ID of the
weight; one-hot row · weight
pos  ID             │        0  …        3  diff
────────────────────────────────────────────────
  0   1  embedding  │  -1.0000  …  -0.6250
         linear     │  -1.0000  …  -0.6250   nan
  1   0  embedding  │  -1.5000  …  -1.1250
         linear     │  -1.5000  …  -1.1250     0
Left out: columns 1 to 2 (2 of 4).

Not bit-identical: 1 of 8 values differ, the
largest |difference| is NaN.
At token 0 (ID 1), column 2: embedding gives
-0.75, linear NaN.
Row 0 of the weight has inf in column 2:
embedding reads only the row of the ID, linear
multiplies all others by 0, and 0 · inf = NaN.
Cost             embedding    linear
multiply-adds            0        48
weight read       32 bytes  96 bytes
one-hot int64            0  96 bytes
one-hot float32          0  48 bytes
time on 1 thread     10 µs    600 µs
linear: 60x the time; 40 of 48 are
multiplications by zero.
"""


def test_the_page_of_the_default_has_the_figures_of_the_book() -> None:
    def line(row: np.ndarray) -> str:
        return "  ".join(f"{value:7.4f}" for value in row)

    weight, first = live(Seeded(4, 5))["token"], live_comparison([], 4).first.numpy()
    rows = {f"W{place}": line(row) for place, row in enumerate(weight)}
    rows |= {f"F{place}": line(row) for place, row in enumerate(first)}
    result = timed(seeded([2, 3, 1], 4))
    assert export.text(result, 120) == DEFAULT.format(**rows)
    for printed, values in ((WEIGHT_OF_THE_BOOK, weight), (FIRST, first)):
        figures = np.array([line.split() for line in printed.splitlines()], float)
        np.testing.assert_allclose(figures, values, atol=6e-5, rtol=0)


def all_options() -> Comparison:
    return timed(given_weight([1, 2], EXACT[:3, :3], show=("shared",), draw=True, trace=True, learning_rate=0.5))


def large() -> Comparison:
    weight = np.repeat(np.arange(1000, dtype=np.float32)[:, None], 20, axis=1)
    return timed(given_weight([5, 999], weight, show=("one-hot",), draw=True, trace=True)).styled(precision=1)


def odd() -> Comparison:
    weight = EXACT.copy()
    weight[0, 2] = np.inf
    return timed(given_weight([1, 0], weight, show=("one-hot", "linear")))


@pytest.mark.parametrize(("make", "width", "page"), [(all_options, 80, EVERYTHING), (large, 60, LARGE), (odd, 48, ODD)])
def test_the_whole_page(make: Callable[[], Comparison], width: int, page: str) -> None:
    assert export.text(make(), width) == page


def shown_steps(text: str) -> list[str]:
    """Return the steps on a page, which are numbered as they stand there if there are several."""
    titles = ("The token IDs", "The one-hot matrix", "The linear layer's own", "The shared weight", "The outputs")
    found = re.findall(rf"^(?:(\d)\. )?({'|'.join(titles)})", text, re.MULTILINE)
    assert [number for number, _ in found] == (["1", "2", "3", "4", "5"][: len(found)] if len(found) > 1 else [""])
    return [STEPS[titles.index(title)] for _, title in found]


def test_a_screen_has_as_many_steps_as_it_holds_those_first_that_one_needs_first() -> None:
    needed, counts, result = ("outputs", "ids", "one-hot", "shared", "first"), [], seeded([2, 3, 1], 4)
    for height in range(20, 70, 3):
        text = export.text(result, 80, height)
        shown = shown_steps(text)
        assert {*shown} == {*needed[: len(shown)]}
        assert text.count("\n") < max(height - 1, 22)  # suggestions and the prompt take a line each
        assert "Bit-identical" in text
        assert "multiplications by zero" in text
        missing = ", ".join(name for name in STEPS if name not in shown)
        last = f"Not shown (no room): {missing}" if missing else "seed 123."
        assert text.removesuffix(", the reason\n").rstrip().endswith(last)
        if missing:  # the next one would not fit
            more = export.text(replace(result, show=needed[: len(shown) + 1]), 80, height)
            assert more.count("\n") + 3 + ("A one-hot row times" not in more) > height
        counts.append(len(shown))
    assert counts == sorted(counts)
    assert {*counts} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("ids", [[2, 3, 1], [*range(9)], [5, 30_000, 7, 49_999]])
def test_what_was_asked_for_ends_a_page_that_fits_the_screen(ids: list[int]) -> None:
    drawn = export.text(seeded(ids, max(ids) + 1, draw=True), 80, 24)
    assert drawn.count("\n") <= 22
    assert drawn.endswith("Not shown (no room): ids, one-hot, first, shared, outputs, the cost\n")
    trained = export.text(seeded([3], 6, 3, learning_rate=0.1), 80, 24)
    assert trained.count("\n") <= 22
    assert "Moved: 1 of 6 rows in the embedding, 1 of 6 rows in the linear layer." in trained


def test_a_drawing_in_a_picture_stands_alone_and_costs_are_there_if_they_are_named() -> None:
    result = seeded([2, 3, 1], 4, draw=True)

    def page(result: Comparison) -> str:
        return " ".join(re.sub("<[^>]*>", "", result.page("html").decode()).split())

    drawn = page(result)
    assert "One-hot rows times the weight" in drawn
    assert "Bit-identical" in drawn
    assert not re.search("The token IDs|The outputs|multiply-adds|Untrained", page(result.styled(bare=True)))
    assert "Untrained" in drawn
    assert not re.search("The token IDs|The outputs|multiply-adds", drawn)
    assert "multiply-adds" in page(replace(result, show=("cost",)))
    assert "multiply-adds" in str(result)
    assert "The outputs" in page(seeded([2, 3, 1], 4))


def test_only_a_screen_leaves_out_parts() -> None:
    result = seeded([*range(60)], 60, draw=True, gradient=True)
    for format in ("table", "markdown", "svg", "html"):
        assert "Not shown" not in result.page(format).decode()
    for more in ((), ("--color", "always")):
        text = re.sub("\x1b.*?m", "", run.ok("compare", *more).text)
        assert shown_steps(text) == [*STEPS]


def test_gradients_that_differ_by_rounding_say_so() -> None:
    result = seeded([1, 1, 1], 4, gradient=True)
    linear = np.nextafter(result.gradient.linear, np.float32(np.inf))
    rounded = replace(result, gradient=replace(result.gradient, linear=linear))
    assert rounded.gradient.verdict.kind == "value"
    assert "in another order: they differ by rounding." in str(rounded)
    assert "rounding" not in str(result)


def test_no_tokens_make_an_empty_comparison() -> None:
    result = seeded([], 1, gradient=True, trace=True, draw=True)
    assert result.verdict.identical
    assert "Nothing to compare: there are no tokens." in str(result)
    assert "One-hot rows times" not in str(result)
    assert json.loads(written(result, "json"))["matrices"] == {"embedding": [], "linear": []}


def test_both_ways_are_strips_of_colours() -> None:
    text = str(seeded([2, 3, 1], 4, 12, show=("outputs",)).styled(heat=True))
    strips = re.findall(r"(?m)(?:embedding|linear) +│  (\S+)", text)
    assert len(strips) == 6
    assert strips[::2] == strips[1::2]
    assert {len(strip) for strip in strips} == {48}


# --- as a command -----------------------------------------------------------------------------------------------------


def test_the_json_document_holds_what_torch_gives(inside: Embcli) -> None:
    document = json.loads(inside.ok("compare", "--gradient", "--vocab", "4", "--ids", "2,3,1", "-f", "json").out)
    weight = live(Seeded(4, 5))["token"]
    for name in ("embedding", "linear"):
        assert_same_bits(np.array(document["matrices"][name], np.float32), weight[[2, 3, 1]])
        assert_same_bits(np.array(document["gradient"][name], np.float32), weight[[1, 2, 3]])
    assert document["run"]["shapes"] == {
        "ids": [3], "one_hot": [3, 4], "first": [5, 4], "shared": [5, 4], "embedding": [3, 5], "linear": [3, 5]
    }  # fmt: skip
    assert (document["run"]["sequences"], document["verdict"]["bit_identical"]) == (1, True)


def test_a_text_is_compared_on_the_encoding_s_rows(inside: Embcli) -> None:
    document = json.loads(inside.ok("compare", "-", "--dim", "3", "-f", "json", stdin="Every effort moves you").out)
    assert document["run"]["shapes"]["one_hot"] == [4, 50257]
    assert [(row["token"], row["id"]) for row in document["tokens"]] == [
        ("Every", 6109), (" effort", 3626), (" moves", 6100), (" you", 345)
    ]  # fmt: skip
    rows = live(Seeded(50257, 3))["token"][[6109, 3626, 6100, 345]]
    assert_same_bits(np.array(document["matrices"]["linear"], np.float32), rows)


def test_a_difference_gives_status_1(tmp_path: Path) -> None:
    weight = EXACT.copy()
    weight[0, 2] = np.inf
    np.save(tmp_path / "odd.npy", weight)
    ran = run("compare", "--from", str(tmp_path / "odd.npy"), "--ids", "1")
    assert ran.status == 1
    assert "Row 0 of the weight has inf in column 2" in ran.text


RUN = """
import sys
from embcli.__main__ import main
for arguments in eval(sys.argv[1]):
    sys.argv = ["embcli", "compare", *arguments]
    print(main(), "torch" in sys.modules)
    print("--", file=sys.stderr)
"""
REFUSED = [
    (["--ids", "1,-2"], "ID -2 at position 1 is negative"),
    (["--vocab", "3"], "ID 3 at position 1 has no row: the token layer has V = 3 rows"),
    (["Every", "--vocab", "100"], "ID 6109 ('Every') at position 0 has no row"),
    (["--dim", "-1"], "dim must be at least 1, not -1"),
    (["--seed", str(2**64)], "seed must be from -2**63 to 2**64 - 1, as in torch, not 18446744073709551616"),
    (["--vocab", str(10**12)], "takes 20.0 TB, and this machine has"),
    (["--show", "ids,shares"], "--show 'shares' is not known; choose from ids, one-hot, first, shared, outputs"),
    (["--learning-rate", "nan"], "--learning-rate must be a finite float32 of at least 0, not nan"),
    (["--learning-rate", "1", "-f", "csv"], "--learning-rate cannot be shown in csv"),
]


def test_bad_input_is_refused_before_torch_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str([arguments for arguments, _ in REFUSED])],
        input=b"\xff",
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.stdout == b"2 False\n" * len(REFUSED), done
    errors = done.stderr.decode().split("--\n")[:-1]
    for (_, said), error in zip(REFUSED, errors, strict=True):
        assert said in error
        assert error.startswith("embcli: ")
        assert 1 <= error.count("\n") <= 2

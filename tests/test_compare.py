"""Both layers are torch's own: outputs, gradients and a step of training equal a plain torch script's, bit for bit.

Whole pages stand in pages.md; here are that of a difference, and what a page does where room is short.
"""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from embcli import errors
from embcli.errors import LayerError
from embcli.layer import Origin
from embcli.model import Model
from embcli.names import OUTPUTS, STEPS
from embcli.page import export
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.compare import Comparison, layers
from embcli.writers import write
from tests.oracles import Stub, StubSource, normal, of_ids
from tests.runners import InProcess

LARGEST = float(np.finfo(np.float32).max)
run = InProcess()


def seeded(ids: list[int], size: int, dim: int = 5, seed: int = 123, **more: Any) -> Comparison:
    return Model(SeededSource(Seeded(size, dim, 1, seed))).compare(of_ids(ids), **more)


def given_weight(ids: list[int], weight: np.ndarray, **more: Any) -> Comparison:
    origin = Origin(path="model.npy", tensors={"token": "token"}, dtypes={"token": "float32"})
    return Model(StubSource({"token": Stub(weight)}, origin=origin)).compare(of_ids(ids), **more)


def plain(
    ids: list[int],
    size: int,
    dim: int = 5,
    seed: int = 123,
    weight: np.ndarray | None = None,
    rate: float = 0,
) -> dict[str, np.ndarray]:
    """Return what torch gives where nothing but torch is used; all by rows of the embedding layer but `first`."""
    torch.manual_seed(seed)
    embedding = torch.nn.Embedding(size, dim)
    if weight is not None:
        embedding.weight = torch.nn.Parameter(torch.tensor(weight))
    torch.manual_seed(seed)
    linear = torch.nn.Linear(size, dim, bias=False)
    found = {
        "first": linear.weight.detach().numpy(),
        "weight": embedding.weight.detach().numpy().copy(),
    }
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach().clone())
    index = torch.tensor(ids, dtype=torch.int64)
    for layer, inputs in ((embedding, index), (linear, one_hot(index, size).float())):
        name, optimizer = type(layer).__name__.lower(), torch.optim.SGD(layer.parameters(), lr=rate)
        output = layer(inputs)
        (output.square().sum() / 2).backward()
        gradient = layer.weight.grad.clone()  # type: ignore[union-attr]
        optimizer.step()
        turned = torch.Tensor.t if layer is linear else torch.Tensor.detach
        found |= {name: output.detach().numpy(), f"{name} gradient": turned(gradient).numpy()}
        found[f"{name} after"] = turned(layer.weight.detach()).numpy()
    return found


def bits(values: Any) -> bytes:
    return np.ascontiguousarray(values, np.float32).tobytes()


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each way as few times as may be: here the figures are not the point."""
    monkeypatch.setattr(layers, "ENOUGH", 0.0)


# --- numbers ----------------------------------------------------------------------------------------------------------


@given(
    st.data(), st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**64 - 1), st.booleans(),
    st.floats(0, 10, width=32) | st.just(LARGEST),
)  # fmt: skip
def test_outputs_gradients_and_a_step_are_those_of_a_plain_script(
    data: st.DataObject, size: int, dim: int, seed: int, is_seeded: bool, rate: float
) -> None:
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=60))
    if is_seeded:
        weight, found = None, seeded(ids, size, dim, seed, learning_rate=rate)
    else:
        weight = normal(size, dim)
        found = given_weight(ids, weight, seed=seed, learning_rate=rate)
    wanted = plain(ids, size, dim, seed, weight, rate)
    for name in ("first", "weight", *OUTPUTS):
        assert bits(getattr(found, name)) == bits(wanted[name])
    assert found.verdict.identical == (bits(wanted["embedding"]) == bits(wanted["linear"]))
    gradient, training, touched = found.gradient, found.gradient.training, sorted(set(ids))
    assert gradient.ids.tolist() == touched
    assert gradient.times.tolist() == [ids.count(each) for each in touched]
    assert bits(training.before) == bits(wanted["weight"][touched])
    assert bits(training.embedding) == bits(wanted["embedding after"][touched])
    np.testing.assert_allclose(
        training.linear, wanted["linear after"][touched], rtol=1e-5, atol=1e-5
    )
    for name in OUTPUTS:
        assert bits(getattr(gradient, name)) == bits(wanted[f"{name} gradient"][touched])
        assert gradient.rows[name] == int(wanted[f"{name} gradient"].any(axis=1).sum())
        assert training.rows[name] == int(
            (wanted[f"{name} after"] != wanted["weight"]).any(axis=1).sum()
        )
    assert gradient.verdict.identical == (bits(gradient.embedding) == bits(gradient.linear))


def test_slices_of_tokens_give_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(ids: torch.Tensor, size: int) -> torch.Tensor:
        made.append(len(ids) * size)
        return one_hot(ids, size)

    monkeypatch.setattr(layers, "one_hot", counted)
    ids = (
        np.random.default_rng(1).permutation(50257)[:45].tolist()
    )  # each ID once: no sum to be rounded
    monkeypatch.setattr(layers, "GRADIENT_SLICE", 10 * 50257)
    found, wanted = seeded(ids, 50257, 7, gradient=True), plain(ids, 50257, 7)
    assert (found.cost["slices"], found.gradient.slices) == (3, 5)
    assert max(made) <= 2**20  # numbers of 12 bytes: the whole matrix is never there
    for name in OUTPUTS:
        assert bits(getattr(found, name)) == bits(wanted[name])
        assert bits(getattr(found.gradient, name)) == bits(wanted[f"{name} gradient"][sorted(ids)])
    assert "computed in 3 slices of tokens to save memory" in " ".join(str(found).split())
    repeated = seeded([3, 3, 7, 3] * 5, 50257, gradient=True).gradient
    np.testing.assert_allclose(repeated.linear, repeated.embedding, 1e-5)


@pytest.mark.parametrize("ids", [[0], [5, 5, 0, 5], []])
def test_cost_is_that_of_torchs_own_tensors(ids: list[int]) -> None:
    cost = seeded(ids, 6, 9).cost
    index, linear = torch.tensor(ids, dtype=torch.int64), torch.nn.Linear(6, 9, bias=False)
    matrix = one_hot(index, 6)
    assert cost["multiply_adds"] == {"embedding": 0, "linear": matrix.numel() * 9}
    assert cost["one_hot_bytes"] == {"int64": matrix.nbytes, "float32": matrix.float().nbytes}
    read = {"embedding": torch.nn.Embedding(6, 9)(index).nbytes, "linear": linear.weight.nbytes}
    assert cost["weight_bytes_read"] == read
    assert cost["multiplications_by_zero"] == int((matrix == 0).sum()) * 9
    assert cost["ratio"] == cost["seconds"]["linear"] / cost["seconds"]["embedding"] > 0
    assert (cost["threads"], cost["slices"]) == (1, min(len(ids), 1))


def test_both_ways_are_timed_on_one_thread_that_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each run takes as long as the list says; the first is a warm-up, unless it is long."""
    seen: set[int] = set()

    def cost_of(times: list[float]) -> Any:
        readings = iter([reading for took in times for reading in (0.0, took)])

        def clock() -> float:
            seen.add(torch.get_num_threads())
            return next(readings)

        monkeypatch.setattr(layers, "clock", clock)
        return seeded([1, 2], 6).cost

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cost, long = cost_of([0.1, 3, 1, 8, 2, 2.5, 0.4, 4, 7, 5, 6, 6]), cost_of([9, 4])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
    assert cost["seconds"] == {"embedding": 2.5, "linear": 6}
    assert cost["least_seconds"] == {"embedding": 1, "linear": 4}
    assert cost["runs"] == {"embedding": 5, "linear": 5}
    assert (long["seconds"], long["runs"]) == (
        {"embedding": 9, "linear": 4},
        {"embedding": 1, "linear": 1},
    )


def test_the_time_that_a_process_waits_for_the_processor_does_not_count() -> None:
    def waiting() -> torch.Tensor:
        time.sleep(0.02)
        return torch.zeros(1)

    assert max(layers.timed(waiting)[1]) < 0.01


# --- outputs that differ ----------------------------------------------------------------------------------------------

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
linear: 60x the time; 40 of 48 are
multiplications by zero.
"""
NARROW_COST = """\
Cost              embedding    linear
─────────────────────────────────────
multiply-adds             0        48
weight read        32 bytes  96 bytes
one-hot int64             0  96 bytes
one-hot float32           0  48 bytes
time on 1 thread      10 µs    600 µs
  at least             9 µs    500 µs
linear: 60x the time; 40 of 48 are
multiplications by zero.
"""
WIDE_COST = """\
time on 1 thread      10 µs    600 µs  median of 8 and 2 runs
  at least             9 µs    500 µs  the fastest run
linear: 60x the time; 40 of 48 are multiplications by zero.
"""


def test_the_page_of_a_difference_and_of_its_cost() -> None:
    weight = np.arange(-12, 12, dtype=np.float32).reshape(6, 4) / 8
    weight[0, 2] = np.inf
    result = given_weight([1, 0], weight, show=("one-hot", "linear"))
    seconds, least = {"embedding": 1e-5, "linear": 6e-4}, {"embedding": 9e-6, "linear": 5e-4}
    times = {
        "seconds": seconds,
        "least_seconds": least,
        "runs": {"embedding": 8, "linear": 2},
        "ratio": 60.0,
    }
    result = replace(result, cost=result.cost | times)
    assert export.text(result, 48) == ODD
    result = replace(result, show=("cost",))
    assert export.text(result, 48).endswith(NARROW_COST)
    assert export.text(result, 100).endswith(WIDE_COST)
    long = replace(
        result, cost=result.cost | {"runs": {"embedding": 8, "linear": 1}, "ratio": 9.96}
    )
    assert "median of 8 runs; one run, as it is long\n" in export.text(long, 100)
    assert "linear: 10.0x the time" in str(long)


@pytest.mark.parametrize(
    ("ids", "odd", "kind", "place", "said"),
    [
        ([1, 2, 4], {(2, 3): np.inf}, "nan", (0, 3), "Row 2 of the weight has inf in column 3"),
        ([1, 2, 4], {(2, 3): -np.inf}, "nan", (0, 3), "0 · -inf = NaN"),
        ([1, 2, 4], {(2, 3): np.nan}, "nan", (0, 3), "0 · NaN = NaN"),
        (
            [0],
            {(0, 1): np.inf, (5, 1): np.inf},
            "nan",
            (0, 1),
            "Row 5 of the weight has inf",
        ),  # not the token's own
        ([2, 2], {(2, 3): np.inf}, "identical", None, "Bit-identical"),
        ([1, 4], {(4, 0): -0.0}, "zero sign", (1, 0), "only the sign of a zero differs"),
    ],
)
def test_a_weight_that_makes_a_difference_is_named(
    ids: list[int],
    odd: dict[tuple[int, int], float],
    kind: str,
    place: tuple[int, int] | None,
    said: str,
) -> None:
    weight = normal(6, 4)
    for cell, value in odd.items():
        weight[cell] = value
    found, wanted = given_weight(ids, weight, gradient=True), plain(ids, 6, 4, weight=weight)
    np.testing.assert_array_equal(found.linear, wanted["linear"])
    np.testing.assert_array_equal(found.embedding, weight[ids])
    assert (found.verdict.kind, found.verdict.place) == (kind, place)
    assert said in " ".join(str(found).split())
    assert ("The outputs differ, and so do their gradients." in str(found)) == (kind == "nan")
    assert found.gradient.rows["linear"] == int((wanted["linear gradient"] != 0).any(axis=1).sum())


def test_gradients_that_differ_by_rounding_say_so() -> None:
    result = seeded([1, 1, 1], 4, gradient=True)
    linear = np.nextafter(result.gradient.linear, np.float32(np.inf))
    rounded = replace(result, gradient=replace(result.gradient, linear=linear))
    assert "in another order: they differ by rounding." in str(rounded)
    assert "rounding" not in str(result)


def test_a_difference_gives_status_1_and_null_in_json(tmp_path: Path) -> None:
    weight = normal(6, 4)
    weight[2, 3] = np.inf
    np.save(tmp_path / "odd.npy", weight)
    words = ("compare", "--from", str(tmp_path / "odd.npy"), "--ids", "1,2", "--gradient")
    ran = run(*words, "-f", "json")
    document = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (ran.status, document["verdict"]["largest_difference"]) == (1, None)
    assert [row["difference"] for row in document["tokens"]] == [None, 0.0]
    assert document["verdict"]["place"] == {
        "row": 0,
        "column": 3,
        "embedding": float(str(weight[1, 3])),
        "linear": None,
    }
    assert document["verdict"]["causes"] == [{"row": 2, "column": 3, "value": "inf"}]
    assert document["gradient"]["linear"][1][3] is None
    assert run(*words[:-1], "-f", "csv").text.splitlines()[1].split(",")[2] == "nan"


# --- as data --------------------------------------------------------------------------------------------------------


def written(result: Comparison, form: str) -> bytes:
    file = io.BytesIO()
    write(result.records(), form, file)
    return file.getvalue()


def test_csv_holds_the_outputs_and_large_weights_are_told_if_they_are_named() -> None:
    found, outputs = seeded([2, 3, 1, 3], 300, 17), bits(plain([2, 3, 1, 3], 300, 17)["linear"])
    rows = [line.split(",") for line in written(found, "csv").decode().splitlines()]
    assert rows[0] == ["position", "id", "difference", *map(str, range(17))]
    assert [row[:3] for row in rows[1:]] == [
        [str(p), str(i), "0.0"] for p, i in enumerate([2, 3, 1, 3])
    ]
    assert bits([row[3:] for row in rows[1:]]) == outputs
    assert json.loads(written(found, "json"))["weights"] == {
        "first": None,
        "shared": None,
    }  # 5,100 numbers
    named = json.loads(written(replace(found, show=("first", "linear")), "json"))
    assert bits(named["weights"]["first"]) == bits(plain([], 300, 17)["first"])
    assert (named["weights"]["shared"], [*named["matrices"]]) == (None, ["linear"])


def test_the_json_document_holds_what_torch_gives() -> None:
    words = ("--learning-rate", "0.5", "--vocab", "4", "--ids", "2,3,1", "-f", "json")
    document, wanted = json.loads(run.ok("compare", *words).out), plain([2, 3, 1], 4, rate=0.5)
    assert bits(document["weights"]["first"]) == bits(wanted["first"])
    assert bits(document["weights"]["shared"]) == bits(wanted["weight"].T)
    for name in OUTPUTS:
        assert bits(document["matrices"][name]) == bits(wanted[name])
        assert bits(document["gradient"][name]) == bits(wanted[f"{name} gradient"][1:])
        assert bits(document["gradient"]["training"][name]) == bits(wanted[f"{name} after"][1:])
    assert document["gradient"]["training"]["rows_not_moved"] == {"embedding": 1, "linear": 1}
    assert document["run"]["shapes"] == {
        "ids": [3], "one_hot": [3, 4], "first": [5, 4], "shared": [5, 4], "embedding": [3, 5], "linear": [3, 5]
    }  # fmt: skip
    assert (document["run"]["sequences"], document["verdict"]["bit_identical"]) == (1, True)


# --- on a page ------------------------------------------------------------------------------------------------------


def shown_steps(text: str) -> list[str]:
    """Return the steps on a page, which are numbered as they stand there if there are several."""
    titles = (
        "The token IDs",
        "The one-hot matrix",
        "The linear layer's own",
        "The shared weight",
        "The outputs",
    )
    found = re.findall(rf"^(?:(\d)\. )?({'|'.join(titles)})", text, re.MULTILINE)
    assert [number for number, _ in found] == (
        ["1", "2", "3", "4", "5"][: len(found)] if len(found) > 1 else [""] * len(found)
    )
    return [STEPS[titles.index(title)] for _, title in found]


@pytest.mark.parametrize("ids", [[2, 3, 1], [3], [*range(9)], [5, 30_000, 7, 49_999], [*range(60)]])
@pytest.mark.parametrize("dim", [5, 40])
def test_a_screen_has_the_ids_the_outputs_the_verdict_the_reason_and_one_line_of_cost(
    ids: list[int], dim: int
) -> None:
    text = export.text(seeded(ids, max(ids) + 1, dim), 80, 24)
    assert shown_steps(text) == ["ids", "outputs"]
    for told in ("\nBit-identical", "\nA one-hot row times the weight is 1", "\nlinear: "):
        assert text.count(told) == 1
    assert "multiply-adds " not in text
    assert text.count("\n") <= 21  # and a line of suggestions


def test_steps_are_there_by_their_names() -> None:
    for names in (("first",), ("shared", "ids"), ("one-hot", "outputs"), ()):
        shown = shown_steps(str(seeded([2, 3, 1], 4, show=names)))
        assert shown == [name for name in STEPS if name in names]
    everything = str(seeded([2, 3, 1], 4, show="all"))
    assert shown_steps(everything) == [*STEPS]
    assert "multiply-adds " in everything
    for more in ((), ("--color", "always")):
        assert shown_steps(re.sub("\x1b.*?m", "", run.ok("compare", *more).text)) == [
            "ids",
            "outputs",
        ]


@pytest.mark.parametrize("ids", [[2, 3, 1], [*range(9)], [5, 30_000, 7, 49_999]])
def test_what_was_asked_for_stands_without_steps_on_a_screen(ids: list[int]) -> None:
    drawn = export.text(seeded(ids, max(ids) + 1, draw=True), 80, 24)
    assert not shown_steps(drawn)
    assert drawn.count("\n") <= 30
    trained = export.text(seeded([3], 6, 3, learning_rate=0.1), 80, 24)
    assert trained.count("\n") <= 22
    assert "Moved: 1 of 6 rows in the embedding, 1 of 6 rows in the linear layer." in trained


def test_a_picture_has_no_costs_unless_they_are_named() -> None:
    result = seeded([2, 3, 1], 4, draw=True)

    def page(result: Comparison) -> str:
        return " ".join(re.sub("<[^>]*>", "", result.page("html").decode()).split())

    drawn = page(result)
    assert "One-hot rows times the weight" in drawn
    assert "=  pos 0  Hi" in run.ok("compare", "Hi", "--dim", "2", "--draw").text
    assert "Bit-identical" in drawn
    assert "Untrained" in drawn
    assert not re.search("The token IDs|The outputs|multiply-adds|by zero", drawn)
    assert not re.search("The token IDs|by zero|Untrained", page(result.styled(bare=True)))
    assert "\n2  3  1\n" in str(seeded([2, 3, 1], 4))
    assert "multiply-adds" in page(replace(result, show=("cost",)))
    assert "by zero" in str(result)
    assert "The outputs" in page(seeded([2, 3, 1], 4))


def test_long_tables_name_what_they_leave_out() -> None:
    text = export.text(
        seeded([*range(60)], 60, trace=True, gradient=True, show=("ids", "outputs")), 80
    )
    for each in (
        "… 48 more …",
        "Left out: rows 20 to 39 (20 of 60)",
        "Left out: tokens 4 to 55 (52 of 60)",
    ):
        assert each in text
    assert [*map(int, re.findall("token (\\d+), ID", text))] == [*range(4), *range(56, 60)]
    assert (
        "diff" not in export.text(seeded([2], 4, 40, show=("outputs",)), 80).split("Bit")[0]
    )  # where it is known
    assert "Rows with a non-zero gradient: 60 in the embedding, 60 in the linear layer." in text


def test_no_tokens_make_an_empty_comparison() -> None:
    result = seeded([], 1, gradient=True, trace=True, draw=True)
    assert "Nothing to compare: there are no tokens." in str(result)
    assert "One-hot rows times" not in str(result)
    assert json.loads(written(result, "json"))["matrices"] == {"embedding": [], "linear": []}


def test_both_ways_are_strips_of_colours() -> None:
    text = str(seeded([2, 3, 1], 4, 12, show=("outputs",)).styled(heat=True))
    strips = re.findall(r"(?m)(?:embedding|linear) +│  (\S+)", text)
    assert [len(strip) for strip in strips] == [48] * 6
    assert strips[::2] == strips[1::2]


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "copies"), [({}, 2), ({"gradient": True}, 4), ({"learning_rate": 0}, 5)]
)
def test_layers_that_do_not_fit_beside_a_one_hot_row_are_refused(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], copies: int
) -> None:
    need = copies * 10**6 * 3 * 4 + 10**6 * (
        8 + 4
    )  # two weights, their gradients and what a step leaves; a row
    monkeypatch.setattr(layers, "compare", lambda *_: 1 / 0)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: need)
    with pytest.raises(ZeroDivisionError):  # nothing refuses it before
        seeded([1], 10**6, 3, **more)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: need - 1)
    refused = rf"a pair of layers of 1,000,000 x 3 takes {need / 1e6:.1f} MB, and this machine has .* of memory"
    with pytest.raises(LayerError, match=refused):
        seeded([1], 10**6, 3, **more)

"""Both layers are torch's own: outputs and gradients equal a plain torch script's, and the verdict tells all bits."""

from __future__ import annotations

import io
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rich.cells import cell_len
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode

from embcli import compare as core
from embcli import encodings
from embcli.errors import InputError, LayerError
from embcli.page.terminal import Page
from embcli.text import Given
from embcli.tokens import Tokens, tokenize
from embcli.verbs.compare import STEPS, Comparison, Task, differences, judge
from embcli.verbs.compare.layers import compare, compare_weights
from embcli.views.compare import view
from embcli.weights import Seeded
from embcli.writers import write

WEIGHT = np.random.default_rng(7).normal(size=(6, 4)).astype(np.float32)


def of(ids: list[int]) -> Tokens:
    return tokenize(Given(ids=(np.array(ids, np.int64),)), None)


def task(ids: list[int], vocabulary_size: int, dim: int = 5, seed: int = 123, **more: object) -> Task:
    return Task(of(ids), Seeded(vocabulary_size, dim, 1, seed), **more)


def bits(values: np.ndarray | torch.Tensor) -> bytes:
    return np.ascontiguousarray(values, np.float32).tobytes()


def printed(result: Comparison, width: int = 120, terminal: bool = False, trace: bool = False) -> str:
    page = Page(width, False, terminal)
    view(result, page, trace)
    return page.content().decode()


@dataclass(frozen=True)
class Plain:
    """What a plain torch script gives."""

    first: torch.Tensor
    weight: torch.Tensor
    embedding: torch.Tensor
    linear: torch.Tensor
    embedding_gradient: torch.Tensor
    linear_gradient: torch.Tensor  # (D, V), as the linear layer has it


def plain(ids: list[int], vocabulary_size: int, dim: int, seed: int) -> Plain:
    torch.manual_seed(seed)
    embedding = torch.nn.Embedding(vocabulary_size, dim)
    torch.manual_seed(seed)
    linear = torch.nn.Linear(vocabulary_size, dim, bias=False)
    first = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    index = torch.tensor(ids, dtype=torch.int64)
    left, right = embedding(index), linear(one_hot(index, vocabulary_size).float())
    (left.square().sum() / 2).backward()
    (right.square().sum() / 2).backward()
    return Plain(
        first, embedding.weight.detach(), left.detach(), right.detach(), embedding.weight.grad, linear.weight.grad
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    size, dim = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    ids = draw(st.lists(st.integers(0, size - 1), max_size=60))
    return ids, size, dim, draw(st.integers(0, 2**64 - 1))


@given(runs())
@settings(max_examples=40, deadline=None)
def test_outputs_first_weights_and_gradients_are_those_of_a_plain_script(run: tuple[list[int], int, int, int]) -> None:
    ids, size, dim, seed = run
    found, wanted = compare(task(ids, size, dim, seed, gradient=True)), plain(ids, size, dim, seed)
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
    assert gradient.embedding_rows == sum(any(row) for row in wanted.embedding_gradient.tolist())
    assert gradient.linear_rows == sum(any(row) for row in wanted.linear_gradient.T.tolist())
    assert gradient.verdict.identical == (bits(gradient.embedding) == bits(gradient.linear))


def test_slices_of_tokens_give_the_bits_of_the_whole_product() -> None:
    ids = np.random.default_rng(1).integers(0, 50257, 100).tolist()
    found, wanted = compare(task([*ids, *ids[:9]], 50257, 7)), plain([*ids, *ids[:9]], 50257, 7, 123)
    assert found.cost.slices > 1
    assert bits(found.linear) == bits(wanted.linear)
    assert bits(found.embedding) == bits(wanted.embedding)


def test_a_gradient_summed_up_over_slices_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_LONG_SLICE", 100)
    ids = np.random.default_rng(2).permutation(40)[:25].tolist()  # each ID once: no sum to be rounded
    gradient, wanted = compare(task(ids, 40, gradient=True)).gradient, plain(ids, 40, 5, 123)
    assert gradient.slices == 13
    assert bits(gradient.linear) == bits(wanted.linear_gradient.T[sorted(ids)])
    repeated = compare(task([3, 3, 7, 3] * 5, 40, gradient=True)).gradient
    np.testing.assert_allclose(repeated.linear, plain([3, 3, 7, 3] * 5, 40, 5, 123).linear_gradient.T[[3, 7]], 1e-5)


@pytest.mark.parametrize("ids", [[0], [2, 3, 1], [5, 5, 0, 5]])
def test_cost_is_counted_as_torch_counts_it(ids: list[int]) -> None:
    cost = compare(task(ids, 6, 9)).cost
    index, linear = torch.tensor(ids), torch.nn.Linear(6, 9, bias=False)
    matrix = one_hot(index, 6)
    with FlopCounterMode(display=False) as counted:
        linear(matrix.float())
    assert cost.multiply_adds == counted.get_total_flops() // 2
    assert cost.one_hot_bytes == {"int64": matrix.nbytes, "float32": matrix.float().nbytes}
    assert cost.product_bytes == linear.weight.nbytes
    assert cost.lookup_bytes == torch.nn.Embedding(6, 9)(index).nbytes
    assert cost.ratio == cost.product.seconds / cost.lookup.seconds > 0


@pytest.mark.parametrize("largest", [1, 16, 17, 1000])
def test_the_benchmark_goes_up_to_the_largest_vocabulary(largest: int) -> None:
    seen: list[list[int]] = []

    def watch(sizes: list[int]) -> list[int]:
        seen.append(sizes)
        return sizes

    costs = compare(task([2, 3, 1], 4, sweep=largest), watch).sweep
    sizes = [cost.vocabulary_size for cost in costs]
    assert seen == [sizes]
    assert sizes[-1] == largest
    assert sizes == sorted(set(sizes))
    assert all(cost.multiply_adds == 3 * cost.vocabulary_size * 5 for cost in costs)


# --- the verdict ----------------------------------------------------------------------------------------------------

ODD = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, np.inf, -np.inf, np.nan])


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 3)).flatmap(
        lambda shape: st.tuples(*[arrays.arrays(np.float32, shape, elements=ODD)] * 2)
    )
)
@settings(max_examples=300, deadline=None)
def test_the_verdict_is_that_of_a_look_at_each_value(pair: tuple[np.ndarray, np.ndarray]) -> None:
    left, right = pair
    verdict = judge(left, right)
    unequal = [
        (place, a, b)
        for place, a, b in zip(np.ndindex(left.shape), left.ravel(), right.ravel(), strict=True)
        if a.tobytes() != b.tobytes()
    ]
    assert (verdict.values, verdict.different) == (left.size, len(unequal))
    assert verdict.identical == (bits(left) == bits(right)) == (not unequal)
    if not unequal:
        return
    alone = [place for place, a, b in unequal if np.isnan(a) != np.isnan(b)]
    sizes = {place: abs(float(a) - float(b)) for place, a, b in unequal if not (np.isnan(a) or np.isnan(b)) and a != b}
    if alone:
        assert (verdict.kind, verdict.place) == ("nan", alone[0])
        assert np.isnan(verdict.difference)
    elif sizes:
        assert verdict.kind == "value"
        assert sizes[verdict.place] == max(sizes.values())
    else:
        both = [place for place, a, b in unequal if np.isnan(a) and np.isnan(b)]
        assert verdict.kind == ("nan bits" if both else "zero sign")
        assert verdict.place in (both or [place for place, _, _ in unequal])


def test_the_differences_are_those_of_torch() -> None:
    left, right = torch.randn(9, 4), torch.randn(9, 4)
    assert bits(differences(left.numpy(), right.numpy())) == bits((left - right).abs())


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_makes_the_product_nan_and_is_named(odd: float) -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = odd
    found = compare_weights(of([1, 2, 4]), weight, gradient=True)
    linear = torch.nn.Linear(6, 4, bias=False)
    linear.weight = torch.nn.Parameter(torch.tensor(weight).T)
    np.testing.assert_array_equal(found.linear, linear(one_hot(torch.tensor([1, 2, 4]), 6).float()).detach())
    np.testing.assert_array_equal(found.embedding, weight[[1, 2, 4]])
    assert (found.verdict.kind, found.verdict.place) == ("nan", (0, 3))
    assert [(cause.row, cause.column) for cause in found.verdict.causes] == [(2, 3)]
    name = "NaN" if np.isnan(odd) else str(odd)
    assert f"Row 2 of the weight has {name} in column 3" in printed(found)
    assert f"0 · {name} = NaN" in printed(found)
    assert (found.gradient.embedding_rows, found.gradient.linear_rows) == (3, 6)


def test_the_row_that_is_named_is_another_one_than_the_token_s_own() -> None:
    weight = WEIGHT.copy()
    weight[[0, 5], 1] = np.inf
    assert "Row 5 of the weight has inf in column 1" in printed(compare_weights(of([0]), weight))


def test_a_single_token_whose_own_row_has_an_infinity_comes_out_alike() -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    assert compare_weights(of([2, 2]), weight).verdict.identical


def test_the_sign_of_a_zero_is_a_difference_of_bits_that_is_explained() -> None:
    weight = WEIGHT.copy()
    weight[4, 0] = -0.0
    found = compare_weights(of([1, 4]), weight)
    assert (found.verdict.kind, found.verdict.place, found.verdict.difference) == ("zero sign", (1, 0), 0.0)
    assert "only the sign of a zero differs" in printed(found)


def test_a_weight_that_is_read_only_is_taken_as_it_is() -> None:
    weight = WEIGHT.copy()
    weight.setflags(write=False)
    assert bits(compare_weights(of([3, 0]), weight).linear) == bits(WEIGHT[[3, 0]])


# --- what is refused ------------------------------------------------------------------------------------------------


def test_layers_that_fit_one_by_one_but_not_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 25_000}.__getitem__)
    task([1], 1_000_000, 10)
    with pytest.raises(LayerError, match=r"a pair of layers of 1,000,000 x 10 takes 160\.0 MB, and this machine has"):
        task([1], 1_000_000, 10, gradient=True)
    with pytest.raises(LayerError, match=r"a pair of layers of 2,000,000 x 10 takes 160\.0 MB, and this machine has"):
        task([1], 4, 10, sweep=2_000_000)


def test_an_id_without_a_row_is_refused() -> None:
    with pytest.raises(InputError, match=r"^ID 4 at position 1 has no row"):
        task([1, 4], 4)
    with pytest.raises(InputError, match=r"^ID 6 at position 0 has no row"):
        compare_weights(of([6]), WEIGHT)


# --- as data --------------------------------------------------------------------------------------------------------


def written(result: Comparison, form: str) -> bytes:
    file = io.BytesIO()
    write(result.records(), form, None, file)
    return file.getvalue()


def test_all_formats_hold_the_same_outputs() -> None:
    found, wanted = compare(task([2, 3, 1, 3], 300, 17)), plain([2, 3, 1, 3], 300, 17, 123)
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
    wanted = plain([2, 3, 1], 4, 5, 123)
    weights = json.loads(written(compare(task([2, 3, 1], 4)), "json"))["weights"]
    assert bits(np.array(weights["first"])) == bits(wanted.first)
    assert bits(np.array(weights["shared"])) == bits(wanted.weight.T)
    named = json.loads(written(compare(task([2], 1000, 17, show=("first",))), "json"))["weights"]
    assert bits(np.array(named["first"])) == bits(plain([2], 1000, 17, 123).first)
    assert named["shared"] is None


def test_json_has_null_for_nan_and_csv_has_nan(capsys: pytest.CaptureFixture[str]) -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    found = compare_weights(of([1, 2]), weight, gradient=True)
    document = json.loads(written(found, "json"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert [row["difference"] for row in document["tokens"]] == [None, 0.0]
    assert document["verdict"]["largest_difference"] is None
    assert document["verdict"]["place"]["linear"] is None
    assert document["verdict"]["causes"] == [{"row": 2, "column": 3, "value": "inf"}]
    assert document["gradient"]["linear"][1][3] is None
    assert written(found, "csv").decode().splitlines()[1].split(",")[2] == "nan"
    capsys.readouterr()


# --- on a page ------------------------------------------------------------------------------------------------------

TEXT = "Every effort moves you, 🦜 and שלום to the end of the internationalization"
NUMBER = re.compile(r"-?[0-9]+\.[0-9]{4}")


@pytest.fixture(scope="module")
def wide() -> Comparison:
    tokens = tokenize(Given(texts=(TEXT,)), encodings.get("gpt2"))
    return compare(Task(tokens, Seeded(50257, 30, 1, 123), STEPS, gradient=True, sweep=300))


@pytest.mark.parametrize("width", [*range(40, 130, 3), 200, 300])
def test_both_halves_show_the_same_columns_whole_at_any_width(wide: Comparison, width: int) -> None:
    text = printed(wide, width, trace=True)
    tables = [line for line in text.splitlines() if "│" in line or "─" in line or "█" in line]
    assert max(map(cell_len, tables)) <= width
    part = text[text.index("5. The outputs") : text.index("Bit-identical")].splitlines()
    headers = [line for line in part if line.startswith("pos")]
    halves = [header.split("│")[1:] for header in headers]
    columns = [[each for each in half.replace("diff", "").split() if each != "…"] for line in halves for half in line]
    assert len(columns) == 2
    assert columns[0] == columns[1]
    rows = [line.split("│")[1:] for line in part if NUMBER.search(line)]
    if len(halves) == 2:  # one below the other
        rows = [above + below for above, below in zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True)]
    assert len(rows) == len(wide.tokens)
    for place, (left, right) in enumerate(rows):
        values = [f"{wide.embedding[place, int(column)]:.4f}" for column in columns[0]]
        assert NUMBER.findall(left) == NUMBER.findall(right) == values
        assert right.split()[-1] == "0"


@pytest.mark.parametrize("lines", range(20, 70))
def test_the_default_page_fits_on_the_screen_and_has_the_outputs(lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", str(lines))
    result = compare(task([2, 3, 1], 4))
    text = printed(result, 80, terminal=True)
    assert "5. The outputs" in text
    assert "Bit-identical" in text
    assert text.count("\n") < max(lines, 27)
    shown = [name for number, name in enumerate(STEPS, 1) if f"\n{number}. " in text]
    missing = [name for name in STEPS if name not in shown]
    assert missing == text.partition("--show ")[2].strip().split(",") if missing else "--show" not in text
    assert not missing or lines < 60


def test_named_steps_are_shown_and_no_others() -> None:
    text = printed(compare(task([2, 3, 1], 4, show=("one-hot", "shared"))))
    assert re.findall(r"^([1-5])\. ", text, re.MULTILINE) == ["2", "4"]
    assert "Left out" not in text


def test_the_one_hot_matrix_is_torch_s_while_it_fits() -> None:
    text = printed(compare(task([2, 3, 1], 4, show=("one-hot",))))
    rows = [[int(each) for each in line.split("│")[1].split()] for line in text.splitlines() if "│" in line]
    assert rows == [[0, 1, 2, 3], *one_hot(torch.tensor([2, 3, 1]), 4).tolist()]


def test_a_large_one_hot_matrix_is_told_in_words() -> None:
    result = compare(task([2, 50000], 50257, show=("one-hot",)))
    assert "│  1 at column 50000, 0 in the other 50,256" in printed(result)
    assert "│  column 50000\n" in printed(result, 40)


def test_a_trace_writes_the_product_out() -> None:
    result = compare(task([2, 3], 4, show=("outputs",)))
    text = printed(result, trace=True)
    assert "token 0, ID 2: 0·row0 + 0·row1 + 1·row2 + 0·row3 = row2\n" in text
    part = text[text.index("token 1, ID 3: 0·row0 + 0·row1 + 0·row2 + 1·row3 = row3\n") :]
    found = [NUMBER.findall(line) for line in part.splitlines()[3:8]]
    assert found == [[f"{value:.4f}" for value in row] for row in [*result.weight, result.linear[1]]]


def test_a_trace_leaves_out_terms_of_a_large_product_and_says_so() -> None:
    text = printed(compare(task([2, 99], 100)), trace=True)
    assert "token 0, ID 2: 0·row0 + … + 1·row2 + … + 0·row99 = row2\n" in text
    assert "token 1, ID 99: 0·row0 + … + 1·row99 = row99\n" in text
    assert "Left out: 97 terms, all of them 0 times a row." in text
    assert "Left out: 98 terms, all of them 0 times a row." in text


def test_gradients_that_differ_by_rounding_say_so() -> None:
    result = compare(task([1, 1, 1], 4, gradient=True))
    linear = np.nextafter(result.gradient.linear, np.float32(np.inf))
    rounded = replace(result, gradient=replace(result.gradient, linear=linear))
    assert rounded.gradient.verdict.kind == "value"
    assert "in another order: rounding." in printed(rounded)
    assert "rounding" not in printed(result)


def test_no_tokens_make_an_empty_comparison() -> None:
    result = compare(task([], 1, gradient=True, sweep=20))
    assert result.verdict.identical
    assert "Nothing to compare: there are no tokens." in printed(result, trace=True)
    assert json.loads(written(result, "json"))["matrices"] == {"embedding": [], "linear": []}


def test_a_file_in_the_tests_folder_is_the_plain_script() -> None:
    script = (Path(__file__).parent / "benchmarks" / "compare_plain.py").read_text()
    names: dict[str, torch.nn.Module] = {}
    exec(script, names)
    assert bits(names["embedding"].weight.detach()) == bits(compare(task([2, 3, 1], 4)).weight)

"""Both layers are torch's own: outputs and gradients equal a plain torch script's, and the verdict tells all bits."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import one_hot
from torch.utils.flop_counter import FlopCounterMode
from wcwidth import wcswidth

from embcli import encodings, errors
from embcli.errors import InputError, LayerError
from embcli.layer import Origin
from embcli.names import STEPS
from embcli.notes import Notes
from embcli.oldpage import Paper
from embcli.oldpage.terminal import Terminal
from embcli.text import Sequences
from embcli.tokens import tokenize
from embcli.verbs.compare import Comparison, ComparisonOptions, compare, layers
from embcli.verbs.compare.result import Timing
from embcli.views.compare import view
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from embcli.writers import write
from tests.oracles import Stub, StubSource, live_comparison, of_ids
from tests.screen import grids, words

Item = TypeVar("Item")

WEIGHT = np.random.default_rng(7).normal(size=(6, 4)).astype(np.float32)


def seeded(ids: list[int], size: int, dim: int = 5, seed: int = 123, **more: Any) -> Comparison:
    """Compare both ways on a seeded layer; other words are options."""
    return compare(of_ids(ids), SeededSource(Seeded(size, dim, 1, seed)), ComparisonOptions(**more))


class FileOf(StubSource):
    """A source of a token matrix that is not seeded."""

    origin = Origin(path="model.npy", tensors={"token": "token"}, dtypes={"token": "float32"})
    notes = Notes()


def given_weight(ids: list[int], weight: np.ndarray, **options: Any) -> Comparison:
    return compare(of_ids(ids), FileOf({"token": Stub(weight)}), ComparisonOptions(**options))


def bits(values: np.ndarray | torch.Tensor) -> bytes:
    return np.ascontiguousarray(values, np.float32).tobytes()


def printed(result: Comparison, width: int = 120, screen: int | None = None, color: bool = False) -> str:
    page = Terminal(Paper(width, screen, color))
    view(result, page)
    return page.content().decode()


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each way as few times as may be: here the figures are not the point."""
    monkeypatch.setattr(layers, "_ENOUGH", 0.0)


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], int, int, int]:
    size, dim = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    ids = draw(st.lists(st.integers(0, size - 1), max_size=60))
    return ids, size, dim, draw(st.integers(0, 2**64 - 1))


@given(runs())
@settings(max_examples=40, deadline=None)
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
    assert gradient.embedding_rows == sum(any(row) for row in wanted.embedding_gradient.tolist())
    assert gradient.linear_rows == sum(any(row) for row in wanted.linear_gradient.T.tolist())
    assert gradient.verdict.identical == (bits(gradient.embedding) == bits(gradient.linear))


def test_slices_of_tokens_give_the_bits_of_the_whole_product() -> None:
    ids = np.random.default_rng(1).integers(0, 50257, 100).tolist()
    found, wanted = seeded([*ids, *ids[:9]], 50257, 7), live_comparison([*ids, *ids[:9]], 50257, 7, 123)
    assert found.cost.slices > 1
    assert bits(found.linear) == bits(wanted.linear)
    assert bits(found.embedding) == bits(wanted.embedding)


def test_a_gradient_summed_up_over_slices_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_GRADIENT_SLICE", 100)
    ids = np.random.default_rng(2).permutation(40)[:25].tolist()  # each ID once: no sum to be rounded
    gradient, wanted = seeded(ids, 40, gradient=True).gradient, live_comparison(ids, 40, 5, 123)
    assert gradient.slices == 13
    assert bits(gradient.linear) == bits(wanted.linear_gradient.T[sorted(ids)])
    repeated = seeded([3, 3, 7, 3] * 5, 40, gradient=True).gradient
    np.testing.assert_allclose(
        repeated.linear, live_comparison([3, 3, 7, 3] * 5, 40, 5, 123).linear_gradient.T[[3, 7]], 1e-5
    )


@pytest.mark.parametrize("ids", [[0], [2, 3, 1], [5, 5, 0, 5]])
def test_cost_is_counted_as_torch_counts_it(ids: list[int]) -> None:
    cost = seeded(ids, 6, 9).cost
    index, linear = torch.tensor(ids), torch.nn.Linear(6, 9, bias=False)
    matrix = one_hot(index, 6)
    with FlopCounterMode(display=False) as counted:
        linear(matrix.float())
    assert cost.multiply_adds == counted.get_total_flops() // 2
    assert cost.one_hot_bytes == {"int64": matrix.nbytes, "float32": matrix.float().nbytes}
    assert cost.product_bytes == linear.weight.nbytes
    assert cost.lookup_bytes == torch.nn.Embedding(6, 9)(index).nbytes
    assert cost.ratio == cost.product.seconds / cost.lookup.seconds > 0


def test_multiplications_by_zero_are_those_of_the_zeros_of_the_one_hot_matrix() -> None:
    cost = seeded([5, 5, 0, 2], 6, 9).cost
    zeros = (one_hot(torch.tensor([5, 5, 0, 2]), 6) == 0).sum()
    assert cost.multiplications_by_zero == zeros * 9
    assert "180 of 216 are multiplications by zero" in printed(seeded([5, 5, 0, 2], 6, 9))


def test_both_ways_are_timed_on_one_thread_that_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    product = layers._product

    def counted(*arguments: object) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return product(*arguments)

    monkeypatch.setattr(layers, "_product", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seeded([1, 2], 6)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


def test_the_time_that_a_process_waits_for_the_processor_does_not_count() -> None:
    def waiting() -> torch.Tensor:
        time.sleep(0.02)
        return torch.zeros(1)

    _, _, lookup, product = layers._timed(waiting, waiting)
    assert max(lookup.seconds, product.seconds) < 0.01


def test_a_time_is_the_median_of_the_runs_and_the_least_of_them() -> None:
    assert layers._timing([3.0, 1.0, 8.0, 2.0]) == Timing(2.5, 1.0, 4)
    timing = seeded([1, 2], 6).cost.product
    assert 0 < timing.least <= timing.seconds
    assert timing.runs >= 5


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
    assert [(cause.row, cause.column) for cause in found.verdict.causes] == [(2, 3)]
    name = "NaN" if np.isnan(odd) else str(odd)
    assert f"Row 2 of the weight has {name} in column 3" in printed(found)
    assert f"0 · {name} = NaN" in printed(found)
    assert (found.gradient.embedding_rows, found.gradient.linear_rows) == (3, 6)


def test_the_row_that_is_named_is_another_one_than_the_token_s_own() -> None:
    weight = WEIGHT.copy()
    weight[[0, 5], 1] = np.inf
    assert "Row 5 of the weight has inf in column 1" in printed(given_weight([0], weight))


def test_a_single_token_whose_own_row_has_an_infinity_comes_out_alike() -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    assert given_weight([2, 2], weight).verdict.identical


def test_the_sign_of_a_zero_is_a_difference_of_bits_that_is_explained() -> None:
    weight = WEIGHT.copy()
    weight[4, 0] = -0.0
    found = given_weight([1, 4], weight)
    assert (found.verdict.kind, found.verdict.place, found.verdict.difference) == ("zero sign", (1, 0), 0.0)
    assert "only the sign of a zero differs" in printed(found)


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
    monkeypatch.setattr(layers, "compare", lambda *_: None)
    monkeypatch.setattr(errors, "memory_of_machine", lambda: need)
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
        ComparisonOptions(show=("ids", "shares"))
    with pytest.raises(InputError, match=r"^learning_rate must be a finite number of at least 0, not -1$"):
        ComparisonOptions(learning_rate=-1)


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

TEXT = "Every effort moves you, 🦜 and שלום to the end of the internationalization"
NUMBER = r"-?[0-9]+\.[0-9]{4}"
NEEDED = ("outputs", "ids", "one-hot", "shared", "first")  # the order in which one needs them


@pytest.fixture(scope="module")
def wide() -> Comparison:
    tokens = tokenize(Sequences(texts=(TEXT,)), encodings.get("gpt2"))
    options = ComparisonOptions(STEPS, trace=True, gradient=True)
    return compare(tokens, SeededSource(Seeded(50257, 30, 1, 123)), options)


def outputs_of(text: str) -> list[str]:
    """Return the lines of the table of outputs, with its header."""
    return [line for line in text[text.index("The outputs, ") :].partition("\n\n")[0].splitlines() if "│" in line]


def in_halves(lines: list[str]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return the headers of the columns, and what stands under them on both sides, or in every other row."""
    header = next(line for line in lines if "pos" in line)
    rows = [line.split("│")[1:] for line in lines if re.search(NUMBER, line)]
    columns = [name for name in header.split("│")[1].split() if name not in ("…", "diff")]
    if header.count("│") == 2:
        left, right = (name.split() for name in header.split("│")[1:])
        assert [*left, "diff"] == right
        assert [row[1].split()[-1] for row in rows] == ["0"] * len(rows)
        return columns, *([re.findall(NUMBER, row[side]) for row in rows] for side in (0, 1))
    return columns, *([re.findall(NUMBER, row[0]) for row in rows[way::2]] for way in (0, 1))


@pytest.mark.parametrize("width", [40, 41, 44, 48, 53, 60, 67, 75, 80, 88, 96, 105, 116, 130, 200, 300])
def test_both_ways_show_the_same_columns_whole_at_any_width(wide: Comparison, width: int) -> None:
    text = printed(wide, width)
    tables = [line for line in text.splitlines() if "│" in line or "─" in line or "█" in line]
    cost = text[text.index("\nCost") : text.index("\nlinear: ")].splitlines()
    assert max(map(wcswidth, [*tables, *cost])) <= width
    lines = outputs_of(text)
    columns, left, right = in_halves(lines)
    assert left == right == [[f"{row[int(column)]:.4f}" for column in columns] for row in wide.embedding]
    assert len(columns) == 30 or f"({30 - len(columns)} of 30)." in text


def test_both_ways_stand_under_each_other_only_where_side_by_side_columns_are_left_out() -> None:
    result = seeded([2, 3, 1], 4, show=("outputs",))

    def beside(width: int) -> bool:
        return outputs_of(printed(result, width))[0].count("│") == 2

    first = next(width for width in range(90, 130) if beside(width))
    assert max(map(wcswidth, outputs_of(printed(result, first)))) == first  # it would not fit into one cell less
    for width in (70, 80, 90, first - 1, first, first + 1, 140, 300):
        assert beside(width) == (width >= first)
        assert ("  embedding  │" in "".join(outputs_of(printed(result, width)))) == (width < first)
        assert in_halves(outputs_of(printed(result, width)))[0] == [*"01234"]


def test_four_tokens_of_a_text_are_on_one_screen_with_all_columns_the_verdict_and_the_cost() -> None:
    encoding = encodings.get("gpt2")
    tokens = tokenize(Sequences(("Every effort moves you",)), encoding)
    result = compare(tokens, SeededSource(Seeded(encoding.vocabulary_size, 5, 1)))
    result = replace(result, cost=replace(result.cost, lookup=Timing(1e-5, 1e-5, 9), product=Timing(6e-4, 6e-4, 9)))
    text = printed(result, 80, 24)
    assert text.count("\n") == 23  # one line is the prompt's
    assert outputs_of(text)[0].partition("│")[2].split() == [*"01234"]  # the verdict says what diff would
    assert "1,005,120 of 1,005,140 are multiplications by zero.\n" in text
    assert "\n\nBit-identical" not in text
    assert "\n\nBit-identical" in printed(result, 80, 25)


TITLES = ("The token IDs", "The one-hot matrix", "The linear layer's own", "The shared weight", "The outputs")


def steps_of(text: str) -> list[str]:
    """Return the steps on a page, which are numbered as they stand there if there are several."""
    found = re.findall(rf"^(?:(\d)\. )?({'|'.join(TITLES)})", text, re.MULTILINE)
    count = len(found)
    assert [number for number, _ in found] == ([str(place + 1) for place in range(count)] if count > 1 else [""])
    return [STEPS[TITLES.index(title)] for _, title in found]


def test_the_page_has_as_many_steps_as_the_screen_holds_those_first_that_one_needs_first() -> None:
    result = seeded([2, 3, 1], 4)
    counts = []
    for lines in range(20, 70):
        text = printed(result, 80, lines)
        assert "Bit-identical" in text
        assert text.count("\n") < max(lines, 24)  # one line is the prompt's
        shown = steps_of(text)
        assert {*shown} == {*NEEDED[: len(shown)]}
        missing = [name for name in STEPS if name not in shown]
        assert ("--show" in text) == bool(missing)
        if missing:
            assert missing == re.search("--show (.*)", text)[1].split(",")
            more = replace(result, options=ComparisonOptions(tuple(NEEDED[: len(shown) + 1])))
            needed = printed(more, 80, lines).count("\n") + 2  # with the names of the others, and the prompt
            assert needed > lines
        counts.append(len(shown))
    assert counts == sorted(counts)
    assert {*counts} == {1, 2, 3, 4, 5}


def test_named_steps_are_shown_and_no_others() -> None:
    text = printed(seeded([2, 3, 1], 4, show=("one-hot", "shared")))
    assert steps_of(text) == ["one-hot", "shared"]
    assert "Left out" not in text


@pytest.mark.parametrize("ids", [[2, 3, 1], [*range(9)], [5, 30_000, 7, 49_999]])
def test_what_was_asked_for_ends_a_page_that_fits_the_screen(ids: list[int]) -> None:
    result = seeded(ids, max(ids) + 1, draw=True)
    drawn = printed(result, 80, 24)
    assert drawn.count("\n") <= 23  # one line is the prompt's
    last = [line for line in drawn.splitlines() if line.lstrip().startswith("=")][-1]
    assert "Not shown (no room): the cost and --show ids,one-hot,first,shared,outputs\n" in drawn
    assert last.split()[:4] == ["=", "pos", str(len(ids) - 1), "│"]
    assert last.split()[4:] == [f"{value:.4f}" for value in result.linear[-1]]
    assert "multiply-adds" in printed(result, 80, 99)


def test_one_name_stands_for_each_way_on_every_page() -> None:
    weight = WEIGHT.copy()
    weight[2, 3] = np.inf
    for result in (given_weight([1, 2, 4], weight), seeded([2, 3, 1], 4, draw=True, gradient=True)):
        for width in (60, 80, 140):
            text = re.sub(r"(?i)one-hot (matrix|rows?|int64|float32)", "", printed(result, width))
            assert not re.search("(?i)lookup|the product (gives|multiplies|reads)|one-hot", text)


def test_numbers_of_the_cost_are_two_cells_apart() -> None:
    for width in (50, 80, 120):
        text = printed(seeded([2, 3, 1], 4), width)
        assert re.search(r"(?m)^one-hot (matrix|int64) +0 {2,}96 bytes", text)


def test_a_page_without_a_screen_shows_all_steps(tmp_path: Path) -> None:
    result = seeded([*range(60)], 60, draw=True, gradient=True)
    assert steps_of(printed(result)) == [*STEPS]
    for form in ("table", "markdown", "svg", "html"):
        assert "Not shown" not in result.page(form).decode()


def test_no_time_is_zero_however_coarse_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_clock", lambda: time.perf_counter() // 2e-3 * 2e-3)
    cost = seeded([2, 3, 1], 4).cost
    for each in (cost.lookup, cost.product):
        assert 0 < each.least <= each.seconds < 2e-3


def test_the_one_hot_matrix_is_torch_s_while_it_fits() -> None:
    text = printed(seeded([2, 3, 1], 4, show=("one-hot",)))
    rows = [[int(each) for each in line.split("│")[1].split()] for line in text.splitlines() if "│" in line]
    assert rows == [[0, 1, 2, 3], *one_hot(torch.tensor([2, 3, 1]), 4).tolist()]


def test_a_large_one_hot_matrix_is_told_in_words() -> None:
    result = seeded([2, 50000], 50257, show=("one-hot",))
    assert "│  1 at column 50000, 0 in the other 50,256" in printed(result)
    assert "│  column 50000\n" in printed(result, 40)


def test_a_trace_writes_the_product_out() -> None:
    result = seeded([2, 3], 4, show=("outputs",), trace=True)
    text = printed(result)
    assert "token 0, ID 2: 0·row0 + 0·row1 + 1·row2 + 0·row3 = row2\n" in text
    part = text[text.index("token 1, ID 3: 0·row0 + 0·row1 + 0·row2 + 1·row3 = row3\n") :]
    (table,) = grids(part.partition("\n\n")[0], 120)
    table.check(np.concatenate([result.weight, result.linear[1:]]))
    assert [label[0] for label in table.labels] == ["0 ·", "+ 0 ·", "+ 0 ·", "+ 1 ·", "="]


def test_the_term_of_a_trace_that_counts_stands_out_and_those_that_do_not_are_dim() -> None:
    text = printed(seeded([2, 3], 4, show=("ids",), trace=True), color=True)
    for place, own in ((0, 2), (1, 3)):
        part = text[text.index(f"token {place}, ID {own}") :].partition("\n\n")[0]
        lines = part.splitlines()[3:]
        assert len(lines) == 5
        for row, line in enumerate(lines):
            numbers = words(line, NUMBER)
            assert len(numbers) == 5
            factor = words(line, r"(\+ )?[01] ·|=")
            for word in [*numbers, *factor]:
                assert (word.bold, word.dim) == (row == own, row not in (own, 4))
                assert bool(word.color) == (word in numbers and not word.dim)  # by its sign


def test_a_trace_leaves_out_terms_of_a_large_product_and_says_so() -> None:
    text = printed(seeded([2, 99], 100, trace=True))
    assert "token 0, ID 2: 0·row0 + … + 1·row2 + … + 0·row99 = row2\n" in text
    assert "token 1, ID 99: 0·row0 + … + 1·row99 = row99\n" in text
    assert "Left out: 97 terms, all of them 0 times a row." in text
    assert "Left out: 98 terms, all of them 0 times a row." in text


def test_gradients_that_differ_by_rounding_say_so() -> None:
    result = seeded([1, 1, 1], 4, gradient=True)
    linear = np.nextafter(result.gradient.linear, np.float32(np.inf))
    rounded = replace(result, gradient=replace(result.gradient, linear=linear))
    assert rounded.gradient.verdict.kind == "value"
    assert "in another order: they differ by rounding." in printed(rounded)
    assert "rounding" not in printed(result)


def test_no_tokens_make_an_empty_comparison() -> None:
    result = seeded([], 1, gradient=True, trace=True)
    assert result.verdict.identical
    assert "Nothing to compare: there are no tokens." in printed(result)
    assert json.loads(written(result, "json"))["matrices"] == {"embedding": [], "linear": []}


def test_a_file_in_the_tests_folder_is_the_plain_script() -> None:
    script = (Path(__file__).parent / "benchmarks" / "compare_plain.py").read_text()
    names: dict[str, torch.nn.Module] = {}
    exec(script, names)
    assert bits(names["embedding"].weight.detach()) == bits(seeded([2, 3, 1], 4).weight)

"""Both layers are torch's own: what they give equals what a plain torch script gives, bit for bit.

That holds for outputs, gradients and a step of training. Usual pages stand in pages.md; here are
those of a difference, and what a page does where room is short.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn.functional import one_hot
from torch.optim.sgd import sgd

import embcli
from embcli import errors
from embcli.errors import LayerError
from embcli.layer import Origin
from embcli.model import Model
from embcli.page import export
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.compare import Comparison, layers
from tests.cases import cases
from tests.oracles import Stub, StubSource, assert_same_bits, live, normal, of_ids
from tests.readers import from_json, written
from tests.transcripts import assert_height

LARGEST = float(np.finfo(np.float32).max)
THREE_IDS = [2, 3, 1]


def seeded(ids: list[int], size: int, dim: int = 5, seed: int = 123, **more: Any) -> Comparison:
    """Compare both layers with a drawn weight."""
    model = Model(SeededSource(Seeded(size, dim, 1, seed)))
    return model.compare(of_ids(ids), **more)


def given_weight(ids: list[int], weight: np.ndarray, **more: Any) -> Comparison:
    """Compare both layers with a weight that looks as if it came from a file."""
    origin = Origin(path="model.npy", tensors={"token": "token"}, dtypes={"token": "float32"})
    source = StubSource({"token": Stub(weight)}, origin=origin)
    return Model(source).compare(of_ids(ids), **more)


class PlainLayer(NamedTuple):
    """What one layer gives; `gradient` and `after` have a row for each ID, (V, D)."""

    output: np.ndarray
    loss: float
    gradient: np.ndarray
    after: np.ndarray  # one step
    loss_after: float

    @property
    def rows_with_gradient(self) -> int:
        """How many rows have a gradient other than 0."""
        return int(self.gradient.any(axis=1).sum())


class Plain(NamedTuple):
    """What torch gives where nothing but torch is used."""

    first: np.ndarray  # (D, V)
    weight: np.ndarray  # (V, D)
    target: np.ndarray  # (T, D)
    embedding: PlainLayer
    linear: PlainLayer


def plain(
    ids: list[int],
    size: int,
    dim: int = 5,
    seed: int = 123,
    weight: np.ndarray | None = None,
    rate: float = 0,
) -> Plain:
    """Run both layers of torch on the IDs, with one weight."""
    torch.manual_seed(seed)
    embedding = torch.nn.Embedding(size, dim)
    if weight is not None:
        embedding.weight = torch.nn.Parameter(torch.tensor(weight))
        torch.manual_seed(seed)
    target = torch.randn(len(ids), dim)
    torch.manual_seed(seed)
    linear = torch.nn.Linear(size, dim, bias=False)
    first = linear.weight.detach().numpy()
    shared = embedding.weight.detach().clone()
    linear.weight = torch.nn.Parameter(shared.T.clone())

    index = torch.tensor(ids, dtype=torch.int64)
    found = plain_layer(embedding, index, target, rate)
    turned = plain_layer(linear, one_hot(index, size).float(), target, rate)
    by_rows = turned._replace(gradient=turned.gradient.T, after=turned.after.T)
    return Plain(first, shared.numpy(), target.numpy(), found, by_rows)


PLAIN_SGD = {"weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": False, "maximize": False}


def plain_layer(layer: Any, inputs: torch.Tensor, target: torch.Tensor, rate: float) -> PlainLayer:
    """Run a layer forwards and backwards, and take a step."""
    output = layer(inputs)
    loss = torch.nn.functional.mse_loss(output, target)
    loss.backward()
    gradient = layer.weight.grad.clone()
    # A torch.optim.SGD does this; to make one imports torch's compiler, which takes a second.
    with torch.no_grad():
        sgd([layer.weight], [layer.weight.grad], [None], lr=rate, **PLAIN_SGD)
    loss_after = torch.nn.functional.mse_loss(layer(inputs), target)
    return PlainLayer(
        output.detach().numpy(),
        loss.item(),
        gradient.numpy(),
        layer.weight.detach().numpy(),
        loss_after.item(),
    )


# --- numbers --------------------------------------------------------------------------------------

rates = st.floats(0, 10, width=32) | st.just(LARGEST)
seeds = st.integers(0, 2**64 - 1)


@given(st.data(), st.integers(1, 300), st.integers(1, 40), seeds, st.booleans(), rates)
def test_outputs_gradients_and_a_step_are_those_of_a_plain_script(
    data, size, dim, seed, is_seeded, rate
):
    ids = data.draw(st.lists(st.integers(0, size - 1), max_size=60))
    if is_seeded:
        expected = plain(ids, size, dim, seed, rate=rate)
        found = seeded(ids, size, dim, seed, learning_rate=rate)
    else:
        weight = normal(size, dim)
        expected = plain(ids, size, dim, seed, weight, rate)
        found = given_weight(ids, weight, seed=seed, learning_rate=rate)

    assert_same_bits(found.first, expected.first)
    assert_same_bits(found.weight, expected.weight)
    assert_same_bits(found.embedding, expected.embedding.output)
    assert_same_bits(found.linear, expected.linear.output)
    is_identical = found.embedding.tobytes() == found.linear.tobytes()
    assert found.verdict.identical == is_identical
    assert_gradients(found, expected, ids)
    assert_training(found, expected, ids)


def assert_gradients(found: Comparison, expected: Plain, ids: list[int]) -> None:
    """Compare the gradients of the rows whose IDs occur."""
    touched = sorted(set(ids))
    gradient = found.gradient
    assert_same_bits(gradient.target, expected.target)
    np.testing.assert_equal(gradient.loss, expected.embedding.loss)  # NaN without tokens
    assert gradient.ids.tolist() == touched
    assert gradient.times.tolist() == [ids.count(token_id) for token_id in touched]
    assert_same_bits(gradient.embedding, expected.embedding.gradient[touched])
    assert_same_bits(gradient.linear, expected.linear.gradient[touched])
    assert gradient.rows["embedding"] == expected.embedding.rows_with_gradient
    assert gradient.rows["linear"] == expected.linear.rows_with_gradient
    is_identical = gradient.embedding.tobytes() == gradient.linear.tobytes()
    assert gradient.verdict.identical == is_identical


def assert_training(found: Comparison, expected: Plain, ids: list[int]) -> None:
    """Compare the weights after a step, in the rows whose IDs occur."""
    touched = sorted(set(ids))
    training = found.gradient.training
    embedding_after = expected.embedding.after
    linear_after = expected.linear.after
    assert_same_bits(training.before, expected.weight[touched])
    assert_same_bits(training.embedding, embedding_after[touched])
    np.testing.assert_allclose(training.linear, linear_after[touched], rtol=1e-5, atol=1e-5)
    np.testing.assert_equal(training.loss, expected.embedding.loss_after)
    assert training.rows["embedding"] == rows_moved(embedding_after, expected.weight)
    assert training.rows["linear"] == rows_moved(linear_after, expected.weight)


def rows_moved(after: np.ndarray, before: np.ndarray) -> int:
    """Return how many rows a step has changed."""
    is_moved = (after != before).any(axis=1)
    return int(is_moved.sum())


def test_slices_of_tokens_give_the_bits_of_the_whole(monkeypatch):
    made: list[int] = []

    def counted(ids: torch.Tensor, size: int) -> torch.Tensor:
        made.append(len(ids) * size)
        return one_hot(ids, size)

    monkeypatch.setattr(layers, "one_hot", counted)
    monkeypatch.setattr(layers, "GRADIENT_SLICE", 10 * 50257)
    # Each ID occurs once, so that no sum is rounded.
    shuffled = np.random.default_rng(1).permutation(50257)
    ids = shuffled[:45].tolist()
    expected = plain(ids, 50257, 7)

    found = seeded(ids, 50257, 7, gradient=True)

    touched = sorted(ids)
    gradient = found.gradient
    assert gradient.slices == 5
    assert max(made) <= 2**20  # numbers of 12 bytes: the whole matrix is never there
    assert_same_bits(found.embedding, expected.embedding.output)
    assert_same_bits(found.linear, expected.linear.output)
    assert_same_bits(gradient.embedding, expected.embedding.gradient[touched])
    assert_same_bits(gradient.linear, expected.linear.gradient[touched])


# --- cost -----------------------------------------------------------------------------------------


@cases
def test_cost_is_that_of_torchs_own_tensors(ids):
    index = torch.tensor(ids, dtype=torch.int64)
    matrix = one_hot(index, 6)
    linear = torch.nn.Linear(6, 9, bias=False)
    output = torch.nn.Embedding(6, 9)(index)

    cost = seeded(ids, 6, 9).cost

    zeros = int((matrix == 0).sum())
    assert cost["multiply_adds"] == {"embedding": 0, "linear": matrix.numel() * 9}
    assert cost["one_hot_bytes"] == {"int64": matrix.nbytes, "float32": matrix.float().nbytes}
    assert cost["weight_bytes_read"] == {"embedding": output.nbytes, "linear": linear.weight.nbytes}
    assert cost["multiplications_by_zero"] == zeros * 9


# --- outputs that differ --------------------------------------------------------------------------


def words_of(result: Comparison) -> str:
    """Return the words of a page without its line ends."""
    return " ".join(str(result).split())


@pytest.fixture
def infinite() -> Comparison:
    """Return a comparison of which one output is NaN, as its weight has an infinity."""
    eighths = np.arange(-12, 12, dtype=np.float32)
    weight = eighths.reshape(6, 4) / 8
    weight[0, 2] = np.inf
    return given_weight([1, 0], weight, show=("one-hot", "linear"))


def test_a_page_of_a_difference_says_where_it_comes_from(infinite, snapshot):
    snapshot("compare/infinite-weight.txt", export.text(infinite, 48))


@cases
def test_a_cost_has_a_table(snapshot, name, width):
    result = seeded([3, 1], 5000, 12, show=("cost",))

    snapshot(f"compare/{name}", export.text(result, width))


@cases
def test_a_weight_that_makes_a_difference_is_named(ids, odd, kind, place, words):
    weight = normal(6, 4)
    for row, column, value in odd:
        weight[row, column] = value
    expected = plain(ids, 6, 4, weight=weight)

    found = given_weight(ids, weight, gradient=True)

    np.testing.assert_array_equal(found.linear, expected.linear.output)
    assert found.verdict.kind == kind
    assert [*(found.verdict.place or [])[:2]] == place
    assert found.gradient.rows["linear"] == expected.linear.rows_with_gradient
    page = words_of(found)
    assert words in page
    assert ("so do their gradients" in page) == (kind == "nan")


@cases
def test_the_page_says_when_a_step_is_too_long(learning_rate, rose):
    found = embcli.seeded(vocab=6, dim=3).compare([3], learning_rate=learning_rate)

    training = found.gradient.training
    assert (training.loss > found.gradient.loss) == rose
    assert ("The loss rose" in words_of(found)) == rose


def test_gradients_that_differ_by_rounding_say_so():
    result = seeded([1, 1, 1], 4, gradient=True)
    next_numbers = np.nextafter(result.gradient.linear, np.float32(np.inf))
    gradient = replace(result.gradient, linear=next_numbers)

    assert "differ by rounding" in str(replace(result, gradient=gradient))
    assert "rounding" not in str(result)


def test_a_difference_gives_status_1_and_null_in_json(in_process, tmp_path):
    weight = normal(6, 4)
    value = float(str(weight[1, 3]))
    weight[2, 3] = np.inf
    file = tmp_path / "odd.npy"
    np.save(file, weight)

    ran = in_process("compare", "--from", str(file), "--ids", "1,2", "--gradient", "-f", "json")

    assert ran.status == 1
    document = from_json(ran.out)
    verdict = document["verdict"]
    assert verdict["largest_difference"] is None
    assert verdict["place"] == {"row": 0, "column": 3, "embedding": value, "linear": None}
    assert [token["difference"] for token in document["tokens"]] == [None, 0.0]
    assert document["gradient"]["linear"][1][3] is None


def test_a_difference_is_nan_in_csv(infinite, snapshot):
    records = replace(infinite, show=None)._records()

    snapshot("compare/infinite-weight.csv", written(records, "csv").decode())


# --- as data --------------------------------------------------------------------------------------


def assert_same_decimals(found: Any, expected: np.ndarray) -> None:
    """Compare decimals, as numbers or words, with float32 values."""
    assert_same_bits(np.array(found, np.float32), expected)


def test_large_weights_are_in_json_if_they_are_named():
    result = seeded(THREE_IDS, 300, 17, show=("first", "linear"))

    document = from_json(written(result._records(), "json"))

    assert document["weights"]["shared"] is None  # 5,100 numbers
    assert [*document["matrices"]] == ["linear"]
    assert_same_decimals(document["weights"]["first"], plain([], 300, 17).first)


def test_the_json_document_holds_what_torch_gives(in_process):
    words = ("compare", "--learning-rate", "0.5", "--vocab", "4", "--ids", "2,3,1")
    expected = plain(THREE_IDS, 4, rate=0.5)

    document = from_json(in_process.ok(*words, "-f", "json").out)

    gradient = document["gradient"]
    training = gradient["training"]
    assert_same_decimals(document["weights"]["first"], expected.first)
    assert_same_decimals(document["weights"]["shared"], expected.weight)
    for name in ("embedding", "linear"):
        layer = getattr(expected, name)
        assert_same_decimals(document["matrices"][name], layer.output)
        assert_same_decimals(gradient[name], layer.gradient[1:])
        assert_same_decimals(training[name], layer.after[1:])
    assert_same_decimals(gradient["target"], expected.target)
    assert gradient["loss_before"] == expected.embedding.loss
    assert training["loss_after"] == expected.embedding.loss_after
    assert training["rows_not_moved"] == {"embedding": 1, "linear": 1}


# --- on a page ------------------------------------------------------------------------------------

FAR_IDS = [5, 30_000, 7, 49_999]
NINE_IDS = [*range(9)]
SIXTY_IDS = [*range(60)]


@pytest.mark.parametrize("ids", [THREE_IDS, [3], NINE_IDS, FAR_IDS, SIXTY_IDS])
@cases
def test_a_page_leaves_a_line_of_a_screen_for_suggestions(ids, more, most_lines):
    screen = export.text(seeded(ids, max(ids) + 1, **more), 80, 24)

    assert_height(screen, most_lines)


@pytest.mark.parametrize(
    ("name", "ids", "dim"),
    [
        ("one-token.txt", [3], 40),
        ("nine-tokens.txt", NINE_IDS, 5),
        ("sixty-tokens.txt", SIXTY_IDS, 40),
    ],
)
def test_a_screen_has_the_outputs_the_verdict_the_reason_and_one_line_of_cost(
    snapshot, name, ids, dim
):
    result = seeded(ids, max(ids) + 1, dim)

    snapshot(f"compare/{name}", export.text(result, 80, 24))


@cases
def test_steps_are_there_by_their_names(snapshot, name, show):
    result = seeded(THREE_IDS, 4, show=show)

    snapshot(f"compare/{name}", export.text(result, 80))


def drawn_matrices(comparison: Comparison) -> list[np.ndarray]:
    """Read one-hot, weight and output of a drawing, each with the numbers of its columns on top."""
    page = comparison.styled(bare=True).page("markdown").decode().replace("**1**", "1")
    matrices = []
    for table in page.split("\n\n")[2::2]:
        header, _, *rows = [line.strip("| ").split("|") for line in table.splitlines()]
        labels = [cell.strip() for cell in header].index("ID") + 1
        matrices.append(np.array([header[labels:], *(row[labels:] for row in rows)], np.float64))
    return matrices


@cases
def test_a_drawing_is_a_product_of_matrices(ids, size):
    one_hot, weight, output = drawn_matrices(seeded(ids, size, draw=True))

    assert one_hot[0].tolist() == (sorted(set(ids)) if size > 4 else [0, 1, 2, 3])
    assert (one_hot[1:] == (np.array(ids)[:, None] == one_hot[0])).all()
    assert (one_hot[1:] @ weight[1:] == output[1:]).all()
    rows = live(Seeded(size, 5))["token"][one_hot[0].astype(int)]
    assert np.abs(weight[1:] - rows).max() <= 0.00005


@cases
def test_an_output_is_below_the_weight_and_beside_one_hot_where_they_fit(width, titles):
    """The output has no sign, but its column is as wide as that of the weight, which has."""
    lines = export.text(seeded([1], 4, 1, draw=True), width).splitlines()
    assert max(map(len, lines)) <= width
    assert len([line for line in lines if re.search(r"\((T|V), \w\) = ", line)]) == titles
    columns = {(line.index("│"), len(line)) for line in lines if "│" in line}
    assert len(columns) == 1


def test_a_drawing_of_a_large_weight_has_what_ids_pick(snapshot):
    result = embcli.seeded(dim=3).compare("Every effort moves you", draw=True)

    snapshot("compare/drawing.txt", export.text(result, 84, 24))


def test_a_page_has_the_loss_of_both_ends_of_a_step():
    expected = plain([3, 1, 3], 6, 2, rate=0.5).embedding

    page = str(seeded([3, 1, 3], 6, 2, learning_rate=0.5))

    before = str(np.float32(expected.loss))
    after = str(np.float32(expected.loss_after))
    assert expected.loss_after < expected.loss
    assert f"(output - target)²): {before} before the step, {after} after it" in page


def test_training_says_how_many_rows_moved(snapshot):
    result = seeded([3], 6, 3, learning_rate=0.1)

    snapshot("compare/training.txt", export.text(result, 80, 24))


def test_long_tables_name_what_they_leave_out(snapshot):
    outputs = seeded(SIXTY_IDS, 60, 2, show=("ids", "outputs"))

    snapshot("compare/long-outputs.txt", export.text(outputs, 80))


def test_no_tokens_make_an_empty_comparison(snapshot):
    result = seeded([], 1, gradient=True, draw=True)

    snapshot("compare/no-tokens.txt", export.text(result, 80))


def test_a_picture_has_the_line_of_cost(snapshot):
    page = seeded(THREE_IDS, 4).page("html").decode()
    _, body = page.split("<body>")

    snapshot("compare/picture.txt", re.sub("<[^>]*>", "", body))


def test_both_ways_are_strips_of_colours(snapshot):
    result = seeded(THREE_IDS, 4, 12, show=("outputs",)).styled(heat=True)

    snapshot("compare/strips.txt", export.text(result, 80))


@cases
def test_outputs_targets_and_gradients_fit_a_screen(width, outputs, gradients, times):
    """They are side by side, or below each other, where equal gradients are there once."""
    page = export.text(seeded(THREE_IDS, 4, gradient=True), width, 25)

    assert re.search(outputs, page)
    assert re.search(gradients, page)
    assert page.count("0.2707") == times
    assert page.count("\n") < 25


# --- what is refused ------------------------------------------------------------------------------


@cases
def test_layers_that_do_not_fit_beside_a_one_hot_row_are_refused(monkeypatch, more, copies):
    """Two weights, their gradients and what a step leaves take room, and so does a one-hot row."""
    size = 10**6
    weight = size * 3 * 4
    row = size * (8 + 4)
    needed = copies * weight + row
    monkeypatch.setattr(layers, "compare", lambda *_: 1 / 0)

    monkeypatch.setattr(errors, "memory_of_machine", lambda: needed)
    with pytest.raises(ZeroDivisionError):  # nothing refuses it before
        seeded([1], size, 3, **more)

    monkeypatch.setattr(errors, "memory_of_machine", lambda: needed - 1)
    with pytest.raises(LayerError, match=f"takes {needed / 1e6:.1f} MB"):
        seeded([1], size, 3, **more)

"""One step of training in `compare`: the rows before and after are those of torch's own optimizer on both layers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli.errors import InputError
from embcli.verbs.compare import ComparisonOptions, compare
from embcli.verbs.compare.result import Training
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.inside import Inside
from tests.oracles import of_ids

run = Inside()


def trained(layer: torch.nn.Module, given: torch.Tensor, rate: float) -> torch.Tensor:
    """Return the weight of a layer after a step of training, as a script takes one."""
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    optimizer.zero_grad()
    (layer(given).square().sum() / 2).backward()
    optimizer.step()
    return layer.weight.detach()


def training(ids: list[int], size: int, dim: int, rate: float) -> tuple[list[int], Training]:
    options = ComparisonOptions(learning_rate=rate)
    found = compare(of_ids(ids), SeededSource(Seeded(size, dim, 1)), options).gradient
    assert found is not None
    assert found.training is not None
    return found.ids.tolist(), found.training


@settings(deadline=None, max_examples=25)
@given(st.data(), st.integers(1, 30), st.integers(1, 12), st.floats(0, 10, width=32))
def test_a_step_is_that_of_torchs_optimizer(data: st.DataObject, size: int, dim: int, rate: float) -> None:
    ids = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20))
    touched, found = training(ids, size, dim, rate)
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
    assert found.embedding_rows == int((left != before).any(dim=1).sum()) <= len(touched)
    assert found.linear_rows == int((right != before).any(dim=1).sum())
    assert found.vocabulary_size == size


def test_both_layers_are_equal_after_a_step_where_each_token_occurs_once() -> None:
    touched, found = training([2, 3, 1], 6, 5, 0.1)
    assert touched == [1, 2, 3]
    assert found.verdict.identical
    assert (found.embedding_rows, found.linear_rows) == (3, 3)
    np.testing.assert_allclose(found.embedding, found.before * 0.9, rtol=1e-6)


def test_the_layers_that_were_compared_stay_as_they_were() -> None:
    plain = json.loads(run.ok("compare", "--show", "shared", "-f", "json").out)
    stepped = json.loads(run.ok("compare", "--show", "shared", "--learning-rate", "0.5", "-f", "json").out)
    assert stepped["weights"] == plain["weights"]
    assert stepped["matrices"] == plain["matrices"]
    assert plain["gradient"] is None


def test_a_document_tells_the_step_only_where_it_is_wanted() -> None:
    found = json.loads(run.ok("compare", "--gradient", "--learning-rate", "0.1", "-f", "json").out)["gradient"]
    step = found["training"]
    assert (step["optimizer"], step["learning_rate"]) == ("torch.optim.SGD", 0.1)
    assert step["rows_moved"] == {"embedding": 3, "linear": 3}
    assert step["rows_not_moved"] == {"embedding": 1, "linear": 1}
    expected = np.float32(step["before"]) - np.float32(0.1) * np.float32(found["embedding"])
    np.testing.assert_allclose(step["embedding"], expected, rtol=1e-6)
    assert json.loads(run.ok("compare", "--gradient", "-f", "json").out)["gradient"]["training"] is None


def test_a_page_shows_each_row_before_and_after_the_step() -> None:
    text = run.ok("compare", "--learning-rate", "0.1", COLUMNS="120").text
    at = text.splitlines().index(next(line for line in text.splitlines() if line.split()[:2] == ["1", "row"]))
    row, gradient, after = (line.split("│")[1].split() for line in text.splitlines()[at : at + 3])
    assert row == gradient
    assert [float(value) for value in after] == pytest.approx([0.9 * float(value) for value in row], abs=2e-4)
    assert "Moved: 3 of 4 rows in the embedding, 3 of 4 rows in the linear layer." in text
    assert "1 row of 4 is of tokens that did not occur." in text
    assert "Left out: 6 more IDs." in run.ok("compare", "--ids", "0,1,2,3,4,5,6,7,8,9", "--learning-rate", "1").text


@pytest.mark.parametrize("rate", ["nan", "inf", "-0.1"])
def test_a_learning_rate_that_is_none_is_refused(rate: str) -> None:
    with pytest.raises(InputError, match=r"^learning_rate must be"):
        ComparisonOptions(learning_rate=float(rate))
    assert "--learning-rate" in run.refused("compare", "--learning-rate", rate)
    assert "--learning-rate cannot be shown in csv" in run.refused("compare", "--learning-rate", "0.1", "-f", "csv")


def test_on_a_screen_the_step_stays_and_all_else_gives_way() -> None:
    wanted = ("compare", "--ids", "3", "--vocab", "6", "--dim", "3", "--learning-rate", "0.1")
    low, high = (Inside(terminal=True).ok(*wanted, COLUMNS="80", LINES=lines).text for lines in ("24", "90"))
    assert low.count("\n") < 24
    assert "Moved: 1 of 6 rows" in low
    assert "Not shown (no room): the cost and --show ids," in low
    assert "multiply-adds" not in low
    assert "multiply-adds" in high
    assert "Not shown" not in high

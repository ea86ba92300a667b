"""The verdict: it tells all bits, names the gravest difference, and where the largest is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from embcli.verbs.compare.pair import Pair, differences, judge
from tests.oracles import assert_same_bits

ODD = st.sampled_from(
    np.float32([0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, np.inf, -np.inf, np.nan]).tolist()
)


@given(
    st.tuples(st.integers(0, 3), st.integers(1, 3)).flatmap(
        lambda shape: st.tuples(*[arrays.arrays(np.float32, shape, elements=ODD)] * 2)
    )
)
def test_the_verdict_is_that_of_a_look_at_each_value(pair: tuple[np.ndarray, np.ndarray]) -> None:
    left, right = pair
    verdict = judge(left, right)
    unequal = [
        (place, a, b)
        for place, a, b in zip(np.ndindex(left.shape), left.ravel(), right.ravel(), strict=True)
        if a.tobytes() != b.tobytes()
    ]
    assert (verdict.values, verdict.different) == (left.size, len(unequal))
    assert verdict.identical == (left.tobytes() == right.tobytes()) == (not unequal)
    if not unequal:
        return
    alone = [place for place, a, b in unequal if np.isnan(a) != np.isnan(b)]
    sizes = {
        place: abs(float(a) - float(b))
        for place, a, b in unequal
        if not (np.isnan(a) or np.isnan(b)) and a != b
    }
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
    found = (left - right).abs()
    assert_same_bits(differences(left.numpy(), right.numpy()), found.numpy())
    assert_same_bits(Pair(left.numpy(), right.numpy()).largest, found.max(dim=1).values.numpy())


def test_equal_infinities_differ_by_nothing() -> None:
    odd = np.array([[np.inf, -np.inf, np.nan, 3e38]], np.float32)
    assert_same_bits(differences(odd, odd), np.zeros((1, 4), np.float32))
    assert_same_bits(differences(odd, -odd)[:, :2], np.full((1, 2), np.inf, np.float32))


def test_nan_with_other_bits_is_told_apart() -> None:
    left = np.array([[0x7FC00000, 0x3F800000]], np.uint32).view(np.float32)
    right = np.array([[0x7FC00001, 0x3F800000]], np.uint32).view(np.float32)
    verdict = judge(left, right)
    assert (verdict.kind, verdict.different, verdict.place) == ("nan bits", 1, (0, 0))


@pytest.mark.parametrize("count", [1, 5, 9])
def test_the_causes_of_a_nan_are_the_first_weights_that_are_not_finite(count: int) -> None:
    weight = np.zeros((20, 2), np.float32)
    weight[3 : 3 + count, 1] = np.inf
    left, right = np.zeros((1, 2), np.float32), np.array([[0, np.nan]], np.float32)
    causes = judge(left, right, weight).causes
    assert causes == tuple((3 + place, np.inf) for place in range(min(count, 5)))
    assert judge(left, np.ones((1, 2), np.float32), weight).causes == ()


def test_the_document_has_the_shortest_decimals_of_float32() -> None:
    left, right = np.array([[0.1, 0.2]], np.float32), np.array([[0.1, 0.3]], np.float32)
    document = judge(left, right).document()
    assert document["place"] == {"row": 0, "column": 1, "embedding": 0.2, "linear": 0.3}
    assert document["largest_difference"] == float(str(np.float32(0.3) - np.float32(0.2)))

"""The verdict: it sees all bits, names the most serious difference, and where the largest is."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays

from embcli.verbs.compare.pair import Pair, differences, judge
from tests.oracles import assert_same_bits

Matrices = tuple[np.ndarray, np.ndarray]
Place = tuple[int, ...]
ODD_VALUES = np.float32([0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, np.inf, -np.inf, np.nan])
ODD = st.sampled_from(ODD_VALUES.tolist())
ONE_NAN = np.array([[0x7FC00000, 0x3F800000]], np.uint32).view(np.float32)
OTHER_NAN = np.array([[0x7FC00001, 0x3F800000]], np.uint32).view(np.float32)


@st.composite
def pairs(draw: st.DrawFn) -> Matrices:
    """Draw two matrices of one shape, of few and odd values, so that many are equal."""
    shape = draw(st.tuples(st.integers(0, 3), st.integers(1, 3)))
    matrices = arrays.arrays(np.float32, shape, elements=ODD)
    return draw(matrices), draw(matrices)


def unequal_places(left: np.ndarray, right: np.ndarray) -> list[Place]:
    """Return the places whose bits differ."""
    places = []
    for place in np.ndindex(left.shape):
        if left[place].tobytes() != right[place].tobytes():
            places.append(place)
    return places


def most_serious(left: np.ndarray, right: np.ndarray) -> tuple[str, list[Place]]:
    """Return the most serious difference, found value by value, and the places it may have."""
    places = unequal_places(left, right)
    nan_in_one = []
    nan_in_both = []
    sizes = {}
    for place in places:
        nan_count = sum(np.isnan([left[place], right[place]]))
        if nan_count == 1:
            nan_in_one.append(place)
        elif nan_count == 2:
            nan_in_both.append(place)
        elif left[place] != right[place]:
            sizes[place] = abs(float(left[place]) - float(right[place]))

    if nan_in_one:
        return "nan", nan_in_one[:1]
    if sizes:
        largest = max(sizes.values())
        return "value", [place for place, size in sizes.items() if size == largest]
    if nan_in_both:
        return "nan bits", nan_in_both
    return "zero sign", places


@given(pairs())
@example((ONE_NAN, OTHER_NAN))  # with other bits
def test_the_verdict_is_that_of_a_look_at_each_value(pair):
    left, right = pair
    unequal = unequal_places(left, right)

    verdict = judge(left, right)

    assert verdict.values == left.size
    assert verdict.different == len(unequal)
    assert verdict.identical == (left.tobytes() == right.tobytes())
    if unequal:
        kind, places = most_serious(left, right)
        assert verdict.kind == kind
        assert verdict.place[:2] in places
        assert np.isnan(verdict.difference) == kind.startswith("nan")


def test_the_differences_are_those_of_torch():
    left = torch.randn(9, 4)
    right = torch.randn(9, 4)
    expected = (left - right).abs()

    pair = Pair(left.numpy(), right.numpy())

    assert_same_bits(differences(pair.embedding, pair.linear), expected.numpy())
    assert_same_bits(pair.largest, expected.max(dim=1).values.numpy())


def test_equal_infinities_do_not_differ():
    odd = np.array([[np.inf, -np.inf, np.nan, 3e38]], np.float32)

    assert not differences(odd, odd).any()
    assert differences(odd, -odd)[0, 0] == np.inf


def test_the_document_has_the_shortest_decimals_of_float32():
    left = np.array([[0.1, 0.2]], np.float32)
    right = np.array([[0.1, 0.4]], np.float32)

    document = judge(left, right).document()

    assert document["place"] == {"row": 0, "column": 1, "embedding": 0.2, "linear": 0.4}
    assert document["largest_difference"] == 0.2

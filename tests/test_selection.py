"""`0:5,100,50256` means what numpy's indices mean; what is out of range is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embcli.errors import InputError
from embcli.selection import select
from tests.cases import cases


@st.composite
def parts(draw: st.DrawFn, size: int) -> tuple[str, np.ndarray]:
    """Draw a part of a choice, and what numpy makes of it."""
    every = np.arange(size)
    start = draw(st.integers(0, size - 1))
    stop = draw(st.integers(start + 1, size))
    choices = [(":", every), (f"{start}", every[[start]])]
    choices.append((f"{start}:{stop}", every[start:stop]))
    choices.append((f":{stop}", every[:stop]))
    choices.append((f"{start}:", every[start:]))
    return draw(st.sampled_from(choices))


@given(st.data(), st.integers(1, 300))
def test_parts_are_what_numpy_makes_of_them(data, size):
    drawn = data.draw(st.lists(parts(size), min_size=1, max_size=5))
    comma = data.draw(st.sampled_from([",", ", ", " , "]))

    chosen = select(comma.join(part for part, _ in drawn), size, "row")

    expected = np.concatenate([indices for _, indices in drawn])
    assert chosen.tolist() == expected.tolist()


@pytest.mark.parametrize(
    "indices", [2, [4, 0, 4], (1,), range(3), np.array([5, 1]), np.uint8(3), {4: "a token"}]
)
def test_indices_are_those_of_the_text_of_them(indices):
    expected = np.arange(6)[np.atleast_1d([*indices] if np.iterable(indices) else indices)]
    assert select(indices, 6, "row").tolist() == expected.tolist()


@pytest.mark.parametrize("indices", [1.5, [1.5], [[1, 2], [3]], slice(3), np.array([True]), len])
def test_other_values_are_refused_by_the_name_of_their_parameter(indices):
    for what, parameter in {"row": "rows", "position": "rows", "column": "columns"}.items():
        with pytest.raises(InputError, match=f"^{parameter} must be a text such as '0:5,100' or"):
            select(indices, 6, what)


@cases
def test_indices_without_a_row_are_refused(indices):
    with pytest.raises(InputError, match="row"):
        select(indices, 6, "row")


MALFORMED = ["", "1,", "x", "-1", "1.5", "0:4:2", "1 2", "٣"]
OUT_OF_RANGE = ["0,6", "2:7", "6:", "9:12", "9" * 30, "0:" + "9" * 5000]
EMPTY = ["3:3", "4:2"]


def test_what_chooses_nothing_is_refused(snapshot):
    """There are six rows."""
    lines = []
    for spec in MALFORMED + OUT_OF_RANGE + EMPTY:
        with pytest.raises(InputError) as error:
            select(spec, 6, "row")
        lines.append(f"{spec[:60]!r}: {error.value}\n")

    snapshot("selection/errors.txt", "".join(lines))

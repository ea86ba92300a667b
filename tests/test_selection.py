"""Choosing rows and columns: `0:5,100,50256` means what numpy's indices mean, and what is out of range is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embcli.errors import InputError
from embcli.selection import select


@given(st.data(), st.integers(1, 300))
def test_parts_are_what_numpy_makes_of_them(data: st.DataObject, size: int) -> None:
    every, parts, expected = np.arange(size), [], []
    bounds = st.lists(st.integers(0, size - 1), min_size=2, max_size=2).map(sorted)
    for start, last in data.draw(st.lists(bounds, min_size=1, max_size=5)):
        stop = last + 1
        of = {
            f"{start}": every[[start]],
            f"{start}:{stop}": every[start:stop],
            f":{stop}": every[:stop],
        }
        part, chosen = data.draw(
            st.sampled_from([*of.items(), (f"{start}:", every[start:]), (":", every)])
        )
        parts.append(part)
        expected += chosen.tolist()
    chosen = select(data.draw(st.sampled_from([",", ", ", " , "])).join(parts), size, "row")
    assert chosen.tolist() == expected
    assert chosen.dtype == np.int64


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "'' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("1,", "'' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("x", "'x' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("-1", "'-1' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("1.5", "'1.5' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("0:4:2", "'0:4:2' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("1 2", "'1 2' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("٣", "'٣' does not choose rows; write 3, or 0:5, or 0:5,100"),
        ("0,6", "row 6 is out of range: there are 6, from 0 to 5"),
        ("2:7", "row 6 is out of range: there are 6, from 0 to 5"),
        ("6:", "row 6 is out of range: there are 6, from 0 to 5"),
        ("9:12", "row 11 is out of range: there are 6, from 0 to 5"),
        ("3:3", "rows 3:3 are empty: the stop is excluded, so it must be larger than the start"),
        ("4:2", "rows 4:2 are empty: the stop is excluded, so it must be larger than the start"),
        ("9" * 30, f"rows {'9' * 30} are out of range: there are 6, from 0 to 5"),
        ("0:" + "9" * 5000, f"rows 0:{'9' * 58} are out of range: there are 6, from 0 to 5"),
    ],
)
def test_what_chooses_nothing_is_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        select(spec, 6, "row")
    assert str(error.value) == message

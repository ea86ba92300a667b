"""Chosen rows or columns of a matrix, `0:5,100,50256`, and which of a longer list a page shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from embcli import errors
from embcli.errors import InputError, RangeError, WrongTypeError
from embcli.wording import Parameter, load_facts

if TYPE_CHECKING:
    import numpy as np

Selection: TypeAlias = str | int | Iterable[int]  # a text such as `0:5,100`, or indices


def select(spec: Selection | None, size: int, what: str) -> np.ndarray:
    """Return the chosen indices, (n,) int64: 0, 1, 2 and 5 for `0:3,5` or `[0, 1, 2, 5]`.

    They are in the order of `spec`, with repetitions. A part is an index or `start:stop`, whose
    stop is excluded, as in Python; either may be omitted. None chooses all indices. `what` is
    "row", "position" or "column". Raises InputError for a malformed part,
    and RangeError for one that is out of range.
    """
    import numpy as np

    if spec is None:
        return np.arange(size)
    if not isinstance(spec, str):
        numbers = list(spec) if isinstance(spec, Iterable) else [spec]
        if not all(isinstance(number, Integral) for number in numbers):
            parameter = Parameter("columns" if what == "column" else "rows")
            raise WrongTypeError(
                "{parameter} must be a text such as '0:5,100' or a list of indices, not {given}",
                parameter=parameter,
                given=str(spec)[:60],
            )
        spec = ",".join(map(str, numbers))

    ranges = [_range_of(part.strip(), size, what) for part in spec.split(",")]
    count = sum(len(indices) for indices in ranges)
    # The indices of the parts are in memory together with those of the whole.
    if 2 * 8 * count > errors.memory_of_machine():
        raise InputError(f"{count:,} {what}s do not fit into this machine's memory; choose fewer")
    return np.concatenate([np.arange(indices.start, indices.stop) for indices in ranges])


_PART = re.compile(r"(?P<start>[0-9]{0,18})(?P<range>:(?P<stop>[0-9]{0,18}))?", re.ASCII)


def _range_of(part: str, size: int, what: str) -> range:
    """Return the indices that one part chooses; it is never empty."""
    match = _PART.fullmatch(part)
    if match is None or not part:
        hint = hint_at_spelling(part)
        if part.isalpha():
            hint = "Only rows are named by tokens, if the encoding is known: --encoding names it."
        raise InputError(f"{part!r} does not choose {what}s; write 3, or 0:5, or 0:5,100", hint)

    start = int(match["start"] or 0)
    stop = start + 1
    if match["range"] is not None:
        stop = int(match["stop"] or size)
    if start >= size or stop > size:
        raise RangeError(
            f"{part!r} is out of range: there are {size:,} {what}s, from 0 to {size - 1}"
        )
    if start >= stop:
        raise RangeError(
            f"{what}s {part} are empty: the stop is excluded, so it must be larger than the start"
        )
    return range(start, stop)


def hint_at_spelling(text: str) -> str:
    """Return how to write a number or a range such as `3-7` or `3..7`; empty for another text.

    >>> hint_at_spelling("3..7")
    'A range has a colon and ends before its stop: 3:7.'
    """
    for spelling, hint in load_facts("spellings.json").items():
        match = re.fullmatch(spelling, text)
        if match is not None:
            return str(hint.format(*match.groups()))
    return ""


class Excerpt(NamedTuple):
    """Which places of a longer list are shown: the first and the last, or all."""

    leading: int
    trailing: int
    total: int

    @classmethod
    def first(cls, count: int, total: int) -> Excerpt:
        """Show at most `count` of `total`, the first ones."""
        return cls(min(count, total), 0, total)

    @classmethod
    def ends(cls, count: int, total: int) -> Excerpt:
        """Show at most `count` of `total`, half of them from each end."""
        if total <= count:
            return cls(total, 0, total)
        trailing = count // 2
        return cls(count - trailing, trailing, total)

    @property
    def places(self) -> np.ndarray:
        """The places that are shown, (n,) int64."""
        import numpy as np

        first = np.arange(self.leading)
        last = np.arange(self.total - self.trailing, self.total)
        return np.concatenate([first, last])

    @property
    def left_out(self) -> int:
        return self.total - self.leading - self.trailing

    @property
    def gaps(self) -> tuple[int, ...]:
        """The place, among those shown, before which others are omitted, if any are."""
        return (self.leading,) if self.left_out else ()

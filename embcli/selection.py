"""Chosen rows or columns of a matrix, `0:5,100,50256`, and which of a longer list a page shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from embcli import errors
from embcli.errors import InputError
from embcli.wording import Parameter, Sentence

if TYPE_CHECKING:
    import numpy as np

_PART = re.compile(r"(?P<start>[0-9]*)(?P<range>:(?P<stop>[0-9]*))?", re.ASCII)


def select(spec: str | None, size: int, what: str) -> np.ndarray:
    """Return the chosen indices, (n,) int64, in the given order, with repetitions: 0, 1, 2 and 5 for `0:3,5`.

    A part is an index or `start:stop` (stop excluded, as in Python; either may be omitted); None chooses all indices.
    `what` is "row" or "column". Raises InputError for a part that is malformed or out of range.
    """
    import numpy as np

    if spec is None:
        return np.arange(size)
    if not isinstance(spec, str):
        wrong = "{parameter} must be a text such as '0:5,100', not {given}"
        raise InputError(Sentence(wrong, parameter=Parameter(f"{what}s"), given=str(spec)[:60]))
    ranges = []
    for part in map(str.strip, spec.split(",")):
        match = _PART.fullmatch(part)
        if match is None or not part:
            raise InputError(f"{part[:60]!r} does not choose {what}s; write 3, or 0:5, or 0:5,100")
        there_are = f"there are {size:,}, from 0 to {size - 1}"
        if any(len(number) > 18 for number in re.findall("[0-9]+", part)):
            raise InputError(f"{what}s {part[:60]} are out of range: {there_are}")
        start = int(match["start"] or 0)
        stop = start + 1 if match["range"] is None else int(match["stop"] or size)
        if start >= size or stop > size:
            raise InputError(f"{what} {max(start, stop - 1)} is out of range: {there_are}")
        if start >= stop:
            raise InputError(
                f"{what}s {part} are empty: the stop is excluded, so it must be larger than the start"
            )
        ranges.append(range(start, stop))
    chosen = sum(map(len, ranges))
    if 2 * 8 * chosen > errors.memory_of_machine():  # the indices of each part, and of all
        raise InputError(f"{chosen:,} {what}s do not fit into this machine's memory; choose fewer")
    return np.concatenate([np.arange(each.start, each.stop) for each in ranges])


class Excerpt(NamedTuple):
    """Which places of a longer list are shown: the first and the last, or all."""

    head: int
    tail: int
    total: int

    @property
    def places(self) -> np.ndarray:
        """The places that are shown, (n,) int64."""
        import numpy as np

        return np.concatenate([np.arange(self.head), np.arange(self.total - self.tail, self.total)])

    @property
    def left_out(self) -> int:
        return self.total - self.head - self.tail

    @property
    def gaps(self) -> tuple[int, ...]:
        """The place, among those shown, before which others are omitted, if any are."""
        return (self.head,) if self.left_out else ()

    @classmethod
    def first(cls, count: int, total: int) -> Excerpt:
        return cls(min(count, total), 0, total)

    @classmethod
    def ends(cls, count: int, total: int) -> Excerpt:
        """Show at most `count` of `total`, half of them from each end."""
        return (
            cls(total, 0, total) if total <= count else cls(count - count // 2, count // 2, total)
        )

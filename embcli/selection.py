"""Which rows or columns of a matrix the user chose: `0:5,100,50256`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from embcli import memory
from embcli.errors import InputError

if TYPE_CHECKING:
    import numpy as np

_PART = re.compile(r"(?P<start>[0-9]*)(?P<range>:(?P<stop>[0-9]*))?", re.ASCII)


def select(spec: str | None, size: int, what: str) -> np.ndarray:
    """Return the chosen indices, (n,) int64, in the order and as often as they are named.

    A part is an index or `start:stop` (without stop, as in Python; either may be left out), and None is all of them.
    `what` names one of the things chosen ("row", "column"). Raises InputError for a malformed part and for one out of
    range.

    >>> select("0:3,5", 6, "row").tolist()
    [0, 1, 2, 5]
    """
    import numpy as np

    if spec is None:
        return np.arange(size)
    ranges = [_part(part.strip(), size, what) for part in spec.split(",")]
    chosen = sum(map(len, ranges))
    if 2 * 8 * chosen > memory.free():  # the numbers of each part, and of all
        raise InputError(f"{chosen:,} {what}s are more than fit into this machine's memory; choose fewer")
    return np.concatenate([np.arange(each.start, each.stop) for each in ranges])


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different IDs in order, and for each ID its place among them; `numpy.unique` loads numpy.ma first.

    >>> import numpy as np
    >>> found, places = distinct(np.array([5, 2, 5]))
    >>> found.tolist(), places.tolist()
    ([2, 5], [1, 0, 1])
    """
    import numpy as np

    ordered = np.sort(ids)
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    found = ordered[first]
    return found, np.searchsorted(found, ids)


def _part(part: str, size: int, what: str) -> range:
    match = _PART.fullmatch(part)
    if match is None or not part:
        raise InputError(f"{part[:60]!r} does not choose {what}s; write 3, or 0:5, or 0:5,100")
    if any(len(number) > 18 for number in re.findall("[0-9]+", part)):
        raise InputError(f"{what}s {part[:60]} are out of range: there are {size:,}, from 0 to {size - 1}")
    start = int(match["start"] or 0)
    stop = start + 1 if match["range"] is None else int(match["stop"] or size)
    if start >= size or stop > size:
        raise InputError(f"{what} {max(start, stop - 1)} is out of range: there are {size:,}, from 0 to {size - 1}")
    if start >= stop:
        raise InputError(f"{what}s {part} are none: the stop is not included, so it must be larger than the start")
    return range(start, stop)

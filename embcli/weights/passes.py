"""Passes over whole matrices: parts that run side by side on all cores, and somebody who is told how far they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Watch = Callable[[Iterable[int], int], Iterable[int]]  # steps as they are done, and the sum of all

_LOOK = 0.1  # seconds after which to see how far the parts are


def unwatched(steps: Iterable[int], total: int) -> Iterable[int]:
    """Tell nobody how far a pass is."""
    return steps


def cores() -> int:
    """Return on how many cores this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def side_by_side(parts: Sequence[Iterator[int]], total: int, watch: Watch = unwatched) -> None:
    """Run parts of a pass to their ends, on all cores; each yields how much of the total it has done since the last."""
    for _ in watch(parts[0] if len(parts) == 1 else _together(parts), total):
        pass


def _together(parts: Sequence[Iterator[int]]) -> Iterator[int]:
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
    from threading import Event

    done, ended = [0] * len(parts), Event()

    def run(place: int) -> None:
        for step in parts[place]:
            done[place] += step
            if ended.is_set():  # whoever interrupts need not wait for the parts
                break

    told = 0
    with ThreadPoolExecutor(min(len(parts), cores())) as pool:
        try:
            running = [pool.submit(run, place) for place in range(len(parts))]
            waiting = {*running}
            while waiting:
                ready, waiting = wait(waiting, _LOOK, FIRST_EXCEPTION)
                for each in ready:
                    each.result()
                now = sum(done)
                yield now - told
                told = now
        finally:
            ended.set()

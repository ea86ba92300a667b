"""Passes over whole matrices: parts that run side by side, and a watch that shows the progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Protocol, TypeVar

Item = TypeVar("Item")
_MOST_READERS = 4  # two threads nearly reach the speed of memory
_FOR_THREADS = 1 << 21  # values of a matrix from which on threads are worth their start
_AHEAD = 2  # items of each part that wait to be taken


class Watch(Protocol):
    """A function that shows how far a pass is."""

    def __call__(self, items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
        """Yield the items of a pass as they come; `total` is the sum of their sizes."""


def unwatched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Show nothing."""
    return iter(items)


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def readers(values: int) -> int:
    """Return the number of threads for a pass over a matrix of `values` numbers."""
    return min(cores(), _MOST_READERS) if values >= _FOR_THREADS else 1


def ahead(parts: Sequence[Iterator[Item]]) -> Iterator[Item]:
    """Yield the items of all parts, in no order.

    The first part runs in the caller's thread; each other part runs in its own thread, at most a few items ahead. An
    error in a part is raised here.
    """
    first, *others = parts
    ready: SimpleQueue[Item | _End] = SimpleQueue()
    permits: SimpleQueue[bool] = SimpleQueue()  # one for each item; an interrupt could break a semaphore
    threads = [Thread(target=_run, args=(part, ready, permits)) for part in others]
    running = len(threads)

    def taken(waits: bool) -> Iterator[Item]:
        """Yield the items that are there, or all that come; raises the error that stopped a part."""
        nonlocal running
        while running and (waits or not ready.empty()):
            item = ready.get()
            if not isinstance(item, _End):
                permits.put(True)
                yield item
                continue
            running -= 1
            try:
                if item.error is not None:
                    raise item.error
            finally:
                del item  # otherwise the error's traceback holds the error, and all that the part had open

    try:
        for thread in threads:
            for _ in range(_AHEAD):
                permits.put(True)
            thread.start()
        for item in first:
            yield item
            yield from taken(waits=False)
        yield from taken(waits=True)
    finally:
        for _ in threads:
            permits.put(False)
        for thread in threads:
            if thread.ident is not None:  # it was started
                thread.join()
        while not ready.empty():
            ready.get()  # errors in it hold the frames that hold it


def _run(part: Iterator[Item], ready: SimpleQueue[Item | _End], permits: SimpleQueue[bool]) -> None:
    """Put the items of a part into a queue, one for each permit, and its end."""
    try:
        for item in part:
            if not permits.get():
                break
            ready.put(item)
    except BaseException as raised:
        ready.put(_End(raised))  # no local name: it would hold the error after its end
    else:
        ready.put(_End(None))


class _End:
    """The end of a part, with the error that stopped it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

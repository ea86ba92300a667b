"""Passes over whole matrices: parts that run side by side, and a watch that shows the progress."""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
    if not others:
        yield from first
        return
    threads = _Threads(others)
    try:
        threads.start()
        for item in first:
            yield item
            yield from threads.ready()
        yield from threads.rest()
    finally:
        threads.end()


class _Threads(Generic[Item]):
    """Parts that run in threads; each waits while `_AHEAD` of its items have not been taken."""

    def __init__(self, parts: Sequence[Iterator[Item]]) -> None:
        self._ready: SimpleQueue[Item | _End] = SimpleQueue()
        self._permits: SimpleQueue[None] = SimpleQueue()  # one for each item; an interrupt could break a semaphore
        self._ended = False
        self._threads = [Thread(target=self._run, args=(part,)) for part in parts]
        self._running = len(parts)

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            for _ in range(_AHEAD):
                self._permits.put(None)
            thread.start()

    def ready(self) -> Iterator[Item]:
        """Yield the items that are there; raises the error that stopped a part."""
        while self._running and not self._ready.empty():
            yield from self._take()

    def rest(self) -> Iterator[Item]:
        """Yield items until all parts have ended; raises the error that stopped a part."""
        while self._running:
            yield from self._take()

    def _take(self) -> Iterator[Item]:
        item = self._ready.get()
        if not isinstance(item, _End):
            self._permits.put(None)
            yield item
            return
        self._running -= 1
        try:
            if item.error is not None:
                raise item.error
        finally:
            del item  # otherwise the error's traceback holds the error, and all that the part had open

    def end(self) -> None:
        """End all threads that were started, once each has finished its current item."""
        self._ended = True
        for _ in self._threads:
            self._permits.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        del self._ready  # errors in it hold the frames that hold it

    def _run(self, part: Iterator[Item]) -> None:
        try:
            for item in part:
                self._permits.get()
                if self._ended:
                    break
                self._ready.put(item)
        except BaseException as raised:
            self._ready.put(_End(raised))  # no local name: it would hold the error after its end
        else:
            self._ready.put(_End(None))


class _End:
    """The end of a part, with the error that stopped it, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

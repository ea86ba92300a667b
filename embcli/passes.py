"""Passes over whole matrices: parts that run side by side on all cores, and somebody who is told how far they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Item = TypeVar("Item")
_LOOK = 0.1  # seconds after which to see how far the parts are
_READERS = 4  # at most: two of them are nearly as fast as memory
_SHARED = 1 << 21  # values of a matrix for which threads are started
_AHEAD = 2  # items of each part that wait to be taken


class Watch(Protocol):
    """Somebody who is told how far a pass is."""

    def __call__(self, items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
        """Yield the items of a pass as they come; `total` is the sum of their sizes."""


def unwatched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Tell nobody how far a pass is."""
    return iter(items)


def cores() -> int:
    """Return on how many cores this process may run."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def readers(values: int) -> int:
    """Return in how many threads a matrix of so many values is read from a file."""
    return min(cores(), _READERS) if values >= _SHARED else 1


def side_by_side(parts: Sequence[Iterator[int]], total: int, watch: Watch = unwatched) -> None:
    """Run parts of a pass to their ends, on all cores; each yields how much of the total it has done since the last."""
    for _ in watch(parts[0] if len(parts) == 1 else _together(parts), total, int):
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


def ahead(parts: Sequence[Iterator[Item]]) -> Iterator[Item]:
    """Yield what parts yield, in no order; all but the first run ahead in threads of their own, by a few items each."""
    first, *others = parts
    if not others:
        yield from first
        return
    running = _Ahead(others)
    try:
        running.start()
        for item in first:
            yield item
            yield from running.ready()
        yield from running.rest()
    finally:
        running.end()


class _Ahead(Generic[Item]):
    """Parts that run in threads, each as long as there is room for what it yields."""

    def __init__(self, parts: Sequence[Iterator[Item]]) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._ready: SimpleQueue[Item | _Ended] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # a semaphore's lock may be lost to an interrupt
        self._ended = False
        self._threads = [Thread(target=self._run, args=(part,)) for part in parts]
        self._left = len(parts)

    def start(self) -> None:
        """Start all threads."""
        for thread in self._threads:
            for _ in range(_AHEAD):
                self._room.put(None)
            thread.start()

    def ready(self) -> Iterator[Item]:
        """Yield what has come; raises what ended a part before it was done."""
        while self._left and not self._ready.empty():
            yield from self._taken()

    def rest(self) -> Iterator[Item]:
        """Yield what comes until all parts are done; raises what ended one of them before."""
        while self._left:
            yield from self._taken()

    def _taken(self) -> Iterator[Item]:
        found = self._ready.get()
        if not isinstance(found, _Ended):
            self._room.put(None)
            yield found
            return
        self._left -= 1
        try:
            if found.error is not None:
                raise found.error
        finally:
            del found  # or the error would hold itself, by its traceback, and all that the part had open

    def end(self) -> None:
        """End all threads that were started, after what they are at."""
        self._ended = True
        for _ in self._threads:
            self._room.put(None)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        del self._ready  # errors in it hold the frames that hold it

    def _run(self, part: Iterator[Item]) -> None:
        try:
            for item in part:
                self._room.get()
                if self._ended:
                    break
                self._ready.put(item)
        except BaseException as raised:
            self._ready.put(_Ended(raised))
        else:
            self._ready.put(_Ended(None))


class _Ended:
    """The end of a part, and what ended it before it was done."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

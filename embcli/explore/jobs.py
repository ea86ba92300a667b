"""Passes in the background: each in a thread of its own, which shows how far it is and can be cancelled."""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from embcli.errors import EmbcliError, LayerError
from embcli.memory import ran_out
from embcli.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Found = TypeVar("Found")
NAME = "embcli job"  # of the threads
_BETWEEN = 0.1  # seconds from one sign of progress to the next


class _Cancelled(Exception):
    """Nobody waits for the pass any more."""


class Job(Generic[Found]):
    """Work on a model in a thread: when it is done, `found` is what it returned, or `error` is what it raised."""

    def __init__(self, model: Model, work: Callable[[Model], Found], changed: Callable[[], None]) -> None:
        self.found: Found | None = None
        self.error: EmbcliError | None = None
        self.share = 0.0  # of the current pass that is done
        self.done = False
        self._cancelled, self._changed, self._told = Event(), changed, time.monotonic()
        self._model, self._work = Model(model.source, model.encoding, self._watched), work
        Thread(target=self._run, name=NAME, daemon=True).start()

    def cancel(self) -> None:
        """End the work at its next step; what it finds is dropped."""
        self._cancelled.set()

    def _run(self) -> None:
        try:
            self.found = self._work(self._model)
        except _Cancelled:
            return
        except EmbcliError as error:
            self.error = error
        except Exception as error:
            if not ran_out(error):
                raise
            self.error = LayerError("memory ran out; choose fewer rows, or smaller layers")
        self.done = True
        if not self._cancelled.is_set():
            self._changed()

    def _watched(self, items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
        """Yield the items of a pass, and tell from time to time how far it is."""
        passed = 0
        for item in items:
            if self._cancelled.is_set():
                raise _Cancelled
            yield item
            passed += size(item)
            self.share = passed / max(total, 1)
            if time.monotonic() - self._told > _BETWEEN:
                self._told = time.monotonic()
                self._changed()

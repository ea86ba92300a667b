"""Passes in the background: each in a thread of its own, which shows how far it is and can be cancelled."""

from __future__ import annotations

import time
from contextlib import nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from embcli.errors import EmbcliError, LayerError
from embcli.memory import ran_out
from embcli.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

Item = TypeVar("Item")
Found = TypeVar("Found")
NAME = "embcli job"  # of the threads
_BETWEEN = 0.1  # seconds from one sign of progress to the next
_REST = 0.08  # seconds without a key until passes go on: keys that repeat are faster


class _Cancelled(Exception):
    """Nobody waits for the pass any more."""


class Keys:
    """When the last key was pressed: passes wait until the keys rest, because they take memory's whole speed."""

    def __init__(self) -> None:
        self._rest = 0.0  # the time from which on they do

    def pressed(self) -> None:
        """Let passes wait."""
        self._rest = time.monotonic() + _REST

    def wait(self, cancelled: Event) -> None:
        """Wait until the keys rest, or until the pass is cancelled."""
        while (left := self._rest - time.monotonic()) > 0 and not cancelled.wait(left):
            pass


class Job(Generic[Found]):
    """Work on a model in a thread: when it is done, `found` is what it returned, or `error` is what it raised.

    Jobs with the same `turn` run one after the other: torch has one state for all threads, and cannot be imported by
    two at a time. Work begins and goes on while the `keys` rest.
    """

    def __init__(
        self,
        model: Model,
        work: Callable[[Model], Found],
        changed: Callable[[], None],
        keys: Keys,
        turn: AbstractContextManager[object] | None = None,
    ) -> None:
        self.found: Found | None = None
        self.error: EmbcliError | None = None
        self.failure: Exception | None = None  # that nobody expected
        self.share = 0.0  # of the current pass that is done
        self.done = False
        self._cancelled, self._changed, self._keys, self._told = Event(), changed, keys, time.monotonic()
        self._model, self._work, self._turn = Model(model.source, model.encoding, self._watched), work, turn
        Thread(target=self._run, name=NAME, daemon=True).start()

    def cancel(self) -> None:
        """End the work at its next step; what it finds is dropped."""
        self._cancelled.set()

    def _run(self) -> None:
        try:
            with self._turn or nullcontext():
                self._go_on()
                self.found = self._work(self._model)
        except _Cancelled:
            return
        except EmbcliError as error:
            self.error = error
        except Exception as error:
            if ran_out(error):
                self.error = LayerError("memory ran out; choose fewer rows, or smaller layers")
            else:
                self.failure = error
        self.done = True
        if not self._cancelled.is_set():
            self._changed()

    def _go_on(self) -> None:
        """Wait while keys are pressed; raises _Cancelled if nobody waits for the pass any more."""
        self._keys.wait(self._cancelled)
        if self._cancelled.is_set():
            raise _Cancelled

    def _watched(self, items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
        """Yield the items of a pass, and tell from time to time how far it is."""
        passed = 0
        for item in items:
            self._go_on()
            yield item
            passed += size(item)
            self.share = passed / max(total, 1)
            if time.monotonic() - self._told > _BETWEEN:
                self._told = time.monotonic()
                self._changed()

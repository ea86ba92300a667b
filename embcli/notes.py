"""Remarks that belong to a result but are not part of its data or its page, and who watches a long pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Item = TypeVar("Item")
PATIENCE = 0.5  # seconds before somebody who waits is told what for


class Watch(Protocol):
    """A function that shows how far a pass is."""

    def __call__(self, items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
        """Yield the items of a pass as they come; `total` is the sum of their sizes."""


def unwatched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Show nothing."""
    return iter(items)


class Notes:
    """Remarks in order, each once.

    >>> notes = Notes()
    >>> notes.add("3 values were rounded to float32")
    >>> list(notes)
    ['3 values were rounded to float32']
    """

    def __init__(self) -> None:
        self._remarks: dict[str, tuple[str, ...]] = {}  # with the parameters that each one names
        self._counts: list[Callable[[], str]] = []

    def add(self, remark: str, parameters: tuple[str, ...] = ()) -> None:
        """Add a remark, with the parameters that it names in their order, unless it is already there."""
        if remark not in self._remarks:
            self._remarks[remark] = parameters
            self.added(remark, parameters)

    def added(self, remark: str, parameters: tuple[str, ...]) -> None:
        """Do nothing; the command prints the remark here."""

    def slow(self, what: str) -> None:
        """Do nothing; the command says on a terminal what takes more than PATIENCE."""

    def count(self, remark: Callable[[], str]) -> None:
        """Add a remark that changes while rows are read; it is empty if there is nothing to say."""
        self._counts.append(remark)

    def finish(self) -> None:
        """Do nothing; the command prints here the remarks that changed while rows were read."""

    @property
    def counted(self) -> list[str]:
        """The remarks that change while rows are read."""
        return [text for remark in self._counts if (text := remark())]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._remarks, *self.counted])

"""What every verb returns: frozen data that can be shown as a page, read as arrays and written to a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, overload

from embcli.notes import Notes

if TYPE_CHECKING:
    import numpy as np

    from embcli.records import Records


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The result of a verb; `views/` has a module of the verb's name that puts it on a page."""

    verb: ClassVar[str]
    notes: Notes = field(default_factory=Notes)  # remarks on how it came about

    @abstractmethod
    def records(self) -> Records:
        """Return the result as data."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ArrayResult(Result):
    """A result with one matrix as its answer, which `numpy.asarray` returns."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        records = self.records()
        array = assembled(records, records.default or "")
        return array if dtype is None else array.astype(dtype, copy=False)


class matrix_of:  # noqa: N801  # it is called like a function
    """An attribute of a result: a matrix of its records, assembled each time it is read.

    Raises AttributeError if this result has no such matrix.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, result: None, owner: type[Result]) -> matrix_of: ...
    @overload
    def __get__(self, result: Result, owner: type[Result]) -> np.ndarray: ...
    def __get__(self, result: Result | None, owner: type[Result]) -> np.ndarray | matrix_of:
        if result is None:
            return self
        records = result.records()
        if self._name not in records.matrices:
            raise AttributeError(f"this result has no matrix {self._name!r}; it has {', '.join(records.matrices)}")
        return assembled(records, self._name)


def assembled(records: Records, name: str) -> np.ndarray:
    """Return a whole matrix of records, (rows, ...)."""
    import numpy as np

    array = records.matrices[name]
    whole = np.empty(array.shape, array.dtype)
    row = 0
    for piece in records.pieces((), (name,)):
        whole[row : row + piece.rows] = piece.matrices[name]
        row += piece.rows
    return whole

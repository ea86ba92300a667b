"""What every verb returns: frozen data that can be shown as a page, read as arrays and written to a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from embcli.notes import Notes

if TYPE_CHECKING:
    from embcli.records import Records


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(ABC):
    """The result of a verb; `views/` has a module of the verb's name that puts it on a page."""

    verb: ClassVar[str]
    notes: Notes = field(default_factory=Notes)  # remarks on how it came about

    @abstractmethod
    def records(self) -> Records:
        """Return the result as data."""

"""A result on its own page, as the command prints it: made in the background, and scrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from embcli.explore.desk import View
from embcli.explore.drawing import MOVES, Line, lines_of, new_sheet, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.errors import EmbcliError
    from embcli.explore.desk import Desk
    from embcli.explore.drawing import Key
    from embcli.explore.jobs import Job
    from embcli.model import Model
    from embcli.result import Result

    Make = Callable[[Model], Result]


class Paged:
    """The page of a result; while a new one is made, the one before stays."""

    def __init__(self, desk: Desk, words: str, make: Make) -> None:
        self.desk, self.words, self.make = desk, words, make
        self.result: Result | None = None
        self._lines: list[Line] = []
        self._error: EmbcliError | None = None
        self._job: Job[tuple[Result, list[Line]]] | None = None
        self._for: tuple[int, int, bool] | None = None

    def renew(self, make: Make) -> None:
        """Show another result."""
        self.make, self.result, self._for = make, None, None

    def lines(self, width: int, heat: bool = False) -> list[Line]:
        """Return the whole page, perhaps below a line that says how far a new one is; raises the result's error."""
        look = width, self.desk.size[1], heat
        if self._for != look:
            self.cancel()
            make, found = self.make, self.result
            self._job = self.desk.start(lambda model: _put(found or make(model), *look, self.desk.color), in_turn=True)
            self._for = look
        job = self._job
        if job is not None and job.done:
            self._job, self._error = None, job.error
            if job.found is not None:
                self.result, self._lines = job.found
        if self._error is not None:
            raise self._error
        return [progress(self.words, job.share, width), *self._lines] if self._job and job else self._lines

    def cancel(self) -> None:
        """End the work."""
        if self._job is not None:
            self._job.cancel()


def _put(result: Result, width: int, screen: int, heat: bool, color: bool) -> tuple[Result, list[Line]]:
    page = new_sheet(width, color, screen, heat)
    result.put_on(page)
    return result, lines_of(page)


class PageView(View):
    """A screen that is the page of a result."""

    KEYS: ClassVar[tuple[Key, ...]] = MOVES
    has_list = False

    def __init__(self, desk: Desk, title: str, make: Make, commands: list[str]) -> None:
        super().__init__(desk)
        self.page = Paged(desk, "computing", make)
        self._title, self._commands = title, commands

    def title(self) -> tuple[str, str]:
        """Return what the page shows."""
        return self._title, ""

    def commands(self) -> list[str]:
        """Return the command of the page."""
        return self._commands

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the part of the page that is on the screen."""
        return self.scrolled(self.page.lines(width), height)

    def leave(self) -> None:
        """Cancel what still runs."""
        self.page.cancel()
        super().leave()

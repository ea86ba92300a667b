"""The full screen without a terminal: its lines once nothing runs any more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embcli.explore.jobs import NAME
from tests.conftest import TIMEOUT

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.drawing import Line


def settled(desk: Desk, width: int, height: int) -> list[Line]:
    """Return the lines of a screen, drawn anew until no job runs."""
    ended: list[bool] = []  # that a job ended after the lines were drawn
    desk.changed = lambda: ended.append(True)
    while True:
        ended.clear()
        lines = desk.frame(width, height)
        running = [thread for thread in threading.enumerate() if thread.name == NAME]
        if not running and not ended:
            return lines
        for thread in running:
            thread.join(TIMEOUT)

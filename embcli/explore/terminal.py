"""The terminal under the full screen: it is left as it was, whatever ends the process."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.driver import Driver


class _Lasting:
    """Standard output that takes no harm if the terminal is gone: what is written then is lost."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write a text."""
        with suppress(OSError, ValueError):
            self._file.write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with suppress(OSError, ValueError):
            self._file.flush()

    def fileno(self) -> int:
        """Return the number of the file."""
        number: int = self._file.fileno()
        return number


def driver() -> type[Driver]:
    """Return textual's driver for this system, drawing on standard output: standard error is for messages."""
    if sys.platform == "win32":
        from textual.drivers.windows_driver import WindowsDriver

        return WindowsDriver
    from textual.drivers.linux_driver import LinuxDriver

    class OnStandardOutput(LinuxDriver):
        """Draws on standard output."""

        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self._file: Any = _Lasting(sys.__stdout__)

        def run_input_thread(self) -> None:
            """Read keys, and leave when the terminal is gone."""
            with suppress(OSError):
                super().run_input_thread()
            if not self.exit_event.is_set():
                self._app.call_later(self._app.exit)

    return OnStandardOutput

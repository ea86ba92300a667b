"""The terminal that textual reads keys from, on Unix."""

from __future__ import annotations

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Textual's driver, except that it ignores invalid UTF-8.

    Textual's own ends with a traceback at bytes that are not UTF-8.
    """

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue

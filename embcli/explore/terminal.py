"""The terminal that textual reads keys from, on Unix; bytes that are invalid UTF-8 are no keys."""

from __future__ import annotations

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Textual's driver, except that it reads on after invalid UTF-8, at which textual's ends with a traceback."""

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue

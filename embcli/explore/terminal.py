"""The terminal that textual reads keys from, on Unix."""

from __future__ import annotations

from contextlib import suppress

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """Textual's driver, except that it ignores invalid UTF-8, and restores the whole terminal.

    Textual's own ends with a traceback at bytes that are not UTF-8. It writes in a thread that
    nobody waits for if a signal ends the app, and stops nothing if one comes while it starts.
    """

    def start_application_mode(self) -> None:
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
        except BaseException:  # that of a signal
            self.stop_application_mode()
            raise

    def run_input_thread(self) -> None:
        while not self.exit_event.is_set():
            with suppress(UnicodeDecodeError):
                super().run_input_thread()

    def stop_application_mode(self) -> None:
        super().stop_application_mode()
        self.close()

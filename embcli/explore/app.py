"""The desk on a terminal: textual reads the keys and the mouse, and shows the lines of the screen on top."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ScreenStackError
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widget import Widget

from embcli.explore.paint import Paint
from embcli.explore.terminal import driver
from embcli.oldpage.terminal import depth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual import events
    from textual.binding import BindingType
    from textual.geometry import Region
    from textual.strip import Strip

    from embcli.explore.desk import Desk

_WHEEL = 3  # lines


class Explorer(App[None], inherit_bindings=False):
    """The full screen."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False  # a drag would select the whole screen
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__(driver_class=driver())
        self.desk = desk
        self.status = 0
        self.failure: Exception | None = None  # that nobody expected
        self.theme = "ansi-dark"  # the terminal's own two colours, whether it is dark or light
        desk.changed, desk.copy = self._changed, self.copy_to_clipboard

    def get_default_screen(self) -> Screen[Any]:
        """Return a screen without textual's own keys."""
        return _Empty()

    def compose(self) -> Any:
        """Yield the only widget."""
        yield _Lines(self.desk)

    def on_mount(self) -> None:
        """Catch the signals that end a process, and draw anew after one that stopped it."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        loop = asyncio.get_running_loop()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # not on every system
                loop.add_signal_handler(getattr(signal, name), self.leave, 128 + getattr(signal, name))

    def leave(self, status: int = 0) -> None:
        """Leave the full screen."""
        self.status = status
        self.exit()

    def fail(self, error: Exception) -> None:
        """Leave because of an error, which `run` raises."""
        self.failure = error
        self.exit()

    def action_interrupt(self) -> None:
        """Leave as an interrupted command does."""
        self.leave(130)

    def _changed(self) -> None:
        """Draw anew; any thread may ask for it."""
        with suppress(RuntimeError):  # the loop has ended
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.draw)

    def draw(self) -> None:
        """Draw the desk as it is now."""
        with suppress(NoMatches, ScreenStackError):  # before the first screen, and after the last
            self.query_one(_Lines).draw()


class _Empty(Screen[None], inherit_bindings=False):
    """A screen without keys of its own."""


class _Lines(Widget, can_focus=True):
    """The lines of the desk."""

    DEFAULT_CSS = "_Lines { width: 100%; height: 100%; }"

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self._paint = Paint(depth() if desk.color else None)
        self._strips: list[Strip] | None = None
        self._drawn_for = (0, 0)

    def draw(self) -> None:
        """Draw the desk as it is now."""
        self._strips = None
        self.refresh()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Draw anew after something was done; leave if that failed as nobody expected."""
        try:
            yield
        except Exception as error:
            self.app.fail(error)  # type: ignore[attr-defined]  # the Explorer
        self.draw()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of the screen, or a part of them; textual's own styles have no part in them."""
        size = self.size.width, self.size.height
        if self._strips is None or self._drawn_for != size:
            self._strips, self._drawn_for = [self._paint.strip([], 0)] * size[1], size
            try:
                self._strips = [self._paint.strip(line, size[0]) for line in self.desk.frame(*size)]
            except Exception as error:
                self.app.fail(error)  # type: ignore[attr-defined]
        return [strip.crop(*crop.column_span) for strip in self._strips[crop.y : crop.bottom]]

    def on_key(self, event: events.Key) -> None:
        """Press a key."""
        event.stop()
        event.prevent_default()
        with self._guarded():
            if event.key.startswith("alt+") and event.character is not None:  # so a terminal sends Esc and a letter
                self.desk.press("escape")
                self.desk.press(event.character, event.character)
            else:
                self.desk.press(event.key, event.character)
        if self.desk.ended:
            self.app.exit()

    def on_paste(self, event: events.Paste) -> None:
        """Insert what is pasted."""
        with self._guarded():
            self.desk.paste(event.text)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        with self._guarded():
            self.desk.view.scroll(_WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        with self._guarded():
            self.desk.view.scroll(-_WHEEL)

    def on_click(self, event: events.Click) -> None:
        """Click on a line."""
        with self._guarded():
            self.desk.click(event.x, event.y)


def stay() -> None:
    """Let this process live long: what the start has made stays, and what threads free is used again."""
    gc.freeze()  # looking through all objects takes 0.1 s, in which no key is answered
    gc.set_threshold(5_000)  # objects, about a screen of them
    gc.enable()  # a short process has no need of it


def run(desk: Desk) -> int:
    """Show the desk until somebody leaves it; return the exit status. Raises the error that nobody expected."""
    stay()
    app = Explorer(desk)
    app.run()
    if app.failure is not None:
        raise app.failure
    return 2 if app.return_code else app.status

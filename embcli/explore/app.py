"""The app: it opens the screens, and leaves the terminal as it was.

`run` shows it until it is left. Its result is the commands that print the last screen. Keys that
several screens have are bound here, others in the screens.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.driver import Driver
from textual.screen import Screen
from textual.widgets import Input, Static

from embcli.errors import EmbcliError
from embcli.explore.explored import ExploredMatrix
from embcli.explore.find import FindScreen
from embcli.explore.matrix import MatrixScreen
from embcli.explore.row import RowScreen
from embcli.explore.view import ExplorerScreen, sentence
from embcli.verbs.explain import explain

_MOST_SCREENS = 20  # that Escape leads back through


class KeysScreen(ExplorerScreen):
    """The keys of all screens, as `embcli explain` lists them."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS = [
        ("question_mark,enter", "app.back"),
    ]

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(explain("explore"))

    def heading(self) -> list[str]:
        return ["Keys"]

    def commands(self) -> list[str]:
        return ["embcli explain explore"]


class Explorer(App[list[str]]):
    """The full screen of a matrix.

    It begins with the matrix, or with a text to find; each further screen is put on top of the one
    before. The screens share the matrix and the words of its vocabulary.
    """

    CSS = """
    #title {
        height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: bold;
    }
    Prompt { padding: 0 1; background: $background; }
    Prompt > .input--placeholder { color: $text-accent; }
    Prompt:focus { dock: bottom; height: 2; }  /* over the keys, which are then letters */
    Lines, DataTable { height: 1fr; background: $background; scrollbar-size-vertical: 1; }
    Lines { width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 0; }
    VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    VerticalScroll Static { min-width: 30; }
    #nearest { width: 38; }
    RowScreen.-narrow Horizontal { layout: vertical; }
    RowScreen.-narrow #nearest { width: 100%; height: 1fr; }
    #nearest DataTable { border-left: tall $panel; }
    #nearest DataTable:focus { border-left: tall $accent; }
    FindScreen #text { margin: 0 1; }
    /* One note at a time, on the title. */
    ToastRack { dock: top; align: right top; margin-bottom: 0; }
    ToastHolder { display: none; }
    ToastHolder:last-child { display: block; }
    Toast { width: auto; max-width: 70%; margin-top: 0; padding: 0 1; }
    """

    screen: Any  # an ExplorerScreen
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-wide")]
    BINDINGS = [
        # With priority, a field has the focus before the app looks at the next key, which may be
        # typed at once.
        Binding("colon,g", "screen.open_prompt", "Go", key_display=":", priority=True),
        Binding("slash", "find", "Find", priority=True),
        ("y", "copy"),
        Binding("escape,backspace", "back", "Back", key_display="Esc"),
        ("question_mark", "keys", "Keys"),
        ("q", "quit", "Quit"),
        Binding("ctrl+c", "quit(130)", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int = 0, text: str | None = None) -> None:
        super().__init__()
        # Textual's scrolling would otherwise go on in a screen that has been closed.
        self.animation_level = "none"
        self.console.no_color = self.no_color
        # Textual's own has shades that a terminal of 16 colours shows as others.
        self.ansi_theme_dark = DEFAULT_TERMINAL_THEME
        self.matrix = matrix
        self.first_screen = MatrixScreen(matrix, row)
        self.first_text = text
        self.words: list[str] = []  # empty until the vocabulary has been read

    def get_driver_class(self) -> type[Driver]:
        if sys.platform == "win32":
            return super().get_driver_class()
        from embcli.explore.terminal import TerminalDriver

        return TerminalDriver

    def get_default_screen(self) -> Screen[Any]:
        return self.first_screen

    async def on_mount(self) -> None:
        """Prepare for signals, show the model's notes, and begin as the options say."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        notes = "\n".join(self.matrix.model.notes)
        if notes:
            self.notify(notes, severity="warning", markup=False)
        if self.first_text is not None:
            await self._open(FindScreen(self.matrix, self.first_text))

    @contextmanager
    def errors_as_notes(self) -> Iterator[None]:
        """Show an error of embcli as a note, and keep the screen open."""
        try:
            yield
        except EmbcliError as error:
            self.notify(sentence(error), severity="error", markup=False)

    async def _open(self, screen: ExplorerScreen) -> None:
        """Open a screen; the row that it may result in is shown on the screen before it."""
        if self.return_code is None:  # an app that ends composes no screen any more
            await self.push_screen(screen, self.screen.go_to)

    async def open_row(self, row: int, column: int = 0) -> None:
        """Open the screen of a row; above many screens it takes the place of the last one.

        The garbage collector looks through all of them: 100 keep a key waiting for seconds.
        """
        with self.errors_as_notes():
            screen = RowScreen(self.matrix, row, column)
            if len(self.screen_stack) >= _MOST_SCREENS:
                self.pop_screen()
            await self._open(screen)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Textual gives a colon to a field that has the focus, but not a slash, whose Unicode name
        # is solidus.
        return action != "find" or not isinstance(self.focused, Input)

    async def action_find(self) -> None:
        if self.matrix.model.encoding is None:
            self.notify(
                "no tokenizer: name one with --encoding (: goes to a row by its ID)",
                severity="warning",
            )
        else:
            await self._open(FindScreen(self.matrix))

    async def action_keys(self) -> None:
        await self._open(KeysScreen(self.matrix))

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.notify("This is the first screen; q quits.")

    def action_copy(self) -> None:
        self.copy_to_clipboard("\n".join(self.screen.commands()))
        self.notify("Copied, if the terminal allows it (OSC 52).")

    async def action_quit(self, status: int = 0) -> None:
        self.exit(self.screen.commands(), return_code=status)


def run(app: Explorer) -> int:
    """Show the app until it is left, and return the exit status."""
    gc.freeze()  # looking through all objects takes 0.1 s, in which no key is answered
    gc.enable()  # short commands run without it
    app.run()
    return app.return_code or 0

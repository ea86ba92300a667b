"""The app: it opens the screens, and leaves the terminal as it was.

`run` shows it until it is left. Its result is the commands that print the last screen. Keys that
all screens have are bound here, others in the screens.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from rich.table import Table
from textual.app import App, ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.driver import Driver
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from embcli.errors import EmbcliError
from embcli.explore.explored import ExploredMatrix
from embcli.explore.find import FindScreen, WordIndex
from embcli.explore.matrix import MatrixScreen
from embcli.explore.row import PairScreen, RowScreen
from embcli.explore.view import ExplorerScreen, sentence
from embcli.selection import select


class KeysScreen(ModalScreen[None]):
    """The keys of a screen, one line per action."""

    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q,enter,backspace", "dismiss", "Back")
    ]

    def __init__(self, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self.bindings = sorted(bindings, key=lambda active: not active.binding.show)

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Keys"
            dialog.border_subtitle = "Esc closes"
            yield Static(self._table())

    def _table(self) -> Table:
        keys_by_action: dict[str, list[str]] = {}
        for active in self.bindings:
            keys = keys_by_action.setdefault(active.tooltip, [])
            key = self.app.get_key_display(active.binding)
            if key not in keys:
                keys.append(key)
        keys_by_action.pop("", None)  # keys that are not to be listed

        table = Table.grid(padding=(0, 2))
        for tooltip, keys in keys_by_action.items():
            action = tooltip[0].lower() + tooltip[1:]
            table.add_row(" ".join(keys), action)
        return table


class Explorer(App[list[str]]):
    """The full screen of a matrix.

    It begins with the matrix, or with a text to find; each further screen is put on top of the one
    before. The screens share the matrix and the words of its vocabulary.
    """

    CSS = """
    #title, #command {
        height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    #title { text-style: bold; }
    #command { color: $text-accent; }
    Lines, DataTable { height: 1fr; background: $background; scrollbar-size-vertical: 1; }
    Lines { width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 0; }
    #nearest { width: 38; }
    RowScreen.-narrow Horizontal { layout: vertical; }
    RowScreen.-narrow #nearest { width: 100%; height: 1fr; }
    #nearest DataTable { border-left: tall $panel; border-title-color: $text-muted; }
    #nearest DataTable:focus { border-left: tall $accent; }
    FindScreen #text { margin: 0 1; }
    ExplorerScreen { layers: default above; }
    Prompt { layer: above; dock: bottom; margin: 0 0 1 0; display: none; }
    Prompt:focus { display: block; }
    KeysScreen { align: center middle; }
    .dialog { width: 76; max-width: 100%; height: auto; max-height: 90%; padding: 0 1; }
    .dialog {
        border: round $accent; background: $surface;
        border-title-color: $text; border-subtitle-color: $text;
    }
    """

    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", tooltip="mark the row, or take the mark away"),
        Binding("c", "compare", "Compare", tooltip="compare the row with the marked one"),
        Binding(
            "y", "copy", "Copy", show=False, tooltip="copy the command that prints this screen"
        ),
        Binding(
            "escape,backspace",
            "back",
            "Back",
            key_display="Esc",
            tooltip="go back to the screen before",
        ),
        Binding("question_mark", "keys", "Keys", tooltip="all keys"),
        Binding("q", "quit", "Quit", tooltip="quit, and print the command of this screen"),
        Binding("ctrl+c", "quit(130)", show=False, priority=True, system=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True, system=True),
    ]

    def __init__(
        self, matrix: ExploredMatrix, row: int = 0, text: str | None = None, sort: str = "id"
    ) -> None:
        super().__init__()
        # Textual's scrolling would otherwise go on in a screen that has been closed.
        self.animation_level = "none"
        self.matrix = matrix
        self.first_row = row
        self.first_text = text
        self.first_sort = sort
        self.words: WordIndex | None = None  # None until the vocabulary has been read

    def get_driver_class(self) -> type[Driver]:
        if sys.platform == "win32":
            return super().get_driver_class()
        from embcli.explore.terminal import TerminalDriver

        return TerminalDriver

    def get_default_screen(self) -> Screen[Any]:
        return MatrixScreen(self.matrix, self.first_row)

    async def on_mount(self) -> None:
        """Prepare for signals, show the model's notes, and begin as the options say."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        loop = asyncio.get_running_loop()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            # Not every system has each signal, and not every loop can handle signals.
            with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):
                number = getattr(signal, name)
                loop.add_signal_handler(number, self._end, 128 + number)
        for note in self.matrix.model.notes:
            self.notify(note, severity="warning", markup=False)
        if self.first_sort == "norm" and isinstance(self.screen, MatrixScreen):
            self.screen.action_sort()
        if self.first_text is not None:
            await self.open(FindScreen(self.matrix, self.first_text), self.show)

    def _end(self, status: int) -> None:
        signal.alarm(3)  # a terminal that is gone may accept no more output
        self.call_later(self.action_quit, status)

    @contextmanager
    def errors_as_notes(self) -> Iterator[None]:
        """Show an error of embcli as a note, and keep the screen open."""
        try:
            yield
        except EmbcliError as error:
            self.notify(sentence(error), severity="error", markup=False)

    async def open(self, screen: Screen[Any], then: Callable[[Any], Any] | None = None) -> None:
        """Open a screen; `then` is called with its result."""
        if self.return_code is None:  # an app that ends composes no screen any more
            await self.push_screen(screen, then)

    async def open_row(self, row: int, column: int = 0) -> None:
        with self.errors_as_notes():
            await self.open(RowScreen(self.matrix, row, column))

    async def go_to(self, text: str) -> None:
        """Go to the row, the column, or both that are typed at the prompt: `6109,447`."""
        name = text
        number = ""
        if "," in text and text != ",":  # a comma alone is a token
            name, _, number = text.rpartition(",")
        row = None
        column = None
        with self.errors_as_notes():
            if name.strip():
                row = self.matrix.row_of(name)
            if number.strip():
                column = int(select(number.strip(), self.matrix.dim, "column")[0])
            await self.show(row, column)

    async def show(self, row: int | None, column: int | None = None) -> None:
        """Show a row and a column on the screen, or open the row on a screen of another row."""
        if self.return_code is not None:  # an app that ends has no screens any more
            return
        screen = self.screen
        if isinstance(screen, MatrixScreen):
            screen.lines.go_to(row, column)
        elif row is not None:
            await self.open_row(row, column or 0)
        elif isinstance(screen, RowScreen) and column is not None:
            screen.lines.go_to(column)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action not in ("mark", "compare"):
            return True
        return not isinstance(self.screen, FindScreen | PairScreen)

    async def find(self) -> None:
        if self.matrix.model.encoding is None:
            self.notify(
                "no tokenizer: name one with --encoding (: goes to a row by its ID)",
                severity="warning",
            )
        else:
            await self.open(FindScreen(self.matrix), self.show)

    async def action_keys(self) -> None:
        await self.open(KeysScreen(self.screen.active_bindings.values()))

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.notify("This is the first screen; q quits.")

    def action_mark(self) -> None:
        screen: Any = self.screen
        is_marked = self.matrix.marked == screen.row
        self.matrix.marked = None if is_marked else screen.row
        screen.show_title()
        screen.query("MatrixLines").refresh()

    async def action_compare(self) -> None:
        screen: Any = self.screen
        marked = self.matrix.marked
        if marked is None or marked == screen.row:
            self.notify(
                "Space marks a row; then c on another row compares the two.", severity="warning"
            )
            return
        with self.errors_as_notes():
            await self.open(PairScreen(self.matrix, marked, screen.row))

    def action_copy(self) -> None:
        screen: Any = self.screen
        self.copy_to_clipboard("\n".join(screen.commands()))
        self.notify("Copied, if the terminal allows it (OSC 52).")

    async def action_quit(self, status: int = 0) -> None:
        commands: list[str] = []
        for screen in self.screen_stack:
            if isinstance(screen, ExplorerScreen):
                commands = screen.commands() or commands  # an empty search has none
        self.exit(commands, return_code=status)


def run(app: Explorer) -> int:
    """Show the app until it is left, and return the exit status."""
    gc.freeze()  # looking through all objects takes 0.1 s, in which no key is answered
    gc.enable()  # short commands run without it
    app.run()
    return app.return_code or 0

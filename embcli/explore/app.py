"""The app: it opens the screens, takes one key after the other, and leaves the terminal as it was.

Dialogs above its screens are all keys, where to go, and textual's commands.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from contextlib import suppress
from typing import Any, ClassVar

from rich.table import Table
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Command, CommandList, CommandPalette
from textual.containers import VerticalScroll
from textual.dom import DOMNode
from textual.driver import Driver
from textual.screen import ModalScreen, Screen
from textual.theme import ThemeProvider
from textual.widgets import Input, Static
from textual.worker import Worker

from embcli.errors import EmbcliError
from embcli.explore.find import FindScreen, Words
from embcli.explore.matrix import MatrixScreen
from embcli.explore.row import PairScreen, RowScreen
from embcli.explore.source import Source
from embcli.explore.view import View, sentence
from embcli.selection import select

# Keys of less and vi, for those that textual's widgets have.
_ALIASES = {"j": "down", "k": "up", "G": "end", "ctrl+f": "pagedown", "ctrl+b": "pageup"}


class KeysScreen(ModalScreen[None]):
    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter,backspace", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        keys: dict[str, list[str]] = {}
        for each in sorted(self.app.screen_stack[-2].active_bindings.values(), key=lambda each: not each.binding.show):
            if words := each.binding.tooltip:
                keys.setdefault(words, []).append(self.app.get_key_display(each.binding))
        table = Table.grid(padding=(0, 2))
        for words, names in keys.items():
            table.add_row(" ".join(dict.fromkeys(names)), words[0].lower() + words[1:])
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = "Keys", "Ctrl+P: theme, screenshot; Esc closes"
            yield Static(table)


class GoScreen(ModalScreen[None]):
    app: Any  # the Explorer
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss"), Binding("enter", "go", priority=True)]

    def compose(self) -> ComposeResult:
        yield Input(placeholder="a row's ID or token, or row,column", compact=True)

    async def action_go(self) -> None:
        text = self.query_one(Input).value
        self.app.pop_screen()
        await self.app.go_to(text)


class Palette(CommandPalette):
    """Textual's, whose Enter is done before the next key, and whose search may outlive it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", show=False, priority=True)]

    def action_choose(self) -> None:
        commands = self.query_one(CommandList)
        chosen = commands.highlighted_option
        if isinstance(chosen, Command):
            self.dismiss()
            self.app.call_next(chosen.hit.command)

    def run_worker(self, *given: Any, **options: Any) -> Worker[Any]:
        return super().run_worker(*given, **options | {"exit_on_error": False})


class Explorer(App[list[str]]):
    CSS = """
    #title { height: 1; padding: 0 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #command { height: 1; padding: 0 1; color: $text-accent; text-wrap: nowrap; text-overflow: ellipsis; }
    Lines, DataTable { height: 1fr; background: $background; scrollbar-size-vertical: 1; }
    Lines { width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 0; }
    #nearest { width: 38; }
    RowScreen.-narrow Horizontal { layout: vertical; }
    RowScreen.-narrow #nearest { width: 100%; height: 1fr; }
    #nearest DataTable { border-left: tall $panel; border-title-color: $text-muted; }
    #nearest DataTable:focus { border-left: tall $accent; }
    FindScreen Input { margin: 0 1; }
    GoScreen { align: left bottom; }
    GoScreen Input { width: 100%; margin: 0 0 1 0; }
    KeysScreen { align: center middle; }
    CommandList { min-width: 10; }  /* narrower, textual has no lines for it */
    .dialog { width: 76; max-width: 100%; height: auto; max-height: 90%; padding: 0 1; }
    .dialog { border: round $accent; background: $surface; border-title-color: $text; border-subtitle-color: $text; }
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (64, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark", tooltip="mark the row, or take the mark away"),
        Binding("c", "compare", "Compare", tooltip="compare the row with the marked one"),
        Binding("slash", "find", "Find", tooltip="type a text: its tokens, and words like it"),
        Binding("colon,g", "go", "Go", key_display=":", tooltip="go to a row by ID or token, and a column: 6109,447"),
        Binding("y", "copy", "Copy", show=False, tooltip="copy the command that prints this screen"),
        Binding("escape,backspace", "back", "Back", key_display="Esc", tooltip="go back to the screen before"),
        Binding("question_mark", "keys", "Keys", tooltip="all keys"),
        Binding("q", "quit", "Quit", tooltip="quit, and print the command of this screen"),
        Binding("ctrl+c", "quit(130)", show=False, priority=True, system=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True, system=True),
    ]

    def __init__(self, source: Source, row: int = 0, text: str | None = None, sort: str = "id") -> None:
        super().__init__()
        self.animation_level = "none"  # textual's scrolling would go on in a screen that has closed
        self.source, self.started = source, (row, text, sort)
        self.words: Words | None = None  # of the vocabulary, once they are read

    def get_driver_class(self) -> type[Driver]:
        if sys.platform == "win32":
            return super().get_driver_class()
        from embcli.explore.terminal import TerminalDriver

        return TerminalDriver

    def get_default_screen(self) -> Screen[Any]:
        return MatrixScreen(self.source, self.started[0])

    async def on_mount(self) -> None:
        """Catch the signals that end a process, draw anew after one that stopped it, and begin at a text."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        loop = asyncio.get_running_loop()
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            with suppress(AttributeError, NotImplementedError, RuntimeError, ValueError):  # not on every system
                loop.add_signal_handler(getattr(signal, name), self._end, 128 + getattr(signal, name))
        for note in self.source.model.notes:
            self.notify(note, severity="warning", markup=False)
        _, text, sort = self.started
        if sort == "norm" and isinstance(self.screen, MatrixScreen):
            self.screen.action_sort()
        if text is not None:
            await self.open(FindScreen(self.source, text))

    def _end(self, status: int) -> None:
        signal.alarm(3)  # a terminal that is gone may take no more
        self.call_later(self.action_quit, status)

    async def on_event(self, event: events.Event) -> None:
        """Finish with a key before the next one: what is typed ahead meets the screen that the key before opened."""
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
        elif event.key.startswith("alt+") and event.character is not None:  # so a terminal sends Escape and a letter
            await self._press(events.Key("escape", None))
            await self._press(events.Key(event.character, event.character))
        else:
            await self._press(event)

    async def _press(self, event: events.Key) -> None:
        active, field = self.screen.active_bindings, self.focused
        if self.return_code is not None:
            return  # the app ends, and opens no screen any more
        if isinstance(field, Input) and event.is_printable:
            field.replace(event.character or "", *field.selection)
        elif event.key in ("ctrl+c", "ctrl+p", "ctrl+q", "ctrl+z"):  # which textual finds above a dialog, too
            await super().on_event(event)
        elif found := active.get(event.key) or active.get(_ALIASES.get(event.key, "")):
            await self.run_action(found.binding.action, found.node)

    async def run_action(self, action: Any, default_namespace: DOMNode | None = None, *given: Any) -> bool:
        """Do what a key or a click asks for; a click on a screen that has closed since asks for nothing."""
        if isinstance(default_namespace, Screen) and not default_namespace.is_active:
            return False
        try:
            return await super().run_action(action, default_namespace, *given)
        except EmbcliError as error:
            self.notify(sentence(error), severity="error", markup=False)
        return False

    async def open(self, screen: Screen[Any]) -> None:
        if len(self.screen_stack) > 50:  # that one can go back to
            await self.switch_screen(screen)
        else:
            await self.push_screen(screen)
        screen.focus_next(str(screen.AUTO_FOCUS))

    async def open_row(self, row: int, column: int = 0) -> None:
        await self.open(RowScreen(self.source, row, column))

    async def action_find(self) -> None:
        if self.source.model.encoding is None:
            self.notify("no tokenizer: name one with --encoding (: goes to a row by its ID)", severity="warning")
        else:
            await self.open(FindScreen(self.source))

    async def action_go(self) -> None:
        await self.open(GoScreen())

    async def go_to(self, text: str) -> None:
        name, _, number = text.rpartition(",") if "," in text and text != "," else (text, "", "")
        row = self.source.row_of(name) if name.strip() else None
        await self.show(row, int(select(number.strip(), self.source.dim, "column")[0]) if number.strip() else None)

    async def show(self, row: int | None, column: int | None = None) -> None:
        view = self.screen
        if isinstance(view, MatrixScreen):
            view.matrix.go_to(row, column)
        elif row is not None:
            await self.open_row(row, column or 0)
        elif isinstance(view, RowScreen) and column is not None:
            view.values.go_to(column)

    async def action_keys(self) -> None:
        await self.push_screen(KeysScreen())

    async def action_command_palette(self) -> None:  # type: ignore[override]
        if not isinstance(self.screen, Palette):
            await self.open(Palette())

    async def action_change_theme(self) -> None:  # type: ignore[override]
        await self.open(Palette([ThemeProvider], placeholder="Search for themes…"))

    async def action_back(self) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.notify("This is the first screen; q quits.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("mark", "compare"):
            return not isinstance(self.screen, FindScreen | PairScreen)
        return action != "find" or not isinstance(self.screen, FindScreen)

    def action_mark(self) -> None:
        view: Any = self.screen
        self.source.marked = None if self.source.marked == view.row else view.row
        view.tell()
        view.query("Matrix").refresh()

    async def action_compare(self) -> None:
        view: Any = self.screen
        if self.source.marked in (None, view.row):
            self.notify("Space marks a row; then c on another row compares the two.", severity="warning")
        else:
            await self.open(PairScreen(self.source, self.source.marked, view.row))

    def action_copy(self) -> None:
        if isinstance(self.screen, View):
            self.copy_to_clipboard("\n".join(self.screen.commands()))
            self.notify("Copied, if the terminal allows it (OSC 52).")

    async def action_quit(self, status: int = 0) -> None:
        commands = (screen.commands() for screen in reversed(self.screen_stack) if isinstance(screen, View))
        self.exit(next(filter(None, commands)), return_code=status)  # an empty search has none


def run(app: Explorer) -> int:
    gc.freeze()  # looking through all objects takes 0.1 s, in which no key is answered
    gc.enable()  # which a short process has no need of
    app.run()
    return app.return_code or 0

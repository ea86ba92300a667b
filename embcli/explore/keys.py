"""Small screens above the others: all keys, where to go, and textual's commands."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import ActiveBinding, Binding, BindingType
from textual.command import CommandPalette
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class KeysScreen(ModalScreen[None]):
    AUTO_FOCUS = "VerticalScroll"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter,backspace", "dismiss", "Back")]

    def __init__(self, active: list[ActiveBinding]) -> None:
        super().__init__()
        self.active = active

    def compose(self) -> ComposeResult:
        keys: dict[str, list[str]] = {}
        for each in self.active:
            words = each.binding.tooltip or each.binding.description
            if words and type(each.node).__module__.startswith("embcli.") and not each.binding.system:
                keys.setdefault(words, []).append(self.app.get_key_display(each.binding))
        table = Table.grid(padding=(0, 2))
        for words, names in keys.items():
            table.add_row(" ".join(dict.fromkeys(names)), words[0].lower() + words[1:])
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = "Keys"
            dialog.border_subtitle = "Ctrl+P: theme, screenshot; Esc closes"
            yield Static(table)


class GoScreen(ModalScreen[None]):
    app: Any  # the Explorer
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back"),
        Binding("enter", "go", "Go", priority=True),
    ]

    def compose(self) -> ComposeResult:
        yield Input(placeholder="a row's ID or token, or row,column", compact=True)

    async def action_go(self) -> None:
        text = self.query_one(Input).value
        self.app.pop_screen()
        await self.app.go_to(text)


class Palette(CommandPalette):
    """Textual's, closed only once: its Enter takes several messages, and an Escape may come in between."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()

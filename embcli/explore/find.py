"""Finding rows: the tokens of a text while it is typed, and words of the vocabulary like it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from embcli.errors import EmbcliError, InputError, Watch
from embcli.explore.source import Source, Words
from embcli.explore.view import View, sentence
from embcli.tokens import shown, tokens_of

_MOST_TOKENS, _TOKEN = 1000, 40


class FindScreen(View):
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Go to the row", priority=True),
        Binding("down", "move('cursor_down')", "Move", key_display="↑ ↓", priority=True),
        Binding("up", "move('cursor_up')", show=False, priority=True),
        Binding("pagedown", "move('page_down')", show=False, priority=True),
        Binding("pageup", "move('page_up')", show=False, priority=True),
    ]

    def __init__(self, source: Source, text: str = "") -> None:
        super().__init__(source)
        self.text = text
        self.ids = np.empty(0, np.int64)  # of the rows in the list
        self.like: list[int] = []  # those that are words like the text
        self.error = ""  # why the text has no tokens

    def body(self) -> ComposeResult:
        yield Input(self.text, placeholder="a text, or a part of a word", compact=True, select_on_focus=False)
        yield DataTable(cursor_type="row", cell_padding=1)

    def heading(self) -> str:
        return self.error or f"Find a row: type a text, or a part of a word   {self.source.name}"

    def commands(self) -> list[str]:
        given = ("tokenize",) if self.source.origin.is_seeded else ("lookup", "--show", "token", "--columns", "0:1")
        tokens = [self.source.spell(*given, text=self.text)] if self.text and not self.error else []
        rows = ",".join(map(str, self.like))
        return tokens + ([self.source.spell("weights", "--rows", rows, "--columns", "0:1")] if rows else [])

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("found", Text("ID", justify="right"), "token")
        self.show_found()
        if self.app.words is None:
            self.run_passes("", [(self._read, self._take)])
            self.tell("reading the vocabulary …")

    def _read(self, _: Watch) -> Words:
        ids = np.arange(self.source.size)
        return Words([*map(shown, tokens_of(ids, self.source.model.encoding))])

    def _take(self, words: Words | EmbcliError) -> None:
        self.app.words = words if isinstance(words, Words) else Words([])
        if self.is_current:
            self.show_found()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.is_current:
            self.show_found()

    def show_found(self) -> None:
        """List the tokens of the text as it is now, and words like it."""
        encoding, text = self.source.model.encoding, self.query_one(Input).value
        self.text, self.error, ids = text, "", np.empty(0, np.int64)
        try:
            ids = encoding.encode(text).astype(np.int64)[:_MOST_TOKENS] if encoding and text else ids
        except EmbcliError as error:  # a word that a file of vectors does not have
            self.error = sentence(error)
        words = self.app.words or Words([])
        like = next((found for part in (text, *text.split()[-1:]) if len(found := words.find(part))), ids[:0])
        self.ids, self.like = np.concatenate([ids, like]), like.tolist()
        table = self.query_one(DataTable)
        table.clear()
        kinds = [f"token {place}" for place in range(len(ids))] + ["word"] * len(like)
        for kind, row, token in zip(kinds, self.ids.tolist(), tokens_of(self.ids, encoding), strict=True):
            cell = Text(shown(token))
            cell.truncate(_TOKEN, overflow="ellipsis")
            table.add_row(kind, Text(str(row), justify="right"), cell)
        self.tell()

    def action_move(self, how: str) -> None:
        getattr(self.query_one(DataTable), f"action_{how}")()

    async def action_open(self) -> None:
        if self.query_one(Input).value != self.text:
            self.show_found()
        if not len(self.ids):
            return
        row = int(self.ids[self.query_one(DataTable).cursor_row])
        if row >= self.source.size:
            raise InputError(f"ID {row} has no row: there are {self.source.size:,}, from ID 0 on")
        self.app.pop_screen()
        await self.app.show(row)

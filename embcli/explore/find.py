"""Finding rows: the tokens of a text while it is typed, and words that contain it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import Input

from embcli.errors import EmbcliError, Watch
from embcli.explore.explored import TOP, ExploredMatrix, fitted
from embcli.explore.view import ExplorerScreen, ListTable, right
from embcli.tokens import shown, tokens_of

_TOKEN_CELLS = 40
_MOST_TOKENS = 1000  # of a text that are listed
_SPACE = shown(b" ")


class SearchField(Input):
    """The text to find, whose keys up and down move in the list below it."""

    BINDINGS = [
        ("enter", "submit", "Go to the row"),
        Binding("down", "screen.move('cursor_down')", "Move", key_display="↑ ↓"),
        ("up", "screen.move('cursor_up')"),
        ("pagedown", "screen.move('page_down')"),
        ("pageup", "screen.move('page_up')"),
    ]


class FindScreen(ExplorerScreen):
    """A field for a text, and below it the rows of its tokens and of words that contain it.

    Its result is the row that was chosen.
    """

    AUTO_FOCUS = "#text"

    def __init__(self, matrix: ExploredMatrix, text: str = "") -> None:
        super().__init__(matrix)
        self.text = text  # to begin with
        self.ids: list[int] = []  # the tokens of the text that have a row, then other words

    def body(self) -> ComposeResult:
        yield SearchField(
            self.text,
            "a text, or a part of a word",
            id="text",
            compact=True,
            select_on_focus=False,
        )
        yield ListTable(cursor_type="row")

    def heading(self) -> list[str]:
        return ["Find a row: type a text, or a part of a word", self.matrix.name]

    def commands(self) -> list[str]:
        rows = ",".join(map(str, self.ids))
        if not rows:
            return []
        return [self.matrix.spell("weights", "--rows", rows, "--columns", "0:1")]

    def on_mount(self) -> None:
        table = self.query_one(ListTable)
        table.add_column("found", width=9)
        table.add_column(right("ID"), width=7)
        table.add_column("token", width=_TOKEN_CELLS)
        self.list_rows()
        if not self.app.words:
            self.start("reading words", self._read_words)

    def _read_words(self, _: Watch) -> list[str]:
        """Return the tokens of the vocabulary as words, without spaces in front and capitals."""
        tokens = tokens_of(np.arange(self.matrix.size), self.matrix.model.encoding)
        words = [shown(token) for token in tokens]
        return [(word.lstrip(_SPACE) or word).lower() for word in words]

    def finished(self, name: str, result: list[str]) -> None:
        self.app.words = result
        self.list_rows()

    @on(Input.Changed, "#text")
    def list_rows(self) -> None:
        """List the tokens of the text and the words that contain its last word.

        A part of a word, which is several tokens, has the cursor at the first word with it.
        """
        text = self.query_one("#text", Input).value
        matrix = self.matrix
        ids = []
        with suppress(EmbcliError):  # a file of vectors does not have the word
            ids = matrix.model.tokens(text).ids[:_MOST_TOKENS].tolist()
        tokens = [(f"token {place}", row) for place, row in enumerate(ids) if row < matrix.size]
        words = [("word", row) for row in containing(self.app.words, text) if row not in ids]
        self.ids = [row for _, row in tokens + words]

        table = self.query_one(ListTable)
        table.clear()
        for kind, row in tokens + words:
            (token,) = tokens_of(np.array([row]), matrix.model.encoding)
            table.add_row(kind, right(str(row)), Text(fitted(shown(token), _TOKEN_CELLS)))
        if words and 1 == len(text.split()) < len(ids):
            table.move_cursor(row=len(tokens))
        self.show_title()

    def action_move(self, movement: str) -> None:
        getattr(self.query_one(ListTable), f"action_{movement}")()

    @on(Input.Submitted, "#text")
    @on(ListTable.RowSelected)
    def go_to_row(self) -> None:
        if not self.ids or not self.is_active:  # a second Enter comes too late
            return
        self.dismiss(self.ids[self.query_one(ListTable).cursor_row])


def containing(words: list[str], text: str) -> list[int]:
    """Return the places of words that contain the last word of a text, the shortest first."""
    *_, last_word = ["", *text.lower().split()]
    if not last_word:
        return []
    found = [place for place, word in enumerate(words) if last_word in word]
    found.sort(key=lambda place: len(words[place]))
    return found[:TOP]

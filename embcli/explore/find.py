"""Finding rows: the tokens of a text while it is typed, and words that contain it."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from embcli.errors import EmbcliError, Watch
from embcli.explore.explored import TOP, ExploredMatrix, fitted
from embcli.explore.view import ExplorerScreen, ListTable, sentence
from embcli.tokens import shown, tokens_of

_TOKEN_CELLS = 40
_SPACE = shown(b" ")


class WordIndex:
    """The tokens of a vocabulary as words, without spaces in front; capitals do not count.

    It is made once, when the first find screen opens, and kept by the app.
    """

    def __init__(self, words: list[str]) -> None:
        self._words = [(word.lstrip(_SPACE) or word).lower() for word in words]
        lengths = np.array([len(word) for word in self._words])
        self._ids = np.argsort(lengths, kind="stable").tolist()  # short words are found first

    def find(self, typed: str) -> np.ndarray:
        """Return the IDs of the words that contain what is typed, the shortest first, (n,) int64.

        The query is spelled as tokens are shown, without spaces around it.
        """
        query = typed.lower().strip(f" {_SPACE}").replace(" ", _SPACE)
        if not query:
            return np.empty(0, np.int64)
        found = (word_id for word_id in self._ids if query in self._words[word_id])
        return np.array(list(islice(found, TOP)), np.int64)


class SearchField(Input):
    """The text to find, whose keys up and down move in the list below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Go to the row"),
        Binding("down", "screen.move('cursor_down')", "Move", key_display="↑ ↓"),
        Binding("up", "screen.move('cursor_up')", show=False),
        Binding("pagedown", "screen.move('page_down')", show=False),
        Binding("pageup", "screen.move('page_up')", show=False),
    ]


class FindScreen(ExplorerScreen):
    """A field for a text, and below it the rows of its tokens and of words that contain it.

    Its result is the row that was chosen.
    """

    AUTO_FOCUS = "#text"

    def __init__(self, matrix: ExploredMatrix, text: str = "") -> None:
        super().__init__(matrix)
        self.text = text
        self.ids = np.empty(0, np.int64)  # the rows in the list: tokens, then words
        self.words: list[int] = []
        self.error = ""  # why the text has no tokens

    def body(self) -> ComposeResult:
        placeholder = "a text, or a part of a word"
        yield SearchField(self.text, placeholder, id="text", compact=True, select_on_focus=False)
        yield ListTable(cursor_type="row", cell_padding=1)

    def heading(self) -> list[str]:
        if self.error:
            return [self.error]
        return ["Find a row: type a text, or a part of a word", self.matrix.name]

    def commands(self) -> list[str]:
        commands = []
        if self.text and not self.error:
            words = ["lookup", "--show", "token", "--columns", "0:1"]
            if self.matrix.origin.is_seeded:
                words = ["tokenize"]
            commands.append(self.matrix.spell(*words, text=self.text))
        if self.words:
            rows = ",".join(map(str, self.words))
            commands.append(self.matrix.spell("weights", "--rows", rows, "--columns", "0:1"))
        return commands

    def on_mount(self) -> None:
        table = self.query_one(ListTable)
        table.add_column("found", width=9)
        table.add_column(Text("ID", justify="right"), width=len(str(self.matrix.size)))
        table.add_column("token", width=_TOKEN_CELLS)
        self.list_rows()
        if self.app.words is None:
            self.start("vocabulary", self._read_words)
            self.show_title("reading the vocabulary …")

    def _read_words(self, _: Watch) -> WordIndex:
        encoding = self.matrix.model.encoding
        size = 0
        if encoding:
            size = min(self.matrix.size, encoding.vocabulary_size)
        return WordIndex([shown(token) for token in tokens_of(np.arange(size), encoding)])

    def finished(self, name: str, result: WordIndex) -> None:
        self.app.words = result
        self.list_rows()

    @on(Input.Changed, "#text")
    def list_rows(self) -> None:
        """List the tokens of the text and the words that contain it."""
        self.text = self.query_one("#text", Input).value
        tokens = self._token_ids()
        words = self._ids_of_words()
        self.ids = np.concatenate([tokens, words])
        self.words = words.tolist()

        kinds = [f"token {position}" for position in range(len(tokens))]
        kinds += ["word"] * len(words)
        bytes_of_rows = tokens_of(self.ids, self.matrix.model.encoding)
        table = self.query_one(ListTable)
        table.clear()
        for kind, row, token in zip(kinds, self.ids.tolist(), bytes_of_rows, strict=True):
            token_cell = Text(fitted(shown(token), _TOKEN_CELLS).rstrip())
            table.add_row(kind, Text(str(row), justify="right"), token_cell)
        self.show_title()

    def _token_ids(self) -> np.ndarray:
        """Return the IDs of the first tokens of the text, (n,) int64, or set `error`."""
        most_tokens = 1000
        encoding = self.matrix.model.encoding
        self.error = ""
        if encoding and self.text:
            try:
                return encoding.encode(self.text).astype(np.int64)[:most_tokens]
            except EmbcliError as error:  # a file of vectors does not have the word
                self.error = sentence(error)
        return np.empty(0, np.int64)

    def _ids_of_words(self) -> np.ndarray:
        """Return the IDs of words with the text or, if there are none, with its last word."""
        found = np.empty(0, np.int64)
        if self.app.words is not None:
            for query in (self.text, *self.text.split()[-1:]):
                found = self.app.words.find(query)
                if len(found):
                    break
        return found

    def action_move(self, movement: str) -> None:
        getattr(self.query_one(ListTable), f"action_{movement}")()

    @on(Input.Submitted, "#text")
    @on(ListTable.RowSelected)
    def go_to_row(self) -> None:
        if not len(self.ids) or not self.is_active:  # a second Enter comes too late
            return
        row = self.ids[self.query_one(ListTable).cursor_row]
        with self.app.errors_as_notes():
            self.dismiss(self.matrix.row_of(str(row)))

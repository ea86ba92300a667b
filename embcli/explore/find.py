"""Finding rows: the tokens of a text while it is typed, and words of the vocabulary like it."""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.fuzzy import FuzzySearch
from textual.widgets import Input

from embcli.errors import EmbcliError, Watch
from embcli.explore.explored import TOP, ExploredMatrix, fitted
from embcli.explore.view import ExplorerScreen, ListTable, sentence
from embcli.tokens import shown, tokens_of

_MOST_TOKENS, _TOKEN = 1000, 40
_MOST_SCORED, _MOST_WAYS = 1000, 5000  # words, and what textual's search tries in one
_SPACE = shown(b" ")


class WordIndex:
    def __init__(self, words: list[str]) -> None:
        bare = [word.lstrip(_SPACE) or word for word in words]
        self._ids = sorted(
            (each for each, word in enumerate(bare) if word), key=lambda each: len(bare[each])
        )
        self._exact = [bare[each] for each in self._ids]
        self._lower = [word.lower() for word in self._exact]
        self._search = FuzzySearch(case_sensitive=True)

    def find(self, typed: str) -> np.ndarray:
        """Return the IDs of the words that match best, (n,) int64; case counts only if a capital is typed."""
        query = (
            typed.encode(errors="replace")
            .decode()
            .replace("\n", " ")
            .strip(f" {_SPACE}")
            .replace(" ", _SPACE)
        )
        if not query:
            return np.empty(0, np.int64)
        words = self._lower if query == query.lower() else self._exact
        in_order = re.compile(
            "".join(f"[^{letter}]*{letter}" for letter in map(re.escape, query))
        ).match
        places = (place for place, word in enumerate(words) if query[0] in word and in_order(word))
        scores = {}
        for place in islice(places, _MOST_SCORED):
            word = words[place]
            is_easy = math.prod(map(word.count, query)) <= _MOST_WAYS
            scores[place] = self._search.match(query, word)[0] if is_easy or query in word else 0.0
        best = sorted(scores, key=lambda place: -scores[place])[:TOP]
        return np.array([self._ids[place] for place in best], np.int64)


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
    AUTO_FOCUS = "#text"

    def __init__(self, matrix: ExploredMatrix, text: str = "") -> None:
        super().__init__(matrix)
        self.text = text
        self.ids = np.empty(0, np.int64)  # of the rows in the list
        self.like: list[int] = []  # those that are words like the text
        self.error = ""  # why the text has no tokens

    def body(self) -> ComposeResult:
        yield SearchField(
            self.text, "a text, or a part of a word", id="text", compact=True, select_on_focus=False
        )
        yield ListTable(cursor_type="row", cell_padding=1)

    def heading(self) -> str:
        return self.error or f"Find a row: type a text, or a part of a word   {self.matrix.name}"

    def commands(self) -> list[str]:
        given = (
            ("tokenize",)
            if self.matrix.origin.is_seeded
            else ("lookup", "--show", "token", "--columns", "0:1")
        )
        tokens = [self.matrix.spell(*given, text=self.text)] if self.text and not self.error else []
        rows = ",".join(map(str, self.like))
        return tokens + (
            [self.matrix.spell("weights", "--rows", rows, "--columns", "0:1")] if rows else []
        )

    def on_mount(self) -> None:
        for name, width in (
            ("found", 9),
            (Text("ID", justify="right"), len(str(self.matrix.size))),
            ("token", _TOKEN),
        ):
            self.query_one(ListTable).add_column(name, width=width)
        self.show_found()
        if self.app.words is None:
            self.run_passes("", [(self._read, self._take)])
            self.tell("reading the vocabulary …")

    def _read(self, _: Watch) -> WordIndex:
        encoding = self.matrix.model.encoding
        ids = np.arange(min(self.matrix.size, encoding.vocabulary_size if encoding else 0))
        return WordIndex([*map(shown, tokens_of(ids, encoding))])

    def _take(self, words: WordIndex) -> None:
        self.app.words = words
        self.show_found()

    @on(Input.Changed, "#text")
    def show_found(self) -> None:
        encoding, text = self.matrix.model.encoding, self.query_one("#text", Input).value
        self.text, self.error, ids = text, "", np.empty(0, np.int64)
        try:
            ids = (
                encoding.encode(text).astype(np.int64)[:_MOST_TOKENS] if encoding and text else ids
            )
        except EmbcliError as error:  # a word that a file of vectors does not have
            self.error = sentence(error)
        words = self.app.words or WordIndex([])
        like = next(
            (found for part in (text, *text.split()[-1:]) if len(found := words.find(part))),
            ids[:0],
        )
        self.ids, self.like = np.concatenate([ids, like]), like.tolist()
        table = self.query_one(ListTable)
        table.clear()
        kinds = [f"token {place}" for place in range(len(ids))] + ["word"] * len(like)
        for kind, row, token in zip(
            kinds, self.ids.tolist(), tokens_of(self.ids, encoding), strict=True
        ):
            table.add_row(
                kind, Text(str(row), justify="right"), Text(fitted(shown(token), _TOKEN).rstrip())
            )
        self.tell()

    def action_move(self, how: str) -> None:
        getattr(self.query_one(ListTable), f"action_{how}")()

    @on(Input.Submitted, "#text")
    @on(ListTable.RowSelected)
    def go_to_row(self) -> None:
        if not len(self.ids) or not self.is_active:  # a second Enter comes too late
            return
        row = int(self.ids[self.query_one(ListTable).cursor_row])
        if row < self.matrix.size:
            self.dismiss(row)
        else:
            self.notify(
                f"ID {row} has no row: there are {self.matrix.size:,}, from ID 0 on",
                severity="error",
            )

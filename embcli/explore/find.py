"""Finding rows: the tokens of a text while it is typed, and the words of the vocabulary that resemble it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.errors import InputError
from embcli.explore.desk import View
from embcli.explore.drawing import BOLD, DIM, Key, Line, Moving, beside, lines_of, new_sheet, text_line, under_cursor
from embcli.explore.field import Field
from embcli.page import Column, Columns
from embcli.page.layout import GAP, shorten
from embcli.tokens import shown

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.fuzzy import Words
    from embcli.explore.jobs import Job
    from embcli.model import Model
    from embcli.tokens import Tokens

    Found = tuple[Tokens, list[bytes | None], np.ndarray]  # tokens, their bytes, and the IDs of words

_TOKEN = 24  # cells
_ABOVE = 2  # lines above the first row of a list


class FindView(View):
    """Two lists that follow what is typed: the tokens of the text, and words like it."""

    KEYS = (
        Key(("up", "down"), "move", "↑ ↓", "move"),
        Key(("tab",), "other", "Tab", "other list", more="move in the other list"),
        Key(("slash", "e", "i"), "edit", "/", "edit", more="edit the text"),
        Key(("enter",), "row", "Enter", "row", more="go to the row"),
    )
    above = _ABOVE

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.lists = [Moving(0), Moving(0)]
        self.which = 0
        self.moving = self.lists[0]
        self._found: Found | None = None  # the last that was found, until there is more
        self._job: Job[Found]
        self._has_words = False  # whether the search looked for words, too
        self.do_edit()
        self._typed(desk.text)

    def title(self) -> tuple[str, str]:
        """Return what to do."""
        return "Find a row: type a text for its tokens, or a part of a word", self.desk.named_source

    def commands(self) -> list[str]:
        """Return the commands of the tokens and of the words."""
        tokens = (
            ("tokenize",) if self.desk.matrix.origin.is_seeded else ("lookup", "--show", "token", "--columns", "0:1")
        )
        commands = [self.desk.spell(*tokens, text=self.desk.text)]
        places = self.lists[1].fit(self.lists[1].height)
        if self._found is not None and len(places):
            rows = ",".join(map(str, self._found[2][places.start : places.stop].tolist()))
            commands.append(self.desk.spell("weights", "--rows", rows, "--columns", "0:1"))
        return commands

    def lines(self, width: int, height: int) -> list[Line]:
        """Return both lists."""
        if self.desk.words.found is not None and not self._has_words:
            self._typed(self.desk.text)
        if self._job.error is not None:
            raise self._job.error
        self._found = self._job.found or self._found
        if self._found is None:
            return []
        tokens, pieces, words = self._found
        half = (width - 3) // 2
        ids = [np.asarray(tokens.ids), words]
        texts = [pieces, self.desk.matrix.tokens(words)]
        parts = [self._list(number, ids[number], texts[number], half, height) for number in (0, 1)]
        return beside(parts[0], parts[1], half)

    def _list(self, number: int, ids: np.ndarray, texts: list[bytes | None], width: int, height: int) -> list[Line]:
        moving = self.lists[number]
        moving.count = len(ids)
        places = moving.fit(height - _ABOVE)
        name = ("token of the text", "word like it")[number]
        if not len(ids):
            waiting = number == 1 and self.desk.text and not self.desk.words.done
            return [text_line(name, BOLD), text_line("reading the vocabulary …" if waiting else "none", DIM)]
        last = len(str(self.desk.matrix.layer.shape[0] - 1))
        room = min(max(width - last - 2 * GAP - max(len(str(len(ids))), len("pos")), 6), _TOKEN)
        here = slice(places.start, places.stop)
        columns: Columns = [
            Column(shorten(name, room), [shorten(shown(text), room) for text in texts[here]], "left", minimum=room),
            Column("ID", list(map(str, ids[here].tolist())), minimum=last),
        ]
        if number == 0:
            columns.insert(0, Column("pos", list(map(str, places)), tone="dim"))
        page = new_sheet(width, self.desk.color)
        page.table(columns)
        lines = lines_of(page)
        if number == self.which:
            at = _ABOVE + moving.at - places.start
            lines[at] = under_cursor(lines[at], width)
        return lines

    # --- keys -------------------------------------------------------------------------------------------------------

    def do_edit(self) -> None:
        """Type the text."""
        entered, left = lambda _: self.do_row(), self.desk.back
        self.desk.field = Field("find", self.desk.text, entered, self._typed, left, "Every effort moves you")

    def do_other(self) -> None:
        """Move in the other list."""
        self.which = 1 - self.which
        self.moving = self.lists[self.which]

    def do_row(self) -> None:
        """Go to the row in the matrix."""
        if self._found is None:
            return
        ids = (self._found[0].ids, self._found[2])[self.which]
        if len(ids):
            row = int(ids[min(self.moving.at, len(ids) - 1)])
            if row >= len(self.desk.model):
                raise InputError(f"ID {row} has no row: there are {len(self.desk.model):,}, from ID 0 on")
            self.desk.back()
            self.desk.view.go_to(row, None)
        else:
            self.do_edit()

    def _typed(self, text: str) -> None:
        """Tokenize the text, and look for words like it, which takes the vocabulary's words, once they are read."""
        self.leave()
        self.desk.text, words = text, self.desk.words.found
        self._has_words = words is not None
        self._job = self.desk.start(lambda model: _found(model, text, words))
        self.jobs = [self._job]


def _found(model: Model, text: str, words: Words | None) -> Found:
    """Return the tokens of a text with their bytes, and the IDs of words like it."""
    tokens = model.tokens(text, around=False)
    like = np.empty(0, np.int64)
    for part in (text, *text.split()[-1:]):  # of several words, those like the last one
        if words is not None and not len(like):
            like = words.find(part)
    return tokens, tokens.bytes_at(np.arange(len(tokens))), like

"""Finding rows: the tokens of a text while it is typed, and the words of the vocabulary that resemble it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embcli.errors import EmbcliError, InputError
from embcli.explore.desk import View
from embcli.explore.drawing import (
    BOLD,
    DIM,
    Key,
    Line,
    Moving,
    beside,
    folded,
    lines_of,
    new_sheet,
    text_line,
    under_cursor,
)
from embcli.explore.field import Field
from embcli.oldpage import Column, Columns
from embcli.oldpage.layout import GAP, shorten
from embcli.oldpage.lines import Look
from embcli.tokens import shown

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.fuzzy import Words
    from embcli.explore.jobs import Job
    from embcli.model import Model

_TOKEN = 24  # cells
_ABOVE = 2  # lines above the first row of a list


@dataclass(frozen=True, eq=False)
class _Found:
    """The tokens of a text, or why it has none, and words like it."""

    ids: np.ndarray  # (T,) of the tokens
    pieces: list[bytes | None]  # their bytes
    words: np.ndarray  # (n,) int64, IDs
    error: EmbcliError | None = None

    @classmethod
    def of(cls, model: Model, text: str, words: Words | None) -> _Found:
        """Look for both; of several words, for those like the last one."""
        like = np.empty(0, np.int64)
        for part in (text, *text.split()[-1:]):
            if words is not None and not len(like):
                like = words.find(part)
        try:
            tokens = model.tokens(text, around=False)
        except InputError as error:  # a word that a file of vectors does not have
            return cls(like[:0], [], like, error)
        return cls(tokens.ids, tokens.bytes_at(np.arange(len(tokens))), like)


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
        self._found: _Found | None = None  # the last that was found, until there is more
        self._job: Job[_Found]
        self._has_words = False  # whether the search looked for words, too
        self._text_before = desk.text
        self.do_edit(selected=True)
        self._typed(desk.text)

    def title(self) -> tuple[str, str]:
        """Return what to do."""
        return "Find a row: type a text, or a part of a word", self.desk.named_source

    def commands(self) -> list[str]:
        """Return the commands of the tokens and of the words."""
        tokens = (
            ("tokenize",) if self.desk.matrix.origin.is_seeded else ("lookup", "--show", "token", "--columns", "0:1")
        )
        places, found = self.lists[1].fit(self.lists[1].height), self._found
        commands = [] if found and found.error and places else [self.desk.spell(*tokens, text=self.desk.text)]
        if found is not None and len(places):
            rows = ",".join(map(str, found.words[places.start : places.stop].tolist()))
            commands.append(self.desk.spell("weights", "--rows", rows, "--columns", "0:1"))
        return commands

    def lines(self, width: int, height: int) -> list[Line]:
        """Return both lists."""
        if self.desk.words.found is not None and not self._has_words:
            self._typed(self.desk.text)
        if self._job.error is not None:
            raise self._job.error
        found = self._found = self._job.found or self._found
        if found is None:
            return []
        for moving, ids in zip(self.lists, (found.ids, found.words), strict=True):
            moving.count = len(ids)
        self.moving, half = self.lists[self._current], (width - 3) // 2
        words = self._list(1, found.words, self.desk.matrix.tokens(found.words), half, height)
        tokens = self._list(0, found.ids, found.pieces, half, height)
        if found.error is not None:
            tokens[1:] = [text_line(line, Look("bad")) for line in folded(self.desk.words_of(found.error), half)]
        return beside(tokens, words, half)

    @property
    def _current(self) -> int:
        """The list that keys move through: the chosen one, or the other if that is empty."""
        is_empty = [not moving.count for moving in self.lists]
        return 1 - self.which if is_empty[self.which] and not is_empty[1 - self.which] else self.which

    def _list(self, number: int, ids: np.ndarray, texts: list[bytes | None], width: int, height: int) -> list[Line]:
        moving = self.lists[number]
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
        if number == self._current:
            at = _ABOVE + moving.at - places.start
            lines[at] = under_cursor(lines[at], width)
        return lines

    # --- keys -------------------------------------------------------------------------------------------------------

    def do_edit(self, selected: bool = False) -> None:
        """Type the text, or another in its place."""
        self.desk.field = Field(
            *("find", self.desk.text, lambda _: self.do_row(), self._typed, self._cancel, "Every effort moves you"),
            is_selected=selected,
        )

    def _cancel(self) -> None:
        """Go back to the screen before, with the text that it had."""
        self.desk.text = self._text_before
        self.desk.back()

    def do_other(self) -> None:
        """Move in the other list."""
        self.which = 1 - self._current
        self.moving = self.lists[self.which]

    def do_row(self) -> None:
        """Go to the row in the matrix."""
        if self._found is None:
            return
        ids = (self._found.ids, self._found.words)[self._current]
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
        self._job = self.desk.start(lambda model: _Found.of(model, text, words))
        self.jobs = [self._job]

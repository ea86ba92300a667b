"""What all screens share: the model, the marked row, the text, the stack of screens, and the frame around each."""

from __future__ import annotations

from functools import cached_property, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from embcli.errors import EmbcliError, InputError
from embcli.explore.drawing import BOLD, DIM, MOVES, Key, Line, Moving, cut, folded, length, text_line
from embcli.explore.field import Field
from embcli.explore.fuzzy import Words
from embcli.explore.jobs import Job, Keys
from embcli.explore.picture import saved
from embcli.oldpage.layout import cell_len, shorten
from embcli.oldpage.lines import Look, Piece
from embcli.safe import in_line
from embcli.selection import select
from embcli.tokens import shown
from embcli.words import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.model import Model
    from embcli.oldpage.lines import Color
    from embcli.statistics import NormOrder
    from embcli.verbs.weights import WeightMatrix

Found = TypeVar("Found")
_MOST_SCREENS = 100  # that one can go back to
FRAME = 3  # lines around a screen: the title, the command, the keys
_ACCENT: Color = "cold"
# What errors name and explore has no option for: how a screen calls it.
_WORDS = {"rows": "go to", "ids": "IDs", "metric": "metric", "max_length": "window"}


class Spell(Protocol):
    """A function that writes command lines of this model."""

    def __call__(self, verb: str, *words: str, text: str | None = None, piped: str | None = None) -> str:
        """Return the line of a verb with more words, and perhaps with a text as its argument or piped into it."""


class View:
    """A screen: `press` does what a key does, `lines` draws what there is now."""

    KEYS: ClassVar[tuple[Key, ...]] = ()
    above = 0  # lines above the list that keys move through
    has_list = True  # whether they move through a list, and not only scroll

    def __init__(self, desk: Desk, count: int = 0, at: int = 0) -> None:
        self.desk = desk
        self.moving = Moving(count, at)
        self.jobs: list[Job[Any]] = []  # that run for this screen alone

    def title(self) -> tuple[str, str]:
        """Return what is written at the left and at the right end of the first line."""
        raise NotImplementedError

    def lines(self, width: int, height: int) -> list[Line]:
        """Return at most `height` lines of `width` cells; raises EmbcliError for what cannot be read."""
        raise NotImplementedError

    def commands(self) -> list[str]:
        """Return the command lines that print what is on the screen."""
        raise NotImplementedError

    def press(self, name: str) -> bool:
        """Move, or do what a key does here; return whether it does anything."""
        if self.moving.press(name):
            return True
        for key in self.KEYS:
            if name in key.names:
                getattr(self, f"do_{key.action}")()
                return True
        return False

    def scroll(self, lines: int) -> None:
        """Move by so many lines, as the wheel of a mouse does."""
        (self.moving.scroll if self.has_list else self.moving.by)(lines)

    def click(self, x: int, y: int) -> None:
        """Move to the line of a click in a list; a click on the current line is Enter."""
        place = self.moving.top + y - self.above
        if self.has_list and self.moving.top <= place < min(self.moving.top + self.moving.height, self.moving.count):
            if place == self.moving.at:
                self.press("enter")
            self.moving.at = place

    def scrolled(self, lines: list[Line], height: int) -> list[Line]:
        """Return the lines from the one on that keys have moved to."""
        self.moving.count, self.moving.height = max(len(lines) - height + 1, 1), height
        self.moving.by(0)
        return lines[self.moving.at : self.moving.at + height]

    def go_to(self, row: int | None, column: int | None) -> None:
        """Show a row of the matrix, and a column at the left."""
        if row is not None:
            self.desk.open("row", row)

    def cover(self) -> None:
        """Cancel what nobody waits for while another screen is on top."""

    def leave(self) -> None:
        """Cancel what still runs for this screen."""
        for job in self.jobs:
            job.cancel()


class Desk:
    """The stack of screens over one model, and what they share."""

    def __init__(
        self,
        model: Model,
        matrix: WeightMatrix,
        spell: Spell,
        named: Callable[[str], str],
        color: bool,
        screens: dict[str, type[View]],
        text: str = "",
    ) -> None:
        self.model, self.matrix, self.spell, self.named, self.color = model, matrix, spell, named, color
        self.text = text  # that is tokenized, looked up, batched
        self.marked: int | None = None  # the ID of a row
        self.screens = screens
        self.stack: list[View] = []
        self.field: Field | None = None
        self._turn, self._keys_pressed, self._jobs = Lock(), Keys(), list[Job[Any]]()
        self.said = ""  # in place of the keys, until the next key
        self.ended = False
        self.changed: Callable[[], None] = lambda: None  # draws anew; may be called by any thread
        self.copy: Callable[[str], None] = lambda text: None  # to the clipboard
        self.size = 80, 24

    @property
    def view(self) -> View:
        """The screen on top."""
        return self.stack[-1]

    @property
    def named_source(self) -> str:
        """Where the rows are from, and that those of a seed are untrained."""
        origin = self.matrix.origin
        return f"untrained, {origin.name}" if origin.is_seeded else origin.name

    def open(self, name: str, *arguments: Any) -> None:
        """Put a screen on top, by its name; the oldest ones are forgotten, except the first."""
        self.field = None
        if self.stack:
            self.view.cover()
        self.stack.append(self.screens[name](self, *arguments))
        for view in self.stack[1:-_MOST_SCREENS]:
            view.leave()
        del self.stack[1:-_MOST_SCREENS]

    def token_of(self, row: int) -> str:
        """Return the token of a row, as pages show it; empty for a row without one."""
        return shown(self.matrix.tokens(np.array([row]))[0])

    @cached_property
    def words(self) -> Job[Words]:
        """The words of the vocabulary: read once, for all screens."""
        encoding, rows = self.matrix.encoding, len(self.model)
        return self.start(lambda _: Words.of(encoding, rows) if encoding else Words([]))

    @cached_property
    def norms(self) -> Job[NormOrder | None]:
        """The norms and ranks of all rows: a pass that runs once, for all screens."""
        return self.start(lambda model: model.weights(sort="norm").order)

    def back(self) -> bool:
        """Go back to the screen before; return whether there is one."""
        self.field = None
        if len(self.stack) == 1:
            return False
        self.stack.pop().leave()
        return True

    def start(self, work: Callable[[Model], Found], in_turn: bool = False) -> Job[Found]:
        """Run work on the model in the background, perhaps only when other such work has ended."""
        job = Job(self.model, work, lambda: self.changed(), self._keys_pressed, self._turn if in_turn else None)
        self._jobs = [*(each for each in self._jobs if not each.done or each.failure), job]
        return job

    @property
    def norms_if_done(self) -> NormOrder | None:
        """The norms and ranks of all rows, if a pass has found them."""
        job = vars(self).get("norms")
        return job.found if job is not None else None

    def words_of(self, error: EmbcliError) -> str:
        """Return an error as a sentence."""
        return "; ".join(filter(None, (spelled(str(error), error.parameters, self._name_of), error.hint)))

    def _name_of(self, parameter: str) -> str:
        return _WORDS.get(parameter) or self.named(parameter)

    # --- keys -------------------------------------------------------------------------------------------------------

    def press(self, name: str, character: str | None = None) -> None:
        """Do what a key does."""
        self._try(lambda: self._press(name, character))

    def paste(self, text: str) -> None:
        """Insert a text where one is typed."""
        if self.field is not None:
            self._try(partial(self.field.paste, text))

    def click(self, x: int, y: int) -> None:
        """Do what a click does."""
        if 0 < y < self.size[1] - FRAME + 1:
            self._try(lambda: self.view.click(x, y - 1))

    def _try(self, action: Callable[[], None]) -> None:
        """Do something; what cannot be done is said in the last line."""
        self.said = ""
        self._keys_pressed.pressed()
        try:
            action()
        except EmbcliError as error:
            self.said = self.words_of(error)

    def _press(self, name: str, character: str | None) -> None:
        field = self.field
        if field is not None:
            if name == "enter":
                self.field = None
                field.entered(field.text)
            elif name == "escape":
                self.field = None
                field.left()
            elif not field.press(name, character):
                self.view.press(name)
        elif not self.view.press(name):
            for key in KEYS:
                if name in key.names:
                    getattr(self, f"do_{key.action}")()

    def _lack(self, screen: str) -> str | None:
        """Return what this model lacks for a screen."""
        if screen in ("find", "lookup", "batch") and self.model.encoding is None:
            return "these rows have no tokens: g goes to a row by its ID; --encoding names an encoding"
        if screen == "batch" and not self.matrix.origin.is_seeded:
            return "batches need seeded layers; these are from a file"
        return None

    def possible(self, keys: tuple[Key, ...]) -> list[Key]:
        """Return those of these keys that do something for this model."""
        return [key for key in keys if self._lack(key.action) is None]

    def do_quit(self) -> None:
        """Leave."""
        self.ended = True

    def do_back(self) -> None:
        """Go back to the screen before."""
        if not self.back():
            self.said = "This is the first screen; q quits."

    def do_keys(self) -> None:
        """Show all keys."""
        self.open("keys", self.view)

    def do_find(self) -> None:
        """Type a text, and see its tokens."""
        self._open_other("find")

    def do_whole(self) -> None:
        """Show the whole matrix."""
        self._open_other("whole")

    def do_lookup(self) -> None:
        """Look up the text."""
        self._open_other("lookup")

    def do_batch(self) -> None:
        """Show batches of the text."""
        self._open_other("batch")

    def _open_other(self, name: str) -> None:
        """Put a screen on top, unless it is there already; raises InputError if the model lacks something for it."""
        lack = self._lack(name)
        if lack is not None:
            raise InputError(lack)
        if not isinstance(self.view, self.screens[name]):
            self.open(name)

    def do_jump(self) -> None:
        """Ask for a row, by its ID or token, and perhaps a column."""
        self.field = Field("go to", "", self._jump, example="a row, a token, or row,column")

    def _jump(self, text: str) -> None:
        row, _, column = text.partition(",")
        at = self._column_of(column.strip()) if column.strip() else None
        self.view.go_to(self.row_of(row) if row.strip() else None, at)

    def _column_of(self, text: str) -> int:
        dim = self.model.shape[1]
        if not (text.isascii() and text.isdigit() and int(text[:18]) < dim):
            raise InputError(f"column {text[:20]!r} is out of range: columns go from 0 to {dim - 1}")
        return int(text)

    def do_copy(self) -> None:
        """Copy the commands."""
        self.copy("\n".join(self.view.commands()))
        self.said = "Copied, if the terminal allows it (OSC 52)."

    def do_picture(self) -> None:
        """Save the screen."""
        self.said = f"Saved {saved(self.frame(*self.size))}"

    def row_of(self, text: str) -> int:
        """Return the ID of a row that is named by its ID or its token; raises InputError if it does not exist."""
        number = (self.model.numbered(text) or "").strip()
        if not (number.isascii() and number.isdigit()):
            named = "ID" if self.matrix.encoding is None else "ID or its token"
            raise InputError(f"{text[:40]!r} is not a row; give its {named}")
        return int(select(number, len(self.model), "row")[0])

    def mark(self, row: int) -> None:
        """Mark a row, or take its mark away."""
        self.marked = None if self.marked == row else row

    def compare(self, row: int) -> None:
        """Compare a row with the marked one; raises InputError if there is none."""
        if self.marked in (None, row):
            raise InputError("Space marks a row; then c on another row compares the two")
        self.open("pair", self.marked, row)

    # --- the frame --------------------------------------------------------------------------------------------------

    def frame(self, width: int, height: int) -> list[Line]:
        """Return all lines of the terminal: the screen on top between its title and its command and keys."""
        self.size = width, height
        for job in self._jobs:
            if job.failure is not None:
                raise job.failure
        typed = [] if self.field is None else [self.field.line(width)]
        room = max(height - FRAME - len(typed), 1)
        try:
            body = self.view.lines(width, room)[:room]
        except EmbcliError as error:
            body = [[], *([Piece(f" {part}", Look("bad"))] for part in folded(self.words_of(error), width - 2))]
        body = [*body[:room], *([[]] * (room - len(body)))]
        below = [*typed, self._command(width), self._keys(width)]  # what they say follows from the body
        return [cut(line, width) for line in [self._title(width), *body, *below][:height]]

    def _title(self, width: int) -> Line:
        left, right = (in_line(each) for each in self.view.title())
        right = shorten(right, max(width - cell_len(left) - 4, width // 4, 1)) if right else ""
        left = shorten(left, max(width - len(right) - 4, 1))
        line = [Piece(f" {left}", BOLD)]
        return [*line, Piece(" " * max(width - length(line) - length([Piece(right)]) - 1, 1)), Piece(right, DIM)]

    def _command(self, width: int) -> Line:
        command = shorten(in_line("; ".join(self.view.commands())), max(width - 4, 1))
        return [Piece(" $ ", DIM), Piece(command, Look(_ACCENT))]

    def _keys(self, width: int) -> Line:
        if self.said:
            return text_line(f" {shorten(in_line(self.said), max(width - 2, 1))}", Look("warm"))
        line: Line = []
        ends = {"Enter": "go", "Esc": "cancel"} if self.field is not None else {"?": "keys", "q": "quit"}
        if self.field is None and len(self.stack) > 1:
            ends = {"Esc": "back", **ends}
        end = [piece for key, words in ends.items() for piece in (Piece(f"  {key}", BOLD), Piece(f" {words}", DIM))]
        for key in [*self.view.KEYS, *self.possible(FOOTER)]:
            if not key.in_footer or (self.field is not None and key.action not in ("move", "other")):
                continue
            more = [Piece(f"  {key.shown}" if line else f" {key.shown}", BOLD), Piece(f" {key.words}", DIM)]
            if length(line) + length(more) + length(end) >= width:
                break
            line += more
        return line + end


KEYS = (
    Key(("q",), "quit", "q", "quit, and print the command"),
    Key(("escape", "backspace"), "back", "Esc Backspace", "back"),
    Key(("question_mark",), "keys", "?", "all keys"),
    Key(("slash",), "find", "/", "find: type a text, and see its tokens; or a part of a word"),
    Key(("g", "colon"), "jump", "g :", "go to a row, by its ID or token, and a column: 6109,447"),
    Key(("m",), "whole", "m", "the whole matrix: its map, norms and findings"),
    Key(("l",), "lookup", "l", "lookup: token + position = input for a text"),
    Key(("b",), "batch", "b", "batches of a text"),
    Key(("y",), "copy", "y", "copy the command"),
    Key(("Y",), "picture", "Y", "save the screen as SVG"),
)
# Of these the last line names some, shorter.
FOOTER = (
    Key(("slash",), "find", "/", "find"),
    Key(("g", "colon"), "jump", "g", "go"),
    Key(("m",), "whole", "m", "map"),
    Key(("l",), "lookup", "l", "lookup"),
    Key(("b",), "batch", "b", "batch"),
)


class KeysView(View):
    """All keys of a screen."""

    KEYS = MOVES[:1]
    has_list = False

    def __init__(self, desk: Desk, of: View) -> None:
        super().__init__(desk)
        self.of = of

    def title(self) -> tuple[str, str]:
        """Return that these are keys."""
        return "Keys", "Esc goes back"

    def commands(self) -> list[str]:
        """Return the commands of the screen below."""
        return self.of.commands()

    def lines(self, width: int, height: int) -> list[Line]:
        """Return a line for each key."""
        own = [key for key in self.of.KEYS if key.shown]
        taken = {name for key in own for name in key.names}
        keys = [*own, *(key for key in self.desk.possible(KEYS) if not {*key.names} & taken)]
        column = max(cell_len(key.shown) for key in keys) + 2
        rows = [[Piece(f" {key.shown}{' ' * (column - cell_len(key.shown))}", BOLD), Piece(key.long)] for key in keys]
        return self.scrolled(rows, height)

"""What all screens share: the model, the marked row, the text, the stack of screens, and the frame around each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from embcli.errors import EmbcliError, InputError
from embcli.explore.jobs import Job
from embcli.explore.view import BOLD, DIM, Key, Line, View, beside, cut, length, text_line
from embcli.page.layout import cell_len, shorten
from embcli.page.lines import Look, Piece
from embcli.safe import in_line
from embcli.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.explore.field import Field
    from embcli.model import Model
    from embcli.page.lines import Color
    from embcli.verbs.weights import WeightMatrix

Found = TypeVar("Found")
FRAME = 3  # lines around a screen: the title, the command, the keys
_ACCENT: Color = "cold"


class Spell(Protocol):
    """A function that writes command lines of this model."""

    def __call__(self, verb: str, *words: str, text: str | None = None) -> str:
        """Return the line of a verb with more words, and perhaps with a text as its argument."""


class Desk:
    """The stack of screens over one model, and what they share."""

    def __init__(
        self,
        model: Model,
        matrix: WeightMatrix,
        spell: Spell,
        named: Callable[[str], str],
        color: bool,
        text: str = "",
    ) -> None:
        self.model, self.matrix, self.spell, self.named, self.color = model, matrix, spell, named, color
        self.text = text  # that is tokenized, looked up, batched
        self.marked: int | None = None  # the ID of a row
        self.stack: list[View] = []
        self.field: Field | None = None
        self.said = ""  # in place of the keys, until the next key
        self.ended = False
        self.changed: Callable[[], None] = lambda: None  # draws anew; may be called by any thread
        self.copy: Callable[[str], None] = lambda text: None  # to the clipboard
        self.picture: Callable[[], str] = lambda: ""  # saves the screen, and returns the name of the file
        self.size = 80, 24

    @property
    def view(self) -> View:
        """The screen on top."""
        return self.stack[-1]

    def open(self, view: View) -> None:
        """Put a screen on top."""
        self.stack.append(view)
        self.field = None

    def back(self) -> bool:
        """Go back to the screen before; return whether there is one."""
        self.field = None
        if len(self.stack) == 1:
            return False
        self.stack.pop().leave()
        return True

    def start(self, work: Callable[[Model], Found]) -> Job[Found]:
        """Run work on the model in the background."""
        return Job(self.model, work, lambda: self.changed())

    def words_of(self, error: EmbcliError) -> str:
        """Return an error as a sentence."""
        return " ".join(filter(None, (each.spelled(self.named) for each in error.sentences)))

    # --- keys -------------------------------------------------------------------------------------------------------

    def press(self, name: str, character: str | None = None) -> None:
        """Do what a key does."""
        self.said = ""
        try:
            self._press(name, character)
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
                self.view.press("leave")
            elif not field.press(name, character):
                self.view.press(name)
        elif not self.view.press(name):
            for key in KEYS:
                if name in key.names:
                    getattr(self, f"do_{key.action}")()

    def do_quit(self) -> None:
        """Leave."""
        self.ended = True

    def do_back(self) -> None:
        """Go back to the screen before."""
        if not self.back():
            self.said = "This is the first screen; q quits."

    def do_keys(self) -> None:
        """Show all keys."""
        self.open(KeysView(self, self.view))

    def do_copy(self) -> None:
        """Copy the commands."""
        self.copy("\n".join(self.view.commands()))
        self.said = "Copied, if the terminal allows it (OSC 52)."

    def do_picture(self) -> None:
        """Save the screen."""
        self.said = f"Saved {self.picture()}"

    def click(self, x: int, y: int) -> None:
        """Do what a click does."""
        if 0 < y < self.size[1] - FRAME + 1:
            self.view.click(x, y - 1)

    def row_of(self, text: str) -> int:
        """Return the ID of a row that is named by its ID or its token; raises InputError for no or several rows."""
        rows = select(self.model.numbered(text.strip()), len(self.model), "row")
        if len(rows) != 1:
            raise InputError(f"{text.strip()[:40]!r} is {len(rows):,} rows; give one")
        return int(rows[0])

    # --- the frame --------------------------------------------------------------------------------------------------

    def frame(self, width: int, height: int) -> list[Line]:
        """Return all lines of the terminal: the screen on top between its title and its command and keys."""
        self.size = width, height
        below = [self._command(width), self._keys(width)]
        if self.field is not None:
            below.insert(0, self.field.line(width))
        room = max(height - 1 - len(below), 1)
        try:
            body = self.view.lines(width, room)[:room]
        except EmbcliError as error:
            body = [[], *([Piece(f" {part}", Look("bad"))] for part in _folded(self.words_of(error), width - 2))]
        body = [*body[:room], *([[]] * (room - len(body)))]
        return [cut(line, width) for line in [self._title(width), *body, *below][:height]]

    def _title(self, width: int) -> Line:
        left, right = (in_line(each) for each in self.view.title())
        right = shorten(right, max(width // 2, 1)) if right else ""
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
        end = [Piece("  ?", BOLD), Piece(" keys", DIM), Piece("  q", BOLD), Piece(" quit", DIM)]
        if self.field is not None:
            end = [Piece("  Enter", BOLD), Piece(" goes", DIM), Piece("  Esc", BOLD), Piece(" leaves", DIM)]
        for key in self.view.KEYS:
            if not key.in_footer or (self.field is not None and key.action != "move"):
                continue
            more = [Piece(f"  {key.shown}" if line else f" {key.shown}", BOLD), Piece(f" {key.words}", DIM)]
            if length(line) + length(more) + length(end) >= width:
                break
            line += more
        return line + end


def _folded(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(in_line(text), max(width, 1))


KEYS = (
    Key(("q",), "quit", "q", "quit, and print the command"),
    Key(("escape", "backspace"), "back", "Esc Backspace", "back"),
    Key(("question_mark",), "keys", "?", "all keys"),
    Key(("y",), "copy", "y", "copy the command"),
    Key(("Y",), "picture", "Y", "save the screen as SVG"),
)


class KeysView(View):
    """All keys of a screen."""

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
        """Return a line for each key, in two columns if one is too long."""
        keys = [*self.of.KEYS, *KEYS]
        column = max(cell_len(key.shown) for key in keys) + 2
        rows = [[Piece(f" {key.shown}{' ' * (column - cell_len(key.shown))}", BOLD), Piece(key.long)] for key in keys]
        if len(rows) > height:
            half = -(-len(rows) // 2)
            return beside(rows[:half], rows[half:], width // 2)
        return rows

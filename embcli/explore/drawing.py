"""What screens are drawn with: lines of pieces, a place that keys move, a sheet for tables."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from embcli.oldpage import Paper
from embcli.oldpage.layout import cell_len, shorten
from embcli.oldpage.lines import Look, Piece
from embcli.result import new_page
from embcli.safe import in_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embcli.oldpage import Page

Line = list[Piece]
PLAIN, BOLD, DIM, CURSOR = Look(), Look(bold=True), Look(dim=True), Look(reverse=True)


@dataclass(frozen=True)
class Key:
    """Keys that do the same: their names are those of textual, `shown` is how a person calls them.

    The list of keys has no line for a key that is not shown: another line names it, too.
    """

    names: tuple[str, ...]
    action: str  # a method of the view, without its prefix
    shown: str
    words: str  # what it does, short enough for the last line
    in_footer: bool = True
    more: str = ""  # what it does, at more length

    @property
    def long(self) -> str:
        """What it does, for the list of keys."""
        return self.more or self.words


class Moving:
    """A place in a list that keys move, and the first place on the screen."""

    def __init__(self, count: int, at: int = 0) -> None:
        self.count, self.at, self.top, self.height = count, at, max(at - 3, 0), 1

    def fit(self, height: int) -> range:
        """Return the places on a screen of so many lines, among them the current one."""
        self.height = max(height, 1)
        self.at = min(max(self.at, 0), max(self.count - 1, 0))
        self.top = min(max(self.top, self.at - self.height + 1, 0), self.at, max(self.count - self.height, 0))
        return range(self.top, min(self.top + self.height, self.count))

    def by(self, lines: int) -> None:
        """Move; a move by a page takes the screen along."""
        self.at = min(max(self.at + lines, 0), max(self.count - 1, 0))
        if abs(lines) > 1:
            self.top = min(max(self.top + lines, 0), max(self.count - self.height, 0))

    def scroll(self, lines: int) -> None:
        """Move the screen, and the place only as far as it must."""
        self.top = min(max(self.top + lines, 0), max(self.count - self.height, 0))
        self.at = min(max(self.at, self.top), self.top + self.height - 1)

    def press(self, name: str) -> bool:
        """Move as a key does in less and vi; return whether it is one of these keys."""
        half = max(self.height // 2, 1)
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "ctrl+d": half, "ctrl+u": -half}
        steps |= dict.fromkeys(("pagedown", "ctrl+f"), self.height) | dict.fromkeys(("pageup", "ctrl+b"), -self.height)
        steps |= {"home": -self.count, "end": self.count, "G": self.count}
        if name in steps:
            self.by(steps[name])
        return name in steps


MOVES = (
    Key(("down", "j", "up", "k"), "move", "↑ ↓ j k", "move", False),
    Key(("pagedown", "ctrl+f", "pageup", "ctrl+b"), "move", "PgUp PgDn", "a page; Ctrl-D Ctrl-U half of one", False),
    Key(("home", "end", "G"), "move", "Home End G", "the first and the last", False),
)


def new_sheet(
    width: int, color: bool, screen: int | None = None, heat: bool = False, scale: float | None = None
) -> Page:
    """Return an empty page of the terminal's kind."""
    return new_page("table", Paper(width=max(width, 1), screen=screen, color=color, heat=heat, scale=scale))


def lines_of(page: Page) -> list[Line]:
    """Return the lines of such a page."""
    rows: list[Line] = page.rows()  # type: ignore[attr-defined]  # a Sheet
    return rows


def length(line: Sequence[Piece]) -> int:
    """Return the number of cells of a line."""
    return cell_len("".join(piece.text for piece in line))


def cut(line: Line, width: int) -> Line:
    """Return the line in exactly so many cells."""
    short = width - length(line)
    if short >= 0:
        return [*line, Piece(" " * short)] if short else line
    kept, left = [], width
    for piece in line:
        text = piece.text
        while cell_len(text) > left:
            text = text[: min(len(text) - 1, left)]
        kept.append(Piece(text, piece.look))
        left -= cell_len(text)
    return [*kept, Piece(" " * left)] if left else kept


def under_cursor(line: Line, cells: int) -> Line:
    """Return the line with its first cells as a cursor marks them."""
    marked: Line = []
    for piece in line:
        here = min(cells, len(piece.text) if piece.text.isascii() else cell_len(piece.text))
        if here == 0 or here < cell_len(piece.text) != len(piece.text):
            marked.append(piece)
            continue
        at = len(piece.text) if here == cell_len(piece.text) else here
        marked += [Piece(piece.text[:at], Look(bold=True, reverse=True)), Piece(piece.text[at:], piece.look)]
        cells -= here
    return marked


def beside(left: list[Line], right: list[Line], width: int) -> list[Line]:
    """Return lines of two parts side by side, the left one in so many cells."""
    rows = max(len(left), len(right))
    bar = Piece(" │ ", DIM)
    pad: list[Line] = [[]]
    pairs = zip(left + pad * (rows - len(left)), right + pad * (rows - len(right)), strict=True)
    return [[*cut(one, width), bar, *other] for one, other in pairs]


def text_line(text: str, look: Look = PLAIN, width: int | None = None) -> Line:
    """Return a line of one text, shortened in its middle to a width."""
    return [Piece(text if width is None else shorten(text, max(width, 1)), look)]


def folded(text: str, width: int) -> list[str]:
    """Return a text that may be of any origin in lines of a width."""
    return wrap(in_line(text), max(width, 1))


def progress(words: str, share: float, width: int) -> Line:
    """Return a line that says what runs, and how far it is."""
    cells = min(max(width - cell_len(words) - 12, 0), 30)
    full = round(cells * share)
    bar = [Piece("━" * full, Look("cold")), Piece("━" * (cells - full), DIM)]
    return [Piece(f" {words} ", DIM), *bar, Piece(f" {share:4.0%}", DIM)]

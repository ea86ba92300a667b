"""A line of text that is typed below a screen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from embcli.oldpage.layout import cell_len
from embcli.oldpage.lines import Look, Piece
from embcli.safe import in_line

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Field:
    """A text with a cursor; `changed` is told each new text, `entered` the text when Enter is pressed.

    `left` is called when Escape is pressed.
    """

    label: str
    text: str
    entered: Callable[[str], None]
    changed: Callable[[str], None] = field(default=lambda text: None)
    left: Callable[[], object] = field(default=lambda: None)
    example: str = ""  # what to type, shown while the text is empty
    at: int = -1  # the cursor's place; -1 for the end
    is_selected: bool = False  # whether the first character that is typed replaces the text

    def __post_init__(self) -> None:
        if self.at < 0:
            self.at = len(self.text)

    def press(self, key: str, character: str | None) -> bool:
        """Edit the text; return whether the key is one of those that do."""
        before, after = self.text[: self.at], self.text[self.at :]
        was_selected, self.is_selected = self.is_selected, False
        moved = {"left": self.at - 1, "right": self.at + 1, "home": 0, "end": len(self.text)}
        moved |= {"ctrl+a": 0, "ctrl+e": len(self.text)}
        if key in moved:
            self.at = min(max(moved[key], 0), len(self.text))
            return True
        kept = {
            "backspace": before[:-1],
            "ctrl+h": before[:-1],
            "ctrl+u": "",
            "ctrl+w": before.rstrip()[: len(before.rstrip()) - len(before.split()[-1])] if before.split() else "",
        }
        if key in kept:
            self._set(kept[key], after)
        elif key == "delete":
            self._set(before, after[1:])
        elif character is not None and character.isprintable():
            self._set(*((character, "") if was_selected else (before + character, after)))
        else:
            return False
        return True

    def paste(self, text: str) -> None:
        """Insert a text at the cursor."""
        self._set(self.text[: self.at] + text, self.text[self.at :])

    def _set(self, before: str, after: str) -> None:
        if before + after != self.text:
            self.text, self.at = before + after, len(before)
            self.changed(self.text)

    def line(self, width: int) -> list[Piece]:
        """Return the field as a line; a long text is cut before the cursor."""
        label = Piece(f" {self.label} ", Look(bold=True))
        before, after = in_line(self.text[: self.at]), in_line(self.text[self.at :])
        available = width - len(label.text) - 1
        while cell_len(before) >= available > 0:
            before = before[max(len(before) // 8, 1) :]
        under, rest = (after[:1] or " "), after[1:]
        while rest and cell_len(before + under + rest) > available:
            rest = rest[:-1]
        example = [] if self.text else [Piece(self.example[: max(available - 1, 0)], Look(dim=True))]
        selected = Piece(before, Look(reverse=self.is_selected))
        return [label, selected, Piece(under, Look(reverse=True)), *(example or [Piece(rest)])]

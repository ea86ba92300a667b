"""The chapter on the text on the screen: token + position = input, and the batches of a sliding window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from embcli.explore.drawing import MOVES, Key, Line
from embcli.explore.field import Field
from embcli.explore.paged import PageView

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.model import Model
    from embcli.result import Result


class _OfText(PageView):
    """The page of a result for the text, which is typed below it."""

    KEYS: ClassVar[tuple[Key, ...]] = (
        *MOVES,
        Key(("e", "i", "enter"), "edit", "e", "edit the text", more="edit the text, while the page follows"),
    )
    name = ""
    heat = False  # whether matrices are strips of colours

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, "", self._result, [])
        self._text = desk.text  # that the page is of
        if not desk.text:
            self.do_edit()

    def _result(self, model: Model) -> Result:
        raise NotImplementedError

    def do_edit(self) -> None:
        """Edit the text."""
        example = "Every effort moves you"
        self.desk.field = Field("text", self.desk.text, self._typed, self._typed, example=example)

    def _typed(self, text: str) -> None:
        self.desk.text = text

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the page, of the text as it is now: other screens change it, too."""
        if self._text != self.desk.text:
            self._text = self.desk.text
            self.page.renew(self._result)
        return self.scrolled(self.page.lines(width, self.heat), height)

    def title(self) -> tuple[str, str]:
        """Return the text."""
        return f"{self.name}: {self.desk.text}", self.desk.named_source


class LookupView(_OfText):
    """The rows that the tokens of the text pick, their position rows, and the input embeddings."""

    KEYS: ClassVar[tuple[Key, ...]] = (
        *_OfText.KEYS,
        Key(("h",), "heat", "h", "heat", more="colours in place of numbers, and back"),
    )
    name = "Lookup"

    def _result(self, model: Model) -> Result:
        return model.lookup(self.desk.text)

    def commands(self) -> list[str]:
        """Return the command of the page."""
        return [self.desk.spell("lookup", *(["--heat"] if self.heat else []), text=self.desk.text)]

    def do_heat(self) -> None:
        """Show colours in place of numbers, or numbers again."""
        self.heat = not self.heat


class BatchView(_OfText):
    """A batch of the text, with a window and a stride that keys change."""

    KEYS: ClassVar[tuple[Key, ...]] = (
        *_OfText.KEYS,
        Key(("plus", "equals_sign"), "longer", "+ -", "window", more="a longer or a shorter window"),
        Key(("minus",), "shorter", "", "", False),
        Key(("right_square_bracket",), "farther", "[ ]", "stride", more="a shorter or a longer stride"),
        Key(("left_square_bracket",), "nearer", "", "", False),
    )
    name = "Batch"

    def __init__(self, desk: Desk) -> None:
        self.length, self.stride = 4, 4
        super().__init__(desk)

    def _result(self, model: Model) -> Result:
        return model.batch(self.desk.text, **self._sizes())

    def _sizes(self) -> dict[str, Any]:
        return {"batch_size": 8, "max_length": self.length, "stride": self.stride, "keep_last": True}

    def commands(self) -> list[str]:
        """Return the command of the page, which reads the text from a pipe."""
        words = ("--max-length", str(self.length), "--stride", str(self.stride), "--keep-last")
        return [self.desk.spell("batch", *words, piped=self.desk.text)]

    def _change(self, length: int = 0, stride: int = 0) -> None:
        self.length, self.stride = max(self.length + length, 1), max(self.stride + stride, 1)
        self.page.renew(self._result)

    def do_longer(self) -> None:
        """Make the window longer by a token."""
        self._change(length=1)

    def do_shorter(self) -> None:
        """Make the window shorter by a token."""
        self._change(length=-1)

    def do_farther(self) -> None:
        """Make the stride longer by a token."""
        self._change(stride=1)

    def do_nearer(self) -> None:
        """Make the stride shorter by a token."""
        self._change(stride=-1)

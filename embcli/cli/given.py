"""The groups of options that say what is given: a text, IDs, or vectors."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli import names
from embcli.cli.groups import Group
from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.model import Model
    from embcli.text import Sequences


class Given(Group):
    """A text or token IDs."""

    text: str | None = None
    file: Path | None = None
    ids: str | None = None
    errors: names.Errors = "strict"
    special: bool = False

    def sequences(self, example: str = 'embcli lookup "Every effort moves you"', lines: bool = False) -> Sequences:
        """Read what is given; where there is nothing, the error shows the example."""
        from embcli.cli.text import read

        return read(self.text, self.file, self.ids, lines, self.errors, example)


class GivenLines(Given):
    """A text or token IDs, as one sequence or one per line."""

    lines: bool = False

    def sequences(self, example: str = 'embcli tokenize "Every effort moves you"', lines: bool = False) -> Sequences:
        """Read what is given, in one sequence or one per line."""
        return super().sequences(example, self.lines)


class GivenWindows(GivenLines):
    """A text or token IDs, which may be split to fit a position layer."""

    window: bool = False

    def sequences(self, example: str = 'embcli lookup "Every effort moves you"', lines: bool = False) -> Sequences:
        """Read what is given."""
        return super().sequences(example)


class GivenQueries(GivenLines):
    """What neighbours are looked for: a text or IDs, with rows added and subtracted, or vectors."""

    plus: list[str] | None = None
    minus: list[str] | None = None
    vector: Path | None = None
    show: str | None = None

    def queries(self, model: Model) -> dict[str, Any]:
        """Return what `Model.neighbors` takes; raises InputError where text and vectors are both given."""
        from embcli.cli.text import read
        from embcli.verbs.neighbors import vectors_in_lines

        if self.vector is None:
            if self.show is not None:
                raise InputError("--show chooses vectors, and goes with --vector")
            tokens = model.tokens(self.sequences('embcli neighbors " Paris"'), self.special)
            return {"text": tokens, "plus": self.plus or (), "minus": self.minus or ()}
        given = {"TEXT": self.text, "--file": self.file, "--ids": self.ids, "--plus": self.plus, "--minus": self.minus}
        others = [name for name, value in given.items() if value]
        if others:
            raise InputError(f"{others[0]} and --vector stand for the same input; give one of them")
        (text,) = read(None, self.vector, None, False, self.errors, "embcli neighbors --vector -").texts or ("",)
        return {"vector": vectors_in_lines(text, self.show, model.shape[1])}


class GivenOrExample(Given):
    """A text or token IDs, or else the IDs of an example."""

    def __init__(self, **values: Any) -> None:
        nothing = all(values.get(name) is None for name in ("text", "file", "ids"))
        super().__init__(**values | {"ids": names.COMPARED_IDS} if nothing else values)


class GivenFile(Group):
    """A file with a text, or token IDs."""

    file: Path | None = None
    ids: str | None = None
    errors: names.Errors = "strict"
    special: bool = False

    def sequences(self) -> Sequences:
        """Read what is given; raises InputError, with a hint, for a text in place of a file."""
        from embcli.cli.text import read

        if self.file is not None and str(self.file) != "-" and not os.access(self.file, os.F_OK):
            text = str(self.file)
            hint = f"for a text: echo {shlex.quote(text if len(text) <= 60 else f'{text[:60]}...')} | embcli batch -"
            raise InputError(f"there is no file {text[:60]!r}", hint)
        return read(None, self.file, self.ids, False, self.errors, example="embcli batch the-verdict.txt")

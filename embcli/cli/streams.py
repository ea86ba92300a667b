"""The groups of options for what a command reads, a text, IDs or vectors, and for where its result goes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli import formats, names
from embcli.cli.groups import Group
from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.cli.output import Output
    from embcli.model import Model
    from embcli.text import Sequences


class InputOptions(Group):
    """A file with a text, or token IDs, and how they are read."""

    example = 'embcli lookup "Every effort moves you"'  # for the error if there is no input
    file: Path | None = None
    ids: str | None = None
    special: bool = False

    def sequences(self) -> Sequences:
        """Read the text or the IDs."""
        from embcli.cli.text import read

        return read(**{name: value for name, value in vars(self).items() if name in _READ}, example=self.example)


_READ = ("text", "file", "ids", "lines")  # parameters of embcli.cli.text.read


class TextInput(InputOptions):
    """A text or token IDs."""

    text: str | None = None


class LinesInput(TextInput):
    """A text or token IDs, as one sequence or one per line."""

    example = 'embcli tokenize "Every effort moves you"'
    lines: bool = False


class WindowsInput(LinesInput):
    """A text or token IDs, which may be split to fit a position layer."""

    example = InputOptions.example
    window: bool = False


class QueriesInput(LinesInput):
    """The queries of a search: a text or IDs, with rows added and subtracted, or vectors."""

    example = 'embcli neighbors " Paris" --from gpt2'
    plus: list[str] | None = None
    minus: list[str] | None = None
    vector: Path | None = None

    def queries(self, model: Model) -> dict[str, Any]:
        """Return the arguments of `Model.neighbors`; raises InputError if text and vectors are both given."""
        from embcli.cli.text import read
        from embcli.verbs.neighbors import vectors_in_lines

        if self.vector is None:
            tokens = model.tokens(self.sequences(), self.special)
            return {"text": tokens, "plus": self.plus or (), "minus": self.minus or ()}
        given = {"TEXT": self.text, "--file": self.file, "--ids": self.ids, "--plus": self.plus, "--minus": self.minus}
        others = [name for name, value in given.items() if value]
        if others:
            raise InputError(f"{others[0]} and --vector stand for the same input; give one of them")
        example = "embcli neighbors --vector -"
        (text,) = read(file=self.vector, example=example).texts or ("",)
        return {"vector": vectors_in_lines(text, model.shape[1])}


class InputOrExample(TextInput):
    """A text or token IDs, or else the IDs of an example."""

    def __init__(self, **values: Any) -> None:
        nothing = all(values.get(name) is None for name in ("text", "file", "ids"))
        super().__init__(**values | {"ids": names.COMPARED_IDS} if nothing else values)


class FileInput(InputOptions):
    """A file with a text, or token IDs."""

    example = "embcli batch the-verdict.txt"

    def sequences(self) -> Sequences:
        """Read the file or the IDs; raises InputError, with a hint, for a text in place of a file."""
        if self.file is not None and str(self.file) != "-" and not os.access(self.file, os.F_OK):
            text = str(self.file)
            quoted = shlex.quote(text if len(text) <= 60 else f"{text[:60]}...")
            hint = "" if self.file.suffix and " " not in text else f"for a text: echo {quoted} | embcli batch -"
            raise InputError(f"there is no file {text[:60]!r}", hint)
        return super().sequences()


class Target(Group):
    """A destination and a format, for a result that is a list."""

    format: formats.FormatName | None = None
    output: Path | None = None
    color: names.Color = "auto"
    width: int | None = None
    theme: names.Theme | None = None

    def output_of(
        self, kind: formats.Kind, others: Mapping[str, Any] | None = None, show: tuple[str, ...] | None = None
    ) -> Output:
        """Return the output for a kind of result; raises OutputError for what cannot be done.

        `others` are the verb's other options by name, and `show` the matrices that the user named.
        """
        from embcli.cli.output import output_for

        return output_for(kind, {**vars(self), **(others or {})}, show)


class MatrixTarget(Target):
    """A destination and a format, for a result with numbers."""

    precision: int = names.DEFAULT_PRECISION
    heat: bool = False

"""The groups of options for the output: its destination, format and style."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli import formats, names
from embcli.cli.groups import Group

if TYPE_CHECKING:
    from embcli.cli.output import Output


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
    scale: float | None = None

"""The groups of options for the output: its destination, format and style."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli import formats, names
from embcli.cli.groups import Group
from embcli.cli.options import flag_of

if TYPE_CHECKING:
    from embcli.cli.output import Output

# Options that only some formats support, and these formats.
_SHOWN_IN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("width", "heat", "trace", "draw", "map", "difference"), formats.VIEWS),
    "theme": formats.PICTURES,
    "scatter": formats.able("drawing"),
    "why": (*formats.VIEWS, "json", "ndjson"),
    **dict.fromkeys(("gradient", "learning_rate", "bench"), (*formats.VIEWS, "json")),
}


class Place(Group):
    """A destination and a format, for a result that is a list."""

    format: formats.FormatName | None = None
    output: Path | None = None
    color: names.Color = "auto"
    width: int | None = None
    theme: names.Theme | None = None

    def output_of(
        self, kind: formats.Kind, asked: Mapping[str, Any] | None = None, show: tuple[str, ...] | None = None
    ) -> Output:
        """Return the output for a kind of result; raises OutputError for what cannot be done.

        `asked` are the verb's other options by name, and `show` the matrices that the user named.
        """
        from embcli.cli.output import output_for
        from embcli.result import Style

        given = {**vars(self), **(asked or {})}
        style = {name: given[name] for name in ("precision", "scale", "width") if name in given}
        heat = bool(given.get("heat") or given.get("map"))  # a map is coloured, too
        return output_for(
            kind,
            self.format,
            self.output,
            self.color,
            Style(**style, heat=heat, theme=self.theme or "light"),
            _limits(given),
            show,
        )


def _limits(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the flags that were given and that only some formats can show, with these formats."""
    limits = {
        flag_of(name): shown
        for name, shown in _SHOWN_IN.items()
        if given.get(name) is not None and given[name] is not False
    }
    steps = [step for step in given.get("show") or () if step in names.STEPS and step != "outputs"]
    limits |= {f"--show {step}": (*formats.VIEWS, "json") for step in steps}
    if given.get("kind") == "relative" and not given["similarity"]:
        limits["--kind relative"] = formats.able("batches")
    return limits


class PlaceOfNumbers(Place):
    """A destination and a format, for a result with numbers."""

    precision: int = names.DEFAULT_PRECISION
    heat: bool = False
    scale: float | None = None

"""A command: a function that takes groups of options and its own options, and returns its result.

The wrapper makes flags of the groups, refuses what the format cannot hold before the function runs,
writes the result, and gives the exit status. The tour takes the same results without writing them.
"""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embcli.atomic import refuse_replacing
from embcli.cli import groups
from embcli.cli.console import say
from embcli.cli.options import as_flag, flag_of
from embcli.errors import OutputError, variable
from embcli.formats import ALIASES, FORMATS, SUFFIXES, FormatName, content_of, or_list
from embcli.names import Status

if TYPE_CHECKING:
    from embcli.cli.output import ResultWriter
    from embcli.result import Result

Function = Callable[..., Any]
Options = dict[str, Any]  # the values of all options, by their names

PAGE = (groups.Page,)
BARE = (groups.Bare, groups.Page)
SCORES = (groups.Precision, *BARE)
NUMBERS = (groups.Precision, groups.Heat, *BARE)
FILE = (groups.File,)


class Command:
    """A function that has the name of its verb, and the groups that say where its result goes.

    A function without a result, such as a full screen, returns the exit status itself.
    """

    def __init__(self, function: Function, view: tuple[type[groups.OptionGroup], ...] = ()) -> None:
        self.function = function
        self.verb = function.__name__
        self.view = view

    @cached_property
    def flags(self) -> list[inspect.Parameter]:
        """The parameters that Typer sees: the fields of each group in its place."""
        found = []
        for parameter in inspect.signature(self.function).parameters.values():
            if _is_group(parameter.annotation):
                found += parameter.annotation.flags()
            else:
                found.append(
                    as_flag(parameter.name, parameter.annotation, parameter.default, [self.verb])
                )
        for group in self.view:
            found += group.flags()
        return found

    def for_typer(self, finish: Callable[["Command", Options], object]) -> Function:
        """Return a function with a parameter for each flag; it passes their values to `finish`."""

        def run(**options: Any) -> object:
            return finish(self, options)

        run.__signature__ = inspect.Signature(self.flags)  # type: ignore[attr-defined]
        return run

    def call(self, options: Options) -> Any:
        """Return what the function returns: its result, or an exit status."""
        arguments = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            group = parameter.annotation
            if _is_group(group):
                arguments[name] = group(options)
            else:
                arguments[name] = options[name]
        return self.function(**arguments)

    def result(self, options: Options) -> "Result":
        """Return the result in the style that the options ask for."""
        result: Result = self.call(options)
        return result.styled(**_style_options(options))

    def write(self, options: Options) -> Status:
        """Write the result where the options say; return the exit status."""
        if "output" not in options:
            status: Status = self.call(options)
            return status
        return self._output(options).write(self.call(options))

    def _output(self, options: Options) -> "ResultWriter":
        """Return the writer of the result.

        Raises OutputError for what the format, the file or a terminal cannot hold.
        """
        from embcli.cli.output import ResultWriter
        from embcli.result import PageStyle, chosen_format, refuse_many

        name = None if options["output"] == "-" else options["output"]
        path = None
        if name is not None:
            path = Path(name)
            refuse_replacing(path, self._read_by_name(options))
        content = content_of(self.verb, options)
        if content == "text":
            return ResultWriter(path=path)
        style = PageStyle(**_style_options(options))
        format = chosen_format(
            content,
            options.get("format"),
            name,
            default=variable("EMBCLI_FORMAT", (*FORMATS, *ALIASES)),
        )
        self._refuse_options(format, options, path)
        refuse_many(options.get("show"), format)
        if path is not None and SUFFIXES.get(path.suffix.lower(), format) != format:
            say(f"{name} is written as {format}, which --format names")
        return ResultWriter(format, path, options.get("color", "auto"), style, tuple(options))

    def _refuse_options(self, format: FormatName, options: Options, path: Path | None) -> None:
        """Raise OutputError for an option that the format cannot show."""
        for flag in self.flags:
            *_, marks = flag.annotation.__metadata__
            if groups.is_given(options[flag.name]) and format not in marks.formats:
                needed = f"it needs --format {or_list(marks.formats)}"
                if format == "table" and path is None:
                    needed += f", as in: -o picture.{marks.formats[0]}"
                raise OutputError(f"{flag_of(flag.name)} cannot be shown in {format}; {needed}")

    def _read_by_name(self, options: Options) -> list[str]:
        """Return the files and folders that the options name, and standard input."""
        files = ["/dev/stdin"]
        for flag in self.flags:
            *_, marks = flag.annotation.__metadata__
            if marks.is_read:
                value = options[flag.name] or []
                files += value if isinstance(value, list) else [str(value)]
        return files


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, groups.OptionGroup)


def _style_options(options: Options) -> "dict[str, Any]":
    """Return the options that are fields of a PageStyle, those that are given."""
    from embcli.result import PageStyle

    given = {}
    for field in fields(PageStyle):
        if options.get(field.name) is not None:
            given[field.name] = options[field.name]
    given["keeps_precision"] = "precision" in given
    return given

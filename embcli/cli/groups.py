"""Several options as one value: a group is one parameter of a command, and Typer sees each of its fields as an option.

A group is a `Group` of the command or a frozen dataclass of the library. `options.DECLARED` says by a field's name how
it is typed on the command line. So each option is declared once, and each verb's options are listed once.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from embcli.cli.options import PANELS, declared
from embcli.cli.paths import refuse_own_input
from embcli.errors import InputError
from embcli.formats import Kind


class Group:
    """Options that are given as one value; its annotated names are its fields."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    @staticmethod
    def merge(given: dict[str, Any]) -> None:
        """Move values that are given in another option's place there, before groups are made of all of them."""


def grouped(
    command: Callable[..., Any],
    verb: str,
    kind: Kind | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> Callable[..., Any]:
    """Return a command for Typer, with the fields of its groups in place of the groups, panel by panel.

    `kind` is the kind of its result, if it can be written in several formats; `check` gets the values of all options
    and may raise an error.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    defaults: dict[str, Any] = {}
    for each in inspect.signature(command).parameters.values():
        hint, defaults[each.name] = hints[each.name], each.default
        if isinstance(hint, type) and (issubclass(hint, Group) or is_dataclass(hint)):
            groups[each.name] = hint
            parameters += [_parameter(verb, kind, *field) for field in _fields(hint)]
        elif hint.__module__ == "typer.models":  # Typer's own context
            parameters.append(each.replace(annotation=hint))
        else:
            parameters.append(_parameter(verb, kind, each.name, hint, each.default))

    def spread(**given: Any) -> Any:
        for group in groups.values():
            if issubclass(group, Group):
                group.merge(given)
        if "encoding" in given:
            given["encoding"] = _encodings(given["encoding"] or (), defaults["encoding"], verb)
        refuse_own_input(given)
        if check is not None:
            check(given)
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field, *_ in _fields(group)})
        return command(**given)

    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__signature__ = inspect.Signature(sorted(parameters, key=_panel))  # type: ignore[attr-defined]
    return spread


def _encodings(typed: Sequence[str], default: Any, verb: str) -> Any:
    """Return the encodings that are typed, as the default is: several, or one; a path may have commas.

    Raises InputError if a verb that takes one gets more.
    """
    names = tuple(name for each in typed for name in _split(each))
    if isinstance(default, tuple):
        return names or default
    if len(names) > 1:
        raise InputError(f"{verb} takes one --encoding, and {len(names)} are given; tokenize compares several")
    return names[0] if names else default


def _split(name: str) -> list[str]:
    with suppress(OSError, ValueError):  # most names could not be that of a file
        if Path(name).exists():
            return [name]
    return name.split(",")


def _fields(group: Any) -> list[tuple[str, Any, Any]]:
    """Return name, type and default of each field of a group; of a field that must be given, the default is empty."""
    empty = inspect.Parameter.empty
    return [(name, hint, getattr(group, name, empty)) for name, hint in get_type_hints(group).items()]


def _parameter(verb: str, result: Kind | None, name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return a field or a parameter of a command, with its declaration for Typer."""
    option = declared(verb, result, name, hint)
    if name == "encoding":  # a list, so that a second one is seen
        hint, default = list[str] | None, None
    if option.parser is not None and option.parser.__name__ != "whole_number":
        hint = str | None  # the text that is typed; the parser converts it
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=Annotated[hint, option])


def _panel(parameter: inspect.Parameter) -> int:
    """Return the place of a parameter's panel; arguments, which have none, come first."""
    settings = getattr(parameter.annotation, "__metadata__", ())
    panel = next((each.rich_help_panel for each in settings), None)
    return PANELS.index(panel) if panel else -1

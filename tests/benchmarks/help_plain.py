"""embcli's commands and options as a Typer app that does nothing: what --help and completion cost at the least.

The app is a script of its own, written from embcli's signatures, so that it imports Typer and nothing of embcli.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_args

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_HEAD = '''"""Written by tests/benchmarks/help_plain.py: embcli's commands and options, and nothing behind them."""

import pathlib
import typing

import typer
'''
_TOLD = ("help", "metavar", "show_default", "hidden", "rich_help_panel")  # what the help shows of an option
_TYPERS = ("show_completion", "install_completion")  # Typer puts its own options in the place of these


def source(app: typer.Typer) -> str:
    """Return a script with the commands, options, defaults and help texts of an app, whose commands do nothing."""
    settings = f"context_settings={app.info.context_settings!r}"
    start = f"app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, {settings})\n"
    end = 'if __name__ == "__main__":\n    app(prog_name="help_plain")\n'
    return "\n".join([_HEAD, start, *_commands("app", app), end])


def _commands(name: str, app: typer.Typer) -> Iterator[str]:
    callback = app.registered_callback
    if callback is not None and callback.callback is not None:
        epilog = callback.epilog if isinstance(callback.epilog, str) else None
        yield _function(f"@{name}.callback(invoke_without_command=True, epilog={epilog!r})", callback.callback)
    for command in app.registered_commands:
        assert command.callback is not None
        own = command.name or command.callback.__name__.replace("_", "-")
        settings = f"epilog={command.epilog!r}, context_settings={command.context_settings!r}"
        yield _function(f"@{name}.command({own!r}, {settings})", command.callback)
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        yield f"{group.name} = typer.Typer(help={inner.info.help!r}, rich_markup_mode=None)"
        yield f"{name}.add_typer({group.name}, name={group.name!r})\n"
        yield from _commands(str(group.name), inner)


def _function(decorator: str, function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    options = [each for each in parameters if each.annotation is not typer.Context and each.name not in _TYPERS]
    lines = [f"    {_parameter(each)},\n" for each in options]
    arguments = f"\n{''.join(lines)}" if lines else ""
    return f"{decorator}\ndef {function.__name__}({arguments}):\n    {function.__doc__!r}\n"


def _parameter(parameter: inspect.Parameter) -> str:
    kind, declared = get_args(parameter.annotation)
    maker = "Argument" if type(declared).__name__ == "ArgumentInfo" else "Option"
    first = [declared.default] if isinstance(declared.default, str) else []  # where Typer keeps the first name
    told = [repr(each) for each in (*first, *(declared.param_decls or ()))]
    told += [f"{name}={getattr(declared, name)!r}" for name in _TOLD if getattr(declared, name) is not None]
    written = kind.__name__ if isinstance(kind, type) and kind.__module__ == "builtins" else repr(kind)
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: typing.Annotated[{written}, typer.{maker}({', '.join(told)})]{default}"

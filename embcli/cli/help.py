"""The help of embcli and of its verbs: a page whose first screen has the examples and the common options.

A terminal shows the first screen, if the rest does not fit below it, and says how to see the rest; a pipe gets all.
"""

import os
import shutil
import sys
from inspect import cleandoc
from textwrap import wrap
from typing import Any, Literal

from typer.core import TyperCommand, TyperGroup

from embcli.cli.options import COMMON

_WIDEST = 100  # columns
_NARROW = 60  # columns below which a description stands under what it describes
_GAP = 2
_LABEL = 10  # columns of a group's name beside its verbs
_START = {
    "embcli tour": "the chapter, step by step",
    'embcli lookup "Every effort moves you"': "from tokens to vectors",
}
# What verbs are for: the groups in which they are listed.
TEXT, VECTORS, MATRIX, LEARN, MORE = GROUPS = ("Text", "Vectors", "Matrix", "Learn", "More")
ALL = "all"  # the object of a context in which all options are asked for

Tone = Literal["plain", "strong", "dim", "token 0"]  # the page's: names are blue
Line = list[tuple[str, Tone]]


def fitted_help(command: Any, ctx: Any) -> str:
    """Return a verb's help: all of it, or its first screen if the terminal has no room for more and all is not asked.

    All is asked if the context's object is ALL.
    """
    width = _width()
    first, rest, others = _help(command, ctx, width)
    words = ctx.command_path.split()
    lines = shutil.get_terminal_size().lines - 1  # the prompt takes one
    if ctx.obj == ALL or not _on_a_terminal() or len(first) + len(rest) <= lines or not rest:
        return _drawn(first + rest)
    more: Line = [(f"{others} more options: ", "dim"), (" ".join([words[0], "help", *words[1:]]), "token 0")]
    return _drawn([*first, [], more])


def _help(command: Any, context: Any, width: int) -> tuple[list[Line], list[Line], int]:
    """Return the lines of the first screen, those behind it, and how many options these have."""
    sentence, *more = (" ".join(part.split()) for part in cleandoc(command.help).split("\n\n"))
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    first: list[Line] = [[("Usage: ", "strong"), (usage, "plain")], [], *_text(sentence, width), []]
    for line in (command.epilog or "").splitlines():
        first.append([(f"  {line}", "dim" if line.startswith("#") else "plain")])
    panels = _panels(command, context)
    first += _panel(COMMON, panels.pop(COMMON), width)
    column = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
    rest: list[Line] = [[], *_text(" ".join(more), width)] if more else []
    for title, rows in panels.items():
        rest += _panel(title, rows, width, column)
    return first, rest, sum(map(len, panels.values()))


def _panels(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Return arguments, commands and options by panel, with descriptions; those that most people need come first."""
    panels: dict[str, list[tuple[str, str]]] = {COMMON: []}
    if isinstance(command, TyperGroup):
        panels[COMMON] = [(name, _sentence(each)) for name, each in command.commands.items()]
    for each in command.get_params(context):
        panel = COMMON if each.param_type_name == "argument" else getattr(each, "rich_help_panel", None)
        if panel and not each.hidden:
            panels.setdefault(panel, []).append(_described(each))
    return panels


def _panel(title: str, rows: list[tuple[str, str]], width: int, column: int = 0) -> list[Line]:
    """Return a panel with its title, and the names in a column at least `column` cells wide."""
    lines: list[Line] = [[], [(title, "strong")]] if rows else []
    column = max([column, *(len(name) for name, _ in rows)])
    for name, text in rows:
        lines += _row([(" " * _GAP, "plain"), (name, "token 0")], text, column + 2 * _GAP, width)
    return lines


def _described(parameter: Any) -> tuple[str, str]:
    """Return an option or an argument as it is typed, and its description."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar
    else:
        shorts, longs = ([each for each in parameter.opts if each.startswith("--") == long] for long in (False, True))
        value = [] if parameter.is_flag else [parameter.metavar]
        name = " ".join([", ".join([*shorts[:1], *longs[:1]]), *value])
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    in_words = f" Default: {default}." if default not in (None, False) else ""
    return name, f"{parameter.help}{in_words}"


def overview(group: Any, ctx: Any) -> str:
    """Return what to type first, and the verbs in groups, as they fit the terminal."""
    width = _width()
    lines: list[Line] = [*_text(group.help or "", width), []]
    column = max(map(len, _START)) + 2 * _GAP
    lines += _labelled("Start", [(name, f"# {text}") for name, text in _START.items()], column, width)
    lines.append([])
    panels: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
    for name, each in group.commands.items():
        panels[getattr(each, "rich_help_panel", None) or MORE].append((name, _sentence(each)))
    column = max(map(len, group.commands)) + _GAP
    for panel, rows in panels.items():
        lines += _labelled(panel, rows, column, width)
    end = "embcli VERB --help shows its options; embcli explain questions, what to ask."
    return _drawn([*lines, [], *_text(end, width)])


def _labelled(label: str, rows: list[tuple[str, str]], column: int, width: int) -> list[Line]:
    """Return rows with a label beside the first one, or above it if the page is narrow."""
    narrow = width < _NARROW
    lines: list[Line] = [[(label, "strong")]] if narrow else []
    for place, (name, text) in enumerate(rows):
        beside = " " * _GAP if narrow else f"{'' if place else label:{_LABEL}}"
        lines += _row([(beside, "strong"), (name, "token 0")], text, len(beside) + column, width, hang=False)
    return lines


def _row(left: Line, text: str, column: int, width: int, hang: bool = True) -> list[Line]:
    """Return a name with its description beside it in a column, or under it if the page is narrow."""
    under = width < _NARROW and hang
    indent = 3 * _GAP if under else column
    first, *others = wrap(text, max(width - indent, 1), break_long_words=False, break_on_hyphens=False) or [""]
    blanks = " " * (column - sum(len(part) for part, _ in left))
    lines: list[Line] = [left, [(" " * indent + first, "plain")]] if under else [[*left, (blanks + first, "plain")]]
    for line in others:
        lines.append([(" " * indent + line, "plain")])
    return lines


def _text(text: str, width: int) -> list[Line]:
    return [[(line, "plain")] for line in wrap(text, width, break_on_hyphens=False)]


def _sentence(command: Any) -> str:
    return " ".join(cleandoc(command.help or "").split("\n\n")[0].split())


def _width() -> int:
    return max(min(shutil.get_terminal_size().columns, _WIDEST), 40)


def _on_a_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _drawn(lines: list[Line]) -> str:
    """Return lines as text, on a terminal in the colours of a page."""
    if not _on_a_terminal():
        return "\n".join("".join(text for text, _ in line) for line in lines)
    from embcli.cli.output import Output
    from embcli.oldpage import Word

    def put(page: Any) -> None:
        for line in lines:
            page.line(*(Word(text, tone) for text, tone in line))

    return Output("table", None).drawn(put).decode().rstrip(os.linesep)


class VerbHelp(TyperCommand):
    """A verb that shows this help."""

    get_help = fitted_help


class GroupHelp(TyperGroup):
    """A verb with commands of its own that shows this help."""

    get_help = fitted_help


class Overview(TyperGroup):
    """The list of verbs, by what they are for."""

    get_help = overview

"""The house as DESIGN has it, read off its source: who imports whom, and who knows of flags, terminals and streams.

Imports within functions count, and so do those only for the type checker.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "embcli").rglob("*.py"))
}
FOLDERS = sorted({name.rpartition(".")[0] for name in FILES} - {""})
PORCH = (
    "embcli.cli",
    "embcli.explore",
    "embcli.__main__",
)  # who knows flags, terminals and standard streams

# The modules, or all modules of a folder, that may import a package of others.
ALLOWED = {
    "typer": ("embcli.cli", "embcli.__main__"),
    "rich": (
        *("embcli.cli", "embcli.page", "embcli.result", "embcli.verbs", "embcli.explore"),
        "embcli.wording",  # only for sizes in words
    ),
    "resvg_py": ("embcli.page",),
    "textual": ("embcli.explore",),
    "pyarrow": ("embcli.writers",),
    "torch": (
        *(
            "embcli.seeded_layers.drawing",
            "embcli.verbs.batch",
            "embcli.verbs.compare",
            "embcli.numerics.steps",
        ),
        "embcli.verbs.info",  # only for the table of its version
    ),
    "mmap": (),  # a file that is cut while it is mapped ends the process
    # build loads torch so that no signal is lost.
    "signal": ("embcli.cli", "embcli.explore", "embcli.__main__", "embcli.seeded_layers.build"),
}

# What computes knows nothing of how it is asked for, how it looks and where it is written.
CORE = (
    *(
        "embcli.verbs",
        "embcli.seeded_layers",
        "embcli.files",
        "embcli.encodings",
        "embcli.positions",
        "embcli.numerics.search",
    ),
    *(
        "embcli.model",
        "embcli.layer",
        "embcli.store",
        "embcli.tokens",
        "embcli.text",
        "embcli.selection",
    ),
    *("embcli.records", "embcli.verbs.compare.pair", "embcli.errors", "embcli.wording"),
)
AROUND = (*PORCH, "embcli.writers")


def within(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder or name.startswith(f"{folder}.") for folder in folders)


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text())


def place(name: str, line: int) -> str:
    return f"{FILES[name].relative_to(ROOT)}:{line}"


def nodes(node: ast.AST, enter: Callable[[ast.AST], bool] = lambda _: True) -> Iterator[ast.AST]:
    """Yield what is below a node, except what is below nodes that are not to be entered."""
    for child in ast.iter_child_nodes(node):
        if enter(child):
            yield child
            yield from nodes(child, enter)


def named(node: ast.AST) -> set[str]:
    """Return what an import names: modules of embcli by their whole names, or names in other packages."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "an import by a relative name"
        assert node.module is not None
        members = [f"{node.module}.{alias.name}" for alias in node.names]
        return {member if member in FILES else node.module for member in members}
    return set()


@cache
def imports(name: str) -> frozenset[str]:
    """Return what a module imports anywhere; that the page of a verb names the type of its own result is no matter."""
    own_result = {name.removesuffix(".page")} if name.endswith(".page") else set()
    return frozenset[str]().union(*map(named, nodes(tree(name)))) - own_result


@cache
def imports_of_its_own(name: str) -> frozenset[str]:
    """Return what a module imports as it is loaded."""

    def is_run(node: ast.AST) -> bool:
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        return not later and not (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )

    return frozenset[str]().union(*map(named, nodes(tree(name), is_run)))


def reached(start: str, of: Callable[[str], frozenset[str]]) -> set[str]:
    """Return all modules that imports lead to, from those of a module on."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        for module in of(ahead.pop()) - found:
            found.add(module)
            if module in FILES:
                ahead.append(module)
    return found


def circle(graph: dict[str, set[str]]) -> str:
    """Return a way from a node back to itself, if there is one.

    >>> circle({"a": {"b"}, "b": {"c"}, "c": {"b"}})
    'b -> c -> b'
    """
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


# --- who imports whom ---------------------------------------------------------------------------------------------


def test_no_file_is_imported_by_what_it_imports() -> None:
    assert not circle(
        {name: {each for each in imports(name) if each in FILES} - {name} for name in FILES}
    )


def child(name: str, folder: str) -> str:
    """Return the file or folder right below a folder that a module is or lies in; the folder's own file as it is.

    >>> child("embcli.verbs.compare.layers", "embcli"), child("embcli.verbs", "embcli.verbs")
    ('embcli.verbs', 'embcli.verbs')
    """
    return ".".join(name.split(".")[: folder.count(".") + 2])


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_is_imported_by_what_it_imports(folder: str) -> None:
    graph: dict[str, set[str]] = {}
    for name in FILES:
        if within(name, (folder,)):
            others = {
                child(each, folder)
                for each in imports(name)
                if each in FILES and within(each, (folder,))
            }
            graph.setdefault(child(name, folder), set()).update(others - {child(name, folder)})
    assert not circle(graph)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_is_imported_where_it_belongs(package: str) -> None:
    importers = {name for name in FILES if any(within(each, (package,)) for each in imports(name))}
    assert not {name for name in importers if not within(name, ALLOWED[package])}


def test_nobody_but_the_process_imports_the_command() -> None:
    library = [name for name in FILES if not within(name, PORCH)]
    assert not [(name, each) for name in library for each in imports(name) if within(each, PORCH)]


def test_the_core_does_not_know_how_it_is_asked_shown_and_written() -> None:
    core = [name for name in FILES if within(name, CORE)]
    assert len(core) > 20
    assert not [(name, each) for name in core for each in imports(name) if within(each, AROUND)]


def test_import_embcli_loads_nothing_of_others() -> None:
    assert not {
        each for each in reached("embcli", imports_of_its_own) if not within(each, ("embcli",))
    }


# --- who knows of flags, terminals and streams --------------------------------------------------------------------

FLAG = re.compile(
    r"(?<![\w\-/.%+*\0])(?!--force-reinstall|--embcli-)(?:--[A-Za-z\0][\w-]*|-[A-Za-z](?![\w\0]))"
)  # those are pip's option, and CSS properties of the page


def texts(name: str) -> Iterator[tuple[int, str]]:
    """Yield the texts in a module's code with their lines: no docstrings, and NUL for each value in an f-string."""

    def parts(node: ast.AST) -> Iterator[tuple[int, str]]:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        if isinstance(node, ast.JoinedStr):
            pieces = [
                str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values
            ]
            yield node.lineno, "".join(pieces)
            for each in node.values:
                if isinstance(each, ast.FormattedValue):
                    yield from parts(each.value)
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        for each in ast.iter_child_nodes(node):
            yield from parts(each)

    yield from parts(tree(name))


def test_a_flag_is_told_from_other_words() -> None:
    flags = "--dim", "-f", "(--top)", "add -o x.svg", "--only-ids; -k picks", "--\0"
    others = (
        "a-b",
        "x--y",
        "-1",
        "-inf",
        "---",
        "-->",
        "a - b",
        "grid-row",
        "/-/x",
        "%-d",
        "\0-a",
        "-\0",
        "a--\0",
    )
    assert all(map(FLAG.search, flags))
    assert not any(map(FLAG.search, others))


def test_no_text_outside_the_command_names_a_flag() -> None:
    inside = [name for name in FILES if not within(name, PORCH)]
    assert not [
        (place(name, line), flag[0])
        for name in inside
        for line, text in texts(name)
        for flag in FLAG.finditer(text)
    ]


STREAMS = {"stdin", "stdout", "stderr", "argv", "__stdin__", "__stdout__", "__stderr__"}
CALLS = {"print", "input", "get_terminal_size", "isatty"}


def touched(name: str) -> Iterator[tuple[int, str]]:
    """Yield the standard streams, arguments and terminals that a module touches, with the lines."""
    for node in nodes(tree(name)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "sys"
        ):
            if node.attr in STREAMS:
                yield node.lineno, f"sys.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "sys":
            yield from (
                (node.lineno, f"sys.{each.name}") for each in node.names if each.name in STREAMS
            )
        elif isinstance(node, ast.Call):
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if called in CALLS and not (
                called in ("print", "input") and isinstance(node.func, ast.Attribute)
            ):
                yield node.lineno, f"{called}()"


def test_nobody_but_the_command_touches_streams_terminals_and_arguments() -> None:
    assert {each for _, each in touched("embcli.__main__")} >= {"sys.stdout"}
    inside = [name for name in FILES if not within(name, PORCH)]
    assert not [(place(name, line), each) for name in inside for line, each in touched(name)]


def test_what_has_arrays_is_equal_to_itself_alone() -> None:
    """Fields would be compared by `==`, which gives an array for arrays: neither true nor false."""
    classes = [
        each
        for name in FILES
        for each in vars(import_module(name)).values()
        if isinstance(each, type)
    ]
    ours = [each for each in classes if is_dataclass(each) and each.__module__ in FILES]
    of_arrays = [
        each for each in ours if any("ndarray" in str(field.type) for field in fields(each))
    ]
    assert of_arrays
    assert [each for each in of_arrays if each.__eq__ is not object.__eq__] == []

"""The house as DESIGN has it, read off the imports: those within functions count, those for the type checker do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "embcli").rglob("*.py"))
}
VIEWS = [name for name in FILES if name.startswith("embcli.views.")]
# The modules that may import a package, and all modules of a room by the name of the room.
ALLOWED = {
    "rich": ("embcli.page",),
    "matplotlib": ("embcli.page.png",),
    "typer": ("embcli.cli", "embcli.options", "embcli.completion", "embcli.__main__"),
    "torch": (
        "embcli.weights.drawing",
        "embcli.files.pt",
        "embcli.verbs.batch",
        "embcli.verbs.compare.layers",
        "embcli.verbs.info",
    ),
}
# What is worked out knows nothing of how it is asked for, how it looks and where it goes.
CORE = (
    *("embcli.verbs", "embcli.weights", "embcli.files", "embcli.encodings"),
    *("embcli.tokens", "embcli.text", "embcli.positions", "embcli.records", "embcli.selection", "embcli.verdict"),
    *("embcli.names", "embcli.errors", "embcli.words", "embcli.safe"),
)
AROUND = ("embcli.cli", "embcli.options", "embcli.output", "embcli.page", "embcli.views", "embcli.writers")

# torch takes the checker half a minute, and no view has it.
SETTINGS = """
[mypy]
strict = True
follow_imports = silent
[mypy-torch.*]
follow_imports = skip
"""


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def for_the_type_checker(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module, in functions too, but for those that only the type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not for_the_type_checker(child):
            yield from statements(child)


@cache
def imports(name: str) -> frozenset[str]:
    """Return what a module imports: modules of embcli by their whole names, or names in other packages."""
    found: set[str] = set()
    for each in statements(ast.parse(FILES[name].read_text())):
        if isinstance(each, ast.Import):
            found.update(alias.name for alias in each.names)
            continue
        assert each.level == 0, f"{name} imports by a relative name"
        assert each.module is not None
        members = [f"{each.module}.{alias.name}" for alias in each.names]
        found.update(member if member in FILES else each.module for member in members)
    return frozenset(found)


def importers(package: str) -> set[str]:
    return {name for name in FILES if any(within(each, (package,)) for each in imports(name))}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_is_imported_in_its_rooms_only(package: str) -> None:
    found = importers(package)
    assert found, "nobody imports it: is the reading of imports at fault?"
    assert {name for name in found if not within(name, ALLOWED[package])} == set()


def test_the_core_does_not_know_how_it_is_asked_shown_and_written() -> None:
    core = {name for name in FILES if within(name, CORE)}
    assert len(core) > 20
    assert {name: known for name in core if (known := {each for each in imports(name) if within(each, AROUND)})} == {}


def test_views_know_results_and_pages_only() -> None:
    assert len(VIEWS) > 5
    outside = (*ALLOWED, "embcli.cli", "embcli.options", "embcli.output", "embcli.weights", "embcli.page.terminal")
    for name in VIEWS:
        assert {each for each in imports(name) if within(each, outside)} == set(), name


def test_names_import_nothing_of_the_house() -> None:
    assert {each for each in imports("embcli.names") if each.startswith("embcli")} == set()


def circle(start: str) -> list[str]:
    """Return the modules on a way of imports from a module back to itself; none where there is no such way."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop()
        for each in sorted(imports(way[-1])):
            if each == start:
                return [*way, each]
            if each in FILES and each not in seen:
                seen.add(each)
                ways.append([*way, each])
    return []


def test_no_import_leads_back_to_where_it_began() -> None:
    assert [way for name in FILES if (way := circle(name))] == []


@pytest.mark.parametrize("name", FILES)
def test_a_module_says_what_it_is(name: str) -> None:
    text = ast.get_docstring(ast.parse(FILES[name].read_text()))
    assert text
    assert text.splitlines()[0].endswith((".", ":", ";"))


def test_the_type_checker_rejects_what_a_view_cannot_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    modules = [name.rpartition(".")[2] for name in VIEWS if "def view(" in FILES[name].read_text()]
    assert len(modules) > 5
    program = [
        f"from embcli.views import {', '.join(modules)}",
        "from embcli.output import Output",
        "from embcli.verbs.lookup import Lookup",
        "def right(output: Output, result: Lookup) -> None: output.write(result, lookup.view)",
        "def wrong(output: Output, result: Lookup) -> None: output.write(result, weights.view)",
        *(f"{module}.view(1, 2)" for module in modules),
    ]
    settings = tmp_path / "mypy.ini"
    settings.write_text(SETTINGS)
    arguments = ["--config-file", str(settings), "--cache-dir", str(tmp_path), "-c", "\n".join(program)]
    out, err, _ = api.run(arguments)
    assert err == ""
    errors = [line.split(":")[1] for line in out.splitlines() if ": error: " in line]
    wanted = ["5", *(str(line) for line in range(6, 6 + len(modules)) for _ in ("result", "page"))]
    assert errors == wanted, out
    assert out.count("incompatible type") == len(wanted), out

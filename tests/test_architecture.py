"""The walls between the parts: which module may import which.

Imports within functions count, and so do those only for the type checker.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

ROOT = Path(__file__).parents[1]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "embcli").rglob("*.py"))
}
FOLDERS = sorted({name.rpartition(".")[0] for name in MODULES} - {""})

# The modules, or all modules of a folder, that may import a package of others.
ALLOWED = {
    "typer": ("cli", "__main__"),
    "rich": ("cli", "page", "result", "verbs", "explore", "wording"),
    "resvg_py": ("page",),
    "textual": ("explore",),
    "pyarrow": ("writers", "result"),
    "pandas": ("result",),
    "torch": (
        *(
            "seeded_layers.drawing",
            "verbs.batch",
            "verbs.compare",
            "numerics.steps",
            "positions.sinusoidal",
        ),
        "verbs.info",  # It imports torch only for the table of its version.
        "asked.child",  # a process of its own
    ),
    "mmap": (),  # A file that is cut while it is mapped ends the process.
    "signal": (
        *("cli", "explore", "__main__"),
        "seeded_layers.build",  # It loads torch so that no signal is lost.
    ),
}
COMMAND = ("cli", "explore", "__main__")
# What computes knows nothing of how it is asked for, how it looks and where it is written.
CORE = (
    *("verbs", "seeded_layers", "files", "encodings", "positions", "numerics.search"),
    *("model", "layer", "store", "tokens", "text", "selection"),
    *("records", "errors", "wording"),
)


def is_within(name: str, parts: tuple[str, ...]) -> bool:
    """Whether a module is one of these parts of embcli, or lies in one."""
    return any(f"{name}.".startswith(f"embcli.{part}.") for part in parts)


@cache
def imports(name: str) -> frozenset[str]:
    """Return the modules of embcli that a module imports, and the packages of others.

    A page may name the type of its own verb's result.
    """
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                found.add(member if member in MODULES else str(node.module))
    return frozenset(found - {name.removesuffix(".page")})


def test_no_module_is_imported_by_what_it_imports():
    graph = {name: imports(name) & MODULES.keys() for name in MODULES}
    TopologicalSorter(graph).prepare()  # It raises CycleError.


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_part_of_a_folder_is_imported_by_what_it_imports(folder):
    depth = folder.count(".") + 2
    graph: dict[str, set[str]] = {}
    for name in MODULES:
        part = ".".join(name.split(".")[:depth])
        others = {".".join(other.split(".")[:depth]) for other in imports(name)}
        graph.setdefault(part, set()).update(others - {part})
    inside = {part: others for part, others in graph.items() if part.startswith(f"{folder}.")}
    TopologicalSorter(inside).prepare()


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_is_imported_where_it_belongs(package):
    for name in MODULES:
        if not is_within(name, ALLOWED[package]):
            packages = {module.partition(".")[0] for module in imports(name)}
            assert package not in packages, name


def test_the_library_does_not_import_the_command():
    for name in MODULES:
        if not is_within(name, COMMAND):
            assert not [other for other in imports(name) if is_within(other, COMMAND)], name


def test_the_core_does_not_import_what_writes():
    core = [name for name in MODULES if is_within(name, CORE)]
    assert len(core) > 20
    for name in core:
        assert "embcli.writers" not in imports(name), name


def test_import_embcli_loads_only_the_standard_library():
    code = "import sys; before = {*sys.modules}; import embcli; print(*({*sys.modules} - before))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    packages = {name.partition(".")[0] for name in loaded}
    assert packages - sys.stdlib_module_names == {"embcli"}


def test_a_table_by_names_has_a_row_for_each_name():
    for name in MODULES:
        module = importlib.import_module(name)
        for table, annotation in inspect.get_annotations(module, eval_str=True).items():
            keys = get_args(annotation)[:1]
            if get_origin(annotation) is dict and get_origin(keys[0]) is Literal:
                assert {*get_args(keys[0])} == {*vars(module)[table]}, table

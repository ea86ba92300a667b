"""The examples in docstrings give what stands below them."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def modules_with_examples() -> list[str]:
    """Return the modules of embcli whose docstrings have examples; others need no import."""
    names = []
    for path in sorted((ROOT / "embcli").rglob("*.py")):
        if ">>> " in path.read_text():
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_are_right(name):
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)

    assert found.attempted
    assert not found.failed

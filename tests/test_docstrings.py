"""The examples in docstrings give what stands below them, and no sentence has a default."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import embcli
from embcli import names

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


PUBLIC = [getattr(embcli, name) for name in embcli.__all__]


@pytest.mark.parametrize("documented", [*PUBLIC, *vars(embcli.Model).values()])
def test_what_a_public_function_says_names_no_default_for_its_signature_does(documented):
    sentences, _, _ = (inspect.getdoc(documented) or "").partition(">>>")
    plain = re.sub(r"`[^`]*`|\S-\d", "", sentences)  # UTF-8
    numbers = re.findall(r"\d+", plain)
    assert {*numbers} & {*map(str, vars(names).values())} == set()

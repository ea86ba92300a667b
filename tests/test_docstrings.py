"""The examples in docstrings give what stands below them, and no docstring repeats a limit."""

from __future__ import annotations

import doctest
import re
from importlib import import_module

import pytest

from tests.test_architecture import MODULES

# Others need no import.
WITH_EXAMPLES = [name for name, path in MODULES.items() if ">>> " in path.read_text()]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_module_are_right(name):
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)

    assert found.attempted
    assert not found.failed


def test_a_docstring_names_a_limit_and_does_not_repeat_its_size():
    for path in MODULES.values():
        for text in re.findall('""".*?"""', path.read_text(), re.DOTALL):
            assert not re.search(r"\s\d+ [kMG]i?B\b", text), path

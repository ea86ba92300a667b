"""Cases of tests that are data: command lines, refused options, texts and what they become.

They stand in tests/cases/, in one file for each module of tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_suffix("")


def data(module: str) -> Any:
    """Return the data of a module of tests."""
    return json.loads((FOLDER / f"{module.removeprefix('tests.')}.json").read_text("utf-8"))


def cases(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test on each case below its name: values of the parameters that are named first."""
    parameters, *values = data(test.__module__)[test.__name__]
    return pytest.mark.parametrize(parameters, values)(test)

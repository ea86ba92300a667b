"""Cases of tests that are data: command lines, refused options, texts and what they become.

They stand in tests/cases/, in one file for each module of tests, below the names of the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_suffix("")


def cases(test: Callable[..., Any]) -> Callable[..., Any]:
    """Run a test on each of its cases, which are values of the parameters that are named first."""
    path = FOLDER / f"{test.__module__.removeprefix('tests.')}.json"
    parameters, *values = json.loads(path.read_text("utf-8"))[test.__name__]
    return pytest.mark.parametrize(parameters, values)(test)

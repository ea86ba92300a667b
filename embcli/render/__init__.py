"""Finished results as tables, records and arrays; a view is loaded when it is used, and rich with the first of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

VIEWS = ("cache", "compare", "info", "matrices", "tokens")


def __getattr__(name: str) -> Any:
    if name not in VIEWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")

"""Finished results as tables, records and arrays; a view is loaded when it is used, and rich with the first of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return import_module(f"embcli.render.{name}")

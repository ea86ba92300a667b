"""Families are measured where transformers is installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = []
if find_spec("transformers") is None:
    collect_ignore = [
        "checkpoints.py",
        "models.py",
        "test_families.py",
        "test_loads.py",
        "test_under_trained.py",
    ]

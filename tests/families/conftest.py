"""Families are measured where transformers is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

collect_ignore = []
if find_spec("transformers") is None:
    collect_ignore = [
        "checkpoints.py",
        "folders.py",
        "models.py",
        "test_classes.py",
        "test_families.py",
        "test_folders.py",
        "test_loads.py",
        "test_under_trained.py",
    ]


@pytest.fixture(autouse=True)
def _asks(monkeypatch: pytest.MonkeyPatch, _environment: None) -> None:
    """Let embcli ask transformers, which is installed here."""
    monkeypatch.delenv("EMBCLI_ASK")

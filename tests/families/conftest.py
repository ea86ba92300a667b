"""Families are measured where transformers is installed, and GGUF files where llama.cpp is."""

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
if find_spec("xllamacpp") is None:  # llama.cpp, of which there is no package for some machines
    collect_ignore += ["test_gguf.py", "test_gguf_diff.py"]


@pytest.fixture(autouse=True)
def _asks(monkeypatch: pytest.MonkeyPatch, _environment: None) -> None:
    """Let embcli ask transformers, which is installed here."""
    monkeypatch.delenv("EMBCLI_ASK")

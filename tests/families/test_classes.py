"""explain lists the classes of tokenizers that transformers has in Python only."""

from __future__ import annotations

import re

import pytest
import transformers

import embcli

pytestmark = pytest.mark.filterwarnings("ignore")


def exported_classes() -> set[str]:
    """Return the names of the classes; what is no tokenizer would be imported for nothing."""
    backend = transformers.PythonBackend
    found = set()
    for name in dir(transformers):
        if "Tokenizer" in name:
            value = getattr(transformers, name)
            if isinstance(value, type) and issubclass(value, backend) and value is not backend:
                found.add(value.__name__)
    return found


def test_explain_lists_the_classes_that_are_python_only():
    (entry,) = embcli.explain("Python-only classes").entries
    listed = re.findall(r"\b\w+Tokenizer\w*", entry.text)
    assert len(listed) == len(set(listed))
    assert set(listed) == exported_classes()


def test_explain_names_the_version_whose_classes_it_lists():
    (entry,) = embcli.explain("Python-only classes").entries
    version = ".".join(transformers.__version__.split(".")[:2])
    assert f"in transformers {version}: " in entry.text

"""Memory that runs out, anywhere, is one sentence and no traceback."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from embcli.errors import ran_out
from tests.runners import InProcess


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: np.empty(2**60, np.uint8),
        lambda: torch.empty(2**60),
        lambda: bytearray(2**62),
    ],
    ids=["numpy", "torch", "Python"],
)
def test_memory_that_runs_out_anywhere_is_one_sentence(
    in_process: InProcess, allocate: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embcli.model.Model.tokenize", lambda *_, **__: allocate())

    assert "memory ran out" in in_process.refused("tokenize", "hi")


@pytest.mark.parametrize(
    ("fault", "is_shortage"),
    [
        (RuntimeError("can't start new thread"), True),
        (OSError(12, ""), True),
        (ImportError("libtorch.so: failed to map segment"), True),
        (RuntimeError("size mismatch"), False),
        (OSError(28, "No space left"), False),
        (KeyError("a"), False),
    ],
)
def test_a_shortage_of_memory_is_known_in_other_words(fault: Exception, is_shortage: bool) -> None:
    assert ran_out(fault) == is_shortage

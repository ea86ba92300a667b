"""What is larger than this machine's memory is refused before it is drawn; memory that runs out is a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from embcli.errors import ran_out
from tests.runners import InProcess


@pytest.mark.parametrize(
    "taking",
    [lambda: np.empty(2**60, np.uint8), lambda: torch.empty(2**60), lambda: bytearray(2**62)],
    ids=["numpy", "torch", "Python"],
)
def test_memory_that_runs_out_anywhere_is_one_sentence(
    taking: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embcli.model.Model.tokenize", lambda *_, **__: taking())
    ran = InProcess()("tokenize", "hi")
    assert (ran.status, ran.out) == (2, b"")
    assert ran.err == "embcli: memory ran out; choose fewer rows, or smaller layers\n"


def test_other_words_for_it_are_known_and_other_faults_are_no_shortage() -> None:
    full = (
        RuntimeError("can't start new thread"),
        OSError(12, ""),
        ImportError("libtorch.so: failed to map segment"),
    )
    other = RuntimeError("size mismatch"), OSError(28, "No space left"), KeyError("a")
    assert [ran_out(fault) for fault in (*full, *other)] == [True] * 3 + [False] * 3

"""`info` and `cache` tell what there is, on a page and as data; text that comes from outside is safe on a page."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

import embcli as package
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.weights import build
from tests.conftest import Embcli


def test_the_page_of_info_tells_versions_capability_cache_and_encodings(inside: Embcli, shared_cache: Path) -> None:
    head, table = inside.ok("info").text.split("\n\n")
    told = dict(re.split(" {2,}", line) for line in head.split("\n"))
    assert told == {
        "embcli": package.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in ("tiktoken", "numpy", "typer", "rich")},
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "cache": str(shared_cache),
    }
    header, rule, *rows = table.rstrip("\n").split("\n")
    assert header.split() == ["encoding", "tokens", "carried"]
    assert {*rule} == {"─"}
    assert [row.split() for row in rows] == [
        [name, f"{definition.vocabulary_size:,}", "yes"] for name, definition in DEFINITIONS.items()
    ]


def test_torch_itself_is_asked_where_nothing_else_tells_its_capability(
    inside: Embcli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = inside.ok("info").text
    monkeypatch.setattr(build, "_CPU_FLAGS", str(tmp_path / "none"))
    assert build.cpu_capability() is None
    build.this_build.cache_clear()
    assert inside.ok("info").text == wanted
    monkeypatch.setitem(sys.modules, "torch", None)
    build.this_build.cache_clear()
    run = json.loads(inside.ok("info", "-f", "json").out)["run"]
    build.this_build.cache_clear()
    assert (run["torch"].startswith("torch is not installed"), run["cpu_capability"]) == (True, None)


KEPT = ("weights", "--vocab", "6", "--dim", "3")
HOSTILE = "x\x1b]0;pwn\x07\u202e\n[bold]"


@pytest.mark.parametrize("command", [("info",), ("cache",), ("cache", "clear")], ids=" ".join)
def test_a_path_is_safe_on_a_page_and_true_in_data(inside: Embcli, tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / HOSTILE
    here = {"EMBCLI_CACHE_DIR": str(folder)}
    inside.ok(*KEPT, **here)
    page = inside.ok(*command, **here).text
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", page) is None
    assert "x\\u001b]0;pwn\\u0007\\u202e\\n[bold]" in page
    if command[-1] != "clear":
        run = json.loads(inside.ok(*command, "-f", "json", **here).out)["run"]
        assert run["cache" if command == ("info",) else "folder"] == str(folder)


def test_on_a_narrow_page_the_tensors_have_no_dtype_and_no_bytes(inside: Embcli, tmp_path: Path) -> None:
    weights = {"wte.weight": np.zeros((50257, 2), np.float32), "wpe.weight": np.zeros((1024, 2), np.float32)}
    np.savez(tmp_path / "m.npz", **weights)
    for width, heads in ((40, ["role", "tensor", "shape"]), (60, ["role", "tensor", "shape", "dtype", "bytes"])):
        lines = inside.ok("info", str(tmp_path / "m.npz"), "--width", str(width)).text.splitlines()
        table = lines[lines.index("") + 1 :][:4]
        assert table[0].split() == heads
        assert max(map(len, table)) <= width

"""Rows of PyTorch files are those of torch.load; what asks for more than tensors is refused and never run."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.pt import TorchLayer
from tests.files.made import assert_rows, layer, matrix, refusal

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_each_dtype_are_those_of_torch(tmp_path: Path, dtype: torch.dtype, transposed: bool) -> None:
    weight = (100 * torch.from_numpy(matrix(60, 9))).abs().to(dtype)
    torch.save({"weight": weight}, tmp_path / "m.pt")
    wanted = weight.float().numpy()
    assert_rows(layer(tmp_path / "m.pt", "weight", transposed), wanted.T if transposed else wanted)


def test_tensors_that_lie_in_memory_in_other_ways_give_the_right_rows(tmp_path: Path) -> None:
    base = torch.from_numpy(matrix(60, 40))
    views = {"t": base.T, "step": base[::3, 1::2], "part": base[10:20, 5:], "base": base, "one": base[:, :1]}
    torch.save(views, tmp_path / "m.pt")
    for name, view in views.items():
        assert_rows(layer(tmp_path / "m.pt", name), view.numpy())
        assert_rows(layer(tmp_path / "m.pt", name, transposed=True), view.numpy().T)


def test_tensors_are_found_in_dictionaries_and_lists_by_the_keys_that_lead_to_them(tmp_path: Path) -> None:
    weight = torch.from_numpy(matrix())
    state = collections.OrderedDict({"wte.weight": weight, "again": torch.nn.Parameter(weight)})
    saved = {
        "model": state,
        "step": 3,
        "optimizer": {"state": {0: {"exp_avg": weight}}, "groups": [{"lr": 0.1}, weight]},
    }
    torch.save(saved, tmp_path / "m.pt")
    tensors = open_tensors(tmp_path / "m.pt")
    names = ["model.wte.weight", "model.again", "optimizer.state.0.exp_avg", "optimizer.groups.1"]
    assert list(tensors) == names
    assert {(tensor.shape, tensor.dtype, tensor.size) for tensor in tensors.values()} == {((50, 7), "float32", 1400)}
    assert len({tensor.start for tensor in tensors.values()}) == 1
    for name in names:
        assert_rows(tensors.layer(name), matrix())


def test_a_lone_tensor_has_the_name_of_the_file(tmp_path: Path) -> None:
    torch.save(torch.from_numpy(matrix()), tmp_path / "wte.pt")
    assert_rows(layer(tmp_path / "wte.pt", "wte"), matrix())


def test_lists_that_hold_themselves_end(tmp_path: Path) -> None:
    loop: list[object] = [torch.zeros(2, 3)]
    loop.append(loop)
    torch.save(loop, tmp_path / "m.pt")
    assert list(open_tensors(tmp_path / "m.pt")) == ["0"]


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    for number in (1, 2):
        torch.save(
            {f"{number}.weight": torch.from_numpy(matrix(seed=number))}, tmp_path / f"pytorch_model-{number}.bin"
        )
    weight_map = {f"{number}.weight": f"pytorch_model-{number}.bin" for number in (1, 2)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    tensors = open_tensors(tmp_path / "pytorch_model.bin.index.json")
    assert tensors.format == "PyTorch"
    for number in (1, 2):
        assert_rows(tensors.layer(f"{number}.weight"), matrix(seed=number))


def test_values_that_change_are_counted(tmp_path: Path) -> None:
    torch.save({"weight": torch.tensor([[0.1, 1.0]], dtype=torch.float64)}, tmp_path / "m.pt")
    found = layer(tmp_path / "m.pt", "weight")
    assert isinstance(found, TorchLayer)
    found.rows(np.array([0, 0]))
    assert found.rounded_values == 1  # a row is read once


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_file_is_mapped_and_only_its_rows_are_read(tmp_path: Path) -> None:
    def resident() -> int:
        found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(found[1]) // 1024 if found else 0

    torch.save({"wte": torch.zeros(10_000, 2000)}, tmp_path / "m.pt")
    found = layer(tmp_path / "m.pt", "wte")
    before = resident()
    held = layer(tmp_path / "m.pt", "wte")
    assert (held.rows(np.array([9_999])).shape, found.shape) == ((1, 2000), (10_000, 2000))
    assert resident() - before < 20  # of 80 MB


@pytest.mark.skipif(sys.platform != "linux", reason="takes a limit on addresses")
def test_a_file_larger_than_the_address_space_is_refused_for_that(tmp_path: Path) -> None:
    torch.save({"wte": torch.zeros(4, 3)}, tmp_path / "m.pt")
    code = (
        "import resource, sys, torch; from pathlib import Path; from embcli.files import open_tensors\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * 4096 + (50 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used, used))\n"
        "open_tensors(Path(sys.argv[1]))"
    )
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as archive, archive.open("m/data/9", "w") as member:
        for _ in range(100):
            member.write(bytes(1 << 20))
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.pt"], capture_output=True, text=True, check=False)
    assert "InputError" in done.stderr
    assert "torch maps the whole file" in done.stderr


# --- refusals -----------------------------------------------------------------------------------------------------


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


class Greedy:
    def __reduce__(self) -> tuple[object, ...]:
        return bytearray, (10**11,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_code_is_refused_and_nothing_of_it_runs(tmp_path: Path, legacy: bool) -> None:
    torch.save(
        {"weight": torch.zeros(2, 3), "evil": Evil(tmp_path / "made")},
        tmp_path / "m.pt",
        _use_new_zipfile_serialization=not legacy,
    )
    assert ("older than PyTorch 1.6" if legacy else f"asks for {os.mkdir.__module__}.mkdir") in refusal(
        tmp_path / "m.pt"
    )
    assert not (tmp_path / "made").exists()


def test_a_pickle_that_wants_memory_is_refused(tmp_path: Path) -> None:
    torch.save({"a": Greedy()}, tmp_path / "m.pt")
    assert "bytearray" in refusal(tmp_path / "m.pt")


def with_pickle(path: Path, pickle: bytes) -> Path:
    """Make an archive like torch's, with a pickle of one's own."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickle)
        archive.writestr("m/version", b"3\n")
    return path


def test_a_pickle_that_asks_for_a_name_without_end_is_refused_at_once(tmp_path: Path) -> None:
    path = with_pickle(tmp_path / "m.pt", b"\x80\x02cos\n" + b"x" * 30_000 + b"\n.")
    begun = time.process_time()
    assert "asks for 'os.xxx" in refusal(path)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    "pickle", [b"", b"\x80\x02", b"\x80\x02\xff.", b"\x80\x02c\xff\n\xff\n.", b"\x80\x02X\xff\xff\xff\xff."]
)
def test_a_pickle_that_is_damaged_is_refused(tmp_path: Path, pickle: bytes) -> None:
    assert "its pickle is damaged" in refusal(with_pickle(tmp_path / "m.pt", pickle))


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 3), tmp_path / "m.pt")
    assert "torch.nn.modules.linear.Linear" in refusal(tmp_path / "m.pt")


def test_files_of_old_forms_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2, 3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"a": 1}))
    for name in ("old.pt", "plain.pt"):
        assert "older than PyTorch 1.6" in refusal(tmp_path / name)
    with tarfile.open(tmp_path / "tar.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    assert "unlike a file of safetensors" in refusal(tmp_path / "tar.pt")


def test_tensors_that_are_no_plain_numbers_are_named_and_refused(tmp_path: Path) -> None:
    saved = {
        "sparse": torch.zeros(2, 3).to_sparse(),
        "complex": torch.zeros(2, 3, dtype=torch.complex64),
        "bool": torch.zeros(2, 3, dtype=torch.bool),
        "meta": torch.zeros(2, 3, device="meta"),
    }
    torch.save({**saved, "good": torch.from_numpy(matrix())}, tmp_path / "m.pt")
    for name in saved:
        assert f"'{name}' (2, 3)" in refusal(tmp_path / "m.pt", name)
    assert_rows(layer(tmp_path / "m.pt", "good"), matrix())


def test_a_tensor_that_claims_more_numbers_than_it_has_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(10**9, 10**9)}, tmp_path / "m.pt")
    assert "more numbers than it has bytes" in refusal(tmp_path / "m.pt")


def rezipped(path: Path, target: Path, compression: int = zipfile.ZIP_STORED, leave_out: str = "-") -> None:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            if leave_out not in info.filename:
                new.writestr(info.filename, old.read(info))


def test_archives_that_torch_does_not_write_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(20, 30)}, tmp_path / "m.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "deflated.pt", zipfile.ZIP_DEFLATED)
    assert "torch.save does not write" in refusal(tmp_path / "deflated.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "without.pt", leave_out="data.pkl")
    assert "without the data.pkl" in refusal(tmp_path / "without.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "less.pt", leave_out="data/0")
    assert "torch does not load it" in refusal(tmp_path / "less.pt")
    for cut in (40, 1000, -30):
        (tmp_path / "cut.pt").write_bytes((tmp_path / "m.pt").read_bytes()[:cut])
        assert "damaged" in refusal(tmp_path / "cut.pt")


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be cut there")
def test_a_file_that_is_cut_while_it_is_mapped_is_a_sentence(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000, 1000)}, tmp_path / "m.pt")
    found = layer(tmp_path / "m.pt", "a")
    os.truncate(tmp_path / "m.pt", 5000)
    with pytest.raises(InputError, match="cut off while it was read"):
        found.rows(np.array([999]))

"""Rows of PyTorch files are those of torch.load; what asks for more than tensors is refused and never run."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embcli.files import open_tensors
from tests.files.made import assert_rows, layer, matrix, refusal, zipped


def test_a_vector_is_read_whole_with_its_stride(tmp_path: Path) -> None:
    torch.save({"v": torch.arange(10.0)[1::3]}, tmp_path / "m.pt")
    assert open_tensors(tmp_path / "m.pt").array("v").tolist() == [1, 4, 7]


def test_tensors_are_found_in_dictionaries_and_lists_by_the_keys_that_lead_to_them(
    tmp_path: Path,
) -> None:
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
    assert {(tensor.shape, tensor.dtype, tensor.size) for tensor in tensors.values()} == {
        ((50, 7), "float32", 1400)
    }
    assert len({tensor.start for tensor in tensors.values()}) == 1
    for name in names:
        assert_rows(tensors.layer(name), matrix())


def test_lists_that_hold_themselves_end(tmp_path: Path) -> None:
    loop: list[object] = [torch.zeros(2, 3)]
    loop.append(loop)
    torch.save(loop, tmp_path / "m.pt")
    assert list(open_tensors(tmp_path / "m.pt")) == ["0"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, about its quantised tensors
def test_tensors_of_other_kinds_are_described_as_torch_has_them(tmp_path: Path) -> None:
    base = torch.from_numpy(matrix())
    tagged, noted = torch.nn.Parameter(base.clone()), base.clone()
    tagged.tag, noted.note = 1, {"a": [base]}  # type: ignore[attr-defined]
    saved = {
        "tagged": tagged,
        "noted": noted,
        "negated": torch._neg_view(base),
        "imaginary": torch.randn(3, 4, dtype=torch.complex64).conj().imag,
        "quantised": torch.quantize_per_tensor(base, 0.1, 0, torch.qint8),
        "rows": base.to_sparse(),
        "scale": base.to(torch.float8_e4m3fnuz),
        "bool": torch.zeros(2, 3, dtype=torch.bool),
        "meta": torch.zeros(2, 3, device="meta"),
        "none": torch.zeros(0, 3),
        "number": torch.tensor(3.0),
        "module": torch.nn.Linear(3, 4).state_dict(),
        "plain": [
            {1, 2},
            1j,
            b"abc",
            bytearray(b"x"),
            2**70,
            None,
            True,
            -5,
            1e300,
            collections.Counter("aab"),
        ],
        "torch's": [
            torch.device("cpu"),
            torch.float16,
            torch.Size([1, 2]),
            torch.strided,
            matrix().tobytes(),
        ],
    }
    torch.save(saved, tmp_path / "m.pt")
    held, found = torch.load(tmp_path / "m.pt", weights_only=False), open_tensors(tmp_path / "m.pt")
    flat = {name: each for name, each in held.items() if isinstance(each, torch.Tensor)}
    flat |= {f"module.{name}": each for name, each in held["module"].items()}
    wanted = {
        name: (tuple(each.shape), str(each.dtype).removeprefix("torch."))
        for name, each in flat.items()
    }
    wanted |= {
        "meta": ((), "meta_tensor_no_storage"),
        "rows": ((), "sparse_tensor"),
        "quantised": ((), "qtensor"),
    }
    assert {name: (each.shape, each.dtype) for name, each in found.items()} == wanted
    for name in ("tagged", "noted", "module.weight"):
        assert_rows(found.layer(name), flat[name].detach().numpy())
    for name in ("negated", "imaginary", "quantised", "rows", "scale", "bool", "meta"):
        assert name in refusal(tmp_path / "m.pt", name)


def test_big_endian_numbers_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(2, 3)}, tmp_path / "m.pt")
    with (
        zipfile.ZipFile(tmp_path / "m.pt") as old,
        zipfile.ZipFile(tmp_path / "big.pt", "w") as new,
    ):
        for info in old.infolist():
            new.writestr(info, b"big" if info.filename.endswith("byteorder") else old.read(info))
    assert "big-endian" in refusal(tmp_path / "big.pt")


# --- refusals -----------------------------------------------------------------------------------------------------


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_code_is_refused_and_nothing_of_it_runs(
    tmp_path: Path, legacy: bool
) -> None:
    torch.save(
        {"weight": torch.zeros(2, 3), "evil": Evil(tmp_path / "made")},
        tmp_path / "m.pt",
        _use_new_zipfile_serialization=not legacy,
    )
    assert (
        "PyTorch before 1.6" if legacy else f"asks for '{os.mkdir.__module__}.mkdir'"
    ) in refusal(tmp_path / "m.pt")
    assert not (tmp_path / "made").exists()


def with_pickle(path: Path, pickle: bytes) -> Path:
    """Make an archive like torch's, with a pickle of one's own."""
    path.write_bytes(zipped({"m/data.pkl": pickle, "m/version": b"3\n"}))
    return path


def key_of_hash_0(number: int) -> bytes:
    return b"\x8a\x0c" + ((2**61 - 1) * number).to_bytes(12, "little") + b"N"


GREEDY = {  # each takes another reader gigabytes, minutes or the stack
    "a storage of its own": (
        b"ctorch.storage\nUntypedStorage\nJ\0\0\0\x10\x85R.",
        "its pickle is damaged",
    ),
    "a name without end": (b"cos\n" + b"x" * 30_000 + b"\n.", "asks for 'os.xxx"),
    "a key of keys": (
        b"})" + b"\x85" * 100_000 + b"Ns.",
        "a key that is neither text nor a number",
    ),
    "values in values": (b"}K\1)" + b"\x85" * 100_000 + b"s.", "nested more deeply"),
    "many opcodes": (b"N" * (1 << 22) + b".", "4,194,307 bytes, and embcli reads up to"),
    "a memo with holes": (b"Nr\xff\xff\xff\xff.", ""),
    "an array of bytes": (b"c__builtin__\nbytearray\n\x8a\6\0\0\0\0\0\1\x85R.", ""),
    "keys with one hash": (
        b"}(" + b"".join(map(key_of_hash_0, range(60_000))) + b"u.",
        "a key that is neither text nor a number",
    ),
    "a list in itself, by two ways": (b"]q\0" + b"(h\0h\0e" * 40_000 + b".", ""),
    "long names, often": (
        b"}X" + struct.pack("<I", 10_000) + b"x" * 10_000 + b"]q\0(" + b"]" * 100_000 + b"es.",
        "longer names",
    ),
    "a function of a function": (
        b"ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0N(h\0N)NtNtR.",
        "its pickle is damaged",
    ),
}


@pytest.mark.parametrize(("pickle", "reason"), GREEDY.values(), ids=GREEDY)
def test_a_pickle_that_asks_for_memory_time_or_depth_gets_none(
    tmp_path: Path, pickle: bytes, reason: str
) -> None:
    path = with_pickle(tmp_path / "m.pt", b"\x80\2" + pickle)
    if reason:
        assert reason in refusal(path)
    else:
        assert not open_tensors(path)


def tensor(
    count: int = 6,
    first: bytes = b"K\0",
    shape: bytes = b"K\2K\3\x86",
    strides: bytes = b"K\3K\1\x86",
) -> bytes:
    """Return the opcodes of a float32 tensor in storage 0."""
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK%ctQ" % count
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + first + shape + strides + b"\x89NtR"


@pytest.mark.parametrize(
    ("pickle", "reason"),
    [
        (tensor(first=b"K\1"), "more numbers than its storage"),
        (tensor(first=b"J\xff\xff\xff\xff"), "out of range"),
        (tensor(shape=b"K\2\x88\x86"), "out of range"),
        (tensor(shape=b"K\6\x85"), "its pickle is damaged"),
        (tensor(7), "its storage '0' claims 28 bytes and has 24"),
        (tensor(5, shape=b"K\1K\3\x86"), "its storage '0' claims 20 bytes and has 24"),
        (tensor() + tensor(5, shape=b"K\1K\3\x86") + b"\x86", "claims 20 bytes and has 24"),
        (tensor() + b")b", "changes a tensor that it has made"),
        (
            tensor(shape=b"(" + b"K\1" * 70 + b"t", strides=b"(" + b"K\1" * 70 + b"t"),
            "too many dimensions",
        ),
        (
            tensor(shape=b"K\6K\6\x86", strides=b"K\0K\0\x86"),
            "claims more numbers than it has bytes",
        ),
    ],
)
def test_a_tensor_has_the_numbers_of_its_storage_and_no_others(
    tmp_path: Path, pickle: bytes, reason: str
) -> None:
    for made in (tensor(), pickle):
        with zipfile.ZipFile(
            with_pickle(tmp_path / "m.pt", b"\x80\2" + made + b"."), "a"
        ) as archive:
            archive.writestr("m/data/0", np.arange(6, dtype="<f4").tobytes())
        if made is not pickle:
            assert_rows(layer(tmp_path / "m.pt", "m"), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert reason in refusal(tmp_path / "m.pt")


@pytest.mark.parametrize(
    "pickle",
    [b"", b"\x80\x02", b"\x80\x02\xff.", b"\x80\x02c\xff\n\xff\n.", b"\x80\x02X\xff\xff\xff\xff."],
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
        assert "PyTorch before 1.6" in refusal(tmp_path / name)
    torch.save({"a": torch.zeros(2, 3)}, tmp_path / "new.pt")
    (tmp_path / "new.pt").write_bytes((tmp_path / "new.pt").read_bytes()[:-9])
    assert "damaged archive (" in refusal(tmp_path / "new.pt")
    with tarfile.open(tmp_path / "tar.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    assert "unlike a file of safetensors" in refusal(tmp_path / "tar.pt")


def rezipped(
    path: Path, target: Path, compression: int = zipfile.ZIP_STORED, leave_out: str = "-"
) -> None:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", compression) as new:
        for info in old.infolist():
            if leave_out not in info.filename:
                new.writestr(info.filename, old.read(info))


LIES: dict[
    str, tuple[Callable[[bytes, int, int], bytes], str]
] = {  # about storage 0, by its local and central header
    "no header": (
        lambda data, at, _: data[:at] + b"XX" + data[at + 2 :],
        "'m/data/0' has no header",
    ),
    "a late start": (
        lambda data, at, _: (
            data[: at + 28] + b"\xff\xff" + data[at + 30 :]
        ),  # the length of the extra field
        "its storage '0' claims 24 bytes",
    ),
    "encrypted": (
        lambda data, _, at: data[: at + 8] + b"\1" + data[at + 9 :],
        "torch.save does not write",
    ),
    "there twice": (
        lambda data, _, at: data[: at + 46] + b"m/version" + data[at + 55 :],
        "torch.save does not write",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_archives_that_lie_about_a_storage_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(
        with_pickle(tmp_path / "m.pt", b"\x80\2" + tensor() + b"."), "a"
    ) as archive:
        archive.writestr("m/storage" if name == "there twice" else "m/data/0", bytes(24))
    data, (lie, reason) = (tmp_path / "m.pt").read_bytes(), LIES[name]
    (tmp_path / "m.pt").write_bytes(lie(data, data.rindex(b"PK\3\4"), data.rindex(b"PK\1\2")))
    assert reason in refusal(tmp_path / "m.pt")


def test_archives_that_torch_does_not_write_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(20, 30)}, tmp_path / "m.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "deflated.pt", zipfile.ZIP_DEFLATED)
    assert "torch.save does not write" in refusal(tmp_path / "deflated.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "without.pt", leave_out="data.pkl")
    assert "without the data.pkl" in refusal(tmp_path / "without.pt")
    rezipped(tmp_path / "m.pt", tmp_path / "less.pt", leave_out="data/0")
    assert "its storage '0' is missing" in refusal(tmp_path / "less.pt")
    for cut in (40, 1000, -30):
        (tmp_path / "cut.pt").write_bytes((tmp_path / "m.pt").read_bytes()[:cut])
        assert "damaged" in refusal(tmp_path / "cut.pt")

"""Rows of .npy and .npz files are those of numpy.load; pickles in them are refused, and damage is a sentence."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import embcli
from embcli.errors import InputError, LayerError
from tests.files.made import assert_rows, layer, matrix, npy_bytes, refusal, zipped


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([["a", "b"]]), "not real numbers"),
        (np.array([[1j, 2]]), "not real numbers"),
        (np.array([[True, False]]), "not real numbers"),
        (np.zeros((2, 2), ml_dtypes.bfloat16), "not real numbers"),
        (np.zeros((2, 2), "f4,i2"), "not real numbers"),
        (np.zeros((2, 2), [("ü\u4e00", "f4")]), "header that cannot be read"),
        (np.array([[{}, open]], object), "which need a pickle"),
        (np.zeros(3), "not a matrix"),
        (np.zeros((2, 0)), "not a matrix"),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
def test_what_is_no_matrix_of_numbers_is_refused(
    tmp_path: Path, array: np.ndarray, reason: str
) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    assert reason in refusal(tmp_path / "a.npy")
    np.savez_compressed(tmp_path / "a.npz", a=array, allow_pickle=True)
    assert reason in refusal(tmp_path / "a.npz", "a")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x93NUMPY", "cannot be read"),
        (b"\x93NUMPY\1\0\xff\xff{", "cannot be read"),
        (
            npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n", bytes(23)),
            "ends at byte 92",
        ),
        (
            npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10**20, 3)}\n"),
            "cannot be read",
        ),
        (
            npy_bytes(
                b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 3)}\n"
            ),
            "ends at byte",
        ),
        (
            npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}\n", bytes(24)),
            "its shape is (-2",
        ),
        (
            npy_bytes(b"{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 3)}\n", bytes(24)),
            "cannot be read",
        ),
        (
            npy_bytes(b"{'descr': '<q9', 'fortran_order': False, 'shape': (2, 3)}\n", bytes(24)),
            "cannot be read",
        ),
        (
            npy_bytes(b"{'descr': 'f4,f4', 'fortran_order': False, 'shape': (2, 3)}\n", bytes(99)),
            "not real numbers",
        ),
        (
            npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}\n", bytes(99)),
            "cannot be read",
        ),
        (
            npy_bytes(
                b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}\n", bytes(99)
            ),
            "cannot be read",
        ),
        (npy_bytes(b"{'descr': '<f4', 'shape': (2, 3)}\n", bytes(99)), "cannot be read"),
        (
            npy_bytes(
                b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", bytes(99), b"\4\0"
            ),
            "cannot be read",
        ),
        (
            npy_bytes(b"{'descr': '\\d', 'fortran_order': False, 'shape': (2, 3)}\n", bytes(99)),
            "cannot be read",
        ),
        (
            npy_bytes(b"{'descr': [('a', '<f4', {})], 'fortran_order': False, 'shape': (2, 3)}\n"),
            "cannot be read",
        ),
        (npy_bytes(b"{'shape': (" + b" " * 9900), "cannot be read"),
        (npy_bytes(b"{" + b" " * 10_000 + b"}"), "cannot be read"),
        (npy_bytes(b"(" * 9000), "cannot be read"),
        (npy_bytes(b"__import__('os').mkdir('x')\n"), "cannot be read"),
        (npy_bytes(b"[" * 12000, version=b"\2\0"), "cannot be read"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "a.npy").write_bytes(data)
    assert reason in refusal(tmp_path / "a.npy")


def test_a_header_of_python_2_is_read_without_a_warning(tmp_path: Path) -> None:
    data = npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L)}\n", bytes(24))
    (tmp_path / "a.npy").write_bytes(data)
    assert_rows(layer(tmp_path / "a.npy", "a"), np.zeros((2, 3), np.float32))


def test_columns_that_are_cut_while_they_are_read_are_a_sentence(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(matrix(1000, 64)))
    found = layer(tmp_path / "a.npy", "a")
    os.truncate(tmp_path / "a.npy", 100_000)
    with pytest.raises(InputError, match="cut off while it was read"):
        found.rows(np.array([3, 999]))


# --- archives -----------------------------------------------------------------------------------------------------


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_archives_are_refused_where_they_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    np.savez_compressed(path, a=matrix(100, 100))
    whole = path.read_bytes()
    path.write_bytes(
        whole[:26] + b"\xff\x1f" + whole[28:]
    )  # the length of a name, which the message has
    assert len(refusal(path)) < 500
    path.write_bytes(whole[:-40])
    assert "damaged archive" in refusal(path)
    path.write_bytes(whole[:200] + bytes(2000) + whole[2200:])
    assert re.search(r"member 'a.npy' is damaged|header that cannot", refusal(path))
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(200) + whole[middle + 200 :])
    assert "member 'a.npy' is damaged" in refusal(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_read_as_numpy_reads_them(tmp_path: Path, compression: int) -> None:
    (tmp_path / "m.npz").write_bytes(
        zipped({"a.npy": saved(matrix()), "read.me": b"a"}, compression)
    )
    assert_rows(layer(tmp_path / "m.npz", "a"), np.load(tmp_path / "m.npz")["a"])


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_array_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as file:
        for seed in (1, 2):
            file.writestr("a.npy", saved(matrix(seed=seed)))
    assert "'a' twice" in refusal(tmp_path / "m.npz")


def test_a_member_that_claims_less_than_it_has_is_refused(tmp_path: Path) -> None:
    short = npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9, 99)}\n", bytes(24))
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        (tmp_path / "m.npz").write_bytes(zipped({"a.npy": short, "b": bytes(10_000)}, compression))
        assert "'a' ends at byte" in refusal(tmp_path / "m.npz")


def test_a_member_that_claims_more_than_the_file_has_is_refused(tmp_path: Path) -> None:
    data = npy_bytes(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (90, 99)}\n", bytes(20_000)
    )
    path, size = tmp_path / "m.npz", len(data).to_bytes(4, "little")
    path.write_bytes(zipped({"a.npy": data}).replace(2 * size, 2 * (90_000).to_bytes(4, "little")))
    ours, of_zipfile = (
        r"'a' ends at byte 35,\d+ of 20,\d+$",
        "'a.npy' is damaged \\(Overlapped entries",
    )  # Python 3.13
    assert re.search(f"{ours}|{of_zipfile}", refusal(path))


def test_an_archive_whose_first_member_is_no_array(tmp_path: Path) -> None:
    np.save(array := io.BytesIO(), matrix())
    (tmp_path / "m.npz").write_bytes(
        zipped({"README.txt": b"of one array", "weight.npy": array.getvalue()})
    )
    assert_rows(layer(tmp_path / "m.npz", "weight"), matrix())


def test_a_small_deflated_array_is_inflated_once(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "m.npz", weight=matrix(20_000, 20))
    found = layer(tmp_path / "m.npz", "weight")
    found.rows(np.array([1]))
    model = embcli.open(tmp_path / "m.npz")
    first = model[1]
    os.truncate(tmp_path / "m.npz", 0)
    assert_rows(found, matrix(20_000, 20))
    assert model[1].tolist() == first.tolist()


def test_a_deflated_array_that_is_larger_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "m.npz", weight=matrix())
    monkeypatch.setattr("embcli.errors.memory_of_machine", lambda: 2 * 1400 - 1)
    with pytest.raises(LayerError, match="compressed array 'weight' of 50 x 7 takes"):
        layer(tmp_path / "m.npz", "weight")

"""Rows of .npy and .npz files are numpy's; pickles are refused, and damage is a sentence."""

from __future__ import annotations

import os
import re
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.format import write_array

import embcli
from embcli.errors import InputError
from embcli.explore.explored import ExploredMatrix
from tests.cases import cases
from tests.files.made import assert_rows, layer, matrix, npy_bytes, refusal, refused, zipped
from tests.readers import as_npy


@cases
@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
def test_what_is_no_matrix_of_numbers_is_refused(shape, dtype, reason):
    array = np.zeros(shape, dtype)
    np.save("a.npy", array, allow_pickle=True)
    assert reason in refusal("a.npy")
    np.savez_compressed("a.npz", a=array, allow_pickle=True)
    assert reason in refusal("a.npz", "a")


@cases
def test_rows_of_each_version_of_the_format_are_those_of_numpy(version):
    with open("a.npy", "wb") as file:
        write_array(file, matrix(), version=tuple(version))
    assert_rows(layer("a.npy", "a"), np.load("a.npy"))


# --- headers --------------------------------------------------------------------------------------


def header(shape: str, descr: str = "'<f4'", order: str = "False", more: str = "") -> bytes:
    """Return a header whose values are these texts, between the brackets of a dictionary."""
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}{more}}}\n".encode()


@cases
def test_headers_that_lie_are_refused(head, size, reason):
    assert reason in refused("a.npy", npy_bytes(head.encode("latin-1"), bytes(size)))


@pytest.mark.parametrize(
    "data",
    [
        b"\x93NUMPY",
        b"\x93NUMPY\1\0\xff\xff{",
        npy_bytes(header("(2, 3)"), bytes(99), version=b"\4\0"),
        npy_bytes(b"[" * 12000, version=b"\2\0"),
        npy_bytes(b"{'shape': (" + b" " * 9900),
        npy_bytes(b"{" + b" " * 10_000 + b"}"),
        npy_bytes(b"(" * 9000),
    ],
    ids=range(7),
)
def test_a_header_that_cannot_be_read_is_refused(data):
    assert "cannot be read" in refused("a.npy", data)


def test_a_header_of_python_2_is_read_without_a_warning():
    Path("a.npy").write_bytes(npy_bytes(header("(2L, 3L)"), bytes(24)))
    assert_rows(layer("a.npy", "a"), np.zeros((2, 3), np.float32))


def test_columns_that_are_cut_while_they_are_read_are_a_sentence():
    np.save("a.npy", np.asfortranarray(matrix(1000, 64)))
    found = layer("a.npy", "a")
    os.truncate("a.npy", 100_000)
    with pytest.raises(InputError, match="cut off while it was read"):
        found.rows(np.array([3, 999]))


# --- archives -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "damage", "reason"),
    [
        (26, b"\xff\x1f", "damaged"),  # the length of a name, which the message has
        (200, bytes(2000), r"member 'a\.npy' is damaged|header that cannot"),
        (18_000, bytes(200), r"member 'a\.npy' is damaged"),
    ],
)
def test_a_damaged_archive_is_refused(start, damage, reason):
    np.savez_compressed("m.npz", a=matrix(100, 100))
    data = bytearray(Path("m.npz").read_bytes())
    data[start : start + len(damage)] = damage
    message = refused("m.npz", data)
    assert re.search(reason, message)
    assert len(message) < 500


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_byte_of_a_compressed_array_is_refused_or_changes_nothing(
    compression,
):
    archive = zipped({"a.npy": as_npy(matrix(30, 20))}, compression)
    for place in range(40, len(archive) - 100, 61):
        data = bytearray(archive)
        data[place] ^= 0xFF
        Path("m.npz").write_bytes(data)
        with suppress(InputError):
            row = embcli.open("m.npz")[1]
            assert row.tolist() == matrix(30, 20)[1].tolist()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_whose_first_member_is_no_array_is_read_as_numpy_reads_it(
    compression,
):
    archive = zipped({"README.txt": b"of one array", "a.npy": as_npy(matrix())}, compression)
    Path("m.npz").write_bytes(archive)
    assert_rows(layer("m.npz", "a"), np.load("m.npz")["a"])


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_array_that_is_there_twice_is_refused():
    with zipfile.ZipFile("m.npz", "w") as file:
        file.writestr("a.npy", as_npy(matrix(seed=1)))
        file.writestr("a.npy", as_npy(matrix(seed=2)))
    assert "'a' twice" in refusal("m.npz")


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_claims_less_than_it_has_is_refused(compression):
    short = npy_bytes(header("(9, 99)"), bytes(24))
    archive = zipped({"a.npy": short, "b": bytes(10_000)}, compression)
    assert "'a' ends at byte" in refused("m.npz", archive)


def test_a_member_that_claims_more_than_the_file_has_is_refused():
    data = npy_bytes(header("(90, 99)"), bytes(20_000))
    both_sizes = 2 * len(data).to_bytes(4, "little")
    lie = 2 * (90_000).to_bytes(4, "little")
    archive = zipped({"a.npy": data}).replace(both_sizes, lie)
    message = refused("m.npz", archive)
    # zipfile of Python 3.13 sees it first.
    assert re.search(r"'a' ends at byte 35,\d+ of 20,\d+$|Overlapped entries", message)


@pytest.fixture
def streamed(monkeypatch):
    """A compressed array of 12 MB, which is too large to be kept; returns its rows."""
    monkeypatch.setattr("embcli.files.npy._LARGEST_KEPT", 10**6)
    monkeypatch.setattr("zipfile.ZipExtFile.MAX_SEEK_READ", 10**6)  # is 16 MB
    rows = np.tile(matrix(500, 100), (60, 1))
    rows[[3, -1]] = 7
    np.savez_compressed("m.npz", weight=rows)
    return rows


@pytest.mark.parametrize(
    "command", ["lookup --ids 3,29999,3 -f csv", "weights --rows 3,29999 -f json"]
)
def test_rows_of_a_large_compressed_array_take_little_memory(in_process, streamed, command):
    np.savez("s.npz", weight=streamed)
    stored = in_process(*command.split(), "--from", "s.npz").text
    tracemalloc.start()
    unpacked = in_process(*command.split(), "--from", "m.npz").text
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert unpacked.replace("m.npz", "s.npz") == stored
    assert peak < streamed.nbytes / 2


def test_a_pass_over_a_large_compressed_array_has_all_rows(streamed):
    found = layer("m.npz", "weight")
    for _ in range(2):
        assert np.array_equal(np.concatenate([*found.blocks()]), streamed)
    assert_rows(found, streamed)


def test_no_row_of_a_large_compressed_array_is_shown_before_its_checksum_was_compared(streamed):
    data = bytearray(zipped({"weight.npy": as_npy(streamed)}, zipfile.ZIP_DEFLATED))
    place = data.index(b"PK\1\2") + 16  # the checksum that the directory has
    data[place] ^= 1
    Path("m.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"is damaged \(Bad CRC-32"):
        embcli.open("m.npz")[3]


def test_what_reads_a_large_compressed_array_again_and_again_is_refused(streamed):
    with pytest.raises(InputError, match=r"this array is compressed: 'm\.npz'"):
        ExploredMatrix(embcli.open("m.npz"), "m.npz", {})
    np.savez_compressed("m.npz", weight=np.asfortranarray(streamed))
    assert "stored by columns (Fortran order)" in refusal("m.npz", "weight")
    np.savez("m.npz", weight=np.asfortranarray(streamed))
    assert_rows(layer("m.npz", "weight"), streamed)

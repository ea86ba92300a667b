"""A kept file gives the numbers that were written, whatever happens to it, or says that it is damaged."""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli import memory
from embcli.files.safetensors import header
from embcli.store import Damaged, Store
from embcli.weights import kept
from embcli.weights.build import Build
from embcli.weights.kept import KeptLayer, Key, digest, write
from embcli.weights.seeded import Seeded

BUILD = Build("2.13.0+cpu+aa", "x86_64", "00000000", "glibc-2.36")
ORIGIN = {"torch": "2.13.0+cpu", "cpu_capability": "AVX2"}
SMALL = Key("token", Seeded(6, 3, 5), BUILD)
WIDE = Key("token", Seeded(700, 50, 20), BUILD)  # three chunks under a checksum, the last one short


def values(key: Key) -> np.ndarray:
    """Return numbers that stand for a layer's."""
    return np.random.default_rng(key.shape[0]).standard_normal(key.shape, np.float32)


def written(folder: Path, key: Key = SMALL, pieces: int = 1) -> Path:
    path = folder / key.file_name
    with path.open("wb") as file:
        write(file, key, np.array_split(values(key), pieces), ORIGIN)
    return path


def opened(path: Path) -> KeptLayer:
    """Open a kept file as the store does."""
    with Store(path.parent).open(path.name) as file:
        return KeptLayer(file)


def spoilt(path: Path, data: bytes) -> Path:
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


def rows(path: Path, ids: Any = None) -> np.ndarray:
    layer = opened(path)
    return layer.rows(np.arange(layer.shape[0]) if ids is None else np.array(ids))


def is_refused(path: Path) -> bool:
    """Say whether a file is refused when it is opened, or when all of it is read."""
    try:
        layer = opened(path)
    except Damaged:
        return True
    with pytest.raises(Damaged):
        layer.check()
    with pytest.raises(Damaged):
        layer.rows(np.arange(layer.shape[0]))
    return True


# --- written and read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize(
    "key", [SMALL, WIDE, Key("position", Seeded(9, 1024, 16), BUILD), Key("token", Seeded(1, 1), BUILD)], ids=str
)
def test_a_layer_is_read_as_it_was_written(tmp_path: Path, key: Key, pieces: int) -> None:
    path, expected = written(tmp_path, key, pieces), values(key)
    layer = opened(path)
    assert (layer.name, layer.shape, layer.dtype, layer.key) == (key.name, key.shape, "float32", str(key))
    assert layer.build == ORIGIN
    assert layer.rows(np.arange(len(expected))).tobytes() == expected.tobytes()
    assert b"".join(block.tobytes() for block in opened(path).blocks()) == expected.tobytes()
    summary = layer.summary()
    assert (summary.minimum, summary.maximum) == (expected.min(), expected.max())
    assert summary.mean == pytest.approx(expected.mean(dtype=np.float64), rel=1e-12)
    if expected.size > 1:
        assert summary.std == pytest.approx(expected.std(ddof=1, dtype=np.float64), rel=1e-9)
    assert path.stat().st_size == key.file_bytes


def test_a_kept_file_is_a_safetensors_file_that_other_programs_read(tmp_path: Path) -> None:
    tensors = safetensors.numpy.load_file(written(tmp_path, WIDE))
    assert tensors["token"].tobytes() == values(WIDE).tobytes()
    assert tensors["token"].shape == (700, 50)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 699), max_size=9), min_size=1, max_size=6))
def test_rows_in_any_order_and_as_often_as_asked_are_those_that_were_written(
    wide: Path, calls: list[list[int]]
) -> None:
    layer = opened(wide)
    for ids in calls:
        rows = layer.rows(np.array(ids, np.uint32))
        assert rows.tobytes() == values(WIDE)[ids].tobytes()
        assert rows.shape == (len(ids), 50)
    layer.check()


def test_several_threads_read_the_rows_that_were_written(wide: Path) -> None:
    layer, expected = opened(wide), values(WIDE)

    def are_right(seed: int) -> bool:
        chances = np.random.default_rng(seed)
        asked = [chances.integers(0, 700, 20) for _ in range(200)]
        return all(layer.rows(ids).tobytes() == expected[ids].tobytes() for ids in asked)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(are_right, range(8)))


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("wide"), WIDE)


def test_a_chunk_is_verified_once(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, verified = opened(wide), []
    monkeypatch.setattr(zlib, "crc32", lambda data, crc32=zlib.crc32: verified.append(len(data)) or crc32(data))
    for row in (0, 699, 0, 699):
        layer.rows(np.array([row]))
    assert len(verified) == 2


def test_rows_wider_than_a_chunk_are_read_whole(tmp_path: Path) -> None:
    key = Key("token", Seeded(3, 50_000), BUILD)  # 200,000 bytes a row
    path = written(tmp_path, key)
    layer = opened(path)
    for ids in ([0], [2], [1, 0]):
        rows = layer.rows(np.array(ids, np.uint16))  # too narrow for the places of the values
        assert rows.tobytes() == values(key)[ids].tobytes()


# --- files that are not what was written --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("small")).read_bytes()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_other_byte_anywhere_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, 600) | st.integers(4096, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    path = tmp_path_factory.mktemp("spoilt") / SMALL.file_name
    assert is_refused(spoilt(path, whole[:place] + bytes([value]) + whole[place + 1 :]))


@pytest.mark.parametrize("blank", [b"\t", b"\n", b"\r"])
def test_other_blanks_behind_the_header_are_noticed(tmp_path: Path, whole: bytes, blank: bytes) -> None:
    with pytest.raises(Damaged, match="its header is damaged"):
        opened(spoilt(tmp_path / "layer", whole[:4095] + blank + whole[4096:]))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_file_cut_off_or_grown_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    other = data.draw(
        st.integers(0, len(whole) - 1).map(lambda length: whole[:length]) | st.binary(min_size=1).map(whole.__add__)
    )
    assert is_refused(spoilt(tmp_path_factory.mktemp("spoilt") / SMALL.file_name, other))


@pytest.mark.parametrize(
    "other",
    [
        b"",
        bytes(5000),
        b"\xff" * 5000,
        b"<!DOCTYPE html>" * 400,
        safetensors.numpy.save({}),
        safetensors.numpy.save({"token": np.zeros((6, 3), np.float32)}),
        safetensors.numpy.save({"token": np.zeros(2000, np.float32)}, {"check": "0"}),
        (4088).to_bytes(8, "little") + b"[]".ljust(6000),
        (4088).to_bytes(8, "little") + b"[" * 6000,
        (4088).to_bytes(8, "little") + b'{"a":' * 1200,
    ],
    ids=["empty", "zeros", "ones", "html", "no tensor", "foreign", "foreign 2", "an array", "deep", "deep 2"],
)
def test_a_foreign_file_is_noticed(tmp_path: Path, other: bytes) -> None:
    with pytest.raises(Damaged):
        opened(spoilt(tmp_path / "layer", other))


def forged(
    path: Path, name: str = "token", shape: tuple[int, ...] = (6, 3), data: bytes | None = None, **metadata: object
) -> Path:
    """Write a file whose checks are right, with other things in its header; what is None is left out."""
    content = values(SMALL).tobytes() if data is None else data
    known = {"format": kept.FORMAT, "key": str(SMALL), **ORIGIN, "mean": "0.0", "std": "1.0"}
    known |= {"minimum": "-1.0", "maximum": "1.0"}
    told: Any = {key: value for key, value in {**known, **metadata}.items() if value is not None}
    if "check" not in metadata:
        told["check"] = digest(json.dumps([name, shape, told], sort_keys=True))
    sums = [zlib.crc32(content[start : start + 65536]) for start in range(0, len(content), 65536)]
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {name: ("float32", shape), "crc32": ("uint32", (len(sums),))}
    return spoilt(path, header(tensors, told, size=4096) + content + np.array(sums, np.uint32).tobytes())


def test_a_forged_file_with_nothing_wrong_is_read(tmp_path: Path) -> None:
    assert rows(forged(tmp_path / "layer")).tobytes() == values(SMALL).tobytes()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"torch": None},
        {"cpu_capability": None},
        {"key": None},
        {"mean": None},
        {"mean": "much"},
        {"std": ""},
        {"maximum": "0x1"},
        {"more": "than that"},
        {"key": 7},
        {"torch": ["2.13"]},
        {"format": {}},
        {"check": None},
        {"check": 5},
        {"check": "00000000"},
        {"shape": (-6, -3)},
        {"shape": (18,)},
        {"shape": (6, 3, 1)},
        {"shape": (0, 3), "data": b""},
        {"shape": (2**20, 2**20)},
        {"shape": (True, 18)},
        {"shape": (6.0, 3)},
        {"name": "crc32"},
    ],
    ids=str,
)
def test_a_header_of_nonsense_is_noticed_though_its_checks_are_right(tmp_path: Path, nonsense: dict[str, Any]) -> None:
    with pytest.raises(Damaged):
        opened(forged(tmp_path / "layer", **nonsense))


JSON = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*kept._METADATA, "more"]), JSON)
def test_any_value_in_the_metadata_is_noticed_or_text(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: object
) -> None:
    try:
        path = forged(tmp_path_factory.mktemp("forged") / "layer", **{field: value})
    except (TypeError, ValueError):
        return  # it cannot be written
    try:
        layer = opened(path)
    except Damaged:
        return
    assert isinstance(value, str)
    assert field in kept._METADATA
    assert all(isinstance(figure, float) for figure in vars(layer.summary()).values())


def test_damage_costs_nothing_where_it_is_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, WIDE)
    data = path.read_bytes()
    place = 4096 + 4 * 50 * 500
    spoilt(path, data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    layer = opened(path)
    assert layer.rows(np.array([0, 300])).tobytes() == values(WIDE)[[0, 300]].tobytes()
    for _ in range(2):
        with pytest.raises(Damaged, match=r"^its bytes from 65,536 on are not what was written$"):
            layer.rows(np.array([500, 0]))
    assert layer.rows(np.array([300, 0])).tobytes() == values(WIDE)[[300, 0]].tobytes()


def test_a_row_that_crosses_into_a_damaged_chunk_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path, WIDE)  # rows of 200 bytes: row 327 ends in the second chunk of 65,536 bytes
    data = path.read_bytes()
    spoilt(path, data[: 4096 + 65536] + bytes([data[4096 + 65536] ^ 255]) + data[4096 + 65537 :])
    assert rows(path, [326]).tobytes() == values(WIDE)[326].tobytes()
    with pytest.raises(Damaged):
        rows(path, [327])


def test_rows_behind_more_values_than_32_bits_count_are_read_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "total", lambda: 2**50)
    shape = 270_000, 16_384  # 65,536 bytes a row, one chunk each; all zeros, so the file takes no space
    key = Key("token", Seeded(*shape), BUILD)
    path = tmp_path / key.file_name
    metadata = {"format": kept.FORMAT, "key": str(key), **ORIGIN, **dict.fromkeys(kept._FIGURES, "0.0")}
    metadata["check"] = kept._check("token", shape, metadata)
    with path.open("wb") as file:
        file.write(header(kept._tensors("token", shape), metadata, size=4096))
        file.seek(4096 + shape[0] * 65536)
        file.write(np.full(shape[0], zlib.crc32(bytes(65536)), np.uint32).tobytes())
        file.seek(4096 + 269_999 * 65536)
        file.write(b"\x01")
    layer = opened(path)
    assert not layer.rows(np.array([0, 269_998], np.uint32)).any()
    with pytest.raises(Damaged, match="from 17,694,654,464 on"):
        layer.rows(np.array([269_999], np.uint32))


# --- what is no file, and what ceases to be one -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("put", "fault"),
    [
        (os.mkfifo, "^it is not a regular file$"),
        (lambda path: path.symlink_to("/dev/zero"), "^it is not a regular file$"),
        (lambda path: path.symlink_to("/dev/tty"), "^it is not a regular file$|No such device"),  # there may be none
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path), "Too many levels"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
        (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "No such device"),
    ],
    ids=["pipe", "device", "terminal", "folder", "loop", "nowhere", "socket"],
)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, put: Callable[[Path], object], fault: str) -> None:
    path = tmp_path / "layer"
    put(path)
    with pytest.raises((OSError, Damaged), match=fault):
        opened(path)


def test_a_file_that_is_removed_while_it_is_open_is_read_on(tmp_path: Path) -> None:
    path = written(tmp_path, WIDE)
    layer = opened(path)
    path.unlink()
    assert layer.rows(np.arange(700)).tobytes() == values(WIDE).tobytes()


def test_no_file_stays_open(tmp_path: Path) -> None:
    path = written(tmp_path)
    damaged = spoilt(tmp_path / "damaged", path.read_bytes()[:-1])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(9):
        rows(path)
        for bad in (damaged, tmp_path / "none", tmp_path):
            with pytest.raises((OSError, Damaged)):
                opened(bad)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

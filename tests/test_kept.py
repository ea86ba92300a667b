"""Kept layers: drawn once, read again bit for bit without torch, and never wrong; the folder that they are in."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embcli import store as store_module
from embcli.errors import LayerError, Notes, OutputError
from embcli.layer import Layer
from embcli.seeded_layers import build
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import KeptLayer, SeededSource, file_name
from embcli.store import Store
from tests.oracles import assert_same_bits, live
from tests.runners import TIMEOUT, InProcess, Process

SMALL = Seeded(6, 3, 5)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    build.this_build.cache_clear()
    yield
    build.this_build.cache_clear()


def opened(
    store: Store | None,
    seeded: Seeded = SMALL,
    name: str = "token",
    ids: Any = None,
    notes: Notes | None = None,
) -> Layer:
    return SeededSource(seeded, store).open({name: ids}, notes)[name]


def path(store: Store, seeded: Seeded = SMALL, name: str = "token") -> Path:
    return store.folder / file_name(name, seeded, build.this_build())


def assert_right(layer: Layer, seeded: Seeded = SMALL, name: str = "token") -> None:
    wanted = live(seeded)[name]
    assert_same_bits(layer.rows(np.arange(len(wanted))), wanted)
    assert_same_bits(np.concatenate([block.copy() for block in layer.blocks()]), wanted)
    assert_same_bits(layer.rows(np.array([3, 0, 3])), wanted[[3, 0, 3]])


@pytest.mark.parametrize("name", ["token", "position"])
@pytest.mark.parametrize(
    "seeded", [SMALL, Seeded(4, 1, 4), Seeded(1000, 300, 50, 7), Seeded(9, 70_000, 4, 2**64 - 1)]
)
def test_a_layer_is_the_same_drawn_kept_and_read_again(
    store: Store, seeded: Seeded, name: str
) -> None:
    assert_right(opened(None, seeded, name), seeded, name)
    for _ in range(2):
        layer = opened(store, seeded, name)
        assert isinstance(layer, KeptLayer)
        assert_right(layer, seeded, name)
    assert_same_bits(np.load(path(store, seeded, name)), live(seeded)[name])


def test_whatever_changes_a_bit_has_a_file_of_its_own() -> None:
    own = build.this_build()
    changed = [own._replace(**{each: "other"}) for each in ("torch", "machine", "cpu", "libc")]
    names = [file_name("token", SMALL, each) for each in (own, *changed)]
    for other in (Seeded(7, 3, 5), Seeded(6, 4, 5), Seeded(6, 3, 5, 124), Seeded(6, 3, 6)):
        names += [file_name("token", other, own)] if other.context_length == 5 else []
        names.append(file_name("position", other, own))
    names.append(file_name("position", SMALL, own))
    assert len({*names}) == len(names) == 13
    assert file_name("token", Seeded(6, 3, 9), own) == names[0]


def put_fifo(place: Path) -> None:
    os.mkfifo(place)


def put_link(place: Path) -> None:
    target = place.with_name("elsewhere")
    np.save(target, np.zeros((6, 3), np.float32))
    place.symlink_to(target.with_name("elsewhere.npy"))


SPOILT: dict[str, Callable[[Path], object]] = {
    "a pipe": put_fifo,
    "a link": put_link,
    "a folder": Path.mkdir,
    "empty": Path.touch,
    "nonsense": lambda place: place.write_bytes(b"nonsense" * 99),
    "other numbers": lambda place: np.save(place, np.zeros((6, 3))),
    "whole numbers": lambda place: np.save(place, np.zeros((6, 3), np.int32)),
    "another shape": lambda place: np.save(place, np.zeros((3, 6), np.float32)),
    "objects": lambda place: np.save(place, np.full((6, 3), None), allow_pickle=True),
}


@pytest.mark.parametrize("put", SPOILT)
def test_what_is_no_such_layer_is_drawn_anew(store: Store, put: str) -> None:
    store.folder.mkdir()
    SPOILT[put](path(store))
    for _ in range(2):
        assert_right(opened(store))
    if put != "a folder":
        assert_right(opened(store, name="token"))
        assert path(store).is_file()
        assert not path(store).is_symlink()


def test_a_file_that_was_cut_is_drawn_anew(store: Store) -> None:
    opened(store)
    whole = path(store).read_bytes()
    for end in range(0, len(whole), 7):
        path(store).write_bytes(whole[:end])
        assert_right(opened(store))
        assert path(store).read_bytes() == whole


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have owners")
def test_files_of_a_stranger_are_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(store)
    np.save(path(store), np.zeros((6, 3), np.float32))
    status = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: _Owned(status(path), 4711))
    assert store.read(path(store).name, (6, 3)) is None
    monkeypatch.setattr(Path, "lstat", lambda path: _Owned(status(path), os.geteuid()))
    assert store.read(path(store).name, (6, 3)) is not None


class _Owned:
    def __init__(self, status: os.stat_result, owner: int) -> None:
        self.st_mode, self.st_size, self.st_uid = status.st_mode, status.st_size, owner


def test_the_oldest_go_and_the_newest_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "LIMIT", 1500)
    rows = np.ones((75, 1), np.float32)  # 300 bytes, and 128 of a header
    for age, name in ((30, "token-a.npy"), (10, "position-b.npy"), (20, "token-c.npy")):
        store.write(name, rows.shape, [rows], Notes())
        os.utime(store.folder / name, (time.time() - age,) * 2)
    assert_same_bits(store.read("token-a.npy", rows.shape), rows)  # it is the newest now
    for partial, age in ((".embcli-0123456789ab.part", 7200), (".embcli-ba9876543210.part", 5)):
        (store.folder / partial).write_bytes(b"x")
        os.utime(store.folder / partial, (time.time() - age,) * 2)
    (store.folder / "mine.npy").write_bytes(bytes(5000))
    store.write("token-d.npy", rows.shape, [rows], Notes())
    names = {entry.path.name for entry in store.entries()}
    assert names == {"position-b.npy", "token-a.npy", "token-d.npy", ".embcli-ba9876543210.part"}
    store.write(
        "token-e.npy", (188, 1), (pytest.fail("it is too large") for _ in range(1)), Notes()
    )
    assert {each.path.name for each in store.clear()} == names
    assert [each.name for each in store.folder.iterdir()] == ["mine.npy"]


def test_a_write_that_fails_leaves_nothing(store: Store) -> None:
    opened(store)
    before = path(store).read_bytes()

    def failing() -> Iterator[np.ndarray]:
        yield np.ones((3, 3), np.float32)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(path(store).name, (6, 3), failing(), Notes())
    assert path(store).read_bytes() == before
    assert [*store.folder.iterdir()] == [path(store)]


@pytest.mark.parametrize("folder", ["/proc/none", "a file"])
def test_a_folder_that_cannot_be_written_is_noted_and_done_without(
    tmp_path: Path, folder: str
) -> None:
    (tmp_path / "a file").touch()
    notes = Notes()
    layers = SeededSource(SMALL, Store(tmp_path / folder)).open({"token": np.array([1])}, notes)
    assert_right(layers["token"])
    (note,) = notes
    assert note.startswith(f"nothing is cached: cannot write to {tmp_path / folder} (")


def test_a_full_disk_is_noted_and_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(store_module.npy, "write_array_header_1_0", full)
    notes = Notes()
    assert_right(opened(store, notes=notes))
    assert [*store.folder.iterdir()] == []
    assert "No space left on device" in "".join(notes)


def test_processes_at_once_are_right_and_leave_one_file(store: Store) -> None:
    words, here = (
        ("weights", "--vocab", "6", "--dim", "3", "-f", "csv"),
        {"EMBCLI_CACHE_DIR": str(store.folder)},
    )
    running = [
        Process().start(*words, environment=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    outputs = [each.communicate(timeout=TIMEOUT) for each in running]
    assert len({*outputs}) == 1, outputs
    assert [entry.path for entry in store.entries()] == [path(store)] == [*store.folder.iterdir()]


def test_threads_draw_and_read_the_same_rows(store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        layers = [*pool.map(lambda _: opened(store), range(8))]
    for layer in layers:
        assert_right(layer)


def test_the_origin_says_what_drew_the_layers(store: Store) -> None:
    import torch

    wanted = {
        "torch": str(torch.__version__),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    for _ in range(2):
        origin = SeededSource(SMALL, store).open({"token": None, "position": None}).origin
        assert origin.document() == {
            "seed": 123,
            "shapes": {"token": [6, 3], "position": [5, 3]},
            **wanted,
        }


def test_without_torch_a_sentence_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    with pytest.raises(
        LayerError, match="torch is not installed, and is needed here; pip install torch"
    ):
        opened(store)


def test_without_a_home_there_is_no_cache_and_a_note(
    monkeypatch: pytest.MonkeyPatch, in_process: InProcess
) -> None:
    def unknown(*_: object, **__: object) -> Path:
        raise RuntimeError("no home")

    monkeypatch.setenv("EMBCLI_CACHE_DIR", "")
    monkeypatch.setattr("platformdirs.user_cache_path", unknown)
    notes = Notes()
    assert Store.from_environment(notes) is None
    assert "EMBCLI_CACHE_DIR can name another" in "".join(notes)
    assert "there is no cache folder: set EMBCLI_CACHE_DIR to one, or HOME" in in_process.refused(
        "cache"
    )


@pytest.mark.parametrize(
    "verb",
    [
        "batch --ids 1,2,3,4,5 --batch-size 1",
        "lookup --ids 1,2",
        "neighbors --ids 1",
        "audit",
        "positions",
        "weights",
    ],
)
def test_each_verb_keeps_the_layers_that_it_draws_unless_told_not_to(
    in_process: InProcess, store: Store, verb: str
) -> None:
    words, here = (
        [*verb.split(), "--vocab", "6", "--dim", "3"],
        {"EMBCLI_CACHE_DIR": str(store.folder)},
    )
    drawn = in_process.ok(*words, "--no-cache", **here).out
    assert store.entries() == []
    assert in_process.ok(*words, **here).out == drawn
    assert store.entries()


def test_the_cache_is_listed_and_cleared(in_process: InProcess, store: Store) -> None:
    here = {"EMBCLI_CACHE_DIR": str(store.folder)}
    assert (
        in_process.ok("cache", **here).text
        == f"{store.folder}\n0 layers, 0 bytes of at most 2.0 GB\n"
    )
    opened(store)
    os.utime(path(store), (time.time() - 60,) * 2)  # both could be of one tick of the clock
    opened(store, name="position")
    size = sum(each.stat().st_size for each in store.folder.iterdir())
    page = in_process.ok("cache", **here).text.splitlines()
    assert page[1] == f"2 layers, {size} bytes of at most 2.0 GB"
    assert [line.split()[-1] for line in page[5:]] == [
        "token-6x3-seed123",
        "position-5x3-after-6x3-seed123",
    ]
    document = json.loads(in_process.ok("cache", "-f", "json", **here).out)
    assert (document["run"]["bytes"], document["run"]["limit"]) == (size, 2 * 10**9)
    assert [each["file"] for each in document["layers"]] == [
        path(store).name,
        path(store, name="position").name,
    ]
    cleared = in_process.ok("cache", "clear", **here).text  # a long folder is on a line of its own
    assert cleared.split() == f"2 files removed, {size} bytes, from {store.folder}".split()
    assert [*store.folder.iterdir()] == []
    assert "verify" in in_process.refused("cache", "verify", **here)


def test_a_file_that_cannot_be_removed_is_an_error(store: Store) -> None:
    (store.folder / "token-a.npy").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot remove"):
        store.clear()

"""Kept layers: drawn once, read again bit for bit without torch, and never wrong; their folder."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from embcli import store as store_module
from embcli.errors import LayerError, Notes, OutputError
from embcli.layer import Layer
from embcli.seeded_layers import build
from embcli.seeded_layers.build import Build
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource, file_name
from embcli.store import Store
from tests.cases import cases
from tests.oracles import assert_same_bits, live
from tests.readers import as_npy
from tests.runners import TIMEOUT

SMALL = Seeded(6, 3, 5)
WORDS = ("--vocab", "6", "--dim", "3")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def here(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return the store that commands use."""
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(store.folder))
    return store


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    build.this_build.cache_clear()
    yield
    build.this_build.cache_clear()


def opened(
    store: Store | None, seeded: Seeded = SMALL, name: str = "token", notes: Notes | None = None
) -> Layer:
    return SeededSource(seeded, store).open({name: None}, notes or Notes())[name]


def path(store: Store, seeded: Seeded = SMALL, name: str = "token") -> Path:
    return store.folder / file_name(name, seeded, build.this_build())


def test_a_kept_layer_whose_header_has_a_damaged_byte_is_drawn_again(store):
    opened(store)
    whole = path(store).read_bytes()
    for place in range(128):
        for value in (0, 0x27, 0x31, 0xFF):
            path(store).write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            kept = store.read(path(store).name, (6, 3))
            assert kept is None or kept.shape == (6, 3)

    path(store).write_bytes(whole[:8] + b"\1" + whole[9:])
    assert_same_bits(opened(store).rows(np.arange(6)), live(SMALL)["token"])


def in_folder(store: Store) -> set[str]:
    return {entry.name for entry in store.folder.iterdir()}


def assert_right(layer: Layer, seeded: Seeded = SMALL, name: str = "token") -> None:
    """Hold rows and blocks of a layer against torch's own."""
    expected = live(seeded)[name]
    assert_same_bits(layer.rows(np.arange(len(expected))), expected)
    assert_same_bits(layer.rows(np.array([3, 0, 3])), expected[[3, 0, 3]])
    blocks = [*layer.blocks()]
    assert_same_bits(np.concatenate(blocks), expected)


# --- layers that are kept -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["token", "position"])
@pytest.mark.parametrize(
    "seeded", [SMALL, Seeded(4, 1, 4), Seeded(1000, 300, 50, 7), Seeded(9, 70_000, 4, 2**64 - 1)]
)
def test_a_layer_is_the_same_drawn_kept_and_read_again(store, seeded, name):
    assert_right(opened(None, seeded, name), seeded, name)
    for _ in range(2):
        assert_right(opened(store, seeded, name), seeded, name)
    assert_same_bits(np.load(path(store, seeded, name)), live(seeded)[name])


def test_whatever_changes_a_bit_and_nothing_else_has_a_file_of_its_own():
    own = build.this_build()
    token = file_name("token", SMALL, own)
    names = [token, file_name("position", SMALL, own)]
    for field in {*Build._fields} - {"version", "capability"}:  # They follow from the others.
        other_build = own._replace(**{field: "other"})
        names.append(file_name("token", SMALL, other_build))
    for field in fields(Seeded):
        if not field.init:  # It follows from the others.
            continue
        other = replace(SMALL, **{field.name: getattr(SMALL, field.name) + 1})
        names.append(file_name("position", other, own))
        if field.name != "context_length":
            names.append(file_name("token", other, own))
    assert len({*names}) == len(names)
    # The context length changes no token row.
    assert file_name("token", Seeded(6, 3, 9), own) == token


# --- files that are something else ----------------------------------------------------------------


def put_link(place: Path) -> None:
    """Put a link to a sound file of another layer."""
    target = place.with_name("elsewhere.npy")
    np.save(target, np.zeros((6, 3), np.float32))
    place.symlink_to(target)


SPOILT: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link": put_link,
    "empty": Path.touch,
    "nonsense": lambda place: place.write_bytes(b"nonsense" * 99),
    "cut": lambda place: place.write_bytes(as_npy(np.zeros((6, 3), np.float32))[:-1]),
    "other numbers": lambda place: np.save(place, np.zeros((6, 3))),
    "whole numbers": lambda place: np.save(place, np.zeros((6, 3), np.int32)),
    "another shape": lambda place: np.save(place, np.zeros((3, 6), np.float32)),
    "objects": lambda place: np.save(place, np.full((6, 3), None), allow_pickle=True),
}


@pytest.mark.parametrize("put", SPOILT)
def test_what_is_no_such_layer_is_drawn_anew(store, put):
    store.folder.mkdir()
    SPOILT[put](path(store))
    for _ in range(2):
        assert_right(opened(store))
    assert path(store).is_file()
    assert not path(store).is_symlink()


def test_a_folder_in_place_of_a_layer_is_done_without(store):
    path(store).mkdir(parents=True)
    for _ in range(2):
        assert_right(opened(store))


# --- what is written ------------------------------------------------------------------------------

ROWS = np.ones((75, 1), np.float32)  # a file of 428 bytes, 128 of them a header


def make_older(file: Path, seconds: float) -> None:
    os.utime(file, (time.time() - seconds,) * 2)


def keep(store: Store, name: str, age: float = 0) -> None:
    store.write(name, ROWS.shape, [ROWS], Notes())
    make_older(store.folder / name, age)


OLD_PART = ".embcli-0123456789ab.part"
YOUNG_PART = ".embcli-ba9876543210.part"


def test_the_oldest_go_and_the_newest_stay(store, monkeypatch):
    monkeypatch.setattr(store_module, "LIMIT", 1500)
    keep(store, "token-a.npy", age=30)
    keep(store, "token-c.npy", age=20)
    keep(store, "position-b.npy", age=10)
    (store.folder / YOUNG_PART).touch()
    (store.folder / OLD_PART).touch()
    make_older(store.folder / OLD_PART, 7200)
    assert_same_bits(store.read("token-a.npy", ROWS.shape), ROWS)  # It is the newest now.

    keep(store, "token-d.npy")

    kept = {entry.path.name for entry in store.entries()}
    assert kept == {"token-a.npy", "position-b.npy", "token-d.npy", YOUNG_PART}


def test_a_layer_beyond_half_the_limit_is_not_written(store, monkeypatch):
    monkeypatch.setattr(store_module, "LIMIT", 599)
    drawn = (pytest.fail("it is too large") for _ in range(1))
    store.write("token-a.npy", ROWS.shape, drawn, Notes())
    assert store.entries() == []


def test_a_write_that_fails_leaves_nothing(store):
    opened(store)
    before = path(store).read_bytes()

    def failing() -> Iterator[np.ndarray]:
        yield np.ones((3, 3), np.float32)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(path(store).name, (6, 3), failing(), Notes())
    assert path(store).read_bytes() == before
    assert in_folder(store) == {path(store).name}


@cases
def test_a_folder_that_cannot_be_written_is_noted_and_done_without(tmp_path, folder):
    (tmp_path / "a file").touch()
    notes = Notes()
    assert_right(opened(Store(tmp_path / folder), notes=notes))
    (note,) = notes
    assert f"nothing is cached: cannot write to {tmp_path / folder} (" in str(note)


def test_processes_at_once_are_right_and_leave_one_file(process, here):
    words = ("weights", *WORDS, "-f", "csv")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [process.start(*words, **pipes) for _ in range(4)]
    outputs = {started.communicate(timeout=TIMEOUT) for started in running}
    assert len(outputs) == 1
    assert in_folder(here) == {path(here).name}


# --- torch, which draws ---------------------------------------------------------------------------


def test_the_origin_says_what_drew_the_layers(store):
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    drawn_by = {
        "seed": 123,
        "shapes": {"token": [6, 3], "position": [5, 3]},
        "torch": str(torch.__version__),
        "cpu_capability": capability,
    }
    for _ in range(2):
        source = SeededSource(SMALL, store)
        layers = source.open({"token": None, "position": None}, Notes())
        assert layers.origin.document() == drawn_by


def test_without_torch_a_sentence_says_so(store, monkeypatch):
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    with pytest.raises(LayerError, match="torch is not installed"):
        opened(store)


# --- commands -------------------------------------------------------------------------------------


def test_without_a_home_there_is_no_cache_and_a_note(monkeypatch, in_process):
    def unknown(*_: object, **__: object) -> Path:
        raise RuntimeError("no home")

    monkeypatch.setenv("EMBCLI_CACHE_DIR", "")
    monkeypatch.setattr("platformdirs.user_cache_path", unknown)
    notes = Notes()
    assert Store.from_environment(notes) is None
    (note,) = notes
    assert "EMBCLI_CACHE_DIR can name another" in str(note)
    assert "set EMBCLI_CACHE_DIR" in in_process.refused("cache")


@cases
def test_each_verb_keeps_the_layers_that_it_draws_unless_told_not_to(in_process, here, verb):
    words = [*verb.split(), *WORDS]
    drawn = in_process.ok(*words, "--no-cache").out
    assert here.entries() == []
    assert in_process.ok(*words).out == drawn
    assert here.entries()


def test_the_cache_is_listed(in_process, here):
    opened(here)
    make_older(path(here), 60)  # Both could be of one tick of the clock.
    opened(here, name="position")
    size = sum(entry.stat().st_size for entry in here.folder.iterdir())
    page = in_process.ok("cache").text
    assert f"2 files, {size} bytes of at most 2.0 GB" in page
    names = re.findall(r"  (\S+seed123)$", page, re.MULTILINE)
    assert names == ["token-6x3-seed123", "position-5x3-after-6x3-seed123"]


def test_the_cache_is_cleared_and_files_of_others_stay(in_process, here):
    opened(here)
    size = path(here).stat().st_size
    (here.folder / "mine.npy").touch()
    # A long folder is on a line of its own.
    told = " ".join(in_process.ok("cache", "clear").text.split())
    assert told == f"1 file removed, {size} bytes, from {here.folder}"
    assert in_folder(here) == {"mine.npy"}
    page = in_process.ok("cache").text
    assert page == f"{here.folder}\n0 files, 0 bytes of at most 2.0 GB\n"


def test_a_file_that_cannot_be_removed_is_an_error(store):
    (store.folder / "token-a.npy").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot remove"):
        store.clear()

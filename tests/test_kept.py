"""Kept layers are the numbers of live torch whatever happens to their files, and the cache stays within its bounds."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli import notes
from embcli.errors import EmbcliError, InputError
from embcli.weights import Layer, Seeded, SeededSource, kept
from embcli.weights.kept import Cache, KeptLayer, contents, parse_size
from tests.conftest import TIMEOUT, Embcli

SMALL = Seeded(6, 3, 5)
WIDE = Seeded(700, 50, 20)  # three stretches under a checksum, the last one short


@lru_cache
def live(spec: Seeded, name: str = "token") -> np.ndarray:
    torch.manual_seed(spec.seed)
    token = torch.nn.Embedding(spec.vocabulary_size, spec.dim)
    position = torch.nn.Embedding(spec.context_length, spec.dim)
    values: np.ndarray = {"token": token, "position": position}[name].weight.detach().numpy()
    return values


@pytest.fixture(autouse=True)
def _unsaid() -> None:
    notes.note.cache_clear()  # each test hears the notes that it causes


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def opened(cache: Cache, spec: Seeded, name: str = "token") -> Layer:
    return SeededSource(spec, cache).open((name,))[name]


def assert_right(layer: Layer, spec: Seeded, name: str = "token") -> None:
    """Hold every row and the summary against live torch."""
    wanted = live(spec, name)
    assert layer.rows(np.arange(len(wanted))).tobytes() == wanted.tobytes()
    summary = layer.summary()
    assert (summary.minimum, summary.maximum) == (wanted.min(), wanted.max())
    assert np.isclose(summary.mean, wanted.mean(dtype=np.float64), rtol=1e-9)


def assert_kept_and_right(cache: Cache, spec: Seeded, name: str = "token") -> None:
    """Hold that a layer is read from its file, without torch, and right."""
    layer = cache.open(spec, name)
    assert isinstance(layer, KeptLayer)
    assert_right(layer, spec, name)


def names(cache: Cache) -> list[str]:
    return sorted(path.name for path in cache.folder.iterdir())


# --- what is kept -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["token", "position"])
@pytest.mark.parametrize("spec", [SMALL, WIDE, Seeded(1, 1, 1), Seeded(1024, 64, 16)], ids=str)
def test_a_layer_is_kept_as_it_was_drawn_and_read_again(cache: Cache, spec: Seeded, name: str) -> None:
    drawn = SeededSource(spec).open((name,))
    first, again = (SeededSource(spec, cache).open((name,)) for _ in range(2))
    assert isinstance(again[name], KeptLayer)
    assert_right(first[name], spec, name)
    assert_right(again[name], spec, name)
    assert again.run == first.run == drawn.run
    assert repr(again[name].summary()) == repr(drawn[name].summary())  # repr, because the std of one value is NaN


def test_a_kept_file_is_a_safetensors_file_that_other_programs_read(cache: Cache) -> None:
    opened(cache, WIDE)
    tensors = safetensors.numpy.load_file(cache.path(WIDE, "token"))
    assert tensors["token"].tobytes() == live(WIDE).tobytes()
    assert tensors["token"].shape == (700, 50)


def test_a_pinned_layer_gives_the_same_rows(cache: Cache) -> None:
    opened(cache, WIDE)
    ids = np.array([699, 0, 699, 328], np.uint32)
    assert opened(cache, WIDE).pin(ids).rows(ids).tobytes() == live(WIDE)[ids].tobytes()


def test_every_number_that_changes_a_layer_has_a_file_of_its_own(cache: Cache) -> None:
    specs = [SMALL, Seeded(7, 3, 5), Seeded(6, 4, 5), Seeded(6, 3, 6), Seeded(6, 3, 5, 124)]
    for spec in [*specs, *specs]:
        for name in ("token", "position"):
            assert_right(opened(cache, spec, name), spec, name)
    # The token layer does not change with C; the position layer, drawn behind it, changes with everything.
    kinds = [name.split("-seed")[0] for name in names(cache)]
    assert sorted(kind for kind in kinds if "token" in kind) == ["token-6x3", "token-6x3", "token-6x4", "token-7x3"]
    assert len(kinds) == 4 + 5


PATHS = """
import sys
from pathlib import Path
from embcli.weights import Seeded
from embcli.weights.kept import Cache
print(Cache(Path("cache")).path(Seeded(6, 3), "token"))
assert "torch" not in sys.modules
"""


def test_another_torch_another_build_and_another_cpu_capability_have_files_of_their_own(tmp_path: Path) -> None:
    def path(version: str, commit: str, **environment: str) -> str:
        package = tmp_path / f"{version}-{commit}" / "torch"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise ImportError('nobody needs torch to name a file')")
        (package / "version.py").write_text(f"__version__ = '{version}'\ngit_version: Optional[str] = '{commit}'\n")
        paths = os.pathsep.join([str(package.parent), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", PATHS],
            env={**os.environ, "PYTHONPATH": paths, **environment},
            capture_output=True,
            check=True,
            timeout=TIMEOUT,
        )
        return done.stdout.decode()

    first = path("2.12.0", "aa")
    assert path("2.12.0", "aa") == first
    others = {path("2.13.0", "aa"), path("2.12.0", "bb"), path("2.12.0", "aa", ATEN_CPU_CAPABILITY="default")}
    assert len(others | {first}) == 4


LIVE = """
import sys, torch
torch.manual_seed(123)
sys.stdout.buffer.write(torch.nn.Embedding(40, 16).weight.detach().numpy().tobytes())
"""


def test_a_layer_kept_with_one_cpu_capability_is_not_taken_for_another(embcli: Embcli, cache: Cache) -> None:
    spec = Seeded(40, 16)
    opened(cache, spec)
    environment = {"EMBCLI_CACHE_DIR": str(cache.folder), "ATEN_CPU_CAPABILITY": "default"}
    arguments = ("weights", "--vocab", "40", "--dim", "16", "-f", "npy")
    plain = subprocess.run(
        [sys.executable, "-c", LIVE], env={**os.environ, **environment}, capture_output=True, check=True
    )
    for _ in range(2):  # drawn, then kept
        assert np.load(io.BytesIO(embcli.ok(*arguments, **environment).out)).tobytes() == plain.stdout
    assert len(names(cache)) == 2


# --- no cache to be had -------------------------------------------------------------------------------------------


def test_no_cache_neither_reads_nor_keeps(embcli: Embcli, tmp_path: Path) -> None:
    arguments = ("weights", "--vocab", "6", "--dim", "3", "--no-cache", "-f", "npy")
    data = embcli.ok(*arguments, EMBCLI_CACHE_DIR=str(tmp_path / "cache"), EMBCLI_CACHE_LIMIT="nonsense").out
    assert np.load(io.BytesIO(data)).tobytes() == live(SMALL).tobytes()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "not" / "yet" / "there")
    opened(cache, SMALL)
    assert_kept_and_right(cache, SMALL)


@pytest.mark.parametrize("folder", ["file/below", "file", "/proc/embcli", "/dev/null"])
def test_a_folder_that_cannot_be_written_is_noted_once_and_done_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (tmp_path / "file").write_text("a regular file")
    cache = Cache(tmp_path / folder)
    weights = SeededSource(SMALL, cache).open(("token", "position"))
    for name in ("token", "position"):
        assert_right(weights[name], SMALL, name)
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(
        r"embcli: layers are not kept: cannot write to .* \(.+\); --no-cache does without\n", output.err
    )
    assert cache.entries() == []
    assert cache.clear() == (0, 0)
    assert (tmp_path / "file").read_text() == "a regular file"


# Root may write anywhere; without this capability it may not. Others cannot give it up, and do not have it.
UNPRIVILEGED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="gives up a capability of Linux")
def test_a_read_only_folder_is_read_but_not_written(embcli: Embcli, cache: Cache) -> None:
    opened(cache, SMALL)
    before = names(cache)
    cache.folder.chmod(0o555)
    environment = {"EMBCLI_CACHE_DIR": str(cache.folder)}
    ours = Embcli()
    ours.command = (sys.executable, "-c", UNPRIVILEGED, *embcli.command)  # type: ignore[assignment]
    try:
        data = ours.ok("weights", "--vocab", "6", "--dim", "3", "-f", "npy", **environment).out
        assert np.load(io.BytesIO(data)).tobytes() == live(SMALL).tobytes()
        ran = ours("lookup", "--ids", "1", "--vocab", "7", "--dim", "3", "--show", "token", "-f", "npy", **environment)
        assert ran.status == 0
        assert np.load(io.BytesIO(ran.out)).tobytes() == live(Seeded(7, 3))[1].tobytes()
        assert ran.err.count("\n") == 1
        assert f"cannot write to {cache.folder} (Permission denied)" in ran.err
        assert "Permission denied" in ours.refused("cache", "clear", **environment)
        assert names(cache) == before
    finally:
        cache.folder.chmod(0o755)


@pytest.mark.parametrize("blocks", [2, 100])  # of 1,024 bytes: full within the header, and within the data
def test_a_full_disk_is_noted_and_leaves_nothing_behind(tmp_path: Path, blocks: int) -> None:
    command = ("weights", "--vocab", "700", "--dim", "50", "-f", "npy", "--rows", "0:700")
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {blocks}; exec "$0" "$@"', *Embcli.command, *command],
        env={**os.environ, "EMBCLI_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        timeout=TIMEOUT,
        check=True,
    )
    assert np.load(io.BytesIO(done.stdout)).tobytes() == live(Seeded(700, 50)).tobytes()
    assert b"cannot write to" in done.stderr
    assert b"(File too large)" in done.stderr
    assert list(tmp_path.iterdir()) == []


# --- several at once, and ended in the middle ---------------------------------------------------------------------

AT_ONCE = """
import os, sys
import torch
import embcli.__main__, embcli.cli, embcli.verbs.lookup, embcli.weights.drawing, embcli.weights.kept, embcli.writers
start, hold = os.pipe()
for number in range(16):
    if os.fork() == 0:
        os.close(hold)
        os.read(start, 1)  # until nobody holds the other end any more
        os.dup2(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY), 1)
        sys.argv = ["embcli", "lookup", "--ids", "1 5000 50256", "--dim", "16", "-f", "npy"]
        embcli.__main__.run()
os.close(hold)
print(*(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(16)))
"""


def test_sixteen_processes_at_once_are_right_and_leave_one_file_a_layer(tmp_path: Path, cache: Cache) -> None:
    results = tmp_path / "results"
    results.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, str(results)],
        env={**os.environ, "EMBCLI_CACHE_DIR": str(cache.folder)},
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.stdout.decode().split(), done.stderr) == (["0"] * 16, b"")
    spec = Seeded(50257, 16)
    wanted = live(spec)[[1, 5000, 50256]] + live(spec, "position")[:3]
    for number in range(16):
        assert np.load(results / str(number)).tobytes() == wanted.tobytes()
    assert [name.split("-seed")[0] for name in names(cache)] == ["position-1024x16", "token-50257x16"]
    assert contents(cache, verify=True).damaged == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_process_ended_while_it_writes_leaves_no_file_that_could_be_read(
    cache: Cache, number: signal.Signals, status: int
) -> None:
    process = subprocess.Popen(
        [*Embcli.command, "weights", "--vocab", "400000", "--dim", "600", "-f", "csv"],  # writes for seconds
        env={**os.environ, "EMBCLI_CACHE_DIR": str(cache.folder)},
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + TIMEOUT
    while not (cache.folder.exists() and any(path.stat().st_size for path in cache.folder.iterdir())):
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(timeout=TIMEOUT) == status
    spec = Seeded(400_000, 600)
    assert cache.open(spec, "token") is None
    assert cache.entries() == []
    assert len(names(cache)) == (number == signal.SIGKILL)  # nobody is left to remove it


def test_half_a_file_is_removed_when_it_cannot_be_anybodys_work_any_more(cache: Cache) -> None:
    opened(cache, SMALL)
    half = cache.folder / f".{cache.path(WIDE, 'token').name}.1-00000000.part"
    foreign = cache.folder / ".other.part"
    for path in (half, foreign):
        path.write_bytes(b"half")
        os.utime(path, (0, time.time() - 60))
    opened(cache, Seeded(7, 3))
    assert half.exists()  # somebody may be at it
    for path in (half, foreign):
        os.utime(path, (0, time.time() - 7200))
    opened(cache, Seeded(8, 3))
    assert not half.exists()
    assert foreign.exists()  # not ours


# --- files that are not what was written --------------------------------------------------------------------------


def spoil(path: Path, data: bytes) -> None:
    """Put another file in the place of a kept one, as the old one may be mapped."""
    path.unlink()
    path.write_bytes(data)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cache, bytes]:
    cache = Cache(tmp_path_factory.mktemp("small"))
    opened(cache, SMALL)
    return cache, cache.path(SMALL, "token").read_bytes()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_other_byte_anywhere_is_noticed(small: tuple[Cache, bytes], data: st.DataObject) -> None:
    cache, whole = small
    place = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, 600) | st.integers(4096, len(whole) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    spoil(cache.path(SMALL, "token"), whole[:place] + bytes([value]) + whole[place + 1 :])
    assert contents(cache, verify=True).damaged == 1
    assert_right(opened(cache, SMALL), SMALL)
    assert cache.path(SMALL, "token").read_bytes() == whole
    assert_kept_and_right(cache, SMALL)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_file_cut_off_or_grown_is_noticed(small: tuple[Cache, bytes], data: st.DataObject) -> None:
    cache, whole = small
    other = data.draw(
        st.integers(0, len(whole) - 1).map(lambda length: whole[:length]) | st.binary(min_size=1).map(whole.__add__)
    )
    spoil(cache.path(SMALL, "token"), other)
    assert contents(cache, verify=True).damaged == 1
    assert_right(opened(cache, SMALL), SMALL)
    assert_kept_and_right(cache, SMALL)


def older(folder: Path) -> bytes:
    """Return what an older version, with another layout of its values, would have kept under the same name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "FORMAT", "embcli-0")
        cache = Cache(folder)
        opened(cache, SMALL)
        return cache.path(SMALL, "token").read_bytes()


def another_layer(folder: Path) -> bytes:
    cache = Cache(folder)
    opened(cache, Seeded(6, 3, 5, 124))
    return cache.path(Seeded(6, 3, 5, 124), "token").read_bytes()


@pytest.mark.parametrize(
    "other",
    [
        older,
        another_layer,
        lambda _: b"",
        lambda _: bytes(5000),
        lambda _: b"\xff" * 5000,
        lambda _: b"<!DOCTYPE html>" * 400,
        lambda _: safetensors.numpy.save({"token": np.zeros((6, 3), np.float32)}).ljust(5000),
        lambda _: safetensors.numpy.save({"token": np.zeros(2000, np.float32)}, {"check": "0"}),
        lambda _: (4088).to_bytes(8, "little") + b"[]".ljust(6000),
        lambda _: (4088).to_bytes(8, "little") + b"[" * 6000,
    ],
    ids=["older", "another layer", "empty", "zeros", "ones", "html", "foreign", "foreign 2", "an array", "deep"],
)
def test_a_foreign_or_older_file_is_replaced(cache: Cache, tmp_path: Path, other: object) -> None:
    assert callable(other)
    opened(cache, SMALL)
    spoil(cache.path(SMALL, "token"), other(tmp_path / "elsewhere"))
    assert contents(cache, verify=True).damaged == 1
    assert_right(opened(cache, SMALL), SMALL)
    assert_kept_and_right(cache, SMALL)
    assert contents(cache, verify=True).damaged == 0


def test_damage_costs_nothing_where_it_is_not_read_and_is_mended_where_it_is(
    cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(cache, WIDE)
    path = cache.path(WIDE, "token")
    whole = path.read_bytes()
    place = 4096 + 4 * 50 * 500
    spoil(path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    layer = opened(cache, WIDE)
    assert layer.rows(np.array([0, 300])).tobytes() == live(WIDE)[[0, 300]].tobytes()
    assert capsys.readouterr().err == ""
    assert layer.rows(np.array([500, 0])).tobytes() == live(WIDE)[[500, 0]].tobytes()
    assert capsys.readouterr().err == (
        f"embcli: {path.name} was damaged (its bytes from 65,536 on are not what was written); "
        "the layer is drawn anew\n"
    )
    assert path.read_bytes() == whole
    assert_right(layer, WIDE)


def test_a_row_that_crosses_into_a_damaged_stretch_is_noticed(cache: Cache) -> None:
    opened(cache, WIDE)  # rows of 200 bytes: row 327 ends in the second stretch of 65,536 bytes
    path = cache.path(WIDE, "token")
    whole = path.read_bytes()
    spoil(path, whole[: 4096 + 65536] + bytes([whole[4096 + 65536] ^ 255]) + whole[4096 + 65537 :])
    assert opened(cache, WIDE).rows(np.array([327])).tobytes() == live(WIDE)[327].tobytes()


def test_rows_beyond_four_gigabytes_are_checked_where_they_lie(tmp_path: Path) -> None:
    """IDs of 32 bits times the width of a row do not fit into 32 bits."""
    rows, columns = 70_000, 16_384  # 65,536 bytes a row, one stretch each; all zeros, so the file takes no space
    metadata = {"key": "any", "check": kept._check("token", (rows, columns), {"key": "any"})}
    path = tmp_path / f"layer-{kept._digest('any')}.safetensors"
    tensors = kept._tensors("token", (rows, columns))
    with path.open("wb") as file:
        file.write(kept.header(tensors, metadata, size=4096))
        file.seek(4096 + rows * 65536)
        file.write(np.full(rows, zlib.crc32(bytes(65536)), np.uint32).tobytes())
        file.seek(4096 + 69_999 * 65536)
        file.write(b"\x01")
    mapped = kept._Mapped(path)
    mapped.check_rows(np.array([0, 69_998], np.uint32))
    with pytest.raises(kept.Damaged, match="from 4,587,454,464 on"):
        mapped.check_rows(np.array([69_999], np.uint32))


# --- the command --------------------------------------------------------------------------------------------------


def test_cache_verify_says_which_layers_are_damaged_with_status_1(embcli: Embcli, cache: Cache) -> None:
    environment = {"EMBCLI_CACHE_DIR": str(cache.folder)}
    for name in ("token", "position"):
        opened(cache, WIDE, name)
    assert "0 of 2 layers are damaged" in embcli.ok("cache", "verify", **environment).text
    path = cache.path(WIDE, "token")
    spoil(path, path.read_bytes()[:-1])
    ran = embcli("cache", "verify", **environment)
    assert (ran.status, ran.err) == (1, "")
    assert f"damaged: {path.name}: it is cut off\n1 of 2 layers are damaged" in ran.text


def test_cache_clear_removes_what_was_kept_and_nothing_else(embcli: Embcli, cache: Cache) -> None:
    opened(cache, SMALL)
    half = cache.folder / f".{cache.path(WIDE, 'token').name}.1-00000000.part"
    half.write_bytes(b"half")
    others = ["token.safetensors", "notes.txt", "model-6x3-seed1-00000000.safetensors", ".hidden"]
    for name in others:
        (cache.folder / name).write_text("mine")
    said = embcli.ok("cache", "clear", EMBCLI_CACHE_DIR=str(cache.folder)).text
    assert said == f"2 files removed, 4.2 kB, from {cache.folder}\n"
    assert names(cache) == sorted(others)


def test_cache_clear_names_a_file_that_it_cannot_remove(cache: Cache) -> None:
    cache.path(SMALL, "token").mkdir(parents=True)
    with pytest.raises(EmbcliError, match=re.escape(f"cannot remove {str(cache.path(SMALL, 'token'))!r}: ")):
        cache.clear()


# --- how much is kept ---------------------------------------------------------------------------------------------


def test_the_least_recently_used_layer_goes_first(cache: Cache) -> None:
    specs = [Seeded(rows, 64) for rows in (40, 41, 42)]
    for age, spec in enumerate(specs):
        opened(cache, spec)
        os.utime(cache.path(spec, "token"), (0, 1000.0 + age))
    opened(cache, specs[0])  # used again, now
    tight = Cache(cache.folder, limit=3 * 15_500)
    opened(tight, Seeded(43, 64))
    assert [entry.path for entry in tight.entries()] == [
        tight.path(spec, "token") for spec in (specs[2], specs[0], Seeded(43, 64))
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60_000), st.lists(st.integers(1, 120), min_size=1, max_size=6))
def test_the_files_never_take_more_than_the_limit(
    tmp_path_factory: pytest.TempPathFactory, limit: int, rows: list[int]
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"), limit)
    for spec in (Seeded(count, 32) for count in rows):
        assert_right(opened(cache, spec), spec)
        path = cache.path(spec, "token")
        size = path.stat().st_size if path.exists() else 0
        assert size * 2 <= limit
        assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= limit


def test_a_layer_that_takes_half_of_the_limit_is_kept_and_a_larger_one_is_not(
    cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(cache, SMALL)
    size = cache.path(SMALL, "token").stat().st_size
    cache.clear()
    opened(Cache(cache.folder, 2 * size - 1), SMALL)
    assert names(cache) == []
    opened(Cache(cache.folder, 2 * size), SMALL)
    assert len(names(cache)) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("144", 144),
        ("2GB", 2 * 10**9),
        ("1.5 gb", 15 * 10**8),
        ("500M", 5 * 10**8),
        ("10kB", 10**4),
        (" 7 B ", 7),
        ("1T", 10**12),
    ],
)
def test_a_limit_is_a_number_of_bytes_or_has_a_unit(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    assert parse_size(text) == size
    monkeypatch.setenv("EMBCLI_CACHE_LIMIT", text)
    assert Cache.from_environment().limit == size


@pytest.mark.parametrize("text", ["much", "-1", "1e9", "2 PB", "1..5GB", "½GB", "9" * 21, "inf", "nan", " "])
def test_a_malformed_limit_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_size(text)
    assert str(error.value) == (f"EMBCLI_CACHE_LIMIT {text!r} is no size; write a number of bytes, or 500MB, or 2GB")


def test_a_malformed_limit_is_an_error_of_the_command(embcli: Embcli) -> None:
    message = embcli.refused("lookup", "hi", EMBCLI_CACHE_LIMIT="much")
    assert message.startswith("embcli: EMBCLI_CACHE_LIMIT 'much' is no size")


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMBCLI_CACHE_LIMIT", "")
    monkeypatch.setenv("EMBCLI_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = Cache.from_environment()
    assert cache.limit == 2 * 10**9
    assert cache.folder.name == "embcli"

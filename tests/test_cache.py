"""The cache keeps what it is given under a key of its own, stays within its bounds, and leaves no half-written file."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import embcli
from embcli import writers
from embcli.errors import EmbcliError, InputError, OutputError
from embcli.notes import Notes
from embcli.store import Damaged, Store, parse_size
from embcli.verbs.cache import _CHECKS as CHECKS
from embcli.verbs.cache import clear, contents
from embcli.weights.build import Build
from embcli.weights.kept import KeptLayer, Key, load, write
from embcli.weights.seeded import Seeded
from tests.conftest import TIMEOUT, Embcli
from tests.inside import Inside
from tests.oracles import live

BUILD = Build("2.13.0+cpu+aa", "x86_64", "00000000", "glibc-2.36")
ORIGIN = {"torch": "2.13.0+cpu", "cpu_capability": "AVX2"}


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def key(rows: int = 6, dim: int = 3, length: int = 5, seed: int = 123, name: str = "token") -> Key:
    return Key(name, Seeded(rows, dim, length, seed), BUILD)


def values(which: Key) -> np.ndarray:
    """Return numbers that stand for a layer's, and are no other's."""
    seed = (*str(which).encode(),)
    return np.random.default_rng(seed).standard_normal(which.shape, np.float32)


def keep(cache: Store, which: Key, blocks: Iterable[np.ndarray] | None = None) -> bool:
    content = [values(which)] if blocks is None else blocks
    return cache.write(which.file_name, which.file_bytes, lambda file: write(file, which, content, ORIGIN))


def opened(cache: Store, which: Key) -> KeptLayer | None:
    return cache.read(which.file_name, partial(load, key=which))


def at(cache: Store, which: Key) -> Path:
    return cache.folder / which.file_name


def assert_holds(cache: Store, which: Key) -> None:
    layer = opened(cache, which)
    assert layer is not None
    assert layer.rows(np.arange(which.shape[0])).tobytes() == values(which).tobytes()


def names(cache: Store) -> list[str]:
    return sorted(path.name for path in cache.folder.iterdir())


# --- by key -------------------------------------------------------------------------------------------------------


def test_what_is_kept_is_found_again_and_nothing_else(cache: Store) -> None:
    assert opened(cache, key()) is None
    assert keep(cache, key())
    assert_holds(cache, key())
    assert opened(cache, key(name="position")) is None


def test_every_number_that_changes_a_layer_has_a_file_of_its_own(cache: Store) -> None:
    sizes = [(6, 3, 5), (7, 3, 5), (6, 4, 5), (6, 3, 6), (6, 3, 5, 124)]
    keys = [key(*each, name=name) for each in sizes for name in ("token", "position")]
    for which in keys:
        if opened(cache, which) is None:
            keep(cache, which)
    # The token layer does not change with C; the position layer, drawn behind it, changes with everything.
    kinds = [name.split("-seed")[0] for name in names(cache)]
    assert sorted(kind for kind in kinds if "token" in kind) == ["token-6x3", "token-6x3", "token-6x4", "token-7x3"]
    assert len(kinds) == 4 + 5


def test_a_file_under_the_name_of_another_is_not_taken_for_it(cache: Store) -> None:
    keep(cache, key(seed=124))
    at(cache, key(seed=124)).rename(at(cache, key()))
    assert opened(cache, key()) is None
    ((_, fault),) = cache.verify(CHECKS)
    assert fault == "it contains another layer"


def test_a_file_whose_name_is_right_and_whose_key_is_not_is_not_taken(
    cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embcli.weights.kept.digest", lambda _: "00000000")  # names that two keys share
    other = Key("token", Seeded(6, 3, 5), Build("2.12", "x86_64", "0", ""))
    keep(cache, other)
    assert at(cache, other) == at(cache, key())
    assert opened(cache, key()) is None
    assert_holds(cache, other)


# --- no folder to be had ------------------------------------------------------------------------------------------


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    cache = Store(tmp_path / "not" / "yet" / "there")
    keep(cache, key())
    assert_holds(cache, key())


@pytest.mark.parametrize("folder", ["file/below", "file", "/proc/embcli", "/dev/null"])
def test_a_folder_that_cannot_be_written_is_noted_once_and_done_without(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("a regular file")
    cache = Store(tmp_path / folder)
    for name in ("token", "position"):
        assert not keep(cache, key(name=name))
        assert opened(cache, key(name=name)) is None
    (note,) = cache.notes
    assert re.fullmatch(r"nothing is cached: cannot write to .* \(.+\)", note)
    assert cache.entries() == []
    assert cache.clear() == []
    assert (tmp_path / "file").read_text() == "a regular file"


# Root may write anywhere; without this capability it may not. Others cannot give it up, and do not have it.
UNPRIVILEGED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="gives up a capability of Linux")
def test_a_read_only_folder_is_read_but_not_written(inside: Embcli, cache: Store) -> None:
    environment = {"EMBCLI_CACHE_DIR": str(cache.folder)}
    inside.ok("weights", "--vocab", "6", "--dim", "3", "-f", "npy", **environment)
    before = names(cache)
    cache.folder.chmod(0o555)
    ours = Embcli()
    ours.command = (sys.executable, "-c", UNPRIVILEGED, *Embcli.command)  # type: ignore[assignment]
    try:
        data = ours.ok("weights", "--vocab", "6", "--dim", "3", "-f", "npy", **environment).out
        assert np.load(io.BytesIO(data)).tobytes() == live(Seeded(6, 3))["token"].tobytes()
        ran = ours("lookup", "--ids", "1", "--vocab", "7", "--dim", "3", "--show", "token", "-f", "npy", **environment)
        assert ran.status == 0
        assert np.load(io.BytesIO(ran.out)).tobytes() == live(Seeded(7, 3))["token"][1].tobytes()
        assert ran.err.count("\n") == 1
        assert f"cannot write to {cache.folder} (Permission denied)" in ran.err
        assert "Permission denied" in ours.refused("cache", "clear", **environment)
        assert names(cache) == before
    finally:
        cache.folder.chmod(0o755)


FULL = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from embcli.store import Store
from tests.test_cache import keep, key
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
store = Store(Path(sys.argv[1]))
print(keep(store, key(700, 50)), *store.notes)
"""


@pytest.mark.parametrize("size", [2_000, 100_000])  # full within the header, and within the data
def test_a_full_disk_is_noted_and_leaves_nothing_behind(tmp_path: Path, size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(size)], capture_output=True, timeout=TIMEOUT, check=True
    )
    assert re.fullmatch(rb"False nothing is cached: cannot write to .* \(File too large\)\n", done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_without_a_home_there_is_no_cache_and_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import pwd

    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("EMBCLI_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    notes = Notes()
    assert Store.from_environment(notes) is None
    assert list(notes) == ["nothing is cached: this user has no home folder; EMBCLI_CACHE_DIR can name another"]
    assert list(tmp_path.iterdir()) == []
    for verb in (contents, clear):
        with pytest.raises(OutputError, match="there is no cache folder: set EMBCLI_CACHE_DIR"):
            verb(None)


@pytest.mark.parametrize("answer", [RuntimeError("no home"), KeyError("uid"), Path("~/.cache/embcli")], ids=repr)
def test_a_platform_that_knows_no_folder_has_none(monkeypatch: pytest.MonkeyPatch, answer: Exception | Path) -> None:
    def user_cache_path(*_: object, **__: object) -> Path:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.delenv("EMBCLI_CACHE_DIR")
    monkeypatch.setattr("platformdirs.user_cache_path", user_cache_path)
    assert Store.from_environment(Notes()) is None


# --- files of others, and what is no file -------------------------------------------------------------------------


def strangers(cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of the cache belong to another user."""
    if os.geteuid() == 0:
        for path in cache.folder.iterdir():
            os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)


@pytest.mark.parametrize(("mode", "used"), [(0o777, False), (0o1777, False), (0o775, True), (0o755, True)])
def test_files_of_another_user_are_not_used_where_anyone_can_put_them(
    cache: Store, monkeypatch: pytest.MonkeyPatch, mode: int, used: bool
) -> None:
    keep(cache, key())
    cache.folder.chmod(mode)
    assert_holds(cache, key())  # our own
    strangers(cache, monkeypatch)
    assert (opened(cache, key()) is not None) == used
    ((_, fault),) = cache.verify(CHECKS)
    assert fault == (None if used else "it belongs to another user, and anyone may write to its folder")


@pytest.mark.parametrize(
    "put",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("nowhere")],
    ids=["pipe", "folder", "device", "nowhere"],
)
def test_what_is_no_file_is_passed_over_verified_and_replaced_where_that_can_be(
    cache: Store, put: Callable[[Path], None]
) -> None:
    cache.folder.mkdir()
    path = at(cache, key())
    put(path)
    assert opened(cache, key()) is None
    ((entry, fault),) = cache.verify(CHECKS)
    assert entry.path == path
    assert fault is not None
    if path.is_dir():
        assert not keep(cache, key())
        with pytest.raises(EmbcliError, match=re.escape(f"cannot remove {str(path)!r}: ")):
            cache.clear()
    else:
        assert keep(cache, key())
        assert_holds(cache, key())


@pytest.mark.parametrize("seconds", [-(10**12), -1, 0, 10**10, 10**14])
def test_a_file_of_any_time_is_listed(cache: Store, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    keep(cache, key())
    monkeypatch.setattr(Path, "lstat", lambda _: os.stat_result((0, 0, 0, 1, 0, 0, 5, 0, seconds, 0)))
    (piece,) = contents(cache).records().pieces(("used",), ())
    assert re.match(r"\d{4}-\d\d-\d\dT", piece.fields["used"][0])


# --- several at once, and ended in the middle ---------------------------------------------------------------------

AT_ONCE = """
import os, sys
from pathlib import Path
from embcli.store import Store
from tests.test_cache import assert_holds, keep, key, opened
start, hold = os.pipe()
cache = Store(Path(sys.argv[1]))
for number in range(16):
    if os.fork() == 0:
        os.close(hold)
        os.read(start, 1)  # until nobody holds the other end any more
        for name in ("token", "position"):
            if opened(cache, key(5000, 16, name=name)) is None:
                keep(cache, key(5000, 16, name=name))
            assert_holds(cache, key(5000, 16, name=name))
        os._exit(0)
os.close(hold)
print(*(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(16)))
"""


def test_sixteen_processes_at_once_are_right_and_leave_one_file_a_layer(cache: Store) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_ONCE, str(cache.folder)],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.stdout.decode().split(), done.stderr) == (["0"] * 16, b"")
    assert [name.split("-seed")[0] for name in names(cache)] == ["position-5x16", "token-5000x16"]
    assert contents(cache, verify=True).damaged == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_process_ended_while_it_writes_leaves_no_file_that_could_be_read(
    cache: Store, number: signal.Signals, status: int
) -> None:
    process = subprocess.Popen(
        [*Embcli.command, "weights", "--vocab", "150000", "--dim", "400", "-f", "csv"],  # writes for seconds
        env={**os.environ, "EMBCLI_CACHE_DIR": str(cache.folder)},
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + TIMEOUT
    while not (cache.folder.exists() and any(path.stat().st_size for path in cache.folder.iterdir())):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(number)
    assert process.wait(timeout=TIMEOUT) == status
    assert cache.entries() == []
    assert len(names(cache)) == (number == signal.SIGKILL)  # nobody is left to remove it


def test_pieces_that_fail_leave_no_file_and_the_old_one(cache: Store) -> None:
    keep(cache, key())

    def failing() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        keep(cache, key(), (failing() for _ in range(1)))  # type: ignore[func-returns-value, misc]
    assert names(cache) == [key().file_name]
    assert_holds(cache, key())


def test_half_a_file_is_removed_when_it_cannot_be_anybodys_work_any_more(cache: Store) -> None:
    keep(cache, key())
    half = cache.folder / f".{key(700, 50).file_name}.1-00000000.part"
    foreign = cache.folder / ".other.part"
    for path in (half, foreign):
        path.write_bytes(b"half")
        os.utime(path, (0, time.time() - 60))
    keep(cache, key(7))
    assert half.exists()  # somebody may be at it
    for path in (half, foreign):
        os.utime(path, (0, time.time() - 7200))
    keep(cache, key(8))
    assert not half.exists()
    assert foreign.exists()  # not ours


# --- the verbs ----------------------------------------------------------------------------------------------------


def test_contents_are_data_with_the_version_the_folder_and_its_bounds(tmp_path: Path) -> None:
    cache = Store(tmp_path / os.fsdecode(b"x\x1b]0;pwn\x07\xff"))
    for age, which in enumerate((key(name="position"), key())):
        keep(cache, which)
        os.utime(at(cache, which), (0, 86400.0 * age))
    records = contents(cache).records()
    size = at(cache, key()).stat().st_size + at(cache, key(name="position")).stat().st_size
    assert list(records.run.items()) == [
        ("embcli", embcli.__version__),
        ("folder", str(cache.folder)),
        ("bytes", size),
        ("limit", 2 * 10**9),
    ]
    written = io.BytesIO()
    writers.write(records, "json", written)
    assert orjson.loads(written.getvalue())["run"]["folder"] == f"{tmp_path}/x\x1b]0;pwn\x07\\xff"
    assert (records.unit, records.rows, [*records.fields]) == ("layers", 2, ["file", "bytes", "used"])
    (piece,) = records.pieces((*records.fields,), ())
    assert piece.fields["file"] == [key(name="position").file_name, key().file_name]
    assert piece.fields["used"] == ["1970-01-01T00:00:00+00:00", "1970-01-02T00:00:00+00:00"]


def test_verified_contents_say_what_is_wrong_with_each(cache: Store) -> None:
    for which in (key(), key(7)):
        keep(cache, which)
    with at(cache, key(7)).open("ab") as file:
        file.write(b"more")
    os.utime(at(cache, key()), (0, 0))
    result = contents(cache, verify=True)
    assert result.damaged == 1
    (piece,) = result.records().pieces(("fault",), ())
    assert piece.fields == {"fault": [None, "its last 4 bytes belong to no tensor"]}


def test_a_cache_that_holds_nothing_is_no_error(cache: Store) -> None:
    result = contents(cache, verify=True)
    assert (result.entries, result.size, result.damaged) == ((), 0, 0)
    assert result.records().rows == 0
    assert clear(cache).removed == f"0 files removed, 0 bytes, from {cache.folder}"


def test_clear_removes_what_was_kept_and_nothing_else(cache: Store) -> None:
    keep(cache, key())
    half = cache.folder / f".{key(700, 50).file_name}.00000000.part"
    half.write_bytes(b"half")
    others = ["token.safetensors", "notes.txt", "model-6x3-seed1-00000000.safetensors", ".hidden"]
    for name in others:
        (cache.folder / name).write_text("mine")
    removed = clear(cache)
    assert removed.removed == f"2 files removed, 4.2 kB, from {cache.folder}"
    assert [(entry.path.name, entry.size) for entry in removed.entries] == [
        (key().file_name, 4096 + 72 + 4),
        (half.name, 4),
    ]
    assert names(cache) == sorted(others)


def test_cache_verify_says_which_layers_are_damaged_with_status_1(inside: Embcli, cache: Store) -> None:
    environment = {"EMBCLI_CACHE_DIR": str(cache.folder)}
    for name in ("token", "position"):
        keep(cache, key(700, 50, 20, name=name))
    assert "all 2 are sound" in inside.ok("cache", "verify", **environment).text
    path = at(cache, key(700, 50))
    path.write_bytes(path.read_bytes()[:-1])
    ran = inside("cache", "verify", **environment)
    assert (ran.status, ran.err) == (1, "")
    assert f"damaged: {path.name}: it is cut off" in ran.text
    assert "damaged: 1 of 2 layers; replaced at the next use" in ran.text
    ran = Inside()("cache", "verify", "-o", str(cache.folder.parent / "page.txt"), **environment)
    assert (ran.status, ran.err) == (1, "embcli: status 1: 1 of 2 files damaged\n")


def test_cache_clear_tells_what_it_removed(inside: Embcli, cache: Store) -> None:
    keep(cache, key())
    said = inside.ok("cache", "clear", EMBCLI_CACHE_DIR=str(cache.folder)).text
    assert said == f"1 file removed, 4.2 kB, from {cache.folder}\n"
    assert names(cache) == []


# --- how much is kept ---------------------------------------------------------------------------------------------


def test_the_least_recently_used_layer_goes_first(cache: Store) -> None:
    keys = [key(rows, 64) for rows in (40, 41, 42)]
    for age, which in enumerate(keys):
        keep(cache, which)
        os.utime(at(cache, which), (0, 1000.0 + age))
    opened(cache, keys[0])  # used again, now
    tight = Store(cache.folder, limit=3 * 15_500)
    keep(tight, key(43, 64))
    assert [entry.path for entry in tight.entries()] == [at(tight, each) for each in (keys[2], keys[0], key(43, 64))]


def test_the_newest_layer_stays_though_others_come_from_the_future(cache: Store) -> None:
    for rows in (40, 41):
        keep(cache, key(rows, 64))
        os.utime(at(cache, key(rows, 64)), (0, time.time() + 10_000))
    tight = Store(cache.folder, limit=2 * 15_500)
    keep(tight, key(42, 64))
    assert [entry.path for entry in tight.entries()] == [at(tight, key(rows, 64)) for rows in (42, 41)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60_000), st.lists(st.integers(1, 120), min_size=1, max_size=6))
def test_the_files_never_take_more_than_the_limit(
    tmp_path_factory: pytest.TempPathFactory, limit: int, rows: list[int]
) -> None:
    cache = Store(tmp_path_factory.mktemp("cache"), limit)
    for which in (key(count, 32) for count in rows):
        kept = keep(cache, which)
        path = at(cache, which)
        assert kept == path.exists()
        assert (path.stat().st_size if kept else 0) * 2 <= limit
        assert sum(path.stat().st_size for path in cache.folder.iterdir()) <= limit


def test_a_layer_that_takes_half_of_the_limit_is_kept_and_a_larger_one_is_not_even_asked_for(cache: Store) -> None:
    keep(cache, key())
    size = at(cache, key()).stat().st_size
    cache.clear()
    unasked = (pytest.fail("asked for") for _ in range(1))
    assert not keep(Store(cache.folder, 2 * size - 1), key(), unasked)
    assert names(cache) == []
    keep(Store(cache.folder, 2 * size), key())
    assert len(names(cache)) == 1
    assert not list(cache.notes)


def test_all_kinds_of_files_are_listed_verified_limited_and_cleared(tmp_path: Path) -> None:
    store = Store(tmp_path)
    names = [f"{name}.safetensors" for name in ("token-6x3-seed1-00000000", "position-6x3-seed1-00000000")]
    names.append("vectors-00000000.safetensors")
    for age, name in enumerate(names):
        assert store.write(name, 10, partial(lambda data, file: file.write(data), name[:10].encode()))
        os.utime(tmp_path / name, (0, age))
    assert [(entry.path.name, entry.kind, entry.size) for entry in store.entries()] == [
        (name, name.partition("-")[0], 10) for name in names
    ]
    seen = []

    def check(file: io.FileIO, name: str) -> None:
        seen.append((file.read(), name))
        if name.startswith("v"):
            raise Damaged("broken")

    faults = [fault for _, fault in store.verify(dict.fromkeys(("token", "position", "vectors"), check))]
    assert faults == [None, None, "broken"]
    assert seen == [(name[:10].encode(), name) for name in names]
    tight = Store(tmp_path, 20)
    assert tight.write("vectors-00000001.safetensors", 10, lambda file: file.write(bytes(10)))
    assert [entry.path.name for entry in store.entries()] == [names[2], "vectors-00000001.safetensors"]
    assert len(clear(store).entries) == 2
    assert store.entries() == []


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
    cache = Store.from_environment(Notes())
    assert cache is not None
    assert cache.limit == size


@pytest.mark.parametrize("text", ["much", "-1", "1e9", "2 PB", "1..5GB", "½GB", "9" * 21, "inf", "nan", " "])
def test_a_malformed_limit_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_size(text)
    assert str(error.value) == (f"EMBCLI_CACHE_LIMIT {text!r} is not a size; write a number of bytes, or 500MB, or 2GB")


def test_a_malformed_limit_is_an_error_of_the_command(inside: Embcli) -> None:
    message = inside.refused("lookup", "hi", EMBCLI_CACHE_LIMIT="much")
    assert message.startswith("embcli: EMBCLI_CACHE_LIMIT 'much' is not a size")


def test_an_empty_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMBCLI_CACHE_LIMIT", "")
    monkeypatch.setenv("EMBCLI_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = Store.from_environment(Notes())
    assert cache is not None
    assert cache.limit == 2 * 10**9
    assert cache.folder.name == "embcli"

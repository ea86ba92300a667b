"""A seeded layer is one and the same wherever it comes from: drawn, kept, read again, or drawn anew in place of a
damaged file; and where it cannot be had, a sentence says why.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli import safe
from embcli.errors import LayerError
from embcli.layer import Layer
from embcli.weights import build, drawing, kept
from embcli.weights.build import this_build
from embcli.weights.cache import Cache
from embcli.weights.kept import Damaged, KeptLayer, Key
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.conftest import TIMEOUT
from tests.oracles import assert_same_bits, live

SMALL = Seeded(6, 3, 5)
WIDE = Seeded(700, 50, 20)  # three chunks under a checksum, the last one short
NAMES = ("token", "position")
ANY = {"token": None, "position": None}


@pytest.fixture(autouse=True)
def _unsaid() -> Iterator[None]:
    safe.note.cache_clear()  # each test hears the notes that it causes
    yield
    this_build.cache_clear()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def opened(seeded: Seeded, cache: Cache | None = None, name: str = "token", ids: list[int] | None = None) -> Layer:
    return SeededSource(seeded, cache).open({name: None if ids is None else np.array(ids, np.uint32)})[name]


def path(cache: Cache, seeded: Seeded, name: str = "token") -> Path:
    return cache.path(SeededSource(seeded).key(name))


def assert_right(layer: Layer, seeded: Seeded, name: str = "token") -> None:
    """Hold every row against live torch."""
    expected = live(seeded)[name]
    assert (layer.shape, layer.dtype) == (expected.shape, "float32")
    assert_same_bits(layer.rows(np.arange(len(expected))), expected)
    assert_same_bits(np.concatenate(list(layer.blocks())), expected)


def spoil(place: Path, data: bytes) -> None:
    place.unlink()
    place.write_bytes(data)


# --- one layer, wherever it comes from ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seeded", [SMALL, WIDE, Seeded(1, 1, 1), Seeded(1024, 64, 16), Seeded(9, 7, 3, 2**63)], ids=str
)
def test_a_layer_is_the_same_drawn_kept_and_read_again(cache: Cache, seeded: Seeded) -> None:
    sources = [SeededSource(seeded), *(SeededSource(seeded, cache) for _ in range(2))]
    drawn, first, again = (source.open(ANY) for source in sources)
    assert all(isinstance(cache.open(sources[1].key(name)), KeptLayer) for name in NAMES)
    for name in NAMES:
        for layers in (drawn, first, again):
            assert_right(layers[name], seeded, name)
            assert repr(layers[name].summary()) == repr(drawn[name].summary())  # repr, as NaN is not itself
    assert sources[0].run == sources[1].run == sources[2].run


@settings(max_examples=60, deadline=None)
@given(st.builds(Seeded, *[st.integers(1, 40)] * 3, st.integers(0, 2**64 - 1)), st.data())
def test_rows_that_were_announced_are_those_of_torch(
    tmp_path_factory: pytest.TempPathFactory, seeded: Seeded, data: st.DataObject
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache")) if data.draw(st.booleans()) else None
    wanted = {
        name: data.draw(st.lists(st.integers(0, seeded.shape(name)[0] - 1), min_size=1))
        for name in data.draw(st.permutations(NAMES))
    }
    layers = SeededSource(seeded, cache).open({name: np.array(ids, np.uint32) for name, ids in wanted.items()})
    for name, ids in wanted.items():
        chosen = data.draw(st.lists(st.sampled_from(ids)))
        assert_same_bits(layers[name].rows(np.array(chosen, np.int64)), live(seeded)[name][chosen])
        assert_right(layers[name], seeded, name)  # others than those announced, too


def test_the_figures_of_a_layer_summed_up_in_parts_are_those_that_are_kept(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_FAR", 1 << 18)  # from which on a drawn layer is summed up in parts
    seeded = Seeded(5003, 131, 7)
    figures = {repr(opened(seeded, where).summary()) for where in (None, cache, cache)}
    figures.add(repr(opened(seeded, ids=[5]).summary()))
    assert len(figures) == 1


def test_the_run_tells_seed_shapes_torch_and_cpu_capability_in_this_order() -> None:
    source = SeededSource(Seeded(6, 3, 4, 9))
    assert source.shape("token") == (6, 3)
    assert source.shape("position") == (4, 3)
    source.open(ANY)
    assert list(source.run.items()) == [
        ("seed", 9),
        ("shapes", {"token": [6, 3], "position": [4, 3]}),
        ("torch", torch.__version__),
        ("cpu_capability", torch.backends.cpu.get_cpu_capability()),
    ]
    assert type(source.run["torch"]) is str


def test_the_run_tells_of_the_layers_that_were_opened_and_of_what_drew_them(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "as it was then")
    opened(SMALL, cache, "position")
    monkeypatch.undo()
    source = SeededSource(SMALL, cache)
    source.open({"position": np.array([1])})
    assert source.run["shapes"] == {"position": [5, 3]}
    assert source.run["cpu_capability"] == "as it was then"
    source.open({"token": None})  # drawn now
    assert source.run["shapes"] == {"position": [5, 3], "token": [6, 3]}
    assert source.run["cpu_capability"] == "as it was then"


def test_a_layer_too_large_to_keep_is_drawn(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 100)
    for ids in (None, [5, 0]):
        assert_right(opened(SMALL, cache, ids=ids), SMALL)
    assert not cache.folder.exists()


KEPT = """
import sys
from pathlib import Path
import numpy as np
from embcli.weights.cache import Cache
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
ids = np.array([5, 2])
source = SeededSource(Seeded(6, 3, 5), Cache(Path(sys.argv[1])))
layers = source.open({"token": ids, "position": np.arange(2)})
print(layers["token"].rows(ids).tobytes() + layers["position"].rows(np.arange(2)).tobytes())
slow = {"torch", "tempfile", "secrets", "hashlib", "random", "concurrent.futures", "rich", "typer", "platformdirs"}
assert not slow & sys.modules.keys(), slow & sys.modules.keys()
"""


def lookup_elsewhere(cache: Cache, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Look rows up in a process of its own, with packages of ours before the installed ones."""
    path = os.pathsep.join([*map(str, paths), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", KEPT, str(cache.folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
        text=True,
    )


EXPECTED = live(SMALL)["token"][[5, 2]].tobytes() + live(SMALL)["position"][:2].tobytes()


def test_a_kept_lookup_loads_no_torch_and_little_else(cache: Cache) -> None:
    SeededSource(SMALL, cache).open(ANY)
    done = lookup_elsewhere(cache)
    assert done.stderr == ""
    assert ast.literal_eval(done.stdout) == EXPECTED


@pytest.mark.parametrize(("ids", "times"), [([0, 699], 2), (None, 4)])
def test_rows_that_were_announced_are_read_once(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, ids: list[int] | None, times: int
) -> None:
    monkeypatch.setattr(kept, "_AT_ONCE", 1)
    opened(WIDE, cache)
    read, reads = KeptLayer._read, []
    monkeypatch.setattr(KeptLayer, "_read", lambda self, *place: reads.append(place) or read(self, *place))
    layer = opened(WIDE, cache, ids=ids)
    for row in (0, 699, 0, 699):
        layer.rows(np.array([row]))
    assert len(reads) == times


# --- a file that turns out to be damaged --------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, [0, 300, 500]])
def test_damage_is_mended_where_it_is_read(
    cache: Cache, capsys: pytest.CaptureFixture[str], ids: list[int] | None
) -> None:
    opened(WIDE, cache)
    whole = path(cache, WIDE).read_bytes()
    place = 4096 + 4 * 50 * 500
    spoil(path(cache, WIDE), whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    layer = opened(WIDE, cache, ids=ids)
    assert_same_bits(layer.rows(np.array([0, 300])), live(WIDE)["token"][[0, 300]])
    assert capsys.readouterr().err == ""
    assert_same_bits(layer.rows(np.array([500, 0])), live(WIDE)["token"][[500, 0]])
    assert capsys.readouterr().err == (
        f"embcli: {path(cache, WIDE).name} was damaged (its bytes from 65,536 on are not what was written); "
        "the layer is drawn anew\n"
    )
    assert path(cache, WIDE).read_bytes() == whole
    assert_right(layer, WIDE)


def test_a_file_that_is_cut_between_two_blocks_is_drawn_anew_from_there_on(
    cache: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embcli.layer._BLOCK", 5000)
    opened(WIDE, cache)
    blocks = opened(WIDE, cache).blocks()
    found = [next(blocks)]
    os.truncate(path(cache, WIDE), 5000)
    assert_same_bits(np.concatenate([*found, *blocks]), live(WIDE)["token"])
    assert "was damaged (it is cut off); the layer is drawn anew" in capsys.readouterr().err
    assert_right(opened(WIDE, cache), WIDE)


def test_a_file_that_ceases_to_be_readable_is_drawn_anew(
    cache: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(FileIO):
        def readinto(self, *_: object) -> int:
            raise OSError(5, "Input/output error")

    opened(SMALL, cache)
    layer = opened(SMALL, cache)
    with Failing(path(cache, SMALL)) as file, monkeypatch.context() as patch:
        patch.setattr(layer._layer, "_file", file)  # type: ignore[attr-defined]
        assert_right(layer, SMALL)
    assert "was damaged (it cannot be read: Input/output error); the layer is drawn anew" in capsys.readouterr().err


@pytest.mark.parametrize("end", [0, 100, 4096, 5000])
def test_a_file_that_is_damaged_at_the_start_is_replaced(cache: Cache, end: int) -> None:
    opened(SMALL, cache)
    whole = path(cache, SMALL).read_bytes()
    spoil(path(cache, SMALL), whole[:end] if end < 5000 else whole + b"more")
    assert_right(opened(SMALL, cache), SMALL)
    assert path(cache, SMALL).read_bytes() == whole


def test_an_older_file_under_the_same_name_is_replaced(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(SMALL, cache)
    whole = path(cache, SMALL).read_bytes()
    monkeypatch.setattr(kept, "FORMAT", "embcli-0")
    opened(SMALL, cache)
    older = path(cache, SMALL).read_bytes()
    monkeypatch.undo()
    spoil(path(cache, SMALL), older)
    assert_right(opened(SMALL, cache), SMALL)
    assert path(cache, SMALL).read_bytes() == whole


def test_a_disk_that_damages_whatever_is_written_is_done_without(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        raise Damaged("its bytes from 0 on are not what was written")

    monkeypatch.setattr(KeptLayer, "rows", damaged)
    for ids in (None, [5, 0]):
        assert_right(opened(SMALL, cache, ids=ids), SMALL)


# --- without torch ------------------------------------------------------------------------------------------------


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what takes torch away."""

    def take() -> None:
        monkeypatch.setattr(build, "_torch", lambda: build.NO_TORCH)
        monkeypatch.setattr(drawing, "Drawing", lambda _: pytest.fail("torch is gone"))
        this_build.cache_clear()

    return take


def keep_as(cache: Cache, name: str, torch: str, age: float) -> Path:
    """Keep numbers that stand for what another torch draws, all of them alike."""
    key = Key(name, SMALL, replace(this_build(), torch=f"{torch}+aa"))
    number = np.float32(torch.removeprefix("2."))
    cache.keep(key, [np.full(key.shape, number).ravel()], {"torch": torch, "cpu_capability": "AVX2"})
    os.utime(cache.path(key), (0, age))
    return cache.path(key)


def test_without_torch_the_newest_layers_of_another_one_serve(
    cache: Cache, no_torch: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for age, version in enumerate(["2.5", "2.7", "2.6"]):
        for name in NAMES:
            keep_as(cache, name, version, 1000.0 + age)
    no_torch()
    source = SeededSource(SMALL, cache)
    layers = source.open({"token": np.array([5]), "position": None})
    assert [layers[name].rows(np.array([1])).tolist() for name in NAMES] == [[[6.0] * 3]] * 2
    assert source.run["torch"] == "2.6"
    assert (
        capsys.readouterr().err == "embcli: torch is not installed; these layers were kept when torch 2.6 drew them\n"
    )


@pytest.mark.parametrize("spoilt", ["token", "position"])
@pytest.mark.parametrize("how", ["cut", "other", "gone"])
def test_without_torch_layers_of_one_torch_serve_that_are_all_sound(
    cache: Cache, no_torch: Callable[[], None], spoilt: str, how: str
) -> None:
    for age, version in enumerate(["2.5", "2.6"]):
        files = {name: keep_as(cache, name, version, 1000.0 + age) for name in NAMES}
    data = files[spoilt].read_bytes()
    if how == "gone":
        files[spoilt].unlink()
    else:
        spoil(files[spoilt], data[:-5] if how == "cut" else data[:4100] + b"\xff" + data[4101:])
    no_torch()
    layers = SeededSource(SMALL, cache).open(ANY)
    assert [layers[name].rows(np.array([1])).tolist() for name in NAMES] == [[[5.0] * 3]] * 2


def test_without_torch_and_without_a_kept_layer_a_sentence_says_so(cache: Cache, no_torch: Callable[[], None]) -> None:
    keep_as(cache, "token", "2.5", 1000.0)  # and no position layer
    no_torch()
    for where in (None, cache):
        with pytest.raises(LayerError, match=r"^torch is not installed, .*pip install torch$"):
            SeededSource(SMALL, where).open(ANY)
    assert opened(SMALL, cache).rows(np.array([0])).tolist() == [[5.0] * 3]


def test_another_machine_is_not_another_torch(
    cache: Cache, no_torch: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_as(cache, "token", "2.5", 1000.0)
    no_torch()
    for part in ("_processor", "_libc"):
        with monkeypatch.context() as patch:
            patch.setattr(build, part, lambda: "another")
            this_build.cache_clear()
            with pytest.raises(LayerError, match=r"^torch is not installed"):
                opened(SMALL, cache)


GONE = """
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
"""


def test_a_process_without_torch_reads_what_is_kept(cache: Cache, tmp_path: Path) -> None:
    SeededSource(SMALL, cache).open(ANY)
    (tmp_path / "sitecustomize.py").write_text(GONE)
    done = lookup_elsewhere(cache, tmp_path)
    assert done.stderr == (
        f"embcli: torch is not installed; these layers were kept when torch {torch.__version__} drew them\n"
    )
    assert ast.literal_eval(done.stdout) == EXPECTED


def test_with_a_broken_torch_a_kept_layer_is_read_and_another_is_refused_in_a_sentence(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    SeededSource(SMALL, cache).open(ANY)
    version = Path(torch.__file__).with_name("version.py").read_bytes()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_bytes(version)
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libc10.so: cannot open shared object file')")
    done = lookup_elsewhere(cache, tmp_path)
    assert done.stderr == ""
    assert ast.literal_eval(done.stdout) == EXPECTED
    cache.clear()
    done = lookup_elsewhere(cache, tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "embcli.errors.LayerError: torch does not load (libc10.so: cannot open shared object file); "
        "to install it anew: pip install --force-reinstall torch"
    )
    assert cache.entries() == []


# --- memory that runs out -----------------------------------------------------------------------------------------

WHOLE_ROWS = [
    lambda layer: layer.rows(np.arange(700)),
    lambda layer: layer.summary(),
    lambda layer: list(layer.blocks()),
]


@pytest.mark.parametrize("use", WHOLE_ROWS, ids=["rows", "summary", "blocks"])
@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")])
def test_memory_that_runs_out_over_a_drawn_layer_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Layer], object], fault: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    layer = opened(WIDE)
    monkeypatch.setattr(torch, "empty", fail)
    with pytest.raises(LayerError, match=r"^memory ran out over a token layer of 700 x 50; "):
        use(layer)
    monkeypatch.undo()
    assert_right(layer, WIDE)  # and nothing has gone out of step


def test_memory_that_runs_out_while_a_layer_is_kept_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, cache: Cache
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch.Tensor, "normal_", fail)
    with pytest.raises(LayerError, match=r"^memory ran out over a token layer of 700 x 50; "):
        opened(WIDE, cache)
    assert list(cache.folder.iterdir()) == []


def test_memory_that_runs_out_over_a_kept_layer_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, cache: Cache
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    opened(WIDE, cache)
    layer = opened(WIDE, cache)
    monkeypatch.setattr(np, "empty", fail)
    for use in (lambda: layer.rows(np.array([3])), lambda: opened(WIDE, cache)):
        with pytest.raises(LayerError, match=r"^memory ran out over a token layer of 700 x 50; "):
            use()


LIMITED = """
import resource, sys
import numpy as np
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
import embcli.weights.drawing
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 10**6,) * 2)
seeded = Seeded(200_019, 1024)  # 819 MB
few, all = np.array([200_018, 5]), np.arange(200_019)
print(SeededSource(seeded).open({"token": few})["token"].rows(few).shape)
SeededSource(seeded).open({"token": all})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_limit_that_the_layer_exceeds_and_its_rows_do_not_is_no_hindrance() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, timeout=TIMEOUT, check=False, text=True)
    assert done.stdout == "(2, 1024)\n"
    assert done.stderr.splitlines()[-1].startswith(
        "embcli.errors.LayerError: memory ran out over a token layer of 200,019 x 1,024; "
    )

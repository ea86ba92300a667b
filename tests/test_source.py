"""A seeded layer is one and the same wherever it comes from: drawn, kept, read again, or drawn anew in place of a
damaged file; and where it cannot be had, a sentence says why.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli.errors import LayerError
from embcli.layer import Layer
from embcli.store import Damaged, Store
from embcli.weights import build, drawing, kept
from embcli.weights.build import this_build
from embcli.weights.kept import KeptLayer, Key, write
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.conftest import TIMEOUT
from tests.oracles import assert_same_bits, live

SMALL = Seeded(6, 3, 5)
WIDE = Seeded(700, 50, 20)  # three chunks under a checksum, the last one short
NAMES = ("token", "position")
ANY = {"token": None, "position": None}


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    yield
    this_build.cache_clear()


@pytest.fixture
def cache(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def opened(seeded: Seeded, cache: Store | None = None, name: str = "token", ids: list[int] | None = None) -> Layer:
    return SeededSource(seeded, cache).open({name: None if ids is None else np.array(ids, np.uint32)})[name]


def path(cache: Store, seeded: Seeded, name: str = "token") -> Path:
    return cache.folder / SeededSource(seeded).key(name).file_name


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
def test_a_layer_is_the_same_drawn_kept_and_read_again(cache: Store, seeded: Seeded) -> None:
    sources = [SeededSource(seeded), *(SeededSource(seeded, cache) for _ in range(2))]
    drawn, first, again = (source.open(ANY) for source in sources)
    assert all(path(cache, seeded, name).exists() for name in NAMES)
    for name in NAMES:
        for layers in (drawn, first, again):
            assert_right(layers[name], seeded, name)
            assert vars(layers[name].summary()) == pytest.approx(vars(drawn[name].summary()), rel=1e-12, nan_ok=True)
    assert drawn.origin == first.origin == again.origin


@settings(max_examples=60, deadline=None)
@given(st.builds(Seeded, *[st.integers(1, 40)] * 3, st.integers(0, 2**64 - 1)), st.data())
def test_rows_that_were_announced_are_those_of_torch(
    tmp_path_factory: pytest.TempPathFactory, seeded: Seeded, data: st.DataObject
) -> None:
    cache = Store(tmp_path_factory.mktemp("cache")) if data.draw(st.booleans()) else None
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
    cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_FAR", 1 << 18)  # from which on a drawn layer is summed up in parts
    seeded = Seeded(5003, 131, 7)
    drawn, *others = (
        vars(opened(seeded, where, ids=ids).summary())
        for where, ids in ((None, None), (cache, None), (cache, None), (None, [5]))
    )
    for other in others:
        assert other == pytest.approx(drawn, rel=1e-12)


def test_the_origin_tells_seed_shapes_torch_and_cpu_capability_in_this_order() -> None:
    source = SeededSource(Seeded(6, 3, 4, 9))
    assert source.shape("token") == (6, 3)
    assert source.shape("position") == (4, 3)
    run = source.open(ANY).origin.document()
    assert list(run.items()) == [
        ("seed", 9),
        ("shapes", {"token": [6, 3], "position": [4, 3]}),
        ("torch", torch.__version__),
        ("cpu_capability", torch.backends.cpu.get_cpu_capability()),
    ]
    assert type(run["torch"]) is str


def test_the_origin_tells_of_the_layers_that_were_opened_and_of_what_drew_them(
    cache: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "as it was then")
    opened(SMALL, cache, "position")
    monkeypatch.undo()
    source = SeededSource(SMALL, cache)
    origin = source.open({"position": np.array([1]), "token": None}).origin  # the token layer is drawn now
    assert origin.shapes == {"position": (5, 3), "token": (6, 3)}
    assert origin.build["cpu_capability"] == "as it was then"


def test_a_layer_too_large_to_keep_is_drawn(tmp_path: Path) -> None:
    cache = Store(tmp_path / "cache", 100)
    for ids in (None, [5, 0]):
        assert_right(opened(SMALL, cache, ids=ids), SMALL)
    assert not cache.folder.exists()


KEPT = """
import sys
from pathlib import Path
import numpy as np
numpys = {*sys.modules}  # numpy 1 loads secrets, hashlib and random, numpy 2 does not
from embcli.store import Store
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
ids = np.array([5, 2])
source = SeededSource(Seeded(6, 3, 5), Store(Path(sys.argv[1])))
layers = source.open({"token": ids, "position": np.arange(2)})
print(layers["token"].rows(ids).tobytes() + layers["position"].rows(np.arange(2)).tobytes())
slow = {"torch", "tempfile", "secrets", "hashlib", "random", "concurrent.futures", "rich", "typer", "platformdirs"}
loaded = slow & sys.modules.keys() - numpys
assert not loaded, loaded
"""


def lookup_elsewhere(cache: Store, *paths: Path) -> subprocess.CompletedProcess[str]:
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


def test_a_kept_lookup_loads_no_torch_and_little_else(cache: Store) -> None:
    SeededSource(SMALL, cache).open(ANY)
    done = lookup_elsewhere(cache)
    assert done.stderr == ""
    assert ast.literal_eval(done.stdout) == EXPECTED


# --- a file that turns out to be damaged --------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, [0, 300, 500]])
def test_damage_is_mended_where_it_is_read(cache: Store, ids: list[int] | None) -> None:
    opened(WIDE, cache)
    whole = path(cache, WIDE).read_bytes()
    place = 4096 + 4 * 50 * 500
    spoil(path(cache, WIDE), whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    source = SeededSource(WIDE, cache)
    layer = source.open({"token": None if ids is None else np.array(ids)})["token"]
    assert_same_bits(layer.rows(np.array([0, 300])), live(WIDE)["token"][[0, 300]])
    assert not list(source.notes)
    assert_same_bits(layer.rows(np.array([500, 0])), live(WIDE)["token"][[500, 0]])
    (note,) = source.notes
    reason = "its bytes from 65,536 on are not what was written"
    assert note == f"{path(cache, WIDE).name} was damaged ({reason}); the layer is drawn again"
    assert path(cache, WIDE).read_bytes() == whole
    assert_right(layer, WIDE)


@pytest.mark.parametrize("ids", [[0, 300], [500]], ids=["verified before", "not verified"])
def test_a_layer_that_is_cut_while_it_is_read_is_drawn_again(cache: Store, ids: list[int]) -> None:
    opened(WIDE, cache)
    source = SeededSource(WIDE, cache)
    layer = source.open({"token": None})["token"]
    layer.rows(np.array([0, 300]))
    os.truncate(path(cache, WIDE), 5000)  # of a mapped file this is a SIGBUS
    assert_same_bits(layer.rows(np.array(ids)), live(WIDE)["token"][ids])
    assert list(source.notes) == [f"{path(cache, WIDE).name} was damaged (it was cut off); the layer is drawn again"]


def test_several_threads_draw_a_damaged_layer_again_once(cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(WIDE, cache)
    whole = path(cache, WIDE).read_bytes()
    spoil(path(cache, WIDE), whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    source = SeededSource(WIDE, cache)
    layer = source.open({"token": None})["token"]
    drawn: list[object] = []
    honest = drawing.DrawnLayer
    monkeypatch.setattr(drawing, "DrawnLayer", lambda *given: drawn.append(given) or honest(*given))
    with ThreadPoolExecutor(8) as pool:
        for rows in pool.map(lambda _: layer.rows(np.arange(700)), range(40)):
            assert_same_bits(rows, live(WIDE)["token"])
    assert len(drawn) == len(list(source.notes)) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_one_layer_gives_the_right_rows_to_several_threads(cache: Store, kept: bool) -> None:
    layers = SeededSource(WIDE, cache if kept else None).open(ANY)

    def are_right(seed: int) -> None:
        chances = np.random.default_rng(seed)
        for name in [*NAMES] * 50:
            ids = chances.integers(0, WIDE.shape(name)[0], 9)
            assert_same_bits(layers[name].rows(ids), live(WIDE)[name][ids])

    live(WIDE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(are_right, range(8)))


@pytest.mark.parametrize("end", [0, 100, 4096, 5000])
def test_a_file_that_is_damaged_at_the_start_is_replaced(cache: Store, end: int) -> None:
    opened(SMALL, cache)
    whole = path(cache, SMALL).read_bytes()
    spoil(path(cache, SMALL), whole[:end] if end < 5000 else whole + b"more")
    assert_right(opened(SMALL, cache), SMALL)
    assert path(cache, SMALL).read_bytes() == whole


def test_an_older_file_under_the_same_name_is_replaced(cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(SMALL, cache)
    whole = path(cache, SMALL).read_bytes()
    monkeypatch.setattr(kept, "FORMAT", "embcli-0")
    opened(SMALL, cache)
    older = path(cache, SMALL).read_bytes()
    monkeypatch.undo()
    spoil(path(cache, SMALL), older)
    assert_right(opened(SMALL, cache), SMALL)
    assert path(cache, SMALL).read_bytes() == whole


def test_a_disk_that_damages_whatever_is_written_is_done_without(cache: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(drawing, "DrawnLayer", lambda *_: pytest.fail("torch is gone"))
        this_build.cache_clear()

    return take


def keep_as(cache: Store, name: str, torch: str, age: float) -> Path:
    """Keep numbers that stand for what another torch draws, all of them alike."""
    key = Key(name, SMALL, replace(this_build(), torch=f"{torch}+aa"))
    number = np.float32(torch.removeprefix("2."))
    origin, block = {"torch": torch, "cpu_capability": "AVX2"}, np.full(key.shape, number)
    cache.write(key.file_name, key.file_bytes, lambda file: write(file, key, [block], origin))
    os.utime(cache.folder / key.file_name, (0, age))
    return cache.folder / key.file_name


def test_without_torch_the_newest_layers_of_another_one_serve(cache: Store, no_torch: Callable[[], None]) -> None:
    for age, version in enumerate(["2.5", "2.7", "2.6"]):
        for name in NAMES:
            keep_as(cache, name, version, 1000.0 + age)
    no_torch()
    source = SeededSource(SMALL, cache)
    layers = source.open({"token": np.array([5]), "position": None})
    assert [layers[name].rows(np.array([1])).tolist() for name in NAMES] == [[[6.0] * 3]] * 2
    assert layers.origin.build["torch"] == "2.6"
    assert list(source.notes) == ["torch is not installed; torch 2.6 drew these layers, which were kept"]


@pytest.mark.parametrize("spoilt", ["token", "position"])
@pytest.mark.parametrize("how", ["cut", "other", "gone"])
def test_without_torch_layers_of_one_torch_serve_that_are_all_sound(
    cache: Store, no_torch: Callable[[], None], spoilt: str, how: str
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


def test_without_torch_and_without_a_kept_layer_a_sentence_says_so(cache: Store, no_torch: Callable[[], None]) -> None:
    keep_as(cache, "token", "2.5", 1000.0)  # and no position layer
    no_torch()
    for where in (None, cache):
        with pytest.raises(LayerError, match=r"^torch is not installed, .*pip install torch$"):
            SeededSource(SMALL, where).open(ANY)
    assert opened(SMALL, cache).rows(np.array([0])).tolist() == [[5.0] * 3]


def test_another_machine_is_not_another_torch(
    cache: Store, no_torch: Callable[[], None], monkeypatch: pytest.MonkeyPatch
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


def test_a_process_without_torch_reads_what_is_kept(cache: Store, tmp_path: Path) -> None:
    SeededSource(SMALL, cache).open(ANY)
    (tmp_path / "sitecustomize.py").write_text(GONE)
    done = lookup_elsewhere(cache, tmp_path)
    assert done.stderr == ""
    assert ast.literal_eval(done.stdout) == EXPECTED


def test_with_a_broken_torch_a_kept_layer_is_read_and_another_is_refused_in_a_sentence(
    cache: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
        "reinstall it: pip install --force-reinstall torch"
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
    monkeypatch.setattr(torch.Tensor, "normal_", fail)
    with pytest.raises(LayerError, match=r"^memory ran out over a token layer of 700 x 50; "):
        use(layer)
    monkeypatch.undo()
    assert_right(layer, WIDE)  # and nothing has gone out of step


def test_memory_that_runs_out_while_a_layer_is_kept_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, cache: Store
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch.Tensor, "normal_", fail)
    with pytest.raises(LayerError, match=r"^memory ran out over a token layer of 700 x 50; "):
        opened(WIDE, cache)
    assert list(cache.folder.iterdir()) == []


def test_memory_that_runs_out_over_a_kept_layer_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, cache: Store
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

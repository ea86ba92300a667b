"""The map of a weight matrix: its bins are those of slow numpy, dead rows are seen, and a bar tells of the pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from rich.style import Style

from embcli.verbs.weights import density_map
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.conftest import Embcli
from tests.inside import Inside, in_terminal
from tests.oracles import live, stub
from tests.screen import on_terminal
from tests.test_heat import DEPTHS, characters, numbers, range_of, read, strips

if TYPE_CHECKING:
    from pathlib import Path

untimed = settings(deadline=None)
matrices = st_numpy.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    elements=st.sampled_from([0.0, -0.0]) | st.floats(width=32),
    fill=st.just(0.0),
)


@pytest.fixture(autouse=True)
def _fresh_styles() -> None:
    Style.parse.cache_clear()
    Style._add.cache_clear()


@untimed
@given(matrices, st.integers(1, 5), st.integers(1, 5))
@np.errstate(all="ignore")
def test_bins_are_those_of_plain_numpy(values: np.ndarray, rows: int, columns: int) -> None:
    found = density_map(stub(values, values), "token").bins(rows, columns)
    wide, (size, dim) = values.astype(float), values.shape
    whole = np.isfinite(wide)
    for place, row in enumerate(range(0, size, rows)):
        part, sound = wide[row : row + rows], whole[row : row + rows].all(axis=1)
        norms = np.sqrt((part[sound] ** 2).sum(axis=1))
        assert found.norms[place] == pytest.approx(norms.mean() if sound.any() else np.nan, rel=1e-12, nan_ok=True)
        assert found.zero_rows[place] == (part == 0).all(axis=1).sum()
        assert found.non_finite_rows[place] == (~sound).sum()
        for at, column in enumerate(range(0, dim, columns)):
            cell = part[:, column : column + columns]
            assert found.sizes[place, at] == pytest.approx(np.sqrt((cell**2).mean()), rel=1e-12, nan_ok=True)
    assert found.zero_columns.tolist() == (wide == 0).all(axis=0).tolist()
    assert found.non_finite_columns.tolist() == (~whole.all(axis=0)).tolist()
    if whole.all():
        assert found.summary.mean == pytest.approx(wide.mean(), rel=1e-9, abs=1e-12 * np.abs(wide).max())
        assert (found.summary.minimum, found.summary.maximum) == (values.min(), values.max())


def test_a_pass_is_watched_row_by_row() -> None:
    steps: list[int] = []

    def watch(blocks: object, total: int, size: object) -> object:
        assert total == 3001
        for block in blocks:  # type: ignore[attr-defined]
            steps.append(size(block))  # type: ignore[operator]
            yield block

    found = density_map(SeededSource(Seeded(3001, 33)), "token", watch=watch).bins(7, 2)  # type: ignore[arg-type]
    assert sum(steps) == 3001
    np.testing.assert_allclose(found.sizes, expected(live(Seeded(3001, 33))["token"], 7, 2), rtol=1e-12)


def planted(path: Path) -> tuple[Path, np.ndarray]:
    """Return a file whose matrix, (400, 90), has rows of zeros, a column of zeros, a NaN and an infinity."""
    values = np.random.default_rng(1).normal(size=(400, 90)).astype(np.float32) * np.linspace(
        0.5, 2, 90, dtype=np.float32
    )
    values[137] = values[390:] = 0
    values[:, 60] = 0
    values[20, 3], values[250, 77] = np.nan, -np.inf
    file = path / "planted.npy"
    np.save(file, values)
    return file, values


def expected(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the root mean square of each bin, the slow way."""
    size, dim = values.shape
    parts = [[values[a : a + rows, b : b + columns] for b in range(0, dim, columns)] for a in range(0, size, rows)]
    with np.errstate(invalid="ignore"):
        return np.array([[np.sqrt((part.astype(float) ** 2).mean()) for part in row] for row in parts])


def bins(printed: str) -> tuple[int, int]:
    """Return how many rows and columns a page says that each bin has."""
    said = re.search(r"root mean square of (\d+) rows? x (\d+) columns? each", " ".join(printed.split()))
    assert said
    return int(said[1]), int(said[2])


@pytest.mark.parametrize(("environment", "palette"), [next(iter(DEPTHS.values())), DEPTHS["16"]])
@pytest.mark.parametrize(("width", "lines"), [(80, 24), (200, 50), (60, 24)])
def test_the_colours_of_a_map_are_the_sizes_of_its_bins(
    tmp_path: Path, environment: dict[str, str], palette: tuple[Any, ...], width: int, lines: int
) -> None:
    file, values = planted(tmp_path)
    run = Inside(terminal=True)
    screen = {"COLUMNS": str(width), "LINES": str(lines), **environment}
    printed = run.ok("weights", "--map", "--from", str(file), **screen).text
    assert printed.count("\n") < lines or width < 80
    sizes = expected(values, *bins(printed))
    low, high = range_of(printed)
    assert (low, high) == (0, float(f"{sizes[np.isfinite(sizes)].max():.4g}"))
    found = strips(printed)
    assert len(found) == len(sizes)
    step = high / (len(palette) // 2)
    for strip, row in zip(found, sizes, strict=True):
        marked = any(character in "?!" for character in strip.characters)
        assert marked == (not np.isfinite(row).all())
        if not marked:
            assert np.abs(numbers(strip, palette, len(row), high) - row).max() <= step / 2 * 1.01


def test_planted_rows_are_read_back_from_the_marks(tmp_path: Path) -> None:
    file, values = planted(tmp_path)
    printed = Inside().ok("weights", "--map", "--from", str(file), COLUMNS="80").text
    rows, columns = bins(printed)
    lines = [re.split(r" {2,}", line.replace("│", " ").strip()) for line in printed.split("\n") if "│" in line][1:]
    *body, below = lines
    marks = {int(first): mark for first, _, *between, _ in body for mark in between}
    zero, odd = (values == 0).all(axis=1), ~np.isfinite(values).all(axis=1)
    assert marks == {
        start: "0" * bool(zero[start : start + rows].any()) + "!" * bool(odd[start : start + rows].any())
        for start in range(0, 400, rows)
        if (zero | odd)[start : start + rows].any()
    }
    assert [*marks.values()].count("0") == 2
    (found,) = below
    places = {place: mark for place, mark in enumerate(found) if mark != "·"}
    wide = len(found) // len(range(0, 90, columns))
    assert {place // wide: mark for place, mark in places.items()} == {
        3 // columns: "!",
        60 // columns: "0",
        77 // columns: "!",
    }
    assert "0: 11 rows and 1 column all zero; !: 2 rows and 2 columns not finite.\n" in printed
    norms = {int(first): float(rest[-1]) for first, *rest in body}
    exact = np.sqrt((values.astype(float) ** 2).sum(axis=1))
    for start, norm in norms.items():
        part = exact[start : start + rows][~odd[start : start + rows]]
        assert norm == pytest.approx(part.mean(), rel=5e-4)


def test_a_matrix_without_faults_has_no_marks() -> None:
    printed = Inside().ok("weights", "--map", "--vocab", "50", "--dim", "20").text
    assert not re.search(r"all zero|not finite|·", printed)
    layer = live(Seeded(50, 20))["token"]
    rows, columns = bins(printed)
    high = range_of(printed)[1]
    for strip, row in zip(
        characters(re.sub(r" +\d+\.\d*$", "", printed, flags=re.M)), expected(layer, rows, columns), strict=True
    ):
        assert np.abs(read(strip[:: len(strip) // len(row)], high, signed=False) - row).max() <= high / 16 * 1.01


@pytest.mark.parametrize("option", ["--rows", "--columns"])
def test_a_map_is_of_the_whole_matrix(inside: Embcli, option: str) -> None:
    ran = inside("weights", "--map", option, "0:5")
    assert f"{option.lstrip('-')} 0:5 cannot be combined with" in ran.err
    assert ran.status == 2


@pytest.mark.parametrize("width", [80, 200])
def test_a_map_fits_a_real_terminal(width: int) -> None:
    shown = on_terminal(width, "weights", "--map", "--dim", "64", height=24)
    assert shown.history == 0
    assert len(strips(shown.raw)) == 10


@pytest.mark.parametrize(("more", "size"), [((), "10"), (("--map",), "3000")], ids=["summary", "map"])
def test_a_long_pass_has_a_bar_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], size: str
) -> None:
    monkeypatch.setattr("embcli.cli.console._PATIENCE", -1.0)
    out = tmp_path / "out"
    words = ("weights", "--vocab", size, "--dim", "8", "--no-cache", *more, "-f", "table", "-o", str(out))
    status, raw = in_terminal(80, 24, *words, TERM="xterm")
    assert status == 0, raw
    assert "━" in raw
    assert "100%" in raw
    assert raw.rstrip().endswith("\x1b[2K")  # and then it is gone
    assert "━" not in out.read_text()

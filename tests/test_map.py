"""The map of a weight matrix: its bins are those of slow numpy, dead rows are seen, and a bar tells of the pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from embcli.errors import unwatched
from embcli.model import Model
from embcli.page.colors import RAMP
from embcli.verbs.weights import Bins
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.inside import Inside, shown
from tests.oracles import live, stub

if TYPE_CHECKING:
    from pathlib import Path

matrices = st_numpy.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    elements=st.sampled_from([0.0, -0.0, 0.5]) | st.floats(width=32),
    fill=st.just(0.0),
)


def bins(source: Any, rows: int, columns: int, watch: Any = unwatched) -> Bins:
    return Model(source, watch=watch).weights(map=True).bins(rows, columns)  # type: ignore[attr-defined, no-any-return]


@given(matrices, st.integers(1, 5), st.integers(1, 5))
@np.errstate(all="ignore")
def test_bins_are_those_of_plain_numpy(values: np.ndarray, rows: int, columns: int) -> None:
    found = bins(stub(values, values), rows, columns)
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

    found = bins(SeededSource(Seeded(3001, 33)), 7, 2, watch)
    assert sum(steps) == 3001
    np.testing.assert_allclose(found.sizes, expected(live(Seeded(3001, 33))["token"], 7, 2), rtol=1e-12)


def expected(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the root mean square of each bin, the slow way."""
    size, dim = values.shape
    parts = [[values[a : a + rows, b : b + columns] for b in range(0, dim, columns)] for a in range(0, size, rows)]
    with np.errstate(invalid="ignore"):
        return np.array([[np.sqrt((part.astype(float) ** 2).mean()) for part in row] for row in parts])


def test_planted_rows_and_columns_are_read_back_from_the_page(tmp_path: Path) -> None:
    """Rows and a column of zeros, a NaN and an infinity have marks; each line has the mean norm of its rows."""
    values = np.random.default_rng(1).normal(size=(400, 90)).astype(np.float32) * np.float32(np.linspace(0.5, 2, 90))
    values[137] = values[390:] = values[:, 60] = 0
    values[20, 3], values[250, 77] = np.nan, -np.inf
    np.save(tmp_path / "planted.npy", values)
    printed = Inside().ok("weights", "--map", "--from", str(tmp_path / "planted.npy"), COLUMNS="80").text
    said = re.search(r"root mean square of (\d+) rows? x (\d+) columns? each", " ".join(printed.split()))
    assert said
    rows, columns = map(int, said.groups())
    lines = [re.split(r" {2,}", line.replace("│", " ").strip()) for line in printed.split("\n") if "│" in line][1:]
    *body, (below,) = lines
    zero, odd = (values == 0).all(axis=1), ~np.isfinite(values).all(axis=1)
    sizes, norms = expected(values, rows, columns), np.sqrt((values.astype(float) ** 2).sum(axis=1))
    limit = sizes[np.isfinite(sizes)].max()
    assert f" {limit:.4g}" in printed
    for (first, strip, *marks, norm), row in zip(body, sizes, strict=True):
        part = slice(int(first), int(first) + rows)
        assert "".join(marks) == "0" * bool(zero[part].any()) + "!" * bool(odd[part].any())
        assert float(norm) == pytest.approx(norms[part][~odd[part]].mean(), rel=5e-4)
        for cell, size in zip(strip[:: len(strip) // len(row)], row, strict=True):
            assert cell in "?!" if not np.isfinite(size) else abs(RAMP.index(cell) / 8 - size / limit) <= 1 / 16 * 1.01
    wide = len(below) // -(-90 // columns)
    places = {place // wide: mark for place, mark in enumerate(below) if mark != "·"}
    assert places == {3 // columns: "!", 60 // columns: "0", 77 // columns: "!"}
    assert "0: 11 rows and 1 column all zero; !: 2 rows and 2 columns not finite.\n" in printed


def test_a_matrix_without_faults_has_no_marks_and_a_map_fits_a_screen() -> None:
    assert not re.search(r"all zero|not finite|·", Inside().ok("weights", "--map", "--vocab", "50", "--dim", "20").text)
    for width, height in ((80, 24), (200, 50), (60, 24)):
        status, raw = shown("weights", "--map", "--dim", "64", width=width, height=height, NO_COLOR="1")
        assert (status, raw.count("\n") < height, max(map(len, raw.splitlines())) <= width) == (0, True, True)


@pytest.mark.parametrize(("more", "size"), [((), "10"), (("--map",), "3000")], ids=["summary", "map"])
def test_a_long_pass_has_a_bar_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], size: str
) -> None:
    monkeypatch.setattr("embcli.cli.console.PATIENCE", -1.0)
    out = tmp_path / "out"
    words = ("weights", "--vocab", size, "--dim", "8", "--no-cache", *more, "-f", "table", "-o", str(out))
    status, raw = shown(*words, TERM="xterm")
    assert status == 0, raw
    assert "━" in raw
    assert "100%" in raw
    assert raw.rstrip().endswith("\x1b[2K")  # and then it is gone
    assert "━" not in out.read_text()

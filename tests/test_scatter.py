"""The rows of a layer by their principal components: the plane against numpy's SVD, the picture against the points."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from embcli import layer, statistics
from embcli.cli import console
from embcli.errors import InputError
from embcli.oldpage.canvas import CELL, LINE, PALETTES
from embcli.oldpage.svg import SvgCanvas
from embcli.verbs.scatter import Scatter, scatter
from embcli.views.scatter import view
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests import drawings
from tests.inside import Inside
from tests.oracles import Stub, StubSource, live

if TYPE_CHECKING:
    from collections.abc import Iterator

run = Inside()
WARM, FAINT = PALETTES["light"].tones["warm"], PALETTES["light"].faint


def unwatched(blocks: Any, total: int, size: Any) -> Iterator[np.ndarray]:
    return iter(blocks)


def scattered(values: np.ndarray, rows: str | None = None, columns: str | None = None) -> Scatter:
    return scatter(StubSource({"token": Stub(values)}), "token", rows, columns, unwatched)


def by_svd(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the points and the shares of the variance as the singular vectors of the centred matrix have them."""
    centred = values.astype(np.float64) - values.astype(np.float64).mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    for axis in axes[:2]:
        if axis[np.abs(axis).argmax()] < 0:
            axis *= -1
    return centred @ axes[:2].T, (sizes**2 / (sizes**2).sum())[:2]


def stretched(rows: int, dim: int, mean: float = 0.0, seed: int = 3) -> np.ndarray:
    """Return normal values whose columns, turned at random, differ in how far they go."""
    random = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(random.normal(size=(dim, dim)))
    return (random.normal(size=(rows, dim)) * np.geomspace(9, 0.5, dim) @ turn + mean).astype(np.float32)


@pytest.mark.parametrize(("rows", "dim", "mean"), [(2, 2, 0), (5, 30, 1), (1500, 7, 1000), (700, 64, -3), (40, 2, 5)])
def test_the_plane_is_that_of_the_singular_vectors(
    monkeypatch: pytest.MonkeyPatch, rows: int, dim: int, mean: float
) -> None:
    values = stretched(rows, dim, mean)
    wanted, shares = by_svd(values)
    for most in (1 << 10, 3):  # rows that are multiplied at a time
        monkeypatch.setattr(statistics, "_PENDING", 1)
        monkeypatch.setattr(statistics, "_LEAST_ROWS", most)
        monkeypatch.setattr(layer, "_BLOCK", most * dim)
        found = scattered(values)
        assert found.points == pytest.approx(wanted, abs=1e-6 * np.abs(wanted).max() + (1e-5 if rows == 2 else 0))
        assert found.explained == pytest.approx(shares, abs=1e-9)


@pytest.mark.parametrize("name", ["token", "position"])
def test_a_seeded_layer_lies_where_torchs_own_does(name: str) -> None:
    seeded = Seeded(900, 20, 300)
    found = scatter(SeededSource(seeded), name, "5,3", "2:9", unwatched)
    wanted, shares = by_svd(live(seeded)[name][:, 2:9])
    assert found.points == pytest.approx(wanted, abs=1e-6)
    assert found.explained == pytest.approx(shares)
    assert (found.shape, found.columns) == ((900 if name == "token" else 300, 20), 7)
    assert found.chosen is not None
    assert found.chosen.tolist() == [5, 3]


def test_rows_that_are_not_finite_count_for_nothing_and_are_told() -> None:
    values = stretched(60, 5)
    clean = np.delete(values, [7, 30, 59], axis=0)
    values[[7, 30, 59], [0, 1, 2]] = np.nan, np.inf, -np.inf
    found = scattered(values)
    assert np.flatnonzero(np.isnan(found.points).all(axis=1)).tolist() == [7, 30, 59]
    assert np.delete(found.points, [7, 30, 59], axis=0) == pytest.approx(by_svd(clean)[0], abs=1e-5)
    assert "left out: 3 rows with NaN or infinity" in " ".join(drawn(found)[0])


def test_points_are_data() -> None:
    result = scattered(np.random.default_rng(1).standard_normal((9000, 4)))
    records = result.records()
    pieces = list(records.pieces(("id",), ("points",)))
    assert np.concatenate([piece.fields["id"] for piece in pieces]).tolist() == [*range(9000)]
    assert np.array_equal(np.concatenate([piece.matrices["points"] for piece in pieces]), result.points)
    assert records.matrices["points"].shape == (9000, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((1, 5)), "a plane needs at least two rows and two columns, got 1 x 5"),
        (np.ones((5, 1)), "a plane needs at least two rows and two columns, got 5 x 1"),
        (np.full((5, 4), 7.25), "a plane needs different rows"),
        (np.full((5, 4), np.nan), "a plane needs at least two finite rows"),
        (np.array([[1, 2], [np.inf, 2]]), "a plane needs at least two finite rows"),
    ],
)
def test_a_layer_without_a_plane_is_refused(values: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        scattered(values)


def test_a_covariance_that_memory_cannot_hold_is_refused_before_the_layer_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "free", lambda: 5 * 8 * 30**2)
    scattered(stretched(9, 30))
    monkeypatch.setattr(StubSource, "open", lambda *_: pytest.fail("the layer was opened"))
    with pytest.raises(InputError, match="the covariance of 31 columns does not fit into memory"):
        scattered(stretched(9, 31))


# --- the picture ------------------------------------------------------------------------------------------------------


def drawn(result: Scatter, width: int = 800, height: int = 600) -> tuple[list[str], dict[str, np.ndarray], Any]:
    """Return the texts of a picture, the dots by colour, (n, 2), and the text elements."""
    canvas = SvgCanvas(width, height, PALETTES["light"])
    view(result, canvas)
    root = drawings.svg(canvas.content())
    texts = [*root.iter(f"{drawings.SVG}tspan")]
    dots = {
        path.get("stroke", ""): np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", path.get("d", "")), float)
        for path in root.iter(f"{drawings.SVG}path")
    }
    return [text.text or "" for text in texts], dots, root


@pytest.mark.parametrize("width", [364, 800, 1700])
def test_dots_are_the_points_to_scale_and_labels_beside_them(width: int) -> None:
    found = scattered(stretched(300, 6), rows="4,8,15,16,23,42")
    texts, dots, root = drawn(found, width, max(width * 3 // 4, 480))
    assert len(dots[FAINT]) == len(np.unique(dots[FAINT], axis=0))
    assert 295 <= len(dots[FAINT]) <= 300
    chosen = found.points[[4, 8, 15, 16, 23, 42]]
    apart, seen = chosen[1:] - chosen[0], dots[WARM][1:] - dots[WARM][0]
    scale = seen[0, 0] / apart[0, 0]
    assert seen == pytest.approx(apart * (scale, -scale), abs=0.02)
    ticks = [float(text) for text in texts if re.fullmatch(r"-?\d+(\.\d+)?", text)]
    assert len(ticks) >= 4
    labels = [text for text in root.iter(f"{drawings.SVG}tspan") if text.get("paint-order")]
    assert {text.text for text in labels} <= {"4", "8", "15", "16", "23", "42"}
    assert len(labels) >= 5
    for label in labels:
        box = _box(root, label)
        dot = dots[WARM][["4", "8", "15", "16", "23", "42"].index(label.text or "")]
        nearest = np.clip(dot, box[:2], box[2:])
        assert 0 < np.hypot(*(nearest - dot)) <= 7


def test_ticks_stand_at_their_numbers() -> None:
    found = scattered(np.array([[0, 0], [8, 0], [0, 3], [8, 3], [4, 1.5]]))
    texts, dots, root = drawn(found)
    low, high = dots[WARM][:, 0].min(), dots[WARM][:, 0].max()  # -4 and 4 from the middle
    boxes = {text: _box(root, text) for text in root.iter(f"{drawings.SVG}tspan")}
    row = max(top for text, (_, top, _, _) in boxes.items() if re.fullmatch(r"-?\d+", text.text or ""))
    ticks = {int(text.text or ""): (left + right) / 2 for text, (left, top, right, _) in boxes.items() if top == row}
    assert len(ticks) >= 5
    for value, x in ticks.items():
        assert x == pytest.approx((low + high) / 2 + value * (high - low) / 8, abs=1)
    assert "component 1: 87.7% of the variance →" in texts
    assert "↑ component 2: 12.3% of the variance" in texts
    assert any(text.startswith("V = 5 tokens, D = 2 columns; ") for text in texts), texts


def _box(root: Any, piece: Any) -> tuple[float, float, float, float]:
    """Return where a piece of text stands: left, top, right, bottom."""
    (line,) = (text for text in root.iter(f"{drawings.SVG}text") if piece in [*text])
    x, top = float(piece.get("x")), float(line.get("y")) - 13.5
    return x, top, x + float(piece.get("textLength")), top + LINE


@pytest.mark.parametrize("rows", [None, "0:400"])
@pytest.mark.parametrize("width", [364, 800])
def test_no_text_meets_another_or_a_labelled_dot_or_the_edge(width: int, rows: str | None) -> None:
    found = scattered(stretched(400, 5), rows=rows)
    _, dots, root = drawn(found, width, max(width * 3 // 4, 480))
    texts = [*root.iter(f"{drawings.SVG}tspan")]
    boxes = [_box(root, text) for text in texts]
    assert len(boxes) > 20
    for place, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= width
        for other in boxes[:place]:
            across = min(right, other[2]) - max(left, other[0])
            down = min(bottom, other[3]) - max(top, other[1])
            assert across <= 0 or down <= 2.5, (texts[place].text, other)
        if texts[place].get("paint-order"):
            x, y = dots[WARM].T
            inside = (x + 2 > left) & (x - 2 < right) & (y + 2 > top) & (y - 2 < bottom)
            assert not inside.any(), texts[place].text
    labels = [text.text for text in texts if text.get("paint-order")]
    assert len(labels) == len({*labels})
    if rows is None:
        assert len(dots[WARM]) == len(labels) <= 40
        distance = np.hypot(*(found.points - found.points.mean(axis=0)).T)
        assert distance[int(labels[0] or "")] == distance.max()
    else:
        assert len(dots[WARM]) == 400


def test_hostile_tokens_are_labels_that_can_be_read_back(tmp_path: Path) -> None:
    ids = {"<|endoftext|>": 50256, "␣you": 345, r"\xe2\x80": 447, "&": 5}
    rows = ",".join(map(str, ids.values()))
    data = run.ok("weights", "--dim", "4", "--scatter", "--rows", rows, "-f", "svg").out
    labels = [text.text for text in drawings.svg(data).iter(f"{drawings.SVG}tspan") if text.get("paint-order")]
    assert {*labels} == {*ids}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_png_has_the_size_and_the_dots_of_the_svg(tmp_path: Path, theme: str) -> None:
    arguments = ("weights", "--vocab", "30", "--dim", "4", "--scatter", "--theme", theme, "--width", "60")
    root = drawings.svg(run.ok(*arguments, "-f", "svg").out)
    pixels = drawings.png(run.ok(*arguments, "-f", "png").out)
    width, height = (int(root.get(name, "")) for name in ("width", "height"))
    assert pixels.shape == (2 * height, 2 * width, 3)
    palette = PALETTES["light" if theme == "light" else "dark"]
    warm = bytes.fromhex(palette.tones["warm"][1:])
    for path in root.iter(f"{drawings.SVG}path"):
        if path.get("stroke") == palette.tones["warm"]:
            places = np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", path.get("d", "")), float)
            assert len(places) > 10
            for x, y in np.round(2 * places).astype(int).tolist():
                assert bytes(pixels[y, x]) == warm


@pytest.mark.parametrize("form", [None, "html", "markdown", "npy", "json"])
def test_a_scatter_is_an_svg_or_a_png(monkeypatch: pytest.MonkeyPatch, form: str | None) -> None:
    monkeypatch.setattr(SeededSource, "open", lambda *_: pytest.fail("the layer was opened"))
    arguments = ["weights", "--scatter", *(["-f", form] if form else [])]
    message = run.refused(*arguments)
    example = "" if form else ", as in: -o picture.svg"
    said = f"embcli: --scatter cannot be shown in {form or 'table'}; it needs --format svg or png{example}\n"
    assert message == said


def test_both_passes_have_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("weights", "--vocab", "6", "--dim", "3", "--scatter", "-f", "svg")
    quiet = run.ok(*arguments)
    monkeypatch.setattr(console, "_PATIENCE", -1.0)
    ran = Inside(noisy=True)(*arguments, TERM="xterm")
    assert ran.out == quiet.out
    assert ran.err.count("100%") >= 2


def test_a_scatter_of_a_file_has_its_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", token=stretched(50, 4))
    data = run.ok("weights", "--from", str(tmp_path / "own.npz"), "--scatter", "-f", "svg", "--rows", "7,9").out
    root = drawings.svg(data)
    assert [text.text for text in root.iter(f"{drawings.SVG}tspan") if text.get("paint-order")] == ["7", "9"]
    assert root.get("width") == str(24 + int(100 * CELL))

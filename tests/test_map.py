"""Maps: principal components against the eigenvectors of the covariance, and where points stand."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from safetensors.numpy import save_file

import embcli
from embcli.numerics.principal import principal_map
from embcli.page import export, safe_text
from embcli.page.map import Map
from embcli.page.svg import CELL
from tests.cases import cases
from tests.oracles import normal


@given(st.integers(3, 30), st.integers(2, 20), st.integers(0, 99))
def test_components_are_eigenvectors_of_the_covariance(rows, dim, seed):
    values = normal(rows, dim, seed)
    exact = values.astype(np.float64)
    variances, vectors = np.linalg.eigh(np.cov(exact.T))
    first_two = vectors[:, [-1, -2]]
    largest = np.take_along_axis(first_two, np.abs(first_two).argmax(axis=0)[None], axis=0)

    points, shares = principal_map(values)

    expected = (exact - exact.mean(axis=0)) @ (first_two * np.sign(largest))
    np.testing.assert_allclose(points, expected, atol=1e-6)
    np.testing.assert_allclose(shares, variances[[-1, -2]] / variances.sum(), atol=1e-9)


@cases
def test_one_row_two_and_equal_rows_have_a_map(rows, points, shares):
    found_points, found_shares = principal_map(np.array(rows))

    assert found_shares == pytest.approx(shares)
    if points is not None:
        np.testing.assert_allclose(found_points, points, atol=1e-12)
    text = export.text(Map(np.array(rows), [safe_text("")] * len(rows)), 80)
    assert ("do not differ" in text) == (not any(shares))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_labels_stand_apart_or_are_counted(width):
    labels = [safe_text(f"日{number}日") for number in range(60)]
    text = export.text(Map(normal(60, 4, 1), labels), width)

    assert max(map(cell_len, text.splitlines())) <= width
    found = re.findall(r"(?<!\S)日\d+日(?!\S)", text)
    left_out = re.search(r"Left out: (\d+) label", text)
    assert len({*found}) == text.count("日") / 2
    assert len(found) + (int(left_out[1]) if left_out else 0) == 60


@cases
def test_a_picture_has_points_at_their_places_and_labels_apart(format, slide):
    result = embcli.seeded(vocab=60, dim=3).weights(rows=[*range(60)], map=True)
    svg = result.styled(slide=slide).page(format).decode().replace("&#160;", " ")

    circles = re.findall(r'<circle cx="(\S+)" cy="(\S+)"', svg)
    places = np.array(circles, float)
    points = principal_map(result.token)[0] * [1, -1]
    scale = np.ptp(places[:, 0]) / np.ptp(points[:, 0])
    np.testing.assert_allclose(places - places[0], (points - points[0]) * scale, atol=1)

    assert np.ptp(places[:, 1]) > 260, "the points fill most of the lines"

    taken = np.zeros((1080, 1920), bool)
    taken[tuple(places.astype(int).T[::-1])] = True
    taken[int(*re.findall(r"M1 0V(\d+)", svg))] = True  # the axis below
    axes, _, drawn = svg.partition("<circle")
    labels = re.findall(r'<text x="(\S+)" y="(\S+)" textLength="(\S+)">\d+<', drawn)
    for left, baseline, width in np.array(labels, float).astype(int).tolist():
        box = taken[baseline - 15 : baseline + 3, left : left + width]
        assert not box.any()
        box[:] = True
    left_out = re.search(r"Left out: (\d+) label", svg)
    assert len(labels) + (int(left_out[1]) if left_out else 0) == 60
    (right,) = re.findall(r"M1 0V\S+H(\d+)", svg)
    middle = (places[:, 0].min() + places[:, 0].max()) / 2
    assert abs(int(right) / 2 - middle) < CELL

    for way, column in [("v", 0), ("h", 1)]:
        found = re.findall(rf"M(\S+) ([\d.]+){way}.+?<text .+?>(-?[\d.]+)<", axes)
        ticks = np.array(found, float)
        assert len(ticks) > 1
        steps = {f"{step:.1e}"[:3] for step in np.diff(ticks[:, 2])}
        assert steps <= {"1.0", "2.0", "5.0"}
        expected = points[0, column] * scale - places[0, column]
        np.testing.assert_allclose(
            ticks[:, 2] * [scale, -scale][column], ticks[:, column] + expected, atol=1
        )


@pytest.mark.parametrize("crowded", [8, 30])
def test_each_point_of_a_crowd_has_its_label_at_the_end_of_a_line(crowded):
    corners = np.array([[-9, -9], [9, 9], [-9, 9], [9, -9]], np.float32)
    crowd = np.concatenate([corners, normal(crowded, 2, 1) / 20, np.zeros((1, 2), np.float32)])
    labels = [safe_text(f"row {number}") for number in range(len(crowd) - 1)]
    page = Map(crowd, [*labels, safe_text("a query", "strong")])

    svg = export.exported(page, "svg", 80, "light").decode().replace("&#160;", " ")

    drawn = re.findall(r"<text[^>]*>(row \d+|a query)<", svg)
    assert len(drawn) == len(crowd)
    _, _, after_axes = svg.partition("<circle")
    ends = re.findall(r'<path d="M(\S+) (\S+)L(\S+) (\S+)" stroke', after_axes)
    assert 0 < len(ends) < len(drawn), "a label beside its point needs no line"
    if crowded > 8:
        return  # so many lines cannot pass each other
    lengths = [np.hypot(*np.subtract(end[:2], end[2:])) for end in np.array(ends, float)]
    assert min(lengths) > 2 * CELL

    met = np.array(re.findall(r'<circle cx="(\S+)" cy="(\S+)"', svg), float)
    for left, top, *edge in np.array(ends, float):
        start = np.array([left, top])
        along = start + np.linspace(0.1, 1, 90)[:, None] * (edge - start)
        others = met[np.abs(met - start).max(axis=1) > 0.2]
        distances = np.linalg.norm(along[:, None] - others, axis=2)
        assert distances.min() > 1.5, "it meets no other point, and no line"
        met = np.vstack([met, along])


def test_neighbours_under_cosine_are_mapped_at_length_1():
    result = embcli.seeded(vocab=50, dim=6).neighbors([7], top=9, map=True)
    rows = embcli.seeded(vocab=50, dim=6).weights(rows=[7, *result.ids]).token.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    _, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0))

    first, second = sizes[:2] ** 2 / (sizes**2).sum()
    page = " ".join(str(result).split())
    assert f"1 and 2, {first:.1%} and {second:.1%} of these rows' variance" in page
    assert "scaled to length 1" in page
    assert page.count("●") == 10


def test_a_map_is_of_chosen_finite_rows_on_a_page(in_process, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    save_file({"wte.weight": np.float32([[1, 2], [np.nan, 0], [3, 1]])}, "m.safetensors")

    def refused(*words):
        return in_process.refused("weights", "m.safetensors", "--map", *words)

    assert "--rows" in refused()
    assert "NaN" in refused("--rows", "0,1")
    assert "--format" in refused("--rows", "0,2", "-f", "json")
    words = ("weights", "m.safetensors", "--map", "--rows", "0,2")
    snapshot("weights/map.txt", in_process.ok(*words, COLUMNS="60", suggestions=True).text)

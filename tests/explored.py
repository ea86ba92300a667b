"""Reading the full screen as a person would, and holding each number on it against numpy."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from textual import events
from textual.widgets import DataTable, Input
from textual.worker import WorkerCancelled

from embcli.explore.app import Explorer
from embcli.explore.find import FindScreen
from embcli.explore.matrix import MatrixScreen
from embcli.explore.row import PairScreen, RowScreen
from embcli.tokens import shown

if TYPE_CHECKING:
    from textual.pilot import Pilot

CHARACTERS = {
    "comma": ",",
    "slash": "/",
    "colon": ":",
    "space": " ",
    "question_mark": "?",
    "dollar_sign": "$",
}
NUMBER = r"-?\d+\.\d{4}(?:e[+-]\d+)?|-?inf|nan"


async def settle(pilot: Pilot[int]) -> None:
    """Wait until nothing runs any more."""
    await pilot.pause()
    for worker in pilot.app.workers:
        with suppress(WorkerCancelled):  # a search whose screen was left
            await worker.wait()
    await pilot.pause()


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys as a person does, each once the one before is done, and wait until nothing runs any more."""
    await pilot.press(*keys)
    await settle(pilot)


async def send(pilot: Pilot[int], *keys: str) -> None:
    """Send keys as a terminal sends what is pasted, one right after the other, and wait until they are done."""
    for key in keys:
        pilot.app.post_message(events.Key(key, CHARACTERS.get(key, key if len(key) == 1 else None)))
    await settle(pilot)


def lines(app: Explorer) -> list[str]:
    """Return the lines on the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips(app.size)]


def same(written: str, value: float) -> bool:
    """Whether a number is written as Python writes it, with four decimals; a score may be off by rounding."""
    spec = ".4e" if "e" in written else ".4f"
    near = (float(value) * (1 + sign * 1e-12) for sign in (-1, 0, 1))
    return written in {format(each, spec) for each in near} or (
        written == "nan" and np.isnan(value)
    )


def held(app: Explorer, matrix: np.ndarray) -> int:
    """Hold the numbers on the screen against a matrix, (V, D) float32; return how many there are."""
    check = {MatrixScreen: _matrix, RowScreen: _row, PairScreen: _pair, FindScreen: _find}[
        type(app.screen)
    ]
    return check(app, app.screen, lines(app), matrix)


def norms(matrix: np.ndarray) -> np.ndarray:
    """Return the norms of rows, NaN if a value is not finite."""
    with np.errstate(invalid="ignore"):
        found = np.sqrt(np.square(matrix.astype(np.float64)).sum(axis=1))
    return np.where(np.isfinite(found), found, np.nan)


def _values(line: str, expected: np.ndarray) -> int:
    written = line.split()
    assert len(written) == len(expected), (written, expected)
    for number, value in zip(written, expected.tolist(), strict=True):
        assert re.fullmatch(NUMBER, number), line
        assert same(number, value), (number, value)
    return len(written)


def _matrix(app: Explorer, screen: Any, shown_lines: list[str], matrix: np.ndarray) -> int:
    view, count = screen.lines, 0
    order = np.argsort(-norms(matrix), kind="stable") if view.by_norm else np.arange(len(matrix))
    header, *body = [line.rstrip(" ▁▂▃▄▅▆▇█").split("│") for line in shown_lines[1:-2]]
    top = round(view.scroll_y)
    assert top <= view.cursor < top + len(body)
    for place, (label, *values) in enumerate((each for each in body if len(each) > 1), top):
        ids = re.match(r"[• ]*(\d+)", label)
        assert int(ids[1]) == order[place], (label, place)
        row = matrix[order[place]]
        if view.by_norm:
            count += _values(label.split()[-1], norms(row[None]))
        if view.heat_limit is None:
            count += _values(values[0], row[list(map(int, header[1].split()))])
        else:  # nine columns, each of four cells
            shares = np.clip(np.nan_to_num(row / (view.heat_limit or 1)), -1, 1)
            marks = [".:-=+*#%@"[each] for each in np.rint(shares * 4).astype(int) + 4]
            marks = [
                "?" if np.isnan(at) else "!" if np.isinf(at) else mark
                for at, mark in zip(row, marks, strict=True)
            ]
            assert len(row) != 9 or values[0].strip()[::4][:9] == "".join(marks), (
                row,
                view.heat_limit,
            )
    return count


def scores(matrix: np.ndarray, row: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the IDs of rows with a score in the order of nearness to a row, and the scores of all, in float64."""
    exact, lengths = matrix.astype(np.float64), norms(matrix)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "cosine":
            every = exact @ exact[row] / (lengths * lengths[row])
        else:
            every = np.where(
                np.isnan(lengths), np.nan, np.sqrt(np.square(exact - exact[row]).sum(axis=1))
            )
    known = np.flatnonzero(~np.isnan(every))
    known = known[known != row]
    return known[np.argsort((-1 if metric == "cosine" else 1) * every[known], kind="stable")], every


def _row(app: Explorer, screen: Any, shown_lines: list[str], matrix: np.ndarray) -> int:
    row = matrix[screen.row]
    norm = re.search(r"norm ([^\s,]+)", shown_lines[0])
    assert same(norm[1], norms(row[None])[0]), shown_lines[0]
    count = 1
    width = screen.lines.size.width
    columns: list[int] = []
    for line in shown_lines[2:-2]:
        label, bar, values = line[:width].partition("│")
        if bar:
            first = int(label)
            per_line = screen.lines.per_line
            columns += range(first, first + _values(values, row[first : first + per_line]))
    count += len(columns)
    assert count > 1, "whole numbers at any width"
    assert columns == [*screen.lines.shown_columns], "the columns of the command"
    for metric in ("cosine", "l2"):
        if metric in screen.nearest:
            order, every = scores(matrix, screen.row, metric)
            table = screen.query_one(f"#{metric}", DataTable)
            for place in range(table.row_count):
                *_, row_id, score = (str(cell) for cell in table.get_row_at(place))
                assert same(score, every[int(row_id)]), (metric, row_id, score, every[int(row_id)])
                assert np.isclose(every[int(row_id)], every[order[place]], rtol=1e-9, atol=1e-12), (
                    metric,
                    place,
                )
                count += 1
            region = table.region
            first = shown_lines[region.y + 1][region.x : region.right].rstrip(" ▁▂▃▄▅▆▇█").split()
            assert first[-2:] == [*map(str, table.get_row_at(round(table.scroll_y))[-2:])], (
                "an ID is whole"
            )
    return count


def _pair(app: Explorer, screen: Any, shown_lines: list[str], matrix: np.ndarray) -> int:
    one, other = (matrix[row] for row in screen.rows)
    exact = np.stack([one, other]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = exact[0] @ exact[1] / np.prod(np.linalg.norm(exact, axis=1))
        expected = {"cosine": cosine, "L2 distance": np.linalg.norm(exact[0] - exact[1])}
        difference = one - other
    for name, value in expected.items():
        found = re.search(rf"{name} (\S+)", shown_lines[0])
        assert found is None or (
            np.isnan(value) if found[1] == "none" else same(found[1], value)
        ), shown_lines[0]
    count = 0
    for line in shown_lines[2:-2]:
        column, *values = line.rstrip(" ▁▂▃▄▅▆▇█").split() or [""]
        if column:
            at = int(column)
            count += _values(
                " ".join(values), np.array([one[at], other[at], difference[at]][: len(values)])
            )
    assert "A - B" in shown_lines[1] or app.size.width < 60
    return count


def _find(app: Explorer, screen: Any, shown_lines: list[str], matrix: np.ndarray) -> int:
    encoding, text, table = (
        screen.matrix.model.encoding,
        screen.query_one(Input).value,
        screen.query_one(DataTable),
    )
    for place in range(table.row_count):
        kind, row, token = map(str, table.get_row_at(place))
        if kind != "word":
            assert int(row) == encoding.encode(text)[int(kind.split()[1])]
        whole = shown(encoding.entry(int(row)))
        assert token == whole or (token.endswith("…") and whole.startswith(token[:-1]))
    return table.row_count

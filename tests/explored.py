"""Reading the full screen as a person would, and holding each number on it against numpy."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from textual import events
from textual.geometry import Size
from textual.widgets import DataTable, Input
from textual.worker import WorkerCancelled, WorkerFailed

from embcli.explore.app import Explorer
from embcli.explore.find import FindScreen
from embcli.explore.matrix import MatrixScreen
from embcli.explore.row import RowScreen
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
SCROLL_BAR = " ▁▂▃▄▅▆▇█"


# --- keys -----------------------------------------------------------------------------------------


async def settle(pilot: Pilot[int]) -> None:
    """Wait until nothing runs any more: no message is on its way, and no search at work.

    A pilot's own pause sleeps until the processor is idle, which takes longer than the screens.
    """
    app = pilot.app
    ready = asyncio.get_running_loop()._ready
    is_busy = True
    while is_busy:
        await asyncio.sleep(0)
        while ready:
            await asyncio.sleep(0)
        for worker in app.workers:
            # A search whose screen was left is cancelled; the screen says why one fails.
            with suppress(WorkerCancelled, WorkerFailed):
                await worker.wait()
        app.screen._on_timer_update()  # draws what the screen would draw in a moment
        is_busy = bool(ready)


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys as a person does, each once the one before is done, and wait for the last."""
    for key in keys:
        await send(pilot, key)


async def send(pilot: Pilot[int], *keys: str) -> None:
    """Send keys as a terminal sends what is pasted, at once, and wait until they are done."""
    for key in keys:
        character = key if len(key) == 1 else CHARACTERS.get(key)
        pilot.app.post_message(events.Key(key, character))
    await settle(pilot)


async def resize(pilot: Pilot[int], width: int, height: int) -> None:
    """Give the terminal another size, and wait until it is drawn."""
    size = Size(width, height)
    pilot.app._driver._size = size
    pilot.app.post_message(events.Resize(size, size))
    await settle(pilot)
    await asyncio.sleep(1 / 60)  # Textual waits half as long for a further size.
    await settle(pilot)


# --- what numbers shall be ------------------------------------------------------------------------


def norms(matrix: np.ndarray) -> np.ndarray:
    """Return the norms of rows, NaN if a value is not finite."""
    with np.errstate(invalid="ignore"):
        found = np.sqrt(np.square(matrix.astype(np.float64)).sum(axis=1))
    return np.where(np.isfinite(found), found, np.nan)


def scores(matrix: np.ndarray, row: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the IDs of other rows from the nearest on, and the scores of all, in float64.

    Rows without a score are left out of the IDs.
    """
    exact = matrix.astype(np.float64)
    lengths = norms(matrix)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "cosine":
            found = exact @ exact[row] / (lengths * lengths[row])
            keys = -found
        else:
            distances = np.sqrt(np.square(exact - exact[row]).sum(axis=1))
            found = np.where(np.isnan(lengths), np.nan, distances)
            keys = found
    others = np.flatnonzero(~np.isnan(found))
    others = others[others != row]
    return others[np.argsort(keys[others], kind="stable")], found


def same(written: str, value: float) -> bool:
    """Whether a number is written as Python writes it, with four decimals.

    A score may be off by rounding.
    """
    if written == "nan":
        return bool(np.isnan(value))
    spec = ".4e" if "e" in written else ".4f"
    near = (value * (1 - 1e-12), value, value * (1 + 1e-12))
    return written in [format(float(number), spec) for number in near]


def _hold_values(written: list[str], expected: np.ndarray) -> int:
    """Hold numbers on the screen against values; return how many there are."""
    assert len(written) == len(expected), (written, expected)
    for number, value in zip(written, expected.tolist(), strict=True):
        assert re.fullmatch(NUMBER, number), written
        assert same(number, value), (number, value)
    return len(written)


# --- what is on the screen ------------------------------------------------------------------------


def lines(app: Explorer) -> list[str]:
    """Return the lines on the screen."""
    return [strip.text for strip in app.screen._compositor.render_strips(app.size)]


def held(app: Explorer, matrix: np.ndarray) -> int:
    """Hold the numbers on the screen against a matrix, (V, D) float32; return how many it has."""
    check = CHECKS[type(app.screen)]
    return check(app, app.screen, matrix)


def _matrix(app: Explorer, screen: Any, matrix: np.ndarray) -> int:
    """Hold the list of rows: their order, norms, and values or heat."""
    view = screen.lines
    order = np.arange(len(matrix))
    if screen.matrix.by_norm:
        order = np.argsort(-norms(matrix), kind="stable")

    header, *body = [line.rstrip(SCROLL_BAR) for line in lines(app)[1:-2]]
    top = round(view.scroll_y)
    assert top <= view.cursor < top + len(body)

    count = 0
    rows = [line.split("│") for line in body if "│" in line]
    for (label, values), row_id in zip(rows, order[top:], strict=False):
        row = matrix[row_id]
        shown_id = re.match(r" *(\d+)", label)
        assert int(shown_id[1]) == row_id, label
        if screen.matrix.by_norm:
            count += _hold_values(label.split()[-1:], norms(row[None]))
        if view.heat_limit is None:
            columns = [int(column) for column in header.split("│")[1].split()]
            count += _hold_values(values.split(), row[columns])
        elif len(row) == 9:  # Each of nine columns has four cells.
            assert values.strip()[::4][:9] == _heat(row, view.heat_limit)
    return count


def _heat(row: np.ndarray, limit: float) -> str:
    """Return a mark for each value: the more ink the larger, `.` for -limit and `@` for limit."""
    shares = np.clip(np.nan_to_num(row / (limit or 1)), -1, 1)
    levels = np.rint(shares * 4).astype(int) + 4
    marks = np.array([*".:-=+*#%@"])[levels]
    marks[np.isnan(row)] = "?"
    marks[np.isinf(row)] = "!"
    return "".join(marks)


def _row(app: Explorer, screen: Any, matrix: np.ndarray) -> int:
    """Hold a row: its norm, its values, and the scores of its nearest rows."""
    row = matrix[screen.row]
    title, _, *body = lines(app)[:-2]
    norm = re.search(r"norm ([^\s,]+)", title)
    assert same(norm[1], norms(row[None])[0]), title

    columns: list[int] = []
    for line in body:
        label, bar, values = line[: screen.lines.size.width].partition("│")
        if bar:
            first = int(label)
            part = row[first : first + screen.lines.per_line]
            _hold_values(values.split(), part)
            columns += range(first, first + len(part))
    assert columns, "whole numbers at any width"

    count = 1 + len(columns)
    for metric in ("cosine", "l2"):
        if metric in screen.nearest:
            count += _nearest(app, screen, matrix, metric)
    return count


def _nearest(app: Explorer, screen: Any, matrix: np.ndarray, metric: str) -> int:
    """Hold the list of the nearest rows, which shows IDs whole; return how many there are."""
    order, expected = scores(matrix, screen.row, metric)
    if not len(screen.nearest[metric]):  # A note says why.
        return 0
    table = screen.query_one(f"#{metric}", DataTable)
    for place in range(table.row_count):
        *_, row_id, score = map(str, table.get_row_at(place))
        value = expected[int(row_id)]
        assert same(score, value), (metric, row_id, score, value)
        # Rows whose scores differ only by rounding may change places.
        assert np.isclose(value, expected[order[place]], rtol=1e-9, atol=1e-12), (metric, place)

    first_line = lines(app)[table.region.y + 1]
    cells = first_line[table.region.x : table.region.right].rstrip(SCROLL_BAR).split()
    first_row = table.get_row_at(round(table.scroll_y))
    assert cells[-2:] == [str(cell) for cell in first_row[-2:]]
    return table.row_count


def _find(app: Explorer, screen: Any, matrix: np.ndarray) -> int:
    """Hold the list of found rows: the text's own tokens are those of the encoding."""
    encoding = screen.matrix.model.encoding
    ids = encoding.encode(screen.query_one(Input).value)
    table = screen.query_one(DataTable)
    for place in range(table.row_count):
        kind, row, token = map(str, table.get_row_at(place))
        if kind != "word":
            assert int(row) == ids[int(kind.split()[1])]
        whole = shown(encoding.token_bytes(int(row)))
        assert token == whole or (token.endswith("…") and whole.startswith(token[:-1]))
    return table.row_count


CHECKS = {MatrixScreen: _matrix, RowScreen: _row, FindScreen: _find}

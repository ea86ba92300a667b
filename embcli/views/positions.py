"""How `positions` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.page import Block, Column, Excerpt
from embcli.positions import Relative, Rotary
from embcli.views.parts import left_out, put_guesses

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.positions import PositionTable

_MOST_ROWS = 200  # of those that were chosen
_FEW_ROWS, _FEWEST_ROWS = 10, 4  # of all positions: where there is one table, and where there are two

_STORED = (  # of what a real model holds
    "Row pos of the model's own layer, added to the token row, as training left it.",
    "As training left the rows: those that it made alike have large products.",
)
_WORDS = {  # of what positions become, and of their dot products
    "learned": (
        "Row pos of a layer of its own, added to the token row; training moves it.",
        "Random rows: their dot products tell nothing before training moves them.",
    ),
    "sinusoidal": (
        "Columns 2i and 2i + 1: sine and cosine of pos / 10000^(2i/D); added.",
        "Of an even D they depend on the distance alone: equal along each diagonal.",
    ),
    "relative": (
        "From token i to token j: j - i, clipped to ±k, with a row for each distance.",
        "With this row: the same at equal distances, and alike at all from k on.",
    ),
    "rotary": (
        "Pair i of the columns is turned by the angle pos · theta^(-2i/D).",
        "They depend on the distance alone: equal along each diagonal.",
    ),
}


def view(result: PositionTable, page: Page) -> None:
    """Put positions on a page: their rows, angles or distances, or their dot products."""
    page.title(_title(result))
    page.line((_STORED if "from" in result.run else _WORDS[result.wanted.kind])[result.wanted.similarity])
    if result.wanted.similarity:
        if result.wanted.meets_a_row:
            page.line(f"The row is that of token ID {result.wanted.token_id()}.")
        if page.paper.heat:
            page.picture("pos", result.chosen, result.columns, result.means)
            return
        _put(result, page, "similarity", _FEW_ROWS, result.columns)
    elif isinstance(result.kind, Relative):
        _put_relative(result, result.kind, page)
    elif isinstance(result.kind, Rotary):
        _put_rotary(result, result.kind, page)
    else:
        _put(result, page, "position", _FEW_ROWS, result.columns)
    if "from" in result.run:
        page.line(_origin(result.run))
    put_guesses(page, result.run)


def _origin(run: dict[str, Any]) -> str:
    """Return in words which rows of a file these are."""
    first = run.get("first_position", 0)
    rows = f"; position 0 is its row {first}" if first else ""
    return f"{run['tensors']['position']} ({run['dtypes']['position']}){rows}"


def _title(result: PositionTable) -> str:
    wanted = result.wanted
    t, d, kind = f"{wanted.length:,}", f"{wanted.dim:,}", wanted.kind
    if wanted.similarity:
        return f"Dot products of {kind} positions, (T, T) = ({t}, {t}), D = {d}"
    if isinstance(result.kind, Relative):
        return f"Relative positions, (T, T, D) = ({t}, {t}, {d}), k = {result.kind.clip:,}"
    if isinstance(result.kind, Rotary):
        turned = f"{result.kind.pairing}, theta = {result.kind.theta:,g}"
        return f"Rotary positions, (T, D/2) = ({t}, {result.kind.columns:,}) angles; {turned}"
    return f"{kind.capitalize()} positions, (T, D) = ({t}, {d})"


def _put(result: PositionTable, page: Page, name: str, few: int, numbers: np.ndarray) -> None:
    """Put one matrix on the page, a row a position, and say what is left out."""
    total = len(result.chosen)
    rows = Excerpt.most(_MOST_ROWS if result.picked[0] else few, total)
    if page.paper.heat and not result.picked[0]:  # positions that follow each other: waves are seen in them
        rows = Excerpt(min(_most_strips(page, few), total), 0, total)
    places = result.chosen[rows.places]
    block = Block("", result.matrices[name].rows(places))
    columns = page.grid(
        [Column("pos", [str(place) for place in places])], [block], numbers, rows.gaps, every=result.picked[1]
    )
    _put_left_out(page, rows.missing(result.chosen, "row"), columns.missing(numbers, "column"))


def _most_strips(page: Page, few: int) -> int:
    """Return how many strips there is room for with all that is around them, in one table or in two."""
    return max(page.paper.lines - 10 if few == _FEW_ROWS else (page.paper.lines - 17) // 2, 3)


def _put_relative(result: PositionTable, kind: Relative, page: Page) -> None:
    page.line(f"The distances, clipped, (T, T) = ({result.wanted.length:,}, {result.wanted.length:,})")
    _put(result, page, "distance", _FEWEST_ROWS, np.arange(result.wanted.length))
    page.line()
    size, dim = kind.layer.shape
    page.line(f"The rows that they pick, (2k + 1, D) = ({size:,}, {dim:,})")
    rows = Excerpt.most(_FEWEST_ROWS, size)
    distances = np.arange(-kind.clip, kind.clip + 1)
    labels = [Column("distance", [str(each) for each in distances[rows.places]])]
    block = Block("", kind.every()[rows.places][:, result.columns])
    columns = page.grid(labels, [block], result.columns, rows.gaps, every=result.picked[1])
    _put_left_out(page, rows.missing(distances, "row"), columns.missing(result.columns, "column"))


def _put_rotary(result: PositionTable, kind: Rotary, page: Page) -> None:
    page.line("The angles in radians; a column a pair")
    _put(result, page, "position", _FEWEST_ROWS, result.columns)
    page.line()
    first, second = kind.pairs[result.columns[0]]
    page.line(f"The row of token ID {result.wanted.token_id()}, turned: columns {first} and {second} are a pair")
    _put(result, page, "input", _FEWEST_ROWS, kind.columns_of(result.columns))
    page.line("Models turn queries and keys so, in each layer, not the embedding.")


def _put_left_out(page: Page, *missing: str) -> None:
    words = left_out(*missing)
    if words:
        page.line(words)

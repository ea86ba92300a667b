"""The page of `tokenize --merges`: the steps of each piece as a table, or as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from embcli.page import LEAST_TOKEN, TOKEN_TONES, Column, Columns, Excerpt, Page, Tone, Word
from embcli.page.layout import cell_len
from embcli.tokens import shown
from embcli.views.parts import put_left_out
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.encodings.derivation import Derivation
    from embcli.verbs.merges import Merges

_MOST_ROWS = 200
_MOST_TREES = 50
_APART = 3  # cells between the leaves of a tree


def view(result: Merges, page: Page) -> None:
    """Put the steps of each piece on a page, and how many tokens the pieces become."""
    if any(piece.merges for piece in result.pieces):
        page.title("Each piece of the text, merged pair by pair: the pair of the lowest rank first")
    else:
        page.title("Each piece of the text, and the tokens that it becomes")
    if result.draw:
        _put_trees(result, page)
    else:
        _put_table(result, page)
    page.line()
    encoding = result.tokens.encoding
    name = f" ({encoding.name})" if encoding else ""
    symbols = sum(len(piece.symbols) for piece in result.pieces)
    start = f"{counted(symbols, 'symbol')} in " if any(piece.merges for piece in result.pieces) else ""
    page.line(f"{start}{counted(len(result.pieces), 'piece')} become {counted(len(result.ids), 'token')}{name}")


def _put_table(result: Merges, page: Page) -> None:
    rows = [(number, step, each) for number, piece in enumerate(result.pieces) for step, each in piece.rows]
    which = Excerpt.most(_MOST_ROWS, len(rows))
    chosen = [rows[place] for place in which.places]
    firsts = [not k or chosen[k - 1][0] != number for k, (number, _, _) in enumerate(chosen)]
    pieces = [
        _text(result.pieces[number]) if first else "" for first, (number, _, _) in zip(firsts, chosen, strict=True)
    ]
    columns: Columns = [Column("piece", pieces, "left", least=LEAST_TOKEN)]
    columns.append(Column("step", [str(step) for _, step, _ in chosen]))
    if "left" in result.fields:
        sides = [(each.left, each.right) for _, _, each in chosen]
        columns.append(Column("left", [shown(left) if left else "" for left, _ in sides]))
        columns.append(Column("right", [shown(right) if right else "" for _, right in sides], "left"))
    for name in ("rank", "score"):
        if name in result.fields:
            values = [getattr(each, name) for _, _, each in chosen]
            columns.append(Column(name, ["" if each is None else f"{each:,}" for each in values]))
    tokens = [Word(shown(result.spelled(each) or b""), _tone(number)) for number, _, each in chosen]
    columns.append(Column("token", tokens, "left", least=LEAST_TOKEN))
    columns.append(Column("ID", ["" if each.token_id is None else str(each.token_id) for _, _, each in chosen]))
    page.table(columns, which.gaps)
    put_left_out(page, which.missing(np.arange(len(rows)), "row"))


def _text(piece: Derivation) -> str:
    return shown(b"".join(piece.symbols))


def _tone(number: int) -> Tone:
    return TOKEN_TONES[number % len(TOKEN_TONES)]


def _put_trees(result: Merges, page: Page) -> None:
    """Put a tree for each piece on the page: its symbols, the merges below them, the IDs at the bottom."""
    for number, piece in enumerate(result.pieces[:_MOST_TREES]):
        if number:
            page.line()
        if not piece.merges:
            tokens = (
                f"{shown(step.token)}{'' if step.score is None else f' {step.score:.4f}'}" for step in piece.steps
            )
            page.line(Word(_text(piece), "strong"), f" → {' + '.join(tokens)}")
            continue
        lines = _tree(piece)
        if max(map(cell_len, lines)) > page.width:
            page.line(f"{len(piece.symbols):,} symbols are wider than the page; the table has their merges.")
            continue
        page.line(Word(lines[0], "dim"))
        for line in lines[1:-1]:
            page.line(line)
        page.line(Word(lines[-1], _tone(number)))
    if len(result.pieces) > _MOST_TREES:
        page.line()
        page.line(f"Not drawn: {counted(len(result.pieces) - _MOST_TREES, 'more piece')}.")


@dataclass(frozen=True)
class _Node:
    """A symbol or what a merge made of two: where its middle is, in cells, and below how many merges it is."""

    token: bytes
    middle: int
    level: int
    left: _Node | None = None
    right: _Node | None = None


def _tree(piece: Derivation) -> list[str]:
    """Return the lines of a tree, from the symbols at the top to the IDs at the bottom."""
    leaves: list[_Node] = []
    place = 0
    for symbol in piece.symbols:
        cells = cell_len(shown(symbol))
        leaves.append(_Node(symbol, place + (cells - 1) // 2, 0))
        place += cells + _APART
    nodes = [*leaves]
    merged: list[_Node] = []
    for step in piece.steps:
        k = next(
            k for k, (left, right) in enumerate(pairwise(nodes)) if (left.token, right.token) == (step.left, step.right)
        )
        left, right = nodes[k : k + 2]
        middle, level = (left.middle + right.middle) // 2, max(left.level, right.level) + 1
        merged.append(_Node(step.token, middle, level, left, right))
        nodes[k : k + 2] = merged[-1:]
    height = 2 * max(node.level for node in nodes) + 1
    canvas = [[" "] * (place + 2 * _APART) for _ in range(height + 1)]
    for node in (*leaves, *merged):
        _write(canvas[2 * node.level], node.middle, shown(node.token))
    for node in merged:
        _join(canvas, node)
    for node, token_id in zip(nodes, piece.ids, strict=False):
        for line in canvas[2 * node.level + 1 : height]:
            line[node.middle] = "│"
        _write(canvas[height], node.middle, str(token_id))
    return ["".join(line).rstrip() for line in canvas]


def _join(canvas: list[list[str]], node: _Node) -> None:
    """Draw the lines from two nodes to what a merge made of them."""
    if node.left is None or node.right is None:
        return
    row = canvas[2 * node.level - 1]
    for child in (node.left, node.right):
        for line in canvas[2 * child.level + 1 : 2 * node.level - 1]:
            line[child.middle] = "│"
    row[node.left.middle : node.right.middle + 1] = "─" * (node.right.middle - node.left.middle + 1)
    row[node.left.middle], row[node.middle], row[node.right.middle] = "╰", "┬", "╯"


def _write(line: list[str], middle: int, text: str) -> None:
    """Write a text around a cell; a character of two cells takes two places, the second of them empty."""
    cells = [cell for character in text for cell in (character, *[""] * (cell_len(character) - 1))]
    start = max(middle - (len(cells) - 1) // 2, 0)
    line[start : start + len(cells)] = cells

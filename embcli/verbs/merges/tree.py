"""The trees of a piece of a text: symbols on top, merges below them, token IDs at the end.

A node is drawn from its symbols down. Joining nodes puts them side by side, with branches and the
merged text below; the number of the step is in the branches. At the end the last nodes, one for
each token, get their IDs and stand side by side, in rows as wide as the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rich.cells import cell_len, set_cell_size

from embcli.encodings.merging import Derivation
from embcli.tokens import shown

_GAP = 2  # cells between neighbours


def tree_rows(piece: Derivation, tokens: Sequence[bytes | None], width: int) -> Iterator[list[str]]:
    """Yield a piece's trees in rows of this width: the lines of each, the last one with IDs.

    A row of one tree can be wider. `tokens` are the bytes of each of the piece's IDs.
    """
    nodes = []
    for symbol in piece.symbols:
        text = shown(symbol)
        nodes.append(_Node(symbol, [text], (cell_len(text) - 1) // 2))
    for number, step in enumerate(piece.steps, 1):
        neighbours = [(left.token, right.token) for left, right in pairwise(nodes)]
        place = neighbours.index((step.left or b"", step.right or b""))
        nodes[place : place + 2] = [_joined(nodes[place : place + 2], str(number))]
    if len(nodes) > 1 and tokens == [b"".join(piece.symbols)]:
        # The vocabulary has the piece, though no merges lead to it.
        nodes = [_joined(nodes, "┬")]

    ids = [str(token_id) for token_id in piece.ids]
    if len(ids) != len(nodes):  # an unknown symbol has several IDs, or none
        _extend(nodes)
        yield [*_side_by_side(nodes), " ".join(ids)]
        return

    rows: list[list[_Node]] = []
    room = 0
    for node, token_id in zip(nodes, ids, strict=True):
        cells = max(node.width, len(token_id))
        if cells > room:
            rows.append([])
            room = width
        rows[-1].append(node)
        room -= cells + _GAP

    ids_in_order = iter(ids)
    for row in rows:
        _extend(row)
        for node in row:
            node.add(next(ids_in_order))
        yield _side_by_side(row)


@dataclass(eq=False)
class _Node:
    """A symbol, or what merges made of symbols; its lines grow downwards as it is drawn."""

    token: bytes
    lines: list[str]
    middle: int  # the cell where a branch below it begins

    @property
    def width(self) -> int:
        return max(map(cell_len, self.lines))

    def add(self, text: str) -> None:
        """Write a text around the middle, within the width if it fits there."""
        cells = cell_len(text)
        centred = self.middle - (cells - 1) // 2
        start = max(min(centred, self.width - cells), 0)
        self.lines.append(" " * start + text)


def _extend(nodes: Sequence[_Node]) -> None:
    """Draw a line below each node that is not as high as the highest."""
    height = max(len(node.lines) for node in nodes)
    for node in nodes:
        node.lines += [" " * node.middle + "│"] * (height - len(node.lines))


def _joined(parts: Sequence[_Node], mark: str) -> _Node:
    """Return the node that parts are merged to: the parts side by side, the whole below them.

    The mark is in the middle of the branches between them.
    """
    _extend(parts)
    starts = accumulate((part.width + _GAP for part in parts), initial=0)
    middles = [start + part.middle for start, part in zip(starts, parts, strict=False)]
    first, *inner, last = middles
    middle = (first + last) // 2
    branches = list(" " * first + "─" * (last - first) + "╯")
    branches[first] = "╰"
    for cell in inner:
        branches[cell] = "┴"
    start = min(middle, last - len(mark))
    branches[start : start + len(mark)] = mark

    token = b"".join(part.token for part in parts)
    node = _Node(token, [*_side_by_side(parts), "".join(branches)], middle)
    node.add(shown(token))
    return node


def _side_by_side(nodes: Sequence[_Node]) -> list[str]:
    """Return the lines of nodes that are equally high, as lines beside each other."""
    padded = []
    for node in nodes:
        width = node.width
        padded.append([set_cell_size(line, width) for line in node.lines])
    return [(" " * _GAP).join(row).rstrip() for row in zip(*padded, strict=True)]

"""A piece of a text as a tree of lines: its symbols on top, its merges below them, IDs at the end.

A node is drawn from its symbols down. Joining nodes puts them side by side, with branches and the
merged text below; the number of the step is in the branches. At the end the last nodes get their
token IDs and stand side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rich.cells import cell_len, set_cell_size

from embcli.encodings.merging import Derivation
from embcli.tokens import shown

_GAP = 2  # cells between neighbours


def tree_lines(piece: Derivation, tokens: Mapping[int, bytes | None]) -> list[str]:
    """Return the lines of a piece's tree; `tokens` are the bytes of its IDs."""
    nodes = []
    for symbol in piece.symbols:
        text = shown(symbol)
        nodes.append(_Node(symbol, [text], (cell_len(text) - 1) // 2))
    for number, step in enumerate(piece.steps, 1):
        neighbours = [(left.token, right.token) for left, right in pairwise(nodes)]
        place = neighbours.index((step.left or b"", step.right or b""))
        nodes[place : place + 2] = [_joined(nodes[place : place + 2], str(number))]
    if len(nodes) > 1 and list(tokens.values()) == [b"".join(piece.symbols)]:
        # The vocabulary has the piece, though no merges lead to it.
        nodes = [_joined(nodes, "┬")]

    height = max(len(node.lines) for node in nodes)
    for node in nodes:
        node.extend(height)
    ids = [str(token_id) for token_id in piece.ids]
    if len(ids) != len(nodes):  # an unknown symbol has several IDs, or none
        return [*_side_by_side(nodes), " ".join(ids)]
    for node, token_id in zip(nodes, ids, strict=True):
        node.add(token_id)
    return _side_by_side(nodes)


@dataclass(eq=False)
class _Node:
    """A symbol, or what merges made of symbols; its lines grow downwards as it is drawn."""

    token: bytes
    lines: list[str]
    middle: int  # the cell where a branch below it begins

    @property
    def width(self) -> int:
        return max(map(cell_len, self.lines))

    def extend(self, height: int) -> None:
        """Draw a line down to a height."""
        self.lines += [" " * self.middle + "│"] * (height - len(self.lines))

    def add(self, text: str) -> None:
        """Write a text around the middle, within the width if it fits there."""
        cells = cell_len(text)
        centred = self.middle - (cells - 1) // 2
        start = max(min(centred, self.width - cells), 0)
        self.lines.append(" " * start + text)


def _joined(parts: Sequence[_Node], mark: str) -> _Node:
    """Return the node that parts are merged to: the parts side by side, the whole below them.

    The mark is in the middle of the branches between them.
    """
    height = max(len(part.lines) for part in parts)
    for part in parts:
        part.extend(height)

    starts = accumulate((part.width + _GAP for part in parts), initial=0)
    middles = [start + part.middle for start, part in zip(starts, parts, strict=False)]
    first, *inner, last = middles
    middle = (first + last) // 2
    branches = dict.fromkeys(inner, "┴")
    branches[first] = "╰"
    branches[last] = "╯"
    start_of_mark = min(middle, last - len(mark))
    for cell, character in enumerate(mark, start_of_mark):
        branches[cell] = character
    branch_line = [branches.get(cell, "─") for cell in range(first, last + 1)]

    token = b"".join(part.token for part in parts)
    node = _Node(token, _side_by_side(parts), middle)
    node.lines.append(" " * first + "".join(branch_line))
    node.add(shown(token))
    return node


def _side_by_side(nodes: Sequence[_Node]) -> list[str]:
    """Return the lines of nodes that are equally high, as lines beside each other."""
    padded = []
    for node in nodes:
        width = node.width
        padded.append([set_cell_size(line, width) for line in node.lines])
    return [(" " * _GAP).join(row).rstrip() for row in zip(*padded, strict=True)]

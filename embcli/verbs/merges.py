"""How an encoding arrives at the tokens of a text: the merges of each piece, or its longest or best tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from embcli.encodings.merging import Derivation, DerivationStep
from embcli.errors import InputError
from embcli.opened import Opened, TextOrIds
from embcli.records import Records, listed, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import Tokens, shown, token_text
from embcli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.style import Style
    from rich.text import Text


_TYPES: dict[str, type] = {
    "step": int,
    "left": str,
    "right": str,
    "rank": int,
    "score": float,
    "id": int,
    "token": str,
}
_MOST_ROWS, _MOST_TREES = 200, 50
_WIDEST = 512  # cells of a tree in a file
_APART, _BETWEEN = 2, 4  # cells between the leaves of a tree, and between trees


@dataclass(frozen=True, eq=False)
class Merges(Result, verb="merges", content="list"):
    tokens: Tokens
    pieces: tuple[Derivation, ...]
    draw: bool = False  # show each piece as a tree

    @property
    def ids(self) -> list[int]:
        """The token IDs at the end, which are the encoding's own."""
        return [token_id for piece in self.pieces for token_id in piece.ids]

    @property
    def fields(self) -> dict[str, type]:
        """The fields of a row by name, those that this kind of encoding has."""
        used = {"step", "id", "token"}
        for piece in self.pieces:
            used |= {"left", "right"} if piece.merges else set()
            used |= {
                name
                for step in piece.steps
                for name in ("rank", "score")
                if getattr(step, name) is not None
            }
        return {"piece": int, **{name: kind for name, kind in _TYPES.items() if name in used}}

    def records(self) -> Records:
        each = [step for piece in self.pieces for _, step in piece.rows]
        columns = {
            "piece": [number for number, piece in enumerate(self.pieces) for _ in piece.rows],
            "step": [number for piece in self.pieces for number, _ in piece.rows],
            "left": [token_text(step.left) for step in each],
            "right": [token_text(step.right) for step in each],
            "rank": [step.rank for step in each],
            "score": [step.score for step in each],
            "id": [step.token_id for step in each],
            "token": [token_text(self.token_of(step)) for step in each],
        }
        run = run_of(self.tokens.encoding, pieces=len(self.pieces))
        return listed(
            run, "steps", **{name: (kind, columns[name]) for name, kind in self.fields.items()}
        )

    def token_of(self, step: DerivationStep) -> bytes | None:
        if step.left is not None or self.tokens.encoding is None or step.token_id is None:
            return step.token
        return self.tokens.encoding.token_bytes(
            step.token_id
        )  # of a part that is unknown, not that part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import safe_text, title

        merged = any(piece.merges for piece in self.pieces)
        how = (
            "merged pair by pair: the pair of the lowest rank first"
            if merged
            else "and the tokens that it becomes"
        )
        yield title(f"Each piece of the text, {how}")
        widest = (
            max(options.max_width, _WIDEST) if console.record else options.max_width
        )  # a file has room
        yield from self._trees(options.max_width, widest) if self.draw else self._table()
        yield ""
        symbols = [symbol for piece in self.pieces for symbol in piece.symbols]
        thing = "byte" if all(len(symbol) == 1 for symbol in symbols) else "symbol"
        start = f"{counted(len(symbols), thing)} in " if merged else ""
        name = f" ({self.tokens.encoding.name})" if self.tokens.encoding else ""
        yield safe_text(
            f"{start}{counted(len(self.pieces), 'piece')} become {counted(len(self.ids), 'token')}{name}"
        )

    def _table(self) -> Iterator[RenderableType]:
        from embcli.page import Label, left_out, omission, ruled, safe_text, token_style

        rows = [
            (number, step, each)
            for number, piece in enumerate(self.pieces)
            for step, each in piece.rows
        ]
        excerpt = Excerpt.ends(_MOST_ROWS, len(rows))
        chosen = [rows[place] for place in excerpt.places]
        pieces = [
            "" if k and chosen[k - 1][0] == number else shown(b"".join(self.pieces[number].symbols))
            for k, (number, _, _) in enumerate(chosen)
        ]
        labels = [
            Label("piece", pieces, "left", short=True),
            Label("step", [step for _, step, _ in chosen]),
        ]
        if "left" in self.fields:
            labels.append(Label("left", [shown(each.left) for _, _, each in chosen]))
            labels.append(Label("right", [shown(each.right) for _, _, each in chosen], "left"))
        for name, form in (("rank", ","), ("score", ".4f")):
            if name in self.fields:
                values = [getattr(each, name) for _, _, each in chosen]
                labels.append(
                    Label(name, ["" if each is None else format(each, form) for each in values])
                )
        tokens = [
            safe_text(shown(self.token_of(each)), token_style(number)) for number, _, each in chosen
        ]
        labels.append(Label("token", tokens, "left", short=True))
        labels.append(
            Label("ID", ["" if each.token_id is None else each.token_id for _, _, each in chosen])
        )
        yield ruled(labels, gaps=excerpt.gaps)
        missing = left_out(omission(excerpt, "row"))
        if missing is not None:
            yield missing

    def _trees(self, width: int, widest: int) -> Iterator[RenderableType]:
        """Yield a tree for each piece, as many side by side as fit into a width; one alone may be wider."""
        from rich.text import Text

        from embcli.page import Drawing, safe_text, token_style

        lines: list[Text] = []
        for number, piece in enumerate(self.pieces[:_MOST_TREES]):
            tree = self._tree(piece, token_style(number), widest)
            beside = max((line.cell_len for line in lines), default=-_BETWEEN) + _BETWEEN
            if lines and beside + max(line.cell_len for line in tree) > width:
                yield Drawing(lines)
                yield ""
                lines, beside = [], 0
            lines += [Text() for _ in tree[len(lines) :]]
            for line, part in zip(lines, tree, strict=False):
                line.append(" " * (beside - line.cell_len)).append_text(part)
        yield Drawing(lines)
        if len(self.pieces) > _MOST_TREES:
            yield ""
            yield safe_text(f"Not drawn: {counted(len(self.pieces) - _MOST_TREES, 'more piece')}.")

    def _tree(self, piece: Derivation, style: Style, width: int) -> list[Text]:
        """Return a piece as a tree: its symbols, the merges below them, the IDs at the bottom; or as a line."""
        from rich.cells import cell_len
        from rich.text import Text

        from embcli.page import safe_text, title

        if not piece.merges:
            parts = (
                f"{shown(self.token_of(step))}{'' if step.score is None else f' {step.score:.4f}'}"
                for step in piece.steps
            )
            return [
                title(shown(b"".join(piece.symbols))).append_text(
                    safe_text(f" → {' + '.join(parts)}", "not bold")
                )
            ]
        if sum(cell_len(shown(symbol)) + _APART for symbol in piece.symbols) > width + _APART:
            return [
                safe_text(
                    f"{len(piece.symbols):,} symbols are wider than this page; a file has room for them."
                )
            ]
        nodes = [
            _Node(symbol, [shown(symbol)], (cell_len(shown(symbol)) - 1) // 2)
            for symbol in piece.symbols
        ]
        for step in piece.steps:
            pairs = [(left.token, right.token) for left, right in pairwise(nodes)]
            place = pairs.index((step.left or b"", step.right or b""))
            nodes[place : place + 2] = [_joined(nodes[place : place + 2])]
        tokens = dict(
            zip(piece.ids, self.tokens.bytes_of(np.array(piece.ids, np.int64)), strict=True)
        )
        if len(nodes) > 1 and [*tokens.values()] == [b"".join(piece.symbols)]:
            nodes = [_joined(nodes)]  # the vocabulary has the piece, and no merges lead to it
        height, left = max(len(node.lines) for node in nodes), [*piece.ids]
        for remaining, node in zip(range(len(nodes), 0, -1), nodes, strict=True):
            ids: list[
                int
            ] = []  # one, those of the bytes of an unknown symbol, or none if the vocabulary lacks these
            size = 0
            while left and size < len(node.token):
                token = tokens[left[0]] or b""
                if len(left) < remaining and (ids or not node.token.startswith(token)):
                    break
                ids.append(left.pop(0))
                size += len(token)
            node.extend(height)
            node.add(" ".join(map(str, ids)))
        *others, last = _side_by_side(nodes)
        return [*map(Text, others), Text(last, style)]


@dataclass(eq=False)
class _Node:
    """A symbol, or what merges made: the lines of its tree, and the cell of the middle of its text."""

    token: bytes
    lines: list[str]
    middle: int

    @property
    def width(self) -> int:
        from rich.cells import cell_len

        return max(map(cell_len, self.lines))

    def extend(self, height: int) -> None:
        self.lines += [" " * self.middle + "│"] * (height - len(self.lines))

    def add(self, text: str) -> None:
        """Write a text around the middle, within the width if it fits there."""
        from rich.cells import cell_len

        cells = cell_len(text)
        self.lines.append(
            " " * max(min(self.middle - (cells - 1) // 2, self.width - cells), 0) + text
        )


def _side_by_side(nodes: Sequence[_Node]) -> list[str]:
    """Return the lines of nodes that are equally high, as lines beside each other."""
    from rich.cells import set_cell_size

    rows = zip(
        *([set_cell_size(line, node.width) for line in node.lines] for node in nodes), strict=True
    )
    return [(" " * _APART).join(row).rstrip() for row in rows]


def _joined(parts: Sequence[_Node]) -> _Node:
    """Return the node that parts are merged to, below them."""
    for part in parts:
        part.extend(max(len(each.lines) for each in parts))
    begins = accumulate((part.width + _APART for part in parts), initial=0)
    first, *between, last = (
        begin + part.middle for begin, part in zip(begins, parts, strict=False)
    )
    middle = (first + last) // 2
    branches = {
        **dict.fromkeys(between, "┴"),
        first: "╰",
        last: "╯",
        middle: "┼" if middle in between else "┬",
    }
    node = _Node(b"".join(part.token for part in parts), _side_by_side(parts), middle)
    node.lines.append(
        " " * first + "".join(branches.get(cell, "─") for cell in range(first, last + 1))
    )
    node.add(shown(node.token))
    return node


def merges(model: Opened, text: TextOrIds, *, special: bool = False, draw: bool = False) -> Merges:
    """Return how each piece of a text becomes tokens: merge by merge, or as the encoding does it.

    Raises InputError for an encoding that does not tell.

    >>> import embcli
    >>> [step.rank for step in embcli.seeded().merges("some").pieces[0].steps]
    [296, 462, 11246]
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes, has_added=False)
    if tokens.encoding is None or tokens.texts is None:
        raise InputError("only a text has merges, not its IDs")
    pieces = tuple(
        piece
        for each in tokens.texts
        for piece in tokens.encoding.derivations(each, tokens.special)
    )
    if [token_id for piece in pieces for token_id in piece.ids] != tokens.ids.tolist():
        raise InputError(f"the steps of {tokens.encoding.name} lead to other tokens than its own")
    return Merges(tokens, pieces, draw, notes=notes)

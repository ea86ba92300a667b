"""How an encoding arrives at the tokens of a text: the merges of each piece, or its longest or best tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from embcli.encodings.encoding import Derivation, Step
from embcli.errors import InputError
from embcli.records import Names, Piece, Records, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import Tokens, shown, token_text
from embcli.words import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.style import Style
    from rich.text import Text

    from embcli.encodings import Encoding

_TYPES: dict[str, type] = {"step": int, "left": str, "right": str, "rank": int, "score": float, "id": int, "token": str}
_MOST_ROWS, _MOST_TREES = 200, 50
_APART, _BETWEEN = 2, 4  # cells between the leaves of a tree, and between trees
_PIECE = 1 << 12  # pieces of a text


@dataclass(frozen=True, eq=False)
class Merges(Result, verb="merges", content="list"):
    """The steps of each piece of a text."""

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
            used |= {name for step in piece.steps for name in ("rank", "score") if getattr(step, name) is not None}
        return {"piece": int, **{name: kind for name, kind in _TYPES.items() if name in used}}

    def records(self) -> Records:
        """Return a row for each step of each piece."""
        run = run_of(self.tokens.encoding, pieces=len(self.pieces))
        return Records(run, "steps", sum(len(piece.rows) for piece in self.pieces), self.fields, self._pieces)

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        for start in range(0, len(self.pieces), _PIECE):
            rows = [
                self._row(number, step, each)
                for number, piece in enumerate(self.pieces[start : start + _PIECE], start)
                for step, each in piece.rows
            ]
            yield Piece(len(rows), {name: [row[name] for row in rows] for name in fields})

    def _row(self, piece: int, number: int, step: Step) -> dict[str, Any]:
        """Return a step as a row; tokens are texts as everywhere."""
        return {
            "piece": piece,
            "step": number,
            "left": token_text(step.left),
            "right": token_text(step.right),
            "rank": step.rank,
            "score": step.score,
            "id": step.token_id,
            "token": token_text(self.spelled(step)),
        }

    def spelled(self, step: Step) -> bytes | None:
        """Return the bytes of the token that a step makes."""
        if step.left is not None or self.tokens.encoding is None or step.token_id is None:
            return step.token
        return self.tokens.encoding.token_bytes(step.token_id)  # of a part that is unknown, not that part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import title, words

        merged = any(piece.merges for piece in self.pieces)
        how = "merged pair by pair: the pair of the lowest rank first" if merged else "and the tokens that it becomes"
        yield title(f"Each piece of the text, {how}")
        yield from self._trees(options.max_width) if self.draw else self._table()
        yield ""
        symbols = [symbol for piece in self.pieces for symbol in piece.symbols]
        thing = "byte" if all(len(symbol) == 1 for symbol in symbols) else "symbol"
        start = f"{counted(len(symbols), thing)} in " if merged else ""
        name = f" ({self.tokens.encoding.name})" if self.tokens.encoding else ""
        yield words(f"{start}{counted(len(self.pieces), 'piece')} become {counted(len(self.ids), 'token')}{name}")

    def _table(self) -> Iterator[RenderableType]:
        from embcli.page import Label, left_out, ruled, token_style, words

        rows = [(number, step, each) for number, piece in enumerate(self.pieces) for step, each in piece.rows]
        excerpt = Excerpt.ends(_MOST_ROWS, len(rows))
        chosen = [rows[place] for place in excerpt.places]
        pieces = [
            "" if k and chosen[k - 1][0] == number else shown(b"".join(self.pieces[number].symbols))
            for k, (number, _, _) in enumerate(chosen)
        ]
        labels = [Label("piece", pieces, "left", short=True), Label("step", [step for _, step, _ in chosen])]
        if "left" in self.fields:
            labels.append(Label("left", [shown(each.left) for _, _, each in chosen]))
            labels.append(Label("right", [shown(each.right) for _, _, each in chosen], "left"))
        for name, form in (("rank", ","), ("score", ".4f")):
            if name in self.fields:
                values = [getattr(each, name) for _, _, each in chosen]
                labels.append(Label(name, ["" if each is None else format(each, form) for each in values]))
        tokens = [words(shown(self.spelled(each)), token_style(number)) for number, _, each in chosen]
        labels.append(Label("token", tokens, "left", short=True))
        labels.append(Label("ID", ["" if each.token_id is None else each.token_id for _, _, each in chosen]))
        yield ruled(labels, gaps=excerpt.gaps)
        if missing := left_out(excerpt.missing("row")):
            yield words(missing)

    def _trees(self, width: int) -> Iterator[RenderableType]:
        """Yield a tree for each piece, as many side by side as fit."""
        from embcli.page import Drawing, token_style, words

        row: list[list[Text]] = []
        for number, piece in enumerate(self.pieces[:_MOST_TREES]):
            tree = self._tree(piece, token_style(number), width)
            if row and sum(_width(each) + _BETWEEN for each in row) + _width(tree) > width:
                yield Drawing(_side_by_side(row))
                yield ""
                row = []
            row.append(tree)
        yield Drawing(_side_by_side(row))
        if len(self.pieces) > _MOST_TREES:
            yield ""
            yield words(f"Not drawn: {counted(len(self.pieces) - _MOST_TREES, 'more piece')}.")

    def _tree(self, piece: Derivation, style: Style, width: int) -> list[Text]:
        """Return a piece as a tree: its symbols, the merges below them, the IDs at the bottom; or as a line."""
        from rich.text import Text

        from embcli.page import title, words

        if not piece.merges:
            tokens = (
                f"{shown(self.spelled(step))}{'' if step.score is None else f' {step.score:.4f}'}"
                for step in piece.steps
            )
            return [title(shown(b"".join(piece.symbols))).append_text(words(f" → {' + '.join(tokens)}", "not bold"))]
        if sum(_cells(shown(symbol)) + _APART for symbol in piece.symbols) > width + _APART:
            return [words(f"{len(piece.symbols):,} symbols are wider than the page; the table has their merges.")]
        first, *others, last = _tree_lines(piece, self.tokens.encoding)
        return [Text(first, "dim"), *map(Text, others), Text(last, style)]


def _width(lines: Sequence[Text]) -> int:
    return max(line.cell_len for line in lines)


def _side_by_side(trees: list[list[Text]]) -> list[Text]:
    from rich.text import Text

    widths = [*(_width(tree) + _BETWEEN for tree in trees[:-1]), 0]
    lines = []
    for parts in zip_longest(*trees):
        line = Text()
        for part, width in zip(parts, widths, strict=True):
            text = part or Text()
            line.append_text(text)
            line.append(" " * (width - text.cell_len))
        lines.append(line)
    return lines


def merges(tokens: Tokens, texts: tuple[str, ...], special: bool = False, draw: bool = False) -> Merges:
    """Return the steps from the pieces of texts to their tokens.

    Raises InputError for IDs, for an encoding that does not tell its steps, and for steps that lead to other tokens.
    """
    if tokens.encoding is None or not tokens.from_text:
        raise InputError("only a text has merges, not its IDs")
    pieces = tuple(piece for text in texts for piece in tokens.encoding.derivations(text, special))
    derived = [token_id for piece in pieces for token_id in piece.ids]
    own = tokens.ids.tolist()
    if derived != own:
        place = next((k for k, pair in enumerate(zip(derived, own, strict=False)) if pair[0] != pair[1]), len(derived))
        raise InputError(
            f"the steps of {tokens.encoding.name} lead to other tokens than its own, from token {place:,} on"
        )
    return Merges(tokens, pieces, draw)


@dataclass(eq=False)
class _Node:
    """A symbol, or what a merge made of its parts: its cells, the middle of its text, and how many merges are above."""

    token: bytes
    parts: tuple[_Node, ...] = ()
    start: int = 0
    end: int = 0
    middle: int = 0
    level: int = 0

    def place(self, start: int) -> int:
        """Give the node and its parts their cells, from a start on; return the end."""
        self.start, end = start, start
        for part in self.parts:
            end = part.place(end) + _APART
        self.end = end - _APART if self.parts else start + _cells(shown(self.token))
        self.middle = (self.parts[0].middle + self.parts[-1].middle if self.parts else start + self.end - 1) // 2
        self.level = max((part.level + 1 for part in self.parts), default=0)
        return self.end


def _tree_lines(piece: Derivation, encoding: Encoding | None) -> list[str]:
    """Return the lines of a tree, from the symbols at the top to the IDs at the bottom."""
    nodes = [_Node(symbol) for symbol in piece.symbols]
    for step in piece.steps:
        k = next(
            k for k, pair in enumerate(pairwise(nodes)) if (pair[0].token, pair[1].token) == (step.left, step.right)
        )
        nodes[k : k + 2] = [_Node(step.token, (nodes[k], nodes[k + 1]))]
    if len(piece.ids) < len(nodes):  # the vocabulary has the piece, and no merges lead to it
        nodes = [_Node(b"".join(node.token for node in nodes), tuple(nodes))]
    below = _below(nodes, piece.ids, encoding)
    end = -_APART
    for node, ids in zip(nodes, below, strict=True):
        start = end + _APART
        end = max(node.place(start), start + len(ids))
    height = 2 * max(node.level for node in nodes) + 1
    canvas = [[" "] * end for _ in range(height + 1)]
    for node, ids in zip(nodes, below, strict=True):
        _draw(node, canvas)
        for line in canvas[2 * node.level + 1 : height]:
            line[node.middle] = "│"
        _write(canvas[height], node, ids)
    return ["".join(line).rstrip() for line in canvas]


def _below(nodes: list[_Node], ids: Sequence[int], encoding: Encoding | None) -> list[str]:
    """Return the ID of each node, or those of the bytes of a symbol that the vocabulary does not have."""
    below, left = [], [*ids]
    for place, node in enumerate(nodes):
        count, size = 0, 0
        while count < len(left) and (not count or (size < len(node.token) and len(left) - count >= len(nodes) - place)):
            token = encoding.token_bytes(left[count]) if encoding else None
            count, size = count + 1, size + len(token or b"")
        below.append(" ".join(map(str, left[:count])))
        del left[:count]
    return below


def _draw(node: _Node, canvas: list[list[str]]) -> None:
    """Draw a node, its parts, and the lines between them."""
    _write(canvas[2 * node.level], node, shown(node.token))
    for part in node.parts:
        _draw(part, canvas)
        for line in canvas[2 * part.level + 1 : 2 * node.level - 1]:
            line[part.middle] = "│"
    if node.parts:
        first, *between, last = (part.middle for part in node.parts)
        row = canvas[2 * node.level - 1]
        row[first : last + 1] = "─" * (last - first + 1)
        for place in between:
            row[place] = "┴"
        row[first], row[node.middle], row[last] = "╰", "┼" if node.middle in between else "┬", "╯"


def _write(line: list[str], node: _Node, text: str) -> None:
    """Write a text around the middle of a node, within its cells if it fits there.

    A character of two cells takes two places, the second of them empty.
    """
    cells = [cell for character in text for cell in (character, *[""] * (_cells(character) - 1))]
    start = max(min(node.middle - (len(cells) - 1) // 2, node.end - len(cells)), node.start)
    line[start : start + len(cells)] = cells


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)

"""The page of `tokenize --merges`: the steps of each piece as a table, or as a tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from embcli.encodings import Encoding
from embcli.encodings.encoding import Derivation
from embcli.oldpage import LEAST_TOKEN, Column, Columns, Excerpt, Page, Tone, Word
from embcli.oldpage.layout import cell_len, token_tone
from embcli.tokens import shown
from embcli.verbs.merges import Merges
from embcli.views.parts import put_left_out
from embcli.words import counted

_MOST_ROWS = 200
_MOST_TREES = 50
_APART = 2  # cells between the leaves of a tree
_BETWEEN = 4  # cells between trees

_Tree = list[list[Word]]  # the drawing of a piece: lines of words


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
    symbols = [symbol for piece in result.pieces for symbol in piece.symbols]
    thing = "byte" if all(len(symbol) == 1 for symbol in symbols) else "symbol"
    start = f"{counted(len(symbols), thing)} in " if any(piece.merges for piece in result.pieces) else ""
    page.line(f"{start}{counted(len(result.pieces), 'piece')} become {counted(len(result.ids), 'token')}{name}")


def _put_table(result: Merges, page: Page) -> None:
    rows = [(number, step, each) for number, piece in enumerate(result.pieces) for step, each in piece.rows]
    excerpt = Excerpt.ends(_MOST_ROWS, len(rows))
    chosen = [rows[place] for place in excerpt.places]
    firsts = [not k or chosen[k - 1][0] != number for k, (number, _, _) in enumerate(chosen)]
    pieces = [
        shown(b"".join(result.pieces[number].symbols)) if first else ""
        for first, (number, _, _) in zip(firsts, chosen, strict=True)
    ]
    columns: Columns = [Column("piece", pieces, "left", least=LEAST_TOKEN)]
    columns.append(Column("step", [step for _, step, _ in chosen]))
    if "left" in result.fields:
        columns.append(Column("left", [shown(each.left) if each.left else "" for _, _, each in chosen]))
        columns.append(Column("right", [shown(each.right) if each.right else "" for _, _, each in chosen], "left"))
    for name, form in (("rank", ","), ("score", ".4f")):
        if name in result.fields:
            values = [getattr(each, name) for _, _, each in chosen]
            columns.append(Column(name, ["" if each is None else format(each, form) for each in values]))
    tokens = [Word(shown(result.spelled(each) or b""), token_tone(number)) for number, _, each in chosen]
    columns.append(Column("token", tokens, "left", least=LEAST_TOKEN))
    columns.append(Column("ID", ["" if each.token_id is None else each.token_id for _, _, each in chosen]))
    page.table(columns, excerpt.gaps)
    put_left_out(page, excerpt.missing("row"))


def _put_trees(result: Merges, page: Page) -> None:
    """Put a tree for each piece on the page, as many side by side as fit."""
    row: list[_Tree] = []
    for number, piece in enumerate(result.pieces[:_MOST_TREES]):
        tree = _drawn(piece, result, token_tone(number), page)
        if row and sum(_width(each) + _BETWEEN for each in row) + _width(tree) > page.width:
            _put_row(row, page)
            page.line()
            row = []
        row.append(tree)
    _put_row(row, page)
    if len(result.pieces) > _MOST_TREES:
        page.line()
        page.line(f"Not drawn: {counted(len(result.pieces) - _MOST_TREES, 'more piece')}.")


def _width(lines: _Tree) -> int:
    """Return the number of cells of the longest line."""
    return max(sum(word.width for word in line) for line in lines)


def _put_row(trees: list[_Tree], page: Page) -> None:
    """Put trees on the page side by side."""
    widths = [*(_width(tree) + _BETWEEN for tree in trees[:-1]), 0]
    lines: list[list[Word]] = []
    for line in zip_longest(*trees, fillvalue=[]):
        words: list[Word] = []
        for part, width in zip(line, widths, strict=True):
            words += [*part, Word(" " * (width - sum(word.width for word in part)))]
        lines.append(words)
    page.drawing(lines)


def _drawn(piece: Derivation, result: Merges, tone: Tone, page: Page) -> _Tree:
    """Return a piece as a tree: its symbols, the merges below them, the IDs at the bottom; or as a line without one."""
    if not piece.merges:
        tokens = (
            f"{shown(result.spelled(step))}{'' if step.score is None else f' {step.score:.4f}'}" for step in piece.steps
        )
        return [[Word(shown(b"".join(piece.symbols)), "strong"), Word(f" → {' + '.join(tokens)}")]]
    if sum(cell_len(shown(symbol)) + _APART for symbol in piece.symbols) > page.width + _APART:
        sentence = f"{len(piece.symbols):,} symbols are wider than the page; the table has their merges."
        return [[Word(sentence)]]
    first, *others, last = _tree(piece, result.tokens.encoding)
    return [[Word(first, "dim")], *([Word(line)] for line in others), [Word(last, tone)]]


@dataclass(eq=False)
class _Node:
    """A symbol, or what a merge made of its parts: its cells, the middle of its text, and how many merges are above."""

    token: bytes
    parts: tuple["_Node", ...] = ()
    start: int = 0
    end: int = 0
    middle: int = 0
    level: int = 0

    def place(self, start: int) -> int:
        """Give the node and its parts their cells, from a start on; return the end."""
        self.start, end = start, start
        for part in self.parts:
            end = part.place(end) + _APART
        self.end = end - _APART if self.parts else start + cell_len(shown(self.token))
        self.middle = (self.parts[0].middle + self.parts[-1].middle if self.parts else start + self.end - 1) // 2
        self.level = max((part.level + 1 for part in self.parts), default=0)
        return self.end


def _tree(piece: Derivation, encoding: Encoding | None) -> list[str]:
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
    cells = [cell for character in text for cell in (character, *[""] * (cell_len(character) - 1))]
    start = max(min(node.middle - (len(cells) - 1) // 2, node.end - len(cells)), node.start)
    line[start : start + len(cells)] = cells

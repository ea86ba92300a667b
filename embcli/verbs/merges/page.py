"""The page of merges: a table of steps, or trees side by side, and what all pieces become.

If there are many trees, or one is wider than the page, the page has the table. The branches of a
tree are numbered in the order of the merges: each node is drawn as high as its parts allow.
"""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embcli.page import (
    Drawing,
    Flow,
    Hint,
    Label,
    omission,
    omitted,
    ruled,
    safe_text,
    title,
    token_style,
)
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.merges import Merges
from embcli.verbs.merges.tree import tree_lines
from embcli.wording import counted, first_of

_MOST_ROWS = 200
_MOST_TREES = 50
_MOST_NAMED_TOKENS = 6  # tokens that a sentence names


def page(result: Merges, console: Console, options: ConsoleOptions) -> RenderResult:
    trees = _trees(result, options.max_width) if result.draw else None
    if trees is None:
        yield title("Each piece, merged pair by pair: the pair of the lowest rank first")
        yield from _table(result)
        if result.draw:
            yield ""
            reason = "a tree is wider than the page"
            if len(result.pieces) > _MOST_TREES:
                reason = f"the text has {len(result.pieces):,} trees; at most {_MOST_TREES} are"
            yield safe_text(f"Not drawn: {reason}.")
    else:
        yield title("Each piece, merged pair by pair, lowest rank first: 1, 2, ... is the order")
        yield Hint(("merges",))
        yield Flow([[tree] for tree in trees], gap=4)
    yield ""
    yield _totals(result)
    yield from _stop(result)


def _totals(result: Merges) -> Text:
    symbols = [symbol for piece in result.pieces for symbol in piece.symbols]
    thing = "byte" if all(len(symbol) == 1 for symbol in symbols) else "symbol"
    start = counted(len(symbols), thing)
    pieces = counted(len(result.pieces), "piece")
    tokens = counted(len(result.ids), "token")
    encoding = result.tokens.encoding
    name = f" ({encoding.name})" if encoding else ""
    return safe_text(f"{start} in {pieces}: {tokens}{name}")


def _stop(result: Merges) -> RenderResult:
    """Yield why merging stops, for the first piece that becomes several tokens."""
    stopped = [piece for piece in result.pieces if len(piece.ids) > 1]
    if not stopped:
        return
    tokens = result.tokens.bytes_of(np.array(stopped[0].ids))
    first_tokens = first_of(map(shown, tokens), _MOST_NAMED_TOKENS, " + ")
    yield safe_text(f"Merging stops at {first_tokens}: no merge joins two of these.", "dim")


def _table(result: Merges) -> RenderResult:
    excerpt = Excerpt.ends(_MOST_ROWS, len(result.rows))
    rows = [result.rows[place] for place in excerpt.places]
    steps = [row.step for row in rows]
    fields = result.fields
    # Each row names its piece, as a page can leave out the rows above it.
    pieces = [shown(b"".join(result.pieces[row.piece].symbols)) for row in rows]
    labels = [
        Label("piece", pieces, "left", short=True),
        Label("step", [row.number or "" for row in rows]),
        Label("left", [shown(step.left) for step in steps]),
        Label("right", [shown(step.right) for step in steps], "left"),
    ]
    for name, form in (("rank", ","), ("score", ".4f")):
        if name in fields:
            _, numbers = fields[name]
            cells = [_number_cell(numbers[place], form) for place in excerpt.places]
            labels.append(Label(name, cells))
    tokens = [safe_text(shown(result.token_of(row.step)), token_style(row.piece)) for row in rows]
    labels.append(Label("token", tokens, "left", short=True))
    labels.append(Label("ID", [_number_cell(step.token_id) for step in steps]))
    yield ruled(labels, gaps=excerpt.gaps)
    yield from omitted(omission(excerpt, "row"))


def _number_cell(number: float | None, form: str = "") -> str:
    return "" if number is None else format(number, form)


def _trees(result: Merges, width: int) -> list[Drawing] | None:
    """Return the tree of each piece; None for too many, and if one is too wide."""
    if len(result.pieces) > _MOST_TREES:
        return None
    trees = []
    for number, piece in enumerate(result.pieces):
        if len(piece.symbols) > width:
            return None
        tokens = result.tokens.bytes_of(np.array(piece.ids, np.int64))
        lines = tree_lines(piece, dict(zip(piece.ids, tokens, strict=True)))
        if max(map(cell_len, lines)) > width:
            return None
        *upper_lines, last_line = lines
        trees.append(Drawing([*map(Text, upper_lines), Text(last_line, token_style(number))]))
    return trees

"""The page of merges: a table of steps, or trees side by side, and what all pieces become.

If the text is long, or a tree is wider than the page, the page has the table. The branches of a
piece are numbered in the order of the merges: each node is drawn as high as its parts allow.
"""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embcli.page import (
    STYLES,
    Drawing,
    Flow,
    Hint,
    Label,
    omission,
    omitted,
    ruled,
    safe_text,
    title,
)
from embcli.page.labels import token_label
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.merges import Merges
from embcli.verbs.merges.tree import tree_rows
from embcli.wording import counted, first_of

_MOST_ROWS = 200
_MOST_SYMBOLS = 500  # in drawn trees
_MOST_NAMED_TOKENS = 6  # tokens that a sentence names


def page(result: Merges, console: Console, options: ConsoleOptions) -> RenderResult:
    yield title("Merges of each piece, numbered from the lowest rank on, and its token IDs")
    trees = _trees(result, options.max_width) if result.draw else None
    if trees is None:
        yield from _table(result)
        if result.draw:
            yield ""
            reason = "a tree is wider than the page"
            if len(result.symbols) > _MOST_SYMBOLS:
                reason = f"the text has {_size(result)}; at most {_MOST_SYMBOLS} are"
            yield safe_text(f"Not drawn: {reason}.")
    else:
        yield Hint(("merges",))
        yield Flow([[tree] for tree in trees], gap=4)
    yield ""
    yield _totals(result)
    yield from _stop(result)


def _totals(result: Merges) -> Text:
    pieces = counted(len(result.pieces), "piece")
    tokens = counted(len(result.ids), "token")
    encoding = result.tokens.encoding
    name = f" ({encoding.name})" if encoding else ""
    return safe_text(f"{_size(result)} in {pieces}: {tokens}{name}")


def _size(result: Merges) -> str:
    """Return how many bytes or other symbols the merges begin with, in words."""
    are_bytes = all(len(symbol) == 1 for symbol in result.symbols)
    return counted(len(result.symbols), "byte" if are_bytes else "symbol")


def _stop(result: Merges) -> RenderResult:
    """Yield why merging stops, with the first piece that becomes several tokens."""
    stopped = [piece for piece in result.pieces if len(piece.ids) > 1]
    if not stopped:
        return
    tokens = result.tokens.bytes_of(np.array(stopped[0].ids))
    first_tokens = first_of(map(shown, tokens), _MOST_NAMED_TOKENS, " + ")
    yield safe_text(f"Merging stops when no merge is left, as at {first_tokens}.", "dim")


def _table(result: Merges) -> RenderResult:
    excerpt = Excerpt.ends(_MOST_ROWS, len(result.rows))
    rows = [result.rows[place] for place in excerpt.places]
    # Each row has its piece, as a page can leave out the rows above it.
    pieces = [b"".join(result.pieces[row.piece].symbols) for row in rows]
    steps = [row.step for row in rows]
    fields = result.fields
    labels = [
        Label("piece", [shown(piece) for piece in pieces], "left", short=True),
        Label("step", [row.number or "" for row in rows]),
        Label("left", [shown(step.left) for step in steps]),
        Label("right", [shown(step.right) for step in steps], "left"),
    ]
    for name, form in (("rank", ","), ("score", ".4f")):
        if name in fields:
            _, numbers = fields[name]
            cells = [_number_cell(numbers[place], form) for place in excerpt.places]
            labels.append(Label(name, cells))
    labels.append(token_label([result.token_of(step) for step in steps]))
    labels.append(Label("ID", [_number_cell(step.token_id) for step in steps]))
    yield ruled(labels, gaps=excerpt.gaps)
    yield from omitted(omission(excerpt, "row"))


def _number_cell(number: float | None, form: str = "") -> str:
    return "" if number is None else format(number, form)


def _trees(result: Merges, width: int) -> list[Drawing] | None:
    """Return the trees of all pieces in rows; None for a long text, and if a tree is too wide."""
    if len(result.symbols) > _MOST_SYMBOLS:
        return None
    trees = []
    for piece in result.pieces:
        tokens = result.tokens.bytes_of(np.array(piece.ids, np.int64))
        for lines in tree_rows(piece, tokens, width):
            if max(map(cell_len, lines)) > width:
                return None
            *upper_lines, last_line = lines
            trees.append(Drawing([*map(Text, upper_lines), Text(last_line, STYLES["strong"])]))
    return trees

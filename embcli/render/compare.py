"""How `compare` looks: the steps of both ways, their outputs side by side, the verdict, and what each way costs."""

from __future__ import annotations

import math
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from embcli.comparison import STEPS
from embcli.render.grid import Half, Label, Numbers, Shown, left_out, print_grid
from embcli.render.matrices import token_labels
from embcli.render.page import Page, plain_table
from embcli.tokens import shown
from embcli.weights import in_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embcli.comparison import Comparison, Cost, Gradient, Timing, Verdict

Item = TypeVar("Item")
_PIPE_LINES = 60  # a pipe has no screen, so a printed page stands in for it
_MOST_TOKENS = 40
_MOST_IDS = 12  # that are named in one line
_FEW_ROWS = 8  # of a weight matrix
_MOST_TRACED = 8  # tokens
_MOST_TERMS = 8  # of a product that is written out whole
_WIDEST_BAR = 60
_GAP, _BAR = 2, 3  # cells: behind a label, and for the bar before numbers with its gap
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {"embedding": "rgb(60,130,246)", "linear": "rgb(234,88,12)"}


def view(result: Comparison, page: Page, trace: bool = False) -> None:
    """Put the steps on a page, those the user named or as many as fit on the screen, the verdict and the cost."""
    end: list[Callable[[Page], None]] = [partial(_print_verdict, result)]
    if trace:
        end.append(partial(_print_trace, result))
    if result.gradient is not None:
        end.append(partial(_print_gradient, result.gradient))
    end.append(partial(_print_cost, result.cost))
    if result.sweep:
        end.append(partial(_print_sweep, result.sweep))
    chosen = result.show or _fitting(result, page, end)
    _print_head(result, page)
    for name in chosen:
        _PRINT[name](result, page)
        page.print()
    for part in end:
        part(page)
    missing = [name for name in STEPS if name not in chosen]
    if missing and result.show is None:
        page.print(f"\nThe screen has no room for all the steps; --show {','.join(missing)}")


def _fitting(result: Comparison, page: Page, end: Sequence[Callable[[Page], None]]) -> tuple[str, ...]:
    """Return the steps that fit on the screen with all that comes behind them; the outputs come before the others."""
    height = shutil.get_terminal_size((0, _PIPE_LINES)).lines if page.terminal else _PIPE_LINES
    *others, outputs = STEPS
    lines = {name: _lines(page, partial(_PRINT[name], result)) + 1 for name in STEPS}
    room = height - 5 - _lines(page, *end) - lines[outputs]  # 5: the heading, what to say of missing steps, the prompt
    chosen = []
    for name in others:
        if lines[name] <= room:
            chosen.append(name)
            room -= lines[name]
    return *chosen, outputs


def _lines(page: Page, *parts: Callable[[Page], None]) -> int:
    """Return how many lines something takes on a page like this one."""
    scratch = Page(page.width, False, page.terminal, page.precision)
    for part in parts:
        part(scratch)
    return scratch.content().count(b"\n")


def _print_head(result: Comparison, page: Page) -> None:
    size, dim = result.weight.shape
    page.print(Text("Two ways from token IDs to vectors: a lookup, and a one-hot product", "bold"))
    page.print(f"T = {len(result.tokens):,} tokens, V = {size:,} rows, D = {dim:,} columns, seed {result.run['seed']}")
    page.print()


def _print_title(page: Page, step: str, title: str, name: str, shape: tuple[int, ...]) -> None:
    sizes = ", ".join(f"{size:,}" for size in shape) + "," * (len(shape) == 1)
    page.print(Text(f"{STEPS.index(step) + 1}. {title}, {name} = ({sizes})", "bold"))


def _print_ids(result: Comparison, page: Page) -> None:
    tokens = result.tokens
    _print_title(page, "ids", "The token IDs", "(T,)", (len(tokens),))
    places = Shown.most(_MOST_IDS, len(tokens))
    ids = tokens.ids[places.places]
    words = [
        f"{token_id} ({shown(token)})" if token is not None else str(token_id)
        for token_id, token in zip(ids.tolist(), tokens.bytes_of(ids), strict=True)
    ]
    if places.left_out:
        words.insert(places.head, f"… {places.left_out:,} more …")
    page.print("  ".join(words) or "none")


def _print_one_hot(result: Comparison, page: Page) -> None:
    size, length = len(result.weight), len(result.tokens)
    _print_title(page, "one-hot", "The one-hot matrix", "(T, V)", (length, size))
    rows = Shown.most(_MOST_TOKENS, length)
    labels = token_labels(result.tokens, rows.places)
    ids = [int(token_id) for token_id in result.tokens.ids[rows.places]]
    cell = len(str(size - 1))
    if _width(labels) + _BAR + size * (cell + _GAP) <= page.width + _GAP:
        page.print("A row a token: 1 in the column of its ID, 0 in all others.")
        headers = [str(column) for column in range(size)]
        cells = [["1" if column == token_id else "0" for column in range(size)] for token_id in ids]
    else:
        page.print(f"A row a token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
        headers = ["row of the matrix"]
        cells = [[f"1 at column {token_id}, 0 in the other {size - 1:,}"] for token_id in ids]
        if _width(labels) + _BAR + max((len(row[0]) for row in cells), default=0) > page.width:
            headers, cells = ["the 1 is at"], [[f"column {token_id}"] for token_id in ids]
    _print_rows(page, labels, headers, cells, rows)
    _print_left_out(page, rows)


def _print_rows(page: Page, labels: list[Label], headers: list[str], cells: list[list[str]], rows: Shown) -> None:
    table = plain_table(
        *((label.header, label.justify) for label in labels), ("│", "left"), *((header, "right") for header in headers)
    )
    for row, values in enumerate(cells):
        if rows.left_out and row == rows.head:
            table.add_row(*["│" if str(column.header) == "│" else "⋮" for column in table.columns], style="dim")
        ones = [Text(value, "bold" if value == "1" and page.color else "") for value in values]
        table.add_row(*(Text(label.cells[row]) for label in labels), Text("│", "dim"), *ones)
    page.print(table, width=_width(labels) + _BAR + sum(map(len, headers)) + 400)


def _print_first(result: Comparison, page: Page) -> None:
    dim, size = result.first.shape
    _print_title(page, "first", "The linear layer's own first weights", "(D, V)", (dim, size))
    page.print(
        f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{1 / math.sqrt(size):.4g}, torch.nn.Embedding normal "
        "ones: from one seed, other numbers."
    )
    _print_matrix(page, result.first, "D", "V")


def _print_shared(result: Comparison, page: Page) -> None:
    size, dim = result.weight.shape
    _print_title(page, "shared", "The shared weight, embedding.weight", "(V, D)", (size, dim))
    page.print(
        f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,}): "
        "each row here is a column of it."
    )
    _print_matrix(page, result.weight, "ID", "D")


def _print_matrix(page: Page, values: np.ndarray, row: str, column: str) -> None:
    rows = Shown.most(_FEW_ROWS, len(values))
    numbers = np.arange(values.shape[1])
    labels = [Label(row, [str(place) for place in rows.places])]
    columns = print_grid(page, labels, [Half("", values[rows.places])], numbers, rows)
    _print_left_out(page, rows, columns)


def _print_outputs(result: Comparison, page: Page) -> None:
    length, dim = result.embedding.shape
    _print_title(page, "outputs", "The outputs, side by side", "(T, D)", (length, dim))
    page.print("Left: row ID of the weight, looked up. Right: the one-hot row times the weight, V products a value.")
    rows = Shown.most(_MOST_TOKENS, length)
    labels = token_labels(result.tokens, rows.places)
    halves = result.embedding[rows.places], result.linear[rows.places]
    _print_side_by_side(page, labels, *halves, result.differences[rows.places], rows)


def _print_side_by_side(
    page: Page, labels: list[Label], left: np.ndarray, right: np.ndarray, largest: np.ndarray, rows: Shown
) -> None:
    """Put two matrices beside each other on the page, or one below the other where it is too narrow for that."""
    halves = Half("embedding", left), Half("linear", right)
    numbers = np.arange(left.shape[1])
    after = Label("diff", [_difference(value) for value in largest.tolist()])
    if _fits(page, [*labels, after], halves):
        columns = print_grid(page, labels, halves, numbers, rows, [after])
    else:
        if not _fits(page, [*labels, after], halves[:1]):
            labels = [label for label in labels if not label.shortens]
        # The same columns are to be shown in both, so the first has an empty label as wide as the second's differences.
        room = Label("", [" " * max(map(len, [after.header, *after.cells]))] * len(after.cells))
        print_grid(page, labels, halves[:1], numbers, rows, [room])
        columns = print_grid(page, labels, halves[1:], numbers, rows, [after])
    _print_left_out(page, rows, columns)


def _fits(page: Page, labels: Sequence[Label], halves: Sequence[Half]) -> bool:
    """Return whether there is room for two columns of numbers in each half, or for the only one there is."""
    columns = halves[0].values.shape[1]
    cell = max(Numbers(halves, page.precision).width, len(str(columns - 1)))
    dots = _BAR * (columns > 2)
    taken: int = _width(labels) + len(halves) * (_BAR + dots + min(columns, 2) * (cell + _GAP)) - _GAP
    return taken <= page.width


def _width(labels: Sequence[Label]) -> int:
    """Return how many cells labels take at least, with the gaps behind them."""
    least = 6  # cells of a token, which may be shortened to so many
    widths = [(max(map(cell_len, [label.header, *label.cells])), label.shortens) for label in labels]
    return sum(_GAP + (min(width, least) if shortens else width) for width, shortens in widths)


def _print_left_out(page: Page, rows: Shown, columns: Shown | None = None) -> None:
    parts = [left_out(rows, np.arange(rows.total), "row")]
    parts += [left_out(columns, np.arange(columns.total), "column")] if columns else []
    if any(parts):
        page.print(f"Left out: {' and '.join(part for part in parts if part)}.")


def _difference(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


_PRINT: dict[str, Callable[[Comparison, Page], None]] = {
    "ids": _print_ids,
    "one-hot": _print_one_hot,
    "first": _print_first,
    "shared": _print_shared,
    "outputs": _print_outputs,
}


def _print_verdict(result: Comparison, page: Page) -> None:
    page.print(_judgement(result.verdict))
    if len(result.tokens):
        page.print(f"{_where(result)} {_why(result)}")
    page.print()


def _judgement(verdict: Verdict) -> Text:
    if not verdict.values:
        return Text("Nothing to compare: there are no tokens.")
    if verdict.identical:
        words = f"Bit-identical: all {verdict.values:,} values are the same on both sides, to the last bit."
        return Text(words, "bold green")
    return Text(f"Not bit-identical: {verdict.different:,} of {verdict.values:,} values differ.", "bold red")


def _where(result: Comparison) -> str:
    verdict = result.verdict
    largest = f"Largest |difference|: {_number(verdict.difference)}"
    if verdict.place is None:
        return f"{largest}."
    row, column = verdict.place
    token = f"token {row} (ID {result.tokens.ids[row]}), column {column}"
    return f"{largest}, at {token}: {_number(verdict.left)} looked up, {_number(verdict.right)} by the product."


def _number(value: float | None) -> str:
    """Return a float32 in its shortest decimals."""
    return "NaN" if value is None or math.isnan(value) else f"{np.float32(value):.9g}"


def _why(result: Comparison) -> str:
    """Return in a sentence why the outputs are the same, or why they are not."""
    if result.verdict.kind == "nan" and result.verdict.causes:
        first = result.verdict.causes[0]
        return (
            f"Row {first.row} of the weight has {_number(first.value)} in column {first.column}: the lookup reads just "
            f"the row it wants, the product multiplies all the others by 0, and 0 · {_number(first.value)} = NaN."
        )
    return {
        "identical": "A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.",
        "value": "The sum of the product was rounded.",
        "nan": "Only one of them is a number.",
        "nan bits": "Both are NaN there; only the bits that come with a NaN differ.",
        "zero sign": "As numbers they are equal; just the sign of a zero differs, as a sum of +0 and -0 is +0.",
    }[result.verdict.kind]


def _print_trace(result: Comparison, page: Page) -> None:
    """Put the product of each token on the page, term by term."""
    page.print(Text("The product, written out", "bold"))
    page.print("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
    traced = Shown.most(_MOST_TRACED, len(result.tokens))
    size, dim = result.weight.shape
    columns = Shown(0, 0, 0)
    for place in traced.places.tolist():
        token_id = int(result.tokens.ids[place])
        terms = list(range(size)) if size <= _MOST_TERMS else sorted({0, token_id, size - 1})
        factors = [int(term == token_id) for term in terms]
        page.print()
        page.print(f"token {place}, ID {token_id}: {_formula(terms, factors, token_id)}")
        signs = [f"{'+ ' * (number > 0)}{factor} ·" for number, factor in enumerate(factors)]
        labels = [Label("times", [*signs, "="]), Label("row", [*(f"row{term}" for term in terms), "sum"], "left")]
        values = np.concatenate([result.weight[terms], result.linear[place : place + 1]])
        columns = print_grid(page, labels, [Half("", values)], np.arange(dim), Shown(len(values), 0, len(values)))
        if len(terms) < size:
            page.print(f"Left out: {size - len(terms):,} terms, all of them 0 times a row.")
    _print_left_out(page, traced, columns)
    page.print()


def _formula(terms: list[int], factors: list[int], token_id: int) -> str:
    """Return `0·row0 + 1·row1 = row1`, with … for the terms between that are left out."""
    parts: list[str] = []
    for place, (term, factor) in enumerate(zip(terms, factors, strict=True)):
        if place and term > terms[place - 1] + 1:
            parts.append("…")
        parts.append(f"{factor}·row{term}")
    return f"{' + '.join(parts)} = row{token_id}"


def _print_gradient(gradient: Gradient, page: Page) -> None:
    page.print(Text(f"The gradients of both weights, for the loss {gradient.loss}", "bold"))
    page.print("A row for each ID. The gradient of this loss is the output itself, summed up over an ID's tokens.")
    rows = Shown.most(_MOST_TOKENS, len(gradient.ids))
    labels = [
        Label("ID", [str(token_id) for token_id in gradient.ids[rows.places]]),
        Label("times", [str(times) for times in gradient.times[rows.places]]),
    ]
    halves = gradient.embedding[rows.places], gradient.linear[rows.places]
    _print_side_by_side(page, labels, *halves, gradient.differences[rows.places], rows)
    page.print(_judgement(gradient.verdict))
    if not gradient.verdict.identical:
        page.print(_why_gradients_differ(gradient.verdict))
    both = gradient.embedding_rows, gradient.linear_rows
    page.print(f"Rows of the weight with any gradient: {both[0]:,} in the embedding, {both[1]:,} in the linear layer.")
    page.print()


def _why_gradients_differ(verdict: Verdict) -> str:
    largest = f"Largest |difference|: {_number(verdict.difference)}."
    if verdict.kind == "value":
        return f"{largest} Where an ID occurs several times its gradients are summed up, in another order: rounding."
    return f"{largest} The outputs differ, and so do their gradients."


def _print_cost(cost: Cost, page: Page) -> None:
    one_hot = cost.one_hot_bytes
    rows = [
        ("multiply-adds", "0", f"{cost.multiply_adds:,}", "T·V·D"),
        ("weight read", in_bytes(cost.lookup_bytes), in_bytes(cost.product_bytes), "T·D and V·D float32"),
        ("one-hot int64", "0", in_bytes(one_hot["int64"]), "T·V, as torch.nn.functional.one_hot makes it"),
        ("one-hot float32", "0", in_bytes(one_hot["float32"]), "T·V, as the linear layer takes it"),
        ("time", _time(cost.lookup), _time(cost.product), _runs(cost)),
    ]
    table = plain_table(("Cost", "left"), ("embedding", "right"), ("linear", "right"))
    wide = page.width >= 90
    if wide:
        table.add_column()
    for row in rows:
        table.add_row(*row[: 3 + wide])
    page.print(table, width=200)
    page.print(f"The one-hot way takes {_times(cost.ratio)} as long{_in_slices(cost)}.")


def _in_slices(cost: Cost) -> str:
    return f"; done in {cost.slices:,} slices of tokens, so that it fits into memory" if cost.slices > 1 else ""


def _runs(cost: Cost) -> str:
    runs = cost.lookup.runs, cost.product.runs
    if runs[1] == 1:
        return f"median of {runs[0]} runs; one run, as it is long"
    return f"median of {runs[0]} runs" if runs[0] == runs[1] else f"median of {runs[0]} and {runs[1]} runs"


def _time(timing: Timing) -> str:
    """Return a time with three digits: `12.3 µs`."""
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if timing.seconds * factor < 999.5:
            return f"{timing.seconds * factor:.3g} {unit}"
    return f"{timing.seconds:,.1f} s"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 100 else f"{ratio:,.0f} times"


def _print_sweep(sweep: Sequence[Cost], page: Page) -> None:
    """Put the cost for growing V on the page, as a table and as a chart."""
    page.print()
    page.print(Text(f"The same {sweep[0].length:,} tokens, D = {sweep[0].dim:,}, for growing V", "bold"))
    wide = page.width >= 60
    headers = ("V", "embedding", "linear", "ratio", *("multiply-adds", "one-hot float32")[: 2 * wide])
    table = plain_table(*((header, "right") for header in headers))
    for cost in sweep:
        more = f"{cost.multiply_adds:,}", in_bytes(cost.one_hot_bytes["float32"])
        row = f"{cost.vocabulary_size:,}", _time(cost.lookup), _time(cost.product), f"{cost.ratio:,.1f}"
        table.add_row(*row, *more[: 2 * wide])
    page.print(table, width=200)
    page.print()
    _print_chart(sweep, page)


def _print_chart(sweep: Sequence[Cost], page: Page) -> None:
    """Put a bar for each time on the page, on a logarithmic scale whose ends are powers of ten."""
    logs = [math.log10(timing.seconds) for cost in sweep for timing in (cost.lookup, cost.product)]
    low = math.floor(min(logs))
    high = max(math.ceil(max(logs)), low + 1)
    label = max(len(f"{cost.vocabulary_size:,}") for cost in sweep)
    room = min(page.width - label - len("  embedding  "), _WIDEST_BAR)
    page.print(f"How both grow: time on a logarithmic scale, {_power(low)} to {_power(high)}")
    for cost in sweep:
        for name, timing in (("embedding", cost.lookup), ("linear", cost.product)):
            share = (math.log10(timing.seconds) - low) / (high - low)
            size = f"{cost.vocabulary_size:,}" if name == "embedding" else ""
            line = Text(f"{size:>{label}}  {name:<9}  ")
            page.print(line.append(_bar(share, room), _STYLES[name] if page.color else ""))


def _power(exponent: int) -> str:
    """Return a power of ten in seconds: `10 µs`."""
    unit = max(min(exponent // 3, 0), -3)
    return f"{10 ** (exponent - 3 * unit)} {('s', 'ms', 'µs', 'ns')[-unit]}"


def _bar(share: float, room: int) -> str:
    """Return a bar of blocks that fills this share of the room, to an eighth of a cell, and at least one eighth."""
    eighths = max(round(share * room * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def watched(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items, with a progress bar on standard error where that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    # Without a thread that refreshes the bar: it would run in the middle of what is measured.
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("growing V", total=len(items))
        for item in items:
            bar.refresh()
            yield item
            bar.advance(task)
        bar.refresh()

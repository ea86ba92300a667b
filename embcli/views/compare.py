"""How `compare` looks: the steps of both ways, their outputs side by side, the verdict, and what each way costs."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from embcli.verbs.compare import STEPS
from embcli.page.grid import Half, Label, Numbers, Shown, left_out, print_grid, shorten
from embcli.views.lookup import token_labels
from embcli.page.terminal import Page, plain_table
from embcli.tokens import shown
from embcli.weights import in_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embcli.verbs.compare import Comparison, Cost, Gradient, Timing, Verdict

Item = TypeVar("Item")
_PIPE_LINES = 60  # a pipe has no screen, so a printed page stands in for it
_MOST_TOKENS = 40
_LEAST_TOKEN = 6  # cells that a token is shortened to at most, as in a grid
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
        page.print(f"Left out for want of room: --show {','.join(missing)}")


def _fitting(result: Comparison, page: Page, end: Sequence[Callable[[Page], None]]) -> tuple[str, ...]:
    """Return the steps that fit on the screen with all that comes behind them; the outputs come before the others."""
    height = shutil.get_terminal_size((0, _PIPE_LINES)).lines if page.terminal else _PIPE_LINES
    *others, outputs = STEPS
    lines = {name: _lines(page, partial(_PRINT[name], result)) + 1 for name in STEPS}
    room = height - 5 - _lines(page, *end) - lines[outputs]  # 5: the heading, the names of missing steps, the prompt
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
    page.print(
        f"T = {len(result.tokens):,} (tokens), V = {size:,} (rows), D = {dim:,} (columns), seed {result.run['seed']}"
    )
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
    page.print(f"A row a token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
    rows = Shown.most(_MOST_TOKENS, length)
    labels = token_labels(result.tokens, rows.places)
    ids = [int(token_id) for token_id in result.tokens.ids[rows.places]]
    room = page.width - _width(labels) - _BAR
    if size * (len(str(size - 1)) + _GAP) - _GAP <= room:
        columns = [Label(str(column), ["01"[each == column] for each in ids]) for column in range(size)]
    else:
        columns = [Label("row", [f"1 at column {each}, 0 in the other {size - 1:,}" for each in ids])]
        if _width(columns) - _GAP > room:
            columns = [Label("the 1 is at", [f"column {each}" for each in ids])]
    if _width(labels, whole=True) + _BAR + _width(columns) - _GAP > page.width:
        labels = [_narrow(label) for label in labels]
    _print_columns(page, [*labels, Label("│", ["│"] * len(ids)), *columns], rows)
    _print_left_out(page, rows)


def _print_columns(page: Page, columns: Sequence[Label], rows: Shown) -> None:
    """Put a table of columns that are known to fit on the page; a 1 right of the bar stands out."""
    bar = [column.header for column in columns].index("│")
    table = plain_table(*((column.header, column.justify) for column in columns))
    for row in range(len(rows.places)):
        if rows.left_out and row == rows.head:
            table.add_row(*["⋮"] * len(columns), style="dim")
        cells = [column.cells[row] for column in columns]
        table.add_row(*(Text(cell, "bold" * (page.color and cell == "1" and n > bar)) for n, cell in enumerate(cells)))
    page.print(table, width=_width(columns, whole=True))


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
    page.print("Left: row ID of the weight, looked up. Right: one-hot row times weight, summed up.")
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


def _width(labels: Sequence[Label], whole: bool = False) -> int:
    """Return how many cells labels take, with the gaps behind them; at least, or with whole tokens."""
    shortest = labels if whole else [_narrow(label) for label in labels]
    return sum(max(map(cell_len, [label.header, *label.cells])) + _GAP for label in shortest)


def _narrow(label: Label) -> Label:
    """Return a label with its tokens as short as they may get."""
    return replace(label, cells=[shorten(cell, _LEAST_TOKEN) for cell in label.cells]) if label.shortens else label


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
        page.print(_why(result))
    page.print()


def _judgement(verdict: Verdict) -> Text:
    if not verdict.values:
        return Text("Nothing to compare: there are no tokens.")
    if verdict.identical:
        return Text(f"Bit-identical: all {verdict.values:,} values, the largest |difference| is 0.", "bold green")
    largest = f"the largest |difference| is {_number(verdict.difference)}"
    return Text(f"Not bit-identical: {verdict.different:,} of {verdict.values:,} values differ, {largest}.", "bold red")


def _number(value: float | None) -> str:
    """Return a float32 in its shortest decimals."""
    return "NaN" if value is None or math.isnan(value) else str(np.float32(value))


def _why(result: Comparison) -> str:
    """Return in words why the outputs are the same, or where and why they are not."""
    verdict = result.verdict
    if verdict.place is None:
        return "A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID."
    row, column = verdict.place
    own = int(result.tokens.ids[row])
    where = f"At token {row} (ID {own}), column {column}: the lookup gives {_number(verdict.left)}, "
    where += f"the product {_number(verdict.right)}."
    if verdict.kind == "nan":
        cause = next(each for each in verdict.causes if each.row != own)
        return (
            f"{where}\nRow {cause.row} of the weight has {_number(cause.value)} in column {column}: the lookup reads "
            f"only the row it wants, the product multiplies all others by 0, and 0 · {_number(cause.value)} = NaN."
        )
    reasons = {
        "value": "The sum of the product was rounded.",
        "nan bits": "Both are NaN there; only the bits that come with a NaN differ.",
        "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
    }
    return f"{where}\n{reasons[verdict.kind]}"


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
        labels = [Label("factor", [*signs, "="]), Label("row", [*(f"row{term}" for term in terms), "sum"], "left")]
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
    if verdict.kind == "value":
        return "The gradients of an ID that occurs several times are summed up, in another order: rounding."
    return "The outputs differ, and so do their gradients."


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
    wide = page.width >= 80
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

"""How `compare` looks: the steps of both ways, their outputs side by side, the verdict, and what each way costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.names import STEPS
from embcli.page import Bar, Block, Column, Columns, Excerpt, Word
from embcli.tokens import shown
from embcli.verbs.lookup import rows_beside
from embcli.views.parts import PickedRows, bar, left_out, put_guesses, token_labels
from embcli.words import counted, in_bytes, in_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embcli.page import Page, Tone
    from embcli.verbs.compare.found import Comparison, Cost, Gradient, Timing, Training
    from embcli.verdict import Verdict

_WIDE_COST, _WIDE_SWEEP = 90, 80  # cells from which on a table has all of its columns
_PRINTED = 60  # lines of a printed page, which stands in for a screen where there is none
_FRAME = 4  # lines of the heading, of the names of missing steps, and of the prompt
_NEEDED = ("outputs", "ids", "one-hot", "shared", "first")  # the steps in the order in which one needs them
_MOST_TOKENS = 40
_MOST_IDS = 12  # that are named in one line
_FEW_ROWS = 8  # of a weight matrix
_MOST_TRACED = 8  # tokens
_MOST_TRAINED = 4  # IDs whose rows are shown before and after a step of training
_MOST_TERMS = 8  # of a product that is written out whole
_MOST_DRAWN = 8  # tokens of a picture
_WIDEST_BAR = 60


def view(result: Comparison, page: Page) -> None:
    """Put the steps on a page, those the user named or as many as fit on the screen, the verdict and the cost."""
    wanted = result.wanted.steps
    steps = {name: _part(page, _PUT[name], result) for name in wanted or STEPS}
    end, cost = _part(page, _put_end, result), _part(page, _put_costs, result)
    costs = bool(result.sweep) or not _is_for(result.gradient, page) or _room(page) >= end.lines + cost.lines
    if costs:
        end.add(cost)
    chosen = wanted or _fitting(page, steps, end, result)
    _put_head(result, page)
    lines = sum(steps[name].lines + 1 for name in chosen) + end.lines
    for name in chosen:
        page.add(steps[name])
        if name != chosen[-1] or not page.paper.screen or lines != _room(page) + 1:
            page.line()  # the last one is left out where it alone is too many
    page.add(end)
    missing = [] if wanted else [name for name in STEPS if name not in chosen]
    words = [*([] if costs else ["the cost"]), *([f"--show {','.join(missing)}"] if missing else [])]
    if words:
        page.line(f"Left out for want of room: {' and '.join(words)}")


def _is_for(gradient: Gradient | None, page: Page) -> bool:
    """Return whether it is the gradients that are to stay on a screen, on which all else does not fit."""
    return gradient is not None and page.paper.screen is not None


def _room(page: Page) -> int:
    return (page.paper.screen or _PRINTED) - _FRAME


def _part(page: Page, put: Callable[[Comparison, Page], None], result: Comparison) -> Page:
    part = page.part()
    put(result, part)
    return part


def _fitting(page: Page, steps: dict[str, Page], end: Page, result: Comparison) -> tuple[str, ...]:
    """Return the steps that fit on the screen with all that comes behind them, those first that one needs first."""
    room = _room(page) - end.lines + (1 if page.paper.screen else 0)  # the last blank line can be left out there
    chosen = set() if _is_for(result.gradient, page) else {_NEEDED[0]}
    for name in _NEEDED:
        room -= steps[name].lines + 1
        if room < 0:
            break
        chosen.add(name)
    return tuple(name for name in STEPS if name in chosen)


def _put_end(result: Comparison, page: Page) -> None:
    """Put what comes behind the steps on the page: the verdict, and what was asked for on top."""
    _put_verdict(result, page)
    put_guesses(page, result.run)
    if result.wanted.draw and len(result.tokens):
        page.line()
        _put_picture(result, page)
    if result.wanted.trace:
        page.line()
        _put_trace(result, page)
    if result.gradient is not None:
        page.line()
        _put_gradient(result.gradient, page)


def _put_costs(result: Comparison, page: Page) -> None:
    if result.wanted.trace or result.gradient is not None:
        page.line()
    _put_cost(result.cost, page)
    if result.sweep:
        _put_sweep(result.sweep, page)


def _put_head(result: Comparison, page: Page) -> None:
    size, dim = result.weight.shape
    page.title("Two ways from token IDs to vectors: a lookup, and a one-hot product")
    run = result.run
    origin = f"{run['tensors']['token']} ({run['dtypes']['token']})" if "from" in run else f"seed {run['seed']}"
    page.line(f"T = {len(result.tokens):,} (tokens), V = {size:,} (rows), D = {dim:,} (columns), {origin}")


def _put_title(page: Page, step: str, title: str, name: str, shape: tuple[int, ...], more: str = "") -> None:
    sizes = ", ".join(f"{size:,}" for size in shape) + "," * (len(shape) == 1)
    page.title(f"{STEPS.index(step) + 1}. {title}, {name} = ({sizes}){more}")


def _put_ids(result: Comparison, page: Page) -> None:
    tokens = result.tokens
    _put_title(page, "ids", "The token IDs", "(T,)", (len(tokens),))
    places = Excerpt.most(_MOST_IDS, len(tokens))
    ids = tokens.ids[places.places]
    words = [
        f"{token_id} ({shown(token)})" if token is not None else str(token_id)
        for token_id, token in zip(ids.tolist(), tokens.bytes_of(ids), strict=True)
    ]
    if places.left_out:
        words.insert(places.head, f"… {places.left_out:,} more …")
    page.line("  ".join(words) or "none")


def _put_one_hot(result: Comparison, page: Page) -> None:
    size, length = len(result.weight), len(result.tokens)
    _put_title(page, "one-hot", "The one-hot matrix", "(T, V)", (length, size))
    page.line(f"A row a token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
    rows = Excerpt.most(_MOST_TOKENS, length)
    labels: Columns = [*token_labels(result.tokens, rows.places), Bar()]
    ids = result.tokens.ids[rows.places].tolist()
    forms = [_ones(ids, size)] if 2 * size <= page.width else []
    forms.append([Column("row", [f"1 at column {each}, 0 in the other {size - 1:,}" for each in ids])])
    forms.append([Column("the 1 is at", [f"column {each}" for each in ids])])
    fitting = [form for form in forms if page.holds([*labels, *form])]
    page.table([*labels, *(fitting or forms)[0 if fitting else -1]], rows.gaps)
    _put_left_out(page, rows)


def _ones(ids: list[int], size: int) -> Columns:
    """Return the one-hot matrix itself, in which the ones stand out."""
    zero, one = Word("0"), Word("1", "strong")
    return [Column(str(column), [one if each == column else zero for each in ids]) for column in range(size)]


def _put_first(result: Comparison, page: Page) -> None:
    dim, size = result.first.shape
    _put_title(page, "first", "The linear layer's own first weights", "(D, V)", (dim, size))
    drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{1 / math.sqrt(size):.4g}"
    if "from" in result.run:
        page.line(f"{drawn}, here from seed {result.run['seed']}; the file's matrix takes their place.")
    else:
        page.line(f"{drawn}, torch.nn.Embedding normal ones: from one seed, other numbers.")
    _put_matrix(page, result.first, "D", "V")


def _put_shared(result: Comparison, page: Page) -> None:
    size, dim = result.weight.shape
    _put_title(page, "shared", "The shared weight, embedding.weight", "(V, D)", (size, dim))
    page.line(
        f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,}): "
        "each row here is a column of it."
    )
    _put_matrix(page, result.weight, "ID", "D")


def _put_matrix(page: Page, values: np.ndarray, row: str, column: str) -> None:
    rows = Excerpt.most(_FEW_ROWS, len(values))
    numbers = np.arange(values.shape[1])
    labels = [Column(row, [str(place) for place in rows.places])]
    columns = page.grid(labels, [Block("", values[rows.places])], numbers, rows.gaps)
    _put_left_out(page, rows, columns)


def _put_outputs(result: Comparison, page: Page) -> None:
    length, dim = result.embedding.shape
    _put_title(page, "outputs", "The outputs", "(T, D)", (length, dim), ": row ID looked up, one-hot row times weight")
    rows = Excerpt.most(_MOST_TOKENS, length)
    labels = token_labels(result.tokens, rows.places)
    both = result.embedding[rows.places], result.linear[rows.places]
    _put_side_by_side(page, labels, *both, result.differences[rows.places], rows)


def _put_side_by_side(
    page: Page, labels: list[Column], left: np.ndarray, right: np.ndarray, largest: np.ndarray, rows: Excerpt
) -> None:
    """Put two matrices beside each other on the page, or row under row where that would leave columns out."""
    numbers = np.arange(left.shape[1])
    differences = [_difference(value) for value in largest.tolist()]
    blocks = [Block("embedding", left), Block("linear", right)]
    if page.holds_grid([*labels, Column("diff", differences)], blocks, numbers):
        columns = page.grid(labels, blocks, numbers, rows.gaps, [Column("diff", differences)])
    else:
        stacked = np.stack([left, right], axis=1).reshape(-1, left.shape[1])
        doubled = [replace(label, cells=[cell for each in label.cells for cell in (each, "")]) for label in labels]
        ways = Column("", ["lookup", "one-hot"] * len(left), "left")
        diff = Column("diff", [cell for each in differences for cell in ("", each)])
        gaps = [2 * gap for gap in rows.gaps]
        columns = page.grid([*doubled, ways], [Block("", stacked)], numbers, gaps, [diff])
    _put_left_out(page, rows, columns)


def _put_left_out(page: Page, rows: Excerpt, columns: Excerpt | None = None) -> None:
    missing = left_out(
        rows.missing(np.arange(rows.total), "row"),
        columns.missing(np.arange(columns.total), "column") if columns else "",
    )
    if missing:
        page.line(f"{missing}.")


def _difference(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


_PUT: dict[str, Callable[[Comparison, Page], None]] = {
    "ids": _put_ids,
    "one-hot": _put_one_hot,
    "first": _put_first,
    "shared": _put_shared,
    "outputs": _put_outputs,
}


def _put_verdict(result: Comparison, page: Page) -> None:
    page.line(_judgement(result.verdict))
    if len(result.tokens):
        for line in _why(result):
            page.line(line)


def _judgement(verdict: Verdict) -> Word:
    if not verdict.values:
        return Word("Nothing to compare: there are no tokens.")
    if verdict.identical:
        return Word(f"Bit-identical: all {verdict.values:,} values, the largest |difference| is 0.", "good")
    largest = f"the largest |difference| is {_number(verdict.difference)}"
    return Word(f"Not bit-identical: {verdict.different:,} of {verdict.values:,} values differ, {largest}.", "bad")


def _number(value: float | None) -> str:
    """Return a float32 in its shortest decimals."""
    return "NaN" if value is None or math.isnan(value) else str(np.float32(value))


def _why(result: Comparison) -> list[str]:
    """Return in words, line by line, why the outputs are the same, or where and why they are not."""
    verdict = result.verdict
    if verdict.place is None:
        return ["A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID."]
    row, column = verdict.place
    own = int(result.tokens.ids[row])
    where = f"At token {row} (ID {own}), column {column}: the lookup gives {_number(verdict.left)}, "
    where += f"the product {_number(verdict.right)}."
    if verdict.kind == "nan":
        cause = next(each for each in verdict.causes if each.row != own)
        value = _number(cause.value)
        reason = (
            f"Row {cause.row} of the weight has {value} in column {column}: the lookup reads only the row it wants, "
            f"the product multiplies all others by 0, and 0 · {value} = NaN."
        )
        return [where, reason]
    reasons = {
        "value": "The sum of the product was rounded.",
        "nan bits": "Both are NaN there; only the bits that come with a NaN differ.",
        "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
    }
    return [where, reasons[verdict.kind]]


def _put_picture(result: Comparison, page: Page) -> None:
    """Put the product on the page: one-hot rows, the rows of the weight that they weigh, and what comes out."""
    (length, dim), size = result.linear.shape, len(result.weight)
    page.title(f"One-hot rows times the weight = its rows: ({length:,}, {size:,}) × ({size:,}, {dim:,})")  # noqa: RUF001
    page.line("A column a token: its one-hot row, upright; the 1 lets its row through.")
    tokens = _drawn_tokens(result, page)
    rows = PickedRows.of(result.tokens.ids[tokens.places], rows_beside(size))
    block = Block("", np.concatenate([result.weight[rows.rows], result.linear[tokens.places]]))
    tones: list[Tone] = [*rows.tones]
    tones += ["linear"] * len(tokens.places)
    columns = page.grid(_weighing(result, rows, tokens), [block], np.arange(dim), rows.gaps, tones=tones)
    missing = left_out(tokens.missing(np.arange(length), "token"), columns.missing(np.arange(dim), "column"))
    if missing:
        page.line(f"{missing}.")


def _drawn_tokens(result: Comparison, page: Page) -> Excerpt:
    """Return the tokens of a picture: as many as leave room for the first and the last value of each row."""
    length, dim = result.linear.shape
    values = Block("", result.weight[:, [0, -1]] if dim > 1 else result.weight)
    for most in range(min(_MOST_DRAWN, length), 1, -1):
        tokens = Excerpt.most(most, length)
        rows = PickedRows.of(result.tokens.ids[tokens.places], rows_beside(len(result.weight)))
        if page.holds_grid(
            [*_weighing(result, rows, tokens), Column("…", [])], [values], np.arange(dim)[[0, -1][:dim]]
        ):
            return tokens
    return Excerpt.most(1, length)


def _weighing(result: Comparison, rows: PickedRows, tokens: Excerpt) -> list[Column]:
    """Return what stands beside the rows of the weight, by which each is multiplied, and beside those that come out."""
    places, below = tokens.places.tolist(), [""] * len(tokens.places)
    hot = [
        Column(str(place), [*(Word("1", "strong") if each else Word("0", "dim") for each in rows.rows == own), *below])
        for place, own in zip(places, result.tokens.ids[places].tolist(), strict=True)
    ]
    if tokens.left_out:
        hot.insert(tokens.head, Column("…", ["…"] * len(rows.rows) + below, "left", tone="dim"))
    signs = Column("", ["×"] * len(rows.rows) + ["="] * len(places))  # noqa: RUF001
    return [*hot, signs, Column("row", [*map(str, rows.rows), *(f"pos {place}" for place in places)])]


def _put_trace(result: Comparison, page: Page) -> None:
    """Put the product of each token on the page, term by term."""
    page.title("The product, written out")
    page.line("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
    traced = Excerpt.most(_MOST_TRACED, len(result.tokens))
    size, dim = result.weight.shape
    columns = Excerpt(0, 0, 0)
    for place in traced.places.tolist():
        token_id = int(result.tokens.ids[place])
        terms = list(range(size)) if size <= _MOST_TERMS else sorted({0, token_id, size - 1})
        factors = [int(term == token_id) for term in terms]
        page.line()
        page.line(f"token {place}, ID {token_id}: {_formula(terms, factors, token_id)}")
        tones: list[Tone] = [*("strong" if factor else "dim" for factor in factors), "plain"]
        signs = [f"{'+ ' if number else ''}{factor} ·" for number, factor in enumerate(factors)]
        labels = [
            Column("factor", _toned([*signs, "="], tones)),
            Column("row", _toned([*(f"row{term}" for term in terms), "sum"], tones), "left"),
        ]
        values = np.concatenate([result.weight[terms], result.linear[place : place + 1]])
        columns = page.grid(labels, [Block("", values)], np.arange(dim), tones=tones)
        if len(terms) < size:
            page.line(f"Left out: {size - len(terms):,} terms, all of them 0 times a row.")
    _put_left_out(page, traced, columns)


def _toned(cells: Sequence[str], tones: Sequence[Tone]) -> list[Word]:
    return [Word(cell, tone) for cell, tone in zip(cells, tones, strict=True)]


def _formula(terms: list[int], factors: list[int], token_id: int) -> str:
    """Return `0·row0 + 1·row1 = row1`, with … for the terms between that are left out."""
    parts: list[str] = []
    for place, (term, factor) in enumerate(zip(terms, factors, strict=True)):
        if place and term > terms[place - 1] + 1:
            parts.append("…")
        parts.append(f"{factor}·row{term}")
    return f"{' + '.join(parts)} = row{token_id}"


def _put_gradient(gradient: Gradient, page: Page) -> None:
    page.title(f"The gradients of both weights, for the loss {gradient.loss}")
    page.line("A row an ID: its gradient is the output itself, summed up over its n tokens.")
    rows = Excerpt.most(_MOST_TOKENS, len(gradient.ids))
    labels = [
        Column("ID", [str(token_id) for token_id in gradient.ids[rows.places]]),
        Column("n", [str(times) for times in gradient.times[rows.places]]),
    ]
    if gradient.training is None:
        both = gradient.embedding[rows.places], gradient.linear[rows.places]
        _put_side_by_side(page, labels, *both, gradient.differences[rows.places], rows)
    else:
        _put_training(gradient, gradient.training, page)
    page.line(_judgement(gradient.verdict))
    if not gradient.verdict.identical:
        page.line(_why_gradients_differ(gradient.verdict))
    if gradient.training is not None:
        _put_moved(gradient.training, page)
        return
    both = gradient.embedding_rows, gradient.linear_rows
    page.line(f"Rows of the weight with any gradient: {both[0]:,} in the embedding, {both[1]:,} in the linear layer.")


def _put_training(gradient: Gradient, training: Training, page: Page) -> None:
    """Put each row on the page before a step of training, its gradient, and the row after it."""
    few = Excerpt(min(_MOST_TRAINED, len(gradient.ids)), 0, len(gradient.ids))
    before = training.before[few.places]
    left, right, differences = (
        np.stack(each, axis=1).reshape(3 * len(before), *before.shape[1:][: each[0].ndim - 1])
        for each in (
            (before, gradient.embedding[few.places], training.embedding[few.places]),
            (before, gradient.linear[few.places], training.linear[few.places]),
            (np.zeros(len(before), np.float32), gradient.differences[few.places], training.differences[few.places]),
        )
    )
    labels = [
        Column("ID", [word for token_id in gradient.ids[few.places].tolist() for word in (str(token_id), "", "")]),
        Column("", ["row", "gradient", "row after"] * len(before), "left"),
    ]
    _put_side_by_side(page, labels, left, right, differences, Excerpt(len(left), 0, len(left)))
    if few.left_out:
        page.line(f"Left out: {few.left_out:,} more IDs.")


def _put_moved(training: Training, page: Page) -> None:
    """Say whether the rows are equal after a step of training, and how many have not moved."""
    page.title(f"After one step of torch.optim.SGD: row - {training.learning_rate:g} · gradient")
    page.line(_judgement(training.verdict))
    size, rest = training.vocabulary_size, training.vocabulary_size - len(training.before)
    moved = [f"{rows:,} of {size:,} rows" for rows in (training.embedding_rows, training.linear_rows)]
    page.line(f"Moved: {moved[0]} in the embedding, {moved[1]} in the linear layer.")
    page.line(f"{counted(rest, 'row')} of {size:,} {'is' if rest == 1 else 'are'} of tokens that did not occur.")


def _why_gradients_differ(verdict: Verdict) -> str:
    if verdict.kind == "value":
        return "The gradients of an ID that occurs several times are summed up, in another order: rounding."
    return "The outputs differ, and so do their gradients."


def _put_cost(cost: Cost, page: Page) -> None:
    one_hot = {name: in_bytes(size) for name, size in cost.one_hot_bytes.items()}
    rows = [
        ("multiply-adds", "0", f"{cost.multiply_adds:,}", "T·V·D"),
        ("weight read", in_bytes(cost.lookup_bytes), in_bytes(cost.product_bytes), "T·D and V·D float32"),
        ("one-hot matrix", "0", " + ".join(one_hot.values()), "T·V int64, as torch makes it, and float32"),
        ("time on 1 thread", in_seconds(cost.lookup.seconds), in_seconds(cost.product.seconds), _runs(cost)),
        ("  at least", in_seconds(cost.lookup.least), in_seconds(cost.product.least), "the fastest run"),
    ]
    wide = page.width >= _WIDE_COST
    if not page.holds(_cost_columns(rows, wide)):
        rows[2:3] = [(f"one-hot {name}", "0", size, "") for name, size in one_hot.items()]
    page.table(_cost_columns(rows, wide), ruled=wide)  # where it is narrow, it is low too
    zeros = f"{cost.multiplications_by_zero:,} of {cost.multiply_adds:,}" if cost.length else "none"
    page.line(f"One-hot takes {_times(cost.ratio)} as long; {zeros} products are by zero{_in_slices(cost)}.")
    if cost.scattered:
        page.line("The runs scatter, as on a busy machine: trust the least times more.")


def _cost_columns(rows: Sequence[tuple[str, str, str, str]], wide: bool) -> Columns:
    names, lookups, products, formulas = zip(*rows, strict=True)
    columns: Columns = [Column("Cost", names, "left"), Column("embedding", lookups), Column("linear", products)]
    return [*columns, Column("", formulas, "left")] if wide else columns


def _in_slices(cost: Cost) -> str:
    return f"; done in {cost.slices:,} slices of tokens, so that it fits into memory" if cost.slices > 1 else ""


def _runs(cost: Cost) -> str:
    runs = cost.lookup.runs, cost.product.runs
    if runs[1] == 1:
        return f"median of {runs[0]} runs; one run, as it is long"
    return f"median of {runs[0]} runs" if runs[0] == runs[1] else f"median of {runs[0]} and {runs[1]} runs"


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 100 else f"{ratio:,.0f} times"


def _put_sweep(sweep: Sequence[Cost], page: Page) -> None:
    """Put the cost for growing V on the page, as a table and as a chart."""
    page.line()
    page.title(f"The same {sweep[0].length:,} tokens, D = {sweep[0].dim:,}, for growing V")
    columns = [
        Column("V", [f"{cost.vocabulary_size:,}" for cost in sweep]),
        Column("embedding", [in_seconds(cost.lookup.seconds) for cost in sweep]),
        Column("linear", [in_seconds(cost.product.seconds) for cost in sweep]),
        Column("ratio", [f"{cost.ratio:,.1f}" for cost in sweep]),
    ]
    more = [
        Column("multiply-adds", [f"{cost.multiply_adds:,}" for cost in sweep]),
        Column("one-hot float32", [in_bytes(cost.one_hot_bytes["float32"]) for cost in sweep]),
    ]
    page.table([*columns, *more] if page.width >= _WIDE_SWEEP else [*columns])
    page.line()
    _put_chart(sweep, page)


def _put_chart(sweep: Sequence[Cost], page: Page) -> None:
    """Put a bar for each time on the page, on a logarithmic scale whose ends are powers of ten."""
    logs = [math.log10(timing.seconds) for cost in sweep for timing in (cost.lookup, cost.product)]
    low = math.floor(min(logs))
    high = max(math.ceil(max(logs)), low + 1)
    label = max(len(f"{cost.vocabulary_size:,}") for cost in sweep)
    room = min(page.width - label - len("  embedding  "), _WIDEST_BAR)
    page.line(f"How both grow: time on a logarithmic scale, {_power(low)} to {_power(high)}")
    for cost in sweep:
        for name, timing in _ways(cost):
            share = (math.log10(timing.seconds) - low) / (high - low)
            size = f"{cost.vocabulary_size:,}" if name == "embedding" else ""
            page.line(f"{size:>{label}}  {name:<9}  ", Word(bar(share, room), name))


def _ways(cost: Cost) -> tuple[tuple[Tone, Timing], tuple[Tone, Timing]]:
    return ("embedding", cost.lookup), ("linear", cost.product)


def _power(exponent: int) -> str:
    """Return a power of ten in seconds: `10 µs`."""
    unit = max(min(exponent // 3, 0), -3)
    return f"{10 ** (exponent - 3 * unit)} {('s', 'ms', 'µs', 'ns')[-unit]}"

"""The page of a comparison: its steps, the outputs, the verdict and the reason, and what each way costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from embcli.names import OUTPUTS, STEPS, ComparisonStep
from embcli.page import (
    Hint,
    Label,
    Matrix,
    NumberFormat,
    Values,
    left_out,
    omission,
    rows_that_fit,
    ruled,
    safe_text,
    title,
)
from embcli.page.labels import origin_in_words, origin_lines, picked_rows, token_label, token_labels
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.compare.pair import Gradient, Pair, Verdict
from embcli.verbs.lookup import context_rows
from embcli.wording import counted, in_bytes, in_seconds

if TYPE_CHECKING:
    from embcli.verbs.compare import Comparison

_WIDE_COST = 90  # cells from which the cost has all its columns
_MOST_TOKENS, _MOST_IDS, _MOST_TRAINED = (
    40,
    12,
    4,
)  # tokens in a table, IDs in one line, and IDs after a step
_MOST = 8  # rows of a weight, tokens of a drawing, and tokens and terms that are written out
_REASONS = {
    "value": "The sum of linear was rounded.",
    "nan bits": "Both are NaN there; only the bits of the NaN differ.",
    "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
}


def page(comparison: Comparison, console: Console, options: ConsoleOptions) -> RenderResult:
    """Yield the page: steps, the verdict and its reason, what else was asked for, and the cost."""
    width = options.max_width
    rows = (
        rows_that_fit(options, 2 * _MOST_TOKENS) // 2
    )  # of a table, beside the steps and the verdict
    yield from _heading(comparison)
    steps = _steps(comparison)
    titles = _titles(comparison)
    for number, name in enumerate(steps, 1):
        yield title(f"{number}. {titles[name]}" if len(steps) > 1 else titles[name])
        yield from _step(comparison, name, width, rows)
        yield ""
    yield _judgement(comparison.verdict)
    yield from _why(comparison)
    if comparison.draw and len(comparison.tokens):
        yield ""
        yield from _drawing(comparison, width, rows)
    if comparison.trace:
        yield ""
        yield from _trace(comparison)
    if comparison.gradient is not None:
        yield ""
        yield from _training(comparison, comparison.gradient, width, rows)
    if "cost" in (comparison.show or ()):
        yield ""
        yield _cost_table(comparison.cost, width)
        yield _cost_line(comparison.cost)
    elif not (console.record or comparison.style.bare):  # a picture is the same on each machine
        yield _cost_line(comparison.cost)
    if comparison.show is None:
        yield Hint(("show",))
    yield from origin_lines(comparison.origin)


def _steps(comparison: Comparison) -> tuple[ComparisonStep, ...]:
    """Return the steps that the user named; otherwise the IDs and the outputs, unless something else was asked for."""
    if comparison.show is not None:
        named = {"outputs" if name in OUTPUTS else name for name in comparison.show}
        return tuple(step for step in STEPS if step in named)
    is_about_another = comparison.draw or comparison.trace or comparison.gradient is not None
    return () if is_about_another else ("ids", "outputs")


def _heading(comparison: Comparison) -> Iterator[Text]:
    size, dim = comparison.weight.shape
    sizes = f"T = {len(comparison.tokens):,} (tokens), V = {size:,} (rows), D = {dim:,} (columns)"
    origin = origin_in_words(comparison.origin, "token")
    if not comparison.origin.is_seeded:
        origin += f" ({comparison.origin.dtypes['token']})"
    yield title("Two ways from token IDs to vectors: embedding layer and linear layer")
    yield safe_text(f"{sizes}, {origin}")


def _titles(comparison: Comparison) -> dict[str, str]:
    length = f"{len(comparison.tokens):,}"
    size, dim = (f"{each:,}" for each in comparison.weight.shape)
    return {
        "ids": f"The token IDs, (T,) = ({length},)",
        "one-hot": f"The one-hot matrix, (T, V) = ({length}, {size})",
        "first": f"The linear layer's own first weights, (D, V) = ({dim}, {size})",
        "shared": f"The shared weight, embedding.weight, (V, D) = ({size}, {dim})",
        "outputs": f"The outputs, (T, D) = ({length}, {dim}): row ID of the weight; one-hot row · weight",
    }


def _matrix(
    comparison: Comparison, labels: Sequence[Label], *blocks: Values, **more: Any
) -> Matrix:
    numbers = np.arange(blocks[0].values.shape[1])
    return Matrix(
        labels,
        blocks,
        numbers,
        precision=comparison.style.precision,
        heat=comparison.style.heat,
        **more,
    )


def _step(
    comparison: Comparison, name: ComparisonStep, width: int, most: int
) -> Iterator[RenderableType]:
    """Yield a step in tables of at most so many rows."""
    match name:
        case "ids":
            yield _ids(comparison, min(_MOST_IDS, most))
        case "one-hot":
            yield from _one_hot(comparison, width, most)
        case "first":
            yield from _first_weights(comparison)
        case "shared":
            yield from _shared_weight(comparison)
        case "outputs":
            yield _both_outputs(comparison, width, most)


def _ids(comparison: Comparison, most: int) -> Text:
    tokens = comparison.tokens
    rows = Excerpt.ends(most, len(tokens))
    ids = tokens.ids[rows.places]
    named = []
    for number, token in zip(ids.tolist(), tokens.bytes_of(ids), strict=True):
        named.append(str(number) if token is None else f"{number} ({shown(token)})")
    if rows.left_out:
        named.insert(rows.head, f"… {rows.left_out:,} more …")
    return safe_text("  ".join(named) or "none")


def _one_hot(comparison: Comparison, width: int, most: int) -> Iterator[RenderableType]:
    tokens = comparison.tokens
    size = len(comparison.weight)
    yield safe_text(f"One row per token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
    rows = Excerpt.ends(most, len(tokens))
    ids = tokens.ids[rows.places]
    labels = token_labels(tokens, rows.places)
    columns = np.arange(min(size, width))
    entries = Values((ids[:, None] == columns).astype(np.float32))
    matrix = Matrix(
        labels, [entries], columns, rows.gaps, precision=0, rows_left_out=omission(rows, "row")
    )
    if matrix.fits(width):
        yield matrix
        return
    labels.append(Label("the 1 is at", [f"column {each}" for each in ids.tolist()], "left"))
    yield ruled(labels, gaps=rows.gaps)
    note = left_out(omission(rows, "row"))
    if note is not None:
        yield note


def _first_weights(comparison: Comparison) -> Iterator[RenderableType]:
    bound = 1 / math.sqrt(len(comparison.weight))
    drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{bound:.4g}"
    if comparison.origin.is_seeded:
        yield safe_text(f"{drawn}, torch.nn.Embedding normal ones: one seed gives other numbers.")
    else:
        yield safe_text(
            f"{drawn}, here from seed {comparison.run['seed']}; the file's matrix replaces them."
        )
    yield _weight(comparison, comparison.first, "D")


def _shared_weight(comparison: Comparison) -> Iterator[RenderableType]:
    size, dim = comparison.weight.shape
    assigned = f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,})"
    yield safe_text(f"{assigned}: each row here is a column of it.")
    yield _weight(comparison, comparison.weight, "ID")


def _weight(comparison: Comparison, weight: np.ndarray, label: str) -> Matrix:
    rows = Excerpt.ends(_MOST, len(weight))
    labels = [Label(label, rows.places)]
    return _matrix(
        comparison,
        labels,
        Values(weight[rows.places]),
        gaps=rows.gaps,
        rows_left_out=omission(rows, "row"),
    )


def _both_outputs(comparison: Comparison, width: int, most: int) -> Matrix:
    """Return the outputs of both ways; on a terminal, tokens with two lines are fewer."""
    count = len(comparison.tokens)
    outputs = _outputs(comparison, Excerpt.ends(most, count), width)
    is_in_turn = len(outputs.blocks) == 1
    if is_in_turn and most < _MOST_TOKENS:
        half = most // 2
        outputs = _outputs(
            comparison, Excerpt.ends(half if count <= half else half - 1, count), width
        )
    return outputs


def _outputs(comparison: Comparison, rows: Excerpt, width: int) -> Matrix:
    pair = Pair(comparison.embedding[rows.places], comparison.linear[rows.places])
    labels = token_labels(comparison.tokens, rows.places)
    return _both(comparison, labels, pair, rows.gaps, omission(rows, "row"), width)


def _both(
    comparison: Comparison,
    labels: Sequence[Label],
    pair: Pair,
    gaps: Sequence[int],
    missing: str,
    width: int,
) -> Matrix:
    """Return rows of both ways side by side, or in turn if not all columns fit that way."""
    cells = ["0" if value == 0 else f"{value:.1e}" for value in pair.largest.tolist()]
    both, after = (
        [Values(pair.embedding, "embedding"), Values(pair.linear, "linear")],
        [Label("diff", cells)],
    )
    side_by_side = _matrix(
        comparison, labels, *both, gaps=gaps, trailing=after, rows_left_out=missing
    )
    if side_by_side.fits(width):
        return side_by_side
    labels = [
        label._replace(cells=[cell for each in label.texts for cell in (each, "")])
        for label in labels
    ]
    in_turn = _matrix(
        comparison,
        [*labels, Label("", [*OUTPUTS] * len(cells), "left")],
        Values(np.stack([pair.embedding, pair.linear], axis=1).reshape(-1, pair.linear.shape[1])),
        gaps=[2 * gap for gap in gaps],
        trailing=[Label("diff", [cell for each in cells for cell in ("", each)])],
        rows_left_out=missing,
    )
    is_known = {*cells} == {"0"} and not in_turn.fits(width)  # by the verdict
    return replace(in_turn, trailing=[]) if is_known else in_turn


def _why(comparison: Comparison) -> Iterator[Text]:
    """Yield the reason why the outputs are the same, or where and why they differ."""
    verdict = comparison.verdict
    if verdict.place is None:
        if verdict.values:
            yield safe_text(
                "A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID."
            )
        return
    row, column = verdict.place
    own = int(comparison.tokens.ids[row])
    both = f"embedding gives {_number(verdict.left)}, linear {_number(verdict.right)}"
    yield safe_text(f"At token {row} (ID {own}), column {column}: {both}.")
    if verdict.kind in _REASONS:
        yield safe_text(_REASONS[verdict.kind])
    else:
        cause, value = next(
            (cause, _number(value)) for cause, value in verdict.causes if cause != own
        )
        yield safe_text(
            f"Row {cause} of the weight has {value} in column {column}: embedding reads only the row of the ID, "
            f"linear multiplies all others by 0, and 0 · {value} = NaN."
        )


def _drawing(comparison: Comparison, width: int, rows_of_page: int) -> Iterator[RenderableType]:
    """Yield the product of as many tokens as fit: one-hot rows, the rows they multiply, and the sums."""
    (length, dim), size = comparison.linear.shape, len(comparison.weight)
    beside = context_rows(size)
    cells = width - 26 - 2 * NumberFormat([comparison.weight], comparison.style.precision).width
    tokens = Excerpt.ends(max(min(_MOST, cells // 3, rows_of_page // 2), 1), length)
    places, ids = tokens.places.tolist(), comparison.tokens.ids[tokens.places]
    rows = picked_rows(ids, beside)
    one, zero, dots, below = (
        safe_text("1", "strong"),
        safe_text("0", "dim"),
        safe_text("…", "dim"),
        [safe_text("")] * len(ids),
    )
    labels = [
        Label(str(place), [*(one if row == own else zero for row in rows.rows.tolist()), *below])
        for place, own in zip(places, ids.tolist(), strict=True)
    ]
    if tokens.left_out:
        labels.insert(tokens.head, Label("…", [dots] * len(rows.rows) + below, "left"))
    labels.append(Label("", ["×"] * len(rows.rows) + ["="] * len(ids)))  # noqa: RUF001
    labels.append(Label("row", [*rows.rows.tolist(), *(f"pos {place}" for place in places)]))
    if comparison.tokens.encoding is not None:
        labels.append(token_label([None] * len(rows.rows) + comparison.tokens.bytes_of(ids)))
    shapes = f"({length:,}, {size:,}) × ({size:,}, {dim:,})"  # noqa: RUF001
    yield title(f"One-hot rows times the weight = its rows: {shapes}")
    yield safe_text("One column per token: its one-hot row, upright; the 1 selects its row.")
    yield _matrix(
        comparison,
        labels,
        Values(np.concatenate([comparison.weight[rows.rows], comparison.linear[tokens.places]])),
        gaps=rows.gaps,
        tones=[*rows.tones, *["linear"] * len(ids)],
        rows_left_out=omission(tokens, "token"),
    )


def _trace(comparison: Comparison) -> Iterator[RenderableType]:
    size = len(comparison.weight)
    yield title("The product, written out")
    yield safe_text(
        "Each row of the weight times its entry in the token's one-hot row, and the sum of all."
    )
    traced = Excerpt.ends(_MOST, len(comparison.tokens))
    for place in traced.places.tolist():
        own = int(comparison.tokens.ids[place])
        terms = [*range(size)] if size <= _MOST else sorted({0, own, size - 1})
        dots = [
            "… + " if term > before + 1 else ""
            for before, term in zip([-1, *terms], terms, strict=False)
        ]
        formula = " + ".join(
            f"{dot}{int(term == own)}·row{term}" for dot, term in zip(dots, terms, strict=True)
        )
        factors = [
            f"{'+ ' if term else ''}{int(term == own)} ·" for term in terms
        ]  # the first term is 0
        yield ""
        yield title(f"token {place}, ID {own}: {formula} = row{own}")
        yield _matrix(
            comparison,
            [
                Label("factor", [*factors, "="]),
                Label("row", [*(f"row{term}" for term in terms), "sum"], "left"),
            ],
            Values(
                np.concatenate([comparison.weight[terms], comparison.linear[place : place + 1]])
            ),
            tones=["strong" if term == own else "dim" for term in terms],
            rows_left_out=f"{size - len(terms):,} terms, all of them 0 times a row"
            if len(terms) < size
            else "",
        )
    note = left_out(omission(traced, "token"))
    if note is not None:
        yield note


def _training(
    comparison: Comparison, gradient: Gradient, width: int, most: int
) -> Iterator[RenderableType]:
    """Yield the gradients and, after a step of training, each row before it, its gradient, and the row after."""
    training, count = gradient.training, len(gradient.ids)
    pairs: dict[str, Pair] = {"": gradient}
    rows, numbers = Excerpt.ends(most, count), {"ID": gradient.ids, "n": gradient.times}
    if training is not None:
        before = Pair(training.before, training.before)
        pairs = {"row": before, "gradient": gradient, "row after": training}
        rows, numbers = Excerpt.first(_MOST_TRAINED, count), {"ID": gradient.ids}
    empty, dim = [""] * (len(pairs) - 1), gradient.linear.shape[1]
    labels = [
        Label(name, [cell for each in all[rows.places] for cell in (each, *empty)])
        for name, all in numbers.items()
    ]
    if training is not None:
        labels.append(Label("", [*pairs] * len(rows.places), "left"))
    left, right = (
        np.stack([vars(pair)[way][rows.places] for pair in pairs.values()], axis=1).reshape(-1, dim)
        for way in OUTPUTS
    )
    yield title(f"The gradients of both weights, for the loss {gradient.loss}")
    yield safe_text("One row per ID: its gradient is the output itself, summed over its n tokens.")
    missing = omission(rows, "row" if training is None else "ID", gradient.ids)
    yield _both(
        comparison, labels, Pair(left, right), rows.gaps if training is None else (), missing, width
    )
    yield _judgement(gradient.verdict)
    if gradient.verdict.kind == "value":
        order = "Gradients of an ID that occurs several times are summed in another order"
        yield safe_text(f"{order}: they differ by rounding.")
    elif not gradient.verdict.identical:
        yield safe_text("The outputs differ, and so do their gradients.")
    if training is None:
        counts = "{embedding:,} in the embedding, {linear:,} in the linear layer".format(
            **gradient.rows
        )
        yield safe_text(f"Rows with a non-zero gradient: {counts}.")
        return
    size, absent = training.size, training.size - count
    moved = [f"{rows:,} of {size:,} rows" for rows in training.rows.values()]
    yield title(f"After one step of torch.optim.SGD: row - {training.learning_rate:g} · gradient")
    yield _judgement(training.verdict)
    yield safe_text(f"Moved: {moved[0]} in the embedding, {moved[1]} in the linear layer.")
    are = "is" if absent == 1 else "are"
    yield safe_text(f"{counted(absent, 'row')} of {size:,} {are} of tokens that did not occur.")


def _cost_table(cost: dict[str, Any], width: int) -> Table:
    """Return what each way costs; a narrow page has no room for the remarks."""
    of_lookup, of_product = cost["runs"].values()
    several = f"and {of_product} runs" if of_product > 1 else "runs; one run, as it is long"
    one_hot = cost["one_hot_bytes"]
    rows = [
        ("multiply-adds", [f"{each:,}" for each in cost["multiply_adds"].values()], "T·V·D"),
        (
            "weight read",
            [in_bytes(each) for each in cost["weight_bytes_read"].values()],
            "T·D and V·D float32",
        ),
        ("one-hot int64", ["0", in_bytes(one_hot["int64"])], "T·V, as torch makes it"),
        ("one-hot float32", ["0", in_bytes(one_hot["float32"])], "T·V"),
        (
            "time on 1 thread",
            [in_seconds(each) for each in cost["seconds"].values()],
            f"median of {of_lookup} {several}",
        ),
        (
            "  at least",
            [in_seconds(each) for each in cost["least_seconds"].values()],
            "the fastest run",
        ),
    ]
    labels = [
        Label("Cost", [name for name, _, _ in rows], "left"),
        Label("embedding", [ways[0] for _, ways, _ in rows]),
        Label("linear", [ways[1] for _, ways, _ in rows]),
    ]
    if width >= _WIDE_COST:
        labels.append(Label("", [remark for _, _, remark in rows], "left"))
    return ruled(labels)


def _cost_line(cost: dict[str, Any]) -> Text:
    ratio = f"{cost['ratio']:.1f}" if cost["ratio"] < 10 else f"{cost['ratio']:,.0f}"
    zeros = "none"
    if cost["tokens"]:
        zeros = f"{cost['multiplications_by_zero']:,} of {cost['multiply_adds']['linear']:,}"
    slices = cost["slices"]
    saved = f"; computed in {slices:,} slices of tokens to save memory" if slices > 1 else ""
    return safe_text(f"linear: {ratio}x the time; {zeros} are multiplications by zero{saved}.")


def _judgement(verdict: Verdict) -> Text:
    if not verdict.values:
        return safe_text("Nothing to compare: there are no tokens.")
    if verdict.identical:
        return safe_text(
            f"Bit-identical: all {verdict.values:,} values, the largest |difference| is 0.", "good"
        )
    largest = f"the largest |difference| is {_number(verdict.difference)}"
    return safe_text(
        f"Not bit-identical: {verdict.different:,} of {verdict.values:,} values differ, {largest}.",
        "bad",
    )


def _number(value: float | None) -> str:
    """Return a float32 in its shortest decimals."""
    return "NaN" if value is None or math.isnan(value) else str(np.float32(value))

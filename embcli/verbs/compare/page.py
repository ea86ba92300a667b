"""The page of a comparison: its steps, the verdict and the reason for it, and what each way costs.

`Comparison` imports this when it is shown. Everything on the page is in the comparison; a part that
takes tokens or rows shows as many as fit, and says which it leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from embcli.names import OUTPUTS, STEPS, ComparisonStep
from embcli.page import (
    Hint,
    Label,
    Matrix,
    Product,
    Values,
    omission,
    omitted,
    rows_that_fit,
    ruled,
    safe_text,
    title,
)
from embcli.page.labels import (
    first_rows,
    origin_in_words,
    origin_lines,
    picked_rows,
    token_labels,
)
from embcli.page.table import GAP, SHORTEST, least_width
from embcli.records import Document
from embcli.selection import Excerpt
from embcli.verbs.compare import Comparison
from embcli.verbs.compare.pair import Gradient, Pair, Verdict
from embcli.wording import counted, in_bytes

_MOST_TOKENS = 40  # tokens in a table
_FEW = 8  # rows of a weight, tokens of a drawing, and IDs in one line
# Why outputs are the same or differ, by the kind of the most serious difference.
_REASONS = {
    "identical": "A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.",
    "zero sign": (
        "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0."
    ),
    "nan bits": "Both are NaN there; only the bits of the NaN differ.",
    "value": "The sum of linear was rounded.",
    "nan": (
        "Another row of the weight has NaN or infinity in column {column}: embedding reads "
        "only the row of the ID, linear multiplies all others by 0, which makes NaN of either."
    ),
}


def page(comparison: Comparison, console: Console, options: ConsoleOptions) -> RenderResult:
    width = options.max_width
    # A table takes half of the rows that fit: the steps and the verdict need room, too.
    most_rows = rows_that_fit(options, 2 * _MOST_TOKENS) // 2
    yield from _heading(comparison)
    yield from _steps(comparison, width, most_rows)
    if comparison.draw and len(comparison.tokens):
        yield from _drawing(comparison, width, most_rows)
        yield ""
    yield _judgement(comparison.verdict, comparison.gradient)
    if not (comparison.draw and comparison.verdict.identical):  # A drawing shows why.
        yield from _explanation(comparison)

    if comparison.gradient is not None:
        yield from _backward_pass(comparison, comparison.gradient, width, most_rows)

    if "cost" in (comparison.show or ()):
        yield ""
        yield _cost_table(comparison.cost)
        yield _cost_line(comparison.cost)
    elif not comparison.gradient:
        yield _cost_line(comparison.cost)
    if comparison.show is None:
        yield Hint(("show",))
    yield from origin_lines(comparison.origin, "; another V can give other rows")


def _heading(comparison: Comparison) -> RenderResult:
    size, dim = comparison.weight.shape
    sizes = f"T = {len(comparison.tokens):,} (tokens), V = {size:,} (rows), D = {dim:,} (columns)"
    origin = origin_in_words(comparison.origin, "token")
    if not comparison.origin.is_seeded:
        origin += f" ({comparison.origin.dtypes['token']})"
    yield title("Two ways from token IDs to vectors: embedding layer and linear layer")
    if not (comparison.draw and comparison.origin.is_seeded):  # A drawing shows the sizes.
        yield safe_text(f"{sizes}, {origin}")


def _steps(comparison: Comparison, width: int, most_rows: int) -> RenderResult:
    """Yield the steps, each with its title; no table has more than `most_rows` rows."""
    length = len(comparison.tokens)
    size, dim = comparison.weight.shape
    steps = _chosen_steps(comparison)
    for number, step in enumerate(steps, 1):
        place = f"{number}. " if len(steps) > 1 else ""
        match step:
            case "ids":
                yield title(f"{place}The token IDs, (T,) = ({length:,},)")
                tokens = comparison.tokens
                ids = first_rows(tokens.ids, tokens.encoding, _FEW, "  ")
                yield safe_text(ids or "none")
            case "one-hot":
                yield title(f"{place}The one-hot matrix, (T, V) = ({length:,}, {size:,})")
                yield from _one_hot(comparison, width, most_rows)
            case "first":
                shape = f"(D, V) = ({dim:,}, {size:,})"
                yield title(f"{place}The linear layer's own first weights, {shape}")
                bound = 1 / math.sqrt(size)
                drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{bound:.4g}"
                how = "torch.nn.Embedding normal ones: one seed gives other numbers"
                if not comparison.origin.is_seeded:
                    how = (
                        f"here from seed {comparison.run['seed']}; the file's matrix replaces them"
                    )
                yield safe_text(f"{drawn}, {how}.")
                yield _weight(comparison, comparison.first, "D")
            case "shared":
                shape = f"(V, D) = ({size:,}, {dim:,})"
                yield title(f"{place}The shared weight, embedding.weight, {shape}")
                yield safe_text(
                    "Now linear.weight = Parameter(embedding.weight.T), "
                    f"(D, V) = ({dim:,}, {size:,}): each row here is a column of it."
                )
                yield _weight(comparison, comparison.weight, "ID")
            case "outputs":
                yield title(
                    f"{place}The outputs, (T, D) = ({length:,}, {dim:,}): "
                    "row ID of the weight; one-hot row · weight"
                )
                yield _outputs(comparison, width, most_rows)
        yield ""


def _chosen_steps(comparison: Comparison) -> list[ComparisonStep]:
    """Return the steps that the user named.

    Without a name these are the IDs and the outputs, or none if another part was asked for.
    """
    if comparison.show is not None:
        named = {"outputs" if name in OUTPUTS else name for name in comparison.show}
        return [step for step in STEPS if step in named]
    if comparison.draw or comparison.gradient is not None:
        return []
    return ["ids", "outputs"]


def _one_hot(comparison: Comparison, width: int, most_rows: int) -> RenderResult:
    """Yield the one-hot matrix, or where its ones are if not all columns fit."""
    tokens = comparison.tokens
    size = len(comparison.weight)
    yield safe_text(f"One row per token: 1 in the column of its ID, 0 in the other {size - 1:,}.")

    excerpt = Excerpt.ends(most_rows, len(tokens))
    labels = token_labels(tokens, excerpt.places)
    columns = np.arange(min(size, width))  # more columns do not fit
    matrix = [*labels, *_one_hot_columns(comparison, excerpt, columns)]
    if least_width(matrix, SHORTEST) > width:
        places = [f"column {token_id}" for token_id in tokens.ids[excerpt.places].tolist()]
        matrix = [*labels, Label("the 1 is at", places, "left")]
    yield ruled(matrix, gaps=excerpt.gaps)
    yield from omitted(omission(excerpt, "row"))


def _weight(comparison: Comparison, weight: np.ndarray, label: str) -> Matrix:
    excerpt = Excerpt.ends(_FEW, len(weight))
    return _matrix(
        comparison,
        [Label(label, excerpt.places)],
        [Values(weight[excerpt.places])],
        **_left_out(excerpt),
    )


def _left_out(excerpt: Excerpt) -> dict[str, Any]:
    """Return what a matrix says of the rows that it leaves out."""
    return {"gaps": excerpt.gaps, "rows_left_out": omission(excerpt, "row")}


def _matrix(
    comparison: Comparison, labels: Sequence[Label], blocks: Sequence[Values], **options: Any
) -> Matrix:
    """Return a matrix of all D columns in the style of the page; the options are Matrix's own."""
    columns = np.arange(blocks[0].values.shape[1])
    return Matrix(labels, blocks, columns, **comparison.style.of_numbers, **options)


def _outputs(comparison: Comparison, width: int, most_rows: int) -> Matrix:
    for most_tokens in (most_rows, most_rows // 2):  # A token takes a line, or two.
        excerpt = Excerpt.ends(most_tokens, len(comparison.tokens))
        places = excerpt.places
        pair = Pair(comparison.embedding[places], comparison.linear[places])
        labels = token_labels(comparison.tokens, places)
        table = _pair_table(comparison, pair, labels, width, **_left_out(excerpt))
        if len(table.blocks) == 2:  # They are side by side.
            break
    return table


def _pair_table(
    comparison: Comparison, pair: Pair, labels: Sequence[Label], width: int, **options: Any
) -> Matrix:
    """Return rows of both ways, with the largest difference of each row if there are any."""
    blocks = [Values(pair.embedding, "embedding"), Values(pair.linear, "linear")]
    if not pair.verdict.identical:
        differences = [f"{value:.1e}" for value in pair.largest.tolist()]
        options["trailing"] = [Label("diff", differences)]
    return _two_blocks(_matrix(comparison, labels, blocks, **options), width)


def _two_blocks(side_by_side: Matrix, width: int) -> Matrix:
    """Return two blocks side by side, or their rows in turn if not all columns fit that way."""
    if side_by_side.fits(width):
        return side_by_side
    blocks = side_by_side.blocks
    rows = _interleaved([block.values for block in blocks])
    names = [block.title for block in blocks] * (len(rows) // 2)
    labels = [label.spread(2) for label in side_by_side.labels]
    labels.append(Label("", names, "left"))
    trailing = [label.spread(2, line=1) for label in side_by_side.trailing]
    return replace(
        side_by_side,
        labels=labels,
        blocks=[Values(rows)],
        gaps=[2 * gap for gap in side_by_side.gaps],
        trailing=trailing,
    )


def _interleaved(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of matrices, (n, D) each, in turn: the first of each, then the second."""
    return np.stack(matrices, axis=1).reshape(-1, matrices[0].shape[1])


def _judgement(verdict: Verdict, gradient: Gradient | None = None) -> Text:
    if not verdict.values:
        return safe_text("Nothing to compare: there are no tokens.")
    if verdict.identical:
        identical = f"Bit-identical: all {counted(verdict.values, 'value')}"
        if gradient is not None and gradient.verdict.identical:
            identical += " and gradients"
        return safe_text(f"{identical}, the largest |difference| is 0.", "good")
    return safe_text(
        f"Not bit-identical: {verdict.in_words}, "
        f"the largest |difference| is {_number(verdict.difference)}.",
        "bad",
    )


def _number(value: float) -> str:
    """Return a float32 in its shortest decimals."""
    if math.isnan(value):
        return "NaN"
    return str(np.float32(value))


def _explanation(comparison: Comparison) -> RenderResult:
    """Yield the reason why the outputs are the same, or where and why they differ."""
    verdict = comparison.verdict
    if verdict.place is None:
        if verdict.values and comparison.gradient is None:
            yield safe_text(_REASONS[verdict.kind])
        return
    row, column, embedding, linear = verdict.place
    both = f"embedding gives {_number(embedding)}, linear {_number(linear)}"
    yield safe_text(f"At token {row} (ID {comparison.tokens.ids[row]}), column {column}: {both}.")
    yield safe_text(_REASONS[verdict.kind].format(column=column))


def _drawing(comparison: Comparison, width: int, most_rows: int) -> RenderResult:
    """Yield the matrices of the product: one-hot rows, the weight, and the outputs.

    A large weight is drawn without the rows that no ID picks, and one-hot without their columns.
    """
    length, dim = comparison.linear.shape
    size = len(comparison.weight)
    labels = 24  # cells of a position, a token and an ID
    columns = (width - labels) // (len(str(size)) + GAP)
    tokens = Excerpt.ends(max(min(_FEW, columns, most_rows * 2 // 3), 1), length)
    context = np.arange(size if size <= _FEW else 0)
    picked = picked_rows(comparison.tokens.ids[tokens.places], context)
    rows = picked.rows
    token_cells = token_labels(comparison.tokens, tokens.places)
    one_hot = ruled([*token_cells, *_one_hot_columns(comparison, tokens, rows)], gaps=tokens.gaps)
    values = [comparison.weight[rows], comparison.linear[tokens.places]]
    weight = _matrix(
        comparison,
        [Label("ID", rows)],
        [Values(values[0])],
        row_styles=picked.row_styles,
        alike=values,
    )
    output = _matrix(
        comparison,
        token_cells[-1:],
        [Values(values[1])],
        gaps=tokens.gaps,
        column="",
        alike=values,
    )
    yield Product(
        [
            [title(f"One-hot, (T, V) = ({length:,}, {size:,})"), one_hot],
            [title(f"× weight, (V, D) = ({size:,}, {dim:,})"), weight],  # noqa: RUF001
            [title(f"= output, (T, D) = ({length:,}, {dim:,})"), output],
        ]
    )
    unpicked = ""
    if len(rows) < size:
        unpicked = f"{size - len(rows):,} columns of zeros and their rows"
    yield from omitted(omission(tokens, "token"), unpicked)


def _one_hot_columns(comparison: Comparison, tokens: Excerpt, rows: np.ndarray) -> list[Label]:
    """Return the columns of one-hot rows; a 1 is as bold as the row that it picks."""
    zero = safe_text("0", "dim")
    one = safe_text("1", "strong")
    ids = comparison.tokens.ids[tokens.places].tolist()
    labels = []
    for row in rows.tolist():
        entries = [one if token_id == row else zero for token_id in ids]
        labels.append(Label(str(row), entries))
    return labels


def _backward_pass(
    comparison: Comparison, gradient: Gradient, width: int, most_rows: int
) -> RenderResult:
    """Yield the gradients of both weights, and what a step of training makes of the weights."""
    training = gradient.training
    loss = _number(gradient.loss)
    if training is not None:
        loss = f"{loss} before the step, {_number(training.loss)} after it"
    yield title(f"The target, torch.randn{gradient.target.shape}, drawn right after the embedding")
    yield from _targets(comparison, gradient, loss, width)
    if comparison.style.bare:  # The loss is not between the tables.
        yield ""
    yield title("Gradients: 2 / (T · D) · (output - target), summed over the n tokens of an ID")
    yield _gradient_table(comparison, gradient, width, most_rows)

    if not gradient.verdict.identical:
        yield _judgement(gradient.verdict)
        reason = "The outputs differ, and so do their gradients."
        if gradient.verdict.kind == "value":
            reason = (
                "Gradients of an ID that occurs several times are summed in another order: "
                "they differ by rounding."
            )
        yield safe_text(reason)

    if training is not None:
        yield ""
        step = f"row - {training.learning_rate:g} · gradient"
        yield title(f"After one step of torch.optim.SGD: {step}")
        if not training.verdict.identical:
            yield _judgement(training.verdict)
        yield safe_text(f"Moved, of {counted(training.size, 'row')}: {_by_layer(training.rows)}.")
        if training.loss > gradient.loss:
            yield safe_text("The loss rose: this learning rate is too large for it to fall.")
        return
    yield safe_text(f"Rows with a non-zero gradient: {_by_layer(gradient.rows)}.")


def _by_layer(rows: Mapping[str, int]) -> str:
    return f"{rows['embedding']:,} in the embedding, {rows['linear']:,} in the linear layer"


def _targets(comparison: Comparison, gradient: Gradient, loss: str, width: int) -> RenderResult:
    """Yield the output and the target of each token, and the loss."""
    target = gradient.target
    excerpt = Excerpt.ends(_FEW, len(target))
    places = excerpt.places
    labels = [Label("pos", places), Label("ID", comparison.tokens.ids[places])]
    blocks = [Values(comparison.embedding[places], "output"), Values(target[places], "target")]
    yield _two_blocks(_matrix(comparison, labels, blocks, **_left_out(excerpt)), width)
    yield safe_text(f"Loss, mean((output - target)²): {loss}")


def _gradient_table(
    comparison: Comparison, gradient: Gradient, width: int, most_rows: int
) -> Matrix:
    """Return the gradients of IDs; after a step, their rows before and after it, too."""
    lines: dict[str, Pair] = {"": gradient}  # of an ID
    training = gradient.training
    if training is not None:
        most_rows = 4
        before = Pair(training.before, training.before)
        lines = {"row": before, "grad": gradient, "new row": training}
    excerpt = Excerpt.ends(most_rows, len(gradient.ids))
    places = excerpt.places
    pair = Pair(
        _interleaved([line.embedding[places] for line in lines.values()]),
        _interleaved([line.linear[places] for line in lines.values()]),
    )
    labels = [
        Label("ID", gradient.ids[places]).spread(len(lines)),
        Label("n", gradient.times[places]).spread(len(lines)),
    ]
    if training is not None:
        labels.append(Label("", [*lines] * len(places), "left"))
    gaps = [len(lines) * gap for gap in excerpt.gaps]
    missing = omission(excerpt, "ID", gradient.ids)
    left_out = {"gaps": gaps, "rows_left_out": missing}
    table = _pair_table(comparison, pair, labels, width, **left_out)
    if len(table.blocks) == 1 and pair.verdict.identical:  # Each row would be there twice.
        return _matrix(comparison, labels, [Values(pair.embedding)], **left_out)
    return table


def _cost_table(cost: Document) -> Table:
    """Return what each way costs; a lookup makes no one-hot matrix."""
    read = cost["weight_bytes_read"]
    made = cost["one_hot_bytes"]
    nothing = in_bytes(0)
    adds = f"{cost['multiply_adds']['linear']:,}"
    rows = [
        ("multiply-adds, T·V·D", "0", adds),
        ("weight read, T·D or V·D float32", in_bytes(read["embedding"]), in_bytes(read["linear"])),
        ("one-hot int64, T·V, as torch makes it", nothing, in_bytes(made["int64"])),
        ("one-hot float32, T·V", nothing, in_bytes(made["float32"])),
    ]
    what, embedding, linear = zip(*rows, strict=True)
    return ruled(
        [
            Label("Cost", what, "left", short=True),
            Label("embedding", embedding),
            Label("linear", linear),
        ]
    )


def _cost_line(cost: Document) -> Text:
    products = cost["multiply_adds"]["linear"]
    zeros = cost["multiplications_by_zero"]
    return safe_text(f"linear: {zeros:,} of {products:,} multiply-adds multiply by zero.")

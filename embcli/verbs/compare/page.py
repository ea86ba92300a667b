"""The page of a comparison: its steps, the outputs, the verdict and the reason, and what each way costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from embcli.names import OUTPUTS, STEPS
from embcli.page import Label, LeftOut, Matrix, NumberFormat, Values, left_out, ruled, title, words
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.compare.pair import Gradient, Pair, Verdict
from embcli.verbs.lookup import rows_beside
from embcli.verbs.parts import origin_in_words, origin_lines, picked_rows, token_label, token_labels
from embcli.words import counted, in_bytes, in_seconds

if TYPE_CHECKING:
    from embcli.verbs.compare import Comparison

_IMPORTANCE = ("outputs", "ids", "one-hot", "shared", "first")  # the steps, the most important first
_WIDE_COST, _NARROW_COST = 90, 50  # cells from which the cost has all its columns, and below which a row is split
_MOST_TOKENS, _MOST_IDS, _MOST_TRAINED = 40, 12, 4  # tokens in a table, IDs in one line, and IDs after a step
_MOST = 8  # rows of a weight, tokens of a drawing, and tokens and terms that are written out
_REASONS = {
    "value": "The sum of linear was rounded.",
    "nan bits": "Both are NaN there; only the bits of the NaN differ.",
    "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
}


class Part(NamedTuple):
    """A part of the page. Those of rank 0 are always shown, others while there is room, those of a low rank first."""

    lines: Sequence[RenderableType]
    rank: int = 0
    name: str = ""
    title: str = ""  # of a step; it gets a number, and a blank line before it


def page(comparison: Comparison, console: Console, options: ConsoleOptions) -> RenderResult:
    """Yield the page, with the steps that `show` names or those that fit on the screen."""
    screen = options.max_height if console.is_terminal and not console.record else math.inf
    parts = [*_parts(comparison, options.max_width, screen, console.record)]
    lines, fit = screen - 3, []  # without what is not shown, suggestions and the prompt
    for part in sorted(parts, key=lambda part: part.rank):
        lines -= len(console.render_lines(Group(*part.lines), options, pad=False)) + (2 if part.title else 0)
        if part.rank and lines < 0:
            break
        fit.append(part.name)
    steps = [part.name for part in parts if part.title and part.name in fit]
    for part in parts:
        if part.name not in fit:
            continue
        if part.title:
            yield from [""] * (part.name != steps[0])
            yield title(f"{steps.index(part.name) + 1}. {part.title}" if len(steps) > 1 else part.title)
        elif part.name == "verdict" and len(fit) == len(parts) and not comparison.style.bare:
            yield ""
        yield from part.lines
    if missing := ", ".join(part.name for part in parts if part.name not in fit):
        yield LeftOut(f"Not shown (no room): {missing}", "show")


def _parts(comparison: Comparison, width: int, screen: float, is_picture: bool) -> Iterator[Part]:
    """Yield the parts in their order on the page; a drawing in a picture stands alone, without steps and costs."""
    asked = comparison.draw or comparison.trace or comparison.gradient is not None
    length, size, dim = (f"{each:,}" for each in (len(comparison.tokens), *comparison.weight.shape))
    dtype = "" if comparison.origin.is_seeded else f" ({comparison.origin.dtypes['token']})"
    sizes = f"T = {length} (tokens), V = {size} (rows), D = {dim} (columns)"
    heading = title("Two ways from token IDs to vectors: embedding layer and linear layer")
    yield Part([heading, words(f"{sizes}, {origin_in_words(comparison.origin, 'token')}{dtype}")])
    titles = {
        "ids": f"The token IDs, (T,) = ({length},)",
        "one-hot": f"The one-hot matrix, (T, V) = ({length}, {size})",
        "first": f"The linear layer's own first weights, (D, V) = ({dim}, {size})",
        "shared": f"The shared weight, embedding.weight, (V, D) = ({size}, {dim})",
        "outputs": f"The outputs, (T, D) = ({length}, {dim}): row ID of the weight; one-hot row · weight",
    }
    show = () if comparison.show is None and is_picture and comparison.draw else comparison.show
    named = None if show is None else ["outputs" if each in OUTPUTS else each for each in show]
    for name in STEPS if named is None else [step for step in STEPS if step in named]:
        rank = 0 if named or (name == "outputs" and not asked) else 2 + _IMPORTANCE.index(name)
        yield Part([*_step(comparison, name, width)], rank, name, titles[name])
    yield Part([_judgement(comparison.verdict)], 0, "verdict")
    yield Part([*_why(comparison)], int(comparison.verdict.identical), "the reason")
    if comparison.draw and len(comparison.tokens):
        yield Part(["", *_drawing(comparison, width, screen)], name="drawing")
    if comparison.trace:
        yield Part(["", *_trace(comparison)], name="trace")
    if comparison.gradient is not None:
        yield Part(["", *_training(comparison, comparison.gradient, width)], name="gradient")
    if "cost" in (show or ()) or not (is_picture or comparison.style.bare):
        rank = 0 if "cost" in (show or ()) else 2 + len(_IMPORTANCE)
        table, saved = _costs(comparison, width)
        yield Part(["", table, saved] if asked else [table], rank, "the cost")
        yield Part([] if asked else [saved], name="zeros")
    yield Part([*origin_lines(comparison.origin)], name="origin")


def _matrix(comparison: Comparison, labels: Sequence[Label], *blocks: Values, **more: Any) -> Matrix:
    numbers = np.arange(blocks[0].values.shape[1])
    return Matrix(labels, blocks, numbers, precision=comparison.style.precision, heat=comparison.style.heat, **more)


def _step(comparison: Comparison, name: str, width: int) -> Iterator[RenderableType]:
    tokens, (size, dim) = comparison.tokens, comparison.weight.shape
    rows = Excerpt.ends(_MOST_TOKENS, len(tokens))
    ids, missing = tokens.ids[rows.places], rows.missing("row")
    if name == "ids":
        rows = Excerpt.ends(_MOST_IDS, len(tokens))
        ids = tokens.ids[rows.places]
        pairs = zip(ids.tolist(), tokens.bytes_of(ids), strict=True)
        named = [str(number) if token is None else f"{number} ({shown(token)})" for number, token in pairs]
        if rows.left_out:
            named.insert(rows.head, f"… {rows.left_out:,} more …")
        yield Group(words("  ".join(named) or "none"))
    elif name == "one-hot":
        yield words(f"One row per token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
        labels, columns = token_labels(tokens, rows.places), np.arange(min(size, width))
        values = Values((ids[:, None] == columns).astype(np.float32))
        matrix = Matrix(labels, [values], columns, rows.gaps, precision=0, rows_left_out=missing)
        if matrix.fits(width):
            yield matrix
        else:
            labels.append(Label("the 1 is at", [f"column {each}" for each in ids.tolist()], "left"))
            yield ruled(labels, gaps=rows.gaps)
            note = left_out(missing)
            if note is not None:
                yield note
    elif name == "outputs":
        pair = Pair(comparison.embedding[rows.places], comparison.linear[rows.places])
        yield _both(comparison, token_labels(tokens, rows.places), pair, rows.gaps, missing, width)
    else:
        weight, label = (comparison.first, "D") if name == "first" else (comparison.weight, "ID")
        drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{1 / math.sqrt(size):.4g}"
        if name == "shared":
            drawn = f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,})"
            yield words(f"{drawn}: each row here is a column of it.")
        elif comparison.origin.is_seeded:
            yield words(f"{drawn}, torch.nn.Embedding normal ones: one seed gives other numbers.")
        else:
            yield words(f"{drawn}, here from seed {comparison.run['seed']}; the file's matrix replaces them.")
        rows = Excerpt.ends(_MOST, len(weight))
        labels, missing = [Label(label, rows.places)], rows.missing("row")
        yield _matrix(comparison, labels, Values(weight[rows.places]), gaps=rows.gaps, rows_left_out=missing)


def _both(
    comparison: Comparison, labels: Sequence[Label], pair: Pair, gaps: Sequence[int], missing: str, width: int
) -> Matrix:
    """Return rows of both ways side by side, or in turn if not all columns fit that way."""
    cells = ["0" if value == 0 else f"{value:.1e}" for value in pair.largest.tolist()]
    both, after = [Values(pair.embedding, "embedding"), Values(pair.linear, "linear")], [Label("diff", cells)]
    side_by_side = _matrix(comparison, labels, *both, gaps=gaps, after=after, rows_left_out=missing)
    if side_by_side.fits(width):
        return side_by_side
    labels = [label._replace(cells=[cell for each in label.texts for cell in (each, "")]) for label in labels]
    in_turn = _matrix(
        comparison,
        [*labels, Label("", [*OUTPUTS] * len(cells), "left")],
        Values(np.stack([pair.embedding, pair.linear], axis=1).reshape(-1, pair.linear.shape[1])),
        gaps=[2 * gap for gap in gaps],
        after=[Label("diff", [cell for each in cells for cell in ("", each)])],
        rows_left_out=missing,
    )
    is_known = {*cells} == {"0"} and not in_turn.fits(width)  # by the verdict
    return replace(in_turn, after=[]) if is_known else in_turn


def _why(comparison: Comparison) -> Iterator[Text]:
    """Yield the reason why the outputs are the same, or where and why they differ."""
    verdict = comparison.verdict
    if verdict.place is None:
        if verdict.values:
            yield words("A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.")
        return
    row, column = verdict.place
    own = int(comparison.tokens.ids[row])
    both = f"embedding gives {_number(verdict.left)}, linear {_number(verdict.right)}"
    yield words(f"At token {row} (ID {own}), column {column}: {both}.")
    if verdict.kind in _REASONS:
        yield words(_REASONS[verdict.kind])
    else:
        cause, value = next((cause, _number(value)) for cause, value in verdict.causes if cause != own)
        yield words(
            f"Row {cause} of the weight has {value} in column {column}: embedding reads only the row of the ID, "
            f"linear multiplies all others by 0, and 0 · {value} = NaN."
        )


def _drawing(comparison: Comparison, width: int, screen: float) -> Iterator[RenderableType]:
    """Yield the product of as many tokens as fit: one-hot rows, the rows they multiply, and the sums."""
    (length, dim), size = comparison.linear.shape, len(comparison.weight)
    beside = rows_beside(size)
    lines = screen - 14 - len(beside)  # without the other parts, and the lines around the rows
    most = lines // (1 if len(beside) == size else 2)  # a token has a line of its sum, and one of a row not beside
    cells = width - 26 - 2 * NumberFormat([comparison.weight], comparison.style.precision).width
    tokens = Excerpt.ends(int(max(min(_MOST, cells // 3, most), 1)), length)
    places, ids = tokens.places.tolist(), comparison.tokens.ids[tokens.places]
    rows = picked_rows(ids, beside)
    one, zero, dots, below = words("1", "strong"), words("0", "dim"), words("…", "dim"), [words("")] * len(ids)
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
    yield title(f"One-hot rows times the weight = its rows: ({length:,}, {size:,}) × ({size:,}, {dim:,})")  # noqa: RUF001
    yield words("One column per token: its one-hot row, upright; the 1 selects its row.")
    yield _matrix(
        comparison,
        labels,
        Values(np.concatenate([comparison.weight[rows.rows], comparison.linear[tokens.places]])),
        gaps=rows.gaps if screen == math.inf else (),
        tones=[*rows.tones, *["linear"] * len(ids)],
        rows_left_out=tokens.missing("token"),
    )


def _trace(comparison: Comparison) -> Iterator[RenderableType]:
    size = len(comparison.weight)
    yield title("The product, written out")
    yield words("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
    traced = Excerpt.ends(_MOST, len(comparison.tokens))
    for place in traced.places.tolist():
        own = int(comparison.tokens.ids[place])
        terms = [*range(size)] if size <= _MOST else sorted({0, own, size - 1})
        dots = ["… + " if term > before + 1 else "" for before, term in zip([-1, *terms], terms, strict=False)]
        formula = " + ".join(f"{dot}{int(term == own)}·row{term}" for dot, term in zip(dots, terms, strict=True))
        factors = [f"{'+ ' if term else ''}{int(term == own)} ·" for term in terms]  # the first term is 0
        yield ""
        yield title(f"token {place}, ID {own}: {formula} = row{own}")
        yield _matrix(
            comparison,
            [Label("factor", [*factors, "="]), Label("row", [*(f"row{term}" for term in terms), "sum"], "left")],
            Values(np.concatenate([comparison.weight[terms], comparison.linear[place : place + 1]])),
            tones=["strong" if term == own else "dim" for term in terms],
            rows_left_out=f"{size - len(terms):,} terms, all of them 0 times a row" if len(terms) < size else "",
        )
    note = left_out(traced.missing("token"))
    if note is not None:
        yield note


def _training(comparison: Comparison, gradient: Gradient, width: int) -> Iterator[RenderableType]:
    """Yield the gradients and, after a step of training, each row before it, its gradient, and the row after."""
    training, count = gradient.training, len(gradient.ids)
    pairs: dict[str, Pair] = {"": gradient}
    rows, numbers = Excerpt.ends(_MOST_TOKENS, count), {"ID": gradient.ids, "n": gradient.times}
    if training is not None:
        before = Pair(training.before, training.before)
        pairs = {"row": before, "gradient": gradient, "row after": training}
        rows, numbers = Excerpt.first(_MOST_TRAINED, count), {"ID": gradient.ids}
    empty, dim = [""] * (len(pairs) - 1), gradient.linear.shape[1]
    labels = [
        Label(name, [cell for each in all[rows.places] for cell in (each, *empty)]) for name, all in numbers.items()
    ]
    if training is not None:
        labels.append(Label("", [*pairs] * len(rows.places), "left"))
    left, right = (
        np.stack([vars(pair)[way][rows.places] for pair in pairs.values()], axis=1).reshape(-1, dim) for way in OUTPUTS
    )
    yield title(f"The gradients of both weights, for the loss {gradient.loss}")
    yield words("One row per ID: its gradient is the output itself, summed over its n tokens.")
    missing = rows.missing("row" if training is None else "ID", gradient.ids)
    yield _both(comparison, labels, Pair(left, right), rows.gaps if training is None else (), missing, width)
    yield _judgement(gradient.verdict)
    if gradient.verdict.kind == "value":
        order = "Gradients of an ID that occurs several times are summed in another order"
        yield words(f"{order}: they differ by rounding.")
    elif not gradient.verdict.identical:
        yield words("The outputs differ, and so do their gradients.")
    if training is None:
        counts = "{embedding:,} in the embedding, {linear:,} in the linear layer".format(**gradient.rows)
        yield words(f"Rows with a non-zero gradient: {counts}.")
        return
    size, absent = training.size, training.size - count
    moved = [f"{rows:,} of {size:,} rows" for rows in training.rows.values()]
    yield title(f"After one step of torch.optim.SGD: row - {training.learning_rate:g} · gradient")
    yield _judgement(training.verdict)
    yield words(f"Moved: {moved[0]} in the embedding, {moved[1]} in the linear layer.")
    are = "is" if absent == 1 else "are"
    yield words(f"{counted(absent, 'row')} of {size:,} {are} of tokens that did not occur.")


def _costs(comparison: Comparison, width: int) -> tuple[RenderableType, Text]:
    cost = comparison.cost
    of_lookup, of_product = cost["runs"].values()
    several = f"and {of_product} runs" if of_product > 1 else "runs; one run, as it is long"
    sizes = [*map(in_bytes, cost["one_hot_bytes"].values())]
    one_hot = {"one-hot matrix": (["0", " + ".join(sizes)], "T·V int64, as torch makes it, and float32")}
    if width < _NARROW_COST:
        one_hot = {f"one-hot {name}": (["0", in_bytes(size)], "") for name, size in cost["one_hot_bytes"].items()}
    rows = {
        "multiply-adds": ([f"{each:,}" for each in cost["multiply_adds"].values()], "T·V·D"),
        "weight read": ([*map(in_bytes, cost["weight_bytes_read"].values())], "T·D and V·D float32"),
        **one_hot,
        "time on 1 thread": ([*map(in_seconds, cost["seconds"].values())], f"median of {of_lookup} {several}"),
    }
    is_wide = width >= _WIDE_COST
    if is_wide:  # a narrow screen is low, too
        rows["  at least"] = [*map(in_seconds, cost["least_seconds"].values())], "the fastest run"
    space = "" if is_wide else " "  # without a rule, columns are one cell apart
    labels = [
        Label("Cost", [*rows], "left"),
        Label("embedding", [left for (left, _), _ in rows.values()]),
        Label("linear", [space + right for (_, right), _ in rows.values()]),
        Label("", [formula for _, formula in rows.values()], "left"),
    ]
    table = ruled(labels if is_wide else labels[:3], has_rule=is_wide)
    ratio = f"{cost['ratio']:.1f}" if cost["ratio"] < 10 else f"{cost['ratio']:,.0f}"
    zeros, slices = f"{cost['multiplications_by_zero']:,} of {cost['multiply_adds']['linear']:,}", cost["slices"]
    saved = f"; computed in {slices:,} slices of tokens to save memory" if slices > 1 else ""
    zeros = zeros if cost["tokens"] else "none"
    return table, words(f"linear: {ratio}x the time; {zeros} are multiplications by zero{saved}.")


def _judgement(verdict: Verdict) -> Text:
    if not verdict.values:
        return words("Nothing to compare: there are no tokens.")
    if verdict.identical:
        return words(f"Bit-identical: all {verdict.values:,} values, the largest |difference| is 0.", "good")
    largest = f"the largest |difference| is {_number(verdict.difference)}"
    return words(f"Not bit-identical: {verdict.different:,} of {verdict.values:,} values differ, {largest}.", "bad")


def _number(value: float | None) -> str:
    """Return a float32 in its shortest decimals."""
    return "NaN" if value is None or math.isnan(value) else str(np.float32(value))

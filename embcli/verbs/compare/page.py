"""How a comparison looks: the steps of both ways, their outputs side by side, the verdict, and the cost of each way."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from embcli.names import OUTPUTS, STEPS
from embcli.page import Label, Matrix, NumberFormat, Values, left_out, ruled, title, words
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.compare.result import Compared, Gradient, Verdict, largest_by_row
from embcli.verbs.lookup import rows_beside
from embcli.verbs.parts import PickedRows, origin_in_words, origin_lines, token_labels
from embcli.words import counted, in_bytes, in_seconds

_IMPORTANCE = ("outputs", "ids", "one-hot", "shared", "first")  # the steps, the most important first
_WIDE_COST, _NARROW_COST = 90, 50  # cells from which the cost has all its columns, and below which a row is split
_MOST_TOKENS, _MOST_IDS, _MOST_TRAINED = 40, 12, 4  # tokens in a table, IDs in one line, and IDs after a step
_MOST = 8  # rows of a weight, tokens of a drawing, and tokens and terms that are written out


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the page. Those of rank 0 are always shown, others while there is room, those of a low rank first."""

    lines: Sequence[RenderableType]
    rank: int = 0
    name: str = ""
    title: str = ""  # of a step; it gets a number, and a blank line before it


def fitting(parts: Sequence[Part], console: Console, options: ConsoleOptions, lines: float) -> list[Part]:
    """Return the parts that fit into some lines of a console, in their order."""
    fit = []
    for part in sorted(parts, key=lambda part: part.rank):
        lines -= len(console.render_lines(Group(*part.lines), options, pad=False)) + (2 if part.title else 0)
        if part.rank and lines < 0:
            break
        fit.append(part)
    return [part for part in parts if part in fit]


def page(result: Compared, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
    """Yield the page, with the steps that `show` names or those that fit on the screen."""
    screen = console.height if console.is_terminal and not console.record else math.inf
    parts = [*_Parts(result, options.max_width, screen).all()]
    fit = fitting(parts, console, options, screen - 3)  # without what is not shown, suggestions and the prompt
    numbered = [part for part in fit if part.title]
    for part in fit:
        if part.title:
            yield from [""] * (part is not numbered[0])
            yield title(f"{numbered.index(part) + 1}. {part.title}" if len(numbered) > 1 else part.title)
        elif part.name == "verdict" and len(fit) == len(parts):
            yield ""
        yield from part.lines
    if missing := ", ".join(part.name for part in parts if part not in fit):
        yield words(f"Not shown (no room): {missing}")


@dataclass(frozen=True, eq=False)
class _Parts:
    result: Compared
    width: int
    screen: float  # lines

    def all(self) -> Iterator[Part]:
        """Yield the parts in their order on the page."""
        result = self.result
        asked = result.draw or result.trace or result.gradient is not None
        length, size, dim = (f"{each:,}" for each in (len(result.tokens), *result.weight.shape))
        dtype = "" if result.origin.is_seeded else f" ({result.origin.dtypes['token']})"
        sizes = f"T = {length} (tokens), V = {size} (rows), D = {dim} (columns)"
        heading = title("Two ways from token IDs to vectors: embedding layer and linear layer")
        yield Part([heading, words(f"{sizes}, {origin_in_words(result.origin, 'token')}{dtype}")])
        outputs = f"The outputs, (T, D) = ({length}, {dim}): row ID of the weight; one-hot row · weight"
        steps = {
            "ids": (f"The token IDs, (T,) = ({length},)", self.ids),
            "one-hot": (f"The one-hot matrix, (T, V) = ({length}, {size})", self.one_hot),
            "first": (f"The linear layer's own first weights, (D, V) = ({dim}, {size})", self.first),
            "shared": (f"The shared weight, embedding.weight, (V, D) = ({size}, {dim})", self.shared),
            "outputs": (outputs, self.outputs),
        }
        named = None if result.show is None else ["outputs" if each in OUTPUTS else each for each in result.show]
        for name in STEPS if named is None else [step for step in STEPS if step in named]:
            rank = 0 if named or (name == "outputs" and not asked) else 2 + _IMPORTANCE.index(name)
            yield Part([*steps[name][1]()], rank, name, steps[name][0])
        yield Part([_judgement(result.verdict)], 0, "verdict")
        yield Part([*_why(result)], int(result.verdict.identical), "the reason")
        if result.draw and len(result.tokens):
            yield Part(["", *self.drawing()])
        if result.trace:
            yield Part(["", *self.trace()])
        if result.gradient is not None:
            yield Part(["", *self.gradient(result.gradient)])
        yield Part([""] * asked + [*_cost(result.cost, self.width)], int(asked), "the cost")
        yield Part([*origin_lines(result.origin)])

    def matrix(self, labels: Sequence[Label], *blocks: Values, **more: Any) -> Matrix:
        style, numbers = self.result.style, np.arange(blocks[0].values.shape[1])
        return Matrix(labels, blocks, numbers, precision=style.precision, heat=style.heat, **more)

    def ids(self) -> Iterator[RenderableType]:
        tokens = self.result.tokens
        excerpt = Excerpt.ends(_MOST_IDS, len(tokens))
        ids = tokens.ids[excerpt.places]
        pairs = zip(ids.tolist(), tokens.bytes_of(ids), strict=True)
        named = [str(number) if token is None else f"{number} ({shown(token)})" for number, token in pairs]
        if excerpt.left_out:
            named.insert(excerpt.head, f"… {excerpt.left_out:,} more …")
        yield words("  ".join(named) or "none")

    def one_hot(self) -> Iterator[RenderableType]:
        tokens, size = self.result.tokens, len(self.result.weight)
        rows = Excerpt.ends(_MOST_TOKENS, len(tokens))
        labels, ids, missing = token_labels(tokens, rows.places), tokens.ids[rows.places], rows.missing("row")
        columns = np.arange(min(size, self.width))
        values = Values((ids[:, None] == columns).astype(np.float32))
        matrix = Matrix(labels, [values], columns, rows.gaps, precision=0, rows_left_out=missing)
        yield words(f"One row per token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
        if matrix.fits(self.width):
            yield matrix
            return
        yield ruled(
            [*labels, Label("the 1 is at", [f"column {each}" for each in ids.tolist()], "left")], gaps=rows.gaps
        )
        yield from _left_out(missing)

    def first(self) -> Iterator[RenderableType]:
        drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{1 / math.sqrt(len(self.result.weight)):.4g}"
        if self.result.origin.is_seeded:
            yield words(f"{drawn}, torch.nn.Embedding normal ones: one seed gives other numbers.")
        else:
            yield words(f"{drawn}, here from seed {self.result.run['seed']}; the file's matrix replaces them.")
        yield self.weight(self.result.first, "D")

    def shared(self) -> Iterator[RenderableType]:
        shape = "({1:,}, {0:,})".format(*self.result.weight.shape)
        yield words(
            f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = {shape}: each row here is a column of it."
        )
        yield self.weight(self.result.weight, "ID")

    def weight(self, values: np.ndarray, label: str) -> Matrix:
        rows = Excerpt.ends(_MOST, len(values))
        values, labels = values[rows.places], [Label(label, rows.places)]
        return self.matrix(labels, Values(values), gaps=rows.gaps, rows_left_out=rows.missing("row"))

    def outputs(self) -> Iterator[RenderableType]:
        rows = Excerpt.ends(_MOST_TOKENS, len(self.result.tokens))
        left, right = self.result.embedding[rows.places], self.result.linear[rows.places]
        yield self.both(token_labels(self.result.tokens, rows.places), left, right, rows.gaps, rows.missing("row"))

    def both(
        self, labels: Sequence[Label], left: np.ndarray, right: np.ndarray, gaps: Sequence[int], missing: str
    ) -> Matrix:
        """Return rows of both ways side by side, or in turn if not all columns fit that way."""
        cells = ["0" if value == 0 else f"{value:.1e}" for value in largest_by_row(left, right).tolist()]
        more: dict[str, Any] = {"gaps": gaps, "after": [Label("diff", cells)], "rows_left_out": missing}
        side_by_side = self.matrix(labels, Values(left, "embedding"), Values(right, "linear"), **more)
        if side_by_side.fits(self.width):
            return side_by_side
        labels = [replace(label, cells=[cell for each in label.texts for cell in (each, "")]) for label in labels]
        labels.append(Label("", [*OUTPUTS] * len(left), "left"))
        more["gaps"] = [2 * gap for gap in gaps]
        more["after"] = [Label("diff", [cell for each in cells for cell in ("", each)])]
        in_turn = self.matrix(labels, Values(np.stack([left, right], axis=1).reshape(-1, left.shape[1])), **more)
        is_known = {*cells} == {"0"} and not in_turn.fits(self.width)  # by the verdict
        return replace(in_turn, after=[]) if is_known else in_turn

    def drawing(self) -> Iterator[RenderableType]:
        """Yield the product of as many tokens as fit: one-hot rows, the rows they multiply, and the sums."""
        result = self.result
        (length, dim), size = result.linear.shape, len(result.weight)
        beside = rows_beside(size)
        lines = self.screen - 14 - len(beside)  # without the other parts, and the lines around the rows
        cells = self.width - 26 - 2 * NumberFormat([result.weight], result.style.precision).width
        tokens = Excerpt.ends(int(max(min(_MOST, cells // 3, lines // 2), 1)), length)
        places, ids = tokens.places.tolist(), result.tokens.ids[tokens.places]
        rows = PickedRows.of(ids, beside)
        one, zero, dots, below = words("1", "strong"), words("0", "dim"), words("…", "dim"), [words("")] * len(ids)
        labels = [
            Label(str(place), [*(one if row == own else zero for row in rows.rows.tolist()), *below])
            for place, own in zip(places, ids.tolist(), strict=True)
        ]
        if tokens.left_out:
            labels.insert(tokens.head, Label("…", [dots] * len(rows.rows) + below, "left"))
        labels.append(Label("", ["×"] * len(rows.rows) + ["="] * len(ids)))  # noqa: RUF001
        labels.append(Label("row", [*rows.rows.tolist(), *(f"pos {place}" for place in places)]))
        yield title(f"One-hot rows times the weight = its rows: ({length:,}, {size:,}) × ({size:,}, {dim:,})")  # noqa: RUF001
        yield words("One column per token: its one-hot row, upright; the 1 selects its row.")
        yield self.matrix(
            labels,
            Values(np.concatenate([result.weight[rows.rows], result.linear[tokens.places]])),
            gaps=rows.gaps if self.screen == math.inf else (),
            tones=[*rows.tones, *["linear"] * len(ids)],
            rows_left_out=tokens.missing("token"),
        )

    def trace(self) -> Iterator[RenderableType]:
        """Yield the product of each token, term by term."""
        result, size = self.result, len(self.result.weight)
        yield title("The product, written out")
        yield words("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
        traced = Excerpt.ends(_MOST, len(result.tokens))
        for place in traced.places.tolist():
            own = int(result.tokens.ids[place])
            terms = [*range(size)] if size <= _MOST else sorted({0, own, size - 1})
            dots = ["… + " if term > before + 1 else "" for before, term in zip([-1, *terms], terms, strict=False)]
            formula = " + ".join(f"{dot}{int(term == own)}·row{term}" for dot, term in zip(dots, terms, strict=True))
            factors = [f"{'+ ' if term else ''}{int(term == own)} ·" for term in terms]  # the first term is 0
            labels = [
                Label("factor", [*factors, "="]),
                Label("row", [*(f"row{term}" for term in terms), "sum"], "left"),
            ]
            values = np.concatenate([result.weight[terms], result.linear[place : place + 1]])
            tones = ["strong" if term == own else "dim" for term in terms]
            missing = f"{size - len(terms):,} terms, all of them 0 times a row" if len(terms) < size else ""
            yield ""
            yield words(f"token {place}, ID {own}: {formula} = row{own}")
            yield self.matrix(labels, Values(values), tones=tones, rows_left_out=missing)
        yield from _left_out(traced.missing("token"))

    def gradient(self, gradient: Gradient) -> Iterator[RenderableType]:
        """Yield the gradients and, after a step of training, each row before it, its gradient, and the row after."""
        training, count = gradient.training, len(gradient.ids)
        pairs = {"": (gradient.embedding, gradient.linear)}
        rows, numbers = Excerpt.ends(_MOST_TOKENS, count), {"ID": gradient.ids, "n": gradient.times}
        if training is not None:
            pairs = {"row": (training.before,) * 2, "gradient": pairs[""]}
            pairs["row after"] = training.embedding, training.linear
            rows, numbers = Excerpt.first(_MOST_TRAINED, count), {"ID": gradient.ids}
        empty, dim = [""] * (len(pairs) - 1), gradient.linear.shape[1]
        labels = [
            Label(name, [cell for each in all[rows.places] for cell in (each, *empty)]) for name, all in numbers.items()
        ]
        if training is not None:
            labels.append(Label("", [*pairs] * len(rows.places), "left"))
        ways = zip(*pairs.values(), strict=True)
        left, right = (np.stack([each[rows.places] for each in way], axis=1).reshape(-1, dim) for way in ways)
        yield title(f"The gradients of both weights, for the loss {gradient.loss}")
        yield words("One row per ID: its gradient is the output itself, summed over its n tokens.")
        gaps = rows.gaps if training is None else ()
        yield self.both(labels, left, right, gaps, rows.missing("row" if training is None else "ID", gradient.ids))
        yield _judgement(gradient.verdict)
        if gradient.verdict.kind == "value":
            yield words(
                "Gradients of an ID that occurs several times are summed in another order: they differ by rounding."
            )
        elif not gradient.verdict.identical:
            yield words("The outputs differ, and so do their gradients.")
        if training is None:
            counts = f"{gradient.embedding_rows:,} in the embedding, {gradient.linear_rows:,} in the linear layer"
            yield words(f"Rows with a non-zero gradient: {counts}.")
            return
        size, absent = training.vocabulary_size, training.vocabulary_size - len(training.before)
        changed = [f"{rows:,} of {size:,} rows" for rows in (training.embedding_rows, training.linear_rows)]
        yield title(f"After one step of torch.optim.SGD: row - {training.learning_rate:g} · gradient")
        yield _judgement(training.verdict)
        yield words(f"Moved: {changed[0]} in the embedding, {changed[1]} in the linear layer.")
        yield words(
            f"{counted(absent, 'row')} of {size:,} {'is' if absent == 1 else 'are'} of tokens that did not occur."
        )


def _left_out(missing: str) -> list[Text]:
    return [words(left_out(missing))] if missing else []


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


def _why(result: Compared) -> Iterator[Text]:
    """Yield the reason why the outputs are the same, or where and why they differ."""
    verdict = result.verdict
    if verdict.place is None:
        if verdict.values:
            yield words("A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.")
        return
    row, column = verdict.place
    own = int(result.tokens.ids[row])
    reasons = {
        "value": "The sum of linear was rounded.",
        "nan bits": "Both are NaN there; only the bits of the NaN differ.",
        "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
    }
    for cause in [each for each in verdict.causes if each.row != own][:1]:
        value = _number(cause.value)
        reasons["nan"] = (
            f"Row {cause.row} of the weight has {value} in column {column}: embedding reads only the row of the ID, "
            f"linear multiplies all others by 0, and 0 · {value} = NaN."
        )
    both = f"embedding gives {_number(verdict.left)}, linear {_number(verdict.right)}"
    yield words(f"At token {row} (ID {own}), column {column}: {both}.")
    yield words(reasons[verdict.kind])


def _cost(cost: dict[str, Any], width: int) -> Iterator[RenderableType]:
    sizes, runs = map(in_bytes, cost["one_hot_bytes"].values()), [*cost["runs"].values()]
    how = (
        f"median of {runs[0]} and {runs[1]} runs"
        if runs[1] > 1
        else f"median of {runs[0]} runs; one run, as it is long"
    )
    one_hot = {"one-hot matrix": (("0", " + ".join(sizes)), "T·V int64, as torch makes it, and float32")}
    if width < _NARROW_COST:
        one_hot = {f"one-hot {name}": (("0", in_bytes(size)), "") for name, size in cost["one_hot_bytes"].items()}
    rows = {
        "multiply-adds": ([f"{each:,}" for each in cost["multiply_adds"].values()], "T·V·D"),
        "weight read": (map(in_bytes, cost["weight_bytes_read"].values()), "T·D and V·D float32"),
        **one_hot,
        "time on 1 thread": (map(in_seconds, cost["seconds"].values()), how),
    }
    is_wide = width >= _WIDE_COST
    if is_wide:  # a narrow screen is low, too
        rows["  at least"] = map(in_seconds, cost["least_seconds"].values()), "the fastest run"
    both, formulas = zip(*rows.values(), strict=True)
    left, right = zip(*both, strict=True)
    space = "" if is_wide else " "  # without a rule, columns are one cell apart
    labels = [
        Label("Cost", [*rows], "left"),
        Label("embedding", left),
        Label("linear", [space + each for each in right]),
    ]
    yield ruled([*labels, *[Label("", formulas, "left")] * is_wide], has_rule=is_wide)
    ratio = f"{cost['ratio']:.1f}" if cost["ratio"] < 10 else f"{cost['ratio']:,.0f}"
    zeros, slices = f"{cost['multiplications_by_zero']:,} of {cost['multiply_adds']['linear']:,}", cost["slices"]
    saved = f"; computed in {slices:,} slices of tokens to save memory" if slices > 1 else ""
    yield words(f"linear: {ratio}x the time; {zeros if cost['tokens'] else 'none'} are multiplications by zero{saved}.")

"""The comparison of two ways from token IDs to vectors: a lookup, and a linear layer's product with one-hot rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from embcli.errors import InputError, check_choice, refuse_too_large
from embcli.layer import Origin, Source, shape_of
from embcli.names import DEFAULT_SEED, OUTPUTS, STEPS
from embcli.page import Label, Matrix, NumberFormat, Values, left_out, ruled, title, words
from embcli.records import ArraySpec, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import Tokens, check_ids, shown
from embcli.verbs.compare.pair import Gradient, Pair, Verdict, decimals, judge
from embcli.verbs.lookup import rows_beside
from embcli.verbs.parts import origin_in_words, origin_lines, picked_rows, token_label, token_labels
from embcli.weights.build import loading_torch
from embcli.weights.seeded import torch_seed
from embcli.words import counted, in_bytes, in_seconds

_SMALL = 4096  # numbers of a weight matrix that is always in a JSON document
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


@dataclass(frozen=True, eq=False)
class Comparison(Pair, Result, verb="compare", content="matrices"):
    """The outputs of an embedding layer and of a linear layer with the same weight, their cost and their gradients."""

    tokens: Tokens
    origin: Origin  # of the weight
    run: dict[str, Any]
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the weight of both layers
    cost: dict[str, Any]  # as in a JSON document
    gradient: Gradient | None
    show: tuple[str, ...] | None  # steps and outputs; None for both outputs, and as many steps as fit on the screen
    trace: bool
    draw: bool

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear, self.weight)

    @property
    def why_no(self) -> str:
        different = self.verdict.different
        return f"{different:,} of {self.verdict.values:,} values differ" if different else ""

    def records(self) -> Records:
        """Return the comparison as data: a row for each token with both outputs; the rest stands beside the rows."""
        (size, dim), length, show = self.weight.shape, len(self.tokens), self.show or ()
        shapes = {"ids": [length], "one_hot": [length, size], "first": [dim, size], "shared": [dim, size]}
        shapes |= {name: [length, dim] for name in OUTPUTS}
        weights = {"first": self.first, "shared": self.weight.T}
        return Records(
            run={**self.run, "shapes": shapes},
            unit="tokens",
            rows=length,
            fields={**self.tokens.field_types, "difference": float},
            pieces=in_pieces(length, dim, self._values),
            matrices={name: ArraySpec((length, dim)) for name in OUTPUTS},
            columns=tuple(range(dim)),
            default="embedding",
            shown=tuple(name for name in OUTPUTS if name in show) or None,
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": {  # a large one only if it was asked for
                    name: decimals(each) if name in show or each.size <= _SMALL else None
                    for name, each in weights.items()
                },
                "cost": self.cost,
                "gradient": self.gradient.document() if self.gradient else None,
            },
        )

    def _values(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        part = Pair(self.embedding[index], self.linear[index])
        difference = decimals(part.largest)
        return {**vars(part), "difference": difference, **self.tokens.fields(index, names)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the page, with the steps that `show` names or those that fit on the screen."""
        screen = console.height if console.is_terminal and not console.record else math.inf
        parts = [*self._parts(options.max_width, screen, console.record)]
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
            elif part.name == "verdict" and len(fit) == len(parts) and not self.style.bare:
                yield ""
            yield from part.lines
        if missing := ", ".join(part.name for part in parts if part.name not in fit):
            yield words(f"Not shown (no room): {missing}")

    def _parts(self, width: int, screen: float, is_picture: bool) -> Iterator[Part]:
        """Yield the parts in their order on the page; a drawing in a picture stands alone, without steps and costs."""
        asked = self.draw or self.trace or self.gradient is not None
        length, size, dim = (f"{each:,}" for each in (len(self.tokens), *self.weight.shape))
        dtype = "" if self.origin.is_seeded else f" ({self.origin.dtypes['token']})"
        sizes = f"T = {length} (tokens), V = {size} (rows), D = {dim} (columns)"
        heading = title("Two ways from token IDs to vectors: embedding layer and linear layer")
        yield Part([heading, words(f"{sizes}, {origin_in_words(self.origin, 'token')}{dtype}")])
        titles = {
            "ids": f"The token IDs, (T,) = ({length},)",
            "one-hot": f"The one-hot matrix, (T, V) = ({length}, {size})",
            "first": f"The linear layer's own first weights, (D, V) = ({dim}, {size})",
            "shared": f"The shared weight, embedding.weight, (V, D) = ({size}, {dim})",
            "outputs": f"The outputs, (T, D) = ({length}, {dim}): row ID of the weight; one-hot row · weight",
        }
        show = () if self.show is None and is_picture and self.draw else self.show
        named = None if show is None else ["outputs" if each in OUTPUTS else each for each in show]
        for name in STEPS if named is None else [step for step in STEPS if step in named]:
            rank = 0 if named or (name == "outputs" and not asked) else 2 + _IMPORTANCE.index(name)
            yield Part([*self._step(name, width)], rank, name, titles[name])
        yield Part([_judgement(self.verdict)], 0, "verdict")
        yield Part([*self._why()], int(self.verdict.identical), "the reason")
        if self.draw and len(self.tokens):
            yield Part(["", *self._drawing(width, screen)], name="drawing")
        if self.trace:
            yield Part(["", *self._trace()], name="trace")
        if self.gradient is not None:
            yield Part(["", *self._training(self.gradient, width)], name="gradient")
        if "cost" in (show or ()) or not (is_picture or self.style.bare):
            rank = 0 if "cost" in (show or ()) else 2 + len(_IMPORTANCE)
            table, saved = self._costs(width)
            yield Part(["", table, saved] if asked else [table], rank, "the cost")
            yield Part([] if asked else [saved], name="zeros")
        yield Part([*origin_lines(self.origin)], name="origin")

    def _matrix(self, labels: Sequence[Label], *blocks: Values, **more: Any) -> Matrix:
        numbers = np.arange(blocks[0].values.shape[1])
        return Matrix(labels, blocks, numbers, precision=self.style.precision, heat=self.style.heat, **more)

    def _step(self, name: str, width: int) -> Iterator[RenderableType]:
        tokens, (size, dim) = self.tokens, self.weight.shape
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
                if missing:
                    yield words(left_out(missing))
        elif name == "outputs":
            pair = Pair(self.embedding[rows.places], self.linear[rows.places])
            yield self._both(token_labels(tokens, rows.places), pair, rows.gaps, missing, width)
        else:
            weight, label = (self.first, "D") if name == "first" else (self.weight, "ID")
            drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{1 / math.sqrt(size):.4g}"
            if name == "shared":
                drawn = f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,})"
                yield words(f"{drawn}: each row here is a column of it.")
            elif self.origin.is_seeded:
                yield words(f"{drawn}, torch.nn.Embedding normal ones: one seed gives other numbers.")
            else:
                yield words(f"{drawn}, here from seed {self.run['seed']}; the file's matrix replaces them.")
            rows = Excerpt.ends(_MOST, len(weight))
            labels, missing = [Label(label, rows.places)], rows.missing("row")
            yield self._matrix(labels, Values(weight[rows.places]), gaps=rows.gaps, rows_left_out=missing)

    def _both(self, labels: Sequence[Label], pair: Pair, gaps: Sequence[int], missing: str, width: int) -> Matrix:
        """Return rows of both ways side by side, or in turn if not all columns fit that way."""
        cells = ["0" if value == 0 else f"{value:.1e}" for value in pair.largest.tolist()]
        both, after = [Values(pair.embedding, "embedding"), Values(pair.linear, "linear")], [Label("diff", cells)]
        side_by_side = self._matrix(labels, *both, gaps=gaps, after=after, rows_left_out=missing)
        if side_by_side.fits(width):
            return side_by_side
        labels = [label._replace(cells=[cell for each in label.texts for cell in (each, "")]) for label in labels]
        in_turn = self._matrix(
            [*labels, Label("", [*OUTPUTS] * len(cells), "left")],
            Values(np.stack([pair.embedding, pair.linear], axis=1).reshape(-1, pair.linear.shape[1])),
            gaps=[2 * gap for gap in gaps],
            after=[Label("diff", [cell for each in cells for cell in ("", each)])],
            rows_left_out=missing,
        )
        is_known = {*cells} == {"0"} and not in_turn.fits(width)  # by the verdict
        return replace(in_turn, after=[]) if is_known else in_turn

    def _why(self) -> Iterator[Text]:
        """Yield the reason why the outputs are the same, or where and why they differ."""
        verdict = self.verdict
        if verdict.place is None:
            if verdict.values:
                yield words("A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.")
            return
        row, column = verdict.place
        own = int(self.tokens.ids[row])
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

    def _drawing(self, width: int, screen: float) -> Iterator[RenderableType]:
        """Yield the product of as many tokens as fit: one-hot rows, the rows they multiply, and the sums."""
        (length, dim), size = self.linear.shape, len(self.weight)
        beside = rows_beside(size)
        lines = screen - 14 - len(beside)  # without the other parts, and the lines around the rows
        most = lines // (1 if len(beside) == size else 2)  # a token has a line of its sum, and one of a row not beside
        cells = width - 26 - 2 * NumberFormat([self.weight], self.style.precision).width
        tokens = Excerpt.ends(int(max(min(_MOST, cells // 3, most), 1)), length)
        places, ids = tokens.places.tolist(), self.tokens.ids[tokens.places]
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
        if self.tokens.encoding is not None:
            labels.append(token_label([None] * len(rows.rows) + self.tokens.bytes_of(ids)))
        yield title(f"One-hot rows times the weight = its rows: ({length:,}, {size:,}) × ({size:,}, {dim:,})")  # noqa: RUF001
        yield words("One column per token: its one-hot row, upright; the 1 selects its row.")
        yield self._matrix(
            labels,
            Values(np.concatenate([self.weight[rows.rows], self.linear[tokens.places]])),
            gaps=rows.gaps if screen == math.inf else (),
            tones=[*rows.tones, *["linear"] * len(ids)],
            rows_left_out=tokens.missing("token"),
        )

    def _trace(self) -> Iterator[RenderableType]:
        size = len(self.weight)
        yield title("The product, written out")
        yield words("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
        traced = Excerpt.ends(_MOST, len(self.tokens))
        for place in traced.places.tolist():
            own = int(self.tokens.ids[place])
            terms = [*range(size)] if size <= _MOST else sorted({0, own, size - 1})
            dots = ["… + " if term > before + 1 else "" for before, term in zip([-1, *terms], terms, strict=False)]
            formula = " + ".join(f"{dot}{int(term == own)}·row{term}" for dot, term in zip(dots, terms, strict=True))
            factors = [f"{'+ ' if term else ''}{int(term == own)} ·" for term in terms]  # the first term is 0
            yield ""
            yield title(f"token {place}, ID {own}: {formula} = row{own}")
            yield self._matrix(
                [Label("factor", [*factors, "="]), Label("row", [*(f"row{term}" for term in terms), "sum"], "left")],
                Values(np.concatenate([self.weight[terms], self.linear[place : place + 1]])),
                tones=["strong" if term == own else "dim" for term in terms],
                rows_left_out=f"{size - len(terms):,} terms, all of them 0 times a row" if len(terms) < size else "",
            )
        if missing := traced.missing("token"):
            yield words(left_out(missing))

    def _training(self, gradient: Gradient, width: int) -> Iterator[RenderableType]:
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
            np.stack([vars(pair)[way][rows.places] for pair in pairs.values()], axis=1).reshape(-1, dim)
            for way in OUTPUTS
        )
        yield title(f"The gradients of both weights, for the loss {gradient.loss}")
        yield words("One row per ID: its gradient is the output itself, summed over its n tokens.")
        missing = rows.missing("row" if training is None else "ID", gradient.ids)
        yield self._both(labels, Pair(left, right), rows.gaps if training is None else (), missing, width)
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

    def _costs(self, width: int) -> tuple[RenderableType, Text]:
        cost = self.cost
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


def compare(
    tokens: Tokens,
    source: Source,
    *,
    show: tuple[str, ...] | str | None = None,
    trace: bool = False,
    gradient: bool = False,
    learning_rate: float | None = None,
    draw: bool = False,
    seed: int | None = None,
) -> Comparison:
    show = (show,) if isinstance(show, str) else show
    for name in show or ():
        check_choice("show", name, (*STEPS, *OUTPUTS, "cost"))
    if learning_rate is not None and not 0 <= learning_rate <= float(np.finfo(np.float32).max):
        reason = f"learning_rate must be a finite float32 of at least 0, not {learning_rate:g}"
        raise InputError(reason, parameters=("learning_rate",))
    origin, (size, dim) = source.origin, shape_of(source, "token")
    if seed is None:
        seed = DEFAULT_SEED if origin.seed is None else origin.seed
    seed = torch_seed(seed)
    gradient = gradient or learning_rate is not None
    copies = (4 if gradient else 2) + (learning_rate is not None)  # of the weight
    one_hot = (8 + 4) * size  # bytes of a row: int64 as torch makes it, and float32
    refuse_too_large("a pair of layers", (size, dim), copies=copies, more=one_hot)
    check_ids(tokens, size, grows=origin.is_seeded)
    with loading_torch(source.notes):
        import torch

        from embcli.verbs.compare import layers
        from embcli.weights.drawing import global_generator
    with global_generator():
        found = layers.compare(source, tokens.ids, seed, gradient, learning_rate)
    build = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    own = {} if found["origin"].is_seeded else found["origin"].document()
    run = run_of(tokens.encoding, sequences=tokens.sequences, seed=seed, **build, **own)
    return Comparison(**found, tokens=tokens, run=run, show=show, trace=trace, draw=draw, notes=source.notes)

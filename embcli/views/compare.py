"""How `compare` looks: the steps of both ways, their outputs side by side, the verdict, and the cost of each way."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from embcli.names import OUTPUTS, STEPS
from embcli.oldpage import Bar, Block, Column, Columns, Excerpt, Page, Tone, Word
from embcli.tokens import shown
from embcli.verbs.compare import Comparison
from embcli.verbs.compare.result import Cost, Gradient, Training
from embcli.verbs.compare.verdict import Verdict, largest_by_row
from embcli.verbs.lookup import rows_beside
from embcli.views.parts import PickedRows, origin_in_words, put_left_out, put_origin, token_labels
from embcli.words import counted, in_bytes, in_seconds

_WIDE_COST = 90  # cells from which a table has all of its columns
_FRAME = 4  # lines of the heading, of the remark on omitted parts, and of the prompt
_BY_IMPORTANCE = ("outputs", "ids", "one-hot", "shared", "first")  # the steps, the most important first
_MOST_TOKENS = 40
_MOST_IDS = 12  # in one line
_MOST_WEIGHTS = 8  # rows of a weight matrix
_MOST_TRACED = 8  # tokens
_MOST_TRAINED = 4  # IDs with their rows before and after a step of training
_MOST_TERMS = 8  # of a product that is written out in full
_MOST_DRAWN = 8  # tokens of a picture


def view(result: Comparison, page: Page) -> None:
    """Put the steps on a page, the verdict and the cost; a screen shows first of all what the options ask for."""
    options, screen = result.options, page.paper.screen
    available = math.inf if screen is None else screen - _FRAME  # lines
    extras = options.draw or options.trace or result.gradient is not None
    end, cost, origin = (page.part() for _ in range(3))
    put_origin(origin, result.origin)
    available -= origin.lines
    _put_end(result, end, available)
    if options.trace or result.gradient is not None:
        cost.line()
    _put_cost(result.cost, cost)
    with_cost = not extras or end.lines + cost.lines <= available
    if with_cost:
        end.add(cost)
    available -= end.lines
    end.add(origin)
    lines = {step: _part(page, result, step).lines + 1 for step in options.steps or STEPS}  # with a blank line below
    chosen = options.steps or _fitting(lines, available + 1, () if extras else _BY_IMPORTANCE[:1])
    one_too_many = sum(lines[step] for step in chosen) == available + 1
    page.title("Two ways from token IDs to vectors: embedding layer and linear layer")
    dtype = "" if result.origin.is_seeded else f" ({result.origin.dtypes['token']})"
    sizes = f"T = {len(result.tokens):,} (tokens), V = {len(result.weight):,} (rows), D = {result.weight.shape[1]:,}"
    page.line(f"{sizes} (columns), {origin_in_words(result.origin, 'token')}{dtype}")
    for place, step in enumerate(chosen, 1):
        page.add(_part(page, result, step, place if len(chosen) > 1 else None))
        if step != chosen[-1] or not one_too_many:
            page.line()
    page.add(end)
    missing = ",".join(step for step in lines if step not in chosen)
    not_shown = ["the cost"] * (not with_cost) + [missing] * bool(missing)
    if not_shown:
        page.line(f"Not shown (no room): {' and '.join(not_shown)}")


def _fitting(lines: dict[str, int], available: float, always: tuple[str, ...]) -> tuple[str, ...]:
    """Return the steps that fit into the available lines, the most important first, and those that are always shown."""
    chosen = {*always}
    for step in _BY_IMPORTANCE:
        available -= lines[step]
        if available < 0:
            break
        chosen.add(step)
    return tuple(step for step in STEPS if step in chosen)


def _part(page: Page, result: Comparison, step: str, number: int | None = None) -> Page:
    """Return a step as a part of a page; its title begins with its number there."""
    part = page.part()
    title, letters, more, put = _STEPS[step]
    lengths = {"T": len(result.tokens), "V": len(result.weight), "D": result.weight.shape[1]}
    sizes = [f"{lengths[letter]:,}" for letter in letters]
    name, shape = (f"({', '.join(each)}{',' if len(each) == 1 else ''})" for each in (letters, sizes))
    part.title(f"{f'{number}. ' if number else ''}{title}, {name} = {shape}{more}")
    put(result, part)
    return part


def _put_end(result: Comparison, page: Page, available: float) -> None:
    """Put the parts below the steps on the page: the verdict, and what options ask for, in the lines left."""
    page.line(_judgement(result.verdict))
    for line in _why(result) if len(result.tokens) else []:
        page.line(line)
    if result.options.draw and len(result.tokens):
        page.line()
        _put_picture(result, page, available - page.lines)
    if result.options.trace:
        page.line()
        _put_trace(result, page)
    if result.gradient is not None:
        page.line()
        _put_gradient(result.gradient, page)


def _put_ids(result: Comparison, page: Page) -> None:
    tokens = result.tokens
    excerpt = Excerpt.ends(_MOST_IDS, len(tokens))
    ids = tokens.ids[excerpt.places]
    words = [
        f"{token_id} ({shown(token)})" if token is not None else str(token_id)
        for token_id, token in zip(ids.tolist(), tokens.bytes_of(ids), strict=True)
    ]
    if excerpt.left_out:
        words.insert(excerpt.head, f"… {excerpt.left_out:,} more …")
    page.line("  ".join(words) or "none")


def _put_one_hot(result: Comparison, page: Page) -> None:
    size = len(result.weight)
    page.line(f"One row per token: 1 in the column of its ID, 0 in the other {size - 1:,}.")
    rows = Excerpt.ends(_MOST_TOKENS, len(result.tokens))
    labels: Columns = [*token_labels(result.tokens, rows.places), Bar()]
    ids = result.tokens.ids[rows.places].tolist()
    forms: list[Columns] = [  # from the longest to the shortest
        [Column("row", [f"1 at column {each}, 0 in the other {size - 1:,}" for each in ids])],
        [Column("the 1 is at", [f"column {each}" for each in ids])],
    ]
    if 2 * size <= page.width:
        zero, one = Word("0"), Word("1", "strong")
        forms.insert(
            0, [Column(str(column), [one if each == column else zero for each in ids]) for column in range(size)]
        )
    form = next((form for form in forms if page.fits_table([*labels, *form])), forms[-1])
    page.table([*labels, *form], rows.gaps)
    put_left_out(page, rows.missing("row"))


def _put_first(result: Comparison, page: Page) -> None:
    limit = 1 / math.sqrt(len(result.weight))
    drawn = f"torch.nn.Linear draws uniform numbers within ±1/√V = ±{limit:.4g}"
    if result.origin.is_seeded:
        page.line(f"{drawn}, torch.nn.Embedding normal ones: one seed gives other numbers.")
    else:
        page.line(f"{drawn}, here from seed {result.run['seed']}; the file's matrix replaces them.")
    _put_matrix(page, result.first, "D")


def _put_shared(result: Comparison, page: Page) -> None:
    size, dim = result.weight.shape
    page.line(
        f"Now linear.weight = Parameter(embedding.weight.T), (D, V) = ({dim:,}, {size:,}): "
        "each row here is a column of it."
    )
    _put_matrix(page, result.weight, "ID")


def _put_matrix(page: Page, values: np.ndarray, label: str) -> None:
    rows = Excerpt.ends(_MOST_WEIGHTS, len(values))
    labels = [Column(label, rows.places)]
    columns = page.grid(labels, [Block("", values[rows.places])], np.arange(values.shape[1]), rows.gaps)
    put_left_out(page, rows.missing("row"), columns.missing("column"))


def _put_outputs(result: Comparison, page: Page) -> None:
    rows = Excerpt.ends(_MOST_TOKENS, len(result.tokens))
    _put_both(page, token_labels(result.tokens, rows.places), result.embedding, result.linear, rows)


# The title of each step, the letters of its shape, words after them, and what puts it on a page.
_STEPS: dict[str, tuple[str, str, str, Callable[[Comparison, Page], None]]] = {
    "ids": ("The token IDs", "T", "", _put_ids),
    "one-hot": ("The one-hot matrix", "TV", "", _put_one_hot),
    "first": ("The linear layer's own first weights", "DV", "", _put_first),
    "shared": ("The shared weight, embedding.weight", "VD", "", _put_shared),
    "outputs": ("The outputs", "TD", ": row ID of the weight; one-hot row · weight", _put_outputs),
}


def _put_both(page: Page, labels: list[Column], left: np.ndarray, right: np.ndarray, rows: Excerpt) -> None:
    """Put rows of two matrices side by side on the page, or in turn if not all columns fit that way."""
    left, right, numbers = left[rows.places], right[rows.places], np.arange(left.shape[1])
    cells = ["0" if value == 0 else f"{value:.1e}" for value in largest_by_row(left, right).tolist()]
    blocks, diff, gaps = [Block("embedding", left), Block("linear", right)], Column("diff", cells), [*rows.gaps]
    if not page.fits_grid([*labels, diff], blocks, numbers):
        blocks = [Block("", np.stack([left, right], axis=1).reshape(-1, left.shape[1]))]
        labels = [replace(label, cells=[cell for each in label.cells for cell in (each, "")]) for label in labels]
        labels.append(Column("", [*OUTPUTS] * len(left), "left"))
        diff = Column("diff", [cell for each in cells for cell in ("", each)])
        gaps = [2 * gap for gap in gaps]
    is_known = {*cells} == {"0"} and not page.fits_grid([*labels, diff], blocks, numbers)  # by the verdict
    columns = page.grid(labels, blocks, numbers, gaps, [] if is_known else [diff])
    put_left_out(page, rows.missing("row"), columns.missing("column"))


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
    """Return the reason why the outputs are the same, or where and why they differ, in lines."""
    verdict = result.verdict
    if verdict.place is None:
        return ["A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID."]
    row, column = verdict.place
    own = int(result.tokens.ids[row])
    where = f"At token {row} (ID {own}), column {column}: embedding gives {_number(verdict.left)}, "
    where += f"linear {_number(verdict.right)}."
    if verdict.kind == "nan":
        cause = next(each for each in verdict.causes if each.row != own)
        value = _number(cause.value)
        reason = (
            f"Row {cause.row} of the weight has {value} in column {column}: embedding reads only the row of the ID, "
            f"linear multiplies all others by 0, and 0 · {value} = NaN."
        )
        return [where, reason]
    reasons = {
        "value": "The sum of linear was rounded.",
        "nan bits": "Both are NaN there; only the bits of the NaN differ.",
        "zero sign": "As numbers they are equal; only the sign of a zero differs, as the sum of -0 and +0 is +0.",
    }
    return [where, reasons[verdict.kind]]


def _put_picture(result: Comparison, page: Page, available: float) -> None:
    """Put the product on the page, of as many tokens as fit: one-hot rows, the rows they multiply, and the sums."""
    for most, dots in ((most, dots) for most in range(_MOST_DRAWN, 0, -1) for dots in (True, False)):
        part = page.part()
        if _put_product(result, part, most, dots) and part.lines <= available:
            break
    page.add(part)


def _put_product(result: Comparison, page: Page, most: int, dots: bool) -> bool:
    """Put the product of at most `most` tokens on a page; return whether each of its rows has room for two numbers.

    Dots stand for the rows of the weight that are not shown.
    """
    (length, dim), size = result.linear.shape, len(result.weight)
    page.title(f"One-hot rows times the weight = its rows: ({length:,}, {size:,}) × ({size:,}, {dim:,})")  # noqa: RUF001
    page.line("One column per token: its one-hot row, upright; the 1 selects its row.")
    tokens = Excerpt.ends(most, length)
    rows = PickedRows.of(result.tokens.ids[tokens.places], rows_beside(size))
    labels = _one_hot_columns(result, rows, tokens)
    values = np.concatenate([result.weight[rows.rows], result.linear[tokens.places]])
    tones: list[Tone] = [*rows.tones]
    tones += ["linear"] * len(tokens.places)
    columns = page.grid(labels, [Block("", values)], np.arange(dim), rows.gaps if dots else [], tones=tones)
    put_left_out(page, tokens.missing("token"), columns.missing("column"))
    ends = np.arange(dim)[[0, -1][:dim]]
    return page.fits_grid([*labels, Column("…", [])], [Block("", values[:, ends])], ends)


def _one_hot_columns(result: Comparison, rows: PickedRows, tokens: Excerpt) -> list[Column]:
    """Return the columns before the rows of the weight: the factors of each row, and the names of the rows."""
    places, below = tokens.places.tolist(), [""] * len(tokens.places)
    factors = [
        Column(str(place), [*(Word("1", "strong") if each else Word("0", "dim") for each in rows.rows == own), *below])
        for place, own in zip(places, result.tokens.ids[places].tolist(), strict=True)
    ]
    if tokens.left_out:
        factors.insert(tokens.head, Column("…", ["…"] * len(rows.rows) + below, "left", tone="dim"))
    signs = Column("", ["×"] * len(rows.rows) + ["="] * len(places))  # noqa: RUF001
    return [*factors, signs, Column("row", [*map(str, rows.rows), *(f"pos {place}" for place in places)])]


def _put_trace(result: Comparison, page: Page) -> None:
    """Put the product of each token on the page, term by term."""
    page.title("The product, written out")
    page.line("Each row of the weight times its entry in the token's one-hot row, and the sum of all.")
    traced = Excerpt.ends(_MOST_TRACED, len(result.tokens))
    size, dim = result.weight.shape
    columns = Excerpt.first(0, 0)
    for place in traced.places.tolist():
        own = int(result.tokens.ids[place])
        terms = list(range(size)) if size <= _MOST_TERMS else sorted({0, own, size - 1})
        formula = " + ".join(
            f"{'… + ' if term > before + 1 else ''}{int(term == own)}·row{term}"
            for before, term in zip([-1, *terms], terms, strict=False)
        )
        page.line()
        page.line(f"token {place}, ID {own}: {formula} = row{own}")
        tones: list[Tone] = [*("strong" if term == own else "dim" for term in terms), "plain"]
        factors = [f"{'+ ' if term else ''}{int(term == own)} ·" for term in terms]  # the first term is 0
        names = [f"row{term}" for term in terms]
        labels = [
            Column("factor", list(map(Word, [*factors, "="], tones))),
            Column("row", list(map(Word, [*names, "sum"], tones)), "left"),
        ]
        values = np.concatenate([result.weight[terms], result.linear[place : place + 1]])
        columns = page.grid(labels, [Block("", values)], np.arange(dim), tones=tones)
        if len(terms) < size:
            page.line(f"Left out: {size - len(terms):,} terms, all of them 0 times a row.")
    put_left_out(page, traced.missing("row"), columns.missing("column"))


def _put_gradient(gradient: Gradient, page: Page) -> None:
    page.title(f"The gradients of both weights, for the loss {gradient.loss}")
    page.line("One row per ID: its gradient is the output itself, summed over its n tokens.")
    if gradient.training is not None:
        _put_training(gradient, gradient.training, page)
    else:
        rows = Excerpt.ends(_MOST_TOKENS, len(gradient.ids))
        numbers = {"ID": gradient.ids, "n": gradient.times}
        labels = [Column(name, values[rows.places]) for name, values in numbers.items()]
        _put_both(page, labels, gradient.embedding, gradient.linear, rows)
    page.line(_judgement(gradient.verdict))
    if gradient.verdict.kind == "value":
        page.line("Gradients of an ID that occurs several times are summed in another order: they differ by rounding.")
    elif not gradient.verdict.identical:
        page.line("The outputs differ, and so do their gradients.")
    if gradient.training is not None:
        _put_changed(gradient.training, page)
        return
    both = gradient.embedding_rows, gradient.linear_rows
    page.line(f"Rows with a non-zero gradient: {both[0]:,} in the embedding, {both[1]:,} in the linear layer.")


def _put_training(gradient: Gradient, training: Training, page: Page) -> None:
    """Put the first rows on the page: each before a step of training, its gradient, and after the step."""
    count = min(_MOST_TRAINED, len(gradient.ids))
    left, right = (
        np.stack([training.before[:count], gradients[:count], rows[:count]], axis=1).reshape(-1, rows.shape[1])
        for gradients, rows in ((gradient.embedding, training.embedding), (gradient.linear, training.linear))
    )
    labels = [
        Column("ID", [word for token_id in gradient.ids[:count].tolist() for word in (str(token_id), "", "")]),
        Column("", ["row", "gradient", "row after"] * count, "left"),
    ]
    _put_both(page, labels, left, right, Excerpt.first(len(left), len(left)))
    if len(gradient.ids) > count:
        page.line(f"Left out: {len(gradient.ids) - count:,} more IDs.")


def _put_changed(training: Training, page: Page) -> None:
    """Put on the page whether the rows are equal after a step of training, and how many changed."""
    page.title(f"After one step of torch.optim.SGD: row - {training.learning_rate:g} · gradient")
    page.line(_judgement(training.verdict))
    size, absent = training.vocabulary_size, training.vocabulary_size - len(training.before)
    changed = [f"{rows:,} of {size:,} rows" for rows in (training.embedding_rows, training.linear_rows)]
    page.line(f"Moved: {changed[0]} in the embedding, {changed[1]} in the linear layer.")
    page.line(f"{counted(absent, 'row')} of {size:,} {'is' if absent == 1 else 'are'} of tokens that did not occur.")


def _put_cost(cost: Cost, page: Page) -> None:
    one_hot = {name: in_bytes(size) for name, size in cost.one_hot_bytes.items()}
    rows = [
        ("multiply-adds", "0", f"{cost.multiply_adds:,}", "T·V·D"),
        ("weight read", in_bytes(cost.lookup_bytes), in_bytes(cost.product_bytes), "T·D and V·D float32"),
        ("one-hot matrix", "0", " + ".join(one_hot.values()), "T·V int64, as torch makes it, and float32"),
        ("time on 1 thread", in_seconds(cost.lookup.seconds), in_seconds(cost.product.seconds), _runs(cost)),
    ]
    is_wide = page.width >= _WIDE_COST
    if is_wide:  # a narrow screen is low too
        least = in_seconds(cost.lookup.least), in_seconds(cost.product.least)
        rows.append(("  at least", *least, "the fastest run"))
    if not page.fits_table(_cost_columns(rows, is_wide)):
        rows[2:3] = [(f"one-hot {name}", "0", size, "") for name, size in one_hot.items()]
    page.table(_cost_columns(rows, is_wide), ruled=is_wide)
    ratio = f"{cost.ratio:.1f}" if cost.ratio < 10 else f"{cost.ratio:,.0f}"
    zeros = f"{cost.multiplications_by_zero:,} of {cost.multiply_adds:,}" if cost.length else "none"
    slices = f"; computed in {cost.slices:,} slices of tokens to save memory" if cost.slices > 1 else ""
    page.line(f"linear: {ratio}x the time; {zeros} are multiplications by zero{slices}.")


def _cost_columns(rows: Sequence[tuple[str, str, str, str]], is_wide: bool) -> Columns:
    names, lookups, products, formulas = zip(*rows, strict=True)
    apart = 0 if is_wide else max(map(len, products)) + 1  # without a rule, columns are one cell apart
    columns = [Column("Cost", names, "left"), Column("embedding", lookups), Column("linear", products, minimum=apart)]
    return [*columns, *([Column("", formulas, "left")] if is_wide else [])]


def _runs(cost: Cost) -> str:
    lookups, products = cost.lookup.runs, cost.product.runs
    if products == 1:
        return f"median of {lookups} runs; one run, as it is long"
    return f"median of {lookups} runs" if lookups == products else f"median of {lookups} and {products} runs"

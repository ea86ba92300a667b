"""How `batch` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Bar, Block, Column, Columns, Excerpt
from embcli.tokens import shown
from embcli.views.parts import left_out, token_column
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.batch import Batches

_MOST_SAMPLES = 8
_MOST_DRAWN = 3, 5  # samples of a picture, and tokens in each
_MOST_IN_COLOUR = 2  # samples, below whose strips is a colour bar
_LEAST_WORDS = 12  # cells of the tokens beside their IDs


def view(result: Batches, page: Page) -> None:
    """Put the inputs and targets of a batch on a page, the shapes step by step, and in which order all was drawn."""
    page.title(_title(result))
    _put_tables(result, page)
    _put_end(result, page)


def picture(result: Batches, page: Page) -> None:
    """Put a batch on a page as the tensor that it is: samples, the tokens in each, and a vector for each token."""
    page.title(_title(result))
    _put_picture(result, page)
    _put_end(result, page)


def _put_end(result: Batches, page: Page) -> None:
    _put_shapes(result, page)
    for line in _order(result):
        page.line(line)


def _put_tables(result: Batches, page: Page) -> None:
    rows = Excerpt.most(_MOST_SAMPLES, len(result.order))
    ids = result.ids(result.order[rows.places])  # (n, T + 1)
    labels = _labels(result, rows.places)
    words = [" ".join(map(shown, result.tokens.bytes_of(sample))) for sample in ids]
    if result.tokens.encoding is not None:
        labels.append(Column("tokens", words, "left", least=_LEAST_WORDS))
    positions = _put_ids(page, labels, ids, rows)
    missing = left_out(
        rows.missing(np.arange(len(result.order)), "row"),
        positions.missing(np.arange(result.wanted.max_length), "position"),
    )
    if missing:
        page.line(missing)


def _put_picture(result: Batches, page: Page) -> None:
    """Put the first and last values of the input embedding of each token on the page, sample by sample."""
    length = result.wanted.max_length
    most = _MOST_IN_COLOUR if page.paper.heat else _MOST_DRAWN[0]
    samples, tokens = Excerpt.most(most, len(result.order)), Excerpt.most(_MOST_DRAWN[1], length)
    order = result.order[samples.places]
    ids = result.ids(order)[:, tokens.places].ravel()
    vectors = result.rows(order, ("input",))["input"][:, tokens.places]  # (samples, tokens, columns)
    count = len(tokens.places)
    brackets = [" ╭", *[" │"] * (count - 2), " ╰"] if count > 1 else [" ·"]
    firsts = [str(sample) if not place else "" for sample in samples.places for place in range(count)]
    sample = Column("sample", [first + bracket for first, bracket in zip(firsts, brackets * len(order), strict=True)])
    pos = Column("pos", [str(place) for place in tokens.places] * len(order))
    words = [token_column(result.tokens.bytes_of(ids))] if result.tokens.encoding else []
    last = Column("ID", [str(each) for each in ids])
    gaps = [gap * count for gap in samples.gaps]
    gaps += [sample * count + gap for sample in range(len(order)) for gap in tokens.gaps]
    block = Block("input", vectors.reshape(len(ids), -1))
    forms = [sample, pos, *words, last], [sample, *words, last], [sample, last]
    labels = next((form for form in forms if _holds_ends(page, form, block, result.columns)), forms[-1])
    columns = page.grid(labels, [block], result.columns, gaps)
    missing = (
        samples.missing(np.arange(len(result.order)), "sample"),
        tokens.missing(np.arange(length), "position"),
        columns.missing(result.columns, "column"),
    )
    if any(missing):
        page.line(left_out(*missing))


def _holds_ends(page: Page, labels: list[Column], block: Block, numbers: np.ndarray) -> bool:
    """Return whether there is room for the first and the last column of a matrix, and the dots between them."""
    ends = [0, -1][: len(numbers)]
    return page.holds_grid([*labels, Column("…", [])], [Block("", block.values[:, ends])], numbers[ends])


def _title(result: Batches) -> str:
    wanted, count = result.wanted, result.count
    which = f"Batch {result.first:,} of {count:,}"
    if wanted.every:
        which = "The only batch" if count == 1 else f"All {count:,} batches"
    samples = f"{counted(len(result.order), 'sample')} of {counted(wanted.max_length, 'token')}"
    return f"{which}: {samples}, stride {wanted.stride:,}{', shuffled' if wanted.shuffle else ''}"


def _labels(result: Batches, places: np.ndarray) -> list[Column]:
    """Return what stands before the IDs of each sample: its batch (where there are several), its number."""
    labels = [Column("batch", [str(each) for each in result.batch_of(places)])] if result.wanted.every else []
    return [*labels, Column("sample", [str(each) for each in result.order[places]])]


def _put_ids(page: Page, labels: list[Column], ids: np.ndarray, rows: Excerpt) -> Excerpt:
    """Put inputs and targets side by side on the page; return which positions there is room for.

    Where there is none for the tokens beside a single one, they are left out: an ID is worth more.
    """
    length = ids.shape[1] - 1
    counts = range(min(length, page.width), 0, -1)
    bare = [label for label in labels if not label.least]
    for kept, count in ((each, count) for each in (labels, bare) for count in counts):
        positions = Excerpt.most(count, length)
        inputs, targets = _columns(ids[:, :-1], positions), _columns(ids[:, 1:], positions)
        table: Columns = [*kept, Bar("inputs", len(inputs)), *inputs, Bar("targets", len(targets)), *targets]
        if page.holds(table):
            break
    page.table(table, rows.gaps)
    return positions


def _columns(ids: np.ndarray, shown: Excerpt) -> list[Column]:
    columns = [Column(str(place), [str(each) for each in ids[:, place]]) for place in shown.places]
    if shown.left_out:
        columns.insert(shown.head, Column("…", ["…"] * len(ids), "left", tone="dim"))
    return columns


def _put_shapes(result: Batches, page: Page) -> None:
    """Put the shapes on the page, from IDs to what the model reads."""
    (size, dim), length = result.layer.shape, result.wanted.max_length
    batch = f"{len(result.order):,}, {length:,}"
    first = "N" if result.wanted.every else "B"
    steps = [
        ("IDs", f"({first}, T)", f"({batch})", ""),
        ("token", f"({first}, T, D)", f"({batch}, {dim:,})", f"rows of the token layer ({size:,}, {dim:,})"),
        ("+ position", "(T, D)", f"({length:,}, {dim:,})", "the same for each sample"),
        ("= input", f"({first}, T, D)", f"({batch}, {dim:,})", "what the model reads"),
    ]
    names, shapes, sizes, words = zip(*steps, strict=True)
    columns = [Column("", each, "left") for each in (names, shapes, sizes)]
    page.table([*columns, Column("", words, "left", least=_LEAST_WORDS)], ruled=False)


def _order(result: Batches) -> tuple[str, ...]:
    """Return in words how the position rows were drawn."""
    if result.wanted.layers_first:
        return ("Drawn in the order token layer, position layer, loader.",)
    return (
        "Drawn in the chapter's order: token layer, loader, position layer. The loader",
        "takes a random number, shuffled or not: so the position rows are not lookup's.",
    )

"""How `batch` looks."""

import numpy as np

from embcli.oldpage import Bar, Block, Column, Columns, Excerpt, Page
from embcli.tokens import shown
from embcli.verbs.batch import Batches
from embcli.views.parts import put_left_out, put_origin, token_column
from embcli.words import counted

_MOST_SAMPLES = 8
_MOST_DRAWN = 3, 5  # samples of a picture, and tokens in each
_MOST_IN_COLOUR = 2  # samples of a picture in colours, which has a colour bar below
_LEAST_WORDS = 12  # cells to which words beside numbers may be shortened


def view(result: Batches, page: Page) -> None:
    """Put a batch on a page, the shapes step by step, and the order of the draws.

    A batch is its inputs and targets or, in a picture, a tensor: samples, the tokens in each, a vector for each token.
    """
    page.title(_title(result))
    if result.batching.draw or page.paper.heat:
        _put_picture(result, page)
    else:
        _put_tables(result, page)
    _put_shapes(result, page)
    skipped = result.batching.stride - result.batching.max_length
    if skipped > 0:
        page.line(f"The stride exceeds T: {skipped:,} of {result.batching.stride:,} tokens are in no sample.")
    page.line("Drawn in the order token layer, loader, position layer. The loader consumes a")
    page.line("random number even unshuffled, so these position rows differ from lookup's.")
    put_origin(page, result.origin)


def _title(result: Batches) -> str:
    batching, count = result.batching, result.count
    which = f"Batch {result.first:,} of {count:,}"
    if batching.all:
        which = "The only batch" if count == 1 else f"All {count:,} batches"
    letter = "N" if batching.all else "B"
    samples = f"{letter} = {counted(len(result.order), 'sample')} of T = {counted(batching.max_length, 'token')}"
    return f"{which}: {samples}, stride {batching.stride:,}{', shuffled' if batching.shuffle else ''}"


def _put_tables(result: Batches, page: Page) -> None:
    rows = Excerpt.ends(_MOST_SAMPLES, len(result.order))
    samples = result.order[rows.places]
    ids = result.ids(samples)  # (n, T + 1)
    labels = [Column("batch", result.batch_of(rows.places))] if result.batching.all else []
    labels.append(Column("sample", samples))
    if result.tokens.encoding is not None:
        words = [" ".join(map(shown, result.tokens.bytes_of(sample))) for sample in ids]
        labels.append(Column("tokens", words, "left", least=_LEAST_WORDS))
    positions = _put_ids(page, labels, ids, rows)
    put_left_out(
        page,
        rows.missing("row"),
        positions.missing("position"),
    )


def _put_ids(page: Page, labels: list[Column], ids: np.ndarray, rows: Excerpt) -> Excerpt:
    """Put inputs and targets side by side on the page; return the positions that fit.

    The tokens are left out if not a single position fits beside them.
    """
    length = ids.shape[1] - 1
    counts = range(min(length, page.width), 0, -1)
    without_tokens = [label for label in labels if not label.least]
    for before, count in ((each, count) for each in (labels, without_tokens) for count in counts):
        positions = Excerpt.ends(count, length)
        inputs, targets = _columns(ids[:, :-1], positions), _columns(ids[:, 1:], positions)
        table: Columns = [*before, Bar("inputs", len(inputs)), *inputs, Bar("targets", len(targets)), *targets]
        if page.fits_table(table):
            break
    page.table(table, rows.gaps)
    return positions


def _columns(ids: np.ndarray, positions: Excerpt) -> list[Column]:
    columns = [Column(str(place), ids[:, place]) for place in positions.places]
    if positions.left_out:
        columns.insert(positions.head, Column("…", ["…"] * len(ids), "left", tone="dim"))
    return columns


def _put_picture(result: Batches, page: Page) -> None:
    """Put the first and last values of the input embedding of each token on the page, sample by sample."""
    length = result.batching.max_length
    most = _MOST_IN_COLOUR if page.paper.heat else _MOST_DRAWN[0]
    samples, tokens = Excerpt.ends(most, len(result.order)), Excerpt.ends(_MOST_DRAWN[1], length)
    order, count = result.order[samples.places], len(tokens.places)
    ids = result.ids(order)[:, tokens.places].ravel()
    values = result.embeddings(order)[:, tokens.places].reshape(len(ids), -1)  # (samples * tokens, columns)
    brackets = [" ╭", *[" │"] * (count - 2), " ╰"] if count > 1 else [" ·"]
    sample = Column("sample", [f"{'' if k else each}{brackets[k]}" for each in order.tolist() for k in range(count)])
    pos = Column("pos", [*tokens.places] * len(order))
    words = [token_column(result.tokens.bytes_of(ids))] if result.tokens.encoding else []
    last = Column("ID", ids)
    gaps = [gap * count for gap in samples.gaps]
    gaps += [place * count + gap for place in range(len(order)) for gap in tokens.gaps]
    ends = [0, -1][: len(result.columns)]  # a row must have room for its first and last number
    first_and_last = [Block("", values[:, ends])]
    for labels in ([sample, pos, *words, last], [sample, *words, last], [sample, last]):
        if page.fits_grid([*labels, Column("…", [])], first_and_last, result.columns[ends]):
            break
    columns = page.grid(labels, [Block("input", values)], result.columns, gaps)
    put_left_out(
        page,
        samples.missing("sample", result.order),
        tokens.missing("position"),
        columns.missing("column", result.columns),
    )


def _put_shapes(result: Batches, page: Page) -> None:
    """Put the shapes on the page, from IDs to what the model reads."""
    (size, dim), length = result.layer.shape, result.batching.max_length
    layer = f"V = {counted(size, 'token')}, D = {counted(dim, 'column')}"
    batch = f"{len(result.order):,}, {length:,}"
    first = "N" if result.batching.all else "B"
    steps = [
        ("IDs", f"({first}, T)", f"({batch})", ""),
        ("token", f"({first}, T, D)", f"({batch}, {dim:,})", f"rows of {layer}"),
        ("+ position", "(T, D)", f"({length:,}, {dim:,})", "the same for each sample"),
        ("= input", f"({first}, T, D)", f"({batch}, {dim:,})", "what the model reads"),
    ]
    names, shapes, sizes, words = zip(*steps, strict=True)
    columns = [Column("", each, "left") for each in (names, shapes, sizes)]
    page.table([*columns, Column("", words, "left", least=_LEAST_WORDS)], ruled=False)

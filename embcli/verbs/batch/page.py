"""The page of batches: a table of IDs or of what the model reads, the shapes, and remarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from embcli.layer import shape_of
from embcli.names import DEFAULT_CONTEXT_LENGTH
from embcli.page import (
    Hint,
    Label,
    Matrix,
    Note,
    Values,
    left_out,
    medium_of,
    omission,
    rows_that_fit,
    ruled,
    safe_text,
    shorten,
    title,
)
from embcli.page.labels import id_labels, origin_lines, row_names
from embcli.page.table import GAP, least_width
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.batch import Batches
from embcli.wording import counted

_MOST_SAMPLES = 8  # a table of IDs shows no more
_OTHER_LINES = 8  # of a page that has tokens below IDs
_FEW_ON_A_SLIDE = 4  # samples with tokens below IDs
_FEWEST_DRAWN_SAMPLES = 2
_MOST_DRAWN_TOKENS = 5  # a drawn sample shows no more


def page(batches: Batches, console: Console, options: ConsoleOptions) -> RenderResult:
    width = options.max_width
    most_lines = rows_that_fit(options, rows_elsewhere=40)
    yield title(_heading(batches))
    if batches._draws_windows:
        yield from _windows(batches, width, most_lines)
    elif batches._is_drawn:
        yield _picture(batches, most_lines)
    else:
        few_samples = (most_lines - _OTHER_LINES) // 2
        if medium_of(console).is_slide:
            few_samples = _FEW_ON_A_SLIDE
        yield from _table_of_ids(batches, width, few_samples)
    if batches.style.bare:
        return
    if not batches._draws_windows:
        yield _shapes(batches, width)
    yield from _losses(batches)
    if batches._is_drawn and not medium_of(console).is_slide:
        rows, _ = shape_of(batches.source, "position")
        yield safe_text(
            f"Position rows are not lookup's: the data loader takes a random number before them, "
            f"and C is {rows:,} (lookup: {DEFAULT_CONTEXT_LENGTH:,})."
        )
    if batches.count > 1 and not batches.all:
        yield Hint(("index",))
    if not batches._draws_windows:
        yield from origin_lines(batches.source.origin)


def _heading(batches: Batches) -> str:
    windows = batches.windows
    samples = f"{_letter(batches)} = {counted(len(batches.order), 'sample')}"
    length = f"T = {counted(windows.max_length, 'token')}"
    shuffled = ", shuffled" if windows.shuffle else ""
    which = f"Batch {batches.first:,} of {batches.count:,}, counted from 0"
    if batches.count == 1:
        which = "The only batch"
    elif batches.all:
        which = f"All batches ({batches.count:,})"
    return f"{which}: {samples} of {length}, stride {windows.stride:,}{shuffled}"


def _letter(batches: Batches) -> str:
    """Return the letter of the first dimension: N samples of all batches, or B of one."""
    return "N" if batches.all and batches.count > 1 else "B"


def _shapes(batches: Batches, width: int) -> Table:
    letter = _letter(batches)
    samples = f"{len(batches.order):,}"
    length = f"{batches.windows.max_length:,}"
    vocabulary_size, dim = shape_of(batches.source, "token")
    source = f"from V = {counted(vocabulary_size, 'row')}, D = {counted(dim, 'column')}"
    shape = f"({samples}, {length}, {dim:,})"
    rows = [
        ("IDs", f"({letter}, T)", f"({samples}, {length})", ""),
        ("token", f"({letter}, T, D)", shape, source),
        ("+ position", "(T, D)", f"({length}, {dim:,})", "the same for each sample"),
        ("= input", f"({letter}, T, D)", shape, "what the model reads"),
    ]
    labels = [Label("", cells, "left") for cells in zip(*rows, strict=True)]
    if least_width(labels, 0) > width:
        del labels[-1]
    return ruled(labels, has_rule=False)


def _losses(batches: Batches) -> RenderResult:
    """Yield which samples and tokens a model does not see."""
    windows = batches.windows
    samples = windows.samples(len(batches.tokens))
    dropped = samples - batches.count * windows.batch_size
    if dropped > 0:
        what = f"{counted(dropped, 'sample')} dropped"
        yield Note(f"{what}: the last batch is incomplete.", "keep_last")
    if windows.stride > windows.max_length:
        yield safe_text("The stride exceeds T: tokens between two samples are never inputs.")


# --- the table of IDs ---


def _table_of_ids(batches: Batches, width: int, few_samples: int) -> RenderResult:
    """Yield the inputs and targets of some samples, as IDs and, if there is room, as tokens.

    The tokens are beside all IDs or, of few samples, in a table below, which shortens long texts.
    """
    excerpt = Excerpt.ends(_MOST_SAMPLES, len(batches.order))
    samples = batches.order[excerpt.places]
    ids = batches.ids_of(samples)  # (n, T + 1)
    labels = _sample_labels(batches, excerpt.places)
    missing = [omission(excerpt, "row")]

    values = [Values(ids[:, :-1], "inputs"), Values(ids[:, 1:], "targets")]
    columns = np.arange(batches.windows.max_length)
    table = Matrix(labels, values, columns, excerpt.gaps, column="position")
    below: RenderResult = ()
    if batches.tokens.encoding is not None:
        below = (Hint(("draw",)),)
        beside = replace(table, labels=[*labels, Label("tokens", _words(batches, ids), "left")])
        if beside.fits(width):
            table = beside
            below = ()
        elif len(samples) <= few_samples:
            below = ("", ruled([*labels, beside.labels[-1]._replace(short=True)]))
        else:
            missing.append("the tokens")

    yield replace(table, rows_left_out=" and ".join(filter(None, missing)))
    yield from below


def _sample_labels(batches: Batches, places: np.ndarray) -> list[Label]:
    """Return the labels of some samples, (n,): their numbers and, if that is another, the batch."""
    labels = [Label("sample", batches.order[places])]
    if batches.all and batches.windows.batch_size > 1:
        batch = batches.first + places // batches.windows.batch_size
        labels.insert(0, Label("batch", batch))
    return labels


def _words(batches: Batches, ids: np.ndarray) -> list[str]:
    """Return the tokens of samples, (n, T + 1): the inputs, and the last target."""
    words = []
    for sample in ids:
        *inputs, target = map(shown, batches.tokens.bytes_of(sample))
        words.append(f"{' '.join(inputs)} → {target}")
    return words


# --- the picture of the windows ---


def _windows(batches: Batches, width: int, most_lines: int) -> RenderResult:
    """Yield tables with a column for each token, and a line for each sample.

    What does not fit beside each other goes on in further tables. After the last batch, the columns
    go on to the end of the text.
    """
    length = batches.windows.max_length
    starts = batches.order * batches.windows.stride
    first_token = int(starts.min())
    last_token = int(starts.max()) + length
    if batches.all or batches.first == batches.count - 1:
        last_token = len(batches.tokens) - 1
    starts -= first_token
    room = width - least_width(_sample_labels(batches, np.arange(len(starts))), 0)
    ids = batches.tokens.ids[first_token : last_token + 1][: most_lines * width]
    names = row_names(ids, batches.tokens.encoding)
    words = [shorten(name.plain, room - GAP) for name in names]

    stops = starts + length + 1
    edges = np.cumsum([0, *(GAP + cell_len(word) for word in words)])
    marks = np.array(["", "■", "□", ""])  # before a sample, its inputs, the last target, after it
    lines = 0
    first = 0
    while first < len(words):
        stop = int(np.searchsorted(edges, edges[first] + room, "right")) - 1
        samples = np.flatnonzero((starts < stop) & (stops > first))
        if stop < stops.max():
            stop = min(stop, int(stops[samples].max()))
        lines += len(samples) + 3  # a header, a rule and a blank line
        if first and lines > most_lines:
            break
        offsets = np.arange(first, stop) - starts[samples, None]
        cells = marks[np.digitize(offsets, [0, length, length + 1])]
        labels = _sample_labels(batches, samples)
        for word, marks_of_token in zip(words[first:stop], cells.T, strict=True):
            labels.append(Label(word, marks_of_token, "left"))
        yield ruled(labels)
        yield ""
        later = starts[stops > stop]
        first = stop
        if len(later):  # Text between samples is left out.
            first = max(int(later.min()), stop)

    yield safe_text("■ input, □ last target (the others are inputs, too); no mark: neither")
    excerpt = Excerpt.first(first, last_token + 1 - first_token)
    yield from left_out(omission(excerpt, "token", first=first_token))


# --- the picture of what the model reads ---


def _picture(batches: Batches, most_lines: int) -> Matrix:
    """Return the input embeddings of some tokens of some samples, a line for each token."""
    positions = Excerpt.ends(_MOST_DRAWN_TOKENS, batches.windows.max_length)
    places = positions.places
    count = len(places)  # lines of a sample, without one of dots
    most_samples = max(most_lines // (count + 1), _FEWEST_DRAWN_SAMPLES)
    samples = Excerpt.ends(most_samples, len(batches.order))
    order = batches.order[samples.places]
    ids = batches.ids_of(order)
    rows = batches.embeddings(order)[:, places]  # (samples, count, columns)

    position_cells = list(places) * len(order)
    labels = [Label("sample", order).spread(count), Label("pos", position_cells)]
    encoding = batches.tokens.encoding
    labels += id_labels(ids[:, places].ravel(), encoding)
    if batches.draw:
        targets = ids[:, places + 1].ravel()
        labels += id_labels(targets, encoding, "target ID", "target")

    gaps = [gap * count for gap in samples.gaps]
    for sample in range(len(order)):
        gaps += [sample * count + gap for gap in positions.gaps]
    lines = rows.reshape(len(order) * count, -1)
    missing = [omission(samples, "sample", batches.order), omission(positions, "position")]
    return Matrix(
        labels,
        [Values(lines, "input")],
        batches.columns,
        sorted(gaps),
        **batches.style.of_numbers,
        rows_left_out=" and ".join(filter(None, missing)),
    )

"""The page of batches: a table of IDs or of what the model reads, the shapes, and remarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from embcli.layer import shape_of
from embcli.page import (
    Hint,
    Label,
    Matrix,
    Note,
    Values,
    omission,
    ruled,
    safe_text,
    shorten,
    title,
)
from embcli.page.labels import origin_lines, token_label
from embcli.page.table import GAP, SHORTEST
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from embcli.verbs.batch import Batches

_MOST_SAMPLES = 8  # a table of IDs shows no more
_SHORT_WORDS = 12  # cells of the tokens of a sample if not all positions fit beside them
_MOST_DRAWN_SAMPLES = 3
_MOST_COLOURED_SAMPLES = 2  # a picture in colours has a colour bar below
_MOST_DRAWN_TOKENS = 5  # a drawn sample shows no more


def page(batches: Batches, console: Console, options: ConsoleOptions) -> RenderResult:
    width = options.max_width
    if batches.is_drawn:
        matrix = _picture(batches)
        is_shortened = False
    else:
        matrix, is_shortened = _table_of_ids(batches, width)
    yield title(_heading(batches))
    if batches.draws_windows:
        yield from _windows(batches, width)
        return
    yield matrix
    if is_shortened:
        yield Hint(("draw",))
    if batches.style.bare:
        return
    yield _shapes(batches)
    yield from _remarks(batches)
    yield from origin_lines(batches.source.origin)


def _heading(batches: Batches) -> str:
    windows = batches.windows
    samples = f"{_letter(batches)} = {counted(len(batches.order), 'sample')}"
    length = f"T = {counted(windows.max_length, 'token')}"
    shuffled = ", shuffled" if windows.shuffle else ""
    return f"{_which(batches)}: {samples} of {length}, stride {windows.stride:,}{shuffled}"


def _which(batches: Batches) -> str:
    if batches.count == 1:
        return "The only batch"
    if batches.all:
        return f"All {batches.count:,} batches"
    if not batches.first:
        return f"Batch 0, the first of {batches.count:,}"
    return f"Batch {batches.first:,} of 0 to {batches.count - 1:,}"


def _letter(batches: Batches) -> str:
    """Return the letter of the first dimension: N samples of all batches, or B of one."""
    return "N" if batches.all else "B"


def _shapes(batches: Batches) -> Table:
    letter = _letter(batches)
    samples = f"{len(batches.order):,}"
    length = f"{batches.windows.max_length:,}"
    vocabulary_size, dim = shape_of(batches.source, "token")
    source = f"rows of V = {counted(vocabulary_size, 'token')}, D = {counted(dim, 'column')}"
    shape = f"({samples}, {length}, {dim:,})"
    rows = [
        ("IDs", f"({letter}, T)", f"({samples}, {length})", ""),
        ("token", f"({letter}, T, D)", shape, source),
        ("+ position", "(T, D)", f"({length}, {dim:,})", "the same for each sample"),
        ("= input", f"({letter}, T, D)", shape, "what the model reads"),
    ]
    names, letters, sizes, remarks = zip(*rows, strict=True)
    labels = [
        Label("", names, "left"),
        Label("", letters, "left"),
        Label("", sizes, "left"),
        Label("", remarks, "left", short=True),
    ]
    return ruled(labels, has_rule=False)


def _remarks(batches: Batches) -> RenderResult:
    windows = batches.windows
    samples = windows.samples(len(batches.tokens))
    dropped = samples - batches.count * windows.batch_size
    if dropped > 0:
        what = f"{counted(dropped, 'sample')} dropped"
        yield Note(f"{what}: the last batch is incomplete.", "keep_last")
    if windows.stride > windows.max_length:
        # The first token after a sample is the target of its last input.
        unread = windows.stride - windows.max_length
        yield safe_text(
            f"The stride exceeds T. Never an input: {unread:,} of every {windows.stride:,} tokens; "
            f"of these never a target: {unread - 1:,}."
        )
    if batches.is_drawn:
        yield safe_text(
            "As in the book, the loader starts before the position layer is drawn, so these rows "
            "are not those of lookup."
        )
    if batches.count > 1 and not batches.all:
        yield Hint(("index",))


# --- the table of IDs ---


def _table_of_ids(batches: Batches, width: int) -> tuple[Matrix, bool]:
    """Return the inputs and targets of some samples, and whether tokens beside them are shortened.

    These are the input tokens and the last target, if there is room for it. Positions that do not
    fit are left out.
    """
    excerpt = Excerpt.ends(_MOST_SAMPLES, len(batches.order))
    samples = batches.order[excerpt.places]
    ids = batches.ids(samples)  # (n, T + 1)
    labels = []
    if batches.all:
        labels.append(Label("batch", batches.first + excerpt.places // batches.windows.batch_size))
    labels.append(Label("sample", samples))

    is_shortened = False
    if batches.tokens.encoding is not None:
        tokens = [batches.tokens.bytes_of(sample) for sample in ids]
        room = _room_for_words(batches, ids, labels, width)
        fits = room >= SHORTEST
        cells = room if fits else _SHORT_WORDS
        inputs = [" ".join(map(shown, sample[:-1])) for sample in tokens]
        targets = [f" → {shown(sample[-1])}" for sample in tokens]
        room_for_inputs = cells - max(map(cell_len, targets))
        if room_for_inputs < SHORTEST:
            targets = [""] * len(targets)
            room_for_inputs = cells
        is_shortened = max(map(cell_len, inputs)) > room_for_inputs
        pairs = zip(inputs, targets, strict=True)
        words = [f"{shorten(text, room_for_inputs)}{target}" for text, target in pairs]
        labels.append(Label("tokens", words, "left", short=not fits))

    matrix = Matrix(
        labels,
        [Values(ids[:, :-1], "inputs"), Values(ids[:, 1:], "targets")],
        np.arange(batches.windows.max_length),
        excerpt.gaps,
        column="position",
        rows_left_out=omission(excerpt, "row"),
    )
    return matrix, is_shortened


def _room_for_words(batches: Batches, ids: np.ndarray, labels: list[Label], width: int) -> int:
    """Return the cells that labels, inputs and targets leave of a line; negative for none."""
    last_position = batches.windows.max_length - 1  # the widest header
    cell = len(str(max(int(ids.max()), last_position)))
    block = 3 + batches.windows.max_length * (cell + 2)
    taken = sum(label.width + 2 for label in labels)
    return width - taken - 2 * block


# --- the picture of the windows ---


def _windows(batches: Batches, width: int) -> RenderResult:
    """Yield a table with a column for each token that fits, and a line for each sample."""
    ids = batches.tokens.ids[: width // (SHORTEST + GAP) - 1]
    words = [str(token_id) for token_id in ids]
    if batches.tokens.encoding is not None:
        words = [shorten(shown(token), SHORTEST) for token in batches.tokens.bytes_of(ids)]

    samples = batches.order[batches.order * batches.windows.stride < len(ids)]
    marks = np.array(["", "■", "□", ""])  # before a sample, its inputs, the last target, after it
    columns = [Label("sample", samples)]
    for place, word in enumerate(words):
        offsets = place - samples * batches.windows.stride  # of this token in each sample
        length = batches.windows.max_length
        parts = np.digitize(offsets, [0, length, length + 1])
        columns.append(Label(word, marks[parts], "left"))
    yield ruled(columns)
    total = len(batches.tokens)
    if len(ids) < total:
        yield safe_text(f"Shown: the first {len(ids)} of {total:,} tokens.")


# --- the picture of what the model reads ---


def _picture(batches: Batches) -> Matrix:
    """Return the input embeddings of some tokens of some samples, a line for each token."""
    most_samples = _MOST_COLOURED_SAMPLES if batches.style.heat else _MOST_DRAWN_SAMPLES
    samples = Excerpt.ends(most_samples, len(batches.order))
    positions = Excerpt.ends(_MOST_DRAWN_TOKENS, batches.windows.max_length)
    order = batches.order[samples.places]
    count = len(positions.places)  # lines of a sample
    ids = batches.ids(order)
    rows = batches.embeddings(order)[:, positions.places]  # (samples, count, columns)

    sample_cells = []
    for sample in order.tolist():
        first, *others = _bracket(count)
        sample_cells += [f"{sample}{first}", *others]
    labels = [Label("sample", sample_cells), Label("pos", list(positions.places) * len(order))]
    labels += _id_labels(batches, "token", ids[:, positions.places])
    if batches.draw:
        labels += _id_labels(batches, "target", ids[:, positions.places + 1])

    gaps = [gap * count for gap in samples.gaps]
    for start in range(0, len(sample_cells), count):
        gaps += [start + gap for gap in positions.gaps]
    missing = [omission(samples, "sample", batches.order), omission(positions, "position")]
    return Matrix(
        labels,
        [Values(rows.reshape(len(sample_cells), -1), "input")],
        batches.columns,
        gaps,
        precision=batches.style.precision,
        heat=batches.style.heat,
        rows_left_out=" and ".join(filter(None, missing)),
    )


def _bracket(lines: int) -> list[str]:
    """Return a bracket around the lines of a sample, in pieces."""
    if lines == 1:
        return [" ·"]
    return [" ╭", *[" │"] * (lines - 2), " ╰"]


def _id_labels(batches: Batches, name: str, ids: np.ndarray) -> list[Label]:
    ids = ids.ravel()
    if batches.tokens.encoding is None:
        return [Label("ID" if name == "token" else name, ids)]
    tokens = token_label(batches.tokens.bytes_of(ids))
    return [tokens._replace(header=name), Label("ID", ids)]

"""The page of `batch --coverage`: the samples under each other, how often each token is read, and the sums."""

from dataclasses import replace

import numpy as np

from embcli.oldpage import Block, Column, Page
from embcli.tokens import shown
from embcli.verbs.coverage import Coverage
from embcli.words import counted

_MOST_SAMPLES = 6
_LEAST_WORDS = 12  # cells to which words beside numbers may be shortened


def view(result: Coverage, page: Page) -> None:
    """Put the first samples on a page, aligned with the text, then a strip of the whole text, and the numbers."""
    batching, size = result.batching, len(result.tokens)
    batches = batching.batches(size)
    page.title(f"Which of {counted(size, 'token')} are read")
    page.line(
        f"{counted(result.samples, 'sample')} of T = {batching.max_length:,} tokens, stride {batching.stride:,}, "
        f"in {batches:,} batch{'es' * (batches > 1)} of B = {batching.batch_size:,}"
    )
    _put_samples(result, page)
    page.line()
    page.line("How often each token of the text is an input:")
    page.strips([], [Block("", result.counts[None].astype(np.float32))], np.arange(size), signed=False)
    page.line()
    _put_numbers(result, page)


def _put_samples(result: Coverage, page: Page) -> None:
    """Put the inputs of the first samples on the page, one row each, in columns of the text's positions."""
    samples = min(_MOST_SAMPLES, result.samples)
    length, stride = result.batching.max_length, result.batching.stride
    label = Column("sample", [*map(str, range(samples)), "read"])
    columns: list[Column] = []
    for place in range(min(len(result.tokens), page.width)):
        (token,) = result.tokens.bytes_at(np.array([place])) if result.tokens.encoding else (None,)
        word = shown(token) if token is not None else str(result.tokens.ids[place])
        cells = [word if each * stride <= place < each * stride + length else "" for each in range(samples)]
        columns.append(Column(str(place), [*cells, str(result.counts[place])], "left"))
        if not page.fits_table([label, *columns]):
            columns.pop()
            break
    started = [each for each in range(samples) if each * stride < len(columns)]
    rows = [*started, samples]  # the last one is the counts
    page.table([replace(column, cells=[column.cells[row] for row in rows]) for column in (label, *columns)])


def _put_numbers(result: Coverage, page: Page) -> None:
    batching = result.batching
    left = result.samples - len(result.used)
    rows = {
        "read once": result.once,
        "read in several samples": result.repeated,
        f"skipped: the stride exceeds T by {batching.stride - batching.max_length:,}": result.skipped,
        f"dropped: {counted(left, 'sample')} without a full batch": result.dropped,
        "left over at the end: too few for another sample": result.left_over,
    }
    shown_rows = {words: count for words, count in rows.items() if count}
    page.table(
        [
            Column("tokens", [f"{count:,}" for count in shown_rows.values()]),
            Column("", [*shown_rows], "left", least=_LEAST_WORDS),
        ],
        ruled=False,
    )

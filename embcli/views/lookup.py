"""How `lookup` looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embcli.oldpage import Block, Column, Columns, Excerpt, Page
from embcli.oldpage.layout import cell_len
from embcli.recipe import AddPosition, AddRow, AddType, in_words
from embcli.verbs.lookup import Lookup, Term, rows_beside
from embcli.views.parts import PickedRows, matrix_in_words, put_left_out, put_origin, token_column, token_labels
from embcli.words import counted

_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace
_MOST_TARGETS = 4  # positions that a picked row goes to
_FEWEST_IN_A_SUM = 3  # bands whose rows stand under each other for each token; fewer bands stand one after the other


@dataclass(frozen=True, eq=False)
class Band:
    """Rows of one matrix, one per token; the table shows them band by band or, for a sum, token by token."""

    label: str
    header: str  # of the numbers of its rows
    numbers: Sequence[object]  # of its rows
    of_tokens: bool  # whether a row depends on the token, not only on its position
    values: np.ndarray  # (n, columns) float32


def view(result: Lookup, page: Page) -> None:
    """Put the chosen matrices of a lookup on a page, below a picture and above a trace."""
    every = Excerpt.first(len(result.columns), len(result.columns))
    drawn = _put_picture(result, page) if result.options.draw else every
    rows = Excerpt.ends(_MOST_TOKENS, len(result))
    index = result.index(rows.places)
    bands = _bands(result, index)
    projected = [] if len(result.columns_of("hidden")) == len(result.columns) else bands[-1:]
    in_table, apart = (bands[:-1], projected) if [each.label for each in projected] == ["hidden"] else (bands, [])
    page.title(f"{_title(result)}: {_sizes(result)}")
    columns = _put_bands(result, page, index, in_table, rows) if in_table else every
    for band in apart:  # in a table of its own
        numbers = result.columns_of(band.label)
        page.line(f"What the first block reads: H = {counted(len(numbers), 'column')}")
        own_columns = page.grid(_labels(result, index, [band]), [Block("", band.values)], numbers, rows.gaps)
        put_left_out(page, own_columns.missing("column", numbers))
    _put_meaning(result, page)
    if result.same_bag:
        page.line("Both sequences are the same bag of tokens in different orders:")
        same = "equal token rows, different input embeddings."
        page.line(same if result.positions else "equal input embeddings: the order is lost.")
    columns = columns if columns.left_out else drawn  # those of the picture are fewer
    missing = rows.missing("row"), columns.missing("column", result.columns)
    put_left_out(page, *missing)
    if result.options.trace is not None:
        _put_trace(result, page, result.options.trace)
    put_origin(page, result.origin)


def _bands(result: Lookup, index: np.ndarray) -> list[Band]:
    """Return the bands of these tokens: all terms of the input embeddings, unless the user chose matrices."""
    shown, places = result.shown, result.tokens.places(index)[1]
    is_sum = shown == result.matrices
    bands: list[Band] = []
    for term in result.terms(index):
        if is_sum or term.name in shown:
            numbers = [""] * len(index) if term.numbers is None else term.numbers.tolist()
            if term.name in ("position", "input"):  # of padding, too
                numbers = places.tolist()
            label = f"{term.sign} {term.name}".lstrip() if is_sum else term.name
            header, of_tokens = "ID" if term.name == "token" else "pos", term.sign != "+"
            bands.append(Band(label, header, numbers, of_tokens, term.values))
    if "hidden" in shown:
        rows = result.rows(index, ("hidden",))["hidden"]
        bands.append(Band("hidden", "pos", places.tolist(), True, rows))
    return bands


def _title(result: Lookup) -> str:
    if result.shown != result.matrices:
        return f"{' and '.join(result.shown).capitalize()} embeddings"
    steps = tuple(step for step in result.steps if not isinstance(step, AddRow))
    words = in_words(steps).replace("sinusoidal ", "")
    return f"Input embeddings = {words} embeddings"


def _sizes(result: Lookup) -> str:
    """Return the sizes of the matrices with their units, and how many of the tokens the user chose."""
    tokens, count = result.tokens, counted(len(result.tokens), "token")
    columns = f"D = {counted(result.layer.shape[1], 'column')}"
    if result.only is not None:
        return f"{len(result):,} of {count}, {columns}"
    if not tokens.many:
        return f"T = {count}, {columns}"
    sequences = counted(tokens.sequences, "sequence")
    if tokens.sequences and len(tokens) == tokens.sequences * tokens.longest:
        return f"B = {sequences}, T = {counted(tokens.longest, 'token')}, {columns}"
    return f"{sequences}, {count}, {columns}"


def _put_bands(result: Lookup, page: Page, index: np.ndarray, bands: list[Band], rows: Excerpt) -> Excerpt:
    """Put bands of these tokens in one table; return which of their columns it shows."""
    by_token = len(bands) >= _FEWEST_IN_A_SUM
    values = np.stack([band.values for band in bands], axis=1 if by_token else 0)
    gaps = [place * len(index) + gap for place in range(len(bands)) for gap in rows.gaps]
    if by_token:
        gaps = [len(bands) * gap for gap in rows.gaps]
    every = result.options.columns is not None
    apart = result.positions.apart(result.columns) if result.positions else 1
    block = Block("", values.reshape(-1, values.shape[-1]), apart)
    return page.grid(_labels(result, index, bands), [block], result.columns, gaps, every=every)


def _labels(result: Lookup, index: np.ndarray, bands: Sequence[Band]) -> list[Column]:
    """Return the labels of the rows of bands: the band, the number of the row in its layer, the token.

    A token or a band that several rows share is shown beside the first of them.
    """
    tokens = result.tokens
    if result.shown == ("token",) and (result.options.draw or result.only is not None):
        return token_labels(tokens, index)
    is_single, by_token, count = len(bands) == 1, len(bands) >= _FEWEST_IN_A_SUM, len(index)
    rows = [(band, row) for band in bands for row in range(count)]  # of the table
    if by_token:
        rows = [(band, row) for row in range(count) for band in bands]
    band_column = Column("", [band.label if by_token or not row else "" for band, row in rows], "left")
    numbers = Column(bands[0].header if is_single else "row", [band.numbers[row] for band, row in rows])
    labels = [numbers] if is_single else [band_column, numbers]
    if tokens.encoding is not None and any(band.of_tokens for band in bands):
        words = tokens.bytes_of(tokens.ids[index])
        named = [band is bands[0] if by_token else band.of_tokens for band, _ in rows]
        column = token_column([words[row] if name else None for (_, row), name in zip(rows, named, strict=True)])
        labels.insert(0 if by_token else len(labels), column)
    if tokens.many:
        sequence = tokens.places(index)[0]
        cells = ["" if by_token and band is not bands[0] else sequence[row] for band, row in rows]
        labels.insert(0 if by_token or is_single else 1, Column("seq", cells))
    return labels


def _put_meaning(result: Lookup, page: Page) -> None:
    """Say where the rows come from, in one line if it fits; the title says it for a plain sum."""
    shown, terms = result.shown, [step for step in result.steps if isinstance(step, AddPosition | AddType)]
    lines: list[str] = []
    if "token" in shown and not result.options.draw:
        tensor = f"{matrix_in_words(result.origin, 'token')}, " if result.origin.is_other else ""
        lines.append(f"token: row ID of {tensor}V = {counted(result.layer.shape[0], 'token')}")
    if "position" in shown and result.positions is not None:
        lines.append(f"position: {result.positions.source_in_words(result.origin.first_position)}")
    if "input" in shown and not terms:
        words = "the token row, the same at every position" if not result.steps else result.sum
        lines.append(f"input: {words}")
    elif shown == ("input",):
        lines.append(f"input: {result.sum if result.recipe else 'the token row plus the position row'}")
    if "input" in shown and any(isinstance(step, AddType) for step in terms):
        tensor, (rows, width) = result.origin.tensors["token_type"], result.origin.shapes["token_type"]
        token_type = f"token type: row {result.type_row} of {tensor}, ({rows:,}, {width:,})"
        lines.append(f"{token_type}; input = {result.sum}")
    if "hidden" in shown and result.recipe is not None:
        lines.append(f"hidden: {result.recipe.words}; the first block of this {result.recipe.model} model reads it")
    if result.recipe is not None and result.recipe.part is not None:
        lines.append(f"part: {result.recipe.part}")
    line = "; ".join(lines)
    for each in [line] if line and cell_len(page.safe(line)) <= page.width else lines:
        page.line(each)


def _put_picture(result: Lookup, page: Page) -> Excerpt:
    """Put the token layer on the page with the picked rows marked, and where they go; return which columns it shows."""
    index = result.index(np.arange(len(result)))
    picked = PickedRows.of(result.tokens.ids[index], rows_beside(result.layer.shape[0]))
    size, dim = counted(result.layer.shape[0], "token"), counted(result.layer.shape[1], "column")
    page.title(f"Each ID picks a row of the token matrix: V = {size}, D = {dim}")
    labels = [Column("ID", [f"{row} →" if mark else "" for row, mark in zip(picked.rows, picked.marks, strict=True)])]
    if result.tokens.encoding is not None:
        words = result.tokens.bytes_of(picked.rows)
        labels.insert(0, token_column([word if mark else None for word, mark in zip(words, picked.marks, strict=True)]))
    labels.append(Column("row", picked.rows))
    values = result.layer.rows(picked.rows)[:, result.columns]
    targets = _target_column(result, index, picked, page, labels, values)
    columns = page.grid(labels, [Block("", values)], result.columns, picked.gaps, [targets], picked.tones)
    put_left_out(page, picked.missing)
    return columns


def _target_column(
    result: Lookup, index: np.ndarray, picked: PickedRows, page: Page, labels: list[Column], values: np.ndarray
) -> Column:
    """Return where each picked row goes, as many positions as fit beside two columns of numbers."""
    tokens = result.tokens
    name = "to seq:pos" if tokens.many else "to pos"
    targets: list[list[str]] = []
    for row, mark in zip(picked.rows.tolist(), picked.marks, strict=True):
        sequence, position = tokens.places(index[tokens.ids[index] == row] if mark else index[:0])
        places = zip(sequence.tolist(), position.tolist(), strict=True)
        targets.append([f"{s}:{p}" if tokens.many else str(p) for s, p in places])
    least = [label for label in labels if not label.least]
    least += [Column("…", ["…"] * len(values))] if values.shape[1] > 1 else []
    for most in range(_MOST_TARGETS, -1, -1):
        more = [[f"{len(each) - most:,} {'more' if most else 'in all'}"] * (len(each) > most) for each in targets]
        cells = [", ".join([*each[:most], *rest]) for each, rest in zip(targets, more, strict=True)]
        column = Column(name, [f"→ {cell}" if cell else "" for cell in cells], "left")
        if page.fits_grid([*least, column], [Block("", values[:, :1])], result.columns[:1]):
            break
    return column


def _put_trace(result: Lookup, page: Page, place: int) -> None:
    """Put the sum of one token on the page, value by value, and the norm after it."""
    terms, formula = result.terms(np.array([place])), ""
    for term in terms[:-1]:
        row = "" if term.numbers is None else int(term.numbers[0])
        if term.name == "position":
            row = result.origin.first_position + int(row)
        formula += f" {term.sign} {term.name}{'' if term.numbers is None else f' row {row}'}".replace("  ", " ")
    page.line()
    page.title(f"Trace of token {place}:{formula} = input row {place}")
    columns = Excerpt.ends(_MOST_TERMS, len(result.columns))
    page.table(_terms(result, page, terms, columns), columns.gaps, ruled=False)
    page.line(f"The sum is computed in float32; it is shown to {page.paper.precision} decimals.")
    if result.norm is not None:
        mean, variance, steps = result.traced_norm(place)
        page.line()
        page.title(f"Trace of hidden row {place}: normed = (input - mean) / sqrt(variance + epsilon)")
        shown, size = page.written(np.array([mean, variance])), result.layer.shape[1]
        page.line(f"mean {shown[0]}, variance {shown[1]}, over all {size:,} columns; epsilon {result.norm.epsilon:g}")
        page.table(_terms(result, page, steps, columns), columns.gaps, ruled=False)
    put_left_out(page, columns.missing("column", result.columns))


def _terms(result: Lookup, page: Page, terms: list[Term], picked: Excerpt) -> Columns:
    """Return the terms of one token as a table, a line for each of these columns, with the signs before them."""
    values = [term.values if term.factor is None else np.full_like(term.values, term.factor) for term in terms]
    numbers = page.numbers(*values)
    width = max(len("column"), len(str(result.columns.max(initial=0))))
    column_numbers = [f"{column:{width}}" for column in result.columns[picked.places]]
    columns: Columns = [Column("column".rjust(width), column_numbers, "left", minimum=width + 1)]
    for term, row in zip(terms, values, strict=True):
        if term.sign:
            columns.append(Column("", [term.sign] * len(column_numbers)))
        written = [numbers.write(row[0, place]) for place in picked.places]
        columns.append(Column(term.name, written, minimum=max(numbers.width, len("position"))))
    return columns

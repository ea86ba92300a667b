"""How `lookup` looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embcli.hints import hint
from embcli.oldpage import Block, Column, Columns, Excerpt, Page
from embcli.oldpage.layout import cell_len
from embcli.positions.kind import JoinedWords
from embcli.verbs.lookup import Lookup, rows_beside
from embcli.views.parts import PickedRows, matrix_in_words, put_left_out, put_origin, token_column, token_labels
from embcli.words import counted

_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace
_MOST_TARGETS = 4  # positions that a picked row goes to
_FEWEST_IN_A_SUM = 3  # bands whose rows stand under each other for each token; fewer bands stand one after the other

_SIGNS = {"position": "+ position", "input": "= input"}


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
    words = result.positions.joined_words(result.origin.first_position)
    every = Excerpt.first(len(result.columns), len(result.columns))
    drawn = _put_picture(result, page) if result.options.draw else every
    rows = Excerpt.ends(_MOST_TOKENS, len(result))
    index = result.index(rows.places)
    in_table, apart = _bands(result, index)
    page.title(f"{_title(result, words, bool(in_table))}: {_sizes(result, words, bool(in_table))}")
    columns = _put_bands(result, page, index, in_table, rows) if in_table else every
    for band in apart:  # in a table of its own
        numbers, is_hidden = result.columns_of(band.label), band.label == "hidden"
        page.line(f"What the first block reads: H = {counted(len(numbers), 'column')}" if is_hidden else words.heading)
        own_columns = page.grid(_labels(result, index, [band]), [Block("", band.values)], numbers, rows.gaps)
        put_left_out(page, own_columns.missing("column" if is_hidden else words.column, numbers))
    _put_meaning(result, words, page)
    if result.same_bag:
        page.line("Both sequences are the same bag of tokens in different orders:")
        page.line(words.bag)
    columns = columns if columns.left_out else drawn  # those of the picture are fewer
    missing = rows.missing("row"), columns.missing("column", result.columns)
    put_left_out(page, *missing, how=f"{hint('columns') + ', ' if columns.left_out else ''}{hint('npy')}")
    if result.options.trace is not None:
        _put_trace(result, page, result.options.trace)
    put_origin(page, result.origin)


def _bands(result: Lookup, index: np.ndarray) -> tuple[list[Band], list[Band]]:
    """Return the bands of these tokens: those with the columns of the token layer, and those with other columns."""
    shown, position = result.shown, result.tokens.places(index)[1]
    in_table: list[Band] = []
    apart: list[Band] = []
    is_sum = shown == result.matrices and not result.positions.has_own_columns

    def repeated(label: str, number: object, row: np.ndarray) -> Band:
        rows = np.repeat(row[:, result.columns], len(index), axis=0)
        return Band(label, "", [number] * len(index), False, rows)

    for name, values in result.rows(index, shown).items():
        numbers = (result.tokens.ids[index] if name == "token" else position).tolist()
        label = _SIGNS.get(name, name) if is_sum else name
        band = Band(label, "ID" if name == "token" else "pos", numbers, name != "position", values)
        (apart if result.has_own_columns(name) else in_table).append(band)
        if not is_sum:
            continue
        if name == "token" and result.scale != 1:
            rows = values * np.float32(result.scale)
            in_table.append(Band(f"x {result.scale:.4g}", "", [""] * len(rows), True, rows))
        type_after = "position" if result.recipe and result.recipe.type_is_last else "token"
        if name == type_after and result.added_type is not None:
            in_table.append(repeated("+ type", result.options.token_type, result.added_type))
        if name == "position" and result.constant_row is not None:
            in_table.append(repeated("+ rows 0", "", result.constant_row))
    return in_table, apart


def _title(result: Lookup, words: JoinedWords, in_table: bool) -> str:
    show, token_type = result.shown, result.options.token_type
    if show != result.matrices:
        return f"{' and '.join(show).capitalize()} {'embeddings' if in_table else words.matrix}"
    scaled = f" x {result.scale:.4g}" if result.scale != 1 else ""
    typed = f" + token type {token_type}" if result.added_type is not None else ""
    token = "token" if words.title.startswith(" + ") and not (scaled or typed) else "token embeddings"
    return f"Input embeddings = {token}{scaled}{typed}{words.title}"


def _sizes(result: Lookup, words: JoinedWords, in_table: bool) -> str:
    """Return the sizes of the matrices with their units, and how many of the tokens the user chose."""
    tokens, count = result.tokens, counted(len(result.tokens), "token")
    columns = f"D = {counted(result.layer.shape[1], 'column')}"
    if not in_table:
        columns = f"{words.width} = {counted(result.positions.columns, words.column)}"
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
    block = Block("", values.reshape(-1, values.shape[-1]), result.positions.apart(result.columns))
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


def _put_meaning(result: Lookup, words: JoinedWords, page: Page) -> None:
    """Say where the rows come from, in one line if it fits; the title says it for a plain sum."""
    shown, typed = result.shown, result.added_type is not None
    lines: list[str] = []
    if "token" in shown and not result.options.draw:
        tensor = f"{matrix_in_words(result.origin, 'token')}, " if result.origin.is_other else ""
        lines.append(f"token: row ID of {tensor}V = {counted(result.layer.shape[0], 'token')}")
    if "position" in shown and words.position:
        lines.append(words.position)
    in_title = result.positions.adds and shown != ("input",)
    if "input" in shown and not in_title and (words.sum or not typed):
        lines.append(words.input if result.recipe is None or not result.recipe.sum else f"input: {result.sum}")
    if "input" in shown and typed:
        tensor, (rows, width) = result.origin.tensors["token_type"], result.origin.shapes["token_type"]
        token_type = f"token type: row {result.options.token_type} of {tensor}, ({rows:,}, {width:,})"
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
    index = np.array([place])
    computed = result.rows(index, ("token", "position", "input"))
    rows, formula = {"token": computed["token"]}, f"token row {result.tokens.ids[place]}"
    if result.scale != 1:
        rows[f"x {result.scale:.4g}"] = np.full_like(computed["input"], result.scale)
        formula += f" x {result.scale:.4g}"
    if result.added_type is not None:
        rows["type"] = result.added_type[:, result.columns]
        formula += f" + type row {result.options.token_type}"
    if "position" in computed:
        rows["position"] = computed["position"]
        formula += f" + position row {result.origin.first_position + int(result.tokens.places(index)[1][0])}"
    if result.constant_row is not None:
        rows["rows 0"] = result.constant_row[:, result.columns]
        formula += " + rows 0"
    rows["input"] = computed["input"]
    page.line()
    page.title(f"Trace of token {place}: {formula} = input row {place}")
    terms = Excerpt.ends(_MOST_TERMS, len(result.columns))
    signs = {name: "" if name[0] == "x" else "=" if name == "input" else "+" for name in rows if name != "token"}
    page.table(_terms(result, page, rows, signs, terms), terms.gaps, ruled=False)
    page.line(f"The sum is computed in float32; it is shown to {page.paper.precision} decimals.")
    if result.norm is not None:
        _put_norm(result, page, place, terms)
    put_left_out(page, terms.missing("column", result.columns), how=hint("columns"))


def _put_norm(result: Lookup, page: Page, place: int, terms: Excerpt) -> None:
    """Put the norm of one input row on the page, value by value."""
    traced = result.traced_norm(place)
    page.line()
    page.title(f"Trace of hidden row {place}: normed = (input - mean) / sqrt(variance + epsilon)")
    mean, variance = page.written(np.array([traced.mean, traced.variance]))
    page.line(f"mean {mean}, variance {variance}, over all {traced.size:,} columns; epsilon {traced.epsilon:g}")
    rows = {name: values[:, result.columns] for name, values in traced.rows.items()}
    rows |= result.rows(np.array([place]), ("hidden",))
    signs = {"normed": "→", "gain": "x", "bias": "+", "hidden": "="}
    page.table(_terms(result, page, rows, signs, terms), terms.gaps, ruled=False)


def _terms(result: Lookup, page: Page, rows: dict[str, np.ndarray], signs: dict[str, str], terms: Excerpt) -> Columns:
    """Return rows (1, columns) as a table, a line for each of these columns, with the signs before them."""
    numbers = page.numbers(*rows.values())
    width = max(len("column"), len(str(result.columns.max(initial=0))))
    column_numbers = [f"{column:{width}}" for column in result.columns[terms.places]]
    columns: Columns = [Column("column".rjust(width), column_numbers, "left", minimum=width + 1)]
    for name, values in rows.items():
        if signs.get(name):
            columns.append(Column("", [signs[name]] * len(column_numbers)))
        written = [numbers.write(values[0, term]) for term in terms.places]
        columns.append(Column(name, written, minimum=max(numbers.width, len("position"))))
    return columns

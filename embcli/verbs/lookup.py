"""The lookup: token IDs pick rows of the token matrix, positions join them, and a model's further steps follow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError, Notes, check_choice
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import MATRICES
from embcli.names import Matrix as MatrixName
from embcli.numerics.steps import StepValues, Term, sinusoids
from embcli.opened import Opened, TextOrIds
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, NO_POSITIONS, OTHER_NAMES, JoinedKind
from embcli.positions.kind import in_turn
from embcli.positions.sinusoidal import wave_rows
from embcli.recipe import AddPosition, AddType, Norm, Project, Recipe, RecipeStep, Scale, in_words
from embcli.records import ArraySpec, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import Excerpt, select
from embcli.text import parse_ids
from embcli.tokens import Tokens, check_ids, check_length, id_in_words
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table


_WHOLE = 12  # rows of a token layer that a picture shows completely
_MOST, _FEWEST = (
    40,
    2,
)  # tokens of a table in a file or a pipe, and columns of a trace; tokens of any table
_MOST_TARGETS = 4  # positions that a picked row goes to
_IDS = re.compile(r"[0-9]+(,[0-9]+)*")


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup", content="embeddings"):
    """The result of a lookup: (T, D) token rows and what `steps` add to them are the (T, D) input embeddings.

    Rows are computed when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    kind: JoinedKind  # of the positions
    columns: np.ndarray  # of the token layer, (chosen columns,) int64
    columns_chosen: bool  # by the user
    origin: Origin
    steps: tuple[RecipeStep, ...]  # from a token row to the input embedding
    step_values: StepValues  # what they add
    rest: tuple[RecipeStep, ...]  # from the input embedding to `hidden`; empty if the input is that
    position_source: str  # of position rows, in words
    matrices: Names
    show: Names | None  # of the matrices, as the user chose
    recipe: Recipe | None = (
        None  # None for seeded layers, and if the model's is unknown or not followed
    )
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    trace: int | None = None  # the token whose sum a page writes out
    draw: bool = False

    token = MatrixOf()  # (n, D) float32
    position = MatrixOf()  # (n, D) float32
    input = MatrixOf()  # (n, D) float32, the answer
    hidden = (
        MatrixOf()
    )  # (n, H) float32, what the model's first block reads, if that is not the input

    def __len__(self) -> int:
        return len(self.tokens) if self.only is None else len(self.only)

    @property
    def shown(self) -> Names:
        given = self.show or (("token",) if self.draw else self.matrices)
        return tuple(name for name in self.matrices if name in given)

    def index(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these places among those that are looked up, (n,) int64."""
        return places if self.only is None else self.only[places]

    def columns_of(self, name: str) -> np.ndarray:
        if name == "hidden" and self.recipe and self.recipe.width != self.layer.shape[1]:
            return np.arange(self.recipe.width)
        return self.columns

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        terms = {term.name: term.values for term in self.terms(index, names)}
        return {name: terms[name] for name in names if name in self.matrices}

    def terms(self, index: np.ndarray, names: Names = MATRICES) -> list[Term]:
        """Return the terms of the sum of these tokens, the input embeddings and `hidden`: as many as the names need."""
        ids, positions, places = (
            self.tokens.ids[index],
            self._positions[index],
            self.tokens.places(index)[1],
        )
        rows = self.layer.rows(ids)
        terms = [Term("token", "", rows, ids)]
        if {"position", "input", "hidden"} & {*names}:
            rows, added = self.step_values.apply(self.steps, rows, positions)
            terms += [*added, Term("input", "=", rows, places)]
        if "hidden" in names and "hidden" in self.matrices:
            terms.append(Term("hidden", "", self._hidden(index, rows), places))
        return [term._replace(values=term.values[:, self.columns_of(term.name)]) for term in terms]

    def _hidden(self, index: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what the first block reads at these tokens with these input rows, (n, D) -> (n, H) float32."""
        if not any(isinstance(step, Project) for step in self.rest):
            return self.step_values.apply(self.rest, rows, self._positions[index])[0]
        sequence, place = self.tokens.places(index)
        hidden = np.empty((len(index), self.recipe.width if self.recipe else 0), np.float32)
        for number in np.unique(sequence).tolist():  # a projection takes whole texts
            whole = np.arange(*self.tokens.starts[number : number + 2].tolist())
            steps, token = (*self.steps, *self.rest), self.layer.rows(self.tokens.ids[whole])
            read, _ = self.step_values.apply(steps, token, self._positions[whole])
            hidden[sequence == number] = read[place[sequence == number]]
        return hidden

    @cached_property
    def _positions(self) -> np.ndarray:
        """The positions of all tokens, (T,) int64; that of padding is -1 where positions do not count it."""
        starts, padding = self.tokens.starts, self.recipe.padding if self.recipe else None
        counts = np.ones(len(self.tokens), bool) if padding is None else self.tokens.ids != padding
        until = np.concatenate([[0], np.cumsum(counts)])
        return np.where(counts, until[1:] - 1 - np.repeat(until[starts[:-1]], np.diff(starts)), -1)

    def records(self) -> Records:
        columns = {name: tuple(self.columns_of(name).tolist()) for name in self.matrices}
        run = run_of(
            self.tokens.encoding, sequences=self.tokens.sequences, **self.origin.document()
        )
        if self.kind != DEFAULT_KIND:
            run |= {"kind": self.kind}
        for step in (*self.steps, *self.rest):
            if isinstance(step, AddType):
                run |= {"token_type": step.row, "sum": in_words(self.steps)}
        if self.recipe is not None:
            run |= {"recipe": self.recipe.words} | (
                {"part": self.recipe.part} if self.recipe.part else {}
            )
        return Records(
            run=run,
            unit="tokens",
            rows=len(self),
            fields=self.tokens.field_types,
            pieces=in_pieces(
                len(self),
                self.layer.shape[1],
                lambda places, names: self.tokens.fields(self.index(places), names),
                lambda places, names: self.rows(self.index(places), names),
            ),
            matrices={
                name: ArraySpec((len(self), len(each)), columns=each)
                for name, each in columns.items()
            },
            columns=columns["input"],
            default="input",
            shown=self.show and self.shown,
            sequences=self.tokens.sequences,
        )

    # --- its page ---

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import rows_that_fit, safe_text
        from embcli.page.labels import origin_lines

        meaning = [*self._meaning()]
        line = safe_text("; ".join(meaning))
        end: list[RenderableType] = (
            [line] if meaning and line.cell_len <= options.max_width else [*map(safe_text, meaning)]
        )
        if self.tokens.sequences == 2:
            one, other = np.split(self.tokens.ids, self.tokens.starts[1:2])
            if not np.array_equal(one, other) and np.array_equal(np.sort(one), np.sort(other)):
                end.append(
                    safe_text("Both sequences are the same bag of tokens in different orders:")
                )
                same = "equal token rows, different input embeddings."
                end.append(
                    safe_text(
                        same
                        if self.step_values.positions
                        else "equal input embeddings: the order is lost."
                    )
                )
        if self.trace is not None:
            end += self._trace(self.trace, options.max_width)
        end += origin_lines(self.origin)
        picture = self._picture(options.max_width) if self.draw else []
        lines = len(self.shown)  # of a token
        table = self._table(max(rows_that_fit(options, lines * _MOST) // lines, _FEWEST))
        return [*picture, *table, *end]

    def _table(self, most: int) -> Iterator[RenderableType]:
        """Yield the terms of at most so many tokens, or the matrices that the user chose, below a title."""
        from embcli.page import Label, Matrix, Values, omission, title
        from embcli.page.labels import token_label, token_labels

        tokens = self.tokens
        rows = Excerpt.ends(most, len(self))
        index = self.index(rows.places)
        is_sum, is_in_turn = (
            self.shown == self.matrices,
            self.kind == "sinusoidal" and self.recipe is None,
        )
        terms = [
            term for term in self.terms(index, self.shown) if is_sum or term.name in self.shown
        ]
        named = f"{' and '.join(self.shown).capitalize()} embeddings"
        if is_sum and not self.steps:  # a token row is the input
            terms = [term for term in terms if term.name != "input"]
            named = "Input embeddings, input = token"
        elif is_sum:
            formula = in_words(self.steps)
            named = f"Input embeddings = {formula.replace('sinusoidal ', '')} embeddings"
        count, sequences = counted(len(tokens), "token"), counted(tokens.sequences, "sequence")
        size = f"{len(self):,} of {count}" if self.only is not None else f"T = {count}"
        if tokens.many and self.only is None:
            is_batch = tokens.sequences and len(tokens) == tokens.sequences * tokens.longest
            longest = counted(tokens.longest, "token")
            size = f"B = {sequences}, T = {longest}" if is_batch else f"{sequences}, {count}"
        yield title(f"{named}: {size}, D = {counted(self.layer.shape[1], 'column')}")
        projected = [term for term in terms if len(self.columns_of(term.name)) != len(self.columns)]
        for part in filter(None, ([term for term in terms if term not in projected], projected)):
            columns = self.columns_of(part[0].name)
            if part is projected:
                yield title(f"What the first block reads: H = {counted(len(columns), 'column')}")
            values = np.stack([term.values for term in part], axis=1).reshape(-1, len(columns))
            if len(part) == 1:
                labels = token_labels(tokens, index)
            else:
                names = [
                    f"{term.sign} {term.name}".lstrip() if is_sum else term.name for term in part
                ]
                numbers = [
                    [""] * len(index) if term.numbers is None else term.numbers.tolist()
                    for term in part
                ]
                labels = [
                    Label("", names * len(index), "left"),
                    Label("row", [*chain(*zip(*numbers, strict=True))]),
                ]
                first = slice(None, None, len(part))  # the rows with a token
                if tokens.encoding is not None:
                    named_tokens: list[bytes | None] = [None] * len(values)
                    named_tokens[first] = tokens.bytes_of(tokens.ids[index])
                    labels.insert(0, token_label(named_tokens))
                if tokens.many:
                    of_sequences: list[object] = [""] * len(values)
                    of_sequences[first] = tokens.places(index)[0].tolist()
                    labels.insert(0, Label("seq", of_sequences))
            yield Matrix(
                labels,
                [Values(values, column_period=in_turn(columns) if is_in_turn else 1)],
                columns,
                [len(part) * gap for gap in rows.gaps],
                precision=self.style.precision,
                heat=self.style.heat,
                every=self.columns_chosen and part is not projected,
                rows_left_out=omission(rows, "token", self.only),
                rows_parameter="only",
            )

    def _meaning(self) -> Iterator[str]:
        """Yield where the rows come from, unless the title says it."""
        shown, recipe, origin, formula = self.shown, self.recipe, self.origin, in_words(self.steps)
        types = [step for step in self.steps if isinstance(step, AddType)]
        if "token" in shown and not self.draw:
            tensor = f"tensor {origin.tensors['token']}, " if origin.is_custom_tensor else ""
            yield f"token: row ID of {tensor}V = {counted(self.layer.shape[0], 'token')}"
        if "position" in shown and self.step_values.positions is not None:
            yield f"position: {self.position_source}"
        if (
            "input" in shown
            and not types
            and not any(isinstance(step, AddPosition) for step in self.steps)
        ):
            yield f"input: {formula if self.steps else 'the token row, the same at every position'}"
        elif shown == ("input",):
            yield f"input: {formula if recipe else 'the token row plus the position row'}"
        if "input" in shown and types:
            tensor, (rows, width) = origin.tensors["token_type"], origin.shapes["token_type"]
            yield f"token type: row {types[0].row} of {tensor}, ({rows:,}, {width:,}); input = {formula}"
        if "hidden" in shown and recipe is not None:
            yield f"hidden: {recipe.words}; the first block of this {recipe.model} model reads it"
            if "input" in shown:
                yield "A file of one matrix (npy, csv) has input, not hidden, unless show names hidden."
        if recipe is not None and recipe.part is not None:
            yield f"part: {recipe.part}"

    def _picture(self, width: int) -> list[RenderableType]:
        """Return the token layer with the picked rows marked, and where they go: as many positions as fit."""
        from embcli.page import Label, Matrix, Values, left_out, title
        from embcli.page.labels import picked_rows, token_label

        tokens, index = self.tokens, self.index(np.arange(len(self)))
        picked = picked_rows(tokens.ids[index], context_rows(self.layer.shape[0]))
        targets = []
        for row in picked.rows.tolist():
            sequence, position = tokens.places(index[tokens.ids[index] == row])
            places = map("{}:{}".format, sequence, position) if tokens.many else map(str, position)
            targets.append([*places])
        arrows = [f"{row} →" if to else "" for row, to in zip(picked.rows, targets, strict=True)]
        labels = [Label("ID", arrows), Label("row", picked.rows)]
        values = self.layer.rows(picked.rows)[:, self.columns]
        least = [*labels, Label("…", ["…"])], [Values(values[:, :1])], self.columns[:1]
        for most in range(_MOST_TARGETS, -1, -1):
            goals = Label(
                "to seq:pos" if tokens.many else "to pos",
                [_goal(to, most) for to in targets],
                "left",
            )
            if Matrix(*least, trailing=[goals]).fits(width):
                break
        if tokens.encoding is not None:
            named = zip(tokens.bytes_of(picked.rows), targets, strict=True)
            labels.insert(0, token_label([word if to else None for word, to in named]))
        size, dim = counted(self.layer.shape[0], "token"), counted(self.layer.shape[1], "column")
        rows = labels, [Values(values)], self.columns, picked.gaps, [goals], self.style.precision
        table = Matrix(
            *rows, tones=picked.tones, heat=self.style.heat, column=""
        )  # the table below names columns
        missing = left_out(picked.missing)
        heading = title(f"Each ID picks a row of the token matrix: V = {size}, D = {dim}")
        return [heading, table] if missing is None else [heading, table, missing]

    def _trace(self, place: int, width: int) -> Iterator[RenderableType]:
        """Yield the sum of one token, value by value, and the norm after it."""
        from embcli.page import left_out, omission, safe_text, title, written

        columns, dim = Excerpt.ends(_MOST, len(self.columns)), self.layer.shape[1]
        whole = replace(self, columns=np.arange(dim)).terms(np.array([place]))
        terms, formula = [term for term in whole if term.name != "hidden"], ""
        for term in terms[:-1]:
            first = self.origin.first_position if term.name == "position" else 0
            row = "" if term.numbers is None else f" row {first + int(term.numbers[0])}"
            formula += f" {term.sign} {term.name}{row}".replace("  ", " ")
        yield ""
        yield title(f"Trace of token {place}:{formula} = input row {place}")
        yield from self._values(terms, columns, width)
        yield safe_text(
            f"The sum is computed in float32; it is shown to {self.style.precision} decimals."
        )
        if len(self.rest) == 1 and isinstance(norm := self.rest[0], Norm):
            exact, values = terms[-1].values.astype(np.float64), self.step_values.values
            mean, variance = exact.mean(), exact.var()
            steps = [
                terms[-1]._replace(sign=""),
                Term("normed", "→", (exact - mean) / np.sqrt(variance + norm.epsilon)),
                Term("gain", "x", values(norm.weight)[None]),
                *([Term("bias", "+", values(norm.bias)[None])] if norm.bias else []),
                whole[-1]._replace(sign="="),
            ]
            shown = written(np.array([mean, variance]), self.style.precision)
            yield ""
            yield title(
                f"Trace of hidden row {place}: normed = (input - mean) / sqrt(variance + epsilon)"
            )
            yield safe_text(
                f"mean {shown[0]}, variance {shown[1]}, over all {dim:,} columns; epsilon {norm.epsilon:g}"
            )
            yield from self._values(steps, columns, width)
        missing = left_out(omission(columns, "column", self.columns), parameters=("columns",))
        if missing is not None:
            yield missing

    def _values(self, terms: list[Term], columns: Excerpt, width: int) -> Iterator[Table]:
        """Yield the terms of one token as tables, a line for each of these columns, with the signs before them."""
        from embcli.page import Label, NumberFormat, ruled

        places, number = self.columns[columns.places], Label("column", self.columns[columns.places])
        values = [
            term.values if term.factor is None else np.full_like(term.values, term.factor)
            for term in terms
        ]
        numbers = NumberFormat([each[:, self.columns] for each in values], self.style.precision)
        cell = max(numbers.width, len("position"))
        most = max((width - number.width) // (cell + 3), 1)  # numbers of a line, each after a sign
        for start in range(0, len(terms), most):
            labels = [number]
            for term, row in [*zip(terms, values, strict=True)][start : start + most]:
                labels += [Label("", [term.sign] * len(places))] if term.sign else []
                labels.append(
                    Label(
                        term.name, [numbers.write(value) for value in row[0, places]], minimum=cell
                    )
                )
            yield ruled(labels, gaps=columns.gaps, has_rule=False)


def lookup(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    lines: bool = False,
    window: bool = False,
    show: tuple[MatrixName, ...] | MatrixName | None = None,
    columns: str | None = None,
    trace: int | None = None,
    draw: bool = False,
    only: str | None = None,
    position: JoinedKind | None = None,
) -> Lookup:
    """Return the rows that tokens pick, (T, D), their position rows, and the input embeddings, their sum.

    `window` splits longer texts into sequences of C tokens, and `position` says which positions are added to the
    token rows. `show` names the matrices to show and save, `only` the tokens, by a text or by IDs (digits alone),
    `trace` the token whose sum is spelled out. Raises InputError for tokens without a row, sequences longer than
    the position layer, and options that do not go together.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).lookup([2, 3]).input.shape
    (2, 3)
    """
    source = model.source
    notes = model.notes.begun()
    tokens = model.tokens(text, special, lines, notes=notes)
    if window:
        tokens = tokens.window(shape_of(source, "position")[0])
    position = cast("JoinedKind | None", OTHER_NAMES.get(position or "", position))
    check_choice("position", position, JOINED_KINDS)
    show = (show,) if isinstance(show, str) else show
    for name in show or ():
        check_choice("show", name, MATRICES)
    vocabulary_size, dim = shape_of(source, "token")
    seeded = source.origin.is_seeded
    places = None if only is None else _occurrences(tokens, only, special)
    check_ids(tokens, vocabulary_size, can_enlarge=seeded)
    kind, recipe, steps = _planned(source, position, show or (("token",) if draw else ()), notes)
    if kind == NO_POSITIONS and "position" in (show or ()):
        raise InputError(Sentence("{position} none has no rows that {show} could name"))
    rest = recipe.rest if recipe else ()
    every = (*steps, *rest)
    positions, has_layer, position_source = None, False, ""
    if recipe and recipe.position and recipe.position.sinusoid_formula:
        positions = partial(sinusoids, recipe.position, dim)
        position_source = (
            "the model's own sinusoids, sines in the first half of the columns, then cosines"
        )
    elif kind == "sinusoidal":
        positions = partial(wave_rows, dim)
        position_source = "columns 2i and 2i + 1 are the sine and cosine of p / 10000^(2i/D)"
    elif kind == DEFAULT_KIND or any(isinstance(step, AddPosition) for step in every):
        has_layer = True
        check_length(tokens, shape_of(source, "position")[0], can_enlarge=seeded)
    if trace is not None and not every:
        raise InputError(
            Sentence("{trace} writes out a sum; {position} {kind} adds nothing", kind=kind)
        )
    if trace is not None and not 0 <= trace < len(tokens):
        there_are = f"there {'is' if len(tokens) == 1 else 'are'} {counted(len(tokens), 'token')}"
        wrong = "{trace} {given} is not a token: {there_are}, counted from 0"
        raise InputError(Sentence(wrong, given=trace, there_are=there_are))
    chosen = select(columns, dim, "column")
    asked = {
        "token": np.concatenate([tokens.ids, context_rows(vocabulary_size)]) if draw else tokens.ids
    }
    types = np.array([step.row for step in every if isinstance(step, AddType)], np.int64)
    asked |= {"position": np.arange(tokens.longest)} if has_layer else {}
    layers = source.open(asked | ({"token_type": types} if len(types) else {}), notes)
    if has_layer:
        first = f" + {layers.origin.first_position}" if layers.origin.first_position else ""
        position_source = f"row p{first} of C = {counted(layers['position'].shape[0], 'position')}"
    if recipe is not None:
        _remark_recipe(recipe, tokens, layers.origin.dtypes["token"], notes)
    has = {"position": kind != NO_POSITIONS, "hidden": "hidden" in (show or ()) or bool(rest)}
    return Lookup(
        tokens=tokens,
        layer=layers["token"],
        kind=kind,
        columns=chosen,
        columns_chosen=columns is not None,
        origin=layers.origin,
        steps=steps,
        rest=rest,
        step_values=StepValues(
            layers["position"].rows if has_layer else positions,
            layers["token_type"].rows(types) if len(types) else np.empty((0, 0), np.float32),
            recipe.values if recipe else dict[str, np.ndarray]().__getitem__,
        ),
        position_source=position_source,
        matrices=tuple(name for name in MATRICES if has.get(name, True)),
        show=show,
        recipe=recipe,
        only=places,
        trace=trace,
        draw=draw,
        notes=notes,
    )


def _remark_recipe(recipe: Recipe, tokens: Tokens, dtype: str, notes: Notes) -> None:
    """Remark what the model does otherwise: a scale in another precision, and tokens that it treats in another way."""
    from embcli.files.numbers import rounded_to

    factor = np.array([recipe.scale], np.float32)
    rounded = rounded_to(dtype, factor)
    is_rounded = any(isinstance(step, Scale) and step.is_rounded for step in recipe.steps)
    if is_rounded and dtype.endswith("float16") and rounded != factor:
        what = f"the scale is {factor[0]:.6g} in float32; the model in {dtype} rounds it to {rounded[0]:.6g} first"
        notes.add(what)
    for token, why in recipe.quirks:
        if (tokens.ids == token).any():
            notes.add(f"ID {token}: {why}")


def _planned(
    source: Source, given: JoinedKind | None, shown: Names, notes: Notes
) -> tuple[JoinedKind, Recipe | None, tuple[RecipeStep, ...]]:
    """Return the kind of positions, the recipe unless the user asks for another sum, and the steps to the input."""
    seeded = source.origin.is_seeded
    is_default = given in (None, DEFAULT_KIND)
    if shown == ("token",) and is_default:
        return (DEFAULT_KIND, None, (AddPosition(),)) if seeded else (NO_POSITIONS, None, ())
    recipe, has_layer = source.recipe, source.shape("position") is not None
    step = recipe.position if recipe else None
    has_types = (
        recipe is None and is_default and not seeded and source.shape("token_type") is not None
    )
    own: JoinedKind = DEFAULT_KIND if recipe is None and has_layer else NO_POSITIONS
    if recipe is not None and step in recipe.sum:
        own = "sinusoidal" if step.sinusoid_formula else DEFAULT_KIND
    if recipe is None and source.orphan_norm:
        notes.add(
            f"no file says how the model applies {quoted(source.orphan_norm)}: these rows are before it"
        )
    if has_types:
        notes.add(
            "no file says so, but a model with token types adds the row of one: here that of type 0"
        )
    elif is_default and own == NO_POSITIONS and step is None:
        what = (
            "no file says what the model adds to the token rows: the input rows are the token rows"
        )
        if recipe is not None and recipe.is_known:
            blocks = f"; {recipe.blocks}" if recipe.blocks else ""
            rows = in_words(recipe.sum).replace("token", "token rows", 1)
            what = f"this model adds no position rows{blocks}: the input rows are the {rows}"
        elif recipe is not None:
            why = f": {recipe.unknown}" if recipe.unknown else ""
            of = f"what a {quoted(recipe.model)} model adds to the token rows is not known{why}"
            what = f"{of}; the input rows are the token rows"
        notes.add(what)
    if given == DEFAULT_KIND and step and not step.sinusoid_formula:  # perhaps after a projection
        given = None
    follows = recipe is not None and recipe.is_known and given in (None, own)
    if "hidden" in shown and not follows and not seeded:
        if recipe is not None and recipe.is_known:
            wrong = (
                "{show} hidden, what the first block reads, follows the positions of the model; "
                "leave out {position}"
            )
        else:
            wrong = "{show} hidden, what the first block reads, is not known for this model"
        raise InputError(Sentence(wrong))
    kind = NO_POSITIONS if given == DEFAULT_KIND and not has_layer else given or own
    if recipe is not None and follows:
        return kind, recipe, recipe.sum
    return (
        kind,
        None,
        (*([AddType()] if has_types else []), *([] if kind == NO_POSITIONS else [AddPosition()])),
    )


def _goal(places: list[str], most: int) -> str:
    """Return the places that a row goes to, at most so many of them by name; nothing for a row that is not picked."""
    named = places[:most]
    if len(places) > most:
        named.append(f"{len(places) - most:,} {'more' if most else 'in all'}")
    return f"→ {', '.join(named)}" if named else ""


def context_rows(size: int) -> np.ndarray:
    """Return the rows of a token layer that a picture shows beside those that are picked, (n,) int64."""
    return np.arange(size) if size <= _WHOLE else np.array([0, size - 1])


def _occurrences(tokens: Tokens, text: str, special: bool) -> np.ndarray:
    """Return where the tokens of a text, or of IDs (digits alone), occur, (n,) int64; raises InputError for none."""
    if not isinstance(text, str):
        raise InputError(
            Sentence(
                "{only} must be a text such as 'Paris' or '345', not {given}", given=str(text)[:40]
            )
        )
    given = text[:40]
    is_ids = _IDS.fullmatch(text) is not None
    if not is_ids and tokens.encoding is None:
        raise InputError(
            Sentence("{only} {given!r} is a text; IDs without an encoding take an ID", given=given)
        )
    wanted = (
        parse_ids(text)
        if is_ids or tokens.encoding is None
        else tokens.encoding.encode(text, special)
    )
    if not len(wanted):
        raise InputError(
            Sentence("{only} {given!r} has no tokens; give a token that occurs", given=given)
        )
    occurs = np.zeros(len(tokens), bool)
    for token_id, token in zip(wanted.tolist(), tokens.bytes_of(wanted), strict=True):
        here = tokens.ids == token_id
        if not here.any():
            spaced = (
                "; digits are an ID, with a space before them a text"
                if is_ids and tokens.encoding
                else ""
            )
            absent = f"{id_in_words(token_id, token)} does not occur; embcli tokenize shows which tokens do{spaced}"
            raise InputError(Sentence("{only} {given!r}: {absent}", given=given, absent=absent))
        occurs |= here
    return np.flatnonzero(occurs)

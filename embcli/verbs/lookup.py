"""The lookup: token IDs pick rows of the token matrix, positions join them, and a model's further steps follow."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from embcli.binary import shortened
from embcli.errors import InputError
from embcli.files.numbers import rounded_to
from embcli.hints import hint
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import MATRICES
from embcli.options import LookupOptions
from embcli.positions import DEFAULT_KIND, NO_POSITIONS, JoinedKind
from embcli.positions.kind import JoinedPositions
from embcli.recipe import INSIDE, AddType, Norm, Recipe
from embcli.records import Array, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.text import parse_ids
from embcli.tokens import Tokens, check_ids, check_length, id_in_words
from embcli.verbs.hidden import Steps, own_positions, steps_of
from embcli.words import counted

_PIECE = 1 << 18  # values of one matrix that are computed at a time
_WHOLE = 12  # rows of a token layer that a picture shows completely


@dataclass(frozen=True, eq=False)
class TracedNorm:
    """A LayerNorm of one row: its statistics in float64, and the rows that it takes, (1, D) float32 each."""

    mean: float
    variance: float
    size: int  # D
    epsilon: float
    rows: dict[str, np.ndarray]  # input, normed, gain, perhaps bias


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup", content="embeddings"):
    """The result of a lookup: (T, D) token rows, joined by (T, D) position rows, are the (T, D) input embeddings.

    The steps of a real model are those of its recipe, in their order and in float32: a scale, the row of a token type,
    position rows make the input embedding; a norm or a projection makes `hidden` of it, (T, H), what the model's first
    block reads. Rows are computed when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: JoinedPositions
    columns: np.ndarray  # of the token layer, (chosen columns,) int64
    origin: Origin
    options: LookupOptions
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    type_row: np.ndarray | None = None  # (1, D) float32, of the token type; None for no type
    recipe: Recipe | None = None  # None for seeded layers, and if the model's is unknown or not followed
    steps: Steps | None = None  # from a token row to the input embedding; None if positions join it and no more
    steps_to_hidden: Steps | None = None  # from there to `hidden`; None if the input is that

    token = MatrixOf()  # (n, D) float32
    position = MatrixOf()  # (n, D) float32, or angles (n, D/2)
    input = MatrixOf()  # (n, D) float32, the answer
    hidden = MatrixOf()  # (n, H) float32, what the model's first block reads, if that is not the input

    def __len__(self) -> int:
        """Return how many tokens are looked up."""
        return len(self.tokens) if self.only is None else len(self.only)

    @cached_property
    def matrices(self) -> Names:
        """The matrices of the result."""
        return tuple(dict.fromkeys((*self.options.matrices, *(("hidden",) if self.steps_to_hidden else ()))))

    @property
    def shown(self) -> Names:
        """The matrices on a page."""
        given = self.options.show or (("token",) if self.options.draw else self.matrices)
        return tuple(name for name in self.matrices if name in given)

    @property
    def added_type(self) -> np.ndarray | None:
        """The row of the token type, (1, D) float32, if it is a term of the input embedding."""
        steps = self.recipe.sum if self.recipe else (AddType(),)
        return self.type_row if any(isinstance(step, AddType) for step in steps) else None

    @property
    def scale(self) -> float:
        """The number by which the model multiplies token rows."""
        return self.recipe.scale if self.recipe else 1.0

    @property
    def sum(self) -> str:
        """The order in which rows are added, as a formula."""
        if self.recipe is not None:
            return self.recipe.formula
        last = self.positions.joined_words(0).sum
        typed = "token" if self.type_row is None else "token + token_type"
        return f"({typed}){last}" if last and typed != "token" else f"{typed}{last}"

    @property
    def same_bag(self) -> bool:
        """Whether there are two sequences of the same tokens in different orders."""
        if self.tokens.sequences != 2:
            return False
        first, second = np.split(self.tokens.ids, self.tokens.starts[1:2])
        return not np.array_equal(first, second) and np.array_equal(np.sort(first), np.sort(second))

    def index(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these places among those that are looked up, (n,) int64."""
        return places if self.only is None else self.only[places]

    def columns_of(self, name: str) -> np.ndarray:
        """Return the columns of a matrix, (columns,) int64: the chosen ones, or all if they are not columns of D."""
        if not self.has_own_columns(name):
            return self.columns
        return np.arange(self.positions.columns if name == "position" or self.recipe is None else self.recipe.width)

    def has_own_columns(self, name: str) -> bool:
        """Say whether a matrix has other columns than the token layer: angles do, and projected rows."""
        if name == "position":
            return self.positions.has_own_columns
        return name == "hidden" and self.recipe is not None and self.recipe.width != self.layer.shape[1]

    @property
    def norm(self) -> Norm | None:
        """The norm that makes `hidden` of an input row; None if something else does."""
        return self.recipe.norm if self.recipe else None

    def traced_norm(self, place: int) -> TracedNorm:
        """Return what `norm` does to the input row of a token."""
        if self.norm is None or self.recipe is None:
            raise InputError("there is no norm here")
        index = np.array([place])
        row = self._input(self.layer.rows(self.tokens.ids[index]), self._positions(index))
        exact = row.astype(np.float64)
        mean, variance = float(exact.mean()), float(exact.var())
        rows = {"input": row, "normed": (exact - mean) / np.sqrt(variance + self.norm.epsilon)}
        for name, tensor in (("gain", self.norm.weight), ("bias", self.norm.bias)):
            rows |= {name: self.recipe.values(tensor)[None]} if tensor else {}
        return TracedNorm(mean, variance, row.size, self.norm.epsilon, rows)

    @cached_property
    def constant_row(self) -> np.ndarray | None:
        """The sum of rows that are added to all tokens alike, (1, D) float32; None if there are none."""
        if self.recipe is None or not self.recipe.rows_for_all:
            return None
        read = self.recipe.values
        rows = [np.concatenate([read(name)[:1] for name in names], axis=1) for names in self.recipe.rows_for_all]
        return sum(rows[1:], rows[0])

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        rows: dict[str, np.ndarray] = {}
        names = tuple(name for name in names if name in self.matrices)
        places = self._positions(index)
        if "token" in names or "input" in names:
            rows["token"] = self.layer.rows(self.tokens.ids[index])
        if "position" in names:
            rows["position"] = self.positions.rows(places)
        if "input" in names:
            rows["input"] = self._input(rows["token"], places)
        if "hidden" in names:
            rows["hidden"] = self._hidden(index)
        return {name: _picked(rows[name], self.columns_of(name)) for name in names}

    def _input(self, token_rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        if self.steps is not None:
            return self.steps(token_rows, places)
        typed = token_rows if self.type_row is None else token_rows + self.type_row
        return self.positions.joined(typed, places)

    def _hidden(self, index: np.ndarray) -> np.ndarray:
        """Return what the first block reads at these tokens; whole texts if rows depend on the rows beside them."""
        if self.steps_to_hidden is None or not self.steps_to_hidden.takes_whole_texts:
            return self._block_rows(index)
        sequence, place = self.tokens.places(index)
        rows = np.empty((len(index), self.recipe.width if self.recipe else 0), np.float32)
        for number in np.unique(sequence).tolist():
            rows[sequence == number] = self._block_rows_of_sequence(number)[place[sequence == number]]
        return rows

    def _block_rows(self, index: np.ndarray) -> np.ndarray:
        """Return what the first block reads at consecutive tokens, (n, H) float32."""
        places = self._positions(index)
        rows = self._input(self.layer.rows(self.tokens.ids[index]), places)
        return self.steps_to_hidden(rows, places) if self.steps_to_hidden else rows

    @cached_property
    def _block_rows_of_sequence(self) -> Callable[[int], np.ndarray]:
        """What the first block reads of a sequence by its number, (T, H) float32; the last one is kept."""

        @lru_cache(1)
        def read(number: int) -> np.ndarray:
            start, stop = self.tokens.starts[number : number + 2].tolist()
            return self._block_rows(np.arange(start, stop))

        return read

    def _positions(self, index: np.ndarray) -> np.ndarray:
        """Return the positions of these tokens, (n,) int64; that of padding is -1 where positions do not count it."""
        return self.tokens.places(index)[1] if self._counted_positions is None else self._counted_positions[index]

    @cached_property
    def _counted_positions(self) -> np.ndarray | None:
        """The positions of all tokens if some of them are padding that positions do not count; otherwise None."""
        padding = self.recipe.padding if self.recipe else None
        is_padding: np.ndarray = self.tokens.ids == padding
        if padding is None or not is_padding.any():
            return None
        counts = np.cumsum(~is_padding)
        before = np.concatenate([[0], counts])[self.tokens.starts[:-1]]
        positions: np.ndarray = counts - 1 - np.repeat(before, np.diff(self.tokens.starts))
        positions[is_padding] = -1
        return positions

    def records(self) -> Records:
        """Return the lookup as data: position, ID and token of each row, and its matrices."""
        columns = {name: tuple(self.columns_of(name).tolist()) for name in self.matrices}
        kind, step = self.positions, min(max(_PIECE // self.layer.shape[1], 1), 4096)
        run = run_of(self.tokens.encoding, sequences=self.tokens.sequences, **self.origin.document())
        if not kind.has_layer:
            run |= {"kind": self.options.position, **kind.document()}
        if self.type_row is not None:
            run |= {"token_type": self.options.token_type, "sum": self.sum}
        if self.recipe is not None:
            run |= {"recipe": self.recipe.words} | ({"part": self.recipe.part} if self.recipe.part else {})
        return Records(
            run=run,
            unit="tokens",
            rows=len(self),
            fields=self.tokens.field_types,
            pieces=in_pieces(
                len(self),
                step,
                lambda places, names: self.tokens.fields(self.index(places), names),
                lambda places, names: self.rows(self.index(places), names),
            ),
            matrices={name: Array((len(self), len(each)), columns=each) for name, each in columns.items()},
            columns=columns["input"],
            default="input",
            shown=self.options.show and self.shown,
            sequences=self.tokens.sequences,
        )


def _picked(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return these columns; all of them, in order, without a copy."""
    whole = len(columns) == values.shape[1] and bool((columns == np.arange(len(columns))).all())
    return values if whole else values[:, columns]


def look_up(tokens: Tokens, source: Source, options: LookupOptions | None = None, special: bool = False) -> Lookup:
    """Return the rows that tokens pick, at their positions; `special` recognises special tokens in `only`.

    Raises InputError for an ID without a row, for a sequence longer than the position layer, for columns out of range,
    for a token type without a row, for a token to trace that does not exist, and for `only` a token that does not
    occur; LayerError for a D that the kind of positions does not take.
    """
    options = options or LookupOptions()
    (vocabulary_size, dim), seeded = shape_of(source, "token"), source.origin.is_seeded
    only = _occurrences(tokens, options, special)
    check_ids(tokens, vocabulary_size, grows=seeded)
    options, recipe = _resolved(source, options)
    kind = "sinusoidal" if recipe is not None and recipe.waves else options.position or DEFAULT_KIND
    own = own_positions(source, kind, options.theta, options.pairing, tokens.longest)
    positions = own or options.positions(dim)
    reads_positions = positions.has_layer or (recipe is not None and recipe.has_positions and not recipe.waves)
    if reads_positions:
        check_length(tokens, shape_of(source, "position")[0], grows=seeded)
    columns = select(options.columns, dim, "column")
    _check_trace(options, len(tokens), adds=positions.adds or bool(recipe and recipe.steps))
    asked = {"token": np.concatenate([tokens.ids, rows_beside(vocabulary_size)]) if options.draw else tokens.ids}
    if reads_positions:
        asked["position"] = np.arange(tokens.longest)
    if _adds_type_row(source, options, recipe):
        asked["token_type"] = np.array([options.token_type])
    layers = source.open(asked)
    if positions.has_layer:
        positions = replace(positions, opened=layers.get("position"))
    type_row = layers["token_type"].rows(asked["token_type"]) if "token_type" in layers else None
    token, origin, notes = layers["token"], layers.origin, source.notes
    lookup = Lookup(tokens, token, positions, columns, origin, options, only, type_row, notes=notes)
    if recipe is None:
        return lookup
    _note_other_ways(source, recipe, tokens, origin)
    added = layers["position"].rows if "position" in layers else positions.rows
    steps = steps_of(recipe.sum, recipe.values, added, type_row)
    more = steps_of(recipe.rest, recipe.values, added, type_row) if recipe.rest else None
    return replace(lookup, recipe=recipe, steps=steps, steps_to_hidden=more)


def _check_trace(options: LookupOptions, tokens: int, adds: bool) -> None:
    """Raise InputError for a token to trace that does not exist, and where nothing is added to token rows."""
    if options.trace is None:
        return
    if not adds:
        raise InputError(
            f"trace writes out a sum; position {options.position} adds nothing", parameters=("trace", "position")
        )
    if not 0 <= options.trace < tokens:
        there_are = f"there {'is' if tokens == 1 else 'are'} {counted(tokens, 'token')}, counted from 0"
        raise InputError(f"trace {options.trace} is not a token: {there_are}", parameters=("trace",))


def _resolved(source: Source, options: LookupOptions) -> tuple[LookupOptions, Recipe | None]:
    """Return the options with the kind of positions and the token type, and the recipe of the model if it is followed.

    It is followed unless the user asks for other positions, or for token rows only. Notes tell what is not known, and
    where the positions of a model are if it adds none.
    """
    given = options.position
    if options.shown == ("token",) and given in (None, DEFAULT_KIND):
        return replace(options, position=DEFAULT_KIND if source.origin.is_seeded else NO_POSITIONS), None
    recipe = source.recipe
    if recipe is None:
        own: JoinedKind = DEFAULT_KIND if source.shape("position") else NO_POSITIONS
        if source.unapplied:
            source.notes.add(
                f"no file says how the model applies {shortened(source.unapplied)}: these rows are before it"
            )
    else:
        own = recipe.adds or NO_POSITIONS
    if given not in (None, own):
        recipe = None
    if given in (None, DEFAULT_KIND) and own == NO_POSITIONS and not (recipe and recipe.has_positions):
        source.notes.add(_remark_on_positions(recipe, source.origin.name))
    if given == DEFAULT_KIND and source.shape("position") is None:
        given = NO_POSITIONS
    if recipe is not None and not recipe.is_known:
        recipe = None
    if "hidden" in options.shown and recipe is None and not source.origin.is_seeded:
        is_known = source.recipe is not None and source.recipe.is_known
        why = "follows the positions of the model; leave out {position}" if is_known else "is not known for this model"
        raise InputError(f"show hidden, what the first block reads, {why}", parameters=("show",))
    options = replace(options, position=given or own)
    if recipe is not None and recipe.type_row is not None:
        if options.token_type is None:
            options = replace(options, token_type=recipe.type_row)
        recipe = recipe.with_type(options.token_type or 0)
    return options, recipe


def _note_other_ways(source: Source, recipe: Recipe, tokens: Tokens, origin: Origin) -> None:
    """Add remarks where the model scales token rows by another number, or treats one of these tokens in its own way."""
    for step in recipe.scales:
        dtype, factor = origin.dtypes["token"], np.array([step.factor], np.float32)
        rounded = rounded_to(dtype, factor)
        if step.is_rounded and dtype.endswith("float16") and rounded != factor:
            source.notes.add(
                f"the scale is {factor[0]:.6g} in float32; the model in {dtype} rounds it to {rounded[0]:.6g} first"
            )
    for token, why in recipe.quirks:
        if (tokens.ids == token).any():
            source.notes.add(f"ID {token}: {why}")


def _remark_on_positions(recipe: Recipe | None, path: str) -> str:
    """Return the remark on a model whose token rows no position rows join; None for one without config.json."""
    if recipe is None:
        return "no file says what the model adds to the token rows: the input rows are the token rows"
    if not recipe.is_known:
        why = f": {recipe.unknown}" if recipe.unknown else ""
        what = f"what a {shortened(recipe.model)} model adds to the token rows is not known{why}"
        return f"{what}; the input rows are the token rows"
    rows = replace(recipe, steps=recipe.sum).words.replace("token", "token rows", 1)
    shows = f"; {hint('positions', path=shlex.quote(path))}" if recipe.biases else ""
    has = f"{INSIDE[recipe.inside]} positions, inside its blocks" if recipe.inside else "no positions"
    return f"this model has {has}: the input rows are the {rows}{shows}"


def _adds_type_row(source: Source, options: LookupOptions, recipe: Recipe | None) -> bool:
    """Say whether the row of a token type is added; raises InputError if there is no such row.

    A note tells that a model adds such a row if the options do not.
    """
    given = options.token_type
    if given is None and (recipe is not None or "input" not in options.shown):
        return False
    types = None if source.origin.is_seeded else source.shape("token_type")
    if given is None:
        if types is not None:
            has = f"this model has {counted(types[0], 'token type')} and adds the row of one to each token row"
            source.notes.add(f"{has}; token_type 0 adds the first", parameters=("token_type",))
        return False
    if types is None:
        raise InputError(
            f"token_type {given} has no row to add: there are no token types here", parameters=("token_type",)
        )
    if not 0 <= given < types[0]:
        there_are = f"there {'is' if types[0] == 1 else 'are'} {counted(types[0], 'token type')}"
        raise InputError(
            f"token_type {given} is not a token type: {there_are}, counted from 0", parameters=("token_type",)
        )
    return True


def rows_beside(size: int) -> np.ndarray:
    """Return the rows of a token layer that a picture shows beside those that are picked, (n,) int64."""
    return np.arange(size) if size <= _WHOLE else np.array([0, size - 1])


def _occurrences(tokens: Tokens, options: LookupOptions, special: bool) -> np.ndarray | None:
    """Return where the tokens of `only` or `only_ids` occur, (n,) int64; None if neither is given.

    Raises InputError for a token that does not occur, and if there are none.
    """
    text, ids = options.only, options.only_ids
    if text is None and ids is None:
        return None
    if text is None:
        name, given, wanted = "only_ids", (ids or "")[:40], parse_ids(ids or "")
    elif tokens.encoding is None:
        raise InputError(
            f"only {text[:40]!r} is a text; IDs without an encoding take only_ids", parameters=("only", "only_ids")
        )
    else:
        name, given, wanted = "only", repr(text[:40]), tokens.encoding.encode(text, special)
    if not len(wanted):
        raise InputError(f"{name} {given} has no tokens; give a token that occurs", parameters=(name,))
    occurs = np.zeros(len(tokens), bool)
    for token_id, token in zip(wanted.tolist(), tokens.bytes_of(wanted), strict=True):
        here = tokens.ids == token_id
        if not here.any():
            absent = f"{id_in_words(token_id, token)} does not occur; embcli tokenize shows which tokens do"
            raise InputError(f"{name} {given}: {absent}", parameters=(name,))
        occurs |= here
    return np.flatnonzero(occurs)

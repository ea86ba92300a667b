"""The lookup: token IDs pick rows of the token matrix, positions join them, and a model's further steps follow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial

import numpy as np

from embcli.binary import shortened
from embcli.errors import InputError
from embcli.files.numbers import rounded_to
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import MATRICES
from embcli.options import LookupOptions
from embcli.positions import DEFAULT_KIND, NO_POSITIONS, JoinedKind
from embcli.positions.kind import AddedPositions
from embcli.positions.learned import Learned
from embcli.positions.sinusoidal import Sinusoidal
from embcli.recipe import AddPosition, AddType, Norm, Project, Recipe, Scale, Step, formula_of
from embcli.records import Array, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.text import parse_ids
from embcli.tokens import Tokens, check_ids, check_length, id_in_words
from embcli.verbs.hidden import Terms, sinusoids
from embcli.words import counted

_PIECE = 1 << 18  # values of one matrix that are computed at a time
_WHOLE = 12  # rows of a token layer that a picture shows completely
_IDS = re.compile(r"[0-9]+(,[0-9]+)*")


@dataclass(frozen=True, eq=False)
class Term:
    """Rows of some tokens that are a term of their input embeddings, or what comes of them."""

    name: str  # token, x 2, type, position, rows 0; input, hidden
    sign: str  # before its name in a sum
    values: np.ndarray  # (n, columns) float32; of a scale the rows after it
    numbers: np.ndarray | None = None  # of its rows in a layer, or the positions, (n,) int64
    factor: float | None = None  # of a scale


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup", content="embeddings"):
    """The result of a lookup: (T, D) token rows and what `steps` add to them are the (T, D) input embeddings.

    The steps of a real model are those of its recipe, in their order and in float32: a scale, the row of a token type,
    position rows make the input embedding; a norm or a projection makes `hidden` of it, (T, H), what the model's first
    block reads. Rows are computed when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: AddedPositions | None
    columns: np.ndarray  # of the token layer, (chosen columns,) int64
    origin: Origin
    options: LookupOptions
    steps: tuple[Step, ...]  # from a token row to the input embedding
    added: Terms  # what the steps add
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    recipe: Recipe | None = None  # None for seeded layers, and if the model's is unknown or not followed

    token = MatrixOf()  # (n, D) float32
    position = MatrixOf()  # (n, D) float32
    input = MatrixOf()  # (n, D) float32, the answer
    hidden = MatrixOf()  # (n, H) float32, what the model's first block reads, if that is not the input

    def __len__(self) -> int:
        return len(self.tokens) if self.only is None else len(self.only)

    @property
    def rest(self) -> tuple[Step, ...]:
        """The steps from the input embedding to `hidden`; empty if the input is that."""
        return self.recipe.rest if self.recipe else ()

    @cached_property
    def matrices(self) -> Names:
        return tuple(dict.fromkeys((*self.options.matrices, *(("hidden",) if self.rest else ()))))

    @property
    def shown(self) -> Names:
        given = self.options.show or (("token",) if self.options.draw else self.matrices)
        return tuple(name for name in self.matrices if name in given)

    @property
    def type_row(self) -> int | None:
        """The token type whose row is added; None for none."""
        return next((step.row for step in (*self.steps, *self.rest) if isinstance(step, AddType)), None)

    @property
    def sum(self) -> str:
        return formula_of(self.steps)

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
        """Return the columns of a matrix, (columns,) int64: the chosen ones, or all that a projection gives."""
        if name == "hidden" and self.recipe and self.recipe.width != self.layer.shape[1]:
            return np.arange(self.recipe.width)
        return self.columns

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        names = tuple(name for name in names if name in self.matrices)
        rows = {} if names == ("hidden",) else {term.name: term.values for term in self.terms(index, names)}
        if "hidden" in names:
            rows["hidden"] = _picked(self._hidden(index), self.columns_of("hidden"))
        return {name: rows[name] for name in names}

    def terms(self, index: np.ndarray, names: Names = MATRICES) -> list[Term]:
        """Return the terms of the input embeddings of these tokens, in their order, and the input embeddings.

        If `names` has neither position nor input, these are the token rows alone.
        """
        ids, places = self.tokens.ids[index], self._positions(index)
        rows = self.layer.rows(ids)
        terms = [Term("token", "", rows, ids)]
        for step in self.steps if {"position", "input"} & {*names} else ():
            added = self.added.added(step, places)
            rows = self.added.apply((step,), rows, places) if added is None else rows + added
            if isinstance(step, Scale):
                terms.append(Term(f"x {step.factor:.4g}", "", rows, factor=step.factor))
            elif added is not None:
                values = np.broadcast_to(added, rows.shape)
                if isinstance(step, AddPosition):
                    terms.append(Term("position", "+", values, places))
                elif isinstance(step, AddType):
                    terms.append(Term("type", "+", values, np.full(len(index), step.row)))
                elif terms[-1].name == "rows 0":
                    terms[-1] = replace(terms[-1], values=terms[-1].values + values)
                else:
                    terms.append(Term("rows 0", "+", values))
        terms.append(Term("input", "=", rows, places))
        return [replace(term, values=_picked(term.values, self.columns)) for term in terms]

    @property
    def norm(self) -> Norm | None:
        """The norm that makes `hidden` of an input row; None if something else does."""
        return self.rest[0] if len(self.rest) == 1 and isinstance(self.rest[0], Norm) else None

    def traced_norm(self, place: int) -> tuple[float, float, list[Term]]:
        """Return the mean and the variance of a token's input row, in float64, and what `norm` makes of the row."""
        norm, row = self.norm, self._block_rows(np.array([place]), ())
        if norm is None:
            raise InputError("there is no norm here")
        exact = row.astype(np.float64)
        mean, variance = float(exact.mean()), float(exact.var())
        rows = [("input", "", row), ("normed", "→", (exact - mean) / np.sqrt(variance + norm.epsilon))]
        rows += [("gain", "x", self.added.values(norm.weight)[None])]
        rows += [("bias", "+", self.added.values(norm.bias)[None])] if norm.bias else []
        rows += [("hidden", "=", self._hidden(np.array([place])))]
        return mean, variance, [Term(name, sign, _picked(values, self.columns)) for name, sign, values in rows]

    def _hidden(self, index: np.ndarray) -> np.ndarray:
        """Return what the first block reads at these tokens; whole texts if rows depend on the rows beside them."""
        if not any(isinstance(step, Project) for step in self.rest):
            return self._block_rows(index, self.rest)
        sequence, place = self.tokens.places(index)
        rows = np.empty((len(index), self.recipe.width if self.recipe else 0), np.float32)
        for number in np.unique(sequence).tolist():
            rows[sequence == number] = self._block_rows_of_sequence(number)[place[sequence == number]]
        return rows

    def _block_rows(self, index: np.ndarray, rest: tuple[Step, ...]) -> np.ndarray:
        places = self._positions(index)
        return self.added.apply((*self.steps, *rest), self.layer.rows(self.tokens.ids[index]), places)

    @cached_property
    def _block_rows_of_sequence(self) -> Callable[[int], np.ndarray]:
        """What the first block reads of a sequence by its number, (T, H) float32; the last one is kept."""
        starts = self.tokens.starts.tolist()
        return lru_cache(1)(lambda number: self._block_rows(np.arange(starts[number], starts[number + 1]), self.rest))

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
        step = min(max(_PIECE // self.layer.shape[1], 1), 4096)
        run = run_of(self.tokens.encoding, sequences=self.tokens.sequences, **self.origin.document())
        if self.options.position != DEFAULT_KIND:
            run |= {"kind": self.options.position}
        if self.type_row is not None:
            run |= {"token_type": self.type_row, "sum": self.sum}
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
    for a token to trace that does not exist, and for `only` a token that does not occur.
    """
    options = options or LookupOptions()
    (vocabulary_size, dim), seeded = shape_of(source, "token"), source.origin.is_seeded
    only = _occurrences(tokens, options, special)
    check_ids(tokens, vocabulary_size, grows=seeded)
    kind, recipe, steps = _planned(source, options)
    options, every = replace(options, position=kind), (*steps, *(recipe.rest if recipe else ()))
    waves = recipe.position if recipe and recipe.position and recipe.position.waves else None
    positions: AddedPositions | None = None
    if waves or kind == "sinusoidal":
        positions = Sinusoidal(dim, formula=partial(sinusoids, waves, dim) if waves else None)
    elif kind == DEFAULT_KIND or any(isinstance(step, AddPosition) for step in every):
        positions = Learned(dim)
        check_length(tokens, shape_of(source, "position")[0], grows=seeded)
    columns = select(options.columns, dim, "column")
    if options.trace is not None:
        if not every:
            raise InputError(f"trace writes out a sum; position {kind} adds nothing", parameters=("trace", "position"))
        if not 0 <= options.trace < len(tokens):
            there_are = f"there {'is' if len(tokens) == 1 else 'are'} {counted(len(tokens), 'token')}"
            there_are = f"trace {options.trace} is not a token: {there_are}, counted from 0"
            raise InputError(there_are, parameters=("trace",))
    asked = {"token": np.concatenate([tokens.ids, rows_beside(vocabulary_size)]) if options.draw else tokens.ids}
    if isinstance(positions, Learned):
        asked["position"] = np.arange(tokens.longest)
    types = [step.row for step in every if isinstance(step, AddType)]
    if types:
        asked["token_type"] = np.array(types)
    layers = source.open(asked)
    if positions is not None:
        positions = replace(positions, opened=layers.get("position"))
    added = Terms(
        positions,
        layers["token_type"].rows(asked["token_type"]) if types else None,
        cache(recipe.values) if recipe else dict[str, np.ndarray]().__getitem__,
    )
    if recipe is not None:
        _note_other_ways(source, recipe, tokens, layers.origin)
    origin, notes = layers.origin, source.notes
    return Lookup(tokens, layers["token"], positions, columns, origin, options, steps, added, only, recipe, notes=notes)


def _planned(source: Source, options: LookupOptions) -> tuple[JoinedKind, Recipe | None, tuple[Step, ...]]:
    """Return the kind of positions that join token rows, the recipe if it is followed, and the steps to the input.

    It is followed unless the user asks for other positions, or for token rows only. Notes tell what is not known, and
    where the positions of a model are if it adds none.
    """
    given, seeded = options.position, source.origin.is_seeded
    if options.shown == ("token",) and given in (None, DEFAULT_KIND):
        return (DEFAULT_KIND, None, (AddPosition(),)) if seeded else (NO_POSITIONS, None, ())
    recipe, types = source.recipe, False
    if recipe is None:
        own: JoinedKind = DEFAULT_KIND if source.shape("position") else NO_POSITIONS
        types = given in (None, DEFAULT_KIND) and not seeded and source.shape("token_type") is not None
        if source.unapplied:
            norm = shortened(source.unapplied)
            source.notes.add(f"no file says how the model applies {norm}: these rows are before it")
        if types:
            source.notes.add("no file says so, but a model with token types adds the row of one: here that of type 0")
    else:
        own = recipe.adds or NO_POSITIONS
        if given == DEFAULT_KIND and recipe.position and not recipe.position.waves:  # perhaps after a projection
            given = None
    if given in (None, DEFAULT_KIND) and own == NO_POSITIONS and not (recipe and recipe.position) and not types:
        source.notes.add(_remark_on_positions(recipe))
    if given not in (None, own):
        recipe = None
    if given == DEFAULT_KIND and source.shape("position") is None:
        given = NO_POSITIONS
    if recipe is not None and not recipe.is_known:
        recipe = None
    if "hidden" in options.shown and recipe is None and not seeded:
        is_known = source.recipe is not None and source.recipe.is_known
        why = "follows the positions of the model; leave out position" if is_known else "is not known for this model"
        raise InputError(f"show hidden, what the first block reads, {why}", parameters=("show", "position"))
    kind = given or own
    if recipe is not None:
        return kind, recipe, recipe.sum
    return kind, None, (*((AddType(),) if types else ()), *(() if kind == NO_POSITIONS else (AddPosition(),)))


def _remark_on_positions(recipe: Recipe | None) -> str:
    """Return the remark on a model whose token rows no position rows join; None for one without config.json."""
    if recipe is None:
        return "no file says what the model adds to the token rows: the input rows are the token rows"
    if not recipe.is_known:
        why = f": {recipe.unknown}" if recipe.unknown else ""
        what = f"what a {shortened(recipe.model)} model adds to the token rows is not known{why}"
        return f"{what}; the input rows are the token rows"
    rows = replace(recipe, steps=recipe.sum).words.replace("token", "token rows", 1)
    blocks = f"; {recipe.blocks}" if recipe.blocks else ""
    return f"this model adds no position rows{blocks}: the input rows are the {rows}"


def _note_other_ways(source: Source, recipe: Recipe, tokens: Tokens, origin: Origin) -> None:
    """Add remarks where the model scales token rows by another number, or treats one of these tokens in its own way."""
    dtype, factor = origin.dtypes["token"], np.array([recipe.scale], np.float32)
    rounded = rounded_to(dtype, factor)
    is_rounded = any(isinstance(step, Scale) and step.is_rounded for step in recipe.steps)
    if is_rounded and dtype.endswith("float16") and rounded != factor:
        what = f"the scale is {factor[0]:.6g} in float32; the model in {dtype} rounds it to {rounded[0]:.6g} first"
        source.notes.add(what)
    for token, why in recipe.quirks:
        if (tokens.ids == token).any():
            source.notes.add(f"ID {token}: {why}")


def rows_beside(size: int) -> np.ndarray:
    """Return the rows of a token layer that a picture shows beside those that are picked, (n,) int64."""
    return np.arange(size) if size <= _WHOLE else np.array([0, size - 1])


def _occurrences(tokens: Tokens, options: LookupOptions, special: bool) -> np.ndarray | None:
    """Return where the tokens of `only` occur, (n,) int64; None if it is not given.

    Digits alone are IDs. Raises InputError for a token that does not occur, and if there are none.
    """
    text = options.only
    if text is None:
        return None
    given, is_ids = f"only {text[:40]!r}", _IDS.fullmatch(text) is not None
    if not is_ids and tokens.encoding is None:
        raise InputError(f"{given} is a text; IDs without an encoding take an ID", parameters=("only",))
    wanted = parse_ids(text) if is_ids or tokens.encoding is None else tokens.encoding.encode(text, special)
    if not len(wanted):
        raise InputError(f"{given} has no tokens; give a token that occurs", parameters=("only",))
    occurs = np.zeros(len(tokens), bool)
    for token_id, token in zip(wanted.tolist(), tokens.bytes_of(wanted), strict=True):
        here = tokens.ids == token_id
        if not here.any():
            spaced = "; digits are an ID, with a space before them a text" if is_ids and tokens.encoding else ""
            absent = f"{id_in_words(token_id, token)} does not occur; embcli tokenize shows which tokens do{spaced}"
            raise InputError(f"{given}: {absent}", parameters=("only",))
        occurs |= here
    return np.flatnonzero(occurs)

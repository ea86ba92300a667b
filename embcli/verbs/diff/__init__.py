"""The rows of two token matrices that are equal, and how far the others moved.

`diff` returns a Diff, which is plain data, or a TokenDiff if only the tokens are compared.
`measure` matches the rows of BASE and TUNED by their tokens and compares them, `tokens` compares
vocabularies, and `page` shows a Diff.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.encodings.encoding import Rules
from embcli.errors import (
    InputError,
    Notes,
    WrongTypeError,
    check_choice,
    check_number,
    whole_number,
)
from embcli.layer import Layer, Layers, Origin, Source, shape_of
from embcli.names import SHOWN_ROWS, Shape, Strings, TokenLayer, __version__
from embcli.opened import Opened, remark_scaled
from embcli.records import Document, Records, TypedValues, listed
from embcli.result import Result
from embcli.tokens import token_text, tokens_of
from embcli.verbs.diff.converted import Converted, other_settings
from embcli.verbs.diff.measure import ComparedRows, Matching, compare_rows, match_rows
from embcli.verbs.diff.tokens import (
    TokenDiff,
    Vocabulary,
    compare_tokens,
    differences,
    different_rules,
)
from embcli.wording import Elsewhere

if TYPE_CHECKING:
    from embcli.files.checkpoint import Head
    from embcli.verbs.audit.finding import Finding

__all__ = ["Diff", "Matching", "TokenDiff", "Vocabulary", "compare_tokens", "diff", "vocabulary"]

SideName = Literal["BASE", "TUNED"]
State = Literal["equal", "changed", "removed", "added"]


@dataclass(frozen=True, eq=False)
class Diff(ComparedRows, Result, verb="diff"):
    """A comparison of two matrices, for each pair of rows that stand for the same token.

    A pair is equal if all numbers are, in whatever dtypes: NaN equals NaN, and +0 equals -0; or if
    none differs by more than `atol`. Rows without a partner are `removed`, in BASE, or `added`, in
    TUNED. The distances of rows of equal numbers are 0. A cosine distance, 1 - cos, is NaN if a row
    has no direction, an L2 distance and a largest difference if a value is not finite. `head`
    compares the output heads, if a model has one of its own.
    """

    layer: TokenLayer
    base: Side
    tuned: Side
    matching: Matching
    atol: float = 0.0
    head: Diff | None = None
    rules: Strings | None = ()  # of the tokenizers, that differ; None if not compared
    untrained: tuple[Finding, ...] = ()  # what audit says of rows only in TUNED
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.base, self.tuned

    @cached_property
    def counts(self) -> dict[State, int]:
        equal = int(np.count_nonzero(self.equal))
        removed, added = self.matching.alone
        return {
            "equal": equal,
            "changed": len(self.equal) - equal,
            "removed": len(removed),
            "added": len(added),
        }

    @property
    def different(self) -> bool:
        return bool(self._why_no)

    @property
    def row_differences(self) -> list[str]:
        """What differs in the two matrices, in words, whatever the output heads do."""
        found = differences(self.counts, "row")
        if self.other_shapes:
            found.append(self.other_shapes)
        return found

    @property
    def _why_no(self) -> str:
        reasons = self.row_differences
        if self.head is not None and self.head.different:
            reasons.append(f"in the output head {self.head._why_no}")
        reasons += self.rules or ()
        return ", ".join(reasons)

    @property
    def other_shapes(self) -> str:
        """How the shapes differ, if they do, and not only the numbers of rows of two matrices."""
        base = self.base.shape
        tuned = self.tuned.shape
        if base == tuned or len(base) == len(tuned) == 2:
            return ""
        return f"the shapes differ: {base} in BASE, {tuned} in TUNED"

    @cached_property
    def changed(self) -> np.ndarray:
        """The pairs that changed, (n,) int64: non-finite distances first, then the largest."""
        pairs = np.flatnonzero(~self.equal)
        distances = np.nan_to_num(self.distances[pairs], nan=np.inf)
        return pairs[np.argsort(-distances, kind="stable")]

    def tokens(self, pairs: np.ndarray) -> list[bytes | None]:
        known = 0 if self.base.encoding else 1
        rows = self.matching.pairs[known]
        return tokens_of(rows[pairs], self.sides[known].encoding)

    def _records(self) -> Records:
        """Return the pairs as data, then the rows without a partner, and a summary of all."""
        base, tuned = self.sides
        base_rows, tuned_rows = self.matching.pairs
        removed = base.alone.tolist()
        added = tuned.alone.tolist()
        columns: dict[str, TypedValues] = {
            "base_id": (int, [*base_rows.tolist(), *removed, *[None] * len(added)]),
            "tuned_id": (int, [*tuned_rows.tolist(), *[None] * len(removed), *added]),
        }
        if base.encoding or tuned.encoding:
            tokens = self.tokens(np.arange(len(self.equal)))
            for side in self.sides:
                tokens += tokens_of(side.alone, side.encoding)
            columns["token"] = (str, [token_text(token) for token in tokens])
        states = np.where(self.equal, "equal", "changed").tolist()
        alone = ["removed"] * len(removed) + ["added"] * len(added)
        columns["state"] = (str, states + alone)
        distances = {
            "cosine_distance": self.cosine_distances,
            "l2_distance": self.distances,
            "largest_difference": self.largest_differences,
        }
        for name, values in distances.items():
            columns[name] = (float, values.tolist() + [None] * len(alone))

        run = {"embcli": __version__, "base": base.document(), "tuned": tuned.document()}
        summary = {
            "counts": self.counts,
            "different": self.different,
            "untrained": [finding.document() for finding in self.untrained],
            "only_rounded": self.only_rounded,
            "matched_by": self.matching.by,
            "atol": self.atol,
            "head": self.head.counts if self.head else None,
            "rules": self.rules,
        }
        return replace(listed(run, "rows", **columns), more={"diff": summary})


class Side(NamedTuple):
    """One of the two models, and its rows without a partner in the other."""

    name: SideName
    shape: Shape  # (V, D), or that of an array that is read as a matrix
    dtype: str
    encoding: Encoding | None
    origin: Origin
    alone: np.ndarray  # (n,) int64

    def document(self) -> Document:
        name = self.encoding.name if self.encoding else None
        return {"encoding": name, **self.origin.document()}


def diff(
    model: Opened,
    other: Opened,
    *,
    layer: TokenLayer | None = None,
    tokens: bool = False,
    atol: float = 0.0,
    text: str | None = None,
    top: int = SHOWN_ROWS,
) -> Diff | TokenDiff:
    """Return which rows of two models' token matrices are equal, and how far the others moved.

    Rows are matched by their tokens. Rows whose values differ by at most `atol` count as equal.
    `layer` names the only matrix that is compared; without it, the output heads are compared as
    well, if a model has one of its own. The IDs that both tokenizers give to a `text` are
    compared as well. The page shows `top` rows of each kind.

    A GGUF file is compared with the model that it was made of: its values count as equal if they
    can be those of the model, rounded or quantised; special tokens, merges, the chat template and
    the IDs of a sample text are compared, too.

    With `tokens`, or if the rows have different lengths, the tokens are compared instead, which
    gives a TokenDiff. Raises InputError for rows of different lengths without tokens.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).diff(embcli.seeded(vocab=6, dim=3)).different
    False
    """
    if not isinstance(other, Opened):
        raise WrongTypeError(f"other must be a Model, as open and seeded return it, not {other!r}")
    check_choice("layer", layer, get_args(TokenLayer))
    whole_number("top", top, 1)
    check_number("atol", atol, 0)

    notes = model.notes.begun(other.notes)
    compared = layer or "token"
    _, base_dim = shape_of(model.source, compared)
    _, tuned_dim = shape_of(other.source, compared)
    lengths = ""
    if base_dim != tuned_dim and not tokens:
        lengths = (
            f"the rows have different lengths: {base_dim:,} in {model.source.origin.name!r}, "
            f"{tuned_dim:,} in {other.source.origin.name!r}"
        )
        if None in (model.source.encoding, other.source.encoding):
            raise InputError(lengths)
        notes.add(f"{lengths}; only the tokens are compared")
    if tokens or lengths:
        found = compare_tokens(vocabulary(model), vocabulary(other), top, notes, text)
        return replace(found, lengths=lengths)

    if compared == "token":
        remark_scaled(notes, model, other)
    result = _diff_of_layer(model, other, compared, atol, notes)
    if text is not None:
        vocabulary(model)
        vocabulary(other)
    rules = _rules(model.source, other.source, text)
    result = replace(result, rules=rules, top=top)
    return result if layer else _with_heads(result, model, other)


def vocabulary(model: Opened) -> Vocabulary:
    """Return the tokens of a model; raises InputError if they are unknown."""
    encoding = model.source.encoding
    name = model.source.origin.name
    if encoding is None:
        raise InputError(
            "the tokens of {name!r} are unknown: give {encoding}",
            name=name,
            encoding=Elsewhere("encoding"),
        )
    return Vocabulary(name, encoding)


def _with_heads(result: Diff, model: Opened, other: Opened) -> Diff:
    """Return a diff of token matrices that compares the output heads as well."""
    notes = result.notes
    try:
        heads = [head for head in (_head(model), _head(other)) if head is not None]
    except InputError as error:  # a head is packed, or several tensors could be it
        notes.add(f"the output heads are not compared: {error}")
        return result
    if len(heads) < 2 or not any(head.is_own for head in heads):
        return result
    if any(head.relation == "none" for head in heads):
        notes.add("the output heads are not compared: only one of the models has one")
        return result
    head = _diff_of_layer(model, other, "head", result.atol, notes)
    return replace(result, head=head, untrained=result.untrained + head.untrained)


def _head(model: Opened) -> Head | None:
    """Return the output head of a model, a tied one too; None if no model was opened as one."""
    from embcli.files.checkpoint import Checkpoint

    source = model.source
    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return None
    return source.head


def _diff_of_layer(
    model: Opened, other: Opened, layer: TokenLayer, atol: float, notes: Notes
) -> Diff:
    base = model.source.open({layer: None}, notes)
    tuned = other.source.open({layer: None}, notes)
    sizes = (base[layer].shape[0], tuned[layer].shape[0])
    encodings = (model.source.encoding, other.source.encoding)
    matching = match_rows(sizes, encodings)
    rounding = None
    converted = Converted.of(model.source, other.source)
    if converted is not None:
        layers_of_gguf = base if converted.gguf is model.source else tuned
        rounding = layers_of_gguf[layer]
        notes.add(
            "a GGUF and its model: values count as equal if they can be the model's, rounded to "
            f"{rounding.dtype}; special tokens, the chat template and a sample text are compared"
        )
    compared = compare_rows(base[layer], tuned[layer], matching, atol, rounding, notes.watch)

    def side(name: SideName, number: int, layers: Layers) -> Side:
        shape = layers.origin.shapes[layer]
        dtype = layers[layer].dtype
        return Side(name, shape, dtype, encodings[number], layers.origin, matching.alone[number])

    return Diff(
        layer=layer,
        base=side("BASE", 0, base),
        tuned=side("TUNED", 1, tuned),
        matching=matching,
        **vars(compared),
        atol=atol,
        untrained=_untrained(other.source, tuned[layer], layer, matching.alone[1], notes),
        notes=notes,
    )


def _untrained(
    source: Source, opened: Layer, name: TokenLayer, added: np.ndarray, notes: Notes
) -> tuple[Finding, ...]:
    """Return what an audit of TUNED finds untrained, if some of it are rows that BASE lacks."""
    from embcli.verbs.audit.files import files_of
    from embcli.verbs.audit.matrix import audited_matrix
    from embcli.verbs.audit.trained import check_untrained

    with suppress(InputError):  # A config.json is broken, which a note says.
        if len(added):
            found = check_untrained(audited_matrix(name, opened, files_of(source), notes.watch))
            return tuple(each for each in found if np.isin(each.ids, added).any())
    return ()


def _rules(base: Source, tuned: Source, text: str | None) -> Strings | None:
    """Return in which rules and special tokens two tokenizers differ, and two models' settings.

    The IDs of a text are one of the rules. None means that rules cannot be compared, and that
    nothing else differs.
    """
    found: Rules | None = {}
    if base.encoding and tuned.encoding and base.encoding is not tuned.encoding:
        found = different_rules(base.encoding, tuned.encoding, text)
    names = [*(found or {}), *other_settings(base, tuned)]
    return None if found is None and not names else tuple(names)

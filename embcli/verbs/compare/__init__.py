"""The comparison of two ways from token IDs to vectors: a lookup, and a linear layer.

`compare` makes a Comparison, which is plain data. `layers` runs torch's two layers, `pair` judges
what comes out, `page` shows it. torch is imported when `compare` runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from embcli.errors import check_choices, check_number, refuse_too_large
from embcli.formats import ContentKind, content_of
from embcli.layer import shape_of
from embcli.names import COMPARED, COMPARED_IDS, DEFAULT_SEED, OUTPUTS, STEPS
from embcli.opened import Opened, TextOrIds
from embcli.records import ArraySpec, Columns, Document, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.seeded_layers.build import load_torch
from embcli.seeded_layers.seeded import in_range
from embcli.tokens import Tokens, check_ids
from embcli.verbs.compare.pair import Outputs, Pair, decimals

_MOST_NUMBERS = 4096  # of a weight that a document has without being asked


@dataclass(frozen=True, eq=False)
class Comparison(Outputs, Result, verb="compare"):
    """The outputs of both layers for the same weight, their cost and their gradients."""

    tokens: Tokens
    run: Document
    show: Names | None  # chosen steps and outputs; None: the IDs and both outputs
    draw: bool

    @property
    def content(self) -> ContentKind:
        return content_of("compare", {"gradient": self.gradient, "show": self.show})

    @property
    def _why_no(self) -> str:
        return self.verdict.in_words if self.verdict.different else ""

    def _records(self) -> Records:
        """Return a row for each token with both outputs; the rest stands beside the rows."""
        length, dim = self.linear.shape
        chosen = self.show or ()
        shown = [name for name in OUTPUTS if name in chosen]
        weights = {
            "first": self._weight_in_document("first", self.first),
            "shared": self._weight_in_document("shared", self.weight),
        }
        return Records(
            run=self.run,
            unit="tokens",
            rows=length,
            fields={**self.tokens.field_types, "difference": float},
            pieces=in_pieces(length, dim, self._values),
            matrices={name: ArraySpec((length, dim)) for name in OUTPUTS},
            columns=tuple(range(dim)),
            default="embedding",
            shown=tuple(shown) or None,
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": weights,
                "cost": self.cost,
                "gradient": self.gradient.document() if self.gradient else None,
            },
        )

    def _weight_in_document(self, name: str, weight: np.ndarray) -> Any:
        """Return a weight as nested lists; a large one is None, unless it was asked for."""
        if weight.size <= _MOST_NUMBERS or name in (self.show or ()):
            return decimals(weight)
        return None

    def _values(self, index: np.ndarray, names: Names) -> Columns:
        rows = Pair(self.embedding[index], self.linear[index])
        return {
            "embedding": rows.embedding,
            "linear": rows.linear,
            "difference": decimals(rows.largest),
            **self.tokens.fields(index, names),
        }


def compare(
    model: Opened,
    text: TextOrIds = COMPARED_IDS,
    *,
    special: bool = False,
    no_added: bool = False,
    show: Names | str | None = None,
    gradient: bool = False,
    learning_rate: float | None = None,
    draw: bool = False,
    seed: int | None = None,
) -> Comparison:
    """Return what the embedding lookup and the one-hot linear layer give, (T, D) each.

    Both layers are torch's own and share the token matrix; `result.verdict.identical` says whether
    the outputs have the same bits. `gradient` compares a backward pass, `learning_rate` a step of
    training; the loss is the mean squared distance to a target, which torch.randn draws right after
    the embedding. `seed` is for the linear layer's own first weights. Raises InputError for tokens
    without a row, and LayerError if memory is insufficient.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).compare([2, 3]).verdict.identical
    True
    """
    source = model.source
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes, has_added=not no_added)
    if show is not None:
        show = check_choices("show", show, COMPARED)
        if "all" in show:
            show = (*STEPS, "cost")
    if learning_rate is not None:
        check_number("learning_rate", learning_rate, 0)
    shape = shape_of(source, "token")
    if seed is None:
        seed = DEFAULT_SEED if source.origin.seed is None else source.origin.seed
    seed = in_range("seed", seed)
    has_gradient = gradient or learning_rate is not None
    # Both layers have a copy of the weight, (V, D), and a backward pass takes three more.
    copies = 5 if has_gradient else 2
    one_hot_row = (8 + 4) * shape[0]  # bytes: int64, as torch makes it, and float32
    refuse_too_large("a pair of layers", shape, copies=copies, more=one_hot_row)
    check_ids(tokens, shape[0], can_enlarge=source.origin.is_seeded)

    load_torch(notes)
    import torch

    from embcli.seeded_layers.drawing import global_generator
    from embcli.verbs.compare import layers

    with global_generator():
        compared = layers.compare(source, tokens.ids, seed, has_gradient, learning_rate, notes)

    build = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    origin = {} if compared.origin.is_seeded else compared.origin.document()
    return Comparison(
        **vars(compared),
        tokens=tokens,
        run=run_of(tokens.encoding, sequences=tokens.sequences, seed=seed, **build, **origin),
        show=show,
        draw=draw,
        notes=notes,
    )

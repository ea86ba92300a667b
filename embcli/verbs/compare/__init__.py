"""The comparison of two ways from token IDs to vectors: a lookup, and a linear layer's product with one-hot rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError, check_choice, refuse_too_large
from embcli.layer import Origin, shape_of
from embcli.names import DEFAULT_SEED, OUTPUTS, STEPS
from embcli.opened import Opened, TextOrIds
from embcli.records import ArraySpec, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.seeded_layers.build import loading_torch
from embcli.seeded_layers.seeded import torch_seed
from embcli.tokens import Tokens, check_ids
from embcli.verbs.compare.pair import Gradient, Pair, Verdict, decimals, judge
from embcli.wording import Sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_SMALL = 4096  # numbers of a weight matrix that is always in a JSON document


@dataclass(frozen=True, eq=False)
class Comparison(Pair, Result, verb="compare", content="matrices"):
    """The outputs of an embedding layer and of a linear layer with the same weight, their cost and their gradients."""

    tokens: Tokens
    origin: Origin  # of the weight
    run: dict[str, Any]
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the weight of both layers
    cost: dict[str, Any]  # as in a JSON document
    gradient: Gradient | None
    show: tuple[str, ...] | None  # steps and outputs; None for the IDs and both outputs
    trace: bool
    draw: bool

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear, self.weight)

    @property
    def why_no(self) -> str:
        different = self.verdict.different
        return f"{different:,} of {self.verdict.values:,} values differ" if different else ""

    def records(self) -> Records:
        """Return the comparison as data: a row for each token with both outputs; the rest stands beside the rows."""
        (size, dim), length, show = self.weight.shape, len(self.tokens), self.show or ()
        shapes = {
            "ids": [length],
            "one_hot": [length, size],
            "first": [dim, size],
            "shared": [dim, size],
        }
        shapes |= {name: [length, dim] for name in OUTPUTS}
        weights = {"first": self.first, "shared": self.weight.T}
        return Records(
            run={**self.run, "shapes": shapes},
            unit="tokens",
            rows=length,
            fields={**self.tokens.field_types, "difference": float},
            pieces=in_pieces(length, dim, self._values),
            matrices={name: ArraySpec((length, dim)) for name in OUTPUTS},
            columns=tuple(range(dim)),
            default="embedding",
            shown=tuple(name for name in OUTPUTS if name in show) or None,
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": {  # a large one only if it was asked for
                    name: decimals(each) if name in show or each.size <= _SMALL else None
                    for name, each in weights.items()
                },
                "cost": self.cost,
                "gradient": self.gradient.document() if self.gradient else None,
            },
        )

    def _values(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        part = Pair(self.embedding[index], self.linear[index])
        difference = decimals(part.largest)
        return {**vars(part), "difference": difference, **self.tokens.fields(index, names)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.verbs.compare.page import page

        return page(self, console, options)


def compare(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    show: tuple[str, ...] | str | None = None,
    trace: bool = False,
    gradient: bool = False,
    learning_rate: float | None = None,
    draw: bool = False,
    seed: int | None = None,
) -> Comparison:
    """Return what the embedding lookup and the one-hot linear layer give, (T, D) each, with the proof and the cost.

    Both layers are torch's own and share the token matrix; `result.verdict.identical` says whether the outputs
    have the same bits. `gradient` compares a backward pass, `learning_rate` a step of training. `seed` is for the
    linear layer's own first weights. Raises InputError for tokens without a row, and LayerError if memory is
    insufficient.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).compare([2, 3]).verdict.identical
    True
    """
    source = model.source
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes)
    show = (show,) if isinstance(show, str) else show
    for name in show or ():
        check_choice("show", name, (*STEPS, *OUTPUTS, "cost", "all"))
    if "all" in (show or ()):
        show = (*STEPS, "cost")
    if learning_rate is not None and not 0 <= learning_rate <= float(np.finfo(np.float32).max):
        wrong = "{learning_rate} must be a finite float32 of at least 0, not {rate:g}"
        raise InputError(Sentence(wrong, rate=learning_rate))
    origin, (size, dim) = source.origin, shape_of(source, "token")
    if seed is None:
        seed = DEFAULT_SEED if origin.seed is None else origin.seed
    seed = torch_seed(seed)
    gradient = gradient or learning_rate is not None
    copies = (4 if gradient else 2) + (learning_rate is not None)  # of the weight
    one_hot = (8 + 4) * size  # bytes of a row: int64 as torch makes it, and float32
    refuse_too_large("a pair of layers", (size, dim), copies=copies, more=one_hot)
    check_ids(tokens, size, can_enlarge=origin.is_seeded)
    with loading_torch(notes):
        import torch

        from embcli.seeded_layers.drawing import global_generator
        from embcli.verbs.compare import layers
    with global_generator():
        found = layers.compare(source, tokens.ids, seed, gradient, learning_rate, notes)
    build = {"torch": torch.__version__, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
    own = {} if found["origin"].is_seeded else found["origin"].document()
    run = run_of(tokens.encoding, sequences=tokens.sequences, seed=seed, **build, **own)
    return Comparison(
        **found, tokens=tokens, run=run, show=show, trace=trace, draw=draw, notes=notes
    )

"""The comparison of two ways from token IDs to vectors: a lookup, and a linear layer's product with one-hot rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from embcli.errors import InputError, refuse_too_large
from embcli.layer import Source, shape_of
from embcli.names import DEFAULT_SEED, OUTPUTS, STEPS, check_choice
from embcli.tokens import Tokens, check_ids
from embcli.verbs.compare.result import Compared
from embcli.weights.build import loading_torch
from embcli.weights.seeded import torch_seed

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, eq=False)
class Comparison(Compared, verb="compare", content="matrices"):
    """The outputs of an embedding layer and of a linear layer with the same weight, their cost and their gradients."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.verbs.compare.page import page

        yield from page(self, console, options)


def compare(
    tokens: Tokens,
    source: Source,
    *,
    show: tuple[str, ...] | str | None = None,
    trace: bool = False,
    gradient: bool = False,
    learning_rate: float | None = None,
    draw: bool = False,
    seed: int | None = None,
) -> Comparison:
    """Return the outputs of an embedding layer and of a linear layer that share the token matrix of a source.

    `seed` is for the linear layer's own first weights; None takes the seed of the source. Raises InputError and
    LayerError for what cannot be compared, before torch is imported.
    """
    show = (show,) if isinstance(show, str) else show
    for name in show or ():
        check_choice("show", name, (*STEPS, *OUTPUTS))
    if learning_rate is not None and not 0 <= learning_rate < math.inf:
        reason = f"learning_rate must be a finite number of at least 0, not {learning_rate:g}"
        raise InputError(reason, parameters=("learning_rate",))
    origin, (size, dim) = source.origin, shape_of(source, "token")
    if seed is None:
        seed = DEFAULT_SEED if origin.seed is None else origin.seed
    seed = torch_seed(seed)
    gradient = gradient or learning_rate is not None
    copies = (4 if gradient else 2) + (learning_rate is not None)  # of the weight
    one_hot = (8 + 4) * size  # bytes of a row: int64 as torch makes it, and float32
    refuse_too_large("a pair of layers", (size, dim), copies=copies, more=one_hot)
    check_ids(tokens, size, grows=origin.is_seeded)
    with loading_torch(source.notes):
        from embcli.verbs.compare import layers  # torch, once it is sure to be needed
        from embcli.weights.drawing import global_generator
    make = partial(Comparison, show=show, trace=trace, draw=draw, notes=source.notes)
    with global_generator():
        return layers.compare(make, tokens, source, gradient, learning_rate, seed)

"""The comparison of two ways from token IDs to vectors: a lookup, and a linear layer's product with one-hot rows."""

from __future__ import annotations

from embcli.errors import refuse_too_large
from embcli.layer import Source, shape_of
from embcli.names import DEFAULT_SEED
from embcli.options import ComparisonOptions
from embcli.tokens import Tokens, check_ids
from embcli.verbs.compare.result import Comparison
from embcli.weights.build import loading_torch
from embcli.weights.seeded import torch_seed

__all__ = ["Comparison", "ComparisonOptions", "compare"]


def compare(
    tokens: Tokens,
    source: Source,
    options: ComparisonOptions | None = None,
    seed: int | None = None,
) -> Comparison:
    """Return the outputs of an embedding layer and of a linear layer that share the token matrix of a source.

    `seed` is for the linear layer's own first weights; None takes the seed of the source. Raises InputError for an ID
    without a row, and LayerError for a seed or for layers that torch cannot take, all of them before torch is imported.
    """
    options = options or ComparisonOptions()
    origin, (size, dim) = source.origin, shape_of(source, "token")
    if seed is None:
        seed = DEFAULT_SEED if origin.seed is None else origin.seed
    seed = torch_seed(seed)
    copies = (4 if options.with_gradient else 2) + (options.learning_rate is not None)  # of the weight
    one_hot = (8 + 4) * size  # bytes of a row: int64 as torch makes it, and float32
    refuse_too_large("a pair of layers", (size, dim), copies=copies, more=one_hot)
    check_ids(tokens, size, grows=origin.is_seeded)
    with loading_torch(source.notes):
        from embcli.verbs.compare import layers  # torch, once it is sure to be needed
        from embcli.weights.drawing import global_generator
    with global_generator():
        return layers.compare(tokens, source, options, seed)

"""torch's embedding layer and linear layer with one weight, run on the same tokens.

`compare` in this folder imports this module when it runs, because it imports torch. What comes out
is numpy: the outputs of both layers, what they cost, and their gradients if they were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import mse_loss, one_hot

from embcli.errors import Notes
from embcli.layer import Origin, Source, shape_of
from embcli.verbs.compare.pair import Gradient, Outputs, Training

TorchLayer = torch.nn.Embedding | torch.nn.Linear
# Elements of the one-hot rows of a backward pass. Within one slice, sums are torch's bit for bit.
GRADIENT_SLICE = 1 << 24
# Elements of a one-hot matrix that is made at a time; page faults make larger slices slower.
_OUTPUT_SLICE = 1 << 20


def compare(
    source: Source,
    ids: np.ndarray,
    seed: int,
    has_gradient: bool,
    learning_rate: float | None,
    notes: Notes,
) -> Outputs:
    """Run both layers on the IDs, (T,) int64; the state of torch's generator is changed."""
    torch.manual_seed(seed)
    embedding, origin = _embedding_layer(source, notes)
    size, dim = embedding.weight.shape
    target = torch.randn(len(ids), dim)
    torch.manual_seed(seed)
    linear = torch.nn.Linear(size, dim, bias=False)
    first_weight = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())

    index = torch.from_numpy(ids.astype(np.int64))
    with torch.no_grad():
        lookup = embedding(index)
        # A row of the one-hot matrix has a single 1, so the sums are exact in any order, and slices
        # give the same bits as the whole.
        slices = _sliced(index, size, _OUTPUT_SLICE)
        product = torch.cat([linear(_input(linear, part)) for part in slices])

    gradient = None
    if has_gradient:
        gradient = _gradient(embedding, linear, index, target, learning_rate)
    length = len(ids)
    cost = {
        "multiply_adds": {"embedding": 0, "linear": length * size * dim},
        "weight_bytes_read": {"embedding": 4 * length * dim, "linear": 4 * size * dim},
        # Only the linear layer needs a one-hot matrix; torch makes it as int64.
        "one_hot_bytes": {"int64": 8 * length * size, "float32": 4 * length * size},
        "multiplications_by_zero": length * (size - 1) * dim,
    }
    return Outputs(
        origin=origin,
        first=first_weight.numpy(),
        weight=embedding.weight.detach().numpy(),
        embedding=lookup.numpy(),
        linear=product.numpy(),
        cost=cost,
        gradient=gradient,
    )


def _embedding_layer(source: Source, notes: Notes) -> tuple[torch.nn.Embedding, Origin]:
    """Return torch's layer with the token matrix: drawn by torch itself, or read from a file."""
    size, dim = shape_of(source, "token")
    seed = source.origin.seed
    if seed is not None:
        torch.manual_seed(seed)
        return torch.nn.Embedding(size, dim), source.origin
    layers = source.open({"token": None}, notes)
    weight = torch.from_numpy(layers["token"].whole())
    return torch.nn.Embedding(size, dim, _weight=weight), layers.origin


def _sliced(ids: torch.Tensor, size: int, elements: int) -> tuple[torch.Tensor, ...]:
    """Split the IDs into slices whose one-hot matrices, (n, V), have at most this many elements.

    A slice has at least one ID, however large V is.
    """
    return torch.split(ids, max(elements // size, 1))


def _gradient(
    embedding: torch.nn.Embedding,
    linear: torch.nn.Linear,
    ids: torch.Tensor,
    target: torch.Tensor,
    learning_rate: float | None,
) -> Gradient:
    """Return the gradients of both weights, and with a learning rate the weights after one step."""
    occurring, places = np.unique(ids.numpy(), return_inverse=True)
    slices = _sliced(ids, linear.in_features, GRADIENT_SLICE)
    lookup = _trained(embedding, (ids,), target, occurring, learning_rate)
    product = _trained(linear, slices, target, occurring, learning_rate)

    training = None
    if learning_rate is not None:
        training = Training(
            embedding=lookup.after,
            linear=product.after,
            before=embedding.weight.detach()[torch.from_numpy(occurring)].numpy(),
            rows={"embedding": lookup.moved, "linear": product.moved},
            loss=mse_loss(torch.from_numpy(lookup.after[places]), target).item(),
            learning_rate=learning_rate,
            size=linear.in_features,
        )
    return Gradient(
        embedding=lookup.gradient,
        linear=product.gradient,
        ids=occurring,
        times=np.bincount(places, minlength=len(occurring)),
        rows={"embedding": lookup.rows, "linear": product.rows},
        target=target.numpy(),
        loss=mse_loss(embedding(ids), target).item(),
        slices=len(slices),
        training=training,
    )


class _Trained(NamedTuple):
    """What a backward pass gives for the weight of a layer, and what a step makes of it."""

    gradient: np.ndarray  # (IDs, D) float32: the rows of the IDs that occur
    rows: int  # how many of all V rows have a gradient other than 0
    after: np.ndarray  # (IDs, D) float32: the weights of these IDs after the step, if any
    moved: int  # how many of all V rows the step changed


def _trained(
    layer: TorchLayer,
    slices: Sequence[torch.Tensor],
    target: torch.Tensor,
    occurring: np.ndarray,
    learning_rate: float | None,
) -> _Trained:
    """Run a copy of the layer backward over slices of the IDs, and let it take one step.

    The copy and its gradient are each as large as the weight, (V, D). They are gone when this
    returns, before the other layer makes its own.
    """
    trained = deepcopy(layer)
    for part, wanted in zip(slices, torch.split(target, len(slices[0])), strict=True):
        output = trained(_input(trained, part))
        loss = mse_loss(output, wanted, reduction="sum") / target.numel()
        torch.autograd.backward(loss)  # which adds to the gradient
    weight_gradient: Any = trained.weight.grad
    gradient = _by_row(trained, weight_gradient)
    rows = int((gradient != 0).any(dim=1).sum())

    # What torch.optim.SGD does. To make one imports torch's compiler, which takes a second.
    with torch.no_grad():
        trained.weight.add_(weight_gradient, alpha=-(learning_rate or 0))
    before = _by_row(layer, layer.weight.detach())
    after = _by_row(trained, trained.weight.detach())
    is_other = after.view(torch.int32) != before.view(torch.int32)
    moved = int(is_other.any(dim=1).sum())
    chosen = torch.from_numpy(occurring)
    return _Trained(gradient[chosen].numpy(), rows, after[chosen].numpy(), moved)


def _input(layer: TorchLayer, ids: torch.Tensor) -> torch.Tensor:
    """Return what the layer reads: IDs, or their one-hot matrix."""
    if isinstance(layer, torch.nn.Linear):
        return one_hot(ids, layer.in_features).float()
    return ids


def _by_row(layer: TorchLayer, weight: torch.Tensor) -> torch.Tensor:
    """Return a matrix in the shape of the layer's weight as (V, D): a linear layer's is (D, V)."""
    if isinstance(layer, torch.nn.Linear):
        return weight.T
    return weight

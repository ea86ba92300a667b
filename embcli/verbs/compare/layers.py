"""torch's own embedding and linear layer with one weight, on the same tokens: outputs, times and gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot

from embcli.errors import Notes
from embcli.layer import Source, shape_of
from embcli.verbs.compare.pair import Gradient, Training

GRADIENT_SLICE = (
    1 << 24
)  # elements of one-hot rows in a backward pass: within one slice, sums are torch's bit for bit
ENOUGH = 0.05  # seconds of runs
_SLICE = (
    1 << 20
)  # elements of a one-hot matrix that are made at a time: page faults make larger slices slower
_LONGEST = 0.5  # seconds after which a single run is enough
_FEWEST, _MOST = 5, 500  # runs
# The processor time of this thread, or wall time where that has too coarse a clock, as on Windows.
clock = (
    time.thread_time if time.get_clock_info("thread_time").resolution < 1e-6 else time.perf_counter
)


def compare(
    source: Source,
    ids: np.ndarray,
    seed: int,
    gradient: bool,
    learning_rate: float | None,
    notes: Notes,
) -> dict[str, Any]:
    """Return the fields of a Comparison that torch computes; the state of its generator is changed."""
    (size, dim), origin = shape_of(source, "token"), source.origin
    if origin.seed is not None:
        torch.manual_seed(origin.seed)
        embedding = torch.nn.Embedding(size, dim)
    else:
        layers = source.open({"token": None}, notes)
        weight, origin = layers["token"].rows(np.arange(size)), layers.origin
        embedding = torch.nn.Embedding(size, dim, _weight=torch.from_numpy(weight))
    torch.manual_seed(seed)
    linear = torch.nn.Linear(size, dim, bias=False)
    first = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    index, threads = torch.from_numpy(ids.astype(np.int64)), torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other
    try:
        with torch.no_grad():
            left, right = timed(lambda: embedding(index)), timed(lambda: _product(linear, index))
    finally:
        torch.set_num_threads(threads)
    return {
        "origin": origin,
        "first": first.numpy(),
        "weight": embedding.weight.detach().numpy(),
        "embedding": left[0].numpy(),
        "linear": right[0].numpy(),
        "cost": _cost(index, linear, {"embedding": left[1], "linear": right[1]}),
        "gradient": _gradient(embedding, linear, index, learning_rate) if gradient else None,
    }


def _sliced(ids: torch.Tensor, vocabulary_size: int, elements: int) -> tuple[torch.Tensor, ...]:
    """Split the IDs into slices whose one-hot matrices have at most this many elements, or a single row."""
    return torch.split(ids, max(elements // vocabulary_size, 1))


def _product(linear: torch.nn.Linear, ids: torch.Tensor) -> torch.Tensor:
    """Return the output of the linear layer for the one-hot matrix of the IDs, (T, D).

    A row of that matrix has a single 1, so the sums are exact in any order, and slices give the same bits as the whole.
    """
    size = linear.in_features
    return torch.cat([linear(one_hot(part, size).float()) for part in _sliced(ids, size, _SLICE)])


def timed(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, list[float]]:
    """Return the result of a call and the times of its runs; the first is a warm-up, and counts only if it is long."""
    times: list[float] = []
    while True:
        start = clock()
        output = call()
        times.append(clock() - start)
        if times[0] >= _LONGEST:
            return output, times
        if len(times) > _FEWEST and (sum(times[1:]) >= ENOUGH or len(times) > _MOST):
            return output, times[1:]


def _cost(
    ids: torch.Tensor, linear: torch.nn.Linear, times: dict[str, list[float]]
) -> dict[str, Any]:
    """Return the cost of both ways for T tokens; the lookup needs no one-hot matrix."""
    length, size, dim = len(ids), linear.in_features, linear.out_features
    seconds = {name: median(each) for name, each in times.items()}
    return {
        "tokens": length,
        "vocabulary_size": size,
        "dim": dim,
        "multiply_adds": {"embedding": 0, "linear": length * size * dim},
        "weight_bytes_read": {"embedding": 4 * length * dim, "linear": 4 * size * dim},
        "one_hot_bytes": {
            "int64": 8 * length * size,
            "float32": 4 * length * size,
        },  # torch makes the first
        "multiplications_by_zero": length * (size - 1) * dim,
        "seconds": seconds,
        "least_seconds": {name: min(each) for name, each in times.items()},
        "runs": {name: len(each) for name, each in times.items()},
        "threads": 1,
        "slices": len(_sliced(ids, size, _SLICE)) if length else 0,
        "ratio": seconds["linear"] / seconds["embedding"],
    }


def _gradient(
    embedding: torch.nn.Embedding,
    linear: torch.nn.Linear,
    ids: torch.Tensor,
    learning_rate: float | None,
) -> Gradient:
    """Return the gradients of both weights, and with a learning rate the weights after one step."""
    size, (occurring, places) = linear.in_features, np.unique(ids.numpy(), return_inverse=True)
    chosen, weight = torch.from_numpy(occurring), embedding.weight.detach()
    slices = _sliced(ids, size, GRADIENT_SLICE)
    one_hot_rows = (one_hot(part, size).float() for part in slices)
    ways: dict[str, tuple[torch.nn.Embedding | torch.nn.Linear, Iterable[torch.Tensor]]]
    ways = {"embedding": (embedding, [ids]), "linear": (linear, one_hot_rows)}
    gradients, rows, after, moved = {}, {}, {}, {}
    for name, (layer, inputs) in ways.items():
        parts = (
            torch.autograd.grad(layer(each).square().sum() / 2, layer.weight)[0] for each in inputs
        )
        gradient = next(parts)
        for part in parts:
            gradient += part
        by_row = gradient.T if name == "linear" else gradient
        gradients[name], rows[name] = by_row[chosen].numpy(), int((by_row != 0).any(dim=1).sum())
        if learning_rate is not None:
            stepped = torch.nn.Parameter(
                layer.weight.detach().clone()
            )  # the weight that both layers share is to stay
            stepped.grad = gradient
            torch.optim.SGD([stepped], lr=learning_rate).step()
            new = stepped.detach().T if name == "linear" else stepped.detach()
            after[name] = new[chosen].numpy()
            moved[name] = int((new.view(torch.int32) != weight.view(torch.int32)).any(dim=1).sum())
            del stepped, new
        del gradient, by_row  # each is as large as the weight, (V, D)
    training = None
    if learning_rate is not None:
        training = Training(
            **after,
            before=weight[chosen].numpy(),
            rows=moved,
            learning_rate=learning_rate,
            size=size,
        )
    times = np.bincount(places, minlength=len(occurring))
    return Gradient(
        **gradients, ids=occurring, times=times, rows=rows, slices=len(slices), training=training
    )

"""torch's own embedding and linear layer with one weight, on the same tokens: outputs, times and gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.functional import one_hot

from embcli.layer import Origin, Source, shape_of
from embcli.records import run_of
from embcli.selection import distinct
from embcli.tokens import Tokens
from embcli.verbs.compare.result import Compared, Gradient, Training

Own = TypeVar("Own", bound=Compared)
_SLICE = 1 << 20  # elements of a one-hot matrix that are made at a time: page faults make larger slices slower
_GRADIENT_SLICE = 1 << 24  # the same for a backward pass, whose sums are torch's own bit for bit within one slice
_ENOUGH = 0.05  # seconds of runs
_LONGEST = 0.5  # seconds after which a single run is enough
_FEWEST, _MOST = 5, 500  # runs of the product
_LOOKUPS = 4  # runs of the lookup for each run of the product
# The processor time of this thread, or wall time where that has too coarse a clock, as on Windows.
_clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-6 else time.perf_counter


def compare(
    make: Callable[..., Own], tokens: Tokens, source: Source, gradient: bool, learning_rate: float | None, seed: int
) -> Own:
    """Return the outputs of both layers; torch's generator and its number of threads are changed."""
    embedding, origin = _embedding(source)
    torch.manual_seed(seed)
    linear = torch.nn.Linear(embedding.num_embeddings, embedding.embedding_dim, bias=False)
    first = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    ids = torch.from_numpy(tokens.ids.astype(np.int64))
    with torch.no_grad():
        left, right, lookups, products = _timed(lambda: embedding(ids), lambda: _product(linear, ids))
    run = run_of(
        tokens.encoding,
        sequences=tokens.sequences,
        seed=seed,
        torch=torch.__version__,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        **({} if origin.is_seeded else origin.document()),
    )
    return make(
        tokens=tokens,
        origin=origin,
        run=run,
        first=first.numpy(),
        weight=embedding.weight.detach().numpy(),
        embedding=left.numpy(),
        linear=right.numpy(),
        cost=_cost(ids, linear, lookups, products),
        gradient=_gradient(embedding, linear, ids, learning_rate) if gradient else None,
    )


def _embedding(source: Source) -> tuple[torch.nn.Embedding, Origin]:
    """Return an embedding layer with the token matrix of a source; torch itself draws a seeded one."""
    size, dim = shape_of(source, "token")
    if source.origin.seed is not None:
        torch.manual_seed(source.origin.seed)
        return torch.nn.Embedding(size, dim), source.origin
    weight, done = np.empty((size, dim), np.float32), 0
    layers = source.open({"token": None})
    for block in layers["token"].blocks():
        weight[done : done + len(block)] = block
        done += len(block)
    return torch.nn.Embedding(size, dim, _weight=torch.from_numpy(weight)), layers.origin


def _sliced(ids: torch.Tensor, vocabulary_size: int, elements: int) -> tuple[torch.Tensor, ...]:
    """Split the IDs into slices whose one-hot matrices have at most this many elements, or a single row."""
    return torch.split(ids, max(elements // vocabulary_size, 1))


def _product(linear: torch.nn.Linear, ids: torch.Tensor) -> torch.Tensor:
    """Return the output of the linear layer for the one-hot matrix of the IDs, (T, D).

    A row of that matrix has a single 1, so the sums are exact in any order, and slices give the same bits as the whole.
    """
    size = linear.in_features
    output, done = torch.empty(len(ids), linear.out_features), 0
    for part in _sliced(ids, size, _SLICE):
        output[done : done + len(part)] = linear(one_hot(part, size).float())
        done += len(part)
    return output


def _timed(
    lookup: Callable[[], torch.Tensor], product: Callable[[], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, list[float], list[float]]:
    """Return the results of two calls and their times, which are measured in turn on one thread.

    Processor time leaves out the time that other processes take; several threads would wait for each other. The first
    call is a warm-up and counts only if it takes long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (left, first_lookup), (right, first_product) = _run(lookup), _run(product)
        lookups, products = [first_lookup], [first_product]
        if first_product < _LONGEST:
            lookups, products = [], []
            while len(products) < _MOST and (len(products) < _FEWEST or sum(products) < _ENOUGH):
                lookups += [_run(lookup)[1] for _ in range(_LOOKUPS)]
                products.append(_run(product)[1])
    finally:
        torch.set_num_threads(threads)
    return left, right, lookups, products


def _run(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    """Return the result of a call and its time: the mean of as many calls as a coarse clock takes to move."""
    start, calls = _clock(), 1
    output = call()
    while (end := _clock()) == start:
        call()
        calls += 1
    return output, (end - start) / calls


def _cost(ids: torch.Tensor, linear: torch.nn.Linear, lookups: list[float], products: list[float]) -> dict[str, Any]:
    """Return the cost of both ways for T tokens; the lookup needs no one-hot matrix."""
    length, size, dim = len(ids), linear.in_features, linear.out_features
    times = {"embedding": lookups, "linear": products}
    seconds = {name: median(each) for name, each in times.items()}
    return {
        "tokens": length,
        "vocabulary_size": size,
        "dim": dim,
        "multiply_adds": {"embedding": 0, "linear": length * size * dim},
        "weight_bytes_read": {"embedding": 4 * length * dim, "linear": 4 * size * dim},
        "one_hot_bytes": {"int64": 8 * length * size, "float32": 4 * length * size},  # torch makes the first
        "multiplications_by_zero": length * (size - 1) * dim,
        "seconds": seconds,
        "least_seconds": {name: min(each) for name, each in times.items()},
        "runs": {name: len(each) for name, each in times.items()},
        "threads": 1,
        "slices": len(_sliced(ids, size, _SLICE)) if length else 0,
        "ratio": seconds["linear"] / seconds["embedding"],
    }


def _gradient(
    embedding: torch.nn.Embedding, linear: torch.nn.Linear, ids: torch.Tensor, learning_rate: float | None
) -> Gradient:
    """Return the gradients of both weights, and with a learning rate the weights after one step.

    A gradient is as large as the weight, (V, D), so the first one is freed before the second is computed.
    """
    occurring, places = distinct(ids.numpy())
    size = linear.in_features
    slices = _sliced(ids, size, _GRADIENT_SLICE)
    one_hot_rows = (one_hot(part, size).float() for part in slices)
    left, rows, after, moved = _stepped(embedding, [ids], occurring, learning_rate)
    right, rows_of_linear, after_of_linear, moved_in_linear = _stepped(linear, one_hot_rows, occurring, learning_rate)
    training = None
    if learning_rate is not None:
        before = embedding.weight.detach()[torch.from_numpy(occurring)].numpy()
        training = Training(learning_rate, before, after, after_of_linear, moved, moved_in_linear, size)
    times = np.bincount(places, minlength=len(occurring))
    loss = "output.square().sum() / 2"
    return Gradient(loss, occurring, times, left, right, rows, rows_of_linear, len(slices), training)


def _stepped(
    layer: torch.nn.Embedding | torch.nn.Linear,
    inputs: Iterable[torch.Tensor],
    ids: np.ndarray,
    learning_rate: float | None,
) -> tuple[np.ndarray, int, np.ndarray, int]:
    """Return the gradient, added up over the inputs, and the weight after a step of SGD, both in the rows of some IDs.

    Each is followed by a number of rows of all V: of the gradient, those that are not 0; of the weight, those that the
    step changed. The gradient of the loss is the output.
    """
    gradients = (torch.autograd.grad(layer(each).square().sum() / 2, layer.weight)[0] for each in inputs)
    gradient = next(gradients)
    for each in gradients:
        gradient += each
    before = after = layer.weight.detach()
    if learning_rate is not None:
        copy = torch.nn.Parameter(before.clone())  # both layers share the weight, which is to stay
        copy.grad = gradient
        torch.optim.SGD([copy], lr=learning_rate).step()
        after = copy.detach()
    if isinstance(layer, torch.nn.Linear):
        before, after, gradient = before.T, after.T, gradient.T
    chosen = torch.from_numpy(ids)
    return (
        gradient[chosen].numpy(),
        int((gradient != 0).any(dim=1).sum()),
        after[chosen].numpy(),
        int((after.view(torch.int32) != before.view(torch.int32)).any(dim=1).sum()),
    )

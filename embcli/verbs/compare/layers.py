"""The comparison itself: torch's own embedding and linear layer, one weight for both, on the same tokens."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import one_hot

import embcli
from embcli.checks import check_ids
from embcli.names import DEFAULT_SEED
from embcli.passes import unwatched
from embcli.selection import distinct
from embcli.verbs.compare.found import Comparison, Cost, Gradient, Stored, Task, Timing, Training, refuse_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embcli.layer import Layer
    from embcli.passes import Watch
    from embcli.tokens import Tokens

_SLICE = 1 << 20  # elements of a one-hot matrix that are made at a time: with more, page faults make it slower
_LONG_SLICE = 1 << 24  # the same for a backward pass, whose sums are torch's own bit for bit while there is one slice
_ENOUGH = 0.05  # seconds of runs
_LONGEST = 0.5  # seconds after which a single run is enough
_FEWEST, _MOST = 5, 500  # runs of the product
# Where the processor's time is told too roughly, as on Windows, that of the wall has to do.
_clock = time.thread_time if time.get_clock_info("thread_time").resolution < 1e-6 else time.perf_counter
_LOOKUPS = 4  # runs of the lookup for each of the product
_SMALLEST_SWEEP, _SWEEP_STEP = 16, 4


@dataclass(frozen=True)
class _Layers:
    """Both layers, with one weight, and the weight that the linear layer had before."""

    embedding: torch.nn.Embedding
    linear: torch.nn.Linear
    first: torch.Tensor  # (D, V) float32


@dataclass(frozen=True)
class _Touched:
    """The rows of a gradient, and of the weight after a step by it, that the tokens touched."""

    gradient: np.ndarray  # (touched rows, D) float32
    rows: int  # of all V that have a gradient other than 0
    after: np.ndarray  # (touched rows, D) float32
    moved: int  # rows of all V


def compare(task: Task, watch: Watch = unwatched) -> Comparison:
    """Return what both layers give; `watch` goes through the vocabulary sizes of the benchmark."""
    layer, ids = task.layer, _tensor(task.tokens.ids)
    sweep: tuple[Cost, ...] = ()
    if isinstance(layer, Stored):
        embedding = _with_weight(_whole(layer.source.open({"token": None})["token"]))
    else:
        torch.manual_seed(layer.seed)
        embedding = torch.nn.Embedding(*layer.shape("token"))
    found = _compare(task.tokens, embedding, layer.seed, task.wanted.gradient, task.wanted.learning_rate)
    if task.sweep:
        whole = embedding if isinstance(layer, Stored) else torch.nn.Embedding(task.sweep, layer.dim)
        sweep = tuple(_sweep(ids, whole.weight.detach(), watch))
    run = {**found.run, **layer.source.run} if isinstance(layer, Stored) else found.run
    return replace(found, run=run, sweep=sweep, wanted=task.wanted)


def compare_weights(
    tokens: Tokens,
    weight: np.ndarray,
    gradient: bool = False,
    seed: int = DEFAULT_SEED,
    learning_rate: float | None = None,
) -> Comparison:
    """Return what both layers give with this weight, (V, D) float32; `seed` is for the linear layer's first weights.

    Raises InputError for an ID without a row.

    >>> from embcli.tokens import Tokens
    >>> tokens = Tokens(np.array([1]), np.array([0, 1]), None)
    >>> compare_weights(tokens, np.array([[np.inf], [2]], np.float32)).verdict.kind
    'nan'
    """
    size, dim = weight.shape
    refuse_layers(size, dim, gradient, learning_rate is not None)
    check_ids(tokens, size)
    embedding = _with_weight(np.require(weight, np.float32, ["C", "W"]))
    return _compare(tokens, embedding, seed, gradient, learning_rate)


def _whole(layer: Layer) -> np.ndarray:
    """Return all of a layer, (V, D) float32."""
    found = np.empty(layer.shape, np.float32)
    done = 0
    for block in layer.blocks():
        found[done : done + len(block)] = block
        done += len(block)
    return found


def _with_weight(weight: np.ndarray) -> torch.nn.Embedding:
    size, dim = weight.shape
    return torch.nn.Embedding(size, dim, _weight=torch.from_numpy(weight))


def _compare(
    tokens: Tokens, embedding: torch.nn.Embedding, seed: int, gradient: bool, learning_rate: float | None
) -> Comparison:
    layers, ids = _layers(embedding, seed), _tensor(tokens.ids)
    left, right, cost = _outputs(layers, ids)
    run = {
        "embcli": embcli.__version__,
        "encoding": tokens.encoding.name if tokens.encoding else None,
        "sequences": tokens.sequences,
        "seed": seed,
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    return Comparison(
        tokens,
        run,
        layers.first.numpy(),
        embedding.weight.detach().numpy(),
        left.numpy(),
        right.numpy(),
        cost,
        _gradient(layers, ids, learning_rate) if gradient else None,
    )


def _tensor(ids: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(ids.astype(np.int64))


def _layers(embedding: torch.nn.Embedding, seed: int) -> _Layers:
    torch.manual_seed(seed)
    linear = torch.nn.Linear(embedding.num_embeddings, embedding.embedding_dim, bias=False)
    first = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    return _Layers(embedding, linear, first)


def _sliced(ids: torch.Tensor, vocabulary_size: int, elements: int) -> tuple[torch.Tensor, ...]:
    """Return the IDs in slices whose one-hot matrices have at most so many elements, or else a single row."""
    return torch.split(ids, max(elements // vocabulary_size, 1))


def _product(linear: torch.nn.Linear, ids: torch.Tensor) -> torch.Tensor:
    """Return what the linear layer makes of the one-hot matrix of the IDs, (T, D).

    A row of it has a single 1, so its sums are exact in any order, and slices give the same bits as the whole.
    """
    size, dim = linear.in_features, linear.out_features
    found = torch.empty(len(ids), dim)
    done = 0
    for part in _sliced(ids, size, _SLICE):
        found[done : done + len(part)] = linear(one_hot(part, size).float())
        done += len(part)
    return found


@torch.no_grad()
def _outputs(layers: _Layers, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Cost]:
    """Return both outputs, (T, D) each, and what they cost."""
    (size, dim), length = layers.embedding.weight.shape, len(ids)
    left, right, lookup, product = _timed(lambda: layers.embedding(ids), lambda: _product(layers.linear, ids))
    slices = len(_sliced(ids, size, _SLICE)) if length else 0
    return left, right, Cost(length, size, dim, lookup, product, slices)


def _timed(
    lookup: Callable[[], torch.Tensor], product: Callable[[], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, Timing, Timing]:
    """Return what two calls give, and the times of both, taken in turn on one thread.

    The times are those of the processor, without the waiting for it while others have it; torch's own threads would
    wait for each other. The first call, the warm-up, counts only if it was long.
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
    return left, right, _timing(lookups), _timing(products)


def _run(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    start = _clock()
    found = call()
    return found, _clock() - start


def _timing(times: list[float]) -> Timing:
    return Timing(median(times), min(times), len(times))


def _loss(output: torch.Tensor) -> torch.Tensor:
    """Return a loss whose gradient is the output itself."""
    return output.square().sum() / 2


def _gradient(layers: _Layers, ids: torch.Tensor, learning_rate: float | None) -> Gradient:
    """Return the gradients of both weights, and what a step by each makes of them where a learning rate is given.

    One gradient is taken and let go before the other comes, as each is (V, D).
    """
    found, places = distinct(ids.numpy())
    times = np.bincount(places, minlength=len(found))
    slices = _sliced(ids, layers.linear.in_features, _LONG_SLICE)
    rows = (one_hot(part, layers.linear.in_features).float() for part in slices)
    left = _touched(layers.embedding.weight, _backward(layers.embedding, [ids]), found, learning_rate)
    right = _touched(layers.linear.weight, _backward(layers.linear, rows), found, learning_rate, transposed=True)
    training = None
    if learning_rate is not None:
        weight = layers.embedding.weight.detach()
        before = weight[torch.from_numpy(found)].numpy()
        training = Training(learning_rate, before, left.after, right.after, left.moved, right.moved, len(weight))
    loss = "output.square().sum() / 2"
    return Gradient(loss, found, times, left.gradient, right.gradient, left.rows, right.rows, len(slices), training)


def _backward(layer: torch.nn.Embedding | torch.nn.Linear, inputs: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return the gradient of a layer's weight, in the weight's shape, summed up over the inputs."""
    gradients = (torch.autograd.grad(_loss(layer(each)), layer.weight)[0] for each in inputs)
    total = next(gradients)
    for gradient in gradients:
        total += gradient
    return total


def _touched(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    ids: np.ndarray,
    learning_rate: float | None,
    transposed: bool = False,
) -> _Touched:
    """Return of a gradient, and of the weight after a step by it, the rows with these IDs, and how many others."""
    after = weight.detach() if learning_rate is None else _stepped(weight, gradient, learning_rate)
    rows, before, after = (each.T if transposed else each for each in (gradient, weight.detach(), after))
    chosen = torch.from_numpy(ids)
    return _Touched(
        rows[chosen].numpy(),
        int((rows != 0).any(dim=1).sum()),
        after[chosen].numpy(),
        int((after.view(torch.int32) != before.view(torch.int32)).any(dim=1).sum()),
    )


def _stepped(weight: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> torch.Tensor:
    """Return what a step of SGD makes of a weight; both layers share theirs, so that it is made on a copy."""
    copy = torch.nn.Parameter(weight.detach().clone())
    copy.grad = gradient
    torch.optim.SGD([copy], lr=learning_rate).step()
    return copy.detach()


def _sweep(ids: torch.Tensor, weight: torch.Tensor, watch: Watch) -> Iterator[Cost]:
    """Yield the cost for one V after the other, up to all rows of a weight; larger IDs start again at 0."""
    largest, dim = weight.shape
    sizes = [_SMALLEST_SWEEP]
    while sizes[-1] < largest:
        sizes.append(sizes[-1] * _SWEEP_STEP)
    sizes[-1] = largest
    for size in watch(sizes, len(sizes), lambda _: 1):
        layers = _layers(torch.nn.Embedding(size, dim, _weight=weight[:size]), seed=0)
        yield _outputs(layers, ids % size)[2]

"""Which tokens of a text the samples of a loader read, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from embcli.options import Batching
from embcli.records import Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.tokens import Tokens
from embcli.verbs.batch import loader_order
from embcli.weights.seeded import Seeded

_PIECE = 1 << 16  # tokens


@dataclass(frozen=True, eq=False)
class Coverage(Result, verb="coverage", content="list"):
    """How often each token of a text is an input, in one pass over all batches."""

    tokens: Tokens
    batching: Batching
    samples: int  # in the text
    used: np.ndarray  # (N,) int64: the samples in batches, in their order
    counts: np.ndarray  # (T,) int64: in how many of these samples a token is an input
    once: int  # tokens that are read once
    repeated: int  # tokens that are read more than once
    skipped: int  # tokens between samples, which the stride skips
    dropped: int  # tokens that only samples without a batch contain
    left_over: int  # tokens after the last sample: too few for another; the first of them is its last target

    def records(self) -> Records:
        """Return a row for each token: the number of samples of which it is an input."""

        def values(places: np.ndarray, names: Names) -> dict[str, Any]:
            own = self.tokens.fields(places, tuple(name for name in names if name != "samples"))
            return {**own, "samples": self.counts[places]}

        options = ("batch_size", "max_length", "stride", "shuffle", "keep_last")
        run = run_of(
            self.tokens.encoding,
            **{name: getattr(self.batching, name) for name in options},
            samples=self.samples,
            **{name: getattr(self, name) for name in ("once", "repeated", "skipped", "dropped", "left_over")},
        )
        fields = {**self.tokens.field_types, "samples": int}
        return Records(run, "tokens", len(self.tokens), fields, in_pieces(len(self.tokens), _PIECE, values))


def coverage(tokens: Tokens, batching: Batching, seeded: Seeded) -> Coverage:
    """Return how often each token of a text is read. Raises InputError for a text without a batch."""
    batching.check(len(tokens), batching.max_length)
    samples = batching.samples(len(tokens))
    size = batching.batches(len(tokens)) * batching.batch_size
    is_in_order = not batching.shuffle or size >= samples
    order = (np.arange(samples) if is_in_order else loader_order(batching, seeded, samples))[:size]
    counts = _inputs(order, batching, len(tokens))
    reachable = _inputs(np.arange(samples), batching, len(tokens)) > 0
    end = (samples - 1) * batching.stride + batching.max_length  # of the last sample
    return Coverage(
        tokens,
        batching,
        samples,
        order,
        counts,
        once=int((counts == 1).sum()),
        repeated=int((counts > 1).sum()),
        skipped=int((~reachable[:end]).sum()),
        dropped=int((reachable & (counts == 0)).sum()),
        left_over=len(tokens) - end,
    )


def _inputs(samples: np.ndarray, batching: Batching, size: int) -> np.ndarray:
    """Return in how many of the samples each token is an input, (size,) int64."""
    changes = np.zeros(size + 1, np.int64)
    starts = samples * batching.stride
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + batching.max_length, -1)
    return np.cumsum(changes[:-1])

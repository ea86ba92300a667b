"""Sliding windows over a text, and the order in which the chapter's data loader gives them.

`batch` cuts a text into samples with these, and draws as the chapter's script does: seed, token
layer, loader, iterator and first batch, position layer. torch's own DataLoader decides which
samples are in which batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from embcli.errors import Notes, whole_number
from embcli.layer import Layers, shape_of
from embcli.seeded_layers.build import load_torch
from embcli.seeded_layers.source import SeededSource


@dataclass(frozen=True)
class Windows:
    """How a text is cut into samples, and samples into batches.

    Raises RangeError for a number out of range.
    """

    batch_size: int  # B
    max_length: int  # T
    stride: int
    shuffle: bool
    keep_last: bool  # even if incomplete

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_length", "stride"):
            value = whole_number(name, getattr(self, name), 1, 2_147_483_647)
            object.__setattr__(self, name, value)  # torch's loader takes none of numpy's

    def samples(self, tokens: int) -> int:
        """Return the number of samples, each of which takes T tokens and the next one.

        >>> windows = Windows(2, max_length=4, stride=4, shuffle=False, keep_last=False)
        >>> windows.samples(9), windows.samples(8)
        (2, 1)
        """
        return len(range(self.max_length, tokens, self.stride))

    def batches(self, samples: int) -> int:
        if self.keep_last:
            return -(-samples // self.batch_size)
        return samples // self.batch_size


class Draws(NamedTuple):
    """What the chapter's script draws."""

    layers: Layers  # the token layer
    order: np.ndarray  # (samples,) int64: the samples of the first batch, of the second, ...
    position: np.ndarray  # (C, D) float32: the position layer


def loader_draws(source: SeededSource, ids: np.ndarray, windows: Windows, notes: Notes) -> Draws:
    """Return the layers and the order for a text of these IDs, (tokens,); torch is imported."""
    context_length, dim = shape_of(source, "position")
    samples = windows.samples(len(ids))
    load_torch(notes)
    import torch
    from torch.utils.data import DataLoader

    from embcli.seeded_layers.drawing import RandomStream, fill_weight, global_generator

    with global_generator():
        torch.set_rng_state(RandomStream(source.seeded, "token").state_after())
        numbers: Any = range(samples)  # a data set of the samples' numbers
        loader = DataLoader(
            numbers, windows.batch_size, windows.shuffle, drop_last=not windows.keep_last
        )
        iter(loader)  # which consumes a random number
        order = np.fromiter(loader.sampler, np.int64, samples)
        position = fill_weight(torch.empty(context_length, dim))
    return Draws(source.open({"token": ids}, notes), order, position.numpy())

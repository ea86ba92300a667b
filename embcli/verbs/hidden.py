"""The steps from token rows to what a model's first block reads: sums in numpy, norms and projections in torch.

torch is imported when the first of its steps runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from embcli.positions.kind import AddedPositions
from embcli.recipe import AddPosition, AddRow, AddType, Norm, Project, Scale, Step
from embcli.weights.build import loading_torch


@dataclass(frozen=True, eq=False)
class Terms:
    """What steps add to rows, and how they are applied."""

    positions: AddedPositions | None
    token_type: np.ndarray | None  # (1, columns) float32
    values: Callable[[str], np.ndarray]  # returns a tensor by its name, as float32

    def walk(
        self, steps: Iterable[Step], rows: np.ndarray, places: np.ndarray
    ) -> Iterator[tuple[Step, np.ndarray | None, np.ndarray]]:
        """Yield each step, what it adds to rows (n, columns) at these positions (n,), and the rows after it.

        Rows that are added are (n, columns), or (1, columns) for all alike; None stands for a step that adds none.
        A projection takes the rows of a whole text: a row may depend on the rows beside it, and a product of many rows
        has other bits than that of one.
        """
        for step in steps:
            added = None
            match step:
                case AddPosition() if self.positions is not None:
                    added = self.positions.rows(places)
                case AddType():
                    added = self.token_type
                case AddRow(tensors=names):
                    added = np.concatenate([self.values(name)[:1] for name in names], axis=1)
                case Scale(factor=factor):
                    rows = rows * np.float32(factor)
                case Norm():
                    rows = _normed(step, rows, self.values(step.weight), self.values(step.bias) if step.bias else None)
                case Project():
                    rows = self._projected(step, rows)
            rows = rows if added is None else rows + added
            yield step, added, rows

    def apply(self, steps: Iterable[Step], rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return rows (n, columns) at these positions (n,) after all steps."""
        for _, _, after in self.walk(steps, rows, places):
            rows = after
        return rows

    def _projected(self, step: Project, rows: np.ndarray) -> np.ndarray:
        """Return the rows of a text multiplied by a matrix, in the shape in which a model does it, (1, T, columns)."""
        with loading_torch():
            import torch
        if step.neighbours:  # the next row before each, the last one after it
            edge = np.zeros((1, rows.shape[1]), np.float32)
            rows = np.concatenate([np.concatenate([rows[1:], edge]), rows, np.concatenate([edge, rows[:-1]])], axis=1)
        if step.beside:
            more = np.concatenate([self.values(name)[:1] for each in step.beside for name in each.tensors], axis=1)
            rows = np.concatenate([rows, np.repeat(more, len(rows), axis=0)], axis=1)
        weight, bias = torch.from_numpy(self.values(step.weight)), None
        if step.bias:
            bias = torch.from_numpy(self.values(step.bias))
        projected: np.ndarray = torch.nn.functional.linear(torch.from_numpy(rows)[None], weight, bias)[0].numpy()
        return projected


def _normed(step: Norm, rows: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return normalised rows, as torch's `layer_norm` or as some families spell it out."""
    with loading_torch():
        import torch
    values, gain = torch.from_numpy(rows), torch.from_numpy(weight)
    offset = None if bias is None else torch.from_numpy(bias)
    if step.kind == "torch":
        normed = torch.nn.functional.layer_norm(values, (rows.shape[1],), gain, offset, step.epsilon)
    else:
        if step.kind == "spelled":
            centred = values - values.mean(-1, keepdim=True)
            values = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + step.epsilon)
        normed = values * gain if offset is None else values * gain + offset
    array: np.ndarray = normed.numpy()
    return array


def sinusoids(step: AddPosition, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the sinusoidal rows of positions, (n,) int64 -> (n, D) float32; position -1 is padding, with zeros.

    The sines come first, then the cosines.
    """
    if step.waves == "sines, cosines in float64":  # Marian
        angles = positions[:, None] / np.power(10000, 2 * (np.arange(dim) // 2) / dim)
        return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)
    with loading_torch():
        import torch
    at = torch.from_numpy(np.maximum(positions + step.first, 0)).float()[:, None]
    if step.waves == "sines, cosines":  # tensor2tensor
        rates = torch.exp(torch.arange(dim // 2, dtype=torch.int64).float() * -(math.log(10000) / (dim // 2 - 1)))
        waves = torch.cat([torch.sin(at * rates), torch.cos(at * rates)], dim=1)
        waves = torch.nn.functional.pad(waves, (0, dim % 2))
    else:  # CTRL
        columns = torch.arange(dim, dtype=torch.int64).float()[None]
        turns = at * (1 / torch.pow(10000, (2 * (columns // 2)) / dim))
        waves = torch.cat([torch.sin(turns[:, 0::2]), torch.cos(turns[:, 1::2])], dim=1)
    rows: np.ndarray = waves.numpy()
    rows[positions < 0] = 0
    return rows

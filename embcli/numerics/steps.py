"""The steps from token rows to what a model's first block reads: sums in numpy, norms and projections in torch.

torch is imported when the first of its steps runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from embcli.recipe import AddPosition, AddType, Norm, Project, RecipeStep, Scale
from embcli.seeded_layers.build import loading_torch


class Term(NamedTuple):
    """Rows of some tokens that are a term of their input embeddings, or what comes of them."""

    name: str  # token, x 2, type, position; input, hidden
    sign: str  # before its name in a sum
    values: np.ndarray  # (n, columns) float32; of a scale the rows after it
    numbers: np.ndarray | None = None  # of its rows in a layer, or the positions, (n,) int64
    factor: float | None = None  # of a scale


class StepValues(NamedTuple):
    """What the steps of a model add: rows of positions, (n,) -> (n, columns) float32, of a token type, of tensors."""

    positions: Callable[[np.ndarray], np.ndarray] | None
    token_type: np.ndarray  # (1, columns) float32; empty if none is added
    values: Callable[[str], np.ndarray]  # returns a tensor by its name, as float32

    def apply(
        self, steps: Iterable[RecipeStep], rows: np.ndarray, at: np.ndarray
    ) -> tuple[np.ndarray, list[Term]]:
        """Return rows (n, columns) at these positions (n,) after all steps, and the terms of their sum.

        A projection takes the rows of a whole text: a product of many rows has other bits than that of one.
        """
        terms: list[Term] = []
        for step in steps:
            added = None
            match step:
                case Scale(factor=factor):
                    rows = rows * np.float32(factor)
                    terms.append(Term(f"x {factor:.4g}", "", rows, factor=factor))
                case Norm():
                    rows = _normed(
                        step,
                        rows,
                        self.values(step.weight),
                        self.values(step.bias) if step.bias else None,
                    )
                case Project():
                    rows = self._projected(step, rows)
                case AddPosition():
                    added = (
                        Term("position", "+", self.positions(at), at) if self.positions else None
                    )
                case AddType(row=row):
                    added = Term(
                        "type",
                        "+",
                        np.broadcast_to(self.token_type, rows.shape),
                        np.full(len(rows), row),
                    )
            if added is not None:
                rows = rows + added.values
                terms.append(added)
        return rows, terms

    def _projected(self, step: Project, rows: np.ndarray) -> np.ndarray:
        """Return the rows of a text multiplied by a matrix, in the shape in which a model does it, (1, T, columns)."""
        with loading_torch():
            import torch
        weight = torch.from_numpy(self.values(step.weight))
        bias = torch.from_numpy(self.values(step.bias)) if step.bias else None
        return np.asarray(torch.nn.functional.linear(torch.from_numpy(rows)[None], weight, bias)[0])


def _normed(
    step: Norm, rows: np.ndarray, weight: np.ndarray, bias: np.ndarray | None
) -> np.ndarray:
    with loading_torch():
        import torch
    values, gain = torch.from_numpy(rows), torch.from_numpy(weight)
    offset = None if bias is None else torch.from_numpy(bias)
    if step.kind == "torch":
        return np.asarray(
            torch.nn.functional.layer_norm(values, (rows.shape[1],), gain, offset, step.epsilon)
        )
    centred = values - values.mean(-1, keepdim=True)
    normed = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + step.epsilon) * gain
    return np.asarray(normed if offset is None else normed + offset)


def sinusoids(step: AddPosition, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the sinusoidal rows of positions, (n,) -> (n, D) float32; position -1 is padding, with zeros."""
    if step.sinusoid_formula == "sines, cosines in float64":  # Marian
        angles = positions[:, None] / np.power(10000, 2 * (np.arange(dim) // 2) / dim)
        return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(
            np.float32
        )
    with loading_torch():
        import torch
    at = torch.from_numpy(np.maximum(positions + step.position_offset, 0)).float()[:, None]
    rates = torch.exp(
        torch.arange(dim // 2, dtype=torch.int64).float() * -(math.log(10000) / (dim // 2 - 1))
    )
    waves = torch.cat([torch.sin(at * rates), torch.cos(at * rates)], dim=1)
    waves = torch.nn.functional.pad(waves, (0, dim % 2))
    rows = np.asarray(waves)
    rows[positions < 0] = 0
    return rows

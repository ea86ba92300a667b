"""The steps from token rows to what a model's first block reads.

`lookup` applies the steps of a recipe with the values that StepValues gives. Sums are computed in
numpy. Norms, projections and most sinusoids are computed in torch, as models do; torch is imported
when the first of them runs.
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
    values: np.ndarray  # (n, columns) float32; after a scale, the scaled rows
    numbers: np.ndarray | None = None  # its row numbers in a layer, or positions, (n,) int64
    factor: float | None = None  # of a scale


class StepValues(NamedTuple):
    """The values that the steps of a model take: rows of positions and of a token type, tensors."""

    # Position rows, (n,) -> (n, columns) float32; None if none are added.
    positions: Callable[[np.ndarray], np.ndarray] | None
    token_type: np.ndarray  # (1, columns) float32; empty if none is added
    values: Callable[[str], np.ndarray]  # returns a tensor by its name, as float32

    def apply(
        self, steps: Iterable[RecipeStep], rows: np.ndarray, positions: np.ndarray
    ) -> tuple[np.ndarray, list[Term]]:
        """Return rows (n, columns) at positions (n,) after all steps, and the terms of their sum.

        A projection needs the rows of a whole text: a product of many rows has other bits than that
        of one.
        """
        terms: list[Term] = []
        for step in steps:
            match step:
                case Scale(factor=factor):
                    rows = rows * np.float32(factor)
                    terms.append(Term(f"x {factor:.4g}", "", rows, factor=factor))
                case AddPosition():
                    if self.positions is not None:
                        added = self.positions(positions)
                        rows = rows + added
                        terms.append(Term("position", "+", added, positions))
                case AddType(row=row):
                    added = np.broadcast_to(self.token_type, rows.shape)
                    rows = rows + added
                    terms.append(Term("type", "+", added, np.full(len(rows), row)))
                case Norm():
                    rows = self._normed(step, rows)
                case Project():
                    rows = self._projected(step, rows)
        return rows, terms

    def _normed(self, step: Norm, rows: np.ndarray) -> np.ndarray:
        with loading_torch():
            import torch

        values = torch.from_numpy(rows)
        gain = torch.from_numpy(self.values(step.weight))
        bias = torch.from_numpy(self.values(step.bias)) if step.bias else None
        if step.kind == "torch":
            width = rows.shape[1]
            normed = torch.nn.functional.layer_norm(values, (width,), gain, bias, step.epsilon)
            return np.asarray(normed)

        centred = values - values.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        normed = centred / torch.sqrt(variance + step.epsilon) * gain
        if bias is not None:
            normed = normed + bias
        return np.asarray(normed)

    def _projected(self, step: Project, rows: np.ndarray) -> np.ndarray:
        """Return the rows of a text, (T, columns), multiplied by a matrix."""
        with loading_torch():
            import torch

        weight = torch.from_numpy(self.values(step.weight))
        bias = torch.from_numpy(self.values(step.bias)) if step.bias else None
        batch = torch.from_numpy(rows)[None]  # (1, T, columns), the shape in which a model does it
        projected = torch.nn.functional.linear(batch, weight, bias)
        return np.asarray(projected[0])


def sinusoids(step: AddPosition, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the sinusoidal rows of positions, (n,) -> (n, D) float32.

    A row has the sines in its first half and the cosines in its second. That of padding is zero.
    """
    if step.sinusoid_formula == "sines, cosines in float64":
        return _sinusoids_in_float64(dim, positions)

    with loading_torch():
        import torch

    shifted = np.maximum(positions + step.position_offset, 0)
    column = torch.from_numpy(shifted).float()[:, None]  # (n, 1)
    half = dim // 2
    exponents = torch.arange(half, dtype=torch.int64).float()
    rates = torch.exp(exponents * -(math.log(10000) / (half - 1)))
    angles = column * rates
    waves = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
    odd_column = (0, dim % 2)  # an odd D ends with a zero
    rows = np.asarray(torch.nn.functional.pad(waves, odd_column))
    rows[shifted == step.padding_id] = 0
    return rows


def _sinusoids_in_float64(dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the rows of Marian's formula, (n,) -> (n, D) float32."""
    pairs = np.arange(dim) // 2
    angles = positions[:, None] / np.power(10000, 2 * pairs / dim)
    sines = np.sin(angles[:, 0::2])
    cosines = np.cos(angles[:, 1::2])
    return np.concatenate([sines, cosines], axis=1).astype(np.float32)

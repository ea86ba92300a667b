"""The steps from token rows to what a model's first block reads.

`lookup` applies the steps of a recipe. Sums are computed in numpy. Norms and projections are
computed in torch, as models do; torch is imported when the first of them runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from embcli.layer import Layer
from embcli.positions.sinusoidal import sinusoids
from embcli.recipe import AddPosition, AddType, Norm, Project, Recipe, RecipeStep, Scale
from embcli.seeded_layers.build import load_torch

Tensors = Callable[[str], np.ndarray]  # returns a tensor by its name, as float32


class Term(NamedTuple):
    """Rows of some tokens that are a term of their input embeddings, or what comes of them."""

    name: str  # token, x 2, type, position; input, hidden
    sign: str  # before its name in a sum
    values: np.ndarray  # (n, columns) float32; after a scale, the scaled rows
    numbers: np.ndarray | None = None  # its row numbers in a layer, or positions, (n,) int64
    factor: float | None = None  # of a scale


def apply(
    steps: Iterable[RecipeStep],
    rows: np.ndarray,
    positions: np.ndarray,
    layers: Mapping[str, Layer],
    recipe: Recipe | None,
) -> tuple[np.ndarray, list[Term]]:
    """Return rows (n, D) at positions (n,) after all steps, and the terms of their sum.

    The layers give the rows of positions and token types, and the recipe the tensors of norms and
    projections. A projection needs the rows of a whole text: a product of many rows has other bits
    than that of one.
    """
    terms = []
    for step in steps:
        match step:
            case Scale(factor=factor):
                rows = rows * np.float32(factor)
                terms.append(Term(f"x {factor:.4g}", "", rows, factor=factor))
            case AddPosition():
                if step.sinusoid_formula:
                    added = sinusoids(step, rows.shape[1], positions)
                else:
                    added = layers["position"].rows(positions)
                rows = rows + added
                terms.append(Term("position", "+", added, positions))
            case AddType(row=row):
                numbers = np.full(len(rows), row)
                added = layers["token_type"].rows(numbers)
                rows = rows + added
                terms.append(Term("type", "+", added, numbers))
            case Norm() | Project():
                if recipe is not None:
                    rows = _by_torch(step, rows, recipe.values)
    return rows, terms


def _by_torch(step: Norm | Project, rows: np.ndarray, tensor: Tensors) -> np.ndarray:
    """Return the rows of a text, (T, columns), normed, or multiplied by a matrix."""
    load_torch()
    import torch

    values = torch.from_numpy(rows)
    weight = torch.from_numpy(tensor(step.weight))
    bias = torch.from_numpy(tensor(step.bias)) if step.bias else None
    if isinstance(step, Project):
        batch = values[None]  # (1, T, columns), the shape in which a model does it
        projected = torch.nn.functional.linear(batch, weight, bias)
        return projected[0].numpy()
    if step.kind == "torch":
        shape = rows.shape[1:]
        normed = torch.nn.functional.layer_norm(values, shape, weight, bias, step.epsilon)
        return normed.numpy()

    centred = values - values.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    normed = centred / torch.sqrt(variance + step.epsilon) * weight
    if bias is not None:
        normed = normed + bias
    return normed.numpy()

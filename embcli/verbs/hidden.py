"""The steps from token rows to what a model's first block reads: sums in numpy, norms and projections in torch.

torch is imported when the first of its steps runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.layer import Source, shape_of
from embcli.names import Pairing
from embcli.positions.rotary import Rotary, model_rotary
from embcli.positions.sinusoidal import Sinusoidal
from embcli.recipe import AddPosition, AddRow, AddType, Norm, Project, Scale
from embcli.weights.build import loading_torch

if TYPE_CHECKING:
    import torch

Step = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows (n, columns), positions (n,) -> rows


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps on rows, one after another; a text goes through as a whole if a row depends on the rows beside it."""

    steps: tuple[Step, ...] = ()
    takes_whole_texts: bool = False

    def __call__(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the rows after all steps, (n, columns) float32."""
        for step in self.steps:
            rows = step(rows, positions)
        return rows


def steps_of(
    steps: Iterable[Any],
    values: Callable[[str], np.ndarray],
    position_rows: Callable[[np.ndarray], np.ndarray],
    type_row: np.ndarray | None,
) -> Steps:
    """Return steps of a recipe that run; `values` returns a tensor by name, `type_row` (1, D) is of the token type."""
    done: list[Step] = []
    takes_whole_texts = False
    for step in steps:
        match step:
            case Scale(factor=factor):
                done.append(partial(_by, operator.mul, np.float32(factor)))
            case AddPosition():
                done.append(lambda rows, at: rows + position_rows(at))
            case AddType() if type_row is not None:
                done.append(lambda rows, _: rows + type_row)
            case AddRow(tensors=names):
                done.append(partial(_by, operator.add, np.concatenate([values(name)[:1] for name in names], axis=1)))
            case Norm(weight=weight, bias=bias, epsilon=epsilon, kind=kind):
                done.append(partial(_normed, kind, values(weight), values(bias) if bias else None, epsilon))
            case Project(weight=weight, bias=bias, neighbours=neighbours, beside=beside):
                takes_whole_texts = True
                if neighbours:
                    done.append(_beside_neighbours)
                if beside:
                    done.append(partial(_beside, np.concatenate([values(name)[:1] for name in beside], axis=1)))
                done.append(partial(_projected, values(weight), values(bias) if bias else None))
    return Steps(tuple(done), takes_whole_texts)


def _by(combine: Callable[[Any, Any], np.ndarray], value: Any, rows: np.ndarray, _: np.ndarray) -> np.ndarray:
    return combine(rows, value)


def _beside_neighbours(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return the rows of a text, (T, D), with the next row before each and the last row after it, (T, 3D)."""
    edge = np.zeros((1, rows.shape[1]), np.float32)
    return np.concatenate([np.concatenate([rows[1:], edge]), rows, np.concatenate([edge, rows[:-1]])], axis=1)


def _beside(row: np.ndarray, rows: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.repeat(row, len(rows), axis=0)], axis=1)


def _normed(
    kind: str, weight: np.ndarray, bias: np.ndarray | None, epsilon: float, rows: np.ndarray, _: np.ndarray
) -> np.ndarray:
    """Return normalised rows, as torch's `layer_norm` or as some families spell it out."""
    with loading_torch():
        import torch
    values, gain = torch.from_numpy(rows), torch.from_numpy(weight)
    offset = None if bias is None else torch.from_numpy(bias)
    if kind == "torch":
        normed = torch.nn.functional.layer_norm(values, (rows.shape[1],), gain, offset, epsilon)
        return _array(normed)
    if kind == "spelled":
        centred = values - values.mean(-1, keepdim=True)
        values = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + epsilon)
    return _array(values * gain if offset is None else values * gain + offset)


def _projected(weight: np.ndarray, bias: np.ndarray | None, rows: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Return the rows of a text multiplied by a matrix, in the shape in which a model does it, (1, T, D)."""
    with loading_torch():
        import torch
    offset = None if bias is None else torch.from_numpy(bias)
    return _array(torch.nn.functional.linear(torch.from_numpy(rows)[None], torch.from_numpy(weight), offset)[0])


def _array(values: torch.Tensor) -> np.ndarray:
    array: np.ndarray = values.numpy()
    return array


def own_positions(
    source: Source, kind: str, theta: float | None, pairing: Pairing | None, length: int
) -> Sinusoidal | Rotary | None:
    """Return the positions of a kind that a model adds by its own formula, or by which its blocks rotate rows.

    They are those of texts of `length` tokens; None if the model does not do so.
    """
    dim = shape_of(source, "token")[1]
    if kind == "sinusoidal" and (recipe := source.recipe) and recipe.waves:
        return Sinusoidal(dim, formula=partial(sinusoids, recipe.waves, recipe.first, dim))
    rotation = source.rotation.chosen(theta, length) if kind == "rotary" and source.rotation else None
    return model_rotary(rotation, dim, pairing) if rotation else None


def sinusoids(formula: str, first: int, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the sinusoidal rows of positions, (n,) int64 -> (n, D) float32; position -1 is padding, with zeros.

    `formula` is one of families.py; the sines come first, then the cosines.
    """
    if formula == "sines, cosines in float64":  # Marian
        angles = positions[:, None] / np.power(10000, 2 * (np.arange(dim) // 2) / dim)
        return np.concatenate([np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])], axis=1).astype(np.float32)
    with loading_torch():
        import torch
    at = torch.from_numpy(np.maximum(positions + first, 0)).float()[:, None]
    if formula == "sines, cosines":  # tensor2tensor
        rates = torch.exp(torch.arange(dim // 2, dtype=torch.int64).float() * -(math.log(10000) / (dim // 2 - 1)))
        waves = torch.cat([torch.sin(at * rates), torch.cos(at * rates)], dim=1)
        rows = _array(torch.nn.functional.pad(waves, (0, dim % 2)))
    else:  # CTRL
        columns = torch.arange(dim, dtype=torch.int64).float()[None]
        waves = at * (1 / torch.pow(10000, (2 * (columns // 2)) / dim))
        rows = _array(torch.cat([torch.sin(waves[:, 0::2]), torch.cos(waves[:, 1::2])], dim=1))
    rows[positions < 0] = 0
    return rows

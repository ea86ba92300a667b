"""Principal components: the directions in which rows differ most."""

from __future__ import annotations

import numpy as np


def principal_map(rows: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Return finite rows, (n, D), by their first two principal components: points, (n, 2) float64.

    With them, the share of the variance that each component has; with equal shares, other axes are
    as good. The mean of the points is at 0. The loading of a component that is largest in absolute
    value is positive. Components along which the rows do not differ, except by rounding, have
    zeros.

    >>> points, shares = principal_map(np.array([[3.0, 0], [0, 0], [0, 0]]))
    >>> points.tolist(), shares
    ([[2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], [1.0, 0.0])
    """
    exact = rows.astype(np.float64)
    centred = exact - exact.mean(axis=0)
    _, sizes, components = np.linalg.svd(centred, full_matrices=False)
    rounding = np.finfo(np.float64).eps * max(rows.shape) * np.linalg.norm(exact)
    sizes[sizes <= rounding] = 0

    points = np.zeros((len(rows), 2))
    shares = [0.0, 0.0]
    for number in range(min(2, int(np.count_nonzero(sizes)))):
        component = components[number]
        largest = component[np.abs(component).argmax()]
        points[:, number] = centred @ component * np.sign(largest)
        shares[number] = float(sizes[number] ** 2 / np.square(sizes).sum())
    return points, shares

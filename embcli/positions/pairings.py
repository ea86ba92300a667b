"""Both pairings of rotary positions side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from embcli.names import DEFAULT_THETA, PAIRINGS, ShownPairing
from embcli.positions.kind import Matrix, ShownPositions, ShownWords
from embcli.positions.rotary import Rotary

_BESIDE = 3  # positions of the products on a page


@final
@dataclass(frozen=True, eq=False)
class BothPairings(ShownPositions):
    """Rotary positions in both pairings, of one row whose columns are in the order of each.

    Pair i is columns 2i and 2i + 1 of the interleaved row, and columns i and i + D/2 of the other: the products are
    equal, the columns are not. Raises LayerError as Rotary does.
    """

    options = ("pairing", "theta", "ids")

    pairing: ShownPairing = "both"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        self.kinds()

    def kinds(self) -> tuple[Rotary, Rotary]:
        """Return the kind that interleaves, and the other."""
        interleaved, halves = (Rotary(self.dim, pairing=name, theta=self.theta) for name in PAIRINGS)
        return interleaved, halves

    def in_halves(self, row: np.ndarray) -> np.ndarray:
        """Return a row (1, D) with its even columns first, which makes pairs of halves of those that alternate."""
        interleaved, halves = self.kinds()
        reordered = np.empty_like(row)
        reordered[:, halves.pairs] = row[:, interleaved.pairs]
        return reordered

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the rotated row in both pairings, and for a page some of its products with itself."""
        to = np.arange(min(length, _BESIDE))
        both: list[Matrix] = []
        products: list[Matrix] = []
        for name, kind, own in zip(PAIRINGS, self.kinds(), (row, self.in_halves(row)), strict=True):
            both.append(self._rotated(name, kind, own, columns))
            products.append(Matrix("", kind.products(to, own), to, title=name))
        interleaved, halves = both
        what = f"The columns differ: halves stores the row of token ID {token_id} as 0 2 4 … 1 3 5 …"
        one, at = to[-1:], to[:1]
        wrong = float(self.kinds()[1].products(at, row)(one)[0, 0])
        equal = f"The products q · k are equal; if not reordered, halves has {wrong:.4f} for {one[0]} and 0"
        return [
            replace(interleaved, heading=what, beside=(halves,)),
            halves,
            replace(products[0], heading=equal, beside=(products[1],)),
        ]

    @staticmethod
    def _rotated(name: str, kind: Rotary, row: np.ndarray, columns: np.ndarray) -> Matrix:
        """Return a rotated row at each position, which a page shows under its name."""
        apart = kind.apart(columns)
        return Matrix(name, lambda at: kind.joined(row, at)[:, columns], columns, heading=None, apart=apart, title=name)

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what computes the dot products of the rotated row, which both pairings have in common."""
        return self.kinds()[0].products(to, row)

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Both pairings of rotary positions",
            f"T = {length:,} positions, D = {self.dim:,} columns",
            "interleaved rotates columns 2i and 2i + 1 together, halves i and i + D/2.",
            "They depend only on the distance, and are the same in both pairings.",
            f"Both rotate pair i by p · {self.theta:,g}^(-2i/D).",
        )

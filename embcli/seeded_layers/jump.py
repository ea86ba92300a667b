"""Move a Mersenne Twister far forwards at once, without the draws in between.

The generator's state is a window of 624 words on a sequence that is linear over GF(2). With p the
characteristic polynomial of one step, x^n mod p says which of the next 19,937 windows add up to the
window after n steps (Haramoto, Matsumoto, Nishimura, Panneton, L'Ecuyer: Efficient Jump Ahead for
F2-Linear Random Number Generators, 2008). A polynomial over GF(2) is an int here, bit i the
coefficient of x^i. A jump takes about as long as 30 million draws.
"""

from __future__ import annotations

import numpy as np

from embcli.wording import load_facts

WORDS = 624
_MIDDLE = 397
_TWIST = 0x9908B0DF
_DEGREE = 19937
# So many words can be computed at once, and so far is p's second term below its highest.
_GAP = WORDS - _MIDDLE
# The exponents of p, by the formula of Matsumoto and Nishimura (1998).
_EXPONENTS = load_facts("mersenne_twister.json")


def jump(window: np.ndarray, distance: int) -> np.ndarray:
    """Return the window, (624,) uint32, `distance` words further on in the sequence.

    The low 31 bits of its first word are not part of the generator's state and may differ.
    """
    polynomial = _power_of_x(distance)
    packed = np.frombuffer(polynomial.to_bytes(_DEGREE // 8 + 1, "little"), np.uint8)
    coefficients = np.unpackbits(packed, bitorder="little")
    words = _continued(window)
    moved = np.zeros(WORDS, np.uint32)
    for exponent in np.flatnonzero(coefficients).tolist():
        moved ^= words[exponent : exponent + WORDS]
    return moved


def _continued(window: np.ndarray) -> np.ndarray:
    """Return the window and the 19,937 words that follow it."""
    words = np.empty(WORDS + _DEGREE, np.uint32)
    words[:WORDS] = window
    for start in range(0, _DEGREE, _GAP):
        count = min(_GAP, _DEGREE - start)
        stop = start + count
        high = words[start:stop] & np.uint32(0x80000000)
        low = words[start + 1 : stop + 1] & np.uint32(0x7FFFFFFF)
        mixed = high | low
        twisted = (mixed >> np.uint32(1)) ^ (mixed & np.uint32(1)) * np.uint32(_TWIST)
        middle = words[start + _MIDDLE : stop + _MIDDLE]
        words[start + WORDS : stop + WORDS] = middle ^ twisted
    return words


def _power_of_x(exponent: int) -> int:
    """Return x^exponent mod p."""
    power = 1
    for bit in f"{exponent:b}":
        # Over GF(2), squaring puts a zero between any two coefficients.
        squared = int("0".join(f"{power:b}"), 2)
        power = _reduced(squared << int(bit))
    return power


def _reduced(polynomial: int) -> int:
    """Return a polynomial mod p.

    Each step removes as many of the highest terms as p's gap allows.
    """
    while (length := polynomial.bit_length()) > _DEGREE:
        low = max(length - _GAP, _DEGREE)
        terms = polynomial >> low
        for exponent in _EXPONENTS:
            polynomial ^= terms << (exponent + low - _DEGREE)
    return polynomial

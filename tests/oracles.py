"""What numbers are held against: torch's own layers, and equality to the last bit."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from embcli.weights.seeded import Seeded


@lru_cache(maxsize=8)
def live(seeded: Seeded) -> dict[str, np.ndarray]:
    """Return both layers as torch itself draws them."""
    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocabulary_size, seeded.dim)
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    return {"token": token.weight.detach().numpy(), "position": position.weight.detach().numpy()}


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Hold float32 values against others: shape, and every bit."""
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()

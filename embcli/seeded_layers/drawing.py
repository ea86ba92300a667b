"""Seeded layers, drawn by torch: all rows or only some of them, bit for bit the same.

How torch fills a normal tensor on the CPU (aten/src/ATen/native/cpu/DistributionTemplates.h,
`normal_fill`): from 16 elements on it takes one 32-bit draw of the generator for each element and
turns each block of 16 draws into 16 normals; if the size is not a multiple of 16, the last 16
elements are overwritten with a block of 16 fresh draws. So a block can be computed without the
blocks before it, once the generator has moved past their draws. Below 16 elements torch draws one
normal at a time, from 53-bit uniforms, and keeps a spare between calls: those layers are drawn
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from threading import Lock

import numpy as np
import torch

from embcli.files.tensors import runs
from embcli.layer import Layer
from embcli.seeded_layers.jump import WORDS, jump
from embcli.seeded_layers.seeded import Seeded

BLOCK = 16  # elements that torch draws together
_BUFFER = 1 << 16  # elements drawn or skipped in one call, which fit into the processor's cache
_global_generator_lock = Lock()


@contextmanager
def global_generator() -> Iterator[None]:
    """Lend torch's global generator to one thread at a time; its state is restored afterwards."""
    with _global_generator_lock, torch.random.fork_rng(devices=[]):
        yield


def fill_weight(weight: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill a weight as torch.nn.Embedding does, from a generator or torch's global one."""
    return weight.normal_(generator=generator)


_AT_ONCE = 1 << 20  # elements that are drawn for chosen rows before these are copied out


class DrawnLayer(Layer):
    """A layer that draws its rows when they are needed.

    It keeps those of the last call. Several threads take turns.
    """

    dtype = "float32"

    def __init__(self, seeded: Seeded, name: str) -> None:
        self.name = name
        self.shape = seeded.shapes[name]
        self._seeded = seeded
        self._stream = RandomStream(seeded, name)
        self._lock = Lock()
        # These are ascending IDs, and their rows. A thread replaces both in one assignment.
        self._last = (np.empty(0, np.int64), np.empty((0, self.shape[1]), np.float32))

    def rows(self, ids: np.ndarray) -> np.ndarray:
        known, rows = self._last
        places = np.searchsorted(known, ids)
        if not len(known) or (known.take(places, mode="clip") != ids).any():
            known, places = np.unique(ids.astype(np.int64), return_inverse=True)
            rows = self._drawn(known)
            self._last = (known, rows)
        return rows[places]

    def _drawn(self, ids: np.ndarray) -> np.ndarray:
        """Return the rows of ascending IDs, (n, D) float32.

        The generator skips to the blocks that contain them.
        """
        dim = self.shape[1]
        rows = np.empty((len(ids), dim), np.float32)
        with self._lock:
            for part in _parts(ids, gap=BLOCK // dim, limit=max(_AT_ONCE // dim, 1)):
                first = int(ids[part.start])
                last = int(ids[part.stop - 1])
                elements = self._stream.elements(first * dim, (last + 1) * dim)
                rows[part] = elements.reshape(-1, dim)[ids[part] - first]
        return rows

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each."""
        size, dim = self.shape
        # A multiple of 16 rows ends with a block of torch's, so that no block is drawn twice.
        step = max(_BUFFER // dim // BLOCK, 1) * BLOCK
        stream = RandomStream(self._seeded, self.name)
        for start in range(0, size, step):
            stop = min(start + step, size)
            yield stream.elements(start * dim, stop * dim).reshape(-1, dim)


def _parts(ids: np.ndarray, gap: int, limit: int) -> Iterator[slice]:
    """Yield places of ascending IDs to draw together: at most `limit`, with gaps up to `gap`."""
    firsts, lasts = runs(ids, gap + 1)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        for start in range(first, last, limit):
            yield slice(start, min(start + limit, last))


_FAR = 1 << 25  # draws; a jump is faster than skipping as many
_WORDS_OFFSET = 24  # bytes of torch's state before the generator's words: a seed, three counters
_UNKNOWN = 1 << 200  # the position of a stopped generator: larger than any other


class RandomStream:
    """The elements of one layer, in any order.

    It has a generator of its own, which moves forwards cheaply and starts again to move back.
    """

    def __init__(self, seeded: Seeded, name: str) -> None:
        self._seed = seeded.seed
        self._size = prod(seeded.shapes[name])
        self._whole = self._size // BLOCK * BLOCK  # elements in whole blocks
        # The token layer is drawn before the position layer.
        self._size_before = prod(seeded.shapes["token"]) if name == "position" else 0
        self._start = _draws(self._size_before)
        self._generator = torch.Generator()
        # The position counts the draws taken, except those of a layer of fewer than 16 elements. It
        # is known only after a whole block: an error can stop the generator at any place.
        self._position = _UNKNOWN
        self._skipped = torch.empty(_BUFFER, dtype=torch.uint8)

    def elements(self, start: int, stop: int) -> np.ndarray:
        """Return elements, (stop - start,) float32."""
        if self._size < BLOCK:
            return self._small()[start:stop]
        low = start // BLOCK * BLOCK
        high = min(-(-stop // BLOCK) * BLOCK, self._whole)
        drawn = np.empty(stop + BLOCK - low, np.float32)
        self._fill(low, drawn[: max(high - low, 0)])

        # If the size is not a multiple of 16, torch overwrites the last 16 elements.
        tail_start = self._size - BLOCK
        if self._size > self._whole and stop > tail_start:
            tail = np.empty(BLOCK, np.float32)
            self._fill(self._size, tail)
            first = max(start, tail_start)
            drawn[first - low : stop - low] = tail[first - tail_start : stop - tail_start]
        return drawn[start - low : stop - low]

    def state_after(self) -> torch.Tensor:
        """Return the state of torch's generator once it has drawn the layer and those before it."""
        if self._size < BLOCK:
            self._small()
        else:
            self._seek(self._start + _draws(self._size))
        return self._generator.get_state()

    def _small(self) -> np.ndarray:
        """Return all elements of a layer of fewer than 16."""
        self._seek(self._start)
        return self._normals(self._size)

    def _normals(self, count: int) -> np.ndarray:
        return fill_weight(torch.empty(count), self._generator).numpy()

    def _fill(self, start: int, values: np.ndarray) -> None:
        """Fill an array with the elements from `start` on; its length is a multiple of 16."""
        if not len(values):
            return
        draw = self._start + start
        self._seek(draw)
        fill_weight(torch.from_numpy(values), self._generator)
        self._position = draw + len(values)

    def _seek(self, draw: int) -> None:
        """Move the generator to a draw: forwards from where it is, or from its seed."""
        position = self._position
        self._position = _UNKNOWN
        if draw < position:
            self._generator.manual_seed(self._seed)
            position = 0
            if self._follows_small_layer:
                self._normals(self._size_before)
        distance = draw - position
        if distance <= _FAR or not self._jump(draw):
            for _ in range(distance // _BUFFER):
                self._skipped.random_(generator=self._generator)
            self._skipped[: distance % _BUFFER].random_(generator=self._generator)

    @property
    def _follows_small_layer(self) -> bool:
        """Whether a layer is drawn first that is so small that its draws are not counted."""
        return 0 < self._size_before < BLOCK

    def _jump(self, draw: int) -> bool:
        """Move the generator to a draw at once.

        Return whether its state has the layout that this needs; if not, nothing is moved.
        """
        if self._follows_small_layer:
            return False
        state = torch.Generator().manual_seed(self._seed).get_state()
        words = state.numpy()[_WORDS_OFFSET : _WORDS_OFFSET + 8 * WORDS].view(np.uint64)
        is_known = len(words) == WORDS and words[0] == self._seed % 2**32 and words.max() < 2**32
        if not is_known:
            return False
        words[:] = jump(words.astype(np.uint32), draw)
        self._generator.set_state(state)
        return True


def _draws(size: int) -> int:
    """Return how many draws a layer takes; those of fewer than 16 elements are not counted."""
    if size < BLOCK:
        return 0
    if size % BLOCK:
        return size + BLOCK
    return size

"""Seeded layers, drawn by torch: all rows or only some of them, bit for bit the same.

How torch fills a normal tensor on the CPU (aten/src/ATen/native/cpu/DistributionTemplates.h, `normal_fill`): from 16
elements on it takes one 32-bit draw of the generator for each element and turns each block of 16 draws into 16
normals; if the size is not a multiple of 16, the last 16 elements are overwritten with a block of 16 fresh draws. So a
block can be computed without the blocks before it, once the generator has moved past their draws. Below 16 elements
torch draws one normal at a time, from 53-bit uniforms, and keeps a spare between calls: those layers are drawn whole.
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
_AT_ONCE = 1 << 20  # elements that are drawn for chosen rows before these are copied out
_FAR = 1 << 25  # draws from which on a jump is faster than skipping
_WORDS_AT = (
    24  # offset of the generator's words in torch's state: after the seed and three counters
)
_BUFFER = (
    1 << 16
)  # elements that are drawn or skipped in one call: small enough for the processor's cache
_GENERATOR = Lock()
_UNKNOWN = 1 << 200  # the position of a generator that an error stopped


@contextmanager
def global_generator() -> Iterator[None]:
    """Lend torch's global generator to one thread at a time; its state is restored afterwards."""
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        yield


class DrawnLayer(Layer):
    """A layer that draws rows whenever they are needed, except those of the last call. Several threads take turns."""

    dtype = "float32"

    def __init__(self, seeded: Seeded, name: str) -> None:
        self.name, self.shape = name, seeded.shape(name)
        self.build = {
            "torch": str(torch.__version__),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }
        self._seeded = seeded
        self._stream = RandomStream(seeded, name)
        self._lock = Lock()
        self._last = (
            np.empty(0, np.int64),
            np.empty((0, self.shape[1]), np.float32),
        )  # ascending IDs, and their rows

    def rows(self, ids: np.ndarray) -> np.ndarray:
        known, rows = self._last
        places = np.searchsorted(known, ids)
        if not len(known) or (known.take(places, mode="clip") != ids).any():
            known, places = np.unique(ids.astype(np.int64), return_inverse=True)
            rows = self._drawn(known)
            self._last = known, rows
        return rows[places]

    def _drawn(self, wanted: np.ndarray) -> np.ndarray:
        """Return rows by ascending IDs, (n, D) float32; the generator skips to the blocks that contain them."""
        dim = self.shape[1]
        rows = np.empty((len(wanted), dim), np.float32)
        with self._lock:
            for part in _parts(wanted, gap=BLOCK // dim, most=max(_AT_ONCE // dim, 1)):
                first, last = int(wanted[part.start]), int(wanted[part.stop - 1])
                drawn = self._stream.elements(first * dim, (last + 1) * dim).reshape(-1, dim)
                rows[part] = drawn[wanted[part] - first]
        return rows

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each, drawn into one buffer; a block is valid until the next one."""
        rows, dim = self.shape
        step = (
            max(_BUFFER // dim // BLOCK, 1) * BLOCK
        )  # rows that begin where torch draws a block of its own
        stream, buffer = (
            RandomStream(self._seeded, self.name),
            np.empty(step * dim + 2 * BLOCK, np.float32),
        )
        for row in range(0, rows, step):
            yield stream.elements(row * dim, min(row + step, rows) * dim, buffer).reshape(-1, dim)


class RandomStream:
    """The elements of one layer, from a generator that moves forwards cheaply; to move back it starts again."""

    def __init__(self, seeded: Seeded, name: str) -> None:
        self._seed = seeded.seed
        self._size = prod(seeded.shape(name))
        self._whole = self._size // BLOCK * BLOCK  # elements in whole blocks
        self._before = (
            prod(seeded.shape("token")) if name == "position" else 0
        )  # elements that are drawn first
        self._start = _draws(self._before)
        self._generator = torch.Generator()
        self._at = (
            _UNKNOWN  # draws taken, not counting those of a token layer of fewer than 16 elements
        )
        self._skipped = torch.empty(_BUFFER, dtype=torch.uint8)

    def elements(self, start: int, stop: int, buffer: np.ndarray | None = None) -> np.ndarray:
        """Return elements, flat; `buffer` has room for 32 more of them, and is overwritten by the next call."""
        if self._size < BLOCK:
            return self._small()[start:stop]
        low, high = start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, self._whole)
        drawn = np.empty(stop + BLOCK - low, np.float32) if buffer is None else buffer
        self._fill(low, drawn[: max(high - low, 0)])
        overwritten = self._size - BLOCK  # the first of the last 16 elements
        if self._size > self._whole and stop > overwritten:
            tail = np.empty(BLOCK, np.float32)
            self._fill(self._size, tail)
            first = max(start, overwritten)
            drawn[first - low : stop - low] = tail[first - overwritten : stop - overwritten]
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
        self._at = _UNKNOWN
        self._seek(self._start)
        self._at = _UNKNOWN
        return self._normals(self._size)

    def _normals(self, count: int) -> np.ndarray:
        normals: np.ndarray = torch.empty(count).normal_(generator=self._generator).numpy()
        return normals

    def _fill(self, start: int, values: np.ndarray) -> None:
        """Fill an array with the elements from `start` on; its length is a multiple of 16."""
        if len(values):
            self._seek(self._start + start)
            self._at = _UNKNOWN  # until they are drawn
            torch.from_numpy(values).normal_(generator=self._generator)
            self._at = self._start + start + len(values)

    def _seek(self, draw: int) -> None:
        at, self._at = self._at, _UNKNOWN  # until it is there
        if draw < at:
            self._generator.manual_seed(self._seed)
            at = 0
            if 0 < self._before < BLOCK:
                self._normals(self._before)
        distance = draw - at
        if distance <= _FAR or not self._jump(draw):
            for _ in range(distance // _BUFFER):
                self._skipped.random_(generator=self._generator)
            self._skipped[: distance % _BUFFER].random_(generator=self._generator)
        self._at = draw

    def _jump(self, draw: int) -> bool:
        """Move the generator to a draw at once; return whether its state has the layout that this needs."""
        if 0 < self._before < BLOCK:
            return False  # the draws of a small layer are not counted
        state = torch.Generator().manual_seed(self._seed).get_state()
        words = state.numpy()[_WORDS_AT : _WORDS_AT + 8 * WORDS].view(np.uint64)
        if len(words) != WORDS or words[0] != self._seed % 2**32 or words.max() >= 2**32:
            return False
        words[:] = jump(words.astype(np.uint32), draw)
        self._generator.set_state(state)
        return True


def _draws(size: int) -> int:
    """Return how many draws a layer takes, 0 for fewer than 16 elements: these draws are not counted."""
    return 0 if size < BLOCK else size + BLOCK * (size % BLOCK > 0)


def _parts(ids: np.ndarray, gap: int, most: int) -> Iterator[slice]:
    """Yield the places of ascending IDs to draw together: at most `most`, with gaps up to `gap`."""
    for first, last in zip(*(each.tolist() for each in runs(ids, gap + 1)), strict=True):
        for start in range(first, last, most):
            yield slice(start, min(start + most, last))

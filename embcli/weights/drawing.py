"""Seeded layers, drawn by torch: whole, or just the rows that are asked for, bit for bit the same.

How torch fills a normal tensor on the CPU (aten/src/ATen/native/cpu/DistributionTemplates.h, `normal_fill`): from 16
elements on it takes one 32-bit draw of the generator for each element and turns each block of 16 draws into 16
normals; when the size is no multiple of 16, the last 16 elements are overwritten with a block of 16 fresh draws. So a
block can be had without those before it, once the generator has been moved past their draws. Under 16 elements torch
draws one normal at a time, from 53-bit uniforms, and keeps one spare between calls: those layers are drawn whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from embcli.layer import Layer, Meter, Summary
from embcli.passes import side_by_side, unwatched
from embcli.selection import distinct
from embcli.weights.jump import WORDS, jump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.passes import Watch
    from embcli.weights.seeded import Seeded

BLOCK = 16  # elements that torch draws together
_AT_ONCE = 1 << 20  # elements that are drawn for the rows asked for before they are copied out
_FAR = 1 << 25  # draws from which on a jump is faster than skipping
_WORDS_AT = 24  # where the generator's words stand in torch's state: behind seed, count left, seeded flag, next place
_PARTS = 4  # of a huge layer, which are summed up side by side
_BUFFER = 1 << 16  # elements that are drawn or skipped in one call: small enough to stay in the processor's cache


class Drawing:
    """The layers of one seeded run, drawn from one generator that is read forwards as far as that serves."""

    def __init__(self, seeded: Seeded) -> None:
        self.seeded = seeded
        self._sizes = {name: seeded.shape(name)[0] * seeded.shape(name)[1] for name in ("token", "position")}
        self.origin = {"torch": str(torch.__version__), "cpu_capability": torch.backends.cpu.get_cpu_capability()}
        self._generator = torch.Generator()
        self._skipped = torch.empty(_BUFFER, dtype=torch.uint8)
        self._small: dict[str, np.ndarray] = {}
        self._rewind()

    def layer(self, name: str) -> DrawnLayer:
        """Return the `token` or the `position` layer."""
        return DrawnLayer(self, name, self.seeded.shape(name))

    def _rewind(self) -> None:
        self._generator.manual_seed(self.seeded.seed)
        self._at = 0  # draws taken since, not counting those of small layers
        if self._sizes["token"] < BLOCK:
            self._small["token"] = self._normals(self._sizes["token"])

    def _normals(self, count: int) -> np.ndarray:
        normals: np.ndarray = torch.empty(count).normal_(generator=self._generator).numpy()
        return normals

    def _start_of(self, name: str) -> int:
        size = self._sizes["token"]
        return 0 if name == "token" or size < BLOCK else size + BLOCK * (size % BLOCK > 0)

    def _seek(self, draw: int) -> None:
        if draw < self._at:
            self._rewind()
        if draw - self._at > _FAR and self._jump(draw):
            return
        distance = draw - self._at
        for _ in range(distance // _BUFFER):
            self._skipped.random_(generator=self._generator)
        self._skipped[: distance % _BUFFER].random_(generator=self._generator)
        self._at = draw

    def _jump(self, draw: int) -> bool:
        """Move the generator to a draw at once; return whether its state is of the layout that this needs."""
        if self._sizes["token"] < BLOCK:
            return False  # the draws of a small layer are not counted
        state = torch.Generator().manual_seed(self.seeded.seed).get_state()
        words = state.numpy()[_WORDS_AT : _WORDS_AT + 8 * WORDS].view(np.uint64)
        if len(words) != WORDS or words[0] != self.seeded.seed % 2**32 or words.max() >= 2**32:
            return False
        words[:] = jump(words.astype(np.uint32), draw)
        self._generator.set_state(state)
        self._at = draw
        return True

    def state_behind(self, name: str) -> torch.Tensor:
        """Return the generator's state once this layer is drawn, for what comes next in a script."""
        self._rewind()
        self._seek(self._start_of("position"))
        if name == "position" and self._sizes[name] < BLOCK:
            self._normals(self._sizes[name])
        elif name == "position":
            self._seek(self._at + self._sizes[name] + BLOCK * (self._sizes[name] % BLOCK > 0))
        state = self._generator.get_state()
        self._rewind()
        return state

    def small(self, name: str) -> np.ndarray:
        """Return a whole layer of fewer than 16 elements, flat."""
        if name not in self._small:
            self._rewind()
            self._seek(self._start_of(name))
            self._small[name] = self._normals(self._sizes[name])
            self._rewind()
        return self._small[name]

    def blocks(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return elements `start` to `stop` of a layer as first drawn, flat; both are multiples of 16."""
        self._seek(self._start_of(name) + start)
        drawn = self._normals(stop - start)
        self._at += stop - start
        return drawn

    def buffered(self, name: str, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yield what `blocks` returns in pieces that are valid until the next one: they share one buffer."""
        self._seek(self._start_of(name) + start)
        buffer = torch.empty(_BUFFER)
        for at in range(start, stop, _BUFFER):
            piece = buffer[: min(_BUFFER, stop - at)].normal_(generator=self._generator)
            self._at += len(piece)
            yield piece.numpy()

    def fill(self, name: str, start: int, values: np.ndarray) -> None:
        """Fill a contiguous array with the elements from `start` on; that and its length are multiples of 16."""
        self._seek(self._start_of(name) + start)
        torch.from_numpy(values).normal_(generator=self._generator)
        self._at += len(values)

    def tail(self, name: str) -> np.ndarray:
        """Return the last 16 elements of a layer whose size is no multiple of 16."""
        self._seek(self._start_of(name) + self._sizes[name])
        drawn = self._normals(BLOCK)
        self._at += BLOCK
        return drawn


class DrawnLayer(Layer):
    """One layer of a drawing; it holds no values, it draws them again each time they are asked for."""

    dtype = "float32"

    def __init__(self, drawing: Drawing, name: str, shape: tuple[int, int]) -> None:
        self.name = name
        self.shape = shape
        self.origin = drawing.origin
        self._drawing = drawing
        self._size = shape[0] * shape[1]
        self._whole = self._size // BLOCK * BLOCK  # elements in whole blocks
        self._last: tuple[int, np.ndarray] = (-1, np.empty(0, np.float32))  # the last block drawn, for the next rows

    def flat(self) -> Iterator[np.ndarray]:
        """Yield all elements in order, in pieces that stay valid."""
        if self._size < BLOCK:
            yield self._drawing.small(self.name)
            return
        kept = self._size - BLOCK if self._size > self._whole else self._size
        for start in range(0, self._whole, _BUFFER):
            stop = min(start + _BUFFER, self._whole)
            yield self._drawing.blocks(self.name, start, stop)[: max(kept - start, 0)]
        if kept < self._size:
            yield self._drawing.tail(self.name)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32; the generator skips to the blocks they lie in."""
        dim = self.shape[1]
        if self._size < BLOCK:
            small: np.ndarray = self._drawing.small(self.name).reshape(self.shape)[ids]
            return small
        wanted, places = distinct(ids)
        found: np.ndarray = np.empty((len(wanted), dim), np.float32)
        for first, last in _runs(wanted, gap=BLOCK // dim, most=max(_AT_ONCE // dim, 1)):
            start, stop = int(wanted[first]) * dim, (int(wanted[last]) + 1) * dim
            elements = self._elements(start, min(stop, self._whole))
            for row in range(first, last + 1):
                offset = int(wanted[row]) * dim - start
                part = elements[offset : offset + dim]
                found[row, : len(part)] = part
        self._overwrite_tail(self._drawing, wanted, found)
        chosen: np.ndarray = found[places]
        return chosen

    def _elements(self, start: int, stop: int) -> np.ndarray:
        low, high = start // BLOCK * BLOCK, -(-stop // BLOCK) * BLOCK
        begin, last = self._last
        if begin == low < high:  # rows that follow each other may share a block: no need to go back for it
            drawn = np.concatenate([last, self._drawing.blocks(self.name, low + BLOCK, high)])
        else:
            drawn = self._drawing.blocks(self.name, low, high)
        if high > low:
            self._last = (high - BLOCK, drawn[-BLOCK:].copy())
        return drawn[start - low : stop - low]

    def _overwrite_tail(self, drawing: Drawing, wanted: np.ndarray, found: np.ndarray) -> None:
        dim = self.shape[1]
        tail_start = self._size - BLOCK
        first = int(np.searchsorted(wanted, tail_start // dim))
        if self._size == self._whole or first == len(wanted):
            return
        tail = drawing.tail(self.name)
        for row in range(first, len(wanted)):
            offset = int(wanted[row]) * dim - tail_start  # of the row's first element in the tail
            found[row, max(-offset, 0) :] = tail[max(offset, 0) : offset + dim]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each, drawn into one buffer; a block is valid until the next one."""
        return self._between(0, self.shape[0])

    def parts(self) -> list[tuple[int, Iterator[np.ndarray]]]:
        """Return all blocks, of a huge layer in parts, each of which has a generator that jumps to its start."""
        rows = self.shape[0]
        if self._size < _FAR:
            return [(0, self.blocks())]
        step = -(-rows // _PARTS)
        return [(start, self._between(start, min(start + step, rows))) for start in range(0, rows, step)]

    def _between(self, first: int, stop: int) -> Iterator[np.ndarray]:
        """Yield consecutive rows; what the last 16 draws have of the next row moves to the front of the buffer."""
        dim = self.shape[1]
        if self._size < BLOCK:
            yield self._drawing.small(self.name).reshape(self.shape)[first:stop]
            return
        step = max(_BUFFER // dim, 1)
        buffer = np.empty(step * dim + 2 * BLOCK, np.float32)
        low = done = first * dim // BLOCK * BLOCK  # of the elements, where the buffer begins, and what is drawn
        drawing = Drawing(self._drawing.seeded)
        for row in range(first, stop, step):
            count = min(step, stop - row)
            start, end = row * dim, (row + count) * dim
            low, moved = start // BLOCK * BLOCK, start // BLOCK * BLOCK - low
            buffer[: done - low] = buffer[moved : moved + done - low].copy()
            high = min(-(-end // BLOCK) * BLOCK, self._whole)
            if high > done:
                drawing.fill(self.name, done, buffer[done - low : high - low])
                done = high
            found = buffer[start - low : end - low].reshape(count, dim)
            self._overwrite_tail(drawing, np.arange(row, row + count), found)
            yield found

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return mean, standard deviation, minimum and maximum, from one pass through small buffers.

        A huge layer is cut into parts, each with a generator of its own that jumps to its start; they run on all
        cores. The pieces are the same and are added in the same order, so that the numbers are those of one part.
        """
        if self._size < _FAR:
            meter = Meter()
            side_by_side([meter.reading(self.flat())], self._size, watch)
            return meter.summary()
        step = -(-self._whole // _PARTS // _BUFFER) * _BUFFER
        starts = range(0, self._whole, step)
        meters: list[list[Meter]] = [[] for _ in starts]
        parts = [
            self._measured(start, min(start + step, self._whole), part)
            for start, part in zip(starts, meters, strict=True)
        ]
        side_by_side(parts, self._whole, watch)
        if self._size > self._whole:
            meters.append([_measure(self._drawing.tail(self.name))])
        return sum((meter for part in meters for meter in part), Meter()).summary()

    def _measured(self, start: int, stop: int, meters: list[Meter]) -> Iterator[int]:
        """Sum up elements `start` to `stop` piece by piece, but for those that the tail overwrites."""
        last = self._size - BLOCK if self._size > self._whole else self._size
        pieces = Drawing(self._drawing.seeded).buffered(self.name, start, stop)
        for at, piece in zip(range(start, stop, _BUFFER), pieces, strict=True):
            meters.append(_measure(piece[: max(last - at, 0)]))
            yield len(piece)


class HeldLayer(Layer):
    """A drawn layer that holds the rows that will be asked for, and no more."""

    dtype = "float32"

    def __init__(self, drawn: DrawnLayer, wanted: np.ndarray) -> None:
        self.shape = drawn.shape
        self._drawn = drawn
        self._ids, _ = distinct(wanted)  # (n,) sorted
        self._rows = drawn.rows(self._ids)  # (n, D)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32; others than those that are held are drawn again."""
        places = np.searchsorted(self._ids, ids)
        if len(self._ids) and (self._ids.take(places, mode="clip") == ids).all():
            found: np.ndarray = self._rows[places]
            return found
        return self._drawn.rows(ids)

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return what the whole matrix is like."""
        return self._drawn.summary(watch)


def _measure(piece: np.ndarray) -> Meter:
    meter = Meter()
    meter.add(piece)
    return meter


def _runs(sorted_ids: np.ndarray, gap: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last) places of IDs so close together that they are drawn in one go, `most` IDs at a time."""
    if len(sorted_ids):
        breaks = np.flatnonzero(np.diff(sorted_ids) > gap + 1).tolist()
        for first, last in zip([0, *(place + 1 for place in breaks)], [*breaks, len(sorted_ids) - 1], strict=True):
            for start in range(first, last + 1, most):
                yield start, min(start + most - 1, last)

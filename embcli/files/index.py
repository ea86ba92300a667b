"""The index of word vectors: where each row begins, and the words; made in one pass over the file, then kept.

A kept index belongs to one path, size, and times of change; nobody sets back that of the inode. It may be another
user's work: it must fit the size of the file, and whoever reads a row compares the word. Small files have none: they
are read again as fast.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from io import FileIO
from typing import BinaryIO

import numpy as np

from embcli.binary import Binary
from embcli.encodings.own import Vocabulary
from embcli.files.safetensors import header, read_header
from embcli.notes import Notes
from embcli.store import Damaged, Store
from embcli.strict_json import Malformed

_FORMAT = "embcli-vectors-2"
_SMALL = 1 << 22  # bytes of a file below which an index is not worth keeping
_LARGE = 1 << 29  # bytes of a file that takes seconds to read
_WINDOW = 1 << 22  # bytes that are read at a time; no line is longer
_NEWLINE, _SPACE = b"\n "


@dataclass(frozen=True)
class Index:
    """Where each row begins, and its word; a separator and the numbers follow the word."""

    dim: int
    starts: np.ndarray  # (V,) int64, offsets in the file
    lengths: np.ndarray  # (V,) uint32, bytes of the words
    words: bytes  # all words, concatenated
    end: int  # of the last row, an offset in the file

    def vocabulary(self) -> Vocabulary:
        """Return the words by row."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        return Vocabulary(self.words, ends - self.lengths, ends)

    def fits(self, size: int) -> bool:
        """Return whether a file of this size has room for all rows in this order, each number at least 2 bytes."""
        if not 0 < self.dim < self.end <= size or not 0 < len(self.starts) == len(self.lengths):
            return False
        edges = np.append(self.starts, self.end)
        rooms = np.diff(edges) - self.lengths
        return bool(edges.min() >= 0 and rooms.min() >= 2 * self.dim and self.lengths.sum() == len(self.words))


def stored_index(binary: Binary, scan: Callable[[], Index], sizes: tuple[int, int] | None, notes: Notes) -> Index:
    """Return the index of a file: from the store, or from `scan`, which reads the whole file; then it is kept.

    `sizes` are V and D where the file states them.
    """
    store = Store.from_environment(notes) if binary.size >= _SMALL else None
    if store is None:
        return scan()
    status = os.fstat(binary.file.fileno())
    key = f"{_FORMAT} {binary.path.resolve()!a} {binary.size} {status.st_mtime_ns} {status.st_ctime_ns}"
    name = _name(key)
    index = store.read(name, partial(_load, key=key))
    if index is not None and index.fits(binary.size) and sizes in (None, (len(index.starts), index.dim)):
        return index
    if binary.size >= _LARGE:
        notes.add(f"{binary.path.name} is read once to index its words; this takes a while")
    index = scan()
    parts = index.starts.astype("<i8").tobytes(), index.lengths.astype("<u4").tobytes(), index.words
    store.write(name, sum(map(len, parts)), partial(_write, key=key, index=index, parts=parts))
    return index


def _name(key: str) -> str:
    return f"vectors-{zlib.crc32(key.encode()):08x}.safetensors"


def _load(file: FileIO, key: str | None = None) -> Index:
    """Read an index; raises Damaged for the index of another file than the one with this key."""
    try:
        described = read_header(file)
        parts = [file.read(described.tensors[part].end - described.tensors[part].start) for part in _shapes(0, 0)]
        dim, end, own = described.metadata["dim"], described.metadata["end"], described.metadata["key"]
        if described.metadata["crc32"] != _checksum(dim, end, parts):
            raise Damaged("its bytes are not what was written")
        index = Index(int(dim), np.frombuffer(parts[0], "<i8"), np.frombuffer(parts[1], "<u4"), parts[2], int(end))
    except (Malformed, KeyError, ValueError) as error:
        raise Damaged(str(error)) from None
    if own != (key or own):
        raise Damaged("it is the index of another file")
    return index


def _write(file: BinaryIO, key: str, index: Index, parts: tuple[bytes, ...]) -> None:
    dim, end = str(index.dim), str(index.end)
    metadata = {"key": key, "dim": dim, "end": end, "crc32": _checksum(dim, end, parts)}
    file.writelines((header(_shapes(len(index.starts), len(index.words)), metadata), *parts))


def _shapes(rows: int, letters: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {"starts": ("int64", (rows,)), "lengths": ("uint32", (rows,)), "words": ("uint8", (letters,))}


def _checksum(dim: str, end: str, parts: Iterable[bytes]) -> str:
    return f"{zlib.crc32(b''.join([f'{dim} {end}'.encode(), *parts])):08x}"


def of_text(binary: Binary, start: int, sizes: tuple[int, int] | None) -> Index:
    """Index lines of a word and its numbers from offset `start` on.

    Without `sizes`, V and D of a first line, D is that of the first word. Raises InputError for a line with another
    number of numbers, and for another number of lines.
    """
    line, dim = (1, None) if sizes is None else (2, sizes[1])
    tail = binary.read(max(binary.size - _WINDOW, start), _WINDOW)
    end = binary.size - len(tail) + len(tail.rstrip())
    starts, lengths, words = [], [], []
    place = start
    while place < end:
        data = binary.read(place, min(_WINDOW, end - place))
        if place + len(data) == end:
            data += b"\n"
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            raise binary.refused(f"line {line:,} has more than {_WINDOW:,} bytes; it is not a word vector")
        if dim is None:
            dim = len(data[: data.index(b"\n")].split()) - 1
        begins, widths = _lines(binary, data, line, dim)
        starts.append(begins + place)
        lengths.append(widths)
        words += [data[first : first + size] for first, size in zip(begins.tolist(), widths.tolist(), strict=True)]
        place, line = place + len(data), line + len(begins)
    if not dim or not starts:
        raise binary.refused("it has no line of a word and its numbers")
    if sizes is not None and sum(map(len, starts)) != sizes[0]:
        raise binary.refused(f"its first line promises {sizes[0]:,} rows, and it has {sum(map(len, starts)):,}")
    return Index(dim, np.concatenate(starts), np.concatenate(lengths).astype(np.uint32), b"".join(words), end)


def _lines(binary: Binary, data: bytes, line: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each line begins and how long its word is, both (lines,) int64."""
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    spaces = np.append(np.flatnonzero(letters == _SPACE), len(data))
    first = np.searchsorted(spaces, starts)
    count = np.searchsorted(spaces, ends) - first - (letters[ends - 1] == _SPACE)
    lengths: np.ndarray = spaces[first] - starts
    for place in np.flatnonzero((count != dim) | (lengths == 0)).tolist():
        lengths[place] = _length_of_word(binary, data[starts[place] : ends[place]], line + place, dim)
    return starts, lengths


def _length_of_word(binary: Binary, text: bytes, line: int, dim: int) -> int:
    """Return the length of the word in a line that has tabs, more spaces than D, or a word with spaces."""
    fields = text.split()
    numbers = len(fields) - 1
    if numbers > dim and not _is_number(fields[-dim - 1]):
        return len(text.rsplit(None, dim)[0])  # the word has spaces
    if numbers != dim:
        raise binary.refused(f"line {line:,} has {max(numbers, 0):,} numbers after its word, not {dim:,}")
    return text.index(fields[0]) + len(fields[0])


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def of_binary(binary: Binary, start: int, sizes: tuple[int, int]) -> Index:
    """Index V rows of a word, a space and D float32 numbers; a newline may follow each row.

    Raises InputError if the file is shorter or longer than that.
    """
    count, dim = sizes
    if dim < 1 or not 0 < count <= (binary.size - start) // (4 * dim + 1):
        raise binary.refused(
            f"its first line promises {count:,} rows of {dim:,} numbers; {binary.size - start:,} bytes follow"
        )
    starts, lengths, words = np.empty(count, np.int64), np.empty(count, np.uint32), []
    window, base, place = b"", start, start
    for row in range(count):
        space = window.find(b" ", place - base) if place - base < len(window) else -1
        if space < 0:
            window, base = binary.read(place, _WINDOW), place
            space = window.find(b" ")
        word = window[place - base : space].lstrip(b"\n")
        next_place = base + space + 1 + 4 * dim
        if space < 0 or next_place > binary.size:
            raise binary.refused(f"it ends within row {row:,} of {count:,}")
        starts[row], lengths[row] = base + space - len(word), len(word)
        words.append(word)
        place = next_place
    if binary.read(place, 2) not in (b"", b"\n"):
        raise binary.refused(f"{binary.size - place:,} bytes follow the {count:,} rows that its first line promises")
    return Index(dim, starts, lengths, b"".join(words), place)

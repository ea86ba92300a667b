"""Where the rows of word vectors begin in their file, and their words: gone through once, and kept in the cache folder.

An index is kept under the path, size and time of the file that it was made from, and only where going through that
file takes longer than reading the index.
"""

from __future__ import annotations

import os
import secrets
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embcli.binary import Binary
from embcli.encodings.own import Vocabulary
from embcli.errors import InputError
from embcli.files.safetensors import Malformed, header, read_header
from embcli.safe import note
from embcli.weights.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FORMAT = "embcli-vectors-1"
_SMALL = 1 << 22  # bytes of a file that is sooner gone through than its index found
_LARGE = 1 << 29  # bytes that take seconds to go through
_WINDOW = 1 << 22  # bytes that are read at a time; no line is longer
_NEWLINE, _SPACE = b"\n "


@dataclass(frozen=True)
class Index:
    """Where each row begins, and the word that stands there; behind it and a separator follow its numbers."""

    dim: int
    starts: np.ndarray  # (V,) int64, bytes from the beginning of the file
    lengths: np.ndarray  # (V,) uint32, bytes of the words
    words: bytes  # one behind the other
    end: int  # of the last row

    def vocabulary(self) -> Vocabulary:
        """Return the words by row."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        return Vocabulary(self.words, ends - self.lengths, ends)


def kept(binary: Binary, scan: Callable[[], Index]) -> Index:
    """Return the index of a file, from the cache folder or by going through the file; keep it if that can be done."""
    cache = Cache.from_environment() if binary.size >= _SMALL else None
    if cache is None:
        return scan()
    key = f"{_FORMAT} {binary.path.resolve()!a} {binary.size} {os.fstat(binary.file.fileno()).st_mtime_ns}"
    path = cache.folder / f"vectors-{zlib.crc32(key.encode()):08x}.safetensors"
    with suppress(InputError, Malformed, KeyError, ValueError):
        return _read(path, key)
    if binary.size >= _LARGE:
        note(f"{binary.path.name} is gone through once, to find its words; that takes a while")
    index = scan()
    if index.starts.nbytes + index.lengths.nbytes + len(index.words) <= cache.limit:
        with suppress(OSError):  # where nothing can be kept, the file is gone through each time
            _write(path, key, index)
    return index


def _read(path: Path, key: str) -> Index:
    binary = Binary(path)
    found = read_header(binary.file)
    starts, lengths, words = (
        binary.read(found.tensors[name].start, found.tensors[name].end - found.tensors[name].start)
        for name in ("starts", "lengths", "words")
    )
    dim, end = found.metadata["dim"], found.metadata["end"]
    if found.metadata["key"] != key or found.metadata["crc32"] != _checksum(dim, end, starts, lengths, words):
        raise ValueError("it is the index of another file, or damaged")
    return Index(int(dim), np.frombuffer(starts, "<i8"), np.frombuffer(lengths, "<u4"), words, int(end))


def _write(path: Path, key: str, index: Index) -> None:
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        "starts": ("int64", index.starts.shape),
        "lengths": ("uint32", index.lengths.shape),
        "words": ("uint8", (len(index.words),)),
    }
    parts = index.starts.astype("<i8").tobytes(), index.lengths.astype("<u4").tobytes(), index.words
    dim, end = str(index.dim), str(index.end)
    metadata = {"key": key, "dim": dim, "end": end, "crc32": _checksum(dim, end, *parts)}
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with open(half, "wb") as file:
            file.writelines((header(tensors, metadata), *parts))
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _checksum(dim: str, end: str, *parts: bytes) -> str:
    checksum = zlib.crc32(f"{dim} {end}".encode())
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}"


def of_text(binary: Binary, start: int, line: int, dim: int | None) -> Index:
    """Go through lines of a word and its numbers; D is that of the first line unless it is given.

    `start` and `line` tell where the first of them begins. Raises InputError for a line that has fewer or more numbers.
    """
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
            raise binary.refused(f"line {line:,} goes on for more than {_WINDOW:,} bytes; it is no word vector")
        if dim is None:
            dim = len(data[: data.index(b"\n")].split()) - 1
        begun, long = _lines(binary, data, line, dim)
        starts.append(begun + place)
        lengths.append(long)
        words += [data[first : first + length] for first, length in zip(begun.tolist(), long.tolist(), strict=True)]
        place, line = place + len(data), line + len(begun)
    if not dim or not starts:
        raise binary.refused("it has no line of a word and its numbers")
    return Index(dim, np.concatenate(starts), np.concatenate(lengths).astype(np.uint32), b"".join(words), end)


def _lines(binary: Binary, data: bytes, line: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where lines begin, and how long the words are that begin them; both (lines,) int64."""
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    spaces = np.append(np.flatnonzero(letters == _SPACE), len(data))
    first = np.searchsorted(spaces, starts)
    count = np.searchsorted(spaces, ends) - first - (letters[ends - 1] == _SPACE)
    lengths: np.ndarray = spaces[first] - starts
    for odd in np.flatnonzero((count != dim) | (lengths == 0)).tolist():
        lengths[odd] = _odd(binary, data[starts[odd] : ends[odd]], line + odd, dim)
    return starts, lengths


def _odd(binary: Binary, text: bytes, line: int, dim: int) -> int:
    """Return how long the word is in a line that is not just a word, D spaces and D numbers."""
    fields = text.split()
    numbers = len(fields) - 1
    if numbers > dim and not _is_number(fields[-dim - 1]):
        return len(text.rsplit(None, dim)[0])  # the word has spaces
    if numbers != dim:
        raise binary.refused(f"line {line:,} has {max(numbers, 0):,} numbers behind its word, and not {dim:,}")
    return text.index(fields[0]) + len(fields[0])


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def of_binary(binary: Binary, start: int, count: int, dim: int) -> Index:
    """Go through V rows of a word, a space and D float32 numbers, each perhaps with a line's end behind it.

    Raises InputError where the file is shorter or longer than that.
    """
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

"""Word vectors: text with one word and its numbers per line (GloVe, word2vec, fastText), and word2vec's binary form."""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

import numpy as np

from embcli.binary import Binary
from embcli.encodings.encoding import OwnWords
from embcli.errors import Notes
from embcli.files.numbers import NUMBER_FORMATS
from embcli.files.tensors import StoredLayer, Tensor, Tensors
from embcli.layer import Layer
from embcli.text import is_text

LONGEST_LINE = 1 << 22  # bytes
_SAMPLE = 1 << 12  # bytes that tell text from binary numbers
LARGE = 1 << 29  # bytes of a file that takes seconds to read
_SIZES = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")
_WORD = re.compile(rb"(?mi)^.*?[^ \t](?=[ \t]+[-+.0-9einfa \t]+\r?$)")  # before numbers, to the end of the line


class Index(NamedTuple):
    """Where each row begins, and its word; a separator and the numbers follow the word."""

    dim: int
    starts: np.ndarray  # (V,) int64, offsets in the file
    lengths: np.ndarray  # (V,) int64, bytes of the words
    words: bytes  # all words, concatenated
    end: int  # of the last row, an offset in the file


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return word vectors as one matrix, whose rows stand for the file's own words."""
    match = _SIZES.match(binary.read(0, 64))
    start, sizes = (match.end(), (int(match[1]), int(match[2]))) if match else (0, None)
    if binary.size >= LARGE:
        notes.add(f"{binary.path.name} is read whole to find its words; this takes a while")
    is_binary = sizes is not None and not _looks_like_text(binary.read(start, _SAMPLE))
    index = _of_binary(binary, start, sizes) if sizes and is_binary else _of_text(binary, start, sizes)
    numbers, stops = index.starts + index.lengths + 1, np.append(index.starts[1:], index.end)  # of each row

    def read_binary(ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), index.dim), "<f4")
        binary.gather(rows, numbers[ids].tolist(), [4 * index.dim] * len(ids))
        return rows

    def read_text(ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), index.dim), np.float32)
        bounds = np.stack([numbers[ids], stops[ids]], 1).tolist()
        with np.errstate(over="ignore"):
            for place, (start, stop) in enumerate(bounds):
                line = f"line {ids[place] + (1 if sizes is None else 2):,}"
                fields = binary.read(start, stop - start).split()
                if len(fields) != index.dim:
                    raise binary.refused(f"{line} has {len(fields):,} numbers, and others have {index.dim:,}")
                try:
                    rows[place] = [float(field) for field in fields]
                except ValueError as error:
                    reason = str(error).removeprefix("could not convert string to float: ").removeprefix("b")
                    raise binary.refused(f"{line} has {reason} in place of a number") from None
        return rows

    def matrix(tensor: Tensor) -> Layer:
        read = read_binary if is_binary else read_text
        return StoredLayer((len(numbers), index.dim), NUMBER_FORMATS["float32"], read, tensor.dtype)

    name, first, dtype = binary.path.stem, int(index.starts[0]), "float32" if is_binary else "decimal"
    shape = len(numbers), index.dim
    tensor = Tensor(name, shape, dtype, binary.size - first, binary, first, matrix=matrix)
    return Tensors(
        binary, "word vectors", {name: tensor}, own_words=lambda: OwnWords(binary.path, index.words, index.lengths)
    )


def _looks_like_text(sample: bytes) -> bool:
    """Return whether bytes are lines of text; binary numbers nearly always have a byte that text never has."""
    sample, words = _WORD.subn(b"", sample)
    if words:
        sample = sample[: sample.rfind(b"\n") + 1]  # the last line may be cut within its word
    return is_text(sample)


def _of_text(binary: Binary, start: int, sizes: tuple[int, int] | None) -> Index:
    """Index lines of a word and its numbers from offset `start` on.

    Without `sizes`, V and D of a first line, D is that of the first word.
    """
    dim, first, place, end = sizes[1] if sizes else 0, 2 if sizes else 1, start, start
    starts, lengths, words = array("q"), array("q"), []
    is_behind = False  # all rows: lines without anything may follow
    with binary.path.open("rb") as file:
        file.seek(start)
        while line := file.readline(LONGEST_LINE):
            place, number = place + len(line), f"line {first + len(starts):,}"
            if not line.endswith(b"\n") and place < binary.size:
                raise binary.refused(f"{number} has more than {LONGEST_LINE:,} bytes; it is not a word vector")
            if line.isspace():
                is_behind = True
                continue
            if is_behind:
                raise binary.refused(f"{number} has 0 numbers after its word, not {dim:,}")
            dim = dim or len(line.split()) - 1
            length = line.find(b" ")
            if length < 1 or line.count(b" ") - line.endswith(b" \n") != dim:
                length = _length_of_word(binary, line, number, dim)
            starts.append(place - len(line))
            lengths.append(length)
            words.append(line[:length])
            end = place
    if not dim or not starts:
        raise binary.refused("it has no line of a word and its numbers")
    if sizes is not None and len(starts) != sizes[0]:
        raise binary.refused(f"its first line promises {sizes[0]:,} rows, and it has {len(starts):,}")
    return Index(dim, np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64), b"".join(words), end)


def _length_of_word(binary: Binary, line: bytes, number: str, dim: int) -> int:
    """Return the length of the word in a line that has tabs, more spaces than D, or a word with spaces."""
    fields = line.split()
    numbers = len(fields) - 1
    if numbers > dim:
        try:
            float(fields[-dim - 1])
        except ValueError:
            return len(line.rsplit(None, dim)[0])  # the word has spaces
    if numbers != dim:
        raise binary.refused(f"{number} has {max(numbers, 0):,} numbers after its word, not {dim:,}")
    return line.index(fields[0]) + len(fields[0])


def _of_binary(binary: Binary, start: int, sizes: tuple[int, int]) -> Index:
    """Index V rows of a word, a space and D float32 numbers; a newline may follow each row."""
    count, dim = sizes
    if dim < 1 or not 0 < count <= (binary.size - start) // (4 * dim + 1):
        raise binary.refused(
            f"its first line promises {count:,} rows of {dim:,} numbers; {binary.size - start:,} bytes follow"
        )
    starts, lengths, words = np.empty(count, np.int64), np.empty(count, np.int64), []
    window, base, place = b"", start, start
    for row in range(count):
        space = window.find(b" ", place - base)
        if space < 0:
            window, base = binary.read(place, LONGEST_LINE), place
            space = window.find(b" ")
        word = window[place - base : space].lstrip(b"\n")
        starts[row], lengths[row] = base + space - len(word), len(word)
        place = base + space + 1 + 4 * dim
        if space < 0 or place > binary.size:
            raise binary.refused(f"it ends within row {row:,} of {count:,}")
        words.append(word)
    if binary.read(place, 2) not in (b"", b"\n"):
        raise binary.refused(f"{binary.size - place:,} bytes follow the {count:,} rows that its first line promises")
    return Index(dim, starts, lengths, b"".join(words), place)

"""Vocabularies that are made from a text: its words, or the byte pairs that BPE learns from it.

`words:PATH` and `words1:PATH` split as SimpleTokenizerV2 and SimpleTokenizerV1 of "Build a Large
Language Model (From Scratch)", sections 2.3 and 2.4. `bpe:PATH:N` learns as the RegexTokenizer of
minbpe does with GPT-2's pattern. PATH is a file of UTF-8, or `story`, which embcli carries.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np

from embcli.atomic import opened_files
from embcli.binary import file_error, unreadable
from embcli.encodings.encoding import MAX_FILE_SIZE, Encoding, OwnWords
from embcli.encodings.merging import NEVER, Pair, Priority, merge
from embcli.encodings.tiktoken import DEFINITIONS, TiktokenEncoding
from embcli.errors import InputError, Notes
from embcli.names import MadeFromText
from embcli.store import kept
from embcli.wording import DATA, counted, in_bytes, in_data

_END_OF_TEXT = "<|endoftext|>"
_UNKNOWN = "<|unk|>"
_BYTES = 256  # the tokens that BPE begins with


def made_from_text(name: str, notes: Notes) -> Encoding:
    """Return the encoding with a name such as `words:PATH`; remarks go to the notes.

    Raises InputError for a text that cannot be read or is empty.
    """
    kind, _, place = name.partition(":")
    if "," in place:
        raise InputError(f"{place!r} has a comma, which separates encodings; rename the file")
    match cast("MadeFromText", kind):
        case "words" | "words1":
            return WordsEncoding(name, _read(place), has_unknown=kind == "words")
        case "bpe":
            return _byte_pairs(name, place, notes)


def _byte_pairs(name: str, place: str, notes: Notes) -> Encoding:
    """Return the encoding `bpe:PATH:N`; raises InputError for N that is not a number from 256."""
    path, _, size = place.rpartition(":")
    if not path or not re.fullmatch("[0-9]{3,9}", size) or int(size) < _BYTES:
        raise InputError(
            f"{name!r} is not like bpe:story.txt:1000: a file, a colon, "
            "and a number of tokens, at least 256, at most 999999999"
        )
    count = int(size) - _BYTES
    tokens = _learnt(_read(path), count, notes)
    if len(tokens) < count:
        notes.add(f"{path} has pairs for {counted(len(tokens), 'merge')}, not for {size} tokens")
    return LearnedEncoding(name, tokens)


def _read(path: str) -> str:
    """Return the text of a file, with line ends as Python's open() reads them."""
    file = Path(path)
    if path == "story":
        file = DATA / "story.txt"
    try:
        opened_files.add(file.absolute())
        with file.open("rb") as source:
            data = source.read(MAX_FILE_SIZE + 1)
        text = re.sub("\r\n?", "\n", data.decode())
    except UnicodeDecodeError as error:
        raise file_error(path, f"it is not UTF-8 at byte {error.start:,}") from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if len(data) > MAX_FILE_SIZE:
        raise file_error(path, f"it has more than {in_bytes(MAX_FILE_SIZE)}")
    if not text.strip():
        raise file_error(path, "it has no words to make a vocabulary of")
    return text


class WordsEncoding(OwnWords):
    """The sorted words and punctuation marks of a text, as the chapter makes them.

    White space is no token, and is lost. With `has_unknown` the last two tokens are
    `<|endoftext|>` and `<|unk|>`, which stands for every other word; else these are errors.
    """

    word = re.compile(r"--|[,.:;?_!\"()']|(?:(?!--)[^\s,.:;?_!\"()'])+")

    def __init__(self, name: str, text: str, has_unknown: bool) -> None:
        words = sorted(set(self.word.findall(text)))
        self._space_before_mark = re.compile(rb"\s+([,.?!\"()'])")
        if has_unknown:
            self.unknown_id = len(words) + 1
            self.special_ids = {"eos": len(words), "unk": self.unknown_id}
            words += [_END_OF_TEXT, _UNKNOWN]
            self._space_before_mark = re.compile(rb"\s+([,.:;?!\"()'])")
        else:
            self.cure = f"words:{name.partition(':')[2]} reads other words as {_UNKNOWN}"
        super().__init__(name, [word.encode() for word in words])

    def decode(self, ids: np.ndarray) -> bytes:
        """Return the tokens with a space between them, but none before a punctuation mark."""
        return self._space_before_mark.sub(rb"\1", super().decode(ids))


class LearnedEncoding(TiktokenEncoding):
    """The bytes, what BPE has learnt after them, and `<|endoftext|>`."""

    def __init__(self, name: str, tokens: list[bytes]) -> None:
        self.name = in_data(name)
        all_tokens = [b"%c" % byte for byte in range(_BYTES)] + tokens
        size = len(all_tokens)
        self.ids = {token: token_id for token_id, token in enumerate(all_tokens)}
        self.definition = DEFINITIONS["gpt2"]._replace(
            special_tokens={_END_OF_TEXT: size}, vocabulary_size=size + 1
        )


def _learnt(text: str, count: int, notes: Notes) -> list[bytes]:
    """Return up to `count` tokens that BPE learns from a text; they are kept for the next time."""

    def learn() -> bytes:
        tokens = notes.watch(Pieces(text).learn(count), count, lambda token: 1)
        return b"".join(map(b2a_base64, tokens))

    def read(lines: bytes) -> list[bytes]:
        return [a2b_base64(line) for line in lines.split()]

    digest = sha256(f"{count} {text}".encode()).hexdigest()
    return kept(f"tokenizer-{digest[:32]}.npy", notes, read, learn)


class Pieces:
    """The pieces of a text, as BPE has merged them so far, and how often each pair is in them.

    A pair is two neighbouring tokens of a piece. The merges of a piece depend on nothing around it,
    so a piece is kept once, in the order in which the text has them, with how often it occurs.
    """

    def __init__(self, text: str) -> None:
        import regex

        occurrences = Counter(regex.findall(DEFINITIONS["gpt2"].pattern, text))
        self._occurrences = [*occurrences.values()]
        self._parts = [[b"%c" % byte for byte in piece.encode()] for piece in occurrences]
        self._counts: Counter[Pair] = Counter()
        self._places: defaultdict[Pair, set[int]] = defaultdict(set)
        for place in range(len(self._parts)):
            self._count(place, 1)

    def learn(self, count: int) -> Iterator[bytes]:
        """Yield up to `count` tokens, each of the most frequent pair, and merge this pair.

        Of pairs that are equally frequent, the one that the text has first is merged.
        """
        for _ in range(count):
            highest = max(self._counts.values(), default=0)
            if highest == 0:
                return
            pairs = [pair for pair, amount in self._counts.items() if amount == highest]
            pair = min(pairs, key=self._first_place)
            for place in sorted(self._places[pair]):
                self._count(place, -1)
                self._parts[place], _ = merge(self._parts[place], _only(pair))
                self._count(place, 1)
            del self._counts[pair]
            yield b"".join(pair)

    def _first_place(self, pair: Pair) -> tuple[int, int]:
        """Return the first piece that has a pair, and where the pair is in it."""
        place = min(self._places[pair])
        return place, [*pairwise(self._parts[place])].index(pair)

    def _count(self, place: int, times: int) -> None:
        """Count the pairs of a piece, or take them away if `times` is -1."""
        for pair in pairwise(self._parts[place]):
            self._counts[pair] += times * self._occurrences[place]
            if times > 0:
                self._places[pair].add(place)
            else:
                self._places[pair].discard(place)


def _only(pair: Pair) -> Priority:
    """Return the priority by which only this pair is merged."""
    return lambda left, right: 0 if (left, right) == pair else NEVER

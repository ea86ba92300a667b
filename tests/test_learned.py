"""Vocabularies made from a text: the words of the chapter, and the byte pairs that BPE learns."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import regex

from embcli import encodings
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.errors import InputError, Notes
from tests.cases import cases

STORY = encodings.get("words:story")
PARTS = [
    "-",
    "--",
    " ",
    "\n",
    "the",
    "lamp",
    "Zoe",
    ".",
    ":",
    "_",
    "'",
    "(",
    "\x1c",
    "é",
    "<|unk|>",
]
ALPHABETS = ["ab", "abc ", "aab b ", "hé 日本", "the light "]


def split(text):
    return [part for part in re.split(r"([,.:;?_!\"()']|--|\s)", text) if part.strip()]


def of_story(name):
    """The tokens, and what precedes no space, of the two classes of the chapter."""
    from embcli.encodings import learned

    words = sorted(set(split(learned._read("story"))))
    return (
        (words, r",.?!\"()'")
        if name == "words1"
        else (
            [*words, "<|endoftext|>", "<|unk|>"],
            r",.:;?!\"()'",
        )
    )


@cases
def test_words_are_those_of_the_chapter(name):
    encoding = encodings.get(f"{name}:story")
    tokens, marks = of_story(name)
    assert encoding.vocabulary_size == len(tokens)
    random = Random(0)
    for _ in range(300):
        text = "".join(random.choices(PARTS, k=random.randrange(12)))
        words = split(text)
        if name == "words1":
            words = [word for word in words if word in tokens]
            text = " ".join(words)
        expected = [tokens.index(word if word in tokens else "<|unk|>") for word in words]
        ids = encoding.encode(text)
        assert ids.tolist() == expected
        assert [text[start:end] for start, end in encoding.spans(text)] == words
        spelled = " ".join(tokens[token_id] for token_id in expected)
        assert encoding.decode(ids).decode() == re.sub(rf"\s+([{marks}])", r"\1", spelled)


def slowly_learnt(text, count):
    """Count all pairs anew for each merge, over all pieces of the text."""
    pieces = [[bytes([byte]) for byte in piece.encode()] for piece in pieces_of(text)]
    learnt = []
    for _ in range(count):
        counts = Counter(pair for piece in pieces for pair in pairwise(piece))
        if not counts:
            break
        pair = max(counts, key=counts.__getitem__)  # the first of the most frequent ones
        learnt.append(b"".join(pair))
        pieces = [merged(piece, pair) for piece in pieces]
    return learnt


def pieces_of(text):
    return regex.findall(DEFINITIONS["gpt2"].pattern, text)


def merged(piece, pair):
    parts = []
    for part in piece:
        if parts and (parts[-1], part) == pair:
            parts[-1] = b"".join(pair)
        else:
            parts.append(part)
    return parts


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_bpe_learns_as_slowly_counted(alphabet, tmp_path):
    random = Random(alphabet)
    path = tmp_path / "text.txt"
    text = "".join(random.choices(alphabet, k=900)) + "aaaaa abab"
    path.write_text(text, "utf-8")
    expected = slowly_learnt(text, 144)
    notes = Notes()
    for _ in range(2):  # learnt, and kept
        encoding = encodings.get(f"bpe:{path}:400", notes)
        size = encoding.vocabulary_size
        assert [encoding.token_bytes(token_id) for token_id in range(256, size - 1)] == expected
    assert encoding.encode("<|endoftext|>", special=True).tolist() == [size - 1]
    assert (list(notes) != []) == (len(expected) < 144)

    ranks = {token: rank for rank, token in enumerate(expected)}
    for _ in range(20):
        typed = "".join(random.choices(alphabet, k=60))
        parts = []
        for piece in pieces_of(typed):
            part = [bytes([byte]) for byte in piece.encode()]
            for token in ranks:  # Merged in the order in which they were learnt.
                for pair in [pair for pair in pairwise(part) if b"".join(pair) == token]:
                    part = merged(part, pair)
            parts += part
        assert list(map(encoding.token_bytes, encoding.encode(typed).tolist())) == parts
        steps = [step.token for piece in encoding.derivations(typed) for step in piece.steps]
        assert set(steps) <= set(expected)


@cases
def test_what_makes_no_vocabulary_is_refused(name, reason, tmp_path):
    (tmp_path / "EMPTY").write_text(" \n")
    (tmp_path / "LATIN").write_bytes(b"a\xe9")
    name = re.sub("[A-Z]+", lambda match: str(tmp_path / match[0]), name)
    with pytest.raises(InputError, match=re.escape(reason)):
        encodings.get(name).encode("Zoe")


def test_commands_take_a_text_as_encoding(in_process, process):
    shown = in_process("tokenize", "the lamp. Zoe", "--encoding", "words:story", "-f", "ids")
    assert shown.text.split() == ["118", "79", "4", "146"]
    piped = process("tokenize", "a b", "--encoding", "words:-", "-f", "ids", stdin=b"b a c\n")
    assert piped.text.split() == ["0", "1"]
    both = in_process("tokenize", "--encoding", "bpe:-:300", stdin=b"b a c\n")
    assert both.status == 2
    assert "no TEXT given" in both.err
    counted = in_process(
        "count", "--text", "the lamp", "--encoding", "gpt2,words:story,bpe:story:400"
    )
    assert re.search(r"\b2 +2 +3\b", counted.text)


def test_white_space_is_lost_and_said(in_process):
    assert (
        "other white space" in in_process("tokenize", "the  lamp", "--encoding", "words:story").text
    )
    assert STORY.decode(np.array([118, 79, 4])) == b"the lamp."

"""Whether texts come back from the tokens that a tokenizer gives them, and get those of words.

The tokenizer itself is asked, with the texts of data/panel.json: so it does not matter which of its
settings is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from string import ascii_letters
from unicodedata import combining, normalize

import numpy as np

from embcli.binary import quoted
from embcli.encodings import Encoding
from embcli.encodings.encoding import VocabularyEncoding
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError
from embcli.wording import counted, first_of, load_facts

PANEL: list[str] = load_facts("panel.json")
_UNKNOWN = "\U00013080"  # a hieroglyph, which hardly a vocabulary has
_MOST_TRIED = 1000  # tokens of a space and a word, of which one text is made
_LEAST_LOST = 20  # of them; smaller vocabularies can be examples


def changed_texts(encoding: Encoding) -> Iterator[str]:
    """Yield in words which texts do not come back, though the vocabulary has all characters.

    Tokens of bytes spell all of them. WordPiece can have a character only at the beginning of a
    word, so characters are doubled if any letter is found within one. A vocabulary in which hardly
    a token has capitals needs only small letters, and may lose case. If all come back, it is said
    that words lost their tokens.
    """
    is_split_here = isinstance(encoding, HuggingFaceEncoding | VocabularyEncoding)
    # A vocabulary of words may have letters, too, and spells nothing with them.
    if not is_split_here or not encoding.splits or encoding.rules.get("type") == "WordLevel":
        return

    @cache
    def restored(text: str) -> str:
        return encoding.restored(encoding.encode(text, special=True)).strip()

    letters = {*"".join(PANEL), *ascii_letters}
    try:
        unknown = {restored(_UNKNOWN), "\ufffd"} - {""}
        known = {
            part
            for part in (*letters, *(2 * letter for letter in letters))
            if restored(part) and not any(map(restored(part).count, unknown))
        }
    except InputError as error:
        yield str(error)
        return
    times = 1 if known.isdisjoint(2 * letter for letter in ascii_letters) else 2
    ids = range(0, encoding.vocabulary_size, 10)
    tokens = [encoding.token_bytes(token_id) or b"" for token_id in ids]
    is_cased = 10 * len([each for each in tokens if each != each.lower()]) > len(tokens)
    changed = []
    for text in PANEL:
        spelling = text if is_cased else text.lower()
        parts = {times * letter for letter in "".join(spelling.split())}
        is_spelled = encoding.is_byte_level or known.issuperset(parts)
        if is_spelled and _kept(restored(text), is_cased) != _kept(text, is_cased):
            changed.append(f"{quoted(text)} as {quoted(restored(text))}")
    if changed:
        yield f"{len(changed)} of {len(PANEL)} texts came back changed: {first_of(changed, 2)}"
    else:
        yield from _lost_words(encoding)


def _lost_words(encoding: Encoding) -> Iterator[str]:
    """Yield in words that most tokens of a space and a word are not used for a text of them.

    Other tokens can spell such a text, so it comes back unchanged. Tokenizers of real models use
    all of these tokens; one that lost its normalizer or its pre-tokenizer uses none.
    """
    words = {}
    for token_id in range(encoding.vocabulary_size):
        token = (encoding.token_bytes(token_id) or b"").decode(errors="ignore")
        if token[:1] == " " and token[1:].isalpha():
            words[token_id] = token
    tried = [*words][:: len(words) // _MOST_TRIED + 1]
    used = encoding.encode("a" + "".join(map(words.__getitem__, tried)))
    lost = np.setdiff1d(tried, used).tolist()
    if len(lost) >= max(_LEAST_LOST, len(tried) / 2):
        share = f"{len(lost):,} of {counted(len(tried), 'token')}"
        names = first_of([quoted(words[token_id]) for token_id in lost], 3)
        yield f"{share} with a space before a word are not used for a text that has them: {names}"


def _kept(text: str, is_cased: bool) -> tuple[str, bool]:
    """Return what a tokenizer must keep of a text: its characters, except accents, and blanks."""
    words = normalize("NFKD", text if is_cased else text.casefold()).split()
    letters = [letter for letter in "".join(words) if not combining(letter)]
    return "".join(letters), len(words) > 1

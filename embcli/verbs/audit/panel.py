"""Whether texts come back from the tokens that a tokenizer gives them, and get those of words.

The tokenizer itself is asked, with the texts of data/panel.json: so it does not matter which of its
settings is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from string import ascii_letters
from unicodedata import combining, normalize

from embcli.binary import quoted
from embcli.encodings import Encoding
from embcli.encodings.encoding import VocabularyEncoding
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError
from embcli.wording import first_of, load_facts

PANEL = load_facts("panel.json")
_UNKNOWN = "\U00013080"  # a hieroglyph, which hardly a vocabulary has
_MOST_TOKENS = 10_000  # of a vocabulary that are looked at
_LEAST_WORDS = 20  # tokens of a space and a word; smaller vocabularies can be examples


def changed_texts(encoding: Encoding) -> Iterator[str]:
    """Yield in words which texts do not come back, though the vocabulary has all characters.

    Tokens of bytes spell all of them. WordPiece can have a character only at the beginning of a
    word, so characters are doubled if any letter is found within one. A vocabulary in which hardly
    a token has capitals needs only small letters, and may lose case, and one with few accents may
    lose these. If all come back, it is said that words lost their tokens.
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
    size = encoding.vocabulary_size
    ids = range(0, size, size // _MOST_TOKENS + 1)
    tokens = [encoding.token_bytes(token_id) or b"" for token_id in ids]
    # Letters of their own can be capitals in any vocabulary.
    cased = [each for each in tokens if each != each.lower() and len(each.strip()) > 1]
    is_cased = len(cased) >= max(_LEAST_WORDS, len(tokens) / 100)
    characters = normalize("NFKD", b" ".join(tokens).decode("utf-8", "ignore"))
    accents = [each for each in characters if combining(each)]
    is_accented = encoding.is_byte_level or len(accents) >= _LEAST_WORDS
    changed = []
    for text in PANEL:
        spelling = text if is_cased else text.lower()
        parts = {times * letter for letter in "".join(spelling.split())}
        is_spelled = encoding.is_byte_level or known.issuperset(parts)
        kept = partial(_kept, is_cased=is_cased, is_accented=is_accented)
        if is_spelled and kept(restored(text)) != kept(text):
            changed.append(f"{quoted(text)} as {quoted(restored(text))}")
    if changed:
        yield f"{len(changed)} of {len(PANEL)} texts came back changed: {first_of(changed, 2)}"
    else:
        yield from _lost_words(encoding, tokens)


def _lost_words(encoding: Encoding, tokens: list[bytes]) -> Iterator[str]:
    """Yield in words that most tokens of a space and a word are not used for a text of them.

    Other tokens can spell such a text, so it comes back unchanged. Tokenizers of real models use
    all of these tokens; one that lost its normalizer or its pre-tokenizer uses none.
    """
    words = {token for token in tokens if token[:1] == b" " and token[1:].isalpha()}
    ids = encoding.encode("a" + b"".join(sorted(words)).decode())
    lost = sorted(words - {*map(encoding.token_bytes, ids.tolist())})
    if 2 * len(lost) > len(words) >= _LEAST_WORDS:
        yield (
            f"{len(lost):,} of {len(words):,} tokens of a space and a word are not used for a text "
            f"that has them, such as {lost[0].decode()!r}"
        )


def _kept(text: str, is_cased: bool, is_accented: bool) -> tuple[str, bool]:
    """Return what a tokenizer must keep of a text: its characters, and blanks between words."""
    words = normalize("NFKD", text if is_cased else text.casefold()).split()
    letters = [letter for letter in "".join(words) if is_accented or not combining(letter)]
    return "".join(letters), len(words) > 1

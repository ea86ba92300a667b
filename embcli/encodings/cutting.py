"""Where a long text can be cut for `tokenizers`, so that its parts become the tokens of the whole.

The package keeps about 150 bytes for each byte of a text, so a long text is encoded in parts. A cut
is safe under two conditions. The components of the tokenizer look at no more than a few characters
around it: `is_local` knows such components and refuses all others. And its own pre-tokenizer cuts
there: `parts` encodes the characters around each cut, whole and cut, and compares.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from embcli.encodings.encoding import load_facts

if TYPE_CHECKING:
    import tokenizers

PART_SIZE = 1 << 15  # characters of a part, or a few more
_WINDOW = 64  # characters on each side of a cut that are encoded to check it
_MOST_TRIED = 200  # places that are tried for a cut

# Each of these treats a character without regard to others, except those that combine with it, or
# cuts by the characters on both sides of a place.
_LOCAL = {
    "BertNormalizer",
    "BertPreTokenizer",
    "ByteLevel",
    "CharDelimiterSplit",
    "Digits",
    "Lowercase",
    "Metaspace",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "Punctuation",
    "StripAccents",
    "Whitespace",
    "WhitespaceSplit",
}

# A cut is between a letter and a blank that a letter follows, or between such a newline and letter.
_LETTER = r"[^\W\d_]"
_PLACE = re.compile(f"(?<={_LETTER})(?=[ \\n]{_LETTER})|(?<={_LETTER}\\n)(?={_LETTER})")

# An added token with a blank after another character could contain a cut.
_CROSSING = re.compile(r"[^\s▁][\s▁]|\n[^\s]")


def is_local(tokenizer: tokenizers.Tokenizer) -> bool:
    """Return whether a text can be encoded in parts."""
    pre_tokenizers = _components(tokenizer.pre_tokenizer)
    if not pre_tokenizers:
        return False
    components = [*_components(tokenizer.normalizer), *pre_tokenizers]
    added_tokens = tokenizer.get_added_tokens_decoder().values()
    return all(map(_is_local, components)) and not any(map(_may_cross, added_tokens))


def parts(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    """Return the parts of a text, which spell it; the last is long if no safe cut is found."""
    found = []
    start = 0
    while len(text) - start > PART_SIZE:
        place = _safe_cut(tokenizer, text, start + PART_SIZE)
        if place is None:
            break
        found.append(text[start:place])
        start = place
    return [*found, text[start:]]


def _safe_cut(tokenizer: tokenizers.Tokenizer, text: str, start: int) -> int | None:
    """Return the first safe place from a start on; None if there is none, or it is not found."""
    for match in islice(_PLACE.finditer(text, start), _MOST_TRIED):
        place = match.start()
        if _is_cut(tokenizer, text[place - _WINDOW : place], text[place : place + _WINDOW]):
            return place
    return None


def _is_cut(tokenizer: tokenizers.Tokenizer, left: str, right: str) -> bool:
    """Return whether a text becomes the tokens of its two parts, and no piece is in both."""

    def encode(text: str) -> tokenizers.Encoding:
        return tokenizer.encode(text, add_special_tokens=False)

    whole = encode(left + right)
    first = encode(left)
    second = encode(right)
    count = len(first.ids)
    if not 0 < count < len(whole.ids) or whole.word_ids[count - 1] == whole.word_ids[count]:
        return False
    moved = [(start + len(left), end + len(left)) for start, end in second.offsets]
    has_ids = whole.ids == first.ids + second.ids
    return has_ids and whole.offsets == first.offsets + moved


def _components(component: Any) -> list[dict[str, Any]]:
    """Return what a normalizer or a pre-tokenizer consists of, as tokenizer.json describes it."""
    if component is None:
        return []
    documents = [json.loads(component.__getstate__())]
    found = []
    for document in documents:  # Those of a sequence are added while it is read.
        if document["type"] != "Sequence":
            found.append(document)
        for key in ("normalizers", "pretokenizers"):
            documents += document.get(key, [])
    return found


def _is_local(component: dict[str, Any]) -> bool:
    """Return whether a part of a tokenizer looks at no more than a few characters around a cut."""
    pattern = component.get("pattern", {})
    text = pattern.get("String", "")
    if component["type"] == "Replace":
        return len(text) == 1 and (not text.isspace() or component["content"] == "▁")
    if component["type"] == "Split":
        return len(text) == 1 or pattern.get("Regex") in _local_patterns()
    return component["type"] in _LOCAL


@cache
def _local_patterns() -> frozenset[str]:
    """Return the patterns none of whose matches has a blank between letters, or ends beside one.

    Whether a match ends at such a blank depends on nothing that follows it.
    """
    return frozenset(load_facts("local_patterns.json"))


def _may_cross(added: tokenizers.AddedToken) -> bool:
    """Return whether an added token could have characters, or strip blanks, on both sides."""
    content = added.content
    strips_left = added.lstrip and content[:1].isalnum()
    strips_right = added.rstrip and content[-1:].isalnum()
    return strips_left or strips_right or _CROSSING.search(content) is not None

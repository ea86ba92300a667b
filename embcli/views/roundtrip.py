"""The page of `tokenize --roundtrip`: whether each text comes back from its tokens, and where it does not."""

from embcli.oldpage import Page, Word
from embcli.tokens import shown
from embcli.verbs.roundtrip import Roundtrip
from embcli.words import counted

_MOST_TEXTS = 10


def view(result: Roundtrip, page: Page) -> None:
    """Put a verdict on the page, and the first difference of the first texts that come back otherwise."""
    encoding = result.tokens.encoding
    sizes = f"{counted(sum(map(len, result.texts)), 'character')}, {counted(len(result.tokens), 'token')}"
    page.line(f"{sizes} ({encoding.name if encoding else ''}), decoded again:")
    different = [(number, place) for number, place in enumerate(result.places) if place is not None]
    if not different:
        page.line(Word("Equal", "good"))
        return
    for number, place in different[:_MOST_TEXTS]:
        text, decoded = map(shown, result.parts(number))
        where = f"line {number + 1:,}, " if len(result.texts) > 1 else ""
        page.line(Word("Different", "bad"), f" from {where}character {place:,} on")
        page.line(f"text     {text or '(its end)'}")
        page.line(f"decoded  {decoded or '(its end)'}")
    if len(different) > _MOST_TEXTS:
        page.line(f"{len(different) - _MOST_TEXTS:,} more texts differ.")

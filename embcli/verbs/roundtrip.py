"""Whether a text comes back from its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from embcli.records import Records, listed, run_of
from embcli.result import Result
from embcli.tokens import Tokens, token_text
from embcli.words import counted

_AROUND = 20  # characters of both texts that are shown before and after a difference


@dataclass(frozen=True, eq=False)
class Roundtrip(Result, verb="roundtrip", content="list"):
    """Texts, and what their tokens decode to."""

    tokens: Tokens
    texts: tuple[str, ...]
    decoded: tuple[bytes, ...]  # of each text

    @property
    def places(self) -> list[int | None]:
        """The first character of each text from which its decoded bytes differ; None if they are equal."""
        return [_difference(text, data) for text, data in zip(self.texts, self.decoded, strict=True)]

    @property
    def why_no(self) -> str:
        """How many texts come back otherwise; empty if none."""
        different = sum(place is not None for place in self.places)
        return f"{counted(different, 'text')} decoded otherwise" if different else ""

    def parts(self, number: int) -> tuple[bytes, bytes]:
        """Return the part of a text from its first difference on, and what stands there instead."""
        place, text = self.places[number] or 0, self.texts[number]
        start = len(text[:place].encode())
        length = len(text[place : place + _AROUND].encode())
        return text.encode()[start : start + length], self.decoded[number][start : start + length]

    def records(self) -> Records:
        """Return a row for each text: whether it comes back, and the first difference."""
        places = self.places
        parts = [(b"", b"") if place is None else self.parts(number) for number, place in enumerate(places)]
        return listed(
            run_of(self.tokens.encoding),
            "texts",
            sequence=(int, list(range(len(places)))),
            equal=(bool, [place is None for place in places]),
            place=(int, places),
            text=(str, [token_text(part) for part, _ in parts]),
            decoded=(str, [token_text(part) for _, part in parts]),
        )


def _difference(text: str, data: bytes) -> int | None:
    """Return the first character of a text whose bytes are not those of the decoded data at the same place."""
    own = text.encode()
    if own == data:
        return None
    low, high = 0, min(len(own), len(data))  # equal up to low, and not up to high + 1
    while low < high:
        middle = (low + high + 1) // 2
        if own[:middle] == data[:middle]:
            low = middle
        else:
            high = middle - 1
    return len(own[:low].decode(errors="ignore"))

"""Tokenizing: text as tokens, each with its ID, its bytes, and its span in the text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.opened import Opened, TextOrIds
from embcli.records import Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import Tokens, check_known, shown
from embcli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.page import Drawing

_MOST_ROWS = 200
_MOST_TEXT = 2000  # cells of the text that are shown with its IDs
_MOST_SHARED = 5  # characters in several tokens that are named below the table
# By whether a token begins in the middle of a character, and whether the next token continues it.
_BRACKETS = {(False, False): " ", (False, True): "╭", (True, True): "│", (True, False): "╰"}


@dataclass(frozen=True, eq=False)
class Tokenization(Result, verb="tokenize", content="tokens"):
    tokens: Tokens

    def __post_init__(self) -> None:
        if self.tokens.encoding is not None:
            check_known(self.tokens.ids, self.tokens.encoding)

    @property
    def ids(self) -> np.ndarray:
        """The token IDs, (T,) uint32 or int64."""
        return self.tokens.ids

    @cached_property
    def comes_back(self) -> bool:
        """Whether the tokens decode to the texts, byte for byte; IDs have no text to differ from."""
        encoding, (before, after) = self.tokens.encoding, map(len, self.tokens.added)
        return encoding is None or all(
            encoding.decode(self.ids[start + before : stop - after]) == text.encode()
            for text, (start, stop) in zip(
                self.tokens.texts or (), pairwise(self.tokens.starts.tolist()), strict=False
            )
        )

    @cached_property
    def _begun(self) -> np.ndarray:
        """How many characters begin in each token, (T,) int64."""
        return self.tokens.measured(
            lambda token: sum(byte & 0xC0 != 0x80 for byte in token)
        )  # in UTF-8

    @cached_property
    def joined(self) -> np.ndarray:
        """Which tokens begin in the middle of a character, (T,) bool."""
        return self.tokens.measured(lambda token: b"\x80" <= token[:1] < b"\xc0").astype(bool)

    @cached_property
    def spans(self) -> np.ndarray:
        """First and last + 1 character of each token in its sequence, (T, 2) int64.

        All tokens that share a character have the whole character in their spans.
        """
        if self.tokens.spans is not None:  # the encoding knows them
            return self.tokens.spans
        ends = np.cumsum(self._begun)
        first = np.append(0, ends)[self.tokens.starts[:-1]]  # character of each sequence
        bases = np.repeat(first, np.diff(self.tokens.starts))
        starts = np.maximum(ends - self._begun - self.joined, bases)
        return np.stack([starts - bases, ends - bases], axis=1)

    def records(self) -> Records:
        def values(index: np.ndarray, names: Names) -> dict[str, Any]:
            fields = self.tokens.fields(index, names)
            if "bytes" in names:
                fields["bytes"] = [
                    (token or b"").hex() for token in self.tokens.bytes_of(self.ids[index])
                ]
            for column, name in enumerate(("start", "end")):
                if name in names:
                    fields[name] = self.spans[index, column]
            return fields

        fields = {**self.tokens.field_types, "bytes": str, "start": int, "end": int}
        run = run_of(self.tokens.encoding, sequences=self.tokens.sequences)
        pieces = in_pieces(len(self.ids), len(fields), values)
        return Records(
            run, "tokens", len(self.ids), fields, pieces, sequences=self.tokens.sequences
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, left_out, omission, ruled, safe_text, token_style

        tokens = self.tokens
        excerpt = Excerpt.ends(_MOST_ROWS, len(tokens))
        places, joined = excerpt.places, self.joined[excerpt.places].tolist()
        named = [token or b"" for token in tokens.bytes_of(self.ids[places])]
        groups: list[list[int]] = []  # rows of tokens that share a character
        for row, place in enumerate(places.tolist()):
            if groups and joined[row] and places[row - 1] == place - 1:
                groups[-1].append(row)
            else:
                groups.append([row])
        brackets = [_BRACKETS[joined[row], row != group[-1]] for group in groups for row in group]
        sequence, position = tokens.places(places)
        labels = [Label("seq", sequence)] if tokens.many else []
        labels.append(Label("pos", position))
        if {*brackets} - {" "}:
            labels.append(Label("", brackets, "left"))
        styled = [
            safe_text(shown(token), token_style(place))
            for token, place in zip(named, places.tolist(), strict=True)
        ]
        labels += [
            Label("token", styled, "left", short=True),
            Label("ID", self.ids[places]),
            Label("bytes", [token.hex(" ") for token in named], "left", short=True),
            Label("span", [f"{start}:{end}" for start, end in self.spans[places].tolist()], "left"),
        ]
        yield ruled(labels, gaps=excerpt.gaps)
        missing = left_out(omission(excerpt, "row"))
        if missing is not None:
            yield missing
        yield ""
        if tokens.texts is None:
            characters, size = int(self._begun.sum()), int(tokens.measured(len).sum())
        else:
            characters, size = (
                sum(map(len, tokens.texts)),
                sum(len(text.encode()) for text in tokens.texts),
            )
        counts = [
            counted(characters, "character"),
            counted(size, "byte"),
            counted(len(tokens), "token"),
        ]
        ratio = f", {characters / len(tokens):.2f} characters per token" if len(tokens) else ""
        name = tokens.encoding.name if tokens.encoding else "no encoding"
        yield safe_text(
            f"{', '.join(counts)}{ratio} ({name}){'' if self.comes_back else '; they decode to another text'}"
        )
        shared = [group for group in groups if len(group) > 1 and not joined[group[0]]]
        for first, *_, last in shared[:_MOST_SHARED]:
            parts = named[first : last + 1]
            whole = (
                parts[0].decode(errors="ignore").encode()
            )  # the characters before the shared one
            between = (
                f"is in tokens {places[first]} to {places[last]}: {' + '.join(map(shown, parts))}"
            )
            yield safe_text(f"{shown(b''.join(parts)[len(whole) :])} {between}")
        if len(shared) > _MOST_SHARED:
            yield safe_text(
                "More characters are in several tokens; the brackets show which tokens belong together."
            )
        if console.is_terminal and groups:
            yield ""
            yield self._text_with_ids([places[group] for group in groups], options.max_width)

    def _text_with_ids(self, groups: list[np.ndarray], width: int) -> Drawing:
        """Return the text as one reads it, each token in its colour, with its ID below.

        Tokens that share a character are one word.
        """
        from rich.text import Text

        from embcli.page import Drawing, safe_text, token_style

        lines = [Text(), Text()]
        total = next_place = 0
        for group in groups:
            if group[0] > next_place:
                lines[-2].append("… ", "dim")
                lines[-1].append("  ")
            next_place, style, ids = group[-1] + 1, token_style(int(group[0])), self.ids[group]
            word = safe_text(
                shown(b"".join(token or b"" for token in self.tokens.bytes_of(ids))), style
            )
            number = Text(" ".join(map(str, ids.tolist())), style)
            cells = max(word.cell_len, number.cell_len) + 1
            if lines[-1] and (
                lines[-1].cell_len + cells > width + 1 or self.spans[group[0], 0] == 0
            ):
                lines += [Text(), Text()]
            total += cells
            if total > _MOST_TEXT:
                lines[-2].append("…", "dim")
                break
            for line, part in zip(lines[-2:], (word, number), strict=True):
                line.append_text(part)
                line.append(" " * (cells - part.cell_len))
        return Drawing(lines)


def tokenize(
    model: Opened, text: TextOrIds, *, special: bool = False, lines: bool = False
) -> Tokenization:
    """Return the tokens of a text: IDs, bytes, and the span of each in characters.

    Special tokens are plain text unless `special`; `lines` makes each line a sequence. Raises InputError for IDs
    that the encoding does not have.

    >>> import embcli
    >>> embcli.seeded().tokenize("Every effort").ids.tolist()
    [6109, 3626]
    """
    notes = model.notes.begun()
    return Tokenization(model.tokens(text, special, lines, notes=notes), notes=notes)

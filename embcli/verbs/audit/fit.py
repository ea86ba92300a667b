"""Whether the tokenizer, the two matrices and the configurations of a model fit together.

`fit_of` gathers what the files say, and the other functions yield Findings, which `audit` collects.
None of them reads a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.files.special_ids import (
    SpecialId,
    added_size,
    differing_roles,
    special_ids,
    unknown_template_names,
)
from embcli.layer import Source, shape_of
from embcli.names import Fault
from embcli.wording import counted

Level = Literal["remark", "finding", "alarm"]
Kind = Fault | Literal["template"]  # what --fail-on can name, and what it cannot
_PADDED_TO = (256, 128, 64)  # rows, of which matrices often have a multiple


class Finding(NamedTuple):
    """Something that the audit says of a model.

    A remark changes no verdict, a finding takes the word "Sound" away, and an alarm is a finding
    that gives status 1.
    """

    kind: Kind
    level: Level
    text: str
    rows: int = 1  # how many rows or IDs it is about

    def document(self) -> dict[str, str | int]:
        return {"level": self.level, "kind": self.kind, "rows": self.rows, "text": self.text}


class Sizes(NamedTuple):
    """How many tokens each part of a model is made for; None for what is not known."""

    rows: int  # of the token matrix
    head_rows: int | None
    vocab_size: int | None  # as config.json says
    tokens: int | None  # of the tokenizer, with those that were added


def size_findings(sizes: Sizes) -> Iterator[Finding]:
    """Yield what is said of each pair of sizes that differs."""
    rows, head_rows, vocab_size, tokens = sizes
    if tokens is not None and tokens > rows:
        missing = tokens - rows
        text = f"{counted(missing, 'token')} of {tokens:,} have no row"
        yield Finding("missing", "finding", text, missing)
    if tokens is not None and rows > tokens:
        yield Finding("padding", "remark", _padding_in_words(rows, tokens), rows - tokens)
    if vocab_size is not None and vocab_size not in (rows, tokens):
        named = f"rows are {rows:,}"
        if tokens is not None:
            named += f", tokens {tokens:,}"
        yield Finding("fit", "finding", f"config.json's vocab_size is {vocab_size:,}; {named}")

    if head_rows is None:
        return
    needed = {"tokens": tokens, "vocab_size of config.json": vocab_size}
    for what, size in needed.items():
        if size is not None and head_rows < size:
            text = f"the output head has {counted(head_rows, 'row')}; {what}: {size:,}"
            yield Finding("head", "finding", text, size - head_rows)
            return
    if head_rows != rows:
        text = f"the token matrix has {rows:,} rows, the output head {head_rows:,}"
        yield Finding("fit", "remark", text, abs(rows - head_rows))


def _padding_in_words(rows: int, tokens: int) -> str:
    text = f"{counted(rows - tokens, 'row')} after the last of {counted(tokens, 'token')}"
    multiple = padded_multiple(rows, tokens)
    return f"{text}, up to a multiple of {multiple}" if multiple else text


def padded_multiple(rows: int, tokens: int) -> int | None:
    """Return the multiple that the rows were probably padded to; None if they reach none."""
    for multiple in _PADDED_TO:
        if rows % multiple == 0 and rows - tokens < multiple:
            return multiple
    return None


def special_id_findings(found: list[SpecialId], rows: int, tokens: int | None) -> Iterator[Finding]:
    """Yield the special tokens without a row, and those of which two files differ.

    A name that is no token of the tokenizer becomes one when transformers loads it, with the next
    ID.
    """
    for special in found:
        without_row = [token_id for token_id in special.ids if not 0 <= token_id < rows]
        if without_row:
            ids = ", ".join(map(str, without_row))
            text = f"{special}: {ids} has no row, rows are 0 to {rows - 1:,}"
            yield Finding("special-ids", "finding", text, len(without_row))
        elif special.name and not special.ids:
            next_id = rows if tokens is None else tokens
            has_row = next_id < rows
            text = f"{special} is no token; transformers adds it as {next_id:,}"
            if not has_row:
                text += ", which has no row"
            yield Finding("special-ids", "remark" if has_row else "finding", text)
    for first, other in differing_roles(found):
        yield Finding("special-ids", "remark", f"{first} differs from {other}")


def template_findings(names: list[str]) -> Iterator[Finding]:
    """Yield a remark on names in the chat template that are not one token."""
    if names:
        listed = ", ".join(names[:5])
        if len(names) > 5:
            listed += ", ..."
        verb = "is" if len(names) == 1 else "are"
        text = f"{listed} of the chat template {verb} not one token"
        yield Finding("template", "remark", text, len(names))


class Tie(NamedTuple):
    """What speaks of whether the output head is the token matrix."""

    flag: bool | None  # None if neither config.json nor the family says it
    is_spelled_out: bool  # whether config.json says it
    needs_head: bool  # whether config.json names a class with an output head
    has_own_head: bool | None  # besides the token matrix itself; None for one that is not read
    model_type: str


def tie_findings(tie: Tie, is_copy: bool) -> Iterator[Finding]:
    """Yield what is said of the output head, if flag, file and rows contradict one another.

    `is_copy` says that all rows of the head are those of the token matrix.
    """
    says = "config.json says" if tie.is_spelled_out else f"{tie.model_type} models are by default"
    if tie.flag and tie.has_own_head and not is_copy:
        text = f"{says} tied, but the head in the file differs; transformers 5 loads both, untied"
        yield Finding("tied", "finding", text)
    elif _is_untied(tie) and tie.needs_head and tie.has_own_head is False:
        text = (
            f"{says} untied, but the file has no head of its own; transformers makes a random one"
        )
        yield Finding("tied", "finding", text)


def _is_untied(tie: Tie) -> bool:
    return tie.flag is False and tie.is_spelled_out


@dataclass(frozen=True, eq=False)
class Fit:
    """What the files of a model say of its sizes, its special tokens and its output head."""

    sizes: Sizes
    tie: Tie | None = None  # None without files
    special_ids: list[SpecialId] = field(default_factory=list)
    template_names: list[str] = field(default_factory=list)  # names that are not one token
    head_in_words: str = ""
    has_copied_head: bool = False  # whether the rows that were compared are the token matrix's
    partly_compared: str = ""  # which rows these were, if others of the head were not
    not_checked: tuple[str, ...] = ()  # what could not be looked at, and why

    @property
    def has_own_head(self) -> bool:
        return self.tie is not None and bool(self.tie.has_own_head)

    @property
    def padding_rows(self) -> set[int]:
        """The rows that files name as padding; they may be zero."""
        rows: set[int] = set()
        for special in self.special_ids:
            if special.role == "pad":
                rows.update(special.ids)
        return rows

    def findings(self, head_is_copy: bool) -> Iterator[Finding]:
        yield from size_findings(self.sizes)
        yield from special_id_findings(self.special_ids, self.sizes.rows, self.sizes.tokens)
        yield from template_findings(self.template_names)
        if self.tie is not None:
            yield from tie_findings(self.tie, head_is_copy)


def fit_of(source: Source, encoding: Encoding | None) -> Fit:
    """Return what the files of a model say; only the sizes of a seeded one, or of a chosen tensor.

    Raises InputError for a file that cannot be read.
    """
    from embcli.files.checkpoint import Checkpoint

    rows, _ = shape_of(source, "token")
    tokens = encoding.vocabulary_size if encoding else None
    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return Fit(Sizes(rows, None, None, tokens))

    source.check_config()
    weights = source.tensors.path
    config = source.roles.config
    not_checked = []
    if encoding is None:
        not_checked.append("tokens: no tokenizer is known")
    else:
        tokens = max(encoding.vocabulary_size, added_size(weights))
    if not config:
        not_checked.append("sizes and special IDs of a config.json: there is none")

    has_own_head = None
    has_copied_head = False
    partly_compared = ""
    head_rows = None
    try:
        head = source.head
        has_own_head = head.tensor is not None and head.relation != "same"
        has_copied_head = head.relation == "equal"
        if head.tensor is not None:
            head_rows = head.tensor.shape[0]
            if has_copied_head and head.rows < head_rows:
                partly_compared = head.compared
        words = head.reason or _HEADS[head.relation]
    except InputError as error:
        words = "not read"
        not_checked.append(f"the output head: {error}")

    vocab_size = config.get("vocab_size")
    flag = source.tie_flag
    tie = Tie(
        flag=flag.is_tied,
        is_spelled_out=flag.is_spelled_out,
        needs_head=flag.needs_head,
        has_own_head=has_own_head,
        model_type=str(config.get("model_type")),
    )
    return Fit(
        sizes=Sizes(rows, head_rows, vocab_size if type(vocab_size) is int else None, tokens),
        tie=tie,
        special_ids=special_ids(weights, config, source.tensors.metadata, encoding),
        template_names=unknown_template_names(weights, encoding) if encoding else [],
        head_in_words=words,
        has_copied_head=has_copied_head,
        partly_compared=partly_compared,
        not_checked=tuple(not_checked),
    )


_HEADS = {
    "same": "the token matrix itself (tied)",
    "equal": "a tensor of its own",
    "other": "a tensor of its own",
    "none": "none in the file, as in most files of tied models",
}

"""Whether the tokenizer, the two matrices and the configurations of a model fit together.

`fit_of` gathers what the files say, and `Fit.findings` yields Findings, which `audit` collects.
Neither reads a row of tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from embcli.binary import quoted
from embcli.encodings import Encoding
from embcli.encodings.encoding import OwnWords, UnknownTokenizerError
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.families import HEAD_BIASES
from embcli.files.special_ids import SpecialId, special_ids, unknown_template_names
from embcli.files.tensors import PackedError, Tensors
from embcli.hub.local import PART_WITH_INDEX
from embcli.layer import Source, shape_of
from embcli.names import Fault
from embcli.wording import counted

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint, Head

Level = Literal["remark", "finding", "alarm"]
# The norm from which on a row overflows: its square in float32, and the norm itself in float16.
_OVERFLOW_AT = 1.8446744e19
_OVERFLOW_AT_BY_DTYPE = {"float16": 65_520.0}
_PADDED_TO = (256, 128, 64)  # rows, of which matrices often have a multiple


class Finding(NamedTuple):
    """Something that the audit says of a model.

    A remark changes no verdict, a finding takes the word "Sound" away, and an alarm gives status 1.
    """

    level: Level
    kind: Fault
    rows: int  # how many rows, columns or IDs it is about
    text: str
    is_in_matrix: bool = False  # whether the page says it among the facts about a matrix

    def document(self) -> dict[str, Any]:
        return {"level": self.level, "kind": self.kind, "rows": self.rows, "text": self.text}

    @property
    def is_fault(self) -> bool:
        """Whether it counts among the faults; a remark does only if it is about rows."""
        return self.level != "remark" or self.kind in ("equal", "padding", "candidates")


def padded_multiple(rows: int, tokens: int) -> int | None:
    """Return the multiple that the rows were probably padded to; None if they reach none."""
    for multiple in _PADDED_TO:
        if rows % multiple == 0 and rows - tokens < multiple:
            return multiple
    return None


@dataclass(frozen=True, eq=False)
class Fit:
    """What the files of a model say of its sizes, its special tokens and its output head."""

    rows: int  # of the token matrix
    tokens: int | None  # of the tokenizer; None if it is unknown
    has_files: bool = False  # whether other files than one matrix were looked at
    vocab_size: int | None = None  # as config.json or the metadata of a GGUF file says
    overflow_at: float = _OVERFLOW_AT  # in the dtype that config.json names
    head: Head | None = None  # None if it was not read
    head_faults: tuple[str, ...] = ()  # what is wrong with the head, in words
    finite: Mapping[str, bool] = field(default_factory=dict)  # by name, of input tensors
    special_ids: tuple[SpecialId, ...] = ()
    contradictions: tuple[str, ...] = ()  # sizes that do not fit together otherwise, in words
    template_names: tuple[str, ...] = ()  # names in the chat template that are not one token
    repeated_words: tuple[str, ...] = ()  # words of the file that have several rows
    not_checked: tuple[str, ...] = ()  # what could not be looked at, and why

    @property
    def has_own_head(self) -> bool:
        """Whether there is an output head besides the token matrix."""
        head = self.head
        return head is not None and head.tensor is not None and head.relation != "same"

    @property
    def checked(self) -> str:
        """What was compared besides the rows, in words; empty if there was nothing to compare."""
        has_sizes = self.has_files and (self.tokens or self.vocab_size)
        return ", sizes and special IDs" if has_sizes else ""

    @property
    def partly_compared(self) -> str:
        """Which rows of an equal head were compared, if others were not; empty otherwise."""
        head = self.head
        if head is None or head.tensor is None or head.relation != "equal":
            return ""
        return head.compared if head.rows < head.tensor.shape[0] else ""

    @property
    def padding_rows(self) -> set[int]:
        """The rows that files name as padding; they may be zero."""
        rows: set[int] = set()
        for special in self.special_ids:
            if special.role == "pad":
                rows.update(special.ids)
        return rows

    def findings(self) -> Iterator[Finding]:
        """Yield what is said of the model."""
        for name, is_finite in self.finite.items():
            if not is_finite:
                text = f"{name} has non-finite values, and the first block reads it"
                yield Finding("finding", "non-finite", 1, text)
        yield from self._of_sizes()
        yield from self._of_the_heads_size()
        yield from self._of_special_ids()
        if self.template_names:
            listed = ", ".join(self.template_names[:5])
            if len(self.template_names) > 5:
                listed += ", ..."
            verb = "is" if len(self.template_names) == 1 else "are"
            text = f"{listed} of the chat template {verb} not one token"
            yield Finding("remark", "template", len(self.template_names), text)
        if self.repeated_words:
            listed = ", ".join(map(quoted, self.repeated_words[:5]))
            words = counted(len(self.repeated_words), "word")
            text = f"{words} with several rows, of which a text gets the first: {listed}"
            yield Finding("remark", "fit", len(self.repeated_words), text)

    def _of_sizes(self) -> Iterator[Finding]:
        for text in self.contradictions:
            yield Finding("finding", "fit", 1, text)
        named = f"rows are {self.rows:,}"
        tokens = self.tokens
        if tokens is not None:
            named += f", tokens {tokens:,}"
            padding = self.rows - tokens
            if padding < 0:
                text = f"{counted(-padding, 'token')} of {tokens:,} without a row"
                if -padding < tokens / 100:
                    text += "; the usual cause is a forgotten resize_token_embeddings"
                yield Finding("finding", "missing", -padding, text)
            elif padding:
                text = f"{counted(padding, 'row')} after the last of {counted(tokens, 'token')}"
                multiple = padded_multiple(self.rows, tokens)
                if multiple:
                    text += f", up to a multiple of {multiple}"
                yield Finding("remark", "padding", padding, text, is_in_matrix=True)
        head = self.head.tensor if self.head else None
        head_rows = head.shape[0] if head else self.rows
        if self.vocab_size not in (None, self.rows, head_rows):
            text = f"the configured vocab_size is {self.vocab_size:,}; {named}"
            yield Finding("finding", "fit", 1, text)

    def _of_the_heads_size(self) -> Iterator[Finding]:
        for text in self.head_faults:
            yield Finding("finding", "head", 1, text)
        if self.head is None or self.head.tensor is None:
            return
        rows = self.head.tensor.shape[0]
        needed = {"tokens": self.tokens, "the configured vocab_size": self.vocab_size}
        for what, size in needed.items():
            if size is not None and rows < size:
                text = f"the output head has {counted(rows, 'row')}; {what}: {size:,}"
                yield Finding("finding", "head", size - rows, text)
                return
        if rows != self.rows:
            text = f"the token matrix has {self.rows:,} rows, the output head {rows:,}"
            level: Level = "finding" if rows > self.rows else "remark"
            yield Finding(level, "fit", abs(self.rows - rows), text)

    def _of_special_ids(self) -> Iterator[Finding]:
        """Yield the special tokens without a row, and those of which two files differ.

        A list agrees with an ID that it contains.
        """
        first_by_role: dict[str, SpecialId] = {}
        for special in self.special_ids:
            without_row = [token_id for token_id in special.ids if not 0 <= token_id < self.rows]
            if without_row:
                ids = ", ".join(map(str, without_row))
                text = f"{special}: {ids} has no row, rows are 0 to {self.rows - 1:,}"
                yield Finding("finding", "special-ids", len(without_row), text)
            first = first_by_role.setdefault(special.role, special)
            if not set(special.ids) & set(first.ids):
                yield Finding("remark", "special-ids", 1, f"{first} differs from {special}")


def fit_of(source: Source, encoding: Encoding | None) -> Fit:
    """Return what the files of a model say; only the sizes of a seeded one, or of a chosen tensor.

    Raises InputError for a file that cannot be read.
    """
    from embcli.files.checkpoint import Checkpoint

    rows, _ = shape_of(source, "token")
    tokens = encoding.vocabulary_size if encoding else None
    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return Fit(rows, tokens)

    source.check_config()
    weights = source.tensors.path
    config = source.roles.config
    template_names: tuple[str, ...] = ()
    contradictions = []
    not_checked = []
    damaged, unknown = _tokenizer_error(source)
    contradictions.append(damaged)
    if encoding is None:
        not_checked.append(f"tokens: {unknown}")
    else:
        template_names = unknown_template_names(weights, encoding)
    if not config:
        not_checked.append("a config.json (there is none)")
    if PART_WITH_INDEX.fullmatch(weights.name):
        not_checked.append("the other files of the model")
    if len(source.tensors.files) > 1:
        if source.roles.token.binary.is_remote:
            not_checked.append("the shards of other tensors")
        else:
            _check_files(source.tensors)

    head = None
    head_faults: list[str] = []
    try:
        head = source.head
        head_faults += _wrong_parts(source, head)
    except PackedError as error:
        not_checked.append(f"the output head: {error}")
    except InputError as error:
        head_faults.append(str(error))

    finite: dict[str, bool] = {}
    try:
        finite.update(_finite_tensors(source))
    except InputError as error:
        not_checked.append(f"what is done to token rows: {error}")

    try:
        contradictions += _contradictions(source, encoding)
    except InputError as error:
        not_checked.append(f"positions and token types: {error}")

    vocab_size = source.roles.settings.values.get("vocab_size")
    dtype = config.get("dtype", config.get("torch_dtype"))
    return Fit(
        rows,
        tokens,
        has_files=True,
        vocab_size=vocab_size if type(vocab_size) is int else None,
        overflow_at=_OVERFLOW_AT_BY_DTYPE.get(str(dtype), _OVERFLOW_AT),
        head=head,
        head_faults=tuple(head_faults),
        finite=finite,
        special_ids=special_ids(source),
        contradictions=tuple(filter(None, contradictions)),
        template_names=template_names,
        repeated_words=tuple(_repeated_words(source.tensors.own_words())),
        not_checked=tuple(not_checked),
    )


def _repeated_words(words: Encoding | None) -> Iterator[str]:
    """Yield the words that the file has for several rows."""
    if isinstance(words, OwnWords):
        rows = Counter(map(words.token_bytes, range(words.vocabulary_size)))
        for word, count in rows.items():
            if word and count > 1:
                yield word.decode("utf-8", "replace")


def _check_files(tensors: Tensors) -> None:
    """Raise InputError if a file is damaged, whichever tensors it has; only headers are read."""
    for file in tensors.files:
        open_tensors(Path(file))


def _finite_tensors(source: Checkpoint) -> Iterator[tuple[str, bool]]:
    """Yield the names of the tensors that rows are computed from, and whether all are finite."""
    for name in source.input_tensors:
        yield name, bool(np.isfinite(source.values(name)).all())


def _contradictions(source: Checkpoint, encoding: Encoding | None) -> Iterator[str]:
    """Yield in words what does not fit between two files, or nothing; wrong heads aside."""
    from embcli.files.recipes import wrong_dimension, wrong_positions, wrong_types

    roles = source.roles
    if encoding is not None:
        yield from encoding.faults
    wrong = wrong_dimension(roles)
    yield wrong or _wrong_recipe(source)
    yield wrong_positions(roles)
    yield wrong_types(roles)


def _wrong_recipe(source: Checkpoint) -> str:
    """Return in words which tensor the first block needs and the file lacks, or nothing."""
    try:
        _ = source.recipe
    except InputError as error:
        return str(error)
    return ""


def _wrong_parts(source: Checkpoint, head: Head) -> Iterator[str]:
    """Yield in words what is wrong with the columns of an output head, and with its bias."""
    roles = source.roles
    if roles.misfit_head:
        yield roles.misfit_head
    if head.tensor is None and roles.part is not None:
        return  # The head can be tied to the matrix of the other part.
    matrix = head.tensor or roles.token
    size = matrix.shape[0]
    biases = {}
    for name in HEAD_BIASES.split():
        bias = roles.nearest(name)
        if bias is not None:
            biases[bias.stored_at] = bias
    for bias in biases.values():
        is_finite = np.isfinite(source.values(bias.name))
        if is_finite.size != size or not is_finite.all():
            yield f"{bias} is not a finite number for each of the head's {size:,} rows"


def _tokenizer_error(source: Checkpoint) -> tuple[str, str]:
    """Return in words why the tokenizer beside the weights is damaged, and why it is unknown."""
    error = source.tokenizer_error
    if isinstance(error, UnknownTokenizerError):
        return "", str(error)
    return str(error or ""), "no tokenizer is known"

"""What the files of a model say, which the checks hold against its matrices.

`files_of` gathers it before a row is read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from embcli.binary import JsonObject
from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint, Head
from embcli.files.special_ids import SpecialId, special_ids
from embcli.files.tensors import Tensors
from embcli.layer import Source, shape_of

# The norm from which on a row overflows: its square in float32, and the norm itself in float16.
OVERFLOW_AT = 1.8446744e19
_OVERFLOW_AT_IN_FLOAT16 = 65_520.0


@dataclass(frozen=True, eq=False)
class ModelFiles:
    """What the files of a model say of its sizes, its special tokens and its output head.

    Of a seeded model, and of a tensor that the user chose, only the sizes are known.
    """

    rows: int  # of the token matrix
    encoding: Encoding | None
    checkpoint: Checkpoint | None = None  # None if there are no other files than one matrix
    special_ids: tuple[SpecialId, ...] = ()
    tensors: Tensors | None = None  # those of the checkpoint, or of an adapter

    @property
    def tokens(self) -> int | None:
        """The number of tokens; None if they are unknown."""
        return self.encoding.vocabulary_size if self.encoding else None

    @property
    def config(self) -> JsonObject:
        """The settings in config.json of the part that reads tokens; a GGUF file has none."""
        return self.checkpoint.roles.config if self.checkpoint else {}

    @property
    def vocab_size(self) -> int | None:
        """The size that config.json states; llama.cpp ignores the one in a GGUF file."""
        size = self.config.get("vocab_size")
        return size if type(size) is int else None

    @property
    def checked(self) -> str:
        """What was compared besides the rows, in words; empty if there was nothing to compare."""
        has_sizes = self.checkpoint and (self.tokens or self.vocab_size)
        return ", sizes and special IDs" if has_sizes else ""

    @property
    def stated_dtype(self) -> str:
        """The dtype that config.json names, in which a model is loaded."""
        return str(self.config.get("dtype", self.config.get("torch_dtype")))

    @property
    def deviation(self) -> float | None:
        """The standard deviation with which a model draws rows, if config.json states it."""
        deviation = self.config.get("initializer_range")
        return deviation if isinstance(deviation, float) and deviation > 0 else None

    @property
    def overflow_at(self) -> float:
        """The norm from which on a row overflows in the dtype that config.json names."""
        return _OVERFLOW_AT_IN_FLOAT16 if self.stated_dtype == "float16" else OVERFLOW_AT

    @cached_property
    def head(self) -> Head | None:
        """The output head; None if it cannot be read."""
        try:
            return self.checkpoint.head if self.checkpoint else None
        except InputError:
            return None

    def rows_of(self, role: str) -> list[int]:
        """Return the rows that files name for a special token."""
        rows: list[int] = []
        for special in self.special_ids:
            if special.role == role:
                rows += special.ids
        return rows

    @property
    def unread_rows(self) -> set[int]:
        """The row of the unknown token, if the tokenizer spells what it does not know by bytes."""
        unknown = {*self.rows_of("unk")}
        with suppress(InputError):  # Not every encoding can split a text.
            if unknown and self.encoding is not None:
                ids = self.encoding.encode("\U000e0041")  # a letter that no vocabulary has
                return unknown.difference(ids.tolist())
        return set()

    @cached_property
    def byte_tokens(self) -> list[int]:
        """The tokens of one byte; a text need not have any of those."""
        encoding = self.encoding
        if encoding is None:
            return []
        ids = range(encoding.vocabulary_size)
        return [token_id for token_id in ids if len(encoding.token_bytes(token_id) or b"") == 1]

    @cached_property
    def input_tensors(self) -> list[str]:
        """The names of the tensors that rows are computed from; none if that is not known."""
        try:
            return self.checkpoint.input_tensors if self.checkpoint else []
        except InputError:
            return []


def files_of(source: Source) -> ModelFiles:
    """Return what the files of a model say; raises InputError for one that cannot be read."""
    rows, _ = shape_of(source, "token")
    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return ModelFiles(rows, source.encoding)
    source.check_config()
    return ModelFiles(rows, source.encoding, source, special_ids(source), source.tensors)

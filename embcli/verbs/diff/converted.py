"""A GGUF file and the model that it was made of: which of two that is, and what differs in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from math import isclose
from typing import Any, NamedTuple

import numpy as np

from embcli.encodings.gguf.vocabulary import GgufEncoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.families import CHANGED_FOR_GGUF
from embcli.files.special_ids import special_ids
from embcli.layer import Source
from embcli.verbs.diff.tokens import other_ids
from embcli.wording import load_facts

_SAMPLE = load_facts("llama_cpp.json")["sample"]  # a text that pre-tokenizers split differently
_CONTROL = (2, 3)  # the types of unknown and control tokens


class Converted(NamedTuple):
    """A GGUF file, and the model that it may be made of."""

    gguf: Checkpoint
    model: Checkpoint

    @classmethod
    def of(cls, base: Source, tuned: Source) -> Converted | None:
        """Return the pair that two sources are, if one of them is a GGUF file."""
        if isinstance(base, Checkpoint) and isinstance(tuned, Checkpoint):
            for gguf, model in ((base, tuned), (tuned, base)):
                if gguf.tensors.format == "GGUF" != model.tensors.format:
                    return cls(gguf, model)
        return None

    def other_settings(self) -> Iterator[str]:
        """Yield in words the settings and the chat template that the GGUF file has otherwise."""
        from embcli.verbs.audit.template import templates

        config = {**self.model.roles.config, **self.model.positions}
        changed = CHANGED_FOR_GGUF.get(str(config.get("model_type")), [])
        for name, stored in self.gguf.roles.settings.values.items():
            ours: Any = config.get(name, stored)
            is_told = name not in changed and {type(ours), type(stored)} <= {int, float}
            with suppress(OverflowError):  # No float is as large as that whole number.
                if is_told and not isclose(ours, stored, rel_tol=1e-6):
                    yield f"{name} {ours:,.7g} in the model, {stored:,.7g} in the GGUF"
        given = [*templates(self.model.tensors)]
        if given and self.gguf.tensors.metadata.get("tokenizer.chat_template") not in given:
            yield "the chat template"

    def other_special_tokens(self) -> Iterator[str]:
        """Yield in words the special IDs that differ, control tokens, and how a text is split.

        A role of which the model's own files say nothing is not compared.
        """
        given = special_ids(self.model)
        for special in special_ids(self.gguf):
            ids = [each.ids for each in given if each.role == special.role]
            if ids and not {*special.ids}.issubset(sum(ids, ())):
                yield str(special)

        ours = self.gguf.encoding
        theirs = self.model.encoding
        if not isinstance(ours, GgufEncoding) or theirs is None:
            return
        with suppress(InputError):  # A file need not say which these are.
            if ours.bos_eos != theirs.bos_eos:
                yield "the IDs before and after a text"
        control = {*np.flatnonzero(np.isin(ours.stored_kinds, _CONTROL)).tolist()}
        for token in theirs.rules.get("added_tokens", ()):
            # Converters may type an added token CONTROL that is not special.
            if token["special"] and token["id"] not in control:
                yield f"the type of ID {token['id']}"
            control.discard(token["id"])
        if theirs.rules and control:
            yield f"the type of ID {min(control)}"
        merges = [" ".join(merge).encode() for merge in theirs.rules.get("merges", ())]
        if merges and ours.merges not in (None, merges):
            yield "the merges"
        with suppress(InputError):  # Not every encoding can split a text.
            yield from other_ids(theirs, ours, _SAMPLE, "a sample text")

"""The settings of two models that differ; of a GGUF file and its model, special tokens as well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from math import isclose
from typing import NamedTuple

import numpy as np

from embcli.encodings.gguf.vocabulary import GgufEncoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.families import CHANGED_FOR_GGUF
from embcli.files.special_ids import special_ids
from embcli.layer import Source
from embcli.verbs.diff.tokens import other_ids
from embcli.wording import counted, load_facts

_SAMPLE = load_facts("llama_cpp.json")["sample"]  # a text that pre-tokenizers split differently
_NUMBERS = {int, float, bool}
_WITHOUT_EFFECT = ["vocab_size", "use_cache"]  # on what a model computes; rows are counted
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


def other_settings(base: Source, tuned: Source) -> Iterator[str]:
    """Yield in words the numbers and flags that two models have both, and that differ.

    Their chat templates and the numbers of their tensors are compared, too, and of a GGUF file and
    its model special tokens.
    """
    from embcli.verbs.audit.template import templates

    if not isinstance(base, Checkpoint) or not isinstance(tuned, Checkpoint):
        return
    ours = {**base.roles.settings.values, **base.positions}
    theirs = {**tuned.roles.settings.values, **tuned.positions}
    ignored = _WITHOUT_EFFECT
    converted = Converted.of(base, tuned)
    if converted is not None:
        ignored = ignored + CHANGED_FOR_GGUF.get(str(converted.model.config.get("model_type")), [])
    for name, value in ours.items():
        other = theirs.get(name, value)
        is_told = name not in ignored and {type(value), type(other)} <= _NUMBERS
        with suppress(OverflowError):  # No float is as large as that whole number.
            if is_told and not isclose(value, other, rel_tol=1e-6):
                yield f"{name} {json.dumps(value)} in BASE, {json.dumps(other)} in TUNED"
    if base.config and tuned.config and len(base.tensors) != len(tuned.tensors):
        yield f"{counted(len(base.tensors), 'tensor')} in BASE, {len(tuned.tensors):,} in TUNED"
    given = {*templates(base.tensors)}
    others = {*templates(tuned.tensors)}
    if given != others and given.isdisjoint(others):
        yield "the chat template"
    if converted is not None:
        yield from converted.other_special_tokens()

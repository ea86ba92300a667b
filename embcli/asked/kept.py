"""Answers of transformers, kept in the cache folder, so that a second start asks nothing.

An answer is kept under a hash of all that it may depend on, and of the versions of the packages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import orjson

from embcli.asked.process import NotAskedError, answer, facts_in, why_not
from embcli.errors import Notes
from embcli.store import kept

_PACKAGES = ("transformers", "tokenizers", "sentencepiece", "protobuf")  # what reads the files
Made = TypeVar("Made")


def kept_answer(
    made: Callable[..., Made],
    described: Iterable[bytes],
    notes: Notes,
    about: str,
    remark: str = "",
    **question: Any,
) -> Made:
    """Return what `made` makes of the facts of an answer, the kept one or a new one.

    `described` is all that the answer depends on; a note is the remark on a new answer. Facts and
    refusals are kept; raises NotAskedError if there is no answer.
    """
    reason = why_not()
    if reason:
        raise NotAskedError(reason)
    digest = sha256(Path(__file__).with_name("child.py").read_bytes())
    digest.update(" ".join(_installed()).encode())
    for data in described:
        digest.update(f" {len(data)} ".encode())
        digest.update(data)

    def asked() -> bytes:
        if remark:
            notes.add(remark)
        return orjson.dumps(answer(about, **question))

    def parsed(data: bytes) -> Made:
        return made(**facts_in(orjson.loads(data)))

    return kept(f"{about}-{digest.hexdigest()[:32]}.npy", notes, parsed, asked)


def _installed() -> list[str]:
    """Return the names of the folders in which pip describes the packages, with their versions.

    importlib.metadata would take longer than all else that a kept answer takes.
    """
    spec = find_spec("transformers")
    origin = spec.origin if spec else None
    if origin is None:
        return []
    site = Path(origin).parents[1]
    return [path.name for path in site.glob("*.dist-info") if path.name.startswith(_PACKAGES)]

"""Calls of packages written in other languages, whose faults become a sentence about the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from embcli.binary import refused, shortened
from embcli.errors import InputError, lacks

_Value = TypeVar("_Value")
LOCK = RLock()  # special tokens and standard error are set for one call at a time


def package(path: Path, name: str, what: str) -> Any:
    """Import a package; raises InputError that `what`, the file's kind, needs it."""
    try:
        return import_module(name)
    except Exception as error:
        raise refused(path, lacks(what, "models", error)) from None


def guarded(path: Path, failure: str, function: Callable[[], _Value]) -> _Value:
    """Call a package; raises InputError for its errors and its panics, which are not Exceptions."""
    try:
        with LOCK, _silenced():
            return function()
    except (KeyboardInterrupt, SystemExit, MemoryError, InputError):
        raise
    except BaseException as error:
        raise refused(path, f"{failure} ({shortened(str(error)).strip(chr(39))})") from None


@contextmanager
def _silenced() -> Iterator[None]:
    """Discard standard error below Python: Rust writes a trace of its panics to it."""
    try:
        standard_error = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)

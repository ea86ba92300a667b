"""Questions to transformers, in a process of its own, and what was answered.

Starting it is slow, so one process answers all questions of this one. `EMBCLI_ASK=0` asks nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

import orjson

from embcli.errors import InputError, variable

# Starting the process takes 4 to 9 seconds of processor time, and 390 MB of memory.
SECONDS = 300  # of waiting for an answer, which takes a minute of processor time at most
_LONGEST = 1 << 28  # bytes of an answer, in which a tokenizer can have 50 MB
_LOCK = Lock()  # A question and its answer belong together.

Facts = dict[str, Any]


class NotAskedError(Exception):
    """There is no answer; the message is the reason, which is not in the files themselves."""


class RefusedError(InputError):
    """transformers cannot read the files; the message is its reason."""


def ask(about: str, **question: Any) -> Facts:
    """Return the facts that transformers knows; the question is one of those of `child`.

    Raises RefusedError if its reason is in the files, and NotAskedError if there is no answer.
    """
    return facts_in(answer(about, **question))


def answer(about: str, **question: Any) -> Facts:
    """Return the answer to a question: `facts`, or why the files are `refused`.

    Raises NotAskedError if there is none.
    """
    try:
        with _LOCK:
            found = _Child.living().answer({"about": about, **question})
    except OSError as error:
        raise NotAskedError(f"no process can be started ({error.strerror})") from None
    if "not_asked" in found:
        raise NotAskedError(found["not_asked"])
    return found


def facts_in(found: Facts) -> Facts:
    """Return the facts of an answer; raises RefusedError if it is a refusal."""
    if "refused" in found:
        raise RefusedError(found["refused"])
    facts: Facts = found["facts"]
    return facts


def why_not() -> str:
    """Return why nothing can be asked; empty if it can."""
    from importlib.util import find_spec

    if variable("EMBCLI_ASK", ("0", "1")) == "0":
        return "EMBCLI_ASK is 0"
    if sys.version_info < (3, 11):
        return "needs Python 3.11"
    if find_spec("transformers") is None:
        return "pip install 'embcli[transformers]'"
    return ""


class _Child:
    """A process that answers one question after the other, until it ends by itself."""

    _last: _Child | None = None

    def __init__(self) -> None:
        import subprocess

        # -I keeps the folder of the program, and what the environment adds, out of its modules.
        command = [sys.executable, "-I", str(Path(__file__).with_name("child.py"))]
        self._process = subprocess.Popen(  # noqa: S603 - It is this Python, and a file of embcli.
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "HF_HUB_OFFLINE": "1",
                "OMP_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false",
            },
        )
        atexit.register(self.end)
        self._answers: Queue[bytes] = Queue()
        Thread(target=self._read, daemon=True).start()
        self._send([path for path in map(str, sys.path) if not _is_here(path)])

    @classmethod
    def living(cls) -> _Child:
        child = cls._last
        if child is None or child._process.poll() is not None:
            child = cls()
            cls._last = child
        return child

    def answer(self, question: Facts) -> Facts:
        """Return the answer to a question; raises NotAskedError without one."""
        try:
            self._send(question)
            line = self._answers.get(timeout=SECONDS)
            found: Facts = orjson.loads(line)
        except BaseException as error:  # A late answer must not be taken for the next one.
            self.end()
            if isinstance(error, Empty):
                raise NotAskedError(f"no answer within {SECONDS} seconds") from None
            if isinstance(error, ValueError):
                raise NotAskedError("it ended without an answer") from None
            raise
        return found

    def _send(self, message: object) -> None:
        pipe = self._process.stdin
        with suppress(OSError):  # It has ended, which the other pipe tells.
            if pipe is not None:
                pipe.write(json.dumps(message).encode() + b"\n")
                pipe.flush()

    def _read(self) -> None:
        pipe = self._process.stdout
        line = b"\n"
        while pipe is not None and line.endswith(b"\n"):
            line = pipe.readline(_LONGEST)
            self._answers.put(line)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _is_here(path: str) -> bool:
    """Return whether a folder of modules is the current one, whose modules are anybody's."""
    return path == "" or os.path.realpath(path) == os.path.realpath(os.curdir)

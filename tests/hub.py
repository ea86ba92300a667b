"""A hub of models on this machine, as huggingface_hub 2.4 asks it, for tests of `hf://` names.

`Hub` serves the folders of models on two addresses of the loopback interface. The first one, the
hub, answers these requests:

- `GET /api/models/ORG/NAME` and `.../revision/REVISION`, with `?blobs=true`: the commit of the
  revision and the files with their sizes
- `GET /ORG/NAME/resolve/COMMIT/FILE`: a small file, or a redirect to the storage

The second one, the storage, is another host and has the weights and the tokenizers, of which it
gives ranges. Whatever is asked is kept in `Hub.asked`; `Hub.faults` make it misbehave.

huggingface_hub reads its environment when it is imported, so commands run in a child process, which
imports everything once: `Child` talks to it, and `main` is what this process does.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
LARGE = (".safetensors", ".gguf", ".bin", "tokenizer.json")  # what the storage has
SILENCE = 8.0  # seconds in which a silent server answers nothing, unless the hub is closed


@dataclass
class Asked:
    """A request, and what was sent to answer it."""

    host: str  # "hub" or "storage"
    method: str
    path: str
    range: str  # "" for none
    token: str
    sent: int = 0  # bytes of the body


@dataclass
class Fault:
    """What is wrong with the answers to some requests: those whose path has this part.

    The kind is a status, or `silent` (no answer), `slow` (a byte now and then), `cut` (half of the
    body), `whole` (a range is ignored), `other` (another range), a body in place of the right one,
    `away` (a redirect to where nobody listens), `again` (one to the same place), `nowhere` (one
    without a place), `trickle` (slow headers), `longer` (not as announced), `gated`, or a status
    with a phrase.
    """

    path: str
    kind: int | str
    host: str = "hub"
    times: int = 1000  # how often


@dataclass(frozen=True)
class Answer:
    """What a command line gave, and what it left behind."""

    status: int
    out: str
    err: str
    seconds: float
    threads: int  # beside the main one
    sockets: int  # once the session is closed
    parts: list[str]  # files of unfinished downloads


class Child:
    """A process that runs command lines and Python; `environment` is what it is imported with."""

    def __init__(self, home: Path, url: str, **environment: str) -> None:
        mine = {
            "HF_ENDPOINT": url,
            "HF_HOME": str(home / "hf"),
            "EMBCLI_ASK": "0",
            "EMBCLI_CACHE_DIR": str(home / "embcli"),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().endswith("_PROXY") and not name.startswith("HF_")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | mine | environment,
            text=True,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, *words: str, **environment: str) -> Answer:
        return Answer(**self._asked({"words": words, "environment": environment}))

    def python(self, code: str, **names: Any) -> str:
        """Run Python, where these names have values; return what it prints."""
        return self._asked({"code": code, "names": names})

    def _asked(self, request: dict[str, Any]) -> Any:
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass
class Hub:
    """A hub and its storage, which serve while this is a context."""

    home: Path  # the folder of the user: its Hugging Face cache, and that of embcli
    known: dict[str, Path]  # the folders of models by their names
    models: dict[str, Path] = field(default_factory=dict)  # those, and others of a test
    delay: float = 0.0  # seconds before each answer
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Hub:
        hub = type("HubHandler", (_Handler,), {"hub": self, "host": "hub"})
        storage = type("StorageHandler", (_Handler,), {"hub": self, "host": "storage"})
        self._servers = [_Server(("127.0.0.1", 0), hub), _Server(("127.0.0.2", 0), storage)]
        self.url, self.storage = (
            "http://{}:{}".format(*server.server_address) for server in self._servers
        )
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self.child = Child(self.home, self.url)
        return self

    def __exit__(self, *_: object) -> None:
        self.child.__exit__()
        self.closed.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def begin(self, *faults: Fault) -> None:
        """Forget what was asked, and what the user has in caches; these faults hold from now on."""
        shutil.rmtree(self.home / "hf", ignore_errors=True)
        shutil.rmtree(self.home / "embcli", ignore_errors=True)
        self.models = dict(self.known)
        self.delay = 0.0
        self.faults = [*faults]
        self.asked = []

    def commit(self, name: str) -> str:
        return hashlib.sha1(name.encode()).hexdigest()

    def snapshot(self, name: str) -> Path:
        """Return the folder of the model in the user's cache."""
        folder = f"models--{name.replace('/', '--')}"
        return self.home / "hf/hub" / folder / "snapshots" / self.commit(name)

    def ranges(self) -> list[Asked]:
        """Return the requests for ranges that the storage has answered."""
        return [asked for asked in self.asked if asked.host == "storage" and asked.range]

    def run(self, *words: str, **environment: str) -> Answer:
        """Run a command line in the child process."""
        return self.child.run(*words, **environment)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that leave early: they do as they should."""


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    hub: Hub
    host: str
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        range_ = self.headers.get("Range", "")
        token = self.headers.get("Authorization", "")
        self.asked = Asked(self.host, self.command, self.path, range_, token)
        self.hub.asked.append(self.asked)
        time.sleep(self.hub.delay)
        fault = self.fault()
        if fault == "silent":
            self.hub.closed.wait(SILENCE)
            self.close_connection = True
        elif fault == "away":
            self.send(b"", 302, {"Location": "http://127.0.0.1:9/"})
        elif fault == "again":
            self.send(b"", 302, {"Location": self.path})
        elif fault == "nowhere":
            self.send(b"", 302)
        elif fault == "longer":
            self.send(bytes(100))
        elif fault == "trickle":
            while not self.hub.closed.wait(0.1):
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif str(fault).startswith("418 "):
            self.send_response(418, fault[4:])
            self.end_headers()
            self.close_connection = True
        elif isinstance(fault, int):
            self.fail(fault)
        elif fault == "gated":
            self.fail(403, "GatedRepo")
        elif fault == "slow":
            self.begin(200, 1000, {})
            while not self.hub.closed.wait(0.1):
                self.wfile.write(b" ")
        elif fault.startswith(("<", "{")):
            self.send(fault.encode())
        elif self.host == "storage":
            self.give(Path(unquote(urlsplit(self.path).path)), fault)
        else:
            self.route(unquote(urlsplit(self.path).path), fault)

    def fault(self) -> int | str:
        for fault in self.hub.faults:
            if fault.host == self.host and fault.path in self.path and fault.times:
                fault.times -= 1
                return fault.kind
        return ""

    def route(self, path: str, fault: int | str) -> None:
        """Answer as the hub."""
        if about := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self.describe(about[1], about[2] or "main")
            return
        asked = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if asked is None or asked[1] not in self.hub.models:
            self.fail(401, "RepoNotFound")
            return
        file = self.hub.models[asked[1]] / asked[3]
        commit = self.hub.commit(asked[1])
        if asked[2] not in (commit, "main"):
            self.fail(404, "RevisionNotFound")
        elif not file.is_file():
            self.fail(404, "EntryNotFound")
        else:
            if file.name.endswith(LARGE):
                self.send(b"", 302, {"Location": f"{self.hub.storage}{file}?signature=1"})
            else:
                self.give(file, fault)

    def describe(self, name: str, revision: str) -> None:
        folder = self.hub.models.get(name)
        if folder is None:
            self.fail(401, "RepoNotFound")
        elif revision not in ("main", "v1", self.hub.commit(name)):
            self.fail(404, "RevisionNotFound")
        else:
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            siblings = [
                {"rfilename": file.relative_to(folder).as_posix(), "size": file.stat().st_size}
                for file in files
            ]
            about = {"id": name, "sha": self.hub.commit(name), "siblings": siblings}
            self.send(json.dumps(about).encode())

    def give(self, file: Path, fault: int | str) -> None:
        """Send a file or a range of it."""
        headers = {}
        size = file.stat().st_size
        first, last, status = 0, size - 1, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and fault != "whole":
            first = int(asked[1])
            last = min(int(asked[2] or last), last)
            if first >= size:
                self.fail(416)
                return
            if fault == "other":
                first += 1
                last += 1
            status = 206
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        with open(file, "rb") as stream:
            stream.seek(first)
            length = last - first + 1
            self.begin(status, length, headers)
            rest = length // 2 if fault == "cut" else length
            while rest:
                part = stream.read(min(rest, 1 << 16))
                self.wfile.write(part)
                self.asked.sent += len(part)
                rest -= len(part)
                if fault == "whole":
                    self.hub.closed.wait(0.02)  # Otherwise buffers on the way take all of it.
        if fault == "cut":
            self.close_connection = True

    def fail(self, status: int, code: str = "") -> None:
        self.send(b'{"error": "no"}', status, {"X-Error-Code": code})

    def send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.begin(status, len(body), headers or {})
        self.wfile.write(body)
        self.asked.sent = len(body)

    def begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()


# --- the child process ----------------------------------------------------------------------------


def main() -> None:
    """Answer the requests of standard input, a line each."""
    from embcli.hub import session

    session.PAUSE = 0
    # No address is https, and reading the system's certificates takes longer than most runs.
    ssl.create_default_context = functools.cache(ssl.create_default_context)
    answers = sys.stdout
    for line in sys.stdin:
        request = json.loads(line)
        answer = ran(**request) if "words" in request else printed(**request)
        print(json.dumps(answer), file=answers, flush=True)


def printed(code: str, names: dict[str, Any]) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, names)
    return output.getvalue()


def ran(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    from tests.runners import InProcess

    start = time.monotonic()
    found = InProcess()(*words, **environment)
    seconds = time.monotonic() - start
    answer = {"status": found.status, "out": found.text, "err": found.err, "seconds": seconds}
    return answer | left_behind()


def left_behind() -> dict[str, Any]:
    import huggingface_hub

    threads = threading.active_count() - 1
    huggingface_hub.close_session()
    home = Path(os.environ["HF_HOME"])
    return {
        "threads": threads,
        "sockets": sum(1 for _ in _sockets()),
        "parts": [str(path) for path in home.rglob("*.part")],
    }


def _sockets() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:"):
                yield target


if __name__ == "__main__":
    main()

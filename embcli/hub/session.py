"""Requests to the hub, through huggingface_hub's session, and the errors that explain its faults.

A request asks for what the hub knows of a model, for a small file, or for a range of a large one.
All of them end: `Session` limits the time, the bytes and the files of a model, and each request
may neither be silent nor slow for long. A fault that may be brief is followed by at most two more
tries.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, urlsplit

import httpx2
from huggingface_hub import close_session, constants, get_session, get_token
from huggingface_hub.file_download import REGEX_COMMIT_HASH

from embcli.binary import file_error
from embcli.errors import InputError
from embcli.hub.local import is_path_inside
from embcli.names import PROGRAM, __version__
from embcli.wording import in_bytes, load_facts

TIMEOUT = 5  # seconds of silence
PATIENCE = 8  # seconds, after which a slow answer is given up
_LEAST_SPEED = 1 << 14  # bytes per second of an answer that is not slow
# What all requests of a model may take, except those for rows, whose number the user has chosen.
_MOST = {"requests": 500, "bytes of settings": 32_000_000}
START = 30  # seconds of these requests, beside those for the bytes that the hub announces
_LONGEST_START = 180
_LONGEST = 1 << 27  # bytes of an answer; a header may have 100 MB
_LARGEST = 1 << 63  # bytes of a file
_MOST_REDIRECTS = 5
_MOST_TRIES = 3
PAUSE = 1  # seconds between them
_PARALLEL = 8  # requests at a time
_TICK = 0.25  # seconds between looks at the requests


@dataclass
class Request:
    """A file, a range of it, or the description of a model; and how far its answer has come."""

    name: str  # as errors name what is asked for
    url: str
    size: int | None  # of the answer; None: unknown, and it counts among the settings
    byte_range: range | None = None
    tries: int = 0
    start: float = math.inf  # of the last try, while it runs
    received: int = 0  # bytes
    host: str = ""  # who answers: redirects lead to others

    def check_speed(self) -> None:
        """Raise InputError for an answer that is slow, or whose headers are.

        The timeout of a read does not end what trickles.
        """
        seconds = time.monotonic() - self.start
        if seconds > PATIENCE and self.received < seconds * _LEAST_SPEED:
            raise file_error(
                self.name, f"{self.host} sends less than {in_bytes(_LEAST_SPEED)} per second"
            )


class Session:
    """The requests about one model, and what they may still take."""

    def __init__(self, model: str, repository: str) -> None:
        self.model = model  # hf://org/name, with the revision
        self.repository = repository
        self._most = {**_MOST, "seconds": START}
        self._spent = dict.fromkeys(self._most, 0.0)

    def described(self, revision: str | None) -> tuple[str, dict[str, int]]:
        """Return the commit of a revision, and the files with their sizes."""
        url = f"{constants.ENDPOINT}/api/models/{self.repository}"
        if revision is not None:
            url += f"/revision/{quote(revision, safe='')}"
        (answer,) = self.fetch([Request(self.model, f"{url}?blobs=true", None)])
        self.spend("bytes of settings", len(answer))
        try:
            return _description(answer)
        except Exception:  # values of any type can be in place of any
            raise file_error(
                self.model,
                f"{hub()} does not answer as a hub does",
                "HF_ENDPOINT can name another hub",
            ) from None

    def spend(self, what: str, amount: float) -> None:
        """Add to what the requests have taken; raises InputError if that is more than they may."""
        self._spent[what] += amount
        most = self._most[what]
        if self._spent[what] > most:
            raise file_error(self.model, f"its files take more than {most:,.0f} {what}")

    def fetch(self, requests: list[Request], *, are_rows: bool = False) -> Iterator[bytes]:
        """Yield the answers to requests, in order.

        Raises InputError, which names the file or the model, for a fault. The requests that are
        still running end then, because their connections are closed.
        """
        if not are_rows:
            self.spend("requests", len(requests))
            announced = sum(request.size or 0 for request in requests)
            seconds = self._most["seconds"] + announced // _LEAST_SPEED
            self._most["seconds"] = min(seconds, _LONGEST_START)
        is_interrupted = False
        pool = ThreadPoolExecutor(_PARALLEL)
        try:
            futures = [pool.submit(self._answer, request) for request in requests]
            for future in futures:
                while not future.done():
                    start = time.monotonic()
                    wait([future], _TICK)
                    for request in requests:
                        request.check_speed()
                    if not are_rows:
                        self.spend("seconds", time.monotonic() - start)
                yield future.result()
        except BaseException as error:
            is_interrupted = isinstance(error, KeyboardInterrupt)
            for request in requests:
                request.tries = _MOST_TRIES
            close_session()
            raise
        finally:
            pool.shutdown(wait=not is_interrupted, cancel_futures=True)

    def _answer(self, request: Request) -> bytes:
        """Return the answer to a request; raises InputError for any other answer."""
        while True:
            request.tries += 1
            request.received = 0
            request.start = time.monotonic()
            try:
                return self._sent(request)
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
                if request.tries >= _MOST_TRIES or not _is_brief(error):
                    raise self._explained(request, error) from None
            finally:
                request.start = math.inf
            time.sleep(PAUSE)

    def _sent(self, request: Request) -> bytes:
        """Send a request, and return the bytes of its answer.

        Raises HTTPError for a fault, and ValueError for an answer that is not what was announced.
        """
        headers = self._headers
        wanted = ""
        if request.byte_range is not None:
            wanted = f"bytes {request.byte_range.start}-{request.byte_range.stop - 1}"
            headers = {**headers, "Range": wanted.replace(" ", "=")}
        data = bytearray()
        with closing(_opened(request, headers)) as response:
            response.raise_for_status()
            given = response.headers.get("Content-Range", "the whole file")
            if request.byte_range is not None and not given.startswith(f"{wanted}/"):
                # Nothing is read of such an answer.
                raise ValueError(f"{request.host} sends {given} in place of {wanted}")
            most = min(request.size or _MOST["bytes of settings"], _LONGEST)
            for part in response.iter_raw():
                data += part
                request.received = len(data)
                if len(data) > most:
                    raise ValueError(f"{request.host} sends more than {in_bytes(most)}")
        if request.size not in (None, len(data)):
            raise ValueError(
                f"{request.host} sends {len(data):,} bytes in place of {request.size:,}"
            )
        return bytes(data)

    @cached_property
    def _headers(self) -> dict[str, str]:
        """The headers of all requests; those of huggingface_hub would ask the hub for more."""
        headers = {"User-Agent": f"{PROGRAM}/{__version__}", "Accept-Encoding": "identity"}
        token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _explained(self, request: Request, error: Exception) -> InputError:
        reason = "{cause}"
        cause = str(error)
        if isinstance(error, httpx2.HTTPStatusError):
            status = str(error.response.status_code)
            cause = f"{status} {error.response.reason_phrase}"
            by_status = _REFUSALS.get(status, "{host} answers {cause}")
            reason = _REFUSALS.get(error.response.headers.get("X-Error-Code", ""), by_status)
        elif isinstance(error, httpx2.TimeoutException):
            reason = "{host} did not answer within {timeout} seconds"
        elif isinstance(error, httpx2.HTTPError):
            reason = "the connection to {host} failed ({cause})"
        explained = reason.format(
            host=request.host,
            cause=cause,
            timeout=TIMEOUT,
            page=f"{constants.ENDPOINT}/{self.repository}",
        )
        return file_error(request.name, explained)


def _opened(request: Request, headers: dict[str, str]) -> httpx2.Response:
    """Send a request, and return its answer, of which only the headers have been read."""
    client = get_session()
    sent = client.build_request("GET", request.url, headers=headers, timeout=TIMEOUT)
    for _ in range(_MOST_REDIRECTS + 1):
        request.host = sent.url.host
        response = client.send(sent, stream=True, follow_redirects=False)
        if response.next_request is None:
            return response
        response.close()
        sent = response.next_request
    raise ValueError(f"{request.host} redirects, after {_MOST_REDIRECTS} other redirects")


def hub() -> str:
    """Return the host of the hub, which HF_ENDPOINT can name."""
    return urlsplit(constants.ENDPOINT).netloc or constants.ENDPOINT


def _description(answer: bytes) -> tuple[str, dict[str, int]]:
    """Return the commit and the sizes of files in the description of a model.

    A file is left out if its name leads out of a folder, or its size is unknown. Other faults raise
    errors of several classes.
    """
    description = json.loads(answer)
    commit = description["sha"]
    if not REGEX_COMMIT_HASH.fullmatch(commit):
        raise ValueError(commit)  # It would name a folder.
    sizes = {}
    for file in description["siblings"]:
        name = file["rfilename"]
        size = file.get("size")
        if isinstance(size, int) and 0 <= size < _LARGEST and is_path_inside(name):
            sizes[name] = size
    return commit, sizes


# --- faults ---------------------------------------------------------------------------------------

# What an answer says, by the hub's code of the error or by the status.
_REFUSALS = load_facts("hub.json")


def _is_brief(error: Exception) -> bool:
    """Return whether a fault may be gone at the next try; a silent host has had its time."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in (408, 429, 500, 502, 503, 504)
    return isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError)

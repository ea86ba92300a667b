"""Requests to the hub, through huggingface_hub's session, and the errors that explain its faults.

A request has a timeout, and a fault that may be brief is followed by at most two more tries. The
retries of huggingface_hub would take 23 seconds and hide the cause, so they are stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import constants, get_session, hf_hub_download, parse_hf_uri
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
)
from huggingface_hub.utils.tqdm import silent_tqdm

from embcli.errors import InputError
from embcli.names import PROGRAM, __version__

TIMEOUT = 5  # seconds
_MOST_TRIES = 3
PAUSE = 1  # seconds between them
_LATEST_TRY = 5  # seconds after the first one
_LOGIN = "hf auth login"

_Value = TypeVar("_Value")


# --- the session ----------------------------------------------------------------------------------

# The requests that a call of ours has sent. It is None in all other calls of huggingface_hub, which
# our hooks leave alone.
_SENT: ContextVar[set[tuple[str, str]] | None] = ContextVar("sent", default=None)


class _Stopped(Exception):
    """Ends a call at the first retry of huggingface_hub's."""


def _send_once(request: httpx2.Request) -> None:
    sent = _SENT.get()
    if sent is None:
        return
    key = (request.method, str(request.url))
    if key in sent:
        raise _Stopped
    sent.add(key)
    request.extensions["timeout"] = httpx2.Timeout(TIMEOUT).as_dict()


def _stop_at_fault(response: httpx2.Response) -> None:
    if _SENT.get() is None:
        return
    # hf_xet would fetch the file elsewhere, with threads and retries of its own.
    response.headers.pop(constants.HUGGINGFACE_HEADER_X_XET_HASH, None)
    if _is_brief_status(response.status_code):
        try:
            hf_raise_for_status(response)
        except HfHubHTTPError as error:
            raise _Stopped from error


def _is_not_ours(record: logging.LogRecord) -> bool:
    return _SENT.get() is None


def _session() -> httpx2.Client:
    """Return huggingface_hub's session, with our hooks; its log is silent for calls of ours."""
    session = get_session()
    hooks = session.event_hooks
    if _send_once not in hooks["request"]:
        hooks["request"].append(_send_once)
        hooks["response"].append(_stop_at_fault)
    for handler in logging.getLogger("huggingface_hub").handlers:
        handler.addFilter(_is_not_ours)
    return session


# --- requests -------------------------------------------------------------------------------------


def asked(name: str, call: Callable[[], _Value]) -> _Value:
    """Return what a call of huggingface_hub returns.

    Raises InputError, which names the file or the model, for its faults.
    """
    start = time.monotonic()
    for number in range(1, _MOST_TRIES + 1):
        token = _SENT.set(set())
        try:
            _session()
            return call()
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, _Stopped) as error:
            cause = _cause(error)
        except (ValueError, KeyError, TypeError) as error:
            cause = error  # The answer is not that of a hub.
        finally:
            _SENT.reset(token)
        is_late = time.monotonic() - start > _LATEST_TRY
        if is_late or number == _MOST_TRIES or not _is_brief(cause):
            break
        time.sleep(PAUSE)
    raise _explained(name, cause) from None


def download(model: str, file: str, commit: str, name: str) -> None:
    """Put a small file into the cache of huggingface_hub."""
    asked(name, lambda: hf_hub_download(model, file, revision=commit, tqdm_class=silent_tqdm))


def fetch(url: str, offset: int, length: int, size: int, name: str) -> bytes:
    """Return a range of a file of `size` bytes; raises InputError for any other answer."""
    place = f"{offset}-{offset + length - 1}"
    headers = build_hf_headers(library_name=PROGRAM, library_version=__version__)
    headers |= {"Range": f"bytes={place}", "Accept-Encoding": "identity"}

    def call() -> bytes:
        with _session().stream("GET", url, headers=headers, follow_redirects=True) as response:
            hf_raise_for_status(response)
            host = response.url.host
            # Nothing is read of an answer that is not this range.
            if response.status_code != 206:
                hint = f"hf download {parse_hf_uri(name).id} downloads it"
                raise _error(name, f"{host} ignores ranges, and would send the whole file", hint)
            given = response.headers.get("Content-Range")
            if given != f"bytes {place}/{size}":
                raise _error(name, f"{host} sends {given!r} of a file of {size:,} bytes")
            data = response.read()
        if len(data) != length:
            raise _error(name, f"{host} sends other bytes than it was asked for")
        return data

    return asked(name, call)


# --- faults ---------------------------------------------------------------------------------------


def hub() -> str:
    """Return the host of the hub, which HF_ENDPOINT can name."""
    return urlsplit(constants.ENDPOINT).netloc or constants.ENDPOINT


def _error(name: str, reason: str, hint: str = "") -> InputError:
    return InputError(f"cannot read {name!r}: {reason}", hint)


def _cause(error: Exception) -> BaseException:
    """Return the error behind those of huggingface_hub that hide it, and behind a stopped call."""
    cause: BaseException = error
    while isinstance(cause, _Stopped | FileNotFoundError):
        hidden = cause.__cause__ or cause.__context__
        if hidden is None:
            break
        cause = hidden
    return cause


def _is_brief_status(status: int) -> bool:
    return status in (408, 429) or status >= 500


def _is_brief(cause: BaseException) -> bool:
    """Return whether a fault may be gone at the next try; a silent host has had its time."""
    if isinstance(cause, HfHubHTTPError):
        return _is_brief_status(cause.response.status_code)
    return _is_cut(cause)


def _is_cut(cause: BaseException) -> bool:
    is_cut = isinstance(cause, httpx2.NetworkError | httpx2.RemoteProtocolError)
    return is_cut and not isinstance(cause, httpx2.ConnectError)


def _explained(name: str, cause: BaseException) -> InputError:
    if isinstance(cause, HfHubHTTPError):
        return _refused(name, cause)
    host = hub()
    if isinstance(cause, httpx2.TransportError):
        host = cause.request.url.host or host
    if isinstance(cause, ValueError | KeyError | TypeError):
        hint = "HF_ENDPOINT can name another hub"
        return _error(name, f"{host} does not answer as a hub does", hint)
    if isinstance(cause, OSError):
        return _error(name, str(cause)[:200])
    if isinstance(cause, _Stopped | httpx2.TimeoutException):
        return _error(name, f"{host} did not answer within {TIMEOUT} seconds")
    if _is_cut(cause):
        return _error(name, f"{host} cut the connection")
    return _error(name, f"no answer from {host} ({str(cause)[:200]})")


def _refused(name: str, error: HfHubHTTPError) -> InputError:
    """Return the error for an answer of the hub, whose status says what is wrong."""
    response = error.response
    host = response.url.host
    if isinstance(error, GatedRepoError):
        hint = f"Ask for it at {constants.ENDPOINT}/{parse_hf_uri(name).id}, then: {_LOGIN}"
        return _error(name, "its authors grant access to it, and you have none yet", hint)
    if isinstance(error, RevisionNotFoundError):
        return _error(name, "the model has no such revision")
    reasons = {
        401: f"no such model, or it needs access: {_LOGIN}",
        403: f"{host} forbids it to this user: {_LOGIN}",
        404: f"{host} has no such model or file",
        429: f"{host} has had too many requests (429); wait some minutes, or try {_LOGIN}",
    }
    status = response.status_code
    return _error(name, reasons.get(status, f"{host} answers {status} {response.reason_phrase}"))

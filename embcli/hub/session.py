"""Requests to the hub, through huggingface_hub's session, and the errors that explain its faults.

A request asks for what the hub knows of a model, for a small file, or for a range of a large one.
It ends: a host may neither be silent nor slow for long, and a fault that may be brief is followed
by at most two more tries.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx2
from huggingface_hub import constants, get_session, parse_hf_uri
from huggingface_hub.file_download import REGEX_COMMIT_HASH
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from embcli.errors import InputError
from embcli.names import PROGRAM, __version__
from embcli.wording import in_bytes

TIMEOUT = 5  # seconds of silence
PATIENCE = 8  # seconds, after which a slow answer is given up
_LEAST_SPEED = 1 << 14  # bytes per second of an answer that is not slow
_LONGEST = 1 << 27  # bytes of an answer; a header may have 100 MB
_MOST_TRIES = 3
PAUSE = 1  # seconds between them
_LATEST_TRY = 5  # seconds after the first one


def described(name: str, model: str, revision: str | None) -> tuple[str, dict[str, int]]:
    """Return the commit of a model's revision, and its files with their sizes."""
    url = f"{constants.ENDPOINT}/api/models/{model}"
    if revision is not None:
        url += f"/revision/{quote(revision, safe='')}"
    answer = get(name, f"{url}?blobs=true")
    sizes = {}
    try:
        description = json.loads(answer)
        for file in description["siblings"]:
            path = Path(file["rfilename"])
            size = file.get("size")
            if size is not None and not path.anchor and ".." not in path.parts:
                sizes[file["rfilename"]] = int(size)
        if REGEX_COMMIT_HASH.fullmatch(description["sha"]):
            return description["sha"], sizes
        raise ValueError(description["sha"])  # It would name a folder.
    except (ValueError, KeyError, TypeError, AttributeError):
        hint = "HF_ENDPOINT can name another hub"
        raise _error(name, f"{hub()} does not answer as a hub does", hint) from None


def get(name: str, url: str, byte_range: range | None = None) -> bytes:
    """Return the bytes at a URL, or a range of them.

    Raises InputError, which names the file or the model, for any other answer.
    """
    start = time.monotonic()
    tries = 0
    while True:
        tries += 1
        try:
            return _answer(url, byte_range)
        except httpx2.HTTPError as error:
            is_late = time.monotonic() - start > _LATEST_TRY
            if tries == _MOST_TRIES or is_late or not _is_brief(error):
                raise _explained(name, error) from None
        except (httpx2.InvalidURL, OSError, ValueError) as error:
            raise _error(name, str(error)[:200]) from None
        time.sleep(PAUSE)


def _answer(url: str, byte_range: range | None) -> bytes:
    """Send a request, and return the bytes of its answer.

    Raises HTTPError for a fault, and ValueError for an answer that is not the range.
    """
    headers = build_hf_headers(library_name=PROGRAM, library_version=__version__)
    headers["Accept-Encoding"] = "identity"
    wanted = ""
    if byte_range is not None:
        wanted = f"{byte_range.start}-{byte_range.stop - 1}"
        headers["Range"] = f"bytes={wanted}"
    request = get_session().stream(
        "GET", url, headers=headers, timeout=TIMEOUT, follow_redirects=True
    )
    with request as response:
        response.raise_for_status()
        host = response.url.host
        given = response.headers.get("Content-Range", "the whole file")[:80]
        if byte_range is not None and not given.startswith(f"bytes {wanted}/"):
            # Nothing is read of such an answer.
            raise ValueError(f"{host} sends {given} in place of bytes {wanted}")
        data = _body(response)
    if byte_range is not None and len(data) != len(byte_range):
        raise ValueError(f"{host} sends {len(data):,} bytes in place of bytes {wanted}")
    return data


def _body(response: httpx2.Response) -> bytes:
    """Return the bytes of an answer; raises ValueError if it is too long, or slow.

    A timeout is for each read, and does not end an answer that trickles.
    """
    host = response.url.host
    start = time.monotonic()
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        seconds = time.monotonic() - start
        if len(data) > _LONGEST:
            raise ValueError(f"{host} sends more than {in_bytes(_LONGEST)}")
        if seconds > PATIENCE and len(data) < seconds * _LEAST_SPEED:
            speed = f"{in_bytes(_LEAST_SPEED)} per second"
            raise ValueError(f"{host} sends less than {speed}")
    return bytes(data)


# --- faults ---------------------------------------------------------------------------------------

_LOGIN = "hf auth login"
# What an answer says, by the hub's code of the error or by the status.
_REFUSALS = {
    "GatedRepo": "its authors grant access to it, and you have none yet",
    "RevisionNotFound": "the model has no such revision",
    "401": f"no such model, or it needs access: {_LOGIN}",
    "403": f"{{host}} forbids it to this user: {_LOGIN}",
    "404": "{host} has no such model or file",
    "429": f"{{host}} has had too many requests (429); wait some minutes, or try {_LOGIN}",
}


def hub() -> str:
    """Return the host of the hub, which HF_ENDPOINT can name."""
    return urlsplit(constants.ENDPOINT).netloc or constants.ENDPOINT


def _error(name: str, reason: str, hint: str = "") -> InputError:
    return InputError(f"cannot read {name!r}: {reason}", hint)


def _is_brief(error: httpx2.HTTPError) -> bool:
    """Return whether a fault may be gone at the next try; a silent host has had its time."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in (408, 429, 500, 502, 503, 504)
    return isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError)


def _explained(name: str, error: httpx2.HTTPError) -> InputError:
    host = error.request.url.host
    if isinstance(error, httpx2.TimeoutException):
        return _error(name, f"{host} did not answer within {TIMEOUT} seconds")
    if not isinstance(error, httpx2.HTTPStatusError):
        cause = str(error)[:200]
        return _error(name, f"the connection to {host} failed ({cause})")
    response = error.response
    status = str(response.status_code)
    code = response.headers.get("X-Error-Code", "")
    default = f"{{host}} answers {status} {response.reason_phrase}"
    reason = _REFUSALS.get(code) or _REFUSALS.get(status, default)
    hint = ""
    if code == "GatedRepo":
        page = f"{constants.ENDPOINT}/{parse_hf_uri(name).id}"
        hint = f"Ask for it at {page}, then: {_LOGIN}"
    return _error(name, reason.format(host=host), hint)

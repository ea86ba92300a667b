"""Models that are not on this machine: `hf://org/name[@revision][/file]`.

This is the only part of embcli that uses the network, and only for names that begin with `hf://`.
`remote_files` has the files of a model at one commit as if they were on disk, and `session` sends
requests through huggingface_hub's session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.binary import Binary
from embcli.errors import InputError, Notes, missing_extra
from embcli.hub.local import OF_TOKENIZER, OF_WEIGHTS, Preference, snapshot, with_organisation
from embcli.wording import in_bytes

if TYPE_CHECKING:
    from huggingface_hub import HfUri

PREFIX = "hf://"
_FORM = "hf://org/name[@revision][/file]"


def tokenizer(name: str, notes: Notes) -> Binary:
    """Return the file of a model's tokenizer, which is in the cache now unless it is a GGUF."""
    binary = opened(name, notes, OF_TOKENIZER)
    if binary.is_remote and binary.path.suffix != ".gguf":
        raise binary.file_error(f"it is not a tokenizer: it has {in_bytes(binary.size)}")
    return binary


def opened(name: str, notes: Notes, preference: Preference = OF_WEIGHTS) -> Binary:
    """Open a file of a model, whose name begins with `hf://`: the preferred one if it names none.

    With HF_HUB_OFFLINE, the local cache is all there is.
    """
    uri = _parsed(name)
    path = uri.path_in_repo
    from huggingface_hub.constants import is_offline_mode

    if is_offline_mode():
        folder = snapshot(f"{uri.id}@{uri.revision or 'main'}")
        return Binary(folder / path if path else preference.file_of_model(folder))
    from embcli.hub.remote_files import RemoteFolder

    return RemoteFolder.of_model(uri, notes).found(path, preference)


def _parsed(name: str) -> HfUri:
    """Return the parts of a name; raises InputError for what is not the name of a model."""
    try:
        from huggingface_hub import parse_hf_uri
        from huggingface_hub.errors import HfUriError

        import embcli.hub.remote_files  # noqa: F401 - Older versions have another HTTP client.
    except ImportError as error:
        raise InputError(missing_extra(PREFIX, "models", error)) from None

    try:
        uri = parse_hf_uri(name)
    except HfUriError as error:
        model, _, _ = name.removeprefix(PREFIX).partition("@")
        if not model or "/" in model:
            raise InputError(f"{name!r} is not like {_FORM}: {error.msg}") from None
        full_name = with_organisation(model)
        hint = full_name and f"did you mean {PREFIX}{full_name}?"
        raise InputError(f"{name!r} names no organisation, as in {_FORM}", hint) from None
    if uri.type != "model":
        raise InputError(f"{name!r} is a {uri.type}; embcli reads models, {_FORM}")
    return uri

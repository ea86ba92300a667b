"""Models that are not on this machine: `hf://org/name[@revision][/file]`.

This is the only part of embcli that uses the network, and only for names that begin with `hf://`.
`files` has the files of a model at one commit as if they were on disk, and `session` sends requests
through huggingface_hub's session. Small files go into the cache of huggingface_hub, so the rest of
embcli reads them as those of a local folder.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from embcli.binary import Binary, quoted
from embcli.errors import InputError, Notes, missing_extra
from embcli.hub import located, model_file, tokenizer_file
from embcli.wording import in_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from huggingface_hub import HfUri

PREFIX = "hf://"
# The organisations of models whose names had none before; the beginnings of these names.
_ORGANISATIONS = {
    "bert-": "google-bert",
    "distil": "distilbert",
    "gpt2": "openai-community",
    "roberta-": "FacebookAI",
    "t5-": "google-t5",
    "xlm-": "FacebookAI",
}


def weights(name: str, notes: Notes) -> Binary:
    """Return the file with the weights of a model, which `hf://` begins."""
    uri = _parsed(name)
    if _is_offline():
        return Binary(_cached_file(uri, model_file))
    from embcli.remote.files import Repository

    repository = Repository(uri.id, uri.revision, notes)
    file = repository.weights_file(uri.path_in_repo)
    # The file itself is brought if it is an index.
    configs = ("config.json", "adapter_config.json")
    repository.bring([file, *(str(PurePosixPath(file).with_name(name)) for name in configs)])
    return repository.open(file)


def tokenizer(name: str, notes: Notes) -> Binary:
    """Return the file of a model's tokenizer, which is in the cache now unless it is a GGUF."""
    uri = _parsed(name)
    if _is_offline():
        return Binary(_cached_file(uri, tokenizer_file))
    from embcli.remote.files import Repository

    repository = Repository(uri.id, uri.revision, notes)
    file = repository.tokenizer_file(uri.path_in_repo)
    repository.bring_tokenizer(file)
    binary = repository.open(file)
    if binary.is_remote and not file.endswith(".gguf"):
        raise binary.file_error(f"it is not a tokenizer: it has {in_bytes(binary.size)}")
    return binary


def _parsed(name: str) -> HfUri:
    """Return the parts of a name; raises InputError for what is not the name of a model."""
    try:
        from huggingface_hub import parse_hf_uri
        from huggingface_hub.errors import HfUriError

        import embcli.remote.files  # noqa: F401 - Older versions have another HTTP client.
    except ImportError as error:
        raise InputError(missing_extra(PREFIX, "models", error)) from None

    form = "hf://org/name[@revision][/file]"
    try:
        uri = parse_hf_uri(name)
    except HfUriError as error:
        model = re.fullmatch(rf"{PREFIX}(?:models/)?([\w.-]+)(@.*)?", name)
        if model is None:
            raise InputError(f"{quoted(name)} is not like {form}: {error.msg}") from None
        hint = ""
        for beginning, organisation in _ORGANISATIONS.items():
            if model[1].startswith(beginning):
                hint = f"did you mean {PREFIX}{organisation}/{model[1]}?"
        raise InputError(f"{quoted(name)} names no organisation, as in {form}", hint) from None
    if uri.type != "model":
        raise InputError(f"{quoted(name)} is a {uri.type}; embcli reads models, {form}")
    return uri


def _is_offline() -> bool:
    from huggingface_hub.constants import is_offline_mode

    return is_offline_mode()


def _cached_file(uri: HfUri, file_of: Callable[[Path], Path]) -> Path:
    """Return a file of the local cache, which is all there is with HF_HUB_OFFLINE."""
    model = f"{uri.id}@{uri.revision or 'main'}"
    if not uri.path_in_repo:
        return located(model, file_of)
    return located(model, lambda folder: folder / uri.path_in_repo)

"""Encodings convert text to token IDs and token IDs to bytes.

`get` finds one by its name, by a model or by a path; the other functions find the encoding of the
rows of a layer. A dialect is imported when the first encoding needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from embcli.binary import Binary
from embcli.encodings.encoding import Encoding
from embcli.encodings.tiktoken import (
    DEFINITIONS,
    RankFileEncoding,
    TiktokenEncoding,
    import_tiktoken,
)
from embcli.errors import InputError, Notes, missing_extra
from embcli.wording import Sentence

__all__ = [
    "Encoding",
    "encoding_for_rows",
    "encoding_of_file",
    "encoding_of_size",
    "get",
    "get_several",
    "tokenizer_beside",
]

_MOST_NAMED = 100


def get(named: str | Path, notes: Notes | None = None) -> Encoding:
    """Return the encoding with this name or of this model, which can be a path of a file or folder.

    Remarks on what is read over the network for a name that begins with `hf://` go to the notes.

    >>> get("gpt-4o").name
    'o200k_base'
    """
    name = str(named)
    if name in DEFINITIONS:
        return _of_tiktoken(name)
    from embcli import remote
    from embcli.hub import OLLAMA, located, tokenizer_file

    if name.startswith(remote.PREFIX):
        from embcli.encodings.gguf import gguf_encoding

        binary = remote.tokenizer(name, notes or Notes())
        return gguf_encoding(binary, name) if binary.is_remote else _of_path(binary.path, name)
    suffixes = (".json", ".gguf", ".tiktoken", ".model", ".txt")
    if "/" in name or name.endswith(suffixes) or name.startswith(OLLAMA):
        return _of_path(located(name, tokenizer_file), name)
    models = import_tiktoken("tiktoken.model")
    try:
        return _of_tiktoken(models.encoding_name_for_model(name))
    except KeyError:
        with suppress(InputError):
            return _of_path(located(name, tokenizer_file), name)
        if name.lower() in DEFINITIONS:
            return _of_tiktoken(name.lower())
        raise _unknown_error(name, [*DEFINITIONS, *models.MODEL_TO_ENCODING]) from None


def get_several(names: str | Path | Iterable[str | Path]) -> tuple[Encoding, ...]:
    """Return the encodings with these names.

    Raises InputError for none, for too many, and for one that is named twice.
    """
    given = [names] if isinstance(names, str | Path) else names
    encodings = tuple(map(get, given))
    if not 1 <= len(encodings) <= _MOST_NAMED:
        wrong = "{encoding} must name from 1 to {most} tokenizers, not {count:,}"
        raise InputError(Sentence(wrong, most=_MOST_NAMED, count=len(encodings)))
    found: list[str] = []
    for encoding in encodings:
        if encoding.name in found:
            wrong = "{encoding} names {twice} twice; give each tokenizer once"
            raise InputError(Sentence(wrong, twice=encoding.name))
        found.append(encoding.name)
    return encodings


@lru_cache
def _of_tiktoken(name: str) -> Encoding:
    return TiktokenEncoding(name)


def _unknown_error(name: str, known: list[str]) -> InputError:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), dict.fromkeys(known), n=3, cutoff=0.5)
    hint = f"encodings are {', '.join(DEFINITIONS)}"
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    return InputError(f"no encoding or model is named {name[:60]!r}; {hint}")


def _of_path(path: Path, name: str) -> Encoding:
    """Return the encoding of a file, which is opened anew if the file has changed."""
    version = (path.absolute(), 0, 0)
    with suppress(OSError):  # The error of a file that is gone is raised by its reader.
        status = path.stat()
        version = (path.absolute(), status.st_mtime_ns, status.st_size)
    return _of_version(path, name, version)


@lru_cache  # Freeing a large tokenizer takes a tenth of the time of loading it.
def _of_version(path: Path, name: str, version: tuple[Path, int, int]) -> Encoding:
    """Return the encoding of a file, whose first bytes or name say of which dialect it is."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(4) == b"GGUF":
            from embcli.encodings.gguf import gguf_encoding

            return gguf_encoding(Binary(path), name)
    if path.suffix == ".tiktoken" or path.name == "tekken.json":
        return RankFileEncoding(path, name)
    if path.suffix == ".model":
        from embcli.encodings.sentencepiece import SentencePieceEncoding

        return SentencePieceEncoding(path, name)
    from embcli.encodings.huggingface import HuggingFaceEncoding

    return HuggingFaceEncoding(path, name)


def encoding_for_rows(encoding: Encoding, size: int) -> Encoding | None:
    """Return the encoding if the rows of a layer are its tokens: if V is the same."""
    return encoding if size == encoding.vocabulary_size else None


def encoding_of_size(size: int) -> Encoding | None:
    for name, definition in DEFINITIONS.items():
        if definition.vocabulary_size == size:
            return get(name)
    return None


def encoding_of_file(weights: Binary, stored: Encoding | None, notes: Notes) -> Encoding | None:
    """Return the encoding of the rows of a checkpoint.

    It is that of a tokenizer in the same folder, unless the tokens in the file, which `stored` has,
    split a text themselves. A tokenizer that cannot be read is noted.
    """
    if stored is not None and stored.splits:
        return stored
    try:
        return tokenizer_beside(weights, stored, notes)
    except InputError as error:
        notes.add(f"{error}; it is ignored")
        return stored


def tokenizer_beside(weights: Binary, stored: Encoding | None, notes: Notes) -> Encoding | None:
    """Return the encoding of a tokenizer in the same folder; `stored` if there is none.

    Raises InputError for a tokenizer that cannot be read.
    """
    from embcli.hub import TOKENIZERS, tokenizer_file

    try:
        path = tokenizer_file(weights.path.parent, TOKENIZERS)
    except InputError:
        return stored
    packages = {".json": "tokenizers", ".txt": "tokenizers", ".model": "sentencepiece"}
    package = packages.get(path.suffix)
    if package and path.name != "tekken.json" and find_spec(package) is None:
        notes.add(missing_extra(f"the {path.name} beside the weights", "models"))
        return stored
    encoding = _of_path(path, weights.folder.location(path.name))
    return encoding if encoding.vocabulary_size > 0 else stored

"""Encodings convert text to token IDs and token IDs to bytes.

`get` finds one by its name, by a model or by a path; the other functions find the encoding of the
rows of a layer. A dialect is imported when the first encoding needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.binary import Binary, file_error
from embcli.encodings.encoding import (
    Encoding,
    OwnWords,
    UnknownTokenizerError,
    sibling_json,
)
from embcli.encodings.kinds import (
    DESCRIBED,
    SUFFIXES,
    Kind,
    added_ids,
    is_described,
    is_plain_class,
    kind_of,
    named_specials,
)
from embcli.encodings.tiktoken import (
    DEFINITIONS,
    RankFileEncoding,
    TiktokenEncoding,
    import_tiktoken,
)
from embcli.errors import InputError, Notes, RangeError
from embcli.names import MADE_FROM_TEXT
from embcli.wording import Sentence, load_facts, nearest

if TYPE_CHECKING:
    from embcli.asked.folder import AskedTokenizer

__all__ = [
    "Encoding",
    "encoding_of_size",
    "get",
    "get_several",
    "tokenizer_beside",
]


def get(name_or_path: str | Path, notes: Notes | None = None) -> Encoding:
    """Return the encoding with this name or of this model, which can be a path of a file or folder.

    Remarks on what is read over the network for a name that begins with `hf://`, and on what
    transformers is asked, go to the notes.

    >>> get("gpt-4o").name
    'o200k_base'
    """
    name = str(name_or_path)
    remarks = notes or Notes()
    if name.lower() in DEFINITIONS:
        return _of_tiktoken(name.lower())
    from embcli.hub.local import OF_TOKENIZER, located

    scheme, colon, _ = name.partition(":")
    if colon and scheme in ("hf", *MADE_FROM_TEXT):
        return _of_scheme(name, remarks)
    if "/" in name or name.endswith(tuple(SUFFIXES)):
        return _of_path(located(name, OF_TOKENIZER), name, remarks)
    models = import_tiktoken("tiktoken.model")
    with suppress(KeyError):
        return _of_tiktoken(models.encoding_name_for_model(name))
    try:
        path = located(name, OF_TOKENIZER)
    except InputError:
        raise _unknown_error(name, [*DEFINITIONS, *models.MODEL_TO_ENCODING]) from None
    return _of_path(path, name, remarks)


def _of_scheme(name: str, notes: Notes) -> Encoding:
    """Return the encoding that is made from a text, or that of a model on the hub."""
    if not name.startswith("hf:"):
        from embcli.encodings.learned import made_from_text

        return made_from_text(name, notes)
    from embcli.encodings.gguf.vocabulary import gguf_encoding
    from embcli.hub.remote import tokenizer

    binary = tokenizer(name, notes)
    return gguf_encoding(binary, name) if binary.is_remote else _of_path(binary.path, name, notes)


def get_several(names: str | Path | Iterable[str | Path], notes: Notes) -> tuple[Encoding, ...]:
    """Return the encodings with these names; remarks go to the notes.

    Raises InputError for none, and for one that is named twice.
    """
    given = [names] if isinstance(names, str | Path) else names
    encodings = tuple(get(name, notes) for name in given)
    if not encodings:
        raise InputError(Sentence("{encoding} must name a tokenizer"))
    found = [encoding.name for encoding in encodings]
    for name in found:
        if found.count(name) > 1:
            raise InputError("{encoding} names {twice} twice; give each tokenizer once", twice=name)
    return encodings


_of_tiktoken = lru_cache(TiktokenEncoding)


def _unknown_error(name: str, known: list[str]) -> RangeError:
    cure = f"encodings are {', '.join([*DEFINITIONS, *MADE_FROM_TEXT.values()])}"
    near = nearest(name, known)
    if near:
        cure = f"did you mean {near}?"
    for row in load_facts("not_encodings.json"):
        if name.lower().startswith(tuple(row["names"])):
            cure = row["cure"]
    wrong = "no encoding or model is named {given!r}; {cure}"
    return RangeError(wrong, given=name[:60], cure=Sentence(cure))


# What is said of a file by which alone nobody knows what its model makes of it.
_ALONE = {
    "SentencePiece": "a model can shift its IDs",
    "vocab.json": "it is read as GPT-2's",
    "vocab.txt": "it is read as BERT's, in lower case",
}


def _of_path(path: Path, name: str, notes: Notes) -> Encoding:
    """Return the encoding of a file: as transformers reads its folder, if that says more of it."""
    kind = kind_of(path)
    if kind in DESCRIBED and is_described(path):
        return _of_folder(path, name, kind, notes)
    if kind == "ranks" and path.stem not in DEFINITIONS and not added_ids(path):
        notes.add(f"{path.name} has the ranks of tokens; its special tokens are unknown")
    if kind in _ALONE:
        notes.add(f"no config.json beside {path.name} says more of it: {_ALONE[kind]}")
    return _by_itself(path, name, kind)


def _of_folder(path: Path, name: str, kind: Kind, notes: Notes) -> Encoding:
    """Return the encoding of a folder's tokenizer as transformers reads it.

    A file is read by itself if its class leaves it as it is and it adds all tokens that the files
    beside it name, or if transformers reads another file of the folder; a tokenizer.json is read by
    itself, too, if transformers has no answer.
    """
    from embcli.hub.local import OF_TOKENIZER

    if kind == "tokenizer.json" and is_plain_class(path):
        encoding = _by_itself(path, name, kind)
        named = {special.name for special in named_specials(path)}
        if named.issubset(encoding.added.values()):
            return encoding
    preferred = ""
    with suppress(InputError):
        preferred = OF_TOKENIZER.file_in(path.parent).name
    if preferred != path.name:
        notes.add(f"{path.name} is read by itself; transformers reads {preferred} of its folder")
        return _by_itself(path, name, kind)

    from embcli.asked.folder import tokenizer_of
    from embcli.asked.process import NotAskedError, RefusedError

    failure = InputError
    try:
        return _of_asked(path, name, tokenizer_of(path.parent, notes))
    except NotAskedError as error:
        failure = UnknownTokenizerError
        reason = f"transformers has no answer about its class: {error}"
    except RefusedError as error:
        reason = f"transformers cannot read it: {error}"
    if kind != "tokenizer.json":
        raise failure(file_error(path, reason).message)
    notes.add(f"{path.name} is read as it is: {reason}")
    return _by_itself(path, name, kind)


def _by_itself(path: Path, name: str, kind: Kind) -> Encoding:
    """Return the encoding of a file, which is opened anew if the file has changed."""
    status = path.stat()
    version = (path.absolute(), status.st_mtime_ns, status.st_size)
    return _of_version(path, name, kind, version)


@lru_cache  # Freeing a large tokenizer takes a tenth of the time of loading it.
def _of_version(path: Path, name: str, kind: Kind, version: tuple[Path, int, int]) -> Encoding:
    match kind:
        case "GGUF":
            from embcli.encodings.gguf.vocabulary import gguf_encoding

            return gguf_encoding(Binary(path), name)
        case "ranks" | "tekken.json":
            return RankFileEncoding(path, name)
        case "SentencePiece":
            from embcli.encodings.sentencepiece import SentencePieceEncoding

            return SentencePieceEncoding(path, name)
        case "tokenizer.json" | "vocab.json" | "vocab.txt":
            from embcli.encodings.huggingface import READERS, HuggingFaceEncoding

            return HuggingFaceEncoding(path, name, partial(READERS[kind], path))
        case "tokenizer_config.json":
            raise file_error(path, "it has no vocabulary")


@lru_cache
def _of_asked(path: Path, name: str, asked: AskedTokenizer) -> Encoding:
    """Return the encoding of a folder, as transformers reads it."""
    if asked.described is None:
        from embcli.encodings.asked import AskedEncoding

        return AskedEncoding(path, name, asked)
    from embcli.encodings.huggingface import HuggingFaceEncoding, read_tokenizer

    read = partial(read_tokenizer, path, asked.described)
    return HuggingFaceEncoding(path, name, read, asked)


def encoding_of_size(size: int) -> Encoding | None:
    for name, definition in DEFINITIONS.items():
        if definition.vocabulary_size == size:
            return get(name)
    return None


def tokenizer_beside(weights: Binary, stored: Encoding | None, notes: Notes) -> Encoding | None:
    """Return the encoding of the rows of a checkpoint.

    It is that of a tokenizer in the same folder, unless the tokens in the file, which `stored` has,
    split a text themselves. Raises InputError for a tokenizer that cannot be read.
    """
    from embcli.hub.local import OF_TOKENIZER, TOKENIZERS

    if stored is not None and stored.splits:
        return stored
    words = sibling_json(weights.path, "whitespacetokenizer_config.json").get("vocab")
    if isinstance(words, list):  # WordEmbeddings of Sentence Transformers
        notes.add("Sentence Transformers leaves out stop words of a text; embcli does not")
        encoding = OwnWords(weights.path, [str(word).encode(errors="replace") for word in words])
        encoding.special_ids = {"pad": 0}
        return encoding
    try:
        path = OF_TOKENIZER._replace(patterns=TOKENIZERS).file_in(weights.path.parent)
    except InputError:
        return stored
    known = _of_path(path, weights.folder.location(path.name), notes)
    return known if known.vocabulary_size > 0 else stored

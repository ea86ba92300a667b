"""The files of a model on the hub, behind the interface of files on disk.

A model is read at one commit. Its small files go into the local cache, so that the rest of embcli
finds them beside the weights. Ranges of the weights are read by requests, and stay in memory; the
first bytes of a file, its header, are kept for later runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from huggingface_hub import HfUri, constants, hf_hub_url, parse_hf_uri
from huggingface_hub.file_download import repo_folder_name

from embcli.atomic import replacing
from embcli.binary import LONGEST_LOAD, Binary, Folder, quoted
from embcli.errors import InputError, Notes
from embcli.hub import TOKENIZERS, module_folders, preferred
from embcli.remote import session
from embcli.store import Store
from embcli.wording import in_bytes

_PARALLEL = 8  # requests at a time
_SMALL = 50_000_000  # bytes; longer files are not downloaded
_BROUGHT = (".json", ".jinja", ".txt", ".model", ".tiktoken")  # suffixes of files that are
_FIRST = 1 << 17  # bytes of the first request, which hold most headers
_GAP = 1 << 14  # bytes between ranges that are read faster than another request is answered
_PART = 1 << 23  # bytes of a request for a part of a matrix
# Files that are read beside the weights or a tokenizer.
_COMPANIONS = (
    "config.json",
    "adapter_config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)


@dataclass(frozen=True)
class RemoteFolder(Folder):
    """A folder of a model at one commit; `path` is the same folder of the local cache."""

    name: str  # as a user names it
    model: str
    commit: str
    sizes: dict[str, int]  # of the files in it, by their paths from here
    notes: Notes
    prefix: str = ""  # the path of the folder in the model

    @classmethod
    def of_model(cls, uri: HfUri, notes: Notes) -> RemoteFolder:
        """Return the folder of a model, whose revision becomes a commit once, here.

        Raises InputError if the hub does not answer, or has no such model or revision.
        """
        name = f"hf://{uri.id}"
        if uri.revision is not None:
            name += f"@{uri.revision}"
        commit, sizes = session.described(name, uri.id, uri.revision)
        notes.add(f"reading {name} over the network: commit {commit[:7]} at {session.hub()}")
        model_folder = repo_folder_name(repo_id=uri.id, repo_type="model")
        path = Path(constants.HF_HUB_CACHE) / model_folder / "snapshots" / commit
        return cls(path, name, uri.id, commit, sizes, notes)

    def inside(self, name: str) -> RemoteFolder:
        """Return a folder of this folder; an empty name is that of the folder itself."""
        if not name:
            return self
        sizes = {}
        for file, size in self.sizes.items():
            if file.startswith(f"{name}/"):
                sizes[file.removeprefix(f"{name}/")] = size
        return replace(
            self,
            path=self.path / name,
            name=self.location(name),
            sizes=sizes,
            prefix=f"{self.prefix}{name}/",
        )

    def found(self, path: str, patterns: tuple[str, ...], lack: str) -> Binary:
        """Open the file at a path, or the preferred one of a folder; `lack` says what is missing.

        First, what is read beside it is brought, and so is the file unless it has weights.
        """
        parent, _, name = path.rpartition("/")
        folder = self.inside(parent)
        if name not in folder.sizes:
            folder = self.inside(path)
            if not folder.sizes:
                raise InputError(f"{self.name!r} has no file {quoted(path)}")
            folder, name = folder._preferred(patterns, lack)

        names = [*_COMPANIONS, name]
        with suppress(InputError):  # The model may have no tokenizer.
            names.append(preferred(folder._names, TOKENIZERS, folder.name, ""))
        if "vocab.json" in names:
            names.append("merges.txt")
        folder.bring(names)
        return folder.open(name)

    def _preferred(self, patterns: tuple[str, ...], lack: str) -> tuple[RemoteFolder, str]:
        """Return the preferred file of this folder, or of one that a modules.json names."""
        try:
            return self, preferred(self._names, patterns, self.name, lack)
        except InputError:
            self.bring(["modules.json"])
            for module in filter(None, module_folders(self.path)):
                with suppress(InputError):
                    return self.inside(module)._preferred(patterns, lack)
            raise

    @property
    def _names(self) -> list[str]:
        return [file for file in self.sizes if "/" not in file]

    def location(self, name: str) -> str:
        return f"{self.name}/{name}"

    def has(self, name: str) -> bool:
        return name in self.sizes

    def open(self, name: str) -> Binary:
        """Open a file: in the local cache, if it has it, and otherwise over the network."""
        path = self.path / name
        return Binary(path, self) if path.is_file() else RemoteBinary(self, name)

    def bring(self, names: Iterable[str]) -> None:
        """Put those of these files that exist into the local cache; weights stay where they are."""
        missing = []
        for name in dict.fromkeys(names):
            is_small = self.sizes.get(name, _SMALL) < _SMALL and name.endswith(_BROUGHT)
            if is_small and not (self.path / name).is_file():
                missing.append(name)
        if not missing:
            return
        files = ", ".join(f"{self.prefix}{name}" for name in missing)
        size = in_bytes(sum(self.sizes[name] for name in missing))
        self.notes.add(f"downloading {files} ({size}) into the Hugging Face cache")
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(self._download, missing))

    def _download(self, name: str) -> None:
        """Put a file into the cache of huggingface_hub, as it is where links are not supported.

        hf_hub_download would take 23 seconds for an error of the hub, and hide its cause.
        """
        data = session.get(self.location(name), self.url(name), self.sizes[name])
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(data)
        except OSError as error:
            raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from None

    def url(self, name: str) -> str:
        return hf_hub_url(self.model, f"{self.prefix}{name}", revision=self.commit)


class _Piece(NamedTuple):
    """Bytes of a file that are in memory."""

    start: int
    data: bytes

    def part(self, place: range) -> bytes | None:
        """Return a range, or None if it is not all here."""
        start = place.start - self.start
        stop = place.stop - self.start
        return self.data[start:stop] if 0 <= start <= stop <= len(self.data) else None


class RemoteBinary(Binary):
    """A file on the hub at one commit; several threads can read it."""

    is_remote = True

    def __init__(self, folder: RemoteFolder, name: str) -> None:
        self.path = folder.path / name  # where its siblings are, once they are downloaded
        self.folder = folder
        self.name = folder.location(name)
        self.size = folder.sizes[name]
        self._url = folder.url(name)
        self._notes = folder.notes
        self._store = Store.from_environment(folder.notes)
        self._header_name = f"header-{sha256(self._url.encode()).hexdigest()[:32]}.bin"
        self._header = self._store.read_header(self._header_name) if self._store else b""
        self._pieces: list[_Piece] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; what is read from the beginning on is a header, and kept."""
        end = min(offset + length, self.size)
        known = len(self._header)
        if offset > known:
            return super().read(offset, length)
        if end > known:
            # A longer header is read in steps that double.
            stop = min(max(end, _FIRST, 2 * known), self.size)
            self._header += b"".join(self._fetch([range(known, stop)]))
            if self._store:
                self._store.write_header(self._header_name, self._header, self._notes)
        return self._header[offset:end]

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        places = []
        for offset, length in zip(offsets, lengths, strict=True):
            places.append(range(offset, offset + length))
        self.load(places, "rows")
        rest = buffer.reshape(-1).view(np.uint8).data
        for place in places:
            rest[: len(place)] = self._known(place) or b""
            rest = rest[len(place) :]

    def load(self, places: list[range], what: str) -> None:
        """Read ranges that are not in memory yet; those that are near each other are one request.

        They stay in memory: a result can ask for the same rows for each of its matrices.
        """
        ranges = self._missing(places)
        if not ranges:
            return
        length = sum(map(len, ranges))
        size = in_bytes(length)
        if length > LONGEST_LOAD:
            raise self._too_large_error(f"{what}, {size}")

        parts = []
        for whole in ranges:
            parts += [whole[start : start + _PART] for start in range(0, len(whole), _PART)]
        answers = self._notes.watch(self._fetch(parts), length, len, f"{what}, {size}")
        for whole in ranges:
            count = -(-len(whole) // _PART)
            self._pieces.append(_Piece(whole.start, b"".join(islice(answers, count))))

    def _missing(self, places: list[range]) -> list[range]:
        ranges: list[range] = []
        for place in places:
            if not place or self._known(place) is not None:
                continue
            if ranges and 0 <= place.start - ranges[-1].stop < _GAP:
                ranges[-1] = range(ranges[-1].start, place.stop)
            else:
                ranges.append(place)
        return ranges

    def _known(self, place: range) -> bytes | None:
        """Return a range that is in memory; None for another one."""
        for piece in (_Piece(0, self._header), *self._pieces):
            part = piece.part(place)
            if part is not None:
                return part
        return None

    def _fetch(self, places: list[range]) -> Iterator[bytes]:
        get = partial(session.get, self.name, self._url, self.size)
        with ThreadPoolExecutor(_PARALLEL) as pool:
            yield from pool.map(get, places)

    def _too_large_error(self, what: str) -> InputError:
        limit = in_bytes(LONGEST_LOAD)
        uri = parse_hf_uri(self.name)
        download = f"hf download {uri.id}"
        local_name = uri.id
        if uri.revision is not None:
            download += f" --revision {uri.revision}"
            local_name += f"@{uri.revision}"
        return self.file_error(
            f"it is asked for {what}, and embcli reads at most {limit} over the network",
            f"{download}; then the same command with {local_name}",
        )

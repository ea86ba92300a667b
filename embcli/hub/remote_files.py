"""The files of a model on the hub, behind the interface of files on disk.

A model is read at one commit. Its small files go into the local cache, so that the rest of embcli
finds them beside the weights. Ranges of the weights are read by requests, and stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import numpy as np
from huggingface_hub import HfUri, constants
from huggingface_hub.file_download import repo_folder_name

from embcli.atomic import replacing
from embcli.binary import LONGEST_LOAD, Binary, Folder
from embcli.errors import InputError, Notes
from embcli.hub.local import SETTINGS, TOKENIZERS, Preference, module_folders
from embcli.hub.session import Request, Session, hub
from embcli.wording import in_bytes

_FIRST = 1 << 17  # bytes of the first request, which hold most headers
_PART = 1 << 23  # bytes of a request for a part of a matrix
_SMALL = 50_000_000  # bytes; longer files are not downloaded


@dataclass(frozen=True)
class RemoteFolder(Folder):
    """A folder of a model at one commit; `path` is the same folder of the local cache."""

    session: Session
    name: str  # hf://org/name, with the revision and the path of the folder
    url: str
    sizes: dict[str, int]  # of the files in it, by their paths from here
    notes: Notes

    @classmethod
    def of_model(cls, uri: HfUri, notes: Notes) -> RemoteFolder:
        """Return the folder of a model, whose revision becomes a commit once, here.

        Raises InputError if the hub does not answer, or has no such model or revision.
        """
        model = f"hf://{uri.id}"
        if uri.revision is not None:
            model += f"@{uri.revision}"
        session = Session(model, uri.id)
        commit, sizes = session.described(uri.revision)
        notes.add(f"reading {model} over the network: commit {commit[:7]} at {hub()}")
        model_folder = repo_folder_name(repo_id=uri.id, repo_type="model")
        path = Path(constants.HF_HUB_CACHE) / model_folder / "snapshots" / commit
        url = f"{constants.ENDPOINT}/{uri.id}/resolve/{commit}"
        return cls(path, session, model, url, sizes, notes)

    def inside(self, name: str) -> RemoteFolder:
        """Return a folder of this folder; an empty name is that of the folder itself."""
        if not name:
            return self
        start = f"{name}/"
        sizes = {}
        for file, size in self.sizes.items():
            if file.startswith(start):
                sizes[file.removeprefix(start)] = size
        return replace(
            self,
            path=self.path / name,
            name=self.location(name),
            url=self.url_of(name),
            sizes=sizes,
        )

    @property
    def _names(self) -> list[str]:
        """The names of the files in this folder, and not in others of it."""
        return [file for file in self.sizes if "/" not in file]

    def location(self, name: str) -> str:
        return f"{self.name}/{name}"

    def url_of(self, name: str) -> str:
        return f"{self.url}/{quote(name)}"

    def has(self, name: str) -> bool:
        return name in self.sizes

    def open(self, name: str) -> Binary:
        """Open a file: in the local cache, if it has it, and otherwise over the network."""
        if self._is_here(name):
            return Binary(self.path / name, self)
        return RemoteBinary(self, name)

    def _is_here(self, name: str) -> bool:
        return super().has(name)

    def found(self, path: str, preference: Preference) -> Binary:
        """Open the file at a path, or the preferred one of a folder.

        The small files beside it are in the local cache then.
        """
        parent, _, name = path.rpartition("/")
        folder = self.inside(parent)
        if name not in folder.sizes:
            folder = self.inside(path)
            if path and not folder.sizes:
                raise InputError(f"{self.name!r} has no file {path!r}")
            folder.download()
            folder, name = folder._preferred(preference)
        folder.download()
        return folder.open(name)

    def _preferred(self, preference: Preference) -> tuple[RemoteFolder, str]:
        """Return the preferred file of this folder, or of one that its modules.json names."""
        try:
            return self, preference.preferred(self._names, self.name)
        except InputError:
            for module in module_folders(self.path):
                folder = self.inside(module)
                with suppress(InputError):
                    return folder, preference.preferred(folder._names, folder.name)
            raise

    def download(self) -> None:
        """Put the small files of this folder into the local cache; weights stay where they are.

        They are kept as they are where links are not supported. hf_hub_download would take 23
        seconds for an error of the hub, and hide its cause.
        """
        missing = {}
        for name in self._names:
            is_tokenizer = _matches(name, TOKENIZERS)
            is_read = is_tokenizer or _matches(name, SETTINGS)
            size = self.sizes[name]
            if not is_read or size >= _SMALL or self._is_here(name):
                continue
            missing[name] = Request(self.location(name), self.url_of(name), size)
            if not is_tokenizer:
                self.session.spend("bytes of settings", size)

        if missing:
            sizes = in_bytes(sum(self.sizes[name] for name in missing))
            self.notes.add(
                f"downloading {', '.join(missing)} ({sizes}) into the Hugging Face cache"
            )
        answers = self.session.fetch([*missing.values()])
        for name, data in zip(missing, answers, strict=True):
            path = self.path / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as file:
                    file.write(data)
            except OSError as error:
                raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class RemoteBinary(Binary):
    """A file on the hub at one commit; several threads can read it."""

    is_remote = True
    folder: RemoteFolder

    def __init__(self, folder: RemoteFolder, name: str) -> None:
        self.path = folder.path / name  # where its siblings are, once they are downloaded
        self.folder = folder
        self.name = folder.location(name)
        self.size = folder.sizes[name]
        self._url = folder.url_of(name)
        self._pieces: list[tuple[range, bytes]] = []  # what has been read

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes of a header, which is read ahead.

        As much is read as stands before it: a longer header takes few requests.
        """
        byte_range = range(offset, min(offset + length, self.size))
        if not byte_range:
            return b""
        if self._known(byte_range) is None:
            ahead = max(len(byte_range), _FIRST, offset)
            read_ahead = range(offset, min(offset + ahead, self.size))
            (data,) = self.folder.session.fetch([self._request(read_ahead)])
            self._pieces.append((read_ahead, data))
        return self._known(byte_range) or b""

    def gather(self, buffer: np.ndarray, offsets: Sequence[int], lengths: Sequence[int]) -> None:
        """Fill an array with ranges of bytes, each of which is one request.

        They stay in memory: a result can ask for the same rows for each of its matrices.
        """
        pairs = zip(offsets, lengths, strict=True)
        byte_ranges = [range(offset, offset + length) for offset, length in pairs if length]
        missing = [byte_range for byte_range in byte_ranges if self._known(byte_range) is None]
        self._pieces += zip(missing, self._fetch(missing), strict=True)
        super().gather(buffer, offsets, lengths)

    def _fill(self, buffer: memoryview, offset: int) -> None:
        buffer[:] = self._known(range(offset, offset + len(buffer))) or b""

    def load(self, byte_range: range, what: str) -> None:
        if self._known(byte_range) is not None:
            return
        size = len(byte_range)
        if size > LONGEST_LOAD:
            model = self.folder.session.model
            raise self.file_error(
                f"all of {what} is {in_bytes(size)}, "
                f"and embcli reads at most {in_bytes(LONGEST_LOAD)} over the network",
                f"hf download {model}; then the same command with {model.removeprefix('hf://')}",
            )
        starts = range(0, size, _PART)
        parts = [byte_range[start : start + _PART] for start in starts]
        answers = self._fetch(parts)
        data = self.folder.notes.watch(answers, size, len)
        self._pieces.append((byte_range, b"".join(data)))

    def _known(self, byte_range: range) -> bytes | None:
        """Return a range that is in memory; None for another one."""
        for known, data in self._pieces:
            if known.start <= byte_range.start and byte_range.stop <= known.stop:
                return data[byte_range.start - known.start : byte_range.stop - known.start]
        return None

    def _fetch(self, byte_ranges: list[range]) -> Iterator[bytes]:
        requests = [self._request(byte_range) for byte_range in byte_ranges]
        return self.folder.session.fetch(requests, are_rows=True)

    def _request(self, byte_range: range) -> Request:
        return Request(self.name, self._url, len(byte_range), byte_range)

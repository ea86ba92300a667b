"""The files of a model on the hub, behind the interface of files on disk.

A Repository is a model at one commit; some of its files are in the local cache. Of the others,
ranges are read by requests. The first bytes of a file, its header, are kept for later runs; rows
are read as they are asked for. What is to be read as a whole is loaded into memory at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from huggingface_hub import constants, hf_hub_url, model_info
from huggingface_hub.file_download import repo_folder_name

from embcli.binary import Binary, quoted
from embcli.errors import InputError, Notes
from embcli.hub import TOKENIZERS, WEIGHTS, module_folders, preferred
from embcli.remote import session
from embcli.store import Store
from embcli.wording import Sentence, in_bytes

_PARALLEL = 8  # requests at a time
_SMALL = 50_000_000  # bytes; longer files are not downloaded
_BROUGHT = (".json", ".txt", ".model", ".tiktoken")  # suffixes of files that are downloaded
_LONGEST_LOAD = 256_000_000  # bytes of a matrix that is read as a whole
_FIRST = 1 << 17  # bytes of the first request, which hold most headers
_GAP = 1 << 14  # bytes between ranges that are read faster than another request is answered
_RECENT = 1 << 21  # bytes of rows that are kept after they were read
_PART = 1 << 23  # bytes of a request for a part of a matrix


class Repository:
    """The files of a model. Its revision becomes a commit once, when it is made.

    Raises InputError if the hub does not answer, or has no such model or revision.
    """

    def __init__(self, model: str, revision: str | None, notes: Notes) -> None:
        self.model = model
        self.notes = notes
        self._store = Store.from_environment(notes)
        self.name = f"hf://{model}"
        if revision is not None:
            self.name += f"@{revision}"
        info = session.asked(
            self.name, lambda: model_info(model, revision=revision, files_metadata=True)
        )
        self.commit = str(info.sha)
        self.sizes: dict[str, int] = {}  # of the files, by name
        for file in info.siblings or ():
            parts = PurePosixPath(file.rfilename)
            if file.size is not None and not parts.is_absolute() and ".." not in parts.parts:
                self.sizes[file.rfilename] = file.size
        models = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=model, repo_type="model")
        self.folder = models / "snapshots" / self.commit
        notes.add(
            f"reading {self.name} over the network: commit {self.commit[:7]} at {session.hub()}"
        )

    def name_of(self, file: str) -> str:
        return f"{self.name}/{file}" if file else self.name

    # --- which file is meant ----------------------------------------------------------------------

    def weights_file(self, path: str) -> str:
        """Return the file at a path, or the file of weights in a folder or of the model."""
        lack = "no file of weights, such as model.safetensors or *.gguf"
        return self._file(path, WEIGHTS, lack)

    def tokenizer_file(self, path: str) -> str:
        return self._file(path, (*TOKENIZERS, "*.gguf"), "no tokenizer that embcli reads")

    def tokenizer_beside(self, weights: PurePosixPath) -> str:
        return self._preferred(str(weights.parent), TOKENIZERS, "no tokenizer")

    def _file(self, path: str, patterns: tuple[str, ...], lack: str) -> str:
        if path in self.sizes:
            return path
        if path and not self._names(path):
            raise InputError(f"{self.name!r} has no file {quoted(path)}")
        try:
            return self._preferred(path, patterns, lack)
        except InputError:
            # Models of Sentence Transformers have a folder for each module.
            self.bring(["modules.json"])
            for folder in module_folders(self.folder):
                with suppress(InputError):
                    return self._preferred(folder.relative_to(self.folder).as_posix(), patterns, "")
            raise

    def _preferred(self, folder: str, patterns: tuple[str, ...], lack: str) -> str:
        name = preferred(self._names(folder), patterns, self.name_of(folder), lack)
        return str(PurePosixPath(folder, name))

    def _names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder."""
        paths = map(PurePosixPath, self.sizes)
        return [path.name for path in paths if path.parent == PurePosixPath(folder)]

    # --- their bytes ------------------------------------------------------------------------------

    def open(self, file: str) -> Binary:
        """Open a file: in the local cache, if it has it, and otherwise over the network."""
        if (self.folder / file).is_file():
            return CachedBinary(self, file)
        return RemoteBinary(self, file)

    def bring(self, files: Iterable[str]) -> None:
        """Put those of these files that exist into the local cache; weights stay where they are."""
        missing: list[str] = []
        for file in files:
            is_small = self.sizes.get(file, _SMALL) < _SMALL and Path(file).suffix in _BROUGHT
            if is_small and not (self.folder / file).is_file():
                missing.append(file)
        if missing:
            size = in_bytes(sum(self.sizes[file] for file in missing))
            self.notes.add(f"downloading {', '.join(missing)} ({size}) into the Hugging Face cache")
        with ThreadPoolExecutor(_PARALLEL) as pool:
            list(pool.map(self._download, missing))

    def bring_tokenizer(self, file: str) -> None:
        """Put a tokenizer into the local cache, and what is read beside it."""
        companions = ["tokenizer_config.json", "config.json"]
        if file.endswith("vocab.json"):
            companions.append("merges.txt")
        path = PurePosixPath(file)
        self.bring([file, *(str(path.with_name(name)) for name in companions)])

    def _download(self, file: str) -> None:
        session.download(self.model, file, self.commit, self.name_of(file))

    def fetch(self, file: str, ranges: list[tuple[int, int]]) -> Iterable[bytes]:
        """Yield ranges of a file, each an offset and a length, in order."""
        url = hf_hub_url(self.model, file, revision=self.commit)
        fetch = partial(session.fetch, url, size=self.sizes[file], name=self.name_of(file))
        if len(ranges) == 1:
            yield fetch(*ranges[0])
            return
        with ThreadPoolExecutor(_PARALLEL) as pool:
            yield from pool.map(lambda place: fetch(*place), ranges)

    # --- headers, which are kept ------------------------------------------------------------------

    def kept_start(self, file: str) -> bytes:
        """Return the first bytes of a file that an earlier run has kept."""
        return self._store.read_header(self._header_name(file)) if self._store else b""

    def keep_start(self, file: str, start: bytes) -> None:
        if self._store:
            self._store.write_header(self._header_name(file), start, self.notes)

    def _header_name(self, file: str) -> str:
        place = "\n".join([constants.ENDPOINT, self.model, self.commit, file])
        return f"header-{sha256(place.encode()).hexdigest()[:32]}.bin"


class CachedBinary(Binary):
    """A file in the local cache, whose siblings may not be there."""

    def __init__(self, repository: Repository, file: str) -> None:
        super().__init__(repository.folder / file)
        self._repository = repository
        self._name = PurePosixPath(file)

    def location(self, name: str) -> str:
        return self._repository.name_of(self._sibling(name))

    def has(self, name: str) -> bool:
        return self._sibling(name) in self._repository.sizes

    def sibling(self, name: str) -> Binary:
        return self._repository.open(self._sibling(name))

    def bring_tokenizer(self) -> None:
        file = ""
        with suppress(InputError):  # The model may have no tokenizer.
            file = self._repository.tokenizer_beside(self._name)
        if file:
            self._repository.bring_tokenizer(file)

    def _sibling(self, name: str) -> str:
        return str(self._name.parent / name)


class _Segment(NamedTuple):
    """Bytes of a file that are in memory."""

    offset: int
    data: bytes

    def part(self, offset: int, length: int) -> bytes | None:
        """Return a range, or None if it is not all here."""
        start = offset - self.offset
        if start < 0 or start + length > len(self.data):
            return None
        return self.data[start : start + length]


class RemoteBinary(CachedBinary):
    """A file on the hub at one commit; several threads can read it."""

    is_remote = True

    def __init__(self, repository: Repository, file: str) -> None:
        self.path = repository.folder / file  # where its siblings are, once they are downloaded
        self.size = repository.sizes[file]
        self._repository = repository
        self._name = PurePosixPath(file)
        self._file_name = file
        self._start = repository.kept_start(file)
        self._kept = len(self._start)
        self._loaded: list[_Segment] = []
        self._recent: list[_Segment] = []

    def file_error(self, reason: str | Sentence, hint: str = "") -> InputError:
        name = self._repository.name_of(self._file_name)
        message = Sentence("cannot read {name!r}: {reason}", name=name, reason=reason)
        return InputError(message, hint)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes; what is read from the beginning on is a header, and kept."""
        end = min(offset + length, self.size)
        start = self._start
        known = len(start)
        if offset > known:
            return super().read(offset, length)
        if end > known:
            # A longer header is read in steps that double.
            stop = min(max(end, _FIRST, 2 * known), self.size)
            start += b"".join(self._fetch([(known, stop - known)]))
            self._start = start
        return start[offset:end]

    def keep_start(self) -> None:
        if len(self._start) > self._kept:
            self._repository.keep_start(self._file_name, self._start)
            self._kept = len(self._start)

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill an array with ranges of bytes; ranges that are near each other are one request."""
        places = [place for place in zip(offsets, lengths, strict=True) if place[1]]
        requests: list[tuple[int, int]] = []
        for offset, length in places:
            if self._known_part(offset, length) is not None:
                continue
            if requests:
                first, known = requests[-1]
                if 0 <= offset - first - known < _GAP:
                    requests[-1] = (first, offset + length - first)
                    continue
            requests.append((offset, length))

        # Requests and places are in the same order; a thread may have read more in the meantime.
        answers = zip(requests, self._fetch(requests), strict=True)
        segment = _Segment(0, b"")
        rest = buffer.reshape(-1).view(np.uint8)
        for offset, length in places:
            part = self._known_part(offset, length) or segment.part(offset, length)
            while part is None:
                (first, _), data = next(answers)
                segment = _Segment(first, data)
                self._remember(segment)
                part = segment.part(offset, length)
            rest[:length] = np.frombuffer(part, np.uint8)
            rest = rest[length:]

    def load(self, offset: int, length: int, what: str) -> None:
        if self._known_part(offset, length) is not None:
            return
        size = in_bytes(length)
        if length > _LONGEST_LOAD:
            raise self._too_large_error(f"{what} is {size}")
        starts = range(offset, offset + length, _PART)
        places = [(start, min(_PART, offset + length - start)) for start in starts]
        watch = self._repository.notes.watch
        parts = watch(self._fetch(places), length, lambda part: len(part), f"{what}, {size}")
        data = b"".join(parts)
        self._loaded.append(_Segment(offset, data))

    def _too_large_error(self, reason: str) -> InputError:
        limit = in_bytes(_LONGEST_LOAD)
        model, _, revision = self._repository.name.removeprefix("hf://").partition("@")
        local = f"{model}@{revision}" if revision else model
        chosen = f" --revision {revision}" if revision else ""
        return self.file_error(
            f"all of {reason}, and embcli reads at most {limit} over the network",
            f"hf download {model}{chosen}; then the same command with {local}",
        )

    def _known_part(self, offset: int, length: int) -> bytes | None:
        """Return a range that is in memory; None for another one."""
        for segment in (_Segment(0, self._start), *self._loaded, *self._recent):
            part = segment.part(offset, length)
            if part is not None:
                return part
        return None

    def _remember(self, segment: _Segment) -> None:
        """Keep what was read last: a result can ask for the same rows for each of its matrices."""
        size = sum(len(recent.data) for recent in self._recent)
        others = self._recent if size < _RECENT else []
        self._recent = [*others, segment]

    def _fetch(self, places: list[tuple[int, int]]) -> Iterable[bytes]:
        return self._repository.fetch(self._file_name, places)

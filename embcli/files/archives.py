"""Zip archives of tensors: where the bytes of a member that is stored as it is begin."""

from __future__ import annotations

import zipfile
import zlib
from struct import Struct

from embcli.binary import Binary, shortened

_LOCAL_HEADER = Struct("<4s22x2H")  # of a member: a signature, the lengths of its name and of its extra field
# What zipfile raises for a damaged archive.
DAMAGES = (zipfile.BadZipFile, zlib.error, RuntimeError, OSError, ValueError, EOFError, OverflowError)


def opened_archive(binary: Binary, otherwise: str = "") -> zipfile.ZipFile:
    """Return the archive in a file; `otherwise` says what a file that is none may be."""
    try:
        return zipfile.ZipFile(binary.file)
    except DAMAGES as error:
        raise binary.refused(f"it is a damaged archive{otherwise and f', or {otherwise}'} ({error})") from None


def member_start(binary: Binary, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member begin; raises InputError if it has no header."""
    local = binary.read(info.header_offset, _LOCAL_HEADER.size)
    if len(local) < _LOCAL_HEADER.size or not local.startswith(b"PK\x03\x04"):
        raise binary.refused(f"it is a damaged archive: {shortened(info.filename)} has no header")
    _, name, extra = _LOCAL_HEADER.unpack(local)
    start: int = info.header_offset + _LOCAL_HEADER.size + name + extra
    return start

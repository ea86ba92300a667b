"""A kept layer: a .npy file whose name says what drew it; reading needs no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from io import FileIO
from math import prod
from typing import BinaryIO

import numpy as np

from embcli.layer import Layer
from embcli.store import Damaged
from embcli.weights.build import Build
from embcli.weights.seeded import Seeded


def file_name(name: str, seeded: Seeded, build: Build) -> str:
    """Return the name of a layer's file: everything that can change a bit of it; the token layer is drawn first."""
    shapes = "-after-".join("{}x{}".format(*seeded.shape(each)) for each in dict.fromkeys((name, "token")))
    return re.sub(r"[^\w.+-]", "-", f"{name}-{shapes}-seed{seeded.seed}-{build}.npy")


def write(file: BinaryIO, shape: tuple[int, int], blocks: Iterable[np.ndarray]) -> None:
    """Write a layer; `blocks` are its rows in order, float32."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    for block in blocks:
        file.write(block.reshape(-1).view(np.uint8).data)


class KeptLayer(Layer):
    """A layer in a kept file, which may be closed afterwards; raises Damaged for a file that is not of this shape."""

    dtype = "float32"

    def __init__(self, file: FileIO, shape: tuple[int, int], build: Build) -> None:
        self.shape, self.build = shape, build.described
        try:
            np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0(file)
        except ValueError as error:
            raise Damaged(str(error)) from None
        if header != (shape, False, np.dtype("<f4")):
            raise Damaged("it contains another array")
        if os.fstat(file.fileno()).st_size != file.tell() + 4 * prod(shape):
            raise Damaged("it was cut off")
        self._values = np.memmap(file, "<f4", "r", file.tell(), shape)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._values[ids])

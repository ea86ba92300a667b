"""The tensors of a safetensors file as layers: only the rows that are asked for are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.files.safetensors import Malformed, read_header
from embcli.files.stored import Binary, stored_layer
from embcli.files.tensors import Tensor, Tensors

if TYPE_CHECKING:
    from embcli.layer import Layer

# The format's names of dtypes -> numpy's; what is not here keeps the format's name and is no layer.
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_NAMES |= {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_NAMES |= {f"{sign.upper() or 'I'}{width}": f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)}


class SafetensorsFile(Tensors):
    """The tensors of one safetensors file; raises InputError for a file that the safetensors library refuses."""

    format = "safetensors"

    def __init__(self, binary: Binary) -> None:
        try:
            header = read_header(binary.file)
        except Malformed as error:
            raise binary.refused(str(error)) from None
        tensors = {
            name: Tensor(
                name,
                entry.shape,
                _NAMES.get(entry.dtype, entry.dtype),
                entry.end - entry.start,
                binary.path,
                entry.start,
            )
            for name, entry in header.tensors.items()
        }
        super().__init__(binary.path, tensors, header.metadata)
        self._binary = binary

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of rows, or of its columns where it is to be transposed."""
        return stored_layer(self._binary, tensor, transposed)

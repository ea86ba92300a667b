"""Matrices that are stored scaled, packed or shared, and the rows that they stand for.

A quantised model stores a matrix as integers or small floats beside tensors of scales. The dtype of
a tensor and the tensors beside it say which scheme it follows; config.json gives parameters only.
What cannot be unpacked is refused: integers are never shown in place of the numbers they stand for.
`Checkpoint` looks at the tensors of a file through `UnpackedTensors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from embcli.binary import JsonObject
from embcli.files.numbers import STORED_DTYPES
from embcli.files.tensors import StoredLayer, Tensor, Tensors, computed_layer, file_layer
from embcli.layer import Layer
from embcli.names import MatrixShape, Shape

# How the name of a packed tensor ends, or that of a tensor beside it goes on, and its scheme.
_PACKED = {
    ".qweight": "GPTQ or AWQ",
    ".weight_packed": "compressed-tensors",
    ".W_q": "HQQ",
    "._data": "Quanto",
    ".quant_map": "bitsandbytes, 4 bit",
    "_scale_2": "NVFP4",
    "_global_scale": "NVFP4",
}
# The tensors that small numbers are multiplied by, and what pages call them. DeepSeek's name says
# the inverse; ComfyUI has the words in another order; LLM.int8() keeps the largest absolute value.
_SCALES = {
    "weight_scale": "weight_scale",
    "weight_scale_inv": "weight_scale_inv",
    "scale_weight": "scale_weight",
    "SCB": "SCB / 127",
}
# Other tensors beside a matrix that are about its scales, or only about what it is multiplied with.
_KNOWN_PARTS = {
    *_SCALES,
    "input_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
    "scale_input",
}
# What config.json says of models whose small floats have scales.
_FLOAT8_KEYS = ("quant_method", "format", "quant_algo")
_FLOAT8_SCHEMES = ("fp8", "fbgemm_fp8", "float-quantized", "FP8")
SCALED_DTYPES = [dtype.name for dtype in STORED_DTYPES.values() if dtype.has_scale]
INTEGERS = [name for name in STORED_DTYPES if re.fullmatch("u?int[0-9]+", name)]


class UnpackedTensors(Tensors):
    """The tensors of a file, as matrices of the numbers that they stand for.

    `config` is a config.json, or empty.
    """

    tensors: Tensors  # as they are stored

    def __init__(self, stored: Tensors, config: JsonObject) -> None:
        super().__init__(
            stored.binary,
            stored.format,
            stored,
            stored.metadata,
            files=stored.files,
            own_words=stored.own_words,
            is_array=stored.is_array,
        )
        self._config = config
        # The dtypes of numbers that stand for others. Small floats do if config.json or a scale in
        # the file says so; otherwise they are only rounded.
        self._dtypes_with_scales = [*INTEGERS]
        last_parts = {name.rpartition(".")[2] for name in stored}
        has_scales = not last_parts.isdisjoint([*_SCALES, "scaled_fp8"])  # a mark of ComfyUI
        settings = _entry(config, "quantization_config")
        if has_scales or any(settings.get(key) in _FLOAT8_SCHEMES for key in _FLOAT8_KEYS):
            self._dtypes_with_scales += SCALED_DTYPES

    def in_files(self) -> Iterator[Tensor]:
        return self.tensors.in_files()

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        scheme = self._packing(name)
        if scheme:
            return _packed(tensor, f"it is packed by {scheme}, which embcli does not unpack")
        unknown = self._unknown_parts.get(name.rpartition(".")[0])
        if unknown and tensor.dtype in (*SCALED_DTYPES, "uint8"):
            return _refused(tensor, f"embcli does not apply {', '.join(unknown)} beside it")
        if name == "embeddings":
            return self._of_model2vec(tensor)
        if tensor.dtype == "uint32" and self._sibling(name, "scales"):
            return self._of_mlx(tensor)
        if tensor.dtype in SCALED_DTYPES and tensor.is_matrix:
            return self._scaled(tensor)
        return self._integers(tensor)

    def _packing(self, name: str) -> str:
        """Return the scheme that packs a tensor; empty if none does that is known by names."""
        for end, scheme in _PACKED.items():
            if name.endswith(end) or f"{name}{end}" in self.tensors:
                return scheme
        return ""

    def _sibling(self, name: str, last_part: str) -> Tensor | None:
        """Return the tensor of the same module with this last part of its name."""
        module = name.removesuffix("weight")
        return None if module == name else self.tensors.get(f"{module}{last_part}")

    def _integers(self, tensor: Tensor) -> Tensor:
        """Return a tensor without scales, whose numbers are refused if they can have had some."""
        is_own_number = self.is_array or tensor.dtype not in self._dtypes_with_scales
        if is_own_number or not tensor.is_matrix:
            return tensor
        return _refused(
            tensor,
            f"its numbers are {tensor.dtype}, and no scale that embcli applies is beside them",
        )

    @cached_property
    def _unknown_parts(self) -> dict[str, list[str]]:
        """The last parts of names that speak of scales in an unknown way, by their modules."""
        parts: dict[str, list[str]] = {}
        for name in self.tensors:
            module, _, last_part = name.rpartition(".")
            if last_part not in _KNOWN_PARTS and re.search("scale|zero|g_idx", last_part):
                parts.setdefault(module, []).append(last_part)
        return parts

    # --- numbers of 4 or 8 bits, and scales -------------------------------------------------------

    def _scaled(self, tensor: Tensor) -> Tensor:
        """Return a matrix of small numbers times the scales beside it, if there are any."""
        name = tensor.name
        kinds = [part for part in _SCALES if self._sibling(name, part)]
        if len(kinds) > 1:
            return _refused(tensor, f"several kinds of scales are beside it: {', '.join(kinds)}")
        part = next(iter(kinds), "")
        scale = self._sibling(name, part)
        if scale is None:
            return self._integers(tensor)
        block = self._block_size() if part == "weight_scale_inv" else None
        divisor = np.float32(127 if part == "SCB" else 1)

        scale_grid = _grid(scale, tensor.shape, block)
        # Integers can stand for exponents.
        if scale_grid is None or scale.dtype in INTEGERS:
            return _refused(tensor, f"its scales do not fit it: {scale}")

        numbers = file_layer(tensor)

        def rows(ids: np.ndarray) -> np.ndarray:
            rows = numbers.rows(ids)
            with np.errstate(over="ignore", invalid="ignore"):
                return np.asarray(rows * scale_grid.of_rows(ids) / divisor)

        layers = (numbers, scale_grid.layer)
        layer = partial(computed_layer, computed_rows=rows, computed_from=layers)
        label = f"{tensor.dtype} x {_SCALES[part]}"
        return replace(tensor, dtype=label, matrix=layer, computed_from=(scale.name,))

    def _block_size(self) -> MatrixShape | None:
        """Return the rows and columns that share a scale; None if config.json does not say it."""
        match _entry(self._config, "quantization_config").get("weight_block_size"):
            case [int(rows), int(columns)] if rows > 0 and columns > 0:
                return rows, columns
        return None

    # --- MLX ------------------------------------------------------------------------------------

    def _of_mlx(self, tensor: Tensor) -> Tensor:
        """Return a matrix of MLX: 4 or 8 bits a number, and a scale and a bias for each group."""
        scales = self._sibling(tensor.name, "scales")
        biases = self._sibling(tensor.name, "biases")
        if not scales or not biases or not tensor.is_matrix:
            return _packed(
                tensor, "it is packed by MLX without biases, which embcli does not unpack"
            )
        settings: JsonObject = {}
        for key in ("quantization_config", "quantization"):
            settings |= _entry(self._config, key)
        module = tensor.name.removesuffix(".weight")
        settings |= _entry(settings, module)
        bits = settings.get("bits", "unknown")
        group_size = settings.get("group_size")
        if bits not in (4, 8) or type(group_size) is not int:
            return _packed(tensor, f"it is packed by MLX in {bits} bits; embcli unpacks 4 and 8")

        size, width = tensor.shape
        dim = width * 32 // bits
        shape = (size, dim)
        scale = _grid(scales, shape, None)
        bias = _grid(biases, shape, None)
        if not scale or not bias or not scale.block == bias.block == (1, group_size):
            return _refused(tensor, f"its scales do not fit it: {scales} in groups of {group_size}")

        words = file_layer(tensor)
        # A word of 32 bits has its first number in its lowest bits.
        shifts = np.arange(0, 32, bits, dtype=np.uint32)
        lowest_bits = np.uint32(2**bits - 1)

        def rows(ids: np.ndarray) -> np.ndarray:
            stored = words.stored(ids)  # (n, words) uint32
            numbers = (stored[:, :, None] >> shifts) & lowest_bits
            rows = numbers.reshape(len(ids), dim).astype(np.float32)
            return np.asarray(rows * scale.of_rows(ids) + bias.of_rows(ids))

        layers = (words, scale.layer, bias.layer)
        layer = partial(computed_layer, computed_rows=rows, computed_from=layers)
        return replace(
            tensor,
            shape=shape,
            dtype=f"{bits} bit of MLX",
            matrix=layer,
            computed_from=(scales.name, biases.name),
        )

    # --- model2vec ------------------------------------------------------------------------------

    def _of_model2vec(self, tensor: Tensor) -> Tensor:
        """Return the matrix of a static model, with its row and its factor for each token ID."""
        mapping = self.tensors.get("mapping")
        weights = self.tensors.get("weights")
        parts = list(filter(None, (mapping, weights)))
        if not tensor.is_matrix or not parts:
            return tensor
        shapes = {part.shape for part in parts}
        size, *others = shapes
        if others or len(size) != 1:
            return _refused(tensor, "its mapping and its weights are not one number for each token")

        label = tensor.dtype
        if mapping:
            label += " by mapping"
        if weights:
            label += " x weights"

        def layer(described: Tensor) -> Layer:
            numbers = file_layer(tensor)
            row_of_id = np.arange(tensor.shape[0])
            if mapping:
                row_of_id = self._mapping(mapping, tensor.shape[0])
            factors = _own_vector(weights) if weights else None

            def rows(ids: np.ndarray) -> np.ndarray:
                row_ids = row_of_id[ids]
                if factors is None:
                    return numbers.rows(row_ids)
                # The product has the wider dtype of both, and is rounded once, as model2vec does.
                product = _own_numbers(numbers, row_ids) * factors[ids, None]
                return np.asarray(product, np.float32)

            return computed_layer(described, rows, (numbers,))

        shape = (size[0], tensor.shape[1])
        names = tuple(part.name for part in parts)
        return replace(tensor, shape=shape, dtype=label, matrix=layer, computed_from=names)

    def _mapping(self, tensor: Tensor, rows: int) -> np.ndarray:
        """Return the row of each token ID, (V,) int64; raises InputError for rows out of range."""
        mapping = _own_vector(tensor).astype(np.int64)
        if mapping.size and not 0 <= mapping.min() <= mapping.max() < rows:
            raise self.file_error(f"its mapping names rows that are not there: it has {rows:,}")
        return mapping


def _refused(tensor: Tensor, reason: str) -> Tensor:
    return replace(tensor, unreadable=reason)


def _packed(tensor: Tensor, reason: str) -> Tensor:
    return replace(tensor, unreadable=reason, packed=True)


def _own_vector(tensor: Tensor) -> np.ndarray:
    """Return a whole vector in its own dtype, as `_own_numbers` does."""
    as_matrix = file_layer(replace(tensor, shape=(1, *tensor.shape)))
    return _own_numbers(as_matrix, np.arange(1)).ravel()


def _own_numbers(layer: StoredLayer, ids: np.ndarray) -> np.ndarray:
    """Return rows in the dtype that they are stored in, or in float32 if numpy has no such one."""
    stored = layer.stored(ids)
    if stored.dtype.name == layer.dtype:
        return stored
    return layer.widened(stored)


def _entry(settings: JsonObject, key: str) -> JsonObject:
    """Return the object that settings have under a key; empty if they have none."""
    value = settings.get(key)
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class _Grid:
    """Numbers that the values of a block share; a row of the layer is one of a row of blocks."""

    layer: Layer
    block: MatrixShape  # its rows and columns; the last block may have fewer
    dim: int  # columns of the matrix

    def of_rows(self, ids: np.ndarray) -> np.ndarray:
        """Return the number for each value of these rows, (n, D) float32."""
        rows, columns = self.block
        by_block = self.layer.rows(ids // rows)
        return np.repeat(by_block, columns, axis=1)[:, : self.dim]


def _grid(tensor: Tensor, shape: Shape, block: MatrixShape | None) -> _Grid | None:
    """Return the grid over a matrix of this shape, (V, D), that a tensor of scales has.

    The tensor is one number, one for each row, (V, 1), one for each group of a row, (V, groups), or
    with a block's size one for each block. None is returned for another shape.
    """
    rows, dim = shape
    if len(tensor.shape) > 2:
        return None
    scale_shape = (*tensor.shape, 1, 1)[:2]
    layer = file_layer(replace(tensor, shape=scale_shape))
    if block is not None:
        block_rows, block_columns = block
        blocks = (-(-rows // block_rows), -(-dim // block_columns))
        return _Grid(layer, block, dim) if scale_shape == blocks else None

    scale_rows, groups = scale_shape
    if scale_rows not in (1, rows) or not groups or dim % groups:
        return None
    return _Grid(layer, (rows // scale_rows, dim // groups), dim)

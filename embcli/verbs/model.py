"""What a checkpoint's file holds: its tensors, which of them are the layers that embcli shows, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import embcli
from embcli.records import Records, listed
from embcli.safe import in_data

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint
    from embcli.files.tensors import Tensor

ROLES = ("token", "position", "token_type", "head")


@dataclass(frozen=True)
class ModelInfo:
    """A checkpoint, and the tensors of it that are told: (role or nothing, tensor) each."""

    checkpoint: Checkpoint
    tensors: tuple[tuple[str, Tensor], ...]

    @property
    def run(self) -> dict[str, Any]:
        """What there is to say of the whole: its files, its output head, its positions, and what is a guess."""
        found = self.checkpoint
        head = found.head
        return {
            "embcli": embcli.__version__,
            "from": found.given,
            "format": found.tensors.format,
            "files": [in_data(str(path)) for path in found.tensors.files],
            "encoding": found.encoding.name if found.encoding else None,
            "head": {
                "tensor": head.tensor.name if head.tensor else None,
                "relation": head.relation,
                "rows_compared": head.rows,
                "reason": head.reason,
            },
            "positions": found.positions,
            "first_position": found.first_position,
            "guesses": dict(found.reasons),
        }

    def records(self) -> Records:
        """Return the tensors as rows, and the rest beside them."""
        fields: dict[str, list[Any]] = {
            "role": [role or None for role, _ in self.tensors],
            "tensor": [tensor.name for _, tensor in self.tensors],
            "shape": ["x".join(map(str, tensor.shape)) for _, tensor in self.tensors],
            "dtype": [tensor.dtype for _, tensor in self.tensors],
            "bytes": [tensor.size for _, tensor in self.tensors],
        }
        types = {"role": str, "tensor": str, "shape": str, "dtype": str, "bytes": int}
        return listed(self.run, "tensors", types, fields)


def model_info(checkpoint: Checkpoint, every: bool = False) -> ModelInfo:
    """Return what a checkpoint holds: the tensors that embcli knows the role of, or every one.

    Raises InputError where several tensors could have a role.
    """
    roles = {tensor.name: role for role in ROLES if (tensor := checkpoint.find(role)) is not None}
    shown = checkpoint.tensors if every else roles
    return ModelInfo(checkpoint, tuple((roles.get(name, ""), checkpoint.tensors[name]) for name in shown))

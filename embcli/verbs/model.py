"""The contents of a checkpoint: its tensors, which of them are the layers that embcli shows, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from embcli.records import Records, listed
from embcli.result import Result
from embcli.safe import in_data
from embcli.version import __version__

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint
    from embcli.files.tensors import Tensor

ROLES = ("token", "position", "token_type", "head")


@dataclass(frozen=True, eq=False)
class ModelInfo(Result):
    """A checkpoint and the tensors of it that are listed."""

    verb: ClassVar[str] = "model"

    checkpoint: Checkpoint
    tensors: tuple[tuple[str, Tensor], ...]  # role (empty if unknown) and tensor

    @property
    def run(self) -> dict[str, Any]:
        """The files, the output head, the positions, and what is a guess."""
        checkpoint = self.checkpoint
        head = checkpoint.head
        return {
            "embcli": __version__,
            "from": checkpoint.given,
            "format": checkpoint.tensors.format,
            "files": [in_data(str(path)) for path in checkpoint.tensors.files],
            "encoding": checkpoint.encoding.name if checkpoint.encoding else None,
            "head": {
                "tensor": head.tensor.name if head.tensor else None,
                "relation": head.relation,
                "rows_compared": head.rows,
                "reason": head.reason,
            },
            "positions": checkpoint.positions,
            "first_position": checkpoint.first_position,
            "guesses": dict(checkpoint.reasons),
        }

    def records(self) -> Records:
        """Return the tensors as data."""
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
    """Return the contents of a checkpoint: the tensors with a known role, or all tensors.

    Raises InputError if several tensors could have one role.
    """
    roles = {tensor.name: role for role in ROLES if (tensor := checkpoint.find(role)) is not None}
    shown = checkpoint.tensors if every else roles
    return ModelInfo(checkpoint, tuple((roles.get(name, ""), checkpoint.tensors[name]) for name in shown))

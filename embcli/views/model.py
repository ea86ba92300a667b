"""How `info --from` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.page import Column
from embcli.views.parts import head_in_words, put_guesses
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.model import ModelInfo

_LEAST_NAME = 12  # cells that a tensor's name is shortened to at most


def view(result: ModelInfo, page: Page) -> None:
    """Put the files, the tensors that matter, the output head and what is known of positions on a page."""
    found = result.checkpoint
    page.title(f"{found.given}: {found.tensors.format}")
    for path in found.tensors.files:
        page.line(f"{path}")
    page.line(f"{counted(len(found.tensors), 'tensor')}; encoding: {found.encoding.name if found.encoding else 'none'}")
    page.line()
    tensors = [tensor for _, tensor in result.tensors]
    page.table(
        [
            Column("role", [role for role, _ in result.tensors], "left"),
            Column("tensor", [tensor.name for tensor in tensors], "left", least=_LEAST_NAME),
            Column("shape", [" x ".join(f"{size:,}" for size in tensor.shape) for tensor in tensors], "left"),
            Column("dtype", [tensor.dtype for tensor in tensors], "left"),
            Column("bytes", [in_bytes(tensor.size) for tensor in tensors]),
        ]
    )
    page.line()
    page.line(f"output head: {head_in_words(found.head)}")
    for name, value in found.positions.items():
        page.line(f"{name}: {value}")
    put_guesses(page, result.run)

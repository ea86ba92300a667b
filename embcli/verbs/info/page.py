"""The pages of info: of this machine, of a checkpoint with its tensors, and of local models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from embcli.page import Label, LeftOut, ruled, safe_text, title
from embcli.page.labels import guess, head_in_words
from embcli.wording import counted, in_bytes

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

    from embcli.verbs.info import Info, ModelInfo, Models


def machine_page(info: Info) -> Iterator[RenderableType]:
    facts = {
        **info.versions,
        "CPU capability": info.cpu_capability or "",
        "cache": info.cache or "none",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        yield safe_text(f"{name:{width}}  {value}")
    yield ""
    sizes = [f"{size:,}" for size, _ in info.encodings.values()]
    carried = ["yes" if is_carried else "no" for _, is_carried in info.encodings.values()]
    yield ruled(
        [
            Label("encoding", list(info.encodings), "left"),
            Label("tokens", sizes),
            Label("carried", carried, "left"),
        ]
    )


def model_page(info: ModelInfo, options: ConsoleOptions) -> Iterator[RenderableType]:
    checkpoint = info.checkpoint
    yield title(f"{checkpoint.path}: {checkpoint.tensors.format}")
    for path in checkpoint.tensors.files:
        yield safe_text(path)
    encoding = checkpoint.encoding.name if checkpoint.encoding else "none"
    yield safe_text(f"{counted(len(checkpoint.tensors), 'tensor')}; encoding: {encoding}")
    yield ""

    labels = _tensor_labels(info)
    if _least_width(labels) > options.max_width:
        labels = labels[:3]  # role, name and shape
    yield ruled(labels)
    others = len(checkpoint.tensors) - len(info.roles)
    if others:
        yield LeftOut(f"Left out: {counted(others, 'other tensor')}.", "tensors")
    yield ""
    for fact in _facts(info):
        yield safe_text(fact)
    for reason in dict.fromkeys(checkpoint.reasons.values()):
        yield guess(reason)


def _tensor_labels(info: ModelInfo) -> list[Label]:
    tensors = info.tensors
    return [
        Label("role", list(info.roles.values()), "left"),
        Label("tensor", list(info.roles), "left", short=True),
        Label("shape", [_shape_in_words(tensor.shape) for tensor in tensors], "left"),
        Label("dtype", [tensor.dtype for tensor in tensors], "left"),
        Label("bytes", [in_bytes(tensor.size) for tensor in tensors]),
    ]


def _shape_in_words(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _least_width(labels: Sequence[Label]) -> int:
    """Return the cells that a table of labels needs, if names of tensors are shortened."""
    shortened_name = 12
    width = 0
    for label in labels:
        width += min(label.width, shortened_name) if label.short else label.width + 2
    return width


def _facts(info: ModelInfo) -> Iterator[str]:
    """Yield what is known of the checkpoint beside its tensors, a line each."""
    head = info.checkpoint.head
    roles = info.checkpoint.roles
    yield f"output head: {head_in_words(head.relation, head.rows, head.reason)}"
    if info.recipe is not None:
        part = f" of the {roles.part}" if roles.part else ""
        yield f"hidden{part} = {info.recipe}"
    for name, value in info.checkpoint.positions.items():
        yield f"{name}: {value}"
    if roles.first_position and "first_position" not in info.checkpoint.reasons:
        yield f"position 0: row {roles.first_position} of the position matrix"


def models_page(result: Models) -> Iterator[RenderableType]:
    models = result.models
    yield ruled(
        [
            Label("model", [model.name for model in models], "left", short=True),
            Label("format", [model.format for model in models], "left"),
            Label("V x D", [_shape_in_words(model.shape or ()) for model in models]),
            Label("bytes", [in_bytes(model.size) for model in models]),
        ]
    )
    yield ""
    yield safe_text(f"{counted(len(models), 'model')} in {', '.join(result.places)}")

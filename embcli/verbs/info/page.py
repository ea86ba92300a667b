"""The pages of info: of this machine, and of a checkpoint with its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult

from embcli.files.tensors import Tensors
from embcli.page import Label, LeftOut, medium_of, ruled, safe_text, title
from embcli.page.labels import guess, head_in_words, token_label
from embcli.page.table import least_width
from embcli.result import short_name
from embcli.verbs.info import Info, ModelInfo, facts_of, parameters_of
from embcli.wording import counted, in_bytes, in_line, shortened

_SHORTENED = 12  # cells of the name of a tensor that is shortened


def page(result: Info | ModelInfo, console: Console, options: ConsoleOptions) -> RenderResult:
    match result:
        case Info():
            yield from _machine_page(result)
        case ModelInfo():
            yield from _model_page(result, options.max_width, medium_of(console).is_slide)


def _machine_page(info: Info) -> RenderResult:
    facts = {
        **info.versions,
        "CPU capability": info.cpu_capability,
        "cache": info.cache or "none",
    }
    width = max(map(len, facts))
    for name, value in facts.items():
        yield safe_text(f"{name:{width}}  {value}")
    yield ""
    sizes = [f"{size:,}" for size in info.encodings.values()]
    yield ruled(
        [
            Label("encoding", list(info.encodings), "left"),
            Label("V", sizes),
        ]
    )


def _model_page(info: ModelInfo, width: int, is_slide: bool) -> RenderResult:
    """Yield the tensors and the facts; a slide has no room for what else the files say."""
    checkpoint = info.checkpoint
    encoding = checkpoint.encoding.name if checkpoint.encoding else "none"
    tensors = checkpoint.tensors
    name = short_name if is_slide else str
    yield title(f"{name(checkpoint.path)}: {tensors.format}")
    if tensors.files != (checkpoint.path,):
        yield from map(safe_text, map(name, tensors.files))
    text = counted(len(tensors), "tensor")
    parameters = parameters_of(tensors)
    if parameters is not None:
        text += f", {counted(parameters, 'parameter')}"
    yield safe_text(f"{text}; encoding: {name(encoding)}")
    yield ""
    yield ruled(_tensor_labels(info.roles, tensors, width))
    others = len(tensors) - len(info.roles)
    if others:
        yield ""
        yield LeftOut(f"Left out: {counted(others, 'other tensor')}.", "tensors")
    yield ""
    for fact in _facts(info):
        yield safe_text(fact)
    if is_slide:
        return
    prefix = "metadata: " if tensors.format == "safetensors" else ""
    for key, value in facts_of(tensors).items():
        yield safe_text(in_line(shortened(f"{prefix}{key}: {value}")))
    yield from _special_table(info)
    for reason in dict.fromkeys(checkpoint.reasons.values()):
        yield guess(reason)


def _special_table(info: ModelInfo) -> RenderResult:
    """Yield a table of the special tokens that each file names."""
    found = info.special_ids
    if not found:
        return
    labels = [
        Label("special", [special.role for special in found], "left"),
        Label("ID", [", ".join(map(str, special.ids)) for special in found]),
    ]
    encoding = info.checkpoint.encoding
    if encoding is not None:
        labels.append(token_label([encoding.token_bytes(special.ids[0]) for special in found]))
    labels.append(Label("file", [special.file for special in found], "left"))
    yield ""
    yield ruled(labels)


def _tensor_labels(roles: dict[str, str], all_tensors: Tensors, width: int) -> list[Label]:
    """Return the columns of a table of tensors; role, name and shape if there is no room."""
    tensors = [all_tensors[name] for name in roles]
    labels = [
        Label("role", list(roles.values()), "left"),
        Label("tensor", list(roles), "left", short=True),
        Label("shape", [_shape_in_words(tensor.shape) for tensor in tensors], "left"),
        Label("dtype", [tensor.dtype for tensor in tensors], "left"),
        Label("bytes", [in_bytes(tensor.size) for tensor in tensors]),
    ]
    return labels if least_width(labels, _SHORTENED) <= width else labels[:3]


def _shape_in_words(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _facts(info: ModelInfo) -> Iterator[str]:
    """Yield what is known of the checkpoint beside its tensors, a line each."""
    head = info.head
    roles = info.checkpoint.roles
    text = f"output head: {head_in_words(head.relation, head.compared, head.reason)}"
    if head.tensor is None and head.relation != "same" and info.checkpoint.config:
        text += "; tied or not: audit asks"
    yield text
    if info.recipe is not None:
        part = f" of the {roles.part}" if roles.part else ""
        yield f"hidden{part} = {info.recipe}"
    for name, value in info.checkpoint.positions.items():
        yield f"{name}: {value}"
    if roles.first_position and "first_position" not in info.checkpoint.reasons:
        yield f"position 0: row {roles.first_position} of the position matrix"

"""The pages of `info`."""

from embcli.oldpage import Column, Columns, Page
from embcli.verbs.info import Info, ModelInfo
from embcli.verbs.models import Models
from embcli.views.parts import head_in_words, put_guesses
from embcli.words import counted, in_bytes

_LEAST_NAME = 12  # cells of a tensor's name, at least


def view(result: Info | ModelInfo | Models, page: Page) -> None:
    """Put what embcli runs on, what a checkpoint contains, or which models there are on a page."""
    if isinstance(result, Models):
        _put_models(result, page)
    elif isinstance(result, ModelInfo):
        _put_model(result, page)
    else:
        _put_versions(result, page)


def _put_versions(result: Info, page: Page) -> None:
    """Put the versions, the CPU capability, the cache folder and the encodings on a page."""
    lines = {**result.versions, "CPU capability": result.cpu_capability or "", "cache": result.cache or "none"}
    width = max(map(len, lines))
    for name, value in lines.items():
        page.line(f"{name:{width}}  {value}")
    page.line()
    names, sizes, carried = zip(*result.encodings, strict=True)
    page.table(
        [
            Column("encoding", names, "left"),
            Column("tokens", [f"{size:,}" for size in sizes]),
            Column("carried", ["yes" if each else "no" for each in carried], "left"),
        ]
    )


def _put_models(result: Models, page: Page) -> None:
    """Put the models that programs hold and the folders that were searched on a page."""
    models = result.models
    page.table(
        [
            Column("model", [each.name for each in models], "left", least=_LEAST_NAME),
            Column("format", [each.format for each in models], "left"),
            Column("V x D", [" x ".join(f"{size:,}" for size in each.shape or ()) for each in models]),
            Column("bytes", [in_bytes(each.size) for each in models]),
        ]
    )
    page.line()
    page.line(f"{counted(len(models), 'model')} in {', '.join(result.places)}")


def _put_model(result: ModelInfo, page: Page) -> None:
    """Put the files, the listed tensors, the output head and the position settings on a page."""
    checkpoint = result.checkpoint
    page.title(f"{checkpoint.path}: {checkpoint.tensors.format}")
    for path in checkpoint.tensors.files:
        page.line(f"{path}")
    encoding = checkpoint.encoding.name if checkpoint.encoding else "none"
    page.line(f"{counted(len(checkpoint.tensors), 'tensor')}; encoding: {encoding}")
    page.line()
    tensors = [tensor for _, tensor in result.tensors]
    columns: Columns = [
        Column("role", [role for role, _ in result.tensors], "left"),
        Column("tensor", [tensor.name for tensor in tensors], "left", least=_LEAST_NAME),
        Column("shape", [" x ".join(f"{size:,}" for size in tensor.shape) for tensor in tensors], "left"),
        Column("dtype", [tensor.dtype for tensor in tensors], "left"),
        Column("bytes", [in_bytes(tensor.size) for tensor in tensors]),
    ]
    page.table(columns if page.fits_table(columns) else columns[:3])
    page.line()
    head = checkpoint.head
    page.line(f"output head: {head_in_words(head.relation, head.rows, head.reason)}")
    if result.recipe is not None:
        page.line(f"hidden{f' of the {checkpoint.part}' if checkpoint.part else ''} = {result.recipe}")
    for name, value in checkpoint.positions.items():
        page.line(f"{name}: {value}")
    if checkpoint.first_position and "first_position" not in checkpoint.reasons:
        page.line(f"position 0: row {checkpoint.first_position} of the position matrix")
    put_guesses(page, result.run["guesses"])

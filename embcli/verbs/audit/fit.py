"""Whether the tokenizer, the configurations and the tensors of a model fit together.

These are checks of files: each takes a checkpoint and what its files say, and yields what is wrong.
None reads a row of tokens. `check_sizes` is for a model without files, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from embcli.binary import JsonObject, quoted
from embcli.encodings.encoding import OwnWords, UnknownTokenizerError, sibling_json
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.recipes import (
    learned_positions,
    wrong_dimension,
)
from embcli.files.special_ids import SpecialId
from embcli.files.tensors import PackedError, Tensor
from embcli.hub.local import PART_WITH_INDEX, module_folders
from embcli.verbs.audit.distribution import UsedRows
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import (
    Finding,
    Found,
    Level,
    not_checked,
    of_rows,
    rows_in_words,
)
from embcli.verbs.audit.panel import changed_texts
from embcli.verbs.audit.trained import as_initialised
from embcli.wording import counted, load_facts

# Where files state the number of tokens to which a text is cut.
_LONGEST = {
    "tokenizer_config.json": "model_max_length",
    "sentence_bert_config.json": "max_seq_length",
}
_NO_LENGTH = 10**20  # what transformers takes for no length, at least
_MOST_PADDING = 127  # rows up to a multiple of 128; large models have up to a twentieth
# Tokens that stand for what a model sees or hears: it looks for their IDs in a text.
_STAND_INS = ("image", "video", "audio")
# Special tokens without which a model writes text.
_HARMLESS = ("eos", "suppress", "begin_suppress")
# How the names of classes end that write text.
_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def check_sizes(files: ModelFiles) -> Found:
    """Check that each token has a row; rows after the last token are padding, if they are few."""
    tokens = files.tokens
    if tokens is None:
        return
    padding = files.rows - tokens
    if padding < 0:
        text = f"{counted(-padding, 'token')} of {tokens:,} without a row"
        if -padding < tokens / 100:
            text += "; the usual cause is a forgotten resize_token_embeddings"
        yield Finding("alarm", "missing", text, -padding)
    elif padding:
        text = f"{counted(padding, 'row')} after the last of {counted(tokens, 'token')}"
        yield Finding("remark", "padding", text, padding)
    if files.checkpoint and padding > max(_MOST_PADDING, files.rows / 20):
        yield _misfit(
            f"{padding:,} of {files.rows:,} rows are after the last token, too many for padding: "
            "the tokenizer may be another model's"
        )


def check_positions(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that rows of a learned position matrix are trained, different and not zero.

    Rows of no position can be zero.
    """
    try:
        tensor = checkpoint.roles.find("position")
        if tensor is None:
            return
        values = checkpoint.tensors.array(tensor.name)
    except InputError:
        return  # check_other_tensors counts it among those that were not checked
    if values.ndim != 2:
        return
    first = checkpoint.roles.first_position
    rows = values[first:]
    zero = np.flatnonzero(~rows.any(axis=1)) + first
    if len(zero):
        text = f"{rows_in_words(zero)} of the position matrix: zero"
        yield from of_rows("alarm", "positions", zero, text)
        return
    different = len(np.unique(rows, axis=0))
    repeated = len(rows) - different
    if repeated:
        level: Level = "alarm" if different == 1 else "finding"
        text = f"{counted(repeated, 'row')} of the position matrix with the values of another"
        yield Finding(level, "positions", text, repeated)
    used = UsedRows()
    used.add(np.arange(first, len(values)), rows.astype(np.float64))
    initial = used.initial(len(values), values.__getitem__, deviation=files.deviation)
    yield from as_initialised(checkpoint, initial, "position matrix", "positions")


def _too_long_texts(checkpoint: Checkpoint) -> Found:
    """Yield that texts are cut to more tokens than there are learned positions.

    A decoder beside an encoder is seldom given a text that long.
    """
    position = learned_positions(checkpoint.roles)
    if position is None or checkpoint.config.get("is_encoder_decoder"):
        return
    rows = position.shape[0] - checkpoint.roles.first_position
    for name, key in _LONGEST.items():
        longest = sibling_json(checkpoint.tensors.path, name).get(key)
        if isinstance(longest, int) and rows < longest < _NO_LENGTH:
            yield _misfit(f"{key} of {name} is {longest:,}; there are {rows:,} positions")


def check_tokenizer(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that the tokenizer beside the weights is known and not damaged."""
    error = checkpoint.tokenizer_error
    reason = "no tokenizer is known"
    if isinstance(error, UnknownTokenizerError):
        reason = str(error)
    elif error is not None:
        yield _misfit(str(error))
    if files.encoding is None:
        yield not_checked(f"tokens: {reason}")
        return
    for fault in dict.fromkeys((*files.encoding.faults, *changed_texts(files.encoding))):
        yield _misfit(fault)


def _misfit(text: str) -> Finding:
    return Finding("finding", "fit", text)


def check_config(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that the sizes in config.json are those of the tensors."""
    roles = checkpoint.roles
    tensors = checkpoint.tensors
    if tensors.format == "GGUF":
        keys = {key.partition(".")[2]: value for key, value in tensors.metadata.items()}
        yield from _impossible(tensors.path.name, keys)
    elif not roles.config:
        yield not_checked("a config.json (missing or empty)")
    if PART_WITH_INDEX.fullmatch(tensors.path.name):
        yield not_checked("the other files of the model")
    try:
        wrong = wrong_dimension(roles) or _wrong_recipe(checkpoint)
        if wrong:
            yield _misfit(wrong)
        yield from _impossible("config.json", roles.config)
        name = "generation_config.json"
        yield from _impossible(name, sibling_json(tensors.path, name))
        yield from _wrong_pooling(checkpoint)
        yield from _too_long_texts(checkpoint)
    except InputError as error:
        yield not_checked(f"positions and token types: {error}")


def _impossible(name: str, config: JsonObject) -> Found:
    """Yield the settings that are outside of the range of data/settings.json."""
    settings = {**config, **(config.get("rope_parameters") or config.get("rope_scaling") or {})}
    for key, (least, most) in load_facts("settings.json").items():
        value = settings.get(key)
        if type(value) in (int, float) and not least <= value <= most:
            yield _misfit(f"{key} of {name} is {value:g}; it is from {least:g} to {most:g}")


def _wrong_pooling(checkpoint: Checkpoint) -> Found:
    """Yield the modules of sentence-transformers that take hidden states of another size."""
    folder = checkpoint.tensors.path.parent
    key = "word_embedding_dimension"
    for name in module_folders(folder):
        size = sibling_json(folder / name / "config.json", "config.json").get(key)
        if size not in (None, *checkpoint.roles.token.shape, *checkpoint.roles.config.values()):
            yield _misfit(f"{key} of {name}/config.json is {size}, a size of another model")


def _wrong_recipe(checkpoint: Checkpoint) -> str:
    """Return in words which tensor the first block needs and the file lacks, or nothing."""
    try:
        _ = checkpoint.recipe
    except InputError as error:
        return str(error)
    return ""


def check_vocab_size(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that the configured vocab_size is that of the token matrix, or of the head."""
    head = files.head.tensor if files.head else None
    head_rows = head.shape[0] if head else files.rows
    if files.vocab_size in (None, files.rows, head_rows):
        return
    text = f"the configured vocab_size is {files.vocab_size:,}; rows are {files.rows:,}"
    if files.tokens is not None:
        text += f", tokens {files.tokens:,}"
    yield _misfit(text)


def check_head(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that the output head fits the token matrix, and has a row for each token."""
    try:
        _ = checkpoint.head
        if checkpoint.roles.misfit_head:
            yield Finding("alarm", "head", checkpoint.roles.misfit_head)
    except PackedError as error:
        yield not_checked(f"the output head: {error}")
    except InputError as error:
        yield Finding("alarm", "head", str(error))
    if files.head is not None and files.head.tensor is not None:
        yield from _wrong_size(files.head.tensor, files)


def _wrong_size(head: Tensor, files: ModelFiles) -> Found:
    """Yield that a head has too few rows, or other rows than the token matrix."""
    rows = head.shape[0]
    needed = {"tokens": files.tokens, "the configured vocab_size": files.vocab_size}
    for what, size in needed.items():
        missing = (size or 0) - rows
        if missing > 0:
            text = f"the output head has {counted(rows, 'row')}; {what}: {size:,}"
            yield Finding("alarm", "head", text, missing)
            return
    if rows != files.rows:
        text = f"the token matrix has {files.rows:,} rows, the output head {rows:,}"
        level: Level = "finding" if rows > files.rows else "remark"
        yield Finding(level, "fit", text, abs(files.rows - rows))


def check_special_ids(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that special tokens have rows, and that files agree on their IDs.

    A list agrees with an ID that it contains. A model that never ends a text can be used, and
    llama.cpp takes an ID of its own in place of one without a row.
    """
    is_gguf = checkpoint.tensors.format == "GGUF"
    first_by_role: dict[str, SpecialId] = {}
    for special in files.special_ids:
        without_row = [token_id for token_id in special.ids if not 0 <= token_id < files.rows]
        if without_row:
            ids = ", ".join(map(str, without_row))
            text = f"{special}: no row for {ids}, rows are 0 to {files.rows - 1:,}"
            level: Level = "finding" if is_gguf or special.role in _HARMLESS else "alarm"
            yield Finding(level, "special-ids", text, len(without_row))
        first = first_by_role.setdefault(special.role, special)
        if not set(special.ids) & set(first.ids):
            eos = first_by_role.get("eos", first)
            is_swapped = special.role == "bos" and special.ids == eos.ids
            level = "finding" if is_swapped or special.role in _STAND_INS else "remark"
            yield Finding(level, "special-ids", f"{first} differs from {special}")


def check_end(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that a model that writes stops at the token by which its tokenizer ends a text.

    generate() of transformers stops at the IDs of generation_config.json; only without that file,
    it takes those of config.json. Models of sentence-transformers do not write, and llama.cpp reads
    neither file.
    """
    folder = checkpoint.tensors.path.parent
    is_embedder = (folder / "modules.json").is_file()
    if is_embedder or checkpoint.tensors.format == "GGUF" or not _is_writer(checkpoint):
        return
    decisive = "generation_config.json"
    if not (folder / decisive).is_file():
        decisive = "config.json"
    if not {*files.rows_of("eos")}.isdisjoint(files.rows_of("suppress")):
        yield _misfit(f"suppress_tokens of {decisive} has eos, so that no text ends")
    named = {special.file: special for special in files.special_ids if special.role == "eos"}
    if not named:
        yield Finding("remark", "special-ids", "no file names a token that ends a text (eos)")
    stop = named.get(decisive, SpecialId("eos", decisive, ()))
    if stop.ids:
        named.pop("config.json", None)
    for special in named.values():
        if set(special.ids).isdisjoint(stop.ids):
            text = f"generation stops at {stop}, and not at {special}"
            yield Finding("finding", "special-ids", text)
            return


def _is_writer(checkpoint: Checkpoint) -> bool:
    """Return whether the class that config.json names writes text."""
    classes = checkpoint.config.get("architectures")
    names = classes if isinstance(classes, list) else []
    return any(str(name).endswith(_WRITERS) for name in names)


def check_roles(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that a decoder has a token to begin with, and padding its own."""
    starts = files.rows_of("decoder_start") or files.rows_of("bos")
    if checkpoint.config.get("is_encoder_decoder") and not starts:
        yield _misfit("no file names the decoder_start_token_id, with which each output begins")
    for role in ("cls", "sep", "mask"):
        for other, name in (("pad", "padding"), ("unk", "unknown tokens")):
            if not set(files.rows_of(other)).isdisjoint(files.rows_of(role)):
                yield _misfit(f"{name} and {role} have one ID, so a model does not read {role}")
    shared = {*files.rows_of("pad")} & {*files.rows_of("unk")}
    if not shared <= files.unread_rows:
        text = f"padding and unknown tokens have one ID, {min(shared)}"
        yield Finding("remark", "special-ids", text)


def check_words(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that no word of word vectors has several rows."""
    words = checkpoint.tensors.own_words()
    if isinstance(words, OwnWords):
        counts = Counter(filter(None, map(words.token_bytes, range(words.vocabulary_size))))
        repeated = counts.total() - len(counts)
        if repeated:
            word = quoted(counts.most_common(1)[0][0].decode("utf-8", "replace"))
            text = f"{counted(repeated, 'row')} of words that have an earlier one, such as {word}"
            yield Finding("remark", "fit", text, repeated)

"""The process that asks transformers what it makes of the files of a folder.

`process` starts it by its path; it imports nothing of embcli. Each line on standard input is a
question in JSON, and is answered by one line. It ends when standard input ends, which it does with
its parent, and after a minute without a question, or one that a question takes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any, BinaryIO

SECONDS = 60  # of processor time for an answer, and of waiting for a question
MEMORY = 4 << 30  # bytes

Facts = dict[str, Any]


class NotAskedError(Exception):
    """There is no answer, and that is not because of the tokenizer's or the model's own files."""


def main() -> None:
    """Answer questions; the first line has the folders in which Python looks for modules."""
    answers = _only_answers()
    questions: Queue[bytes] = Queue()
    threading.Thread(target=_read, args=(questions,), daemon=True).start()
    sys.path[:] = json.loads(questions.get())
    while True:
        try:
            question = json.loads(questions.get(timeout=SECONDS))
        except Empty:
            return
        _limit("RLIMIT_DATA", MEMORY)
        _limit("RLIMIT_CPU", round(sum(os.times()[:2])) + SECONDS)
        # A lone surrogate is no character; orjson reads none.
        line = json.dumps(_answer(question), ensure_ascii=False).encode(errors="replace")
        answers.write(line + b"\n")
        answers.flush()


def _only_answers() -> BinaryIO:
    """Return standard output for answers; what packages print is discarded."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return answers


def _read(questions: Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        questions.put(line)
    os._exit(0)  # whatever the other thread does


def _limit(name: str, number: int) -> None:
    """Set the limit of a resource, where the system has it."""
    try:
        import resource

        kind = getattr(resource, name)
        _, largest = resource.getrlimit(kind)
        resource.setrlimit(kind, (number, largest))
    except (ImportError, AttributeError, ValueError, OSError):  # on Windows, or above another limit
        return


def _answer(question: Facts) -> Facts:
    """Return the facts, why the files have none, or why nothing was asked."""
    asked: dict[str, Callable[..., Facts]] = {
        "tokenizer": tokenizer,
        "ids": ids,
        "text": text,
        "weights": weights,
    }
    try:
        import transformers  # noqa: F401 - A package that is missing is no fault of the files.

        return {"facts": asked[question.pop("about")](**question)}
    except (NotAskedError, ImportError) as error:
        return {"not_asked": _cause(error)}
    except MemoryError:
        return {"not_asked": f"it takes more than {MEMORY >> 30} GiB of memory"}
    except BaseException as error:  # Panics of Rust are no Exceptions.
        return {"refused": _cause(error)}


def _cause(error: BaseException) -> str:
    """Return what an error says, on one line; if it has a cause, what that says."""
    cause = error.__cause__ or error
    words = str(cause).split()
    if isinstance(cause, KeyError) and len(words) == 1:
        words.append("is missing or unknown")
    return " ".join(words)[:300] or type(error).__name__


# --- tokenizers -----------------------------------------------------------------------------------


_ANY_CLASS = {"tokenizer.json", "tokenizer.model", "tiktoken.model", "tekken.json"}
# Settings by which a tokenizer_config.json can name files outside of its folder.
_OUTSIDE = ("vocab", "merges", "init_inputs", "gguf_file", "fast_tokenizer_files")


@cache
def _tokenizer(folder: str) -> Any:
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    _need_protobuf(folder)
    _refuse_outside(Path(folder, "tokenizer_config.json"))
    made = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not isinstance(made, PreTrainedTokenizerBase):
        raise ValueError(f"{type(made).__name__} is not a tokenizer")
    # Without its files, a class invents a few tokens; any class reads a file of _ANY_CLASS.
    own = {*made.vocab_files_names.values()} - {"tokenizer_config.json"}
    names = sorted(own | _ANY_CLASS)
    paths = [Path(folder, name) for name in names]
    if own and not any(path.is_file() and path.stat().st_size for path in paths):
        raise ValueError(f"{type(made).__name__} finds no file: {', '.join(names)}")
    return made


def _need_protobuf(folder: str) -> None:
    """Raise NotAskedError if files of SentencePiece cannot be read here, whatever they contain."""
    if not any(path.suffix in (".model", ".spm") for path in Path(folder).iterdir()):
        return
    try:
        import sentencepiece.sentencepiece_model_pb2  # noqa: F401 - Its class is made here.
    except Exception as error:
        raise NotAskedError(f"protobuf: {_cause(error)}") from None


def _refuse_outside(path: Path) -> None:
    settings = json.loads(path.read_bytes()) if path.is_file() else {}
    for key in _OUTSIDE:
        if isinstance(settings, dict) and os.sep in json.dumps(settings.get(key)):
            raise ValueError(f"tokenizer_config.json names a file of another folder as {key}")


def tokenizer(folder: str) -> Facts:
    """Return what a folder's tokenizer is.

    `described` is its tokenizer.json. It is None for a class that is Python's only; then `names`
    has the name of each ID, and `around` the IDs that the class puts before and after a text.
    """
    _tokenizer.cache_clear()  # The files may have changed.
    made = _tokenizer(folder)
    with suppress(Exception):  # A class that reads pages takes no text.
        made("a")  # Some classes complete their tokenizer at the first text.
    described = _described(made)
    names = []
    around: list[list[int]] = [[], []]
    if described is None:
        around = _around(made)
        names = _names(made, around[0] + around[1])
    return {
        "kind": type(made).__name__,
        "special_ids": _special_ids(made, folder),
        "splits_special": made.split_special_tokens,
        "described": described,
        "names": names,
        "around": around,
    }


def _names(made: Any, around: list[int]) -> list[str | None]:
    """Return the name of each ID, also of those around a text, which no vocabulary need have."""
    size = max([len(made) - 1, *made.get_vocab().values(), *around]) + 1
    return list(made.convert_ids_to_tokens(list(range(size))))


def _described(made: Any) -> str | None:
    backend = getattr(made, "backend_tokenizer", None)
    if backend is None:
        return None
    try:
        return str(backend.to_str())
    except Exception:  # A part of it is Python's.
        return None


def _special_ids(made: Any, folder: str) -> dict[str, int]:
    """Return the IDs of special tokens by role, of those that a file of the folder names."""
    content = b""
    for path in Path(folder).iterdir():
        if path.suffix in (".json", ".txt", ".model", ".spm") and path.is_file():
            content += path.read_bytes()
    found = {}
    for role in made.SPECIAL_TOKENS_ATTRIBUTES:
        token = getattr(made, role, None)
        if not isinstance(token, str):
            continue
        if token.encode(errors="replace") in content:
            found[role.removesuffix("_token")] = made.convert_tokens_to_ids(token)
    return found


def _around(made: Any) -> list[list[int]]:
    """Return the IDs before and after those of a text."""
    plain = made("a", add_special_tokens=False).input_ids
    whole = made("a").input_ids
    for start in range(len(whole) - len(plain) + 1):
        end = start + len(plain)
        if plain and whole[start:end] == plain:
            return [whole[:start], whole[end:]]
    return [whole, []]


def ids(folder: str, text: str, special: bool) -> Facts:
    """Return the IDs of a text; if special, with those that the class puts around it."""
    made = _tokenizer(folder)
    if special:
        return {"ids": made(text).input_ids}
    return {"ids": made(text, add_special_tokens=False, split_special_tokens=True).input_ids}


def text(folder: str, ids: list[int]) -> Facts:
    """Return the text of IDs."""
    return {"text": _tokenizer(folder).decode(ids, clean_up_tokenization_spaces=False)}


# --- weights --------------------------------------------------------------------------------------


def weights(folder: str, tensors: dict[str, tuple[str, list[int]]]) -> Facts:
    """Return which of a folder's tensors a class finds, and which it ties.

    `tensors` has the dtype and the shape of each; no file of weights is opened. Names are those of
    the class. `token` and `head` are the matrices of tokens, `body` is the first part of all names
    except those of a head. `failure` says why there is no such model, `faults` what is wrong in
    config.json.
    """
    import torch
    import transformers

    facts = {"transformers": transformers.__version__, "name": ""}
    try:
        kind = _described_class(folder)
    except ValueError as error:
        return {**facts, "failure": str(error)}
    facts["name"] = kind.__name__
    stored = {}
    for name, (dtype, shape) in tensors.items():
        stored[name] = torch.empty(shape, dtype=getattr(torch, dtype, torch.float32), device="meta")
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        # Quantised layers need packages and a GPU; the names of what they replace need neither.
        is_quantised = hasattr(config, "quantization_config") or hasattr(config, "quantization")
        with suppress(AttributeError):
            del config.quantization_config
        model, found = kind.from_pretrained(
            None,
            config=config,
            state_dict=stored,
            device_map="meta",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # else it raises in place of naming them
        )
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        return {**facts, "failure": _failure(error, folder)}

    faults = []
    if kind.config_class not in (type(config), *config.sub_configs.values()):
        faults.append(
            f"config.json is of {config.model_type}, "
            f"its class {kind.__name__} of {kind.config_class.model_type}"
        )
    has_bytes = any(tensor.element_size() == 1 for tensor in stored.values())
    if is_quantised and not has_bytes and not found["unexpected_keys"]:
        faults.append("config.json has a quantization_config; no tensor is quantised")
    return {
        **facts,
        **_unfit(model, found, is_quantised),
        "faults": faults,
        "ties": dict(model.all_tied_weights_keys),
        "token": _name_of(model, model.get_input_embeddings),
        "head": _name_of(model, model.get_output_embeddings),
        "body": "" if model.base_model is model else model.base_model_prefix,
        "ones": _ones(model),
    }


def _unfit(model: Any, found: Facts, is_quantised: bool) -> Facts:
    """Return the tensors that the files and the class do not both have in the same shape.

    A quantised weight that is stored in parts is not missing.
    """
    unexpected = sorted(found["unexpected_keys"])
    mismatched = sorted(found["mismatched_keys"])
    # Numbers are drawn; a counter is set.
    missing = [
        name
        for name in sorted(found["missing_keys"])
        if model.get_parameter_or_buffer(name).is_floating_point()
    ]
    if is_quantised:
        missing = [name for name in missing if not _is_in_parts(name, unexpected)]
        mismatched = [each for each in mismatched if not _is_in_parts(each[0], unexpected)]
        unexpected = []
    return {"missing": missing, "unexpected": unexpected, "mismatched": mismatched}


def _is_in_parts(name: str, unexpected: Iterable[str]) -> bool:
    """Return whether other tensors are those of a weight: `q_proj.qweight` of `q_proj.weight`."""
    module = name.rpartition(".")[0] + "."
    return any(each.startswith(module) for each in unexpected)


def _failure(error: Exception, folder: str) -> str:
    """Return why a class makes no model; raises MemoryError if there is too little memory.

    A name that a table of transformers lacks may be the value of a setting in config.json.
    """
    if "allocate memory" in str(error):
        raise MemoryError from None
    failure = "cannot be made of config.json: "
    if isinstance(error, KeyError):
        pairs: list[tuple[str, Any]] = []  # of all objects in it
        json.loads(Path(folder, "config.json").read_bytes(), object_pairs_hook=pairs.extend)
        failure += "".join(f"{key} " for key, value in pairs if value in error.args)
    failure += _cause(error)
    if "CONVERSION" in failure:  # It names the entries of a report that it has logged.
        return "cannot be made: tensors of the file that it joins do not fit together"
    return failure


def _ones(model: Any) -> list[str]:
    """Return how the names of weights end that are 1 in a new model; `*` is a layer's number.

    A norm multiplies by such a weight. Where a new one is 0, as in Gemma, it multiplies by 1 more.
    The model is of no use afterwards.
    """
    from transformers import PreTrainedModel

    ends = set()
    part = model
    for name, module in model.named_modules():
        if isinstance(module, PreTrainedModel):
            part = module
        weight = getattr(module, "weight", None)
        if weight is not None and weight.dim() == 1:
            new = module.to_empty(device="cpu").weight.data.zero_()
            with suppress(Exception):  # It may look for what only a whole model has.
                part._init_weights(module)
            if (new == 1).all():
                end = re.sub(r"(?<=\.)\d+(?=\.)", "*", f".{name}.weight")
                ends.add(end.removeprefix(f".{model.base_model_prefix}"))
    return sorted(ends)


def _described_class(folder: str) -> Any:
    """Return the class of transformers that config.json names.

    Raises NotAskedError if it names none, or a model that only code beside it makes, and ValueError
    if there is no such code.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config, _ = transformers.PreTrainedConfig.get_config_dict(folder, local_files_only=True)
    model_type = config.get("model_type")
    names = config.get("architectures")
    if not isinstance(model_type, str) or not names:
        raise NotAskedError("config.json names no class (model_type and architectures)")
    name = str(names[0] if isinstance(names, list) else names)
    unknown = f"has no model {name!r}"
    if model_type not in CONFIG_MAPPING:
        unknown = f"has no model_type {model_type!r}"
    elif hasattr(transformers, name):
        kind = getattr(transformers, name)
        base = transformers.PreTrainedModel
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            return kind
        raise NotAskedError(f"transformers {unknown}")
    if "auto_map" in config:
        raise NotAskedError(f"transformers {unknown}")
    raise ValueError(f"{unknown}, and config.json names no code of its own (auto_map)")


def _name_of(model: Any, find: Callable[[], Any]) -> str | None:
    """Return the name of the matrix of a module that a model finds; None if it has none."""
    try:
        module = find()
    except NotImplementedError:
        return None
    for name, other in model.named_modules():
        if other is module:
            return f"{name}.weight"
    return None


if __name__ == "__main__":
    main()

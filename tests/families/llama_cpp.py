"""A program that loads GGUF files with llama.cpp, each in a process of its own: JSON in and out.

It reads a line for each file, `{"path": ..., "texts": [...]}`, and writes one: the log, the IDs of
each text, and whether llama.cpp refuses the file, aborts at it or at a text, or computes NaN.
llama.cpp is the library in the package xllamacpp, called by its C interface; its own module is not
imported.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NO_VOCABULARY = 0  # the kind of a model without tokens, which splits no text


class Parameters(ctypes.Structure):
    """The parameters of a load, which are only passed on; the real ones are shorter."""

    _fields_ = (("content", ctypes.c_char * 512),)


class Batch(ctypes.Structure):
    """Some tokens that are computed; positions and the rest are llama.cpp's own."""

    _fields_ = (("size", ctypes.c_int32), ("content", ctypes.c_void_p * 6))


Logger = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def library() -> Any:
    """Return llama.cpp, with the types of the functions that are called."""
    spec = find_spec("xllamacpp")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (path,) = Path(spec.submodule_search_locations[0]).glob("xllamacpp*.so")
    llama = ctypes.CDLL(str(path))
    llama.llama_model_default_params.restype = Parameters
    llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Parameters]
    llama.llama_model_load_from_file.restype = ctypes.c_void_p
    llama.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    llama.llama_model_get_vocab.restype = ctypes.c_void_p
    llama.llama_vocab_type.argtypes = [ctypes.c_void_p]
    llama.llama_tokenize.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32),
        *(ctypes.POINTER(ctypes.c_int32), ctypes.c_int32, ctypes.c_bool, ctypes.c_bool),
    ]
    llama.llama_context_default_params.restype = Parameters
    llama.llama_init_from_model.argtypes = [ctypes.c_void_p, Parameters]
    llama.llama_init_from_model.restype = ctypes.c_void_p
    llama.llama_batch_get_one.restype = Batch
    llama.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    llama.llama_get_logits.argtypes = [ctypes.c_void_p]
    llama.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    return llama


def computes(llama: Any, model: Any) -> bool:
    """Return whether the logits after some tokens are numbers."""
    context = llama.llama_init_from_model(model, llama.llama_context_default_params())
    ids = (ctypes.c_int32 * 3)(1, 2, 3)
    llama.llama_decode(context, llama.llama_batch_get_one(ids, len(ids)))
    return math.isfinite(llama.llama_get_logits(context)[0])


def answer(llama: Any, path: str, texts: list[str]) -> dict[str, Any]:
    """Load a file and split texts, with the special tokens in them and around them."""
    model = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
    if not model:
        return {"refuses": True, "ids": []}
    vocabulary = llama.llama_model_get_vocab(model)
    ids = []
    if llama.llama_vocab_type(vocabulary) != NO_VOCABULARY:
        room = (ctypes.c_int32 * 512)()
        for text in texts:
            data = text.encode()
            count = llama.llama_tokenize(vocabulary, data, len(data), room, len(room), True, True)
            ids.append(room[:count])
    return {"refuses": not computes(llama, model), "ids": ids}


def asked(llama: Any, path: str, texts: list[str]) -> dict[str, Any]:
    """Return the answer of a child process, with its log."""
    log_end, child_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(child_end, 1)
        os.dup2(child_end, 2)
        logger = Logger(lambda level, line, _: os.write(child_end, line) and None)
        llama.llama_log_set(logger, None)
        found = answer(llama, path, texts)
        os.write(child_end, b"\n" + json.dumps(found).encode())
        os._exit(0)
    os.close(child_end)
    with os.fdopen(log_end, "rb") as pipe:
        log = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    if status != 0:
        return {"refuses": True, "ids": [], "log": log}
    log, _, found = log.rpartition("\n")
    return {**json.loads(found), "log": log}


if __name__ == "__main__":
    os.environ["GGML_NO_BACKTRACE"] = "1"
    llama_cpp = library()
    for request in sys.stdin:
        print(json.dumps(asked(llama_cpp, **json.loads(request))), flush=True)

"""See what an embedding layer does: the rows that tokens pick, from a seeded layer or a real model.

`open` reads a model's file and `seeded` draws layers as PyTorch does; both return a `Model`, whose
methods are the verbs of the command and return what it shows: tokenize, merges, decode, weights,
lookup, compare, batch, positions, neighbors, audit, diff and info. `print` shows a result as the
command does, `help(embcli.Model)` tells how to get rows, and `print(embcli.explain("Python"))` has
the rest. `tokenizers` compares encodings and `count` counts tokens, which needs no model.

>>> import embcli
>>> embcli.seeded(vocab=6, dim=3)[2].round(4).astype(str).tolist()
['1.2753', '-0.201', '-0.1606']
"""

# Nothing is imported here, not even __future__: Ctrl-C during start-up would leave a traceback.

# Type checkers know this name; its import from typing would take longer than the rest of the file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from embcli.errors import (
        EmbcliError,
        IdError,
        InputError,
        LayerError,
        MissingDataError,
        MissingFileError,
        OutputError,
        RangeError,
        WrongTypeError,
    )
    from embcli.model import Model, open, seeded
    from embcli.names import __version__ as __version__
    from embcli.result import Result
    from embcli.verbs.count import count
    from embcli.verbs.explain import explain
    from embcli.verbs.tokenizers import tokenizers

__all__ = [
    "EmbcliError",
    "IdError",
    "InputError",
    "LayerError",
    "MissingDataError",
    "MissingFileError",
    "Model",
    "OutputError",
    "RangeError",
    "Result",
    "WrongTypeError",
    "count",
    "explain",
    "open",
    "seeded",
    "tokenizers",
]
# The modules of the names that are not errors.
_HOMES = {
    "Model": "embcli.model",
    "open": "embcli.model",
    "seeded": "embcli.model",
    "Result": "embcli.result",
    "count": "embcli.verbs.count",
    "explain": "embcli.verbs.explain",
    "tokenizers": "embcli.verbs.tokenizers",
    "__version__": "embcli.names",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for.

    `from embcli import` of a module asks here first, and must import nothing.
    """
    from importlib import import_module

    if name not in __dir__():
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; "
            f"if it is a verb, a model has it: embcli.seeded().{name}(...)"
        )
    home = _HOMES.get(name, "embcli.errors")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

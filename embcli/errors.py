"""Errors that a user can correct, and remarks on a result.

All of embcli raises these errors; the command prints each as one or two lines. Remarks belong to a
result, but are not part of its data or its page. `Watch` is how a long pass shows its progress.
"""

from __future__ import annotations

import errno
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any, Protocol, TypeVar

from embcli.names import Extra, MatrixShape, Strings, Variable
from embcli.wording import Parameter, Sentence, in_bytes, nearest, shortened

Item = TypeVar("Item")


class EmbcliError(Exception):
    """Something that the user can correct; the message names the value, the reason and the cure.

    The hint is a second line, with what to do instead. `str(error)` names parameters as Python does
    (`dim`); `error.message` may be a Sentence, in which the command puts flags (`--dim`). A message
    that is given with values is the template of one. `error.model` is what was given as a model,
    and may not be meant as one.

    >>> import embcli
    >>> try:
    ...     embcli.seeded(vocab=6, dim=0)
    ... except embcli.EmbcliError as error:
    ...     print(error)
    dim must be at least 1, not 0
    """

    def __init__(
        self, message: str | Sentence, hint: str = "", model: str = "", **values: object
    ) -> None:
        if values:
            message = Sentence(str(message), **values)
        super().__init__(shortened(str(message)))
        self.message = message
        self.hint = hint
        self.model = model


class InputError(EmbcliError, ValueError):
    """The input is missing, unreadable, malformed or out of range.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3)[[[1], [2, 3]]]
    Traceback (most recent call last):
    embcli.errors.InputError: sequences of lengths [1, 2] are not one array of IDs; ...
    """


class IdError(InputError, IndexError):
    """A token ID has no row, or is not one of a token.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3)[6]
    Traceback (most recent call last):
    embcli.errors.IdError: ID 6 at position 0 has no row: ...; embcli.seeded(..., vocab=7) ...
    """


class RangeError(InputError):
    """A number is out of range, or a number or name chooses nothing that is there.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights(rows="4:8")
    Traceback (most recent call last):
    embcli.errors.RangeError: '4:8' is out of range: there are 6 rows, from 0 to 5
    """


class WrongTypeError(InputError, TypeError):
    """A value is of another type than the parameter takes.

    >>> import embcli
    >>> embcli.seeded(vocab="6")
    Traceback (most recent call last):
    embcli.errors.WrongTypeError: vocab must be a whole number, not '6'
    """


class MissingFileError(InputError, FileNotFoundError):
    """A file is not there, or a model is not found.

    >>> import embcli
    >>> embcli.open("nowhere.safetensors")
    Traceback (most recent call last):
    embcli.errors.MissingFileError: 'nowhere.safetensors' not found as a file, ...
    """


class LayerError(EmbcliError, ValueError):
    """No such layer can be built: its seed, shape or size is out of range.

    >>> import embcli
    >>> embcli.seeded(dim=10**12)
    Traceback (most recent call last):
    embcli.errors.LayerError: a token layer of 50,257 x 1,000,000,000,000 takes ...
    """


class OutputError(EmbcliError):
    """A result cannot be written in this format, or not to this place.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights().save("rows.docx")
    Traceback (most recent call last):
    embcli.errors.OutputError: output 'rows.docx' has no known extension; ...
    """


class MissingDataError(OutputError, AttributeError):
    """A result has no matrix of this name, or is a page without data.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).weights().position
    Traceback (most recent call last):
    embcli.errors.MissingDataError: a result of weights has no 'position' here; ...
    """


def missing_extra(what: str, extra: Extra, error: Exception | None = None) -> str:
    """Return the sentence for a package that is missing, or whose import raises an error.

    `extra` is the extra of embcli that installs the package.
    """
    if error is None or isinstance(error, ImportError):
        return f"{what} needs a package that is missing: pip install 'embcli[{extra}]'"
    return f"{what} needs a package that does not load ({_reason(error)})"


def does_not_load(package: str, error: Exception) -> str:
    """Return the sentence for a package that embcli cannot do without."""
    return (
        f"{package} does not load ({_reason(error)}); "
        f"reinstall it: pip install --force-reinstall {package}"
    )


def _reason(error: Exception) -> str:
    """Return an error's message on one line, or its class if it has none."""
    message = str(error) or type(error).__name__
    return " ".join(message.split())[:200]


def memory_of_machine() -> int:
    """Return the memory of this machine, in bytes; 2**40 on Windows, where it is not known."""
    if not hasattr(os, "sysconf"):
        return 2**40
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse_too_large(what: str, shape: MatrixShape, copies: int = 1, more: int = 0) -> None:
    """Raise LayerError if float32 matrices do not fit into this machine's memory.

    There are `copies` matrices of this shape, and `more` bytes beside them.
    """
    rows, columns = shape
    size = 4 * rows * columns * copies + more
    memory = memory_of_machine()
    if size > memory:
        raise LayerError(
            f"{what} of {rows:,} x {columns:,} takes {in_bytes(size)}, and this machine has "
            f"{in_bytes(memory)} of memory"
        )


def whole_number(
    parameter: str,
    value: Any,
    least: float = -math.inf,
    most: float = math.inf,
    /,
) -> int:
    """Return an integer of Python or of numpy as Python's.

    Raises WrongTypeError for another type, such as bool, and RangeError for one out of range.
    """
    name = Parameter(parameter)
    index: Any = None if isinstance(value, bool) else value  # True is an int, but not meant as one
    try:
        number = operator.index(index)
    except TypeError:
        wrong = "{parameter} must be a whole number, not {given}"
        given = repr(value)[:60]
        raise WrongTypeError(wrong, parameter=name, given=given) from None
    if not least <= number <= most:
        wrong = "{parameter} must be from {least} to {most}, not {given}"
        if number < least:
            wrong = "{parameter} must be at least {least}, not {given}"
        raise RangeError(wrong, parameter=name, least=least, most=most, given=number)
    return number


_LARGEST_FLOAT32 = 3.4028234663852886e38


def check_number(parameter: str, value: Any, least: float) -> None:
    """Raise WrongTypeError for no number, and RangeError for one out of range or NaN."""
    name = Parameter(parameter)
    is_number = isinstance(value, Real)
    if not is_number:
        wrong = "{parameter} must be a number, not {given!r}"
        raise WrongTypeError(wrong, parameter=name, given=value)
    if not least <= value <= _LARGEST_FLOAT32:
        wrong = "{parameter} must be a finite float32 of at least {least}, not {given}"
        raise RangeError(wrong, parameter=name, least=least, given=value)


def check_choice(parameter: str, name: str | None, names: Iterable[str], hint: str = "") -> None:
    """Raise RangeError for a name that is not one of those to choose from.

    None stands for a default.
    """
    if name is None or name in names:
        return
    wrong = "{parameter} {given!r} is not known; choose from {names}"
    near = nearest(str(name), names)
    if near:
        wrong += f"; did you mean {near}?"
    raise RangeError(
        wrong,
        hint,
        parameter=Parameter(parameter),
        given=str(name)[:40],
        names=", ".join(names),
    )


def check_choices(parameter: str, chosen: Iterable[str], names: Iterable[str]) -> Strings:
    """Return one name, or several, as a tuple; raise InputError for one not to choose from."""
    choices = (chosen,) if isinstance(chosen, str) else tuple(chosen)
    for name in choices:
        check_choice(parameter, name, names)
    return choices


def variable(name: Variable, choices: Iterable[str] | None) -> str:
    """Return the value of a variable of the environment; empty if it has none.

    Raises RangeError for a value that is not one of the choices; None stands for any value.
    """
    value = os.environ.get(name, "")
    if value and choices is not None:
        check_choice(name, value, choices)
    return value


_NO_MEMORY = "allocate memory|not enough memory|bad_alloc|start new thread|failed to map segment"


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that memory ran out.

    Python, numpy, torch and the system say it differently.
    """
    if isinstance(error, (RuntimeError, ImportError)):
        return bool(re.search(_NO_MEMORY, str(error)))
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError)


class Watch(Protocol):
    """A function that shows how far a pass over items has come."""

    def __call__(
        self, items: Iterable[Item], total: int, size: Callable[[Item], int], /
    ) -> Iterator[Item]:
        """Yield the items as they come; `total` is the sum of their sizes."""


def unwatched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Return the items and show nothing."""
    return iter(items)


class Notes:
    """Remarks in order, each once.

    A model has the notes of its opening; a call begins with these and adds its own to its result.
    The command has a subclass whose `added` and `slow` print remarks as they come. What
    takes long shows its progress by `watch`.

    >>> notes = Notes()
    >>> notes.add("the input is empty")
    >>> list(notes)
    ['the input is empty']
    """

    watch: Watch = staticmethod(unwatched)

    def __init__(self, *remarks: str) -> None:
        self.remarks = dict.fromkeys(remarks)
        self._changing: list[Callable[[], str]] = []

    def __repr__(self) -> str:
        return f"Notes{tuple(self)}"

    def begun(self, *others: Notes) -> Notes:
        """Return notes for one call, which begin with these remarks and those of others.

        What the call adds is not added to these.
        """
        notes = type(self)()
        notes.watch = self.watch
        for each in (self, *others):
            notes.remarks |= each.remarks
            notes._changing += each._changing
        return notes

    def add(self, remark: str | Sentence) -> None:
        """Add a remark, unless it is already there."""
        text = str(remark)
        if text not in self.remarks:
            self.remarks[text] = None
            self.added(remark)

    def count(self, remark: Callable[[], str]) -> None:
        """Add a remark that changes while rows are read; it is empty if there is nothing to say."""
        self._changing.append(remark)

    @property
    def counted(self) -> list[str]:
        """The remarks that change while rows are read."""
        texts = dict.fromkeys(remark() for remark in self._changing)
        return list(filter(None, texts))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.remarks, *self.counted]))

    def added(self, remark: str | Sentence) -> None:
        """Do nothing with a new remark; the command prints it."""

    @contextmanager
    def slow(self, what: str) -> Iterator[None]:
        """Do nothing around a step that takes long; the command shows its name."""
        yield

"""Options and arguments as Typer reads them: their words are in `data/options.json`.

An option is declared once, as a parameter of a command or a field of a group. What is code about
it, such as how a shell completes it, stands in its annotation; types that several have are here.
"""

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import typer

from embcli import names
from embcli.errors import InputError
from embcli.formats import FORMATS, PICTURES, VIEWS, or_list
from embcli.names import Strings
from embcli.positions import JOINED_KINDS, KINDS
from embcli.wording import load_facts

Settings = dict[str, Any]  # of Typer, by their names

_WORDS = load_facts("options.json")
# What the words name in braces, besides defaults.
_FACTS = vars(names) | {
    "MODEL": "A model: file, folder, name in the Hugging Face cache, or hf://org/name.",
    "KINDS": or_list(KINDS),
    "MATRICES": ", ".join(names.MATRICES),
    "COMPARED": ", ".join(names.COMPARED),
    "JOINED_KINDS": ", ".join(JOINED_KINDS),
    "FAULTS": ", ".join((*names.FAULT_GROUPS, *names.FAULTS)),
    "FORMATS": or_list(tuple(FORMATS)),
    "MADE_FROM_TEXT": or_list(tuple(names.MADE_FROM_TEXT.values())),
}
_SHOWN_IN = {
    "all formats": tuple(FORMATS),
    "pages": VIEWS,
    "colours": ("table", *PICTURES),
    "pictures": PICTURES,
}
spellings: dict[str, str] = {}  # of the options in the command line, by their flags: -k for --top
# Parameters of the library whose flags have other names; all others are flags of the same name.
_FLAGS = {"path": "--from", "kind": "KIND", "text": "TEXT", "word": "WORD"}


class Marks(NamedTuple):
    """What a command knows of an option besides its value."""

    formats: Strings  # that can show it
    is_read: bool  # whether it names a file, which the result does not replace


def flag_of(parameter: str) -> str:
    """Return a parameter of the library, or a variable of the environment, as a user types it.

    An option of the command line is spelled as it is there.

    >>> flag_of("context_length"), flag_of("path"), flag_of("EMBCLI_THEME")
    ('--context-length', '--from', 'EMBCLI_THEME')
    """
    if parameter.isupper():
        return parameter
    flag = _FLAGS.get(parameter, f"--{parameter.replace('_', '-')}")
    return spellings.get(flag, flag)


def as_flag(name: str, annotation: Any, default: Any, owners: Sequence[str]) -> inspect.Parameter:
    """Return a parameter as Typer reads it: an option, or without a panel of the help an argument.

    It has the words of the last of its owners that has some, groups or a command, or those that
    all share. `spelling` has its flags, unless they are its name, and a metavar: `--top -k K`;
    `default` is what the help shows as such, if not the default itself.
    """
    words: dict[str, Any] = {}
    for owner in ("shared", *owners):
        words = _WORDS.get(owner, {}).get(name, words)
    if not words:
        raise LookupError(f"data/options.json has no words for {name} of {owners[-1]}")
    spelling = words.get("spelling", "").split()
    flags = [word for word in spelling if word.startswith("-")]
    shown_default = words.get("default", "panel" in words)
    if isinstance(shown_default, str):
        shown_default = shown_default.format_map(_FACTS)
    settings = {
        "help": words["help"].format_map(_FACTS),
        "metavar": " ".join(spelling[len(flags) :]) or None,
        "show_default": shown_default,
        "case_sensitive": False,
    }
    for further in getattr(annotation, "__metadata__", ()):
        settings |= further

    if "panel" in words:
        flags = flags or [f"--{name.replace('_', '-')}"]
        info = typer.Option(*flags, rich_help_panel=words["panel"], **settings)
    else:
        info = typer.Argument(**settings)
    marks = Marks(_SHOWN_IN[words.get("shown_in", "all formats")], "is_read" in words)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, info, marks],
    )


# --- what annotations say ---


def some_of(known: Strings) -> Settings:
    """Complete one of these names, or the last of several with commas.

    Only names are offered that are not used yet; without any, the shell completes paths.
    """

    def complete(incomplete: str) -> list[str]:
        *used, last = incomplete.split(",")
        if not {*used} <= {*known}:
            return []
        others = [name for name in known if name not in used and name.startswith(last)]
        return [",".join([*used, name]) for name in others]

    return {"autocompletion": complete}


def _listed(words: str) -> Strings:
    return tuple(name.strip() for name in words.split(","))


def _explained_words(incomplete: str) -> list[str]:
    """Complete a word that is explained; words that a shell would have to quote are omitted."""
    from embcli.verbs.explain import named

    unquoted = filter(re.compile(r"\w[\w.-]*").fullmatch, sorted(named()))
    return [name for name in unquoted if name.startswith(incomplete)]


def _models(incomplete: str) -> list[str]:
    """Complete the name of a model in the Hugging Face cache.

    Without such a model there are no names, and the shell completes paths.
    """
    from embcli.hub.local import cache_folder, model_folders

    return [name for name, _ in model_folders(cache_folder()) if name.startswith(incomplete)]


def _several(encodings: list[str]) -> list[str]:
    """Return the encodings that are named, one or several in a word."""
    return [str(_made_from_input(name)) for name in _listed(",".join(encodings))]


def _made_from_input(encoding: str | None) -> str | None:
    """Return the name of an encoding; that of a vocabulary made from standard input has its path.

    Nothing else can read standard input then.
    """
    match = re.fullmatch(f"({'|'.join(names.MADE_FROM_TEXT)}):-(:.*)?", encoding or "")
    if match is None:
        return encoding
    if sys.stdin is None or sys.stdin.isatty():
        example = f"{names.PROGRAM} weights --encoding words:- < story.txt"
        raise InputError(f"{encoding} needs a text that is piped in, as in: {example}")
    sys.stdin = None
    return f"{match[1]}:/dev/stdin{match[2] or ''}"


DEFAULT_ENCODINGS = [names.DEFAULT_ENCODING]
_AN_ENCODING = some_of(names.ENCODINGS)
Listed = Annotated[Any, {"parser": _listed}]  # names with commas, which the library checks
Encoding = Annotated[str | None, {"callback": _made_from_input}, _AN_ENCODING]
Encodings = Annotated[list[str], {"callback": _several}, _AN_ENCODING]
Explained = Annotated[list[str] | None, {"autocompletion": _explained_words}]
ModelPath = Annotated[str | None, {"autocompletion": _models}]

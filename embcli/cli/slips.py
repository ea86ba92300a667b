"""Likely mistakes in a command line: what other programs call an option is understood; others get the right command."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embcli.cli.paths import is_file
from embcli.formats import ALIASES, FORMATS

# Options by the names that other programs have for them; those of a verb come after its name.
_OPTIONS = {
    "--model": "--from",
    "-n": "--top",
    "-d": "--dim",
    "--length": "--context-length",
    "batch --length": "--max-length",
    "batch --file": "",  # the file is an argument
    **{f"--{name}": f"--format={name}" for name in (*FORMATS, *ALIASES) if name != "ids"},
}
# Verbs by other names, and a text for those that need one.
_VERBS = {
    **dict.fromkeys(("similarity", "similar", "nearest", "search"), ("neighbors", '" Paris"')),
    **dict.fromkeys(("embed", "embedding", "embeddings"), ("lookup", '"Every effort moves you"')),
    **dict.fromkeys(("encode", "tokens"), ("tokenize", '"Every effort moves you"')),
    **dict.fromkeys(("inspect", "show", "tensors"), ("info", "")),
    **dict.fromkeys(("rope", "rotary"), ("positions rotary", "")),
    "version": ("--version", ""),
}
_CONTENTS = ("list", "ls", "show")  # of the cache, which `embcli cache` shows
_OF_A_TEXT = ("embcli tokenize", "embcli lookup", "embcli compare", "embcli neighbors")


@dataclass(frozen=True)
class Slip:
    """A command line that Typer refuses.

    >>> slip = Slip("Got unexpected extra argument(s) (effort)", "embcli lookup", ("--dim", "3", "Every", "effort"),
    ...             ("--dim",), ("--dim",))
    >>> slip.hint
    'Put the text in quotes: embcli lookup "Every effort" --dim 3'
    """

    message: str
    command: str  # "embcli lookup"
    words: tuple[str, ...]  # after the command
    options: tuple[str, ...] = ()  # that the command has
    with_value: tuple[str, ...] = ()  # those whose value is the next word

    @classmethod
    def of(cls, error: Any, words: Sequence[str]) -> "Slip":
        """Return the slip of an error of Typer in these words after `embcli`."""
        context = getattr(error, "ctx", None)
        verb = [word for word in words[:1] if not word.startswith("-")]
        command = context.command_path if context else " ".join(["embcli", *verb])
        message = " ".join(error.format_message().replace("Value error, ", "").split())
        declared = context.command.params if context else []
        options = tuple(name for option in declared for name in option.opts)
        with_value = tuple(name for option in declared if not getattr(option, "is_flag", True) for name in option.opts)
        return cls(message, command, tuple(words[len(command.split()) - 1 :]), options, with_value)

    @property
    def corrected(self) -> list[str] | None:
        """The words after `embcli` that were meant, if no doubt is possible."""
        verb = self.command.split()[1:]
        if self.command == "embcli cache" and self.words[:1] and self.words[0] in _CONTENTS:
            return [*verb, *self.words[1:]]
        unknown = self._unknown
        name = _OPTIONS.get(" ".join([*verb, unknown]), _OPTIONS.get(unknown))
        place = self._place(unknown)
        if name is None or place is None or (name and name.partition("=")[0] not in self.options):
            return None
        value = self.words[place][len(unknown) :].removeprefix("=")
        return [*verb, *self.words[:place], *filter(None, (name, value)), *self.words[place + 1 :]]

    @property
    def hint(self) -> str:
        """The command that was probably meant, or where to find help."""
        if self.command in _OF_A_TEXT and self.message.startswith("Got unexpected extra argument"):
            if "--ids" in self._split_words[:-2]:
                return f"Write the IDs as one word, with commas between: {self.command} {self._with_joined_ids()}"
            model = next((word for word in self.words if _is_model(word)), None)
            if model is not None and self.command != "embcli tokenize":
                rest = shlex.join(word for word in self.words if word != model)
                return f"A model is named by --from: {self.command} {rest} --from {shlex.quote(model)}"
            return f"Put the text in quotes: {self.command} {self._with_joined_text()}"
        if self.command == "embcli" and self.words[:1] and self.words[0] in _VERBS:
            verb, text = _VERBS[self.words[0]]
            model = "" if verb != "neighbors" or {"--from", "--model"} & {*self.words} else "--from gpt2"
            return f"That is: {' '.join(filter(None, ['embcli', verb, shlex.join(self.words[1:]) or text, model]))}"
        unknown, pattern = self._unknown, r"\s|^-[^-a-zA-Z]"
        dashed = [word for word in self.words if unknown and word.startswith(unknown) and re.search(pattern, word)]
        if dashed:
            others = [shlex.quote(word) for word in self.words if word != dashed[0]]
            command = " ".join([self.command, *others, "--", _quoted(dashed[0])])
            return f"Put -- before a text that begins with a dash: {command}"
        return f"Try '{self.command} --help' for help."

    @property
    def _unknown(self) -> str:
        """The option that the command does not have."""
        match = re.match(r"No such option: (\S+)", self.message)
        return match[1] if match else ""

    @property
    def _split_words(self) -> list[str]:
        """The words, with the value of `--ids=` as a word of its own."""
        return [part for word in self.words for part in (word.split("=", 1) if word.startswith("--ids=") else [word])]

    def _place(self, option: str) -> int | None:
        """Return the place of an option among the words, which may have its value in the same word."""
        value = False
        for place, word in enumerate(self.words):
            if word == "--":
                return None
            glued = word.startswith(option if len(option) == 2 else f"{option}=")
            if not value and option and (word == option or glued):
                return place
            value = not value and word in self.with_value
        return None

    def _with_joined_ids(self) -> str:
        """Return the words with the IDs after --ids joined to one word."""
        words = self._split_words
        start = words.index("--ids") + 1
        others = (place for place in range(start, len(words)) if not re.fullmatch(r"[0-9,]+", words[place]))
        stop = next(others, len(words))
        ids = ",".join(word.strip(",") for word in words[start:stop])
        return " ".join([*map(shlex.quote, words[:start]), ids, *map(shlex.quote, words[stop:])])

    def _with_joined_text(self) -> str:
        """Return the words, with all that are neither options nor their values joined to one text."""
        text: list[str] = []
        others: list[str] = []
        rest = iter(self.words)
        for word in rest:
            if word == "--":
                text += rest
            elif word.startswith("-") and word != "-":
                others += [word, *([next(rest, "")] if word in self.with_value else [])]
            else:
                text.append(word)
        return " ".join([_quoted(" ".join(text)), *map(shlex.quote, others)])


def _is_model(word: str) -> bool:
    """Return whether there is a file of this name, which has a suffix, or a folder with a model's settings."""
    return (Path(word).suffix != "" and is_file(word)) or is_file(f"{word}/config.json")


def _quoted(text: str) -> str:
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'

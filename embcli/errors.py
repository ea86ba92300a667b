"""The errors that embcli raises on purpose: one or two lines each, for the person who typed the command."""


class EmbcliError(Exception):
    """Something that the user can mend; the message names the value, the reason and the cure.

    The hint is a second line, with what to type instead.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(EmbcliError):
    """What was given to read is missing, unreadable, malformed or out of range."""


class LayerError(EmbcliError):
    """No such layer can be built: its seed, its shape or its size is off."""


class OutputError(EmbcliError):
    """A result cannot be written in this form, or not to this place."""


def lacks(what: str, extra: str) -> str:
    """Return the sentence for what needs a package that comes with an extra of embcli, and is missing.

    >>> lacks("parquet", "arrow")
    "parquet needs a package that is missing: pip install 'embcli[arrow]'"
    """
    return f"{what} needs a package that is missing: pip install 'embcli[{extra}]'"

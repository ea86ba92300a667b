"""The README's pictures: what embcli draws for these commands. `python -m tests.pictures` draws them anew."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import embcli
from embcli.cli.explore import speller
from embcli.cli.models import NamedModel
from embcli.cli.options import flag_of
from embcli.explore import picture
from embcli.explore.start import begin
from tests.inside import Inside
from tests.screen import COLORS
from tests.screens import settled

FOLDER = Path(__file__).parent
PICTURES = {
    "lookup": ("lookup", "Every effort moves you"),
    "heat": ("lookup", "Every effort moves you", "--heat"),
    "compare": ("compare", "--draw", "--show", "one-hot"),
    "explore": ("explore",),
}


def drawn(name: str) -> bytes:
    """Return a picture as embcli draws it now."""
    if name == "explore":
        return _screen()
    return Inside().ok(*PICTURES[name], "--width", "80", "-f", "svg").out


def _screen() -> bytes:
    """Return a screen of explore: a row and its neighbours."""
    with mock.patch.dict(os.environ, COLORS):
        desk = begin(embcli.seeded(), speller(NamedModel(), None), flag_of, True, row=" effort")
        desk.press("enter")
        return picture.drawn(settled(desk, 96, 26))

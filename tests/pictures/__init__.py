"""The README's pictures: what embcli draws for these commands. `python -m tests.pictures` draws them anew."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from unittest import mock

import embcli
from embcli.explore.app import Explorer
from embcli.explore.explored import ExploredMatrix
from embcli.explore.spelling import speller
from tests.explored import settle
from tests.runners import InProcess

FOLDER = Path(__file__).parent
PICTURES = {
    "lookup": ("lookup", "Every effort moves you"),
    "heat": ("lookup", "Every effort moves you", "--dim", "32", "--heat"),
    "compare": ("compare", "--draw", "--show", "one-hot"),
    "explore": ("explore",),
}


def drawn(name: str) -> bytes:
    """Return a picture as embcli draws it now."""
    if name == "explore":
        return _screen()
    return InProcess().ok(*PICTURES[name], "--width", "80", "-f", "svg").out


def _screen() -> bytes:
    """Return a screen of explore: a row and its neighbours."""

    async def pictured() -> str:
        source = ExploredMatrix(embcli.seeded(), speller(None, {}))
        async with Explorer(source, source.row_of(" effort")).run_test(size=(96, 26)) as pilot:
            await pilot.press("enter")
            await settle(pilot)
            pilot.app.theme = "textual-light"
            await settle(pilot)
            drawn = pilot.app.export_screenshot()
            return re.sub(
                r"@font-face \{.*?\}|<!--.*?-->| clip-path=\"[^\"]*\"", "", drawn, flags=re.DOTALL
            )  # fonts from the web

    with mock.patch.dict(os.environ, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}):
        return asyncio.run(pictured()).encode()

"""Every command's usual page in each view, and a few more pages, compared whole.

The pages are files under tests/pages/, in one folder for each kind of page. `pytest
--accept=tests/pages` writes them anew.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import xml.etree.ElementTree as ET
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from safetensors.numpy import save_file

from tests.cases import data
from tests.files.made import matrix, save_words
from tests.runners import InProcess
from tests.snapshots import PAGES, with_styles

DATA = data(__name__)
TERMINAL = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "80", "LINES": "24"}
FORMATS = {"page.svg": "svg", "page.html": "html", "page.md": "markdown"}
VIEWS = ("terminal.txt", "pipe.txt", *FORMATS)

# A page of each kind. `base` and `tuned` are models that a fixture writes.
COMMANDS = DATA["commands"]
PAGES_WITHOUT_FORMATS = ("decode", "tour")
CASES = [
    (kind, view)
    for kind, view in itertools.product(COMMANDS, VIEWS)
    if view not in FORMATS or kind not in PAGES_WITHOUT_FORMATS
]

# Pages that options change, in a pipe of 80 columns.
FURTHER = DATA["further"]

# Pages whose pictures are held against their tables.
PICTURED = DATA["pictured"]
FOREIGN = re.compile(r"font-face|<script|https?://(?!www\.w3\.org)")

TEXTS = {
    "english.txt": "Every effort moves you\n",
    "german.txt": "Jede Mühe bringt dich weiter\n",
    "japanese.txt": "どんな努力も前に進む力になる\n",
}
WORDS = [f"word{number}" for number in range(80)]
RESERVED = [f"[unused{number}]" for number in range(20)]
PADDING = 12  # rows behind those of the tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model of planted faults, and the same model fine-tuned."""
    folder = tmp_path_factory.mktemp("pages")
    random = np.random.default_rng(1)
    words = len(WORDS)
    rows = random.standard_normal((words + len(RESERVED) + PADDING, 8), np.float32)
    rows[words:] *= 0.01
    rows[5] = 0
    rows[7, 2] = np.nan
    rows[[30, 40]] = rows[20]
    rows[50] = 1.001 * rows[words + 3]
    positions = random.standard_normal((16, 8), np.float32)
    write_model(folder / "base", rows, positions)
    (folder / "texts").mkdir()
    for name, text in TEXTS.items():
        (folder / "texts" / name).write_text(text)

    rows[11] += 0.5
    rows[60, 3] *= -1
    write_model(folder / "tuned", rows, positions)

    own = matrix(50257, 8, 0) + 0.5
    own[[124, 125, *range(177, 188), 43453]] *= 0.01
    own[9] = own[8]
    np.save(folder / "own.npy", own)
    own[3626] += 0.01
    own[6100, 2] *= -1
    np.save(folder / "tuned.npy", own)
    return folder


def write_model(folder: Path, token: np.ndarray, position: np.ndarray) -> None:
    """Write a model of GPT-2's kind with a tokenizer that knows words."""
    folder.mkdir()
    tensors = {"wte.weight": token, "wpe.weight": position}
    save_file(tensors, folder / "model.safetensors")
    save_words(folder / "tokenizer.json", WORDS + RESERVED)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(
    folder: Path, in_process: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep one layer, of the same time and size everywhere."""
    monkeypatch.chdir(folder)
    cache = Path("cache")
    if not cache.exists():
        in_process.ok("weights", "--vocab", "6", "--dim", "3", EMBCLI_CACHE_DIR="cache")
        last_used = datetime(2026, 1, 2, 3, 4).timestamp()
        for layer in cache.iterdir():
            os.utime(layer, (last_used, last_used))


def page(in_process: InProcess, command: str, *options: str, **settings: Any) -> str:
    """Return what a command prints."""
    if command == "cache":
        settings["EMBCLI_CACHE_DIR"] = "cache"
    ran = in_process(*shlex.split(command), *options, **settings)
    assert ran.err == ""
    assert ran.status in (0, 1)  # audit and diff answer no
    return ran.text


@pytest.mark.parametrize(("kind", "view"), CASES)
def test_the_usual_page_of_a_command_is_the_kept_one(in_process, snapshot, kind, view):
    command = COMMANDS[kind]
    if view == "terminal.txt":
        printed = with_styles(
            page(in_process, command, suggestions=True, terminal=True, **TERMINAL)
        )
    elif view == "pipe.txt":
        printed = page(in_process, command, suggestions=True, COLUMNS="120")
    else:
        printed = page(in_process, command, "-f", FORMATS[view])

    snapshot(f"{kind}/{view}", printed)


@pytest.mark.parametrize("name", FURTHER)
def test_a_page_with_options_is_the_kept_one(in_process, snapshot, name):
    snapshot(name, page(in_process, FURTHER[name], suggestions=True, COLUMNS="80"))


# --- what all views have in common ----------------------------------------------------------------


LINES = str.maketrans("", "", "─│╭╮╰╯┬┴┼␣")  # a picture can have colours instead


def words_of_svg(root: ET.Element) -> str:
    """Return the texts of an SVG, line by line."""
    lines: dict[float, list[str]] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        line = lines.setdefault(float(text.attrib["y"]), [])
        line += text.itertext()
    return "".join(itertools.chain.from_iterable(lines[y] for y in sorted(lines)))


def words_of_html(root: ET.Element) -> str:
    """Return the texts of an HTML page."""
    pages = root.iterfind(".//{*}pre")
    return "".join("".join(pre.itertext()) for pre in pages)


def without_spaces(text: str) -> str:
    """Return a page's characters without spaces and lines."""
    return "".join(text.translate(LINES).split())


@pytest.mark.parametrize("command", PICTURED)
def test_pictures_and_markdown_say_what_a_table_says_and_refer_to_nothing_outside(
    in_process, command
):
    table = page(in_process, command, "--width", "90")
    table = re.sub("[▄▖]", "", table)  # bars have no letters in pictures
    table = table.replace("│ ends a token", "Each background is a token")
    svg = page(in_process, command, "--width", "90", "-f", "svg")
    html = page(in_process, command, "--width", "90", "-f", "html")

    models = [word for word in command.split() if word in ("base", "tuned")]
    source = f"From {', '.join(models)}" if models else ""
    assert max(map(cell_len, table.splitlines())) <= 90
    assert without_spaces(words_of_svg(ET.fromstring(svg))) == without_spaces(table + source)
    assert without_spaces(words_of_html(ET.fromstring(html))) == without_spaces(table + source)
    assert not FOREIGN.search(svg)
    assert not FOREIGN.search(html)


def test_every_kept_page_is_named_by_a_test():
    """A page has its name in a test, or one that a test makes, with some part in braces."""
    tests = Path(__file__).parent
    files = [*tests.rglob("*.py"), *tests.glob("cases/*.json")]
    source = "\n".join([*FURTHER, *(path.read_text() for path in files)])
    words = {*re.findall(r"[\w.-]+", source), *re.findall(r"[\w-]+", source)}
    made_names = re.findall(r'snapshot\(f"(\w[^"]*)"', source)
    patterns = [re.sub(r"\\\{.*?\\\}", ".*", re.escape(name)) for name in made_names]

    for path in PAGES.rglob("*.*"):
        is_named = path.stem in words
        name = str(path.relative_to(PAGES))
        has_pattern = any(re.fullmatch(pattern, name) for pattern in patterns)
        assert is_named or has_pattern, f"no test names {path}"

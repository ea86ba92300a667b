"""What can be refused is refused before anything is drawn, read whole, or kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from embcli.verbs.compare import layers
from embcli.weights.source import SeededSource
from tests.conftest import Embcli
from tests.inside import Inside, in_terminal

LOOKUP = ("lookup", "a", "--vocab", "100", "--dim", "3")
BY_IDS = ("lookup", "--ids", "1,2", "--vocab", "100", "--dim", "3")
WEIGHTS = ("weights", "--vocab", "100", "--dim", "3")
COMPARE = ("compare", "--vocab", "100")
REFUSED = [
    ((*BY_IDS, "--trace", "9"), "--trace 9 is not a token: there are 2 tokens"),
    ((*BY_IDS, "--trace", "0", "-f", "json"), "--trace cannot be shown in json"),
    ((*BY_IDS, "-f", "ids"), "this result cannot be written as ids"),
    ((*BY_IDS, "--show", "token,input", "-f", "csv"), "this format holds one matrix, not token, input"),
    ((*BY_IDS, "--show", "token,tokens"), "--show 'tokens' is not known"),
    ((*BY_IDS, "-f", "projector"), "projector is a folder of files; name it with --output"),
    ((*BY_IDS, "--precision", "17"), "--precision 17 is out of range"),
    ((*BY_IDS, "--columns", "3"), "column 3 is out of range"),
    ((*BY_IDS, "-o", "/nonexistent/out.npy"), "cannot write to '/nonexistent/out.npy'"),
    ((*BY_IDS, "-o", "out.docx"), "'out.docx' has no known extension; --format names one"),
    (("lookup", "--ids", "100", "--vocab", "100", "--dim", "3"), "ID 100 at position 0 has no row"),
    (("lookup", "--ids", "1,2", "--vocab", "9", "--dim", "3", "--context-length", "1"), "2 tokens are more than"),
    (("lookup", "--ids", "1", "--vocab", str(10**12)), "a token layer of 1,000,000,000,000 x 256 takes"),
    ((*WEIGHTS, "-f", "projector"), "projector is a folder of files; name it with --output"),
    ((*WEIGHTS, "-f", "ids"), "this result cannot be written as ids"),
    ((*WEIGHTS, "--rows", "100"), "row 100 is out of range"),
    ((*WEIGHTS, "--columns", "x"), "'x' does not choose columns"),
    ((*COMPARE, "--gradient", "-f", "npy"), "--gradient cannot be shown in npy"),
    ((*COMPARE, "--trace", "-f", "json"), "--trace cannot be shown in json"),
    ((*COMPARE, "--show", "ids,shared", "-f", "csv"), "--show ids cannot be shown in csv"),
    ((*COMPARE, "--show", "embedding,linear", "-f", "csv"), "this format holds one matrix, not embedding, linear"),
    ((*COMPARE, "-f", "parquet"), "this result cannot be written as parquet"),
    ((*COMPARE, "-f", "projector"), "this result cannot be written as projector"),
    ((*COMPARE, "--ids", "100"), "ID 100 at position 0 has no row"),
]


@pytest.fixture
def _no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing be opened and nothing be drawn, and look at an empty cache."""

    def worked(*_: object, **__: object) -> None:
        pytest.fail("worked before it refused")

    monkeypatch.setattr(SeededSource, "open", worked)
    monkeypatch.setattr(layers, "compare", worked)
    monkeypatch.setattr(torch.nn, "Embedding", worked)
    monkeypatch.setattr(torch.Tensor, "normal_", worked)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(each)[:60] for each, _ in REFUSED])
def test_it_is_refused_before_any_work_and_nothing_is_kept(
    inside: Embcli, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in inside.refused(*arguments)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("verb", [BY_IDS, WEIGHTS], ids=lambda verb: verb[0])
def test_parquet_without_its_package_is_refused_before_any_work(
    inside: Embcli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = "embcli: parquet needs a package that is missing: pip install 'embcli[arrow]'\n"
    assert inside.refused(*verb, "-o", "out.parquet") == told
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize(
    ("verb", "form"),
    [
        *((verb, form) for verb in (BY_IDS, WEIGHTS, COMPARE) for form in ("npy", "safetensors")),
        *((verb, "parquet") for verb in (BY_IDS, WEIGHTS)),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_binary_data_for_a_terminal_is_refused_before_any_work(
    tmp_path: Path, verb: tuple[str, ...], form: str
) -> None:
    assert "binary data is not for a terminal" in Inside(terminal=True).refused(*verb, "-f", form)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.usefixtures("_no_work")
def test_a_text_is_not_even_read_for_a_form_that_there_is_not(monkeypatch: pytest.MonkeyPatch, inside: Embcli) -> None:
    monkeypatch.setattr("embcli.cli.text.read", lambda *_: pytest.fail("read before it refused"))
    assert "cannot be written as ids" in inside.refused(*LOOKUP, "-f", "ids")


@pytest.mark.parametrize("verb", [BY_IDS, WEIGHTS, COMPARE], ids=lambda verb: verb[0])
def test_what_is_not_refused_does_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inside: Embcli, verb: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "cache"))
    inside.ok(*verb, "-f", "json")
    kept = [path.name.split("-")[0] for path in tmp_path.rglob("*.npy")]
    assert sorted(kept) == {"lookup": ["position", "token"], "weights": ["token"], "compare": []}[verb[0]]


def test_an_error_on_a_terminal_is_broken_between_words_and_in_a_pipe_not_at_all() -> None:
    words = ("neighbors", " dog", "--from", "nowhere")
    sentences = Inside().refused(*words)
    status, seen = in_terminal(40, 24, *words)
    lines = seen.splitlines()
    assert (status, max(map(len, lines)) <= 40, len(lines) > 2) == (2, True, True)
    assert " ".join(lines).split() == sentences.split()

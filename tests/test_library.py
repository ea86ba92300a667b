"""The library: the same answers as the command gives, as objects, without a word on any stream."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import pickle
import re
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors.numpy
from rich.console import Console

import embcli
from embcli import formats
from embcli.cli import app
from embcli.errors import Notes
from embcli.formats import FormatName
from embcli.model import Model
from embcli.result import Result
from embcli.store import Store
from embcli.verbs.cache import files as kept_files
from embcli.verbs.info import this_machine
from tests.runners import InProcess

TEXT = "Every effort moves you"
SMALL = ("--vocab", "50257", "--dim", "4")
MATRIX = np.random.default_rng(5).standard_normal((40, 6), np.float32)


@pytest.fixture(scope="module")
def model() -> Model:
    return embcli.seeded(dim=4)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return two checkpoints, the second of which was trained a little; a text is beside them."""
    tensors = {"wte.weight": MATRIX, "wpe.weight": MATRIX[:8]}
    moved = MATRIX.copy()
    moved[3] += 0.5
    for name, token in (("model", MATRIX), ("tuned", moved)):
        safetensors.numpy.save_file(
            {**tensors, "wte.weight": token}, tmp_path / f"{name}.safetensors"
        )
    (tmp_path / "book.txt").write_text("Every effort moves you, and so on. " * 9)
    return tmp_path / "model.safetensors", tmp_path / "tuned.safetensors"


# The words of a command line, and the same in Python; {0} and {1} stand for two checkpoints, {book} for a text.
SAME: dict[str, tuple[str, Callable[[Path, Path], Result]]] = {
    "tokenize": (f"tokenize,{TEXT}", lambda *_: embcli.seeded().tokenize(TEXT)),
    "lookup": (f"lookup,{TEXT},--dim,4", lambda *_: embcli.seeded(dim=4).lookup(TEXT)),
    "lookup ids": (
        "lookup,--ids,2 3,--vocab,6,--dim,4,--position,sinusoidal,--show,token",
        lambda *_: embcli.seeded(vocab=6, dim=4).lookup(
            [2, 3], position="sinusoidal", show="token"
        ),
    ),
    "weights": ("weights,--vocab,6,--dim,3", lambda *_: embcli.seeded(vocab=6, dim=3).weights()),
    "positions": (
        "positions,--kind,rotary,--dim,4,--context-length,3,--vocab,6",
        lambda *_: embcli.seeded(vocab=6, dim=4, context_length=3).positions("rotary"),
    ),
    "batch": (
        "batch,--file,{book},--batch-size,2,--dim,3,--shuffle",
        lambda *_: embcli.seeded(dim=3).batch(
            "Every effort moves you, and so on. " * 9, batch_size=2, shuffle=True
        ),
    ),
    "neighbors": (
        "neighbors,--ids,2,--vocab,60,--dim,3,-k,4",
        lambda *_: embcli.seeded(vocab=60, dim=3).neighbors([2], top=4),
    ),
    "audit": ("audit,--from,{0}", lambda path, _: embcli.open(path).audit()),
    "tokenizers": (
        "tokenize,Unbelievable 日!,--encoding,gpt2,--encoding,o200k_base",
        lambda *_: embcli.tokenizers("Unbelievable 日!", ["gpt2", "o200k_base"]),
    ),
    "merges": ("tokenize,This is it,--merges", lambda *_: embcli.seeded().merges("This is it")),
    "explain": ("explain,one-hot", lambda *_: embcli.explain("one-hot")),
    "diff": ("diff,{0},{1}", lambda path, other: embcli.open(path).diff(embcli.open(other))),
    "info": ("info", lambda *_: this_machine()),
    "cache": ("cache", lambda *_: kept_files(Store.from_environment(Notes()))),
    "model": ("info,--from,{0}", lambda path, _: embcli.open(path).info()),
    "lookup file": (
        "lookup,--ids,2 3,--from,{0}",
        lambda path, _: embcli.open(path).lookup([2, 3]),
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_save_writes_what_the_command_writes(
    case: str, files: tuple[Path, Path], tmp_path: Path
) -> None:
    line, make = SAME[case]
    words = [word.format(*files, book=files[0].parent / "book.txt") for word in line.split(",")]
    result = make(*files)
    for format in formats.formats_for(result.content):
        if format == "png" and case != "weights":
            continue
        ours, theirs = tmp_path / f"ours-{format}", tmp_path / f"theirs-{format}"
        ran = InProcess()(*words, "-f", format, "-o", str(theirs))
        assert ran.status in (0, 1), ran
        result.save(ours, format=format)
        written = [sorted(each.iterdir()) if each.is_dir() else [each] for each in (ours, theirs)]
        assert [each.read_bytes() for each in written[0]] == [
            each.read_bytes() for each in written[1]
        ], format


def test_every_verb_with_a_page_is_among_these() -> None:
    verbs = {
        each.stem
        for each in (Path(embcli.__file__).parent / "verbs").iterdir()
        if "_" not in each.stem
    }
    shared = {"decode", "parts", "search", "statistics", "steps"}
    assert {case.split()[0] for case in SAME} - {"model"} | {"compare"} == verbs - shared


@pytest.mark.parametrize("case", SAME)
def test_rich_prints_a_result_as_the_command_does_but_for_the_line_of_suggestions(
    case: str, files: tuple[Path, Path]
) -> None:
    line, make = SAME[case]
    ran = InProcess()(
        *(word.format(*files, book=files[0].parent / "book.txt") for word in line.split(",")),
        suggestions=True,
    )
    result = make(*files)
    html = result._repr_html_()  # a fragment for a notebook
    assert not {"<script", "http"} & {*re.findall("<script|http(?!://www.w3.org/)", html)}
    assert len("".join(ElementTree.fromstring(f"<body>{html}</body>").itertext())) > 100
    page, line = ran.text[: len(f"{result}\n")], ran.text[len(f"{result}\n") :]
    assert page == f"{result}\n"
    assert not line or re.fullmatch(r"(-|lookup|embcli explain).*\.\n", line)
    if hasattr(result, "__rich_console__"):
        assert printed(result) == f"{result}\n"


def printed(result: Result) -> str:
    """Return what rich prints of a result, without blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=120)
    console.print(result)
    return re.sub(" +$", "", console.file.getvalue(), flags=re.MULTILINE)


@pytest.mark.parametrize(
    "format", [each for each in formats.formats_for("matrices") if each != "png"]
)
def test_a_comparison_is_that_of_the_command(
    format: FormatName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_even_clock(compare: Callable[[], Any]) -> Any:
        monkeypatch.setattr("embcli.verbs.compare.layers.clock", itertools.count().__next__)
        return compare()

    ran = with_even_clock(
        lambda: InProcess()("compare", "-f", format, "-o", str(tmp_path / "theirs"))
    )
    assert ran.status == 0, ran
    result = with_even_clock(lambda: embcli.seeded(vocab=4, dim=5).compare([2, 3, 1]))
    assert result.verdict.identical
    assert np.array_equal(result.embedding, result.linear)
    result.save(tmp_path / "ours", format=format)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert format != "table" or printed(result) == (tmp_path / "ours").read_text()


@pytest.mark.parametrize("case", SAME)
def test_a_result_is_told_in_a_line_and_can_be_pickled_and_copied(
    case: str, files: tuple[Path, Path]
) -> None:
    result = SAME[case][1](*files)
    page, line = str(result), repr(result)  # what a page computes is not pickled
    assert line.startswith(f"<embcli {result.verb}: ")
    assert "\n" not in line
    for other in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        assert (str(other), repr(other)) == (page, line)
    assert len({result, copy.copy(result)}) == 2, "equal is the same result: arrays have no truth"


def test_what_the_first_block_reads_is_pickled_with_its_norm(tmp_path: Path) -> None:
    norm = {"LayerNorm.weight": MATRIX[0], "LayerNorm.bias": MATRIX[1]}
    layers = {f"{name}_embeddings.weight": MATRIX for name in ("word", "position", "token_type")}
    tensors = {f"embeddings.{name}": each for name, each in (layers | norm).items()}
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    result = embcli.open(tmp_path).lookup([2, 3])
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert np.array_equal(other.hidden, result.hidden)


def test_a_line_has_the_shapes_of_matrices_and_where_they_are_from(
    model: Model, files: tuple[Path, Path]
) -> None:
    assert (
        repr(model.lookup(TEXT))
        == "<embcli lookup: token (4, 4), position (4, 4), input (4, 4), seed 123>"
    )
    assert (
        repr(model.lookup(TEXT, position="none"))
        == "<embcli lookup: token (4, 4), input (4, 4), seed 123>"
    )
    assert repr(embcli.open(files[0]).audit()) == f"<embcli audit: 40 rows, {files[0]}>"
    assert repr(model.tokenize(TEXT)) == "<embcli tokenize: 4 tokens>"


def test_a_copy_of_a_model_reads_its_file_anew(model: Model, files: tuple[Path, Path]) -> None:
    for each in (model, embcli.open(files[0], encoding="gpt2")):
        pickled = pickle.dumps(each)
        assert len(pickled) < 2000
        for other in (pickle.loads(pickled), copy.deepcopy(each)):
            assert repr(other) == repr(each)
            assert np.array_equal(other[[3, 5]], each[[3, 5]])
            assert other.tokenize(TEXT).ids.tolist() == each.tokenize(TEXT).ids.tolist()
    again = pickle.loads(pickled)
    empty = again.lookup([])
    assert [*pickle.loads(pickle.dumps(empty)).notes] == [*empty.notes]
    assert "the input is empty: there are no tokens" in empty.notes
    shutil.copy(files[1], files[0])
    assert np.array_equal(pickle.loads(pickled)[3], MATRIX[3] + np.float32(0.5))
    assert again.source.path == str(files[0])


def test_a_result_has_the_notes_of_opening_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(path := tmp_path / "rows.npy", np.full((40, 6), 0.1))  # which float32 does not hold
    model = embcli.open(path, encoding="gpt2")
    (opening,) = model.notes
    results = [
        model.tokenize("<|endoftext|>"),
        model.tokenize(""),
        model.weights(rows="3"),
        model.weights(rows="3:9"),
    ]
    assert all(map(str, results))
    for result, begin in zip(
        results, ("<|endoftext|> is read", "the input is", "6 values", "36 values"), strict=True
    ):
        first, own = result.notes
        assert (first, own.startswith(begin)) == (opening, True)
        assert (
            [*copy.deepcopy(result).notes]
            == [*pickle.loads(pickle.dumps(result)).notes]
            == [first, own]
        )
    assert [*model.diff(embcli.open(path, encoding="o200k_base")).notes][1].startswith(
        "o200k_base has"
    )
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(path))  # a file
    drawn = embcli.seeded(vocab=6, dim=3)
    assert [[note[:17] for note in each.notes] for each in (drawn.lookup([1]), drawn)] == [
        ["nothing is cached"],
        [],
    ]


def test_the_library_is_quiet_and_touches_no_signal(
    files: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for _, make in SAME.values():
        str(make(*files))
        make(*files).save(tmp_path / "out.svg")
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_all_that_is_public_is_there_and_explains_itself() -> None:
    assert {*embcli.__all__} <= {*dir(embcli)}
    for name in embcli.__all__:
        assert inspect.getdoc(getattr(embcli, name)), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        embcli.nothing  # noqa: B018
    methods = [
        each
        for name, each in inspect.getmembers(Model, inspect.isfunction)
        if not name.startswith("_")
    ]
    assert len(methods) > 12
    for method in methods:
        assert method.__doc__, method


VERBS = (
    "tokenize",
    "merges",
    "batch",
    "lookup",
    "compare",
    "positions",
    "weights",
    "neighbors",
    "audit",
    "diff",
    "info",
)


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_and_its_method_have_equal_names_and_defaults(verb: str) -> None:
    """A command has further options, of its input and output, and None for what is not given."""
    method = inspect.signature(getattr(Model, verb)).parameters.values()
    command, _ = app.COMMANDS[verb.replace("merges", "tokenize")]
    flags = {each.name: each.default for each in command.flags}
    options = {each.name: each.default for each in method if each.kind is each.KEYWORD_ONLY}
    assert options or verb == "diff"
    assert all(flags[name] == (None if each == () else each) for name, each in options.items())


def test_rows_are_asked_for_as_of_a_sequence(files: tuple[Path, Path]) -> None:
    opened = embcli.open(files[0])
    assert len(opened) == 40
    assert opened.shape == (40, 6)
    for key in (7, np.int64(7), [1, 2, 1], np.array([3]), slice(30, None, 4), slice(0)):
        assert np.array_equal(opened[key], MATRIX[key])  # type: ignore[index]
    for whole in (iter, np.asarray):
        with pytest.raises(embcli.InputError, match="by ID: model"):
            whole(opened)  # type: ignore[call-overload]
    assert repr(embcli.errors.Notes("a note")) == "Notes('a note',)"
    for wrong in (40, -1, [1, 99]):
        with pytest.raises(embcli.InputError, match="has no row"):
            opened[wrong]
    for wrong in (1.5, [[1]], ["a", 1], None):
        with pytest.raises(embcli.InputError):
            opened[wrong]  # type: ignore[index]
    with pytest.raises(embcli.InputError, match="encoding is required"):
        opened.decode([1])
    with pytest.raises(embcli.InputError, match="batches are of seeded layers"):
        embcli.open(files[0], encoding="gpt2").batch(TEXT)


def test_a_text_gives_its_rows_and_never_their_mean(model: Model) -> None:
    rows = model[TEXT]
    assert rows.shape == (4, 4)
    assert np.array_equal(rows, model[[6109, 3626, 6100, 345]])
    assert model[" effort"].shape == (1, 4)
    assert " effort" in model
    assert "Every effort" not in model
    assert 3626 not in model
    assert "" not in model


def test_a_result_has_its_matrices_as_arrays(model: Model) -> None:
    result = model.lookup(TEXT)
    assert np.array_equal(result.token + result.position, result.input)
    assert np.array_equal(np.asarray(result), result.input)
    assert [np.asarray(result).dtype, np.asarray(result, np.float64).dtype] == [
        np.float32,
        np.float64,
    ]
    assert np.array_equal(np.asarray(model.lookup(TEXT, show=("token",))), result.token)
    with pytest.raises(embcli.OutputError, match="not one matrix"):
        np.asarray(model.lookup(TEXT, show=("token", "input")))
    with pytest.raises(embcli.OutputError, match="no matrix 'inputs'"):
        result.matrix("inputs")
    with pytest.raises(AttributeError, match="no matrix 'position'; there are: token, input"):
        _ = model.lookup(TEXT, position="none").position
    assert np.array_equal(model.lookup(TEXT, columns="2,0").input, result.input[:, [2, 0]])
    assert np.asarray(model.weights(rows="0:3")).shape == (3, 4)
    assert model.batch(TEXT * 20).input.shape == (8, 4, 4)


@pytest.mark.parametrize(
    "format", [name for name, each in formats.FORMATS.items() if each.one_matrix]
)
def test_several_matrices_are_not_saved_where_only_one_has_room(
    model: Model, tmp_path: Path, format: FormatName
) -> None:
    several = model.lookup(TEXT, show=("token", "position"))
    with pytest.raises(embcli.OutputError, match="one matrix, not token, position"):
        several.save(tmp_path / "rows", format)
    assert not any(tmp_path.iterdir())
    with pytest.raises(embcli.OutputError, match="one matrix, not token, position"):
        several.to_arrow()


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: embcli.seeded(vocab=6, dim=0), "dim must be at least 1, not 0"),
        (
            lambda: embcli.seeded(seed=2**64),
            "seed must be from -2**63 to 2**64 - 1, as in torch, not 18446744073709551616",
        ),
        (lambda: embcli.seeded(encoding="gpt9"), "no encoding or model is named 'gpt9'"),
        (lambda: embcli.open("/nonexistent/model"), "not found"),
        (
            lambda: embcli.seeded(vocab=9, dim=2).lookup([0, 11, 9, 12]),
            "ID 11 at position 1 has no row: the token layer has V = 9 rows, for IDs from 0 to 8; pass vocab 13 or mor",
        ),
        (lambda: embcli.seeded(vocab=6, dim=3).lookup([1], trace=3), "trace 3"),
        (
            lambda: embcli.seeded(vocab=6, dim=3).neighbors([1], top=0),
            "top must be at least 1, not 0",
        ),
        (
            lambda: embcli.seeded(vocab=6, dim=3).neighbors([1], vector=[[1.0] * 3]),
            "give text or vector, one of them",
        ),
        (
            lambda: embcli.seeded(vocab=6, dim=3).neighbors(vector=[[1.0, 2.0]]),
            "not the shape (1, 2)",
        ),
        (lambda: embcli.seeded(vocab=6, dim=3).merges([1]), "only a text has merges"),
        (lambda: embcli.seeded(vocab=6, dim=3).info(), "a seeded model has no file"),
        (
            lambda: embcli.seeded(vocab=6, dim=3).weights().styled(precision=99),
            "precision 99 is out of range",
        ),
        (
            lambda: embcli.seeded(vocab=6, dim=3).weights().styled(theme="red"),
            "theme 'red' is not known",
        ),
        (lambda: embcli.seeded(vocab=6, dim=3).weights(layer="x"), "layer 'x' is not known"),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).weights(layer=None), "layer 'None' is not known"),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3)[-1], "V = 6 rows, for IDs from 0 to 5$"),
        (lambda: embcli.seeded(vocab=6, dim=3)[6], "from 0 to 5; pass vocab 7 or more$"),
        (lambda: embcli.seeded(vocab=6, dim=3).weights().save("\ud800"), "cannot name a file"),
        (
            lambda: embcli.seeded(vocab=6, dim=3).neighbors([1], metric="x"),
            "metric 'x' is not known",
        ),  # type: ignore[arg-type]
        (
            lambda: embcli.seeded(vocab=6, dim=3).lookup([1], position="x"),
            "position 'x' is not known",
        ),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).positions("x"), "kind 'x' is not known"),  # type: ignore[arg-type]
        (
            lambda: embcli.seeded(vocab=6, dim=2).positions("rotary", pairing="x"),
            "pairing 'x' is not known",
        ),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).audit(fail_on=["x"]), "fail_on 'x' is not known"),  # type: ignore[list-item]
        (lambda: embcli.seeded(vocab=6, dim=3).audit(fail_on="x"), "fail_on 'x' is not known"),  # type: ignore[arg-type]
        (
            lambda: embcli.seeded().weights(rows=[1, 2]),
            "rows must be a text such as '0:5,100', not [1, 2]",
        ),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).lookup([1], only=[1]), "only must be a text"),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).diff("tuned"), "other must be a Model"),  # type: ignore[arg-type]
        (lambda: embcli.seeded(vocab=6, dim=3).weights().save("x.docx"), "has no known extension"),
        (
            lambda: embcli.seeded(vocab=6, dim=3).weights().save("x.csv/"),
            "names a folder, and csv is one file",
        ),
        (lambda: embcli.seeded(vocab=6, dim=3).weights().save("x.ids"), "cannot be written as ids"),
        (
            lambda: embcli.seeded(vocab=6, dim=3).positions("relative").save("x.csv"),
            "format npy holds it all",
        ),
    ],
)
def test_errors_are_in_the_words_of_the_library(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(embcli.EmbcliError) as caught:
        ask()
    assert said in f"{caught.value}$"
    assert "--" not in str(caught.value) + caught.value.hint


def test_a_table_of_arrow_is_what_parquet_holds(model: Model, tmp_path: Path) -> None:
    from pyarrow import parquet

    result = model.lookup(TEXT)
    result.save(tmp_path / "rows.parquet")
    assert result.to_arrow().equals(parquet.read_table(tmp_path / "rows.parquet"))
    with pytest.raises(embcli.OutputError):
        model.batch(TEXT * 20).to_arrow()


def test_a_style_changes_the_page_and_nothing_else(model: Model) -> None:
    result = model.lookup(TEXT)
    narrow = result.styled(width=60, precision=1)
    table = [line for line in str(narrow).splitlines() if "│" in line]
    assert max(map(len, table)) <= 60
    assert f"{result.input[0, 0]:.1f} " in table[3]
    assert np.array_equal(narrow.input, result.input)
    assert "each character" in str(
        embcli.seeded(vocab=6, dim=80).weights().styled(heat=True, width=60)
    )


def test_one_model_serves_several_threads(files: tuple[Path, Path]) -> None:
    opened, drawn = embcli.open(files[0]), embcli.seeded(vocab=300, dim=8)
    whole = drawn[0:300]
    nearest = {row: opened.neighbors([row], top=3).ids.tolist() for row in range(40)}

    def ask(number: int) -> bool:
        rng = np.random.default_rng(number)
        ids = rng.integers(0, 40, 5)
        right = np.array_equal(opened.lookup(ids).token, MATRIX[ids])
        right &= np.array_equal(drawn[ids * 7], whole[ids * 7])
        row = int(ids[0])
        return bool(right) and opened.neighbors([row], top=3).ids.tolist() == nearest[row]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(300)))

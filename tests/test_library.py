"""The library: the same answers as the command gives, as objects, without a word on any stream."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
import re
import shlex
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors.numpy
import torch
from rich.console import Console

import embcli
from embcli.cli import app
from embcli.errors import Notes
from embcli.formats import FORMATS, FormatName
from embcli.model import Model
from embcli.result import Result
from embcli.seeded_layers.seeded import Seeded
from embcli.store import Store
from embcli.verbs.cache import files as kept_files
from embcli.verbs.info import this_machine
from tests.cases import cases, data
from tests.files.made import matrix
from tests.oracles import live
from tests.snapshots import PAGES

TEXT = "Every effort moves you"
BOOK = "Every effort moves you, and so on. " * 9
MATRIX = matrix(40, 6, 5)


@pytest.fixture(scope="module")
def model() -> Model:
    return embcli.seeded(dim=4)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder with a checkpoint, one that was trained a little from it, and a text."""
    monkeypatch.chdir(tmp_path)
    tuned = MATRIX.copy()
    tuned[3] += 0.5
    for name, token in [("model", MATRIX), ("tuned", tuned)]:
        tensors = {"wte.weight": token, "wpe.weight": MATRIX[:8]}
        safetensors.numpy.save_file(tensors, f"{name}.safetensors")
    Path("book.txt").write_text(BOOK)


# Command lines, and the same in Python.
SAME = data(__name__)["the same in Python"]
same = pytest.mark.parametrize(("line", "expression"), SAME.items(), ids=SAME)


# The names that these expressions use.
NAMES = {
    "BOOK": BOOK,
    "Notes": Notes,
    "Store": Store,
    "TEXT": TEXT,
    "embcli": embcli,
    "kept_files": kept_files,
    "np": np,
    "this_machine": this_machine,
}


def value_of(expression: str, **names: Any) -> Any:
    """Return what Python makes of an expression."""
    return eval(expression, NAMES | names)


def test_every_command_with_a_result_is_among_these():
    commands = {line.split()[0] for line in SAME}
    # The others have no result to save.
    assert commands | {"decode", "explore", "tour"} == {*app.COMMANDS}


@same
def test_save_writes_or_refuses_what_the_command_does(line, expression, files, in_process):
    result = value_of(expression)
    for format in get_args(FormatName):
        if format == "png" and result._verb != "weights":
            continue  # A picture takes long, and is the same for all.
        ran = in_process(*shlex.split(line), "-f", format, "-o", f"theirs-{format}")
        try:
            result.save(f"ours-{format}", format=format)
        except embcli.OutputError as error:
            reason, _, _ = str(error).partition(";")  # then parameters can follow
            assert (ran.status, ran.err.partition(";")[0]) == (2, f"embcli: {reason}"), format
        else:
            assert ran.status in (0, 1), ran
            ours = Path(f"ours-{format}").read_bytes()
            assert ours == Path(f"theirs-{format}").read_bytes(), format


@same
def test_rich_prints_a_result_as_the_command_does_before_its_suggestions(
    line, expression, files, in_process
):
    page = f"{value_of(expression)}\n"
    assert in_process(*shlex.split(line)).text == page

    result = value_of(expression)
    if hasattr(result, "__rich_console__"):
        assert printed(result) == page
    suggesting = in_process(*shlex.split(line), suggestions=True).text
    assert suggesting.startswith(page)
    assert suggesting.count("\n") <= page.count("\n") + 1


def printed(result: Result) -> str:
    """Return what rich prints of a result, without blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=120)
    console.print(result)
    return re.sub(" +$", "", console.file.getvalue(), flags=re.MULTILINE)


@same
def test_a_notebook_shows_a_result_as_html_that_needs_nothing_else(line, expression, files):
    html = value_of(expression)._repr_html_()
    text = "".join(ElementTree.fromstring(f"<body>{html}</body>").itertext())
    assert len(text) > 100
    assert "<script" not in html
    assert not re.search("http(?!://www.w3.org/)", html)


# --- objects --------------------------------------------------------------------------------------


@same
def test_a_result_can_be_copied(line, expression, files):
    result = value_of(expression)
    other = copy.copy(result)
    assert str(other) == str(result)
    assert repr(other) == repr(result)
    assert other != result, "arrays have no truth, so only the same result is equal"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
@cases
def test_a_model_and_a_result_are_not_pickled(copied, expression, words, model, files):
    with pytest.raises(TypeError, match=words):
        copied(value_of(expression, model=model))


REPRESENTED = [
    "model",
    "model.lookup(TEXT)",
    "model.lookup(TEXT, position='none')",
    "model.tokenize(TEXT)",
    "embcli.open('model.safetensors')",
    "embcli.open('model.safetensors').audit()",
    "Notes('a note')",
]


def test_an_object_is_represented_in_a_line_with_its_shapes(model, files, snapshot):
    lines = []
    for expression in REPRESENTED:
        value = value_of(expression, model=model)
        lines += [f">>> {expression}", repr(value)]
    snapshot("library/objects.txt", "\n".join(lines) + "\n")


def test_tokens_are_a_sequence_of_ids_and_a_table(model):
    tokens = model.tokenize(TEXT)
    assert [tokens[place] for place in range(len(tokens))] == tokens.ids.tolist()
    assert tokens[1:3] == tokens.ids[1:3].tolist()
    assert tokens.to_arrow()["id"].to_pylist() == tokens.ids.tolist()


# --- notes, streams and signals -------------------------------------------------------------------


@cases
def test_a_result_has_the_notes_of_opening_and_its_own(expression, own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.full((40, 6), 0.1))  # float32 does not hold 0.1 exactly.
    opened = embcli.open("rows.npy", encoding="gpt2")
    (of_opening,) = opened.notes

    result = value_of(expression, opened=opened)

    assert str(result)
    for each in (result, copy.copy(result)):
        first, second, *_ = each.notes
        assert first == of_opening
        assert own in second


def test_only_the_result_says_that_nothing_can_be_cached(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "file"))
    drawn = embcli.seeded(vocab=6, dim=3)
    (note,) = drawn.lookup([1]).notes
    assert "nothing is cached" in note
    assert [*drawn.notes] == []


def test_the_library_is_quiet_and_touches_no_signal(files, capfd):
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.getsignal(number) for number in numbers]
    for expression in SAME.values():
        result = value_of(expression)
        assert str(result)
        result.save("out.svg")
    assert capfd.readouterr() == ("", "")
    assert [signal.getsignal(number) for number in numbers] == handlers


# --- what is public -------------------------------------------------------------------------------


def test_all_that_is_public_is_there_and_explains_itself():
    assert {*embcli.__all__} <= {*dir(embcli)}
    for name in embcli.__all__:
        assert inspect.getdoc(getattr(embcli, name)), name
    for name, method in inspect.getmembers(Model, inspect.isfunction):
        assert name.startswith("_") or method.__doc__, name
    assert {*METHODS} <= {*re.findall(r"\w+", embcli.__doc__)}
    with pytest.raises(AttributeError, match="nothing"):
        embcli.nothing  # noqa: B018


METHODS = [name for name in ("merges", *app.COMMANDS) if hasattr(Model, name)]


@pytest.mark.parametrize("verb", METHODS)
def test_a_command_and_its_method_have_equal_names_and_defaults(verb):
    """A command has further options, of its input and output, and None for what is not given."""
    parameters = inspect.signature(getattr(Model, verb)).parameters.values()
    command, _ = app.COMMANDS[verb.replace("merges", "tokenize")]
    defaults = {flag.name: flag.default for flag in command.flags}
    options = [
        each for each in parameters if each.kind is each.KEYWORD_ONLY or each.name in defaults
    ]
    assert options or verb == "diff"
    for option in options:
        expected = None if option.default == () else option.default
        assert defaults[option.name] in (expected, None), option.name


# --- rows and matrices ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        7,
        np.int64(7),
        [1, 2, 1],
        np.array([3]),
        [[1, 2, 1], [3, 0, 9]],
        slice(30, None, 4),
        slice(0),
    ],
    ids=str,
)
def test_rows_are_asked_for_as_of_a_sequence(key, files):
    assert np.array_equal(embcli.open("model.safetensors")[key], MATRIX[key])


@cases
def test_a_row_that_is_not_there_is_refused(key, files):
    with pytest.raises(embcli.InputError, match="has no row"):
        embcli.open("model.safetensors")[key]


@cases
def test_what_is_no_row_is_refused(key, files):
    with pytest.raises(embcli.InputError):
        embcli.open("model.safetensors")[key]


def test_ids_of_a_batch_are_looked_up_in_their_shape():
    """The chapter's step: `token_embedding_layer(inputs) + position_embedding_layer(positions)`."""
    model = embcli.seeded(vocab=50, dim=4, context_length=3)
    inputs = np.array([[2, 3, 5], [1, 49, 0]])
    layers = live(Seeded(50, 4, 3, 123))
    token = layers["token"]

    alike: tuple[Any, ...] = (inputs, inputs.tolist(), torch.from_numpy(inputs))
    for given in alike:
        found = model.lookup(given)

        assert found.ids.tolist() == inputs.ravel().tolist()
        assert np.array_equal(found.token, token[inputs])
        assert np.array_equal(found.input, token[inputs] + layers["position"])
        assert np.array_equal(np.asarray(found), found.input)
        assert [part.ids.tolist() for part in model.neighbors(given).queries] == inputs.tolist()
    assert model.lookup(inputs, only="5").token.shape == (1, 4)
    assert model.lookup(inputs, window=True).token.shape == (6, 4)


def test_a_lookup_of_a_batch_is_saved_and_represented_in_its_shape(tmp_path):
    found = embcli.seeded(vocab=6, dim=3).lookup([[2, 3], [5, 1]])
    for name in ("own.npy", "own.safetensors"):
        found.save(tmp_path / name)

    assert repr(found).startswith("<embcli lookup: token (2, 2, 3), position (2, 2, 3), input (2")
    assert np.array_equal(np.load(tmp_path / "own.npy"), found.input)
    tensors = safetensors.numpy.load_file(tmp_path / "own.safetensors")
    assert np.array_equal(tensors["token"], found.token)
    assert tensors["ids"].tolist() == [[2, 3], [5, 1]]
    assert tensors["sequences"].tolist() == [[0, 0], [1, 1]]


def test_a_single_id_needs_no_list(model):
    assert np.array_equal(model.lookup(345).input, model.lookup([345]).input)
    assert model.decode(6109) == "Every"
    assert model.neighbors(345).ids.tolist() == model.neighbors([345]).ids.tolist()


def test_a_batch_has_the_terms_of_its_input_embeddings(model):
    for columns in (None, "3,0"):
        batch = model.batch(TEXT * 20, columns=columns)
        chosen = slice(None) if columns is None else [3, 0]
        assert np.array_equal(batch.token, model[batch.inputs][..., chosen])
        assert batch.position.shape == batch.input.shape[1:]
        assert np.array_equal(batch.token + batch.position, batch.input)


def test_a_row_that_is_named_without_its_space_is_noted(model):
    spaced = model.weights(rows="you,effort")
    exact = model.weights(rows="you, effort")

    assert spaced.ids.tolist() == exact.ids.tolist() == [5832, 3626]
    assert "'effort' is not a token; this is the row of ' effort'" in [*spaced.notes]
    assert not any("effort" in note for note in exact.notes)


def test_tokens_are_a_list_of_texts(model, files):
    tokens = model.tokenize("Every effort 日").tokens

    assert [*tokens] == ["Every", " effort", r"\x20\xe6", r"\x97", r"\xa5"]
    assert repr(tokens) == repr([*tokens])
    assert tokens[1] == " effort"
    assert [*model.lookup([6109, 3626]).tokens] == ["Every", " effort"]
    assert [*embcli.open("model.safetensors").lookup([1, 2]).tokens] == [None, None]


def test_a_model_is_as_long_as_its_matrix_and_never_read_as_a_whole(files):
    opened = embcli.open("model.safetensors")
    assert len(opened) == 40
    assert opened.shape == (40, 6)
    with pytest.raises(embcli.InputError, match="not a list of rows"):
        iter(opened)  # type: ignore[call-overload]
    with pytest.raises(embcli.InputError, match="not a list of rows"):
        reversed(opened)  # type: ignore[call-overload]
    with pytest.raises(embcli.InputError, match="not a list of rows"):
        np.asarray(opened)


def test_a_text_gives_its_rows_and_never_their_mean(model):
    rows = model[TEXT]
    assert rows.shape == (4, 4)
    assert np.array_equal(rows, model[[6109, 3626, 6100, 345]])
    assert model[" effort"].shape == (1, 4)


def test_a_model_contains_texts_of_one_token(model):
    assert " effort" in model
    assert " effort" in embcli.seeded(vocab=3627, dim=2, encoding="gpt2")
    assert " effort" not in embcli.seeded(vocab=3626, dim=2, encoding="gpt2")
    assert "Every effort" not in model
    assert "" not in model
    assert [id for id in (-1, 0, np.int64(50_256), 50_257, 2.0, (3,)) if id in model] == [0, 50_256]
    assert model.encode(TEXT).tolist() == list(model.tokenize(TEXT))
    assert (model.vocab, model.dim) == model.shape


@cases
def test_values_out_of_range_raise_what_python_raises_too(call, kind):
    with pytest.raises(embcli.EmbcliError) as caught:
        value_of(call, six=embcli.seeded(vocab=6, dim=3))
    names = {each.__name__ for each in type(caught.value).__mro__}
    assert set(kind.split()) <= names


def test_python_names_the_public_function_of_a_wrong_call():
    with pytest.raises(TypeError, match=r"^embcli\.seeded\(\) got an unexpected .* 'dims'"):
        embcli.seeded(dims=3)


def test_results_are_sequences_whole_or_not_at_all(model):
    assert model.tokenize(TEXT).shape == (4,)
    results = [model.lookup(TEXT), model.weights(), model.batch(BOOK), model.neighbors("you")]
    for result in results:
        for use in (iter, len, lambda each: each[0]):
            with pytest.raises(TypeError):
                use(result)
        with pytest.raises(embcli.WrongTypeError, match="to_dicts"):
            iter(result)
        with pytest.raises(AttributeError, match="no 'shape' here"):
            _ = result.shape


def test_what_a_result_does_not_have_is_said_with_what_it_has(model):
    result = model.weights(rows="0:3")
    with pytest.raises(AttributeError, match="'numpy' here; its matrices: token; to_dicts"):
        result.numpy()
    with pytest.raises(TypeError, match=r"got an unexpected .* 'heet'"):
        result.styled(heet=True)
    with pytest.raises(embcli.OutputError, match="explain has a page"):
        embcli.explain("one-hot").to_dicts()
    assert not hasattr(embcli.explain("one-hot"), "numpy")


def test_a_result_is_true_and_tokens_are_if_there_are_any(model):
    assert model.lookup("")
    assert model.tokenize(TEXT)
    assert not model.tokenize("")


def test_help_says_what_a_matrix_of_a_result_is(model):
    assert "Token rows" in inspect.getdoc(type(model.lookup(TEXT)).token)


def test_the_error_of_a_file_is_not_the_reason_of_another(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(embcli.InputError, match=r"^cannot read '[^']*': it is not a regular file$"):
        embcli.open(tmp_path / "pipe.npy")


def test_several_texts_give_the_rows_of_all_their_tokens(model):
    texts = ["Every effort", " you"]
    assert np.array_equal(model[texts], model.lookup(texts).token)
    assert np.array_equal(model[texts], model[[6109, 3626, 345]])


def test_an_empty_lookup_draws_no_layer(tmp_path, monkeypatch):
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path))
    assert embcli.seeded(dim=3).lookup("").input.shape == (0, 3)
    assert not list(tmp_path.iterdir())


def test_a_data_frame_is_made_by_pandas(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(embcli.OutputError, match=r"pip install pandas 'embcli\[arrow\]'"):
        model.tokenize(TEXT).to_pandas()


def test_a_result_that_is_not_one_table_says_what_holds_it(model):
    with pytest.raises(embcli.OutputError, match=r"cannot be written as parquet; .* json, "):
        model.compare([2, 3]).to_arrow()


def test_a_data_frame_has_the_columns_of_csv(model):
    pandas = pytest.importorskip("pandas")
    for result in (model.lookup(TEXT, columns="3,1"), model.batch(TEXT, max_length=2)):
        expected = pandas.read_csv(io.BytesIO(result._written("csv")))
        pandas.testing.assert_frame_equal(result.to_pandas(), expected, check_dtype=False)


def test_a_result_has_its_matrices_as_arrays(model):
    result = model.lookup(TEXT)
    assert np.array_equal(result.token + result.position, result.input)
    assert np.array_equal(np.asarray(result), result.input)
    assert np.asarray(result).dtype == np.float32
    assert np.asarray(result, np.float64).dtype == np.float64
    assert np.array_equal(np.asarray(model.lookup(TEXT, show=("token",))), result.token)
    assert np.array_equal(model.lookup(TEXT, columns="2,0").input, result.input[:, [2, 0]])
    assert np.asarray(model.weights(rows="0:3")).shape == (3, 4)
    assert model.batch(TEXT * 20).input.shape == (8, 4, 4)


def test_what_would_be_written_to_an_attribute_in_vain_is_refused(model):
    result = model.lookup(TEXT)
    with pytest.raises(ValueError, match="read-only"):
        result.token[0] = 7
    result.matrix("token")[0] = 7
    np.asarray(result)[0] = 7
    model[TEXT][0] = 7


def test_an_attribute_of_a_matrix_that_is_not_there_is_missing(model):
    with pytest.raises(AttributeError, match="no 'position' here; its matrices: token, input"):
        _ = model.lookup(TEXT, position="none").position


@pytest.mark.parametrize("format", [name for name, row in FORMATS.items() if row.one_matrix])
def test_several_matrices_are_not_saved_where_only_one_has_room(model, tmp_path, format):
    several = model.lookup(TEXT, show=("token", "position"))
    with pytest.raises(embcli.OutputError, match="one matrix"):
        several.save(tmp_path / "rows", format)
    assert not any(tmp_path.iterdir())
    with pytest.raises(embcli.OutputError, match="one matrix"):
        several.to_arrow()


def test_a_table_of_a_batch_has_a_row_for_each_input(model):
    batch = model.batch(TEXT * 20)
    table = batch.to_arrow().to_pydict()
    assert table["input_id"] == batch.inputs.ravel().tolist()
    assert table["target_id"] == batch.targets.ravel().tolist()
    assert embcli.count([TEXT], encodings=["gpt2"]).to_arrow()["tokens.gpt2"].to_pylist() == [4]


def test_a_style_changes_the_page_and_nothing_else(model, snapshot):
    result = model.lookup(TEXT)
    styled = result.styled(width=50, precision=1)
    snapshot("library/styled.txt", f"{styled}\n")
    assert np.array_equal(styled.input, result.input)


def test_a_style_can_be_a_heat_map(snapshot):
    heat = embcli.seeded(vocab=6, dim=80).weights().styled(heat=True, width=60)
    snapshot("library/heat.txt", f"{heat}\n")


def test_one_model_serves_several_threads(files):
    opened = embcli.open("model.safetensors")
    drawn = embcli.seeded(vocab=300, dim=8)
    whole = drawn[0:300]
    nearest = [opened.neighbors([row], top=3).ids.tolist() for row in range(40)]

    def ask(number: int) -> None:
        ids = np.random.default_rng(number).integers(0, 40, 5)
        row = int(ids[0])
        assert np.array_equal(opened.lookup(ids).token, MATRIX[ids])
        assert np.array_equal(drawn[ids * 7], whole[ids * 7])
        assert opened.neighbors([row], top=3).ids.tolist() == nearest[row]

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(ask, range(80)):
            pass  # An assertion that fails in a thread is raised here.


def test_rows_and_columns_are_chosen_by_a_text_or_by_indices():
    model = embcli.seeded(vocab=6, dim=4)

    chosen = model.weights(rows=range(3), columns=[3, 0]).token
    added = model.positions(rows=np.arange(2), columns=1).position
    neighbors = model.neighbors([1], rows=[2, 4])

    assert np.array_equal(chosen, model[0:3][:, [3, 0]])
    assert np.array_equal(added, model.lookup([0, 0], columns=(1,)).position)
    assert sorted(neighbors.ids) == [2, 4]


# --- errors ---------------------------------------------------------------------------------------


def test_errors_are_in_the_words_of_the_library(files, snapshot):
    """The snapshot has the calls, each above its error; `six` has 6 rows of 3 columns."""
    six = embcli.seeded(vocab=6, dim=3)
    lines = []
    for call in re.findall("^>>> (.*)", (PAGES / "library/errors.txt").read_text(), re.MULTILINE):
        with pytest.raises(embcli.EmbcliError) as caught:
            value_of(call, six=six)
        error = caught.value
        lines += [f">>> {call}", f"{type(error).__name__}: {error}"]
        assert "--" not in f"{error} {error.hint}", "flags are words of the command"
    snapshot("library/errors.txt", "\n".join(lines) + "\n")

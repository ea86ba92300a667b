"""`neighbors` answers as plain numpy does, says what it left out, and refuses bad queries."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors.numpy import save_file

import embcli
from embcli import encodings
from embcli.model import Model
from embcli.names import Metric
from embcli.seeded_layers.seeded import Seeded
from tests import transcripts
from tests.cases import cases
from tests.oracles import Stub, StubSource, live, normal
from tests.runners import InProcess
from tests.test_search import first, reference
from tests.transcripts import refused, session

ROWS = 300
DIM = 12
FROM = "--from m.safetensors"


_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


@pytest.fixture(autouse=True)
def matrix(_in_a_folder_of_its_own: None) -> np.ndarray:
    """Return the matrix of `m.safetensors`; its rows stand for no tokens.

    Row 20 is zero, 21 and 22 are not finite, and 23 is row 5.
    """
    values = normal(ROWS, DIM, 3)
    values[20] = 0
    values[21, 3] = np.nan
    values[22, 0] = np.inf
    values[23] = values[5]
    save_file({"wte.weight": values}, "m.safetensors")
    return values


def answers(in_process: InProcess, words: str, stdin: str = "") -> list[dict[str, Any]]:
    """Return what neighbors finds, a record for each rank of each query."""
    ran = in_process.ok("neighbors", *shlex.split(words), "-f", "ndjson", stdin=stdin)
    return [json.loads(line) for line in ran.text.splitlines()]


def ids(found: list[dict[str, Any]], query: int = 0) -> list[int]:
    """Return the IDs that answer a query, in the order of their ranks."""
    rows = [row for row in found if row["query"] == query]
    assert [row["rank"] for row in rows] == [*range(1, len(rows) + 1)]
    return [row["id"] for row in rows]


# --- answers --------------------------------------------------------------------------------------


def analogy(rows: np.ndarray, metric: str) -> np.ndarray:
    """Return row 1 - row 2 + the mean of rows 3 and 4; for cosines each term has length 1."""
    terms = np.array([rows[1], rows[2], (rows[3] + rows[4]) / 2])
    if metric == "cosine":
        terms /= np.linalg.norm(terms, axis=1, keepdims=True)
    return terms[0] - terms[1] + terms[2]


@pytest.mark.parametrize("metric", get_args(Metric))
def test_a_query_is_a_row_the_mean_of_rows_or_an_analogy(in_process, matrix, metric):
    exact = matrix.astype(np.float64)
    mean = exact[[7, 9, 7]].mean(axis=0)
    queries = [
        ("--ids 7", exact[7], (7,)),
        ("--ids 7,9,7", mean, (7, 9)),
        ("--ids 1 --minus 2 --plus 3,4", analogy(exact, metric), (1, 2, 3, 4)),
    ]

    for words, query, without in queries:
        found = answers(in_process, f"{words} {FROM} --metric {metric} -k 7")

        scores = reference(matrix, query, metric)
        assert ids(found) == first(scores, metric, 7, without)
        found_scores = [row["score"] for row in found]
        assert found_scores == pytest.approx(scores[ids(found)], rel=1e-12)


def test_answers_have_tokens_of_which_match_chooses_some(in_process):
    gpt2 = encodings.get("gpt2")
    (token_id,) = gpt2.encode(" Paris").tolist()
    weight = live(Seeded(50257, 4, 1024, 123))["token"]
    scores = reference(weight, weight[token_id].astype(float), "cosine")
    ranked = first(scores, "cosine", 50257, (token_id,))
    texts = [(gpt2.token_bytes(row) or b"").decode(errors="replace") for row in ranked]

    found = answers(in_process, "' Paris' --dim 4")
    assert ids(found) == ranked[:10]
    assert [row["token"] for row in found] == texts[:10]

    found = answers(in_process, "' Paris' --dim 4 --match '^ [A-Z]'")
    names = [row for row, text in zip(ranked, texts, strict=True) if re.search("^ [A-Z]", text)]
    assert ids(found) == names[:10]


def test_rows_choose_the_answers(in_process, matrix):
    scores = reference(matrix, matrix[7].astype(float), "l2")
    ranked = first(scores, "l2", ROWS, (7,))
    chosen = [row for row in ranked if 5 <= row < 100]

    found = answers(in_process, f"--ids 7 {FROM} --metric l2 --rows 5:100,6 -k 200")
    assert ids(found) == chosen


def test_the_data_says_how_many_rows_were_searched_for_the_query_of_each_line(
    in_process,
):
    words = f"neighbors --ids - --lines {FROM} -f json"
    ran = in_process.ok(*words.split(), stdin="7\n9,11\n")

    run = json.loads(ran.out)["run"]
    assert run["searched"] == 300
    assert run["not_finite"] == 2
    assert run["zero"] == 1
    queries = [query["ids"] for query in run["queries"]]
    assert queries == [[7], [9, 11]]


def test_words_of_word_vectors_have_analogies(in_process):
    rows = ["king 0.9 0.8 0.1", "queen 0.9 0.1 0.8", "man 0.1 0.9 0"]
    rows += ["woman 0.1 0.1 0.9", "bread 0 0.1 0", "kin 1 1 1"]
    Path("words.txt").write_text("\n".join(rows) + "\n")

    found = answers(in_process, "king --minus man --plus woman --from words.txt -k 1")

    assert [row["token"] for row in found] == ["queen"]
    error = in_process.refused("neighbors", "--from", "words.txt", "king", "--plus", "kimg")
    assert "'kimg'" in error


# --- vectors --------------------------------------------------------------------------------------


def written_by_lookup(in_process: InProcess, show: str) -> bytes:
    """Return the vectors of two tokens, as a .npy file."""
    words = ("lookup", "Every effort", "--dim", "6", "-f", "npy", "--show", show)
    return in_process.ok(*words).out


@cases
def test_what_lookup_writes_is_what_vector_reads(in_process, show):
    """A token is nearest to its own row, at the distance 0; with its position it is not."""
    piped = written_by_lookup(in_process, show)

    found = answers(in_process, "--vector - --dim 6 --metric l2", stdin=piped)

    layers = live(Seeded(50257, 6, 1024, 123))
    queries = layers["token"][[6109, 3626]]
    if show == "input":
        queries = queries + layers["position"][:2]
    for number, query in enumerate(queries.astype(float)):
        scores = reference(layers["token"], query, "l2")
        assert ids(found, number) == first(scores, "l2", 10)
        is_at_its_row = found[10 * number]["score"] == 0
        assert is_at_its_row == (show == "token")


def test_a_vector_is_a_file_of_numpy(in_process):
    vector = live(Seeded(50257, 6, 1024, 123))["token"][6109]
    np.save("one.npy", vector.astype(np.float64))
    np.save("matrix.npy", np.array([vector], np.float16))

    for source in ("one.npy", "matrix.npy"):
        assert ids(answers(in_process, f"--vector {source} --dim 6 -k 1")) == [6109]


@cases
def test_an_array_that_has_no_vector_with_a_direction_is_refused(in_process, values, words):
    np.save("bad.npy", values, allow_pickle=True)

    assert words in in_process.refused(*f"neighbors --vector bad.npy {FROM}".split())


# --- pages ----------------------------------------------------------------------------------------


def test_a_page_says_which_rows_were_searched_and_which_have_no_rank(in_process, snapshot):
    pages = session(
        in_process,
        "neighbors --ids 7 --from m.safetensors -k 3",
        "neighbors --ids 7 --from m.safetensors -k 1 --metric dot",
        "neighbors --ids 7 --from m.safetensors -k 1 --rows 9",
        "neighbors --ids 7 --from m.safetensors --rows 7",
        "neighbors --ids 7 --from m.safetensors --rows 7 --map",
    )

    snapshot("neighbors/searched-rows.txt", pages)


def test_a_page_of_a_text_names_its_tokens_and_what_is_made_of_them(in_process, snapshot):
    pages = session(
        in_process,
        "neighbors ' king' --minus ' man' --plus ' woman' --dim 4 -k 2",
        "neighbors ' king - man + woman' --dim 4 -k 2",
        "neighbors 'king-man+woman' --dim 4 -k 2",
        "neighbors 'C++-11 well-read' --dim 4 -k 2",
        "neighbors 'Every effort moves you' --dim 4 -k 2",
    )

    snapshot("neighbors/texts.txt", pages)
    found = embcli.seeded(dim=4).neighbors(" king", minus=" man", plus=" woman", top=2)
    assert str(found) in pages, "a text is a list of one text"


def test_a_page_of_vectors_counts_them_from_1(in_process, snapshot):
    np.save("ones.npy", np.ones(DIM))
    page = session(in_process, "neighbors --vector ones.npy --from m.safetensors -k 1")

    snapshot("neighbors/vectors.txt", page)


def test_of_many_ranks_a_page_shows_both_ends(in_process, snapshot):
    words = f"neighbors --ids 7 {FROM} -k 300 --width 80".split()
    lines = in_process.ok(*words).text.splitlines()

    (gap,) = [place for place, line in enumerate(lines) if "⋮" in line]
    around_gap = "\n".join(lines[gap - 2 : gap + 3])
    end = "\n".join(lines[-7:])
    snapshot("neighbors/many-ranks-as-numbers.txt", f"{around_gap}\n[...]\n{end}\n")


def test_of_many_queries_a_page_shows_both_ends(in_process, snapshot):
    words = f"neighbors --ids - --lines {FROM} -k 1".split()
    page = in_process.ok(*words, stdin="5\n" * 25).text

    assert page.count("Nearest to") == 20
    snapshot("neighbors/many-queries.txt", page[page.index("Searched") :])


def test_a_cosine_has_a_bar_from_0_to_1(snapshot):
    """A row that is perpendicular, or opposite, has none, and other metrics have no such scale."""
    model = Model(StubSource({"token": Stub([[2, 0], [1, 1], [10, 0], [0, 2]])}))

    pages = [str(model.neighbors([0], metric=metric)) for metric in get_args(Metric)]

    snapshot("neighbors/bars.txt", "\n\n".join(pages))


# --- refusals and remarks -------------------------------------------------------------------------


def test_bad_input_is_refused_by_name(in_process, snapshot):
    snapshot("neighbors/errors.txt", refused("neighbors/errors.txt", in_process))


def test_an_empty_line_has_no_neighbours(in_process):
    error = in_process.refused("neighbors", "--lines", "--dim", "4", stdin="a\n\nb\n")

    assert "no tokens" in error


@cases
def test_a_tokenizer_of_more_or_far_fewer_tokens_than_rows_is_doubted(in_process, command):
    Path("vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nhello\nworld\n")
    words = command.split()

    assert "50,257 tokens" in in_process(*words, "--encoding", "gpt2").err
    assert "5 tokens" in in_process(*words, "--encoding", "./vocab.txt").err
    Path("vocab.txt").unlink()
    assert "probably" not in in_process(*words).err


def test_a_tokenizer_beside_the_weights_is_doubted_too(in_process, snapshot):
    Path("doubted").mkdir()
    save_file({"wte.weight": np.eye(2, dtype=np.float32)}, "doubted/model.safetensors")
    Path("doubted/vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\nhello\nworld\n")

    page = session(in_process, "weights --from ./doubted")

    snapshot("neighbors/doubted-tokenizer.txt", page)


def test_bars_are_exact_in_a_picture():
    neighbors = embcli.seeded(vocab=50, dim=4).neighbors([3], top=5)
    svg = neighbors.page("svg").decode()

    lengths = [float(length) for length in re.findall(r"M0 6h(\S+)v12", svg)]
    assert lengths == pytest.approx(neighbors.search.rankings[0].scores, abs=1e-4)


def test_a_term_is_read_as_the_text_is():
    end = "<|endoftext|>"
    model = embcli.seeded(dim=2)
    (query,) = model.neighbors(end, special=True, plus=[end]).queries
    assert query.all_ids.tolist() == [50256, 50256]

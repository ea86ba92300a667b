"""The neighbors command: what may be asked, held against plain numpy, what it tells, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from tokenizers import Tokenizer, decoders, models, normalizers

import embcli
from embcli import encodings
from embcli.files.safetensors import header
from embcli.model import Model
from embcli.names import Metric
from embcli.seeded_layers.seeded import Seeded
from tests.oracles import Stub, StubSource, live
from tests.runners import TIMEOUT, InProcess, Process
from tests.test_search import first, reference

ROWS, DIM = 300, 12


@pytest.fixture
def matrix() -> np.ndarray:
    values = np.random.default_rng(3).standard_normal((ROWS, DIM)).astype(np.float32)
    values[20], values[21, 3], values[22, 0], values[23] = 0, np.nan, np.inf, values[5]
    return values


@pytest.fixture
def model(tmp_path: Path, matrix: np.ndarray) -> str:
    """Return the path of a model whose rows stand for no tokens."""
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"wte.weight": matrix}, path)
    return str(path)


def answers(in_process: InProcess, *arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    out = in_process.ok("neighbors", *arguments, "-f", "ndjson", stdin=stdin).text
    return [json.loads(line) for line in out.removesuffix("\n").split("\n") if line]


def ids(found: list[dict[str, Any]], query: int = 0) -> list[int]:
    assert [each["rank"] for each in found if each["query"] == query] == [
        *range(1, 1 + sum(each["query"] == query for each in found))
    ]
    return [each["id"] for each in found if each["query"] == query]


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
def test_a_row_the_mean_of_rows_and_an_analogy(
    in_process: InProcess, model: str, matrix: np.ndarray, metric: str
) -> None:
    wide = matrix.astype(np.float64)
    form = unit if metric == "cosine" else np.asarray
    asked = {
        ("--ids", "7"): (wide[7], (7,)),
        ("--ids", "7,9,7"): ((2 * wide[7] + wide[9]) / 3, (7, 9)),
        ("--ids", "1", "--minus", "2", "--plus", "3,4"): (
            form(wide[1]) - form(wide[2]) + form((wide[3] + wide[4]) / 2),
            (1, 2, 3, 4),
        ),
    }
    for arguments, (query, without) in asked.items():
        scores = reference(matrix, query, metric)
        found = answers(in_process, *arguments, "--from", model, "--metric", metric, "-k", "7")
        assert ids(found) == first(scores, metric, 7, without)
        assert [each["score"] for each in found] == pytest.approx(scores[ids(found)], rel=1e-12)


def test_each_line_is_a_query(in_process: InProcess, model: str, matrix: np.ndarray) -> None:
    found = answers(
        in_process, "--ids", "-", "--lines", "--from", model, "-k", "3", stdin="7\n9,11\n"
    )
    assert ids(found) == first(
        reference(matrix, matrix[7].astype(float), "cosine"), "cosine", 3, (7,)
    )
    both = matrix[[9, 11]].astype(float).mean(axis=0)
    assert ids(found, 1) == first(reference(matrix, both, "cosine"), "cosine", 3, (9, 11))


def test_rows_of_a_seeded_layer_and_the_tokens_they_stand_for(in_process: InProcess) -> None:
    weight, gpt2 = live(Seeded(50257, 4, 1024, 123))["token"], encodings.get("gpt2")
    token = gpt2.encode(" Paris").tolist()
    scores = reference(weight, weight[token[0]].astype(float), "cosine")
    found = answers(in_process, " Paris", "--dim", "4")
    assert ids(found) == first(scores, "cosine", 10, tuple(token))
    assert [each["token"] for each in found] == [
        (gpt2.token_bytes(row) or b"").decode() for row in ids(found)
    ]
    ranked = first(scores, "cosine", 50257, tuple(token))
    wanted = [row for row in ranked if re.search("^ [A-Z]", repr(gpt2.token_bytes(row))[2:-1])]
    found = answers(in_process, " Paris", "--dim", "4", "--match", "^ [A-Z]")
    assert ids(found) == wanted[:10]
    several = in_process.ok(
        "neighbors", " king", "--minus", " man", "--plus", " woman", "--dim", "4"
    ).text
    assert several.startswith(
        "Nearest to ␣king (5822) - ␣man (582) + ␣woman (2415) by cosine\nEach term is scaled to length 1 first.\n"
    )
    assert str(embcli.seeded(dim=4).neighbors(" king", minus=" man", plus=" woman")) in several
    typed = in_process("neighbors", " king - man + woman", "--dim", "4")
    assert typed.err == "embcli: a text is no rule: --minus and --plus subtract and add rows\n"
    assert (
        "The query is the mean of 4 rows."
        in in_process.ok("neighbors", "Every effort moves you", "--dim", "4").text
    )


def test_rows_choose_the_answers(in_process: InProcess, model: str, matrix: np.ndarray) -> None:
    scores = reference(matrix, matrix[7].astype(float), "l2")
    ranked = [row for row in first(scores, "l2", ROWS, (7,)) if 5 <= row < 100]
    found = answers(
        in_process, "--ids", "7", "--from", model, "--metric", "l2", "--rows", "5:100,6"
    )
    assert ids(found) == ranked[:10]
    assert (
        len(answers(in_process, "--ids", "7", "--from", model, "--rows", "50:100", "-k", "200"))
        == 50
    )
    assert (
        "No other rows."
        in in_process.ok("neighbors", "--ids", "7", "--from", model, "--rows", "7").text
    )


def test_what_lookup_writes_is_what_vector_reads(in_process: InProcess, tmp_path: Path) -> None:
    lookup = ["lookup", "Every effort", "--dim", "6", "-f", "ndjson"]
    for show in ("input", "token"):
        piped = in_process.ok(*lookup, *(["--show", show] if show == "token" else [])).text
        found = answers(in_process, "--vector", "-", "--dim", "6", "--metric", "l2", stdin=piped)
        layers = live(Seeded(50257, 6, 1024, 123))
        for number, (token, position) in enumerate(((6109, 0), (3626, 1))):
            query = layers["token"][token] + (
                layers["position"][position] if show == "input" else np.float32(0)
            )
            scores = reference(layers["token"], query.astype(float), "l2")
            assert ids(found, number) == first(scores, "l2", 10)
            assert (found[10 * number]["score"] == 0) == (show == "token")
    array = json.dumps(json.loads(piped.splitlines()[0])["vectors"]["token"])
    assert ids(
        answers(in_process, "--vector", "-", "--dim", "6", "-k", "1", stdin=f"\n{array}\n \n")
    ) == [6109]
    for vector in (np.array(json.loads(array)), np.array([json.loads(array)], np.float16)):
        np.save(tmp_path / "v.npy", vector)
        assert ids(
            answers(in_process, "--vector", str(tmp_path / "v.npy"), "--dim", "6", "-k", "1")
        ) == [6109]
    np.save(tmp_path / "v.npy", np.array("six numbers"))
    assert "cannot read" in in_process.refused(
        "neighbors", "--vector", str(tmp_path / "v.npy"), "--dim", "6"
    )


def test_rows_without_a_score_are_told(in_process: InProcess, model: str) -> None:
    page = in_process.ok("neighbors", "--ids", "7", "--from", model).text
    assert re.search(r"^Searched 300 rows\.$", page, re.MULTILINE)
    assert "\nNot ranked: 2 rows with NaN or infinity: 21, 22\n" in page
    assert "\nNot ranked: 1 row of zeros, without a direction: 20\n" in page
    assert (
        "zeros"
        not in in_process.ok("neighbors", "--ids", "7", "--from", model, "--metric", "dot").text
    )
    many = in_process.ok("neighbors", "--ids", "7", "--from", model, "-k", "300").text
    assert "\nLeft out: ranks 101 to 196 (96 of 296).\n" in many
    drawn = in_process.ok(
        "neighbors", "--ids", "7", "--from", model, "-k", "300", "--heat"
    ).text.splitlines()
    gap = next(place for place, line in enumerate(drawn) if "⋮" in line)
    assert [drawn[place].split()[0] for place in (gap - 1, gap + 1)] == ["100", "197"]
    assert re.fullmatch(r"[ ⋮]+│ +⋮ *", drawn[gap])
    one = in_process.ok("neighbors", "--ids", "7", "--from", model, "--rows", "9", "-k", "1").text
    assert "\nSearched 1 row of 300.\n" in one
    run = json.loads(in_process.ok("neighbors", "--ids", "7", "--from", model, "-f", "json").out)[
        "run"
    ]
    assert (run["searched"], run["not_finite"], run["zero"]) == (300, 2, 1)
    assert run["queries"] == [{"ids": [7], "plus": [], "minus": []}]


def test_lines_and_queries_are_counted_from_1(in_process: InProcess, model: str) -> None:
    page = in_process.ok(
        "neighbors", "--ids", "-", "--lines", "--from", model, stdin="5\n" * 25
    ).text
    assert "\nLeft out: queries 11 to 15 (5 of 25).\n" in page
    page = in_process.ok(
        "neighbors", "--vector", "-", "--from", model, stdin=json.dumps([1] * DIM)
    ).text
    assert page.startswith("Nearest to vector 1 by cosine\n")


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        (
            "cosine",
            ["score  0          1", "2  1.0000  ████████████", "1  0.7071  ████████▌", "3  0.0000"],
        ),
        (
            "dot",
            ["score  0         20", "2  20.0000  ████████████", "1   2.0000  █▎", "3   0.0000"],
        ),
        ("l2", ["distance  2.83       0", "1    1.4142  ██████", "3    2.8284", "2    8.0000"]),
    ],
)
def test_a_bar_is_on_the_scale_of_its_metric(metric: Metric, told: list[str]) -> None:
    """The longer, the nearer, under l2 too; none for a row that is perpendicular, or farther."""
    source = StubSource({"token": Stub([[2, 0], [1, 1], [10, 0], [0, 2]])})
    page = str(Model(source).neighbors([0], metric=metric))
    assert all(re.search(rf"(?m) {re.escape(part)}$", page) for part in told), page
    nothing = str(Model(source).neighbors(vector=np.zeros(2), metric="l2"))
    assert "0          0\n" in nothing
    assert "█" not in nothing


def test_colours_show_the_rows_under_that_of_the_query(in_process: InProcess, model: str) -> None:
    page = in_process.ok(
        "neighbors", "--ids", "7", "--from", model, "-k", "2", "--heat"
    ).text.splitlines()
    assert [line.split()[0] for line in page[3:6]] == ["query", "1", "2"]
    assert all("│" in line for line in page[3:6])


BAD = [
    ("--ids 5,300", "ID 300 at position 1 has no row", "from 0 to 299"),
    ("--ids 5 -k 0", "-k must be at least 1, not 0"),
    ("--ids 5 -k -3", "-k must be at least 1, not -3"),
    ("--ids 20", "row 20 is zero and has no direction", "metric dot or l2"),
    ("--ids 21", "row 21 contains NaN or infinity"),
    ("--ids 5 --minus 22", "row 22 contains NaN or infinity"),
    ("--ids 5 --plus 301", "ID 301"),
    ("--ids 5 --plus x", "'x' at position 0 is not a token ID"),
    ("--ids 5 --minus 23", "query 1 is zero and has no direction"),
    ("--ids 5 --match (", "match '(' is not a regular expression"),
    ("--ids 5 --match a", "match 'a' needs tokens"),
    ("--ids 5 --rows 400", "row 400 is out of range"),
    ("--ids 5 --metric l3", "'l3'", "cosine"),
    ("--ids 5 --vector -", "--vector stands for the text or the IDs"),
    ("--ids 5 -f npy", "npy"),
    ("Paris", "give --ids, or --encoding"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[0])
def test_bad_input_is_refused_by_name(
    in_process: InProcess, model: str, case: tuple[str, ...]
) -> None:
    command, *named = case
    error = in_process.refused("neighbors", *command.split(), "--from", model)
    for part in named:
        assert part in error


NO_VECTOR = (
    "is not an array of D = 12 finite float32 numbers, nor an object with one as vectors.input"
)
NO_VECTORS = (
    "[1, 2]",
    "[NaN]",
    "3",
    '{"id": 3}',
    '{"vectors": {"token": [1], "position": [1]}}',
    *(json.dumps([value] * DIM) for value in (None, "1", True, 1e39)),
)


@pytest.mark.parametrize("line", NO_VECTORS)
def test_a_line_that_is_no_vector_is_refused_by_its_number(
    in_process: InProcess, model: str, line: str
) -> None:
    stdin = f"{[1] * DIM}\n{line}"
    told = in_process.refused("neighbors", "--vector", "-", "--from", model, stdin=stdin)
    assert f"line 2 of --vector, {line[:40]!r}, {NO_VECTOR}" in told


@pytest.mark.parametrize(
    ("stdin", "told"), [("", "has no vectors"), (f"{[0] * DIM}", "query 1 is zero and has no")]
)
def test_vectors_without_a_direction_are_refused(
    in_process: InProcess, model: str, stdin: str, told: str
) -> None:
    assert told in in_process.refused("neighbors", "--vector", "-", "--from", model, stdin=stdin)


def test_a_space_that_the_tokenizer_adds_itself_is_better_left_out(
    in_process: InProcess, tmp_path: Path
) -> None:
    made = Tokenizer(
        models.Unigram([("<unk>", 0), ("▁", -1), ("▁Paris", -1), ("▁Rome", -1)], unk_id=0)
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Replace("▁", " ")
    made.save(str(tmp_path / "tokenizer.json"))
    safetensors.numpy.save_file(
        {"wte.weight": np.eye(4, dtype=np.float32)}, tmp_path / "model.safetensors"
    )
    for texts, hinted in (
        ([" Paris"], " Paris"),
        (["Paris", "--plus", " Rome"], " Rome"),
        (["Paris"], ""),
    ):
        ran = in_process("neighbors", *texts, "--from", str(tmp_path))
        hint = f"embcli: the tokenizer itself puts a space before a text: leave out the one in {hinted!r}\n"
        assert (ran.status, ran.err) == (0, hint if hinted else "")
    for text in (" Paris", "  Paris", " \x00"):
        assert not [*embcli.seeded(dim=4).neighbors(text).notes]


@pytest.mark.parametrize(
    "verb", ["lookup hi --from", "neighbors --ids 5 --from", "audit --fail-on zero", "diff"]
)
def test_a_tokenizer_of_more_or_far_fewer_tokens_than_rows_is_doubted(
    in_process: InProcess, model: str, tmp_path: Path, verb: str
) -> None:
    command = [*verb.split(), model, *([model] if verb == "diff" else [])]
    doubt = "gpt2 has 50,257 tokens, this matrix 300 rows: probably not its tokenizer"
    assert doubt in in_process(*command, "--encoding", "gpt2").err
    assert "probably" not in in_process(*command).err
    (tmp_path / "vocab.txt").write_text("[UNK]\nhello\nworld\n")
    assert (
        "3 tokens, this matrix 300 rows: probably"
        in in_process(*command, "--encoding", str(tmp_path / "vocab.txt")).err
    )


def test_a_tokenizer_beside_the_weights_is_doubted_too(
    in_process: InProcess, tmp_path: Path
) -> None:
    safetensors.numpy.save_file(
        {"wte.weight": np.eye(2, dtype=np.float32)}, tmp_path / "model.safetensors"
    )
    (tmp_path / "vocab.txt").write_text("[UNK]\nhello\nworld\n")
    assert (
        "has 3 tokens, this matrix 2 rows: probably"
        in in_process("weights", "--from", str(tmp_path)).err
    )


def test_no_tokens_have_no_neighbours(in_process: InProcess) -> None:
    for stdin, arguments in (("", []), ("a\n\nb\n", ["--lines"])):
        ran = in_process("neighbors", *arguments, "--dim", "4", stdin=stdin)
        assert (ran.status, ran.out) == (2, b"")
        assert "no tokens, so there are no neighbours" in ran.err


WORDS = "king 0.9 0.8 0.1\nqueen 0.9 0.1 0.8\nman 0.1 0.9 0\nwoman 0.1 0.1 0.9\nbread 0 0.1 0\nkin 1 1 1\n"


def test_words_of_word_vectors(in_process: InProcess, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text(WORDS)
    found = answers(
        in_process, "king", "--minus", "man", "--plus", "woman", "--from", str(file), "-k", "1"
    )
    assert [each["token"] for each in found] == ["queen"]
    for words in (["kimg"], ["king", "--plus", "kimg"]):
        error = in_process.refused("neighbors", *words, "--from", str(file))
        assert error == f"embcli: {str(file)!r} has no row for 'kimg'\n"


@pytest.mark.skipif(not shutil.which("prlimit"), reason="prlimit limits the address space on Linux")
def test_a_file_above_the_limit_on_address_space_is_searched(tmp_path: Path) -> None:
    """A matrix of 246 MB, most of it a hole in the file, and 230 MB of address space."""
    rows, dim = 7_500, 4096
    head = header({"wte": ("float64", (rows, dim))}, {})
    file = tmp_path / "model.safetensors"
    with file.open("wb") as made:
        made.write(head)
        for row in (5, 7_000):
            made.seek(len(head) + row * dim * 8)
            made.write(np.ones(dim).tobytes())
        made.truncate(len(head) + rows * dim * 8)
    limit = 230 * 10**6
    assert file.stat().st_size > limit
    command = [
        "prlimit",
        f"--as={limit}",
        *Process.command,
        "neighbors",
        "--ids",
        "5",
        "--from",
        str(file),
        "-f",
        "csv",
    ]
    command += ["--metric", "dot", "-k", "1"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout) == (0, b"query,rank,id,score\r\n0,1,7000,4096.0\r\n"), (
        done
    )

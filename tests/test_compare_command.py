"""`embcli compare` as a process: its whole output, its JSON document, its exit status, and the memory it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from functools import lru_cache
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from embcli import cli, compare
from embcli.verbs.compare import Task
from tests.conftest import TIMEOUT, Embcli

FIRST = """\
-0.2039  0.0166 -0.2483  0.1886
-0.4260  0.3665 -0.3634 -0.3975
-0.3159  0.2264 -0.1847  0.1871
-0.4244 -0.3034 -0.1836 -0.0983
-0.3814  0.3274 -0.1179  0.1605
"""
WEIGHT = """\
 0.3374 -0.1778 -0.3035 -0.5880  1.5810
 1.3010  1.2753 -0.2010 -0.1606 -0.4015
 0.6957 -1.8061 -1.1589  0.3255 -0.6315
-2.8400 -0.7849 -1.4096 -0.4076  0.7953
"""
DEFAULT = """\
Two ways from token IDs to vectors: a lookup, and a one-hot product
T = 3 (tokens), V = 4 (rows), D = 5 (columns), seed 123

1. The token IDs, (T,) = (3,)
2  3  1

2. The one-hot matrix, (T, V) = (3, 4)
A row a token: 1 in the column of its ID, 0 in the other 3.
pos  ID  │  0  1  2  3
──────────────────────
  0   2  │  0  0  1  0
  1   3  │  0  0  0  1
  2   1  │  0  1  0  0

3. The linear layer's own first weights, (D, V) = (5, 4)
torch.nn.Linear draws uniform numbers within ±1/√V = ±0.5, torch.nn.Embedding normal ones: from one seed, other numbers.
D  │        0        1        2        3
────────────────────────────────────────
0  │  {F0}
1  │  {F1}
2  │  {F2}
3  │  {F3}
4  │  {F4}

4. The shared weight, embedding.weight, (V, D) = (4, 5)
Now linear.weight = Parameter(embedding.weight.T), (D, V) = (5, 4): each row here is a column of it.
ID  │        0        1        2        3        4
──────────────────────────────────────────────────
 0  │  {W0}
 1  │  {W1}
 2  │  {W2}
 3  │  {W3}

5. The outputs, side by side, (T, D) = (3, 5)
Left: row ID of the weight, looked up. Right: one-hot row times weight, summed up.
         │  embedding                                    │  linear
pos  ID  │        0        1        2        3        4  │        0        1        2        3        4  diff
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
  0   2  │  {W2}  │  {W2}     0
  1   3  │  {W3}  │  {W3}     0
  2   1  │  {W1}  │  {W1}     0

Bit-identical: all 15 values, the largest |difference| is 0.
A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.

Cost             embedding    linear
──────────────────────────────────────────────────────────────────────────────────
multiply-adds            0        60  T·V·D
weight read       60 bytes  80 bytes  T·D and V·D float32
one-hot int64            0  96 bytes  T·V, as torch.nn.functional.one_hot makes it
one-hot float32          0  48 bytes  T·V, as the linear layer takes it
TIMES
The one-hot way takes RATIO times as long.
"""


@lru_cache
def live() -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of the embedding layer, and the linear layer's own first one."""
    torch.manual_seed(123)
    embedding = torch.nn.Embedding(4, 5)
    torch.manual_seed(123)
    linear = torch.nn.Linear(4, 5, bias=False)
    return embedding.weight.detach().numpy(), linear.weight.detach().numpy()


def untimed(text: str) -> str:
    """Return the page without what is measured."""
    text = re.sub(r"(?m)^time .* [µm]?s  median of [0-9 and]+ runs$", "TIMES", text)
    return re.sub(r"takes [0-9.,]+ times", "takes RATIO times", text)


def test_the_whole_page_of_the_default(embcli: Embcli) -> None:
    def line(row: np.ndarray) -> str:
        return "  ".join(f"{value:7.4f}" for value in row)

    weight, first = live()
    rows = {f"W{place}": line(row) for place, row in enumerate(weight)}
    rows |= {f"F{place}": line(row) for place, row in enumerate(first)}
    assert untimed(embcli.ok("compare", stdin="1 2 3").text) == DEFAULT.format(**rows)


def test_the_printed_defaults_are_the_figures_of_the_book() -> None:
    weight, first = live()  # which the page above holds
    for printed, values in ((WEIGHT, weight), (FIRST, first)):
        figures = np.array([line.split() for line in printed.splitlines()], float)
        np.testing.assert_allclose(figures, values, atol=6e-5, rtol=0)


# --- as JSON --------------------------------------------------------------------------------------------------------


def an_object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


COUNT = {"type": "integer", "minimum": 0}
VALUE = {"type": ["number", "null"]}
TEXT = {"type": "string"}
MATRIX = {"type": "array", "items": {"type": "array", "items": VALUE}}
SHAPE = {"type": "array", "items": COUNT, "minItems": 1, "maxItems": 2}
STEPS = ("ids", "one_hot", "first", "shared", "embedding", "linear")
VERDICT = an_object(
    bit_identical={"type": "boolean"},
    kind={"enum": ["identical", "value", "nan", "nan bits", "zero sign"]},
    values=COUNT,
    different_values=COUNT,
    largest_difference=VALUE,
    place={"oneOf": [{"type": "null"}, an_object(row=COUNT, column=COUNT, embedding=VALUE, linear=VALUE)]},
    causes={"type": "array", "items": an_object(row=COUNT, column=COUNT, value={"enum": ["inf", "-inf", "nan"]})},
)
BOTH = an_object(embedding=COUNT, linear=COUNT)
COST = an_object(
    tokens=COUNT,
    vocabulary_size=COUNT,
    dim=COUNT,
    multiply_adds=BOTH,
    weight_bytes_read=BOTH,
    one_hot_bytes=an_object(int64=COUNT, float32=COUNT),
    seconds=an_object(embedding={"type": "number"}, linear={"type": "number"}),
    runs=BOTH,
    slices=COUNT,
    ratio={"type": "number"},
)
GRADIENT = an_object(
    loss=TEXT,
    rows_with_gradient=BOTH,
    slices=COUNT,
    verdict=VERDICT,
    ids={"type": "array", "items": COUNT},
    times={"type": "array", "items": COUNT},
    embedding=MATRIX,
    linear=MATRIX,
)
DOCUMENT = an_object(
    run=an_object(
        encoding={"type": ["string", "null"]},
        seed=COUNT,
        torch=TEXT,
        cpu_capability=TEXT,
        shapes=an_object(**dict.fromkeys(STEPS, SHAPE)),
    ),
    verdict=VERDICT,
    weights=an_object(first={"oneOf": [{"type": "null"}, MATRIX]}, shared={"oneOf": [{"type": "null"}, MATRIX]}),
    cost=COST,
    gradient={"oneOf": [{"type": "null"}, GRADIENT]},
    bench={"oneOf": [{"type": "null"}, {"type": "array", "items": COST}]},
    columns={"type": "array", "items": COUNT},
    tokens={
        "type": "array",
        "items": {**an_object(position=COUNT, id=COUNT, difference=VALUE, token=TEXT), "required": ["id"]},
    },
    matrices=an_object(embedding=MATRIX, linear=MATRIX),
)


def test_the_json_document_follows_its_schema_and_holds_what_torch_gives(embcli: Embcli) -> None:
    ran = embcli.ok("compare", "--gradient", "--bench", "--vocab", "4", "--ids", "2,3,1", "-f", "json")
    document = json.loads(ran.out)
    jsonschema.validate(document, DOCUMENT)
    weight, first = live()
    assert np.array(document["weights"]["first"], np.float32).tobytes() == first.tobytes()
    assert np.array(document["weights"]["shared"], np.float32).T.tobytes() == weight.tobytes()
    for name in ("embedding", "linear"):
        assert np.array(document["matrices"][name], np.float32).tobytes() == weight[[2, 3, 1]].tobytes()
        assert np.array(document["gradient"][name], np.float32).tobytes() == weight[[1, 2, 3]].tobytes()
    assert document["run"]["shapes"] == {
        "ids": [3], "one_hot": [3, 4], "first": [5, 4], "shared": [5, 4], "embedding": [3, 5], "linear": [3, 5]
    }  # fmt: skip
    assert document["verdict"]["bit_identical"] is True
    assert [cost["vocabulary_size"] for cost in document["bench"]] == [4]


def test_a_text_is_compared_on_the_encoding_s_rows(embcli: Embcli) -> None:
    document = json.loads(embcli.ok("compare", "-", "--dim", "3", "-f", "json", stdin="Every effort moves you").out)
    jsonschema.validate(document, DOCUMENT)
    assert document["run"]["shapes"]["one_hot"] == [4, 50257]
    assert [(row["token"], row["id"]) for row in document["tokens"]] == [
        ("Every", 6109), (" effort", 3626), (" moves", 6100), (" you", 345)
    ]  # fmt: skip
    torch.manual_seed(123)
    rows = torch.nn.Embedding(50257, 3).weight.detach().numpy()[[6109, 3626, 6100, 345]]
    assert np.array(document["matrices"]["linear"], np.float32).tobytes() == rows.tobytes()


# --- exit status ----------------------------------------------------------------------------------------------------


def test_a_difference_gives_status_1(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
    def odd(task: Task, watch: object) -> object:
        weight = np.ones((4, 5), np.float32)
        weight[0, 2] = np.inf
        return compare.compare_weights(task.tokens, weight)

    monkeypatch.setattr(compare, "compare", odd)
    monkeypatch.setattr(sys, "argv", ["embcli", "compare"])
    assert cli.main() == 1
    assert "Row 0 of the weight has inf in column 2" in capfdbinary.readouterr().out.decode()


RUN = """
import sys
from embcli.cli import main
status = main()
print("torch" in sys.modules)
sys.exit(status)
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ids", "1,-2"], "ID -2 at position 1 is negative"),
        (["--ids", "1,x"], "'x' at position 1 is not a token ID"),
        (["--vocab", "3"], "ID 3 at position 1 has no row: the token layer has V = 3 rows"),
        (["Every", "--vocab", "100"], "ID 6109 ('Every') at position 0 has no row"),
        (["--vocab", "0"], "--vocab 0 makes no layer"),
        (["--dim", "-1"], "--dim -1 makes no layer"),
        (["--dim", "x"], "'x' is no whole number"),
        (["--seed", str(2**64)], "--seed 18446744073709551616 is out of range"),
        (["--ids", str(2**63 - 1)], "of memory"),
        (["--bench", "--vocab", str(10**12)], "takes 20.0 TB, and this machine has"),
        (["--show", "ids,shares"], "--show 'shares' is not known; choose from ids, one-hot, first, shared, outputs"),
        (["--encoding", "gpt3"], "no encoding or model is named 'gpt3'"),
        (["--precision", "0"], "--precision 0 is out of range"),
        (["hello", "--ids", "1"], "TEXT and --ids stand for the same input"),
        (["--file", "/nonexistent"], "cannot read '/nonexistent'"),
        (["-"], "standard input is not UTF-8: byte 0xff at offset 0"),
    ],
)
def test_bad_input_is_refused_before_torch_is_loaded(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, "compare", *arguments],
        input=b"\xff",
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, b"False\n")
    assert said in done.stderr.decode()
    assert done.stderr.startswith(b"embcli: ")
    assert 1 <= done.stderr.count(b"\n") <= 2


# --- size and progress ----------------------------------------------------------------------------------------------

PEAK = """
import resource, sys
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from embcli.cli import main
status = main()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux only")
def test_a_thousand_tokens_of_a_large_vocabulary_fit_into_600_mb() -> None:
    ids = np.random.default_rng(5).integers(0, 200019, 1000)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "compare", "--ids", "-", "--vocab", "200019", "--gradient", "-f", "json"],
        input=" ".join(map(str, ids)).encode(),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stderr) < 600_000
    cost = json.loads(done.stdout)["cost"]
    assert cost["slices"] > 1
    assert cost["one_hot_bytes"] == {"int64": 8 * 1000 * 200019, "float32": 4 * 1000 * 200019}
    assert cost["multiply_adds"]["linear"] == 1000 * 200019 * 5


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
def test_the_benchmark_has_a_progress_bar_on_a_terminal_s_standard_error_only() -> None:
    ours, theirs = os.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(ours, 4096):
                shown.append(part)
        except OSError:  # the other end is closed
            pass

    with subprocess.Popen(
        [sys.executable, "-m", "embcli", "compare", "--bench", "--vocab", "5000"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        reader = threading.Thread(target=read)
        reader.start()
        output = process.communicate(timeout=TIMEOUT)[0].decode()
    reader.join()
    os.close(ours)
    assert process.returncode == 0
    assert b"growing V" in b"".join(shown)
    assert "growing V\n" in output  # the title of the table
    sizes = re.findall(r"(?m)^ *([0-9,]+) +[0-9.]+ [µm]?s +[0-9.]+ [µm]?s ", output)
    assert sizes == ["16", "64", "256", "1,024", "4,096", "5,000"]
    bars = re.findall(r"(?m)^ *(?:[0-9,]+)? +(embedding|linear) +([█▏▎▍▌▋▊▉]+)$", output)
    assert [name for name, _ in bars] == ["embedding", "linear"] * 6


@pytest.mark.parametrize("name", ["embedding", "linear"])
def test_show_names_the_output_that_csv_holds(embcli: Embcli, name: str) -> None:
    rows = embcli.ok("compare", "-f", "csv", "--show", name).text.splitlines()[1:]
    whole = json.loads(embcli.ok("compare", "-f", "json").out)["matrices"][name]
    assert [[float(value) for value in row.split(",")[3:]] for row in rows] == whole

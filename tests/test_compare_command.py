"""`embcli compare` as a command: its whole page, its JSON document, its exit status, and the memory it takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from embcli.layer import Origin, Source
from embcli.verbs.compare import layers
from embcli.weights.seeded import Seeded
from tests.conftest import TIMEOUT, Embcli
from tests.oracles import assert_same_bits, live, live_comparison

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
Two ways from token IDs to vectors: embedding layer and linear layer
T = 3 (tokens), V = 4 (rows), D = 5 (columns), seed 123
1. The token IDs, (T,) = (3,)
2  3  1

2. The one-hot matrix, (T, V) = (3, 4)
One row per token: 1 in the column of its ID, 0 in the other 3.
pos  ID  │  0  1  2  3
──────────────────────
  0   2  │  0  0  1  0
  1   3  │  0  0  0  1
  2   1  │  0  1  0  0

3. The linear layer's own first weights, (D, V) = (5, 4)
torch.nn.Linear draws uniform numbers within ±1/√V = ±0.5, torch.nn.Embedding normal ones: one seed gives other numbers.
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

5. The outputs, (T, D) = (3, 5): row ID of the weight; one-hot row · weight
         │  embedding                                    │  linear
pos  ID  │        0        1        2        3        4  │        0        1        2        3        4  diff
─────────────────────────────────────────────────────────────────────────────────────────────────────────────
  0   2  │  {W2}  │  {W2}     0
  1   3  │  {W3}  │  {W3}     0
  2   1  │  {W1}  │  {W1}     0

Bit-identical: all 15 values, the largest |difference| is 0.
A one-hot row times the weight is 1 · row ID + 0 · every other row = row ID.
Cost              embedding               linear
───────────────────────────────────────────────────────────────────────────────────────────
multiply-adds             0                   60  T·V·D
weight read        60 bytes             80 bytes  T·D and V·D float32
one-hot matrix            0  96 bytes + 48 bytes  T·V int64, as torch makes it, and float32
time on 1 thread       TIME                 TIME  median of RUNS runs
  at least             TIME                 TIME  the fastest run
linear: RATIOx the time; 45 of 60 are multiplications by zero.
Untrained: random rows of seed 123.
"""


UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time each way as few times as may be: here the figures are not the point."""
    monkeypatch.setattr(layers, "_ENOUGH", 0.0)


def untimed(text: str) -> str:
    """Return the page without what is measured."""
    time = r"(?=.{N})[ 0-9.]+ [µm]?s"
    times = f"  {time.replace('N', '9')}  {time.replace('N', '19')}  "
    text = re.sub(rf"(?m)^(time on 1 thread|  at least      ){times}", rf"\1  {'TIME':>9}  {'TIME':>19}  ", text)
    text = re.sub(r"median of [0-9]+ and [0-9]+ runs", "median of RUNS runs", text)
    return re.sub(r"linear: [0-9.,]+x", "linear: RATIOx", text)


def test_the_whole_page_of_the_default(inside: Embcli) -> None:
    def line(row: np.ndarray) -> str:
        return "  ".join(f"{value:7.4f}" for value in row)

    weight, first = live(Seeded(4, 5))["token"], live_comparison([], 4).first.numpy()
    rows = {f"W{place}": line(row) for place, row in enumerate(weight)}
    rows |= {f"F{place}": line(row) for place, row in enumerate(first)}
    assert untimed(inside.ok("compare", stdin="1 2 3").text) == DEFAULT.format(**rows)


def test_the_printed_defaults_are_the_figures_of_the_book() -> None:
    weight, first = live(Seeded(4, 5))["token"], live_comparison([], 4).first  # which the page above holds
    for printed, values in ((WEIGHT, weight), (FIRST, first)):
        figures = np.array([line.split() for line in printed.splitlines()], float)
        np.testing.assert_allclose(figures, values, atol=6e-5, rtol=0)


# --- as JSON --------------------------------------------------------------------------------------------------------


def test_the_json_document_holds_what_torch_gives(inside: Embcli) -> None:
    ran = inside.ok("compare", "--gradient", "--vocab", "4", "--ids", "2,3,1", "-f", "json")
    document = json.loads(ran.out)
    weight, first = live(Seeded(4, 5))["token"], live_comparison([], 4).first.numpy()

    def float32(values: object) -> np.ndarray:
        return np.array(values, np.float32)

    assert_same_bits(float32(document["weights"]["first"]), first)
    assert_same_bits(float32(document["weights"]["shared"]), weight.T)
    for name in ("embedding", "linear"):
        assert_same_bits(float32(document["matrices"][name]), weight[[2, 3, 1]])
        assert_same_bits(float32(document["gradient"][name]), weight[[1, 2, 3]])
    assert document["run"]["shapes"] == {
        "ids": [3], "one_hot": [3, 4], "first": [5, 4], "shared": [5, 4], "embedding": [3, 5], "linear": [3, 5]
    }  # fmt: skip
    assert document["run"]["sequences"] == 1
    assert document["verdict"]["bit_identical"] is True
    cost = document["cost"]
    assert cost["multiplications_by_zero"] == 3 * 4 * 5 - 3 * 5
    assert cost["ratio"] == pytest.approx(cost["seconds"]["linear"] / cost["seconds"]["embedding"])
    assert all(0 < cost["least_seconds"][name] <= cost["seconds"][name] for name in ("embedding", "linear"))


def test_a_text_is_compared_on_the_encoding_s_rows(inside: Embcli) -> None:
    document = json.loads(inside.ok("compare", "-", "--dim", "3", "-f", "json", stdin="Every effort moves you").out)
    assert document["run"]["shapes"]["one_hot"] == [4, 50257]
    assert [(row["token"], row["id"]) for row in document["tokens"]] == [
        ("Every", 6109), (" effort", 3626), (" moves", 6100), (" you", 345)
    ]  # fmt: skip
    rows = live(Seeded(50257, 3))["token"][[6109, 3626, 6100, 345]]
    assert_same_bits(np.array(document["matrices"]["linear"], np.float32), rows)


def test_what_the_book_s_sentence_costs(inside: Embcli) -> None:
    printed = inside.ok("compare", "Every effort moves you").text
    cost = dict(re.findall(r"(?m)^(multiply-adds|weight read|one-hot matrix) +(.*?)  [TV]", printed))
    assert cost["multiply-adds"].split() == ["0", f"{4 * 50257 * 5:,}"]
    assert cost["weight read"] == "80 bytes             1.0 MB"
    assert cost["one-hot matrix"].split("  ", 1)[1].strip() == "1.6 MB + 804.1 kB"
    assert "; 1,005,120 of 1,005,140 are multiplications by zero.\n" in printed


# --- exit status ----------------------------------------------------------------------------------------------------


def test_a_difference_gives_status_1(monkeypatch: pytest.MonkeyPatch, inside: Embcli) -> None:
    def infinite(source: Source) -> tuple[torch.nn.Embedding, Origin]:
        weight = torch.ones(4, 5)
        weight[0, 2] = torch.inf
        return torch.nn.Embedding(4, 5, _weight=weight), source.origin

    monkeypatch.setattr(layers, "_embedding", infinite)
    ran = inside("compare")
    assert ran.status == 1
    assert "Row 0 of the weight has inf in column 2" in ran.text


RUN = """
import sys
from embcli.__main__ import main
for arguments in eval(sys.argv[1]):
    sys.argv = ["embcli", "compare", *arguments]
    print(main(), "torch" in sys.modules)
    print("--", file=sys.stderr)
"""
REFUSED = [
    (["--ids", "1,-2"], "ID -2 at position 1 is negative"),
    (["--ids", "1,x"], "'x' at position 1 is not a token ID"),
    (["--vocab", "3"], "ID 3 at position 1 has no row: the token layer has V = 3 rows"),
    (["Every", "--vocab", "100"], "ID 6109 ('Every') at position 0 has no row"),
    (["--vocab", "0"], "vocab must be at least 1, not 0"),
    (["--dim", "-1"], "dim must be at least 1, not -1"),
    (["--dim", "x"], "'x' is not a valid int"),
    (["--seed", str(2**64)], "seed must be from -2**63 to 2**64 - 1, as in torch, not 18446744073709551616"),
    (["--ids", str(2**63 - 1)], "of memory"),
    (["--vocab", str(10**12)], "takes 20.0 TB, and this machine has"),
    (["--show", "ids,shares"], "--show 'shares' is not known; choose from ids, one-hot, first, shared, outputs"),
    (["--encoding", "gpt3"], "no encoding or model is named 'gpt3'"),
    (["--precision", "0"], "--precision 0 is out of range"),
    (["hello", "--ids", "1"], "TEXT and --ids stand for the same input"),
    (["--file", "/nonexistent"], "cannot read '/nonexistent'"),
    (["-"], "standard input is not UTF-8: byte 0xff at offset 0"),
]


def test_bad_input_is_refused_before_torch_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, str([arguments for arguments, _ in REFUSED])],
        input=b"\xff",
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.stdout == b"2 False\n" * len(REFUSED), done
    errors = done.stderr.decode().split("--\n")[:-1]
    for (_, said), error in zip(REFUSED, errors, strict=True):
        assert said in error
        assert error.startswith("embcli: ")
        assert 1 <= error.count("\n") <= 2


# --- size and progress ----------------------------------------------------------------------------------------------

PEAK = """
import resource, sys
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from embcli.__main__ import main
status = main()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts kilobytes on Linux only")
def test_a_one_hot_matrix_of_a_gigabyte_fits_into_600_mb() -> None:
    ids = np.random.default_rng(5).integers(0, 200019, 400)
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
    assert cost["one_hot_bytes"] == {"int64": 8 * 400 * 200019, "float32": 4 * 400 * 200019}
    assert cost["multiply_adds"]["linear"] == 400 * 200019 * 5


@pytest.mark.parametrize("name", ["embedding", "linear"])
def test_show_names_the_output_that_csv_holds(inside: Embcli, name: str) -> None:
    rows = inside.ok("compare", "-f", "csv", "--show", name).text.splitlines()[1:]
    whole = json.loads(inside.ok("compare", "-f", "json").out)["matrices"][name]
    assert [[float(value) for value in row.split(",")[3:]] for row in rows] == whole

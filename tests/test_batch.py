"""Batches: bit for bit those of a plain script with torch's Dataset and DataLoader, in both orders of draws."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from torch.utils.data import DataLoader

import embcli
from embcli.model import Model
from embcli.page import export
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.batch import Batches
from tests.oracles import live, of_ids
from tests.runners import InProcess

OPENING = (
    "I HAD always thought Jack Gisburn rather a cheap genius--though a good fellow enough--so it was no great surprise "
    "to me to hear that, in the height of his glory, he had dropped his painting, married a rich widow, and "
    "established himself in a villa on the Riviera. (Though I rather thought it would have been Rome or Florence.)\n"
)
FIRST_BATCH = """
   40   367  2885  1464    1807  3619   402   271   10899  2138   257  7026   15632   438  2016   257
  922  5891  1576   438     568   340   373   645    1049  5975   284   502     284  3285   326    11
"""
FIRST_IDS = [int(each) for each in FIRST_BATCH.split()]
run = InProcess()


def plain(ids: list[int], seeded: Seeded, split: dict[str, Any]) -> list[list[torch.Tensor]]:
    """Return inputs, targets and input embeddings of every batch, as a plain script makes them."""
    length, stride = split["max_length"], split["stride"]
    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocab, seeded.dim)
    samples = [
        (
            torch.tensor(ids[start : start + length]),
            torch.tensor(ids[start + 1 : start + length + 1]),
        )
        for start in range(0, len(ids) - length, stride)
    ]
    last = not split["keep_last"]
    loader = DataLoader(
        samples, batch_size=split["batch_size"], shuffle=split["shuffle"], drop_last=last
    )  # type: ignore[arg-type]
    iterator = iter(loader)
    batches = [next(iterator)]
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    batches += list(iterator)
    with torch.no_grad():
        return [
            [inputs, targets, token(inputs) + position(torch.arange(length))]
            for inputs, targets in batches
        ]


def everything(result: Batches) -> dict[str, np.ndarray]:
    """Return the arrays of a result, which are those of its records."""
    records = result.records()
    pieces = list(records.pieces(records.fields, tuple(records.matrices)))
    found = {
        name: np.concatenate([piece.matrices[name] for piece in pieces])
        for name in records.matrices
    }
    for name, values in found.items():
        assert (values.shape, values.dtype) == (
            records.matrices[name].shape,
            records.matrices[name].dtype,
        )
        assert getattr(result, name).tobytes() == values.tobytes()
    return found


def assert_equal(result: Batches, expected: list[list[torch.Tensor]]) -> None:
    found = everything(result)
    for place, name in enumerate(("inputs", "targets", "input")):
        assert (
            found[name].tobytes() == torch.cat([each[place] for each in expected]).numpy().tobytes()
        )


SPLITS = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 5),
        "max_length": st.integers(1, 6),
        "stride": st.integers(1, 9),
        "shuffle": st.booleans(),
        "keep_last": st.booleans(),
    }
)


@given(st.data(), SPLITS, st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_batches_are_those_of_a_plain_script(
    data: st.DataObject, split: dict[str, Any], size: int, dim: int, seed: int
) -> None:
    length = split["max_length"]
    least = (
        length + 1
        if split["keep_last"]
        else length + (split["batch_size"] - 1) * split["stride"] + 1
    )
    ids = data.draw(st.lists(st.integers(0, size - 1), min_size=least, max_size=least + 60))
    seeded = Seeded(size, dim, length + data.draw(st.integers(0, 3)), seed)
    expected, source = plain(ids, seeded, split), SeededSource(seeded)
    split["context_length"] = seeded.context_length
    state = torch.get_rng_state()
    result = Model(source).batch(of_ids(ids), **split, all=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert result.count == len(expected)
    assert_equal(result, expected)
    index = data.draw(st.integers(0, len(expected) - 1))
    assert_equal(
        Model(source).batch(of_ids(ids), **split, index=index), expected[index : index + 1]
    )


def test_threads_take_turns_with_torchs_generator() -> None:
    """Batches and comparisons draw from the one global generator, and leave it as it was."""
    model, text = embcli.seeded(50, 4, encoding="gpt2"), list(range(40))

    def batched(index: int) -> np.ndarray:
        return model.batch(text, batch_size=2, shuffle=True, index=index % 4).input

    def compared(seed: int) -> np.ndarray:
        return model.compare([1, 2], seed=seed % 4).first

    wanted = {(work, number): work(number) for work in (batched, compared) for number in range(4)}
    state = torch.get_rng_state()
    with ThreadPoolExecutor(8) as threads:
        results = [
            (work, n % 4, threads.submit(work, n))
            for n in range(24)
            for work in (batched, compared)
        ]
    assert all((done.result() == wanted[work, number]).all() for work, number, done in results)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_first_batch_of_the_verdict_is_the_books() -> None:
    found = json.loads(run.ok("batch", "-", "--dim", "2", "-f", "json", stdin=OPENING).out)
    assert found["matrices"]["inputs"] == np.reshape(FIRST_IDS, (8, 4)).tolist()
    assert np.ravel(found["matrices"]["targets"]).tolist() == [*FIRST_IDS[1:], 287]
    assert np.shape(found["matrices"]["input"]) == (8, 4, 2)
    assert found["samples"] == [{"batch": 0, "sample": sample} for sample in range(8)]
    assert found["columns"] == [0, 1]
    split = {
        "batches": 2,
        "batch_size": 8,
        "max_length": 4,
        "stride": 4,
        "shuffle": False,
        "keep_last": False,
    }
    assert split.items() <= found["run"].items()
    assert found["run"]["shapes"] == {"token": [50257, 2], "position": [4, 2]}


def test_a_line_of_ndjson_is_a_batch_and_the_formats_agree(tmp_path: Path) -> None:
    arguments = (
        "batch",
        "-",
        "--dim",
        "3",
        "--all",
        "--keep-last",
        "--batch-size",
        "7",
        "--stride",
        "3",
    )
    lines = [
        json.loads(line)
        for line in run.ok(*arguments, "-f", "ndjson", stdin=OPENING).text.splitlines()
    ]
    whole = json.loads(run.ok(*arguments, "-f", "json", stdin=OPENING).out)["matrices"]
    run.ok(*arguments, "-o", str(tmp_path / "all.safetensors"), stdin=OPENING)
    tensors = load_file(tmp_path / "all.safetensors")
    assert (
        run.ok(*arguments, "-f", "npy", stdin=OPENING).out[-tensors["input"].nbytes :]
        == tensors["input"].tobytes()
    )
    assert [line["batch"] for line in lines] == [*range(len(lines))]
    assert [len(line["inputs"]) for line in lines[:-1]] == [7] * (len(lines) - 1)
    assert 0 < len(lines[-1]["inputs"]) < 7
    for name in ("inputs", "targets", "input"):
        joined = [
            row for line in lines for row in (line["vectors"] if name == "input" else line)[name]
        ]
        assert joined == whole[name]
        assert tensors[name].dtype == (np.float32 if name == "input" else np.int64)
        assert tensors[name].tolist() == np.array(whole[name], tensors[name].dtype).tolist()


def test_chosen_columns_are_those_of_the_whole() -> None:
    source, ids = SeededSource(Seeded(9, 6, 4)), of_ids([1, 2, 3, 4, 5, 6, 7, 8, 0])
    whole = everything(Model(source).batch(ids, batch_size=2))["input"]
    assert (
        everything(Model(source).batch(ids, batch_size=2, columns="5,0"))["input"].tolist()
        == whole[..., [5, 0]].tolist()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ids", "1,2,3,4"), "need at least 5 tokens (--max-length 4 and one more), got 4"),
        (
            ("--ids", "1,2,3,4,5"),
            "1 sample of --max-length 4, too few for a batch of 8; --keep-last keeps",
        ),
        (
            ("--ids", "1,2,3,4,5", "--stride", "0"),
            "--stride must be at least 1 and below 2**31, not 0",
        ),
        (("--ids", "1,2,3,4,5", "--batch-size", "0"), "--batch-size must be at least 1"),
        (("--ids", "1,2,3,4,5", "--max-length", "-1"), "--max-length must be at least 1"),
        (
            ("--ids", "1,2,3,4,5", "--batch-size", "1", "--index", "1"),
            "--index 1 is not a batch: there is 1, counted from 0",
        ),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "--index", "-1"), "--index -1"),
        (
            ("--ids", "1,2,3,4,5", "--batch-size", "1", "--context-length", "3"),
            "--context-length 3",
        ),
        (("--ids", "1,2,3,4,50257", "--batch-size", "1"), "ID 50257"),
        (("--all", "--index", "1", "--ids", "1"), "--all and --index"),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "-f", "csv"), "cannot be written as csv"),
        (
            ("Every effort moves you",),
            "need at least 5 tokens (--max-length 4 and one more), got 4",
        ),
    ],
)
def test_what_makes_no_batch_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in run.refused("batch", *arguments)


def test_the_name_of_a_file_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my book.txt").write_text("Every effort moves you, and so on. " * 9)
    told = "'my book.txt' is read as a text; for the file: embcli batch --file 'my book.txt'\n"
    ran = run("batch", "my book.txt")
    assert ran.status == 2
    assert ran.err.startswith(f"embcli: {told}embcli: need at least 5 tokens")


def test_chosen_columns_show_the_numbers_of_a_batch() -> None:
    words = (
        "batch",
        "--ids",
        "1,2,3,4,5",
        "--vocab",
        "9",
        "--dim",
        "4",
        "--batch-size",
        "1",
        "--columns",
        "3,0",
    )
    table, drawn = (run.ok(*words, *more).text for more in ((), ("--draw",)))
    numbers = re.findall(r"-?\d\.\d{4}", table)
    assert len(numbers) == 4 * 2
    assert numbers == re.findall(r"-?\d\.\d{4}", drawn)


def test_samples_follow_one_another_unless_a_stride_is_given() -> None:
    words = (
        "batch",
        "--ids",
        "0:40",
        "--max-length",
        "6",
        "--vocab",
        "50",
        "--dim",
        "2",
        "--batch-size",
        "3",
    )
    assert (
        run.ok(*words).out
        == run.ok(*words, "--stride", "6").out
        != run.ok(*words, "--stride", "4").out
    )


# --- on a page ------------------------------------------------------------------------------------------------------

SHUFFLED = """\
The only batch: N = 8 samples of T = 4 tokens, stride 5, shuffled
                             │  inputs           │  targets
batch  sample  tokens        │      0  …      3  │      0  …      3
───────────────────────────────────────────────────────────────────
    0       5  ␣surpr…␣hear  │   5975  …    284  │    284  …   3285
    0      12  iera .…gh ␣I  │  41976  …  10915  │     13  …    314
    0       6  ␣that …eight  │    326  …    262  │     11  …   6001
    0       7  ␣of ␣h…, ␣he  │    286  …     11  │    465  …    339
    0      10  ␣and ␣…in ␣a  │    290  …    287  │   4920  …    257
    0       2  ␣a ␣ch…hough  │    257  …    438  │   7026  …   2016
    0       9  ␣marri…dow ,  │   6405  …  27075  │    257  …     11
    0       1  ␣Jack …ather  │   3619  …  10899  │    402  …   2138
Left out: positions 1 to 2 (2 of 4).

IDs        (N, T)    (8, 4)
token      (N, T, D) (8, 4, 2) rows of V = 50,257 tokens, D = 2 columns
+ position (T, D)    (4, 2)    the same for each sample
= input    (N, T, D) (8, 4, 2) what the model reads
7 samples dropped: the last batch is incomplete.
The stride exceeds T: 1 of 5 tokens are in no sample.
Untrained: random rows of seed 123.
"""
DRAWN = """\
Batch 3 of 15: B = 1 sample of T = 7 tokens, stride 3
                         │  input
sample  pos  ID  target  │        2        0
────────────────────────────────────────────
   3 ╭    0   9      10  │   1.3573   0.7308
     │    1  10      11  │  -1.2449  -1.0587
     │    2  11      12  │   0.0727   0.5316
     ⋮    ⋮   ⋮       ⋮  │        ⋮        ⋮
     │    5  14      15  │  -0.3389   0.5181
     ╰    6  15      16  │   0.3683  -0.4988
Left out: positions 3 to 4 (2 of 7).

IDs        (B, T)    (1, 7)
token      (B, T, D) (1, 7, 3) rows of V = 50 …D = 3 columns
+ position (T, D)    (7, 3)    the same for each sample
= input    (B, T, D) (1, 7, 3) what the model reads
Position rows differ from lookup's: the loader consumes a
random number first.
Untrained: random rows of seed 123.
"""


def shuffled() -> Batches:
    return embcli.seeded(dim=2).batch(OPENING, shuffle=True, all=True, stride=5)


def drawn() -> Batches:
    source = SeededSource(Seeded(50, 3, 7))
    return Model(source).batch(
        of_ids([*range(50)]),
        batch_size=1,
        max_length=7,
        stride=3,
        index=3,
        draw=True,
        columns="2,0",
    )


@pytest.mark.parametrize(("make", "width", "page"), [(shuffled, 80, SHUFFLED), (drawn, 60, DRAWN)])
def test_the_whole_page(make: Any, width: int, page: str) -> None:
    layers = live(Seeded(50, 3, 7))
    values = (layers["token"][[9, 10, 11, 14, 15]] + layers["position"][[0, 1, 2, 5, 6]])[:, [2, 0]]
    lines = [f"{left:7.4f}  {right:7.4f}" for left, right in values]
    assert export.text(make(), width) == page.format(*lines)
    head = next(
        line for line in export.markdown(make(), width).splitlines() if line.startswith("|")
    )
    assert (" inputs 0 | " in head, " targets 3 |" in head, " input 0 |" in head) == (
        *[make is shuffled] * 2,
        make is drawn,
    )


@pytest.mark.parametrize(
    "more", [{}, {"shuffle": True, "all": True}, {"index": 1}, {"max_length": 64, "stride": 1}]
)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_page_fits_its_width_and_names_the_positions_that_do_not(
    more: dict[str, Any], width: int
) -> None:
    result = embcli.seeded(dim=4).batch(OPENING, **more)
    text = export.text(result, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("\n") <= (22 if width >= 80 else 30)
    first, last = result.ids(result.order[[0, -1]])
    for sample, ids in ((result.order[0], first), (result.order[-1], last)):
        row = next(
            line for line in text.splitlines() if f" {sample}  " in line.split("│")[0]
        ).split("│")
        assert (row[1].split()[0], row[2].split()[0]) == (str(ids[0]), str(ids[1]))
    header = next(line for line in text.splitlines() if "sample " in line).split("│")[1]
    left_out = re.search(r"Left out: .*?\.", text.replace("\n", " "))
    assert ("…" in header) == bool(left_out and "position" in left_out[0])


def test_a_drawing_has_the_targets_and_their_tokens_whole() -> None:
    page = run.ok("batch", OPENING, "--draw", "--batch-size", "2", COLUMNS="80").text
    rows = [line.rpartition("│")[0].split()[-4:] for line in page.splitlines()[4:9]]
    assert [row[::2] for row in rows] == [
        *map(list, pairwise(["I", "␣H", "AD", "␣always", "␣thought", "␣Jack"]))
    ]
    assert [row[1::2] for row in rows] == [*map(list, pairwise(FIRST_BATCH.split()[:6]))]
    for columns, more in (("120", ()), ("80", ("--draw",)), ("80", ())):
        hinting = InProcess().ok("batch", OPENING, *more, COLUMNS=columns, suggestions=True).text
        assert ("--draw shows whole tokens" in hinting) == (columns == "80" and not more)


def test_strips_have_a_vector_for_each_token() -> None:
    text = str(embcli.seeded(9, 30).batch([1, 2, 3, 4, 5], batch_size=1).styled(heat=True))
    assert text.count("│  input\n") == 1
    assert (
        len(
            [
                line
                for line in text.splitlines()
                if line.count("│") >= 1 and len(line.split()[-1]) >= 60
            ]
        )
        == 4
    )

"""Batches: bit for bit those of a plain script with torch's Dataset and DataLoader, in both orders of draws."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from torch.utils.data import DataLoader, Dataset

import embcli
from embcli.oldpage import Paper
from embcli.oldpage.terminal import Terminal
from embcli.text import Sequences
from embcli.tokens import tokenize
from embcli.verbs.batch import Batches, Batching, batch
from embcli.views.batch import view
from embcli.weights.drawing import Stream
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.inside import Inside
from tests.oracles import of_ids

OPENING = (
    "I HAD always thought Jack Gisburn rather a cheap genius--though a good fellow enough--so it was no great surprise "
    "to me to hear that, in the height of his glory, he had dropped his painting, married a rich widow, and "
    "established himself in a villa on the Riviera. (Though I rather thought it would have been Rome or Florence.)\n"
)
FIRST_BATCH = [
    [40, 367, 2885, 1464],
    [1807, 3619, 402, 271],
    [10899, 2138, 257, 7026],
    [15632, 438, 2016, 257],
    [922, 5891, 1576, 438],
    [568, 340, 373, 645],
    [1049, 5975, 284, 502],
    [284, 3285, 326, 11],
]
run = Inside()


class PlainDataset(Dataset):
    """The data set of the chapter: a window each stride, with the tensors of its inputs and of its targets."""

    def __init__(self, ids: list[int], length: int, stride: int) -> None:
        self.samples = [
            (torch.tensor(ids[start : start + length]), torch.tensor(ids[start + 1 : start + length + 1]))
            for start in range(0, len(ids) - length, stride)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.samples[place]


def plain(ids: list[int], seeded: Seeded, batching: Batching) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return inputs, targets and input embeddings of every batch, as a plain script makes them."""
    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocab, seeded.dim)
    loader = DataLoader(
        PlainDataset(ids, batching.max_length, batching.stride),
        batch_size=batching.batch_size,
        shuffle=batching.shuffle,
        drop_last=not batching.keep_last,
        num_workers=0,
    )
    iterator = iter(loader)
    batches = [next(iterator)]
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    batches += list(iterator)
    places = torch.arange(batching.max_length)
    with torch.no_grad():
        return [(inputs, targets, token(inputs) + position(places)) for inputs, targets in batches]


def everything(result: Batches) -> dict[str, np.ndarray]:
    """Return the arrays of a result, which are those of its records."""
    records = result.records()
    pieces = list(records.pieces(records.fields, tuple(records.matrices)))
    found = {name: np.concatenate([piece.matrices[name] for piece in pieces]) for name in records.matrices}
    for name, values in found.items():
        assert (values.shape, values.dtype) == (records.matrices[name].shape, records.matrices[name].dtype)
        assert getattr(result, name).tobytes() == values.tobytes()
    return found


def assert_equal(result: Batches, expected: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> None:
    found = everything(result)
    for place, name in enumerate(("inputs", "targets", "input")):
        assert found[name].tobytes() == torch.cat([each[place] for each in expected]).numpy().tobytes()


@settings(deadline=None)
@given(
    st.data(),
    st.integers(1, 40),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**64 - 1),
)
def test_batches_are_those_of_a_plain_script(
    data: st.DataObject,
    size: int,
    dim: int,
    length: int,
    stride: int,
    batch_size: int,
    shuffle: bool,
    keep_last: bool,
    seed: int,
) -> None:
    batching = Batching(batch_size, length, stride, shuffle, keep_last, None, True)
    least = length + 1 if keep_last else length + (batch_size - 1) * stride + 1
    ids = data.draw(st.lists(st.integers(0, size - 1), min_size=least, max_size=least + 60))
    seeded = Seeded(size, dim, length + data.draw(st.integers(0, 3)), seed)
    expected = plain(ids, seeded, batching)
    result = batch(of_ids(ids), SeededSource(seeded), batching)
    assert result.count == len(expected)
    assert_equal(result, expected)
    index = data.draw(st.integers(0, len(expected) - 1))
    one = Batching(batch_size, length, stride, shuffle, keep_last, index)
    assert_equal(batch(of_ids(ids), SeededSource(seeded), one), expected[index : index + 1])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 4, 5])
def test_npy_of_all_batches_of_a_text_is_the_plain_scripts(
    tmp_path: Path, stride: int, keep_last: bool, shuffle: bool
) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "out.npy"
    text.write_text(OPENING)
    flags = ["--shuffle"] * shuffle + ["--keep-last"] * keep_last
    run.ok("batch", str(text), "--dim", "16", "--stride", str(stride), *flags, "--all", "-o", str(out))
    ids = json.loads(f"[{run.ok('tokenize', OPENING, '-f', 'ids').text.strip().replace(' ', ',')}]")
    batching = Batching(8, 4, stride, shuffle, keep_last, None, True)
    expected = torch.cat([each[2] for each in plain(ids, Seeded(50257, 16, 4), batching)])
    found = np.load(out)
    assert (found.dtype, found.shape) == (np.float32, tuple(expected.shape))
    assert found.tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("name", ["token", "position"])
@pytest.mark.parametrize(("size", "dim", "length"), [(3, 5, 2), (4, 4, 4), (5, 5, 3), (5, 5, 5), (1, 1, 1), (40, 3, 7)])
def test_the_generator_behind_a_layer_is_torchs_own(name: str, size: int, dim: int, length: int) -> None:
    torch.manual_seed(123)
    for rows in (size, length)[: 1 + (name == "position")]:
        torch.nn.Embedding(rows, dim)
    expected = [torch.randn(3), torch.randint(1 << 60, (3,)), torch.randn(20)]
    generator = torch.Generator()
    generator.set_state(Stream(Seeded(size, dim, length), name).state_after())
    found = [torch.randn(3, generator=generator), torch.randint(1 << 60, (3,), generator=generator)]
    found.append(torch.randn(20, generator=generator))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_the_generator_stays_as_it_was() -> None:
    torch.manual_seed(7)
    batch(of_ids([*range(9)]), SeededSource(Seeded(9, 2, 4)), Batching(2))
    found = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(found, torch.rand(3))


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
        results = [(work, n % 4, threads.submit(work, n)) for n in range(24) for work in (batched, compared)]
    assert all((done.result() == wanted[work, number]).all() for work, number, done in results)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_first_batch_of_the_verdict_is_the_books() -> None:
    found = json.loads(run.ok("batch", "-", "--dim", "2", "-f", "json", stdin=OPENING).out)
    targets = [
        [*row[1:], following]
        for row, following in zip(FIRST_BATCH, [*(row[0] for row in FIRST_BATCH[1:]), 287], strict=True)
    ]
    assert found["matrices"]["inputs"] == FIRST_BATCH
    assert found["matrices"]["targets"] == targets
    assert np.shape(found["matrices"]["input"]) == (8, 4, 2)
    assert found["samples"] == [{"batch": 0, "sample": sample} for sample in range(8)]
    assert found["columns"] == [0, 1]
    told = {
        name: found["run"][name] for name in ("batches", "batch_size", "max_length", "stride", "shuffle", "keep_last")
    }
    assert told == {
        "batches": 2,
        "batch_size": 8,
        "max_length": 4,
        "stride": 4,
        "shuffle": False,
        "keep_last": False,
    }
    assert found["run"]["shapes"] == {"token": [50257, 2], "position": [4, 2]}


def test_a_line_of_ndjson_is_a_batch_and_the_formats_agree(tmp_path: Path) -> None:
    arguments = ("batch", "-", "--dim", "3", "--all", "--keep-last", "--batch-size", "7", "--stride", "3")
    lines = [json.loads(line) for line in run.ok(*arguments, "-f", "ndjson", stdin=OPENING).text.splitlines()]
    whole = json.loads(run.ok(*arguments, "-f", "json", stdin=OPENING).out)["matrices"]
    run.ok(*arguments, "-o", str(tmp_path / "all.safetensors"), stdin=OPENING)
    tensors = load_file(tmp_path / "all.safetensors")
    assert [line["batch"] for line in lines] == [*range(len(lines))]
    assert [len(line["inputs"]) for line in lines[:-1]] == [7] * (len(lines) - 1)
    assert 0 < len(lines[-1]["inputs"]) < 7
    for name in ("inputs", "targets", "input"):
        joined = [row for line in lines for row in (line["vectors"] if name == "input" else line)[name]]
        assert joined == whole[name]
        assert tensors[name].dtype == (np.float32 if name == "input" else np.int64)
        assert tensors[name].tolist() == np.array(whole[name], tensors[name].dtype).tolist()


def test_chosen_columns_are_those_of_the_whole() -> None:
    source, ids = SeededSource(Seeded(9, 6, 4)), of_ids([1, 2, 3, 4, 5, 6, 7, 8, 0])
    whole = everything(batch(ids, source, Batching(2)))["input"]
    assert everything(batch(ids, source, Batching(2), "5,0"))["input"].tolist() == whole[..., [5, 0]].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ids", "1,2,3,4"), "need at least 5 tokens (--max-length 4 and one more), got 4"),
        (("--ids", ""), "need at least 5 tokens (--max-length 4 and one more), got 0"),
        (("--ids", "1,2,3,4,5"), "--keep-last"),
        (("--ids", "1,2,3,4,5", "--stride", "0"), "--stride must be at least 1 and below 2**31, not 0"),
        (("--ids", "1,2,3,4,5", "--batch-size", "0"), "--batch-size must be at least 1"),
        (("--ids", "1,2,3,4,5", "--max-length", "-1"), "--max-length must be at least 1"),
        (
            ("--ids", "1,2,3,4,5", "--batch-size", "1", "--index", "1"),
            "--index 1 is not a batch: there is 1, counted from 0",
        ),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "--index", "-1"), "--index -1"),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "--context-length", "3"), "--context-length 3"),
        (("--ids", "1,2,3,4,50257", "--batch-size", "1"), "ID 50257"),
        (("--all", "--index", "1", "--ids", "1"), "--all and --index"),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "-f", "csv"), "cannot be written as csv"),
        (("--ids", "1,2,3,4,5", "--batch-size", "1", "-f", "tsv"), "cannot be written as tsv"),
        (("Every effort moves you",), "echo 'Every effort moves you' | embcli batch -"),
        (("x" * 5000,), "there is no file"),
        (("the-verdict.txt",), "there is no file 'the-verdict.txt'\n"),
    ],
)
def test_what_makes_no_batch_is_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in run.refused("batch", *arguments)


@pytest.mark.parametrize("more", [{}, {"shuffle": True, "all": True}, {"index": 1}, {"max_length": 64, "stride": 1}])
def test_a_page_holds_the_ids_and_shapes_of_the_batch(more: dict[str, Any]) -> None:
    from embcli import encodings

    tokens = tokenize(Sequences(texts=(OPENING,)), encodings.get("gpt2"))
    batching = Batching(**more)
    result = batch(tokens, SeededSource(Seeded(50257, 4, batching.max_length)), batching)
    page = Terminal(Paper(80, 24))
    view(result, page)
    text = page.content().decode()
    assert text.count("\n") <= 22
    assert max(map(len, text.splitlines())) <= 80
    first, last = result.ids(result.order[[0, -1]])
    for sample, ids in ((result.order[0], first), (result.order[-1], last)):
        row = next(line for line in text.splitlines() if f" {sample}  " in line.split("│")[0]).split("│")
        assert (row[1].split()[0], row[2].split()[-1]) == (str(ids[0]), str(ids[-1]))
    assert f"({len(result.order)}, {batching.max_length}, 4)" in text


def test_a_sample_has_the_same_number_in_the_data_and_in_a_picture() -> None:
    """It counts the samples of the whole text: its tokens begin at that number times the stride."""
    ids = ("--ids", ",".join(map(str, range(40))), "--vocab", "40", "--dim", "2")
    chosen = ("batch", *ids, "--shuffle", "--index", "1", "--batch-size", "2", "--stride", "3")
    found = json.loads(run.ok(*chosen, "-f", "json").out)
    samples = [each["sample"] for each in found["samples"]]
    assert [first for first, *_ in found["matrices"]["inputs"]] == [3 * sample for sample in samples]
    assert {*samples} != {0, 1}
    drawn = [line.split()[0] for line in run.ok(*chosen, "--draw").text.splitlines() if "╭" in line]
    assert drawn == list(map(str, samples))


@pytest.mark.parametrize("flag", ["--draw", "--heat"])
def test_a_picture_has_a_vector_for_each_token(flag: str) -> None:
    ids = ("--ids", "1,2,3,4,5", "--batch-size", "1", "--vocab", "9", "--dim", "2")
    text = run.ok("batch", *ids, flag).text
    assert "│  input\n" in text
    assert "".join(character for character in text if character in "╭╰") == "╭╰"

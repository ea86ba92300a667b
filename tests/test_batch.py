"""Batches: bit for bit those of a plain script with torch's Dataset and DataLoader."""

from __future__ import annotations

import csv
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from rich.cells import cell_len
from torch.utils.data import DataLoader

import embcli
from embcli.errors import InputError
from embcli.model import Model
from embcli.page import export
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.batch import Batches
from tests.cases import cases, data
from tests.oracles import gathered, of_ids
from tests.readers import from_json
from tests.transcripts import assert_height

OPENING = (
    "I HAD always thought Jack Gisburn rather a cheap genius--though a good fellow enough--so it "
    "was no great surprise to me to hear that, in the height of his glory, he had dropped his "
    "painting, married a rich widow, and established himself in a villa on the Riviera. "
    "(Though I rather thought it would have been Rome or Florence.)\n"
)
BOOKS_FIRST_INPUTS = data(__name__)["first inputs of the book"]
FIVE_IDS = ("batch", "--ids", "1,2,3,4,5")
TOY = ("--vocab", "9", "--dim", "4")


class PlainBatch(NamedTuple):
    """A batch as a plain script makes it."""

    inputs: torch.Tensor
    targets: torch.Tensor
    input: torch.Tensor


def plain_samples(ids: list[int], split: dict[str, Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the inputs and targets of each sample, as the chapter's Dataset has them."""
    length = split["max_length"]
    samples = []
    for start in range(0, len(ids) - length, split["stride"]):
        inputs = torch.tensor(ids[start : start + length])
        targets = torch.tensor(ids[start + 1 : start + length + 1])
        samples.append((inputs, targets))
    return samples


def plain(ids: list[int], seeded: Seeded, split: dict[str, Any]) -> list[PlainBatch]:
    """Return every batch, as a plain script makes it: the position layer is drawn after one."""
    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocab, seeded.dim)
    samples: Any = plain_samples(ids, split)
    loader = DataLoader(
        samples,
        batch_size=split["batch_size"],
        shuffle=split["shuffle"],
        drop_last=not split["keep_last"],
    )
    iterator = iter(loader)
    batches = [next(iterator)]
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    batches += list(iterator)

    position_rows = position(torch.arange(split["max_length"]))
    found = []
    for inputs, targets in batches:
        rows = token(inputs) + position_rows
        found.append(PlainBatch(inputs, targets, rows.detach()))
    return found


def assert_equal(result: Batches, expected: list[PlainBatch]) -> None:
    """Compare the matrices of a result, and of its records, with those of a plain script."""
    found = gathered(result._records())
    assert [*found] == [*PlainBatch._fields]
    for name, values in found.items():
        wanted = torch.cat([getattr(batch, name) for batch in expected]).numpy()
        assert values.shape == wanted.shape
        assert values.tobytes() == wanted.tobytes()
        assert getattr(result, name).tobytes() == wanted.tobytes()


LOADER_OPTIONS = {
    "batch_size": st.integers(1, 5),
    "max_length": st.integers(1, 6),
    "stride": st.integers(1, 9),
    "shuffle": st.booleans(),
    "keep_last": st.booleans(),
}
splits = st.fixed_dictionaries(LOADER_OPTIONS)


def fewest_tokens(split: dict[str, Any]) -> int:
    """Return how many tokens a first batch takes."""
    one_sample = split["max_length"] + 1
    if split["keep_last"]:
        return one_sample
    return one_sample + (split["batch_size"] - 1) * split["stride"]


@given(st.data(), splits, st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**64 - 1))
def test_batches_are_those_of_a_plain_script(data, split, size, dim, seed):
    least = fewest_tokens(split)
    token_ids = st.integers(0, size - 1)
    ids = data.draw(st.lists(token_ids, min_size=least, max_size=least + 60))
    unused_positions = data.draw(st.integers(0, 3))
    seeded = Seeded(size, dim, split["max_length"] + unused_positions, seed)
    expected = plain(ids, seeded, split)
    options = split | {"context_length": seeded.context_length}
    model = Model(SeededSource(seeded))
    state = torch.get_rng_state()

    every = model.batch(of_ids(ids), **options, all=True)

    assert torch.equal(torch.get_rng_state(), state)
    assert every.count == len(expected)
    assert_equal(every, expected)

    numbers = st.integers(0, len(expected) - 1)
    index = data.draw(numbers)
    some_columns = st.lists(st.integers(0, dim - 1), min_size=1, max_size=4)
    columns = data.draw(some_columns)
    columns_in_words = ",".join(map(str, columns))
    one = model.batch(of_ids(ids), **options, index=index, columns=columns_in_words)
    rows = expected[index].input[..., columns]
    assert_equal(one, [expected[index]._replace(input=rows)])


def test_cells_have_a_row_for_each_pair(tmp_path):
    text = "Every effort moves you forward, and every one of you."
    model = embcli.seeded(dim=2)
    batches = model.batch(text, batch_size=2, shuffle=True, all=True)
    expected = []
    for place, (sample, inputs, targets) in enumerate(
        zip(batches.order, batches.inputs, batches.targets, strict=True)
    ):
        for position, pair in enumerate(zip(inputs, targets, strict=True)):
            tokens = map(model.decode, pair)
            expected.append([*map(str, (place // 2, sample, position, *pair)), *tokens])

    batches.save(tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert rows == expected
    assert header[2:] == ["position", "input_id", "target_id", "input_token", "target_token"]


def test_threads_take_turns_with_torchs_generator():
    """Batches and comparisons draw from the one global generator, and leave it as it was."""
    model = embcli.seeded(50, 4, encoding="gpt2")

    def drawn(number: int) -> tuple[bytes, bytes]:
        batch = model.batch([*range(40)], batch_size=2, shuffle=True, index=number)
        comparison = model.compare([1, 2], seed=number)
        return batch.input.tobytes(), comparison.first.tobytes()

    numbers = [0, 1, 2, 3]
    alone = [drawn(number) for number in numbers]
    state = torch.get_rng_state()

    with ThreadPoolExecutor(8) as threads:
        together = [*threads.map(drawn, numbers * 3)]

    assert together == alone * 3
    assert torch.equal(torch.get_rng_state(), state)


LOADER = data(__name__)["loader of the book"]


def test_the_first_batch_of_the_verdict_is_the_books(in_process):
    ran = in_process.ok("batch", "-", "--dim", "2", "-f", "json", stdin=OPENING.rstrip("\n"))
    found = from_json(ran.out)

    first_ids = np.ravel(BOOKS_FIRST_INPUTS).tolist()
    matrices = found["matrices"]
    assert matrices["inputs"] == BOOKS_FIRST_INPUTS
    assert np.ravel(matrices["targets"]).tolist() == [*first_ids[1:], 287]
    assert found["samples"] == [{"batch": 0, "sample": sample} for sample in range(8)]
    assert found["columns"] == [0, 1]
    assert found["run"] == found["run"] | LOADER


# --- options --------------------------------------------------------------------------------------


def test_a_batch_has_eight_samples_or_as_many_as_there_are_unless_a_size_is_given():
    model = embcli.seeded(vocab=50, dim=2)

    many = model.batch([*range(50)])
    few = model.batch([*range(10)])

    assert len(many.inputs) == 8
    assert few.inputs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert few._records().run["batch_size"] == 2
    with pytest.raises(InputError, match="too few for a batch of 8"):
        model.batch([*range(10)], batch_size=8)
    with pytest.raises(InputError, match="need at least 5 tokens"):
        model.batch([*range(4)])


# --- on a page ------------------------------------------------------------------------------------


@pytest.fixture
def shuffled() -> Batches:
    """Return all batches of a text, which leave out tokens between samples."""
    return embcli.seeded(dim=2).batch(OPENING, shuffle=True, all=True, stride=5)


DRAWING = {"batch_size": 1, "max_length": 7, "stride": 3, "index": 3, "draw": True}


@pytest.fixture
def drawn() -> Batches:
    """Return a sample of IDs as a picture of two columns."""
    model = Model(SeededSource(Seeded(50, 3, 7)))
    return model.batch(of_ids([*range(50)]), columns="2,0", **DRAWING)


def test_a_page_of_ids_says_what_the_loader_leaves_out(shuffled, snapshot):
    snapshot("batch/shuffled.txt", export.text(shuffled, 80))


def test_a_drawing_shows_what_the_model_reads(drawn, snapshot):
    snapshot("batch/drawn.txt", export.text(drawn, 60))
    snapshot("batch/drawn.md", export.markdown(drawn, 60))


def test_a_drawing_of_many_samples_has_dots_where_it_leaves_out_positions_and_samples(
    snapshot,
):
    batches = embcli.seeded(vocab=99, dim=3).batch([*range(60)], max_length=7, draw=True)
    snapshot("batch/drawn-samples.txt", export.text(batches, 60))


def test_chosen_columns_show_the_numbers_that_a_drawing_shows(in_process, snapshot):
    words = (*FIVE_IDS, *TOY, "--batch-size", "1", "--columns", "3,0")

    snapshot("batch/chosen-columns.txt", in_process.ok(*words).text)
    snapshot("batch/chosen-columns-drawn.txt", in_process.ok(*words, "--draw").text)


@cases
def test_a_page_says_that_a_stride_skips_tokens(stride, skips):
    result = embcli.seeded(40, 2).batch([*range(40)], batch_size=1, stride=stride)

    assert ("never inputs" in str(result)) is skips


@cases
def test_a_page_says_which_batch_it_shows(options, which):
    result = embcli.seeded(40, 2).batch([*range(40)], **({"batch_size": 3} | options))

    assert str(result).startswith(which)


def test_another_batch_is_suggested_if_there_is_one(in_process):
    words = ("batch", "--ids", "1,2,3,4,5,6,7,8,9", "--batch-size")

    assert "--index K" in in_process.ok(*words, "1", suggestions=True).text
    assert "--index K" not in in_process.ok(*words, "2", suggestions=True).text
    assert "--index K" not in in_process.ok(*words, "1", "--all", suggestions=True).text


TOY_TEXT = "Once upon a time there lived"


@cases
def test_the_tokens_of_a_sample_are_whole_and_end_with_the_last_target(width, cell):
    result = embcli.seeded(dim=2).batch(TOY_TEXT, batch_size=1)

    text = export.text(result, width)

    assert cell in text
    assert max(map(cell_len, text.splitlines())) <= width


def marks_of_windows(page: str) -> dict[str, dict[int, str]]:
    """Return the marks of each line's label, by the tokens above them."""
    marks: dict[str, dict[int, str]] = {}
    columns: list[tuple[int, int]] = []
    for line in page.splitlines():
        if re.match("(batch +)?sample", line):
            columns = [(int(match[0]), match.start()) for match in re.finditer(r"\d+", line)]
        elif re.match(r"[ \d]+[■□]", line):
            sample = marks.setdefault(line[: columns[0][1]].strip(), {})
            for token, start in columns:
                mark = line[start : start + 1].strip()
                if mark:
                    assert token not in sample
                    sample[token] = mark
    return marks


@cases
@pytest.mark.parametrize("stride", [1, 2, 4, 6])
def test_windows_go_on_in_further_tables(stride, max_length, width):
    model = embcli.seeded(40, 2)
    result = model.batch(
        [*range(20)], batch_size=1, max_length=max_length, stride=stride, all=True, windows=True
    )

    page = export.text(result, width)

    expected = {}
    for sample, start in enumerate(range(0, 20 - max_length, stride)):
        inputs = dict.fromkeys(range(start, start + max_length), "■")
        expected[str(sample)] = {**inputs, start + max_length: "□"}
    assert marks_of_windows(page) == expected
    assert max(map(len, page.splitlines())) <= width


def test_windows_that_need_too_many_lines_name_the_tokens_left_out(snapshot):
    result = embcli.seeded(999, 2).batch(
        [*range(999)], batch_size=1, max_length=24, stride=8, all=True, windows=True
    )

    snapshot("batch/windows-on-a-screen.txt", export.text(result, 80, 24))


LEFT_OVER = {"max_length": 3, "stride": 2, "windows": True}


@cases
def test_windows_of_a_batch_end_with_it_and_those_of_the_last_one_with_the_text(index, last):
    result = embcli.seeded(11, 2).batch([*range(11)], batch_size=2, index=index, **LEFT_OVER)

    (header,) = [line for line in str(result).splitlines() if line.startswith("sample")]

    assert header.split()[-1] == last


def test_windows_of_a_shuffled_batch_leave_out_the_text_between_them(snapshot):
    result = embcli.seeded(dim=2).batch(
        OPENING, batch_size=3, max_length=3, shuffle=True, windows=True
    )

    snapshot("batch/windows-shuffled.txt", export.text(result, 80))


def test_two_pictures_are_refused_together(in_process):
    with pytest.raises(InputError, match="another picture"):
        embcli.seeded(40, 2).batch([*range(20)], draw=True, windows=True)
    for command_line in ("--windows --draw", "--windows --heat"):
        error = in_process.refused(*FIVE_IDS, *command_line.split())
        assert error == "embcli: --windows is another picture than --draw and --heat\n"


@cases
def test_a_picture_shows_all_samples_that_fit(heat):
    result = embcli.seeded(40, 2).batch([*range(33)], draw=not heat).styled(heat=heat)

    assert "Left out" not in result.page("svg").decode().replace("&#160;", " ")
    assert "Left out: samples 1 to 6 (6 of 8)" in export.text(result, 80, 24)


BOOKS_BATCH: dict[str, Any] = {}
ONE_LONG_SAMPLE: dict[str, Any] = {"max_length": 64, "stride": 1}


@pytest.mark.parametrize(
    "more", [BOOKS_BATCH, {"shuffle": True, "all": True}, {"index": 1}, ONE_LONG_SAMPLE]
)
@cases
def test_a_page_fits_its_width_and_a_screen(more, width, most_lines):
    result = embcli.seeded(dim=4).batch(OPENING, **more)

    text = export.text(result, width, 24)

    assert max(map(len, text.splitlines())) <= width
    assert_height(text, most_lines)


@pytest.mark.parametrize(
    ("name", "width", "more"),
    [
        ("batch/narrow.txt", 40, BOOKS_BATCH),
        ("batch/wide.txt", 200, BOOKS_BATCH),
        ("batch/long-samples.txt", 80, ONE_LONG_SAMPLE),
    ],
)
def test_a_page_names_the_positions_that_do_not_fit(snapshot, name, width, more):
    result = embcli.seeded(dim=4).batch(OPENING, **more)

    snapshot(name, export.text(result, width))


def test_a_drawing_has_the_targets_and_their_tokens_whole(in_process, snapshot):
    ran = in_process.ok("batch", OPENING, "--draw", "--batch-size", "2", COLUMNS="80")

    snapshot("batch/whole-tokens.txt", ran.text)


@cases
def test_a_drawing_is_suggested_where_tokens_are_left_out(in_process, width, more, is_suggested):
    words = ("batch", OPENING, *more)
    ran = in_process.ok(*words, COLUMNS=width, LINES="24", terminal=True, suggestions=True)

    assert ("--draw" in ran.text) == is_suggested


def test_strips_have_a_vector_for_each_token(snapshot):
    result = embcli.seeded(9, 30).batch([1, 2, 3, 4, 5], batch_size=1)

    snapshot("batch/strips.txt", str(result.styled(heat=True)))

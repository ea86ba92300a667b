"""`--from` reads a model's own file, whose numbers are those of the libraries that wrote it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, processors

from embcli.cli.app import COMMANDS
from embcli.cli.groups import Given, LayerOptions, ReadingOptions
from embcli.cli.options import flag_of
from tests import transcripts
from tests.cases import cases, data
from tests.files.made import PLAIN, numbered
from tests.oracles import assert_same_bits
from tests.transcripts import document_of, refused, session

TEXT = "Every effort moves you"
IDS = [6109, 3626, 6100, 345]
VALUES = data(__name__)["values"]  # of options of models


# Each test writes its models there.
_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


@pytest.fixture
def gpt2() -> dict[str, torch.Tensor]:
    """Return the tensors of `gpt2.safetensors`, which has GPT-2's shape with few columns."""
    torch.manual_seed(3)
    token = torch.randn(50257, 5).to(torch.bfloat16)
    tensors = {
        "transformer.wte.weight": token,
        "transformer.wpe.weight": torch.randn(64, 5),
        "transformer.h.0.attn.c_attn.weight": torch.randn(5, 15),
    }
    save_file(tensors, "gpt2.safetensors")
    return tensors


@pytest.fixture
def own() -> None:
    """Write `own.npz`, an archive of a learner's own vectors."""
    token = np.array([[0.5, -0.2, 0.1], [1.5, 2.5, -3.5]], np.float32)
    position = np.array([[0.1, 0.3, -0.1], [1, 1, 1]], np.float32)
    np.savez("own.npz", token=token, position=position)


def assert_holds(written: Any, expected: torch.Tensor) -> None:
    """Hold numbers of a JSON document against a tensor, to the last bit."""
    assert_same_bits(np.array(written, np.float32), expected.float().numpy())


# --- lookup and weights ---------------------------------------------------------------------------


def test_lookup_gives_the_rows_of_the_file_and_their_sum(in_process, gpt2):
    document = document_of(in_process, "lookup", TEXT, "--from", "gpt2.safetensors")

    matrices = document["matrices"]
    token = gpt2["transformer.wte.weight"][IDS].float()
    position = gpt2["transformer.wpe.weight"][: len(IDS)]
    assert_holds(matrices["token"], token)
    assert_holds(matrices["position"], position)
    assert_holds(matrices["input"], token + position)

    run = document["run"]
    assert run["tensors"] == {
        "token": "transformer.wte.weight",
        "position": "transformer.wpe.weight",
    }
    assert run["dtypes"] == {"token": "bfloat16", "position": "float32"}
    assert run["guesses"].keys() == {"encoding"}


@pytest.mark.usefixtures("gpt2")
def test_pages_name_the_tensor_of_their_numbers_and_what_is_a_guess(in_process, snapshot):
    pages = session(
        in_process,
        "weights --from gpt2.safetensors --rows 0:2",
        "weights --from gpt2.safetensors --rows 0:2 --encoding gpt2",
        "positions --from gpt2.safetensors --rows 0:2",
    )

    snapshot("from/gpt2.txt", pages)


def test_another_tensor_has_its_own_title_and_tokens_only_if_it_has_a_row_for_each(
    in_process, snapshot
):
    Path("words").mkdir()
    tokens = ["[UNK]", "every", "effort", "moves", "you"]
    ids = numbered(tokens)
    Tokenizer(models.WordPiece(ids, unk_token="[UNK]")).save("words/tokenizer.json")
    tensors = {
        "wte.weight": torch.arange(10.0).reshape(5, 2),
        "h.0.mlp.weight": torch.arange(12.0).reshape(3, 4),
    }
    tensors["lm_head.weight"] = -tensors["wte.weight"]
    save_file(tensors, "words/model.safetensors")

    pages = session(
        in_process,
        "weights --from ./words --rows 0:3 --tensor wte.weight",
        "weights --from ./words --rows 0:3 --tensor lm_head.weight",
        "weights --from ./words --rows 0:3 --tensor h.0.mlp.weight",
        "lookup --ids 1 --from ./words --tensor h.0.mlp.weight --position none",
        "lookup you --from ./words --tensor h.0.mlp.weight",
    )

    snapshot("from/other-tensors.txt", pages)


@pytest.mark.usefixtures("own")
def test_the_sum_of_the_book_on_vectors_of_ones_own(in_process, snapshot):
    page = session(in_process, "lookup --ids 0 --from own.npz --precision 1")

    snapshot("from/own-vectors.txt", page)


@pytest.mark.usefixtures("own")
def test_what_does_not_go_together_is_refused(in_process, snapshot):
    snapshot("from/errors.txt", refused("from/errors.txt", in_process))


# --- compare --------------------------------------------------------------------------------------


def test_compare_runs_both_layers_on_the_matrix_of_the_file(in_process, gpt2):
    weight = gpt2["transformer.wte.weight"].float()
    torch.manual_seed(7)
    first = torch.nn.Linear(50257, 5, bias=False).weight.detach()

    words = "compare --from gpt2.safetensors --seed 7 --show first,shared --gradient"
    document = document_of(in_process, *words.split(), TEXT)

    assert_holds(document["matrices"]["embedding"], weight[IDS])
    assert_holds(document["matrices"]["linear"], weight[IDS])
    assert_holds(document["weights"]["shared"], weight)
    assert_holds(document["weights"]["first"], first)
    target = torch.tensor(document["gradient"]["target"])
    by_id = np.argsort(IDS)
    distances = (weight[IDS] - target)[by_id]
    gradient = np.array(document["gradient"]["linear"])
    np.testing.assert_allclose(gradient, distances * 2 / target.numel(), rtol=1e-5)
    assert document["run"]["tensors"] == {"token": "transformer.wte.weight"}


@pytest.mark.usefixtures("gpt2")
def test_the_heading_of_compare_names_the_matrix(in_process, snapshot):
    """What comes below it has a time."""
    page = session(in_process, "compare --from gpt2.safetensors --ids 5")

    heading, _, _ = page.partition("1. ")
    snapshot("from/heading-of-compare.txt", heading)


# --- positions ------------------------------------------------------------------------------------


def test_positions_are_the_rows_of_the_file_and_their_cosines_or_dot_products(in_process, gpt2):
    words = "positions --from gpt2.safetensors"
    rows = gpt2["transformer.wpe.weight"].numpy()
    exact = rows.astype(np.float64)

    in_process.ok(*words.split(), "-o", "rows.npy")
    similarity = (*words.split(), "--similarity", "--rows", "3:9")
    in_process.ok(*similarity, "-o", "cosines.npy")
    in_process.ok(*similarity, "--metric", "dot", "-o", "dots.npy")

    assert_same_bits(np.load("rows.npy"), rows)
    dots = exact[3:9] @ exact.T
    np.testing.assert_allclose(np.load("dots.npy"), dots, rtol=1e-6, atol=1e-6)
    norms = np.sqrt(np.square(exact).sum(axis=1))
    cosines = dots / np.outer(norms[3:9], norms)
    np.testing.assert_allclose(np.load("cosines.npy"), cosines, rtol=1e-6, atol=1e-6)


def test_a_page_says_what_the_similarities_of_a_trained_model_mean(in_process, snapshot, gpt2):
    words = "positions gpt2.safetensors --similarity --rows 0:2 --columns 0:3"

    pages = session(in_process, words, f"{words} --metric dot")

    snapshot("from/similarity.txt", pages)


# --- token types, and positions behind padding ----------------------------------------------------

BERT = data(__name__)["shapes of bert"]


def drawn(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def test_the_row_of_token_type_0_is_added_first_as_bert_does(in_process):
    tensors = drawn(BERT)
    save_file(tensors, "bert.safetensors")
    words, positions, types = tensors.values()
    ids = list(range(0, 500, 13))
    token = words[ids]
    position = positions[: len(ids)]
    total = (token + types[0]) + position
    assert not torch.equal(total, (token + position) + types[0]), "float32 tells the orders apart"

    command = ("lookup", "--ids", ",".join(map(str, ids)), "--from", "bert.safetensors")
    assert "token types" in in_process(*command).err
    document = document_of(in_process, *command)

    assert_holds(document["matrices"]["token"], token)
    assert_holds(document["matrices"]["position"], position)
    assert_holds(document["matrices"]["input"], total)
    assert document["run"]["sum"] == "token + token type 0 + position"
    assert document["run"]["tensors"].keys() == {"token", "position", "token_type"}

    # Nothing else is added to positions that are not the model's own.
    for kind in ("none", "sinusoidal"):
        document = document_of(in_process, *command, "--position", kind)
        assert "token_type" not in document["run"]
        other = torch.tensor(document["matrices"].get("position", 0.0))
        assert_holds(document["matrices"]["input"], token + other)


ROBERTA = data(__name__)["shapes of roberta"]


@pytest.fixture
def roberta() -> np.ndarray:
    """Return the position rows of the model `roberta`, whose position 0 is row 2."""
    tensors = drawn(ROBERTA)
    Path("roberta").mkdir()
    save_file(tensors, "roberta/model.safetensors")
    Path("roberta/config.json").write_text('{"model_type": "roberta"}')
    return tensors["roberta.embeddings.position_embeddings.weight"].numpy()


def test_position_rows_begin_behind_those_of_padding(in_process, roberta):
    words = "lookup --ids 3,4,3 --from ./roberta --show position -o rows.npy"
    in_process.ok(*words.split())

    assert_same_bits(np.load("rows.npy"), roberta[2:5])


@pytest.mark.usefixtures("roberta")
def test_hidden_has_a_scale_of_its_own_in_a_heat_map(in_process, snapshot):
    """Only there: alone, and among numbers, it stands in the one table."""
    words = "lookup --ids 3,4 --from ./roberta"
    pages = session(in_process, f"{words} --heat", f"{words} --heat --show hidden")

    snapshot("from/hidden-as-heat.txt", pages)
    assert "What the first block reads" not in in_process.ok(*words.split()).text


@pytest.mark.usefixtures("roberta")
def test_pages_say_which_position_row_comes_first(in_process, snapshot):
    pages = session(
        in_process,
        "lookup --ids 3,4,3 --from ./roberta --trace 2",
        "lookup --ids 1,1,1,1,1,1,1,1,1,1,1 --from ./roberta",
        "info --from ./roberta",
    )

    snapshot("from/roberta.txt", pages)


@cases
def test_positions_count_the_tokens_that_a_tokenizer_adds(in_process, roberta, options, places):
    ids = {"<s>": 0, "</s>": 2, "hi": 4, "<unk>": 3}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    added = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=added)
    tokenizer.save("roberta/tokenizer.json")
    Path("roberta/tokenizer_config.json").write_text(json.dumps(PLAIN))

    ran = in_process("lookup", "hi", "--from", "./roberta", *options, "-f", "json")

    document = json.loads(ran.out)
    assert document["run"]["first_position"] == 2
    position = document["matrices"]["position"]
    assert_same_bits(np.array(position, np.float32), roberta[places])
    is_reminded = "--special" in ran.err
    assert is_reminded == (not options)


@cases
def test_an_option_of_a_model_has_an_effect_or_is_refused(in_process, gpt2, line, ignored):
    words = line.split()
    without_option = in_process(*words)
    found = []
    for flag in COMMANDS[words[0]][0].flags:
        if flag.name in VALUES:
            ran = in_process(*words, flag_of(flag.name), *VALUES[flag.name].split())
            if ran == without_option:
                found.append(flag.name)
    assert sorted(found) == ignored


def test_each_option_of_a_model_has_a_value_here():
    fields = [*ReadingOptions.flags(), *LayerOptions.flags(), *Given.flags()]
    assert {flag.name for flag in fields} - {"text", "file", "ids"} == VALUES.keys()

"""`--from`: the same verbs on a model's own file, whose numbers come out as the libraries that wrote it have them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, processors

from tests.oracles import assert_same_bits
from tests.runners import InProcess

TEXT = "Every effort moves you"
IDS = [6109, 3626, 6100, 345]
Gpt2 = tuple[Path, dict[str, torch.Tensor]]  # a file, and what is in it


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Gpt2:
    """Return a file of GPT-2's shape with few columns, and what is in it."""
    torch.manual_seed(3)
    tensors = {
        "transformer.wte.weight": torch.randn(50257, 5).to(torch.bfloat16),
        "transformer.wpe.weight": torch.randn(64, 5),
        "transformer.h.0.attn.c_attn.weight": torch.randn(5, 15),
    }
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_file(tensors, path)
    return path, tensors


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Return an archive of a learner's own vectors."""
    path = tmp_path / "own.npz"
    token = np.array([[0.5, -0.2, 0.1], [1.5, 2.5, -3.5]], np.float32)
    np.savez(path, token=token, position=np.array([[0.1, 0.3, -0.1], [1, 1, 1]], np.float32))
    return path


def test_lookup_gives_the_rows_of_the_file_and_their_sum(in_process: InProcess, gpt2: Gpt2) -> None:
    path, tensors = gpt2
    document = json.loads(in_process.ok("lookup", TEXT, "--from", str(path), "-f", "json").out)
    token = tensors["transformer.wte.weight"].float().numpy()[IDS]
    position = tensors["transformer.wpe.weight"].numpy()[: len(IDS)]
    for name, wanted in (("token", token), ("position", position), ("input", token + position)):
        assert_same_bits(
            np.array(document["matrices"][name], np.float64).astype(np.float32), wanted
        )
    assert [row["id"] for row in document["tokens"]] == IDS
    assert document["run"]["tensors"] == {
        "token": "transformer.wte.weight",
        "position": "transformer.wpe.weight",
    }
    assert document["run"]["dtypes"] == {"token": "bfloat16", "position": "float32"}
    assert document["run"]["encoding"] == "gpt2"
    assert "encoding" in document["run"]["guesses"]


def test_the_page_names_the_tensor_its_numbers_and_what_is_a_guess(
    in_process: InProcess, gpt2: Gpt2
) -> None:
    page = in_process.ok("weights", "--from", str(gpt2[0]), "--rows", "0:2").text
    assert "transformer.wte.weight, 251,285 parameters (bfloat16), 502.6 kB\n" in page
    assert "A guess: gpt2, by the number of rows\n" in page
    told = in_process.ok(
        "weights", "--from", str(gpt2[0]), "--rows", "0:2", "--encoding", "gpt2"
    ).text
    assert "guess" not in told


def test_another_tensor_has_its_own_title_and_tokens_only_if_it_has_a_row_for_each(
    in_process: InProcess, tmp_path: Path
) -> None:
    words = ["[UNK]", "every", "effort", "moves", "you"]
    vocabulary = {word: place for place, word in enumerate(words)}
    Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]")).save(
        str(tmp_path / "tokenizer.json")
    )
    path = tmp_path / "model.safetensors"
    shapes = {"wte.weight": (5, 2), "h.0.mlp.weight": (3, 4), "lm_head.weight": (5, 2)}
    save_file({name: torch.randn(shape) for name, shape in shapes.items()}, path)
    heads = {}
    for name in shapes:
        page = in_process.ok(
            "weights", "--from", str(path), "--tensor", name, "--rows", "0:3"
        ).text.splitlines()
        heads[name] = page[0], [line.partition("│")[0].split() for line in (page[1], *page[3:6])]
    tokens = [["ID", "token"], ["0", "[UNK]"], ["1", "every"], ["2", "effort"]]
    assert heads == {
        "wte.weight": ("Token weight matrix: V = 5 tokens, one row each, D = 2 columns", tokens),
        "lm_head.weight": ("Tensor lm_head.weight: 5 rows, 2 columns", tokens),
        "h.0.mlp.weight": (
            "Tensor h.0.mlp.weight: 3 rows, 4 columns",
            [["row"], ["0"], ["1"], ["2"]],
        ),
    }
    mlp = ("--from", str(path), "--tensor", "h.0.mlp.weight")
    assert (
        "ID of tensor h.0.mlp.weight,"
        in in_process.ok("lookup", "--ids", "1", *mlp, "--position", "none").text
    )
    told = in_process.refused("lookup", TEXT, *mlp)
    assert (
        "no known encoding, and no tokenizer that can be read, such as tokenizer.json, is beside them: give"
        in told
    )


def test_the_sum_of_the_book_on_vectors_of_ones_own(in_process: InProcess, own: Path) -> None:
    assert in_process.ok("lookup", "--ids", "0", "--from", str(own), "--precision", "1").text == (
        "Input embeddings = token + position embeddings: T = 1 token, D = 3 columns\n"
        "            row  │     0     1     2\n"
        "────────────────────────────────────\n"
        "token         0  │   0.5  -0.2   0.1\n"
        "+ position    0  │   0.1   0.3  -0.1\n"
        "= input       0  │   0.6   0.1   0.0\n"
        "token: row ID of V = 2 tokens; position: row p of C = 2 positions\n"
    )


SEEDED = [
    ("--vocab 6", "--vocab"),
    ("--dim 3", "--dim"),
    ("--context-length 9", "--context-length"),
]
SEEDED += [("--seed 0", "--seed"), ("--no-cache", "--no-cache")]
WRONG = [
    ("lookup --ids 0 --from {} " + given, f"{flag} is for seeded layers; --from")
    for given, flag in SEEDED
]
WRONG += [
    ("positions --from {} " + given, f"{flag} is for seeded layers; --from")
    for given, flag in SEEDED
]
WRONG += [
    ("compare --from {} " + given, f"{flag} is for seeded layers; --from")
    for given, flag in SEEDED[:2]
]
WRONG += [
    ("lookup --ids 0 --tensor token", "--tensor goes with --from, which names the file"),
    ("compare --ids 0 --tensor token", "--tensor goes with --from, which names the file"),
    ("lookup --ids 0 --from {} --tensor nope", "it has no tensor 'nope'; choose one with "),
    ("lookup --ids 0 --from {}x", "not found as a file or a folder, and not a name like"),
    (
        "lookup --ids 9 --from {}",
        "ID 9 at position 0 has no row: the token layer has V = 2 rows, for IDs",
    ),
    ("lookup hi --from {}", "give --ids, or --encoding"),
    ("compare hi --from {}", "give --ids, or --encoding"),
    (
        "compare --from {} --ids 5",
        "has no row: the token layer has V = 2 rows, for IDs from 0 to 1\n",
    ),
    (
        "compare --from {} --seed -9223372036854775809",
        "seed must be from -2**63 to 2**64 - 1, as in torch",
    ),
    (
        "positions --from {} --kind sinusoidal",
        "--kind sinusoidal is computed, not read from a file",
    ),
    ("positions --from {} --kind rotary", "--kind rotary is computed, not read from a file"),
    (
        "positions --from {} --ids 1",
        "--ids is an option of relative and rotary positions, not of learned ones",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_what_does_not_go_together_is_refused(
    in_process: InProcess, own: Path, arguments: str, message: str
) -> None:
    assert message in in_process.refused(*arguments.format(own).split())


# --- compare ----------------------------------------------------------------------------------------------------------


def test_compare_runs_both_layers_on_the_matrix_of_the_file(
    in_process: InProcess, gpt2: Gpt2
) -> None:
    path, tensors = gpt2
    weight = tensors["transformer.wte.weight"].float()
    torch.manual_seed(7)
    first = torch.nn.Linear(50257, 5, bias=False).weight.detach()
    words = f"compare|{TEXT}|--from|{path}|--seed|7|--show|first,shared|--gradient|-f|json".split(
        "|"
    )
    document = json.loads(in_process.ok(*words).out)
    for name in ("embedding", "linear"):
        assert_same_bits(
            np.array(document["matrices"][name]).astype(np.float32), weight[IDS].numpy()
        )
    assert_same_bits(np.array(document["weights"]["shared"]).astype(np.float32), weight.T.numpy())
    assert_same_bits(np.array(document["weights"]["first"]).astype(np.float32), first.numpy())
    assert_same_bits(
        np.array(document["gradient"]["linear"]).astype(np.float32), weight[sorted(IDS)].numpy()
    )
    run = document["run"]
    assert (run["from"], run["tensors"], run["seed"]) == (
        str(path),
        {"token": "transformer.wte.weight"},
        7,
    )
    assert (run["encoding"], [*run["guesses"]]) == ("gpt2", ["encoding"])
    page = in_process.ok("compare", "--from", str(path), "--ids", "5").text
    assert "V = 50,257 (rows), D = 5 (columns), transformer.wte.weight (bfloat16)\n" in page


# --- positions --------------------------------------------------------------------------------------------------------


def roberta(folder: Path) -> tuple[str, np.ndarray]:
    """Make a model whose position 0 is row 2; return its path and all of its position rows."""
    torch.manual_seed(5)
    tensors = {
        "roberta.embeddings.word_embeddings.weight": torch.randn(9, 6),
        "roberta.embeddings.position_embeddings.weight": torch.randn(12, 6),
        "roberta.embeddings.token_type_embeddings.weight": torch.randn(2, 6),
        "roberta.embeddings.LayerNorm.weight": torch.randn(6),
        "roberta.embeddings.LayerNorm.bias": torch.randn(6),
    }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "roberta"}')
    return str(folder), tensors["roberta.embeddings.position_embeddings.weight"].numpy()


def test_positions_are_the_rows_of_the_file_and_their_dot_products(
    in_process: InProcess, gpt2: Gpt2, tmp_path: Path
) -> None:
    path, tensors = gpt2
    rows = tensors["transformer.wpe.weight"].numpy()
    in_process.ok("positions", "--from", str(path), "-o", str(tmp_path / "rows.npy"))
    assert_same_bits(np.load(tmp_path / "rows.npy"), rows)
    in_process.ok(
        "positions",
        "--from",
        str(path),
        "--similarity",
        "--rows",
        "3:9",
        "-o",
        str(tmp_path / "dots.npy"),
    )
    wide = rows.astype(np.float64)
    np.testing.assert_allclose(
        np.load(tmp_path / "dots.npy"), wide[3:9] @ wide.T, rtol=1e-6, atol=1e-6
    )
    document = json.loads(
        in_process.ok("positions", "--from", str(path), "--rows", "0", "-f", "json").out
    )
    assert document["run"]["tensors"] == {"position": "transformer.wpe.weight"}
    assert (document["run"]["kind"], document["run"]["guesses"]) == ("learned", {})
    page = in_process.ok("positions", "--from", str(path)).text
    assert "Learned positions: T = 64 positions, D = 5 columns" in page
    assert page.endswith("transformer.wpe.weight (float32)\n")


# --- token types, and positions behind padding ------------------------------------------------------------------------


def test_the_row_of_token_type_0_is_added_first_as_bert_does(
    in_process: InProcess, tmp_path: Path
) -> None:
    sizes, path = (
        {"word": 500, "position": 40, "token_type": 2},
        str(tmp_path / "model.safetensors"),
    )
    tensors = {name: torch.randn(size, 64) for name, size in sizes.items()}
    save_file(
        {f"bert.embeddings.{name}_embeddings.weight": tensor for name, tensor in tensors.items()},
        path,
    )
    ids = torch.arange(0, 500, 13)
    token, position, kind = (
        tensors["word"][ids],
        tensors["position"][: len(ids)],
        tensors["token_type"][0],
    )
    words = ("lookup", "--ids", ",".join(map(str, ids.tolist())), "--from", path)
    found = in_process(*words, "-f", "json")
    said = "no file says so, but a model with token types adds the row of one: here that of type 0"
    assert found.err == f"embcli: {said}\n"
    wanted = (token + kind) + position
    assert not torch.equal(wanted, (token + position) + kind)  # float32 tells the orders apart
    matrices, run = json.loads(found.out)["matrices"], json.loads(found.out)["run"]
    for name, rows in (("token", token), ("position", position), ("input", wanted)):
        assert_same_bits(np.array(matrices[name], np.float32), rows.numpy())
    assert (run["token_type"], run["sum"]) == (0, "token + token type 0 + position")
    assert run["tensors"]["token_type"] == "bert.embeddings.token_type_embeddings.weight"
    for name in ("none", "sinusoidal"):  # other positions than the model's: nothing else is added
        found = json.loads(in_process.ok(*words, "--position", name, "-f", "json").out)
        assert "token_type" not in found["run"]
        position = torch.tensor(found["matrices"].get("position", 0.0))
        assert_same_bits(
            np.array(found["matrices"]["input"], np.float32), (token + position).numpy()
        )


def test_position_rows_begin_behind_those_of_padding(in_process: InProcess, tmp_path: Path) -> None:
    folder, rows = roberta(tmp_path)
    words = ("lookup", "--ids", "3,4,3", "--from", folder)
    in_process.ok(*words, "--show", "position", "-o", str(tmp_path / "rows.npy"))
    assert_same_bits(np.load(tmp_path / "rows.npy"), rows[2:5])
    page = in_process.ok(*words, "--trace", "2").text
    assert "position: row p + 2 of C = 10 positions" in page
    assert "A guess" not in page
    assert "token row 3 + type row 0 + position row 4 = input row 2\n" in page
    long = in_process.refused("lookup", "--ids", ",".join("1" * 11), "--from", folder)
    info = json.loads(in_process.ok("info", "--from", folder, "-f", "json").out)["run"]
    assert (info["first_position"], info["guesses"]) == (2, {})
    assert (
        "\nposition 0: row 2 of the position matrix\n"
        in in_process.ok("info", "--from", folder).text
    )
    assert long.endswith(
        "11 tokens are more than the context length of 10: pass --window for several of 10\n"
    )


def test_positions_count_the_tokens_that_a_tokenizer_adds(
    in_process: InProcess, tmp_path: Path
) -> None:
    folder, rows = roberta(tmp_path)
    made = Tokenizer(
        models.WordLevel({"<s>": 0, "</s>": 2, "hi": 4, "<unk>": 3}, unk_token="<unk>")
    )
    made.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    for words, places in (((), [2]), (("--special",), [2, 3, 4])):
        found = in_process("lookup", "hi", "--from", folder, *words, "-f", "json")
        assert_same_bits(
            np.array(json.loads(found.out)["matrices"]["position"], np.float32), rows[places]
        )
        assert (
            "the model reads <s> before and </s> after a text; --special adds them" in found.err
        ) != bool(words)

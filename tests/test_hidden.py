"""What the first block of a real model reads, for each group of families.

torch and numpy compute the rows, and `transformers` does so in tests/families.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file

import embcli
from embcli.files.families import FAMILIES, Family
from embcli.text import Sequences
from tests.cases import cases, data
from tests.files.made import closed
from tests.oracles import assert_same_bits
from tests.transcripts import in_a_folder_of_its_own  # noqa: F401 - It is a fixture.

V = 20  # tokens
D = 6  # columns
H = 10  # columns after a projection
C = 12  # positions
T = 5  # tokens of a text
IDS = [3, 7, 3, 0, 19]

SIZES = {
    "token": (V, D),
    "positions": (C, D),
    "types": (3, D),
    "gain": (D,),
    "bias": (D,),
    "matrix": (H, D),
    "wide": (H, 3 * D),
    "offset": (H,),
    "late": (C, H),
    "late_gain": (H,),
}
_random = torch.Generator().manual_seed(4)
WEIGHTS = {name: torch.randn(size, generator=_random) for name, size in SIZES.items()}
TYPE_0 = WEIGHTS["types"][0]
POSITIONS = WEIGHTS["positions"]
GAIN = WEIGHTS["gain"]
BIAS = WEIGHTS["bias"]

# Models, by what they call their weights: a name with a dot has its own suffix, one with a slash no
# prefix. The other lists are of configurations, most of them with the names of the weights.
DATA: dict[str, dict[str, Any]] = data(__name__)
NAMES = DATA["names"]


def model(config: dict[str, Any] | None, names: str, prefix: str = "bert.embeddings.") -> str:
    """Save the weights under these names, with a config.json or without one; return the folder."""
    tensors = {}
    for weight, name in NAMES[names].items():
        full = name if name.startswith("/") else prefix + name
        suffix = "" if "." in name else ".weight"
        tensors[full.removeprefix("/") + suffix] = WEIGHTS[weight].clone()
    Path("model").mkdir(exist_ok=True)
    save_file(tensors, "model/model.safetensors")
    Path("model/config.json").unlink(missing_ok=True)
    if config is not None:
        Path("model/config.json").write_text(json.dumps(config))
    return "model"


# --- formulas: what the first block reads, made of the token rows ---------------------------------

Formula = Callable[[torch.Tensor], torch.Tensor]


def norm(rows: torch.Tensor, epsilon: float = 1e-12) -> torch.Tensor:
    return torch.nn.functional.layer_norm(rows, (D,), GAIN, BIAS, epsilon)


def spelled_norm(rows: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the norm of DeBERTa, which torch has no function for."""
    centred = rows - rows.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    normed = centred / torch.sqrt(variance + epsilon)
    return GAIN * normed + BIAS


def projected(rows: torch.Tensor, offset: torch.Tensor | None = None) -> torch.Tensor:
    """Project rows as a batch of one text, as models do: a batch may be added up otherwise."""
    texts = torch.nn.functional.linear(rows[None], WEIGHTS["matrix"], offset)
    return texts[0]


def sinusoids_of_tensor2tensor(first: int) -> torch.Tensor:
    """Return the rows of T positions from this one on."""
    step = math.log(10000) / (D // 2 - 1)
    rates = torch.exp(torch.arange(D // 2).float() * -step)
    positions = torch.arange(first, first + T).float()
    angles = torch.outer(positions, rates)
    return torch.cat([angles.sin(), angles.cos()], 1)


def sinusoids_of_marian() -> torch.Tensor:
    """Return rows of T positions as Python's math computes them, sines first."""
    rows = []
    for position in range(T):
        angles = [position / 10000 ** (2 * pair / D) for pair in range(D // 2)]
        sines = map(math.sin, angles)
        cosines = map(math.cos, angles)
        rows.append([*sines, *cosines])
    return torch.tensor(rows)


def scaled(token: torch.Tensor) -> torch.Tensor:
    return token * D**0.5


def bert(token: torch.Tensor, epsilon: float = 1e-12) -> torch.Tensor:
    return norm(token + TYPE_0 + POSITIONS[:T], epsilon)


def roberta(token: torch.Tensor) -> torch.Tensor:
    return norm(token + TYPE_0 + POSITIONS[2 : T + 2])


def luke(token: torch.Tensor) -> torch.Tensor:
    """Give ID 0, which is padding, position 0, and count the other tokens from 1."""
    return norm(token + POSITIONS[[1, 2, 3, 0, 4]] + TYPE_0)


def deberta(token: torch.Tensor) -> torch.Tensor:
    return spelled_norm(token + TYPE_0, 1e-7)


def albert(token: torch.Tensor) -> torch.Tensor:
    return projected(bert(token), WEIGHTS["offset"])


def opt(token: torch.Tensor) -> torch.Tensor:
    return projected(token) + WEIGHTS["late"][2 : T + 2]


CASES: dict[str, tuple[dict[str, Any], str, Formula]] = {
    "gemma": ({}, "TOKEN", scaled),
    "granite": ({"embedding_multiplier": 12}, "TOKEN", lambda token: token * 12.0),
    "llama": ({}, "TOKEN", lambda token: token),
    "bert": ({"layer_norm_eps": 0.1}, "FIRST_BERT", lambda token: bert(token, 0.1)),
    "roberta": ({}, "BERT_LIKE", roberta),
    "luke": ({"pad_token_id": 0}, "BERT_LIKE", luke),
    "deberta": ({"position_biased_input": False}, "BERT_LIKE", deberta),
    "albert": ({}, "ALBERT", albert),
    "opt": ({"word_embed_proj_dim": D, "hidden_size": H}, "OPT", opt),
    "nomic_bert": ({}, "NOMIC", norm),
    "xglm": ({}, "TOKEN", lambda token: scaled(token) + sinusoids_of_tensor2tensor(2)),
    "m2m_100": (
        {"scale_embedding": False, "pad_token_id": 4},
        "SHARED",
        lambda token: token + sinusoids_of_tensor2tensor(5),
    ),
    "marian": ({}, "SHARED", lambda token: token + sinusoids_of_marian()),
}


@pytest.mark.parametrize("model_type", CASES)
def test_hidden_is_what_the_family_makes_of_the_token_rows(model_type):
    config, names, formula = CASES[model_type]
    path = model({"model_type": model_type, **config}, names)
    opened = embcli.open(path)
    expected = formula(WEIGHTS["token"][IDS]).numpy()

    result = opened.lookup(IDS)

    last = result.matrices[-1]
    assert_same_bits(result.matrix(last), expected)
    assert (last == "hidden") == bool(result.plan.hidden_steps)

    ids = np.array(IDS)
    two_texts = Sequences(ids=(ids, ids[:2]), many=True)
    together = opened.lookup(two_texts, show="hidden")
    assert_same_bits(together.hidden[:T], expected)

    others = "none" if "learned" in str(result.plan.kind) else "sinusoidal"
    assert opened.lookup(IDS, position=others).matrices[-1] == "input"


# --- GGUF -----------------------------------------------------------------------------------------

OF_GGUF = {
    "token": "token_embd",
    "positions": "position_embd",
    "types": "token_types",
    "gain": "token_embd_norm.weight",
    "bias": "token_embd_norm.bias",
}


def gguf(architecture: str, tensors: dict[str, Any], **metadata: Any) -> str:
    """Save a GGUF file, and return its name; a dot of a key is two underscores here."""
    writer = GGUFWriter("m.gguf", architecture)
    adders = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for name, value in metadata.items():
        key = name.replace("__", ".")
        adders[type(value)](f"{architecture}.{key}", value)
    for name, values in tensors.items():
        suffix = "" if "." in name else ".weight"
        writer.add_tensor(name + suffix, np.asarray(values, np.float32))
    return str(closed(writer))


@cases
def test_a_gguf_file_and_its_safetensors_give_equal_rows(architecture, config, names):
    expected = embcli.open(model(config, names)).lookup(IDS)

    tensors = {OF_GGUF[weight]: WEIGHTS[weight] for weight in NAMES[names]}
    # The converter of Gemma adds 1 to the gains of its norms, and leaves token rows as they are.
    tensors["blk.0.attn_norm.weight"] = GAIN + 1
    keys = {"embedding_length": D, "attention__layer_norm_epsilon": 0.1}
    found = embcli.open(gguf(architecture, tensors, **keys)).lookup(IDS)

    assert found.plan.recipe.words == expected.plan.recipe.words
    assert found.plan.recipe.blocks == expected.plan.recipe.blocks
    assert found.matrices == expected.matrices
    for name in expected.matrices:
        assert_same_bits(found.matrix(name), expected.matrix(name))


# --- models that contradict themselves ------------------------------------------------------------


def test_a_config_that_contradicts_the_tensors_is_refused_except_for_token_rows(
    in_process, snapshot
):
    told = []
    for case, (config, names) in DATA["contradictions"].items():
        words = ("lookup", "--ids", "1", "--from", model({"model_type": "bert", **config}, names))
        told.append(f"{case}\n{in_process.refused(*words)}")
        assert in_process.ok(*words, "--show", "token").text
    snapshot("lookup/models-that-contradict-themselves.txt", "\n".join(told))


@cases
def test_positions_of_another_part_are_not_taken(in_process, model_type, token, positions):
    Path("m").mkdir()
    Path("m/config.json").write_text(json.dumps({"model_type": model_type}))
    tensors = {f"{token}.weight": torch.ones(9, 6), f"{positions}.weight": torch.ones(9, 6)}
    save_file(tensors, "m/model.safetensors")
    assert "no position matrix" in in_process.refused("lookup", "--ids", "1", "--from", "m")


# --- pages ----------------------------------------------------------------------------------------


def test_the_page_shows_all_terms_and_the_trace_spells_out_their_sum(in_process, snapshot):
    path = model({"model_type": "bert", "layer_norm_eps": 0.01}, "BERT_LIKE")
    words = ("lookup", "--ids", "3,7", "--from", path, "--columns", "0")
    page = in_process.ok(*words, "--trace", "1").text
    snapshot("lookup/all-terms-traced.txt", page)

    assert "input, not hidden" in in_process(*words, "-f", "csv").err


def test_data_formats_have_hidden_and_the_recipe(in_process, snapshot):
    path = model({"model_type": "bart", "scale_embedding": True}, "DECODER", "model.encoder.")
    words = ("lookup", "--ids", "1,2", "--from", path)
    document = json.loads(in_process.ok(*words, "-f", "json").out)
    assert [*document["matrices"]] == ["token", "position", "input", "hidden"]
    assert document["run"]["part"] == "encoder"
    snapshot("lookup/hidden-of-an-encoder.txt", in_process.ok(*words).text)
    snapshot("info/hidden-of-an-encoder.txt", in_process.ok("info", "--from", path).text)


# --- which recipe a model follows, and which part of it reads the text ----------------------------


def test_the_page_of_info_has_the_recipe_and_the_part_that_a_model_follows(in_process, snapshot):
    told = []
    for case, (config, names, prefix) in DATA["followed"].items():
        page = in_process.ok("info", "--from", model(config, names, prefix)).text
        told.append(f"{case}\n\n{page}")
    snapshot("info/recipes-of-models.txt", "\n".join(told))


def test_a_model_type_has_one_row_unless_conditions_tell_rows_apart():
    rows_of: dict[str, list[Family]] = {}
    for family in FAMILIES:
        for name in family.model_types.split():
            rows_of.setdefault(name, []).append(family)
    for name, rows in rows_of.items():
        for row in rows[:-1]:
            assert row.when, name


# --- what is not known, and what is said of positions ---------------------------------------------


def test_what_a_model_does_beyond_its_rows_is_said(in_process, snapshot):
    told = []
    for case, (config, names) in DATA["said"].items():
        ran = in_process("lookup", "--ids", "1", "--from", model(config, names))
        assert ran.status == 0
        told.append(f"{case}\n{ran.err}")
    snapshot("lookup/what-models-do-beyond-their-rows.txt", "\n".join(told))


@cases
def test_a_model_that_adds_no_positions_has_none_to_show(model_type, in_process):
    words = ("lookup", "--ids", "1", "--from", model({"model_type": model_type}, "TOKEN"))
    learned = in_process(*words, "--position", "learned", "-f", "json")
    assert "position" not in json.loads(learned.out)["matrices"]
    refused = in_process.refused(*words, "--show", "position", "-f", "csv")
    assert "--position none has no rows" in refused


def test_hidden_of_a_model_type_that_is_not_known_is_not_known(in_process):
    path = model({"model_type": "nobody's"}, "TOKEN")
    words = ("lookup", "--ids", "1", "--from", path, "--show", "hidden")
    assert "not known for this model" in in_process.refused(*words)


def test_positions_after_a_projection_are_the_model_s_own(in_process):
    path = model({"model_type": "opt"}, "OPT")
    words = ("lookup", "--ids", "1", "--from", path, "-f", "json")
    own = in_process.ok(*words).out
    assert in_process.ok(*words, "--position", "learned").out == own


def test_a_model_of_several_token_matrices_has_no_token_matrix(in_process):
    path = model({"model_type": "musicgen_decoder"}, "SEVERAL")
    words = ("lookup", "--ids", "1", "--from", path)
    assert "no tensor has the name" in in_process.refused(*words)
    assert "it adds up rows of several" in in_process(*words, "--tensor", "a.0.weight").err


def test_positions_says_which_the_blocks_of_a_model_compute(in_process, snapshot):
    told = []
    for case, config in DATA["positions"].items():
        message = in_process.refused("positions", "--from", model(config, "TOKEN"))
        told.append(f"{case}\n{message}")
    keys = {"embedding_length": D, "rope__freq_base": 5e5, "rope__scaling__type": "yarn"}
    path = gguf("llama", {"token_embd": WEIGHTS["token"]}, **keys)
    told.append(f"a GGUF file\n{in_process.refused('positions', '--from', path)}")
    message = in_process.refused("positions", "relative", "--from", path)
    told.append(f"a kind that is computed\n{message}")
    snapshot("positions/models-that-add-none.txt", "\n".join(told))


@cases
def test_positions_shows_those_that_a_model_adds(
    page,
    config,
    names,
    in_process,
    snapshot,
):
    ran = in_process("positions", "--from", model(config, names), "--rows", "0:3")
    assert ran.status == 0
    snapshot(f"positions/{page}.txt", ran.text + ran.err)


def test_sinusoids_of_a_model_are_those_that_lookup_adds():
    opened = embcli.open(model({"model_type": "xglm"}, "TOKEN"))
    result = opened.positions(context_length=T)
    assert_same_bits(result.position, opened.lookup(IDS).position)


# --- what the model does to rows, and what it costs -----------------------------------------------


def gemma_in_bfloat16(folder: str) -> str:
    """Save a model whose columns have a root that bfloat16 rounds."""
    Path(folder).mkdir()
    rows = torch.ones(4, 3072).bfloat16()
    save_file({"model.embed_tokens.weight": rows}, f"{folder}/model.safetensors")
    Path(folder, "config.json").write_text('{"model_type": "gemma"}')
    return folder


def test_where_the_model_scales_by_another_number_is_told(in_process):
    path = gemma_in_bfloat16("gemma")
    in_float32 = f"{math.sqrt(3072):.4f}"
    in_bfloat16 = float(torch.tensor(3072**0.5).bfloat16())
    told = in_process("lookup", "--ids", "1", "--from", path).err
    assert f"{in_float32} in float32" in told
    assert f"rounds it to {in_bfloat16} first" in told
    for words in (("audit",), ("neighbors", "--ids", "1")):
        told = in_process(*words, "--from", path).err
        assert f"the model multiplies them by {in_float32}" in told


def test_where_one_of_two_models_scales_it_is_told_once(in_process):
    scaling = gemma_in_bfloat16("scaling")
    plain = gemma_in_bfloat16("plain")
    Path(plain, "config.json").unlink()
    for base in (scaling, plain):
        told = in_process("diff", base, scaling).err
        assert told.count("the model multiplies them by 55.4256") == 1


@cases
def test_torch_is_not_imported_to_scale_and_to_add(model_type, monkeypatch):
    config, names, _ = CASES[model_type]
    path = model({"model_type": model_type, **config}, names)
    monkeypatch.setattr("embcli.numerics.steps.load_torch", None)
    assert str(embcli.open(path).lookup([1, 2]))

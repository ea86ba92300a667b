"""What the first block of a real model reads: the facts of each group of families against torch and numpy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file

import embcli
from embcli.files.families import FAMILIES
from embcli.text import Sequences
from tests.files.made import closed
from tests.oracles import assert_same_bits
from tests.runners import InProcess

V, D, H, C, T = 20, 6, 10, 12, 5
IDS = [3, 7, 3, 0, 19]
Weights = dict[str, torch.Tensor]
norm, linear = torch.nn.functional.layer_norm, torch.nn.functional.linear

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
    "late_types": (3, H),
    "late_gain": (H,),
    "late_bias": (H,),
}
WEIGHTS = {
    name: torch.randn(size, generator=torch.Generator().manual_seed(4))
    for name, size in SIZES.items()
}
BERT = {
    "token": "word_embeddings",
    "positions": "position_embeddings",
    "types": "token_type_embeddings",
}
BERT_NORM = {"gain": "LayerNorm.gamma", "bias": "LayerNorm.beta"}  # as the first BERTs name them
BERT_LIKE = {**BERT, "gain": "LayerNorm.weight", "bias": "LayerNorm.bias"}


def model(
    folder: Path,
    config: dict[str, Any] | None,
    names: dict[str, str],
    prefix: str = "bert.embeddings.",
) -> Path:
    """Save the weights with these names; a name with a dot has its own suffix, and one with a slash no prefix."""
    tensors = {}
    for weight, name in names.items():
        name = name if "." in name else f"{name}.weight"
        tensors[name.removeprefix("/") if name[0] == "/" else prefix + name] = WEIGHTS[
            weight
        ].clone()
    save_file(tensors, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def waves(first: int) -> torch.Tensor:
    """Return the sinusoids of tensor2tensor for T positions from this one on."""
    rates = torch.exp(torch.arange(D // 2).float() * -(math.log(10000) / (D // 2 - 1)))
    angles = torch.arange(first, first + T).float()[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


def spelled_norm(
    rows: torch.Tensor, epsilon: float, gain: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    centred = rows - rows.mean(-1, keepdim=True)
    return gain * (centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + epsilon)) + bias


# The configuration, the tensors' names, and the formula, of the token rows and the weights.
Formula = Callable[[Weights, torch.Tensor], torch.Tensor]
CASES: dict[str, tuple[dict[str, Any], dict[str, str], Formula]] = {
    "gemma": ({}, {"token": "/model.embed_tokens"}, lambda w, token: token * D**0.5),
    "granite": (
        {"embedding_multiplier": 12},
        {"token": "/model.embed_tokens"},
        lambda w, token: token * 12.0,
    ),
    "llama": ({}, {"token": "/model.embed_tokens"}, lambda w, token: token),
    "bert": (
        {"layer_norm_eps": 0.1},
        {**BERT, **BERT_NORM},
        lambda w, token: norm(
            token + w["types"][0] + w["positions"][:T], (D,), w["gain"], w["bias"], 0.1
        ),
    ),
    "roberta": (
        {},
        BERT_LIKE,
        lambda w, token: norm(
            token + w["types"][0] + w["positions"][2 : T + 2], (D,), w["gain"], w["bias"], 1e-12
        ),
    ),
    "luke": (
        {"pad_token_id": 0},
        BERT_LIKE,
        lambda w, token: norm(
            token + w["positions"][[1, 2, 3, 0, 4]] + w["types"][0],
            (D,),
            w["gain"],
            w["bias"],
            1e-12,
        ),
    ),
    "deberta": (
        {"position_biased_input": False},
        BERT_LIKE,
        lambda w, token: spelled_norm(token + w["types"][0], 1e-7, w["gain"], w["bias"]),
    ),
    "albert": (
        {},
        {
            **BERT_LIKE,
            "matrix": "/encoder.embedding_hidden_mapping_in.weight",
            "offset": "/encoder.embedding_hidden_mapping_in.bias",
        },
        lambda w, token: linear(
            norm(token + w["types"][0] + w["positions"][:T], (D,), w["gain"], w["bias"], 1e-12)[
                None
            ],
            w["matrix"],
            w["offset"],
        )[0],
    ),
    "opt": (
        {"word_embed_proj_dim": D, "hidden_size": H},
        {"token": "embed_tokens", "late": "embed_positions", "matrix": "project_in"},
        lambda w, token: linear(token[None], w["matrix"])[0] + w["late"][2 : T + 2],
    ),
    "nomic_bert": (
        {},
        {"token": "word_embeddings", "gain": "/emb_ln.weight", "bias": "/emb_ln.bias"},
        lambda w, token: norm(token, (D,), w["gain"], w["bias"], 1e-12),
    ),
    "xglm": ({}, {"token": "/model.embed_tokens"}, lambda w, token: token * D**0.5 + waves(2)),
    "m2m_100": (
        {"scale_embedding": False, "pad_token_id": 4},
        {"token": "/model.shared"},
        lambda w, token: token + waves(5),
    ),
    "marian": (
        {},
        {"token": "/model.shared"},
        lambda w, token: (
            token
            + torch.tensor(
                [
                    [
                        f(p / 10000 ** (2 * i / D))
                        for f in (math.sin, math.cos)
                        for i in range(D // 2)
                    ]
                    for p in range(T)
                ]
            ).float()
        ),
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_hidden_is_what_the_family_makes_of_the_token_rows(kind: str, tmp_path: Path) -> None:
    config, names, formula = CASES[kind]
    path = model(tmp_path, {"model_type": kind, **config}, names)
    wanted = formula(WEIGHTS, WEIGHTS["token"][IDS]).numpy()
    result = embcli.open(path).lookup(IDS)
    assert_same_bits(result.matrix(result.matrices[-1]), wanted)
    assert (result.matrices[-1] == "hidden") == bool(result.recipe.rest)
    other = (
        "none" if "learned" in str(result.kind) else "sinusoidal"
    )  # other positions than the model's
    assert embcli.open(path).lookup(IDS, position=other).matrices[-1] == "input"
    several = Sequences(ids=(np.array(IDS), np.array(IDS[:2])), many=True)
    assert_same_bits(embcli.open(path).lookup(several, show="hidden").hidden[: len(IDS)], wanted)


OF_GGUF = {"token": "token_embd", "positions": "position_embd", "types": "token_types"}
OF_GGUF_NORM = {"gain": "token_embd_norm.weight", "bias": "token_embd_norm.bias"}
MORE_CASES = {
    "modern-bert": (
        {"model_type": "modernbert", "norm_eps": 0.1},
        {"token": "/model.embeddings.tok_embeddings", "gain": "/model.embeddings.norm.weight"},
    ),
    "gpt2": ({}, {"token": "/wte", "positions": "/wpe"}),
}


def gguf(folder: Path, architecture: str, tensors: dict[str, Any], **metadata: Any) -> Path:
    """Save a GGUF file; a dot of a key is two underscores here, and a number with a point is a float."""
    folder.mkdir(exist_ok=True)
    writer = GGUFWriter(folder / "m.gguf", architecture)
    for name, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[
            type(value)
        ]
        add(f"{architecture}.{name.replace('__', '.')}", value)
    for name, values in tensors.items():
        writer.add_tensor(name if "." in name else f"{name}.weight", np.asarray(values, np.float32))
    closed(writer)
    return folder


@pytest.mark.parametrize("kind", ["gemma", "bert", "gpt2", "llama", "modern-bert"])
def test_a_gguf_file_and_its_safetensors_give_equal_rows(kind: str, tmp_path: Path) -> None:
    config, names = MORE_CASES[kind] if kind in MORE_CASES else CASES[kind][:2]
    wanted = embcli.open(model(tmp_path, {"model_type": kind, **config}, names)).lookup(IDS)
    epsilon = config.get("layer_norm_eps", config.get("norm_eps", 1e-5))
    keys = {"embedding_length": D, "attention__layer_norm_epsilon": epsilon}
    tensors = {({**OF_GGUF, **OF_GGUF_NORM})[weight]: WEIGHTS[weight] for weight in names}
    # The converter of Gemma adds 1 to the gains of its norms, and leaves token rows as they are.
    tensors["blk.0.attn_norm.weight"] = WEIGHTS["gain"] + 1
    found = embcli.open(gguf(tmp_path / "gguf", kind, tensors, **keys)).lookup(IDS)
    assert (found.recipe.words, found.recipe.blocks) == (wanted.recipe.words, wanted.recipe.blocks)
    assert found.matrices == wanted.matrices
    for name in wanted.matrices:
        assert_same_bits(found.matrix(name), wanted.matrix(name))


run = InProcess()


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        (
            {"hidden_size": 7},
            BERT_LIKE,
            "config.json says hidden_size 7; rows of its token matrix have 6 columns",
        ),
        (
            {"layer_norm_eps": math.nan},
            BERT_LIKE,
            "config.json has 'nan' as layer_norm_eps, which must be a finite",
        ),
        (
            {"layer_norm_eps": -1},
            BERT_LIKE,
            "as layer_norm_eps, which must be a finite number of at least 0",
        ),
        (
            {"layer_norm_eps": "1e-12"},
            BERT_LIKE,
            "as layer_norm_eps, which must be a finite number",
        ),
        (
            {"layer_norm_eps": 10**400},
            BERT_LIKE,
            "as layer_norm_eps, which must be a finite number",
        ),
        ({}, BERT, "config.json says that it is a 'bert' model, and it has no LayerNorm"),
        ({}, {**BERT_LIKE, "late_gain": "LayerNorm.weight"}, "does not fit rows of 6 columns"),
        (
            {"type_vocab_size": 2},
            {"token": "word_embeddings"},
            "and it has no token_type_embeddings",
        ),
        ({}, {"token": "word_embeddings", **BERT_NORM}, "and it has no position matrix"),
        (
            {"model_type": "roberta", "pad_token_id": "0"},
            BERT_LIKE,
            "as pad_token_id, which must be a whole number",
        ),
        (
            {"model_type": "bart", "scale_embedding": 1},
            BERT_LIKE,
            "as scale_embedding, which must be true or false",
        ),
        (
            {"model_type": "granite", "embedding_multiplier": True},
            BERT,
            "as embedding_multiplier, which must be a finite number\n",
        ),
        (
            {"model_type": "granite", "embedding_multiplier": -1e300},
            BERT,
            "must be a number that float32 holds",
        ),
        (
            {"model_type": "opt"},
            {**BERT, "positions": "x", "late": "embed_positions", "wide": "project_in"},
            "does not project rows of 6 columns",
        ),
        (
            {"model_type": "esm", "position_embedding_type": 3},
            BERT,
            "as position_embedding_type, which must be a word",
        ),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused_in_a_sentence(
    config: dict[str, Any], names: dict[str, str], said: str, tmp_path: Path
) -> None:
    path = str(model(tmp_path, {"model_type": "bert", **config}, names))
    assert said in run.refused("lookup", "--ids", "1", "--from", path)
    assert run.ok("lookup", "--ids", "1", "--from", path, "--show", "token").text
    if "no LayerNorm" in said:
        assert (
            f"hidden = not known: cannot read '{path}"
            in run.ok("info", "--from", path, COLUMNS="300").text
        )


PAGE = """\
Input embeddings = token + token type 0 + position embeddings: T = 2 tokens, D = 6 columns
            row  │        0
───────────────────────────
token         3  │  {t[0]}
+ type        0  │  {k}
+ position    0  │  {p[0]}
= input       0  │  {i[0]}
hidden        0  │  {h[0]}
token         7  │  {t[1]}
+ type        0  │  {k}
+ position    1  │  {p[1]}
= input       1  │  {i[1]}
hidden        1  │  {h[1]}
token: row ID of V = 20 tokens
position: row p of C = 12 positions
token type: row 0 of bert.embeddings.token_type_embeddings.weight, (3, 6); input = token + token type 0 + position
hidden: token + token type 0 + position, then LayerNorm; the first block of this bert model reads it
A file of one matrix (npy, csv) has input, not hidden, unless show names hidden.

Trace of token 1: token row 7 + type row 0 + position row 1 = input row 1
column    token       type   position      input
     0  {t[1]} +  {k} +  {p[1]} =  {i[1]}
The sum is computed in float32; it is shown to 4 decimals.

Trace of hidden row 1: normed = (input - mean) / sqrt(variance + epsilon)
mean {mean}, variance {variance}, over all 6 columns; epsilon 0.01
column    input     normed       gain       bias     hidden
     0  {i[1]} →  {n} x  {gain} +  {bias} =  {h[1]}
"""


def test_the_page_shows_all_terms_and_the_trace_spells_out_the_norm(tmp_path: Path) -> None:
    path = str(model(tmp_path, {"model_type": "bert", "layer_norm_eps": 0.01}, BERT_LIKE))
    ids = torch.tensor([3, 7])
    token, kind, position = WEIGHTS["token"][ids], WEIGHTS["types"][0], WEIGHTS["positions"][:2]
    total = token + kind + position
    hidden = norm(total, (D,), WEIGHTS["gain"], WEIGHTS["bias"], 0.01)
    mean, variance = float(total[1].double().mean()), float(total[1].double().var(unbiased=False))
    values = {"t": token[:, 0], "p": position[:, 0], "i": total[:, 0], "h": hidden[:, 0]}
    written = {name: [f"{float(value):7.4f}" for value in each] for name, each in values.items()}
    one = {"k": kind[0], "gain": WEIGHTS["gain"][0], "bias": WEIGHTS["bias"][0]}
    one["n"] = (float(total[1, 0]) - mean) / math.sqrt(variance + 0.01)
    written |= {name: f"{float(value):7.4f}" for name, value in one.items()}
    words = ("lookup", "--ids", "3,7", "--from", path, "--columns", "0", "--trace", "1")
    wanted = PAGE.format(**written, mean=f"{mean:.4f}", variance=f"{variance:.4f}")
    assert run.ok(*words).text == wanted
    assert "input, not hidden" in run(*words[:-2], "-f", "csv").err


def test_data_formats_have_hidden_and_the_recipe(tmp_path: Path) -> None:
    names = {"token": "/model.shared", "positions": "/model.encoder.embed_positions"}
    norms = {
        "gain": "/model.encoder.layernorm_embedding.weight",
        "bias": "/model.encoder.layernorm_embedding.bias",
    }
    path = str(model(tmp_path, {"model_type": "bart", "scale_embedding": True}, {**names, **norms}))
    found = json.loads(run.ok("lookup", "--ids", "1,2", "--from", path, "-f", "json").out)
    assert [*found["matrices"]] == ["token", "position", "input", "hidden"]
    assert found["run"]["recipe"] == "token x 2.44949 + position, then LayerNorm"
    assert found["run"]["part"] == "encoder"
    assert "part: encoder\n" in run.ok("lookup", "--ids", "1", "--from", path).text
    info = json.loads(run.ok("info", "--from", path, "-f", "json").out)["run"]
    assert (info["recipe"], info["part"]) == (found["run"]["recipe"], "encoder")
    assert f"hidden of the encoder = {info['recipe']}\n" in run.ok("info", "--from", path).text


def test_a_model_of_two_models_follows_the_half_that_reads_tokens(tmp_path: Path) -> None:
    bart = {"model_type": "mbart", "scale_embedding": True}
    names = {
        "token": "/decoder.model.decoder.embed_tokens",
        "positions": "/decoder.model.decoder.embed_positions",
    }
    names |= {"gain": "/decoder.layernorm_embedding.weight", "types": "/encoder.embed_tokens"}
    seeing = {
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit"},
        "decoder": bart,
    }
    path = str(model(tmp_path, seeing, names))
    run_of = json.loads(run.ok("lookup", "--ids", "1,2", "--from", path, "-f", "json").out)["run"]
    assert (run_of["recipe"], run_of["first_position"]) == (
        "token x 2.44949 + position, then LayerNorm",
        2,
    )
    assert "part" not in run_of
    # The names of a decoder of another family come first.
    names = {
        "token": "/encoder.word_embeddings",
        "positions": "/encoder.position_embeddings",
        "late": "/decoder.wpe",
    }
    names |= {
        "gain": "/encoder.LayerNorm.gamma",
        "bias": "/encoder.LayerNorm.beta",
        "matrix": "/decoder.wte",
    }
    halves = {"encoder": {"model_type": "bert"}, "decoder": {"model_type": "gpt2"}}
    opened = embcli.open(model(tmp_path, {"model_type": "encoder-decoder", **halves}, names))
    assert opened.lookup(IDS).recipe.words == "token + position, then LayerNorm"
    assert_same_bits(opened.lookup(IDS).position, WEIGHTS["positions"][:T].numpy())
    several = {
        "model_type": "bark",
        "semantic_config": {"model_type": "semantic"},
        "fine_acoustics_config": {},
    }
    names = {
        "token": "/semantic.input_embeds_layer",
        "positions": "/semantic.position_embeds_layer",
    }
    names |= {"types": "/fine_acoustics.input_embeds_layer"}
    assert (
        embcli.open(model(tmp_path, several, names)).lookup(IDS).recipe.words == "token + position"
    )
    halves = {"encoder": {"model_type": "gemma"}, "decoder": {"model_type": "llama"}}
    both = {"token": "/encoder.embed_tokens", "types": "/decoder.embed_tokens"}
    path = str(model(tmp_path, {"model_type": "encoder-decoder", **halves}, both))
    found = embcli.open(path).lookup([1])
    assert (found.recipe.words, found.recipe.part, found.layer.shape[0]) == (
        "token x 2.44949",
        "encoder",
        V,
    )


def test_what_no_text_tells_is_named_with_its_reason(tmp_path: Path) -> None:
    names = {"token": "word_embeddings", "positions": "position_embeddings"}
    path = str(model(tmp_path, {"model_type": "markuplm"}, names))
    why = "not known{}: it adds a row for the place of each token in a page of HTML, which no text tells"
    assert why.format("") in run("lookup", "--ids", "1", "--from", path).err
    assert why.format(" for 'markuplm' models") in " ".join(
        run.ok("info", "--from", path).text.split()
    )
    path = str(
        model(
            tmp_path,
            {"model_type": "musicgen_decoder"},
            {"token": "/a.0.weight", "types": "/a.1.weight"},
        )
    )
    said = "no tensor has the name of a token matrix of a musicgen_decoder model: it adds up rows of several token "
    assert said in run.refused("lookup", "--ids", "1", "--from", path)
    assert (
        "it adds up rows"
        in run("lookup", "--ids", "1", "--from", path, "--tensor", "a.0.weight").err
    )


@pytest.mark.parametrize("names", [BERT_LIKE, {**BERT, **BERT_NORM}, BERT])
def test_a_norm_that_no_file_tells_of_is_named(names: dict[str, str], tmp_path: Path) -> None:
    err = run("lookup", "--ids", "1", "--from", str(model(tmp_path, None, names))).err
    name = names.get("gain", "LayerNorm")
    said = (
        f"no file says how the model applies 'bert.embeddings.{name}': these rows are before it\n"
    )
    assert (said in err) == ("gain" in names)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "no file says" not in run("lookup", "--ids", "1", "--from", str(tmp_path)).err


def test_what_joins_no_positions_is_told(tmp_path: Path) -> None:
    adds = "this model adds no position rows"
    said = {
        "llama": f"{adds}; its blocks rotate queries and keys: RoPE: the input rows are the token rows\n",
        "gemma": ": RoPE: the input rows are the token rows x 2.44949\n",
        "mamba": f"{adds}: the input rows are the token rows\n",
        "nobody's": 'what a "nobody\'s" model adds to the token rows is not known; the input rows are the token rows\n',
    }
    for kind, note in said.items():
        path = str(model(tmp_path, {"model_type": kind}, {"token": "/model.embed_tokens"}))
        ran = run("lookup", "--ids", "1", "--from", path)
        assert ran.status == 0
        assert note in ran.err
        learned = run("lookup", "--ids", "1", "--from", path, "--position", "learned")
        assert learned.text.startswith("Input embeddings, input = token: ")
        nothing = run.refused(
            "lookup", "--ids", "1", "--from", path, "--show", "position", "-f", "csv"
        )
        assert nothing.endswith("--position none has no rows that --show could name\n")
        if kind == "nobody's":
            assert "not known for" in run.ok("info", "--from", path).text
            refused = run.refused("lookup", "--ids", "1", "--from", path, "--show", "hidden")
            assert refused.endswith(
                "--show hidden, what the first block reads, is not known for this model\n"
            )
    path = str(model(tmp_path, {"model_type": "opt"}, CASES["opt"][1]))
    assert "positions" not in run("lookup", "--ids", "1", "--from", path).err
    own = run.ok(
        "lookup", "--ids", "1", "--from", path, "-f", "json"
    ).out  # its positions follow a projection
    assert (
        run.ok("lookup", "--ids", "1", "--from", path, "-f", "json", "--position", "learned").out
        == own
    )


def test_a_decoder_alone_follows_the_decoder(tmp_path: Path) -> None:
    told = {"is_decoder": True, "is_encoder_decoder": False}
    names = {"token": "embed_tokens", "positions": "embed_positions"}
    names |= {"gain": "layernorm_embedding.weight", "bias": "layernorm_embedding.bias"}
    for kind, words in (
        ("bart", " x 2.44949 + position, then LayerNorm"),
        ("blenderbot-small", ", then LayerNorm, + position"),
    ):
        for config, prefix in ((told, "model."), ({}, "model.decoder.")):
            config = {"model_type": kind, "scale_embedding": True, **config}
            path = str(model(tmp_path, config, names, prefix))
            info = json.loads(run.ok("info", "--from", path, "-f", "json").out)["run"]
            assert (info["recipe"], info["part"]) == (f"token{words}", "decoder")
            assert embcli.open(path).lookup(IDS).recipe.part is None
        both = model(tmp_path, config, {**names, "wide": "/model.encoder.layers.0.fc1"}, prefix)
        assert embcli.open(both).info().records().run["part"] == "encoder"


def test_a_model_type_has_one_row_unless_conditions_or_parts_tell_rows_apart() -> None:
    seen: dict[str, list[Any]] = {}
    for family in FAMILIES:
        for name in family.model_types.split():
            seen.setdefault(name, []).append(family)
    for name, rows in seen.items():
        assert len(rows) == 1 or all(row.when or row.part for row in rows[:-1]), name


# --- what is told of positions, and what it costs ---------------------------------------------------------------------

TOKEN = {"token": "/model.embed_tokens"}
ROPE, NONE = (
    "its blocks rotate queries and keys: RoPE",
    "no position rows are added, so there is nothing to show",
)
BY_LAYER = {
    "full_attention": {"rope_theta": 1e6, "rope_type": "linear"},
    "sliding_attention": {"rope_theta": 1e4},
}


@pytest.mark.parametrize(
    ("config", "names", "said"),
    [
        ({"model_type": "llama"}, TOKEN, f"{ROPE}; {NONE}"),
        (
            {
                "model_type": "llama",
                "rope_theta": 5e5,
                "rope_scaling": {"rope_type": "llama3", "factor": 8},
            },
            TOKEN,
            f"{ROPE}, theta 500,000, scaled: llama3; {NONE}",
        ),
        (
            {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 3}},
            TOKEN,
            f"{ROPE}, theta 3;",
        ),
        (
            {"model_type": "gemma3_text", "rope_parameters": BY_LAYER},
            TOKEN,
            ", theta 1,000,000 and 10,000, scaled: linear;",
        ),
        (
            {
                "model_type": "llama",
                "rope_theta": "x",
                "rope_scaling": {"type": ["\x1b[31m"], "rope_theta": True},
            },
            TOKEN,
            f"{ROPE}; {NONE}",
        ),
        (
            {"model_type": "llama", "rope_theta": 10**400, "rope_parameters": [1]},
            TOKEN,
            f"{ROPE}; {NONE}",
        ),
        ({"model_type": "mpt"}, TOKEN, "mpt: its blocks add a bias per distance: ALiBi;"),
        ({"model_type": "xlnet"}, TOKEN, "xlnet: its blocks use relative positions;"),
        ({"model_type": "mamba"}, TOKEN, f"mamba: it has no positions; {NONE}"),
        ({"model_type": "xglm"}, TOKEN, "xglm: it adds sinusoidal positions"),
        (
            {"model_type": "mpnet"},
            BERT_LIKE,
            "mpnet: it adds learned positions; its blocks use relative positions",
        ),
        ({"model_type": "nobody's"}, TOKEN, 'which positions a "nobody\'s" model has is not known'),
        ({"model_type": "nobody's"}, BERT, ""),
        (None, BERT, ""),
    ],
)
def test_positions_shows_those_that_a_model_adds_and_says_what_its_blocks_do(
    config: dict[str, Any] | None, names: dict[str, str], said: str, tmp_path: Path
) -> None:
    path = str(model(tmp_path, config, names))
    ran = run("positions", "--from", path)
    told = " ".join((ran.text + ran.err).split())
    assert said in told
    adds = "adds" in said or names == BERT
    assert ran.status == (0 if adds else 2)
    assert ("model_type" in told) == bool(config and config["model_type"] != "nobody's")
    if "sinusoidal" in said:
        found = embcli.open(path).positions(context_length=T)
        assert_same_bits(found.position, embcli.open(path).lookup(IDS).position)
        products = embcli.open(path).positions(context_length=T, similarity=True).similarity
        np.testing.assert_allclose(products, found.position @ found.position.T, rtol=1e-5)
        assert (
            "The model's own formula: sines in the first half of the columns, cosines in the second;"
            in told
        )
    for kind in ("rotary", "relative", *(() if "sinusoidal" in said else ("sinusoidal",))):
        assert f"--kind {kind} is computed, not read from a file" in run.refused(
            "positions", kind, "--from", path
        )


def test_a_gguf_file_says_theta_and_scaling(tmp_path: Path) -> None:
    keys = {"embedding_length": D, "rope__freq_base": 5e5, "rope__scaling__type": "yarn"}
    path = str(gguf(tmp_path, "llama", {"token_embd": WEIGHTS["token"]}, **keys))
    said = f"its metadata says model_type llama: {ROPE}, theta 500,000, scaled: yarn"
    assert said in run.refused("positions", "--from", path)


def test_where_the_model_scales_by_another_number_is_told(tmp_path: Path) -> None:
    wide = {"model.embed_tokens.weight": torch.randn(4, 3072).bfloat16()}
    save_file(wide, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "gemma"}')
    words = ("lookup", "--ids", "1", "--from", str(tmp_path))
    assert (
        "the scale is 55.4256 in float32; the model in bfloat16 rounds it to 55.5 first\n"
        in run(*words).err
    )
    for verb in (("audit",), ("neighbors", "--ids", "1")):
        assert (
            "the rows are as stored; the model multiplies them by 55.4256\n"
            in run(*verb, *words[-2:]).err
        )
    (tmp_path / "plain").mkdir()
    save_file(wide, tmp_path / "plain" / "model.safetensors")
    for both in ((tmp_path, tmp_path), (tmp_path / "plain", tmp_path)):
        assert run("diff", *map(str, both)).err.count("multiplies them by 55.4256\n") == 1
    esm = {
        "model_type": "esm",
        "token_dropout": True,
        "mask_token_id": 7,
        "position_embedding_type": "rotary",
    }
    path = str(model(tmp_path, {**esm, "emb_layer_norm_before": False}, BERT))
    assert (
        "ID 7: the model sets its row to 0 and scales"
        in run("lookup", "--ids", "3,7", "--from", path).err
    )
    assert "ID" not in run("lookup", "--ids", "3,6", "--from", path).err


def test_torch_is_imported_for_norms_and_projections_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_torch = {"gemma": False, "marian": False, "bert": True}
    paths = []
    for kind in needs_torch:
        config, names, _ = CASES[kind]
        (tmp_path / kind).mkdir()
        paths.append(str(model(tmp_path / kind, {"model_type": kind, **config}, names)))
    monkeypatch.setattr("embcli.numerics.steps.loading_torch", None)
    for path, needed in zip(paths, needs_torch.values(), strict=True):
        with pytest.raises(TypeError) if needed else nullcontext():
            str(embcli.open(path).lookup([1, 2]))

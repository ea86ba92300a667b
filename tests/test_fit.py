"""`audit` says what does not fit between tokenizer, matrices and configurations, and no more."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from gguf import GGUFWriter
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

import embcli
from embcli.verbs.audit import Audit
from tests.cases import cases
from tests.files.made import PLAIN, closed, numbered, save_words
from tests.oracles import normal
from tests.transcripts import document_of

TOKENS = 60
ROWS = 64
DIM = 8
NAMES = ["<s>", "</s>", "<pad>", "<unk>"]


@pytest.fixture(autouse=True)
def _model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a sound Llama as `m`: 60 tokens, 64 rows, and a head of its own."""
    monkeypatch.chdir(tmp_path)
    words = [f"w{place}" for place in range(len(NAMES), TOKENS)]
    save_words("m/tokenizer.json", [*NAMES, *words], special=NAMES)
    write_json("config.json", **config())
    write_tensors(token=vectors(1), head=vectors(2))


def vectors(seed: int, rows: int = ROWS) -> np.ndarray:
    return normal(rows, DIM, seed)


def write_tensors(token: np.ndarray, head: np.ndarray | None = None) -> None:
    tensors = {"model.embed_tokens.weight": token}
    if head is not None:
        tensors["lm_head.weight"] = head
    save_file(tensors, "m/model.safetensors")


def config(**settings: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "tie_word_embeddings": False,
        "vocab_size": ROWS,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": None,
    } | settings


def write_json(name: str, **content: Any) -> None:
    Path("m", name).write_text(json.dumps(content))


def audited(**options: Any) -> Audit:
    return embcli.open("m").audit(**options)


def found_kinds(audit: Audit, level: str) -> list[str]:
    return [finding.kind for finding in audit.findings if finding.level == level]


def misfits() -> list[str]:
    return [finding.text for finding in audited().findings if finding.kind == "fit"]


def test_a_sound_model_has_a_remark_on_its_padding_and_nothing_else(in_process):
    audit = audited()

    assert found_kinds(audit, "remark") == ["padding", "not-asked"]
    assert not audit.kinds("finding")
    assert not audit.broken
    assert "No fault found in the rows" in in_process.ok("audit", "m").text


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (math.nan, {"non-finite"}),
        (-math.inf, {"non-finite"}),
        (1e20, {"non-finite"}),
        (1.0, set()),
        (0.0, {"zero"}),
    ],
)
@pytest.mark.parametrize("name", ["norm.weight", "layers.1.up.weight", "layers.1.w.weight"])
def test_other_tensors_are_finite_and_not_zero_where_their_like_are_not(name, value, verdict):
    tensors = {"model.embed_tokens.weight": vectors(1), "lm_head.weight": vectors(2)}
    tensors |= {"layers.0.norm.weight": np.arange(1.0, 9), "layers.0.up.weight": normal(8, 8, 3)}
    tensors |= {"layers.0.w.weight": np.ones((2, 8, 8)), "layers.0.bias": np.zeros(8)}
    tensors[name] = 2 * tensors[f"layers.0.{name.removeprefix('layers.1.')}"]
    tensors[name][:1] = value
    if not value:
        tensors[name][:] = 0
    save_file(tensors, "m/model.safetensors")

    audit = audited()
    assert {*audit.kinds("alarm"), *audit.kinds("finding")} == verdict
    assert not audit.not_checked
    assert all(name in finding.text for finding in audit.findings if finding.level != "remark")


@pytest.mark.parametrize(("tokens", "padding"), [(TOKENS, 127), (3000, 150)])
def test_more_rows_after_the_last_token_than_models_have_are_a_finding(tokens, padding):
    save_words("m/tokenizer.json", [f"w{place}" for place in range(tokens)])
    for size in (tokens + padding, tokens + padding + 9):
        write_json("config.json", **config(vocab_size=size))
        write_tensors(token=vectors(1, size), head=vectors(2, size))
        texts = [text for text in misfits() if "too many for padding" in text]
        assert len(texts) == (size > tokens + padding)


@cases
def test_files_that_give_an_added_token_another_id_are_a_finding(name, content, differs):
    write_json(name, **content)
    text = f"{name} and tokenizer.json, which is read, differ in '<pad>'"
    assert misfits() == ([text] if differs else [])


@cases
def test_a_weight_unlike_those_of_other_layers_is_a_finding(name, number, shift, kinds):
    tensors = {"model.embed_tokens.weight": vectors(1), "lm_head.weight": vectors(2)}
    for layer in range(4):
        tensors[f"layers.{layer}.q.weight"] = normal(8, 8, layer)
        tensors[f"layers.{layer}.norm.weight"] = 1 + normal(1, 8, layer)[0]
    changed = number * normal(8, 8, 0 if name == "k" else 9) + np.float32(shift)
    where = "" if name == "final_norm" else "layers.2."
    tensors[f"{where}{name}.weight"] = changed[0] if "norm" in name else changed
    if name == "norms":
        for layer in range(3):
            tensors[f"layers.{layer}.norm.weight"] = np.ones(8)
    save_file(tensors, "m/model.safetensors")
    assert [*audited().kinds("finding")] == kinds


@pytest.mark.parametrize(("rows", "level"), [(np.ones(16, int), "alarm"), (range(16), "finding")])
def test_equal_rows_of_positions_are_found(rows, level):
    positions = vectors(3, 15)[np.array(rows) % 15]
    write_bert(BERT | {"embeddings.position_embeddings.weight": positions})
    assert audited().kinds(level) == ("positions",)


@pytest.mark.parametrize(
    ("place", "kinds"),
    [
        (np.s_[-8:], ["zero"]),
        (np.s_[:, :16], ["zero"]),
        (np.nonzero(1 - np.eye(64)), ["zero"]),
        (np.s_[9, 9], []),
    ],
)
def test_a_weight_with_a_block_of_zeros_is_a_finding(place, kinds):
    tensors = {"wte.weight": vectors(1), "h.0.up.weight": normal(64, 64, 2)}
    tensors["h.0.up.weight"][place] = 0
    tensors["logit_scale"] = np.float32(2.5)[...]  # It has no rows.
    save_file(tensors, "m/model.safetensors")
    assert [*audited().kinds("finding")] == kinds


@cases
def test_all_tensors_are_finite_in_the_dtype_of_config_json(dtype, verdict):
    save_file({"wte.weight": vectors(1), "up.weight": 1e5 * vectors(2)}, "m/model.safetensors")
    write_json("config.json", **config(dtype=dtype))
    assert [*audited().broken] == verdict


@cases
def test_a_quantised_weight_has_a_scale_that_is_applied(dtype, is_stated, scale, problem):
    quantised = {"up.weight": torch.ones(DIM, DIM).to(getattr(torch, dtype))}
    if scale is not None:
        quantised["up.weight_scale"] = torch.tensor([scale])
    save_torch({"wte.weight": torch.from_numpy(vectors(1)), **quantised}, "m/model.safetensors")
    stated = {"quantization_config": {"quant_method": "fp8"}}
    write_json("config.json", **config(**stated if is_stated else {}))
    found = [each.text for each in audited().findings if each.kind == "load"]
    assert found == ([f"1 quantised weight {problem}: up.weight"] if problem else [])


@cases
def test_packed_weights_have_the_parts_of_others_and_a_scale_for_each_group(
    settings, lost, problem
):
    tensors = {"wte.weight": vectors(1)}
    for layer in range(3):
        tensors[f"h.{layer}.up.qweight"] = np.full((4, 16), layer - 2, np.int32)
        tensors[f"h.{layer}.up.qzeros"] = np.zeros((2, 2), np.int32)
        tensors[f"h.{layer}.up.scales"] = np.ones((2, 16), np.float16)
        tensors[f"h.{layer}.up.g_idx"] = np.arange(32, dtype=np.int32) // 16
    tensors["h.2.up.qweight"] += lost != "numbers"
    tensors["h.2.up.g_idx"] += lost == "groups"
    tensors.pop(f"h.1.up.{lost}", None)
    save_file(tensors, "m/model.safetensors")
    write_json("config.json", **config(quantization_config=settings))
    found = [each.text for each in audited().findings if each.kind == "load"]
    assert [text.split(": h.")[0] for text in found] == ([problem] if problem else [])


def test_a_weight_of_int8_has_a_scale_or_one_for_each_row():
    found = []
    for shape in ((16, 1), (1,), (8, 1)):
        weight = np.full((16, 4), 3, np.int8)
        tensors = {"up.weight": weight, "up.weight_scale": np.ones(shape, np.float32)}
        save_file(tensors | {"wte.weight": vectors(1)}, "m/model.safetensors")
        write_json("config.json", **config(quantization_config={"bits": 8}))
        found += [each.text for each in audited().findings if each.kind == "load"]
    assert found == ["1 quantised weight whose scales are not one for each row: up.weight"]


def test_the_data_has_the_verdict_and_all_that_was_not_checked(in_process):
    tensors = {"model.embed_tokens.weight": vectors(1), "lm_head.weight": vectors(2)}
    save_file({**tensors, "other.weight": np.ones((8, 8), bool)}, "m/model.safetensors")
    totals = document_of(in_process, "audit", "m")["audit"]
    assert totals["verdict"] == "No fault found"  # transformers was not asked
    assert totals["sound"] is False
    assert document_of(in_process, "audit", "--vocab", "6", "--dim", "3")["audit"]["sound"] is True
    assert totals["not_checked"] == ["1 other tensor, such as other.weight"]

    write_tensors(vectors(1), vectors(2, ROWS + 8))
    assert document_of(in_process, "audit", "m")["audit"]["sound"] is False


@cases
def test_what_was_not_checked_is_not_said_to_be_sound(missing, checked, in_process):
    for name in missing:
        Path("m", name).unlink()
    page = in_process.ok("audit", "m").text
    assert checked in " ".join(page.split())


@pytest.mark.parametrize(
    "tensors",
    [
        {"embeddings": vectors(1), "weights": np.ones(ROWS)},
        {"wte.weight": vectors(1).astype(np.int8), "wte.weight_scale": np.ones(1)},
    ],
)
def test_tensors_that_rows_are_computed_from_are_checked(tensors):
    save_file(tensors, "model.safetensors")
    assert embcli.open("model.safetensors").audit().origin.unopened == frozenset()


BERT = {
    "embeddings.word_embeddings.weight": vectors(1),
    "embeddings.position_embeddings.weight": vectors(3, 16),
    "embeddings.token_type_embeddings.weight": vectors(4, 2),
    "embeddings.LayerNorm.weight": np.ones(DIM, np.float32),
    "embeddings.LayerNorm.bias": np.zeros(DIM, np.float32),
}


def write_bert(tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, "m/model.safetensors")
    write_json("config.json", **config(model_type="bert", architectures=["BertModel"]))


@pytest.mark.parametrize("name", [None, *list(BERT)[1:]])
def test_tensors_that_change_all_token_rows_are_finite(name, in_process):
    tensors = dict(BERT)
    if name is not None:
        tensors[name] = tensors[name].copy()
        tensors[name].flat[-1] = np.nan
    write_bert(tensors)

    audit = audited()

    assert audit.broken == (("non-finite",) if name else ())
    assert audit.not_checked == ()
    text = f"1 other tensor with NaN, infinite or overflowing values: {name}"
    assert (text in in_process("audit", "m").text) == bool(name)


# --- the output head ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, 0])
def test_broken_rows_of_the_head_are_an_alarm(value):
    head = vectors(2)
    head[[3, 5]] = value
    write_tensors(vectors(1), head)

    audit = audited()
    assert audit.broken == ("head",)
    assert audit.faults["head"] == 2
    assert "Sound" not in str(audit)


@pytest.mark.parametrize("rows", [TOKENS - 1, ROWS - 1])
def test_a_head_with_fewer_rows_than_tokens_or_vocab_size_is_an_alarm(rows):
    write_tensors(vectors(1), vectors(2, rows))
    assert audited().broken == ("head",)


def test_more_token_rows_than_the_head_has_are_a_remark():
    write_tensors(vectors(1, ROWS + 8), vectors(2))
    audit = audited()
    assert "fit" in found_kinds(audit, "remark")
    assert not audit.broken


def test_a_head_with_more_rows_than_the_token_matrix_is_a_finding():
    write_tensors(vectors(1), vectors(2, ROWS + 8))
    assert audited().kinds("finding") == ("fit",)


def test_a_head_of_another_shape_is_an_alarm(in_process):
    write_tensors(vectors(1), np.ascontiguousarray(vectors(2).T))
    assert audited().broken == ("head",)
    assert not audited().kinds("finding")
    page = in_process("audit", "m").text
    assert "'lm_head.weight' (8, 64) float32 is not (V, 8)" in page
    assert "no head of its own" not in page


@pytest.mark.parametrize("place", [0, 31, ROWS - 1])
def test_a_head_is_a_copy_only_if_all_rows_are_equal(place):
    token = vectors(1)
    write_tensors(token, token)
    assert audited().head_is_copy
    assert "tied" in found_kinds(audited(), "remark")

    head = token.copy()
    head[place, 0] += 1
    write_tensors(token, head)
    assert not audited().head_is_copy


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_packed_head_is_not_checked_and_not_missing(is_tied):
    write_json("config.json", **config(tie_word_embeddings=is_tied))
    tensors = {
        "model.embed_tokens.weight": vectors(1),
        "lm_head.qweight": np.ones((1, ROWS), np.int32),
    }
    save_file(tensors, "m/model.safetensors")
    audit = audited()
    assert audit.broken == ()
    assert audit.kinds("finding") == ()
    assert "GPTQ" in "".join(audit.not_checked)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_head_without_its_scale_is_an_alarm_and_no_missing_one(in_process, is_tied):
    write_json("config.json", **config(tie_word_embeddings=is_tied))
    tensors = {
        "model.embed_tokens.weight": vectors(1),
        "lm_head.weight": np.zeros((ROWS, DIM), np.int8),
    }
    save_file(tensors, "m/model.safetensors")
    audit = audited()
    assert audit.broken == ("head", "load")
    assert audit.kinds("finding") == ()
    (finding,) = [finding for finding in audit.findings if finding.kind == "head"]
    assert "'lm_head." in finding.text
    assert "no scale" in finding.text
    assert "Sound" not in in_process("audit", "m").text


@pytest.mark.parametrize("is_tied", [True, False, None])
def test_a_page_says_what_config_json_states_of_a_head(is_tied, in_process):
    write_tensors(vectors(1))
    write_json("config.json", **config(tie_word_embeddings=is_tied))
    stated = f"; config.json states tie_word_embeddings {str(is_tied).lower()}"
    page = " ".join(in_process("audit", "m").text.split())
    assert f"none in the file{stated if is_tied is not None else ''} candidates" in page
    assert audited().is_sound


def test_all_shards_are_whole(in_process):
    Path("m/model.safetensors").rename("m/1.safetensors")
    save_file({"other.weight": vectors(3)}, "m/2.safetensors")
    names = {"model.embed_tokens.weight": 1, "lm_head.weight": 1, "other.weight": 2}
    weight_map = {name: f"{number}.safetensors" for name, number in names.items()}
    write_json("model.safetensors.index.json", weight_map=weight_map)
    assert audited().is_sound

    shard = Path("m/2.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1])
    error = in_process.refused("audit", "m")
    assert "2.safetensors" in error
    assert "cut off" in error


def test_a_config_json_that_cannot_be_read_is_refused(in_process):
    Path("m/config.json").write_text("{")
    assert "config.json" in in_process.refused("audit", "m")


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vocab_size", "is_finding"), [(ROWS, False), (TOKENS, True), (62, True), (1000, True)]
)
def test_vocab_size_is_that_of_the_rows(vocab_size, is_finding):
    write_json("config.json", **config(vocab_size=vocab_size))
    write_tensors(vectors(1))
    assert ("fit" in audited().kinds("finding")) == is_finding


@cases
def test_the_dimension_of_config_json_is_that_of_the_rows(settings, is_finding):
    write_json("config.json", **config(**settings))
    wrong = "rows of its token matrix have 8 columns"
    assert any(wrong in text for text in misfits()) == is_finding


@cases
def test_texts_are_not_cut_to_more_tokens_than_there_are_positions(
    settings, name, key, longest, is_finding
):
    """A larger one is an index without a row; how long a text gets that a model writes is open."""
    write_json("config.json", **config(**settings))
    write_json(name, **PLAIN, **{key: longest})
    tensors = {"embed_tokens.weight": vectors(1), "embed_positions.weight": vectors(3, 16)}
    save_file({**tensors, "lm_head.weight": vectors(2)}, "m/model.safetensors")
    text = f"{key} of {name} is {longest:,}; there are"
    assert any(finding.text.startswith(text) for finding in audited().findings) == is_finding


def test_a_token_matrix_that_was_saved_empty_is_named_as_that(in_process):
    write_tensors(token=np.zeros(0, np.float32), head=vectors(2))
    error = in_process.refused("audit", "m")
    assert "'model.embed_tokens.weight' (0) float32 is empty" in error


@pytest.mark.parametrize("missing", [*list(BERT)[1:2], *list(BERT)[3:4]])
def test_a_file_without_what_the_first_block_needs_is_not_sound(missing):
    tensors = dict(BERT)
    del tensors[missing]
    write_bert(tensors)
    audit = audited()
    assert audit.kinds("finding") == ("fit",)
    assert "is a 'bert' model, and it has no" in audit.findings[0].text


def test_a_tokenizer_that_cannot_be_read_is_a_finding():
    Path("m/tokenizer.json").write_text("{")
    audit = audited()
    assert audit.kinds("finding") == ("fit",)
    assert not audit.broken


def test_a_tokenizer_that_nobody_was_asked_about_is_not_checked():
    Path("m/tokenizer.json").unlink()
    write_json("vocab.json", a=0, b=1)
    Path("m/merges.txt").write_text("#version: 0.2\n")
    audit = audited()
    assert audit.is_sound
    assert any(
        "has no answer about its class: EMBCLI_ASK is 0" in reason for reason in audit.not_checked
    )


def test_a_lone_vocabulary_that_gives_two_tokens_one_id_is_a_finding():
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        Path("m", name).unlink()
    write_json("vocab.json", a=0, b=1, c=1)
    Path("m/merges.txt").write_text("#version: 0.2\n")
    assert any("gives two tokens one ID" in text for text in misfits())


@cases
def test_a_tokenizer_that_has_lost_its_merges_is_a_finding(merges, lost):
    """A merge of tokens that are made later is none."""
    vocab = numbered([*NAMES, "a", "b", "c", "ab", "abc", "abcab"])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [*map(tuple, merges)]))
    tokenizer.add_special_tokens(NAMES)
    tokenizer.save("m/tokenizer.json")
    assert misfits() == [
        f"tokenizer.json: no merge of earlier tokens makes {each}" for each in lost
    ]


@cases
def test_a_tokenizer_json_that_loses_bytes_or_letters_or_adds_another_id_is_a_finding(change, text):
    letters = [chr(ord("!") + place) for place in range(TOKENS - len(NAMES))]
    vocab = numbered([*NAMES, *letters])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.add_special_tokens(NAMES)
    described = json.loads(tokenizer.to_str())
    write_json("tokenizer.json", **described | change)
    assert misfits() == [text] * bool(text)


def test_two_tokens_with_one_id_are_a_finding_and_the_other_id_is_a_gap(
    in_process,
):
    assert audited().is_sound
    path = Path("m/tokenizer.json")
    described = json.loads(path.read_text())
    described["model"]["vocab"]["w30"] = 31
    path.write_text(json.dumps(described))
    assert audited().kinds("finding") == ("fit",)
    page = in_process("audit", "m").text
    assert "tokenizer.json gives 'w30' and 'w31' one ID, 31" in page
    assert "1 ID without a token" in page


@cases
def test_few_missing_rows_are_told_as_a_forgotten_resize(tokens, rows, is_few, in_process):
    save_words("m/tokenizer.json", [f"w{place}" for place in range(tokens)])
    write_tensors(vectors(1, rows))
    ran = in_process("audit", "m")
    cause = "without a row; the usual cause is a forgotten resize_token_embeddings"
    assert (cause in ran.text) == is_few
    assert ("was resize_token_embeddings forgotten?" in ran.err) == is_few
    assert ("probably not its tokenizer" in ran.err) != is_few


# --- special IDs ----------------------------------------------------------------------------------


@cases
def test_an_id_without_a_row_is_an_alarm_unless_it_ends_a_text(value, has_row):
    found = () if has_row else ("special-ids",)
    write_json("generation_config.json", bos_token_id=value)
    assert audited().broken == found
    write_json("generation_config.json", eos_token_id=value)
    assert audited().broken == ()
    assert audited().kinds("finding") == found


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_the_ids_of_all_special_tokens_need_rows(file):
    roles = ("bos", "eos", "pad", "unk", "decoder_start", "sep", "mask", "forced_bos", "image")
    ids = {f"{role}_token_id": ROWS + place for place, role in enumerate(roles)}
    ids["boi_token_index"] = ROWS
    write_json(file, **config(**ids))
    found = [each.level for each in audited().findings if each.kind == "special-ids"]
    assert len(found) - found.count("remark") == len(ids)


@cases
@pytest.mark.parametrize(("token_id", "found"), [(2, ()), (3, ("special-ids",))])
def test_all_ids_of_a_gguf_file_need_rows(role, token_id, found):
    writer = GGUFWriter("m.gguf", "llama")
    Path("config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    writer.add_uint32(f"tokenizer.ggml.{role}_token_id", token_id)
    writer.add_tensor("token_embd.weight", vectors(1, 3))
    closed(writer)
    audit = embcli.open("m.gguf").audit()
    assert audit.kinds("finding") == found
    assert audit.broken == ()


@cases
def test_the_numbers_of_a_gguf_file_are_in_their_range(epsilon, length, keys):
    writer = GGUFWriter("m.gguf", "llama")
    writer.add_layer_norm_rms_eps(epsilon)
    writer.add_context_length(length)
    writer.add_tensor("token_embd.weight", vectors(1, 3))
    closed(writer)
    audit = embcli.open("m.gguf").audit()
    texts = [each.text for each in audit.findings if each.kind == "fit"]
    assert [text.split(" of m.gguf")[0] for text in texts] == keys
    assert not any("config.json" in text for text in audit.not_checked)


def gguf(**arrays: list[Any]) -> Audit:
    """Return the audit of a GGUF file of five tokens, with these arrays of its tokenizer."""
    writer = GGUFWriter("m.gguf", "mamba")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "a", "b", "c", "d"])
    for name, values in arrays.items():
        writer.add_array(f"tokenizer.ggml.{name}", values)
    writer.add_tensor("token_embd.weight", vectors(1, 5))
    closed(writer)
    return embcli.open("m.gguf").audit()


@cases
def test_the_tables_of_a_gguf_file_have_a_value_for_each_token(arrays, text):
    audit = gguf(**arrays)
    wanted = [text] if text else []
    assert [finding.text for finding in audit.findings if finding.kind == "fit"] == wanted
    assert audit.is_sound == (not text)
    assert audit.broken == ()


@cases
def test_different_ids_get_a_remark_and_those_of_an_image_a_finding(ids, level, count):
    write_json("generation_config.json", **ids)
    audit = audited()
    assert found_kinds(audit, level).count("special-ids") == count
    assert not audit.broken


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@cases
def test_names_of_special_tokens_are_held_against_ids(file, value, remarks):
    write_json(file, **PLAIN, eos_token=value)
    assert found_kinds(audited(), "remark").count("special-ids") == remarks


def test_special_tokens_of_the_tokenizer_need_rows():
    write_tensors(vectors(1, TOKENS - 1))
    write_json("config.json", **config(vocab_size=TOKENS - 1))
    write_json("tokenizer_config.json", **PLAIN, mask_token=f"w{TOKENS - 1}")
    path = Path("m/tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens([f"w{TOKENS - 1}"])
    tokenizer.save(str(path))
    audit = audited()
    assert audit.broken == ("missing", "special-ids")
    text = f"mask {TOKENS - 1} of tokenizer.json: no row for {TOKENS - 1}"
    assert any(text in finding.text for finding in audit.findings)


def test_the_ids_of_the_text_part_count_where_the_whole_gives_others():
    whole = config(model_type="qwen2_vl", eos_token_id=900, image_token_id=ROWS)
    write_json("config.json", **whole, text_config=config(model_type="qwen2_vl_text"))
    audit = audited()
    assert audit.faults["special-ids"] == 1
    assert any("image 64 of config.json" in finding.text for finding in audit.findings)


def test_a_vocabulary_of_words_that_cannot_split_a_letter_is_audited():
    words = {f"w{number}": number for number in range(ROWS)}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(words)).save("m/tokenizer.json")
    write_json("config.json", **config())
    assert audited().is_sound


@cases
def test_ids_that_tokenizer_json_adds_to_texts_need_rows(key, value):
    path = Path("m/tokenizer.json")
    tokenizer = json.loads(path.read_text())
    tokenizer[key] = value
    path.write_text(json.dumps(tokenizer))
    audit = audited()
    assert audit.broken == ("special-ids",)
    assert any(f"of tokenizer.json: no row for {ROWS}" in each.text for each in audit.findings)


@pytest.mark.parametrize("value", ["</s>", "0"])
def test_an_id_that_is_no_number_is_refused(in_process, value):
    write_json("config.json", **config(eos_token_id=value))
    assert f"eos_token_id is {value!r}, which" in in_process.refused("audit", "m")


@cases
def test_what_is_wrong_in_a_chat_template_is_said(template, texts, level):
    write_json("tokenizer_config.json", **PLAIN, chat_template=template)
    found = [each for each in audited().findings if each.kind == "template"]
    assert [each.text for each in found] == texts
    assert {each.level for each in found} == {level} - {None}


IGNORED = ("padding", "not-asked", "not-checked")


@cases
def test_roles_and_dtypes_that_may_be_wrong_are_remarks(settings, names, texts):
    write_json("config.json", **config(**settings))
    write_json("tokenizer_config.json", **PLAIN, **names)
    found = audited()
    assert [each.text for each in found.findings if each.kind not in IGNORED] == texts
    assert found.is_sound


@cases
def test_files_beside_weights_that_do_not_fit(files, texts):
    for name, content in files.items():
        Path("m", name).parent.mkdir(exist_ok=True)
        Path("m", name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert [each.text for each in audited().findings if each.kind not in IGNORED] == texts


@cases
def test_a_remark_gives_status_1_if_its_kind_is_named(fail_on, status, in_process):
    write_tensors(vectors(1, ROWS + 8), vectors(2))
    tokens = {"bos_token": "<pad>", "eos_token": "</s>"}
    write_json(
        "tokenizer_config.json", **PLAIN, **tokens, chat_template="<|im_end|>{{ messages }}</s>"
    )
    ran = in_process("audit", "m", "--fail-on", fail_on)
    assert ran.status == status
    verdict = " ".join(ran.text.split())
    assert " No fault found in the rows " in verdict
    assert ("; status 1: " in verdict) == bool(status)

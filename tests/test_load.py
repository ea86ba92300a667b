"""What audit says of the weights as transformers loads them, from recorded answers.

tests/families holds the same sentences against real loads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import embcli
from embcli.asked.process import NotAskedError
from embcli.verbs.audit import Audit
from tests import recorded
from tests.cases import cases
from tests.oracles import normal
from tests.runners import InProcess

ROWS = 16
DIM = 8
TOKEN = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
LAYER = "model.layers.0.mlp.up_proj.weight"
FACTS: dict[str, Any] = {
    "transformers": "5.23.0",
    "name": "LlamaForCausalLM",
    "token": TOKEN,
    "head": HEAD,
    "body": "model",
}


class Asked:
    """What is asked in place of transformers: the facts to answer with, and the folders."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] | NotAskedError = FACTS
        self.folders: list[str] = []
        self.tensors: dict[str, Any] = {}
        self.place = Path.cwd()

    def __call__(self, about: str, folder: str, tensors: dict[str, Any]) -> dict[str, Any]:
        assert about == "weights"
        self.folders.append(folder)
        self.tensors = tensors
        if isinstance(self.facts, NotAskedError):
            raise self.facts
        return {"facts": self.facts}


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Write a model with a layer as `m`, and answer for transformers."""
    monkeypatch.chdir(tmp_path)
    recorded.install(monkeypatch)
    monkeypatch.setattr("embcli.store.Store.from_environment", lambda notes: None)
    Path("m").mkdir()
    write_config()
    write(tensors())
    answering = Asked()
    monkeypatch.setattr("embcli.asked.kept.answer", answering)
    return answering


def tensors(**others: np.ndarray) -> dict[str, np.ndarray]:
    found = {TOKEN: normal(ROWS, DIM, 1), HEAD: normal(ROWS, DIM, 2), LAYER: normal(DIM, DIM, 3)}
    return found | others


def write(found: dict[str, np.ndarray], name: str = "model.safetensors") -> None:
    save_file(found, Path("m", name))


def write_config(**settings: Any) -> None:
    described = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **settings}
    Path("m/config.json").write_text(json.dumps(described))


def audited(asked: Asked | None = None, **facts: Any) -> Audit:
    if asked is not None:
        asked.facts = FACTS | facts
    return embcli.open("m").audit()


def found(audit: Audit, kind: str) -> list[tuple[str, int, str]]:
    findings = [finding for finding in audit.findings if finding.kind == kind]
    return [(finding.level, finding.rows, finding.text) for finding in findings]


def last_line(in_process: InProcess) -> str:
    page = in_process("audit", "m", COLUMNS="400").text.splitlines()
    return next(line for line in page if line.startswith(("Sound", "Not sound", "Broken")))


def test_a_sound_model_is_said_to_be_as_transformers_loads_it(asked, in_process):
    audit = audited(asked)
    assert audit.is_sound
    assert asked.folders == [str(Path("m").absolute())]
    asked_for = "; transformers 5.23.0 finds its weights by name and shape; not checked: "
    assert asked_for in last_line(in_process)
    totals = json.loads(in_process.ok("audit", "m", "-f", "json").text)["audit"]
    assert (totals["transformers"], totals["not_asked"]) == ("5.23.0", None)


def test_without_an_answer_the_verdict_is_another(asked, in_process):
    asked.facts = NotAskedError("no answer within 60 seconds")
    audit = audited()
    assert (audit.verdict, audit.status) == ("No fault found", 0)
    (remark,) = found(audit, "not-asked")
    assert remark[0] == "remark"
    assert remark[2].endswith(": no answer within 60 seconds")
    assert [each.kind for each in embcli.open("m").audit(fail_on="not-asked").failing] == [
        "not-asked"
    ]
    answer = in_process("audit", "m", "--fail-on", "not-asked", "-f", "json")
    assert answer.status == 1
    totals = json.loads(answer.text)["audit"]
    assert (totals["verdict"], totals["transformers"]) == ("No fault found", None)
    assert totals["not_asked"] == "no answer within 60 seconds"


def test_an_answer_is_kept_until_the_tensors_or_config_json_change(asked, monkeypatch):
    monkeypatch.undo()
    recorded.install(monkeypatch)
    monkeypatch.setattr("embcli.asked.kept.answer", asked)
    monkeypatch.chdir(asked.place)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(asked.place / "cache"))
    for change in (
        lambda: None,
        lambda: write(tensors(more=normal(DIM, DIM, 4))),
        lambda: write_config(num_hidden_layers=1),
    ):
        change()
        before = len(asked.folders)
        assert [audited().verdict for _ in range(2)] == ["Sound", "Sound"]
        assert len(asked.folders) == before + 1


def test_the_question_has_the_tensors_of_whole_files_and_opens_none(asked):
    write_index([TOKEN, LAYER], tensors())
    audited(asked)
    assert asked.tensors[HEAD] == ("float32", (ROWS, DIM))


def test_an_answer_that_is_none_of_ours_is_no_answer(asked):
    asked.facts = {"unheard": 1}
    assert "unheard" in audited().loading.not_asked


# --- tensors that are drawn at random -------------------------------------------------------------


@cases
def test_what_the_class_draws_at_random_is_named(asked, facts, level, text):
    audit = audited(asked, **facts)
    found_level, rows, words = found(audit, "load")[0]
    count = len(facts.get("missing", [])) + len(facts.get("mismatched", []))
    assert (found_level, rows) == (level, count)
    assert words == text
    assert not audit.is_sound
    assert audit.status == 1


@cases
def test_what_the_class_leaves_out_is_named(asked, facts, level, text):
    audit = audited(asked, **facts)
    assert found(audit, "load") == [(level, len(facts["unexpected"]), text)]
    assert audit.verdict == ("Not sound" if level == "finding" else "Sound")


def test_layers_that_predict_further_tokens_are_left_out_by_right(asked):
    write_config(num_nextn_predict_layers=1)
    audit = audited(asked, unexpected=["model.layers.1.mlp.up_proj.weight"])
    assert [level for level, _, _ in found(audit, "load")] == ["remark"]


@cases
def test_a_pooler_is_a_remark_and_a_head_or_other_weights_are_findings(asked, facts, level):
    audit = audited(asked, **facts)
    assert [found_level for found_level, _, _ in found(audit, "load")] == [level]
    assert audit.is_sound == (level == "remark")


def test_a_class_that_config_json_does_not_make_is_an_alarm(asked):
    reason = "cannot be made of config.json: Padding_idx must be within num_embeddings"
    audit = audited(asked, failure=reason)
    assert found(audit, "load") == [("alarm", 1, f"LlamaForCausalLM {reason}")]
    assert found(audit, "tied") == []


@cases
def test_the_status_follows_the_level(asked, fail_on, missing, status):
    asked.facts = FACTS | {"missing": missing}
    assert embcli.open("m").audit(fail_on=fail_on).status == status


# --- an index -------------------------------------------------------------------------------------

INDEX = "model.safetensors.index.json"


def write_index(names: list[str], shard: dict[str, np.ndarray], **others: str) -> None:
    Path("m/model.safetensors").unlink(missing_ok=True)
    write(shard, "1.safetensors")
    index = {"weight_map": dict.fromkeys(names, "1.safetensors") | others}
    Path("m", INDEX).write_text(json.dumps(index))


def test_an_index_that_does_not_name_what_its_file_has_is_a_remark(asked):
    write_index([TOKEN, LAYER], tensors())
    audit = audited(asked)
    text = f"1 tensor not named by {INDEX}; transformers reads whole files: {HEAD}"
    assert found(audit, "load") == [("remark", 1, text)]
    assert audit.is_sound


def test_a_tensor_that_several_files_have_is_a_finding(asked):
    write_index([*tensors()], tensors(), other="2.safetensors")
    write({LAYER: normal(DIM, DIM, 4)}, "2.safetensors")
    audit = audited(asked)
    text = f"1 tensor in several files, of which transformers takes the last: {LAYER}"
    assert ("finding", 1, text) in found(audit, "load")
    assert not audit.is_sound


def test_other_weights_beside_those_that_are_read_are_said(asked):
    write(tensors(), "old.safetensors")
    (remark,) = found(audited(asked), "fit")
    assert remark[2] == "model.safetensors is read; other weights beside it: old.safetensors"


def test_an_index_that_names_what_its_file_lacks_is_the_cause(asked):
    shard = tensors()
    del shard[LAYER]
    write_index([TOKEN, HEAD, LAYER], shard)
    audit = audited(asked, missing=[LAYER])
    drawn = "1 tensor drawn at random by LlamaForCausalLM"
    text = f"{drawn}, as {INDEX} names what its files lack: {LAYER}"
    assert found(audit, "load") == [("alarm", 1, text)]


# --- ties -----------------------------------------------------------------------------------------

TIED = {"ties": {HEAD: TOKEN}}
APART = "which the class ties, differ in the file: both are loaded, untied"


@cases
def test_a_head_that_the_class_ties_is_the_token_matrix(asked, facts, head, words):
    stored = tensors()
    if head == "copy":
        stored[HEAD] = stored[TOKEN]
    elif head == "none":
        del stored[HEAD]
    write(stored)
    audit = audited(asked, **facts)
    assert found(audit, "tied") == [("finding", 1, text) for text in words]
    assert audit.status == int(bool(words))


@cases
def test_a_head_of_its_own_is_right_where_config_json_states_one(asked, settings, is_finding):
    write_config(**settings)
    assert bool(found(audited(asked, **TIED), "tied")) == is_finding


@pytest.mark.parametrize("place", [None, 0, 7, ROWS - 1])
def test_matrices_of_two_parts_that_the_class_ties_are_equal_in_all_rows(asked, place, monkeypatch):
    monkeypatch.setattr("embcli.files.roles.COMPARED", 1)
    write_config(model_type="t5", architectures=["T5ForConditionalGeneration"])
    own = normal(ROWS, DIM, 1)
    if place is not None:
        own[place, 0] += 1
    decoder = "decoder.embed_tokens.weight"
    write({"shared.weight": normal(ROWS, DIM, 1), decoder: own, "decoder.block.0.wi.weight": own})
    ties = {decoder: "shared.weight", HEAD: "shared.weight"}
    audit = audited(asked, ties=ties, token="shared.weight")
    text = f"{decoder} and shared.weight, {APART}"
    assert found(audit, "tied") == ([] if place is None else [("finding", 1, text)])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (TIED, "the token matrix itself (tied)"),
        ({"head": None, "name": "LlamaModel"}, "none: LlamaModel has none"),
        ({"missing": [HEAD]}, "none in the file"),
    ],
)
def test_the_page_says_what_the_class_makes_of_a_missing_head(asked, facts, words, in_process):
    stored = tensors()
    del stored[HEAD]
    write(stored)
    asked.facts = FACTS | facts
    page = in_process("audit", "m").text
    assert f"output head   {words}\n" in page


# --- when nobody is asked -------------------------------------------------------------------------


def rename(name: str) -> None:
    Path("m/model.safetensors").rename(Path("m", name))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda: rename("weights.safetensors"),
            "it loads model.safetensors, and not weights.safetensors",
        ),
        (lambda: Path("m/config.json").unlink(), "config.json is missing or empty"),
        (
            lambda: Path("m/adapter_config.json").write_text("{}"),
            "adapter_config.json adds an adapter",
        ),
        (
            lambda: write_config(num_hidden_layers=10**9),
            "config.json states 1,000,000,000 layers, more than the file has tensors",
        ),
        (
            lambda: write({TOKEN: normal(ROWS, DIM, 1), "norm.weight": np.ones((1, DIM))}),
            "the file has no layers",
        ),
    ],
)
def test_nobody_is_asked(asked, change, reason):
    change()
    assert audited().loading.not_asked == reason
    assert asked.folders == []


def test_an_adapter_beside_weights_is_a_finding(asked):
    Path("m/adapter_config.json").write_text("{}")
    text = "adapter_config.json adds an adapter to these weights: twice, if merged"
    assert found(audited(), "load") == [("finding", 1, text)]


def test_a_seeded_layer_and_a_chosen_tensor_have_no_class(asked):
    assert embcli.seeded(vocab=6, dim=3).audit().loading.in_words == ""
    assert embcli.open("m", tensor=LAYER).audit().loading.in_words == ""
    assert asked.folders == []

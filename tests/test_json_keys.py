"""The keys of each JSON document and of each line of ndjson, and the types behind them: a contract with scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from safetensors.numpy import save_file

from embcli.cli.app import command_line
from embcli.verbs.compare.pair import judge
from tests.runners import InProcess


def outline(value: Any) -> str:
    """Return the keys of a document in their order, with their types; the objects of a list have the same keys."""
    if isinstance(value, dict):
        return f"({' '.join(name + outline(each) for name, each in value.items())})"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        assert len({tuple(each) for each in value}) == 1
        kinds = {name: sorted({outline(each[name]) for each in value}) for name in value[0]}
        return f"[({' '.join(name + '|'.join(each) for name, each in kinds.items())})]"
    if isinstance(value, list):
        return f"[{'|'.join(sorted({outline(each) for each in value}))}]"
    return ":null" if value is None else f":{type(value).__name__}"


def seeded(*layers: str) -> str:
    """Return the outline of what a run says of these seeded layers."""
    return f"seed:int shapes({' '.join(f'{name}[:int]' for name in layers)}) torch:str cpu_capability:str"


def stored(*layers: str, shapes: str = "") -> str:
    """Return the outline of what a run says of these layers of a file."""
    kinds = {"tensors": ":str", "dtypes": ":str", "bytes": ":int", "shapes": "[:int]"}
    told = {
        what: f"{what}({' '.join(name + kind for name in layers)})" for what, kind in kinds.items()
    }
    return " ".join(
        ["from:str", *(told | ({"shapes": shapes} if shapes else {})).values(), "guesses()"]
    )


NONE, NAMED = "embcli:str encoding:null", "embcli:str encoding:str"
BOTH, TIMES, PAIR = (f"embedding{kind} linear{kind}" for kind in (":int", ":float", "[[:float]]"))
PLACE = "position:int id:int"
TOKEN = f"{PLACE} token:str"
SPAN = f"{TOKEN} bytes:str start:int end:int"
MATRICES = "matrices(token[[:float]] position[[:float]] input[[:float]])"
SAME = "(bit_identical:bool kind:str values:int different_values:int largest_difference:float place:null causes[])"
SIZES = "shapes(ids[:int] one_hot[:int] first[:int] shared[:int] embedding[:int] linear[:int])"
COST = (
    f"cost(tokens:int vocabulary_size:int dim:int multiply_adds({BOTH}) weight_bytes_read({BOTH}) "
    f"one_hot_bytes(int64:int float32:int) multiplications_by_zero:int seconds({TIMES}) "
    f"least_seconds({TIMES}) runs({BOTH}) threads:int slices:int ratio:float)"
)
BY_SEED = "sequences:int seed:int torch:str cpu_capability:str"
WEIGHTS = f"weights(first[[:float]] shared[[:float]]) {COST}"
COMPARED = f"run({NONE} {BY_SEED} {SIZES}) verdict{SAME} {WEIGHTS}"
DIFFERENCES = f"columns[:int] tokens[({PLACE} difference:float)] matrices({PAIR})"
GRADIENT = (
    f"loss:str rows_with_gradient({BOTH}) slices:int verdict{SAME} ids[:int] times[:int] {PAIR}"
)
LOOKED_UP = f"run({NAMED} sequences:int {seeded('token', 'position')}) columns[:int] tokens[({TOKEN})] {MATRICES}"
TOY = "--vocab 6 --dim 3"
SMALL = "--vocab 6 --dim 4 --context-length 3"
SEVERAL = "tokenize Hi --encoding gpt2,o200k_base"
BATCH = "batch --ids 1,2,3,4,5 --max-length 2 --stride 2 --batch-size 2 --vocab 6 --dim 3"
DOCUMENTS: dict[str, str] = {
    "tokenize Hi": f"run({NAMED} sequences:int) tokens[({SPAN})]",
    "tokenize --lines --ids 1,2": f"run({NAMED} sequences:int) tokens[(sequence:int {SPAN})]",
    **dict.fromkeys(("lookup Hi", "lookup Hi --only Hi"), LOOKED_UP),
    f"lookup --ids 2,3 {TOY}": (
        f"run({NONE} sequences:int {seeded('token', 'position')}) columns[:int] tokens[({PLACE})] {MATRICES}"
    ),
    f"lookup --lines --ids 2,3 {TOY} --show token": (
        f"run({NONE} sequences:int {seeded('token', 'position')}) columns[:int] tokens[(sequence:int {PLACE})] "
        "matrices(token[[:float]])"
    ),
    "lookup Hi --position none": (
        f"run({NAMED} sequences:int {seeded('token')} kind:str) columns[:int] tokens[({TOKEN})] "
        "matrices(token[[:float]] input[[:float]])"
    ),
    "lookup Hi --position sinusoidal": (
        f"run({NAMED} sequences:int {seeded('token')} kind:str) columns[:int] tokens[({TOKEN})] {MATRICES}"
    ),
    "weights --rows 0:3": (
        f"run({NAMED} {seeded('token')}) columns[:int] rows[(id:int token:str)] matrices(token[[:float]])"
    ),
    f"weights {TOY}": f"run({NONE} {seeded('token')}) columns[:int] rows[(id:int)] matrices(token[[:float]])",
    f"weights {TOY} --sort norm": (
        f"run({NONE} {seeded('token')}) columns[:int] rows[(id:int norm:float rank:int)] matrices(token[[:float]])"
    ),
    "weights --layer position --rows 0:3": (
        f"run({NONE} {seeded('position')}) columns[:int] rows[(id:int)] matrices(position[[:float]])"
    ),
    "compare": f"{COMPARED} gradient:null {DIFFERENCES}",
    "compare Hi": (
        f"run({NAMED} {BY_SEED} {SIZES}) verdict{SAME} weights(first:null shared:null) {COST} gradient:null "
        f"columns[:int] tokens[({TOKEN} difference:float)] matrices({PAIR})"
    ),
    "compare --gradient": f"{COMPARED} gradient({GRADIENT} training:null) {DIFFERENCES}",
    "compare --learning-rate 0.1": (
        f"{COMPARED} gradient({GRADIENT} training(optimizer:str learning_rate:float rows_moved({BOTH}) "
        f"rows_not_moved({BOTH}) verdict{SAME} before[[:float]] {PAIR})) {DIFFERENCES}"
    ),
    "lookup --from own.npz --ids 1": (
        f"run({NONE} sequences:int {stored('token', 'position', 'token_type')} token_type:int sum:str) columns[:int] "
        f"tokens[({PLACE})] {MATRICES}"
    ),
    "compare --from own.npz --ids 1": (
        f"run({NONE} {BY_SEED} {stored('token', shapes=SIZES)}) verdict{SAME} {WEIGHTS} gradient:null {DIFFERENCES}"
    ),
    "positions --from own.npz": (
        f"run(embcli:str kind:str {stored('position')}) columns[:int] positions[(position:int)] "
        "matrices(position[[:float]])"
    ),
    BATCH: (
        f"run({NONE} sequences:int {seeded('token', 'position')} batches:int batch_size:int max_length:int "
        "stride:int shuffle:bool keep_last:bool) columns[:int] samples[(batch:int sample:int)] "
        "matrices(inputs[[:int]] targets[[:int]] input[[[:float]]])"
    ),
    f"positions {SMALL}": (
        f"run(embcli:str kind:str {seeded('position')}) columns[:int] positions[(position:int)] "
        "matrices(position[[:float]])"
    ),
    f"positions --kind sinusoidal {SMALL}": (
        "run(embcli:str kind:str) columns[:int] positions[(position:int)] matrices(position[[:float]])"
    ),
    f"positions --kind relative {SMALL}": (
        f"run(embcli:str kind:str {seeded('position')} clip:int) columns[:int] positions[(position:int)] "
        "matrices(position[[[:float]]] distance[[:int]])"
    ),
    f"positions --kind rotary {SMALL}": (
        f"run(embcli:str kind:str {seeded('token')} pairing:str theta:float) columns[:int] positions[(position:int)] "
        "matrices(position[[:float]] input[[:float]])"
    ),
    f"positions --similarity {SMALL}": (
        f"run(embcli:str kind:str {seeded('position')}) columns[:int] positions[(position:int)] "
        "matrices(similarity[[:float]])"
    ),
    f"neighbors --ids 2 {TOY}": (
        f"run({NONE} {seeded('token')} metric:str queries[(ids[:int] plus[] minus[])] searched:int not_finite:int "
        "zero:int) neighbors[(query:int rank:int id:int score:float)]"
    ),
    "neighbors Hi --plus you --minus me": (
        f"run({NAMED} {seeded('token')} metric:str queries[(ids[:int] plus[[:int]] minus[[:int]])] searched:int "
        "not_finite:int zero:int) neighbors[(query:int rank:int id:int token:str score:float)]"
    ),
    f"audit {TOY}": (
        f"run({NONE} {seeded('token')}) audit(tokens:null faults(non-finite:int zero:int missing:int equal:int "
        "padding:int candidates:int) broken[] unused() equal[] rows:int quantiles[:float] quantiles_at[:float] "
        "histogram[:int] indicator:str threshold:null reason:str candidates[]) rows[(id:int norm:float unused:null "
        "fault:null equal_to:null candidate:bool)]"
    ),
    "audit --from model.safetensors --encoding gpt2": (
        f"run({NAMED} {stored('token')}) audit(tokens:int faults(non-finite:int zero:int missing:int equal:int "
        "padding:int candidates:int) broken[:str] unused(byte:int) equal[] rows:int quantiles[:float] "
        "quantiles_at[:float] histogram[:int] indicator:str threshold:null reason:str candidates[]) rows[(id:int "
        "token:str norm:float cosine_distance:float centred:float without_first:float unused:null|:str fault:null "
        "equal_to:null candidate:bool)]"
    ),
    "diff model.safetensors tuned.safetensors": (
        f"run(embcli:str base(encoding:null {stored('token')}) tuned(encoding:null {stored('token')})) "
        "diff(counts(equal:int changed:int removed:int added:int) different:bool matched_by:str "
        "quantiles_at[:float] cosine_distance[:float] l2_distance[:float]) rows[(base_id:int tuned_id:int|:null "
        "state:str cosine_distance:float|:null l2_distance:float|:null)]"
    ),
    "info": (
        "run(embcli:str python:str torch:str tiktoken:str numpy:str typer:str rich:str cpu_capability:str "
        "cache:str) encodings[(encoding:str vocabulary_size:int carried:bool)]"
    ),
    "info --models": (
        "run(embcli:str places[:str]) models[(model:str format:str vocabulary_size:int dim:int bytes:int)]"
    ),
    "tokenize Hi --merges": (
        f"run({NAMED} pieces:int) steps[(piece:int step:int left:str right:str rank:int id:int token:str)]"
    ),
    SEVERAL: (
        "run(embcli:str sequences:int characters:int bytes:int same:int different:int) encodings[(encoding:str "
        f"vocabulary_size:int tokens:int characters_per_token:float)] tokens[(encoding:str {SPAN} common:bool)]"
    ),
    "explain token": "run(embcli:str) words[(word:str part:str also:str text:str examples:str source:str)]",
    "cache": "run(embcli:str folder:str bytes:int limit:int) layers[(file:str bytes:int used:str)]",
}


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with three models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    layers = ("token", "position", "token_type_embeddings")
    np.savez("own.npz", **dict.fromkeys(layers, np.ones((2, 3), np.float32)))
    rows = np.random.default_rng(1).standard_normal((200, 3), np.float32)
    save_file({"wte.weight": rows, "lm_head.weight": -rows}, "model.safetensors")
    save_file(
        {"wte.weight": np.append(rows[:150] * np.float32(2), [[np.inf] * 3], 0)},
        "tuned.safetensors",
    )
    snapshot = Path(f"hub/models--o--m/snapshots/{'0' * 40}")
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    (snapshot / "model.safetensors").symlink_to(tmp_path / "model.safetensors")


def told(in_process: InProcess, command: str, form: str) -> bytes:
    """Return what a command prints; its answer may be no. For `cache` there are two layers in the cache."""
    kept = {"EMBCLI_CACHE_DIR": "cache"} if command.startswith("cache") else {}
    if kept:
        in_process.ok("lookup", "--ids", "2", *TOY.split(), **kept)
    ran = in_process(*command.split(), "-f", form, **kept)
    assert ran.status in (0, 1), ran
    return ran.out


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_json_document_has_these_keys_and_no_others(in_process: InProcess, command: str) -> None:
    out = told(in_process, command, "json")
    assert outline(json.loads(out, parse_constant=pytest.fail)) == f"({DOCUMENTS[command]})"


@pytest.mark.parametrize(
    "command",
    [
        each
        for each in DOCUMENTS
        if each not in (BATCH, "cache") and not each.startswith("compare --")
    ],
)
def test_a_line_of_ndjson_is_a_row_of_the_document_with_its_vectors(
    in_process: InProcess, command: str
) -> None:
    lines = [
        json.loads(line, parse_constant=pytest.fail)
        for line in told(in_process, command, "ndjson").splitlines()
    ]
    document = json.loads(told(in_process, command, "json"))
    matrices = document.pop("matrices", {})
    rows = document["tokens" if "tokens" in document else [*document][-1]]
    vectors = [
        dict(zip(matrices, each, strict=True)) for each in zip(*matrices.values(), strict=True)
    ]
    assert lines
    assert [line.pop("vectors", None) for line in lines] == (vectors or [None] * len(rows))
    assert lines == rows


def test_a_line_of_ndjson_is_a_whole_batch(in_process: InProcess) -> None:
    (line,) = told(in_process, BATCH, "ndjson").splitlines()
    assert (
        outline(json.loads(line))
        == "(batch:int inputs[[:int]] targets[[:int]] vectors(input[[[:float]]]))"
    )


def test_every_verb_that_has_a_document_is_here() -> None:
    commands = typer.main.get_command(command_line()).commands
    assert {document.split()[0] for document in DOCUMENTS} == {*commands} - {
        "decode",
        "tour",
        "help",
        "explore",
    }


@pytest.mark.parametrize(("value", "causes"), [(1, 0), (np.inf, 0), (np.nan, 1), (-0.0, 0)])
def test_a_verdict_that_two_outputs_differ_has_the_same_keys(value: float, causes: int) -> None:
    left, right = np.zeros((1, 2), np.float32), np.array([[0, value]], np.float32)
    document = judge(left, right, weight=right).document()
    assert [*document] == re.findall(r"(\w+)[:[]", SAME)
    assert outline(document["place"]).startswith("(row:int column:int embedding:float linear:")
    assert [[*cause] for cause in document["causes"]] == [["row", "column", "value"]] * causes

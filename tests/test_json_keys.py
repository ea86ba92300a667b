"""The keys of each JSON document and of each line of ndjson, and what stands behind them: a contract with scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import typer
from safetensors.numpy import save_file

import embcli
from embcli.cli.app import command_line
from embcli.names import ENCODINGS, FAULTS
from embcli.verbs.compare.pair import judge
from tests.inside import Inside

Schema = dict[str, Any]
MATRICES = ("token", "position", "input")


def strict(**properties: Schema) -> Schema:
    """Return the schema of an object with these keys, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def array(items: Schema, length: int | None = None) -> Schema:
    size = {} if length is None else {"minItems": length, "maxItems": length}
    return {"type": "array", "items": items, **size}


def optional(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
STRING: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
TRUTH: Schema = {"type": "boolean"}
VECTOR = array({"type": ["number", "null"]})
MATRIX = array(VECTOR)
VERSION: Schema = {"const": embcli.__version__}
ENCODING = optional({"enum": [*ENCODINGS]})
DRAWN: dict[str, Schema] = {"seed": COUNT, "torch": STRING, "cpu_capability": STRING}
READ: dict[str, Schema] = {"embcli": VERSION, "encoding": ENCODING, "sequences": COUNT}

# What a row says of its token, by verb.
PLACE: dict[str, Schema] = {"position": COUNT, "id": COUNT}
TOKEN: dict[str, Schema] = {**PLACE, "token": STRING}
SPAN: dict[str, Schema] = {"bytes": {"type": "string", "pattern": "^([0-9a-f]{2})+$"}, "start": COUNT, "end": COUNT}
KEPT: dict[str, Schema] = {"file": STRING, "bytes": COUNT, "used": STRING}
ENCODED: dict[str, Schema] = {"encoding": {"enum": [*ENCODINGS]}, "vocabulary_size": COUNT, "carried": TRUTH}
HELD: dict[str, Schema] = {"model": STRING, "format": STRING, "vocabulary_size": COUNT, "dim": COUNT, "bytes": COUNT}
PROGRAMS = ("python", "torch", "tiktoken", "numpy", "typer", "rich", "cpu_capability")
FOLDER = strict(embcli=VERSION, folder=STRING, bytes=COUNT, limit=COUNT)


def seeded(*layers: str, **more: Schema) -> Schema:
    """Return the schema of a run that took rows of these seeded layers."""
    shapes = strict(**dict.fromkeys(layers, array(COUNT, 2)))
    return strict(embcli=VERSION, encoding=ENCODING, shapes=shapes, **DRAWN, **more)


def stored(*layers: str) -> dict[str, Schema]:
    """Return the schemas of what a run says of these layers of a file."""
    told = {"tensors": STRING, "dtypes": STRING, "bytes": COUNT, "shapes": array(COUNT, 2)}
    by_layer = {name: strict(**dict.fromkeys(layers, each)) for name, each in told.items()}
    return {"from": STRING, **by_layer, "guesses": strict()}


def named(schema: Schema, *names: str) -> Schema:
    return strict(**dict.fromkeys(names, schema))


def both(schema: Schema) -> Schema:
    return named(schema, "embedding", "linear")


SAME = strict(
    bit_identical=TRUTH,
    kind={"enum": ["identical"]},
    values=COUNT,
    different_values=COUNT,
    largest_difference=NUMBER,
    place=NULL,
    causes=array({}, 0),
)
OTHER = SAME["properties"] | {
    "kind": {"enum": ["value", "nan", "nan bits", "zero sign"]},
    "largest_difference": optional(NUMBER),
    "place": strict(row=COUNT, column=COUNT, embedding=optional(NUMBER), linear=optional(NUMBER)),
    "causes": array(strict(row=COUNT, column=COUNT, value={"enum": ["nan", "inf", "-inf"]})),
}
COST = strict(
    tokens=COUNT,
    vocabulary_size=COUNT,
    dim=COUNT,
    multiply_adds=both(COUNT),
    weight_bytes_read=both(COUNT),
    one_hot_bytes=strict(int64=COUNT, float32=COUNT),
    multiplications_by_zero=COUNT,
    seconds=both(NUMBER),
    least_seconds=both(NUMBER),
    runs=both(COUNT),
    threads=COUNT,
    slices=COUNT,
    ratio=NUMBER,
)
GRADIENT = strict(
    loss=STRING,
    rows_with_gradient=both(COUNT),
    slices=COUNT,
    verdict=SAME,
    ids=array(COUNT),
    times=array(COUNT),
    **both(MATRIX)["properties"],
    training=NULL,
)
TRAINING = strict(
    optimizer={"const": "torch.optim.SGD"},
    learning_rate=NUMBER,
    rows_moved=both(COUNT),
    rows_not_moved=both(COUNT),
    verdict=SAME,
    before=MATRIX,
    **both(MATRIX)["properties"],
)


def compared(token: dict[str, Schema], first: Schema = MATRIX, gradient: Schema = NULL, **run: Schema) -> Schema:
    shapes = {"ids": 1, "one_hot": 2, "first": 2, "shared": 2, "embedding": 2, "linear": 2}
    sizes = strict(**{name: array(COUNT, rank) for name, rank in shapes.items()})
    return strict(
        run=strict(**{**READ, **DRAWN, **run, "shapes": sizes}),
        columns=array(COUNT),
        tokens=array(strict(**token, difference=NUMBER)),
        matrices=both(MATRIX),
        verdict=SAME,
        weights=strict(first=first, shared=first),
        cost=COST,
        gradient=gradient,
    )


def looked_up(token: dict[str, Schema], *matrices: str) -> Schema:
    return strict(
        run=seeded("token", "position", sequences=COUNT),
        columns=array(COUNT),
        tokens=array(strict(**token)),
        matrices=named(MATRIX, *matrices),
    )


def joined(token: dict[str, Schema], *matrices: str, **more: Schema) -> Schema:
    """Return the schema of a lookup whose positions need no layer."""
    return strict(
        run=seeded("token", sequences=COUNT, kind=STRING, **more),
        columns=array(COUNT),
        tokens=array(strict(**token)),
        matrices=named(MATRIX, *matrices),
    )


def rows_of(layer: str, **fields: Schema) -> Schema:
    return strict(run=seeded(layer), columns=array(COUNT), rows=array(strict(**fields)), matrices=named(MATRIX, layer))


# What an audit says of each row, and of all of them; `cosine` and its kin where rows are known as unused.
ROW: dict[str, Schema] = {
    "norm": optional(NUMBER),
    "unused": optional({"enum": ["padding", "gap", "byte", "reserved"]}),
    "fault": optional({"enum": ["non-finite", "zero"]}),
    "equal_to": optional(COUNT),
    "candidate": TRUTH,
}
APART: dict[str, Schema] = dict.fromkeys(("cosine_distance", "centred", "without_first"), optional(NUMBER))
FOUND = strict(
    tokens=optional(COUNT),
    faults=named(COUNT, *FAULTS),
    broken=array({"enum": [*FAULTS]}),
    unused={"type": "object", "additionalProperties": COUNT},
    equal=array(array(COUNT)),
    rows=COUNT,
    quantiles=array(NUMBER, 7),
    histogram=array(COUNT, 24),
    quantiles_at=array(NUMBER, 7),
    indicator={"enum": ["norm", "cosine"]},
    threshold=optional(NUMBER),
    reason=optional(STRING),
    candidates=array(COUNT),
)
PAIR: dict[str, Schema] = {
    "base_id": optional(COUNT),
    "tuned_id": optional(COUNT),
    "state": {"enum": ["equal", "changed", "removed", "added"]},
    "cosine": optional(NUMBER),
    "distance": optional(NUMBER),
}
MOVES = strict(
    counts=named(COUNT, "equal", "changed", "removed", "added"),
    different=TRUTH,
    matched_by={"enum": ["id", "token"]},
    quantiles_at=array(NUMBER, 7),
    cosine=array(NUMBER),
    distance=array(NUMBER),
)


def taken(*layers: str) -> dict[str, Schema]:
    """Return what a run says of a file that these layers are taken from."""
    by_layer = {name: named(STRING, *layers) for name in ("tensors", "dtypes")}
    sizes = {"bytes": named(COUNT, *layers), "shapes": strict(**dict.fromkeys(layers, array(COUNT, 2)))}
    return {"from": STRING, **by_layer, **sizes, "guesses": {"type": "object"}, "encoding": ENCODING}


def positioned(*layers: str, **matrices: Schema) -> Schema:
    kind = {name: STRING if name == "pairing" else NUMBER for name in ("pairing", "theta", "clip") if name in matrices}
    matrices = {name: each for name, each in matrices.items() if name not in kind}
    drawn = {**DRAWN, "shapes": strict(**dict.fromkeys(layers, array(COUNT, 2)))} if layers else {}
    return strict(
        run=strict(embcli=VERSION, kind=STRING, **drawn, **kind),
        columns=array(COUNT),
        positions=array(strict(position=COUNT)),
        matrices=strict(**matrices),
    )


NEAR: dict[str, Schema] = {"query": COUNT, "rank": COUNT, "id": COUNT}
TERMS = strict(ids=array(COUNT), plus=array(array(COUNT)), minus=array(array(COUNT)))
SEARCHED = {"metric": {"enum": ["cosine", "dot", "l2"]}, "queries": array(TERMS)}
SEARCHED |= dict.fromkeys(("searched", "not_finite", "zero"), COUNT)


def near(fields: dict[str, Schema]) -> Schema:
    return strict(run=seeded("token", **SEARCHED), neighbors=array(strict(**fields)))


TOY = "--vocab 6 --dim 3"
SMALL = "--vocab 6 --dim 4 --context-length 3"
SEVERAL = "tokenize Hi --encoding gpt2,o200k_base"
BATCH = "batch --ids 1,2,3,4,5 --max-length 2 --stride 2 --batch-size 2 --vocab 6 --dim 3"
CUT = ("batches", "batch_size", "max_length", "stride")
CHOSEN = ("shuffle", "keep_last")
ENTRY = dict.fromkeys(("word", "part", "also", "text", "examples", "source"), STRING)
MERGED = strict(
    **dict.fromkeys(("piece", "step", "rank", "id"), COUNT), **dict.fromkeys(("left", "right", "token"), STRING)
)
DOCUMENTS: dict[str, Schema] = {
    "tokenize Hi": strict(run=strict(**READ), tokens=array(strict(**TOKEN, **SPAN))),
    "tokenize --lines --ids 1,2": strict(
        run=strict(**READ), tokens=array(strict(sequence=COUNT, **TOKEN, **SPAN), length=2)
    ),
    "lookup Hi": looked_up(TOKEN, *MATRICES),
    f"lookup --ids 2,3 {TOY}": looked_up(PLACE, *MATRICES),
    f"lookup --lines --ids 2,3 {TOY} --show token": looked_up({"sequence": COUNT, **PLACE}, "token"),
    "lookup Hi --only Hi": looked_up(TOKEN, *MATRICES),
    "lookup Hi --position none": joined(TOKEN, "token", "input"),
    "lookup Hi --position sinusoidal": joined(TOKEN, *MATRICES),
    "weights --rows 0:3": rows_of("token", id=COUNT, token=STRING),
    f"weights {TOY}": rows_of("token", id=COUNT),
    f"weights {TOY} --sort norm": rows_of("token", id=COUNT, norm=NUMBER, rank=COUNT),
    "weights --layer position --rows 0:3": rows_of("position", id=COUNT),
    "compare": compared(PLACE),
    "compare Hi": compared(TOKEN, first=NULL),
    "compare --gradient": compared(PLACE, gradient=GRADIENT),
    "compare --learning-rate 0.1": compared(PLACE, gradient=strict(**GRADIENT["properties"] | {"training": TRAINING})),
    "lookup --from own.npz --ids 1": strict(
        run=strict(**READ, **stored("token", "position", "token_type"), token_type=COUNT, sum=STRING),
        columns=array(COUNT),
        tokens=array(strict(**PLACE)),
        matrices=named(MATRIX, *MATRICES),
    ),
    "compare --from own.npz --ids 1": compared(PLACE, **stored("token")),
    "positions --from own.npz": strict(
        run=strict(embcli=VERSION, kind=STRING, **stored("position")),
        columns=array(COUNT),
        positions=array(strict(position=COUNT)),
        matrices=strict(position=MATRIX),
    ),
    BATCH: strict(
        run=seeded("token", "position", sequences=COUNT, **dict.fromkeys(CUT, COUNT), **dict.fromkeys(CHOSEN, TRUTH)),
        columns=array(COUNT),
        samples=array(strict(batch=COUNT, sample=COUNT)),
        matrices=strict(**dict.fromkeys(("inputs", "targets"), array(array(COUNT, 2), 2)), input=array(MATRIX, 2)),
    ),
    f"positions {SMALL}": positioned("position", position=MATRIX),
    f"positions --kind sinusoidal {SMALL}": positioned(position=MATRIX),
    f"positions --kind relative {SMALL}": positioned(
        "position", position=array(MATRIX), distance=array(array({"type": "integer"}, 3), 3), clip=COUNT
    ),
    f"positions --kind rotary {SMALL}": positioned(
        "token", position=MATRIX, input=MATRIX, pairing=STRING, theta=NUMBER
    ),
    f"positions --similarity {SMALL}": positioned("position", similarity=MATRIX),
    f"neighbors --ids 2 {TOY}": near({**NEAR, "score": NUMBER}),
    "neighbors Hi --plus you --minus me": near({**NEAR, "token": STRING, "score": NUMBER}),
    f"audit {TOY}": strict(run=seeded("token"), audit=FOUND, rows=array(strict(id=COUNT, **ROW), 6)),
    "audit --from model.safetensors --encoding gpt2": strict(
        run=strict(embcli=VERSION, **taken("token")),
        audit=FOUND,
        rows=array(strict(id=COUNT, token=STRING, **ROW, **APART), 200),
    ),
    "diff model.safetensors tuned.safetensors": strict(
        run=strict(embcli=VERSION, base=strict(**taken("token")), tuned=strict(**taken("token"))),
        diff=MOVES,
        rows=array(strict(**PAIR)),
    ),
    "info": strict(
        run=strict(embcli=VERSION, cache=STRING, **dict.fromkeys(PROGRAMS, STRING)),
        encodings=array(strict(**ENCODED), length=7),
    ),
    "info --models": strict(run=strict(embcli=VERSION, places=array(STRING, 2)), models=array(strict(**HELD), 1)),
    "tokenize Hi --merges": strict(run=strict(embcli=STRING, encoding=STRING, pieces=COUNT), steps=array(MERGED)),
    SEVERAL: strict(
        run=strict(embcli=VERSION, **dict.fromkeys(("sequences", "characters", "bytes", "same", "different"), COUNT)),
        encodings=array(
            strict(encoding=STRING, vocabulary_size=COUNT, tokens=COUNT, characters_per_token=NUMBER), length=2
        ),
        tokens=array(strict(encoding=STRING, **TOKEN, **SPAN, common=TRUTH)),
    ),
    "explain token": strict(run=strict(embcli=STRING), words=array(strict(**ENTRY))),
    "cache": strict(run=FOLDER, layers=array(strict(**KEPT), length=2)),
}
BATCH_LINE = strict(
    batch=COUNT, inputs=array(array(COUNT, 2)), targets=array(array(COUNT, 2)), vectors=named(array(MATRIX), "input")
)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Return a runner in this process, beside three models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    layers = ("token", "position", "token_type_embeddings")
    np.savez("own.npz", **dict.fromkeys(layers, np.ones((2, 3), np.float32)))
    rows = np.random.default_rng(1).standard_normal((200, 3), np.float32)
    save_file({"wte.weight": rows, "lm_head.weight": -rows}, "model.safetensors")
    save_file({"wte.weight": np.append(rows[:150] * np.float32(2), [[np.inf] * 3], 0)}, "tuned.safetensors")
    snapshot = Path(f"hub/models--o--m/snapshots/{'0' * 40}")
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    (snapshot / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    return Inside()


def told(inside: Inside, command: str, form: str) -> bytes:
    """Return what a command prints; its answer may be no. For `cache` there are two layers in the cache."""
    kept = {"EMBCLI_CACHE_DIR": "cache"} if command.startswith("cache") else {}
    if kept:
        inside.ok("lookup", "--ids", "2", *TOY.split(), **kept)
    ran = inside(*command.split(), "-f", form, **kept)
    assert ran.status in (0, 1), ran
    return ran.out


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_json_document_has_these_keys_and_no_others(inside: Inside, command: str) -> None:
    out = told(inside, command, "json")
    jsonschema.validate(json.loads(out, parse_constant=pytest.fail), DOCUMENTS[command])


@pytest.mark.parametrize(
    "command", [each for each in DOCUMENTS if each not in (BATCH, "cache") and not each.startswith("compare --")]
)
def test_a_line_of_ndjson_is_a_row_of_the_document_with_its_vectors(inside: Inside, command: str) -> None:
    lines = [json.loads(line, parse_constant=pytest.fail) for line in told(inside, command, "ndjson").splitlines()]
    document = json.loads(told(inside, command, "json"))
    matrices, unit = document.pop("matrices", {}), [*DOCUMENTS[command]["properties"]]
    rows = document["tokens" if "tokens" in document else next(name for name in reversed(unit) if name in document)]
    vectors = [dict(zip(matrices, each, strict=True)) for each in zip(*matrices.values(), strict=True)]
    assert lines
    assert [line.pop("vectors", None) for line in lines] == (vectors or [None] * len(rows))
    assert lines == rows


def test_a_line_of_ndjson_is_a_whole_batch(inside: Inside) -> None:
    (line,) = told(inside, BATCH, "ndjson").splitlines()
    jsonschema.validate(json.loads(line), BATCH_LINE)


def test_every_verb_that_has_a_document_is_here() -> None:
    commands = typer.main.get_command(command_line()).commands
    assert {document.split()[0] for document in DOCUMENTS} == {*commands} - {"decode", "tour", "help", "explore"}


@pytest.mark.parametrize(("value", "causes"), [(1, 0), (np.inf, 0), (np.nan, 1), (-0.0, 0)])
def test_a_verdict_that_two_outputs_differ_has_the_same_keys(value: float, causes: int) -> None:
    left, right = np.zeros((1, 2), np.float32), np.array([[0, value]], np.float32)
    document = judge(left, right, weight=right).document()
    jsonschema.validate(document, strict(**OTHER))
    assert len(document["causes"]) == causes

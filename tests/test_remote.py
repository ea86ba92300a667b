"""Models of a hub: rows over the network are those on disk, and each fault ends in a sentence.

The hub is a server on this machine (tests/hub.py), and commands run in child processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from embcli.files.safetensors import header
from tests.files.made import closed
from tests.hub import LARGE, TOKEN, Answer, Fault, Hub
from tests.runners import InProcess
from tests.snapshots import Snapshot

ROWS = 3000
DIM = 256
GENERATOR = np.random.default_rng(7)
WORDS = [f"w{number}" for number in range(ROWS)]
TEXT = "w2999 w7 w1500 w8 w7"


def matrix(rows: int = ROWS, dim: int = DIM) -> np.ndarray:
    return GENERATOR.standard_normal((rows, dim), np.float32)


def bfloat16(rows: int = ROWS) -> np.ndarray:
    return matrix(rows).astype(ml_dtypes.bfloat16)


# --- twelve models --------------------------------------------------------------------------------


def tokenizer(folder: Path, count: int = ROWS) -> None:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS[:count])}, "w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))


def config(folder: Path, model: str, **settings: Any) -> None:
    settings = {"model_type": model, "hidden_size": DIM, **settings}
    (folder / "config.json").write_text(json.dumps(settings))


def safetensors(folder: Path, tensors: dict[str, np.ndarray], model: str = "llama", **rest: Any):
    save_file(tensors, folder / "model.safetensors")
    config(folder, model, **rest)
    tokenizer(folder)


def gpt2(folder: Path) -> None:
    safetensors(folder, {"wte.weight": matrix(), "wpe.weight": matrix(1024)}, "gpt2")


def sharded(folder: Path) -> None:
    shards = {
        "model-00001-of-00002.safetensors": {"model.embed_tokens.weight": bfloat16()},
        "model-00002-of-00002.safetensors": {
            "model.norm.weight": bfloat16(1)[0],
            "lm_head.weight": bfloat16(),
        },
    }
    names = {}
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
        names |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    config(folder, "llama", tie_word_embeddings=False)
    tokenizer(folder)


def tied(folder: Path) -> None:
    safetensors(folder, {"model.embed_tokens.weight": bfloat16()}, tie_word_embeddings=True)


def float16(folder: Path) -> None:
    safetensors(folder, {"model.embed_tokens.weight": matrix().astype(np.float16)}, "gemma")


def scaled(folder: Path) -> None:
    numbers = GENERATOR.integers(-127, 128, (ROWS, DIM)).astype(np.int8)
    tensors = {"weight": numbers, "weight_scale": matrix(ROWS, 1)}
    safetensors(folder, {f"model.embed_tokens.{name}": tensors[name] for name in tensors})


def blocks(folder: Path) -> None:
    numbers = matrix().astype(ml_dtypes.float8_e4m3fn)
    tensors = {"weight": numbers, "weight_scale_inv": matrix(-(-ROWS // 128), 2)}
    named = {f"model.embed_tokens.{name}": tensors[name] for name in tensors}
    quantised = {"weight_block_size": [128, 128]}
    safetensors(folder, named, quantization_config=quantised)


def mlx(folder: Path) -> None:
    tensors = {
        "weight": GENERATOR.integers(0, 2**32, (ROWS, DIM // 8), np.uint32),
        "scales": matrix(ROWS, DIM // 64).astype(np.float16),
        "biases": matrix(ROWS, DIM // 64).astype(np.float16),
    }
    named = {f"model.embed_tokens.{name}": tensors[name] for name in tensors}
    safetensors(folder, named, quantization={"bits": 4, "group_size": 64})


def static(folder: Path) -> None:
    tensors = {
        "embeddings": matrix(900),
        "mapping": GENERATOR.integers(0, 900, ROWS),
        "weights": GENERATOR.standard_normal(ROWS),
    }
    safetensors(folder, tensors, "model2vec")


def sentences(folder: Path) -> None:
    """A model of Sentence Transformers, whose module has a folder."""
    module = folder / "0_Transformer"
    module.mkdir()
    tensors = {
        "embeddings.word_embeddings.weight": matrix(),
        "embeddings.position_embeddings.weight": matrix(512),
        "embeddings.token_type_embeddings.weight": matrix(2),
        "embeddings.LayerNorm.weight": matrix(1)[0],
        "embeddings.LayerNorm.bias": matrix(1)[0],
    }
    safetensors(module, tensors, "bert", type_vocab_size=2)
    (folder / "modules.json").write_text(json.dumps([{"path": "0_Transformer"}]))


def long_header(folder: Path) -> None:
    """A model whose header is longer than what is read at first."""
    tensors = {f"model.layers.{n}.norm.weight": np.ones(2, np.float32) for n in range(4000)}
    safetensors(folder, {"model.embed_tokens.weight": bfloat16(), **tensors})


def writer(folder: Path, **kept: Any) -> GGUFWriter:
    made = GGUFWriter(folder / "m.gguf", "llama", **kept)
    made.add_tokenizer_model("llama")
    made.add_token_list([f"▁{word}" for word in WORDS])
    made.add_token_scores([float(-number) for number in range(ROWS)])
    made.add_token_types([1] * ROWS)
    return made


def q4_k(folder: Path) -> None:
    made = writer(folder)
    packed = GENERATOR.integers(0, 100, (ROWS, DIM // 256 * 144)).astype(np.uint8)
    made.add_tensor("token_embd.weight", packed, raw_dtype=GGMLQuantizationType.Q4_K)
    made.add_tensor("output_norm.weight", np.ones(DIM, np.float32))
    closed(made)


def parts(folder: Path) -> None:
    """A model of two GGUF files."""
    made = writer(folder, split_max_tensors=1)
    kind = GGMLQuantizationType.Q8_0
    made.add_tensor("token_embd.weight", quants.quantize(matrix(), kind), raw_dtype=kind)
    made.add_tensor("output.weight", matrix().astype(np.float16))
    closed(made)


MODELS = (
    *(gpt2, sharded, tied, float16, scaled, blocks, mlx, static, sentences, long_header),
    *(q4_k, parts),
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of the models by their names on the hub."""
    made = {}
    for make in MODELS:
        folder = tmp_path_factory.mktemp(make.__name__)
        make(folder)
        made[f"org/{make.__name__}"] = folder
    return made


@pytest.fixture
def hub(tmp_path: Path, folders: dict[str, Path]) -> Iterator[Hub]:
    with Hub(tmp_path / "home", dict(folders)) as hub:
        yield hub


def answer(hub: Hub, *words: str, **environment: str) -> Answer:
    (answer,) = hub.run([*words], **environment)
    return answer


def succeeded(answer: Answer) -> Answer:
    assert answer.status == 0, answer.err
    assert (answer.threads, answer.sockets, answer.parts) == (0, 0, [])
    return answer


ROWS_OF_BOTH = """
import sys, numpy, embcli
for name, folder in zip(sys.stdin.readline().split(), sys.stdin.readline().split()):
    far = embcli.open(f"hf://{name}")
    near = embcli.open(folder)
    ids = [2999, 0, 7, 8, 1500, 7]
    assert far.shape == near.shape
    assert far[ids].tobytes() == near[ids].tobytes(), name
    assert far.encoding.vocabulary_size == near.encoding.vocabulary_size
    text = "w2999 w7 w1500"
    far_lookup = far.lookup(text)
    near_lookup = near.lookup(text)
    for part in ("token", "input", "position", "hidden"):
        values = getattr(near_lookup, part, None)
        if values is not None:
            assert getattr(far_lookup, part).tobytes() == values.tobytes(), (name, part)
    print(name, far.shape)
"""


def test_rows_are_those_of_the_file_on_disk(hub: Hub) -> None:
    names = " ".join(hub.models)
    paths = " ".join(map(str, hub.models.values()))
    printed = hub.python(ROWS_OF_BOTH, f"{names}\n{paths}\n")
    assert len(printed.splitlines()) == 12
    # Rows come in ranges: of no file was much more read than its header.
    for name in hub.models:
        folder = str(hub.models[name])
        assert [asked for asked in hub.ranges() if asked.path.startswith(folder)]
    whole = {Path(asked.path).name for asked in hub.asked if not asked.range}
    assert not [name for name in whole if "safetensors?" in name or "gguf?" in name]


COMMANDS = [
    ["lookup", TEXT],
    ["weights", "--rows", "0:3,2990"],
    ["weights", "--rows", "5:9", "-f", "json"],
    ["weights", "--sort", "norm"],
    ["weights", "-f", "csv", "--columns", "0:3"],
    ["compare", "w7 w8", "--show", "ids"],
    ["neighbors", "w7", "--top", "3"],
    ["neighbors", "w7", "--rows", "0:500"],
]


def test_commands_answer_as_on_disk(hub: Hub, in_process: InProcess) -> None:
    name = "hf://org/gpt2"
    folder = str(hub.models["org/gpt2"])
    lines = [
        *([*words, "--from"] for words in COMMANDS),
        ["audit"],
        ["positions"],
        ["info", "--tensors"],
        ["diff", folder],
        ["tokenize", TEXT, "--encoding"],
        ["decode", "7", "8", "--encoding"],
    ]
    far = hub.run(*([*words, name] for words in lines))
    for words, found in zip(lines, far, strict=True):
        near = in_process(*words, folder)
        assert found.status == near.status, found.err
        named = found.out.replace(name, folder)
        assert rounded(named) == rounded(near.text), words


def rounded(page: str) -> str:
    """Return a page without what differs from run to run, and without the lines of padding."""
    kept = [line for line in page.splitlines() if " the time" not in line]
    return "\n".join(line.rstrip() for line in kept)


def test_a_gguf_s_vocabulary_is_an_encoding(hub: Hub, in_process: InProcess) -> None:
    name = "hf://org/q4_k"
    words = succeeded(answer(hub, "tokenize", "w7 w8", "--encoding", f"{name}/m.gguf", "-f", "ids"))
    path = str(hub.models["org/q4_k"] / "m.gguf")
    near = in_process("tokenize", "w7 w8", "--encoding", path, "-f", "ids")
    assert words.out == near.text
    page = succeeded(answer(hub, "info", name))
    assert f"encoding: {name}/m.gguf" in page.out


# --- how much is read -----------------------------------------------------------------------------


def large(folder: Path, rows: int = 128_256, dim: int = 4096) -> Path:
    """Make a sparse model of two shards, 1 GB each."""
    shards = {
        "model-00001-of-00002.safetensors": "model.embed_tokens.weight",
        "model-00002-of-00002.safetensors": "lm_head.weight",
    }
    for file, tensor in shards.items():
        start = header({tensor: ("bfloat16", (rows, dim))}, {})
        with open(folder / file, "wb") as stream:
            stream.write(start)
            for row in (0, 7, 100, 1500, rows - 1):
                stream.seek(len(start) + 2 * row * dim)
                stream.write(bfloat16(2).tobytes()[: 2 * dim])
            stream.truncate(len(start) + 2 * rows * dim)
    names = {tensor: file for file, tensor in shards.items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    config(folder, "llama", hidden_size=dim, tie_word_embeddings=False)
    tokenizer(folder)
    return folder


@pytest.fixture
def llama(hub: Hub, tmp_path: Path) -> str:
    folder = tmp_path / "llama"
    folder.mkdir()
    hub.models["org/llama"] = large(folder)
    return "hf://org/llama"


def weights_read(hub: Hub) -> int:
    """Return how many bytes the storage has sent of files of weights."""
    return sum(asked.sent for asked in hub.ranges())


def test_five_tokens_of_a_large_model_are_a_few_ranges(hub: Hub, llama: str) -> None:
    line = ["lookup", "w7 w100 w1500 w800 w2500", "-f", "json", "--from", llama]
    found = succeeded(answer(hub, *line))
    vectors = np.array(json.loads(found.out)["matrices"]["token"], np.float32)
    assert vectors.shape == (5, 4096)
    assert vectors[:3].any(axis=1).all()
    assert not vectors[3:].any()
    assert len(hub.ranges()) <= 8
    assert weights_read(hub) <= 400_000

    # The second time, the headers and all small files are here.
    hub.asked.clear()
    assert succeeded(answer(hub, *line)).out == found.out
    assert len(hub.ranges()) <= 5
    assert weights_read(hub) <= 5 * 8192 + 16_384
    assert {asked.path.split("?")[0] for asked in hub.asked if asked.host == "hub"} == {
        "/api/models/org/llama",
        f"/org/llama/resolve/{hub.commit('org/llama')}/model-00001-of-00002.safetensors",
    }


def test_rows_near_each_other_are_one_range(hub: Hub) -> None:
    line = ["lookup", "--position", "none", "--from", "hf://org/gpt2", "--ids"]
    succeeded(answer(hub, *line, "1500,1510,1520"))
    _, rows = hub.ranges()
    assert rows.sent == 21 * 4 * DIM
    hub.asked.clear()
    succeeded(answer(hub, *line, "1500,1530"))
    assert len(hub.ranges()) == 2


WHOLE = """
import sys, embcli
folder, name = sys.stdin.read().split()
near = embcli.open(folder)
far = embcli.open(name)
assert far.weights().token.tobytes() == near.weights().token.tobytes()
assert far.audit().faults == near.audit().faults
"""


def test_a_whole_matrix_is_read_in_parts_and_once(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "wide"
    folder.mkdir()
    save_file({"wte.weight": matrix(20_000)}, folder / "model.safetensors")
    hub.models["org/wide"] = folder
    hub.python(WHOLE, f"{folder} hf://org/wide")
    size = (folder / "model.safetensors").stat().st_size
    assert [asked.sent for asked in hub.ranges()].count(1 << 23) == 2
    assert weights_read(hub) <= size + (1 << 17)


WHOLE_BY_NAME = """
import sys, embcli
for name in sys.stdin.read().split():
    folder, name = name.split("=")
    far = embcli.open(name).weights().token
    assert far.tobytes() == embcli.open(folder).weights().token.tobytes(), name
"""


def test_of_a_matrix_in_several_tensors_each_is_read_once(hub: Hub) -> None:
    tensors = {"scaled": 2, "blocks": 2, "mlx": 3, "static": 3, "q4_k": 1}
    names = {f"org/{name}": name for name in tensors}
    hub.python(WHOLE_BY_NAME, " ".join(f"{hub.models[name]}=hf://{name}" for name in names))
    for name, short in names.items():
        path = str(hub.models[name])
        asked = [asked for asked in hub.ranges() if asked.path.startswith(f"{path}/")]
        header = 1
        assert len(asked) <= header + tensors[short] + (short == "q4_k"), name


def test_a_page_of_weights_reads_its_rows(hub: Hub, llama: str) -> None:
    page = succeeded(answer(hub, "weights", "--from", llama))
    assert "128,256" in page.out
    assert weights_read(hub) <= 500_000


def test_info_compares_few_rows_of_a_large_head(hub: Hub, llama: str) -> None:
    page = succeeded(answer(hub, "info", llama))
    assert "another tensor (not tied)" in page.out
    assert weights_read(hub) <= 500_000


def test_what_needs_a_large_matrix_is_refused_before_it_is_read(hub: Hub, llama: str) -> None:
    lines = [
        ["audit"],
        ["neighbors", "w7", "--from"],
        ["weights", "--sort", "norm", "--from"],
        ["weights", "-f", "npy", "-o", "rows.npy", "--from"],
        ["compare", "w7", "--from"],
        ["diff", "hf://org/llama"],
    ]
    for refused in hub.run(*([*words, llama] for words in lines)):
        assert refused.status == 2
        assert refused.out == ""
        *_, reason, cure = refused.err.splitlines()
        assert "at most 256.0 MB over the network" in reason
        assert cure == "hf download org/llama; then the same command with org/llama"
    assert weights_read(hub) <= 700_000  # headers, and some rows of the head


# --- what stays at home ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_in_file", [False, True])
def test_the_token_goes_to_the_hub_and_no_further(hub: Hub, is_in_file: bool) -> None:
    line = ["lookup", TEXT, "--from", "hf://org/gpt2"]
    if is_in_file:  # as hf auth login keeps it
        (hub.home / "hf").mkdir(parents=True)
        (hub.home / "hf/token").write_text(TOKEN)
        succeeded(answer(hub, *line))
    else:
        succeeded(answer(hub, *line, HF_TOKEN=TOKEN))
    tokens = {asked.host: set() for asked in hub.asked}
    for asked in hub.asked:
        if asked.path != "/api/agent-harnesses":
            tokens[asked.host].add(asked.token)
    assert tokens == {"hub": {f"Bearer {TOKEN}"}, "storage": {""}}


def test_offline_only_the_cache_is_read(hub: Hub) -> None:
    line = ["info", "hf://org/gpt2"]
    refused = answer(hub, *line, HF_HUB_OFFLINE="1")
    assert refused.status == 2
    assert "org/gpt2" in refused.err
    shutil.copytree(hub.models["org/gpt2"], hub.snapshot("org/gpt2"))
    refs = hub.snapshot("org/gpt2").parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text(hub.commit("org/gpt2"))
    succeeded(answer(hub, *line, HF_HUB_OFFLINE="1"))
    words = succeeded(
        answer(hub, "tokenize", "w7", "--encoding", "hf://org/gpt2", HF_HUB_OFFLINE="1")
    )
    assert "w7" in words.out
    assert not hub.asked


def test_files_of_the_cache_are_not_asked_for(hub: Hub) -> None:
    shutil.copytree(hub.models["org/sharded"], hub.snapshot("org/sharded"))
    succeeded(answer(hub, "lookup", TEXT, "--from", "hf://org/sharded"))
    assert {asked.path.split("?")[0] for asked in hub.asked} <= {
        "/api/models/org/sharded",
        "/api/agent-harnesses",
    }


def test_downloads_of_others_are_left_alone(hub: Hub) -> None:
    """Our hooks are for requests of ours: huggingface_hub still retries for others."""
    code = """
import embcli, huggingface_hub
embcli.open("hf://org/tied")
print(huggingface_hub.hf_hub_download("org/gpt2", "config.json"))
"""
    hub.faults.append(Fault("/org/gpt2/resolve", 500, times=2))
    assert "config.json" in hub.python(code)


# --- faults ---------------------------------------------------------------------------------------

HEADER = "model.safetensors"
FAULTS = {
    "401": Fault("/api/models", 401),
    "403 gated, the files": Fault("/resolve/", "gated"),
    "403 gated": Fault("/api/models", "gated"),
    "403": Fault("/resolve/", 403),
    "404": Fault("/resolve/", 404),
    "429": Fault("/api/models", 429),
    "429 of a small file": Fault("config.json", 429),
    "429 of its bytes": Fault("tokenizer.json", 429, "storage"),
    "500": Fault("/api/models", 500),
    "500 of a small file": Fault("config.json", 500),
    "500 of weights": Fault(HEADER, 500, "storage"),
    "cut": Fault(HEADER, "cut", "storage"),
    "a small file is cut": Fault("tokenizer.json", "cut", "storage"),
    "ranges ignored": Fault(HEADER, "whole", "storage"),
    "another range": Fault(HEADER, "other", "storage"),
    "no hub": Fault("/api/models", "html"),
    "silent": Fault("/", "silent"),
    "silent about a small file": Fault("config.json", "silent"),
    "silent storage": Fault(HEADER, "silent", "storage"),
}


def test_each_fault_ends_in_a_sentence(
    tmp_path: Path, folders: dict[str, Path], snapshot: Snapshot
) -> None:
    def told(name: str) -> str:
        fault = FAULTS[name]
        with Hub(tmp_path / name, dict(folders), faults=[fault]) as hub:
            refused = answer(hub, "lookup", TEXT, "--from", "hf://org/gpt2", HF_TOKEN=TOKEN)
        assert refused.status == 2, (name, refused)
        assert (refused.threads, refused.sockets, refused.parts) == (0, 0, []), name
        assert weights_read(hub) < 700_000, name
        assert all(not asked.token for asked in hub.asked if asked.host == "storage")
        return f"# {name}\n{told_of(hub, refused)}\n{tries(hub, fault)}\n"

    # Most of them take time, and no processor.
    with ThreadPoolExecutor(6) as pool:
        snapshot("remote.txt", "\n".join(pool.map(told, FAULTS)))


def test_a_hub_that_is_not_there_is_told(hub: Hub) -> None:
    refused = answer(hub, "info", "hf://org/gpt2", HF_ENDPOINT="http://127.0.0.1:9")
    assert refused.status == 2
    assert "no answer from 127.0.0.1 (" in refused.err


def told_of(hub: Hub, refused: Answer) -> str:
    """Return the error of a command, without its notes and the ports of the hub."""
    lines = refused.err.splitlines()
    notes = ("embcli: reading", "embcli: downloading")
    error = [line for line in lines if not line.startswith(notes)]
    assert 1 <= len(error) <= 2
    text = "\n".join(error)
    return text.replace(hub.url, "http://HUB").replace(hub.url.removeprefix("http://"), "HUB")


def tries(hub: Hub, fault: Fault) -> str:
    """Return how often a request with a fault was sent, the one that was sent most often."""
    met = [
        (asked.method, asked.path, asked.range)
        for asked in hub.asked
        if fault.path in asked.path and asked.host == fault.host and "agent" not in asked.path
    ]
    count = max(map(met.count, met))
    return "1 request" if count == 1 else f"{count} requests"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "faults",
    [
        [
            Fault("/api/models", 500),
            Fault("config.json", 429),
            Fault("tokenizer.json", "cut", "storage"),
            Fault(HEADER, 503, "storage"),
        ],
        [Fault(HEADER, "cut", "storage")],
    ],
    ids=["each request", "a cut header"],
)
def test_a_brief_fault_is_followed_by_another_try(
    hub: Hub, faults: list[Fault], times: int
) -> None:
    for fault in faults:
        hub.faults.append(replace(fault, times=times))
    succeeded(answer(hub, "lookup", TEXT, "--from", "hf://org/gpt2"))
    assert [fault.times for fault in hub.faults] == [0] * len(faults)


def test_names_that_are_refused(hub: Hub, snapshot: Snapshot, tmp_path: Path) -> None:
    folder = tmp_path / "pickles"
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(200_000))
    hub.models["org/pickles"] = folder
    lines = [
        ["info", "hf://gpt2"],
        ["info", "hf://bert-base-cased@main"],
        ["info", "hf://nothing"],
        ["info", "hf://"],
        ["info", "hf://org//name"],
        ["info", "hf://datasets/org/name"],
        ["info", "hf://org/none"],
        ["info", "hf://org/gpt2@none"],
        ["info", "hf://org/gpt2/none.gguf"],
        ["info", "hf://org/gpt2/../none.gguf"],
        ["info", "hf://org/pickles"],
        ["tokenize", "x", "--encoding", "hf://org/pickles"],
        ["tokenize", "x", "--encoding", "hf://org/gpt2/model.safetensors"],
        ["explore", "hf://org/gpt2"],
    ]
    told = []
    for line, refused in zip(lines, hub.run(*lines), strict=True):
        assert refused.status == 2, refused
        told.append(f"$ embcli {' '.join(line)}\n{told_of(hub, refused)}\n")
    snapshot("remote-names.txt", "\n".join(told))


def test_a_revision_is_part_of_the_name(hub: Hub) -> None:
    found = succeeded(answer(hub, "info", "hf://org/gpt2@v1/model.safetensors"))
    assert "hf://org/gpt2@v1/model.safetensors" in found.out
    assert f"commit {hub.commit('org/gpt2')[:7]}" in found.err


def test_large_files_are_those_that_the_storage_has() -> None:
    assert {".safetensors", ".gguf"} <= {*LARGE}

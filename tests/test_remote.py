"""Models of a hub: rows over the network are those on disk, and each fault ends in a sentence.

The hub is a server on this machine (tests/hub.py), and commands run in a child process.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
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
from tests.cases import data
from tests.files.made import PLAIN, closed, numbered
from tests.hub import TOKEN, Answer, Child, Fault, Hub
from tests.transcripts import answered

ROWS = 3000
DIM = 256
GENERATOR = np.random.default_rng(7)
WORDS = [f"w{number}" for number in range(ROWS)]
DATA = data(__name__)  # command lines without the name of a model, and what `Fault` takes
TEXT = "w2999 w7 w1500 w8 w7"


def matrix(rows: int = ROWS, dim: int = DIM) -> np.ndarray:
    return GENERATOR.standard_normal((rows, dim), np.float32) + np.float32(0.5)


def bfloat16(rows: int = ROWS) -> np.ndarray:
    return matrix(rows).astype(ml_dtypes.bfloat16)


# --- seven models ---------------------------------------------------------------------------------


def tokenizer(folder: Path, count: int = ROWS) -> None:
    words = Tokenizer(models.WordLevel(numbered(WORDS[:count]), "w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(PLAIN))


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


def scaled(folder: Path) -> None:
    numbers = GENERATOR.integers(-127, 128, (ROWS, DIM)).astype(np.int8)
    tensors = {"weight": numbers, "weight_scale": matrix(ROWS, 1)}
    safetensors(folder, {f"model.embed_tokens.{name}": tensors[name] for name in tensors})


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


MODELS = (gpt2, sharded, scaled, sentences, long_header, q4_k, parts)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Yield a hub with all models, and the process that asks it."""
    models = {}
    for make in MODELS:
        folder = tmp_path_factory.mktemp(make.__name__)
        make(folder)
        models[f"org/{make.__name__}"] = folder
    with Hub(tmp_path_factory.mktemp("home"), models) as hub:
        yield hub


@pytest.fixture
def hub(served: Hub) -> Iterator[Hub]:
    """Yield the hub, of which nothing was asked yet; it is asked only about models of tests."""
    served.begin()
    yield served
    asked = [asked.path for asked in served.asked if asked.host == "hub"]
    assert not [path for path in asked if not path.startswith(("/api/models/org/", "/org/"))]


def succeeded(answer: Answer) -> Answer:
    assert answer.status == 0, answer.err
    assert (answer.threads, answer.sockets, answer.parts) == (0, 0, [])
    return answer


ROWS_OF_BOTH = """
import embcli
for name, folder in models.items():
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


def paths_of(models: dict[str, Path]) -> dict[str, str]:
    return {name: str(folder) for name, folder in models.items()}


def test_rows_are_those_of_the_file_on_disk(hub):
    printed = hub.child.python(ROWS_OF_BOTH, models=paths_of(hub.models))
    assert len(printed.splitlines()) == len(MODELS)
    # Rows come in ranges: of no file was much more read than its header.
    for name in hub.models:
        folder = str(hub.models[name])
        assert [asked for asked in hub.ranges() if asked.path.startswith(folder)]
    whole = {Path(asked.path).name for asked in hub.asked if not asked.range}
    assert not [name for name in whole if "safetensors?" in name or "gguf?" in name]


def test_commands_answer_as_on_disk(hub):
    name = "hf://org/gpt2"
    folder = str(hub.models["org/gpt2"])
    for words in [*DATA["commands"], ["diff", folder]]:
        found = hub.run(*words, name)
        near = hub.run(*words, folder)
        assert found.status == near.status, found.err
        named = found.out.replace(name, folder)
        # Only on disk are the other tensors read.
        named = re.sub(r"; not checked: .*such\s+as\s+[\w.]+", "", named, flags=re.DOTALL)
        assert words_of(named) == words_of(near.out), words


# Nobody is asked about these weights, for different reasons.
NOT_ASKED = (
    "; transformers was not asked: the weights are remote",
    "; transformers was not asked: the file has no layers",
)


def words_of(page: str) -> list[str]:
    """Return a page without what depends on where the model is."""
    joined = " ".join(page.split())
    for reason in NOT_ASKED:
        joined = joined.replace(reason, "")
    return joined.split()


def test_all_that_is_read_beside_the_weights_is_brought(hub, tmp_path):
    gpt2(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5000}')
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/config.json").write_text("{}")
    hub.models["org/beside"] = tmp_path
    far = hub.run("audit", "hf://org/beside")
    assert far.status == hub.run("audit", str(tmp_path)).status == 1
    assert "eos 5000 of generation_config.json" in far.out
    # They are in the cache as huggingface_hub finds it.
    code = "import huggingface_hub as h; print(h.try_to_load_from_cache(*words))"
    words = ["org/beside", "generation_config.json", None, hub.commit("org/beside")]
    path = Path(hub.child.python(code, words=words).strip())
    assert path.read_text() == '{"eos_token_id": 5000}'
    assert not (path.parent / "onnx").exists()


def test_a_gguf_s_vocabulary_is_an_encoding(hub):
    name = "hf://org/q4_k"
    line = ["tokenize", "w7 w8", "-f", "ids", "--encoding"]
    words = succeeded(hub.run(*line, f"{name}/m.gguf"))
    assert words.out == hub.run(*line, str(hub.models["org/q4_k"] / "m.gguf")).out
    page = succeeded(hub.run("info", name))
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


def test_five_tokens_of_a_large_model_are_a_few_ranges(hub, llama):
    line = ["lookup", "w7 w100 w1500 w800 w2500", "-f", "json", "--from", llama]
    hub.delay = 0.08
    found = succeeded(hub.run(*line))
    assert found.seconds < 2.5
    hub.delay = 0
    vectors = np.array(json.loads(found.out)["matrices"]["token"], np.float32)
    assert vectors.shape == (5, 4096)
    assert vectors[:3].any(axis=1).all()
    assert not vectors[3:].any()
    assert len(hub.ranges()) <= 8
    assert weights_read(hub) <= 400_000

    # The second time, all small files are here.
    hub.asked.clear()
    assert succeeded(hub.run(*line)).out == found.out
    files = {Path(asked.path.split("?")[0]).suffix for asked in hub.asked if asked.host == "hub"}
    assert files == {"", ".safetensors"}  # the description, and weights


WHOLE_BY_NAME = """
import embcli
for name, folder in models.items():
    far = embcli.open(f"hf://{name}").weights().token
    assert far.tobytes() == embcli.open(folder).weights().token.tobytes(), name
"""


def test_of_a_matrix_in_several_tensors_each_is_read_once(hub):
    tensors = {"org/scaled": 2, "org/q4_k": 1}
    models = {name: hub.models[name] for name in tensors}
    hub.child.python(WHOLE_BY_NAME, models=paths_of(models))
    for name, folder in models.items():
        asked = [asked for asked in hub.ranges() if asked.path.startswith(f"{folder}/")]
        header = 1
        assert len(asked) <= header + tensors[name] + (name == "org/q4_k"), name


def test_what_is_said_of_a_copied_head_names_the_rows_that_were_compared(hub, tmp_path):
    rows = matrix()
    tensors = {"model.embed_tokens.weight": rows, "lm_head.weight": rows}
    safetensors(tmp_path, tensors, tie_word_embeddings=False)
    hub.models["org/copied"] = tmp_path
    page = succeeded(hub.run("info", "hf://org/copied"))
    assert "a copy of the token matrix: 8 of 3,000 rows compared, all equal" in page.out
    page = succeeded(hub.run("audit", "hf://org/copied", "--layer", "token", "--width", "200"))
    assert "not checked: 1 other tensor" in page.out
    page = succeeded(hub.run("audit", "hf://org/copied"))
    assert "a copy of the token matrix: all rows are equal" in page.out
    assert "rows compared" not in page.out


def test_other_shards_are_not_read_and_named_as_not_checked(hub, tmp_path):
    sharded(tmp_path)
    hub.models["org/parts"] = tmp_path
    page = succeeded(hub.run("audit", "hf://org/parts", "--layer", "token", "--width", "200"))
    assert "not checked: the shards of other tensors; 2 other tensors" in page.out
    page = succeeded(hub.run("audit", str(tmp_path), "--layer", "token", "--width", "200"))
    assert "not checked" not in page.out


def test_what_needs_a_large_matrix_is_refused_before_it_is_read(hub, llama):
    for words in DATA["commands that need all rows"]:
        refused = hub.run(*words, llama)
        assert refused.status == 2, words
        assert refused.out == ""
        *_, reason, cure = refused.err.splitlines()
        assert "at most 256.0 MB over the network" in reason
        assert cure == "hf download hf://org/llama; then the same command with org/llama"
    assert weights_read(hub) <= 3_000_000  # headers, and some rows of the head


# --- what stays at home ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_in_file", [False, True])
def test_the_token_goes_to_the_hub_and_no_further(hub, is_in_file):
    line = ["lookup", TEXT, "--from", "hf://org/gpt2"]
    if is_in_file:  # as hf auth login keeps it
        (hub.home / "hf").mkdir(parents=True, exist_ok=True)
        (hub.home / "hf/token").write_text(TOKEN)
        succeeded(hub.run(*line))
    else:
        succeeded(hub.run(*line, HF_TOKEN=TOKEN))
    tokens = {asked.host: set() for asked in hub.asked}
    for asked in hub.asked:
        tokens[asked.host].add(asked.token)
    assert tokens == {"hub": {f"Bearer {TOKEN}"}, "storage": {""}}


def test_offline_only_the_cache_is_read(hub):
    line = ["info", "hf://org/gpt2"]
    with Child(hub.home, hub.url, HF_HUB_OFFLINE="1") as child:
        refused = child.run(*line)
        assert refused.status == 2
        assert "org/gpt2" in refused.err
        shutil.copytree(hub.models["org/gpt2"], hub.snapshot("org/gpt2"))
        refs = hub.snapshot("org/gpt2").parents[1] / "refs"
        refs.mkdir()
        (refs / "main").write_text(hub.commit("org/gpt2"))
        succeeded(child.run(*line))
        words = succeeded(child.run("tokenize", "w7", "--encoding", "hf://org/gpt2"))
        succeeded(child.run("info", "hf://org/gpt2/model.safetensors"))
    assert "w7" in words.out
    assert not hub.asked


def test_files_of_the_cache_are_not_asked_for(hub):
    shutil.copytree(hub.models["org/sharded"], hub.snapshot("org/sharded"))
    succeeded(hub.run("lookup", TEXT, "--from", "hf://org/sharded"))
    assert {asked.path.split("?")[0] for asked in hub.asked} == {"/api/models/org/sharded"}


# --- faults ---------------------------------------------------------------------------------------

HEADER = "model.safetensors"
IMPATIENT = """
from embcli.hub import session
session.TIMEOUT = seconds
session.PATIENCE = 2 * seconds
session._LONGEST_START = start
session._MOST["bytes of settings"] = settings
"""


def test_each_fault_ends_in_a_sentence(hub, snapshot):
    told = []
    for name, values in DATA["faults"].items():
        fault = Fault(*values)
        hub.begin(fault)
        if fault.kind in ("silent", "slow", "trickle"):
            hub.child.python(IMPATIENT, seconds=0.3, start=180, settings=32_000_000)
        refused = hub.run("lookup", TEXT, "--from", "hf://org/gpt2", HF_TOKEN=TOKEN)
        hub.child.python(IMPATIENT, seconds=5, start=180, settings=32_000_000)
        assert refused.status == 2, (name, refused)
        assert (refused.threads, refused.sockets, refused.parts) == (0, 0, []), name
        assert weights_read(hub) < 700_000, name
        assert all(not asked.token for asked in hub.asked if asked.host == "storage")
        told.append(f"# {name}\n{told_of(hub, refused)}\n{tries(hub, fault)}\n")
    snapshot("remote.txt", "\n".join(told))


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
        if fault.path in asked.path and asked.host == fault.host
    ]
    count = max(map(met.count, met))
    return "1 request" if count == 1 else f"{count} requests"


def test_what_stands_before_the_rows_has_an_end(hub, tmp_path):
    line = ["lookup", "w7", "--from"]
    hub.delay = 0.5
    hub.child.python(IMPATIENT, seconds=5, start=1, settings=32_000_000)
    late = hub.run(*line, "hf://org/gpt2")
    hub.child.python(IMPATIENT, seconds=5, start=180, settings=32_000_000)
    assert "its files take more than 1 seconds" in late.err

    hub.begin()
    hub.models["org/many"] = tmp_path
    modules = [{"path": "."}, {"path": "./"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert "no file of weights" in hub.run(*line, "hf://org/many").err
    with open(tmp_path / "config.json", "wb") as settings:
        settings.truncate(33_000_000)
    assert "more than 32,000,000 bytes of settings" in hub.run(*line, "hf://org/many").err
    for number in range(501):
        (tmp_path / f"{number}.tiktoken").touch()
    (tmp_path / "config.json").unlink()
    assert "more than 500 requests" in hub.run(*line, "hf://org/many").err
    hub.child.python(IMPATIENT, seconds=5, start=180, settings=1000)
    long = hub.run(*line, "hf://org/many")
    hub.child.python(IMPATIENT, seconds=5, start=180, settings=32_000_000)
    assert "127.0.0.1 sends more than 1.0 kB" in long.err
    assert sum(asked.sent for asked in hub.asked) < 200_000


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
def test_a_brief_fault_is_followed_by_another_try(hub, faults, times):
    hub.begin(*(replace(fault, times=times) for fault in faults))
    succeeded(hub.run("lookup", TEXT, "--from", "hf://org/gpt2"))
    assert [fault.times for fault in hub.faults] == [0] * len(faults)


def test_names_that_are_refused(hub, snapshot, tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(200_000))
    hub.models["org/pickles"] = tmp_path

    def answer(words: list[str]) -> str:
        refused = hub.run(*words)
        assert refused.status == 2, refused
        return f"{told_of(hub, refused)}\n"

    snapshot("remote-names.txt", answered("remote-names.txt", answer))


def test_a_revision_is_part_of_the_name(hub):
    found = succeeded(hub.run("info", "hf://org/gpt2@v1/model.safetensors"))
    assert "hf://org/gpt2@v1/model.safetensors" in found.out
    assert f"commit {hub.commit('org/gpt2')[:7]}" in found.err

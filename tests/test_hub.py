"""A path, a folder or a model's name leads to the file that is meant, without a network, or to a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from embcli.errors import InputError
from embcli.hub import cache_folder, located, model_file
from tests.runners import InProcess
from tests.test_vocabularies import pieces

MAIN, OTHER = "0" * 39 + "a", "1" * 39 + "b"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Hugging Face cache with two revisions of org/name, one of gpt2, and two models of one name."""
    for name in ("HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    for name in ("org--name", "gpt2", "one--same", "two--same", "org--lonely"):
        folder = cache / f"models--{name}"
        for commit in (MAIN, OTHER):
            (folder / "snapshots" / commit).mkdir(parents=True)
            (folder / "snapshots" / commit / "model.safetensors").touch()
        (folder / "refs/pr").mkdir(parents=True)
        (folder / "refs/main").write_text(MAIN)
        (folder / "refs/pr/1").write_text(OTHER)
    monkeypatch.chdir(tmp_path)
    return cache


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("org/name", f"models--org--name/snapshots/{MAIN}"),
        ("org/name@main", f"models--org--name/snapshots/{MAIN}"),
        ("org/name@pr/1", f"models--org--name/snapshots/{OTHER}"),
        (f"org/name@{OTHER}", f"models--org--name/snapshots/{OTHER}"),
        (f"org/name@{OTHER[:7]}", f"models--org--name/snapshots/{OTHER}"),
        ("gpt2", f"models--gpt2/snapshots/{MAIN}"),
        ("lonely", f"models--org--lonely/snapshots/{MAIN}"),
    ],
)
def test_a_model_is_found_in_the_cache(cache: Path, name: str, found: str) -> None:
    assert located(name) == cache / found / "model.safetensors"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("same", "2 models 'same': one/same, two/same"),
        ("org/none", "a folder or in the Hugging Face cache"),
        ("none", "a folder or in the Hugging Face cache"),
        ("org/name@none", "not its revision 'none'; it has @000000000000..., @111"),
        ("org/name@1", "not its revision '1'"),
        ("org/name@../../x", "not a name like"),
        ("org/name@pr/../../x", "not a name like"),
        ("../org/name", "not a name like"),
        ("a/b/c", "not a name like"),
        ("", "not a name like"),
        ("\x1b[2J", r"'\\x1b\[2J' not found"),
        ("a\0b", "not a name like"),
        ("x" * 10_000, "not a name like"),
        ("~nobody/x", "not a name like"),
        ("/nowhere/at/all", "not a name like"),
    ],
)
def test_what_is_neither_path_nor_model_is_refused(cache: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        located(name)


def test_a_cache_whose_name_is_too_long_is_a_sentence(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/x" * 2500)
    with pytest.raises(InputError, match=r"cannot read 'org/name': File name too long"):
        located("org/name")


def test_a_short_revision_that_two_share_and_a_ref_that_leads_out_of_the_cache_are_refused(
    cache: Path,
) -> None:
    (cache / "models--org--name/snapshots" / ("0" * 40)).mkdir()
    (cache / "models--org--name/refs/main").write_text("../../../../etc")
    for revision in ("0000000", "main"):
        with pytest.raises(InputError, match=f"not its revision '{revision}'"):
            located(f"org/name@{revision}")


def test_an_existing_path_comes_first(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "org").mkdir()
    (tmp_path / "org/name").touch()
    assert located("org/name") == Path("org/name")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/c", "HF_HOME": "/b"}, "/c"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"HF_HOME": "$HOME/b"}, "/home/me/b/hub"),
        ({"HF_HOME": "~/b"}, "/home/me/b/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({}, "/home/me/.cache/huggingface/hub"),
    ],
)
def test_the_folder_of_the_cache_is_that_of_its_own_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (
            ["model.safetensors", "pytorch_model.bin", "model.fp16.safetensors", "tf_model.h5"],
            "model.safetensors",
        ),
        (
            [
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
                "model.safetensors.index.json",
            ],
            "model.safetensors.index.json",
        ),
        (["pytorch_model.bin", "training_args.bin", "optimizer.pt"], "pytorch_model.bin"),
        (["pytorch_model-1.bin", "pytorch_model.bin.index.json"], "pytorch_model.bin.index.json"),
        (["consolidated.safetensors", "tokenizer.json"], "consolidated.safetensors"),
        (["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"], "a-00001-of-00002.gguf"),
        (["own.npz", "notes.txt"], "own.npz"),
    ],
)
def test_the_file_of_a_folder_is_the_model(tmp_path: Path, files: list[str], chosen: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert model_file(tmp_path) == located(str(tmp_path)) == tmp_path / chosen


def test_a_folder_with_several_models_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file of weights"):
        model_file(tmp_path)
    for number in range(8):
        (tmp_path / f"{number}\x1b.gguf").touch()
    with pytest.raises(
        InputError, match=r"8 candidate files: '0\\x1b.gguf', .*, \.\.\.; choose one"
    ):
        model_file(tmp_path)


# --- models of Ollama ---------------------------------------------------------------------------------------------

DIGEST, OTHER_DIGEST = "a" * 64, "b" * 64
LAYER = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{DIGEST}", "size": 1}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without any models."""
    for name in ("OLLAMA_MODELS", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def put(path: Path, content: object = None) -> Path:
    """Write JSON, or else a small GGUF."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pieces(path) if content is None else path.write_text(json.dumps(content))
    return path


def of_ollama(
    folder: Path, name: str = "registry.ollama.ai/library/llama3.2/latest", **manifest: object
) -> Path:
    put(folder / "manifests" / name, {"layers": [{"mediaType": "x"}, LAYER], **manifest})
    blob = folder / f"blobs/sha256-{DIGEST}"
    return blob if blob.exists() else put(blob)


def test_a_model_of_ollama_is_found_by_its_manifest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = of_ollama(home / ".ollama/models")
    for name in (
        "llama3.2",
        "llama3.2:latest",
        "library/llama3.2",
        "registry.ollama.ai/library/llama3.2:latest",
    ):
        assert located(f"ollama:{name}") == blob
    of_ollama(home / ".ollama/models", "hf.co/org/name/Q4_K_M")
    assert located("ollama:hf.co/org/name:Q4_K_M") == blob
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    newer = home / "elsewhere/manifests-v2/ollama.com/library/qwen/1b"
    child = {"digest": f"sha256:{OTHER_DIGEST}", "runner": "ggml"}
    put(home / f"elsewhere/blobs/sha256-{OTHER_DIGEST}", {"layers": [LAYER]})
    listed = put(
        home / "elsewhere/blobs/list", {"manifests": [{"digest": "x", "runner": "mlx"}, child]}
    )
    newer.parent.mkdir(parents=True)
    newer.symlink_to(listed)
    blob = put(home / f"elsewhere/blobs/sha256-{DIGEST}")
    assert located("ollama:qwen:1b") == blob
    with pytest.raises(
        InputError, match=r"'llama3.2' not found in Ollama's .*elsewhere.*run ollama pull llama3.2"
    ):
        located("ollama:llama3.2")


@pytest.mark.parametrize("folder", ["localhost:5000", "localhost%3A5000"])
def test_a_host_with_a_port_is_found_and_listed_in_either_spelling(
    in_process: InProcess, home: Path, folder: str
) -> None:
    blob = of_ollama(home / ".ollama/models", f"{folder}/org/name/latest")
    assert located("ollama:localhost:5000/org/name") == blob
    (listed,) = json.loads(in_process.ok("info", "--models", "-f", "json").out)["models"]
    assert located(listed["model"]) == blob


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (
            {"layers": [{**LAYER, "digest": "sha256:../../../etc/passwd"}]},
            "is not sha256 and 64 digits",
        ),
        ({"layers": [{**LAYER, "digest": f"sha256:{OTHER_DIGEST}"}]}, "is missing"),
        ({"layers": [{"mediaType": "application/vnd.ollama.image.tensor"}]}, "it leads to no GGUF"),
        ({"layers": 7}, "it leads to no GGUF"),
        ({"manifests": [{"digest": 5}]}, "is not sha256"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    in_process: InProcess, home: Path, manifest: dict[str, object], told: str
) -> None:
    of_ollama(home / ".ollama/models", **manifest)
    assert told in in_process.refused("lookup", "a", "--from", "ollama:llama3.2")
    listed = in_process("info", "--models")
    assert told in listed.err
    assert "0 models in the Hugging Face cache" in listed.text


@pytest.mark.parametrize(
    "name", ["../x", "x:../../y", "a/b/c/d", "", ":", "x\0", "\x1b[2J", "x" * 999]
)
def test_names_that_leave_a_store_are_refused(in_process: InProcess, home: Path, name: str) -> None:
    (home / "x").write_text("secret")
    with pytest.raises(InputError, match="not found in"):
        located(f"ollama:{name}")


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(
    in_process: InProcess, home: Path
) -> None:
    told = in_process.refused("lookup", "a", "--from", "llama3.2")
    assert "not found as a file, a folder or in the Hugging Face cache" in told
    assert "run hf download llama3.2\nnor in Ollama's" in told
    of_ollama(home / ".ollama/models")
    assert "did you mean ollama:llama3.2?" in in_process.refused(
        "lookup", "a", "--from", "llama3.2"
    )
    ran = in_process("lookup", "a", "--from", "ollama:llama3.2", "-f", "json")
    assert [row["token"] for row in json.loads(ran.out)["tokens"]] == [" a"]
    assert in_process("tokenize", "a", "--encoding", "ollama:llama3.2", "-f", "ids").out == b"265\n"


def test_the_models_that_a_machine_holds_are_listed(in_process: InProcess, home: Path) -> None:
    blob = of_ollama(home / ".ollama/models")
    of_ollama(home / ".ollama/models", "registry.ollama.ai/library/.hidden/x y")
    (home / ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/gone").symlink_to(
        "nowhere"
    )
    snapshot = home / f".cache/huggingface/hub/models--org--name/snapshots/{'0' * 40}"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    save_file({"wte.weight": np.ones((5, 3), np.float32)}, snapshot / "model.safetensors")
    listed = in_process("info", "--models", "-f", "json")
    assert "llama3.2/gone': No such file" in listed.err
    document = json.loads(listed.out)
    size = blob.stat().st_size
    assert [tuple(row.values()) for row in document["models"]] == [
        ("org/name", "safetensors", 5, 3, (snapshot / "model.safetensors").stat().st_size),
        ("ollama:llama3.2:latest", "GGUF", 274, 2, size),
    ]
    page = in_process("info", "--models").text
    assert "org/name" in page
    assert "5 x 3" in page
    assert "2 models in the Hugging Face cache" in page
    assert "leave out the model" in in_process.refused("info", "--models", "--from", "x")

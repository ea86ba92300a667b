"""Models that Ollama holds are found by their names, and listed; stores that lie are refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from embcli.errors import InputError
from embcli.hub import located
from tests.conftest import Embcli
from tests.test_vocabularies import pieces

DIGEST, OTHER = "a" * 64, "b" * 64
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
    if content is None:
        pieces(path)
    else:
        path.write_text(json.dumps(content))
    return path


def ollama(folder: Path, name: str = "registry.ollama.ai/library/llama3.2/latest", **manifest: object) -> Path:
    put(folder / "manifests" / name, {"layers": [{"mediaType": "x"}, LAYER], **manifest})
    blob = folder / f"blobs/sha256-{DIGEST}"
    return blob if blob.exists() else put(blob)


def test_a_model_of_ollama_is_found_by_its_manifest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = ollama(home / ".ollama/models")
    for name in ("llama3.2", "llama3.2:latest", "library/llama3.2", "registry.ollama.ai/library/llama3.2:latest"):
        assert located(f"ollama:{name}") == blob
    ollama(home / ".ollama/models", "hf.co/org/name/Q4_K_M")
    assert located("ollama:hf.co/org/name:Q4_K_M") == blob
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "elsewhere"))
    newer = home / "elsewhere/manifests-v2/ollama.com/library/qwen/1b"
    child = {"digest": f"sha256:{OTHER}", "runner": "ggml"}
    put(home / f"elsewhere/blobs/sha256-{OTHER}", {"layers": [LAYER]})
    listed = put(home / "elsewhere/blobs/list", {"manifests": [{"digest": "x", "runner": "mlx"}, child]})
    newer.parent.mkdir(parents=True)
    newer.symlink_to(listed)
    blob = put(home / f"elsewhere/blobs/sha256-{DIGEST}")
    assert located("ollama:qwen:1b") == blob
    with pytest.raises(InputError, match=r"'llama3.2' not found in Ollama's .*elsewhere.*run ollama pull llama3.2"):
        located("ollama:llama3.2")


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ({"layers": [{**LAYER, "digest": "sha256:../../../etc/passwd"}]}, "is not sha256 and 64 digits"),
        ({"layers": [{**LAYER, "digest": f"sha256:{OTHER}"}]}, "is missing"),
        ({"layers": [{"mediaType": "application/vnd.ollama.image.tensor"}]}, "it leads to no GGUF"),
        ({"layers": 7}, "it leads to no GGUF"),
        ({"manifests": [{"digest": 5}]}, "is not sha256"),
    ],
)
def test_a_manifest_that_lies_is_refused(inside: Embcli, home: Path, manifest: dict[str, object], told: str) -> None:
    ollama(home / ".ollama/models", **manifest)
    assert told in inside.refused("lookup", "a", "--from", "ollama:llama3.2")
    listed = inside("info", "--models")
    assert told in listed.err
    assert "0 models in the Hugging Face cache" in listed.text


@pytest.mark.parametrize("name", ["../x", "x:../../y", "a/b/c/d", "", ":", "x\0", "\x1b[2J", "x" * 999])
def test_names_that_leave_a_store_are_refused(inside: Embcli, home: Path, name: str) -> None:
    (home / "x").write_text("secret")
    with pytest.raises(InputError, match="not found in"):
        located(f"ollama:{name}")


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(inside: Embcli, home: Path) -> None:
    told = inside.refused("lookup", "a", "--from", "llama3.2")
    assert "not found as a file, a folder or in the Hugging Face cache" in told
    assert "run hf download llama3.2\nnor in Ollama's" in told
    ollama(home / ".ollama/models")
    assert "did you mean ollama:llama3.2?" in inside.refused("lookup", "a", "--from", "llama3.2")
    ran = inside("lookup", "a", "--from", "ollama:llama3.2", "-f", "json")
    assert [row["token"] for row in json.loads(ran.out)["tokens"]] == [" a"]
    assert inside("tokenize", "a", "--encoding", "ollama:llama3.2", "-f", "ids").out == b"265\n"


def test_the_models_that_a_machine_holds_are_listed(inside: Embcli, home: Path) -> None:
    blob = ollama(home / ".ollama/models")
    ollama(home / ".ollama/models", "registry.ollama.ai/library/.hidden/x y")
    (home / ".ollama/models/manifests/registry.ollama.ai/library/llama3.2/gone").symlink_to("nowhere")
    snapshot = home / f".cache/huggingface/hub/models--org--name/snapshots/{'0' * 40}"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0" * 40)
    save_file({"wte.weight": np.ones((5, 3), np.float32)}, snapshot / "model.safetensors")
    listed = inside("info", "--models", "-f", "json")
    assert "llama3.2/gone': No such file" in listed.err
    document = json.loads(listed.out)
    size = blob.stat().st_size
    assert [tuple(row.values()) for row in document["models"]] == [
        ("org/name", "safetensors", 5, 3, (snapshot / "model.safetensors").stat().st_size),
        ("ollama:llama3.2:latest", "GGUF", 274, 2, size),
    ]
    page = inside("info", "--models").text
    assert "org/name" in page
    assert "5 x 3" in page
    assert "2 models in the Hugging Face cache" in page
    assert "leave out the model" in inside.refused("info", "--models", "--from", "x")

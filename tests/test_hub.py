"""A path, a folder or a model's name leads to the file that is meant, without a network, or to a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from embcli.errors import InputError
from embcli.hub import cache_folder, located, model_file

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


def test_a_short_revision_that_two_share_is_refused(cache: Path) -> None:
    (cache / "models--org--name/snapshots" / ("0" * 40)).mkdir()
    with pytest.raises(InputError, match="not its revision '0000000'"):
        located("org/name@0000000")


def test_a_ref_that_leads_out_of_the_cache_is_refused(cache: Path) -> None:
    (cache / "models--org--name/refs/main").write_text("../../../../etc")
    with pytest.raises(InputError, match="not its revision 'main'"):
        located("org/name")


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
        (["model.safetensors", "pytorch_model.bin", "model.fp16.safetensors", "tf_model.h5"], "model.safetensors"),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
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
    with pytest.raises(InputError, match=r"8 candidate files: '0\\x1b.gguf', .*, \.\.\.; choose one"):
        model_file(tmp_path)

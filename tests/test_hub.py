"""A path, a folder or a model's name leads to the file that is meant, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from embcli.errors import InputError
from embcli.hub.local import cache_folder, located
from tests.cases import cases

MAIN = "0" * 39 + "a"
OTHER = "1" * 39 + "b"
VARIABLES = (
    "HF_HUB_CACHE",
    "HF_HOME",
    "HUGGINGFACE_HUB_CACHE",
    "XDG_CACHE_HOME",
)

# --- the cache of Hugging Face --------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Hugging Face cache of models with two revisions, two of them of one name."""
    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    for name in ("org--name", "gpt2", "one--same", "two--same", "org--lonely"):
        folder = cache / f"models--{name}"
        for commit in (MAIN, OTHER):
            snapshot = folder / "snapshots" / commit
            snapshot.mkdir(parents=True)
            (snapshot / "model.safetensors").touch()
        (folder / "refs/pr").mkdir(parents=True)
        (folder / "refs/main").write_text(MAIN)
        (folder / "refs/pr/1").write_text(OTHER)
    monkeypatch.chdir(tmp_path)
    return cache


@cases
def test_a_model_is_found_in_the_cache(cache, name, found):
    assert located(name) == cache / found / "model.safetensors"


@pytest.mark.usefixtures("cache")
@cases
def test_what_is_neither_path_nor_model_is_refused(name, reason):
    with pytest.raises(InputError, match=reason):
        located(name)


@pytest.mark.usefixtures("cache")
def test_a_cache_whose_name_is_too_long_is_a_sentence(monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", "/x" * 2500)
    with pytest.raises(InputError, match="File name too long"):
        located("org/name")


def test_a_short_revision_that_two_share_is_refused(cache):
    (cache / "models--org--name/snapshots" / ("0" * 40)).mkdir()
    with pytest.raises(InputError, match="not its revision '0000000'"):
        located("org/name@0000000")


def test_a_ref_that_leads_out_of_the_cache_is_refused(cache):
    (cache / "models--org--name/refs/main").write_text("../../../../etc")
    with pytest.raises(InputError, match="not its revision 'main'"):
        located("org/name@main")


@pytest.mark.usefixtures("cache")
def test_an_existing_path_comes_first(tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/name").touch()
    assert located("org/name") == Path("org/name")


@pytest.mark.usefixtures("home")
@cases
def test_the_folder_of_the_cache_is_that_of_its_own_variables(monkeypatch, variables, folder):
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home without any models."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


# --- folders --------------------------------------------------------------------------------------


@cases
def test_the_file_of_a_folder_is_the_model(tmp_path, files):
    names = files.split()
    for name in names:
        (tmp_path / name).touch()
    assert located(str(tmp_path)) == tmp_path / names[0]


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(InputError, match="no file of weights"):
        located(str(tmp_path))


def test_a_folder_with_several_models_is_refused(tmp_path):
    for number in range(8):
        (tmp_path / f"{number}\x1b.gguf").touch()
    with pytest.raises(InputError, match=r"8 candidate files: '0\\x1b.gguf', .*, \.\.\.; choose"):
        located(str(tmp_path))


@cases
def test_parts_of_a_model_without_an_index_are_told_so(numbers, tmp_path):
    for number in numbers:
        (tmp_path / f"model-0000{number}-of-00003.safetensors").touch()
    with pytest.raises(InputError, match="parts of a model, but no index of them"):
        located(str(tmp_path))


# --- the models that a machine has ----------------------------------------------------------------


@pytest.mark.usefixtures("home")
def test_a_name_that_is_nowhere_says_where_it_was_looked_for(in_process):
    told = in_process.refused("lookup", "a", "--from", "llama3.2")
    assert "in the Hugging Face cache" in told
    assert told.endswith("\nrun hf download ORG/llama3.2\n")


@pytest.mark.parametrize("word", ["{x}", "{host.__class__}", "{host:>1900000000}"])
def test_foreign_words_are_not_templates(in_process, tmp_path, word, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (f"{word}1.gguf", f"{word}2.gguf"):
        Path(name).touch()
    assert f"'{word}1.gguf'" in in_process.refused("lookup", "--ids", "0", "--from", ".")

    matrix = np.ones((5, 3), np.float32)
    save_file({word: matrix, f"{word}2": matrix + 1}, "two.safetensors")
    assert word in in_process.refused("lookup", "--ids", "0", "--from", "two.safetensors")

    save_file({"wte.weight": matrix}, "one.safetensors")
    Path("config.json").write_text(json.dumps({"model_type": word}))
    line = ["lookup", "--from", "one.safetensors", "--ids"]
    assert f"what a '{word}' model adds" in in_process(*line, "0").err
    assert word[:5] in in_process.refused(*line, word)

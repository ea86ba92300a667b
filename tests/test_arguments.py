"""Arguments of the library: numbers of numpy and paths as Python's own, other types refused."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

import embcli
from embcli import Model
from embcli.seeded_layers.seeded import Seeded
from tests.files.made import save_words
from tests.oracles import assert_same_bits, live

MODEL = embcli.seeded(vocab=6, dim=4, context_length=8)
IDS = [1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_whole_numbers_of_numpy_are_as_good_as_pythons(kind):
    model = embcli.seeded(kind(6), kind(4), seed=kind(5), context_length=kind(8))

    assert_same_bits(model[kind(2)], live(Seeded(6, 4, 8, 5))["token"][2])
    batch = model.batch(IDS, batch_size=kind(1), max_length=kind(2), stride=kind(1), index=kind(3))
    assert batch.inputs.tolist() == [[4, 5]]
    assert len(model.neighbors([1], top=kind(2)).ids) == 2
    assert str(model.lookup([1, 2], trace=kind(1))) == str(model.lookup([1, 2], trace=1))
    page = model.weights().styled(precision=kind(2), width=kind(80))
    assert str(page) == str(model.weights().styled(precision=2, width=80))
    rate = model.compare([1], seed=kind(3), learning_rate=np.float32(0.5))
    assert rate.verdict.identical


def test_a_path_names_an_encoding_wherever_a_text_does(tmp_path):
    file = tmp_path / "tokenizer.json"
    save_words(file, ["a", "b"])
    matrix = tmp_path / "m.npy"
    np.save(matrix, np.eye(2, dtype=np.float32))

    for path in (file, tmp_path):
        assert embcli.seeded(encoding=path).tokenize("b").ids.tolist() == [1]
        assert embcli.open(matrix, encoding=path).lookup("b").input.tolist() == [[0, 1]]
        assert embcli.tokenizers("b", [path, "gpt2"]).counts == [1, 1]
        assert embcli.tokenizers("b", path).counts == [1]


# --- what a user finds ----------------------------------------------------------------------------


def test_the_ids_of_a_tokenization_are_its_array():
    tokens = MODEL.tokenize(IDS)

    assert np.asarray(tokens).tolist() == IDS
    assert np.asarray(tokens, np.float32).dtype == np.float32
    copied = np.array(tokens)
    copied[0] = 7
    assert tokens.ids.tolist() == IDS


def test_a_lookup_has_the_ids_of_its_rows():
    assert MODEL.lookup(IDS).ids.tolist() == IDS
    assert MODEL.lookup(IDS, only="3,5").ids.tolist() == [3, 5]


def test_ids_of_a_text_are_those_that_torch_takes():
    model = embcli.seeded(dim=2)
    layer = torch.nn.Embedding.from_pretrained(torch.tensor(live(Seeded(50_257, 2))["token"]))
    looked_up = model.lookup("Every effort", position="none")

    rows = layer(torch.from_numpy(looked_up.ids))
    assert_same_bits(looked_up.input, rows.numpy())
    tokens = model.tokenize("Every effort")
    assert torch.equal(layer(torch.from_numpy(tokens.ids)), rows)
    assert np.asarray(tokens).dtype == np.int64


VERBS = [name for name, _ in inspect.getmembers(Model, inspect.isfunction) if name[0] != "_"]
NOT_OF_A_MODULE = {*VERBS} - {"tokens", "decode_bytes", "positions"}


@pytest.mark.parametrize("verb", sorted(NOT_OF_A_MODULE))
def test_a_verb_that_is_no_function_of_the_module_is_pointed_to(verb):
    with pytest.raises(AttributeError, match=rf"embcli\.seeded\(\)\.{verb}\(\.\.\.\)"):
        getattr(embcli, verb)


def test_completion_offers_what_is_meant_for_users():
    assert {*dir(embcli)} == {*embcli.__all__, "__version__"}
    public = {name for name in dir(MODEL) if not name.startswith("_")} - {"dim", "vocab"}
    assert public == {*VERBS, "encoding", "notes", "open", "seeded", "shape", "source"}
    lookup = {name for name in dir(MODEL.lookup([2])) if not name.startswith("_")}
    assert {"token", "position", "input", "ids", "tokens", "save", "styled", "to_arrow"} <= lookup
    assert not lookup & {"columns_of", "verb", "view", "why_no", "step_values"}

"""`diff` of vocabularies, with a tolerance, of chosen rows, in an order, and of output heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import embcli
from tests import transcripts
from tests.cases import cases
from tests.files.made import matrix, save_words
from tests.runners import InProcess
from tests.test_huggingface import MADE, gpt2, saved
from tests.test_vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, stored_now, written
from tests.transcripts import document_of

__all__ = ["saved"]  # a fixture

BASE = ["<unk>", "a", "b", "c", " d", "e"]
TUNED = ["<unk>", "b", "a", "c", "e", "f", "g", "h"]


_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def written_model(folder: str, tokens: list[str], **tensors: np.ndarray) -> str:
    save_words(f"{folder}/tokenizer.json", tokens)
    names = {"token": "wte.weight", "head": "lm_head.weight"}
    save_file({names[key]: rows for key, rows in tensors.items()}, f"{folder}/model.safetensors")
    return folder


def two_models(dim: int = 4) -> tuple[str, str]:
    base = written_model("base", BASE, token=matrix(len(BASE), 4))
    return base, written_model("tuned", TUNED, token=matrix(len(TUNED), dim))


# --- tokens ---------------------------------------------------------------------------------------


def changes_by_dicts(base: Tokenizer, tuned: Tokenizer) -> dict[str, tuple[int | None, int | None]]:
    """Return the tokens that differ, as the vocabularies of the tokenizers library have them."""
    base_ids = base.get_vocab()
    tuned_ids = tuned.get_vocab()
    pairs = {}
    for token in {**base_ids, **tuned_ids}:
        pair = (base_ids.get(token), tuned_ids.get(token))
        if pair[0] != pair[1]:
            pairs[token] = pair
    return pairs


@pytest.mark.parametrize("given", ["models", "tokenizers", "folders", "one of each"])
def test_the_tokens_that_differ_are_those_of_the_library(in_process, given):
    base, tuned = two_models()
    words = {
        "models": [base, tuned, "--tokens"],
        "tokenizers": ["base/tokenizer.json", "tuned/tokenizer.json"],
        "folders": ["only-base", "only-tuned"],
        "one of each": [base, "tuned/tokenizer.json"],
    }
    save_words("only-base/tokenizer.json", BASE)
    save_words("only-tuned/tokenizer.json", TUNED)

    ran = in_process("diff", *words[given], "-f", "json")

    assert ran.status == 1
    rows = json.loads(ran.out)["tokens"]
    found = {row["token"]: (row["base_id"], row["tuned_id"]) for row in rows}
    libraries = [Tokenizer.from_file(f"{name}/tokenizer.json") for name in (base, tuned)]
    assert found == changes_by_dicts(*libraries)
    states = {row["token"]: row["state"] for row in rows}
    assert states["a"] == "moved"
    assert states[" d"] == "removed"
    assert states["h"] == "added"


def test_tokens_of_gpt2_and_of_another_encoding_are_told_apart(in_process):
    ran = in_process("diff", "gpt2", "p50k_base", "--tokens", "-f", "json")

    counts = json.loads(ran.out)["diff"]["counts"]
    spaces = 24  # p50k_base has the tokens of gpt2, and runs of 2 to 25 spaces
    assert counts == {"same": 50_257, "moved": 0, "removed": 0, "added": spaces}


def test_each_id_of_a_token_with_several_counts_once(in_process):
    """Llama has the byte `<0x41>` and the letter A."""
    names = ["<unk>", "<0x41>", "<0x42>", "A", "B"]
    base = written(Path("base.gguf"), "llama", names, kinds=[UNKNOWN, BYTE, BYTE, NORMAL, NORMAL])
    names = ["<unk>", "<0x41>", "<0x42>", "B", "A", "C"]
    kinds = [UNKNOWN, BYTE, BYTE, NORMAL, NORMAL, NORMAL]
    tuned = written(Path("tuned.gguf"), "llama", names, kinds=kinds)

    document = document_of(in_process, "diff", str(base), str(tuned), "--tokens")

    assert document["diff"]["counts"] == {"same": 3, "moved": 2, "removed": 0, "added": 1}
    changes = {(row["token"], row["base_id"], row["tuned_id"]) for row in document["tokens"]}
    assert changes == {("A", 3, 4), ("B", 4, 3), ("C", None, 5)}


@cases
def test_the_ids_of_a_text_are_compared(in_process, saved, given):
    """Two words have each other's IDs in the other tokenizer."""
    for name in ("base", "tuned"):
        written_model(name, BASE, token=matrix(6, 4))
    text = Path("corpus.txt")
    text.write_text("b", "utf-8")
    words = [*given, "--file", "corpus.txt"]
    assert in_process("diff", *words).status == 0
    path = Path("tuned/tokenizer.json")
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"] |= {"b": 3, "c": 2}
    path.write_text(json.dumps(tokenizer))

    ran = in_process("diff", *words)

    assert ran.status == 1
    assert "IDs of the text from token 0 on" in ran.text


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORD_PIECES = [*SPECIAL, "th", "##th", "e", "##e", "in", "##in", "an", "##an", "the"]


def word_piece_model(folder: str, words: list[str]) -> str:
    Path(folder).mkdir()
    Path(folder, "vocab.txt").write_text("\n".join(words))
    rows = {"embeddings.word_embeddings.weight": matrix(len(words), 2)}
    save_file(rows, f"{folder}/model.safetensors")
    return folder


def test_a_word_and_a_part_of_a_word_are_two_tokens(in_process):
    swapped = [*WORD_PIECES]
    swapped[5:7] = reversed(swapped[5:7])
    base = word_piece_model("base", WORD_PIECES)
    tuned = word_piece_model("tuned", swapped)

    document = document_of(in_process, "diff", base, tuned, "--tokens")
    assert document["diff"]["counts"] == {"same": 12, "moved": 2, "removed": 0, "added": 0}
    changes = [(row["token"], row["base_id"], row["tuned_id"]) for row in document["tokens"]]
    assert changes == [("th", 5, 6), ("##th", 6, 5)]
    rows = document_of(in_process, "diff", base, tuned)
    assert rows["diff"]["counts"] == {"equal": 12, "changed": 2, "removed": 0, "added": 0}


def test_the_tokens_of_a_model_are_those_of_its_gguf(in_process):
    count = len(WORD_PIECES)
    kinds = [CONTROL] * 5 + [NORMAL] * 9 + [UNUSED]
    names = [*map(stored_now, WORD_PIECES, kinds), f"▁[PAD{count}]"]
    gguf = written(Path("padded.gguf"), "bert", names, kinds=kinds)
    model = word_piece_model("model", WORD_PIECES)

    tokens = document_of(in_process, "diff", model, gguf, "--tokens")["diff"]["counts"]
    assert tokens == {"same": count, "moved": 0, "removed": 0, "added": 0}
    rows = document_of(in_process, "diff", model, gguf)["diff"]
    assert rows["matched_by"] == "id"
    assert (rows["counts"]["removed"], rows["counts"]["added"]) == (0, 1)


def test_rows_of_different_lengths_have_their_tokens_compared(in_process):
    base, tuned = two_models(dim=7)

    ran = in_process("diff", base, tuned)

    assert ran.status == 1
    assert "Vocabularies" in ran.text
    assert "different lengths: 4 in 'base', 7 in 'tuned'" in ran.err


def test_the_page_of_tokens(in_process, snapshot):
    base, tuned = two_models()
    pages = [in_process("diff", base, tuned, "--tokens", "-k", top).text for top in ("2", "9")]
    pages.append(in_process("diff", base, base, "--tokens").text)
    snapshot("diff/tokens.txt", "\n".join(pages))


# --- rules ----------------------------------------------------------------------------------------


def rules_of(in_process: InProcess, base: object, tuned: object) -> dict[str, Any]:
    found: dict[str, Any] = document_of(in_process, "diff", str(base), str(tuned))["diff"]["rules"]
    return found


def changed_copy(
    path: Path, change: Callable[[dict[str, Any]], Any], name: str = "tokenizer.json"
) -> str:
    """Write a changed tokenizer.json into this folder; return its name."""
    content = json.loads(path.read_text())
    change(content)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(json.dumps(content))
    return name


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "normalizer": ("byte_level", lambda content: content.update(normalizer={"type": "NFC"})),
    "pre_tokenizer": (
        "metaspace",
        lambda content: content["pre_tokenizer"].update(prepend_scheme="never"),
    ),
    "post_processor": ("pieces", lambda content: content.update(post_processor=BYTE_LEVEL)),
    "decoder": ("word_pieces", lambda content: content["decoder"].update(prefix="@@")),
    "truncation": ("byte_level", lambda content: content.update(truncation=TRUNCATION)),
    "dropout": ("byte_level", lambda content: content["model"].update(dropout=0.1)),
    "byte_fallback": (
        "byte_fallback",
        lambda content: content["model"].update(byte_fallback=False),
    ),
    "unk_token": ("byte_fallback", lambda content: content["model"].update(unk_token=None)),
    "unk_id": ("pieces", lambda content: content["model"].update(unk_id=1)),
    "vocab": ("pieces", lambda content: content["model"]["vocab"][9].__setitem__(1, -9.5)),
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
TRUNCATION = {"max_length": 9, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}


@pytest.mark.parametrize("rule", CHANGES)
def test_tokenizers_of_equal_tokens_differ_by_a_rule(in_process, saved, rule):
    name, change = CHANGES[rule]
    tuned = changed_copy(saved(name), change)
    ran = in_process("diff", str(saved(name)), tuned, "-k", "9" * 20)
    assert ran.status == 1
    assert "are equal in" in ran.text
    assert ran.text.splitlines()[-1].endswith(f"different rules: {rule}")
    assert [*rules_of(in_process, saved(name), tuned)] == [rule]


@cases
def test_tokenizers_differ_by_the_properties_of_an_added_token(in_process, saved, name):
    def change(content: dict[str, Any]) -> None:
        token = content["added_tokens"][0]
        token[name] = not token[name]

    found = rules_of(in_process, saved("byte_level"), changed_copy(saved("byte_level"), change))

    assert [*found] == ["added_tokens"]
    removed = found["added_tokens"]["removed"][0]
    added = found["added_tokens"]["added"][0]
    assert removed.replace("True", "False") == added.replace("True", "False")


SMALL = MADE | {"gpt2": partial(gpt2, 1000)}


@pytest.mark.parametrize("name", SMALL)
def test_a_tokenizer_that_is_saved_again_has_the_same_rules(in_process, name):
    Path("base").mkdir()
    SMALL[name]().save("base/tokenizer.json")
    Tokenizer.from_file("base/tokenizer.json").save("tokenizer.json", pretty=False)
    ran = in_process("diff", "base/tokenizer.json", "tokenizer.json", "-f", "json")
    assert json.loads(ran.out)["diff"]["rules"] == {}
    assert ran.status == 0


def test_what_a_file_leaves_out_is_what_it_writes_by_default(in_process, saved):
    def change(content: dict[str, Any]) -> None:
        model = content["model"]
        for name in ("dropout", "fuse_unk", "byte_fallback", "ignore_merges"):
            del model[name]
        model["continuing_subword_prefix"] = ""
        model["merges"] = [" ".join(merge) for merge in model["merges"]]
        content["added_tokens"][0] = dict(reversed(content["added_tokens"][0].items()))

    tuned = changed_copy(saved("byte_level"), change)
    assert rules_of(in_process, saved("byte_level"), tuned) == {}


def test_rules_that_are_not_compared_are_named_with_the_verdict(in_process, saved):
    words = ("diff", str(saved("gpt2")), "gpt2", "--tokens")
    assert in_process.ok(*words).text.endswith(" tokens; rules not compared\n")
    assert document_of(in_process, *words)["diff"]["rules"] is None


def test_the_page_of_rules(in_process, saved, snapshot):
    def change(content: dict[str, Any]) -> None:
        merges = content["model"]["merges"]
        merges[2:4] = reversed(merges[2:4])
        del merges[-1]
        content["normalizer"] = {"type": "Lowercase"}
        content["added_tokens"][0]["lstrip"] = True

    tuned = changed_copy(saved("byte_level"), change)
    base = changed_copy(saved("byte_level"), lambda content: None, "base/tokenizer.json")
    snapshot("diff/rules.txt", in_process("diff", base, tuned, COLUMNS="80").text)


# --- rows -----------------------------------------------------------------------------------------


def test_rows_within_a_tolerance_are_equal_as_numpy_has_it(in_process):
    base = matrix(50, 4).astype(np.float64)
    tuned = base + np.random.default_rng(3).uniform(-2e-3, 2e-3, base.shape)
    tuned[4] = base[4]
    tuned[5, 0] = np.nan
    base[6, 1] = tuned[6, 1] = np.inf
    base[7, 1] = tuned[7, 1] = np.nan
    np.save("base.npy", base)
    np.save("tuned.npy", tuned)
    models = [embcli.open("base.npy"), embcli.open("tuned.npy")]

    for atol in (0.0, 1e-3, 1.5e-3, 1.0):
        found = models[0].diff(models[1], atol=atol)
        wanted = np.isclose(base, tuned, rtol=0, atol=atol, equal_nan=True).all(axis=1)
        assert found.equal.tolist() == wanted.tolist(), atol
    tuned[5] = base[5]
    np.save("tuned.npy", tuned)
    page = in_process.ok("diff", "base.npy", "tuned.npy", "--atol", "1").text
    assert "differ by at most 1" in page
    assert "matrices are equal" in page


def test_heads_of_both_models_are_compared_in_the_same_run(in_process, snapshot):
    token = matrix(6, 4)
    head = matrix(6, 4, seed=2)
    changed = head.copy()
    changed[2] += 1
    written_model("base", BASE, token=token, head=head)
    written_model("tuned", BASE, token=token, head=changed)
    written_model("tied", BASE, token=token)

    ran = in_process("diff", "base", "tuned")
    found = json.loads(in_process("diff", "base", "tuned", "-f", "json").out)

    assert ran.status == 1
    assert found["diff"]["counts"]["changed"] == 0
    assert found["diff"]["head"] == {"equal": 5, "changed": 1, "removed": 0, "added": 0}
    assert in_process("diff", "base", "tuned", "--layer", "token").status == 0
    assert in_process("diff", "base", "tied").status == 0
    snapshot("diff/heads.txt", ran.text)


@cases
def test_the_verdict_names_the_matrix_that_differs(in_process, token, head, verdict):
    written_model("base", BASE, token=matrix(6, 4), head=matrix(6, 4, seed=2))
    written_model("tuned", BASE, token=matrix(6, 4) + token, head=matrix(6, 4, seed=2) + head)
    page = in_process("diff", "base", "tuned", suggestions=True).text
    assert verdict in page.splitlines()
    assert ("--layer head shows" in page) == bool(head)


def test_matrices_with_other_columns_differ_even_if_their_tokens_do_not(
    in_process,
):
    written_model("base", BASE, token=matrix(6, 4))
    written_model("tuned", BASE, token=matrix(6, 5))
    ran = in_process("diff", "base", "tuned")
    assert ran.status == 1
    assert "are equal in 6 tokens; the rows have different lengths: 4 in 'base'" in ran.text
    assert in_process("diff", "base", "tuned", "--tokens").status == 0


def test_rules_of_the_tokenizers_of_two_models_are_compared(in_process):
    for name in ("base", "tuned"):
        written_model(name, BASE, token=matrix(6, 4))
    path = Path("tuned/tokenizer.json")
    tokenizer = json.loads(path.read_text())
    path.write_text(json.dumps(tokenizer | {"normalizer": {"type": "Lowercase"}}))

    ran = in_process("diff", "base", "tuned")
    assert "equal in 6 rows; rules or settings differ: normalizer\n" in ran.text
    assert ran.status == 1
    assert in_process("diff", "base", "tuned", "--tokens").status == 1
    assert document_of(in_process, "diff", "base", "tuned")["diff"]["rules"] == ["normalizer"]
    assert document_of(in_process, "diff", "base", "base")["diff"]["rules"] == []


def test_a_small_change_is_not_shown_as_0(in_process):
    base = matrix(6, 4)
    tuned = base.copy()
    tuned[1, 0] += 1
    tuned[2] *= np.float32(1 + 1e-6)
    written_model("base", BASE, token=base)
    written_model("tuned", BASE, token=tuned)
    page = in_process("diff", "base", "tuned").text
    row = next(line.split() for line in page.splitlines() if line.split()[:1] == ["2"])
    move = np.linalg.norm(base[2].astype(float) - tuned[2])
    assert float(row[-1]) == pytest.approx(move, rel=1e-3)

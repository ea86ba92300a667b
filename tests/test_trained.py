"""What an audit says of rows that nothing trained, of outliers, and of zero rows that may be there.

tests/families trains models live; here each row is made.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models

import embcli
from embcli.verbs.audit import Audit, Finding
from tests import transcripts
from tests.cases import cases
from tests.files.made import closed, numbered
from tests.oracles import normal

WORDS = 200
DIM = 64
NEW = range(WORDS, WORDS + 4)
NAMES = ["w1w2", "w3w4", "w5w6", "w7w8"]
CONFIG = {"model_type": "llama", "initializer_range": 0.02}


_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def trained(rows: int = WORDS, dim: int = DIM) -> np.ndarray:
    """Return rows whose columns have means of their own."""
    return normal(rows, dim) + normal(1, dim, 2)


def audited(token: np.ndarray, tokenizer: Tokenizer | None = None, **tensors: np.ndarray) -> Audit:
    folder = Path("m")
    folder.mkdir(exist_ok=True)
    save_file({"wte.weight": token, **tensors}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    return embcli.open("m").audit()


def found(audit: Audit, kind: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(each.level, each.ids) for each in audit.findings if each.kind == kind]


def finding_of(audit: Audit, kind: str) -> Finding:
    """Return the only finding of a kind."""
    (finding,) = [each for each in audit.findings if each.kind == kind]
    return finding


# --- added tokens ---------------------------------------------------------------------------------


def words_with_names(count: int = WORDS) -> Tokenizer:
    words = {f"w{number}": number for number in range(count)}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    tokenizer.add_special_tokens([AddedToken(name) for name in NAMES])
    return tokenizer


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (lambda old: old.mean(axis=0) + 1e-4 * normal(4, DIM, 3), "the mean of all rows"),
        (
            lambda old: old.mean(axis=0) + 0.05 * normal(4, DIM, 3),
            "the mean of all rows plus small random numbers",
        ),
        (lambda old: 9 * old[7] + 1e-4 * normal(4, DIM, 3), "nearly equal to one another"),
        (lambda old: old[[7, 7, 8, 9]], "copies of another row"),
    ],
)
def test_added_rows_with_a_trace_of_what_made_them_look_untrained(rows, words):
    old = trained()
    audit = audited(np.concatenate([old, rows(old)]), words_with_names())
    assert found(audit, "untrained") == [("finding", (*NEW,))]
    text = finding_of(audit, "untrained").text
    assert text == f"4 added tokens look untrained: rows 200 to 203 of the token matrix, {words}"
    assert audit.status == 1


def test_a_diff_says_that_rows_only_in_tuned_look_untrained(in_process):
    old = trained()
    audited(old)
    Path("m").rename("base")
    audit = audited(np.concatenate([old, old[[7, 7, 8, 9]]]), words_with_names())
    finding = finding_of(audit, "untrained")
    base = embcli.open("base")
    tuned = embcli.open("m")

    assert base.diff(tuned).untrained == (finding,)
    assert base.diff(tuned, layer="token").untrained == (finding,)
    assert tuned.diff(base).untrained == ()
    assert f"\n{finding.text}\n" in in_process("diff", "base", "m").text


def test_a_head_need_not_have_learned_bos(monkeypatch):
    monkeypatch.setitem(CONFIG, "bos_token_id", WORDS)
    rows = trained(WORDS + 4)
    head = rows[::-1].copy()
    head[[WORDS, WORDS + 1]] = head[7]
    audit = audited(rows, words_with_names(), **{"lm_head.weight": head})
    assert found(audit, "untrained") == [("finding", (WORDS + 1,))]


@cases
def test_added_rows_that_were_moved_apart_are_trained(shared, own):
    """From the mean, training moves rows in similar directions."""
    old = trained()
    moved = old.mean(axis=0) + shared * normal(1, DIM, 4) + own * normal(4, DIM, 3)
    audit = audited(np.concatenate([old, moved]), words_with_names())
    assert audit.is_sound
    assert not found(audit, "untrained")


@cases
def test_rows_as_long_as_a_model_draws_them_are_told_by_other_lengths(others, kind, level):
    dim = 1024
    old = others * trained(dim=dim) / np.linalg.norm(trained(dim=dim), axis=1, keepdims=True)
    old *= np.sqrt(dim)
    new = 0.02 * normal(4, dim, 3)
    audit = audited(np.concatenate([old, new]), words_with_names())
    assert found(audit, kind) == [(level, (*NEW,))]


@cases
def test_an_added_row_is_told_by_itself_also_in_former_padding(length, drawn):
    rows = np.concatenate([trained(WORDS + 2, 1024), length * normal(drawn, 1024, 3)])
    audit = audited(rows, words_with_names())
    assert found(audit, "untrained") == [("finding", (202, 203))]


@cases
def test_added_rows_like_those_without_a_token_look_untrained(old_rows, size, kind, level):
    """A few rows of older tokens can be like them as well, if all have a direction."""
    old = trained()
    drawn = 0.02 * normal(old_rows + 4 + 20, DIM, 3) + size * normal(1, DIM, 4)
    matrix = np.concatenate([old[: WORDS - old_rows], drawn])
    audit = audited(matrix, words_with_names())
    assert found(audit, kind) == ([(level, (*NEW,))] if level else [])


def test_the_mean_of_the_pieces_of_a_name_is_a_remark():
    words = [*"abcdefgh", *(f"w{number}" for number in range(WORDS - 8))]
    tokenizer = Tokenizer(models.BPE(numbered(words), []))
    tokenizer.add_special_tokens(["ab", "cd", "ef", "gh"])
    old = trained()
    new = [old[place : place + 2].mean(axis=0) for place in range(0, 8, 2)]
    audit = audited(np.concatenate([old, new]), tokenizer)
    assert found(audit, "possibly-untrained") == [("remark", (*NEW,))]


def test_rows_of_old_tokens_that_are_the_mean_of_all_look_untrained(monkeypatch):
    """The padding row may be any."""
    old = trained()
    old[[7, 9]] = np.delete(old, [7, 9], axis=0).mean(axis=0)
    audit = audited(old, words_with_names())
    assert found(audit, "untrained") == [("finding", (7, 9))]
    text = finding_of(audit, "untrained").text
    assert text.startswith("2 tokens look untrained: rows 7, 9 of the token matrix")

    monkeypatch.setitem(CONFIG, "pad_token_id", 9)
    assert found(audited(old, words_with_names()), "untrained") == [("finding", (7,))]


# --- rows as initialised --------------------------------------------------------------------------


def test_a_matrix_as_initialised_is_a_finding_in_a_file_that_is_large_enough():
    drawn = 0.02 * normal(WORDS, DIM)
    audit = audited(drawn)
    assert found(audit, "initial") == [("finding", (*range(WORDS),))]
    text = finding_of(audit, "initial").text
    assert text.endswith("normal values around 0 in each column")
    assert found(audited(drawn[:150]), "initial") == []
    assert found(audited(drawn[:150], other=trained()), "initial") != []
    assert found(audited(trained()), "initial") == []
    assert found(audited(np.concatenate([drawn, trained()])), "initial") != []

    Path("m/config.json").unlink()
    assert found(embcli.open("m").audit(), "initial") == []
    save_file({"wte.weight": drawn}, "m/model.safetensors")
    assert found(embcli.open("m").audit(), "initial") == [("finding", (*range(WORDS),))]


def test_only_a_head_as_initialised_is_named():
    audit = audited(trained(), **{"lm_head.weight": 0.02 * normal(WORDS, DIM)})
    assert finding_of(audit, "initial").layer == "head"


def test_rows_of_bytes_may_be_as_initialised_and_those_of_a_gguf_file_are_told():
    matrix = trained(400)
    matrix[:256] = 0.02 * normal(256, DIM)
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *(f"w{number}" for number in range(144))]
    tokenizer = Tokenizer(models.BPE(numbered(names), [], byte_fallback=True))
    tokenizer.decoder = decoders.ByteFallback()
    assert found(audited(matrix, tokenizer), "initial") == []

    writer = GGUFWriter("m.gguf", "llama")
    writer.add_tensor("token_embd.weight", matrix)
    closed(writer)
    assert finding_of(embcli.open("m.gguf").audit(), "initial").level == "finding"


# --- outliers and zero rows -----------------------------------------------------------------------


@cases
def test_rows_in_part_zero_are_outliers_if_most_are_not(rows, columns, is_finding):
    matrix = trained()
    matrix[slice(*rows), :columns] = 0
    ids = tuple(range(*rows))
    assert found(audited(matrix), "outliers") == ([("finding", ids)] if is_finding else [])

    Path("m/config.json").unlink()
    assert not found(embcli.open("m").audit(), "outliers")


@pytest.mark.parametrize("change", [1000, 1e-4])
def test_a_row_of_another_length_is_an_outlier(change):
    """Rows without a token hide none that is far shorter than they are."""
    matrix = np.concatenate([trained(204), 0.2 * normal(20, DIM)])
    assert not found(audited(matrix, words_with_names()), "outliers")
    matrix[50] *= np.float32(change)
    assert found(audited(matrix, words_with_names()), "outliers") == [("finding", (50,))]


def test_a_row_with_one_large_value_is_an_outlier():
    matrix = trained()
    matrix[50, 3] = 150
    assert found(audited(matrix), "outliers") == [("finding", (50,))]
    assert audited(trained()).is_sound


def test_long_rows_after_the_last_token_are_outliers_of_a_head():
    padding = range(204, 224)
    matrix = trained(224)
    matrix[padding] *= 100
    head = {"lm_head.weight": trained(224) + 1}
    assert not found(audited(matrix, words_with_names(), **head), "outliers")
    head["lm_head.weight"][padding] *= 100
    audit = audited(matrix, words_with_names(), **head)
    assert [(each.layer, each.ids) for each in audit.failing] == [("head", (*padding,))]


@cases
def test_values_far_larger_or_smaller_than_the_model_draws_are_a_finding(factor, is_finding):
    """Those of `trained` are 50 to 70 times as large."""
    found_rows = found(audited(trained() * np.float32(factor)), "outliers")
    assert found_rows == ([("finding", ())] if is_finding else [])


@cases
def test_many_tokens_with_the_row_of_another_are_a_finding(copies, level):
    matrix = trained()
    matrix[100 : 100 + copies] = matrix[:copies]
    assert found(audited(matrix, words_with_names()), "equal") == [(level, ())]


@cases
def test_ten_equal_rows_of_consecutive_tokens_are_a_finding(step, level):
    """They are less than a hundredth of all."""
    matrix = trained(1200)
    matrix[100 : 100 + 11 * step : step] = matrix[7]
    assert found(audited(matrix, words_with_names(1196)), "equal") == [(level, ())]


def test_positions_that_were_drawn_beyond_the_trained_ones_are_a_finding():
    positions = np.concatenate([trained(64), 0.02 * normal(64, DIM, 3)])
    audit = audited(trained(), **{"wpe.weight": positions})
    assert found(audit, "positions") == [("finding", (*range(64, 128),))]


def test_a_zero_row_of_learned_positions_is_an_alarm():
    positions = trained(30)
    assert audited(trained(), **{"wpe.weight": positions}).is_sound
    positions[[7, 8]] = 0
    audit = audited(trained(), **{"wpe.weight": positions})
    assert found(audit, "positions") == [("alarm", (7, 8))]
    assert audit.broken == ("positions",)


@cases
def test_a_zero_row_of_the_unknown_token_may_be_there_if_bytes_spell_all(has_bytes, level):
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256 * has_bytes)), *"abc"]
    vocabulary = numbered(names)
    model = models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=has_bytes)
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteFallback()
    matrix = trained(len(names))
    matrix[0] = 0
    Path("m").mkdir()
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}
    Path("m/tokenizer_config.json").write_text(json.dumps(settings))
    assert found(audited(matrix, tokenizer), "zero") == [(level, (0,))]

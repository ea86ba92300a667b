"""`audit` finds planted faults and nothing else, and its quantities are those of plain numpy."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import embcli
from embcli import encodings
from embcli.verbs.audit import Audit, MatrixAudit, unused
from embcli.verbs.audit.measure import separation_of
from tests import transcripts
from tests.cases import cases, data
from tests.files.made import numbered, save_words
from tests.transcripts import document_of, on_a_small_screen, session

USED = 200
RESERVED = 20
PADDING = 12
TOKENS = USED + RESERVED
ROWS = TOKENS + PADDING
DIM = 16
UNUSED = np.arange(USED, ROWS)


# Each test writes its model there, as `m`.
_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def vectors(rows: int, dim: int = DIM, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def write_model(matrix: np.ndarray, tied: bool = False, **tensors: np.ndarray) -> None:
    """Write a model with words w0, w1, ... and 20 reserved names behind them."""
    words = [f"w{number}" for number in range(USED)]
    words += [f"[unused{number}]" for number in range(RESERVED)]
    save_words("m/tokenizer.json", words)
    save_file({"wte.weight": matrix, **tensors}, "m/model.safetensors")
    write_config(tie_word_embeddings=tied)


def write_config(**settings: Any) -> None:
    Path("m/config.json").write_text(json.dumps(settings))


def trained(tied: bool = False) -> np.ndarray:
    """Return a matrix whose unused rows lie as untrained ones do.

    They are short, and where the matrix is tied they lie in one direction.
    """
    matrix = vectors(ROWS)
    matrix[UNUSED] = 0.01 * vectors(len(UNUSED), seed=3)
    if tied:
        matrix[UNUSED] += 3 * vectors(1, seed=2)
    return matrix


def planted(tied: bool = False) -> np.ndarray:
    """Return such a matrix with a zero row, non-finite rows, equal rows and three candidates."""
    matrix = trained(tied)
    matrix[5] = 0
    matrix[7, 2] = np.nan
    matrix[9, 0] = -np.inf
    matrix[[30, 40]] = matrix[20]
    matrix[31] = matrix[21]
    matrix[[50, 51, 52]] = matrix[UNUSED[[3, 5, 7]]] + 0.001 * vectors(3, seed=4)
    return matrix


def plant_twenty_candidates(matrix: np.ndarray) -> None:
    matrix[70:90] = matrix[UNUSED[0]] + 0.001 * vectors(20, seed=4)


def audited() -> Audit:
    return embcli.open("m").audit()


def audited_matrix() -> MatrixAudit:
    """Return the audit of the token matrix."""
    return audited().main


# --- rows -----------------------------------------------------------------------------------------


def test_a_page_shows_the_planted_faults_and_a_verdict(in_process, snapshot):
    write_model(planted())
    snapshot("audit/faults.txt", session(in_process, "audit m"))
    write_model(planted(tied=True), tied=True)
    snapshot("audit/faults-of-a-tied-matrix.txt", session(in_process, "audit m"))
    write_model(trained())
    page = session(in_process, "audit m", "audit m --fail-on equal", "audit m --fail-on padding")
    snapshot("audit/verdicts.txt", page)


def test_a_page_shows_as_many_rows_as_are_asked_for(in_process, snapshot):
    """There are six zero rows: -k 6 shows them all."""
    matrix = trained()
    matrix[10:16] = 0
    plant_twenty_candidates(matrix)
    write_model(matrix)

    pages = session(in_process, "audit m -k 1", "audit m -k 5", "audit m -k 6")

    snapshot("audit/as-many-rows-as-asked-for.txt", pages)
    model = embcli.open("m")
    assert str(model.audit(top=2**63 - 1)) == str(model.audit(top=ROWS))


def test_the_fullest_page_fits_a_small_screen(in_process, snapshot):
    matrix = planted()
    matrix[60] = 40
    plant_twenty_candidates(matrix)
    head = matrix + vectors(ROWS, seed=5)
    write_model(matrix, **{"lm_head.weight": head})

    snapshot("audit/fullest.txt", on_a_small_screen(in_process, "audit", "./m"))
    assert embcli.open("m", tensor="lm_head.weight").audit().matrices[1:] == ()


@pytest.mark.parametrize("tied", [False, True])
def test_the_data_has_the_planted_faults_and_no_others(in_process, tied):
    write_model(planted(tied), tied)

    document = document_of(in_process, "audit", "m")

    counts = document["audit"]["faults"]
    assert {kind: count for kind, count in counts.items() if count} == {
        "non-finite": 2,
        "zero": 1,
        "not-asked": 1,
        "equal": 3,
        "padding": PADDING,
        "candidates": 3,
    }
    ids = {finding["kind"]: finding["ids"] for finding in document["findings"]}
    assert (ids["zero"], ids["non-finite"]) == ([5], [7, 9])
    matrix = document["audit"]["matrices"]["token"]
    assert matrix["equal"] == [[20, 30, 40], [21, 31]]
    assert {*matrix["candidates"]} == {50, 51, 52}
    assert matrix["unused"] == {"reserved": RESERVED, "padding": PADDING}


# --- numbers --------------------------------------------------------------------------------------


def cosine_distances(matrix: np.ndarray, other: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(other)
    return 1 - matrix @ other / lengths


@pytest.mark.parametrize("padding", [0, 17_000])
def test_the_indicators_are_those_of_plain_numpy(padding):
    """numpy has the whole matrix at once; embcli reads it as one block, or as several."""
    matrix = trained(tied=True)
    more = matrix[-1] + vectors(padding) / 100
    matrix = np.concatenate([matrix, more]) + np.float32(0.3)
    write_model(matrix, tied=True)

    found = audited_matrix().values

    exact = matrix.astype(np.float64)
    mean = exact[:USED].mean(axis=0)
    unused_mean = exact[USED:].mean(axis=0)
    expected = {"cosine_distance": cosine_distances(exact, unused_mean)}
    expected["centred"] = cosine_distances(exact - mean, unused_mean - mean)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)


def test_a_row_that_is_the_mean_has_no_direction_without_it():
    """Only rounding is left of it."""
    matrix = np.full((ROWS, DIM), 0.1, np.float32)
    write_model(matrix, tied=True)

    found = audited_matrix().values

    assert np.isnan(found["centred"]).all()
    assert found["cosine_distance"].max() < 1e-15


@pytest.mark.parametrize("factor", [1, 1e9])
def test_unused_rows_are_held_against_the_mean_of_the_others(factor):
    """So is a row that outweighs the others."""
    matrix = trained(tied=True)
    matrix[UNUSED[4]] *= np.float32(factor)
    write_model(matrix, tied=True)

    choice = audited_matrix().separation

    mean = matrix[:USED].astype(np.float64).mean(axis=0)
    exact = matrix[UNUSED] - mean
    distances = np.empty(len(exact))
    for place, row in enumerate(exact):
        others = np.delete(exact, place, axis=0)
        distances[place] = cosine_distances(row[None], others.mean(axis=0))[0]
    median = np.median(distances)
    deviation = 1.4826 * np.median(np.abs(distances - median))
    assert choice.indicator == "centred"
    assert choice.threshold == pytest.approx(median + 3 * deviation, abs=1e-9)


def test_the_norms_of_a_matrix_of_several_blocks_are_those_of_plain_numpy():
    """A row that is not finite has none."""
    matrix = vectors(50_000, 7) * np.arange(1, 8, dtype=np.float32) + np.float32(0.5)
    matrix[17] = 0
    matrix[1200, 3] = np.nan
    save_file({"wte.weight": matrix}, "m.safetensors")

    found = embcli.open("m.safetensors").audit().main

    finite = np.delete(matrix, 1200, axis=0).astype(np.float64)
    norms = np.linalg.norm(finite, axis=1)
    quantiles = np.quantile(norms, (0, 0.01, 0.25, 0.5, 0.75, 0.99, 1))
    np.testing.assert_allclose(found.quantiles, quantiles, rtol=1e-12)


# --- odd matrices and verdicts --------------------------------------------------------------------


@cases
def test_a_matrix_of_one_value_is_audited(in_process, shape, value, status):
    save_file({"wte.weight": np.full(shape, value, np.float32)}, "m.safetensors")

    for name in ("table", "csv", "json"):
        ran = in_process("audit", "m.safetensors", "-f", name)

        assert ran.status == status
        assert ran.out


@cases
@pytest.mark.parametrize(("name", "kind"), [("wte", "non-finite"), ("lm_head", "head")])
def test_a_row_that_overflows_is_an_alarm(settings, value, name, kind):
    """A program gets infinity for its value in the dtype of config.json, or for its norm."""
    matrices = {"wte": trained(), "lm_head": trained() + np.float32(1)}
    matrices[name][60] = 0
    matrices[name][60, 3] = value
    write_model(matrices["wte"], **{"lm_head.weight": matrices["lm_head"]})
    write_config(tie_word_embeddings=False, **settings)

    found = audited()

    is_float16 = "'float16'" in str(settings)
    with np.errstate(over="ignore"):
        loaded = matrices[name].astype(np.float16 if is_float16 else np.float32)
        norms = np.linalg.norm(loaded.astype(np.float32), axis=1)
    overflows = bool(np.isinf(norms).any())
    assert found.broken == ((kind,) if overflows else ())
    assert ("1 overflowing row in" in str(found) and ": 60 w60" in str(found)) == overflows
    assert any("1 overflowing row" in finding.text for finding in found.findings) == overflows


@pytest.mark.parametrize("name", ["wte", "lm_head"])
@pytest.mark.parametrize("scale", [1e-3, 0.02, 1, 50])
@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_16_bit_numbers_with_the_name_of_the_other_dtype_are_a_finding(name, stored, scale):
    write_model(trained())
    rows = torch.from_numpy(trained())
    other = torch.bfloat16 if stored == torch.float16 else torch.float16
    tensors = {"wte.weight": rows, "lm_head.weight": 2 * rows}
    right = {key: (scale * each).to(stored) for key, each in tensors.items()}
    save_torch(right, "m/model.safetensors")
    assert "fit" not in audited().kinds("finding")

    right[f"{name}.weight"] = right[f"{name}.weight"].view(other)
    save_torch(right, "m/model.safetensors")
    found = audited()
    (finding,) = [each for each in found.findings if each.kind == "fit"]
    assert finding.text.endswith(f"its bits are {stored}".replace("torch.", ""))
    assert not found.is_sound


@cases
def test_columns_with_one_value_in_all_used_rows_are_a_finding(in_process, columns):
    """Unused, zero and broken rows have others; numpy finds the same columns."""
    matrix = trained()
    matrix[:USED, columns] = 0.25
    matrix[9] = 0
    matrix[7, 0] = np.nan
    write_model(matrix)

    found = audited()

    rows = np.delete(matrix[:USED], [7, 9], axis=0)
    assert found.main.scan.constant.tolist() == np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()
    assert found.main.scan.constant.tolist() == columns
    assert found.kinds("finding") == (("constant",) if columns else ())
    assert found.faults["constant"] == len(columns)
    if columns:
        text = f"{len(columns)} of 16 columns with the same value in all rows of the token matrix"
        assert f"{text}: {columns}" in " ".join(in_process("audit", "m").text.split())


@pytest.mark.parametrize("place", [0, 25_000, 49_999])
def test_a_column_of_several_blocks_is_constant_only_if_all_its_rows_are_equal(place):
    matrix = vectors(50_000, 7)
    matrix[:, 4] = -0.0
    matrix[:, 2] = 0.0
    matrix[place, 2] = 1e-40
    matrix[:, 6] = np.arange(50_000) < (1 << 18) // 7  # another value in each of two blocks
    save_file({"wte.weight": matrix}, "m.safetensors")
    assert embcli.open("m.safetensors").audit().main.scan.constant.tolist() == [4]


def test_fail_on_says_what_gives_status_1_and_changes_no_level():
    write_model(planted())
    model = embcli.open("m")

    expected = {
        "findings": "non-finite (2), zero (1), equal (3)",
        "alarms": "non-finite (2), zero (1)",
        "zero": "zero (1)",
        "padding": "padding (12)",
        "missing": "",
        "none": "",
    }
    for fail_on, why_no in expected.items():
        audit = model.audit(fail_on=fail_on)
        assert audit._why_no == why_no
        assert audit.status == int(bool(why_no))
        assert audit.broken == ("non-finite", "zero")
    assert model.audit(fail_on=[]).status == 0
    assert model.audit(fail_on=["missing", "zero"])._why_no == "zero (1)"
    assert model.audit(fail_on="all")._why_no.endswith("padding (12), candidates (3)")


@pytest.mark.parametrize("kinds", ["padding,none", "all,zero", "all,none", "none,findings"])
def test_all_and_none_are_taken_only_by_themselves(in_process, kinds):
    write_model(trained())
    error = in_process.refused("audit", "m", "--fail-on", kinds)
    group = "all" if "all" in kinds else "none"
    assert error == f"embcli: --fail-on takes {group} only by itself\n"


@cases
def test_only_used_rows_count_as_equal(used, equal):
    matrix = trained()
    matrix[UNUSED] = matrix[UNUSED[0]]
    matrix[used] = matrix[UNUSED[0]]
    write_model(matrix)

    assert audited().faults["equal"] == equal


def test_rows_after_the_last_token_can_be_zero_and_tokens_need_rows():
    matrix = trained()
    matrix[TOKENS:] = 0
    write_model(matrix)
    assert audited().broken == ()

    write_model(matrix[: TOKENS - 3])
    assert audited().broken == ("missing",)


# --- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (vectors(TOKENS), "not stand out"),
        (trained()[: USED + 1], "1 row"),
        (np.pad(vectors(USED), ((0, 20), (0, 0))), "0 rows"),
    ],
)
def test_without_a_threshold_there_is_a_reason_and_no_candidate(matrix, reason):
    write_model(matrix)

    found = audited_matrix()

    assert found.separation.threshold is None
    assert reason in found.separation.reason
    assert found.candidates.size == 0


def test_a_page_says_what_an_unusual_config_or_matrix_changes(in_process, snapshot):
    """Row 0 is zero, config.json names it padding and names a tied model; no row is trained."""
    matrix = vectors(TOKENS)
    matrix[0] = 0
    write_model(matrix)
    write_config(pad_token_id=0, architectures=["GPT2LMHeadModel"])

    snapshot("audit/untrained-with-a-padding-row.txt", session(in_process, "audit m"))


@cases
def test_the_group_of_unused_rows_that_stands_out_tells_candidates(are_trained):
    """Bytes that are invalid in UTF-8 are such a group, and padding the other."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = numbered(alphabet)
    tokenizer = Tokenizer(models.BPE(ids, []))
    tokenizer.decoder = decoders.ByteLevel()
    Path("m").mkdir()
    tokenizer.save("m/tokenizer.json")
    encoding = encodings.get("m/tokenizer.json")
    of_bytes = [row for row, reason in unused(encoding, 256).items() if reason == "byte"]
    matrix = vectors(256 + 20) + 1
    for rows, is_trained in zip(([*range(256, 276)], of_bytes), are_trained, strict=True):
        if not is_trained:
            matrix[rows] = vectors(1, seed=3) + 0.01 * vectors(len(rows), seed=4)
    matrix[ids["a"]] = vectors(1, seed=3)
    save_file({"wte.weight": matrix}, "m/model.safetensors")

    assert audited_matrix().candidates.tolist() == [ids["a"]]


def test_unused_rows_that_cancel_out_tell_candidates_only_by_norm():
    matrix = vectors(TOKENS)
    matrix[USED::2] = 0.01
    matrix[USED + 1 :: 2] = -0.01
    matrix[60] = 0.005
    write_model(matrix, tied=True)

    found = audited_matrix()

    assert found.separation.indicator == "norm"
    assert [*found.values] == ["norm"]
    assert found.candidates.tolist() == [60]
    assert found.separation.threshold == pytest.approx(0.04, rel=1e-6)


def test_no_candidates_are_listed_if_half_of_the_tokens_would_be():
    """The unused rows are all shorter, but so different that their threshold is no limit."""
    used_norms = np.linspace(1, 1.1, USED)
    norms = np.concatenate([used_norms, np.linspace(0.1, 0.99, RESERVED)])
    used, unused = np.split(np.arange(USED + RESERVED), [USED])

    choice = separation_of({"norm": norms}, unused, used)

    assert choice.area == 1
    assert choice.threshold is None
    assert "half of the tokens" in choice.reason


# --- tokens that no text can produce --------------------------------------------------------------


@cache
def bytes_of_utf8() -> frozenset[int]:
    """Return the bytes that characters have in UTF-8."""
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    return frozenset("".join(characters).encode())


@pytest.mark.parametrize("name", ["gpt2", "o200k_harmony"])
def test_unused_tokens_are_gaps_impossible_bytes_and_reserved_names(name):
    encoding = encodings.get(name)
    size = encoding.vocabulary_size
    expected: dict[int, str] = {}
    for token_id in range(size):
        token = encoding.token_bytes(token_id)
        if token is None:
            expected[token_id] = "gap"
        elif not bytes_of_utf8().issuperset(token):
            expected[token_id] = "byte"
        elif token.startswith(b"<|") and b"reserved_" in token:
            expected[token_id] = "reserved"

    below_300 = {token_id: why for token_id, why in expected.items() if token_id < 300}
    assert unused(encoding, 300) == below_300
    assert unused(encoding, size + 2) == {**expected, size: "padding", size + 1: "padding"}


def test_names_that_families_of_models_keep_free_are_reserved():
    reserved_names, plain_names = data(__name__)["names"]
    names = [name.encode() for name in reserved_names + plain_names]
    encoding = SimpleNamespace(vocabulary_size=len(names), token_bytes=names.__getitem__)

    reserved = unused(encoding, len(names))

    assert reserved == dict.fromkeys(range(len(reserved_names)), "reserved")

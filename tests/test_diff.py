"""`diff` finds planted edits in whatever formats and dtypes; distances are those of float64."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import embcli
from embcli.seeded_layers.seeded import Seeded
from embcli.verbs.diff import Diff
from tests import transcripts
from tests.cases import cases, data
from tests.files.made import safetensors_bytes, save_words, written
from tests.oracles import live
from tests.transcripts import document_of, on_a_small_screen, refused, session

ROWS = 300
DIM = 24
EDITED = [0, 7, 8, 150, 639]
EQUAL = [1, 9, 149, 638]
FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


# Each test writes its models there.
_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def vectors(rows: int = ROWS, dim: int = DIM, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def saved(name: str, matrix: np.ndarray, dtype: torch.dtype = torch.float32) -> str:
    """Write a matrix in a dtype as a model, and return its name."""
    tensors = {"wte.weight": torch.from_numpy(matrix).to(dtype)}
    if name.endswith(".pt"):
        torch.save(tensors, name)
    else:
        save_file(tensors, name)
    return name


def saved_with_words(folder: str, tokens: Sequence[str], matrix: np.ndarray) -> str:
    """Write a model whose first rows stand for these words, and return its folder."""
    save_words(f"{folder}/tokenizer.json", tokens)
    return str(Path(saved(f"{folder}/model.safetensors", matrix)).parent)


def compared(base: str, tuned: str) -> Diff:
    return embcli.open(base).diff(embcli.open(tuned))


def compared_arrays(base: np.ndarray, tuned: np.ndarray) -> Diff:
    np.save("base.npy", base)
    np.save("tuned.npy", tuned)
    return compared("base.npy", "tuned.npy")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_rounded_copy_is_called_that_unless_a_row_changed(dtype, in_process):
    rows = vectors()
    rows[7, 1] = np.nan
    model = saved("model.safetensors", rows)
    assert compared(model, saved("copy.safetensors", rows, dtype)).only_rounded
    page = in_process("diff", model, "copy.safetensors").text
    assert f"300 changed, only by rounding (float32, {str(dtype)[6:]})" in page

    rows[299, 23] *= 1.01
    assert not compared(model, saved("copy.safetensors", rows, dtype)).only_rounded
    assert not compared(model, saved("other.safetensors", rows)).only_rounded


# --- edits ----------------------------------------------------------------------------------------


def rounded(matrix: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return the values that torch makes of a matrix in a dtype, in float64."""
    return torch.from_numpy(matrix).to(dtype).double().numpy()


@pytest.mark.parametrize("lies", ["by columns", "at an odd place"])
def test_edits_in_a_matrix_of_several_blocks_are_found_however_it_lies(lies):
    """2.2 million values, the last bit of one of them in each edited row."""
    rows = [0, 7, 43_690, 87_380, 89_999]
    matrix = vectors(90_000)
    edited = matrix.copy()
    edited[rows, 5] = np.nextafter(edited[rows, 5], 9)
    base = saved("base.safetensors", matrix)
    moves = np.linalg.norm(matrix.astype(float) - edited, axis=1)
    if lies == "by columns":
        np.save("tuned.npy", np.asfortranarray(edited))
        found = compared(base, "tuned.npy")
    else:
        byte = ("U8", (1,), b"x")
        weight = ("F32", edited.shape, edited.tobytes())
        tensors = {"a": byte, "wte.weight": weight, "z": byte}
        Path("tuned.safetensors").write_bytes(safetensors_bytes(tensors))
        found = compared("tuned.safetensors", base)

    assert np.flatnonzero(~found.equal).tolist() == rows
    np.testing.assert_allclose(found.distances, moves, rtol=1e-12)


# --- distances ------------------------------------------------------------------------------------


def dot(left: Sequence[float], right: Sequence[float]) -> Decimal:
    """Return an exact sum of products, rounded to the digits of the context."""
    pairs = zip(left, right, strict=True)
    total = sum(Fraction(one) * Fraction(other) for one, other in pairs)
    return Decimal(total.numerator) / total.denominator


def turn(left: Sequence[float], right: Sequence[float]) -> float:
    """Return 1 - cos, computed in 120 digits."""
    with localcontext() as context:
        context.prec = 120
        lengths = (dot(left, left) * dot(right, right)).sqrt()
        return float(1 - dot(left, right) / lengths)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_moves_do_not_cancel_out(dtype):
    """Rows move by their last bits, by the rounding of a factor, by more, and backwards."""
    matrix = vectors(20, 7).astype(dtype)
    last_bit = matrix.copy()
    last_bit[:, 1] = np.nextafter(matrix[:, 1], 9)
    tuned = [
        last_bit,
        np.nextafter(matrix, 9),
        matrix * 1.1,
        matrix * -2,
    ]
    for size in (1e-15, 1e-9, 1e-4, 1):
        tuned.append(matrix + (size * vectors(20, 7, seed=2)).astype(dtype))
    tuned.append(3 * tuned[4])
    for factor in (1.5, 3, 1e5, 1e9, 1e16, 1e30):
        tuned.append(np.roll(matrix, 1, axis=1) * factor)

    for other in tuned:
        found = compared_arrays(matrix, other)

        turns = np.array(list(map(turn, matrix.tolist(), other.tolist())))
        rounding = 1e-15 * np.sqrt(turns) + 1e-31  # of rows scaled to length 1
        errors = np.abs(found.cosine_distances - turns)
        assert (errors <= rounding + 1e-11 * turns).all()
        moves = np.linalg.norm(matrix.astype(np.float64) - other, axis=1)
        np.testing.assert_allclose(found.distances, moves, rtol=1e-12)


def test_zeros_and_nan_that_differ_only_in_bits_are_equal():
    matrix = vectors(6)
    matrix[1, 1] = 0
    matrix[2, 2] = np.nan
    matrix[3, 3] = np.nan
    matrix[4] = 0
    other = matrix.copy()
    other[1, 1] = -0.0
    other.view(np.uint32)[2, 2] = 0x7FC00001
    other[3, 3] = 1
    other[4, 0] = 3
    other[5, 5] = np.inf

    found = compared(saved("base.safetensors", matrix), saved("tuned.safetensors", other))

    assert found.equal.tolist() == [True, True, True, False, False, False]
    assert found.changed.tolist() == [3, 5, 4], "non-finite rows come first"
    assert np.isnan(found.cosine_distances[3:]).all()
    assert found.distances[4] == 3

    found = compared("base.safetensors", saved("wide.safetensors", other, torch.float64))
    assert found.counts["equal"] == 3


# --- dtypes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), list(combinations_with_replacement(FLOATS, 2)))
def test_matrices_are_compared_by_value(left, right):
    """What the other dtype rounds has changed, by as much as torch's own rounding."""
    parts = [vectors(), vectors(seed=2) * 1e-3, vectors(40, seed=3) * 1e-8]
    matrix = np.concatenate(parts) / 2
    matrix[EQUAL] = np.float32([0, 0.5, -1.75, 2.0] * 6)  # All of them hold these numbers.
    edited = matrix.copy()
    edited[EDITED, [0, 3, 23, 11, 23]] += 1

    found = compared(
        saved("left.safetensors", matrix, left), saved("right.safetensors", edited, right)
    )

    one = rounded(matrix, left)
    other = rounded(edited, right)
    moves = np.linalg.norm(one - other, axis=1)
    is_changed = (one != other).any(axis=1)
    assert np.array_equal(found.equal, ~is_changed)
    assert found.equal[EQUAL].all()
    np.testing.assert_allclose(found.distances, moves, rtol=1e-12)
    assert np.diff(found.distances[found.changed]).max() <= 0


def test_whole_numbers_that_float32_does_not_hold_are_compared():
    left = np.array([[1, 1], [2**24, 5]], np.int32)
    right = np.array([[1, 1], [2**24 + 1, 5]], np.float64)
    for found in (compared_arrays(left, right), compared_arrays(right, left)):
        assert found.equal.tolist() == [True, False]
        assert found.distances.tolist() == [0, 1]


def test_integers_that_a_float64_may_not_hold_are_refused(in_process):
    np.save("base.npy", np.array([[2**53 + 1, 1]]))
    np.save("whole.npy", np.array([[2**53, 1]]))
    np.save("tuned.npy", np.array([[2.0**53, 1]]))
    Path("tuned.csv").write_text(f"{2**53},1\n", "utf-8")
    Path("base.csv").write_text(f"{2**53 + 1},1\n", "utf-8")
    pairs = [("base.npy", "tuned.npy"), ("base.npy", "tuned.csv"), ("base.csv", "tuned.csv")]
    for base, tuned in pairs:
        assert "2**53" in in_process.refused("diff", base, tuned)
    assert "2**53" in in_process("diff", "base.npy", "whole.npy").err
    assert in_process("diff", "base.npy", "base.npy").status == 0


def test_rows_that_differ_in_the_sign_of_a_zero_are_equal_in_an_audit_too():
    np.save("zeros.npy", np.float32([[1, 0.0], [1, -0.0], [2, 1]]))
    (matrix,) = embcli.open("zeros.npy").audit().matrices
    assert matrix.scan.equal == ((0, 1),)


@cases
def test_very_large_and_very_small_rows_have_distances(base, tuned, cosine, distance):
    found = compared_arrays(np.array([base]), np.array([tuned]))
    assert found.cosine_distances == pytest.approx([cosine])
    assert found.distances == pytest.approx([distance], abs=0)
    assert found.equal == [not distance]


@cases
def test_settings_of_two_models_that_differ_are_named(changed, rules):
    settings = data(__name__)["settings"]
    for folder, more in (("base", {}), ("tuned", changed)):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(json.dumps(settings | more))
        saved(f"{folder}/model.safetensors", vectors())
    assert compared("base", "tuned").rules == tuple(rules)

    tensors = {"wte.weight": torch.ones(ROWS, DIM), "norm.weight": torch.ones(DIM)}
    save_file(tensors, "tuned/model.safetensors")
    assert compared("base", "tuned").rules == (*rules, "1 tensor in BASE, 2 in TUNED")


# --- vocabularies ---------------------------------------------------------------------------------


def test_other_vocabularies_are_matched_by_the_bytes_of_tokens(in_process):
    """BASE has a row of padding, too."""
    matrix = vectors(6)
    moved = matrix[[3, 5, 0, 1]]
    moved[2, 0] += 2
    saved_with_words("base", ["a", "b", "c", "d"], matrix[:5])
    saved_with_words("tuned", ["d", "new", "a", "b"], moved)

    document = document_of(in_process, "diff", "base", "tuned")

    rows = document["rows"]
    assert document["diff"]["matched_by"] == "token"
    states = [[row["base_id"], row["tuned_id"], row["token"], row["state"]] for row in rows]
    assert states == data(__name__)["states"]
    assert rows[0]["l2_distance"] == pytest.approx(2, rel=1e-6)
    expected = turn(matrix[0].tolist(), moved[2].tolist())
    assert rows[0]["cosine_distance"] == pytest.approx(expected, rel=1e-11)


# --- pages ----------------------------------------------------------------------------------------


def test_equal_matrices_are_equal_with_status_0(in_process, snapshot):
    saved("base.safetensors", vectors())
    np.save("other.npy", np.asfortranarray(vectors(), np.float64))

    words = ("diff", "base.safetensors", "other.npy")
    page = in_process.ok(*words).text

    snapshot("diff/equal.txt", page)


def test_a_bare_page_has_the_answer_whatever_it_is(in_process, snapshot):
    """Also of tokens; the page has no guess, no criterion and no hint."""
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    near = base + np.float32(0.25)
    far = near.copy()
    far[2] += np.float32([0.5, -1.5, 0])
    for name, matrix in (("base", base), ("near", near), ("far", far)):
        np.save(f"{name}.npy", matrix)
        save_words(f"{name}/tokenizer.json", ["a", name])

    pages = session(
        in_process,
        "diff base.npy near.npy --atol 0.25 --bare",
        "diff base.npy far.npy --atol 0.25 --bare",
        "diff base base --tokens --bare",
        "diff base far --tokens --bare",
    )

    snapshot("diff/bare.txt", pages)


def test_arrays_of_any_dimensions_are_compared_by_their_rows(in_process, snapshot):
    right = np.arange(24, dtype=np.float32).reshape(8, 3)
    wrong = right.copy()
    wrong[5, 1] += 1
    np.save("right.npy", right)
    np.save("vector.npy", right[0])
    np.savetxt("vector.txt", right[0])
    np.save("batch.npy", wrong.reshape(2, 4, 3))
    np.savez_compressed("batch.npz", input=wrong.reshape(2, 4, 3))
    np.save("other-batch.npy", wrong.reshape(4, 2, 3))
    np.savetxt("wrong.txt", wrong)

    for name in ("batch.npy", "batch.npz", "wrong.txt"):
        rows = document_of(in_process, "diff", "right.npy", name)["rows"]
        assert [row["state"] for row in rows] == ["equal"] * 5 + ["changed"] + ["equal"] * 2
    pages = session(
        in_process,
        "diff right.npy batch.npy",
        "diff batch.npz wrong.txt",
        "diff vector.npy vector.txt",
        "diff batch.npy other-batch.npy",
    )
    snapshot("diff/of-arrays-of-any-dimensions.txt", pages)


@cases
def test_arrays_of_other_shapes_differ_though_their_rows_are_equal(shape, other_shape, in_process):
    values = np.arange(24, dtype=np.float32)

    assert not compared_arrays(values.reshape(shape), values.reshape(shape)).different
    for base, tuned in ((shape, other_shape), (other_shape, shape)):
        found = compared_arrays(values.reshape(base), values.reshape(tuned))

        words = f"the shapes differ: {tuple(base)} in BASE, {tuple(tuned)} in TUNED"
        assert found._why_no == words
        document = document_of(in_process, "diff", "base.npy", "tuned.npy")
        assert document["run"]["base"]["shapes"] == {"token": base}
        assert document["run"]["tuned"]["shapes"] == {"token": tuned}


def test_decimals_are_as_exact_as_the_array_they_are_compared_with(in_process):
    double = np.random.default_rng(3).standard_normal((5, 3))
    for dtype in (np.float64, np.float32):
        written = double.astype(dtype)
        np.save("base.npy", written)
        lines = [",".join(map(str, row)) for row in written.tolist()]
        Path("tuned.csv").write_text("\n".join(lines), "utf-8")
        assert in_process("diff", "base.npy", "tuned.csv").status == 0

    np.save("base.npy", double)
    assert in_process("diff", "base.npy", "tuned.csv").status == 1
    np.savetxt("base.csv", double, delimiter=",")
    assert not compared("base.csv", "tuned.csv").different


def test_the_largest_difference_of_a_row_is_named(in_process):
    matrix = vectors().astype(np.float64)
    tuned = matrix.copy()
    tuned[[3, 7], [5, 23]] -= [2, 1e-3]
    tuned[7, 4] += 1e-4
    tuned[9, 1] = np.nan
    matrix[11, 2] = np.nan
    tuned[11] = matrix[11]
    tuned[11, 6] += 3
    tuned[13, 2] = np.inf
    matrix[15, 4] = tuned[15, 4] = -np.inf
    tuned[15, 7] += 2

    found = compared_arrays(matrix, tuned)

    with np.errstate(invalid="ignore"):
        differences = np.abs(tuned - matrix)
    differences[11, 2] = 0  # Both are NaN.
    differences[13, 2] = np.nan  # It is not finite.
    differences[15, 4] = 0  # Both are the same infinity.
    assert np.array_equal(found.largest_differences, differences.max(axis=1), equal_nan=True)
    rows = document_of(in_process, "diff", "base.npy", "tuned.npy")["rows"]
    assert rows[7]["largest_difference"] == differences[7, 23]


def test_a_page_names_as_many_rows_as_are_asked_for(in_process, snapshot):
    """BASE has a row of padding, too; of those that changed, a page shows most and least."""
    added = [f"new{number}" for number in range(9)]
    saved_with_words("base", [*"abcdefgh"], vectors(9))
    saved_with_words("tuned", [*"badcfe", *added], vectors(15, seed=2))

    pages = session(in_process, "diff base tuned -k 2", "diff base tuned -k 50")

    snapshot("diff/as-many-rows-as-asked-for.txt", pages)


def test_the_fullest_page_fits_a_small_screen(in_process, snapshot):
    words = [f"w{number}" for number in range(99)]
    saved_with_words("base", words[:90], vectors(90))
    saved_with_words("tuned", words[10:], vectors(89, seed=2))

    snapshot("diff/fullest.txt", on_a_small_screen(in_process, "diff", "./base", "./tuned"))


def test_a_page_in_a_file_leaves_its_answer_on_standard_error(in_process, snapshot):
    other = vectors(ROWS + 2)
    other[0] = 0
    other[3, 1] = np.inf
    saved("a.safetensors", vectors())
    saved("b.safetensors", other)

    answers = session(
        in_process,
        "diff a.safetensors b.safetensors -o page.txt",
        "audit b.safetensors -o page.txt",
        "compare --from b.safetensors --ids 2 -o page.txt",
        "diff a.safetensors a.safetensors -o page.txt",
    )

    snapshot("diff/answers-beside-a-file.txt", answers)


def test_bad_requests_are_refused(in_process, snapshot):
    saved("base.safetensors", vectors())
    saved("narrow.safetensors", vectors(dim=3))

    snapshot("diff/errors.txt", refused("diff/errors.txt", in_process))


def test_seeded_models_are_compared_too(snapshot):
    base = embcli.seeded(vocab=7, dim=3)
    tuned = embcli.seeded(vocab=9, dim=3, seed=4)

    found = base.diff(tuned)

    left = live(Seeded(7, 3, 1024, 123))["token"].astype(float)
    right = live(Seeded(9, 3, 1024, 4))["token"][:7]
    moves = np.linalg.norm(left - right, axis=1)
    np.testing.assert_allclose(found.distances, moves, rtol=1e-12)
    snapshot("diff/seeded.txt", str(found))


def test_a_head_of_its_own_is_compared_with_a_tied_one():
    token = {"token_embd.weight": vectors()}
    written("tied.gguf", token)
    written("own.gguf", token | {"output.weight": vectors() + 1})
    found = embcli.open("own.gguf").diff(embcli.open("tied.gguf"))
    assert found.head.counts["changed"] == len(vectors())


def test_heads_that_are_not_compared_are_named(in_process):
    token = torch.from_numpy(vectors())
    names = {"tied": "other.weight", "own": "lm_head.weight", "packed": "lm_head.qweight"}
    for name, head in names.items():
        rows = torch.ones(3, 300).int() if name == "packed" else token + 1
        save_file({"embed_tokens.weight": token, head: rows}, f"{name}.safetensors")

    run = in_process("diff", "tied.safetensors", "own.safetensors")
    assert run.status == 0
    assert "; 1 other tensor not compared" in run.text
    assert "not compared: only one of the models has one" in run.err
    run = in_process("diff", "own.safetensors", "packed.safetensors")
    assert run.status == 0
    assert "the output heads are not compared: " in run.err

"""`diff`: planted edits are found exactly, whatever the formats and dtypes, and distances are those of float64."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

import embcli
from embcli.files.checkpoint import Checkpoint
from embcli.model import Model
from embcli.seeded_layers.seeded import Seeded
from embcli.verbs.diff import Diff
from tests.files.made import safetensors_bytes
from tests.oracles import live
from tests.runners import InProcess

ROWS, DIM = 300, 24
EDITED = [0, 7, 8, 150, 299]
FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def vectors(rows: int = ROWS, dim: int = DIM, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def saved(path: Path, matrix: np.ndarray, dtype: torch.dtype = torch.float32) -> Path:
    save_file({"wte.weight": torch.from_numpy(matrix).to(dtype)}, path)
    return path


def compared(base: Path, tuned: Path) -> Diff:
    return Model(Checkpoint(str(base))).diff(Model(Checkpoint(str(tuned))))


def states(found: Diff) -> list[str]:
    return ["equal" if equal else "changed" for equal in found.equal.tolist()]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn]
)
def test_planted_edits_are_found_exactly(
    in_process: InProcess, tmp_path: Path, dtype: torch.dtype
) -> None:
    """In one value each, in the first and the last row too."""
    matrix = vectors()
    edited = matrix.copy()
    edited[EDITED, [0, 3, 23, 11, 23]] += 1
    base, tuned = (
        saved(tmp_path / "base.safetensors", matrix, dtype),
        saved(tmp_path / "t.safetensors", edited, dtype),
    )
    found = compared(base, tuned)
    assert np.flatnonzero(~found.equal).tolist() == EDITED
    assert {state: count for state, count in found.counts.items() if count} == {
        "equal": 295,
        "changed": 5,
    }
    left, right = (torch.from_numpy(each).to(dtype).double().numpy() for each in (matrix, edited))
    np.testing.assert_allclose(found.distances, np.linalg.norm(left - right, axis=1), rtol=1e-12)
    assert {*found.changed.tolist()} == {*EDITED}
    assert (np.diff(found.distances[found.changed]) <= 0).all()
    assert in_process("diff", str(base), str(tuned)).status == 1


def turn(left: list[float], right: list[float]) -> float:
    """Return 1 - cos, computed in 120 digits."""
    rows = [[Fraction(value) for value in row] for row in (left, right)]
    sums = [
        sum(x * y for x, y in zip(*pair, strict=True))
        for pair in combinations_with_replacement(rows, 2)
    ]
    with localcontext() as context:
        context.prec = 120
        aa, ab, bb = (Decimal(each.numerator) / each.denominator for each in sums)
        return float(1 - ab / (aa * bb).sqrt())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_moves_do_not_cancel_out(tmp_path: Path, dtype: type[np.floating]) -> None:
    """By the last bits, by the rounding of a row that is scaled, by more, to far longer rows, and backwards."""
    matrix = vectors(20, 7).astype(dtype)
    last_bit = matrix.copy()
    last_bit[:, 1] = np.nextafter(matrix[:, 1], dtype(9))
    moves = [
        matrix + (size * vectors(20, 7, seed=2)).astype(dtype) for size in (1e-15, 1e-9, 1e-4, 1)
    ]
    moves += [np.roll(matrix, 1, axis=1) * dtype(times) for times in (1.5, 3, 1e5, 1e9, 1e16, 1e30)]
    for tuned in (
        last_bit,
        np.nextafter(matrix, dtype(9)),
        matrix * dtype(1.1),
        3 * moves[0],
        *moves,
        -2 * matrix,
    ):
        for name, each in (("base.npy", matrix), ("tuned.npy", tuned)):
            np.save(tmp_path / name, each)
        found = compared(tmp_path / "base.npy", tmp_path / "tuned.npy")
        wanted = [turn(*pair) for pair in zip(matrix.tolist(), tuned.tolist(), strict=True)]
        rounding = 1e-15 * np.sqrt(wanted) + 1e-31  # of rows scaled to length 1
        assert (
            np.abs(found.cosine_distances - wanted) <= rounding + 1e-11 * np.array(wanted)
        ).all()
        moved = np.linalg.norm(matrix.astype(np.float64) - tuned, axis=1)
        np.testing.assert_allclose(found.distances, moved, rtol=1e-12)


def test_a_row_that_grows_does_not_turn(tmp_path: Path) -> None:
    matrix = np.random.default_rng(3).integers(-(2**50), 2**50, (ROWS, DIM)).astype(float)
    for name, each in (("base.npy", matrix), ("tuned.npy", 7 * matrix)):
        np.save(tmp_path / name, each)
    assert (compared(tmp_path / "base.npy", tmp_path / "tuned.npy").cosine_distances < 1e-30).all()


def test_equal_matrices_are_equal_with_status_0(in_process: InProcess, tmp_path: Path) -> None:
    base = saved(tmp_path / "base.safetensors", vectors())
    np.save(tmp_path / "other.npy", np.asfortranarray(vectors()))
    for other in (base, tmp_path / "other.npy"):
        text = in_process.ok("diff", str(base), str(other)).text
        assert in_process.ok("diff", str(base), str(other), "--bare").text == text  # words alone
        assert "rows   300 equal\n" in text
        assert text.endswith("\nThe token matrices are equal\n")


def test_zeros_and_nan_that_differ_in_bits_alone_are_equal(tmp_path: Path) -> None:
    matrix = vectors(6)
    matrix[1, 1], matrix[2, 2], matrix[3, 3], matrix[4] = 0, np.nan, np.nan, 0
    other = matrix.copy()
    other[1, 1], other[3, 3], other[5, 5] = -0.0, 1, np.inf
    other[2, 2] = np.array([0x7FC00001], np.uint32).view(np.float32)[0]
    other[4, 0] = 3
    found = compared(
        saved(tmp_path / "base.safetensors", matrix), saved(tmp_path / "t.safetensors", other)
    )
    assert states(found) == ["equal", "equal", "equal", "changed", "changed", "changed"]
    assert found.changed.tolist() == [3, 5, 4], "non-finite rows come first"
    assert np.isnan(found.cosine_distances[[3, 4, 5]]).all()
    assert found.distances[4] == 3
    assert found.quantiles(found.distances)[0] == 3


@pytest.mark.parametrize(("left", "right"), list(permutations(FLOATS, 2)))
def test_two_dtypes_are_compared_by_value(
    tmp_path: Path, left: torch.dtype, right: torch.dtype
) -> None:
    """What the other dtype rounds has changed, by as much as torch's own rounding."""
    matrix = np.concatenate([vectors(), vectors(seed=2) * 1e-3, vectors(40, seed=3) * 1e-8]) / 2
    matrix[EDITED] = np.float32([[0, 0.5, -1.75, 2.0] * 6])  # which all of them hold
    held = [torch.from_numpy(matrix).to(dtype) for dtype in (left, right)]
    paths = tmp_path / "left.safetensors", tmp_path / "right.safetensors"
    for path, weight in zip(paths, held, strict=True):
        save_file({"wte.weight": weight}, path)
    found = compared(*paths)
    one, other = (each.double().numpy() for each in held)
    assert found.equal.tolist() == (one == other).all(axis=1).tolist()
    assert found.equal[EDITED].all()
    assert found.dtypes == tuple(str(dtype).removeprefix("torch.") for dtype in (left, right))
    np.testing.assert_allclose(found.distances, np.linalg.norm(one - other, axis=1), rtol=1e-12)


@pytest.mark.parametrize("top", [2, 50])
def test_tokens_of_one_model_only_are_named(
    in_process: InProcess, tmp_path: Path, top: int
) -> None:
    """Those that were added, and those that were dropped, as many as are asked for; the rest is said."""
    added = [f"new{number}" for number in range(9)]
    base = words(tmp_path / "base", ["a", "b", "c", "d"], vectors(5))  # and a row of padding
    tuned = words(tmp_path / "tuned", ["b", "a", *added], vectors(11, seed=2))
    text = in_process("diff", str(base), str(tuned), "-k", str(top), "--width", "200").text
    dropped, news = ["2 c", "3 d", "4"], [f"{2 + number} {new}" for number, new in enumerate(added)]
    for name, rows in (("BASE", dropped), ("TUNED", news)):
        assert f"\nonly in {name}: {', '.join([*rows[:top], *['...'] * (top == 2)])}\n" in text
    told = "Left out: row 4 (1 of 3) of BASE and rows 4 to 10 (7 of 9) of TUNED."
    assert (told in text) == (top == 2)


@pytest.mark.parametrize("top", [None, 2])
def test_a_page_shows_the_rows_that_changed_most_and_least(
    in_process: InProcess, tmp_path: Path, top: int | None
) -> None:
    base, tuned = (
        saved(tmp_path / "base.safetensors", vectors()),
        saved(tmp_path / "t.safetensors", vectors(seed=3)),
    )
    text = in_process(
        "diff", str(base), str(tuned), *(() if top is None else ("-k", str(top)))
    ).text
    shown = [
        row.split()[0] for row in text[text.index("Changed most, and least") :].splitlines()[3:]
    ]
    result = compared(base, tuned)
    found, count = result.changed.tolist(), top or 3
    medians = [f"{np.median(values):.4f}" for values in (result.cosine_distances, result.distances)]
    assert (
        f"Changed most, and least; medians: cosine distance {medians[0]}, L2 distance {medians[1]}\n"
        in text
    )
    assert shown[: 2 * count + 1] == [*map(str, found[:count]), "⋮", *map(str, found[-count:])]
    assert (
        f"Left out: changed rows {count + 1} to {300 - count} ({300 - 2 * count} of 300).\n" in text
    )


def test_the_fullest_page_fits_a_small_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it can tell, below the command line and above the next."""
    monkeypatch.chdir(tmp_path)
    words(tmp_path / "base", [f"w{number}" for number in range(90)], vectors(90))
    words(tmp_path / "tuned", [f"w{number}" for number in range(10, 99)], vectors(89, seed=2))
    text = InProcess()(
        "diff", "./base", "./tuned", COLUMNS="80", LINES="24", NO_COLOR="1", terminal=True
    ).text
    assert text.startswith("Token matrices")
    assert text.count("\n") <= 22
    assert all(
        part in text
        for part in ("The vocabularies differ", "only in BASE:", "only in TUNED:", "Left out:")
    )


def test_a_page_in_a_file_leaves_its_answer_on_standard_error(
    in_process: InProcess, tmp_path: Path
) -> None:
    base, other = str(saved(tmp_path / "a.safetensors", vectors())), vectors(ROWS + 2)
    other[0], other[3, 1] = 0, np.inf
    tuned, page = str(saved(tmp_path / "b.safetensors", other)), str(tmp_path / "page.txt")
    for arguments, why in (
        (("diff", base, tuned), "2 rows changed, 2 rows added"),
        (("audit", "--from", tuned), "non-finite (1), zero (1)"),
        (("compare", "--from", tuned, "--ids", "2"), "1 of 24 values differ"),
    ):
        ran = in_process(*arguments, "-o", page)
        assert (ran.status, ran.out, ran.err) == (1, b"", f"embcli: status 1: {why}\n")
        assert in_process(*arguments).err == ""
    assert in_process.ok("diff", base, base, "-o", page).err == ""


def words(folder: Path, tokens: list[str], matrix: np.ndarray) -> Path:
    folder.mkdir()
    saved(folder / "model.safetensors", matrix)
    Tokenizer(
        models.WordLevel({token: place for place, token in enumerate(tokens)}, tokens[0])
    ).save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("lies", ["by columns", "at an odd place"])
def test_edits_in_a_matrix_of_several_blocks_are_found_however_it_lies(
    tmp_path: Path, lies: str
) -> None:
    """4.8 million values, the last bit of one of them in each edited row."""
    matrix = vectors(200_000)
    edited, rows = matrix.copy(), [0, 7, 99_999, 174_763, 199_999]
    edited[rows, 5] = np.nextafter(edited[rows, 5], np.float32(9))
    base, tuned = saved(tmp_path / "base.safetensors", matrix), tmp_path / "tuned.npy"
    np.save(tuned, np.asfortranarray(edited))
    if lies == "at an odd place":
        tuned = tmp_path / "tuned.safetensors"
        tensors = {"wte.weight": ("F32", edited.shape, edited.tobytes()), "z": ("U8", (1,), b"x")}
        tuned.write_bytes(safetensors_bytes({"a": ("U8", (1,), b"x"), **tensors}))
    for pair in ((base, tuned), (tuned, base)):
        found = compared(*pair)
        assert np.flatnonzero(~found.equal).tolist() == rows
        np.testing.assert_allclose(
            found.distances, np.linalg.norm(matrix.astype(float) - edited, axis=1), rtol=1e-12
        )


def test_other_vocabularies_are_matched_by_the_bytes_of_tokens(
    in_process: InProcess, tmp_path: Path
) -> None:
    matrix = vectors(6)
    base = words(tmp_path / "base", ["a", "b", "c", "d"], matrix[:5])  # and a row of padding
    moved = matrix[[3, 5, 0, 1]]
    moved[2, 0] += 2
    tuned = words(tmp_path / "tuned", ["d", "new", "a", "b"], moved)
    ran = in_process("diff", str(base), str(tuned), "-f", "json")
    assert ran.status == 1
    document = json.loads(ran.out)
    assert document["diff"]["matched_by"] == "token"
    fields = ("base_id", "tuned_id", "token", "state")
    assert [tuple(row[name] for name in fields) for row in document["rows"]] == [
        (0, 2, "a", "changed"),
        (1, 3, "b", "equal"),
        (3, 0, "d", "equal"),
        (2, None, "c", "removed"),
        (4, None, None, "removed"),
        (None, 1, "new", "added"),
    ]
    assert document["rows"][0]["l2_distance"] == pytest.approx(2, rel=1e-6)
    turned = turn(matrix[0].tolist(), moved[2].tolist())
    assert document["rows"][0]["cosine_distance"] == pytest.approx(turned, rel=1e-11)
    assert "match by the bytes of their tokens" in in_process("diff", str(base), str(tuned)).text


@pytest.mark.parametrize("name", ["a.npy", "a.pt", "a.safetensors"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.int32])
def test_numbers_that_float32_does_not_hold_are_compared_as_they_are_stored(
    in_process: InProcess, tmp_path: Path, dtype: torch.dtype, name: str
) -> None:
    matrix = (vectors() * (1 << 20)).astype(np.float64).round() * 128 + (1 << 30)
    edited = matrix.copy()
    edited[EDITED, 3] += 1
    pair = tmp_path / f"base{name}", tmp_path / name
    for path, values in zip(pair, (matrix, edited), strict=True):
        weight = torch.from_numpy(values).to(dtype)
        if name == "a.npy":
            np.save(path, weight.numpy())
        elif name == "a.pt":
            torch.save({"wte.weight": weight}, path)
        else:
            save_file({"wte.weight": weight}, path)
    found = compared(*pair)
    assert np.array_equal(matrix.astype(np.float32), edited.astype(np.float32))
    assert np.flatnonzero(~found.equal).tolist() == EDITED
    assert (found.distances[EDITED] == 1).all()
    assert in_process("diff", *map(str, pair)).err == ""


NEAR = [[2**61, 5, 2**60], [3, 2**62, 2**63 - 2]], [[2**61, 5, 2**60 + 1], [3, 2**62, 2**63 - 3]]


@pytest.mark.parametrize(
    ("dtypes", "base", "tuned", "distances"),
    [
        *(
            (pair, *NEAR, [0, 0])
            for pair in (("i8", "i8"), ("u8", "u8"), (">i8", "u8"), ("u8", ">i8"))
        ),
        (("i4", "f8"), [[1 << 24, 5]], [[(1 << 24) + 1, 5]], [1]),
        (("i8", "f8"), [[(1 << 60) + 1, 5]], [[1 << 24, 5]], [2**60 - 2**24]),
    ],
)
def test_whole_numbers_are_compared_as_they_are_stored(
    tmp_path: Path,
    dtypes: tuple[str, str],
    base: list[list[float]],
    tuned: list[list[float]],
    distances: list[float],
) -> None:
    """Neighbours that float64 does not tell apart have changed, by 0; only the first row is the same in both."""
    names = tmp_path / "base.npy", tmp_path / "tuned.npy"
    for path, dtype, values in zip(names, dtypes, (base, tuned), strict=True):
        np.save(path, np.array([[1] * len(base[0]), *values], dtype))
    for pair in (names, names[::-1]):
        found = compared(*pair)
        assert states(found) == ["equal", *["changed"] * len(base)]
        assert found.distances.tolist() == [0, *distances]
        assert found.cosine_distances == pytest.approx(
            [0, *map(turn, base, tuned)], rel=1e-11, abs=1e-31
        )


def test_bad_requests_are_refused_in_words(in_process: InProcess, tmp_path: Path) -> None:
    base = str(saved(tmp_path / "base.safetensors", vectors()))
    narrow = str(saved(tmp_path / "narrow.safetensors", vectors(dim=3)))
    assert f"rows have different lengths: 24 in {base!r}, 3 in {narrow!r}" in in_process.refused(
        "diff", base, narrow
    )
    assert "Missing argument 'TUNED'" in in_process.refused("diff", base)
    assert "not found as a file" in in_process.refused("diff", base, "none")
    assert "it has no tensor 'x'" in in_process.refused("diff", base, base, "--tensor", "x")


def test_seeded_models_are_compared_too() -> None:
    base, tuned = embcli.seeded(vocab=7, dim=3), embcli.seeded(vocab=9, dim=3, seed=4)
    result = base.diff(tuned)
    left, right = (live(Seeded(size, 3, 1024, seed))["token"] for size, seed in ((7, 123), (9, 4)))
    np.testing.assert_allclose(
        result.distances, np.linalg.norm(left.astype(float) - right[:7], axis=1), rtol=1e-12
    )
    assert result.counts == {"equal": 0, "changed": 7, "removed": 0, "added": 2}
    assert "BASE   (7, 3) float32: seed 123\nTUNED  (9, 3) float32: seed 4\n" in str(result)
    assert not base.diff(base).different

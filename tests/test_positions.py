"""Positions: each kind against torch or a formula of another form, and the matrices, pages and refusals of the verb."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import embcli
from embcli.errors import EmbcliError
from embcli.positions import KINDS
from embcli.positions.rotary import rotated_rows
from embcli.positions.sinusoidal import wave_rows
from embcli.verbs.positions import PositionTable
from tests.oracles import normal
from tests.runners import InProcess

V, T, D, SEED = 50, 40, 6, 123
dims = st.integers(1, 40)
even_dims = st.integers(1, 20).map(lambda half: 2 * half)
places = st.lists(st.integers(0, 10_000), min_size=1, max_size=6)
pairings = st.sampled_from(["interleaved", "halves"])


@given(dims, places)
def test_sinusoidal_rows_are_those_of_the_papers_formula(dim: int, positions: list[int]) -> None:
    found = wave_rows(dim, np.array(positions))
    assert found.dtype == np.float32
    for row, position in zip(found.tolist(), positions, strict=True):
        for column, value in enumerate(row):
            angle = position / 10000 ** (2 * (column // 2) / dim)
            assert abs(value - (math.cos(angle) if column % 2 else math.sin(angle))) < 1e-6


@given(even_dims, pairings, places, st.floats(1, 1e6))
def test_rotary_positions_multiply_pairs_as_complex_numbers(
    dim: int, pairing: Any, at: list[int], theta: float
) -> None:
    row = normal(1, dim)
    first = row[0, 0::2] if pairing == "interleaved" else row[0, : dim // 2]
    second = row[0, 1::2] if pairing == "interleaved" else row[0, dim // 2 :]
    angles = np.array([[place / theta ** (2 * i / dim) for i in range(dim // 2)] for place in at])
    complex_pairs = (first + 1j * second.astype(np.float64)) * np.exp(1j * angles)
    both = [complex_pairs.real, complex_pairs.imag]
    wanted = (
        np.stack(both, axis=2).reshape(-1, dim)
        if pairing == "interleaved"
        else np.concatenate(both, axis=1)
    )
    np.testing.assert_allclose(
        rotated_rows(row, pairing, theta, np.array(at)), wanted, rtol=0, atol=1e-9
    )


def test_rotary_positions_turn_an_infinite_weight_without_a_warning() -> None:
    assert not np.isfinite(
        rotated_rows(np.array([[np.inf, 1]], np.float32), "halves", 1e4, np.array([1]))
    ).any()


# --- the verb ---------------------------------------------------------------------------------------------------------


def drawn(rows: int = T, dim: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Return both layers, drawn by torch in the order of the contract."""
    torch.manual_seed(SEED)
    return tuple(torch.nn.Embedding(size, dim).weight.detach().numpy() for size in (V, rows))  # type: ignore[return-value]


def table(kind: Any, length: int | None = T, dim: int = D, **more: Any) -> PositionTable:
    return embcli.seeded(
        vocab=V, dim=dim, context_length=T if length is None else length
    ).positions(kind, context_length=length, **more)


def everything(result: PositionTable) -> dict[str, np.ndarray]:
    records = result.records()
    pieces = list(records.pieces(tuple(records.fields), tuple(records.matrices)))
    assert (
        np.concatenate([piece.fields["position"] for piece in pieces]).tolist()
        == result.chosen.tolist()
    )
    found = {
        name: np.concatenate([piece.matrices[name] for piece in pieces])
        for name in records.matrices
    }
    for name, values in found.items():
        assert np.array_equal(getattr(result, name), values)
        assert (values.shape, values.dtype) == (
            records.matrices[name].shape,
            records.matrices[name].dtype,
        )
    return found


def test_learned_and_sinusoidal_positions_are_their_rows() -> None:
    assert everything(table("learned"))["position"].tobytes() == drawn()[1].tobytes()
    result = table("sinusoidal", dim=7)
    assert everything(result)["position"].tobytes() == wave_rows(7, np.arange(T)).tobytes()
    assert "seed" not in result.records().run
    with pytest.raises(AttributeError, match="there are: position"):
        _ = result.similarity


def test_relative_positions_are_rows_of_a_seeded_layer_by_clipped_distance() -> None:
    distances = (torch.arange(T)[None, :] - torch.arange(T)[:, None]).clamp(-16, 16)
    layer = torch.tensor(drawn(33)[1])
    found = everything(table("relative"))
    assert found["distance"].tolist() == distances.tolist()
    assert (
        found["position"].tobytes()
        == torch.nn.functional.embedding(distances + 16, layer).numpy().tobytes()
    )
    chosen = everything(table("relative", rows="39,0:2", columns="5,1"))["position"]
    assert (
        chosen.tobytes()
        == np.ascontiguousarray(found["position"][[39, 0, 1]][:, :, [5, 1]]).tobytes()
    )
    products = everything(table("relative", ids="9", similarity=True))["similarity"]
    row = drawn(33)[0][9].astype(np.float64)
    np.testing.assert_allclose(products, found["position"].astype(np.float64) @ row, rtol=1e-6)


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize("token_id", [None, 7])
def test_rotary_positions_are_angles_and_the_turned_row_of_a_token(
    pairing: Any, token_id: int | None
) -> None:
    result = table("rotary", pairing=pairing, theta=50.0, ids=token_id)
    row = drawn()[0][[token_id or 0]]
    angles = np.arange(T)[:, None] / 50.0 ** (2 * np.arange(D // 2) / D)
    found = everything(result)
    np.testing.assert_allclose(found["position"], angles, rtol=1e-6)
    assert (
        found["input"].tobytes()
        == rotated_rows(row, pairing, 50.0, np.arange(T)).astype(np.float32).tobytes()
    )
    assert found["input"][0].tobytes() == row.tobytes()
    assert result.records().default == "position"
    chosen = everything(
        table("rotary", rows="3,1", columns="2,0", pairing=pairing, theta=50.0, ids=token_id)
    )
    columns = [4, 5, 0, 1] if pairing == "interleaved" else [2, 0, 5, 3]
    assert chosen["position"].tobytes() == found["position"][[3, 1]][:, [2, 0]].tobytes()
    assert chosen["input"].tobytes() == found["input"][[3, 1]][:, columns].tobytes()


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary"])
def test_similarity_is_the_dot_product_of_what_two_positions_become(kind: str) -> None:
    vectors = everything(table(kind))["input" if kind == "rotary" else "position"].astype(
        np.float64
    )
    found = everything(table(kind, similarity=True))["similarity"]
    np.testing.assert_allclose(found, vectors @ vectors.T, atol=2e-5)
    chosen = everything(table(kind, rows="5,2", columns="0,39,7", similarity=True))["similarity"]
    np.testing.assert_allclose(chosen, found[[5, 2]][:, [0, 39, 7]], atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        (
            "relative",
            {"theta": 3.0},
            "^theta is an option of rotary positions, not of relative ones$",
        ),
        (
            "sinusoidal",
            {"pairing": "halves"},
            "^pairing is an option of rotary positions, not of sinusoidal ones$",
        ),
        (
            "sinusoidal",
            {"ids": "3"},
            "^ids is an option of relative and rotary positions, not of sinusoidal ones$",
        ),
        (
            "rotary",
            {"pairing": "both"},
            "^pairing 'both' is not known; choose from interleaved, halves$",
        ),
        (
            "alibi",
            {},
            "^kind 'alibi' is not known; choose from learned, sinusoidal, relative, rotary$",
        ),
        *(("rotary", {"dim": dim}, f"dim must be even, not {dim}") for dim in (1, 5)),
        *(
            ("rotary", {"theta": x}, "theta must be a finite number from 1")
            for x in (0.5, math.inf, math.nan, -1.0)
        ),
        ("rotary", {"ids": "1,2"}, "^ids must be one token ID, not 2: '1,2'$"),
        ("rotary", {"ids": ""}, "^ids must be one token ID, not 0: ''$"),
        ("rotary", {"ids": "50"}, "ID 50 at position 0 has no row"),
        ("learned", {"length": 0}, "^context_length must be at least 1, not 0$"),
        ("learned", {"rows": "40"}, "position 40 is out of range"),
        ("rotary", {"columns": "3"}, "column 3 is out of range"),
    ],
)
def test_what_makes_no_positions_is_refused(kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(EmbcliError, match=message):
        table(kind, **more)


def test_a_row_for_each_pair_of_positions_has_no_flat_format() -> None:
    relative = (
        "positions",
        "--kind",
        "relative",
        "--context-length",
        "3",
        "--dim",
        "2",
        "--vocab",
        "5",
    )
    for format in ("csv", "tsv"):
        assert f"this result cannot be written as {format}; it can" in InProcess().refused(
            *relative, "-f", format
        )
    assert (
        InProcess()
        .ok(*relative, "--similarity", "-f", "csv")
        .text.startswith("position,0,1,2\r\n0,")
    )


@pytest.mark.parametrize("similarity", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [None, 1024])
def test_a_page_shows_the_numbers_of_its_corners(
    kind: Any, similarity: bool, length: int | None
) -> None:
    result = embcli.seeded(vocab=V, dim=64).positions(
        kind, context_length=length, similarity=similarity
    )
    matrices = {each.name: each for each in result.matrices}
    name = next(iter(matrices)) if kind != "relative" or similarity else "distance"
    last = 15 if length is None else 1023
    written = str if name == "distance" else "{:.4f}".format
    lines = str(result).splitlines()
    first_row, last_row = (
        next(line.split() for line in lines if line.split()[:1] == [str(at)]) for at in (0, last)
    )
    values, corner = (
        matrices[name].rows(np.array([0, last])),
        last if similarity or name == "distance" else -1,
    )
    assert (first_row[2], last_row[-1]) == (written(values[0][0]), written(values[1][corner]))
    short = (
        f" 0 to 15 of 1,024: {'T' if similarity else ''}"
        if length is None and kind != "relative"
        else ": "
    )
    assert f"{kind} positions{short}" in lines[0].lower().replace("t =", "T =")
    whole = result.records().matrices["similarity" if similarity else "position"]
    assert whole.shape[0] == (16 if length is None and kind == "relative" else 1024)


LEARNED = "A separate layer, drawn after the token layer: row p is added to the token row; training adjusts it."
ODD = "D is odd: the last sine has no cosine, so diagonals are only nearly equal."
DIAGONAL = "They depend only on the distance: equal along each diagonal."


@pytest.mark.parametrize(
    ("kind", "more", "lines"),
    [
        (
            "learned",
            {"length": None},
            ["Learned positions 0 to 15 of 40: T = 16 positions, D = 6 columns", LEARNED],
        ),
        (
            "learned",
            {"similarity": True},
            ["Random rows: their dot products mean nothing before training."],
        ),
        (
            "sinusoidal",
            {"similarity": True},
            ["Dot products of sinusoidal positions: T = 40 positions", DIAGONAL],
        ),
        ("sinusoidal", {"similarity": True, "dim": 7}, [ODD]),
        (
            "relative",
            {"length": 3},
            [
                "Relative positions: T = 3 positions, D = 6 columns, k = 16",
                "The distances, clipped, (T, T) = (3, 3)",
            ],
        ),
        ("rotary", {"theta": 50.0}, ["Rotary positions: T = 40 positions, D/2 = 3 angles"]),
        ("rotary", {"ids": "7"}, ["The row of token ID 7, rotated: columns 0 and 1 are a pair"]),
        ("rotary", {"ids": "7", "similarity": True}, ["The row is that of token ID 7.", DIAGONAL]),
    ],
)
def test_a_page_says_what_a_kind_is(kind: str, more: dict[str, Any], lines: list[str]) -> None:
    page = str(table(kind, **more)).splitlines()
    assert {*lines} <= {*page}
    if kind == "relative":  # the distances that occur
        assert [line.split()[0] for line in page if "│" in line][4:] == [
            "distance",
            "-2",
            "-1",
            "0",
            "1",
            "2",
        ]


def test_columns_that_are_in_turn_are_known_to_pictures() -> None:
    column_period = {"interleaved": [1, 2], "halves": [1, 1]}
    for pairing, each in column_period.items():
        assert [
            matrix.column_period for matrix in table("rotary", pairing=pairing).matrices
        ] == each
    assert [
        table("sinusoidal", columns=columns).matrices[0].column_period for columns in (None, "0,2")
    ] == [2, 1]


def test_chosen_rows_and_a_given_length_are_shown_whatever_they_are() -> None:
    whole = ("positions", "--kind", "sinusoidal", "--dim", "4", "--rows", "1000,1023")
    assert [line.split()[0] for line in InProcess().ok(*whole).text.splitlines()[4:6]] == [
        "1000",
        "1023",
    ]
    given = (
        InProcess()
        .ok("positions", "--kind", "sinusoidal", "--dim", "4", "--context-length", "1024")
        .text
    )
    assert "T = 1,024 positions, D = 4 columns" in given
    assert "\n1023  │" in given
    assert "rows 5 to 1018 (1,014 of 1,024)" in given
    chosen = InProcess().ok(*whole[:-1], "0:150").text
    assert all(f"\n{row:>3}  │" in chosen for row in range(150))

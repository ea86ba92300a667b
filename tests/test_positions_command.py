"""The verb `positions`: its matrices are torch's rows and independent formulas, in the shapes that it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embcli.errors import EmbcliError
from embcli.layer import Layers, Origin
from embcli.notes import Notes
from embcli.oldpage import Paper
from embcli.oldpage.terminal import Terminal
from embcli.options import PositionOptions
from embcli.positions.rotary import Rotary
from embcli.positions.sinusoidal import Sinusoidal
from embcli.verbs.positions import PositionTable, positions
from embcli.views.positions import view
from tests.inside import Inside
from tests.test_positions import Plain

V, T, D, SEED = 50, 40, 6, 123


@dataclass
class Drawn:
    """Both layers, drawn by torch in the order of the contract."""

    recipe = rotation = None
    rows: int
    dim: int = D
    encoding: None = None
    origin: Origin = field(default_factory=lambda: Origin(seed=SEED))
    notes: Notes = field(default_factory=Notes)

    def __post_init__(self) -> None:
        self.resized(self.rows)

    def resized(self, context_length: int) -> Drawn:
        """Draw both layers anew; in place, so that a test sees what was drawn last."""
        self.rows = context_length
        torch.manual_seed(SEED)
        sizes = {"token": V, "position": self.rows}
        self.values = {name: torch.nn.Embedding(size, self.dim).weight.detach().numpy() for name, size in sizes.items()}
        return self

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def open(self, wanted: dict[str, np.ndarray | None]) -> Layers:
        return Layers({name: Plain(self.values[name]) for name in wanted}, self.origin)


def table(kind: str, rows: str | None = None, columns: str | None = None, **more: Any) -> tuple[PositionTable, Drawn]:
    length, source = more.pop("length", T), Drawn(T, more.pop("dim", D))
    return positions(source, PositionOptions(kind, rows=rows, columns=columns, **more), length), source


def everything(result: PositionTable) -> dict[str, np.ndarray]:
    records = result.records()
    names = tuple(records.matrices)
    pieces = list(records.pieces(records.fields, names))
    assert np.concatenate([piece.fields["position"] for piece in pieces]).tolist() == result.chosen.tolist()
    found = {name: np.concatenate([piece.matrices[name] for piece in pieces]) for name in names}
    for name, values in found.items():
        assert np.array_equal(getattr(result, name), values)
        assert (values.shape, values.dtype) == (records.matrices[name].shape, records.matrices[name].dtype)
    return found


def test_learned_positions_are_the_rows_of_the_layer_drawn_behind_the_token_layer() -> None:
    result, source = table("learned")
    assert everything(result)["position"].tobytes() == source.values["position"].tobytes()


def test_sinusoidal_positions_need_no_layer_and_no_seed() -> None:
    result, _ = table("sinusoidal", dim=7)
    assert everything(result)["position"].tobytes() == Sinusoidal(7).rows(np.arange(T)).tobytes()
    assert "seed" not in result.records().run
    with pytest.raises(AttributeError, match="there are: position"):
        _ = result.similarity


@pytest.mark.parametrize("clip", [None, 0, 2, 100])
def test_relative_positions_are_rows_of_a_seeded_layer_by_clipped_distance(clip: int | None) -> None:
    result, source = table("relative", clip=clip)
    k = 16 if clip is None else clip
    assert source.shape("position") == (2 * k + 1, D)
    distances = torch.arange(T)[None, :] - torch.arange(T)[:, None]
    expected = torch.nn.functional.embedding(distances.clamp(-k, k) + k, torch.tensor(source.values["position"]))
    found = everything(result)
    assert found["distance"].tolist() == distances.clamp(-k, k).tolist()
    assert found["position"].shape == (T, T, D)
    assert found["position"].tobytes() == expected.numpy().tobytes()
    assert result.records().default == "position"


@pytest.mark.parametrize("pairing", ["interleaved", "halves"])
@pytest.mark.parametrize(("ids", "token_id"), [(None, 0), ("7", 7)])
def test_rotary_positions_are_angles_and_the_turned_row_of_a_token(
    pairing: Any, ids: str | None, token_id: int
) -> None:
    result, source = table("rotary", pairing=pairing, theta=50.0, ids=ids)
    kind, row = Rotary(D, pairing=pairing, theta=50.0), source.values["token"][[token_id]]
    found = everything(result)
    assert found["position"].tobytes() == kind.rows(np.arange(T)).tobytes()
    assert found["position"].shape == (T, D // 2)
    assert found["input"].tobytes() == kind.joined(np.repeat(row, T, axis=0), np.arange(T)).tobytes()
    assert found["input"][0].tobytes() == row.tobytes()
    assert result.records().default == "position"


def test_chosen_pairs_of_rotary_positions_bring_their_two_columns() -> None:
    for pairing, turned in (("interleaved", [4, 5, 0, 1]), ("halves", [2, 0, 5, 3])):
        whole = everything(table("rotary", pairing=pairing)[0])
        chosen = everything(table("rotary", "3,1", "2,0", pairing=pairing)[0])
        assert chosen["position"].tobytes() == whole["position"][[3, 1]][:, [2, 0]].tobytes()
        assert chosen["input"].tobytes() == whole["input"][[3, 1]][:, turned].tobytes()


def test_chosen_rows_and_columns_of_relative_positions_are_those_of_the_whole() -> None:
    whole = everything(table("relative")[0])["position"]
    chosen = everything(table("relative", "39,0:2", "5,1")[0])["position"]
    assert chosen.tobytes() == np.ascontiguousarray(whole[[39, 0, 1]][:, :, [5, 1]]).tobytes()


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rotary"])
def test_similarity_is_the_dot_product_of_what_two_positions_become(kind: str) -> None:
    vectors = everything(table(kind)[0])["input" if kind == "rotary" else "position"].astype(np.float64)
    found = everything(table(kind, similarity=True)[0])["similarity"]
    np.testing.assert_allclose(found, vectors @ vectors.T, atol=2e-5)
    chosen = everything(table(kind, "5,2", "0,39,7", similarity=True)[0])["similarity"]
    np.testing.assert_allclose(chosen, found[[5, 2]][:, [0, 39, 7]], atol=1e-6)


def test_rotary_similarity_is_one_number_for_each_distance() -> None:
    found = everything(table("rotary", dim=64, similarity=True)[0])["similarity"]
    for distance in range(T):
        assert len(np.unique(np.diagonal(found, distance).round(4))) == 1


def test_relative_similarity_is_the_dot_product_of_a_row_with_each_relative_row() -> None:
    result, source = table("relative", clip=3, ids="9", similarity=True)
    relative = everything(table("relative", clip=3)[0])["position"].astype(np.float64)
    row = source.values["token"][9].astype(np.float64)
    np.testing.assert_allclose(everything(result)["similarity"], relative @ row, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("learned", {"clip": 3}, "^clip is an option of relative positions, not of learned ones$"),
        ("relative", {"theta": 3.0}, "^theta is an option of rotary positions, not of relative ones$"),
        ("sinusoidal", {"pairing": "halves"}, "^pairing is an option of rotary positions, not of sinusoidal ones$"),
        ("sinusoidal", {"ids": "3"}, "^ids is an option of relative and rotary positions, not of sinusoidal ones$"),
        ("relative", {"clip": -1}, "clip must be at least 0, not -1"),
        ("rotary", {"dim": 5}, "dim must be even, not 5"),
        ("rotary", {"ids": "1,2"}, "^ids must be one token ID, not 2: '1,2'$"),
        ("rotary", {"ids": ""}, "^ids must be one token ID, not 0: ''$"),
        ("rotary", {"ids": "50"}, "ID 50 at position 0 has no row"),
        ("learned", {"length": 0}, "^context_length must be at least 1, not 0$"),
        ("learned", {"rows": "40"}, "position 40 is out of range"),
        ("rotary", {"columns": "3"}, "column 3 is out of range"),
        ("sinusoidal", {"length": 10**12}, "of memory"),
    ],
)
def test_what_makes_no_positions_is_refused(kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(EmbcliError, match=message):
        table(kind, **more)


def test_a_row_for_each_pair_of_positions_has_no_flat_format() -> None:
    relative = ("positions", "--kind", "relative", "--context-length", "3", "--clip", "1", "--dim", "2", "--vocab", "5")
    for format in ("csv", "tsv"):
        assert f"--kind relative cannot be shown in {format}" in Inside().refused(*relative, "-f", format)
    assert Inside().ok(*relative, "--similarity", "-f", "csv").text.startswith("position,0,1,2\r\n0,")


@pytest.mark.parametrize("similarity", [False, True])
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "relative", "rotary"])
def test_a_page_fits_a_screen_and_holds_the_numbers_of_its_corners(kind: str, similarity: bool) -> None:
    result, _ = table(kind, length=1024, dim=256, similarity=similarity)
    page = Terminal(Paper(80, 24))
    view(result, page)
    lines = page.content().decode().splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    matrices = {each.name: each for each in result.matrices}
    name = next(iter(matrices)) if kind != "relative" or similarity else "distance"
    first, last = matrices[name].rows(np.array([0, 1023]))
    written = str if name == "distance" else "{:.4f}".format
    at = [next(line.split() for line in lines if line.split()[:1] == [label]) for label in ("0", "1023")]
    assert (at[0][2], at[1][-1]) == (written(first[0]), written(last[-1]))


@pytest.mark.parametrize("similarity", [False, True])
@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "relative", "rotary"])
def test_a_page_without_a_length_shows_positions_0_to_15_of_the_whole_layer(kind: Any, similarity: bool) -> None:
    options, source = PositionOptions(kind, similarity=similarity), Drawn(1024, 64)
    result = positions(source, options)
    length = 16 if kind == "relative" else 1024
    first = f"{kind} positions{'' if kind == 'relative' else ' 0 to 15 of 1,024'}: "
    for paper in (Paper(80, 24), Paper(120)):
        page = Terminal(paper)
        view(result, page)
        lines = page.content().decode().splitlines()
        assert first in lines[0].lower()
        assert len(lines) <= 23 or paper.screen is None
        rows = [int(line.split()[0]) for line in lines if line.split()[:1] and line.split()[0].isdigit()]
        assert {0, 1, 14, 15} <= {*rows} <= {*range(17)}
        if kind in ("learned", "sinusoidal") or paper.screen is None:
            assert [*range(16)] == rows[:16]
    name = "similarity" if similarity else "position"
    found = everything(result)[name]
    assert len(found) == length
    asked = everything(positions(Drawn(1024, 64), options, length))[name]
    assert found.tobytes() == asked.tobytes()
    if kind == "learned" and not similarity:
        torch.manual_seed(SEED)
        torch.nn.Embedding(V, 64)
        assert found.tobytes() == torch.nn.Embedding(1024, 64).weight.detach().numpy().tobytes()


def test_chosen_rows_and_a_given_length_are_shown_whatever_they_are() -> None:
    whole = ("positions", "--kind", "sinusoidal", "--dim", "4", "--rows", "1000,1023")
    assert [line.split()[0] for line in Inside().ok(*whole).text.splitlines()[4:6]] == ["1000", "1023"]
    given = Inside().ok("positions", "--kind", "sinusoidal", "--dim", "4", "--context-length", "1024").text
    assert "T = 1,024 positions, D = 4 columns" in given
    assert "\n1023  │" in given
    learned = Inside().ok("positions", "--vocab", "50", "--dim", "4").text.splitlines()
    looked_up = Inside().ok("lookup", "--ids", "1,2,3", "--vocab", "50", "--dim", "4", "--show", "position").text
    assert learned[6].split()[2:] == next(line.split()[2:] for line in looked_up.splitlines() if line.startswith("  2"))


@pytest.mark.parametrize("dim", [2, 8, 64])
def test_both_pairings_have_equal_products_and_other_columns(dim: int) -> None:
    result = positions(Drawn(T, dim), PositionOptions(pairing="both", theta=50.0, ids="7"), T)
    assert result.options.kind == "rotary"
    found = everything(result)
    assert [*found] == ["interleaved", "halves"]
    row = Drawn(T, dim).values["token"][7].astype(np.float64)
    angle = np.arange(T)[:, None] * 50.0 ** (-np.arange(0, dim, 2) / dim)
    first = row[0::2] * np.cos(angle) - row[1::2] * np.sin(angle)
    second = row[0::2] * np.sin(angle) + row[1::2] * np.cos(angle)
    np.testing.assert_allclose(found["interleaved"], np.stack([first, second], axis=2).reshape(T, dim), atol=1e-6)
    np.testing.assert_allclose(found["halves"], np.concatenate([first, second], axis=1), atol=1e-6)
    products = first @ first.T + second @ second.T
    for each in found.values():
        np.testing.assert_allclose(each.astype(np.float64) @ each.T.astype(np.float64), products, atol=1e-4)
    similarity = positions(Drawn(T, dim), PositionOptions(pairing="both", theta=50.0, ids="7", similarity=True), T)
    np.testing.assert_allclose(everything(similarity)["similarity"], products, atol=1e-4)
    page = Terminal(Paper(80, 24))
    view(result, page)
    lines = page.content().decode().splitlines()
    assert len(lines) <= 23
    shown = [line.split("│")[1:] for line in lines if line.split()[:1] == [str(T - 1)]]
    written = [[f"{value:.4f}" for value in values] for values in (found["interleaved"][-1], found["halves"][-1])]
    assert [half.split()[-1] for half in shown[0]] == [values[-1] for values in written]
    assert [half.split() for half in shown[1]] == [[f"{value:.4f}" for value in products[-1, :3]]] * 2
    halves = Rotary(dim, pairing="halves", theta=50.0).exact(row[None], np.array([0, 2]))
    assert f"; if not reordered, halves has {halves[0] @ halves[1]:.4f} for 2 and 0\n" in "\n".join(lines)


@pytest.mark.parametrize("form", ["json", "npy", "safetensors", "markdown", "svg", "table"])
def test_both_pairings_are_written_in_each_format(form: str, tmp_path: Path) -> None:
    given = ("positions", "--pairing", "both", "--vocab", "5", "--dim", "4", "--context-length", "3")
    path = tmp_path / "both"
    Inside().ok(*given, "-f", form, "-o", str(path))
    if form == "npy":
        assert np.load(path).shape == (3, 4)  # interleaved, as --pairing interleaved has it
    else:
        assert b"halves" in path.read_bytes()
    assert "is an option of rotary positions" in Inside().refused(*given, "--kind", "relative")

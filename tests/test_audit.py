"""`audit`: planted faults are found and nothing else is, and every quantity is that of plain numpy on the matrix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

import embcli
from embcli import encodings, errors, formats
from embcli.errors import InputError
from embcli.files.tensors import StoredLayer
from embcli.numerics.statistics import Covariance
from embcli.verbs.audit import Audit, unused
from tests.runners import InProcess

USED, RESERVED, PADDING, DIM = 200, 20, 12, 16
TOKENS = USED + RESERVED
UNUSED = np.arange(USED, TOKENS + PADDING)
PLANTED = {
    "zero": [5],
    "non-finite": [7, 9],
    "equal": [(20, 30, 40), (21, 31)],
    "candidates": {50, 51, 52},
}


def vectors(rows: int, dim: int = DIM, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def model(folder: Path, matrix: np.ndarray, tied: bool = False, **more: np.ndarray) -> Path:
    """Write a model with words w0, w1, ... and 20 reserved names behind them."""
    folder.mkdir(exist_ok=True)
    save_file({"wte.weight": matrix, **more}, folder / "model.safetensors")
    words = [f"w{number}" for number in range(USED)] + [
        f"[unused{number}]" for number in range(RESERVED)
    ]
    Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, "w0")).save(
        str(folder / "tokenizer.json")
    )
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    return folder


def trained(tied: bool) -> np.ndarray:
    """Return a matrix whose unused rows lie as untrained ones do: short, or where tied in one direction."""
    matrix = vectors(TOKENS + PADDING)
    drift = 3 * vectors(1, seed=2) if tied else 0
    matrix[UNUSED] = drift + 0.01 * vectors(len(UNUSED), seed=3)
    return matrix


def planted(tied: bool) -> np.ndarray:
    matrix = trained(tied)
    matrix[[50, 51, 52]] = matrix[UNUSED[[3, 5, 7]]] + 0.001 * vectors(3, seed=4)
    matrix[5] = 0
    matrix[7, 2], matrix[9, 0] = np.nan, -np.inf
    matrix[[30, 40]], matrix[31] = matrix[20], matrix[21]
    return matrix


def audited(folder: Path, **given: object) -> Audit:
    return embcli.open(folder).audit(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [False, True])
def test_planted_faults_are_all_found_and_nothing_else_is(
    in_process: InProcess, tmp_path: Path, tied: bool
) -> None:
    folder = model(tmp_path / "model", planted(tied), tied)
    found = audited(folder)
    assert found.zero.tolist() == PLANTED["zero"]
    assert found.non_finite.tolist() == PLANTED["non-finite"]
    assert [*found.equal] == PLANTED["equal"]
    assert {*found.candidates.tolist()} == PLANTED["candidates"]
    assert found.indicator == ("cosine_distance" if tied else "norm")
    assert {why: rows.tolist() for why, rows in found.by_use.items()} == {
        "reserved": [*range(USED, TOKENS)],
        "padding": [*range(TOKENS, TOKENS + PADDING)],
    }
    assert found.faults == {
        "non-finite": 2,
        "zero": 1,
        "missing": 0,
        "equal": 3,
        "padding": 12,
        "candidates": 3,
    }
    assert found.broken == ("non-finite", "zero")
    ran = in_process("audit", "--from", str(folder))
    assert ran.status == 1
    for line in (
        "broken        2 non-finite rows: 7 w7, 9 w9; 1 zero row: 5 w5\n",
        "equal         2 groups: 20 = 30 = 40; 21 = 31",
    ):
        assert line in ran.text
    assert ran.text.endswith("Broken: non-finite (2), zero (1)\n")


@pytest.mark.parametrize("tied", [False, True])
def test_a_sound_matrix_has_no_faults(in_process: InProcess, tmp_path: Path, tied: bool) -> None:
    folder = model(tmp_path / "model", trained(tied), tied)
    found = audited(folder)
    assert found.faults == {
        "non-finite": 0,
        "zero": 0,
        "missing": 0,
        "equal": 0,
        "padding": 12,
        "candidates": 0,
    }
    assert in_process.ok("audit", "--from", str(folder)).text.endswith(
        "Sound: no row is non-finite, zero or missing\n"
    )


def test_a_page_shows_as_many_rows_as_are_asked_for_and_says_how_to_see_all(
    in_process: InProcess, tmp_path: Path
) -> None:
    matrix = trained(False)
    matrix[50:70] = matrix[UNUSED[:20]] + 0.001 * vectors(20, seed=4)
    folder = model(tmp_path / "model", matrix)
    for top in (None, 3, 20):
        text = in_process.ok(
            "audit",
            "--from",
            str(folder),
            *(() if top is None else ("-k", str(top))),
            COLUMNS="900",
        ).text
        shown = top or 3
        rows = text[text.index("candidates    20 like") :].splitlines()[3 : 3 + shown]
        assert len({row.split()[0] for row in rows} & {*map(str, range(50, 70))}) == shown
        missing = f"Left out: candidates {shown + 1} to 20 ({20 - shown} of 20).\n"
        assert (missing in text) == (shown < 20)
        norms = re.findall(r"(?m)^(?:shortest|longest)  .*", text)
        assert [line.count(", ") + 1 for line in norms] == [shown, shown]
    assert "must be at least 1, not 0" in in_process.refused(
        "audit", "--from", str(folder), "-k", "0"
    )


@pytest.mark.parametrize("top", [1, 3, 5, 6, 20])
def test_of_many_broken_rows_a_page_counts_all_and_names_the_first(
    in_process: InProcess, tmp_path: Path, top: int
) -> None:
    matrix = trained(False)
    matrix[10:16] = 0
    folder = model(tmp_path / "model", matrix)
    named = [f"{row} w{row}" for row in range(10, 16)]
    if top < len(named):
        named[top:] = ["..."]
    text = in_process("audit", "--from", str(folder), "-k", str(top), COLUMNS="900").text
    assert f"broken        6 zero rows: {', '.join(named)}\n" in text


def test_the_fullest_page_fits_a_small_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it can tell, below the command line and above the next."""
    monkeypatch.chdir(tmp_path)
    matrix = planted(False)
    matrix[60], matrix[70:90] = 40, matrix[UNUSED[:1]] + 0.001 * vectors(20, seed=4)
    model(tmp_path / "m", matrix, **{"lm_head.weight": matrix + vectors(len(matrix), seed=5)})
    text = InProcess()("audit", "./m", COLUMNS="80", LINES="24", NO_COLOR="1", terminal=True).text
    assert text.startswith("Audit of a token matrix")
    assert text.count("\n") <= 22
    assert all(
        part in text for part in ("; 1 zero row", "groups:", "output head", "Left out:", "Broken: ")
    )
    assert "output head" not in InProcess()("audit", "./m", "--tensor", "lm_head.weight").text, (
        "it is no token matrix"
    )


def test_each_row_says_what_is_odd_about_it(in_process: InProcess, tmp_path: Path) -> None:
    folder = model(tmp_path / "model", planted(False))
    rows = list(
        map(json.loads, in_process("audit", "--from", str(folder), "-f", "ndjson").out.splitlines())
    )
    assert [row["id"] for row in rows] == [*range(TOKENS + PADDING)]
    assert {row["id"]: row["fault"] for row in rows if row["fault"]} == {
        5: "zero",
        7: "non-finite",
        9: "non-finite",
    }
    assert {row["id"]: row["equal_to"] for row in rows if row["equal_to"] is not None} == {
        30: 20,
        40: 20,
        31: 21,
    }
    assert {row["id"] for row in rows if row["candidate"]} == {50, 51, 52}
    assert [row["unused"] for row in rows] == [None] * USED + ["reserved"] * RESERVED + [
        "padding"
    ] * PADDING
    assert [row["token"] for row in rows[198:202]] == ["w198", "w199", "[unused0]", "[unused1]"]


def cosine_distances(matrix: np.ndarray, other: np.ndarray) -> np.ndarray:
    return 1 - matrix @ other / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(other))


@pytest.mark.parametrize("padding", [0, 17_000])
def test_the_indicators_are_those_of_plain_numpy(tmp_path: Path, padding: int) -> None:
    """All of it on the whole matrix at once, which is one block, or several; the component is that of an SVD."""
    matrix = np.append(trained(True), trained(True)[-1] + vectors(padding) / 100, 0) + np.float32(
        0.3
    )
    others = np.arange(USED, len(matrix))
    found = audited(model(tmp_path / "model", matrix, True)).indicators
    wide = matrix.astype(np.float64)
    told = wide[:TOKENS]  # rows that stand for tokens
    mean, unused = told.mean(axis=0), wide[others].mean(axis=0)
    first = np.linalg.svd(told - mean)[2][0]
    without = wide - np.outer(wide @ first, first)
    for name, wanted in {
        "cosine_distance": cosine_distances(wide, unused),
        "centred": cosine_distances(wide - mean, unused - mean),
        "without_first": cosine_distances(without, without[others].mean(axis=0)),
    }.items():
        np.testing.assert_allclose(found[name], wanted, rtol=0, atol=1e-6)


def test_rows_that_nearly_are_the_first_component_have_cosines_all_the_same(tmp_path: Path) -> None:
    """What is left of them is small, and nothing of those that are zero: held against exact fractions."""
    first = np.zeros(DIM, np.float32)
    first[0] = 1
    matrix = np.float32(1e-7) * vectors(TOKENS + PADDING, seed=8)
    matrix[:, 0] = 1000 * vectors(TOKENS + PADDING, 1, seed=9)[:, 0]
    matrix[UNUSED[0], 1:] *= 50
    matrix[3], matrix[4] = 0, first
    found = audited(model(tmp_path / "model", matrix, True)).indicators
    for each in found.values():
        assert (np.isnan(each) | ((each >= 0) & (each <= 2))).all()
    wide = matrix.astype(np.float64)
    component = np.linalg.svd(wide[:TOKENS] - wide[:TOKENS].mean(axis=0))[2][0]
    without = wide - np.outer(wide @ component, component)
    told = np.delete(np.arange(len(wide)), [3, 4])
    wanted = cosine_distances(without[told], without[UNUSED].mean(axis=0))
    np.testing.assert_allclose(found["without_first"][told], wanted, rtol=0, atol=1e-3)
    assert np.isnan(found["without_first"][3])


def test_rows_in_one_direction_have_none_without_it(tmp_path: Path) -> None:
    """Only rounding is left of them, which has no direction."""
    matrix = np.outer(np.arange(1, TOKENS + PADDING + 1), np.arange(3, DIM + 3)).astype(np.float32)
    found = audited(model(tmp_path / "model", matrix, True)).indicators
    assert np.isnan(found["without_first"]).all()
    assert (found["cosine_distance"] < 1e-15).all()


def test_a_covariance_that_memory_cannot_hold_is_refused_before_the_matrix_is_read(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "memory_of_machine", lambda: 5 * 8 * DIM**2)
    folder = str(model(tmp_path / "model", trained(False)))
    in_process.ok("audit", "--from", folder)
    monkeypatch.setattr(StoredLayer, "blocks", lambda _: pytest.fail("the matrix was read"))
    monkeypatch.setattr(errors, "memory_of_machine", lambda: 5 * 8 * DIM**2 - 1)
    message = in_process.refused("audit", "--from", folder)
    assert "the covariance of 16 columns does not fit into memory" in message
    assert "is it stored as (D, V)?" in message


@pytest.mark.parametrize("factor", [1, 1e9])
def test_unused_rows_are_held_against_the_mean_of_the_others(tmp_path: Path, factor: float) -> None:
    """Also a row that outweighs the others."""
    matrix = trained(True)
    matrix[UNUSED[4]] *= np.float32(factor)
    found = audited(model(tmp_path / "model", matrix, True))
    wide = matrix[UNUSED].astype(np.float64)
    own = [
        cosine_distances(wide[[row]], np.delete(wide, row, axis=0).mean(axis=0))[0]
        for row in range(len(wide))
    ]
    middle = np.median(own)
    assert found.threshold == pytest.approx(
        middle + 3 * 1.4826 * np.median(np.abs(own - middle)), abs=1e-9
    )


def test_how_rows_lie_is_what_plain_numpy_says(tmp_path: Path) -> None:
    """In several blocks; some rows have no direction, or are not finite."""
    matrix = vectors(50_000, 7) * np.arange(1, 8, dtype=np.float32) + np.float32(0.5)
    matrix[17], matrix[1200, 3] = 0, np.nan
    save_file({"wte.weight": matrix}, tmp_path / "model.safetensors")
    found = audited(tmp_path)
    norms = np.linalg.norm(np.delete(matrix, 1200, axis=0).astype(np.float64), axis=1)
    assert len(found.measured) == 49_999
    np.testing.assert_allclose(
        found.quantiles, np.quantile(norms, (0, 0.01, 0.25, 0.5, 0.75, 0.99, 1)), rtol=1e-12
    )
    assert [*found.histogram] == np.histogram(norms, 24)[0].tolist()


def test_a_covariance_of_rows_that_differ_in_their_last_bits_is_numpys() -> None:
    """Far from zero, where sums of products have no digit of the variance left; one column does not vary."""
    steps = np.random.default_rng(5).integers(-2, 3, (3000, 6)) * np.spacing(np.float32(1000))
    matrix = (1000 + steps).astype(np.float32).astype(np.float64)
    matrix[:, 2] = 0.1
    covariance = Covariance(6)
    covariance.add(matrix)
    np.testing.assert_allclose(covariance.matrix(), np.cov(matrix.T), rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize(
    "matrix",
    [
        np.ones((1, 1), np.float32),
        np.ones((3, 1), np.float32),
        np.zeros((3, 2), np.float32),
        np.full((2, 2), np.nan, np.float32),
        np.full((4, 3), 3e38, np.float32),
        np.full((4, 3), 1e-45, np.float32),
    ],
)
def test_odd_matrices_are_told_in_all_formats(
    in_process: InProcess, tmp_path: Path, matrix: np.ndarray
) -> None:
    save_file({"wte.weight": matrix}, tmp_path / "model.safetensors")
    for form in formats.formats_for("ranking"):
        ran = in_process("audit", "--from", str(tmp_path), "-f", form)
        assert ran.status == int(not matrix.all() or bool(np.isnan(matrix).any()))
        assert ran.out
        assert "Warning" not in ran.err


@pytest.mark.parametrize(
    ("change", "fail_on", "broken"),
    [
        ("planted", "zero", ("zero",)),
        ("planted", "equal", ("equal",)),
        ("planted", "missing", ()),
        ("planted", "padding", ("padding",)),
        ("planted", "candidates", ("candidates",)),
        ("planted", "missing,non-finite", ("non-finite",)),
        ("zeros of padding", "zero,equal", ()),
        ("unused rows are equal", "equal", ()),
        ("one used row equals them", "equal", ()),
        ("two used rows equal them", "equal", ("equal",)),
        ("three rows too few", None, ("missing",)),
    ],
)
def test_what_breaks_a_matrix(
    in_process: InProcess, tmp_path: Path, change: str, fail_on: str | None, broken: tuple[str, ...]
) -> None:
    matrix = planted(False) if change == "planted" else trained(False)
    if change == "zeros of padding":
        matrix[TOKENS:] = 0
    elif change == "three rows too few":
        matrix = matrix[: TOKENS - 3]
    elif change != "planted":
        matrix[UNUSED] = matrix[UNUSED[0]]
        matrix[
            [] if change.startswith("unused") else [3] if change.startswith("one") else [3, 4]
        ] = matrix[UNUSED[0]]
    folder = model(tmp_path / "model", matrix)
    given = () if fail_on is None else ("--fail-on", fail_on)
    ran = in_process("audit", "--from", str(folder), *given, "-f", "json")
    assert (ran.status, json.loads(ran.out)["audit"]["broken"]) == (int(bool(broken)), [*broken])
    page = in_process("audit", "--from", str(folder), *given).text.splitlines()
    assert page[-1].startswith("Broken: " if broken else "Passed: ")


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (vectors(TOKENS), "the unused rows resemble all others, as in an untrained matrix"),
        (
            trained(False)[: USED + 1],
            "too few unused rows for comparison: 1 row known and not zero",
        ),
        (
            np.pad(vectors(USED), ((0, 20), (0, 0))),
            "too few unused rows for comparison: 0 rows known and not zero",
        ),
    ],
)
def test_without_a_threshold_the_reason_is_told(
    tmp_path: Path, matrix: np.ndarray, reason: str
) -> None:
    found = audited(model(tmp_path / "model", matrix))
    assert (found.threshold, found.reason, len(found.candidates)) == (None, reason, 0)
    assert f"candidates    none: {reason}" in str(found)


@pytest.mark.parametrize(
    ("config", "indicator", "told"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "cosine_distance",
            "the token matrix itself (tied); config.json names",
        ),
        ({"tie_word_embeddings": False}, "norm", "none in the file; config.json says"),
        (
            {"tie_word_embeddings": True, "architectures": ["BertModel"]},
            "norm",
            "none in the file; config.json names",
        ),
    ],
)
def test_which_head_was_taken_as_the_token_matrix_is_told(
    tmp_path: Path, config: dict[str, object], indicator: str, told: str
) -> None:
    folder = model(tmp_path / "model", planted(True))
    (folder / "config.json").write_text(json.dumps(config))
    found = audited(folder)
    assert found.indicator == indicator
    assert f"\noutput head   {told}" in str(found)


def test_unused_rows_that_cancel_out_tell_candidates_by_norm_alone(tmp_path: Path) -> None:
    matrix = vectors(TOKENS)
    matrix[USED:] = 0
    matrix[USED], matrix[USED + 1], matrix[60] = 0.01, -0.01, 0.005
    found = audited(model(tmp_path / "model", matrix, True))
    assert (found.indicator, found.indicators, found.candidates.tolist()) == ("norm", {}, [60])
    assert found.threshold == pytest.approx(0.04, rel=1e-6)


@pytest.mark.parametrize("padding", [0, 3, None])
def test_a_zero_row_that_config_json_names_padding_breaks_nothing(
    in_process: InProcess, tmp_path: Path, padding: int | None
) -> None:
    matrix = trained(False)
    matrix[0] = 0
    folder = model(tmp_path / "model", matrix)
    (folder / "config.json").write_text(json.dumps({"pad_token_id": padding}))
    ran = in_process("audit", "--from", str(folder))
    assert ran.status == int(padding != 0)
    assert ("broken        none; row 0 is zero, and padding by config.json\n" in ran.text) == (
        padding == 0
    )


def test_bad_requests_are_refused_in_words(in_process: InProcess, tmp_path: Path) -> None:
    assert "--fail-on 'odd' is not known; choose from non-finite, zero" in in_process.refused(
        "audit", "--fail-on", "odd"
    )
    assert "--tensor goes with --from" in in_process.refused("audit", "--tensor", "x")
    error = in_process.refused("audit", "--from", str(tmp_path / "none"))
    assert "not found as a file" in error
    assert (
        "are too many for a terminal"
        in InProcess()("audit", "--dim", "4", "-f", "json", terminal=True).err
    )
    matrix = embcli.seeded(vocab=6, dim=3)
    with pytest.raises(InputError, match="fail_on names no fault; choose from non-finite, zero"):
        matrix.audit(fail_on=[])
    assert str(matrix.audit(top=2**63 - 1)) == str(matrix.audit(top=6))


# The bytes of all characters in UTF-8.
BYTES = {*"".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])).encode()}


@pytest.mark.parametrize("name", ["gpt2", "p50k_base", "cl100k_base", "o200k_harmony"])
def test_unused_tokens_are_gaps_impossible_bytes_and_reserved_names(name: str) -> None:
    known = encodings.get(name)
    wanted: dict[int, str] = {}
    for token_id in range(known.vocabulary_size):
        token = known.token_bytes(token_id)
        if token is None:
            wanted[token_id] = "gap"
        elif not {*token} <= BYTES:
            wanted[token_id] = "byte"
        elif b"reserved_" in token and token.startswith(b"<|"):
            wanted[token_id] = "reserved"
    assert unused(known, known.vocabulary_size) == wanted
    assert unused(known, 300) == {
        token_id: why for token_id, why in wanted.items() if token_id < 300
    }
    beyond = known.vocabulary_size + 2
    assert unused(known, beyond) == wanted | dict.fromkeys(
        range(known.vocabulary_size, beyond), "padding"
    )


NAMED_RESERVED = [
    *(
        "<|reserved_special_token_7|>",
        "<|reserved_200000|>",
        "[unused12]",
        "<unused5>",
        "<|extra_3|>",
        "<|dummy_4|>",
    ),
    *(
        "<SPECIAL_20>",
        "<|placeholder1|>",
        "<｜place▁holder▁no▁8｜>",
        "madeupword0001",
        "<reserved_1>",
    ),
]
PLAIN = [
    "<|endoftext|>",
    "[MASK]",
    "[12]",
    "unused12",
    "<unused>",
    "<s>",
    "<extra_id_0>",
    "reserved",
    "<|im_start|>",
]
PLAIN += ["see [unused1]", "[unused1] and", "madeupword0001s"]


def test_names_that_families_of_models_keep_free_are_reserved() -> None:
    every = [name.encode() for name in (*NAMED_RESERVED, *PLAIN)]
    named = SimpleNamespace(vocabulary_size=len(every), token_bytes=every.__getitem__)
    assert unused(named, len(every)) == dict.fromkeys(range(len(NAMED_RESERVED)), "reserved")

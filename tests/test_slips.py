"""Likely slips are answered with the right command, in one line, which runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pexpect
import pytest
import safetensors.numpy

from embcli import formats
from embcli.positions import KINDS
from tests.conftest import TIMEOUT, Embcli, Ran
from tests.inside import Inside

TOY = "--vocab 60000 --dim 3"
QUOTES = "Put the text in quotes: "
COMMAS = "Write the IDs as one word, with commas between: "
DASH = "Put -- before a text that begins with a dash: "


@pytest.mark.parametrize(
    ("typed", "hint", "meant"),
    [
        ("lookup Every effort", QUOTES, 'lookup "Every effort"'),
        (f"lookup Every effort moves {TOY}", QUOTES, f'lookup "Every effort moves" {TOY}'),
        ("lookup --dim 3 Every effort --seed 4", QUOTES, 'lookup "Every effort" --dim 3 --seed 4'),
        ("lookup --dim=3 Every effort", QUOTES, 'lookup "Every effort" --dim=3'),
        ("lookup Every --no-cache effort --dim 3", QUOTES, 'lookup "Every effort" --no-cache --dim 3'),
        ("lookup hi --columns 0:2 4", QUOTES, 'lookup "hi 4" --columns 0:2'),
        ("tokenize a b -f csv", QUOTES, 'tokenize "a b" -f csv'),
        ("tokenize --lines -- a -b", QUOTES, 'tokenize "a -b" --lines'),
        ("compare a b", QUOTES, 'compare "a b"'),
        ("""tokenize 'cost:' '$5' '"x"'""", QUOTES, """tokenize 'cost: $5 "x"'"""),
        ("tokenize don\\'t panic", QUOTES, 'tokenize "don\'t panic"'),
        ("lookup --ids 2 3 5 --vocab 6 --dim 3", COMMAS, "lookup --ids 2,3,5 --vocab 6 --dim 3"),
        ("lookup --vocab 6 --dim 3 --ids 2, 3, 5", COMMAS, "lookup --vocab 6 --dim 3 --ids 2,3,5"),
        ("lookup --ids=2 3 5 --vocab 6", COMMAS, "lookup --ids 2,3,5 --vocab 6"),
        ("tokenize --ids 2 3 5", COMMAS, "tokenize --ids 2,3,5"),
        ("compare --ids 2 3 1", COMMAS, "compare --ids 2,3,1"),
        ("tokenize '-5 degrees'", DASH, 'tokenize -- "-5 degrees"'),
        ("tokenize '- one'", DASH, 'tokenize -- "- one"'),
        ("lookup '--- title' --dim 3", DASH, 'lookup --dim 3 -- "--- title"'),
        ("tokenize '-Hello world'", DASH, 'tokenize -- "-Hello world"'),
        ("tokenize -1", DASH, 'tokenize -- "-1"'),
        ("similarity", "That is: ", 'neighbors " Paris" --from gpt2'),
        ("similarity ' king' -k 3", "That is: ", "neighbors ' king' -k 3 --from gpt2"),
        ("similarity 0 --from m.npy", "That is: ", "neighbors 0 --from m.npy"),
        ("embed", "That is: ", 'lookup "Every effort moves you"'),
        ("rope --dim 4", "That is: ", "positions rotary --dim 4"),
        ("version", "That is: ", "--version"),
        (f"neighbors a b {TOY}", QUOTES, f'neighbors "a b" {TOY}'),
    ],
)
def test_the_hint_is_the_command_that_was_meant(typed: str, hint: str, meant: str) -> None:
    told = Inside().refused(*shlex.split(typed)).splitlines()
    assert told[1:] == [f"{hint}embcli {meant}"]
    if "--from" not in meant:  # a model that is not here
        Inside().ok(*shlex.split(meant))


@pytest.mark.parametrize("verb", ["tokenize", "lookup", "compare"])
@pytest.mark.parametrize("ids", ["2 3", "2, 3", "2, 3,"])
def test_two_ids_in_two_words_are_joined(verb: str, ids: str) -> None:
    told = Inside().refused(verb, "--ids", *ids.split())
    assert told.endswith(f"\n{COMMAS}--ids 2,3\n")


@pytest.mark.parametrize("typed", ["decode --ids 1,2", "decode 1 --encodng gpt2", "decode --lines"])
def test_decode_takes_ids_by_themselves(typed: str) -> None:
    option = next(word for word in typed.split() if word.startswith("--"))
    example = "embcli decode 6109 3626 6100 345"
    told = Inside().refused(*typed.split())
    assert told == f"embcli: there is no option {option}; write IDs only, as in: {example}\n"
    assert Inside().ok(*example.split()[1:]).out == b"Every effort moves you"


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("lookpu", "lookup"),
        ("lookup --dmi 3", "--dim"),
        ("--verison", "--version"),
        ("tokenize hi --encoding gpt4", "gpt-4"),
        ("tokenize hi --encoding cl100k", "cl100k_base"),
        ("cache verfy", "verify"),
    ],
)
def test_near_names_are_listed_once(typed: str, near: str) -> None:
    told = Inside().refused(*typed.split())
    names = re.findall(r"[-\w]+", told)
    assert names.count(near) == 1
    assert all(names.count(name) == 1 for name in names if name.startswith("--") and name != "--help")


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("lookup --dim", "lookup"),
        ("lookup --dim x", "lookup"),
        ("weights hello there", "weights"),
        ("tokenize -x", "tokenize"),
        ("cache nothing", "cache"),
        ("nonsense", ""),
        ("-x", ""),
        ("--show-completion", ""),
    ],
)
def test_any_other_slip_says_whose_help_to_read(typed: str, command: str) -> None:
    told = Inside().refused(*typed.split()).splitlines()
    assert told[1:] == [f"Try '{' '.join(['embcli', *command.split()])} --help' for help."]


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (["tokenize"], 'embcli tokenize "Every effort moves you"'),
        (["lookup"], 'embcli lookup "Every effort moves you"'),
        (["decode"], "embcli decode 6109 3626 6100 345"),
    ],
    ids=lambda value: value[0],
)
def test_a_verb_alone_on_a_terminal_tells_its_own_example(arguments: list[str], example: str) -> None:
    command, *rest = Embcli.command
    terminal = pexpect.spawn(command, [*rest, *arguments], encoding="utf-8", timeout=TIMEOUT, dimensions=(24, 200))
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2
    told, hint = (terminal.before or "").splitlines()
    assert told.endswith(f", as in: {example}")
    assert hint == f"Try 'embcli {arguments[0]} --help' for help."
    Inside().ok(*shlex.split(example)[1:])


# --- what other programs call it --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lookup hi -d 8", "lookup hi --dim 8"),
        ("lookup hi -d8", "lookup hi --dim 8"),
        ("neighbors --ids 1 --vocab 9 -n 5 -d 4", "neighbors --ids 1 --vocab 9 -k 5 --dim 4"),
        ("neighbors --ids 1 --vocab 9 -n5", "neighbors --ids 1 --vocab 9 --top 5"),
        ("neighbors dog --plus -n --dim 4 -n 3", "neighbors dog --plus -n --dim 4 --top 3"),
        ("positions --length 3", "positions --context-length 3"),
        ("weights --model model.npy", "weights --from model.npy"),
        ("weights --model=model.npy --json", "weights --from model.npy -f json"),
        ("batch --file book.txt --dim 3", "batch book.txt --dim 3"),
        ("batch --length 3 --file=book.txt", "batch book.txt --max-length 3"),
        ("cache list --csv", "cache --format csv"),
        ("cache ls", "cache"),
        ("cache show", "cache"),
        *((f"tokenize hi --{name}", f"tokenize hi -f {name}") for name in formats.able("tokens") if name != "ids"),
        *((f"lookup hi --{name}", f"lookup hi -f {name}") for name in formats.ALIASES),
    ],
)
def test_an_option_by_the_name_that_other_programs_have_for_it_is_understood(
    typed: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("Every effort moves you, and so on. " * 10)
    np.save("model.npy", np.eye(3, dtype=np.float32))
    inside = Inside()
    assert inside.ok(*shlex.split(typed)) == inside.ok(*shlex.split(meant))


def test_an_option_that_the_verb_does_not_have_is_not_understood_and_no_text_is_taken_for_one() -> None:
    assert "No such option: -n" in Inside().refused("lookup", "hi", "-n", "3")
    assert "No such option: -d" in Inside().refused("tokenize", "hi", "-d", "3")
    assert Inside().ok("tokenize", "--", "--json").text.count("json") == 1


def test_a_model_beside_a_text_is_named_by_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("model.npy", np.eye(3, dtype=np.float32))
    Path("tuned").mkdir()
    Path("tuned/config.json").write_text("{}")
    for model in ("model.npy", "tuned"):
        said = Inside().refused("neighbors", model, " Paris", "-k", "2")
        assert said.endswith(f"A model is named by --from: embcli neighbors ' Paris' -k 2 --from {model}\n")
    assert QUOTES in Inside().refused("tokenize", "model.npy", "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("6109", "'6109' is read as a text; for token IDs: embcli {verb} --ids 6109"),
        ("2, 3 5", "'2, 3 5' is read as a text; for token IDs: embcli {verb} --ids 2,3,5"),
        ("my book", "'my book' is read as a text; for the file: embcli {verb} --file 'my book'"),
    ],
)
@pytest.mark.parametrize("verb", ["tokenize", "lookup", "neighbors"])
def test_a_text_that_is_ids_or_a_file_is_read_as_a_text_with_a_note(
    verb: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy = () if verb == "tokenize" else ("--dim", "3")
    (tmp_path / "my book").write_text("hi")
    (tmp_path / "folder").mkdir()
    ran = Inside()(verb, text, *toy)
    assert (ran.status, ran.err) == (0, f"embcli: {said.format(verb=verb)}\n")
    assert Inside().ok(verb, "-", *toy, stdin=text) == Ran(0, ran.out, "")
    assert Inside().ok(verb, *shlex.split(said.format(verb=verb).partition("embcli ")[2])[1:], *toy).out != ran.out
    for other in ("folder", "2 dogs", "\x00", "👋" * 100):
        Inside().ok(verb, other, *toy)


def test_a_file_whose_name_says_another_format_is_written_as_named_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    ran = Inside()("tokenize", "hi", "-o", str(file), "-f", "json")
    assert (ran.status, ran.err) == (0, f"embcli: '{file}' is written as json, as --format says, not as csv\n")
    assert file.read_bytes() == Inside().ok("tokenize", "hi", "-f", "json").out
    for form in ("csv", "CSV"):
        Inside().ok("tokenize", "hi", "-o", str(tmp_path / f"a.{form}"), "-f", "csv")
    Inside().ok("tokenize", "hi", "-o", str(tmp_path / "a.data"), "-f", "csv")


def test_a_map_is_a_heat_map_already() -> None:
    told = Inside().refused("weights", "--map", "--heat")
    assert told == "embcli: --map is a picture in colours already; leave out --heat\n"


def test_a_row_can_be_named_by_its_token() -> None:
    """In GPT-2, king is a token (3364), and queen is one with the space before it only (16599)."""
    toy = ("--dim", "3")
    named = Inside().ok("weights", "--rows", "king,queen, dog,0:2", *toy)
    assert named == Inside().ok("weights", "--rows", "3364,16599,3290,0:2", *toy)
    told = Inside().refused("weights", "--rows", "dogcatmouse", *toy)
    assert told == "embcli: --rows takes IDs and tokens, and 'dogcatmouse' is 3 tokens\n"
    assert "does not choose rows" in Inside().refused("weights", "--rows", "dog", "--layer", "position", *toy)


def test_a_text_or_a_table_in_place_of_a_model_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my book.txt").write_text("Every effort moves you.\n")
    said, hint = Inside().refused("info", "my book.txt").splitlines()
    assert said == "embcli: cannot read 'my book.txt': it is a text, not a model"
    command = hint.partition(": ")[2].partition(";")[0]
    assert command == "embcli tokenize --file 'my book.txt'"
    Inside().ok(*shlex.split(command)[1:])
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    said, hint = Inside().refused("weights", "x.parquet").splitlines()
    assert said == "embcli: cannot read 'x.parquet': it is a table in parquet, which embcli writes only"
    assert hint == "Save its matrix as .npy, which --from reads: numpy.save('matrix.npy', matrix)"


# --- a model or a kind of positions as an argument --------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a model in the working folder, which has a file named as a kind of positions, too."""
    monkeypatch.chdir(tmp_path)
    tensors = {"wte.weight": 1 + np.eye(4, dtype=np.float32), "wpe.weight": np.eye(3, 4, dtype=np.float32)}
    for name in ("model.safetensors", "rotary"):
        safetensors.numpy.save_file(tensors, tmp_path / name)
    return "model.safetensors"


@pytest.mark.parametrize("verb", ["info", "audit", "weights", "positions"])
def test_a_model_is_an_argument_of_a_verb_without_a_text(verb: str, model: str) -> None:
    named = Inside().ok(verb, "--from", model)
    assert Inside().ok(verb, model) == named
    told = Inside().refused(verb, model, "--from", model)
    assert told == f"embcli: '{model}' and --from name the same thing, the model; give one of them\n"


def test_the_first_argument_of_positions_is_a_kind_or_else_a_model(model: str) -> None:
    toy = ("--dim", "4", "--context-length", "3")
    inside = Inside()
    rotary = inside.ok("positions", "--kind", "rotary", *toy).text
    assert inside.ok("positions", "rotary", *toy).text == rotary
    assert inside.ok("positions", "rope", *toy).text == inside.ok("positions", "--kind", "rope", *toy).text == rotary
    assert inside.ok("positions", "rotary", "--pairing", "halves", *toy).text != rotary
    assert inside.ok("positions", "./rotary").text == inside.ok("positions", "--from", "./rotary").text
    assert inside.ok("positions", "learned", model).text == inside.ok("positions", "--from", model).text
    look = ("lookup", "--ids", "1", "--vocab", "6", *toy)
    assert "choose from learned, sinusoidal, none" in inside.refused(*look, "--position", "rotary")
    kinds = f"choose from {', '.join(KINDS)}"
    for words in (["sinusodial"], ["nothing", model]):
        assert inside.refused("positions", *words) == f"embcli: '{words[0]}' is not a kind of positions; {kinds}\n"
    assert inside.refused("positions", "rotary", "--kind", "relative").startswith("embcli: rotary and --kind name the")

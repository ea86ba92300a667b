"""Explanations: every word of a page has one, their examples run, and unknown words are refused."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
import tiktoken
import torch

import embcli
from embcli import files, formats, names
from embcli.cli.app import COMMANDS
from embcli.encodings.tiktoken import TiktokenEncoding
from embcli.errors import OutputError
from embcli.files.families import FAMILIES
from embcli.names import FAULTS
from embcli.positions import NAMES as KIND_NAMES
from embcli.verbs import explain as glossary
from embcli.verbs.audit.finding import Level
from embcli.wording import load_facts
from tests.cases import cases, data
from tests.runners import PARSERS, built_once
from tests.transcripts import on_a_small_screen

ROOT = Path(__file__).parents[1]
ENTRIES = glossary.entries()
NAMES = [*glossary.named()]
TERMS = [entry for entry in ENTRIES if entry.part != "Reference"]


def examples_of(entry: glossary.Entry) -> list[str]:
    """Return the command lines of an entry."""
    return [block.text for block in entry.blocks if block.kind == "command"]


def entry_of(name: str) -> glossary.Entry:
    """Return the entry that explains a name."""
    (entry,) = glossary.explain(name).entries
    return entry


# --- examples -------------------------------------------------------------------------------------


def test_each_example_runs(named_files, in_process):
    others = [entry_of("questions")]  # Its examples run below.
    lines = {line for entry in ENTRIES if entry not in others for line in examples_of(entry)}
    assert len(lines) > 40
    for line in lines:
        program, *words = shlex.split(line)
        ran = in_process(*words)
        assert program == "embcli"
        assert ran.status == (1 if words[0] == "diff" else 0), (line, ran)


def test_each_term_has_an_example_and_takes_few_lines():
    for entry in TERMS:
        assert examples_of(entry)
        page = str(glossary.Explanations((entry,)).styled(width=80))
        assert page.count("\n") <= 11, entry.word


def test_each_answer_to_a_question_stands_on_a_screen_of_80_by_24(named_files, in_process):
    for line in examples_of(entry_of("questions")):
        on_a_small_screen(in_process, *shlex.split(line)[1:])


def test_the_positions_are_compared_in_a_table(in_process, snapshot):
    asked = ("explain", "sinusoidal", "vs", "learned", "--width", "80")
    snapshot("explain/sinusoidal-vs-learned.txt", in_process.ok(*asked).text)
    assert "\n    sinusoidal  by formula" in in_process.ok(*asked, "-f", "md").text


def test_the_figures_of_the_entries_are_true():
    gpt2 = TiktokenEncoding("gpt2").tiktoken
    assert gpt2.n_vocab == 50_257 == 256 + 50_000 + len(gpt2.special_tokens_set)
    assert "50,257 for gpt2, which are 256 bytes, 50,000 merges" in entry_of("V").text
    names = {model: tiktoken.encoding_name_for_model(model) for model in ("gpt-4", "gpt-4o")}
    assert names == {"gpt-4": "cl100k_base", "gpt-4o": "o200k_base"}

    gpt2_parameters = 50_257 * 768
    megabytes = [round(gpt2_parameters * size / 1e6) for size in (4, 2)]
    of_gpt2 = "50,257 · 768 = {:,}, which are {} MB in float32 and {} MB in 16 bits"
    assert of_gpt2.format(gpt2_parameters, *megabytes) in entry_of("parameter").text

    assert [gpt2.decode([token]) for token in gpt2.encode("12345")] == ["123", "45"]
    assert "12345 as 123 and 45" in entry_of("piece").text
    assert [len(gpt2.encode(text)) for text in ("Hello", "hello", " hello")] == [1, 1, 1]

    o200k = TiktokenEncoding("o200k_base").tiktoken
    tokens = len(o200k.token_byte_values()) + len(o200k.special_tokens_set)
    of_o200k = f"{o200k.n_vocab:,} for o200k_base, which has {tokens:,} tokens"
    assert of_o200k in entry_of("V").text

    one_hot = round(1_024 * 50_257 * 4 / 1e6)
    assert f"of 1,024 tokens of gpt2, {one_hot} MB" in entry_of("one-hot").text


def test_sentences_have_the_defaults_and_the_limits():
    texts = [str(load_facts("tour.json")), *(entry.text for entry in glossary.entries())]
    text = " ".join(" ".join(texts).split())
    facts = {**vars(names)}
    for module, units in data(__name__)["limits"].items():
        values = vars(import_module(f"embcli.{module}"))
        facts = values | facts
        for name, unit in units.items():
            facts[name] = values[name] / unit
    facts["megabytes"] = facts["_MOST"]["bytes of settings"] / 1e6
    held = [sentence.format_map(facts) for sentence in data(__name__)["sentences"]]
    for sentence in held:
        assert sentence in text
    # Sizes and times are limits, unless they are known as figures.
    size = re.compile(r"[\d.]+ (?:[kMG]i?B|seconds)\b")
    assert {*size.findall(text)} - {*size.findall(str(held))} == {*data(__name__)["figures"]}


def test_lists_of_formats_of_commands_and_of_methods_are_complete():
    of_rows = [name for name in formats.formats_for("list") if name not in formats.VIEWS]
    listed = formats.or_list(of_rows).replace(" or ", " and ")
    assert f"The fields of a row in {listed}." in entry_of("fields").text
    for row in formats.ROWS:
        if row.extra:
            package, extra = row.extra
            assert f"{extra}: for {row.name}" in entry_of("extras").text.casefold(), package
    assert {*COMMANDS} <= {*re.findall(r"\w+", entry_of("commands of embcli").text)}
    methods = [name for name in vars(embcli.Model) if name[0] != "_"]
    assert {*methods} <= {*re.findall(r"\w+", entry_of("Python").text)}


@cases
def test_the_first_number_of_a_seeded_layer_is_the_one_of_the_entry(shape):
    torch.manual_seed(123)
    first = torch.nn.Embedding(*shape).weight[0, 0].item()
    assert f"drawn right after it begins with {first:.4f}" in entry_of("seed").text


def test_another_number_of_rows_leaves_the_numbers_that_the_entry_names():
    numbers = []
    for rows in (6, 7):
        torch.manual_seed(123)
        numbers.append(torch.nn.Embedding(rows, 3).weight.flatten()[:18])
    equal = torch.eq(*numbers).nonzero().flatten().tolist()
    assert equal == [0, 1, *range(5, 10), *range(13, 18)]
    assert "in the numbers 0, 1, 5 to 9 and 13 to 17" in entry_of("other rows").text


def test_the_notebook_has_other_numbers_until_it_sets_the_seed_again(in_process):
    torch.manual_seed(123)
    torch.nn.Embedding(6, 3)
    of_notebook = torch.nn.Embedding(50_257, 256).weight[40, :3].tolist()
    lookup = ("lookup", "--ids", "40", "--show", "token", "--columns", "0:3")
    of_embcli = json.loads(in_process.ok(*lookup, "-f", "json").out)["matrices"]["token"][0]

    text = entry_of("numbers of the book").text

    for row in (of_notebook, of_embcli):
        assert " ".join(f"{number:.4f}" for number in row) in text
    assert "torch.manual_seed(123) on the line before that layer" in text


# --- names ----------------------------------------------------------------------------------------


def test_each_name_leads_to_its_entry_so_none_is_explained_twice():
    for entry in ENTRIES:
        for name in entry.names:
            assert entry_of(name) == entry
            apart = re.sub(r"(?<=\w)-", " ", name.upper())  # --file is not file
            if len(name) > 1:  # N is not n
                assert entry_of(f" {apart}") == entry


def test_a_name_of_items_leads_to_all_entries_that_have_one():
    for entry in ENTRIES:
        for name in entry.items - {"", "..."}:
            found = glossary.explain(name)
            assert entry in (*found.entries, *found.see_also), name


def test_words_after_each_other_are_one_word(in_process):
    apart = in_process.ok("explain", "input", "embedding").text
    assert apart == in_process.ok("explain", "input embedding").text


def test_words_that_readers_ask_for_find_their_entry():
    expected = data(__name__)["asked"]
    assert {asked: entry_of(asked).word for asked in expected} == expected


# --- pages and data -------------------------------------------------------------------------------


@cases
def test_a_word_is_explained(word, in_process, snapshot):
    page = in_process.ok("explain", word, "--width", "80").text
    snapshot(f"explain/{word}.txt", page)


def test_names_of_items_stand_out(in_process, snapshot):
    page = in_process.ok("explain", "formats", "-f", "html", "--width", "60").text
    snapshot("explain/formats.html", page)


def test_without_a_word_all_are_listed_in_the_order_of_the_chapter(in_process, snapshot):
    text = in_process.ok("explain", "--width", "80").text
    assert text.count("\n") <= 23, "a terminal of 24 lines has its prompt below"
    snapshot("explain/all-words.txt", text)


def test_an_explanation_is_a_page_without_data(in_process):
    assert "cannot be written as json" in in_process.refused("explain", "token", "-f", "json")
    assert repr(embcli.explain("token")) == "<embcli explain: token; print() shows it>"
    with pytest.raises(OutputError, match="explain has a page, without data"):
        embcli.explain("token")._records()


# --- words that are not explained -----------------------------------------------------------------


@cases
def test_a_word_that_is_spelled_wrong_is_explained(word, meant):
    assert [entry.word for entry in embcli.explain(word).entries] == [meant]


@pytest.mark.parametrize(
    "word", ["xyzzy", "foobar", "what is the weather like", "", "\x1b[31m", "x" * 100_000]
)
def test_a_word_without_a_near_one_is_refused(word, in_process):
    message = in_process.refused("explain", word)
    assert "not explained" in message
    assert "nearest" not in message
    assert len(message) < 200
    assert "\x1b" not in message


# --- what pages show is explained -----------------------------------------------------------------


def test_each_command_format_finding_and_dtype_is_explained():
    assert glossary.named().keys() >= {*formats.CONTENTS, *get_args(Level)}
    assert all(map(is_explained, KIND_NAMES.keys() - {"none"}))
    assert entry_of("audit").items - {""} == {*FAULTS}
    assert {f"unused.{reason}" for reason in get_args(names.Unused)} <= {*NAMES}
    assert {*formats.FORMATS, *formats.ALIASES} <= entry_of("formats").items
    text = entry_of("files of models").text
    of_models = formats.or_list([each.name for each in files._FORMATS])
    assert of_models in text
    assert of_models in (ROOT / "README.md").read_text()
    dtypes = load_facts("safetensors.json")["names"]
    assert {name for name in dtypes if "F" in name} <= {*re.findall(r"\w+", text)}


def test_each_family_of_models_is_explained():
    known = {name for family in FAMILIES for name in family.model_types.split()}
    assert known == entry_of("families").items - {""}


def test_the_status_of_a_no_is_explained_with_each_verb_that_can_answer_no():
    folder = ROOT / "embcli" / "verbs"
    can_answer_no = set()
    for path in folder.rglob("*.py"):
        if re.search(r"def (_why_no|status)\(self", path.read_text()):
            can_answer_no.add(path.relative_to(folder).parts[0].removesuffix(".py"))
    statuses = {block.name: block.text for block in entry_of("exit status").blocks}
    assert {*re.findall(r"\w+", statuses["1"])} & COMMANDS.keys() == can_answer_no
    assert [*statuses] == [str(status) for status in get_args(names.Status)]


# Command lines whose headings and titles are explained.
PAGES = (
    "tokenize 'Every effort 👋'",
    "tokenize 'Every effort' --merges",
    "tokenize 'Unbelievable!' --encoding gpt2,o200k_base",
    "count the-verdict.txt the-verdict.txt --lines",
    "count the-verdict.txt --encoding gpt2,o200k_base",
    "weights --vocab 6 --dim 3",
    "lookup 'Every effort' --dim 4 --trace 0",
    "compare --draw --gradient",
    "batch --ids 40,367,2885,1464,1807 --batch-size 1",
    "positions relative --context-length 4 --dim 3",
    "positions sinusoidal --similarity --context-length 4",
    "positions rotary --dim 4 --context-length 4",
    "neighbors --ids 2 --vocab 6 --dim 3",
    "audit base.npy --encoding gpt2",
    "diff base.npy tuned.npy",
    "info --from gpt2",
)
# Words of headings and titles that mean what they mean anywhere.
PLAIN = """
a all and are as at both by each first for from gpt height in into is it its last left looked
lowest make marks name not numbered of on one only or order out own per same shared size some
than that the them times to two under up used way ways weights what where which with written
"""


def headings(page: str) -> set[str]:
    """Return the title of a page, and the headings of its tables, which have a rule below them."""
    lines = page.splitlines()
    heads = [above for above, below in pairwise(lines) if below and not below.strip("─")]
    found = {cell for head in heads for cell in re.split(r"\s{2,}|│", head)}
    return found | {lines[0]}


def unexplained(heading: str) -> set[str]:
    """Return the words of a heading that have no explanation."""
    if is_explained(heading):
        return set()
    without_names = re.sub(r"\S+\.\w+|\d\S*|'s\b", "", heading)
    words = {word.casefold() for word in re.findall(r"[A-Za-z][\w-]*", without_names)}
    return {word for word in words - {*PLAIN.split()} if not is_explained(word)}


def is_explained(name: str) -> bool:
    """Return whether this is a name; some words of one would find an entry, too."""
    spelled = _spelled(name)
    return not SPELLED.isdisjoint({spelled, spelled.removesuffix("s")})


def _spelled(name: str) -> str:
    return re.sub(r"[][\s_<|>-]", "", name).casefold()


SPELLED = {*map(_spelled, NAMES)}


@pytest.mark.parametrize("line", PAGES)
def test_each_word_of_a_heading_is_explained(line, named_files, in_process):
    page = in_process(*shlex.split(line), COLUMNS="160").text
    for heading in filter(None, headings(page)):
        assert unexplained(heading) == set()
        if is_explained(heading):
            assert entry_of(f"What does '{heading}' mean?") == entry_of(heading)


def test_each_variable_each_error_and_each_extra_is_explained():
    files = [path for path in ROOT.rglob("embcli/**/*.py") if path.name != "names.py"]
    sources = "".join([path.read_text() for path in files])
    variables = re.findall(r"\bEMBCLI_[A-Z_]*[A-Z]", sources)
    errors = {name for name in embcli.__all__ if name.endswith("Error")}
    assert errors == {name for name in vars(embcli.errors) if name.endswith("Error")}
    assert {*variables} == {*get_args(names.Variable)}
    assert {*variables} == {*re.findall(r"EMBCLI_\w+", entry_of("environment").text)}
    made = {f"{kind}:" for kind in get_args(names.MadeFromText)}
    assert {*variables, *errors, *made} <= {*NAMES}
    assert errors <= {*re.findall(r"\w+", entry_of("errors").text)}

    project = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2]
    extras = re.findall(r"^(\w+) = \[", project.partition("\n[")[0], re.MULTILINE)
    of_embcli = get_args(names.Extra)
    assert {*extras} == {*of_embcli, "all", "families", "llama", "test"}
    assert {*of_embcli, "all"} <= {*NAMES}  # The others are for tests.
    assert f'all = ["embcli[{",".join(of_embcli)}]"]' in project


@pytest.mark.parametrize("verb", ["", *COMMANDS])
def test_each_option_is_explained_and_so_is_each_choice_where_the_option_is(verb):
    command = PARSERS.get(verb, built_once())
    context = command.make_context(verb, [], resilient_parsing=True)
    pages = [" ".join([*each.names, each.text, *examples_of(each)]) for each in ENTRIES]
    for option in command.params:
        if option.opts == [option.name]:
            continue  # It is an argument.
        flag = rf"(?<![\w-])({'|'.join(option.opts)})(?![\w-])"
        texts = [page for page in pages if re.search(flag, page)]
        words = re.findall(r"[\w-]+", " ".join(texts).casefold())
        choices = {item.value for item in option.shell_complete(context, "")}
        assert choices <= {*words, "", "-"}, option.name
        assert texts, option.name

"""Explanations: every word of a page has one, every example in them runs, and what is unknown is refused."""

from __future__ import annotations

import html
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import embcli
from embcli import formats
from embcli.verbs import explain as glossary
from tests.runners import InProcess

run = InProcess()
ENTRIES = glossary.entries()
REFERENCE = [entry for entry in ENTRIES if entry.part == "Reference"]
TERMS = [entry for entry in ENTRIES if entry not in REFERENCE]

# Words of headings and titles that mean what they mean anywhere.
PLAIN = """
a all and are as at both by each first for from gpt in into is it its last left looked lowest make marks name not of on
one only or out own per same shared size some than that the them times to two under up used way ways weights what where
which with written
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the models that examples name."""
    folder = tmp_path_factory.mktemp("models")
    rows = np.random.default_rng(3).standard_normal((50257, 4), np.float32)
    np.save(folder / "base.npy", rows)
    np.save(folder / "tuned.npy", rows + (np.arange(50257) == 262)[:, None] * np.float32(0.1))
    (folder / "gpt2").mkdir()
    safetensors.numpy.save_file(
        {"wte.weight": rows, "wpe.weight": rows[:64]}, folder / "gpt2" / "model.safetensors"
    )
    (folder / "the-verdict.txt").write_text(
        "I HAD always thought Jack Gisburn rather a cheap genius. " * 8
    )
    return folder


@pytest.fixture
def models(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in the folder with the models that examples name, and return it."""
    monkeypatch.chdir(made)
    return made


def test_each_example_runs(models: Path) -> None:
    lines = {line for entry in ENTRIES for line in entry.examples}
    assert len(lines) > 40
    for line in lines:
        program, *words = shlex.split(line)
        ran = run(*words)
        assert program == "embcli"
        assert ran.status == (1 if words[0] == "diff" else 0), (line, ran)


def test_each_term_has_an_example_and_takes_few_lines() -> None:
    for entry in TERMS:
        assert entry.examples, entry.word
        assert len(run.ok("explain", entry.word, "--width", "80").text.splitlines()) <= 12, (
            entry.word
        )


def test_each_name_leads_to_its_entry_so_none_is_explained_twice() -> None:
    for entry in ENTRIES:
        for name in (entry.word, *entry.also):
            assert glossary.explain(name).entries == (entry,)
            assert glossary.explain(f" {name.upper().replace('-', ' ')}").entries == (entry,)


def test_an_item_is_a_word_that_leads_to_the_entry() -> None:
    assert run.ok("explain", "npy", "--width", "80").text == (
        "npy\none matrix, (rows, columns) float32; of tokenize the IDs, int64\n  embcli explain formats\n"
    )
    assert glossary.explain("html").entries[0].word == "svg, html, png"
    assert glossary.explain("cosine").entries[0].part == "What is in a matrix", (
        "a word goes before an item of its name"
    )


def test_marks_of_a_question_do_not_count() -> None:
    assert glossary.explain("one-hot?").entries == glossary.explain("one-hot").entries


def test_the_questions_have_a_command_each() -> None:
    blocks = glossary.explain("questions").entries[0].blocks
    asked = [
        place for place, each in enumerate(blocks) if each.kind == "prose" and "?" in each.text
    ]
    assert len(asked) >= 10
    assert all(blocks[place + 1].kind == "command" for place in asked)


def test_a_page_has_the_entry_as_it_is_written() -> None:
    assert run.ok("explain", "stride", "--width", "80").text == (
        "stride (skipped)\n"
        "How many tokens the window moves on from one sample to the next. With a stride\n"
        "of T each token is an input once; a smaller stride repeats tokens, a larger one\n"
        "skips some.\n"
        "  embcli batch --ids 1:8 --batch-size 2 --max-length 2 --stride 1\n"
        "Source: the book, section 2.6.\n"
    )


def test_names_stand_out() -> None:
    page = run.ok("explain", "formats", "-f", "html", "--width", "40").text
    bold = re.findall('<span style="[^"]*font-weight: bold[^"]*">(.*?)</span>', page)
    assert [html.unescape(each) for each in bold] == [
        "formats",
        *(block.name for block in glossary.explain("formats").entries[0].blocks if block.name),
    ]


def test_without_a_word_all_are_listed_in_the_order_of_the_chapter() -> None:
    text = run.ok("explain", "--width", "80").text
    parts = "|".join(re.escape(part) for part in dict.fromkeys(entry.part for entry in ENTRIES))
    listed = re.split(f"(?:^| )(?:{parts}): ", " ".join(text.split()))[1:]
    assert ", ".join(listed).split(", ") == [entry.word for entry in ENTRIES]
    assert len(text.splitlines()) <= 23, "a terminal of 24 lines has its prompt below"


def test_the_rows_of_all_entries_are_data() -> None:
    rows = json.loads(run.ok("explain", "-f", "json").text)["words"]
    assert [row["word"] for row in rows] == [entry.word for entry in ENTRIES]
    one = json.loads(run.ok("explain", "one-hot", "-f", "ndjson").text)
    assert one["examples"] == "embcli compare --ids 3 --vocab 6 --dim 3"
    assert embcli.explain("one-hot").entries[0].text == one["text"]


def test_words_after_each_other_are_one_word() -> None:
    assert run.ok("explain", "input", "embedding").text == run.ok("explain", "input embedding").text


@pytest.mark.parametrize(
    ("word", "near"), [("one-hott", "one-hot"), ("posistion", "position"), ("strides!", "stride")]
)
def test_an_unknown_word_is_refused_with_the_nearest(word: str, near: str) -> None:
    message = run.refused("explain", word)
    assert message.startswith(f"embcli: WORD {word!r} is not explained; the nearest: ")
    assert near in message


@pytest.mark.parametrize("word", ["xyzzy", "", "\x1b[31m", "x" * 100_000])
def test_a_word_without_a_near_one_is_refused(word: str) -> None:
    message = run.refused("explain", word)
    assert re.fullmatch(
        "embcli: WORD '.*' is not explained; explain without one lists all\n", message
    )
    assert len(message) < 200
    assert "\x1b" not in message


def test_formats_explains_every_format() -> None:
    text = glossary.explain("formats").entries[0].text
    assert all(re.search(rf"\b{name}\b", text) for name in formats.FORMATS)


# Command lines whose headings, titles and fields are explained.
PAGES = (
    "tokenize 'Every effort 👋'",
    "tokenize 'Every effort' --merges",
    "tokenize 'Unbelievable!' --encoding gpt2,o200k_base",
    "weights --vocab 6 --dim 3",
    "lookup 'Every effort' --dim 4 --trace 0",
    "compare --trace --gradient",
    "batch --ids 40,367,2885,1464,1807 --batch-size 1",
    "positions --kind relative --context-length 4 --dim 3",
    "positions --kind sinusoidal --similarity --context-length 4",
    "positions --kind rotary --dim 4 --context-length 4",
    "neighbors --ids 2 --vocab 6 --dim 3",
    "audit --dim 8",
    "diff base.npy tuned.npy",
    "info --from gpt2",
)


def headings(line: str) -> set[str]:
    """Return the title of a page, and the headings of its tables, which have a rule below them."""
    lines = run(*shlex.split(line), COLUMNS="160").text.splitlines()
    heads = [above for above, below in pairwise(lines) if below.strip("─") == "" and below]
    return {
        lines[0],
        *(
            word
            for head in heads
            for word in re.split(r"\s{2,}|│", head)
            if re.search("[A-Za-z]", word)
        ),
    }


@pytest.mark.parametrize("line", PAGES)
def test_each_word_of_a_heading_is_explained(line: str, models: Path) -> None:
    unknown = {
        word
        for heading in headings(line)
        if not explained(heading)
        for word in re.findall(r"[A-Za-z][\w-]*", re.sub(r"\S+\.\w+|\d\S*|'s\b", "", heading))
        if word.casefold() not in PLAIN.split() and not explained(word)
    }
    assert not unknown


def explained(name: str) -> bool:
    try:
        return bool(glossary.explain(name).entries[0])
    except embcli.InputError:
        return False


@pytest.mark.parametrize("line", PAGES)
def test_each_field_of_a_row_is_explained(line: str, models: Path) -> None:
    data = [word for word in shlex.split(line) if word not in ("--trace", "0", "--gradient")]
    row = json.loads(run(*data, "-f", "ndjson").text.splitlines()[0])
    text = glossary.explain("fields").entries[0].text
    assert {
        name for name in row if name != "vectors" and not re.search(rf"\b{name}\b", text)
    } == set()
    matrices = (
        glossary.explain("matrices").entries[0].text + glossary.explain("neighbors").entries[0].text
    )
    assert {
        name for name in row.get("vectors", ()) if not re.search(rf"\b{name}s?\b", matrices)
    } == set()


def test_completion_offers_the_words() -> None:
    ran = run.ok(_EMBCLI_COMPLETE="complete_bash", COMP_WORDS="embcli explain one", COMP_CWORD="2")
    assert ran.text.split() == ["one-hot"]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        *(("positional embedding", "position"), ("absolute positional embeddings", "position")),
        *(
            ("positional encoding", "position"),
            ("mean norm", "norm"),
            ("shared weight", "weight matrix"),
        ),
        *(
            ("SGD", "gradient"),
            ("model_type", "recipe"),
            ("RoPE", "rotary"),
            ("input-target pairs", "sample"),
        ),
        *(
            ("<|endoftext|>", "special token"),
            ("[UNK]", "unknown token"),
            ("one-hot encoding", "one-hot"),
        ),
        *(
            ("1 thread", "multiply-adds"),
            ("drop_last", "incomplete batch"),
            ("max_length", "T"),
            ("loss", "loss"),
        ),
        *(
            ("padding_idx", "padding token"),
            ("LoRA merged", "LoRA"),
            ("tie_word_embeddings", "tied"),
        ),
        *(
            ("encoder", "encoder"),
            ("decoder", "encoder"),
            ("corpus", "corpus"),
            ("bare", "pictures"),
        ),
        *(
            ("emoji", "bytes"),
            ("temperature", "later chapters"),
            ("semantic similarity", "neighbors"),
        ),
        *(
            ("models", "checkpoint"),
            ("explain models", "checkpoint"),
            ("out of vocabulary", "unknown token"),
        ),
        *(
            ("vector", "row"),
            ("feature", "D"),
            ("weights tying", "tied"),
            ("attention", "block"),
            ("dimension", "D"),
        ),
        *(("dim", "D"), ("shared", "compare"), ("first", "compare"), ("absolute", "learned")),
        *(
            ("bag", "bag of tokens"),
            ("shift", "target"),
            ("why does a word split", "byte pair encoding"),
        ),
        *(
            ("word order", "position"),
            ("king - man + woman", "analogy"),
            ("unit length", "analogy"),
        ),
        *(
            ("transformer", "block"),
            ("tensor", "tensor"),
            ("batch size", "B"),
            ("context window", "C"),
        ),
    ],
)
def test_words_that_readers_ask_for_find_their_entry(asked: str, word: str) -> None:
    assert glossary.explain(asked).entries[0].word == word


@pytest.mark.parametrize(
    ("word", "fact"),
    [
        (
            "gradient",
            "SGD leaves them as they are; AdamW moves them by weight decay and by earlier gradients, and a",
        ),
        (
            "changed",
            "SGD changes only the rows of the tokens that its texts contain; AdamW and an output head",
        ),
        ("compare", "a lookup shows it only for the token of that row"),
        (
            "pairing",
            "Meta's own files of Llama and GGUF files of it have the first, files for transformers the second",
        ),
        ("WordPiece", "If any rest of a word has no known piece, the whole word becomes [UNK]"),
        ("hidden", "except of mamba, falcon_mamba and rwkv"),
        (
            "recipe",
            "bit for bit what transformers 5.23 computes (a projection of a single row: to about 5e-7)",
        ),
        (
            "Python",
            "of `styled`; the others, of the method: help(model.lookup) lists them. batch and positions take",
        ),
        ("BOS", "tiktoken's encodings add none."),
    ],
)
def test_an_entry_says_what_is_true(word: str, fact: str) -> None:
    (entry,) = glossary.explain(word).entries
    assert entry.word == word
    assert fact in f"{entry.text} {entry.source}"


def test_the_examples_of_the_chapter_run_without_any_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (entry,) = glossary.explain("chapter").entries
    assert "embcli" not in entry.text, "a command in a sentence is not run here"
    for line in entry.examples:
        run.ok(*shlex.split(line)[1:])


def test_each_field_that_is_explained_is_there(models: Path) -> None:
    """The fields that the entry names for the cache are those of its rows."""
    fields = next(
        each.name
        for each in glossary.explain("fields").entries[0].blocks
        if "of cache" in each.text
    )
    run.ok("weights", "--vocab", "6", "--dim", "3")
    assert fields.split(", ") == [*json.loads(run.ok("cache", "-f", "ndjson").text.splitlines()[0])]

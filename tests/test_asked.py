"""A folder's tokenizer is as transformers reads it, by recorded answers, which are kept."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import BertWordPieceTokenizer

import embcli
from embcli import encodings
from embcli.asked.process import NotAskedError, RefusedError
from embcli.encodings.encoding import UnknownTokenizerError
from embcli.errors import InputError
from tests import recorded
from tests.cases import cases
from tests.files.made import numbered, save_words
from tests.oracles import normal
from tests.recorded import ANSWERS, Recorded, write_folder
from tests.test_dialects import PAIR_MODEL, SCORED, opened, sentencepiece
from tests.transcripts import document_of

ASKING = "asking transformers for the tokenizer of 'bert': some seconds"


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _environment: None) -> Recorded:
    """Answer for transformers, with a cache of its own, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", "cache")
    return recorded.put_in_place(monkeypatch)


def kept() -> list[str]:
    """Return the names of the answers in the cache."""
    return sorted(path.name for path in Path("cache").glob("tokenizer-*.npy"))


def refusal(path: str) -> InputError:
    with pytest.raises(InputError) as caught:
        encodings.get(path)
    return caught.value


# --- a folder with a fast tokenizer ---------------------------------------------------------------


@pytest.mark.parametrize("path", ["./bert", "bert/vocab.txt"])
def test_a_folder_splits_texts_as_the_answer_says(path):
    write_folder("bert")
    encoding, notes = opened(path)
    ids = numbered(Path("bert/vocab.txt").read_text().split())
    oracle = BertWordPieceTokenizer(ids, lowercase=False)

    for text in ("The cats", "the [SEP] Cat", "", "cat\n\nthe"):
        expected = oracle.encode(text, add_special_tokens=False).ids
        assert encoding.encode(text, special=True).tolist() == expected
    assert encoding.encode("[SEP]").tolist() == [ids["[UNK]"]] * 3
    assert encoding.bos_eos == ((ids["[CLS]"],), (ids["[SEP]"],))
    assert encoding.special_ids == {"unk": 1, "sep": 3, "pad": 0, "cls": 2, "mask": 4}
    assert encoding.described_by == "BertTokenizer"
    assert notes == [ASKING]


def test_an_answer_is_kept_and_noted_once(in_process, asked):
    write_folder("bert")
    words = ("tokenize", "The cats", "--encoding", "./bert", "-f", "ids")

    first = in_process(*words)
    second = in_process(*words)

    assert first.out == second.out == b"6 8 7\n"
    assert "embcli: asking transformers" in first.err
    assert "asking" not in second.err
    assert "puts [CLS] before and [SEP] after a text" in second.err
    assert asked.questions == [{"about": "tokenizer", "folder": str(Path.cwd() / "bert")}]
    assert len(kept()) == 1


@cases
def test_a_folder_is_asked_about_again_if_a_byte_of_its_tokenizer_changes(asked, name, asks):
    write_folder("bert")
    opened("./bert")
    before = kept()

    path = Path("bert", name)
    content = path.read_bytes() if path.exists() else b"}"
    path.write_bytes(content[:-1] + b" ")
    _, notes = opened("./bert")

    assert (notes == [ASKING]) == asks
    assert len(asked.questions) == 1 + asks
    assert len(kept()) == 1 + asks
    assert {*before} <= {*kept()}


@pytest.mark.parametrize("package", ["transformers", "tokenizers", "sentencepiece", "protobuf"])
def test_a_folder_is_asked_about_again_by_another_version(asked, monkeypatch, package):
    write_folder("bert")
    site = Path("site").absolute()
    spec = SimpleNamespace(origin=str(site / "transformers" / "__init__.py"))
    monkeypatch.setattr("embcli.asked.kept.find_spec", lambda name: spec)
    for each in ("transformers", "tokenizers", "sentencepiece", "protobuf"):
        (site / f"{each}-1.0.dist-info").mkdir(parents=True)
    for old, new in (("1.0", "1.0"), ("1.0", "1.1"), ("1.1", "1.0")):
        (site / f"{package}-{old}.dist-info").rename(site / f"{package}-{new}.dist-info")
        opened("./bert")

    assert len(asked.questions) == len(kept()) == 2


def test_a_folder_with_the_same_files_is_not_asked_about(asked):
    write_folder("bert")
    opened("./bert")
    Path("bert").rename("elsewhere")

    encoding, notes = opened("./elsewhere")

    assert encoding.encode("The").tolist() == [6]
    assert notes == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b'{"facts": {}}', b'{"facts": 1}'])
def test_a_damaged_answer_in_the_cache_is_asked_for_again(asked, content):
    write_folder("bert")
    opened("./bert")
    np.save(Path("cache", kept()[0]), np.frombuffer(content, np.uint8))

    for _ in range(2):
        encoding, _ = opened("./bert")
        assert encoding.encode("The").tolist() == [6]

    assert len(asked.questions) == 2


def test_names_of_special_tokens_are_plain_text_for_a_class_that_splits_them(
    asked,
):
    write_folder("bert")
    asked.answers["tokenizer"] = ANSWERS["bert"] | {"splits_special": True}

    encoding, _ = opened("./bert")

    assert encoding.encode("[SEP]", special=True).tolist() == [1, 1, 1]


def test_the_tokenizer_beside_weights_is_asked_for(in_process):
    write_folder("bert")
    rows = normal(9, 3)
    save_file({"embeddings.word_embeddings.weight": rows}, "bert/model.safetensors")

    document = document_of(in_process, "info", "bert")

    assert document["run"]["encoding"] == "bert/vocab.txt"
    found = {(each["role"], *each["ids"]): each["file"] for each in document["run"]["special_ids"]}
    assert found[("cls", 2)] == "BertTokenizer"
    shown = embcli.open("bert").weights(rows="The,cat")
    np.testing.assert_array_equal(shown.token, rows[[6, 8]])


# --- what is asked, and what is read by itself ----------------------------------------------------


@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@cases
def test_a_tokenizer_json_that_its_class_leaves_as_it_is_is_read_by_itself(
    asked, tokenizer_class, named
):
    save_words("m/tokenizer.json", ["a", "</s>"], special=["</s>"])
    settings = {"tokenizer_class": tokenizer_class, **named}
    Path("m/tokenizer_config.json").write_text(json.dumps(settings))
    Path("m/config.json").write_text("{}")

    encoding, notes = opened("./m")

    assert encoding.described_by == "tokenizer.json"
    assert notes == []
    assert asked.questions == []


@cases
def test_a_tokenizer_json_that_its_class_can_change_is_asked_for(asked, files):
    save_words("m/tokenizer.json", ["a", "</s>"], special=["</s>"])
    Path("m/tokenizer_config.json").unlink()
    for name, content in files.items():
        Path("m", name).write_text(json.dumps(content))
    asked.answers["tokenizer"] = ANSWERS["bert"]

    encoding, _ = opened("./m")

    assert encoding.described_by == "BertTokenizer"
    assert len(asked.questions) == 1


def test_a_file_that_transformers_does_not_read_is_read_by_itself(asked):
    save_words("m/tokenizer.json", ["b", "a"])
    Path("m/tokenizer_config.json").write_text("{}")
    save_words("other.json", ["a", "b"])
    Path("other.json").rename("m/other.json")

    encoding, notes = opened("m/other.json")

    assert encoding.encode("b").tolist() == [1]
    told = "other.json is read by itself; transformers reads tokenizer.json of its folder"
    assert notes == [told]
    assert asked.questions == []


def test_a_class_without_a_vocabulary_is_asked_for_and_refused_by_itself():
    write_folder("byt5")
    assert opened("./byt5")[0].vocabulary_size == 259

    Path("byt5/config.json").rename("byt5/tokenizer.json")

    assert "it has no vocabulary" in str(refusal("byt5/tokenizer_config.json"))


# --- no answer ------------------------------------------------------------------------------------


def test_a_refusal_is_kept(in_process, asked):
    write_folder("bert")
    asked.answers["tokenizer"] = RefusedError("vocab.txt has no [UNK]")
    words = ("tokenize", "The", "--encoding", "./bert")

    first = in_process(*words)
    second = in_process(*words)

    assert first.status == second.status == 2
    reason = "transformers cannot read it: vocab.txt has no [UNK]"
    told = f"embcli: cannot read 'bert/vocab.txt': {reason}\n"
    assert first.err == f"embcli: {ASKING}\n{told}"
    assert second.err == told
    assert len(asked.questions) == len(kept()) == 1
    assert not isinstance(refusal("./bert"), UnknownTokenizerError)


def test_what_transformers_says_is_data_for_a_terminal(in_process, asked):
    write_folder("bert")
    asked.answers["tokenizer"] = RefusedError("no \x1b[2J\u202e[bold]")

    error = in_process("tokenize", "The", "--encoding", "./bert").err
    assert error.endswith(r"transformers cannot read it: no \u001b[2J\u202e[bold]" + "\n")


def test_that_there_was_no_answer_is_not_kept(asked):
    write_folder("bert")
    asked.answers["tokenizer"] = NotAskedError("no answer within 60 seconds")
    for _ in range(2):
        error = refusal("./bert")
        assert isinstance(error, UnknownTokenizerError)
        assert "no answer about its class: no answer within 60 seconds" in str(error)

    assert len(asked.questions) == 2
    assert kept() == []

    asked.answers["tokenizer"] = ANSWERS["bert"]
    assert opened("./bert")[1] == [ASKING]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RefusedError("it is odd"), "transformers cannot read it: it is odd"),
        (NotAskedError("it died"), "transformers has no answer about its class: it died"),
    ],
)
def test_a_tokenizer_json_without_an_answer_is_read_as_it_is(asked, error, reason):
    save_words("m/tokenizer.json", ["a", "b"])
    Path("m/tokenizer_config.json").write_text("{}")
    asked.answers["tokenizer"] = error

    encoding, notes = opened("./m")

    assert encoding.encode("b").tolist() == [1]
    assert encoding.described_by == "tokenizer.json"
    assert notes[-1] == f"tokenizer.json is read as it is: {reason}"


@pytest.fixture(params=["no transformers", "Python 3.10"])
def reason(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return why nothing can be asked on this machine."""
    if request.param == "Python 3.10":
        recorded.install(monkeypatch, (3, 10))
        return "needs Python 3.11"
    monkeypatch.setitem(sys.modules, "transformers", None)
    return "pip install 'embcli[transformers]'"


def test_where_nothing_can_be_asked_another_tokenizer_is_refused(in_process, asked, reason):
    Path("m").mkdir()
    sentencepiece(Path("m"), PAIR_MODEL, SCORED)
    Path("m/config.json").write_text('{"model_type": "llama"}')
    save_file({"model.embed_tokens.weight": normal(len(SCORED), 3)}, "m/model.safetensors")

    error = in_process.refused("tokenize", "b", "--encoding", "./m")

    told = f"transformers has no answer about its class: {reason}"
    assert error == f"embcli: cannot read 'm/tokenizer.model': {told}\n"

    # Rows need no tokenizer.
    shown = in_process("weights", "m", "--rows", "0:2", "-f", "csv")
    assert shown.status == 0
    assert shown.out.count(b"\n") == 3
    assert f"{told}; it is ignored" in shown.err
    assert asked.questions == []


@pytest.mark.parametrize("name", ["config.json", "special_tokens_map.json", "merges.txt"])
def test_a_pipe_among_the_files_is_refused_and_not_waited_for(asked, name):
    write_folder("bert")
    Path("bert", name).unlink(missing_ok=True)
    os.mkfifo(f"bert/{name}")

    def give_up(*_: object) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        error = refusal("./bert")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert f"cannot read 'bert/{name}': it is not a regular file" in str(error)
    assert asked.questions == []


def test_folders_and_links_that_lead_nowhere_are_no_files_of_a_tokenizer(asked):
    write_folder("bert")
    Path("bert/folder.json").mkdir()
    Path("bert/special_tokens_map.json").symlink_to("gone.json")

    assert opened("./bert")[1] == [ASKING]


# --- a class that is Python's only ----------------------------------------------------------------


@pytest.fixture
def byt5(asked: Recorded) -> Recorded:
    """Write the folder of a class that is Python's only, and answer as ByT5's does."""
    write_folder("byt5")

    def ids(folder: str, text: str, special: bool) -> recorded.Facts:
        assert Path(folder) == Path.cwd() / "byt5"
        if not special:
            return {"ids": [3 + byte for byte in text.encode()]}
        parts = [[3 + byte for byte in part.encode()] for part in text.split("</s>")]
        found = parts[0]
        for part in parts[1:]:
            found += [1, *part]
        return {"ids": found if found[-1:] == [1] else [*found, 1]}

    def text(folder: str, ids: list[int]) -> recorded.Facts:
        joined = b"".join(b"</s>" if each == 1 else bytes([each - 3]) for each in ids)
        return {"text": joined.decode(errors="ignore")}

    asked.answers |= {"ids": ids, "text": text}
    return asked


def test_texts_are_split_and_joined_by_a_class_that_is_pythons_only(byt5):
    encoding, notes = opened("./byt5")

    assert encoding.vocabulary_size == 259
    assert [encoding.token_bytes(token_id) for token_id in (-1, 1, 107, 259)] == [
        *(None, b"</s>", b"h", None)
    ]
    assert encoding.bos_eos == ((), (1,))
    assert encoding.special_ids == {"eos": 1}
    assert encoding.described_by == "ByT5Tokenizer"
    assert encoding.encode("hi</s>").tolist() == [107, 108, 63, 50, 118, 65]
    assert encoding.encode("").tolist() == []
    assert encoding.decode(np.array([107, 108, 1], np.uint32)) == b"hi</s>"
    assert notes == ["asking transformers for the tokenizer of 'byt5': some seconds"]


def test_ids_with_special_tokens_are_without_those_that_the_class_adds(byt5):
    encoding, _ = opened("./byt5")

    assert encoding.encode("hi", special=True).tolist() == [107, 108]
    assert encoding.encode("h</s>i", special=True).tolist() == [107, 1, 108]
    # The class adds nothing here, so this one is what it would add.
    assert encoding.encode("hi</s>", special=True).tolist() == [107, 108]


def test_spans_are_those_of_the_names_that_spell_a_text(byt5):
    encoding, _ = opened("./byt5")

    assert encoding.spans("hi").tolist() == [[0, 1], [1, 2]]
    # The names of bytes above 127 are other characters.
    assert encoding.spans("hé").tolist() == [[0, 2]] * 3


def test_pages_of_a_class_that_is_pythons_only(in_process, byt5):
    encoding = ("--encoding", "./byt5", "-f", "ids")
    assert in_process("tokenize", "hi", "--special", *encoding).out == b"107 108 1\n"
    assert in_process("decode", "107", "108", *encoding[:2]).out == b"hi"
    assert in_process("lookup", "hi", "--dim", "2", *encoding[:2]).status == 0
    merges = in_process.refused("tokenize", "hi", "--merges", *encoding[:2])
    assert "does not tell how it splits a text" in merges


@pytest.mark.parametrize("error", [NotAskedError("it died"), RefusedError("it died")])
def test_a_text_without_an_answer_is_refused(in_process, byt5, error):
    encoding, _ = opened("./byt5")
    byt5.answers |= {"ids": error, "text": error}

    told = "ByT5Tokenizer of transformers does not answer: it died"
    for call in (lambda: encoding.encode("a"), lambda: encoding.decode(np.array([107]))):
        with pytest.raises(InputError, match=told):
            call()
    assert told in in_process.refused("tokenize", "a", "--encoding", "./byt5")

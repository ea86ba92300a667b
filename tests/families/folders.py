"""Small folders of tokenizers of many classes, and texts; transformers reads them live.

The vocabularies are trained here, on a few lines. A folder has a `config.json`, mostly a
`tokenizer_config.json`, the files of its tokenizer, and some have a token matrix.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import transformers
from safetensors.numpy import save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.cases import data
from tests.files.made import numbered
from tests.oracles import normal

Files = dict[str, bytes]  # the content of each file, by its name

CORPUS = """
the cat sat on the mat and the dog ran after the cat
Every effort moves you, and every one of you moves the effort
The Quick brown fox jumps over 13 lazy dogs; it's 3.14159 or 2,718 times
Möchte der Bär über die Straße? Das wäre schön. Größe und Äpfel
mochte der Bar uber die Strasse? Das ware schon
el niño pequeño comió jalapeños; garçon, déjà vu, naïve café à la crème
한국어 문장은 띄어쓰기가 있다. 나는 고양이를 좋아한다. 대한민국 서울
日本語の文には空白がない。私は猫が好きです。カタカナもひらがなも漢字もある
我喜欢猫。中文没有空格。日本和中国都用汉字。
القطة جلست على السجادة. أنا أحب القطط
Кошка сидела на коврике, и собака бежала за кошкой
def add(left, right):\treturn left + right  # code, e.g. x = [1, 2, 3]
for (int i = 0; i < 10; i++) { printf("%d\\n", i); }
hello world again, one two three four five six seven
😀 🤖 👍🏽 👩‍👩‍👧 🇰🇷 ❤️ emoji are tokens too
<s> and </s> are names, as are [CLS] and [SEP]
""".strip().split("\n")


# --- vocabularies ---------------------------------------------------------------------------------


@cache
def piece_model(kind: str, size: int, **settings: Any) -> bytes:
    """Return a model of SentencePiece: `unigram`, `bpe` or `char`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 8),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **settings,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(piece_id) for piece_id in range(len(processor))]


@cache
def byte_pairs(*special: str) -> Tokenizer:
    """Return a tokenizer like GPT-2's; its first tokens are the special ones."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(special),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    return made


@cache
def word_pieces(*special: str) -> Tokenizer:
    """Return a tokenizer like BERT's, which keeps case and accents.

    Its tokens are characters and words that occur twice, and the ends of words; the trainer of
    `tokenizers` gives its tokens other IDs in each process.
    """
    splitter = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for line in CORPUS:
        for cased in (line, line.lower()):
            words = [word for word, _ in splitter.pre_tokenize_str(cased)]
            counts.update(words)
            counts.update("".join(words))
            counts.update(f"##{character}" for word in words for character in word[1:])
            counts.update(f"##{word[-3:]}" for word in words if len(word) > 4)
    tokens = [*special, *sorted(token for token, count in counts.items() if count > 1)]

    made = Tokenizer(models.WordPiece(numbered(tokens), unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    made.pre_tokenizer = splitter
    made.decoder = decoders.WordPiece()
    return made


def space_first_file() -> Files:
    """Return a tokenizer.json like Mistral's, which puts a space before a text."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    bos = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.post_processor = bos
    return whole_file(made)


def spaced_file() -> Files:
    """Return a tokenizer.json like Gemma's: each space is written as U+2581, and none is added."""
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=560, special_tokens=[*special, *every_byte], show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    document = json.loads(made.to_str())
    document["added_tokens"] = document["added_tokens"][: len(special)]
    return whole_file(Tokenizer.from_str(json.dumps(document)))


# --- files ----------------------------------------------------------------------------------------


def copy_of(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy, as those that are kept must not change."""
    return Tokenizer.from_str(tokenizer.to_str())


def json_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def lines_of(words: list[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


def words_of(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens in the order of their IDs."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def pair_files(*special: str) -> Files:
    """Return the vocab.json and the merges.txt of a tokenizer of pairs."""
    tokenizer = byte_pairs(*special)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    lines = [" ".join(merge) for merge in merges]
    return {
        "vocab.json": json_of(numbered(words_of(tokenizer))),
        "merges.txt": lines_of(["#version: 0.2", *lines]),
    }


def word_files(*special: str) -> Files:
    return {"vocab.txt": lines_of(words_of(word_pieces(*special)))}


def whole_file(tokenizer: Tokenizer) -> Files:
    return {"tokenizer.json": tokenizer.to_str().encode()}


def saved_file(name: str) -> Files:
    """Return the tokenizer.json that transformers saves for the folder with this name."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place)
        write(FOLDERS[name], path)
        return {"tokenizer.json": opened(path).backend_tokenizer.to_str().encode()}


def added(content: str, **settings: Any) -> dict[str, Any]:
    """Return an added token as tokenizer_config.json describes it."""
    token = {"content": content, "lstrip": False, "rstrip": False, "normalized": False}
    return token | {"single_word": False, "special": True} | settings


BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
GPT2 = ("<|endoftext|>",)
LLAMA_PIECES = partial(piece_model, "bpe", 620, byte_fallback=True, character_coverage=0.98)
SOME_PIECES = partial(piece_model, "unigram", 420, character_coverage=0.99)
PIECE_MODELS = {
    "byte fallback": LLAMA_PIECES,
    "some": SOME_PIECES,
    # ALBERT's and XLNet's classes expect these names among the pieces.
    "named": partial(
        piece_model,
        "unigram",
        430,
        character_coverage=0.99,
        control_symbols="<pad>,[CLS],[SEP],<cls>,<sep>,<eop>,<eod>",
        user_defined_symbols="[MASK],<mask>",
    ),
}


def piece_file(name: str, model: str) -> Files:
    """Return a single file: a model of pieces."""
    return {name: PIECE_MODELS[model]()}


def llama_files() -> Files:
    """Return a tokenizer.model, and beside it tokens that only added_tokens.json names."""
    model = LLAMA_PIECES()
    size = len(pieces_of(model))
    return {
        "tokenizer.model": model,
        "added_tokens.json": json_of({"<|im_end|>": size, "<|im_start|>": size + 1}),
        "special_tokens_map.json": json_of(
            {
                "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
            }
        ),
    }


def accent_files() -> Files:
    words = [*BERT, "mochte", "möchte", "日", "本", "日本", "the", "cat", "##s", "한", "é", "##é"]
    return {"vocab.txt": lines_of(words)}


def cased_file() -> Files:
    """Return a tokenizer.json that keeps the case of a text."""
    tokenizer = copy_of(word_pieces(*BERT))
    ids = [(name, BERT.index(name)) for name in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ids)
    return whole_file(tokenizer)


def bert_added_files() -> Files:
    files = word_files(*BERT)
    size = files["vocab.txt"].count(b"\n")
    return files | {"added_tokens.json": json_of({"Café": size, "<|IM|>": size + 1, "straße": 7})}


def roberta_file() -> Files:
    """Return a tokenizer.json that puts no space before a text."""
    tokenizer = copy_of(byte_pairs(*ROBERTA))
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    return whole_file(tokenizer)


def digits_file() -> Files:
    """Return a tokenizer.json like GPT-2's that takes digits one by one."""
    tokenizer = copy_of(byte_pairs(*GPT2))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\s+|[^\s\d]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return whole_file(tokenizer)


def cut_file() -> Files:
    """Return a tokenizer.json that cuts a text after six tokens and pads it to twelve."""
    tokenizer = copy_of(byte_pairs(*GPT2))
    tokenizer.enable_truncation(6)
    tokenizer.enable_padding(length=12, pad_token="<|endoftext|>")
    return whole_file(tokenizer)


def stripping_file() -> Files:
    """Return a tokenizer.json with tokens that take spaces, and one that is a whole word."""
    tokenizer = copy_of(byte_pairs(*GPT2))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("cat", single_word=True), AddedToken("MÖCHTE")])
    return whole_file(tokenizer)


def holes_file() -> Files:
    """Return a tokenizer.json of which every second ID has no token."""
    document = json.loads(byte_pairs(*GPT2).to_str())
    for token, token_id in document["model"]["vocab"].items():
        document["model"]["vocab"][token] = 2 * token_id
    return {"tokenizer.json": json_of(document)}


def gaps_file() -> Files:
    """Return a tokenizer.json whose added tokens have IDs far apart, in no order."""
    document = json.loads(byte_pairs(*GPT2).to_str())
    for name, token_id in (("<|im_end|>", 700), ("<|im_start|>", 600), ("cat", 650)):
        document["added_tokens"].append(added(name) | {"id": token_id})
    return {"tokenizer.json": json_of(document)}


def whisper_files() -> Files:
    files = pair_files()
    size = len(json.loads(files["vocab.json"]))
    names = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>"]
    names += ["<|transcribe|>", "<|startoflm|>", "<|nospeech|>", "<|notimestamps|>", "<|0.00|>"]
    ids = {name: size + place for place, name in enumerate(names)}
    return files | {
        "added_tokens.json": json_of(ids),
        "normalizer.json": json_of({"colour": "color"}),
    }


def marian_files() -> Files:
    """Return two models of pieces, whose IDs a vocab.json gives, with some of them left out."""
    model = SOME_PIECES()
    pieces = [piece for piece in pieces_of(model) if piece not in ("<s>", "</s>", "<unk>")]
    words = ["</s>", "<unk>", *pieces[20:], ">>ko<<", "<pad>"]
    return {"source.spm": model, "target.spm": model, "vocab.json": json_of(numbered(words))}


def m2m_files() -> Files:
    model = SOME_PIECES()
    words = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(model)[3:]]
    return {"sentencepiece.bpe.model": model, "vocab.json": json_of(numbered(words))}


def word_end_files(*special: str, of_bytes: bool = False) -> Files:
    """Return files of pairs in which the last token of a word ends in `</w>`.

    The words are those that occur twice, each merged from left to right. Here, too, the trainer of
    `tokenizers` gives tokens other IDs in each process.
    """
    lines = [*CORPUS, *(line.lower() for line in CORPUS)]
    letters = sorted(set("".join(lines)) - {" ", "\t"})
    if of_bytes:
        splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        lines = [splitter.pre_tokenize_str(line)[0][0].replace("Ġ", " ") for line in lines]
        letters = sorted(splitter.alphabet())
    counts = Counter(word for line in lines for word in line.split())
    words = sorted(word for word, count in counts.items() if count > 2 and len(word) > 1)

    tokens = [*special, *letters, *(f"{letter}</w>" for letter in letters)]
    merges = []
    for word in words:
        left = word[0]
        for right in [*word[1:-1], f"{word[-1]}</w>"]:
            merges.append(f"{left} {right}")
            left += right
            tokens.append(left)
    distinct_tokens = list(dict.fromkeys(tokens))
    distinct_merges = dict.fromkeys(merges)
    return {
        "vocab.json": json_of(numbered(distinct_tokens)),
        "merges.txt": lines_of(["#version: 0.2", *distinct_merges]),
    }


def byte_word_end_files(*special: str) -> Files:
    return word_end_files(*special, of_bytes=True)


def at_sign_files() -> Files:
    """Return CTRL's files: a token that is not the end of a word is spelled with `@@`."""
    files = word_end_files("<unk>")
    words = ["<unk>"]
    for token in list(json.loads(files["vocab.json"]))[1:]:
        if token.endswith("</w>"):
            words.append(token.removesuffix("</w>"))
        else:
            words.append(f"{token}@@")
    return {"vocab.json": json_of(numbered(words)), "merges.txt": files["merges.txt"]}


def character_files(*special: str) -> Files:
    characters = sorted(set("".join(CORPUS)) - {" ", "\t"})
    return {"vocab.txt": lines_of([*special, *characters])}


def speech_files() -> Files:
    words = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'ÄÖÜ한국어"]
    return {"vocab.json": json_of(numbered(words))}


# --- folders --------------------------------------------------------------------------------------


def prophetnet_files() -> Files:
    words = words_of(word_pieces("[PAD]", "[X_SEP]", *BERT[1:]))
    return {"prophetnet.tokenizer": lines_of(words)}


def no_files() -> Files:
    return {}


@dataclass(frozen=True)
class Folder:
    """The files of a tokenizer, and what the configurations beside them say."""

    files: list[str]  # what makes them, a function of this module, and its arguments
    tokenizer_class: str = ""
    model_type: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # more of tokenizer_config.json
    matrix: str = ""  # the name of the token matrix; empty if there is none
    is_python: bool = False  # whether only Python code splits a text

    def made_files(self) -> Files:
        maker, *arguments = self.files
        made: Files = globals()[maker](*arguments)
        return made


_DATA = data(__name__)
FOLDERS = {name: Folder(**row) for name, row in _DATA["folders"].items()}

# Folders that transformers reads alike, though their files differ.
ALIKE = ("llama", "t5", "xlm-roberta", "bert", "gpt2")


def write(folder: Folder, path: Path) -> None:
    """Write the files of a folder, and its token matrix."""
    for name, content in folder.made_files().items():
        (path / name).write_bytes(content)
    settings = dict(folder.settings)
    if folder.tokenizer_class:
        settings["tokenizer_class"] = folder.tokenizer_class
    if settings:
        (path / "tokenizer_config.json").write_bytes(json_of(settings))
    config: dict[str, Any] = {}
    if folder.model_type:
        config["model_type"] = folder.model_type
    (path / "config.json").write_bytes(json_of(config))

    size = vocabulary_size(opened(path))
    config["vocab_size"] = size
    (path / "config.json").write_bytes(json_of(config))
    if folder.matrix:
        save_file({folder.matrix: rows(size)}, path / "model.safetensors")


def rows(size: int) -> np.ndarray:
    """Return the token matrix of V tokens, (V, 8) float32."""
    return normal(size, 8, 7)


def opened(path: Path) -> Any:
    """Return a folder's tokenizer as transformers reads it."""
    transformers.logging.set_verbosity_error()
    return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)


def vocabulary_size(tokenizer: Any) -> int:
    """Return V: the largest ID + 1; M2M100 puts a language before a text that it does not list."""
    return max([*tokenizer.get_vocab().values(), *tokenizer("a").input_ids]) + 1


# --- texts ----------------------------------------------------------------------------------------

_SPECIAL_NAMES = """
<s> </s> <unk> <pad> <mask> <bos> <eos> <cls> <|endoftext|> <|startoftext|> <|im_start|> <|im_end|>
<|IM|> <|end|> [CLS] [SEP] [MASK] [UNK] [PAD] <extra_id_0> <extra_id_4> <|en|> <|de|>
<|notimestamps|> >>ko<< ko_KR __ko__ ▁ ##s </w> @@ <0x0A> <0xED> Ġ Ċ
"""
_SPECIAL = _SPECIAL_NAMES.split()

_GLUE = _DATA["glue"]
_ODD = _DATA["odd"]
_WORDS = " ".join(CORPUS).split()


def _texts(count: int) -> list[str]:
    """Return texts: those with a point of their own, and random ones, always the same."""
    found = [*_DATA["texts"]]
    found += [text * times for text, times in _DATA["repeated"].items()]
    for name in _SPECIAL:
        found += [name, f"the {name} cat", f"{name}cat{name}"]
    chosen = random.Random(5)
    while len(found) < count:
        words = []
        for _ in range(chosen.randint(1, 9)):
            word = chosen.choice(_WORDS)
            kind = chosen.randrange(9)
            if kind == 0:
                word = word.upper()
            elif kind == 1:
                word = word.title()
            elif kind == 2:
                word = unicodedata.normalize("NFD", word)
            elif kind == 3:
                word = unicodedata.normalize("NFKC", word)
            elif kind == 4:
                place = chosen.randint(0, len(word))
                word = word[:place] + chosen.choice(_ODD) + word[place:]
            elif kind == 5:
                word = chosen.choice(_SPECIAL)
            elif kind == 6:
                word = str(chosen.randrange(10**6))
            words += [word, chosen.choice(_GLUE)]
        found.append("".join(words))
    return found[:count]


TEXTS = tuple(_texts(500))

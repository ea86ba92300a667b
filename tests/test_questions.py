"""Questions of readers, in words of theirs, find the entry of `explain` that answers them."""

from __future__ import annotations

import pytest

import embcli
from embcli.verbs import explain as glossary
from tests.runners import InProcess
from tests.snapshots import Snapshot

# What a student, a lecturer and an engineer ask, and the word whose entry answers.
QUESTIONS = {
    # A student who reads the chapter with embcli beside it.
    "why is a gradient of a row not the row": "gradient",
    "what is a gradient row": "gradient",
    "why is the one-hot product the same": "one-hot",
    "why not the book's numbers": "seed",
    "my numbers differ from the book": "seed",
    "why are these batch rows not those of lookup": "data loader",
    "why does lookup give other position rows than batch": "data loader",
    "how do I read the batch table": "B",
    "what is cosine similarity": "cosine",
    "what is a token": "token",
    "what is an embedding": "embedding layer",
    "absolute vs relative": "kinds of positions",
    "linear layer weight transposed": "linear layer",
    "relative vs rotary": "kinds of positions",
    "where does relative add": "relative",
    "what do the signs of batch --windows mean": "windows",
    "what is a transpose": "linear layer",
    "why does my word have three tokens": "byte pair encoding",
    "what does the space before a word do": "␣",
    "how does a text become numbers": "token ID",
    "what is the difference between inputs and targets": "target",
    "why are targets shifted by one": "target",
    "how large is the vocabulary of gpt2": "V",
    "what does the context length limit": "C",
    "why do positions start at 0": "position",
    "what happens to words the tokenizer does not know": "unknown token",
    "what is <|endoftext|> for": "special token",
    "does the embedding learn during training": "embedding layer",
    "what does stride do in a sliding window": "stride",
    "why does the loss go down": "loss",
    "what is the learning rate": "gradient",
    "how many parameters does an embedding layer have": "parameter",
    "why is the dot product not the same as the cosine": "dot product",
    "which columns does RoPE rotate": "pairing",
    "does word order matter": "position",
    "sum of token and position embeddings": "input embedding",
    "what is a sinusoidal encoding good for": "sinusoidal",
    "why do random rows mean nothing": "seed",
    "how does BERT's tokenizer work": "WordPiece",
    "what does shuffling do to the samples": "data loader",
    "what happens to the last batch if it is too small": "incomplete batch",
    # A lecturer who prepares a course.
    "show that a lookup is a matrix multiplication": "linear layer",
    "how do I make a handout for students": "tour",
    "how do I save a picture for a slide": "pictures",
    "which command belongs to section 2.6": "chapter",
    "how do I show a matrix in colours": "heat map",
    "what is a one-hot vector": "one-hot",
    "how can I explain attention": "block",
    "why is king minus man plus woman famous": "analogy",
    "what do the shapes (B, T, D) mean": "tensor",
    "cost of a one-hot product compared with a lookup": "multiply-adds",
    "are the two layers really bit-identical": "bit-identical",
    "what is a bag of words": "bag of tokens",
    "euclidean vs cosine": "cosine",
    "learned vs sinusoidal": "kinds of positions",
    "encoder vs decoder": "encoder",
    "stride vs max length": "stride",
    "lookup vs one-hot": "one-hot",
    "layernorm vs rmsnorm": "LayerNorm",
    "padding token vs unused row": "unused",
    # An engineer who looks into a model.
    "which file formats can I export": "formats",
    "how do I load the rows into pandas": "formats",
    "exit code of diff": "exit status",
    "how do I read a model from the hugging face hub": "hf://",
    "where are seeded layers cached": "cache",
    "can it read quantized gguf files": "quantised",
    "is my output head tied to the token matrix": "tied",
    "find glitch tokens in a checkpoint": "under-trained",
    "duplicate rows in a matrix": "sound",
    "nan values in the embedding": "sound",
    "how do I merge a lora adapter": "LoRA",
    "what is the dtype bf16": "float32",
    "rows of new tokens after resize": "special IDs",
    "nearest neighbours of a word vector": "neighbors",
    "how does rope scaling work": "theta",
    "use embcli in a jupyter notebook": "Python",
    "how do I turn off colours": "environment",
    "count tokens of many files": "count",
    "does it need a network connection": "hf://",
    "gpt2 vs o200k_base": "encoding",
    "which rows changed after fine-tuning": "changed",
    "install shell completion": "completion",
    "what does audit check": "audit",
    "how do I search with my own vector": "query",
    "json keys of the output": "run",
    # Others, written when the search had been made.
    "how do I get the vectors as a numpy file": "formats",
    "is a token the same as a word": "token",
    "can I see the merges of a word": "byte pair encoding",
    "what happens if the text is longer than the context": "C",
    "how are positions added to tokens": "input embedding",
    "does changing the seed change the result": "seed",
    "what is a weight matrix": "weight matrix",
    "which optimizer moves untouched rows": "gradient",
    "what does softmax do": "loss",
    "how does batch size affect shape": "B",
    "what is overlap between samples": "stride",
    "what does clip k mean in relative positions": "relative",
    "how do the frequencies depend on theta": "theta",
    "what is interleaved pairing": "pairing",
    "how long is a row": "norm",
    "distance between two rows": "L2 distance",
    "which rows are never trained": "unused",
    "how do I compare two checkpoints": "diff",
    "what tensors are in a file": "tensor",
    "can embcli read word2vec": "files of models",
    "how do I see all columns": "left out",
    "pipe text into embcli": "input and pipes",
    "how do I run on the full screen": "explore",
    "what is the hidden state": "hidden",
    "does bert have segment embeddings": "token type",
    "what is scale by sqrt d in gemma": "recipe",
    "ollama models": "models on this machine",
    "mean and standard deviation of weights": "mean",
    "are neighbours computed exactly": "exact search",
    "sentencepiece byte fallback": "Unigram",
    "llama chat format": "chat template",
    "windows line endings": "line end",
    "how many r in strawberry": "token",
    "how are words split into tokens": "byte pair encoding",
    "is a larger vocabulary better": "V",
}


FOUND = {
    question: [entry.word for entry in glossary.explain(question).entries] for question in QUESTIONS
}


def test_at_least_95_of_100_questions_find_their_entry() -> None:
    missed = {
        question: FOUND[question]
        for question, word in QUESTIONS.items()
        if word not in FOUND[question]
    }
    assert len(missed) <= 0.05 * len(QUESTIONS), missed


def test_at_least_95_of_100_entries_that_stand_alone_are_right() -> None:
    alone = {question: found[0] for question, found in FOUND.items() if len(found) == 1}
    assert len(alone) >= 0.5 * len(QUESTIONS)
    wrong = {question: word for question, word in alone.items() if word != QUESTIONS[question]}
    assert len(wrong) <= 0.05 * len(alone), wrong


def test_candidates_are_two_or_three_in_a_line_or_two_each(
    in_process: InProcess, snapshot: Snapshot
) -> None:
    assert max(map(len, FOUND.values())) == 3
    page = in_process.ok("explain", "why is the one-hot product the same", "--width", "80").text
    snapshot("explain/candidates.txt", page)


def test_both_sides_of_a_comparison_are_shown(in_process: InProcess) -> None:
    page = in_process.ok("explain", "euclidean", "vs", "cosine").text
    for word in ("L2 distance", "cosine"):
        assert in_process.ok("explain", word).text in page


def test_an_entry_that_names_both_sides_stands_alone() -> None:
    assert FOUND["relative vs rotary"] == ["kinds of positions"]


def test_words_that_all_questions_have_find_nothing() -> None:
    with pytest.raises(embcli.InputError, match="not explained"):
        embcli.explain("what is the one")
